//! Gradients of recurrent layers: a layer of the derivative of the cell, which runs through the
//! steps in the opposite order, and behind it products and sums over all steps for the weights.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::expr::Real;
use crate::graph::gradient::cell::{CellVjp, Given, Written};
use crate::graph::gradient::kept::Kept;
use crate::graph::gradient::lengths::zero_beyond_lengths;
use crate::graph::gradient::sum::gradient;
use crate::graph::gradient::tape::{Contribution, Tape};
use crate::graph::operation::{Op, Operation};
use crate::graph::{
    Concatenate, Direction, Matmul, Recurrence, RecurrenceSlots, RowLayout, Semantics, Slice,
    Transpose,
};
use crate::tensor::TensorDesc;

impl Recurrence {
    /// The derivative of the layer's cell.
    ///
    /// # Errors
    /// `NotSupported` for a layer that is quantised or a gradient itself, and as [`Cell::vjp`].
    fn cell_vjp(&self, given: Given) -> Result<CellVjp> {
        if self.quantization.is_some() {
            return Err(Error::not_supported(format!("{self}: no gradient of a quantised layer")));
        }
        if self.backward {
            return Err(Error::not_supported(format!("{self}: no gradient of a gradient")));
        }
        self.cell.vjp(self.math.dtype(), given)
    }
}

/// The layer with what its gradients need among its results; `uid` names that.
///
/// # Errors
/// As [`Recurrence::cell_vjp`]; `NotSupported` for a layer that saves values of its own.
pub(super) fn keeping(op: &Recurrence, first: &TensorDesc, uid: i64) -> Result<Kept> {
    if !op.saved.is_empty() {
        return Err(Error::not_supported(format!("vjp: {op} saves values already")));
    }
    let CellVjp { forward, saved, .. } = op.cell_vjp(Given::default())?;
    let dims = vec![op.direction.count(), first.dims[1], saved.len() as i64 * op.hidden_size];
    Ok(Kept {
        op: Op::Recurrence(Recurrence { cell: Arc::new(forward), saved, ..op.clone() }),
        name: format!("saved{uid}"),
        dims,
        dtype: op.math.dtype(),
    })
}

/// A layer whose gradients are computed.
struct Layer<'a> {
    op: &'a Recurrence,
    of: &'a Operation,
    vjp: CellVjp,
    /// The gradient of `y`, direction by direction.
    dy: i64,
    /// What the layer of the derivative writes.
    output: i64,
    saved: Option<i64>,
    /// What it writes behind its last step.
    output_final: Option<i64>,
    states_final: Option<i64>,
}

/// Contributes the gradients of a layer's operands.
pub(super) fn recurrence(tape: &mut Tape<'_>, op: &Recurrence, of: &Operation) -> Result<()> {
    let [history, h_last] =
        ["history", "h_final"].map(|name| slot(op, of, name).filter(|uid| tape.has_gradient(*uid)));
    let vjp = op.cell_vjp(Given { history: history.is_some(), h_final: h_last.is_some() })?;
    let is_active = |name: &str| slot(op, of, name).is_some_and(|uid| tape.is_active(uid));
    let initial = [is_active("h_initial"), is_active("states_initial")];
    let h_is_read = op.cell.projected && is_active("r") && slot(op, of, "h_initial").is_some();
    let dy = of_output(tape, op, of)?;
    let x = given(tape, op, of, (dy, history))?;
    let states = last_states(tape, op, of)?;
    let with = RecurrenceSlots {
        states_initial: states.is_some(),
        lengths: op.with.lengths,
        reset: op.with.reset,
        h_final: (initial[0] || h_is_read) && op.cell.stages[0].gemm.is_some(),
        states_final: initial[0] || initial[1],
        ..RecurrenceSlots::default()
    };
    let own = Recurrence {
        cell: Arc::new(vjp.backward.clone()),
        backward: true,
        apart: true,
        fill: Real::new(0.0),
        saved: vjp.gradients.clone(),
        with,
        ..op.clone()
    };
    let slots = own.slots();
    let weights = match slot(op, of, "r").filter(|_| op.cell.projected) {
        Some(r) => Some(projected(tape, op, of, r)?),
        None => slot(op, of, "r"),
    };
    let operands = slots.inputs.iter().map(|name| match *name {
        "x" => Some(x),
        "r" => weights,
        "states_initial" => states,
        "unit_inputs" => slot(op, of, "saved"),
        name => slot(op, of, name),
    });
    let operands: Option<Vec<i64>> = operands.collect();
    let operands = operands.expect("the layer saves what its derivative reads");
    let dtype = tape.desc(of.outputs[0]).dtype;
    let results = tape.builder.operation(Op::Recurrence(own), &operands)?;
    let result = |name: &str| {
        let at = slots.outputs.iter().position(|known| *known == name);
        at.map(|at| results[at])
    };
    for name in ["y", "h_final", "saved"] {
        result(name).into_iter().for_each(|uid| tape.builder.name(uid, "", dtype));
    }
    if let Some(uid) = result("states_final") {
        tape.builder.name(uid, "", op.math.dtype());
    }
    let layer = Layer {
        op,
        of,
        vjp,
        dy,
        output: results[0],
        saved: result("saved"),
        output_final: result("h_final"),
        states_final: result("states_final"),
    };
    layer.inputs(tape)?;
    layer.weights(tape)?;
    match op.cell.projected {
        true => layer.projection(tape)?,
        false => layer.recurrent_weights(tape)?,
    }
    layer.initial(tape)?;
    let read = |uid: i64| {
        let operations = tape.builder.operations();
        operations.iter().any(|operation| operation.inputs.contains(&uid))
    };
    let unread: Vec<i64> = results.iter().copied().filter(|uid| !read(*uid)).collect();
    let taken: BTreeSet<i64> = tape
        .contributions
        .values()
        .flatten()
        .map(|of| match of {
            Contribution::Whole(uid) | Contribution::Piece(_, uid) => *uid,
        })
        .collect();
    for uid in unread.into_iter().filter(|uid| !taken.contains(uid)) {
        let (name, dtype) = (tape.named(of.outputs[0])?.name, tape.desc(uid).dtype);
        tape.builder.output(uid, &name, dtype);
    }
    Ok(())
}

/// The tensor in a slot.
pub(crate) fn slot(op: &Recurrence, of: &Operation, name: &str) -> Option<i64> {
    let slots = op.slots();
    let inputs = slots.inputs.iter().zip(&of.inputs);
    let mut all = inputs.chain(slots.outputs.iter().zip(&of.outputs));
    all.find(|(known, _)| **known == name).map(|(_, uid)| *uid)
}

/// Rows of a tensor multiplied by the projection: gradients of `y` become those of what is
/// projected, and the weights those of it.
fn projected(tape: &mut Tape<'_>, op: &Recurrence, of: &Operation, rows: i64) -> Result<i64> {
    let Some(projection) = slot(op, of, "projection") else { return Ok(rows) };
    let dtype = tape.desc(projection).dtype;
    let rows = tape.cast(rows, dtype)?;
    let product = tape.apply(Op::Matmul(Matmul::new(op.math)), &[rows, projection])?;
    tape.builder.name(product, "", dtype);
    Ok(product)
}

/// The matrix of each direction transposed.
fn turned(tape: &mut Tape<'_>, matrices: i64) -> Result<i64> {
    tape.apply(Op::Transpose(Transpose { permutation: vec![0, 2, 1] }), &[matrices])
}

/// The gradient of `y`, direction by direction.
fn of_output(tape: &mut Tape<'_>, op: &Recurrence, of: &Operation) -> Result<i64> {
    let y = of.outputs[0];
    let mut dy = match gradient(tape, y)? {
        Some(dy) => tape.filled(dy, y)?,
        None => {
            let zeros = tape.zeros(y)?;
            let dtype = tape.desc(y).dtype;
            tape.cast(zeros, dtype)?
        }
    };
    if op.direction == Direction::Both && !op.apart {
        let (rows, width) = (tape.desc(y).dims[1], tape.desc(y).dims[2]);
        dy = tape.builder.reshape(dy, &[rows, 2, width / 2])?;
        dy = tape.apply(Op::Transpose(Transpose { permutation: vec![1, 0, 2] }), &[dy])?;
    }
    Ok(dy)
}

/// What the layer of the derivative reads at every step: the gradient of the output, and beside it
/// that of the history.
fn given(
    tape: &mut Tape<'_>,
    op: &Recurrence,
    of: &Operation,
    (dy, history): (i64, Option<i64>),
) -> Result<i64> {
    let dy = projected(tape, op, of, dy)?;
    let Some(history) = history else { return Ok(dy) };
    let math = op.math.dtype();
    let others = gradient(tape, history)?.expect("it has one");
    let others = tape.filled(others, history)?;
    let both = [tape.cast(dy, math)?, tape.cast(others, math)?];
    tape.apply(Op::Concatenate(Concatenate { operands: 2, axis: 2, in_place: None }), &both)
}

/// The gradients of the states after the last step, if they have any.
fn last_states(tape: &mut Tape<'_>, op: &Recurrence, of: &Operation) -> Result<Option<i64>> {
    let math = op.math.dtype();
    let [h, states] = ["h_final", "states_final"]
        .map(|name| slot(op, of, name).filter(|uid| tape.has_gradient(*uid)));
    if h.is_none() && states.is_none() {
        return Ok(None);
    }
    let found = |tape: &mut Tape<'_>, uid: Option<i64>| -> Result<Option<i64>> {
        let Some(uid) = uid else { return Ok(None) };
        let own = gradient(tape, uid)?.expect("it has one");
        let own = tape.filled(own, uid)?;
        Ok(Some(tape.cast(own, math)?))
    };
    let [h_given, states] = [found(tape, h)?, found(tape, states)?];
    let h = match h_given {
        Some(own) => {
            let own = projected(tape, op, of, own)?;
            Some(tape.cast(own, math)?)
        }
        None => None,
    };
    let (others, size) = (op.cell.states.len() as i64 - 1, op.hidden_size);
    let any = h.or(states).expect("one of them has a gradient");
    let zeros = |tape: &mut Tape<'_>, size: i64| -> Result<i64> {
        let dims = tape.desc(any).dims.clone();
        let zeros = tape.zeros(any)?;
        let zeros = tape.cast(zeros, math)?;
        tape.apply(Op::Slice(Slice::along(&dims, 2, 0, size)), &[zeros])
    };
    let mut parts = match h {
        Some(own) => vec![own],
        None => vec![zeros(tape, size)?],
    };
    match states {
        Some(own) => parts.push(own),
        None if others > 0 => {
            let none = zeros(tape, size)?;
            parts.extend(vec![none; others as usize]);
        }
        None => {}
    }
    if let Some(own) = h_given.filter(|_| op.cell.projected) {
        parts.push(own);
        let width = tape.desc(own).dims[2];
        if width < size {
            parts.push(zeros(tape, size - width)?);
        }
    }
    if parts.len() == 1 {
        return Ok(Some(parts[0]));
    }
    let concatenate = Concatenate { operands: parts.len(), axis: 2, in_place: None };
    Ok(Some(tape.apply(Op::Concatenate(concatenate), &parts)?))
}

impl Layer<'_> {
    fn slot(&self, tape: &Tape<'_>, name: &str) -> Option<i64> {
        slot(self.op, self.of, name).filter(|uid| tape.is_active(*uid))
    }

    /// The gradients of vectors, as many at once as lie side by side: their range, and a tensor
    /// `[D, rows, count * hidden_size]`.
    fn runs(
        &self,
        tape: &mut Tape<'_>,
        gradients: &[Option<Written>],
    ) -> Result<Vec<(Range<i64>, i64)>> {
        let mut runs = Vec::new();
        let mut at = 0;
        while at < gradients.len() {
            let Some(first) = gradients[at] else {
                at += 1;
                continue;
            };
            let follows = |(n, of): (usize, &Option<Written>)| match first {
                Written::Output(first) => *of == Some(Written::Output(first + n)),
                Written::Saved(first) => *of == Some(Written::Saved(first + n)),
            };
            let count = gradients[at..].iter().enumerate().take_while(|of| follows(*of)).count();
            let (tensor, first) = match first {
                Written::Output(first) => (self.output, first),
                Written::Saved(first) => (self.saved.expect("it saves gradients"), first),
            };
            let value = self.vectors(tape, tensor, first as i64, count as i64)?;
            runs.push((at as i64..(at + count) as i64, value));
            at += count;
        }
        Ok(runs)
    }

    /// Some of the vectors side by side in a tensor.
    fn vectors(&self, tape: &mut Tape<'_>, of: i64, first: i64, count: i64) -> Result<i64> {
        let (dims, size) = (tape.desc(of).dims.clone(), self.op.hidden_size);
        if dims[2] == count * size {
            return Ok(of);
        }
        let slice = Slice::along(&dims, 2, first * size, (first + count) * size);
        tape.apply(Op::Slice(slice), &[of])
    }

    /// Contributes to a range along an axis of a tensor, of which each part has `size` elements.
    fn contribute(
        &self,
        tape: &mut Tape<'_>,
        uid: i64,
        (axis, size): (usize, i64),
        range: &Range<i64>,
        value: i64,
    ) -> Result<()> {
        let dims = tape.desc(uid).dims.clone();
        if range.start == 0 && range.end * size == dims[axis] {
            return tape.contribute_sum(uid, value);
        }
        let mut of_piece = dims.clone();
        of_piece[axis] = (range.end - range.start) * size;
        let value = tape.summed(value, &of_piece)?;
        let slice = Slice::along(&dims, axis, range.start * size, range.end * size);
        tape.contribute(uid, Contribution::Piece(slice, value));
        Ok(())
    }

    /// What is read at every step: input contributions, row inputs and unit inputs.
    fn inputs(&self, tape: &mut Tape<'_>) -> Result<()> {
        let size = self.op.hidden_size;
        if let Some(x) = self.slot(tape, "x") {
            let shared = self.vjp.gates.len() > 1 && tape.desc(x).dims[2] == size;
            for (range, value) in self.runs(tape, &self.vjp.gates)? {
                if shared {
                    let sum = self.over_vectors(tape, value)?;
                    tape.contribute_sum(x, sum)?;
                } else {
                    self.contribute(tape, x, (2, size), &range, value)?;
                }
            }
        }
        if let Some(inputs) = self.slot(tape, "row_inputs") {
            for (range, value) in self.runs(tape, &self.vjp.row_inputs)? {
                let [directions, rows, width] = self.dims(tape, value);
                let count = width / size;
                let value = tape.builder.reshape(value, &[directions, rows, count, size])?;
                let value = tape.summed(value, &[directions, rows, count, 1])?;
                let value = tape.builder.reshape(value, &[directions, rows, count])?;
                self.contribute(tape, inputs, (2, 1), &range, value)?;
            }
        }
        if let Some(inputs) = self.slot(tape, "unit_inputs") {
            for (range, value) in self.runs(tape, &self.vjp.unit_inputs)? {
                self.contribute(tape, inputs, (2, size), &range, value)?;
            }
        }
        Ok(())
    }

    fn dims(&self, tape: &Tape<'_>, of: i64) -> [i64; 3] {
        tape.desc(of).dims[..].try_into().expect("tensors of a layer have three dimensions")
    }

    /// The sum of the vectors side by side in a tensor.
    fn over_vectors(&self, tape: &mut Tape<'_>, value: i64) -> Result<i64> {
        let ([directions, rows, width], size) = (self.dims(tape, value), self.op.hidden_size);
        let value = tape.builder.reshape(value, &[directions, rows, width / size, size])?;
        let sum = tape.summed(value, &[directions, rows, 1, size])?;
        tape.builder.reshape(sum, &[directions, rows, size])
    }

    /// What all steps share: products with the operands, and sums.
    fn weights(&self, tape: &mut Tape<'_>) -> Result<()> {
        let size = self.op.hidden_size;
        for (name, gradients) in [("x_bias", &self.vjp.gates), ("r_bias", &self.vjp.recurrent)] {
            if let Some(bias) = self.slot(tape, name) {
                for (range, value) in self.runs(tape, gradients)? {
                    self.contribute(tape, bias, (2, size), &range, value)?;
                }
            }
        }
        if let Some(parameters) = self.slot(tape, "parameters") {
            for (range, value) in self.runs(tape, &self.vjp.parameters)? {
                let [directions, _, width] = self.dims(tape, value);
                let sum = tape.summed(value, &[directions, 1, width])?;
                let sum = tape.builder.reshape(sum, &[directions, width / size, size])?;
                self.contribute(tape, parameters, (1, 1), &range, sum)?;
            }
        }
        Ok(())
    }

    /// The saved vector that a GEMM multiplies, or that is projected, in the type of the weights.
    fn operand(&self, tape: &mut Tape<'_>, at: usize) -> Result<i64> {
        let saved = slot(self.op, self.of, "saved").expect("the layer saves operands");
        let operand = self.vectors(tape, saved, at as i64, 1)?;
        let dtype = tape.desc(self.output).dtype;
        tape.cast(operand, dtype)
    }

    /// `a^T b`: sums over all rows.
    fn over_rows(&self, tape: &mut Tape<'_>, a: i64, b: i64) -> Result<i64> {
        let turned = turned(tape, a)?;
        self.product(tape, turned, b)
    }

    fn product(&self, tape: &mut Tape<'_>, a: i64, b: i64) -> Result<i64> {
        tape.apply(Op::Matmul(Matmul::new(self.op.math)), &[a, b])
    }

    fn recurrent_weights(&self, tape: &mut Tape<'_>) -> Result<()> {
        let Some(r) = self.slot(tape, "r") else { return Ok(()) };
        let (cell, size) = (&self.op.cell, self.op.hidden_size);
        for ((stage, gemm), operand) in cell.gemms().zip(&self.vjp.operands) {
            let operand = self.operand(tape, *operand)?;
            let first = cell.first_gate(stage);
            let own = &self.vjp.recurrent[first..first + gemm.gates.len()];
            for (range, value) in self.runs(tape, own)? {
                let product = self.over_rows(tape, operand, value)?;
                let product = turned(tape, product)?;
                let range = first as i64 + range.start..first as i64 + range.end;
                self.contribute(tape, r, (1, size), &range, product)?;
            }
        }
        Ok(())
    }

    /// The weights of a projected cell. With `m` the sum over all steps of the gradients of the
    /// step behind by what is projected, that of the recurrent weights is `m P^T` and the first
    /// step's by the initial output; that of the projection is the sum of the gradients of the
    /// output by what is projected, and `R^T m`.
    fn projection(&self, tape: &mut Tape<'_>) -> Result<()> {
        let (op, of, dtype) = (self.op, self.of, tape.desc(self.output).dtype);
        let [r, projection] = ["r", "projection"].map(|name| self.slot(tape, name));
        if r.is_none() && projection.is_none() {
            return Ok(());
        }
        let operand = self.operand(tape, self.vjp.operands[0])?;
        for (range, value) in self.runs(tape, &self.vjp.behind)? {
            let m = self.over_rows(tape, value, operand)?;
            tape.builder.name(m, "", dtype);
            if let Some(r) = r {
                let own = slot(op, of, "projection").expect("the cell is projected");
                let own = turned(tape, own)?;
                let product = self.product(tape, m, own)?;
                self.contribute(tape, r, (1, op.hidden_size), &range, product)?;
            }
            if let (Some(projection), Some(r)) = (projection, slot(op, of, "r")) {
                let product = self.over_rows(tape, r, m)?;
                tape.contribute_sum(projection, product)?;
            }
        }
        if let (Some(r), Some(first), Some(h)) = (r, self.output_final, slot(op, of, "h_initial")) {
            let product = self.over_rows(tape, first, h)?;
            tape.contribute_sum(r, product)?;
        }
        let Some(projection) = projection else { return Ok(()) };
        let mut given = self.dy;
        if let Some(lengths) = slot(op, of, "lengths").filter(|_| op.layout != RowLayout::Packed) {
            given = zero_beyond_lengths(&mut tape.builder, given, lengths, op.layout)?;
        }
        if let Some(last) = self.vjp.of_final {
            let (_, last) = self.runs(tape, &[Some(last)])?[0];
            let [directions, rows, width] = self.dims(tape, given);
            let slice = Slice::along(&[directions, rows, op.hidden_size], 2, 0, width);
            let last = tape.apply(Op::Slice(slice), &[last])?;
            given = tape.sum(given, last)?;
        }
        let given = tape.cast(given, dtype)?;
        let product = self.over_rows(tape, given, operand)?;
        tape.contribute_sum(projection, product)
    }

    /// The states before the first step: what is left of their gradients, and for the output the
    /// product with the transposed weights that the next step would begin with.
    fn initial(&self, tape: &mut Tape<'_>) -> Result<()> {
        let (op, size) = (self.op, self.op.hidden_size);
        if let (Some(h), Some(output)) = (self.slot(tape, "h_initial"), self.output_final) {
            let r = slot(op, self.of, "r").expect("the layer has weights");
            let (dims, rows) = (tape.desc(r).dims.clone(), tape.desc(output).dims[2]);
            let of_first = match dims[1] == rows {
                true => r,
                false => {
                    let slice = Slice::along(&dims, 1, 0, rows);
                    tape.apply(Op::Slice(slice), &[r])?
                }
            };
            let product = self.product(tape, output, of_first)?;
            tape.contribute_sum(h, product)?;
        }
        let Some(states) = self.states_final else { return Ok(()) };
        let count = op.cell.states.len() as i64;
        if let Some(h) = self.slot(tape, "h_initial") {
            // A projected output is no other state's: what is left is that of empty sequences.
            let (at, width) = match op.cell.projected {
                true if self.vjp.of_final.is_none() => (0, 0),
                true => (count * size, tape.desc(h).dims[2]),
                false => (0, size),
            };
            if width > 0 {
                let dims = tape.desc(states).dims.clone();
                let slice = Slice::along(&dims, 2, at, at + width);
                let left = match dims[2] == width {
                    true => states,
                    false => tape.apply(Op::Slice(slice), &[states])?,
                };
                tape.contribute_sum(h, left)?;
            }
        }
        if let Some(others) = self.slot(tape, "states_initial") {
            let dims = tape.desc(states).dims.clone();
            let slice = Slice::along(&dims, 2, size, count * size);
            let own = tape.apply(Op::Slice(slice), &[states])?;
            tape.contribute_sum(others, own)?;
        }
        Ok(())
    }
}
