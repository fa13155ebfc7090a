//! The axes of tensors as batches, rows and columns of matrices.

use crate::tensor::TensorDesc;

/// The axes of tensors that make up the batches, rows and columns of a matrix. The last axis of a
/// list is the innermost; axes of extent 1 are left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Axes {
    pub(super) batches: Vec<Vec<usize>>,
    pub(super) rows: Vec<usize>,
    pub(super) columns: Vec<usize>,
}

/// Elements between neighbours of a tensor, 0 where it is broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub(super) batches: Vec<i64>,
    pub(super) row: i64,
    pub(super) column: i64,
}

/// A coordinate of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Coordinate {
    Batch(usize),
    Row,
    Column,
}

impl Axes {
    pub(super) fn view(&self, tensor: &TensorDesc) -> View {
        let stride = |axes: &Vec<usize>| axes.last().map_or(0, |axis| stride(tensor, *axis));
        let batches = self.batches.iter().map(stride).collect();
        View { batches, row: stride(&self.rows), column: stride(&self.columns) }
    }

    /// The coordinate that counts along an axis; `None` where the axis has extent 1.
    pub(super) fn coordinate(&self, axis: usize) -> Option<Coordinate> {
        let batch = self.batches.iter().position(|axes| axes.contains(&axis));
        match (batch, self.rows.contains(&axis), self.columns.contains(&axis)) {
            (Some(batch), _, _) => Some(Coordinate::Batch(batch)),
            (_, true, _) => Some(Coordinate::Row),
            (_, _, true) => Some(Coordinate::Column),
            _ => None,
        }
    }
}

pub(super) fn stride(tensor: &TensorDesc, axis: usize) -> i64 {
    if tensor.dims[axis] == 1 { 0 } else { tensor.strides[axis] }
}
