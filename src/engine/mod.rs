//! Engines: what can run a graph, with which knobs, and the kernel that comes of it.
//!
//! An engine maps a canonical graph, a target and an [`EngineConfig`] to a [`Lowering`]: plain
//! values that say which templates to render with which parameters and how to launch the results.
//! It must never know tensors' addresses, compile anything or touch a device.
//!
//! [`Lowering`]: crate::kernel::Lowering

mod access;
mod alone;
mod attention;
mod clusters;
mod config;
mod convolution;
mod copies;
mod cost;
mod ctc;
mod decompose;
mod dimensions;
mod dynamic_slice;
mod gemm;
mod header;
mod heuristics;
mod instruction;
mod items;
mod layout;
mod loop_tensors;
mod notes;
mod part;
mod partition;
mod pointwise;
mod pointwise_loop;
mod position;
mod program;
mod prologues;
mod reduce;
mod reduction;
mod refine;
mod resample;
mod resident_loop;
mod rnn;
mod signal;
mod signature;
mod splits;
mod support;
mod tile_order;
mod tma;
mod tunable;

pub use config::{EngineConfig, Knob};
pub(crate) use copies::{Copied, is_product, operands_of, with_copies};
pub(crate) use cost::LAUNCH_US;
pub use cost::{CostModel, KernelWork, Setting, TensorWork, WorkOf, machine_of};
pub(crate) use decompose::primitives;
pub use heuristics::{Choice, Mode, Selection, choices, choose};
pub use kiln_machine::{Machine, Operands};
pub use layout::{LayoutInfo, LayoutType};
pub use notes::{BehaviorNote, Notes, NumericalNote};
pub use part::Part;
pub use partition::{Cut, cuts, partition};
pub(crate) use partition::{Division, uncopied};
pub use splits::{splits_fused, splits_undone};
pub use support::{Engine, Supported};

use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::target::Target;

/// The cost model's prediction for a configuration, in microseconds; infinite where it is not
/// legal.
pub(crate) fn predicted_us(
    supported: &dyn Supported,
    model: &CostModel,
    config: &EngineConfig,
) -> f64 {
    supported.work_of()(config).map_or(f64::INFINITY, |work| model.predicted_us(&work))
}

/// All engines, the most specialised first.
pub fn engines() -> &'static [&'static dyn Engine] {
    &[
        &pointwise::PointwiseEngine,
        &pointwise::TransposedEngine,
        &pointwise::GeneralEngine,
        &pointwise::GroupedEngine,
        &reduction::ColumnsEngine,
        &reduction::ReductionEngine,
        &gemm::WgmmaEngine,
        &gemm::MmaEngine,
        &gemm::SimtEngine,
        &convolution::DepthwiseEngine,
        &convolution::DepthwiseFilterEngine,
        &convolution::DirectEngine,
        &resample::DirectEngine,
        &ctc::CtcEngine,
        &pointwise_loop::PointwiseLoopEngine,
        &resident_loop::ResidentLoopEngine,
        &dynamic_slice::DynamicSliceEngine,
        &attention::DecodeEngine,
        &attention::WgmmaEngine,
        &attention::MmaEngine,
        &attention::SimtEngine,
        &attention::BackwardWgmmaEngine,
        &attention::BackwardMmaEngine,
        &attention::BackwardSimtEngine,
        &rnn::CTA,
        &rnn::CLUSTER,
        &rnn::GRID,
        &rnn::STREAM,
        &rnn::StepEngine,
        &signal::SignalEngine,
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
