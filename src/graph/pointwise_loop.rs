//! Loops whose trips are pointwise: scans, recurrences without GEMMs, iterations to convergence.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::escape::escaped;
use crate::expr::{InputKind, Mode, Program, Value};
use crate::graph::semantics::Semantics;
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

/// A loop in each of whose trips every element of its states is computed by itself
/// (TensorRT's `ILoop` with a pointwise body; a scan).
///
/// Tensors, for elements of dimensions `D` and all of the same rank:
/// - `initial<s>`: the value of state `s` in the first trip, `D` or 1 along each dimension;
/// - `iterated<i>` `[T, ..]`: of which trip `t` reads element `t` along the first dimension, or
///   `T - 1 - t`; the last one again past the end;
/// - `captured<c>`: what all trips read, `D` or 1 along each dimension;
/// - `count` `[1]`, `i32`: the number of trips, none where it is negative;
/// - `last<s>`: the value of state `s` behind the last trip;
/// - `stacked<v>` `[L, ..]`: values of trips 0 to `n - 1`, or from the last one, then 0; those
///   behind the `L`-th trip are dropped;
/// - `trips` `[1]`, `i32`, with a condition: the number `n` of trips.
///
/// The condition has one element and is computed in each trip, before which it is false the loop
/// ends. A loop that is still true after [`PointwiseLoop::trips_max`] trips ends, and `trips` is
/// one more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PointwiseLoop {
    /// The computation of a trip: its inputs are the states, then what is iterated, then what is
    /// captured; its outputs the next states, then what is stacked, then the condition.
    pub program: Arc<Program>,
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

impl PointwiseLoop {
    /// Indices of the program's inputs that are states, iterated and captured.
    fn inputs(&self) -> usize {
        self.states + self.iterated.len() + self.captured
    }

    /// Number of the program's outputs.
    fn outputs(&self) -> usize {
        self.states + self.stacked.len() + usize::from(self.condition)
    }

    fn fail<T>(&self, rule: String) -> Result<T> {
        Err(Error::bad_param(format!("{self}: {rule}")))
    }

    fn check_program(&self) -> Result<()> {
        let PointwiseLoop { program, states, iterated, captured, last, stacked, .. } = self;
        let counts = [*states, iterated.len(), *captured, stacked.len()];
        if *states == 0 || counts.iter().any(|count| *count > LOOP_TENSORS_MAX) {
            let [states, iterated, captured, stacked] = counts;
            return self.fail(format!(
                "{states} states, {iterated} iterated, {captured} captured, {stacked} stacked: \
                 expected a state and at most {LOOP_TENSORS_MAX} of each"
            ));
        }
        let given = [program.inputs().len(), program.outputs().len(), last.len()];
        let expected = [self.inputs(), self.outputs(), *states];
        if given != expected {
            return self.fail(format!(
                "inputs, outputs and last values are {given:?}, expected {expected:?}"
            ));
        }
        if !(self.count || self.condition) {
            return self.fail("it has neither a count nor a condition".to_owned());
        }
        if self.trips_max < 0 || self.trips_max >= i64::from(i32::MAX) {
            return self.fail(format!("trips_max {} is not in [0, 2^31 - 1)", self.trips_max));
        }
        if stacked.contains(&true) && (self.condition || !self.count) {
            return self.fail("what begins with the last trip needs a count alone".to_owned());
        }
        if !last.contains(&true) && stacked.is_empty() && !self.condition {
            return self.fail("it has no result".to_owned());
        }
        let names = program.inputs().iter().map(|input| &input.name);
        let names = names.chain(program.instructions().iter().map(|line| &line.name));
        let mut known = HashSet::new();
        if let Some(name) = names.into_iter().find(|name| !known.insert(name.as_str())) {
            return self.fail(format!("two values are named `{}`", escaped(name)));
        }
        let is_element = |kind: &InputKind| matches!(kind, InputKind::Element(_));
        if program.inputs().iter().any(|input| !is_element(&input.kind)) {
            return self.fail("inputs of its program are elements of tensors".to_owned());
        }
        match program.instructions().iter().find(|line| line.op.mode == Mode::GenIndex) {
            Some(line) => self.fail(format!("its program has {}", line.op.mode)),
            None => Ok(()),
        }
    }

    /// Dimensions of an operand of the program in front of those of an element.
    pub(crate) fn leading(&self, operand: usize) -> usize {
        let iterated = self.states..self.states + self.iterated.len();
        usize::from(iterated.contains(&operand))
    }

    /// The dimensions of the elements, of operands of the program in order.
    pub(crate) fn domain<'a>(&self, operands: impl Iterator<Item = &'a TensorDesc>) -> Vec<i64> {
        let mut domain: Vec<i64> = Vec::new();
        for (at, tensor) in operands.enumerate() {
            let extents = domain.iter().chain(std::iter::repeat(&1));
            let both = tensor.dims[self.leading(at)..].iter().zip(extents);
            domain = both.map(|(own, all)| if *own == 1 { *all } else { *own }).collect();
        }
        domain
    }

    /// The dimensions of each output of the program for inputs of these dimensions.
    pub(crate) fn spread(&self, inputs: &[Vec<i64>]) -> Vec<Vec<i64>> {
        let rank = inputs.first().map_or(0, Vec::len);
        let mut lines: Vec<Vec<i64>> = Vec::new();
        let of = |value: &Value, lines: &[Vec<i64>]| match value {
            Value::Input(at) => inputs[*at].clone(),
            Value::Result(at) => lines[*at].clone(),
        };
        for line in self.program.instructions() {
            let mut dims = vec![1; rank];
            for value in &line.operands {
                for (own, other) in dims.iter_mut().zip(of(value, &lines)) {
                    *own = if *own == 1 { other } else { *own };
                }
            }
            lines.push(dims);
        }
        self.program.outputs().iter().map(|value| of(value, &lines)).collect()
    }
}

impl Semantics for PointwiseLoop {
    fn name(&self) -> &'static str {
        "pointwise_loop"
    }

    fn slots(&self) -> Slots {
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

    fn math(&self) -> DType {
        DType::F32
    }

    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(None)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.check_program()?;
        let (counts, inputs) = inputs.split_at(usize::from(self.count));
        let last = self.last.iter().filter(|handed| **handed).count();
        let (finals, rest) = outputs.split_at(last);
        let (stacked, trips) = rest.split_at(self.stacked.len());
        for tensor in counts.iter().chain(trips) {
            if tensor.dtype != DType::I32 || tensor.elements() != Some(1) {
                let TensorDesc { name, dtype, dims, .. } = tensor;
                let text = format!("`{name}` is {dtype}{dims:?}, expected i32 with one element");
                return self.fail(text);
            }
        }
        for (tensor, input) in inputs.iter().zip(self.program.inputs()) {
            if tensor.dtype != input.dtype() {
                let [name, own] = [&tensor.name, &input.name];
                let [given, expected] = [tensor.dtype, input.dtype()];
                return self.fail(format!("`{name}` is {given}, `{own}` is {expected}"));
            }
        }
        let rank = inputs[0].dims.len();
        let mut elements: Vec<Vec<i64>> = Vec::new();
        for (at, tensor) in inputs.iter().enumerate() {
            let trips = self.leading(at);
            let (name, dims) = (&tensor.name, &tensor.dims);
            if dims.len() != rank + trips {
                let expected = rank + trips;
                return self.fail(format!("`{name}` is {dims:?}, expected {expected} dimensions"));
            }
            if trips == 1 && dims[0] == 0 {
                return self.fail(format!("`{name}` is {dims:?}: no trip has an element"));
            }
            elements.push(dims[trips..].to_vec());
        }
        for axis in 0..rank {
            let mut own = elements.iter().map(|dims| dims[axis]).filter(|extent| *extent != 1);
            let first = own.next().unwrap_or(1);
            if let Some(other) = own.find(|extent| *extent != first) {
                return self.fail(format!("extents {first} and {other} differ along axis {axis}"));
            }
        }
        let spread = self.spread(&elements);
        for (state, own) in spread.iter().take(self.states).enumerate() {
            let fits =
                own.iter().zip(&elements[state]).all(|(next, own)| next == own || *next == 1);
            if !fits {
                let (given, name) = (&elements[state], &inputs[state].name);
                return self
                    .fail(format!("the next value of `{name}` is {own:?}, it is {given:?}"));
            }
        }
        let states = (0..self.states).filter(|state| self.last[*state]);
        for (state, tensor) in states.zip(finals) {
            self.check_result(tensor, &elements[state], inputs[state].dtype)?;
        }
        for (at, tensor) in stacked.iter().enumerate() {
            let value = self.program.outputs()[self.states + at];
            let length = tensor.dims.first().copied().unwrap_or(0);
            let dims: Vec<i64> =
                std::iter::once(length).chain(spread[self.states + at].clone()).collect();
            self.check_result(tensor, &dims, self.program.dtype(value))?;
        }
        match spread.last().filter(|_| self.condition) {
            Some(dims) if dims.iter().any(|extent| *extent != 1) => {
                self.fail(format!("its condition is {dims:?}, expected one element"))
            }
            _ => Ok(()),
        }
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {}
}

impl PointwiseLoop {
    fn check_result(&self, tensor: &TensorDesc, dims: &[i64], dtype: DType) -> Result<()> {
        let TensorDesc { name, dims: own, dtype: given, .. } = tensor;
        match own == dims && *given == dtype {
            true => Ok(()),
            false => self.fail(format!("`{name}` is {given}{own:?}, expected {dtype}{dims:?}")),
        }
    }
}

impl fmt::Display for PointwiseLoop {
    /// Formats as `pointwise_loop{2 states, while}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = match (self.count, self.condition) {
            (true, true) => "count, while",
            (false, true) => "while",
            _ => "count",
        };
        write!(f, "pointwise_loop{{{} states, {limits}}}", self.states)
    }
}
