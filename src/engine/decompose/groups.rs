//! Convolutions whose groups of channels are a dimension of their own in every tensor, so that each
//! group is a batch: `[N, G * C, ...]` is seen as `[N, G, C, ...]`.

use crate::engine::decompose::Decomposed;
use crate::engine::program::ancestors;
use crate::error::{Error, Result};
use crate::expr::Mode;
use crate::graph::{Op, Operation};
use crate::tensor::TensorDesc;

/// The dimension of a tensor that has groups and channels, and the channels of each group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Joint {
    axis: usize,
    channels: i64,
}

impl<'a> Decomposed<'a> {
    /// The graph with several groups of a convolution's channels as a dimension of their own.
    ///
    /// # Errors
    /// `NotSupported` where a tensor's dimensions are met as those of two roles, or an index counts
    /// along groups and channels.
    pub(in crate::engine) fn grouped(self) -> Result<Decomposed<'a>> {
        let graph = self.graph();
        let found = graph.operations.iter().find_map(|operation| match &operation.op {
            Op::Convolution(op) => Some((op, operation)),
            _ => None,
        });
        let Some((op, operation)) = found else { return Ok(self) };
        let operands = [0, 1].map(|slot| operation.inputs[slot] as usize);
        let all = op.pass.roles(operands, operation.outputs[0] as usize);
        let roles = all.map(|at| &graph.tensors[at]);
        let shape = op.shape(roles)?;
        if shape.groups == 1 || op.has_group_axis(roles[0]) {
            return Ok(self);
        }
        let [c, k] = [shape.c, shape.k];
        let joints = [
            Joint { axis: 1, channels: c },
            Joint { axis: 0, channels: k },
            Joint { axis: 1, channels: k },
        ];
        let joint_of = |at: usize| {
            let role = all.iter().position(|of| *of == at).expect("it is a role");
            joints[role]
        };
        let mut known = vec![None; graph.tensors.len()];
        let mut computed = vec![None; graph.operations.len()];
        for at in operands {
            for index in ancestors(graph, &[at]) {
                computed[index] = Some(joint_of(at));
            }
            split(&mut known[at], &graph.tensors[at], joint_of(at), shape.groups)?;
        }
        let behind = joint_of(operation.outputs[0] as usize);
        let mut operations = Vec::new();
        for (index, own) in graph.operations.iter().enumerate() {
            let joint = computed[index].unwrap_or(behind);
            let tensors = match own.op {
                Op::Convolution(_) => &own.outputs[..],
                _ => &[&own.inputs[..], &own.outputs].concat(),
            };
            for at in tensors.iter().map(|uid| *uid as usize) {
                split(&mut known[at], &graph.tensors[at], joint, shape.groups)?;
            }
            operations.push(Operation { op: counted(&own.op, joint)?, ..own.clone() });
        }
        let tensors = graph.tensors.iter().zip(known);
        let tensors: Vec<TensorDesc> =
            tensors.map(|(tensor, split)| split.unwrap_or_else(|| tensor.clone())).collect();
        let Decomposed { uids, offsets, .. } = self;
        Ok(Decomposed { tensors: tensors.into(), operations: operations.into(), uids, offsets })
    }
}

/// A tensor with groups as a dimension of their own; all that know it agree.
fn split(
    known: &mut Option<TensorDesc>,
    tensor: &TensorDesc,
    Joint { axis, channels }: Joint,
    groups: i64,
) -> Result<()> {
    let mut own = tensor.clone();
    let all = groups.saturating_mul(channels);
    let found = tensor.dims.get(axis).zip(tensor.strides.get(axis));
    // A flag of a signal, say, or another piece of a concatenation.
    let Some((&dim, &stride)) = found.filter(|(dim, _)| **dim == 1 || **dim == all) else {
        let TensorDesc { name, dims, .. } = tensor;
        return Err(Error::not_supported(format!(
            "`{name}` is {dims:?}, beside {groups} groups of {channels} channels of a convolution"
        )));
    };
    let dims = if dim == 1 { [1, 1] } else { [groups, channels] };
    own.dims.splice(axis..=axis, dims);
    own.strides.splice(axis..=axis, [stride.saturating_mul(channels.max(1)), stride]);
    match known {
        Some(known) if known.dims != own.dims => Err(Error::not_supported(format!(
            "`{}` has groups of channels in two ways: {:?} and {:?}",
            tensor.name, known.dims, own.dims
        ))),
        _ => {
            known.get_or_insert(own);
            Ok(())
        }
    }
}

/// An operation that may count along a dimension.
fn counted(op: &Op, joint: Joint) -> Result<Op> {
    match op {
        Op::Pointwise(op) if op.mode == Mode::GenIndex => match op.axis as usize {
            axis if axis < joint.axis => Ok(Op::Pointwise(*op)),
            axis if axis == joint.axis => {
                let text = format!("{op} along groups and channels, which are batches of a GEMM");
                Err(Error::not_supported(text))
            }
            _ => Ok(Op::Pointwise(op.axis(op.axis + 1))),
        },
        op => Ok(op.clone()),
    }
}
