//! Gradients of attention on tensor cores by `mma.sync`, for 16-bit floats and tf32 from sm_80 (Dao
//! 2023, "FlashAttention-2").
//!
//! A block of the kernel of dK and dV has a tile of keys, rows of S^T: P^T and dS^T are operands of
//! the next MMA in the registers that they are computed in, or in shared memory where two warps
//! share keys, because dK and dV are more than the registers of one. It adds dS K of each tile of
//! queries to dQ in workspace, in an order of the tiles of keys or in any: 5 GEMMs of tiles. Or dQ
//! has a kernel of its own, whose blocks have a tile of queries and compute the scores again: 7
//! GEMMs of tiles, and no sum of blocks.

mod kernels;
mod schedule;
mod work;

use crate::dtype::DType;
use crate::engine::attention::backward::dq_accum::{ORDERED, UNORDERED};
use crate::engine::attention::backward::mma::schedule::{
    LEAST, LEAST_SHARED, Mma, OWN, Schedule, Settings,
};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::work::GAIN_MIN;
use crate::engine::signature::refuse_older;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{
    BehaviorNote, CostModel, Engine, KernelWork, Knob, Notes, NumericalNote, Supported,
};
use crate::error::{Error, Result};
use crate::graph::{AttentionShape, CanonicalGraph, MatmulMath};
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "attention_backward_mma";

/// The first architecture with `cp.async` and these MMAs.
const CAPABILITY_MIN: u16 = 80;

/// Maximum elements of a head: dK and dV of the keys of two warps are in registers.
const ELEMENTS_MAX: i64 = 256;

/// The engine `attention_backward_mma`: gradients on `mma.sync` tensor cores.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct BackwardMmaEngine;

impl Engine for BackwardMmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let unsupported = |text: String| Err(Error::not_supported(text));
        let capability = target.arch.capability;
        let problem = BackwardProblem::of(graph, capability)?;
        refuse_older(capability, CAPABILITY_MIN)?;
        let forward = &problem.forward;
        let types = ["q", "k", "v", "do"].map(|slot| forward.tensor(slot).dtype);
        let [q, k, v, d_o] = types;
        let same = types.iter().all(|dtype| *dtype == q);
        let takes = match q {
            DType::F16 | DType::Bf16 => forward.op.math != MatmulMath::F64,
            DType::F32 => forward.op.math == MatmulMath::Tf32,
            _ => false,
        };
        if !same || !takes {
            return unsupported(format!(
                "q is {q}, k is {k}, v is {v} and do is {d_o} in math {}: tensor cores take f16 \
                 or bf16 for all of them in f32 or tf32, f32 in tf32",
                forward.op.math.name()
            ));
        }
        let AttentionShape { depth, width, .. } = forward.shape;
        if depth.max(width) > ELEMENTS_MAX {
            return unsupported(format!(
                "heads of {depth} and {width} elements, more than {ELEMENTS_MAX}"
            ));
        }
        Ok(Box::new(Tuned::of(Mma { problem, target, element: q }, [LEAST, LEAST_SHARED])?))
    }
}

impl Tunable<5> for Mma<'_> {
    const KNOBS: [&'static str; 5] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Schedule;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 5] {
        let (sizes, steps) = ([16, 32, 64, 128], [16, 32, 64]);
        let or_none = |values: &[i64]| [&[0], values].concat();
        let cta_k = "keys of a CTA of dK and dV; changes the order of sums of dQ";
        let dq =
            "0: dQ has its own kernel; CTAs of dK and dV add to it 1: in order, 2: in any order";
        let step_k = "keys of a step of dQ's own kernel; changes the order of sums";
        let step_q = "queries of a step of dK and dV; changes the order of sums";
        let cta_q = "queries of a CTA of dQ's own kernel";
        [
            Knob { name: "cta_k", about: cta_k, values: sizes.to_vec() },
            Knob { name: "cta_q", about: cta_q, values: or_none(&sizes) },
            Knob { name: "dq", about: dq, values: vec![OWN, ORDERED, UNORDERED] },
            Knob { name: "step_k", about: step_k, values: or_none(&steps) },
            Knob { name: "step_q", about: step_q, values: steps.to_vec() },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        self.schedule_of(settings)
    }

    /// The faster one, by the cost model, of the two ways of dQ that repeat bit by bit, with other
    /// tiles where blocks would wait for each other.
    fn best(&self) -> Settings {
        let model = CostModel::of(self.target);
        let us = |settings: &Settings| {
            let schedule = self.schedule_of(*settings).expect("the best settings are legal");
            model.predicted_us(&self.work_of(&schedule))
        };
        let all = [ORDERED, OWN].into_iter().filter_map(|dq| self.best_of(dq));
        let rule = all.min_by(|a, b| us(a).total_cmp(&us(b))).expect("the least tile fits");
        self.cheapest(self.target, rule, self.tiles_of(ORDERED))
    }

    fn reasons(&self) -> Vec<String> {
        let best = self.best();
        let Settings { cta_k, cta_q, dq, step_k, step_q } = best;
        let sm_count = self.target.sm_count;
        let schedule = self.schedule_of(best).expect("the best settings are legal");
        let AttentionShape { depth, width, .. } = self.problem.forward.shape;
        let of_keys = schedule.of_keys.blocks;
        let of_dq = match dq {
            OWN => [
                format!(
                    "cta_q={cta_q}: {} blocks of queries for {sm_count} SMs",
                    self.problem.forward.blocks(cta_q)
                ),
                format!("dq={dq}: seven GEMMs of a tile take less time than waits for dQ"),
                format!("step_k={step_k}: scores and dQ of {depth} elements fit in registers"),
            ],
            _ => [
                format!("cta_q={cta_q}: dQ has no kernel of its own"),
                format!("dq={dq}: five GEMMs of a tile and the traffic of dQ take less time"),
                format!("step_k={step_k}: dQ has no kernel of its own"),
            ],
        };
        let [of_cta_q, of_dq, of_step_k] = of_dq;
        vec![
            format!("cta_k={cta_k}: {of_keys} blocks of keys for {sm_count} SMs"),
            of_cta_q,
            of_dq,
            of_step_k,
            format!("step_q={step_q}: scores, dK and dV of {depth} and {width} elements fit"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { cta_k, cta_q, step_k, step_q, .. } = settings;
        let mut all = vec![
            Settings { step_q: step_q / 2, ..settings },
            Settings { step_k: step_k / 2, ..settings },
            Settings { cta_k: cta_k / 2, ..settings },
            Settings { cta_q: cta_q / 2, ..settings },
        ];
        all.retain(|smaller| *smaller != settings);
        all
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, settings: Settings) -> Notes {
        let rounds = self.is_tf32().then_some(NumericalNote::DownConvertInputs);
        let any_order = (settings.dq == UNORDERED).then_some(NumericalNote::Nondeterministic);
        let of_settings = rounds.into_iter().chain(any_order);
        Notes {
            numerical: [NumericalNote::TensorCore].into_iter().chain(of_settings).collect(),
            behavior: vec![BehaviorNote::RuntimeCompilation, BehaviorNote::Workspace],
        }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        self.work_of(schedule)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        self.kernels(schedule)
    }
}
