//! Concatenation along an axis.

use std::fmt;
use std::sync::LazyLock;

use crate::error::{Error, Result};
use crate::graph::slots::Slots;
use crate::graph::views::{Moving, check_moved};
use crate::tensor::TensorDesc;

/// The most operands of a concatenation.
pub const CONCATENATED_MAX: usize = 64;

/// Names of the operands.
static OPERANDS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..CONCATENATED_MAX).map(|at| format!("x{at}")).collect());

/// The operands behind each other along an axis
/// (`MCDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR`, section 8.2.2.11).
///
/// One of them may be in place already: its memory is its part of the output's, and it is not
/// copied. Executing a plan checks that it lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Concatenate {
    /// Along which they are concatenated.
    pub axis: i64,
    /// Number of operands, 1 to [`CONCATENATED_MAX`].
    pub operands: usize,
    /// Which of them lies in the output's memory.
    pub in_place: Option<i64>,
}

impl Concatenate {
    /// Of so many operands, none of them in place.
    pub fn new(axis: i64, operands: usize) -> Concatenate {
        Concatenate { axis, operands, in_place: None }
    }

    /// With this operand in place.
    #[must_use]
    pub fn in_place(self, operand: i64) -> Concatenate {
        Concatenate { in_place: Some(operand), ..self }
    }
}

impl Moving for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn slots(&self) -> Slots {
        let operands = OPERANDS.iter().take(self.operands).map(String::as_str);
        Slots { inputs: operands.collect(), outputs: vec!["y"] }
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        let fail = |rule: String| Err(Error::bad_param(format!("{self}: {rule}")));
        let count = self.operands;
        if !(1..=CONCATENATED_MAX).contains(&count) {
            return fail(format!("{count} operands, expected 1 to {CONCATENATED_MAX}"));
        }
        let first = inputs[0];
        let rank = first.dims.len();
        let Some(axis) = usize::try_from(self.axis).ok().filter(|axis| *axis < rank) else {
            return fail(format!("axis {} is not in [0, {}]", self.axis, rank as i64 - 1));
        };
        if let Some(at) = self.in_place.filter(|at| !(0..count as i64).contains(at)) {
            return fail(format!("operand {at} in place is not in [0, {}]", count - 1));
        }
        let mut dims = first.dims.clone();
        dims[axis] = 0;
        for operand in inputs {
            let differs = |at: usize| at != axis && operand.dims.get(at) != first.dims.get(at);
            if operand.dims.len() != rank || (0..rank).any(differs) {
                return fail(format!(
                    "`{}` is {:?}, `{}` is {:?}: they may differ along axis {axis} alone",
                    first.name, first.dims, operand.name, operand.dims
                ));
            }
            if operand.dtype != first.dtype {
                let (own, other) = (&operand.name, &first.name);
                return fail(format!("`{own}` is {}, `{other}` is {}", operand.dtype, first.dtype));
            }
            let Some(sum) = dims[axis].checked_add(operand.dims[axis]) else {
                return fail("the extents add up to more than 2^63".to_owned());
            };
            dims[axis] = sum;
        }
        Ok(Some(vec![dims]))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let dims = self.infer(inputs)?.expect("a concatenation infers its result").remove(0);
        check_moved(self, inputs[0], outputs[0], &dims)?;
        let Some(operand) = self.in_place.map(|at| inputs[at as usize]) else { return Ok(()) };
        let (name, y) = (&operand.name, outputs[0]);
        let fail = |rule: String| {
            Err(Error::bad_param(format!("{self}: `{name}`, which is in place, {rule}")))
        };
        if operand.is_virtual || y.is_virtual || operand.by_value {
            let whose =
                if y.is_virtual { format!(", nor has `{}`", y.name) } else { String::new() };
            return fail(format!("has no memory{whose}"));
        }
        let moves = |at: &usize| operand.dims[*at] > 1 && operand.strides[*at] != y.strides[*at];
        match (0..operand.dims.len()).find(moves) {
            None => Ok(()),
            Some(at) => fail(format!(
                "has stride {} along axis {at}, output `{}` has {}",
                operand.strides[at], y.name, y.strides[at]
            )),
        }
    }
}

impl fmt::Display for Concatenate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "concatenate[axis {}", self.axis)?;
        if let Some(at) = self.in_place {
            write!(f, ", {at} in place")?;
        }
        f.write_str("]")
    }
}
