//! Heuristics: which settings run a graph, the best first.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::engine::refine::{Candidate, refined};
use crate::engine::{CostModel, Engine, EngineConfig, Notes, Supported, engines};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::target::Target;

/// How settings are found (`mcdnnBackendHeurMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// By decision rules, one setting of each engine, those that pay first; the first is corrected
    /// where the cost model sees much to gain near it: tens to hundreds of microseconds.
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
    /// Settings with one of these notes are left out. `runtime_compilation` is none of a setting:
    /// [`Kiln::plan`](crate::Kiln::plan) knows which kernels are there.
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
    let without = selection.without.of_settings();
    for engine in engines().iter().copied() {
        match engine.support(graph, target) {
            Ok(supported) => able.push((engine, supported)),
            Err(reason) => reasons.add(engine.name(), reason.to_string()),
        }
    }
    let mut found = Vec::new();
    for (engine, supported) in &able {
        match allowed(&**supported, target, selection.mode, &without) {
            Ok(own) => {
                found.extend(own.into_iter().map(|choice| (choice, *engine, &**supported)));
            }
            Err(note) => reasons.add(engine.name(), format!("{note} is excluded")),
        }
    }
    let mut choices = match selection.mode {
        Mode::A => by_rules(found, target, &without),
        Mode::B | Mode::Fallback => found.into_iter().map(|(choice, ..)| choice).collect(),
    };
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

/// The best setting of the engine that comes behind this one, where another runs the graph.
///
/// # Errors
/// As [`choices`].
pub(super) fn choose_behind(
    engine: &str,
    graph: CanonicalGraph<'_>,
    target: &Target,
    selection: &Selection,
) -> Result<Option<EngineConfig>> {
    let mut first_of_each: Vec<EngineConfig> = Vec::new();
    for Choice { config, .. } in choices(graph, target, selection)? {
        if !first_of_each.iter().any(|known| known.engine == config.engine) {
            first_of_each.push(config);
        }
    }
    let own = first_of_each.iter().position(|config| config.engine == engine);
    let behind = own.map_or(0, |own| own + 1);
    Ok(first_of_each.into_iter().nth(behind))
}

/// Settings of engines, those that pay first, the first of all corrected by the cost model.
fn by_rules(
    mut found: Vec<(Choice, &'static dyn Engine, &dyn Supported)>,
    target: &Target,
    without: &Notes,
) -> Vec<Choice> {
    let clocks = found.iter().filter_map(|(.., supported)| supported.expected_clocks());
    let fewest = clocks.fold(f64::INFINITY, f64::min);
    // Engines that do not pay come after all that do, those that serve any shape last.
    let rank = |engine: &dyn Engine, supported: &dyn Supported| {
        let slower = supported.expected_clocks().is_some_and(|clocks| clocks > fewest);
        (engine.serves_any_shape(), slower || !supported.pays())
    };
    found.sort_by_key(|(_, engine, supported)| rank(*engine, *supported));
    let specialised = found.iter().filter(|(_, engine, _)| !engine.serves_any_shape());
    let candidates: Vec<Candidate<'_>> = specialised
        .map(|(choice, _, supported)| Candidate {
            supported: *supported,
            config: choice.config.clone(),
        })
        .collect();
    let refined = refined(&candidates, target, without);
    let mut choices: Vec<Choice> = found.into_iter().map(|(choice, ..)| choice).collect();
    if let Some((place, config)) = refined {
        choices.remove(place);
        choices.insert(0, Choice { config, predicted_us: None });
    }
    choices
}

fn by_time(a: &Choice, b: &Choice) -> Ordering {
    let us = |of: &Choice| of.predicted_us.unwrap_or(f64::INFINITY);
    us(a).total_cmp(&us(b))
}

/// The settings of an engine that have none of these notes: the heuristic's, or where that has one
/// the best of all legal ones by the cost model.
///
/// # Errors
/// A note where all have some.
fn allowed(
    supported: &dyn Supported,
    target: &Target,
    mode: Mode,
    without: &Notes,
) -> std::result::Result<Vec<Choice>, &'static str> {
    let mut excluded = None;
    let mut retain = |mut choices: Vec<Choice>| {
        if *without != Notes::default() {
            choices.retain(|choice| {
                let note = supported.notes(&choice.config).common(without);
                excluded = excluded.or(note);
                note.is_none()
            });
        }
        choices
    };
    let mut found = retain(of_engine(supported, target, mode));
    if found.is_empty() && mode != Mode::B {
        found.extend(retain(of_engine(supported, target, Mode::B)).into_iter().min_by(by_time));
    }
    match excluded {
        Some(note) if found.is_empty() => Err(note),
        _ => Ok(found),
    }
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
