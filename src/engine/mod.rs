//! Engines: what can run a graph, with which knobs, and the kernel that comes of it.
//!
//! An engine maps a canonical graph, a target and an [`EngineConfig`] to a [`KernelPlan`]: a plain
//! value that says which template to render with which parameters and how to launch the result.
//! It must never know tensors' addresses, compile anything or touch a device.

mod config;
mod kernel;
mod pointwise;

pub use config::{EngineConfig, Knob};
pub use kernel::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan};

use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::target::Target;

/// A family of kernels behind one name.
pub trait Engine: Send + Sync {
    /// The engine's name in configurations and texts.
    fn name(&self) -> &'static str;

    /// Whether the engine can run the whole graph as one kernel.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()>;

    /// The knobs and, for this graph, their allowed values. Only for supported graphs.
    fn knobs(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Knob>;

    /// The knob settings this engine expects to run best.
    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig;

    /// Why the heuristic's settings are what they are: a line for each knob, `items=2: ...`.
    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String>;

    /// The next setting that needs fewer registers; `None` when there is none.
    fn smaller(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Option<EngineConfig>;

    /// The kernel for these knob settings.
    ///
    /// # Errors
    /// `BadParam` for a knob that does not exist or a value that is not allowed.
    fn lower(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<KernelPlan>;
}

/// All engines, the most specialised first.
pub fn engines() -> &'static [&'static dyn Engine] {
    &[&pointwise::PointwiseEngine]
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

/// The first engine that supports the graph, at its heuristic setting.
///
/// # Errors
/// `NotSupported` with every engine's reason.
pub fn choose(graph: CanonicalGraph<'_>, target: &Target) -> Result<EngineConfig> {
    let mut reasons = Vec::new();
    for engine in engines() {
        match engine.support(graph, target) {
            Ok(()) => return Ok(engine.heuristic(graph, target)),
            Err(reason) => reasons.push(format!("{}: {reason}", engine.name())),
        }
    }
    Err(Error::not_supported(format!("no engine runs the graph: {}", reasons.join("; "))))
}
