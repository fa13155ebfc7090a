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

use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::wgmma::heuristic::Decision;
use crate::engine::gemm::wgmma::product::Product;
use crate::engine::gemm::wgmma::schedule::{Schedule, knobs};
use crate::engine::gemm::work::Demand;
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, Knob, Lowering, Notes, NumericalNote, Setting,
};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::target::{Arch, Target};

const NAME: &str = "gemm_wgmma";

/// The one architecture that has these instructions.
const ARCH: Arch = Arch { capability: 90, specific: true };

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct WgmmaEngine;

impl Engine for WgmmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        Supported::of(graph, target).map(drop)
    }

    fn pays(&self, graph: CanonicalGraph<'_>, target: &Target) -> bool {
        let of = Supported::of(graph, target).expect("the graph is supported");
        heuristic::pays(&of.problem, &of.product, target)
    }

    fn knobs(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Knob> {
        Supported::of(graph, target).expect("the graph is supported");
        knobs()
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        let of = Supported::of(graph, target).expect("the graph is supported");
        Decision::of(&of.problem, &of.product, target).config()
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        let of = Supported::of(graph, target).expect("the graph is supported");
        Decision::of(&of.problem, &of.product, target).reasons()
    }

    fn smaller(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Option<EngineConfig> {
        let Supported { problem, product } = Supported::of(graph, target).ok()?;
        let halved = |knob: &str, least: i64| {
            let value = config.knob(knob).ok().filter(|value| *value >= 2 * least)?;
            let smaller = config.clone().with(knob, value / 2 / least * least);
            Schedule::new(&problem, &product, target, &smaller).is_ok().then_some(smaller)
        };
        halved("cta_n", 64).or_else(|| halved("cta_m", 64))
    }

    fn settings(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Setting> {
        let Supported { problem, product } =
            Supported::of(graph, target).expect("the graph is supported");
        let demand = Demand::of(&problem);
        let setting = |config: EngineConfig| {
            let schedule = Schedule::new(&problem, &product, target, &config).ok()?;
            Some(Setting { config, work: vec![schedule.work(&demand, &product)] })
        };
        EngineConfig::all(NAME, &knobs()).into_iter().filter_map(setting).collect()
    }

    fn notes(&self, graph: CanonicalGraph<'_>, target: &Target, _config: &EngineConfig) -> Notes {
        let of = Supported::of(graph, target).expect("the graph is supported");
        let rounded = of.product.rounds().then_some(NumericalNote::DownConvertInputs);
        let numerical = std::iter::once(NumericalNote::TensorCore).chain(rounded).collect();
        Notes { numerical, behavior: vec![BehaviorNote::RuntimeCompilation] }
    }

    fn lower(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Lowering> {
        let Supported { problem, product } = Supported::of(graph, target)?;
        config.validate(&knobs())?;
        let schedule = Schedule::new(&problem, &product, target, config)?;
        Ok(Lowering::from(kernel::plan(&problem, &product, &schedule, target.arch)))
    }
}

/// A graph that the engine takes.
struct Supported<'a> {
    problem: Problem<'a>,
    product: Product,
}

impl<'a> Supported<'a> {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn of(graph: CanonicalGraph<'a>, target: &Target) -> Result<Supported<'a>> {
        if target.arch != ARCH {
            let arch = target.arch;
            return Err(Error::not_supported(format!("{arch} is not {ARCH}")));
        }
        let problem = Problem::of(graph, target.arch.capability)?;
        let product = Product::of(&problem)?;
        Schedule::new(
            &problem,
            &product,
            target,
            &Decision::of(&problem, &product, target).config(),
        )?;
        Ok(Supported { problem, product })
    }
}
