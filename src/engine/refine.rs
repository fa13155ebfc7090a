//! What the rules chose, corrected by the cost model where that sees much to gain: another engine's
//! setting, or one that is reached from there uphill, one knob at a time.

use crate::engine::{CostModel, EngineConfig, Knob, Notes, Supported, WorkOf};
use crate::target::Target;

/// By how much one step uphill must be faster by the model: what gains less is noise of the model.
const STEP_GAIN_MIN: f64 = 1.02;

/// No two knobs are turned at once where a setting takes at most this much longer than its bytes
/// and operations alone.
const NEAR: f64 = 1.2;

/// Steps uphill: of served shapes whose rules were far behind, single knobs took at most 4.
const STEPS_MAX: usize = 8;

/// A graph as an engine runs it, with the setting that its rules chose.
pub(super) struct Candidate<'a> {
    pub(super) supported: &'a dyn Supported,
    pub(super) config: EngineConfig,
}

/// The place of the candidate to run and its setting; the first with its own, unless the model sees
/// much to gain. No setting has a note of `without`.
pub(super) fn refined(
    candidates: &[Candidate<'_>],
    target: &Target,
    without: &Notes,
) -> Option<(usize, EngineConfig)> {
    let model = CostModel::of(target);
    let work = |of: &Candidate<'_>| of.supported.work_of()(&of.config);
    let first = candidates.first()?;
    let gain_min = first.supported.gain_min();
    let mut first_us = f64::INFINITY;
    if let Some(work) = work(first) {
        first_us = model.predicted_us(&work);
        // So near to what nothing does without there is nothing to gain.
        if first_us <= gain_min * model.least_us(&work) {
            return None;
        }
    }
    let mut other: Option<(usize, f64)> = None;
    for (at, candidate) in candidates.iter().enumerate().skip(1) {
        let us = work(candidate).map_or(f64::INFINITY, |work| model.predicted_us(&work));
        if us < other.map_or(first_us, |(_, least_us)| least_us) {
            other = Some((at, us));
        }
    }
    // What an engine reaches from its rules' setting.
    let reached = |at: usize| {
        let Candidate { supported, config } = &candidates[at];
        let climb = Climb::new(*supported, &model, without);
        let own = climb.from(config.clone(), None);
        // The combine kernel is a valley between configurations with and without a split.
        let split =
            ["split", "split_k"].into_iter().find(|knob| config.knob(knob).is_ok_and(|n| n > 1));
        let whole = split.map(|knob| climb.from(config.clone().with(knob, 1), Some(knob)));
        std::iter::once(own).chain(whole).min_by(|(a, _), (b, _)| a.total_cmp(b))
    };
    if let Some((at, us)) = other.filter(|(_, us)| us * gain_min < first_us) {
        let (other_us, best) = reached(at)?;
        // The first may only have a bad setting.
        return match reached(0)? {
            (own_us, own) if own_us <= other_us * gain_min => Some((0, own)),
            _ if other_us * candidates[at].supported.gain_min() < us => Some((at, best)),
            _ => Some((at, candidates[at].config.clone())),
        };
    }
    // Another engine that is ahead by less may be further ahead with better settings.
    let from = std::iter::once(0).chain(other.map(|(at, _)| at));
    let all = from.filter_map(|at| reached(at).map(|(us, config)| (us, at, config)));
    let (us, at, best) = all.min_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
    match us * gain_min < first_us {
        true => Some((at, best)),
        false => Some((0, first.config.clone())),
    }
}

/// A graph as an engine runs it, as ground on which times are heights.
struct Climb<'a> {
    supported: &'a dyn Supported,
    work_of: WorkOf<'a>,
    knobs: Vec<Knob>,
    model: &'a CostModel,
    without: &'a Notes,
}

impl<'a> Climb<'a> {
    fn new(supported: &'a dyn Supported, model: &'a CostModel, without: &'a Notes) -> Climb<'a> {
        let (work_of, knobs) = (supported.work_of(), supported.knobs());
        Climb { supported, work_of, knobs, model, without }
    }

    /// Infinite for what is not legal, or excluded.
    fn us(&self, config: &EngineConfig) -> f64 {
        let allowed = || self.supported.notes(config).common(self.without).is_none();
        let work = (self.work_of)(config).filter(|_| allowed());
        work.map_or(f64::INFINITY, |work| self.model.predicted_us(&work))
    }

    /// Time and setting reached from one by the best steps to neighbouring values of a knob, or of
    /// two where one does not do; the knob `fixed` stays.
    fn from(&self, mut config: EngineConfig, fixed: Option<&str>) -> (f64, EngineConfig) {
        let mut us = self.us(&config);
        let turned = self.knobs.iter().filter(|knob| Some(knob.name) != fixed);
        let knobs: Vec<&Knob> = turned.filter(|knob| knob.values.len() > 1).collect();
        for _ in 0..STEPS_MAX {
            let single = neighbours(&config, &knobs, &[1, 2]);
            let step =
                self.best(us, single.iter().map(|(_, config)| config.clone())).or_else(|| {
                    let floor_us =
                        (self.work_of)(&config).map_or(0.0, |work| self.model.floor_us(&work));
                    let far = single.iter().filter(|_| us > NEAR * floor_us);
                    let pairs = far.flat_map(|(at, config)| {
                        neighbours(config, &knobs[at + 1..], &[1]).into_iter().map(|(_, pair)| pair)
                    });
                    self.best(us, pairs)
                });
            let Some(step) = step else { break };
            (us, config) = step;
        }
        (us, config)
    }

    /// The fastest of these, where it gains upon `us`.
    fn best(
        &self,
        us: f64,
        settings: impl Iterator<Item = EngineConfig>,
    ) -> Option<(f64, EngineConfig)> {
        let timed = settings.map(|config| (self.us(&config), config));
        let better = timed.filter(|(next_us, _)| next_us * STEP_GAIN_MIN < us);
        better.min_by(|(a, _), (b, _)| a.total_cmp(b))
    }
}

/// The settings with another value of one knob, so many places away, and the place of the knob.
fn neighbours(
    config: &EngineConfig,
    knobs: &[&Knob],
    distances: &[usize],
) -> Vec<(usize, EngineConfig)> {
    let mut found = Vec::new();
    for (at, knob) in knobs.iter().enumerate() {
        let Ok(own) = config.knob(knob.name) else { continue };
        let Ok(here) = knob.values.binary_search(&own) else { continue };
        for distance in distances {
            let sides = [here.checked_sub(*distance), Some(here + distance)];
            let values = sides.into_iter().flatten().filter_map(|to| knob.values.get(to));
            found.extend(values.map(|value| (at, config.clone().with(knob.name, *value))));
        }
    }
    found
}
