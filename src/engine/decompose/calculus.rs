//! Writing formulas as operations on virtual tensors.

use crate::dtype::DType;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Op, Operation, Reduction, ReductionOp};
use crate::tensor::TensorDesc;

/// Tensors and operations so far, and the precision that formulas are computed in.
pub(super) struct Calculus {
    pub(super) tensors: Vec<TensorDesc>,
    pub(super) operations: Vec<Operation>,
    pub(super) math: Math,
}

impl Calculus {
    pub(super) fn new(tensors: Vec<TensorDesc>) -> Calculus {
        Calculus { tensors, operations: Vec::new(), math: Math::F32 }
    }

    /// An operation that stays as it is but for its attributes.
    pub(super) fn keep(&mut self, op: Op, operation: &Operation) {
        // A wait that passes nothing on has no result.
        if let Some(result) = operation.outputs.first() {
            self.name(*result, op.name());
        }
        self.operations.push(Operation { op, ..operation.clone() });
    }

    /// Names an intermediate that has no name.
    fn name(&mut self, tensor: i64, name: &str) {
        let tensor = &mut self.tensors[tensor as usize];
        if tensor.is_virtual && tensor.name.is_empty() {
            tensor.name = name.to_owned();
        }
    }

    pub(super) fn dims(&self, tensor: i64) -> &[i64] {
        &self.tensors[tensor as usize].dims
    }

    pub(super) fn intermediate(&mut self, name: &str, dims: &[i64], dtype: DType) -> i64 {
        let uid = self.tensors.len() as i64;
        let desc = TensorDesc::packed(uid, name, dims, dtype);
        self.tensors.push(TensorDesc { is_virtual: true, ..desc });
        uid
    }

    /// A pointwise operation with a result of its own.
    pub(super) fn apply(&mut self, name: &str, op: Pointwise, operands: &[i64]) -> i64 {
        let mut dims = self.dims(operands[0]).to_vec();
        for operand in &operands[1..] {
            for (dim, other) in dims.iter_mut().zip(self.dims(*operand)) {
                *dim = if *dim == 1 { *other } else { *dim };
            }
        }
        let result = self.intermediate(name, &dims, self.math.dtype());
        self.apply_into(op, operands, result);
        result
    }

    /// A pointwise operation that writes a known tensor.
    pub(super) fn apply_into(&mut self, op: Pointwise, operands: &[i64], result: i64) {
        let op = if op.math == Math::I32 { op } else { op.math(self.math) };
        self.operations.push(Operation::pointwise(op, operands, result));
    }

    pub(super) fn unary(&mut self, name: &str, mode: Mode, x: i64) -> i64 {
        self.apply(name, Pointwise::new(mode), &[x])
    }

    pub(super) fn binary(&mut self, name: &str, mode: Mode, a: i64, b: i64) -> i64 {
        self.apply(name, Pointwise::new(mode), &[a, b])
    }

    /// A value times a number.
    pub(super) fn scaled(&mut self, name: &str, x: i64, factor: f64) -> i64 {
        self.apply(name, Pointwise::new(Mode::Identity).alphas(factor, 1.0), &[x])
    }

    /// Rounds a value to the type of a known tensor.
    pub(super) fn store(&mut self, value: i64, result: i64) {
        self.apply_into(Pointwise::new(Mode::Identity), &[value], result);
    }

    /// A reduction of the graph: its operand has any type, its result too, and may be stored.
    pub(super) fn reduction(&mut self, op: &Reduction, operation: &Operation) {
        let (x, y) = (operation.inputs[0], operation.outputs[0]);
        let (dims, result) = (self.dims(y).to_vec(), &self.tensors[y as usize]);
        if result.is_virtual && result.dtype == self.math.dtype() && dims != self.dims(x) {
            self.name(y, value_name(op.op));
            return self.reduce_into(op.op, x, y);
        }
        let reduced = self.reduce(op.op, x, &dims);
        self.store(reduced, y);
    }

    /// A reduction to these dimensions; a pointwise operation where there is nothing to reduce.
    pub(super) fn reduce(&mut self, op: ReductionOp, x: i64, dims: &[i64]) -> i64 {
        self.reduce_named(value_name(op), op, x, dims)
    }

    /// A reduction to these dimensions whose result has this name.
    pub(super) fn reduce_named(
        &mut self,
        name: &str,
        op: ReductionOp,
        x: i64,
        dims: &[i64],
    ) -> i64 {
        if self.dims(x) == dims {
            return self.reduce_one(name, op, x);
        }
        let result = self.intermediate(name, dims, self.math.dtype());
        self.reduce_into(op, x, result);
        result
    }

    /// A reduction that writes a known tensor. An operand that is computed is rounded to its type
    /// first; one in memory has it.
    pub(super) fn reduce_into(&mut self, op: ReductionOp, x: i64, result: i64) {
        let computed = self.operations.iter().any(|operation| operation.outputs.contains(&x));
        let x = match computed && self.tensors[x as usize].dtype != self.math.dtype() {
            true => self.unary("value", Mode::Identity, x),
            false => x,
        };
        let op = Op::Reduction(Reduction { op, math: self.math });
        self.operations.push(Operation { op, inputs: vec![x], outputs: vec![result] });
    }

    /// A reduction of a single value.
    fn reduce_one(&mut self, name: &str, op: ReductionOp, x: i64) -> i64 {
        match op {
            ReductionOp::Amax | ReductionOp::Norm1 | ReductionOp::Norm2 => {
                self.unary(name, Mode::Abs, x)
            }
            ReductionOp::MulNoZeros => {
                let rounded = self.unary("", Mode::Identity, x);
                let is_zero = self.unary("is_zero", Mode::LogicalNot, rounded);
                self.binary(name, Mode::Add, rounded, is_zero)
            }
            _ => self.unary(name, Mode::Identity, x),
        }
    }
}

/// What the result of a reduction is called.
fn value_name(op: ReductionOp) -> &'static str {
    match op {
        ReductionOp::Add => "sum",
        ReductionOp::Avg => "mean",
        ReductionOp::Mul | ReductionOp::MulNoZeros => "product",
        ReductionOp::Min => "minimum",
        ReductionOp::Max => "maximum",
        _ => op.name(),
    }
}
