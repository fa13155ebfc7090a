//! Dimensions of the iteration space, permuted and merged as far as strides allow.

use crate::engine::access::{drawn, volume};
use crate::error::{Error, Result};
use crate::expr::Mode;
use crate::graph::{CanonicalGraph, Operation};
use crate::tensor::TensorDesc;

/// Some axes of the broadcast shape of all tensors, the innermost last; at least one dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Dimensions {
    /// Extent of each merged dimension.
    pub(super) extents: Vec<i64>,
    /// The merged dimension of each original axis that GEN_INDEX counts along; `None` where the
    /// axis has extent 1, is not counted along or is not among these axes.
    pub(super) axes: Vec<Option<usize>>,
    /// Per tensor of the graph and merged dimension: elements between neighbours, 0 where the
    /// tensor is broadcast.
    pub(super) strides: Vec<Vec<i64>>,
}

impl Dimensions {
    /// These axes of the shape, in this order, merged where every tensor in memory or of random
    /// numbers steps over two of them as over one.
    pub(super) fn of(
        graph: CanonicalGraph<'_>,
        shape: &[i64],
        order: impl IntoIterator<Item = usize>,
    ) -> Dimensions {
        let counted = counted_axes(graph);
        let stride = |tensor: &TensorDesc, axis: usize| match tensor.dims[axis] {
            1 => 0,
            _ => tensor.strides[axis],
        };
        let stored: Vec<usize> = (0..graph.tensors.len())
            .filter(|index| !graph.tensors[*index].is_virtual && !graph.tensors[*index].by_value)
            .chain(drawn(graph))
            .collect();
        let mut merged = Dimensions {
            extents: Vec::new(),
            axes: vec![None; shape.len()],
            strides: vec![Vec::new(); graph.tensors.len()],
        };
        let mut last_axis = None;
        for axis in order.into_iter().filter(|axis| shape[*axis] != 1) {
            if shape[axis] == 0 {
                return Dimensions::single(graph, shape, 0);
            }
            let mergeable = last_axis.is_some_and(|last: usize| {
                !counted.contains(&axis)
                    && !counted.contains(&last)
                    && stored.iter().all(|index| {
                        let tensor = &graph.tensors[*index];
                        stride(tensor, last) == stride(tensor, axis).saturating_mul(shape[axis])
                    })
            });
            if mergeable {
                let outer = merged.extents.last_mut().expect("an outer dimension");
                *outer = outer.saturating_mul(shape[axis]);
                for (tensor, strides) in graph.tensors.iter().zip(&mut merged.strides) {
                    *strides.last_mut().expect("an outer dimension") = stride(tensor, axis);
                }
            } else {
                merged.extents.push(shape[axis]);
                for (tensor, strides) in graph.tensors.iter().zip(&mut merged.strides) {
                    strides.push(stride(tensor, axis));
                }
            }
            if counted.contains(&axis) {
                merged.axes[axis] = Some(merged.extents.len() - 1);
            }
            last_axis = Some(axis);
        }
        match merged.extents.is_empty() {
            true => Dimensions::single(graph, shape, 1),
            false => merged,
        }
    }

    /// One dimension along which no tensor moves.
    fn single(graph: CanonicalGraph<'_>, shape: &[i64], extent: i64) -> Dimensions {
        Dimensions {
            extents: vec![extent],
            axes: vec![None; shape.len()],
            strides: vec![vec![0]; graph.tensors.len()],
        }
    }

    /// Extent of the innermost dimension.
    pub(super) fn width(&self) -> i64 {
        *self.extents.last().expect("there is always one dimension")
    }

    /// Extents of all other dimensions.
    pub(super) fn outer(&self) -> &[i64] {
        &self.extents[..self.extents.len() - 1]
    }

    /// A tensor's stride along the innermost dimension.
    pub(super) fn stride(&self, tensor: usize) -> i64 {
        *self.strides[tensor].last().expect("there is always one dimension")
    }

    /// A tensor's strides along all other dimensions.
    pub(super) fn outer_strides(&self, tensor: usize) -> &[i64] {
        &self.strides[tensor][..self.extents.len() - 1]
    }

    /// Product of the extents.
    pub(super) fn count(&self) -> i64 {
        volume(&self.extents)
    }

    /// The largest element offset at which a tensor is accessed along these dimensions.
    pub(super) fn offset_max(&self, tensor: usize) -> i64 {
        let reach = |sum: i64, (stride, extent): (&i64, &i64)| {
            sum.saturating_add(stride.saturating_mul((extent - 1).max(0)))
        };
        self.strides[tensor].iter().zip(&self.extents).fold(0, reach)
    }
}

/// The shape that all tensors broadcast to.
///
/// # Errors
/// `NotSupported` when they do not, or it has over 2^62 elements.
pub(super) fn broadcast_shape(tensors: &[TensorDesc]) -> Result<Vec<i64>> {
    let mut shape = vec![1; tensors[0].dims.len()];
    for tensor in tensors {
        if tensor.dims.len() != shape.len() {
            let (rank, dims) = (shape.len(), &tensor.dims);
            return Err(Error::not_supported(format!(
                "tensors differ in the number of dimensions: {rank} and {dims:?}"
            )));
        }
        for (extent, dim) in shape.iter_mut().zip(&tensor.dims) {
            if *extent == 1 {
                *extent = *dim;
            } else if *dim != 1 && *dim != *extent {
                return Err(Error::not_supported(format!(
                    "tensors do not broadcast to one shape: {extent} and {dim} in one dimension"
                )));
            }
        }
    }
    if shape.contains(&0) {
        return Ok(shape);
    }
    let elements = shape.iter().try_fold(1i64, |product, extent| product.checked_mul(*extent));
    match elements {
        Some(elements) if elements <= 1 << 62 => Ok(shape),
        _ => Err(Error::not_supported(format!("the shape {shape:?} has more than 2^62 elements"))),
    }
}

/// Axes that some GEN_INDEX counts along.
fn counted_axes(graph: CanonicalGraph<'_>) -> Vec<usize> {
    let axis = |operation: &Operation| {
        let op = operation.as_pointwise().filter(|op| op.mode == Mode::GenIndex)?;
        Some(op.axis as usize)
    };
    graph.operations.iter().filter_map(axis).collect()
}

/// Axes from the largest stride to the smallest: in the order of the tensor that moves the most
/// bytes, an output before an input, so that its innermost dimension becomes the columns.
pub(super) fn axis_order(graph: CanonicalGraph<'_>, shape: &[i64]) -> Vec<usize> {
    let leader = graph
        .tensors
        .iter()
        .filter(|tensor| !tensor.is_virtual)
        .max_by_key(|tensor| {
            let elements = tensor.elements().unwrap_or(i64::MAX);
            let bytes = elements.saturating_mul(tensor.dtype.bytes() as i64);
            (bytes, graph.is_written(tensor.uid as usize), std::cmp::Reverse(tensor.uid))
        })
        .expect("a graph has an output");
    let mut order: Vec<usize> = (0..shape.len()).collect();
    // Ties (broadcast dimensions) keep the row-major order: the sort is stable.
    order.sort_by_key(|axis| {
        let stride = if leader.dims[*axis] == 1 { i64::MAX } else { leader.strides[*axis] };
        std::cmp::Reverse(stride)
    });
    order
}

/// Expressions for so many coordinates of the point at an index, with extents by these names.
pub(super) fn coordinates(count: usize, index: &str, extent: &str) -> Vec<String> {
    (0..count)
        .map(|dimension| {
            let inner: Vec<String> =
                (dimension + 1..count).map(|inner| format!("{extent}{inner}")).collect();
            let quotient = match inner.len() {
                0 => index.to_owned(),
                1 => format!("{index} / {}", inner[0]),
                _ => format!("{index} / ({})", inner.join(" * ")),
            };
            match dimension {
                0 => quotient,
                _ => format!("{quotient} % {extent}{dimension}"),
            }
        })
        .collect()
}
