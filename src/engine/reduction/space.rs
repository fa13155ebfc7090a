//! The iteration space of a reduction: rows, of which each becomes values, and what lies along one.

use crate::engine::dimensions::{Dimensions, axis_order, broadcast_shape};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation};

/// The dimensions that are kept and those along which is reduced, each merged by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Space {
    /// The kept dimensions: a row for each of their points.
    pub(super) rows: Dimensions,
    /// The dimensions of a row; the innermost holds what lies side by side.
    pub(super) columns: Dimensions,
    /// Per tensor: whether it has one value for a whole row.
    is_row: Vec<bool>,
}

impl Space {
    /// The space of a graph of pointwise operations and reductions.
    ///
    /// # Errors
    /// `NotSupported` when nothing is reduced, reductions are along different dimensions, or the
    /// tensors do not broadcast to one shape.
    pub(super) fn of(graph: CanonicalGraph<'_>) -> Result<Space> {
        let shape = broadcast_shape(graph.tensors)?;
        let reduced = reduced_axes(graph)?;
        let (columns, rows): (Vec<usize>, Vec<usize>) =
            axis_order(graph, &shape).into_iter().partition(|axis| reduced[*axis]);
        let is_row =
            graph.tensors.iter().map(|tensor| columns.iter().all(|a| tensor.dims[*a] == 1));
        let is_row = is_row.collect();
        Ok(Space {
            is_row,
            rows: Dimensions::of(graph, &shape, rows),
            columns: Dimensions::of(graph, &shape, columns),
        })
    }

    /// Whether a tensor has one value for a whole row.
    pub(super) fn is_row(&self, tensor: usize) -> bool {
        self.is_row[tensor]
    }

    /// Whether a tensor is the same in each of several rows.
    pub(super) fn is_shared(&self, tensor: usize) -> bool {
        self.rows.count() > 1 && self.rows.strides[tensor].iter().all(|stride| *stride == 0)
    }

    /// Extent of the innermost dimension of a row.
    pub(super) fn width(&self) -> i64 {
        *self.columns.extents.last().expect("there is always one dimension")
    }

    /// Product of a row's outer extents.
    pub(super) fn lines(&self) -> i64 {
        self.columns.extents[..self.columns.extents.len() - 1].iter().product()
    }

    /// A tensor's stride along the innermost dimension of a row.
    pub(super) fn stride(&self, tensor: usize) -> i64 {
        *self.columns.strides[tensor].last().expect("there is always one dimension")
    }

    /// A tensor's strides along all other dimensions, and the extents of those.
    pub(super) fn outer(&self, tensor: usize) -> (Vec<i64>, Vec<i64>) {
        let last = self.columns.extents.len() - 1;
        let (rows, columns) = (&self.rows, &self.columns);
        let join = |a: &[i64], b: &[i64]| [a, b].concat();
        (
            join(&rows.strides[tensor], &columns.strides[tensor][..last]),
            join(&rows.extents, &columns.extents[..last]),
        )
    }

    /// The largest element offset that any tensor is accessed at.
    pub(super) fn offset_max(&self) -> i64 {
        let reach =
            |tensor| self.rows.offset_max(tensor).saturating_add(self.columns.offset_max(tensor));
        (0..self.is_row.len()).map(reach).max().unwrap_or(0)
    }
}

/// Along which axes every reduction of the graph reduces.
fn reduced_axes(graph: CanonicalGraph<'_>) -> Result<Vec<bool>> {
    let mut found: Option<Vec<bool>> = None;
    for operation in graph.operations {
        let Operation { op: Op::Reduction(_), inputs, outputs } = operation else { continue };
        let [x, y] = [inputs[0], outputs[0]].map(|uid| &graph.tensors[uid as usize].dims);
        let reduced: Vec<bool> = x.iter().zip(y).map(|(x, y)| x != y).collect();
        match &found {
            Some(known) if *known != reduced => {
                let text = format!(
                    "reductions along different dimensions: {:?} and {:?}",
                    positions(known),
                    positions(&reduced)
                );
                return Err(Error::not_supported(text));
            }
            _ => found = Some(reduced),
        }
    }
    found.ok_or_else(|| Error::not_supported("nothing is reduced".to_owned()))
}

fn positions(reduced: &[bool]) -> Vec<usize> {
    (0..reduced.len()).filter(|axis| reduced[*axis]).collect()
}
