//! Whether two strided tensors in one buffer share a byte.
//!
//! Two tensors share a byte if `sum(s * i) + u = distance + sum(t * j) + v` has a solution, with
//! strides `s` and `t`, indices `i` and `j` within the dimensions, and bytes `u` and `v` within an
//! element: a linear equation in bounded integers. It is solved from the largest stride to the
//! smallest; if dimensions nest, as they do in views of one buffer, few values remain at each step.

use crate::tensor::{DIMS_MAX, TensorDesc};

/// Maximum number of values that are tried. Each stride of nested views leaves two or three; those
/// of other tensors may leave as many as the extent.
const TRIED_MAX: u32 = 1 << 14;

/// The strides of two tensors, and the bytes within an element.
const TERMS_MAX: usize = 2 * DIMS_MAX + 1;

/// Result of [`overlap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    /// The tensors share no byte.
    Apart,
    /// The tensors share a byte.
    Shared,
    /// Undecided after [`TRIED_MAX`] values.
    Unknown,
}

/// A stride in bytes and the maximum of its index.
#[derive(Debug, Clone, Copy, Default)]
struct Term {
    step: i128,
    least: i128,
    most: i128,
}

/// The equation, terms in descending order of stride, and bounds of its partial sums.
struct Equation {
    terms: [Term; TERMS_MAX],
    count: usize,
    /// Minimum and maximum of the sum of the terms from a position on.
    least: [i128; TERMS_MAX + 1],
    most: [i128; TERMS_MAX + 1],
    tried: u32,
}

/// Whether two tensors share a byte if the second begins `distance` bytes after the first.
pub(super) fn overlap(first: &TensorDesc, second: &TensorDesc, distance: i128) -> Overlap {
    if first.is_empty() || second.is_empty() {
        return Overlap::Apart;
    }
    let sizes = [first, second].map(|tensor| tensor.dtype.bytes() as i128);
    let mut equation = Equation {
        terms: [Term::default(); TERMS_MAX],
        count: 0,
        least: [0; TERMS_MAX + 1],
        most: [0; TERMS_MAX + 1],
        tried: 0,
    };
    equation.add(Term { step: 1, least: 1 - sizes[1], most: sizes[0] - 1 });
    for (stride, dim) in first.strides.iter().zip(&first.dims) {
        let step = i128::from(*stride) * sizes[0];
        equation.add(Term { step, least: 0, most: i128::from(*dim) - 1 });
    }
    for (stride, dim) in second.strides.iter().zip(&second.dims) {
        let step = i128::from(*stride) * sizes[1];
        equation.add(Term { step, least: 1 - i128::from(*dim), most: 0 });
    }
    equation.solve(distance)
}

impl Equation {
    /// Adds a term; terms of equal stride are merged.
    fn add(&mut self, term: Term) {
        match self.terms[..self.count].iter_mut().find(|of| of.step == term.step) {
            Some(known) => {
                known.least += term.least;
                known.most += term.most;
            }
            None => {
                self.terms[self.count] = term;
                self.count += 1;
            }
        }
    }

    fn solve(&mut self, sum: i128) -> Overlap {
        self.terms[..self.count].sort_unstable_by_key(|term| std::cmp::Reverse(term.step));
        for at in (0..self.count).rev() {
            let Term { step, least, most } = self.terms[at];
            self.least[at] = self.least[at + 1] + step * least;
            self.most[at] = self.most[at + 1] + step * most;
        }
        match self.solvable(0, sum) {
            Some(true) => Overlap::Shared,
            Some(false) => Overlap::Apart,
            None => Overlap::Unknown,
        }
    }

    /// Whether the terms from a position on can sum to `sum`; `None` if undecided.
    fn solvable(&mut self, at: usize, sum: i128) -> Option<bool> {
        if at == self.count {
            return Some(sum == 0);
        }
        let Term { step, least, most } = self.terms[at];
        // The rest must be within the bounds of the remaining terms.
        let first = (sum - self.most[at + 1] + step - 1).div_euclid(step).max(least);
        let last = (sum - self.least[at + 1]).div_euclid(step).min(most);
        let mut times = first;
        while times <= last {
            self.tried += 1;
            if self.tried > TRIED_MAX {
                return None;
            }
            if self.solvable(at + 1, sum - step * times)? {
                return Some(true);
            }
            times += 1;
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::dtype::DType;

    fn tensor(dims: &[i64], strides: &[i64], dtype: DType) -> TensorDesc {
        let packed = TensorDesc::packed(1, "x", dims, dtype);
        TensorDesc { strides: strides.to_vec(), ..packed }
    }

    fn bytes(tensor: &TensorDesc, start: i128) -> HashSet<i128> {
        let size = tensor.dtype.bytes() as i128;
        let element = |offset: usize| (0..size).map(move |at| start + offset as i128 * size + at);
        tensor.offsets().flat_map(element).collect()
    }

    #[test]
    fn halves_and_interleaved_elements_are_apart() {
        let half = tensor(&[1000, 8, 64], &[1024, 128, 1], DType::F16);
        assert_eq!(overlap(&half, &half, 128), Overlap::Apart);
        assert_eq!(overlap(&half, &half, 126), Overlap::Shared);
        let even = tensor(&[1000, 64], &[128, 2], DType::F32);
        assert_eq!(overlap(&even, &even, 4), Overlap::Apart);
        assert_eq!(overlap(&even, &even, 8), Overlap::Shared);
        assert_eq!(overlap(&even, &even, 0), Overlap::Shared);
    }

    #[test]
    fn what_takes_too_long_is_left_open() {
        let strides = [1_000_003, 999_983, 999_979, 999_961];
        let [a, b] = [[1, 3, 5, 7], [2, 4, 6, 8]].map(|more| {
            let strides: Vec<i64> = strides.iter().zip(more).map(|(of, n)| of + n).collect();
            tensor(&[4000; 4], &strides, DType::I8)
        });
        assert_eq!(overlap(&a, &b, 1), Overlap::Unknown);
    }

    #[test]
    fn it_agrees_with_looking_at_every_byte() {
        let mut state = 7u64;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % count) as i64
        };
        let mut shared = 0;
        for _ in 0..3000 {
            let mut drawn = || {
                let rank = 1 + below(3) as usize;
                let dims: Vec<i64> = (0..rank).map(|_| below(5)).collect();
                let strides: Vec<i64> = (0..rank).map(|_| 1 + below(12)).collect();
                tensor(&dims, &strides, [DType::I8, DType::F16, DType::F32][below(3) as usize])
            };
            let (a, b) = (drawn(), drawn());
            let distance = i128::from(below(120) - 60);
            let meets = !bytes(&a, 0).is_disjoint(&bytes(&b, distance));
            let expected = if meets { Overlap::Shared } else { Overlap::Apart };
            assert_eq!(overlap(&a, &b, distance), expected, "{a} {b} {distance}");
            shared += usize::from(meets);
        }
        assert!((300..2700).contains(&shared), "{shared}");
    }
}
