//! Copies of operands of convolutions with channels last.
//!
//! A convolution sums over channels and taps, of which only channels may lie side by side for every
//! tap: where they do not, as in `[N, C, H, W]` packed in this order, operands are gathered element
//! by element. A copy, once through memory, lets TMA or wide asynchronous copies load them. Whether
//! that pays is a question for the cost model.

use std::collections::BTreeSet;

use crate::engine::part::Part;
use crate::engine::prologues::{GAIN_MIN, parts_us};
use crate::engine::{BehaviorNote, CostModel, Mode, Selection, choose};
use crate::error::{Error, Result};
use crate::expr::{Math, Mode as Function, Pointwise};
use crate::graph::{Op, Operation, OperationGraph};
use crate::target::Target;
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// A convolution of a graph, by its position, and the operand of which it reads a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Copied {
    pub(crate) convolution: usize,
    pub(crate) operand: i64,
}

/// The parts of a graph, convolutions behind copies of their operands where that takes less time.
pub(super) fn apart(
    graph: &OperationGraph,
    parts: Vec<Part>,
    target: &Target,
    selection: &Selection,
) -> Vec<Part> {
    let without_workspace = selection.without.behavior.contains(&BehaviorNote::Workspace);
    let is_known = |part: &Part| {
        let mut written = part.graph.operations().iter().flat_map(|of| &of.outputs);
        written.all(|uid| graph.tensor(*uid).is_ok())
    };
    if selection.mode == Mode::Fallback || without_workspace || !parts.iter().all(is_known) {
        return parts;
    }
    let model = CostModel::of(target);
    let mut made = BTreeSet::new();
    let mut all = Vec::new();
    for part in parts {
        let others = behind_copies(graph, &part, target, selection).map(|others| {
            let is_made = |of: &Part| of.graph.outputs().any(|copy| made.contains(&copy.uid));
            others.into_iter().filter(|of| !is_made(of)).collect::<Vec<Part>>()
        });
        let own_us = || parts_us(std::slice::from_ref(&part), target, &model);
        match others {
            Some(others) if parts_us(&others, target, &model) * GAIN_MIN < own_us() => {
                made.extend(others.iter().flat_map(|of| of.graph.outputs()).map(|of| of.uid));
                all.extend(others);
            }
            _ => all.push(part),
        }
    }
    all
}

/// A convolution behind copies of its operands whose channels are not last; `None` where there is
/// none, or no engine runs it.
fn behind_copies(
    graph: &OperationGraph,
    part: &Part,
    target: &Target,
    selection: &Selection,
) -> Option<Vec<Part>> {
    let convolution_of = |of: &'_ Operation| match &of.op {
        Op::Convolution(op) => Some(op.window.filter_strides.len() + 2),
        _ => None,
    };
    let operations = part.graph.operations().iter();
    let mut ranks = operations.filter_map(|of| convolution_of(of).map(|rank| (of, rank)));
    // Groups are no dimension of their own.
    let (Some((own, rank)), None) = (ranks.next(), ranks.next()) else { return None };
    let convolution = graph.operations().iter().position(|of| of.outputs == own.outputs)?;
    let is_input = |uid: &i64| part.graph.inputs().any(|input| input.uid == *uid);
    let is_gathered = |uid: &i64| {
        let tensor = part.graph.tensor(*uid);
        tensor.is_ok_and(|of| of.dims.len() == rank && channels_last(of).is_some())
    };
    let operands = operands_of(own).filter(|uid| is_input(uid) && is_gathered(uid));
    let copied: Vec<Copied> =
        operands.map(|operand| Copied { convolution, operand: *operand }).collect();
    if copied.is_empty() {
        return None;
    }
    let with = with_copies(graph, &copied).ok()?;
    let at = |of: &[i64]| with.operations().iter().position(|own| own.outputs == of);
    let chosen = |operations: &[usize]| {
        let graph = with.subgraph(operations).ok()?;
        let config = choose(graph.canonical(), target, selection).ok()?;
        Some(Part { graph, config })
    };
    let mut parts = Vec::new();
    let read: BTreeSet<i64> = operands_of(&with.operations()[at(&own.outputs)?]).copied().collect();
    for copy in read.iter().filter(|uid| graph.tensor(**uid).is_err()) {
        parts.push(chosen(&[at(&[*copy])?])?);
    }
    let own = part.graph.operations().iter().map(|of| at(&of.outputs));
    let mut own: Vec<usize> = own.collect::<Option<_>>()?;
    own.sort_unstable();
    parts.push(chosen(&own)?);
    Some(parts)
}

/// A graph in which convolutions read copies of operands, with channels last.
///
/// # Errors
/// `BadParam` for an operand whose channels are last already, or cannot be; as
/// [`OperationGraph::new`].
pub(crate) fn with_copies(graph: &OperationGraph, copied: &[Copied]) -> Result<OperationGraph> {
    let mut tensors = graph.tensors().to_vec();
    let mut operations = graph.operations().to_vec();
    for Copied { convolution, operand } in copied {
        let copy = copy_of(graph, *operand).ok_or_else(|| {
            let name = graph.reference(*operand);
            Error::bad_param(format!("`{name}` has channels last, or none: there is no copy of it"))
        })?;
        // What a result is added to is no operand.
        let inputs = operations[*convolution].inputs.iter_mut().take(OPERANDS);
        inputs.filter(|uid| *uid == operand).for_each(|uid| *uid = copy.uid);
        if tensors.iter().all(|known| known.uid != copy.uid) {
            let identity = Pointwise::new(Function::Identity).math(Math::of(copy.dtype));
            operations.push(Operation {
                op: Op::Pointwise(identity),
                inputs: vec![*operand],
                outputs: vec![copy.uid],
            });
            tensors.push(copy);
        }
    }
    Ok(OperationGraph::new(tensors, operations)?.laid_as(graph))
}

/// The operands of a convolution.
const OPERANDS: usize = 2;

/// The tensors that a convolution multiplies.
pub(crate) fn operands_of(convolution: &Operation) -> impl Iterator<Item = &i64> {
    convolution.inputs.iter().take(OPERANDS)
}

/// The copy of a tensor of a graph, whatever else is copied; `None` for one whose channels are last
/// or which has none.
pub(super) fn copy_of(graph: &OperationGraph, uid: i64) -> Option<TensorDesc> {
    let tensor = &graph.laid(uid)?;
    let strides = channels_last(tensor)?;
    // Uids behind the last one, in order of the tensors; those in front of it where there are none.
    let number = graph.tensors().iter().position(|own| own.uid == tensor.uid)?;
    let last = graph.tensors().iter().map(|own| own.uid).max()?;
    let is_free = |uid: &i64| graph.tensor(*uid).is_err();
    let behind = last.checked_add(1).map(|first| first..=i64::MAX).into_iter().flatten();
    let uid = behind.chain(1..).filter(is_free).nth(number)?;
    let unnamed = || format!("t{}", tensor.uid);
    let own = if tensor.name.is_empty() { unnamed() } else { tensor.name.clone() };
    let mut name = format!("{own}_channels_last");
    while graph.tensors().iter().any(|own| own.name == name) {
        name.push('_');
    }
    Some(TensorDesc {
        uid,
        name,
        strides,
        alignment: ALIGNMENT_MAX,
        is_virtual: false,
        ..tensor.clone()
    })
}

/// The strides of a packed tensor `[N, C, ..]` with channels last; `None` for one that has them
/// last, that has one channel, or no elements.
fn channels_last(tensor: &TensorDesc) -> Option<Vec<i64>> {
    let (dims, rank) = (&tensor.dims, tensor.dims.len());
    let elements = tensor.elements().filter(|count| *count > 0)?;
    if rank < 3 || dims[1] == 1 || tensor.strides[1] == 1 || tensor.by_value {
        return None;
    }
    let mut strides = vec![1; rank];
    let mut stride = dims[1];
    for axis in (2..rank).rev() {
        strides[axis] = stride;
        stride *= dims[axis];
    }
    strides[0] = elements / dims[0];
    Some(strides)
}
