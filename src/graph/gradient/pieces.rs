//! Contributions to pieces of a tensor as contributions to all of it.

use crate::error::Result;
use crate::graph::gradient::tape::{Contribution, Tape};
use crate::graph::operation::Op;
use crate::graph::{Concatenate, Slice};

/// Contributions to all of a tensor; pieces that cover it are put together, others are surrounded
/// by zeros. There is one at least.
pub(super) fn joined(
    tape: &mut Tape<'_>,
    uid: i64,
    dims: &[i64],
    contributions: Vec<Contribution>,
) -> Result<Vec<i64>> {
    let (mut wholes, mut pieces) = (Vec::new(), Vec::new());
    for contribution in contributions {
        match contribution {
            Contribution::Whole(value) => wholes.push(value),
            Contribution::Piece(slice, value) => pieces.push((slice, value)),
        }
    }
    if pieces.len() > 1
        && let Some(whole) = behind_each_other(tape, dims, &mut pieces)?
    {
        wholes.push(whole);
    } else if pieces.len() > 1
        && let Some(whole) = by_turns(tape, dims, &mut pieces)?
    {
        wholes.push(whole);
    } else {
        for (slice, value) in pieces {
            wholes.push(surrounded(tape, uid, dims, &slice, value)?);
        }
    }
    Ok(wholes)
}

/// The axis along which all slices are pieces, of which each takes all along the others.
fn only_axis(dims: &[i64], slices: &[(Slice, i64)]) -> Option<usize> {
    let whole = |slice: &Slice, axis: usize| {
        slice.begin[axis] == 0 && slice.end[axis] == dims[axis] && slice.stride[axis] == 1
    };
    let mut axes = (0..dims.len()).filter(|axis| slices.iter().any(|(of, _)| !whole(of, *axis)));
    let axis = axes.next()?;
    axes.next().is_none().then_some(axis)
}

/// Pieces that follow each other along one axis and cover it.
fn behind_each_other(
    tape: &mut Tape<'_>,
    dims: &[i64],
    pieces: &mut [(Slice, i64)],
) -> Result<Option<i64>> {
    let Some(axis) = only_axis(dims, pieces) else { return Ok(None) };
    pieces.sort_by_key(|(slice, _)| slice.begin[axis]);
    let follow = pieces.windows(2).all(|two| two[0].0.end[axis] == two[1].0.begin[axis]);
    let [first, last] = [&pieces[0].0, &pieces[pieces.len() - 1].0];
    let cover = first.begin[axis] == 0 && last.end[axis] == dims[axis];
    if !follow || !cover || pieces.iter().any(|(slice, _)| slice.stride[axis] != 1) {
        return Ok(None);
    }
    concatenated(tape, axis, &pieces.iter().map(|(_, value)| *value).collect::<Vec<_>>()).map(Some)
}

/// Pieces whose elements take turns along one axis.
fn by_turns(tape: &mut Tape<'_>, dims: &[i64], pieces: &mut [(Slice, i64)]) -> Result<Option<i64>> {
    let Some(axis) = only_axis(dims, pieces) else { return Ok(None) };
    let count = pieces.len() as i64;
    pieces.sort_by_key(|(slice, _)| slice.begin[axis]);
    let turns = pieces.iter().enumerate().all(|(at, (slice, _))| {
        slice.begin[axis] == at as i64
            && slice.stride[axis] == count
            && slice.end[axis] > dims[axis] - count
    });
    if !turns || dims[axis] % count != 0 {
        return Ok(None);
    }
    let mut apart = Vec::new();
    for (_, value) in pieces.iter() {
        let mut split = tape.desc(*value).dims.clone();
        split.insert(axis + 1, 1);
        apart.push(tape.builder.reshape(*value, &split)?);
    }
    let whole = concatenated(tape, axis + 1, &apart)?;
    tape.builder.reshape(whole, dims).map(Some)
}

/// A piece with zeros in front of it and behind it, along every axis; between its elements there
/// are none.
fn surrounded(
    tape: &mut Tape<'_>,
    uid: i64,
    dims: &[i64],
    slice: &Slice,
    value: i64,
) -> Result<i64> {
    let mut whole = value;
    for axis in 0..dims.len() {
        if slice.stride[axis] != 1 {
            whole = spread(tape, axis, slice, dims, whole)?;
        }
        let own = tape.desc(whole).dims.clone();
        let (before, extent) = (slice.begin[axis], own[axis]);
        let behind = dims[axis] - before - extent;
        let mut parts = Vec::new();
        for (count, is_own) in [(before, false), (extent, true), (behind, false)] {
            match (count, is_own) {
                (_, true) => parts.push(whole),
                (0, _) => {}
                (count, _) => parts.push(zeros_beside(tape, uid, whole, axis, count)?),
            }
        }
        if parts.len() > 1 {
            whole = concatenated(tape, axis, &parts)?;
        }
    }
    Ok(whole)
}

/// A value with zeros between its elements along an axis.
fn spread(
    tape: &mut Tape<'_>,
    axis: usize,
    slice: &Slice,
    dims: &[i64],
    value: i64,
) -> Result<i64> {
    let stride = slice.stride[axis];
    let mut split = tape.desc(value).dims.clone();
    let count = split[axis];
    split.insert(axis + 1, 1);
    let own = tape.builder.reshape(value, &split)?;
    let zero = tape.zeros(own)?;
    let dtype = tape.desc(value).dtype;
    let zero = tape.cast(zero, dtype)?;
    let parts: Vec<i64> = std::iter::once(own).chain((1..stride).map(|_| zero)).collect();
    let whole = concatenated(tape, axis + 1, &parts)?;
    let mut flat = split;
    flat.remove(axis + 1);
    flat[axis] = count * stride;
    let whole = tape.builder.reshape(whole, &flat)?;
    // The last element may be nearer to the end than the stride.
    let extent = flat[axis].min(dims[axis] - slice.begin[axis]);
    match extent == flat[axis] {
        true => Ok(whole),
        false => tape.apply(Op::Slice(Slice::along(&flat, axis, 0, extent)), &[whole]),
    }
}

/// Zeros like a value, but with another extent along an axis: cut from zeros of the tensor.
fn zeros_beside(tape: &mut Tape<'_>, uid: i64, value: i64, axis: usize, count: i64) -> Result<i64> {
    let (own, dtype) = (tape.desc(value).dims.clone(), tape.desc(value).dtype);
    let whole = tape.desc(uid).dims.clone();
    let mut end = own;
    end[axis] = count;
    let slice = Slice { begin: vec![0; whole.len()], end, stride: vec![1; whole.len()] };
    let like = tape.apply(Op::Slice(slice), &[uid])?;
    let zero = tape.zeros(like)?;
    tape.cast(zero, dtype)
}

fn concatenated(tape: &mut Tape<'_>, axis: usize, values: &[i64]) -> Result<i64> {
    let op = Op::Concatenate(Concatenate::new(axis as i64, values.len()));
    tape.apply(op, values)
}
