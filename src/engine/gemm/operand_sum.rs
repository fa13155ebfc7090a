//! Sums of the rows of A along K, which the GEMM adds up as it reads them: the gradients of a bias,
//! beside those of the weights. Each split of K has a partial of them.

use crate::engine::gemm::epilogue_reduction::{EpilogueReduction, Kept};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Matmul, MatmulMath, Reduction, ReductionOp};
use crate::tensor::TensorDesc;

/// The operand that kernels have as A.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) at: usize,
    /// Its dimension that is K.
    pub(super) k_axis: usize,
    /// Extents of C, whose batches are its own.
    pub(super) c: &'a [i64],
}

impl Rows<'_> {
    /// A reduction of an operand as the GEMM runs it.
    ///
    /// # Errors
    /// `NotSupported` unless it adds up rows of A, exactly as they are, to accumulators.
    pub(super) fn sum(
        self,
        graph: CanonicalGraph<'_>,
        matmul: Matmul,
        (op, [operand, result]): (Reduction, [usize; 2]),
    ) -> Result<EpilogueReduction> {
        let Rows { at, k_axis, c } = self;
        let TensorDesc { name, dims, dtype, .. } = &graph.tensors[operand];
        let refused = |rule: &str| Err(Error::not_supported(format!("`{name}` {rule}")));
        let mut kept = dims.clone();
        kept[k_axis] = 1;
        let batches = c.len() - 2;
        if operand != at || graph.tensors[result].dims != kept || dims[..batches] != c[..batches] {
            return refused("is reduced, of which a GEMM only adds up rows of its A along K");
        }
        if op.op != ReductionOp::Add || op.math.dtype() != matmul.math.dtype() {
            return refused("is reduced, not added up like products");
        }
        if matmul.math == MatmulMath::I32 || !dtype.is_float() {
            return refused("is added up, which has no floating-point numbers");
        }
        if matmul.math == MatmulMath::Tf32 && dtype.bytes() > 2 {
            return refused("is added up and may be rounded to tf32 by products");
        }
        Ok(EpilogueReduction {
            op,
            operand,
            of_a: true,
            result,
            kept: Kept::Rows,
            keeps_batches: true,
        })
    }
}
