//! Heuristics: which settings run a graph, the best first.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::engine::{CostModel, EngineConfig, Notes, Supported, engines};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::target::Target;

/// How settings are found (`mcdnnBackendHeurMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// By decision rules, one setting of each engine, those that pay first: microseconds.
    #[default]
    A,
    /// By the cost model, every legal setting of every engine: milliseconds.
    B,
    /// The least demanding setting of each engine, the most general engine first.
    Fallback,
}

/// How a setting is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Selection {
    /// The heuristic.
    pub mode: Mode,
    /// Settings with one of these notes are left out.
    pub without: Notes,
}

/// A setting that runs a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Engine and knobs.
    pub config: EngineConfig,
    /// The cost model's time in microseconds, in [`Mode::B`].
    pub predicted_us: Option<f64>,
}

impl Mode {
    /// The name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::A => "a",
            Mode::B => "b",
            Mode::Fallback => "fallback",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Mode::A, Mode::B, Mode::Fallback].into_iter().find(|mode| mode.name() == text).ok_or_else(
            || Error::bad_param(format!("unknown heuristic `{text}`: expected a, b or fallback")),
        )
    }
}

/// The settings that run a graph as one part, the best first.
///
/// # Errors
/// `NotSupported` with every engine's reason.
pub fn choices(
    graph: CanonicalGraph<'_>,
    target: &Target,
    selection: &Selection,
) -> Result<Vec<Choice>> {
    let mut reasons = Reasons::default();
    let mut able = Vec::new();
    for engine in engines() {
        let supported = match engine.support(graph, target) {
            Ok(supported) => supported,
            Err(reason) => {
                reasons.add(engine.name(), reason.to_string());
                continue;
            }
        };
        let mut found = of_engine(&*supported, target, selection.mode);
        if selection.without != Notes::default() {
            let excluded =
                |choice: &Choice| supported.notes(&choice.config).common(&selection.without);
            let notes: BTreeSet<_> = found.iter().filter_map(excluded).collect();
            found.retain(|choice| excluded(choice).is_none());
            if found.is_empty() {
                // Of the legal settings, the best without these notes.
                let all = of_engine(&*supported, target, Mode::B).into_iter();
                let allowed = all.filter(|choice| excluded(choice).is_none());
                found.extend(allowed.min_by(by_time).map(|choice| Choice {
                    predicted_us: choice.predicted_us.filter(|_| selection.mode == Mode::B),
                    ..choice
                }));
            }
            for note in notes.into_iter().filter(|_| found.is_empty()) {
                reasons.add(engine.name(), format!("{note} is excluded"));
            }
        }
        able.push((found, supported.pays(), supported.expected_clocks()));
    }
    let fewest = able.iter().filter_map(|(.., clocks)| *clocks).fold(f64::INFINITY, f64::min);
    // In mode A, engines that do not pay come after all that do.
    let (mut choices, mut others) = (Vec::new(), Vec::new());
    for (found, pays, clocks) in able {
        let slower = clocks.is_some_and(|clocks| clocks > fewest);
        match selection.mode == Mode::A && (slower || !pays) {
            true => others.extend(found),
            false => choices.extend(found),
        }
    }
    choices.extend(others);
    match selection.mode {
        _ if choices.is_empty() => return Err(reasons.error()),
        Mode::A => {}
        Mode::B => choices.sort_by(by_time),
        Mode::Fallback => choices.reverse(),
    }
    Ok(choices)
}

/// The setting that is expected to run a graph best, as one part.
///
/// # Errors
/// As [`choices`].
pub fn choose(
    graph: CanonicalGraph<'_>,
    target: &Target,
    selection: &Selection,
) -> Result<EngineConfig> {
    Ok(choices(graph, target, selection)?.swap_remove(0).config)
}

fn by_time(a: &Choice, b: &Choice) -> Ordering {
    let us = |of: &Choice| of.predicted_us.unwrap_or(f64::INFINITY);
    us(a).total_cmp(&us(b))
}

fn of_engine(supported: &dyn Supported, target: &Target, mode: Mode) -> Vec<Choice> {
    let choice = |config: EngineConfig, predicted_us| Choice { config, predicted_us };
    match mode {
        Mode::A => vec![choice(supported.heuristic(), None)],
        Mode::B => {
            let model = CostModel::of(target);
            let settings = supported.settings().into_iter();
            settings.map(|of| choice(of.config, Some(model.predicted_us(&of.work)))).collect()
        }
        Mode::Fallback => {
            let smaller = |config: &EngineConfig| supported.smaller(config);
            let least = std::iter::successors(Some(supported.heuristic()), smaller).last();
            vec![choice(least.expect("there is a first"), None)]
        }
    }
}

/// Why engines can not run a graph; engines of one family share their rules.
#[derive(Default)]
struct Reasons(Vec<(&'static str, String)>);

impl Reasons {
    fn add(&mut self, engine: &'static str, reason: String) {
        if !self.0.iter().any(|(_, known)| *known == reason) {
            self.0.push((engine, reason));
        }
    }

    /// In the order of engines, the most specialised first.
    fn error(mut self) -> Error {
        let place = |name: &str| engines().iter().position(|engine| engine.name() == name);
        self.0.sort_by_key(|(name, _)| place(name));
        let reasons: Vec<String> =
            self.0.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
        Error::not_supported(format!("no engine runs the graph: {}", reasons.join("; ")))
    }
}
