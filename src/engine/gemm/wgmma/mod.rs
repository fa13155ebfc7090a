//! Products on the tensor cores of Hopper: warpgroups multiply (`wgmma`) what bulk tensor copies
//! (TMA) bring into shared memory, in blocks that stay for many tiles.
//!
//! Operands do not pass through registers on their way, so nothing can be computed from them, and
//! they must lie as bulk copies take them: `bulk` has the rules. What follows the product runs
//! on its sums in registers, as with every engine of this family.

mod bulk;
mod heuristic;
mod kernel;
mod product;
mod schedule;

use crate::engine::config::combinations;
use crate::engine::gemm::order::{Order, told_apart};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::{Refusal, Tiling, behavior};
use crate::engine::gemm::wgmma::heuristic::Decision;
use crate::engine::gemm::wgmma::product::Product;
use crate::engine::gemm::wgmma::schedule::{KNOBS, NAME, Schedule, knobs};
use crate::engine::gemm::work::Demand;
use crate::engine::header::described;
use crate::engine::warpgroup;
use crate::engine::{Engine, EngineConfig, Knob, Notes, NumericalNote, Setting, Supported, WorkOf};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct WgmmaEngine;

impl Engine for WgmmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        warpgroup::expect(target.arch)?;
        let problem = Problem::of(graph, target.arch.capability)?;
        let product = Product::of(&problem)?;
        let decision = Decision::of(&problem, &product, target);
        Schedule::new(&problem, &product, target, decision.values())
            .map_err(|refusal| refusal.error(&decision.config()))?;
        Ok(Box::new(Wgmma { problem, product, decision, target }))
    }
}

/// A problem that bulk copies and products of warpgroups take.
#[derive(Debug, Clone)]
struct Wgmma<'a> {
    problem: Problem<'a>,
    product: Product,
    decision: Decision,
    target: &'a Target,
}

impl Wgmma<'_> {
    fn schedule(&self, values: [i64; 9]) -> Result<Schedule, Refusal> {
        Schedule::new(&self.problem, &self.product, self.target, values)
    }
}

impl Supported for Wgmma<'_> {
    fn knobs(&self) -> Vec<Knob> {
        knobs(&self.problem).to_vec()
    }

    fn heuristic(&self) -> EngineConfig {
        self.decision.config()
    }

    fn reasons(&self) -> Vec<String> {
        self.decision.reasons()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        let halved = |knob: &str, least: i64| {
            let value = config.knob(knob).ok().filter(|value| *value >= 2 * least)?;
            let smaller = config.clone().with(knob, value / 2 / least * least);
            let values = smaller.values(KNOBS).ok()?;
            self.schedule(values).is_ok().then_some(smaller)
        };
        halved("cta_n", 64).or_else(|| halved("cta_m", 64))
    }

    fn settings(&self) -> Vec<Setting> {
        let demand = Demand::of(&self.problem);
        let sm_count = i64::from(self.target.sm_count);
        let setting = |values: [i64; 9]| {
            let schedule = self.schedule(values).ok()?;
            let work = schedule.work(&self.problem, &demand, &self.product);
            let Tiling { cta_m, cta_n, .. } = schedule.tiling;
            let order = Order::of(&self.problem, [cta_m, cta_n], sm_count / schedule.cluster);
            let config = EngineConfig::of_values(NAME, KNOBS, values);
            let config = config.with("raster", order.raster());
            Some(Setting { config, work })
        };
        combinations(&knobs(&self.problem).map(told_apart)).filter_map(setting).collect()
    }

    fn work_of(&self) -> WorkOf<'_> {
        let demand = Demand::of(&self.problem);
        Box::new(move |config| {
            let schedule = self.schedule(config.values(KNOBS).ok()?).ok()?;
            Some(schedule.work(&self.problem, &demand, &self.product))
        })
    }

    fn notes(&self, config: &EngineConfig) -> Notes {
        let rounded = self.product.rounds().then_some(NumericalNote::DownConvertInputs);
        let numerical = std::iter::once(NumericalNote::TensorCore).chain(rounded).collect();
        Notes { numerical, behavior: behavior(&self.problem, config) }
    }

    fn pays(&self) -> bool {
        self.decision.pays(&self.problem)
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        let knobs = knobs(&self.problem);
        config.validate(&knobs)?;
        let schedule = self.schedule(config.values(KNOBS)?);
        let schedule = schedule.map_err(|refusal| refusal.error(config))?;
        let Wgmma { problem, product, target, .. } = self;
        let lowering = kernel::lowering(problem, product, &schedule, target.arch)?;
        Ok(described(lowering, config, &knobs))
    }
}
