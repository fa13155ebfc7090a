//! A graph without the operations that move elements: every output in memory is computed from what
//! is seen of inputs, and written to where it is wanted.
//!
//! A result is computed in its own dimensions where that can be said; otherwise in those of a
//! product, a reduction or another operation that it comes of, and the output is seen so: a
//! transposed product is written through transposed strides. Where neither can, a copy is made in
//! the dimensions that those of both are made of.

use std::collections::{BTreeMap, HashMap};

use crate::error::Result;
use crate::graph::operation::{Op, Operation};
use crate::graph::views::Concatenate;
pub(in crate::graph) use crate::graph::views::rewrite::Place;
use crate::graph::views::rewrite::{Rewrite, refuse};
use crate::graph::views::view::{View, refinement, then};
use crate::tensor::TensorDesc;

/// Ways to see an output that are tried.
const WAYS_MAX: usize = 16;

/// A graph without views.
#[derive(Debug)]
pub(in crate::graph) struct Resolved {
    /// The tensors that operations touch, by uid: some of the graph's own, and others.
    pub(in crate::graph) tensors: Vec<TensorDesc>,
    pub(in crate::graph) operations: Vec<Operation>,
    /// Where tensors lie that have no memory of their own.
    pub(in crate::graph) places: BTreeMap<i64, Place>,
}

/// The graph without the operations that move elements; none where it has none. `tensors` are
/// sorted by uid, `operations` in topological order.
///
/// # Errors
/// `NotSupported` where strides cannot express what they mean.
pub(in crate::graph) fn resolve(
    tensors: &[TensorDesc],
    operations: &[Operation],
) -> Result<Option<Resolved>> {
    if !operations.iter().any(|operation| operation.op.moves()) {
        return Ok(None);
    }
    if operations.iter().any(|operation| matches!(operation.op, Op::Signal(_))) {
        return refuse("a signal runs by itself".to_owned());
    }
    let written = operations.iter().enumerate();
    let written = written.flat_map(|(at, of)| of.outputs.iter().map(move |uid| (*uid, at)));
    let writers: HashMap<i64, usize> = written.collect();
    let mut rewrite = Rewrite::new(tensors, operations, &writers);
    for operation in operations {
        for uid in &operation.outputs {
            if !rewrite.tensor(*uid).is_virtual {
                output(&mut rewrite, *uid, operation)?;
            }
        }
    }
    let Rewrite { made, places, emitted, .. } = rewrite;
    if emitted.is_empty() {
        return refuse("everything is in place: there is nothing to run".to_owned());
    }
    let touched = |tensor: &&TensorDesc| {
        emitted.iter().any(|of| of.inputs.iter().chain(&of.outputs).any(|uid| *uid == tensor.uid))
    };
    let mut kept: Vec<TensorDesc> = made.iter().chain(tensors).filter(touched).cloned().collect();
    kept.sort_by_key(|tensor| tensor.uid);
    Ok(Some(Resolved { tensors: kept, operations: emitted, places }))
}

/// Computes an output, in the first way that can be said.
fn output(rewrite: &mut Rewrite<'_>, uid: i64, operation: &Operation) -> Result<()> {
    let mut attempt = rewrite.clone();
    let refused = match stored(&mut attempt, uid, operation, &[], uid) {
        Ok(()) => {
            *rewrite = attempt;
            return Ok(());
        }
        Err(refused) => refused,
    };
    for way in ways(rewrite, uid) {
        let mut attempt = rewrite.clone();
        let name = attempt.tensor(uid).name.clone();
        let Ok(seen) = attempt.place(uid, &way, Some(&name)) else { continue };
        if stored(&mut attempt, uid, operation, &way, seen).is_ok() {
            *rewrite = attempt;
            return Ok(());
        }
    }
    let mut attempt = rewrite.clone();
    if seam(rewrite, uid).is_some_and(|seam| apart(&mut attempt, uid, &seam).is_ok()) {
        *rewrite = attempt;
        return Ok(());
    }
    Err(refused)
}

/// The axis and the extents of a concatenation that an output is computed from element by element.
fn seam(rewrite: &Rewrite<'_>, uid: i64) -> Option<(usize, Vec<i64>)> {
    let dims = rewrite.tensor(uid).dims.clone();
    let mut open = vec![uid];
    for _ in 0..64 * WAYS_MAX {
        let Some(operation) = rewrite.writer(open.pop()?) else { continue };
        match &operation.op {
            Op::Concatenate(op) => {
                let axis = op.axis as usize;
                let extent = |uid: &i64| rewrite.tensor(*uid).dims[axis];
                return Some((axis, operation.inputs.iter().map(extent).collect()));
            }
            Op::Pointwise(_) => {
                open.extend(operation.inputs.iter().filter(|of| rewrite.tensor(**of).dims == dims));
            }
            _ => {}
        }
    }
    None
}

/// Computes an output in pieces along an axis.
fn apart(rewrite: &mut Rewrite<'_>, uid: i64, (axis, extents): &(usize, Vec<i64>)) -> Result<()> {
    let (dims, mut first) = (rewrite.tensor(uid).dims.clone(), 0);
    for extent in extents {
        let piece = then(&[], View::along(&dims, *axis, first, *extent), &dims);
        first += extent;
        if *extent > 0 || dims.contains(&0) {
            let into = rewrite.place(uid, &piece, None)?;
            let value = rewrite.value(uid, &piece)?;
            rewrite.store(value, into);
        }
    }
    Ok(())
}

/// Computes what is seen of an output through some views, into `seen`.
fn stored(
    rewrite: &mut Rewrite<'_>,
    uid: i64,
    operation: &Operation,
    way: &[View],
    seen: i64,
) -> Result<()> {
    let concatenated = if way.is_empty() { concatenated(rewrite, uid, operation) } else { None };
    if let Some((op, operands, way)) = concatenated {
        return pieces(rewrite, uid, (op, operands), &way);
    }
    let value = rewrite.value(uid, way)?;
    if value != seen {
        rewrite.store(value, seen);
    }
    Ok(())
}

/// The concatenation that an output is all of, and how the output is to be seen to be it.
fn concatenated<'a>(
    rewrite: &Rewrite<'a>,
    uid: i64,
    operation: &'a Operation,
) -> Option<(Concatenate, &'a [i64], Vec<View>)> {
    let (mut at, mut chain) = (operation, Vec::new());
    loop {
        match &at.op {
            Op::Concatenate(op) => {
                let dims = rewrite.tensor(uid).dims.clone();
                let inverse = chain.iter().rev().map(View::inverse);
                let inverse: Option<Vec<View>> = inverse.collect();
                let way = inverse?.into_iter().fold(Vec::new(), |all, of| then(&all, of, &dims));
                return Some((*op, &at.inputs, way));
            }
            Op::Slice(_) | Op::Transpose(_) | Op::Reshape(_) => {
                let (x, seen) = rewrite.behind(at, &chain);
                (at, chain) = (rewrite.writer(x)?, seen);
            }
            _ => return None,
        }
    }
}

/// Computes the operands of a concatenation into their places in the output, seen in some way.
fn pieces(
    rewrite: &mut Rewrite<'_>,
    uid: i64,
    (op, operands): (Concatenate, &[i64]),
    way: &[View],
) -> Result<()> {
    let own = rewrite.tensor(uid).dims.clone();
    let whole = way.iter().fold(own.clone(), |dims, view| view.dims(&dims));
    let (axis, mut first) = (op.axis as usize, 0);
    for (at, operand) in operands.iter().enumerate() {
        let TensorDesc { dims, name, .. } = rewrite.tensor(*operand).clone();
        let piece = View::along(&whole, axis, first, dims[axis]);
        first += dims[axis];
        // Of an empty output there is an operation, though it launches nothing.
        let is_left_out = dims.contains(&0) && !whole.contains(&0);
        if op.in_place == Some(at as i64) || is_left_out {
            continue;
        }
        piece_into(rewrite, uid, *operand, &then(way, piece, &own), &name)?;
    }
    Ok(())
}

/// Computes an operand of a concatenation into its place in the output.
fn piece_into(
    rewrite: &mut Rewrite<'_>,
    uid: i64,
    operand: i64,
    piece: &[View],
    name: &str,
) -> Result<()> {
    let mut refused = None;
    for way in std::iter::once(Vec::new()).chain(ways(rewrite, operand)) {
        let mut attempt = rewrite.clone();
        let dims = attempt.tensor(uid).dims.clone();
        let chain = way.iter().fold(piece.to_vec(), |all, view| then(&all, view.clone(), &dims));
        let into = attempt.place(uid, &chain, Some(name));
        let done = into.and_then(|into| {
            let value = attempt.value(operand, &way)?;
            attempt.store(value, into);
            Ok(())
        });
        match done {
            Ok(()) => {
                *rewrite = attempt;
                return Ok(());
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.expect("a way was tried"))
}

/// Ways to see an output so that what it comes of may be seen as it is: for each tensor that it is
/// computed from, the inverse of the views on the way; and the dimensions that reshapes on the way
/// keep whole.
fn ways(rewrite: &Rewrite<'_>, uid: i64) -> Vec<Vec<View>> {
    let dims = rewrite.tensor(uid).dims.clone();
    let mut ways: Vec<Vec<View>> = Vec::new();
    let mut open: Vec<(i64, Vec<View>)> = vec![(uid, Vec::new())];
    let mut walked = 0;
    while let Some((at, chain)) = open.pop() {
        walked += 1;
        if ways.len() >= WAYS_MAX || walked > 64 * WAYS_MAX {
            break;
        }
        let Some(operation) = rewrite.writer(at) else { continue };
        match &operation.op {
            Op::Slice(_) | Op::Transpose(_) | Op::Reshape(_) => {
                let (x, seen) = rewrite.behind(operation, &chain);
                let inverse: Option<Vec<View>> = seen.iter().rev().map(View::inverse).collect();
                let split = match &seen[..] {
                    [View::Reshape { from, to }] => refinement(from, to)
                        .map(|parts| View::Reshape { from: to.clone(), to: parts }),
                    _ => None,
                };
                let all = inverse.into_iter().chain(split.map(|split| vec![split]));
                for way in all {
                    let way = way.into_iter().fold(Vec::new(), |all, of| then(&all, of, &dims));
                    if !way.is_empty() && !ways.contains(&way) {
                        ways.push(way);
                    }
                }
                open.push((x, seen));
            }
            Op::Pointwise(_) => {
                let whole = |uid: &&i64| rewrite.tensor(**uid).dims == rewrite.tensor(at).dims;
                let operands = operation.inputs.iter().filter(whole);
                open.extend(operands.map(|uid| (*uid, chain.clone())));
            }
            _ => {}
        }
    }
    ways
}
