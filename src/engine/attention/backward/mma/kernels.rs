//! The kernels of gradients on tensor cores, with their parameters.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::attention::backward::kernels::{DELTA, DqAccum, Launch, delta, kernel, names};
use crate::engine::attention::backward::mma::schedule::{
    CONVERT_THREADS, DqSum, Half, Mma, OPERAND_TILE, Schedule,
};
use crate::engine::attention::backward::operands::{optional, partial_bytes, passed};
use crate::engine::attention::backward::parameters::{
    GradientParameters, gradient_parameters, type_of, with_workspace,
};
use crate::engine::attention::backward::workspace::Workspace;
use crate::engine::attention::parameters::{ProblemParameters, listing, literal};
use crate::engine::attention::score::Source;
use crate::engine::instruction::MmaInstruction;
use crate::engine::signature::ctype;
use crate::graph::AttentionShape;
use crate::kernel::{KernelPlan, Lowering};

impl Mma<'_> {
    /// All kernels, and the sizes of their workspace.
    pub(super) fn kernels(&self, schedule: &Schedule) -> Lowering {
        let accum = schedule.accum();
        let mut kernels = vec![delta(&self.problem, self.target, accum)];
        match schedule.dq {
            DqSum::Own(half) => {
                kernels.extend([self.query_kernel(&half), self.key_kernel(&schedule.of_keys, None)])
            }
            DqSum::Added(accum) => kernels.extend([
                self.key_kernel(&schedule.of_keys, Some(accum)),
                self.convert_kernel(accum),
            ]),
        }
        kernels.extend(optional(&self.problem, self.target, OPERAND_TILE));
        let delta = self.problem.rows().saturating_mul(self.problem.accumulator_bytes());
        let partials = partial_bytes(&self.problem, self.target, OPERAND_TILE);
        let [added, semaphores] = match accum {
            None => [0, 0],
            Some(DqAccum { step_q, ordered: false, .. }) => [self.accum_bytes(step_q), 0],
            Some(of) => [self.accum_bytes(of.step_q), self.semaphore_bytes(of.step_q)],
        };
        let scratch = [delta, added, semaphores, partials].map(|bytes| bytes as u64).to_vec();
        Lowering { kernels, scratch }
    }

    /// Parameters of a kernel on tensor cores that computes what `line` says.
    fn parameters(
        &self,
        passed: &[(&'static str, usize)],
        workspace: &[Workspace],
        half: &Half,
        line: String,
    ) -> MmaParameters {
        let forward = &self.problem.forward;
        let access = |slot: &str| forward.access(slot, 16 / self.element.bytes() as i64);
        let operand = if self.is_tf32() { "tf32" } else { self.element.name() };
        let of = Source::Score;
        MmaParameters {
            gradient: gradient_parameters(&self.problem, passed, of, line, workspace),
            mma: MmaInstruction::new(self.mma_k(), [operand; 2]),
            mma_k: self.mma_k(),
            element: ctype(self.element),
            scale: literal(forward, forward.op.scale_of(forward.shape.depth)),
            transposes: false,
            tf32: self.is_tf32(),
            narrow_kv: false,
            narrow_q: None,
            narrow_k: None,
            narrow_v: None,
            q_access: access("q"),
            k_access: access("k"),
            v_access: access("v"),
            do_access: access("do"),
            shared_bytes: half.shared_bytes,
        }
    }

    /// The kernel of dK and dV, and of dQ where blocks add to that.
    fn key_kernel(&self, half: &Half, accum: Option<DqAccum>) -> KernelPlan {
        let problem = &self.problem;
        let AttentionShape { heads, kv_heads, .. } = problem.forward.shape;
        let of_group = if heads == kv_heads { "i" } else { "i and the heads h of a group" };
        let of_dq = match accum {
            Some(_) => "; dq_accum[b, h, i] += ds[b, h, i, j] k[b, h, j] of the block's keys j",
            None => "",
        };
        let line = format!(
            "dk[b, h, j] = sum over {of_group} of ds[b, h, i, j] q[b, h, i], dv[b, h, j] = that of \
             p[b, h, i, j] do[b, h, i]{of_dq}"
        );
        let passed = passed(problem, &["dk", "dv"]);
        let added = accum.map(DqAccum::workspace).unwrap_or_default();
        let workspace = [DELTA, added].concat();
        let parameters = KeyParameters {
            mma: self.parameters(&passed, &workspace, half, line),
            cta_k: half.rows,
            step_q: half.step,
            warps_d: half.warps_d,
            dk_access: problem.forward.access("dk", 2),
            dv_access: problem.forward.access("dv", 2),
            accum: accum.map(|accum| AddedDq {
                ordered: accum.ordered,
                vectors: accum.vectors,
                chunks: half.dq_chunks,
                raster_pairs: self.raster_pairs(),
            }),
        };
        let template = "attention/sm80_attention_backward_keys.cu";
        let name = if accum.is_some() { "mma" } else { "mma_keys" };
        let names = names(problem, "sm80", name, template, "attention_backward_keys");
        let launch = launch(half);
        kernel(problem, self.target, names, &parameters, &passed, &workspace, launch)
    }

    /// The kernel of dQ.
    fn query_kernel(&self, half: &Half) -> KernelPlan {
        let problem = &self.problem;
        let line = "dq[b, h, i] = sum over j of ds[b, h, i, j] k[b, h, j]".to_owned();
        let passed = passed(problem, &["dq"]);
        let parameters = QueryParameters {
            mma: self.parameters(&passed, DELTA, half, line),
            cta_q: half.rows,
            step_k: half.step,
            dq_access: problem.forward.access("dq", 2),
        };
        let template = "attention/sm80_attention_backward_queries.cu";
        let names = names(problem, "sm80", "mma_queries", template, "attention_backward_queries");
        kernel(problem, self.target, names, &parameters, &passed, DELTA, launch(half))
    }

    /// The kernel that scales and rounds dQ, of which each thread has 8 columns of two rows.
    fn convert_kernel(&self, accum: DqAccum) -> KernelPlan {
        let problem = &self.problem;
        let forward = &problem.forward;
        let lengths = ["query_lengths", "key_lengths", "query_offsets", "key_offsets", "dq"];
        let all = forward.passed();
        let passed: Vec<_> = all.filter(|(slot, _)| lengths.contains(slot)).collect();
        let workspace = accum.workspace();
        let scale = forward.op.scale_of(forward.shape.depth);
        let is_scaled = problem.gradient(Source::Score).is_none();
        let parameters = ConvertParameters {
            problem: with_workspace(problem, &passed, BTreeSet::new(), workspace),
            listing: listing(forward, vec!["dq[b, h, i] = dq_accum[b, h, i], scaled".to_owned()]),
            accum,
            scale: is_scaled.then(|| literal(forward, scale)),
            dq_type: type_of(problem, "dq"),
            dq_access: forward.access("dq", 8),
            threads: CONVERT_THREADS,
        };
        let template = "attention/sm80_attention_backward_convert.cu";
        let names = names(problem, "sm80", "mma_convert", template, "attention_backward_convert");
        let blocks = self.convert_blocks(accum.step_q);
        let launch = Launch { blocks, threads: CONVERT_THREADS, shared_bytes: 0 };
        kernel(problem, self.target, names, &parameters, &passed, workspace, launch)
    }
}

fn launch(half: &Half) -> Launch {
    Launch { blocks: half.blocks, threads: half.threads(), shared_bytes: half.shared_bytes }
}

/// Parameters of a kernel on tensor cores (`attention/tile.cuh`, `attention/backward_mma.cuh`).
#[derive(Serialize)]
struct MmaParameters {
    #[serde(flatten)]
    gradient: GradientParameters,
    mma: MmaInstruction,
    mma_k: i64,
    element: &'static str,
    scale: String,
    transposes: bool,
    tf32: bool,
    narrow_kv: bool,
    narrow_q: Option<&'static str>,
    narrow_k: Option<&'static str>,
    narrow_v: Option<&'static str>,
    /// Bytes per access.
    q_access: i64,
    k_access: i64,
    v_access: i64,
    do_access: i64,
    shared_bytes: i64,
}

#[derive(Serialize)]
struct KeyParameters {
    #[serde(flatten)]
    mma: MmaParameters,
    cta_k: i64,
    step_q: i64,
    warps_d: i64,
    dk_access: i64,
    dv_access: i64,
    accum: Option<AddedDq>,
}

/// How blocks of keys add to dQ (`attention/dq_order.cuh`).
#[derive(Serialize)]
struct AddedDq {
    ordered: bool,
    vectors: bool,
    /// How often a warp computes a part of its columns.
    chunks: i64,
    raster_pairs: i64,
}

#[derive(Serialize)]
struct QueryParameters {
    #[serde(flatten)]
    mma: MmaParameters,
    cta_q: i64,
    step_k: i64,
    dq_access: i64,
}

#[derive(Serialize)]
struct ConvertParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    listing: Vec<String>,
    accum: DqAccum,
    scale: Option<String>,
    dq_type: &'static str,
    dq_access: i64,
    threads: i64,
}
