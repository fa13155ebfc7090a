//! Tensors of one number of dimensions: scalars are given the others', and where channels are
//! normalised in groups, dimension 1 becomes two, the groups and the channels of each.

use crate::error::{Error, Result};
use crate::expr::{Mode, Pointwise};
use crate::graph::{CanonicalGraph, NormMode, Op, Operation};
use crate::tensor::TensorDesc;

/// The tensors of a graph over one iteration space.
pub(super) struct Shapes {
    pub(super) tensors: Vec<TensorDesc>,
    /// How many axes the channels take, from the second on.
    pub(super) channel_axes: usize,
}

/// Groups of channels.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Groups {
    count: i64,
    channels: i64,
}

/// The tensors of a graph with as many dimensions each.
///
/// # Errors
/// `NotSupported` when tensors of several elements differ in the number of dimensions, when groups
/// differ, or when a tensor's dimension 1 is neither channels nor groups nor 1.
pub(super) fn unified(graph: CanonicalGraph<'_>) -> Result<Shapes> {
    let is_scalar = |tensor: &&TensorDesc| tensor.elements() == Some(1);
    let rank = graph.tensors.iter().find(|tensor| !is_scalar(tensor)).unwrap_or(&graph.tensors[0]);
    let rank = rank.dims.len();
    let mut tensors = graph.tensors.to_vec();
    for tensor in tensors.iter_mut().filter(|tensor| tensor.dims.len() != rank) {
        if !is_scalar(&&*tensor) {
            return Err(Error::not_supported(format!(
                "tensors differ in the number of dimensions: {rank} and {:?}",
                tensor.dims
            )));
        }
        (tensor.dims, tensor.strides) = (vec![1; rank], vec![1; rank]);
    }
    let Some(groups) = groups(graph)? else { return Ok(Shapes { tensors, channel_axes: 1 }) };
    let knows_no_groups = |of: &&Operation| {
        let Operation { op, .. } = of;
        op.moves()
            || matches!(op, Op::Matmul(_) | Op::Convolution(_) | Op::Resample(_))
            || matches!(op, Op::Attention(_) | Op::AttentionBackward(_))
    };
    if let Some(Operation { op, .. }) = graph.operations.iter().find(knows_no_groups) {
        let text = format!("{op} next to a norm of groups of channels");
        return Err(Error::not_supported(text));
    }
    tensors.iter_mut().try_for_each(|tensor| split(tensor, groups))?;
    Ok(Shapes { tensors, channel_axes: 2 })
}

/// The groups that channels are normalised in, if any are.
fn groups(graph: CanonicalGraph<'_>) -> Result<Option<Groups>> {
    let mut known: Option<Groups> = None;
    for operation in graph.operations {
        let mode = match &operation.op {
            Op::NormForward(op) => op.mode,
            Op::NormBackward(op) => op.mode,
            _ => continue,
        };
        let NormMode::Group(count) = mode else { continue };
        let channels = graph.tensors[operation.inputs[0] as usize].dims[1];
        let groups = Groups { count, channels };
        if known.is_some_and(|known| known != groups) {
            let text = "norms of different groups of channels".to_owned();
            return Err(Error::not_supported(text));
        }
        known = Some(groups);
    }
    Ok(known)
}

fn split(tensor: &mut TensorDesc, groups: Groups) -> Result<()> {
    let inner = groups.channels / groups.count;
    let stride = tensor.strides[1];
    let (dims, strides) = match tensor.dims[1] {
        dim if dim == groups.channels => {
            ([groups.count, inner], [stride.saturating_mul(inner.max(1)), stride])
        }
        dim if dim == groups.count || dim == 1 => ([dim, 1], [stride, 1]),
        dim => {
            let Groups { count, channels } = groups;
            return Err(Error::not_supported(format!(
                "a dimension of {dim} next to {channels} channels in {count} groups"
            )));
        }
    };
    tensor.dims.splice(1..2, dims);
    tensor.strides.splice(1..2, strides);
    Ok(())
}

/// A pointwise operation on unified tensors.
///
/// # Errors
/// `NotSupported` for an index along channels that became two dimensions.
pub(super) fn pointwise(op: &Pointwise, channel_axes: usize) -> Result<Op> {
    if channel_axes == 1 || op.mode != Mode::GenIndex || op.axis == 0 {
        return Ok(Op::Pointwise(*op));
    }
    match op.axis {
        1 => {
            let text = format!("{op} along channels that are normalised in groups");
            Err(Error::not_supported(text))
        }
        axis => Ok(Op::Pointwise(op.axis(axis + 1))),
    }
}
