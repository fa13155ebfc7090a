//! The iteration space of a reduction: rows, of which each becomes values, and what lies along one.

use crate::engine::access::{stored, volume};
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
    /// Per axis of the tensors: whether it lies along a row.
    reduced: Vec<bool>,
    /// Per tensor: whether it has one value for a whole row.
    is_row: Vec<bool>,
    /// Per tensor: whether it is a sum of columns, or computed from some.
    follows: Vec<bool>,
}

impl Space {
    /// The space of a graph of pointwise operations and reductions.
    ///
    /// # Errors
    /// `NotSupported` when nothing is reduced, reductions are along different dimensions but those
    /// of rows and of columns, or the tensors do not broadcast to one shape.
    pub(super) fn of(graph: CanonicalGraph<'_>) -> Result<Space> {
        let shape = broadcast_shape(graph.tensors)?;
        let reduced = reduced_axes(graph, &shape)?;
        let (columns, rows): (Vec<usize>, Vec<usize>) =
            axis_order(graph, &shape).into_iter().partition(|axis| reduced[*axis]);
        let is_row =
            graph.tensors.iter().map(|tensor| columns.iter().all(|a| tensor.dims[*a] == 1));
        let is_row = is_row.collect();
        let sums = graph
            .operations
            .iter()
            .filter(|operation| reduced_by(graph, operation).is_some_and(|other| other != reduced));
        Ok(Space {
            is_row,
            follows: follow(graph, sums),
            rows: Dimensions::of(graph, &shape, rows),
            columns: Dimensions::of(graph, &shape, columns),
            reduced,
        })
    }

    /// Whether an axis of the tensors lies along a row.
    pub(super) fn is_reduced(&self, axis: usize) -> bool {
        self.reduced[axis]
    }

    /// Whether a tensor has one value for a whole row.
    pub(super) fn is_row(&self, tensor: usize) -> bool {
        self.is_row[tensor]
    }

    /// Whether a tensor is a sum of columns, of all rows, or computed from some.
    pub(super) fn follows_sums(&self, tensor: usize) -> bool {
        self.follows[tensor]
    }

    /// Whether there are column sums.
    pub(super) fn has_sums(&self) -> bool {
        self.follows.contains(&true)
    }

    /// Whether a tensor is the same in each of several rows.
    pub(super) fn is_shared(&self, tensor: usize) -> bool {
        self.rows.count() > 1 && self.rows.strides[tensor].iter().all(|stride| *stride == 0)
    }

    /// Extent of the innermost dimension of a row.
    pub(super) fn width(&self) -> i64 {
        self.columns.width()
    }

    /// Product of a row's outer extents.
    pub(super) fn lines(&self) -> i64 {
        volume(self.columns.outer())
    }

    /// A tensor's stride along the innermost dimension of a row.
    pub(super) fn stride(&self, tensor: usize) -> i64 {
        self.columns.stride(tensor)
    }

    /// A tensor's strides along all other dimensions, and the extents of those.
    pub(super) fn outer(&self, tensor: usize) -> (Vec<i64>, Vec<i64>) {
        let Space { rows, columns, .. } = self;
        (
            [&rows.strides[tensor], columns.outer_strides(tensor)].concat(),
            [&rows.extents, columns.outer()].concat(),
        )
    }

    /// Whether the tensor that moves the most bytes is contiguous along a kept dimension only:
    /// neighbours in memory are in different rows.
    pub(super) fn is_across(&self, graph: CanonicalGraph<'_>) -> bool {
        let elements = stored(graph).filter(|(at, _)| !self.is_row(*at));
        let largest = elements.max_by_key(|(_, tensor)| {
            tensor.elements().unwrap_or(i64::MAX).saturating_mul(tensor.dtype.bytes() as i64)
        });
        let steps = |strides: &[i64], extents: &[i64]| {
            let moved =
                strides.iter().zip(extents).filter(|(stride, extent)| **stride > 0 && **extent > 1);
            moved.map(|(stride, _)| *stride).min()
        };
        largest.is_some_and(|(at, _)| {
            let rows = steps(&self.rows.strides[at], &self.rows.extents);
            let columns = steps(&self.columns.strides[at], &self.columns.extents);
            rows.is_some_and(|rows| columns.is_some_and(|columns| rows < columns))
        })
    }

    /// The largest element offset that any tensor is accessed at.
    pub(super) fn offset_max(&self) -> i64 {
        let reach =
            |tensor| self.rows.offset_max(tensor).saturating_add(self.columns.offset_max(tensor));
        (0..self.is_row.len()).map(reach).max().unwrap_or(0)
    }
}

/// Along which axes the rows of a graph lie: those that its reductions reduce. Where some reduce
/// all others, they sum up columns, which is what a row's elements may not wait for.
fn reduced_axes(graph: CanonicalGraph<'_>, shape: &[i64]) -> Result<Vec<bool>> {
    let mut found: Vec<Vec<bool>> = Vec::new();
    for operation in graph.operations {
        if let Some(reduced) = reduced_by(graph, operation)
            && !found.contains(&reduced)
        {
            found.push(reduced);
        }
    }
    let fits = |axes: &&Vec<bool>| {
        let mut sums = graph.operations.iter().filter(|operation| {
            reduced_by(graph, operation).is_some_and(|reduced| reduced != **axes)
        });
        let ends = end_in_columns(graph, &follow(graph, sums.clone()), axes);
        // What is summed up are elements, not values of rows.
        ends && sums.all(|of| graph.tensors[of.inputs[0] as usize].dims == *shape)
    };
    match &found[..] {
        [] => Err(Error::not_supported("nothing is reduced".to_owned())),
        [one] => Ok(one.clone()),
        [a, b] if are_opposite(a, b, shape) => {
            let text = "elements need the sums of rows and those of columns";
            let refused = || Error::not_supported(text.to_owned());
            [a, b].into_iter().find(fits).cloned().ok_or_else(refused)
        }
        [a, b, ..] => {
            let (a, b) = (positions(a), positions(b));
            let text = format!("reductions along different dimensions: {a:?} and {b:?}");
            Err(Error::not_supported(text))
        }
    }
}

/// The axes that an operation reduces, if it is a reduction.
fn reduced_by(graph: CanonicalGraph<'_>, operation: &Operation) -> Option<Vec<bool>> {
    let Operation { op: Op::Reduction(_), inputs, outputs } = operation else { return None };
    let [x, y] = [inputs[0], outputs[0]].map(|uid| &graph.tensors[uid as usize].dims);
    Some(x.iter().zip(y).map(|(x, y)| x != y).collect())
}

/// Whether every axis is reduced by one of two reductions.
fn are_opposite(a: &[bool], b: &[bool], shape: &[i64]) -> bool {
    std::iter::zip(a, b).zip(shape).all(|((a, b), extent)| *extent == 1 || a != b)
}

/// Per tensor: whether it depends on the results of these operations.
fn follow<'a>(
    graph: CanonicalGraph<'_>,
    operations: impl Iterator<Item = &'a Operation>,
) -> Vec<bool> {
    let mut follows = vec![false; graph.tensors.len()];
    operations.for_each(|operation| follows[operation.outputs[0] as usize] = true);
    for operation in graph.operations {
        if operation.inputs.iter().any(|uid| follows[*uid as usize]) {
            follows[operation.outputs[0] as usize] = true;
        }
    }
    follows
}

/// Whether tensors that follow from sums of columns are computed from nothing but those and
/// scalars in memory, and reduced no further.
fn end_in_columns(graph: CanonicalGraph<'_>, follows: &[bool], rows: &[bool]) -> bool {
    graph.operations.iter().all(|operation| {
        let output = operation.outputs[0] as usize;
        let reads_them = operation.inputs.iter().any(|uid| follows[*uid as usize]);
        let is_column =
            graph.tensors[output].dims.iter().zip(rows).all(|(dim, row)| *row || *dim == 1);
        let is_scalar =
            |at: usize| graph.tensors[at].elements() == Some(1) && !graph.is_written(at);
        let plain = |uid: &i64| follows[*uid as usize] || is_scalar(*uid as usize);
        let pointwise = operation.is_elementwise();
        !reads_them || (pointwise && is_column && operation.inputs.iter().all(plain))
    })
}

fn positions(reduced: &[bool]) -> Vec<usize> {
    (0..reduced.len()).filter(|axis| reduced[*axis]).collect()
}
