//! Copies of operands of products, which lie as wide accesses read them.
//!
//! A convolution sums over channels and taps, of which only channels may lie side by side for every
//! tap: where they do not, as in `[N, C, H, W]` packed in this order, operands are gathered element
//! by element. Lines of a matrix that begin at any address are loaded element by element, too, and
//! bytes that do not lie along K are transposed in registers. A copy, once through memory, lets TMA
//! or wide asynchronous copies load them. Whether that pays is a question for the cost model.

use std::collections::BTreeSet;

use crate::engine::access::ceil_div;
use crate::engine::part::Part;
use crate::engine::prologues::{GAIN_MIN, parts_us};
use crate::engine::{BehaviorNote, CostModel, Mode, Selection, choose};
use crate::error::{Error, Result};
use crate::expr::{Math, Mode as Function, Pointwise};
use crate::graph::{MatmulMath, Op, Operation, OperationGraph};
use crate::target::Target;
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// A product of a graph, by its position, and the operand of which it reads a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Copied {
    pub(crate) product: usize,
    pub(crate) operand: i64,
}

/// How a copy lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lay {
    /// `[N, C, ..]`, the channels innermost.
    ChannelsLast,
    /// Matrices along their rows, or along their columns, which begin at multiples of 16 bytes.
    Rows,
    Columns,
}

/// The parts of a graph, products behind copies of their operands where that takes less time.
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
    // Plans of recurrent networks serve other numbers of rows in the same parts.
    if selection.mode == Mode::Fallback
        || without_workspace
        || graph.is_recurrent()
        || !parts.iter().all(is_known)
    {
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

/// A product behind copies of its operands that do not lie as wide accesses read them; `None` where
/// there is none, or no engine runs it.
fn behind_copies(
    graph: &OperationGraph,
    part: &Part,
    target: &Target,
    selection: &Selection,
) -> Option<Vec<Part>> {
    let mut products = part.graph.operations().iter().filter(|of| is_product(of));
    let (Some(own), None) = (products.next(), products.next()) else { return None };
    let product = graph.operations().iter().position(|of| of.outputs == own.outputs)?;
    let is_input = |uid: &i64| part.graph.inputs().any(|input| input.uid == *uid);
    let is_copied = |uid: &i64| copy_of(graph, own, *uid).is_some();
    let operands = operands_of(own).filter(|uid| is_input(uid) && is_copied(uid));
    let copied: Vec<Copied> =
        operands.map(|operand| Copied { product, operand: *operand }).collect();
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

/// A graph in which products read copies of operands.
///
/// # Errors
/// `BadParam` for an operand that lies as it would be read, or cannot; as [`OperationGraph::new`].
pub(crate) fn with_copies(graph: &OperationGraph, copied: &[Copied]) -> Result<OperationGraph> {
    let mut tensors = graph.tensors().to_vec();
    let mut operations = graph.operations().to_vec();
    for Copied { product, operand } in copied {
        let copy = copy_of(graph, &graph.operations()[*product], *operand).ok_or_else(|| {
            let name = graph.reference(*operand);
            Error::bad_param(format!("`{name}` is read as it lies: there is no copy of it"))
        })?;
        // What a result is added to is no operand.
        let inputs = operations[*product].inputs.iter_mut().take(OPERANDS);
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

/// Whether an operation is a product, whose operands may be copied.
pub(crate) fn is_product(operation: &Operation) -> bool {
    matches!(operation.op, Op::Convolution(_) | Op::Matmul(_))
}

/// The operands of a product.
const OPERANDS: usize = 2;

/// The tensors that a product multiplies.
pub(crate) fn operands_of(product: &Operation) -> impl Iterator<Item = &i64> {
    product.inputs.iter().take(OPERANDS)
}

/// The copy of a tensor that a product of a graph reads, whatever else is copied; `None` for one
/// that it reads as it lies, or cannot read otherwise.
pub(super) fn copy_of(graph: &OperationGraph, product: &Operation, uid: i64) -> Option<TensorDesc> {
    let tensor = &graph.laid(uid)?;
    let position = operands_of(product).position(|own| *own == uid)?;
    let (lay, strides) = match &product.op {
        // Groups are no dimension of their own.
        Op::Convolution(op) if tensor.dims.len() == op.window.filter_strides.len() + 2 => {
            (Lay::ChannelsLast, channels_last(tensor)?)
        }
        Op::Matmul(op) => lines(tensor, position, op.math == MatmulMath::I32)?,
        _ => return None,
    };
    let (suffix, at) = match lay {
        Lay::ChannelsLast => ("channels_last", 0),
        Lay::Rows => ("by_rows", 1),
        Lay::Columns => ("by_columns", 2),
    };
    // Each tensor has a number for each way in which a copy of it lies.
    let number = 3 * graph.tensors().iter().position(|own| own.uid == tensor.uid)? as i64 + at;
    let uid = free_uid(graph, number)?;
    let free = |mut name: String| {
        while graph.tensors().iter().any(|own| own.name == name) {
            name.push('_');
        }
        name
    };
    let own = match tensor.name.is_empty() {
        true => free(format!("t{}", tensor.uid)),
        false => tensor.name.clone(),
    };
    let name = free(format!("{own}_{suffix}"));
    Some(TensorDesc {
        uid,
        name,
        strides,
        alignment: ALIGNMENT_MAX,
        is_virtual: false,
        ..tensor.clone()
    })
}

/// The uid of this number among those that no tensor of a graph has: those behind the last one,
/// then those in front of it.
fn free_uid(graph: &OperationGraph, number: i64) -> Option<i64> {
    let last = graph.tensors().iter().map(|own| own.uid).max()?;
    let behind = i64::MAX.saturating_sub(last);
    match number < behind {
        true => Some(last + 1 + number),
        false => {
            let is_free = |uid: &i64| graph.tensors().iter().all(|own| own.uid != *uid);
            (1..).filter(is_free).nth((number - behind) as usize)
        }
    }
}

/// The strides of matrices `[.., rows, columns]`, the first or the second operand of a product, all
/// of whose lines begin at multiples of 16 bytes: along K where bytes are multiplied, else along
/// what they lie along; `None` where they do already, or have no elements.
fn lines(tensor: &TensorDesc, position: usize, of_integers: bool) -> Option<(Lay, Vec<i64>)> {
    let (dims, strides, rank) = (&tensor.dims, &tensor.strides, tensor.dims.len());
    tensor.elements().filter(|count| *count > 0 && rank >= 2 && !tensor.by_value)?;
    let bytes = tensor.dtype.bytes() as i64;
    let of_k = rank - 1 - position;
    let other = 2 * rank - 3 - of_k;
    let lies_along = |axis: usize| strides[axis] == 1 && dims[axis] != 1;
    let along_k = of_integers && bytes == 1 || lies_along(of_k) || !lies_along(other);
    let (inner, outer) = if along_k { (of_k, other) } else { (other, of_k) };
    let whole = LINE_BYTES / bytes;
    let is_even = |axis: usize| axis == inner || dims[axis] == 1 || strides[axis] % whole == 0;
    let lies = dims[inner] == 1 || strides[inner] == 1;
    if lies && (0..rank).all(is_even) && tensor.alignment as i64 >= LINE_BYTES {
        return None;
    }
    let mut own = vec![1; rank];
    own[outer] = ceil_div(dims[inner], whole).checked_mul(whole)?;
    let mut stride = own[outer].checked_mul(dims[outer])?;
    for axis in (0..rank - 2).rev() {
        own[axis] = stride;
        stride = stride.checked_mul(dims[axis])?;
    }
    Some((if inner == rank - 1 { Lay::Rows } else { Lay::Columns }, own))
}

/// What lines of matrices begin at multiples of.
const LINE_BYTES: i64 = 16;

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
