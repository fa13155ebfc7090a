//! What is around the trips of a loop that is one operation: its tensors and limits.

use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;

use crate::dtype::DType;
use crate::escape::escaped;
use crate::expr::{InputKind, Mode, Program};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// The most tensors of a kind: states, iterated, captured or stacked ones.
pub const LOOP_TENSORS_MAX: usize = 16;

/// Names of slots of a kind.
struct Numbered(LazyLock<Vec<String>>);

impl Numbered {
    const fn new(names: fn() -> Vec<String>) -> Numbered {
        Numbered(LazyLock::new(names))
    }

    fn names(&'static self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(String::as_str)
    }
}

fn numbered(kind: &str) -> Vec<String> {
    (0..LOOP_TENSORS_MAX).map(|at| format!("{kind}{at}")).collect()
}

static INITIAL: Numbered = Numbered::new(|| numbered("initial"));
static ITERATED: Numbered = Numbered::new(|| numbered("iterated"));
static CAPTURED: Numbered = Numbered::new(|| numbered("captured"));
static LAST: Numbered = Numbered::new(|| numbered("last"));
static STACKED: Numbered = Numbered::new(|| numbered("stacked"));

/// Tensors and limits of a loop, whatever its trips compute.
///
/// - `initial<s>`: the value of state `s` in the first trip;
/// - `iterated<i>` `[T, ..]`: of which trip `t` reads element `t` along the first dimension, or
///   `T - 1 - t`; the last one again past the end;
/// - `captured<c>`: what all trips read;
/// - `count` `[1]`, `i32`: the number of trips, none where it is negative;
/// - `last<s>`: the value of state `s` behind the last trip;
/// - `stacked<v>` `[L, ..]`: values of trips 0 to `n - 1`, or from the last one, then 0; those
///   behind the `L`-th trip are dropped;
/// - `trips` `[1]`, `i32`, with a condition: the number `n` of trips.
///
/// A condition has one element and is computed in each trip, before which it is false the loop
/// ends. A loop that is still true after [`LoopFrame::trips_max`] trips ends, and `trips` is one
/// more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoopFrame {
    /// Number of states, at least 1.
    pub states: usize,
    /// For each iterated tensor whether it is read from the end.
    pub iterated: Vec<bool>,
    /// Number of captured tensors.
    pub captured: usize,
    /// For each state whether its last value is a result.
    pub last: Vec<bool>,
    /// For each stacked value whether the last trip comes first, which needs a count and no
    /// condition.
    pub stacked: Vec<bool>,
    /// Whether there is a count.
    pub count: bool,
    /// Whether there is a condition.
    pub condition: bool,
    /// The most trips of a loop with a condition.
    pub trips_max: i64,
}

/// The rule that a loop breaks.
pub(super) type Broken = Result<(), String>;

/// The operands and results of a loop by what they are.
pub(super) struct Tensors<'a> {
    /// States, then what is iterated, then what is captured.
    pub(super) operands: &'a [&'a TensorDesc],
    pub(super) last: &'a [&'a TensorDesc],
    pub(super) stacked: &'a [&'a TensorDesc],
}

impl LoopFrame {
    /// Number of values that a trip is given: states, then what is iterated, then captured.
    pub(crate) fn given(&self) -> usize {
        self.states + self.iterated.len() + self.captured
    }

    /// Number of values that a trip yields: next states, then what is stacked, then the condition.
    pub(crate) fn yielded(&self) -> usize {
        self.states + self.stacked.len() + usize::from(self.condition)
    }

    /// Dimensions of an operand in front of those of an element.
    pub(crate) fn leading(&self, operand: usize) -> usize {
        let iterated = self.states..self.states + self.iterated.len();
        usize::from(iterated.contains(&operand))
    }

    /// The states whose last value is a result.
    pub(crate) fn handed(&self) -> impl Iterator<Item = usize> {
        let last = self.last.iter().enumerate();
        last.filter(|(_, handed)| **handed).map(|(state, _)| state)
    }

    pub(super) fn slots(&self) -> Slots {
        let mut slots = Slots::new(if self.count { &["count"] } else { &[] }, &[]);
        slots.inputs.extend(INITIAL.names().take(self.states));
        slots.inputs.extend(ITERATED.names().take(self.iterated.len()));
        slots.inputs.extend(CAPTURED.names().take(self.captured));
        let last = LAST.names().zip(&self.last).filter(|(_, handed)| **handed);
        slots.outputs.extend(last.map(|(name, _)| name));
        slots.outputs.extend(STACKED.names().take(self.stacked.len()));
        slots.outputs.extend(self.condition.then_some("trips"));
        slots
    }

    /// Checks the numbers of tensors, and of the values that a trip is given and yields.
    pub(super) fn check(&self, given: usize, yielded: usize) -> Broken {
        let LoopFrame { states, iterated, captured, last, stacked, .. } = self;
        let counts = [*states, iterated.len(), *captured, stacked.len()];
        if *states == 0 || counts.iter().any(|count| *count > LOOP_TENSORS_MAX) {
            let [states, iterated, captured, stacked] = counts;
            return Err(format!(
                "{states} states, {iterated} iterated, {captured} captured, {stacked} stacked: \
                 expected a state and at most {LOOP_TENSORS_MAX} of each"
            ));
        }
        let own = [given, yielded, last.len()];
        let expected = [self.given(), self.yielded(), *states];
        if own != expected {
            return Err(format!(
                "inputs, outputs and last values are {own:?}, expected {expected:?}"
            ));
        }
        if !(self.count || self.condition) {
            return Err("it has neither a count nor a condition".to_owned());
        }
        if self.trips_max < 0 || self.trips_max >= i64::from(i32::MAX) {
            return Err(format!("trips_max {} is not in [0, 2^31 - 1)", self.trips_max));
        }
        if stacked.contains(&true) && (self.condition || !self.count) {
            return Err("what begins with the last trip needs a count alone".to_owned());
        }
        match last.contains(&true) || !stacked.is_empty() || self.condition {
            true => Ok(()),
            false => Err("it has no result".to_owned()),
        }
    }

    /// The tensors by what they are, of which numbers have one element and iterated ones trips.
    pub(super) fn tensors<'a>(
        &self,
        inputs: &'a [&'a TensorDesc],
        outputs: &'a [&'a TensorDesc],
    ) -> Result<Tensors<'a>, String> {
        let (counts, operands) = inputs.split_at(usize::from(self.count));
        let (last, rest) = outputs.split_at(self.handed().count());
        let (stacked, trips) = rest.split_at(self.stacked.len());
        for tensor in counts.iter().chain(trips) {
            if tensor.dtype != DType::I32 || tensor.elements() != Some(1) {
                let TensorDesc { name, dtype, dims, .. } = tensor;
                return Err(format!("`{name}` is {dtype}{dims:?}, expected i32 with one element"));
            }
        }
        Ok(Tensors { operands, last, stacked })
    }

    /// Checks that there is an element for the first trip.
    pub(super) fn check_trips(&self, operand: usize, tensor: &TensorDesc) -> Broken {
        let TensorDesc { name, dims, .. } = tensor;
        match self.leading(operand) == 1 && dims.first().is_none_or(|trips| *trips == 0) {
            true => Err(format!("`{name}` is {dims:?}: no trip has an element")),
            false => Ok(()),
        }
    }
}

/// Checks that a program computes with elements alone, and that names tell its values apart.
pub(super) fn check_program(program: &Program) -> Broken {
    let names = program.inputs().iter().map(|input| &input.name);
    let names = names.chain(program.instructions().iter().map(|line| &line.name));
    let mut known = HashSet::new();
    if let Some(name) = names.into_iter().find(|name| !known.insert(name.as_str())) {
        return Err(format!("two values are named `{}`", escaped(name)));
    }
    let is_element = |kind: &InputKind| matches!(kind, InputKind::Element(_));
    if program.inputs().iter().any(|input| !is_element(&input.kind)) {
        return Err("inputs of its program are elements of tensors".to_owned());
    }
    match program.instructions().iter().find(|line| line.op.mode == Mode::GenIndex) {
        Some(line) => Err(format!("its program has {}", line.op.mode)),
        None => Ok(()),
    }
}

impl fmt::Display for LoopFrame {
    /// Formats as `2 states, while`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = match (self.count, self.condition) {
            (true, true) => "count, while",
            (false, true) => "while",
            _ => "count",
        };
        write!(f, "{} states, {limits}", self.states)
    }
}
