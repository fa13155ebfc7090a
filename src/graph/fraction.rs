//! Fractions of whole numbers, exact.

use std::fmt;

use crate::error::{Error, Result};

/// A number as a fraction in lowest terms (`mcdnnFraction_t`, section 8.1.1.13); its denominator is
/// positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fraction {
    numerator: i64,
    denominator: i64,
}

impl Fraction {
    /// The fraction in lowest terms.
    ///
    /// # Errors
    /// `BadParam` where the denominator is 0, or lowest terms exceed 64 bits.
    pub fn new(numerator: i64, denominator: i64) -> Result<Fraction> {
        let sign = i128::from(denominator.signum());
        let [above, below] = [numerator, denominator].map(i128::from);
        let divisor = greatest_divisor(above.unsigned_abs(), below.unsigned_abs()) as i128;
        let lowest = |number: i128| i64::try_from(number.checked_div(sign * divisor)?).ok();
        match (lowest(above), lowest(below)) {
            (Some(numerator), Some(denominator)) => Ok(Fraction { numerator, denominator }),
            _ => Err(Error::bad_param(format!("{numerator}/{denominator} is no fraction"))),
        }
    }

    /// The number above the line.
    pub fn numerator(self) -> i64 {
        self.numerator
    }

    /// The number below the line, at least 1.
    pub fn denominator(self) -> i64 {
        self.denominator
    }

    /// Whether it is a whole number.
    pub fn is_whole(self) -> bool {
        self.denominator == 1
    }

    /// Its numerator over a denominator that is a multiple of its own.
    pub(crate) fn over(self, denominator: i128) -> i128 {
        i128::from(self.numerator) * (denominator / i128::from(self.denominator))
    }
}

/// The least denominator that these fractions have in common; `None` where it exceeds 64 bits.
pub(crate) fn common_denominator(fractions: &[Fraction]) -> Option<i64> {
    let common = |all: i64, fraction: &Fraction| {
        let own = fraction.denominator;
        let divisor = greatest_divisor(all.unsigned_abs().into(), own.unsigned_abs().into());
        all.checked_mul(own / i64::try_from(divisor).ok()?)
    };
    fractions.iter().try_fold(1, common)
}

fn greatest_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl From<i64> for Fraction {
    fn from(number: i64) -> Fraction {
        Fraction { numerator: number, denominator: 1 }
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            below => write!(f, "{}/{below}", self.numerator),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_equal_fractions() {
        let half = Fraction::new(1, 2).expect("a fraction");
        assert_eq!(Fraction::new(-4, -8).expect("a fraction"), half);
        assert_eq!(Fraction::new(6, -3).expect("a fraction"), Fraction::from(-2));
        assert_eq!(Fraction::new(0, 7).expect("a fraction"), Fraction::from(0));
        let least = Fraction::new(i64::MIN, i64::MIN).expect("a fraction");
        assert_eq!(least, Fraction::from(1));
        for (above, below) in [(1, 0), (0, 0), (i64::MIN, -1), (1, i64::MIN)] {
            Fraction::new(above, below).expect_err("it is none");
        }
    }

    #[test]
    fn the_common_denominator_is_the_least() {
        let of = |pairs: &[(i64, i64)]| {
            let fraction = |(above, below): &(i64, i64)| Fraction::new(*above, *below);
            let fractions: Result<Vec<Fraction>> = pairs.iter().map(fraction).collect();
            common_denominator(&fractions.expect("fractions"))
        };
        assert_eq!(of(&[]), Some(1));
        assert_eq!(of(&[(1, 4), (5, 6), (3, 1)]), Some(12));
        assert_eq!(of(&[(1, i64::MAX), (1, i64::MAX - 1)]), None);
    }
}
