//! Sums of an operand along K, which the GEMM adds up as it reads it: the gradients of a bias,
//! beside those of the weights. Each split of K has a partial of them.

use crate::engine::gemm::epilogue_reduction::{EpilogueReduction, Kept, Reduced};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Matmul, MatmulMath, Reduction, ReductionOp};
use crate::tensor::TensorDesc;

/// An operand whose elements are added up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summed {
    pub(super) reduced: Reduced,
    pub(super) tensor: usize,
    /// Its dimension that is K.
    pub(super) k_axis: usize,
}

impl Summed {
    /// A reduction of one of these operands of a product with batches of these extents, as the GEMM
    /// runs it.
    ///
    /// # Errors
    /// `NotSupported` unless it adds up one along K, exactly as it is, to accumulators.
    pub(super) fn sum(
        operands: [Summed; 2],
        graph: CanonicalGraph<'_>,
        (matmul, batches): (Matmul, &[i64]),
        (op, [operand, result]): (Reduction, [usize; 2]),
    ) -> Result<EpilogueReduction> {
        let TensorDesc { name, dims, dtype, .. } = &graph.tensors[operand];
        let refused = |rule: &str| Err(Error::not_supported(format!("`{name}` {rule}")));
        let is_summed = |of: &Summed| {
            let mut kept = dims.clone();
            kept[of.k_axis] = 1;
            of.tensor == operand && graph.tensors[result].dims == kept
        };
        let summed = operands.into_iter().find(is_summed);
        let Some(Summed { reduced, .. }) = summed.filter(|_| dims.starts_with(batches)) else {
            return refused("is reduced, which a GEMM only does with its operands along K");
        };
        if op.op != ReductionOp::Add || op.math.dtype() != matmul.math.dtype() {
            return refused("is reduced, not added up like products");
        }
        if matmul.math == MatmulMath::I32 || !dtype.is_float() {
            return refused("is added up, which has no floating-point numbers");
        }
        if matmul.math == MatmulMath::Tf32 && dtype.bytes() > 2 {
            return refused("is added up and may be rounded to tf32 by products");
        }
        let kept = if reduced == Reduced::A { Kept::Rows } else { Kept::Columns };
        Ok(EpilogueReduction { op, operand, reduced, result, kept, keeps_batches: true })
    }
}
