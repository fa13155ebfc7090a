//! The iteration space of a pointwise kernel: the broadcast shape of all tensors, permuted and
//! collapsed to as few dimensions as their strides allow.

use crate::engine::access::volume;
use crate::engine::dimensions::{Dimensions, axis_order, broadcast_shape};
use crate::error::Result;
use crate::graph::CanonicalGraph;

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
        let order = axis_order(graph, &shape);
        let Dimensions { extents, axes, strides } = Dimensions::of(graph, &shape, order);
        Ok(Domain { extents, axes, strides })
    }

    /// Extent of the innermost dimension.
    pub(super) fn columns(&self) -> i64 {
        *self.extents.last().expect("there is always one dimension")
    }

    /// Product of the outer extents.
    pub(super) fn rows(&self) -> i64 {
        volume(&self.extents[..self.extents.len() - 1])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::expr::{Mode, Pointwise};
    use crate::graph::OperationGraph;
    use crate::tensor::TensorDesc;

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
