//! The configuration of each part and what chose it, for users and the log.

use std::sync::Arc;

use tracing::{Level, debug, enabled};

use crate::engine::{self, CostModel, EngineConfig, Mode, Part, predicted_us};
use crate::error::Result;
use crate::graph::OperationGraph;
use crate::plan::build::Kiln;
use crate::plan::context::planner::Planner;
use crate::plan::recipe::PlannedKernel;
use crate::plan::tuning::winners;

impl Kiln {
    /// The parts of a graph, as [`Kiln::plan`] would choose them. Nothing is compiled: whether a
    /// kernel that is in no cache or pack spills, so that another configuration is chosen, is not
    /// known.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason.
    pub fn parts(&self, graph: &OperationGraph) -> Result<Vec<Part>> {
        self.inner.foreseen(graph)
    }

    /// What chose the configuration of a part: rules, the cost model, or tuning.
    ///
    /// # Errors
    /// As [`Kiln::parts`].
    pub fn chosen_by(&self, part: &Part) -> Result<String> {
        self.inner.chosen_by(part)
    }
}

impl Planner {
    fn chosen_by(&self, part: &Part) -> Result<String> {
        let target = self.store.device.target();
        let supported = part.supported(target)?;
        // The part with another configuration, adapted as the part's own is.
        let with =
            |config: EngineConfig| Part { config, ..part.clone() }.counting_as(&part.config).config;
        let tuned = self.store.disk.as_ref().and_then(|disk| {
            winners::setting(disk, part, &self.store.device, target, &self.selection)
        });
        let chosen = with(engine::choose(part.graph.canonical(), target, &self.selection)?);
        let rules = with(supported.heuristic());
        Ok(match &part.config {
            config if tuned.map(with).as_ref() == Some(config) => "tuning".to_owned(),
            config if *config != chosen => {
                format!("fallback: {chosen} spills registers, does not compile or is not built")
            }
            config if *config == rules => "the rules".to_owned(),
            _ if self.selection.mode == Mode::Fallback => "the fallback heuristic".to_owned(),
            config => {
                let us = |config| predicted_us(&*supported, &CostModel::of(target), config);
                let [own, other] = [config, &rules].map(us);
                format!("the cost model: {own:.2} us, {other:.2} us by the rules")
            }
        })
    }

    /// Logs for each part of a plan its configuration, what chose that, and the other engines'
    /// configurations or reasons.
    pub(super) fn tell_choices(&self, kernels: &[PlannedKernel], asked_for: bool) {
        if !enabled!(Level::DEBUG) {
            return;
        }
        let target = self.store.device.target();
        let model = CostModel::of(target);
        for kernels in kernels.chunk_by(|a, b| Arc::ptr_eq(&a.part, &b.part)) {
            let part = kernels[0].part();
            let chosen_by = match asked_for {
                true => "the caller".to_owned(),
                false => self.chosen_by(part).unwrap_or_default(),
            };
            let own = part.supported(target);
            let us = own.map_or(f64::INFINITY, |own| predicted_us(&*own, &model, &part.config));
            let (config, predicted_us) = (&part.config, us);
            let (kernels, others) = (stems(kernels), self.others(part, &model).join("; "));
            debug!(%config, kernels, chosen_by, predicted_us, others, "engine chosen");
        }
    }

    /// The configurations of the other engines with their predicted times, or why they do not
    /// support the part.
    fn others(&self, part: &Part, model: &CostModel) -> Vec<String> {
        let target = self.store.device.target();
        let excluded = self.selection.without.of_settings();
        let other = |engine: &&dyn engine::Engine| {
            let supported = match engine.support(part.graph.canonical(), target) {
                Ok(supported) => supported,
                Err(reason) => return format!("{}: {reason}", engine.name()),
            };
            let config = supported.heuristic();
            match supported.notes(&config).common(&excluded) {
                Some(note) => format!("{config}: {note} is excluded"),
                None => format!("{config}: {:.2} us", predicted_us(&*supported, model, &config)),
            }
        };
        let others = engine::engines().iter().filter(|of| of.name() != part.config.engine);
        others.map(other).collect()
    }
}

/// Names of a part's kernels in launch order, each once.
fn stems(kernels: &[PlannedKernel]) -> String {
    let mut stems: Vec<&str> = Vec::new();
    for kernel in kernels {
        let stem = &*kernel.report().stem;
        if !stems.contains(&stem) {
            stems.push(stem);
        }
    }
    stems.join(", ")
}
