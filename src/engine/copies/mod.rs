//! Copies of operands of products, which lie as wide accesses read them.
//!
//! A convolution sums over channels and taps, of which only channels may lie side by side for every
//! tap: where they do not, as in `[N, C, H, W]` packed in this order, operands are gathered element
//! by element. Lines of a matrix that begin at any address are loaded element by element, too, and
//! bytes that do not lie along K are transposed in registers. A copy, once through memory, lets TMA
//! or wide asynchronous copies load them; of images of few channels, one with padding (`padded`).
//! Whether that pays is a question for the cost model.

mod fresh;
mod padded;

use std::collections::BTreeSet;

use crate::engine::access::{VECTOR_BYTES, ceil_div};
use crate::engine::copies::padded::Padded;
use crate::engine::part::Part;
use crate::engine::prologues::{GAIN_MIN, parts_us};
use crate::engine::{BehaviorNote, CostModel, Mode, Selection, choose};
use crate::error::{Error, Result};
use crate::expr::{Math, Mode as Function, Pointwise};
use crate::graph::{ConvolutionPass, MatmulMath, Op, Operation, OperationGraph};
use crate::target::Target;
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// What a product of a graph, by its position, reads a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Copied {
    /// An operand, whose elements lie otherwise.
    Operand { product: usize, operand: i64 },
    /// An image of few channels, with padding, and the filter with it.
    Padded { product: usize },
}

/// How a copy lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lay {
    /// `[N, C, ..]`, the channels innermost.
    ChannelsLast,
    /// A filter `[K, C, ..]`, the channels of the response innermost: a gradient of the image sums
    /// over them.
    ResponsesLast,
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
        let ways = product_of(graph, &part).map(|product| ways(graph, &part, product));
        let ways = ways.into_iter().flatten().filter_map(|copied| {
            let parts = behind_copies(graph, &part, &copied, target, selection)?;
            let is_made = |of: &Part| of.graph.outputs().any(|copy| made.contains(&copy.uid));
            Some(parts.into_iter().filter(|of| !is_made(of)).collect::<Vec<Part>>())
        });
        let timed = ways.map(|parts| (parts_us(&parts, target, &model), parts));
        let best = timed.min_by(|(us, _), (other, _)| us.total_cmp(other));
        let own_us = || parts_us(std::slice::from_ref(&part), target, &model);
        match best {
            Some((us, others)) if us * GAIN_MIN < own_us() => {
                made.extend(others.iter().flat_map(|of| of.graph.outputs()).map(|of| of.uid));
                all.extend(others);
            }
            _ => all.push(part),
        }
    }
    all
}

/// The position in a graph of the one product that a part has.
fn product_of(graph: &OperationGraph, part: &Part) -> Option<usize> {
    let mut products = part.graph.operations().iter().filter(|of| is_product(of));
    let (Some(own), None) = (products.next(), products.next()) else { return None };
    graph.operations().iter().position(|of| of.outputs == own.outputs)
}

/// What a part's product may read copies of: its operands that do not lie as wide accesses read
/// them, or its image with padding.
fn ways(graph: &OperationGraph, part: &Part, product: usize) -> Vec<Vec<Copied>> {
    let own = &graph.operations()[product];
    let is_input = |uid: &i64| part.graph.inputs().any(|input| input.uid == *uid);
    let operands = operands_of(own).filter(|uid| is_input(uid));
    let operands = operands.filter(|uid| copy_of(graph, own, **uid).is_some());
    let operands = operands.map(|operand| Copied::Operand { product, operand: *operand });
    // What is cut out of its result is another part.
    let padded = padded(graph, product).filter(|padded| {
        padded.operands.iter().all(is_input)
            && (!padded.cuts() || part.graph.operations().len() == 1)
    });
    let padded = padded.map(|_| Copied::Padded { product }).into_iter();
    let mut ways = vec![operands.collect::<Vec<Copied>>(), padded.collect()];
    ways.retain(|way| !way.is_empty());
    ways
}

/// A part as parts behind copies; `None` where no engine runs one of them.
fn behind_copies(
    graph: &OperationGraph,
    part: &Part,
    copied: &[Copied],
    target: &Target,
    selection: &Selection,
) -> Option<Vec<Part>> {
    let with = with_copies(graph, copied).ok()?;
    let operations = with.operations();
    let is_new = |uid: i64| graph.tensor(uid).is_err();
    let is_stored = |uid: i64| with.tensor(uid).is_ok_and(|of| !of.is_virtual);
    let makes =
        |at: &usize| operations[*at].outputs.iter().any(|uid| is_new(*uid) && is_stored(*uid));
    let writer = |of: &[i64]| operations.iter().position(|own| own.outputs == of);
    let made = (0..operations.len()).filter(makes).map(|at| vec![at]);
    let own = part.graph.operations().iter().map(|of| writer(&of.outputs));
    let own: Vec<usize> = own.collect::<Option<_>>()?;
    let parts = made.chain([own]).map(|mut own| {
        // Views of copies stay with what reads them.
        let read = own.iter().flat_map(|at| &operations[*at].inputs).filter(|uid| is_new(**uid));
        let views = read.filter_map(|uid| writer(&[*uid])).filter(|at| operations[*at].op.moves());
        own.extend(views.collect::<Vec<usize>>());
        own.sort_unstable();
        own.dedup();
        let graph = with.subgraph(&own).ok()?;
        let config = choose(graph.canonical(), target, selection).ok()?;
        Some(Part { graph, config })
    });
    parts.collect()
}

/// A graph in which products read copies.
///
/// # Errors
/// `BadParam` for an operand that lies as it would be read, or cannot, for a product that has no
/// image to pad, or has, and is to read another copy; as [`OperationGraph::new`].
pub(crate) fn with_copies(graph: &OperationGraph, copied: &[Copied]) -> Result<OperationGraph> {
    let mut tensors = graph.tensors().to_vec();
    let mut operations = graph.operations().to_vec();
    let mut are_padded = BTreeSet::new();
    for of in copied {
        let Copied::Padded { product } = *of else { continue };
        let padded = padded(graph, product).ok_or_else(|| {
            let op = &graph.operations()[product].op;
            Error::bad_param(format!("{op} reads no padded copy"))
        })?;
        if are_padded.insert(product) {
            operations[product] = padded.product;
            operations.extend(padded.others);
            tensors.extend(padded.tensors);
        }
    }
    for of in copied {
        let Copied::Operand { product, operand } = *of else { continue };
        let name = || graph.reference(operand);
        if are_padded.contains(&product) {
            let text = format!("`{}` is of a product that reads a padded copy", name());
            return Err(Error::bad_param(text));
        }
        let copy = copy_of(graph, &graph.operations()[product], operand).ok_or_else(|| {
            let text = format!("`{}` is read as it lies: there is no copy of it", name());
            Error::bad_param(text)
        })?;
        // What a result is added to is no operand.
        let inputs = operations[product].inputs.iter_mut().take(OPERANDS);
        inputs.filter(|uid| **uid == operand).for_each(|uid| *uid = copy.uid);
        if tensors.iter().all(|known| known.uid != copy.uid) {
            let identity = Pointwise::new(Function::Identity).math(Math::of(copy.dtype));
            operations.push(Operation {
                op: Op::Pointwise(identity),
                inputs: vec![operand],
                outputs: vec![copy.uid],
            });
            tensors.push(copy);
        }
    }
    Ok(OperationGraph::new(tensors, operations)?.laid_as(graph))
}

/// What the products of parts read copies of.
pub(super) fn copied(graph: &OperationGraph, parts: &[Part]) -> Vec<Copied> {
    let mut all = Vec::new();
    for (product, own) in graph.operations().iter().enumerate().filter(|(_, own)| is_product(own)) {
        let written = || parts.iter().flat_map(|part| part.graph.operations());
        let is_padded = |padded: Padded| written().any(|of| of.inputs == padded.product.inputs);
        if padded(graph, product).is_some_and(is_padded) {
            all.push(Copied::Padded { product });
            continue;
        }
        let part = written().find(|of| of.outputs == own.outputs && of.op == own.op);
        let Some(part) = part else { continue };
        let is_copy =
            |uid: i64, of: i64| copy_of(graph, own, of).is_some_and(|copy| copy.uid == uid);
        let operands = operands_of(own).zip(operands_of(part));
        let operands = operands.filter(|(own, read)| own != read && is_copy(**read, **own));
        all.extend(operands.map(|(operand, _)| Copied::Operand { product, operand: *operand }));
    }
    all.dedup();
    all
}

/// The product at a position of a graph on copies with padding, if it is a convolution that gains
/// by them.
fn padded(graph: &OperationGraph, product: usize) -> Option<Padded> {
    Padded::of(graph, product, LAYS * graph.tensors().len() as i64)
}

/// Ways in which copies of a tensor lie that have the same elements.
const LAYS: i64 = 4;

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
fn copy_of(graph: &OperationGraph, product: &Operation, uid: i64) -> Option<TensorDesc> {
    let tensor = &graph.laid(uid)?;
    let position = operands_of(product).position(|own| *own == uid)?;
    let (lay, strides) = match &product.op {
        // Groups are no dimension of their own.
        Op::Convolution(op) if tensor.dims.len() == op.window.filter_strides.len() + 2 => {
            let is_filter = op.pass == ConvolutionPass::BackwardData && position == 0;
            let whole = VECTOR_BYTES / tensor.dtype.bytes() as i64;
            let is_even = tensor.dims[0] % whole == 0;
            match is_filter && is_even && is_k_major(tensor, op.math) {
                true => (Lay::ResponsesLast, channels_last(tensor, 0)?),
                false => (Lay::ChannelsLast, channels_last(tensor, 1)?),
            }
        }
        Op::Matmul(op) => lines(tensor, position, op.math)?,
        _ => return None,
    };
    let (suffix, at) = match lay {
        Lay::ChannelsLast => ("channels_last", 0),
        Lay::Rows => ("by_rows", 1),
        Lay::Columns => ("by_columns", 2),
        Lay::ResponsesLast => ("responses_last", 3),
    };
    // Each tensor has a number for each way in which a copy of it lies.
    let number = LAYS * graph.tensors().iter().position(|own| own.uid == tensor.uid)? as i64 + at;
    let uid = fresh::uid(graph, number)?;
    let name = fresh::name(graph, format!("{}_{suffix}", fresh::called(graph, tensor)));
    Some(TensorDesc {
        uid,
        name,
        strides,
        alignment: ALIGNMENT_MAX,
        is_virtual: false,
        ..tensor.clone()
    })
}

/// The strides of matrices `[.., rows, columns]`, the first or the second operand of a product, all
/// of whose lines begin at multiples of 16 bytes: along K where bytes or tf32 are multiplied, which
/// tensor cores read no other way from shared memory, else along what they lie along; `None` where
/// they do already, or have no elements.
fn lines(tensor: &TensorDesc, position: usize, math: MatmulMath) -> Option<(Lay, Vec<i64>)> {
    let (dims, strides, rank) = (&tensor.dims, &tensor.strides, tensor.dims.len());
    tensor.elements().filter(|count| *count > 0 && rank >= 2 && !tensor.by_value)?;
    let bytes = tensor.dtype.bytes() as i64;
    let of_k = rank - 1 - position;
    let other = 2 * rank - 3 - of_k;
    let lies_along = |axis: usize| strides[axis] == 1 && dims[axis] != 1;
    let along_k = is_k_major(tensor, math) || lies_along(of_k) || !lies_along(other);
    let (inner, outer) = if along_k { (of_k, other) } else { (other, of_k) };
    let whole = VECTOR_BYTES / bytes;
    let is_even = |axis: usize| axis == inner || dims[axis] == 1 || strides[axis] % whole == 0;
    let lies = dims[inner] == 1 || strides[inner] == 1;
    if lies && (0..rank).all(is_even) && tensor.alignment as i64 >= VECTOR_BYTES {
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

/// Whether tensor cores read operands along K only, as they lie in shared memory.
fn is_k_major(tensor: &TensorDesc, math: MatmulMath) -> bool {
    match math {
        MatmulMath::I32 => tensor.dtype.bytes() == 1,
        MatmulMath::Tf32 => tensor.dtype.bytes() == 4,
        _ => false,
    }
}

/// The strides of a packed tensor `[N, C, ..]` with one of these two last, behind what else there
/// is; `None` for one that has it last, that has one of it, or no elements.
fn channels_last(tensor: &TensorDesc, last: usize) -> Option<Vec<i64>> {
    let (dims, rank) = (&tensor.dims, tensor.dims.len());
    let elements = tensor.elements().filter(|count| *count > 0)?;
    if rank < 3 || dims[last] == 1 || tensor.strides[last] == 1 || tensor.by_value {
        return None;
    }
    let mut strides = vec![1; rank];
    let mut stride = dims[last];
    for axis in (2..rank).rev() {
        strides[axis] = stride;
        stride *= dims[axis];
    }
    let other = 1 - last;
    strides[other] = elements / dims[other];
    Some(strides)
}
