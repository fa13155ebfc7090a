//! An operand of attention as TMA copies it, a tile of rows of a head at a time.

use crate::engine::access::ceil_div;
use crate::engine::attention::problem::Problem;
use crate::engine::attention::schedule::MMA_M;
use crate::engine::tma::TmaTensor;
use crate::error::{Error, Result};
use crate::kernel::TensorMap;

/// An operand as a TMA tensor.
#[derive(Debug)]
pub(super) struct TmaOperand {
    pub(super) tensor: TmaTensor,
    /// Whether it has a dimension for heads, and for sequences or pages.
    has: [bool; 2],
    /// Bytes per row of 8-bit elements, which are converted after the copy; otherwise 0.
    pub(super) fp8_bytes: i64,
}

impl TmaOperand {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn of(problem: &Problem<'_>, slot: &str) -> Result<TmaOperand> {
        let at = problem.at(slot).expect("attention has queries, keys and values");
        let tensor = &problem.graph.tensors[at];
        if tensor.elements() == Some(0) {
            return Err(Error::not_supported("a TMA copy takes at least one element"));
        }
        let dimension = |axis: usize| (tensor.dims[axis], tensor.strides[axis]);
        let has = [1, 0].map(|axis| tensor.dims[axis] > 1 && tensor.strides[axis] != 0);
        let batches = [1, 0].map(dimension).into_iter().zip(has);
        let batches: Vec<_> = batches.filter(|(_, has)| *has).map(|(of, _)| of).collect();
        let fp8_bytes =
            if tensor.dtype.is_f8() { ceil_div(tensor.dims[3], MMA_M) * MMA_M } else { 0 };
        let tensor = TmaTensor::of(at, tensor, [dimension(3), dimension(2)], &batches)?;
        Ok(TmaOperand { tensor, has, fp8_bytes })
    }

    /// Its map for boxes of this many rows.
    pub(super) fn map(&self, lines: i64) -> TensorMap {
        match self.fp8_bytes {
            0 => self.tensor.map(lines),
            bytes => self.tensor.plain_map([bytes, lines]),
        }
    }

    /// Coordinates after that of the row, as C++ arguments.
    pub(super) fn arguments(&self, head: &str, batch: &str) -> String {
        let all = [head, batch].into_iter().zip(self.has);
        all.filter(|(_, has)| *has).map(|(name, _)| format!(", {name}")).collect()
    }
}
