//! What is known of a network for some numbers of vectors, and from these for others.

use std::collections::HashMap;
use std::hash::Hash;

use crate::error::Result;
use crate::graph::RowLayout;
use crate::rnn::Extent;

/// Numbers of vectors from one power of two of steps to before the next: `[batch << k, batch << k +
/// 1)`, whole steps but in a packed layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Octave {
    first: i64,
    /// From one number to the next.
    unit: i64,
}

impl Octave {
    /// The octave of an extent; `None` where it has too few numbers to be worth it.
    pub(super) fn of(Extent { batch, rows }: Extent, layout: RowLayout) -> Option<Octave> {
        let unit = if layout == RowLayout::Packed { 1 } else { batch };
        if batch < 1 || rows % unit != 0 {
            return None;
        }
        let first = batch.checked_shl((rows / batch).checked_ilog2()?)?;
        (first / unit >= NUMBERS_MIN).then_some(Octave { first, unit })
    }

    fn second(self) -> i64 {
        self.first + self.unit
    }

    fn last(self) -> i64 {
        2 * self.first - self.unit
    }

    /// The position of a number.
    fn position(self, rows: i64) -> i64 {
        (rows - self.first) / self.unit
    }
}

/// Numbers of the smallest octave whose members follow from two of them.
const NUMBERS_MIN: i64 = 4;

/// What is known of an octave.
#[derive(Debug, Clone)]
enum Known<T> {
    /// This number was asked for.
    One(i64),
    /// Of its first two numbers, from which the others follow.
    Progression { first: T, second: T },
    /// They do not.
    Each,
}

/// Something of every number of vectors that takes long to make, and mostly follows from that of
/// two others ([`Progression`](crate::progression::Progression)).
#[derive(Debug, Clone)]
pub(super) struct Octaves<K, T> {
    known: HashMap<(K, Octave), Known<T>>,
}

/// How the values of a family are made and compared.
pub(super) trait Family<T> {
    /// That of a number of vectors, by itself.
    ///
    /// # Errors
    /// As what makes it.
    fn make(&mut self, rows: i64) -> Result<T>;

    /// That so many behind the first of two neighbours; `None` where it does not follow.
    ///
    /// # Errors
    /// As what makes it.
    fn term(&mut self, first: &T, second: &T, at: i64) -> Result<Option<T>>;

    /// Whether two are the same.
    fn same(&self, one: &T, other: &T) -> bool;

    /// Whether it stays what it is.
    fn is_final(&self, of: &T) -> bool;

    /// Whether its like may follow from others; to make more of them to see takes long otherwise.
    fn may_follow(&self, of: &T) -> bool;
}

impl<K, T> Default for Octaves<K, T> {
    fn default() -> Octaves<K, T> {
        Octaves { known: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, T> Octaves<K, T> {
    /// The value of a number of vectors in an octave. The first two that are asked for are made by
    /// themselves; with the second, three more are made that tell whether all others follow: those
    /// of the first two numbers, and of the last.
    ///
    /// # Errors
    /// As [`Family::make`].
    pub(super) fn get(
        &mut self,
        (key, octave): (K, Octave),
        rows: i64,
        family: &mut impl Family<T>,
    ) -> Result<T> {
        let Some(known) = self.known.get_mut(&(key.clone(), octave)) else {
            self.known.insert((key, octave), Known::One(rows));
            return family.make(rows);
        };
        if let Known::One(before) = *known {
            let value = family.make(rows)?;
            if before == rows {
                return Ok(value);
            }
            if !family.may_follow(&value) {
                *known = Known::Each;
            } else if family.is_final(&value) {
                *known = progression(octave, family);
            }
            return Ok(value);
        }
        if let Known::Progression { first, second } = known
            && let Some(term) = family.term(first, second, octave.position(rows))?
        {
            return Ok(term);
        }
        family.make(rows)
    }
}

#[cfg(test)]
impl<K, T> Octaves<K, T> {
    /// Whether the values of every octave follow from two.
    pub(super) fn all_follow(&self) -> bool {
        self.known.values().all(|of| matches!(of, Known::Progression { .. }))
    }
}

/// Whether the members of an octave follow from its first two.
fn progression<T>(octave: Octave, family: &mut impl Family<T>) -> Known<T> {
    let numbers = [octave.first, octave.second(), octave.last()];
    let [Ok(first), Ok(second), Ok(last)] = numbers.map(|rows| family.make(rows)) else {
        return Known::Each;
    };
    match family.term(&first, &second, octave.position(octave.last())) {
        Ok(Some(term)) if family.same(&term, &last) => Known::Progression { first, second },
        _ => Known::Each,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progression::Progression;

    /// A function of the number of vectors, and how often it was made.
    struct Function<F> {
        of: F,
        made: usize,
    }

    impl<F: Fn(i64) -> i64> Family<i64> for Function<F> {
        fn make(&mut self, rows: i64) -> Result<i64> {
            self.made += 1;
            Ok((self.of)(rows))
        }

        fn term(&mut self, first: &i64, second: &i64, at: i64) -> Result<Option<i64>> {
            Ok(i64::term(first, second, at))
        }

        fn same(&self, one: &i64, other: &i64) -> bool {
            one == other
        }

        fn is_final(&self, _of: &i64) -> bool {
            true
        }

        fn may_follow(&self, _of: &i64) -> bool {
            true
        }
    }

    /// Asks for all numbers of an octave, and returns how many were made.
    fn made(batch: i64, layout: RowLayout, steps: i64, of: impl Fn(i64) -> i64) -> usize {
        let (mut octaves, mut function) = (Octaves::default(), Function { of, made: 0 });
        let unit = if layout == RowLayout::Packed { 1 } else { batch };
        for rows in (batch * steps..2 * batch * steps).step_by(unit as usize) {
            let octave = Octave::of(Extent { batch, rows }, layout).expect("it is large enough");
            let found = octaves.get(((), octave), rows, &mut function).expect("it is made");
            assert_eq!(found, (function.of)(rows), "{rows} vectors");
        }
        function.made
    }

    #[test]
    fn what_grows_evenly_is_made_of_two() {
        for layout in [RowLayout::SequenceMajor, RowLayout::Packed] {
            assert_eq!(made(3, layout, 16, |rows| 7 * rows + 5), 5, "{layout:?}");
            assert_eq!(made(3, layout, 16, |_| 5), 5, "{layout:?}");
        }
        // Rounded, but not for whole steps.
        assert_eq!(made(8, RowLayout::BatchMajor, 32, |rows| (rows + 7) / 8 * 8), 5);
    }

    #[test]
    fn what_does_not_is_made_each_time() {
        let functions: [fn(i64) -> i64; 6] = [
            |rows| (rows + 15) / 16 * 16,
            |rows| (rows + 4) / 5,
            |rows| rows.min(60),
            |rows| rows.max(60),
            |rows| rows * rows,
            |rows| (rows + 15) / 16 * 16 + (rows + 10) / 11,
        ];
        for (at, of) in functions.into_iter().enumerate() {
            // Three more are made to see that they are no progression.
            assert_eq!(made(3, RowLayout::SequenceMajor, 16, of), 16 + 3, "{at}");
        }
    }

    #[test]
    fn small_octaves_are_left() {
        let octave = |batch, rows, layout| Octave::of(Extent { batch, rows }, layout);
        assert_eq!(octave(8, 8 * 3, RowLayout::SequenceMajor), None);
        assert_eq!(octave(8, 7, RowLayout::Packed), None, "some sequences have no vector");
        assert_eq!(octave(8, 8, RowLayout::Packed), Some(Octave { first: 8, unit: 1 }));
        assert_eq!(octave(8, 0, RowLayout::SequenceMajor), None);
        assert_eq!(octave(8, 8 * 100 + 3, RowLayout::SequenceMajor), None, "no whole steps");
        assert_eq!(octave(0, 8, RowLayout::SequenceMajor), None);
        assert_eq!(octave(8, -8, RowLayout::SequenceMajor), None);
    }
}
