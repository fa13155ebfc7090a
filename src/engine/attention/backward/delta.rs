//! The kernel of delta, the sum of dO O of each row, which runs before all others.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::ceil_div;
use crate::engine::attention::backward::dq_accum::DqAccum;
use crate::engine::attention::backward::kernels::{DELTA, Launch, THREADS, kernel, names};
use crate::engine::attention::backward::parameters::with_workspace;
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::backward::workspace::Workspace;
use crate::engine::attention::parameters::{ProblemParameters, listing};
use crate::kernel::KernelPlan;
use crate::target::Target;

#[derive(Serialize)]
struct DeltaParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    listing: Vec<String>,
    dlse: bool,
    accum: Option<DqAccum>,
}

/// The kernel that computes delta, a warp per query, and clears dQ in workspace.
pub(super) fn delta(
    problem: &BackwardProblem<'_>,
    target: &Target,
    accum: Option<DqAccum>,
) -> KernelPlan {
    let of_sequence = ["query_lengths", "key_lengths", "query_offsets", "key_offsets"];
    let reads = |slot: &str| matches!(slot, "o" | "do" | "dlse") || of_sequence.contains(&slot);
    let passed: Vec<_> = problem.forward.passed().filter(|(slot, _)| reads(slot)).collect();
    let dlse = if problem.op.dlse { " - dlse[b, h, i]" } else { "" };
    let workspace: Vec<Workspace> =
        DELTA.iter().copied().chain(accum.map(DqAccum::cleared)).collect();
    let parameters = DeltaParameters {
        problem: with_workspace(problem, &passed, BTreeSet::new(), &workspace),
        listing: listing(
            &problem.forward,
            vec![format!("delta[b, h, i] = do[b, h, i] . o[b, h, i]{dlse}")],
        ),
        dlse: problem.op.dlse,
        accum,
    };
    let template = "attention/sm75_attention_delta.cu";
    let names = names(problem, "sm75", "delta", template, "attention_delta");
    let blocks = ceil_div(problem.rows(), THREADS / 32);
    let launch = Launch { blocks, threads: THREADS, shared_bytes: 0 };
    kernel(problem, target, names, &parameters, &passed, &workspace, launch)
}
