//! GEMM on Hopper's tensor cores: a persistent, warp-specialised kernel in which a producer warp
//! loads operand tiles by TMA and consumer warpgroups multiply them with `wgmma`.
//!
//! Operands do not pass through registers, so they have no prologues, and their layouts must be
//! legal for TMA (`tma`). Those of convolutions that are read through a window are copied as pixels
//! (`window`). The epilogue runs on the accumulators as in the other engines.

mod heuristic;
mod kernel;
mod operands;
mod schedule;
mod tma;
mod window;

use kiln_sass::TileOrder;

use crate::engine::config::combinations;
use crate::engine::gemm::lowering::scratch;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::rasterization::{Rasterization, distinguished};
use crate::engine::gemm::tiling::{Refusal, behavior, for_any_k};
use crate::engine::gemm::wgmma::heuristic::Decision;
use crate::engine::gemm::wgmma::operands::WgmmaOperands;
use crate::engine::gemm::wgmma::schedule::{KNOBS, NAME, SLICE_ROWS, Schedule, knobs};
use crate::engine::gemm::work::Demand;
use crate::engine::instruction::expect_wgmma;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{Engine, KernelWork, Knob, Notes, NumericalNote, Supported};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

/// The engine `gemm_wgmma`: persistent GEMMs on Hopper's `wgmma`, fed by TMA.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct WgmmaEngine;

impl Engine for WgmmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn adds_in_place(&self, _is_whole: bool) -> bool {
        true
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        expect_wgmma(target.arch)?;
        let mut problem = Problem::of(graph, target.arch.capability)?;
        let operands = WgmmaOperands::of(&problem)?;
        problem.k = operands.k().unwrap_or(problem.k);
        let (demand, decision) = (Demand::of(&problem), Decision::of(&problem, &operands, target));
        let best = decision.values();
        Ok(Box::new(Tuned::of(Wgmma { problem, operands, demand, decision, target }, [best])?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Wgmma<'a> {
    problem: Problem<'a>,
    operands: WgmmaOperands,
    demand: Demand,
    decision: Decision,
    target: &'a Target,
}

impl Tunable<10> for Wgmma<'_> {
    const KNOBS: [&'static str; 10] = KNOBS;
    type Settings = [i64; 10];
    type Schedule = Schedule;
    type Refusal = Refusal;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 10] {
        knobs(&self.problem)
    }

    fn listed_knobs(&self) -> Vec<Knob> {
        for_any_k(&self.problem, self.all_knobs())
    }

    fn schedule(&self, settings: [i64; 10]) -> Result<Schedule, Refusal> {
        Schedule::new(&self.problem, &self.operands, self.target, settings)
    }

    fn best(&self) -> [i64; 10] {
        self.decision.values()
    }

    fn reasons(&self) -> Vec<String> {
        self.decision.reasons()
    }

    fn smaller(&self, settings: [i64; 10]) -> Vec<[i64; 10]> {
        // Half of the tile's columns, else of its rows, in whole tiles of 64.
        let halved = |knob: &str| {
            let at = KNOBS.iter().position(|name| *name == knob)?;
            let mut smaller = settings;
            smaller[at] = settings[at] / 2 / 64 * 64;
            (smaller[at] > 0).then_some(smaller)
        };
        ["cta_n", "cta_m"].into_iter().filter_map(halved).collect()
    }

    fn ranked(&self) -> Vec<[i64; 10]> {
        let sm_count = i64::from(self.target.sm_count);
        let ordered = |[cluster, cta_m, cta_n, k, m, _, ping_pong, _, split_k, stages]: [i64;
                           10]| {
            let rasterization =
                Rasterization::of(&self.problem, [cluster * cta_m, cta_n], sm_count / cluster);
            let [group, raster] = [rasterization.group, rasterization.raster()];
            [cluster, cta_m, cta_n, k, m, group, ping_pong, raster, split_k, stages]
        };
        combinations(&self.all_knobs().map(distinguished)).map(ordered).collect()
    }

    fn notes(&self, settings: [i64; 10]) -> Notes {
        let [.., split_k, _] = settings;
        let rounded = self.operands.rounds().then_some(NumericalNote::DownConvertInputs);
        let numerical = std::iter::once(NumericalNote::TensorCore).chain(rounded).collect();
        Notes { numerical, behavior: behavior(&self.problem, split_k) }
    }

    fn pays(&self) -> bool {
        self.decision.pays(&self.problem)
    }

    fn tile_order(&self, schedule: &Schedule) -> Option<TileOrder> {
        schedule.tiling.tile_order(&self.problem, schedule.cluster, true)
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        schedule.work(&self.problem, &self.demand, &self.operands)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        kernel::lowering(&self.problem, &self.operands, schedule, self.target.arch)
    }

    fn scratch(&self, schedule: &Schedule) -> Vec<u64> {
        let epilogue_tile = [SLICE_ROWS, schedule.tile.warp_n(&self.problem)];
        scratch(&self.problem, schedule.tiling.split_k, epilogue_tile)
    }
}
