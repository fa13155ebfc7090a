//! Which engine and setting a part has, and why: for people, who read it in the log.

use tracing::{Level, debug, enabled};

use crate::engine::{self, CostModel, EngineConfig, Mode, Part, Supported};
use crate::error::Result;
use crate::graph::OperationGraph;
use crate::plan::build::Kiln;
use crate::plan::context::planner::Planner;
use crate::plan::tuning::winners;

impl Kiln {
    /// The parts of a graph as [`Kiln::plan`] has them. Nothing is compiled: of a kernel that is in
    /// no cache or pack, it is not known whether another takes its place because it spills.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason.
    pub fn parts(&self, graph: &OperationGraph) -> Result<Vec<Part>> {
        self.inner.foreseen(graph)
    }

    /// What has chosen the setting of a part: rules, the cost model, tuning.
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
        // What the part would be with another setting.
        let with = |config: EngineConfig| {
            let other = Part { config, ..part.clone() };
            match part.config.knob("dynamic_m") {
                Ok(1) => other.counting_rows().config,
                _ => other.config,
            }
        };
        let tuned = self.store.disk.as_ref().and_then(|disk| {
            winners::setting(disk, part, &self.store.device, target, &self.selection)
        });
        let chosen = with(engine::choose(part.graph.canonical(), target, &self.selection)?);
        let rules = with(supported.heuristic());
        Ok(match &part.config {
            config if tuned.map(with).as_ref() == Some(config) => "tuning".to_owned(),
            config if *config != chosen => {
                format!("necessity: {chosen} spills registers, does not compile or is not there")
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

    /// Says for each of a plan's parts what it has, what chose that, and what the others lack.
    pub(super) fn tell_choices(&self, parts: &[&Part], asked_for: bool) {
        if !enabled!(Level::DEBUG) {
            return;
        }
        let target = self.store.device.target();
        let model = CostModel::of(target);
        for part in parts {
            let chosen_by = match asked_for {
                true => "the caller".to_owned(),
                false => self.chosen_by(part).unwrap_or_default(),
            };
            let own = part.supported(target);
            let us = own.map_or(f64::INFINITY, |own| predicted_us(&*own, &model, &part.config));
            let (config, predicted_us) = (&part.config, us);
            let others = self.others(part, &model).join("; ");
            debug!(%config, chosen_by, predicted_us, others, "engine chosen");
        }
    }

    /// What the other engines would take, or why they do not run a part.
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

/// The cost model's microseconds of a setting.
fn predicted_us(supported: &dyn Supported, model: &CostModel, config: &EngineConfig) -> f64 {
    supported.work_of()(config).map_or(f64::INFINITY, |work| model.predicted_us(&work))
}
