//! A tensor as bulk copies take it: which dimensions their map has, and the rules they must obey.

use crate::engine::gemm::problem::{Operand, Part, Problem};
use crate::engine::{Swizzle, TensorMap};
use crate::error::{Error, Result};

/// Dimensions of a tensor map, at most.
const RANK_MAX: usize = 5;

/// What addresses and strides of a tensor map are multiples of, in bytes.
const ALIGNMENT: i64 = 16;

/// Bytes of a line of a box, as far as the widest swizzle reaches.
const LINE_BYTES: i64 = 128;

/// Strides of a tensor map are less.
const STRIDE_BYTES_MAX: i64 = 1 << 40;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BulkTensor {
    pub(super) at: usize,
    /// Elements of a line.
    line: i64,
    /// The map without its box.
    map: TensorMap,
    /// The batch dimensions that the tensor has, the innermost first.
    batches: Vec<usize>,
}

/// A dimension: its extent and stride, in elements.
type Dimension = (i64, i64);

impl BulkTensor {
    /// An operand of the product.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand(problem: &Problem<'_>, operand: &Operand) -> Result<BulkTensor> {
        BulkTensor::operand_at(problem, operand, operand.tensor)
    }

    /// A tensor in place of an operand that lies as it does.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand_at(
        problem: &Problem<'_>,
        operand: &Operand,
        at: usize,
    ) -> Result<BulkTensor> {
        let tensor = &problem.graph.tensors[at];
        let name = &tensor.name;
        if !operand.is_plain() || tensor.by_value {
            return Err(Error::not_supported(format!(
                "operand `{name}` is computed, a bulk copy loads it as it is"
            )));
        }
        let view = operand.part.axes.view(tensor);
        let (depth, rows) = ((problem.k, view.column), (operand.extent, view.row));
        let matrix = if operand.depth_packed { [depth, rows] } else { [rows, depth] };
        BulkTensor::of(problem, at, &operand.part, matrix)
    }

    /// What is stored.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn output(problem: &Problem<'_>, at: usize) -> Result<BulkTensor> {
        let view = problem.epilogue.axes.view(&problem.graph.tensors[at]);
        let matrix = [(problem.n, view.column), (problem.m, view.row)];
        BulkTensor::of(problem, at, &problem.epilogue, matrix)
    }

    fn of(
        problem: &Problem<'_>,
        at: usize,
        part: &Part,
        [inner, outer]: [Dimension; 2],
    ) -> Result<BulkTensor> {
        let tensor = &problem.graph.tensors[at];
        let name = &tensor.name;
        let refuse = |rule: String| Err(Error::not_supported(rule));
        if (tensor.alignment as i64) < ALIGNMENT {
            let alignment = tensor.alignment;
            return refuse(format!(
                "`{name}` is aligned to {alignment} bytes, a bulk copy needs {ALIGNMENT}"
            ));
        }
        if inner.0 > 1 && inner.1 != 1 || outer.0 > 1 && outer.1 == 0 {
            return refuse(format!("no dimension of `{name}` is packed"));
        }
        let view = part.axes.view(tensor);
        let own = |batch: &usize| view.batches[*batch] != 0;
        let batches: Vec<usize> = (0..view.batches.len()).rev().filter(own).collect();
        if batches.len() + 2 > RANK_MAX {
            let count = batches.len();
            return refuse(format!("`{name}` has {count} dimensions of batches, a bulk copy 3"));
        }
        let size = tensor.dtype.bytes() as i64;
        let dims = batches.iter().map(|batch| (problem.batches[*batch], view.batches[*batch]));
        let dims: Vec<Dimension> = [inner, outer].into_iter().chain(dims).collect();
        // Nothing steps along a dimension of one element.
        let bytes = |(extent, stride): &Dimension| match extent {
            1 => ALIGNMENT,
            _ => stride.saturating_mul(size),
        };
        let strides: Vec<i64> = dims[1..].iter().map(bytes).collect();
        if let Some(bytes) = strides.iter().find(|bytes| *bytes % ALIGNMENT != 0) {
            return refuse(format!(
                "a stride of `{name}` is {bytes} bytes, a bulk copy needs multiples of {ALIGNMENT}"
            ));
        }
        if let Some(bytes) = strides.iter().find(|bytes| **bytes >= STRIDE_BYTES_MAX) {
            return refuse(format!("a stride of `{name}` is {bytes} bytes, more than 2^40"));
        }
        // Coordinates are of 32 bits, those of tiles beyond the end too.
        if let Some((extent, _)) = dims.iter().find(|(extent, _)| *extent >= 1 << 30) {
            return refuse(format!("an extent of `{name}` is {extent}, more than 2^30"));
        }
        let map = TensorMap {
            tensor: at as i64,
            dtype: tensor.dtype,
            dims: dims.iter().map(|(extent, _)| *extent as u64).collect(),
            strides: strides.iter().map(|bytes| *bytes as u64).collect(),
            box_dims: Vec::new(),
            swizzle: Swizzle::B128,
        };
        Ok(BulkTensor { at, line: LINE_BYTES / size, map, batches })
    }

    /// Dimensions of the map.
    pub(super) fn rank(&self) -> usize {
        self.map.dims.len()
    }

    /// The map for boxes of so many lines of 128 bytes.
    pub(super) fn map(&self, lines: i64) -> TensorMap {
        let mut box_dims = vec![self.line as u32, lines as u32];
        box_dims.resize(self.rank(), 1);
        TensorMap { box_dims, ..self.map.clone() }
    }

    /// The coordinates behind those in a matrix, as arguments.
    pub(super) fn batch_arguments(&self) -> String {
        self.batches.iter().map(|batch| format!(", int(batch.i{batch})")).collect()
    }
}
