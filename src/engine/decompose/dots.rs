//! Products of a matrix and a vector as sums of products, which are what reductions read: each
//! element of the matrix is read once, and there is no tile to fill.

use crate::engine::decompose::Decomposed;
use crate::engine::decompose::calculus::Calculus;
use crate::expr::{Math, Mode};
use crate::graph::{Matmul, MatmulMath, Op, Operation, Reduction, ReductionOp};
use crate::tensor::TensorDesc;

impl<'a> Decomposed<'a> {
    /// The graph with products of vectors in the precision of their operands as sums: tensor cores
    /// multiply others.
    pub(in crate::engine) fn with_dots(self) -> Decomposed<'a> {
        if !self.operations.iter().any(|own| self.vector_of(own).is_some()) {
            return self;
        }
        let mut calculus = Calculus::new(self.tensors.to_vec());
        for own in self.operations.iter() {
            calculus.math = Math::of(own.op.math());
            let Some(vector) = self.vector_of(own) else {
                calculus.keep(own.op.clone(), own);
                continue;
            };
            // A vector lies along the rows of the matrix, or of a transposed one.
            let TensorDesc { dims, strides, .. } = &mut calculus.tensors[vector];
            let last = dims.len() - 1;
            dims.swap(last - 1, last);
            strides.swap(last - 1, last);
            let product = calculus.binary("product", Mode::Mul, own.inputs[0], own.inputs[1]);
            let sum = Reduction { op: ReductionOp::Add, math: calculus.math };
            let inputs = vec![product];
            calculus.reduction(&sum, &Operation { op: Op::Reduction(sum), inputs, ..own.clone() });
        }
        let Decomposed { uids, offsets, .. } = self;
        let (tensors, operations) = (calculus.tensors.into(), calculus.operations.into());
        Decomposed { tensors, operations, uids, offsets }
    }

    /// The operand of a product that is a vector, and may be seen transposed: one in memory that
    /// nothing else reads.
    fn vector_of(&self, own: &Operation) -> Option<usize> {
        let Op::Matmul(Matmul { math, overrides: [false, false, false], irregular_batches: 1 }) =
            &own.op
        else {
            return None;
        };
        let operands = [0, 1].map(|slot| own.inputs[slot] as usize);
        let [.., m, n] = self.tensors[own.outputs[0] as usize].dims[..] else { return None };
        let vector = match [m, n] {
            [_, 1] => operands[1],
            [1, _] => operands[0],
            _ => return None,
        };
        let is_exact = |at: &usize| self.tensors[*at].dtype == math.dtype();
        let readers = self.operations.iter().flat_map(|of| &of.inputs);
        let reads = readers.filter(|uid| **uid as usize == vector).count();
        let TensorDesc { is_virtual, by_value, .. } = self.tensors[vector];
        let is_written = self.graph().is_written(vector);
        let is_plain = reads == 1 && !is_virtual && !by_value && !is_written;
        let is_float = matches!(math, MatmulMath::F32 | MatmulMath::F64);
        (is_float && is_plain && operands.iter().all(is_exact)).then_some(vector)
    }
}
