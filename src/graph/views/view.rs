//! One tensor seen as another: what a slice, a transpose or a reshape does to indices and strides.

use crate::tensor::{TensorDesc, packed_strides};

/// How the elements of a tensor are seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum View {
    /// `begin`, `stride` and extent of what is left along each dimension.
    Slice { begin: Vec<i64>, stride: Vec<i64>, dims: Vec<i64> },
    /// The dimensions in another order.
    Transpose(Vec<usize>),
    /// The same elements in row-major order under other dimensions.
    Reshape { from: Vec<i64>, to: Vec<i64> },
}

/// Where the elements of a tensor lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) dims: Vec<i64>,
    pub(super) strides: Vec<i64>,
    /// Of the first element, from the beginning of the memory.
    pub(super) offset: i64,
}

/// Dimensions of two shapes that hold the same elements.
struct Group {
    from: std::ops::Range<usize>,
    to: std::ops::Range<usize>,
}

impl View {
    /// The part of a tensor of these dimensions that is `[begin, begin + extent)` along an axis.
    pub(super) fn along(dims: &[i64], axis: usize, first: i64, extent: i64) -> View {
        let (mut begin, mut dims) = (vec![0; dims.len()], dims.to_vec());
        (begin[axis], dims[axis]) = (first, extent);
        View::Slice { begin, stride: vec![1; dims.len()], dims }
    }

    /// The dimensions of what is seen of a tensor with these.
    pub(super) fn dims(&self, of: &[i64]) -> Vec<i64> {
        match self {
            View::Slice { dims, .. } => dims.clone(),
            View::Transpose(permutation) => permutation.iter().map(|axis| of[*axis]).collect(),
            View::Reshape { to, .. } => to.clone(),
        }
    }

    /// Whether nothing changes for a tensor of these dimensions.
    fn is_identity(&self, of: &[i64]) -> bool {
        match self {
            View::Slice { begin, stride, dims } => {
                let whole = |axis: usize| {
                    begin[axis] == 0
                        && dims[axis] == of[axis]
                        && (stride[axis] == 1 || of[axis] < 2)
                };
                (0..of.len()).all(whole)
            }
            View::Transpose(permutation) => permutation.iter().copied().eq(0..permutation.len()),
            View::Reshape { from, to } => from == to,
        }
    }

    /// What undoes it; nothing undoes a slice.
    pub(super) fn inverse(&self) -> Option<View> {
        match self {
            View::Slice { .. } => None,
            View::Transpose(permutation) => {
                let mut inverse = vec![0; permutation.len()];
                permutation.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
                Some(View::Transpose(inverse))
            }
            View::Reshape { from, to } => {
                Some(View::Reshape { from: to.clone(), to: from.clone() })
            }
        }
    }

    /// Where what is seen lies; `None` where no strides say it.
    pub(super) fn of_layout(&self, layout: &Layout) -> Option<Layout> {
        let Layout { dims: own, strides, offset } = layout;
        let dims = self.dims(own);
        match self {
            View::Slice { begin, stride, .. } => {
                let steps = begin.iter().zip(strides);
                // What is empty has no element to begin at.
                let first = match dims.contains(&0) {
                    true => 0,
                    false => steps.map(|(begin, stride)| begin * stride).sum(),
                };
                let apart = |((stride, step), dim): ((&i64, &i64), &i64)| match dim {
                    0 | 1 => Some(*stride),
                    _ => stride.checked_mul(*step),
                };
                let strides = strides.iter().zip(stride).zip(&dims).map(apart).collect();
                Some(Layout {
                    strides: Option::from_iter::<Vec<_>>(strides)?,
                    dims,
                    offset: offset + first,
                })
            }
            View::Transpose(permutation) => {
                let strides = permutation.iter().map(|axis| strides[*axis]).collect();
                Some(Layout { dims, strides, offset: *offset })
            }
            View::Reshape { .. } => {
                let strides = reshaped(own, strides, &dims)?;
                Some(Layout { dims, strides, offset: *offset })
            }
        }
    }

    /// How an operand is seen that is broadcast to a tensor of dimensions `whole`, so that the view
    /// of the broadcast is the broadcast of the view. `None` where there is no such view.
    pub(super) fn of_operand(&self, whole: &[i64], own: &[i64]) -> Option<View> {
        let is_one = |axis: usize| own[axis] == 1 && whole[axis] != 1;
        Some(match self {
            View::Slice { begin, stride, dims } => {
                let kept = |of: &[i64], one: i64| {
                    let value = |axis: usize| if is_one(axis) { one } else { of[axis] };
                    (0..own.len()).map(value).collect()
                };
                View::Slice { begin: kept(begin, 0), stride: kept(stride, 1), dims: kept(dims, 1) }
            }
            View::Transpose(permutation) => View::Transpose(permutation.clone()),
            View::Reshape { from, to } if own == whole => {
                View::Reshape { from: from.clone(), to: to.clone() }
            }
            View::Reshape { from, to } => {
                let mut dims = vec![1; to.len()];
                for group in groups(from, to)? {
                    let ones = group.from.clone().all(|axis| own[axis] == 1);
                    let whole = group.from.clone().all(|axis| !is_one(axis));
                    match (ones, whole) {
                        (_, true) => dims[group.to.clone()].copy_from_slice(&to[group.to]),
                        (true, _) => {}
                        _ => return None,
                    }
                }
                View::Reshape { from: own.to_vec(), to: dims }
            }
        })
    }
}

/// A tensor seen through some views, the first one first; what undoes each other is left out.
pub(super) fn then(chain: &[View], view: View, of: &[i64]) -> Vec<View> {
    let before = chain.iter().fold(of.to_vec(), |dims, view| view.dims(&dims));
    if view.is_identity(&before) {
        return chain.to_vec();
    }
    let mut chain = chain.to_vec();
    let merged = match (chain.last(), &view) {
        (Some(View::Transpose(first)), View::Transpose(second)) => {
            View::Transpose(second.iter().map(|axis| first[*axis]).collect())
        }
        (Some(View::Reshape { from, .. }), View::Reshape { to, .. }) => {
            View::Reshape { from: from.clone(), to: to.clone() }
        }
        _ => {
            chain.push(view);
            return chain;
        }
    };
    chain.pop();
    then(&chain, merged, of)
}

impl Layout {
    pub(super) fn of(tensor: &TensorDesc) -> Layout {
        Layout { dims: tensor.dims.clone(), strides: tensor.strides.clone(), offset: 0 }
    }

    /// Where what is seen through some views lies.
    pub(super) fn through(&self, chain: &[View]) -> Option<Layout> {
        chain.iter().try_fold(self.clone(), |layout, view| view.of_layout(&layout))
    }
}

/// The dimensions that split those of both shapes, where each is made of whole ones of them.
pub(super) fn refinement(from: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    let mut refined = Vec::new();
    for Group { from: own, to: other } in groups(from, to)? {
        let [mut own, mut other] = [from[own].to_vec(), to[other].to_vec()];
        [&mut own, &mut other].into_iter().for_each(|of| of.retain(|dim| *dim != 1));
        let before = refined.len();
        while let (Some(a), Some(b)) = (own.last().copied(), other.last().copied()) {
            let least = a.min(b);
            if a % least != 0 || b % least != 0 {
                return None;
            }
            refined.push(least);
            for (dims, dim) in [(&mut own, a), (&mut other, b)] {
                dims.pop();
                if dim != least {
                    dims.push(dim / least);
                }
            }
        }
        // Groups come from the first dimension, what each is split into from its last.
        refined[before..].reverse();
    }
    Some(refined)
}

/// The shortest runs of dimensions of both shapes with equal products; `None` for empty tensors of
/// different dimensions.
fn groups(from: &[i64], to: &[i64]) -> Option<Vec<Group>> {
    if from.contains(&0) {
        return None;
    }
    let mut groups = Vec::new();
    let (mut own, mut other) = (0, 0);
    while own < from.len() || other < to.len() {
        let [first, second] = [own, other];
        let (mut a, mut b) = (1, 1);
        // A dimension of each to begin with, and then of the one that holds fewer elements.
        loop {
            if own < from.len() && (a <= b || other == to.len()) {
                a *= from[own];
                own += 1;
            } else if other < to.len() {
                b *= to[other];
                other += 1;
            }
            if a == b && (own > first || own == from.len()) && (other > second || other == to.len())
            {
                break;
            }
        }
        groups.push(Group { from: first..own, to: second..other });
    }
    Some(groups)
}

/// Strides of the same elements under other dimensions; `None` where there are none.
fn reshaped(dims: &[i64], strides: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    if dims.contains(&0) {
        return Some(packed_strides(to));
    }
    let mut result = vec![1; to.len()];
    for Group { from, to: into } in groups(dims, to)? {
        let own: Vec<(i64, i64)> =
            from.map(|axis| (dims[axis], strides[axis])).filter(|(dim, _)| *dim != 1).collect();
        // Dimensions next to each other in memory are one.
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for (dim, stride) in own {
            match runs.last_mut() {
                Some(run) if Some(run.1) == stride.checked_mul(dim) => *run = (run.0 * dim, stride),
                _ => runs.push((dim, stride)),
            }
        }
        let (mut run, mut inside) = (runs.pop(), 1);
        for axis in into.rev() {
            let (left, stride) = run.unwrap_or((1, 1));
            result[axis] = stride.checked_mul(inside)?;
            if to[axis] == 1 {
                continue;
            }
            inside *= to[axis];
            if left % inside != 0 {
                return None;
            }
            if inside == left {
                (run, inside) = (runs.pop(), 1);
            }
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn layout(dims: &[i64], strides: &[i64]) -> Layout {
        Layout { dims: dims.to_vec(), strides: strides.to_vec(), offset: 0 }
    }

    fn offsets(layout: &Layout) -> Vec<usize> {
        let packed = TensorDesc::packed(1, "x", &layout.dims, DType::F32);
        let tensor = TensorDesc { strides: layout.strides.clone(), ..packed };
        tensor.offsets().map(|at| at + layout.offset as usize).collect()
    }

    fn reshape(from: &[i64], to: &[i64]) -> View {
        View::Reshape { from: from.to_vec(), to: to.to_vec() }
    }

    #[test]
    fn reshapes_keep_the_order_of_elements() {
        let cases: [(&[i64], &[i64], &[i64]); 8] = [
            (&[4, 6], &[6, 1], &[24]),
            (&[4, 6], &[10, 1], &[2, 2, 3, 2]),
            (&[4, 6], &[10, 1], &[4, 1, 6, 1]),
            (&[1, 24, 1], &[5, 2, 9], &[2, 3, 4]),
            (&[2, 3, 4], &[100, 4, 1], &[2, 12]),
            (&[2, 3, 4], &[4, 8, 1], &[2, 3, 2, 2]),
            (&[8, 1], &[3, 7], &[1, 2, 1, 4]),
            (&[1], &[1], &[1, 1]),
        ];
        for (dims, strides, to) in cases {
            let own = layout(dims, strides);
            let seen = reshape(dims, to).of_layout(&own).expect("strides say it");
            assert_eq!(offsets(&seen), offsets(&own), "{dims:?} {strides:?} {to:?}");
            assert!(seen.strides.iter().all(|stride| *stride > 0));
        }
        let rows = layout(&[4, 6], &[10, 1]);
        for to in [&[24][..], &[8, 3], &[6, 4]] {
            assert_eq!(reshape(&[4, 6], to).of_layout(&rows), None, "{to:?}");
        }
    }

    #[test]
    fn shapes_are_split_into_what_both_are_made_of() {
        let refined = |from: &[i64], to: &[i64]| refinement(from, to);
        assert_eq!(refined(&[4, 6], &[8, 3]), Some(vec![4, 2, 3]));
        assert_eq!(refined(&[4, 6], &[24]), Some(vec![4, 6]));
        assert_eq!(refined(&[2, 3, 4], &[6, 2, 2]), Some(vec![2, 3, 2, 2]));
        assert_eq!(refined(&[4, 6], &[6, 4]), None);
    }

    #[test]
    fn what_is_undone_is_left_out() {
        let dims = [2, 3, 4];
        let turn = View::Transpose(vec![2, 0, 1]);
        let flat = reshape(&[4, 2, 3], &[24]);
        let chain = then(&[], turn.clone(), &dims);
        let chain = then(&chain, flat.clone(), &dims);
        let chain = then(&chain, flat.inverse().expect("one"), &dims);
        assert_eq!(chain, std::slice::from_ref(&turn));
        assert!(then(&chain, turn.inverse().expect("one"), &dims).is_empty());
        assert!(then(&[], View::along(&dims, 1, 0, 3), &dims).is_empty());
    }

    #[test]
    fn operands_that_are_broadcast_are_seen_alike() {
        let bias = [1, 1, 6];
        let view = reshape(&[2, 4, 6], &[8, 2, 3]);
        assert_eq!(view.of_operand(&[2, 4, 6], &bias), Some(reshape(&bias, &[1, 2, 3])));
        let mixed = reshape(&[2, 4, 6], &[8, 6]);
        assert_eq!(mixed.of_operand(&[2, 4, 6], &[2, 1, 6]), None);
        let half = View::along(&[2, 4, 6], 2, 3, 3);
        let row = half.of_operand(&[2, 4, 6], &[2, 4, 1]).expect("one");
        assert_eq!(row.dims(&[2, 4, 1]), [2, 4, 1]);
    }
}
