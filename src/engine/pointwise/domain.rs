//! The iteration space of a pointwise kernel: the broadcast shape of all tensors, permuted and
//! collapsed to as few dimensions as their strides allow.

use crate::error::{Error, Result};
use crate::expr::Mode;
use crate::graph::{CanonicalGraph, Operation};
use crate::tensor::TensorDesc;

/// Collapsed dimensions, the innermost ("columns") last; there is always at least one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Domain {
    /// Extent of each collapsed dimension.
    pub(super) extents: Vec<i64>,
    /// The collapsed dimension of each original axis that GEN_INDEX counts along; `None` where
    /// the axis has extent 1 (or is not counted along).
    pub(super) axes: Vec<Option<usize>>,
    /// Per tensor of the graph and collapsed dimension: elements between neighbours, 0 where the
    /// tensor is broadcast.
    pub(super) strides: Vec<Vec<i64>>,
}

impl Domain {
    /// The domain of a graph.
    ///
    /// # Errors
    /// `NotSupported` when the tensors do not broadcast to one shape, or it has over 2^62 elements.
    pub(super) fn of(graph: CanonicalGraph<'_>) -> Result<Domain> {
        let shape = broadcast_shape(graph.tensors)?;
        if shape.contains(&0) {
            return Ok(Domain {
                extents: vec![0],
                axes: vec![None; shape.len()],
                strides: vec![vec![0]; graph.tensors.len()],
            });
        }
        let counted = counted_axes(graph);
        let order = axis_order(graph, &shape);
        let stride = |tensor: &TensorDesc, axis: usize| match tensor.dims[axis] {
            1 => 0,
            _ => tensor.strides[axis],
        };
        let stored: Vec<usize> = (0..graph.tensors.len())
            .filter(|index| !graph.tensors[*index].is_virtual && !graph.tensors[*index].by_value)
            .collect();
        let mut domain = Domain {
            extents: Vec::new(),
            axes: vec![None; shape.len()],
            strides: vec![Vec::new(); graph.tensors.len()],
        };
        let mut last_axis = None;
        for axis in order.into_iter().filter(|axis| shape[*axis] != 1) {
            let mergeable = last_axis.is_some_and(|last: usize| {
                !counted.contains(&axis)
                    && !counted.contains(&last)
                    && stored.iter().all(|index| {
                        let tensor = &graph.tensors[*index];
                        stride(tensor, last) == stride(tensor, axis) * shape[axis]
                    })
            });
            if mergeable {
                *domain.extents.last_mut().expect("an outer dimension") *= shape[axis];
                for (tensor, strides) in graph.tensors.iter().zip(&mut domain.strides) {
                    *strides.last_mut().expect("an outer dimension") = stride(tensor, axis);
                }
            } else {
                domain.extents.push(shape[axis]);
                for (tensor, strides) in graph.tensors.iter().zip(&mut domain.strides) {
                    strides.push(stride(tensor, axis));
                }
            }
            if counted.contains(&axis) {
                domain.axes[axis] = Some(domain.extents.len() - 1);
            }
            last_axis = Some(axis);
        }
        if domain.extents.is_empty() {
            domain.extents.push(1);
            domain.strides.iter_mut().for_each(|strides| strides.push(0));
        }
        Ok(domain)
    }

    /// Extent of the innermost dimension.
    pub(super) fn columns(&self) -> i64 {
        *self.extents.last().expect("there is always one dimension")
    }

    /// Product of the outer extents.
    pub(super) fn rows(&self) -> i64 {
        self.extents[..self.extents.len() - 1].iter().product()
    }

    /// A tensor's stride along the columns.
    pub(super) fn column_stride(&self, tensor: usize) -> i64 {
        *self.strides[tensor].last().expect("there is always one dimension")
    }

    /// A tensor's strides along the outer dimensions.
    pub(super) fn row_strides(&self, tensor: usize) -> &[i64] {
        &self.strides[tensor][..self.extents.len() - 1]
    }

    /// The largest element offset that any tensor is accessed at.
    pub(super) fn offset_max(&self) -> i64 {
        let reach = |strides: &Vec<i64>| {
            strides.iter().zip(&self.extents).fold(0i64, |sum, (stride, extent)| {
                sum.saturating_add(stride.saturating_mul((extent - 1).max(0)))
            })
        };
        self.strides.iter().map(reach).max().unwrap_or(0)
    }
}

fn broadcast_shape(tensors: &[TensorDesc]) -> Result<Vec<i64>> {
    let mut shape = vec![1; tensors[0].dims.len()];
    for tensor in tensors {
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
fn axis_order(graph: CanonicalGraph<'_>, shape: &[i64]) -> Vec<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::expr::Pointwise;
    use crate::graph::OperationGraph;

    fn domain(dims: &[i64], a: &[i64], b: (&[i64], &[i64])) -> Domain {
        let mut graph = OperationGraph::builder();
        let desc = TensorDesc::packed(1, "a", dims, DType::F32);
        let a = graph.tensor(TensorDesc { strides: a.to_vec(), ..desc.clone() });
        let b_desc = TensorDesc { uid: 2, name: "b".into(), ..desc };
        let b = graph.tensor(TensorDesc { dims: b.0.to_vec(), strides: b.1.to_vec(), ..b_desc });
        let y = graph.pointwise(Pointwise::new(Mode::Add), &[a, b]).expect("valid");
        graph.output(y, "y", DType::F32);
        let graph = graph.build().expect("valid");
        Domain::of(graph.canonical()).expect("supported")
    }

    #[test]
    fn packed_tensors_collapse_to_one_dimension() {
        let packed = domain(&[2, 3, 4], &[12, 4, 1], (&[2, 3, 4], &[12, 4, 1]));
        assert_eq!((packed.rows(), packed.columns()), (1, 24));
    }

    #[test]
    fn a_row_broadcast_keeps_two() {
        let row = domain(&[2, 3, 4], &[12, 4, 1], (&[1, 1, 4], &[4, 4, 1]));
        assert_eq!(row.extents, [6, 4]);
        assert_eq!(row.strides[1], [0, 1]);
    }

    #[test]
    fn strides_decide_the_order() {
        // Both inputs channels-last; the packed output leads, so its last axis is the columns.
        let mixed = domain(&[2, 3, 4], &[12, 1, 3], (&[2, 3, 4], &[12, 1, 3]));
        assert_eq!(mixed.extents, [2, 3, 4]);
        assert_eq!(mixed.strides[0], [12, 1, 3]);
    }

    #[test]
    fn single_elements_have_one_dimension() {
        assert_eq!(domain(&[1, 1], &[1, 1], (&[1, 1], &[1, 1])).extents, [1]);
    }
}
