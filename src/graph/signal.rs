//! Signals: flags in memory by which graphs wait for each other.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::norm::one_element;
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::graph::views::check_moved;
use crate::tensor::TensorDesc;

/// What a signal does with its flag (`MCDNN_ATTR_OPERATION_SIGNAL_MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalMode {
    /// Gives the flag its value.
    Set,
    /// Waits until the flag has its value.
    Wait,
}

impl SignalMode {
    /// Both of them.
    pub const ALL: [SignalMode; 2] = [SignalMode::Set, SignalMode::Wait];

    /// The name in problem files.
    pub const fn name(self) -> &'static str {
        match self {
            SignalMode::Set => "set",
            SignalMode::Wait => "wait",
        }
    }
}

/// How a signal passes its operand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassThrough {
    /// It has no result: the operand is what the signal comes after.
    Nothing,
    /// In place where one of both is virtual, else by a copy; building a graph decides.
    Default,
    /// The result is the operand's memory.
    InPlace,
    /// The result is a copy.
    Copy,
}

/// A flag that is set or waited for
/// (`MCDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR`, section 8.2.2.24): an i32 tensor of one element,
/// which another graph sets or waits for, on another stream or another device.
///
/// The signal takes place after what computes its operand `x`, and before what reads its result
/// `y`, which has the operand's elements. Before a flag is set, all writes of what comes before are
/// visible to whoever waits for it; behind a wait, those of who has set it.
///
/// A wait ends after its time: what follows runs, on what its operands then hold, and the next
/// synchronisation of the stream is an error that names the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signal {
    /// Whether the flag is set or waited for.
    pub mode: SignalMode,
    /// The value that it is set to, or waited for: an i32.
    pub value: i64,
    /// Milliseconds after which a wait ends, 1 to [`Signal::TIMEOUT_MS_MAX`].
    pub timeout_ms: i64,
    /// How the operand becomes the result.
    pub pass: PassThrough,
}

impl Signal {
    /// The time of a wait that says none: as long as blocks of one kernel wait for each other.
    pub const TIMEOUT_MS: i64 = 10_000;

    /// The longest time of a wait: an hour.
    pub const TIMEOUT_MS_MAX: i64 = 3_600_000;

    fn new(mode: SignalMode, value: i64) -> Signal {
        Signal { mode, value, timeout_ms: Signal::TIMEOUT_MS, pass: PassThrough::Default }
    }

    /// Sets a flag to a value.
    pub fn set(value: i64) -> Signal {
        Signal::new(SignalMode::Set, value)
    }

    /// Waits until a flag has a value.
    pub fn wait(value: i64) -> Signal {
        Signal::new(SignalMode::Wait, value)
    }

    /// Ends the wait after so many milliseconds.
    #[must_use]
    pub fn timeout_ms(self, timeout_ms: i64) -> Signal {
        Signal { timeout_ms, ..self }
    }

    /// Without a result.
    #[must_use]
    pub fn without_result(self) -> Signal {
        Signal { pass: PassThrough::Nothing, ..self }
    }

    /// With a result in the operand's memory, both of which the variant pack has. Executing a plan
    /// checks that they are the same.
    #[must_use]
    pub fn in_place(self) -> Signal {
        Signal { pass: PassThrough::InPlace, ..self }
    }
}

impl Semantics for Signal {
    fn name(&self) -> &'static str {
        "signal"
    }

    fn slots(&self) -> Slots {
        let mut slots = match self.mode {
            SignalMode::Set => Slots::new(&["x"], &["flag"]),
            SignalMode::Wait => Slots::new(&["flag", "x"], &[]),
        };
        slots.outputs.extend((self.pass != PassThrough::Nothing).then_some("y"));
        slots
    }

    fn math(&self) -> DType {
        DType::I32
    }

    fn result_type(&self, operands: &[DType]) -> DType {
        operands.last().copied().unwrap_or(DType::I32)
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        let x = inputs.last().expect("the operands were counted");
        let dims = |slot: &&str| if *slot == "flag" { vec![1] } else { x.dims.clone() };
        Ok(Some(self.slots().outputs.iter().map(dims).collect()))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("{self}: {rule}")));
        if i32::try_from(self.value).is_err() {
            return fail(format!("value {} is not an i32", self.value));
        }
        if !(1..=Signal::TIMEOUT_MS_MAX).contains(&self.timeout_ms) {
            let (given, most) = (self.timeout_ms, Signal::TIMEOUT_MS_MAX);
            return fail(format!("timeout_ms {given} is not in [1, {most}]"));
        }
        let flag = match self.mode {
            SignalMode::Set => outputs[0],
            SignalMode::Wait => inputs[0],
        };
        one_element(self, "flag", flag)?;
        let TensorDesc { name, dtype, .. } = flag;
        if *dtype != DType::I32 {
            return fail(format!("flag `{name}` is {dtype}, expected i32"));
        }
        if flag.is_virtual || flag.by_value {
            return fail(format!("flag `{name}` has no memory"));
        }
        let x = inputs[self.slots().inputs.len() - 1];
        if x.by_value {
            return fail(format!("`{}` is by value: it has no memory to pass on", x.name));
        }
        let Some(y) = (self.pass != PassThrough::Nothing).then(|| outputs[outputs.len() - 1])
        else {
            return Ok(());
        };
        check_moved(self, x, y, &x.dims)?;
        let moves = |at: &usize| x.dims[*at] > 1 && x.strides[*at] != y.strides[*at];
        let apart = (0..x.dims.len()).find(moves);
        match apart.filter(|_| self.is_shared(x, y)) {
            None => Ok(()),
            Some(at) => fail(format!(
                "`{}`, which is in place, has stride {} along axis {at}, output `{}` has {}",
                x.name, x.strides[at], y.name, y.strides[at]
            )),
        }
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {}

    fn normalise(&mut self) {
        if self.mode == SignalMode::Set {
            self.timeout_ms = Signal::TIMEOUT_MS;
        }
    }
}

impl Signal {
    /// Whether operand and result are in memory, which is the same.
    pub(super) fn is_shared(&self, x: &TensorDesc, y: &TensorDesc) -> bool {
        self.pass == PassThrough::InPlace && !x.is_virtual && !y.is_virtual
    }
}

impl fmt::Display for Signal {
    /// Formats as `signal[wait 5, 100 ms]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal[{} {}", self.mode.name(), self.value)?;
        if self.mode == SignalMode::Wait && self.timeout_ms != Signal::TIMEOUT_MS {
            write!(f, ", {} ms", self.timeout_ms)?;
        }
        f.write_str("]")
    }
}
