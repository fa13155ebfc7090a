//! Arithmetic progressions: what grows by the same amount from one member of a family to the next.
//!
//! Graphs of a network differ in their number of rows only, and so do their plans: extents, strides
//! and counts of launches grow by the same amount with every step. From two neighbours follow all
//! others, without lowering a graph anew. That what was measured is a progression is for the caller
//! to know: the last member tells. A number that is rounded once, or bounded, leaves the line of
//! the first two before the last, or nowhere; a sum of several that are rounded may come back to
//! it, so that each of its parts must be compared.

/// What has terms.
pub(crate) trait Progression: Sized {
    /// The term so many behind the first, given that and the next. What is no number is that of the
    /// first, whether or not the next has the same: the caller compares the last term. `None` where
    /// the two have not as many numbers, or one overflows.
    fn term(first: &Self, second: &Self, at: i64) -> Option<Self>;
}

impl Progression for i64 {
    fn term(first: &i64, second: &i64, at: i64) -> Option<i64> {
        second.checked_sub(*first)?.checked_mul(at)?.checked_add(*first)
    }
}

impl Progression for u64 {
    fn term(first: &u64, second: &u64, at: i64) -> Option<u64> {
        let term = |first, second| i64::term(&first, &second, at);
        term(i64::try_from(*first).ok()?, i64::try_from(*second).ok()?)?.try_into().ok()
    }
}

impl<T: Progression> Progression for Vec<T> {
    fn term(first: &Vec<T>, second: &Vec<T>, at: i64) -> Option<Vec<T>> {
        let pairs = (first.len() == second.len()).then(|| first.iter().zip(second))?;
        pairs.map(|(first, second)| T::term(first, second, at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_follow_from_two() {
        assert_eq!(i64::term(&8, &12, 5), Some(28));
        assert_eq!(i64::term(&8, &4, 2), Some(0));
        assert_eq!(u64::term(&8, &4, 3), None, "it would be negative");
        assert_eq!(i64::term(&0, &i64::MAX, 2), None);
        assert_eq!(Vec::term(&vec![1i64, 2], &vec![1, 5], 10), Some(vec![1, 32]));
        assert_eq!(Vec::term(&vec![1i64], &vec![1, 5], 10), None);
    }
}
