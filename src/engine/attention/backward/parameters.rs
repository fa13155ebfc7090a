//! Template parameters of kernels of gradients.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::backward::workspace::Workspace;
use crate::engine::attention::parameters::{
    Input, ProblemParameters, ScoreParameters, emitted, listing, problem_parameters, score_line,
    score_parameters,
};
use crate::engine::attention::score::Source;
use crate::engine::signature::ctype;
use crate::graph::AttentionShape;

/// What every kernel of gradients reads (`attention/problem.cuh`, `attention/row_statistics.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct GradientParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    score: ScoreParameters,
    /// The derivative of the score program, if there is one.
    gradient: Option<Gradient>,
}

impl GradientParameters {
    /// Coordinates of a query's and of a key's sequence.
    pub(super) fn batches(&self) -> [&'static str; 2] {
        let of = &self.problem.sequence;
        [of.q_batch, of.k_batch]
    }
}

/// The gradient of an input of the score program.
#[derive(Debug, Clone, Serialize)]
struct Gradient {
    /// Whose gradient it is.
    of: &'static str,
    inputs: Vec<Input>,
    lines: Vec<String>,
}

/// Parameters of a kernel to which these tensors are passed, which computes what `lines` say with
/// gradients of `of`.
pub(super) fn gradient_parameters(
    problem: &BackwardProblem<'_>,
    passed: &[(&'static str, usize)],
    of: Source,
    result: String,
    workspace: &[Workspace],
) -> GradientParameters {
    let forward = &problem.forward;
    let lines = [vec![result], formulas(problem)].concat();
    let (score, mut functions) = score_parameters(forward, listing(forward, lines));
    let gradient = problem.gradient(of).map(|program| {
        let (inputs, own) = emitted(forward, &program, "d_score");
        functions.extend(own.functions);
        let of = match of {
            Source::Score => "the product q . k",
            Source::Tensor(slot) => slot,
            Source::Coordinate(_) => unreachable!("coordinates have no gradient"),
        };
        Gradient { of, inputs, lines: own.lines }
    });
    let problem = with_workspace(problem, passed, functions, workspace);
    GradientParameters { problem, score, gradient }
}

/// Parameters of a kernel that reads or writes this workspace.
pub(super) fn with_workspace(
    problem: &BackwardProblem<'_>,
    passed: &[(&'static str, usize)],
    functions: BTreeSet<&'static str>,
    workspace: &[Workspace],
) -> ProblemParameters {
    let mut parameters = problem_parameters(&problem.forward, passed, false, functions);
    let is_double = problem.forward.is_double();
    parameters.scratch = workspace.iter().map(|piece| piece.declaration(is_double)).collect();
    parameters
}

/// What a kernel of dK and dV on tensor cores computes, and whether of dQ.
pub(super) fn key_line(problem: &BackwardProblem<'_>, adds_dq: bool) -> String {
    let AttentionShape { heads, kv_heads, .. } = problem.forward.shape;
    let of_group = if heads == kv_heads { "i" } else { "i and the heads h of a group" };
    let of_dq = match adds_dq {
        true => "; dq_accum[b, h, i] += ds[b, h, i, j] k[b, h, j] of the block's keys j",
        false => "",
    };
    format!(
        "dk[b, h, j] = sum over {of_group} of ds[b, h, i, j] q[b, h, i], dv[b, h, j] = that of \
         p[b, h, i, j] do[b, h, i]{of_dq}"
    )
}

/// What all gradients are computed of.
fn formulas(problem: &BackwardProblem<'_>) -> Vec<String> {
    let kept = if problem.forward.op.dropout.is_some() { "kept[b, h, i, j] " } else { "" };
    vec![
        "ds[b, h, i, j] = p[b, h, i, j] (dp[b, h, i, j] - delta[b, h, i])".to_owned(),
        "p[b, h, i, j] = exp(s[b, h, i, j] - lse[b, h, i])".to_owned(),
        format!("dp[b, h, i, j] = {kept}do[b, h, i] . v[b, h, j]"),
        score_line(&problem.forward),
    ]
}

/// The device type of the tensor in a slot.
pub(super) fn type_of(problem: &BackwardProblem<'_>, slot: &str) -> &'static str {
    ctype(problem.forward.tensor(slot).dtype)
}
