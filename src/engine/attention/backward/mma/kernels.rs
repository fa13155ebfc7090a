//! The kernels of gradients on tensor cores, with their parameters.

use serde::Serialize;

use crate::engine::attention::backward::delta::delta;
use crate::engine::attention::backward::dq_accum::{AddedDq, DqAccum, workspace_bytes};
use crate::engine::attention::backward::kernels::{DELTA, Launch, kernel, names};
use crate::engine::attention::backward::mma::schedule::{DqSum, Half, Mma, Schedule};
use crate::engine::attention::backward::operands::{OPERAND_TILE, optional, passed};
use crate::engine::attention::backward::parameters::{
    GradientParameters, gradient_parameters, key_line,
};
use crate::engine::attention::backward::workspace::Workspace;
use crate::engine::attention::parameters::literal;
use crate::engine::attention::score::Source;
use crate::engine::instruction::MmaInstruction;
use crate::engine::signature::ctype;
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
                accum.convert_kernel(&self.problem, self.target),
            ]),
        }
        kernels.extend(optional(&self.problem, self.target, OPERAND_TILE));
        let scratch = workspace_bytes(&self.problem, self.target, accum);
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
        let line = key_line(problem, accum.is_some());
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
            dq_chunks: half.dq_chunks,
            accum: accum.map(|accum| accum.added(problem, self.target)),
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
    /// How often a warp computes a part of its columns of dQ.
    dq_chunks: i64,
    accum: Option<AddedDq>,
}

#[derive(Serialize)]
struct QueryParameters {
    #[serde(flatten)]
    mma: MmaParameters,
    cta_q: i64,
    step_k: i64,
    dq_access: i64,
}
