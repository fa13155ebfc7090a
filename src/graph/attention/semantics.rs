//! The rules of attention: its operands, its extents, which attributes and tensors are valid.

use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{InputKind, Program, Real};
use crate::graph::attention::modifier::{CAPTURED_MAX, captured, captured_slots, normalised};
use crate::graph::attention::{Attention, AttentionShape};
use crate::graph::matmul::MatmulMath;
use crate::graph::norm::expect_dims;
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

impl Attention {
    /// Derives the extents from `inputs`, which are in the order of the slots.
    ///
    /// # Errors
    /// `BadParam` where `q`, `k`, `v` and the page table or sequence offsets are inconsistent.
    pub fn shape(&self, inputs: &[&TensorDesc]) -> Result<AttentionShape> {
        shape(self, inputs)
    }

    fn change_programs(&mut self, change: impl Fn(&str, &Program) -> Program) {
        for (name, program) in [("score", &mut self.score), ("keep", &mut self.keep)] {
            if let Some(program) = program {
                *program = Arc::new(change(name, program));
            }
        }
    }
}

impl Semantics for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn slots(&self) -> Slots {
        let mut slots = Slots::new(&["q", "k", "v"], &["o"]);
        let inputs = &mut slots.inputs;
        let mut given = |given: bool, names: &[&'static str]| {
            inputs.extend(names.iter().filter(|_| given));
        };
        given(self.paged, &["page_table"]);
        given(self.queries_max.is_some(), &["query_offsets"]);
        given(self.keys_max.is_some(), &["key_offsets"]);
        given(self.intervals, &["key_begin", "key_end"]);
        given(self.descale_q, &["descale_q"]);
        given(self.descale_k, &["descale_k"]);
        given(self.descale_v, &["descale_v"]);
        given(self.bias, &["bias"]);
        given(self.slopes, &["slopes"]);
        given(self.mask, &["mask"]);
        given(self.sinks, &["sinks"]);
        given(self.query_lengths, &["query_lengths"]);
        given(self.key_lengths, &["key_lengths"]);
        given(self.dropout.is_some(), &["seed", "offset"]);
        for (name, program) in self.programs() {
            let count = captured(program).count();
            inputs.extend(captured_slots(name).take(count));
        }
        if self.statistics {
            slots.outputs.push("lse");
        }
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(Some(results(self, inputs)?))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        attributes(self)?;
        tensors(self, inputs, outputs)
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {
        if self.math == MatmulMath::F64 {
            self.change_programs(|_, program| program.lines_in_f64());
        }
    }

    /// Renames the values of the programs to their slots and coordinates.
    fn normalise(&mut self) {
        self.change_programs(normalised);
    }
}

/// The dimensions of the results.
fn results(op: &Attention, inputs: &[&TensorDesc]) -> Result<Vec<Vec<i64>>> {
    let width = op.shape(inputs)?.width;
    let mut rows = inputs[0].dims.clone();
    rows.truncate(3);
    let result = |elements: i64| rows.iter().copied().chain([elements]).collect();
    let statistics = op.statistics.then(|| result(1));
    Ok(std::iter::once(result(width)).chain(statistics).collect())
}

fn fail<T>(rule: String) -> Result<T> {
    Err(Error::bad_param(format!("attention: {rule}")))
}

/// Derives the extents from `q`, `k`, `v` and the page table or sequence offsets.
fn shape(op: &Attention, inputs: &[&TensorDesc]) -> Result<AttentionShape> {
    let [q, k, v] = [inputs[0], inputs[1], inputs[2]];
    for (slot, tensor) in [("q", q), ("k", k), ("v", v)] {
        if tensor.dims.len() != 4 {
            let TensorDesc { name, dims, .. } = tensor;
            return fail(format!("{slot} `{name}` is {dims:?}, expected 4 dimensions"));
        }
    }
    let slots = op.slots();
    let places = |slot: &str| {
        let at = slots.inputs.iter().position(|known| *known == slot);
        at.and_then(|at| inputs.get(at)).filter(|tensor| tensor.dims.len() == 4)
    };
    let offsets = ["query_offsets", "key_offsets"].into_iter().find_map(places);
    if let Some(offsets) = offsets.filter(|offsets| offsets.dims[0] == 0) {
        return fail(format!("offsets `{}` have no end of the last sequence", offsets.name));
    }
    let batches = offsets.map_or(q.dims[0], |offsets| offsets.dims[0] - 1);
    let shape = AttentionShape {
        batches,
        heads: q.dims[1],
        kv_heads: k.dims[1],
        queries: op.queries_max.unwrap_or(q.dims[2]),
        keys: match places("page_table") {
            Some(table) => table.dims[3].saturating_mul(k.dims[2]),
            None => op.keys_max.unwrap_or(k.dims[2]),
        },
        depth: q.dims[3],
        width: v.dims[3],
    };
    let AttentionShape { heads, kv_heads, depth, width, .. } = shape;
    if depth == 0 || width == 0 {
        let (q, v) = (&q.dims, &v.dims);
        return fail(format!("a head has at least one element: q is {q:?}, v is {v:?}"));
    }
    let lone = |rows: bool| if rows { 1 } else { batches };
    expect_dims(&"attention", "q", q, &[lone(op.queries_max.is_some()), heads, q.dims[2], depth])?;
    let outer = if op.paged { k.dims[0] } else { lone(op.keys_max.is_some()) };
    expect_dims(&"attention", "k", k, &[outer, kv_heads, k.dims[2], depth])?;
    expect_dims(&"attention", "v", v, &[outer, kv_heads, k.dims[2], width])?;
    if if kv_heads == 0 { heads != 0 } else { heads % kv_heads != 0 } {
        return fail(format!(
            "{heads} heads of q `{}` do not share {kv_heads} heads of k `{}` evenly",
            q.name, k.name
        ));
    }
    if op.paged && shape.keys > 0 && k.dims[0] == 0 {
        return fail(format!("k `{}` is {:?}: expected at least one page", k.name, k.dims));
    }
    Ok(shape)
}

fn attributes(op: &Attention) -> Result<()> {
    if op.math == MatmulMath::I32 {
        return fail("math i32 has no exponentials: expected f32, tf32 or f64".to_owned());
    }
    if let Some(scale) = op.scale.map(Real::get).filter(|scale| !scale.is_finite()) {
        return fail(format!("scale {scale} is not finite"));
    }
    if let Some(softcap) = op.softcap {
        let cap = softcap.cap.get();
        if !(cap.is_finite() && cap > 0.0) {
            return fail(format!("softcap {cap} is not a number above 0"));
        }
    }
    for (name, value) in [("left", op.band.left), ("right", op.band.right)] {
        if let Some(value) = value.filter(|value| *value < 0) {
            return fail(format!("{name} is {value}: a window has no fewer than 0 keys"));
        }
    }
    for (name, value) in [("queries_max", op.queries_max), ("keys_max", op.keys_max)] {
        if let Some(value) = value.filter(|value| *value < 0) {
            return fail(format!("{name} is {value}: a sequence has no fewer than 0 of them"));
        }
    }
    if op.paged && op.keys_max.is_some() {
        return fail("keys are either paged or concatenated, not both".to_owned());
    }
    if let Some(probability) = op.dropout.map(Real::get)
        && !(0.0..1.0).contains(&probability)
    {
        return fail(format!("dropout {probability} is not in [0, 1)"));
    }
    for (name, program) in op.programs() {
        self::program(op, name, program)?;
    }
    Ok(())
}

fn tensors(op: &Attention, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
    let shape = shape(op, inputs)?;
    let slots = op.slots();
    for (slot, tensor) in slots.inputs.iter().zip(inputs).skip(3) {
        operand(op, &shape, slot, tensor)?;
    }
    for (slot, tensor) in slots.inputs.iter().zip(&inputs[..3]) {
        if !tensor.dtype.is_f8() {
            float(slot, tensor)?;
        }
    }
    for (name, program) in op.programs() {
        coordinates(name, program, &shape)?;
    }
    for ((slot, tensor), dims) in slots.outputs.iter().zip(outputs).zip(results(op, inputs)?) {
        expect_dims(&"attention", slot, tensor, &dims)?;
        float(slot, tensor)?;
    }
    Ok(())
}

/// Checks an operand other than `q`, `k` and `v`.
fn operand(op: &Attention, shape: &AttentionShape, slot: &str, tensor: &TensorDesc) -> Result<()> {
    let AttentionShape { batches, heads, .. } = *shape;
    match slot {
        "key_begin" | "key_end" => {
            integers(slot, tensor)?;
            broadcast(slot, tensor, &shape.rows())
        }
        "bias" => {
            float(slot, tensor)?;
            broadcast(slot, tensor, &shape.scores())
        }
        "mask" => {
            typed(slot, tensor, DType::Bool)?;
            broadcast(slot, tensor, &shape.scores())
        }
        "descale_q" => {
            float(slot, tensor)?;
            broadcast(slot, tensor, &[batches, heads, 1, 1])
        }
        "descale_k" | "descale_v" => {
            float(slot, tensor)?;
            broadcast(slot, tensor, &[batches, shape.kv_heads, 1, 1])
        }
        "slopes" | "sinks" => {
            float(slot, tensor)?;
            expect_dims(&"attention", slot, tensor, &[1, heads, 1, 1])
        }
        "page_table" => {
            integers(slot, tensor)?;
            let pages = tensor.dims.get(3).copied().unwrap_or(0);
            expect_dims(&"attention", slot, tensor, &[batches, 1, 1, pages])
        }
        "query_offsets" | "key_offsets" => {
            integers(slot, tensor)?;
            expect_dims(&"attention", slot, tensor, &[batches + 1, 1, 1, 1])
        }
        "query_lengths" | "key_lengths" => {
            integers(slot, tensor)?;
            expect_dims(&"attention", slot, tensor, &[batches, 1, 1, 1])
        }
        "seed" | "offset" => {
            integers(slot, tensor)?;
            expect_dims(&"attention", slot, tensor, &[1, 1, 1, 1])
        }
        of_program => {
            let dtype = op.programs().find_map(|(name, program)| {
                let at = captured_slots(name).position(|slot| slot == of_program)?;
                captured(program).nth(at)
            });
            typed(slot, tensor, dtype.expect("the slots are those of the programs"))?;
            broadcast(slot, tensor, &shape.scores())
        }
    }
}

/// Checks that a tensor holds 32- or 64-bit integers.
fn integers(slot: &str, tensor: &TensorDesc) -> Result<()> {
    match tensor.dtype {
        DType::I32 | DType::I64 => Ok(()),
        dtype => fail(format!("{slot} `{}` is {dtype}, expected i32 or i64", tensor.name)),
    }
}

fn typed(slot: &str, tensor: &TensorDesc, dtype: DType) -> Result<()> {
    match tensor.dtype == dtype {
        true => Ok(()),
        false => fail(format!("{slot} `{}` is {}, expected {dtype}", tensor.name, tensor.dtype)),
    }
}

fn float(slot: &str, tensor: &TensorDesc) -> Result<()> {
    match tensor.dtype.is_float() {
        true => Ok(()),
        false => {
            let TensorDesc { name, dtype, .. } = tensor;
            fail(format!("{slot} `{name}` is {dtype}, expected a floating-point type"))
        }
    }
}

fn broadcast(slot: &str, tensor: &TensorDesc, dims: &[i64]) -> Result<()> {
    let fits = tensor.dims.len() == dims.len()
        && tensor.dims.iter().zip(dims).all(|(own, dim)| own == dim || *own == 1);
    match fits {
        true => Ok(()),
        false => fail(format!(
            "{slot} `{}` is {:?}, which cannot be broadcast to {dims:?}",
            tensor.name, tensor.dims
        )),
    }
}

/// Checks a program by itself.
fn program(op: &Attention, name: &str, program: &Program) -> Result<()> {
    let fail = |rule: String| Err(Error::bad_param(format!("attention: {name}: {rule}")));
    let dtype = op.score_dtype();
    let first = program.inputs().first().map(|input| input.kind);
    if first != Some(InputKind::Element(dtype)) {
        return fail(format!("the first input of the program must be the score, of type {dtype}"));
    }
    if program.outputs().len() != 1 {
        let count = program.outputs().len();
        return fail(format!("the program has {count} outputs, expected one"));
    }
    if let Some(line) = program.instructions().iter().find(|line| line.dtype != dtype) {
        return fail(format!("`{}` is {}, expected {dtype}", line.name, line.dtype));
    }
    let count = captured(program).count();
    if count > CAPTURED_MAX {
        return fail(format!("the program captures {count} tensors, at most {CAPTURED_MAX}"));
    }
    Ok(())
}

/// Checks that the coordinates a program reads have the extents of the scores.
fn coordinates(name: &str, program: &Program, shape: &AttentionShape) -> Result<()> {
    for input in program.inputs() {
        let InputKind::Index { axis, extent } = input.kind else { continue };
        if shape.scores().get(axis) != Some(&extent) {
            return Err(Error::bad_param(format!(
                "attention: {name}: `{}` counts {extent} along axis {axis}, the scores are {:?}",
                input.name,
                shape.scores()
            )));
        }
    }
    Ok(())
}
