//! Slices at positions that operands have.

use crate::graph::{Copied, DynamicSlice};
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, unravel};
use crate::tensor::TensorDesc;

/// The results, element by element.
pub(super) fn evaluate(
    op: &DynamicSlice,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    // Of a copy, the operands by their number.
    let inputs: Vec<usize> = (0..operands.len()).collect();
    let results: Vec<usize> = (0..outputs.len()).collect();
    let copied = op.copied(&inputs, &results);
    copied.map(|of| result(of, operands, outputs[of.y])).collect()
}

fn result(of: Copied<usize>, operands: &[Operand<'_>], y: &TensorDesc) -> Expected {
    let axis = of.copy.axis() as usize;
    let (x, before) = (&operands[of.x], of.before.map(|at| &operands[at]));
    let position = operands[of.position].expected.values[0] as i64;
    let size = before.map_or(y, |_| x.desc).dims[axis];
    let extent = before.map_or(x, |before| before).desc.dims[axis];
    let first = of.copy.first(position, extent, size);
    let elements = (0..y.elements().unwrap_or(0)).map(|at| {
        let mut index = unravel(at, &y.dims);
        let from = match (before, first) {
            (None, first) => {
                index[axis] += first.expect("a position of what is read is clamped");
                x
            }
            (Some(_), Some(first)) if (first..first + size).contains(&index[axis]) => {
                index[axis] -= first;
                x
            }
            (Some(before), _) => before,
        };
        let at = broadcast_position(&index, &from.desc.dims);
        (from.expected.values[at], from.expected.bounds[at])
    });
    let (values, bounds) = elements.unzip();
    Expected { values, bounds }
}
