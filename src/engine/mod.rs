//! Engines: what can run a graph, with which knobs, and the kernel that comes of it.
//!
//! An engine maps a canonical graph, a target and an [`EngineConfig`] to a [`Lowering`]: plain
//! values that say which templates to render with which parameters and how to launch the results.
//! It must never know tensors' addresses, compile anything or touch a device.

mod access;
mod attention;
mod bulk;
mod clusters;
mod config;
mod cost;
mod dimensions;
mod expand;
mod gemm;
mod heuristics;
mod kernel;
mod layout;
mod notes;
mod partition;
mod pointwise;
mod program;
mod reduce;
mod reduction;
mod refine;
mod rnn;
mod signature;
mod splits;
mod warpgroup;

pub use config::{EngineConfig, Knob};
pub(crate) use cost::LAUNCH_US;
pub use cost::{CostModel, KernelWork, Setting, TensorWork, WorkOf, machine_of};
pub(crate) use expand::primitives;
pub use heuristics::{Choice, Mode, Selection, choices, choose};
pub use kernel::{
    Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering, Swizzle, TensorMap,
};
pub use layout::{LayoutInfo, LayoutType};
pub use notes::{BehaviorNote, Notes, NumericalNote};
pub(crate) use partition::Division;
pub use partition::{Cut, Part, cuts, partition};
pub use splits::splits_undone;

use std::fmt;

use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::target::Target;

/// A family of kernels behind one name.
pub trait Engine: Send + Sync {
    /// The engine's name in configurations and texts.
    fn name(&self) -> &'static str;

    /// The graph as this engine runs it, where it can run the whole of it.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>>;

    /// Whether one kernel serves every shape of a graph: slower than one made for the shape, but
    /// it can stand in while that is compiled.
    fn serves_any_shape(&self) -> bool {
        false
    }

    /// Whether each element of an output depends on the input elements at its own index alone and
    /// is written by the thread that reads them: an input may then be overwritten by an output that
    /// lies alike.
    fn elementwise(&self) -> bool {
        false
    }
}

/// A graph that an engine can run on a target, analysed once for all that there is to ask.
pub trait Supported: fmt::Debug {
    /// The knobs and, for this graph, their allowed values.
    fn knobs(&self) -> Vec<Knob>;

    /// The knob settings this engine expects to run best.
    fn heuristic(&self) -> EngineConfig;

    /// Why the heuristic's settings are what they are: a line for each knob, `items=2: ...`.
    fn reasons(&self) -> Vec<String>;

    /// The next setting that needs fewer registers; `None` when there is none.
    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig>;

    /// Every legal setting with what it asks of the GPU, for the cost model; of settings that the
    /// model does not tell apart, one.
    fn settings(&self) -> Vec<Setting>;

    /// What any setting asks of the GPU, one at a time.
    fn work_of(&self) -> WorkOf<'_>;

    /// Whether the cost model may correct what the rules chose: not where these know of registers
    /// that it does not see.
    fn is_refined(&self) -> bool {
        true
    }

    /// What there is to know of a setting.
    fn notes(&self, _config: &EngineConfig) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    /// The layouts it prefers for tensors with three and more dimensions; for one that is left out,
    /// any.
    fn layouts(&self) -> Vec<LayoutInfo> {
        Vec::new()
    }

    /// Whether the engine is expected to run the graph better than those that are less specialised.
    fn pays(&self) -> bool {
        true
    }

    /// Clocks that the heuristic's settings are expected to take, where engines that run the same
    /// graphs are told apart by them: of those, only the one with the fewest pays.
    fn expected_clocks(&self) -> Option<f64> {
        None
    }

    /// The kernels for these knob settings.
    ///
    /// # Errors
    /// `BadParam` for a knob that does not exist or a value that is not allowed; `NotSupported` for
    /// values that ask for too much together.
    fn lower(&self, config: &EngineConfig) -> Result<Lowering>;
}

/// All engines, the most specialised first.
pub fn engines() -> &'static [&'static dyn Engine] {
    &[
        &pointwise::PointwiseEngine,
        &pointwise::GeneralEngine,
        &reduction::ColumnsEngine,
        &reduction::ReductionEngine,
        &gemm::WgmmaEngine,
        &gemm::MmaEngine,
        &gemm::SimtEngine,
        &attention::DecodeEngine,
        &attention::WgmmaEngine,
        &attention::MmaEngine,
        &attention::SimtEngine,
        &rnn::CTA,
        &rnn::CLUSTER,
        &rnn::GRID,
        &rnn::STREAM,
        &rnn::StepEngine,
    ]
}

/// The engine of this name.
///
/// # Errors
/// `BadParam` for an unknown name.
pub fn engine_named(name: &str) -> Result<&'static dyn Engine> {
    engines().iter().copied().find(|engine| engine.name() == name).ok_or_else(|| {
        let known: Vec<&str> = engines().iter().map(|engine| engine.name()).collect();
        let known = known.join(", ");
        Error::bad_param(format!("unknown engine `{name}`: expected one of {known}"))
    })
}

/// A graph as the engine of this name runs it.
///
/// # Errors
/// `BadParam` for an unknown name, `NotSupported` with the rule that refused.
pub fn supported<'a>(
    name: &str,
    graph: CanonicalGraph<'a>,
    target: &'a Target,
) -> Result<Box<dyn Supported + 'a>> {
    engine_named(name)?.support(graph, target)
}

/// The heuristic settings of the engines that could stand in for the one chosen, the most
/// specialised first.
pub fn substitutes(
    graph: CanonicalGraph<'_>,
    target: &Target,
    chosen: &EngineConfig,
) -> Vec<EngineConfig> {
    let others = engines().iter().filter(|engine| engine.name() != chosen.engine);
    let supported = others.filter_map(|engine| engine.support(graph, target).ok());
    supported.map(|graph| graph.heuristic()).collect()
}
