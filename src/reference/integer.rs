//! Wrapping 32-bit integers with error bounds.

use crate::reference::approx::Approx;

/// An integer and the maximum deviation of an implementation before wrap-around; `is_open` if the
/// deviation may wrap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Integer {
    value: i32,
    error: f64,
    /// Whether an implementation may have any value.
    is_open: bool,
}

impl Integer {
    pub const ZERO: Integer = Integer { value: 0, error: 0.0, is_open: false };
    pub const ONE: Integer = Integer { value: 1, ..Integer::ZERO };

    /// Converts a value that is a 32-bit integer.
    pub fn of(Approx { value, error }: Approx) -> Integer {
        Integer { value: value as i32, error, is_open: error.is_nan() }
    }

    /// Wraps an exact result whose deviation is at most `error`.
    fn wrapped(self, other: Integer, exact: i64, error: f64) -> Integer {
        let value = exact as i32;
        let beyond = exact as f64 - error < f64::from(i32::MIN)
            || exact as f64 + error > f64::from(i32::MAX);
        let is_open = self.is_open || other.is_open || (error > 0.0 && beyond);
        Integer { value, error, is_open }
    }

    pub fn add(self, other: Integer) -> Integer {
        let exact = i64::from(self.value) + i64::from(other.value);
        self.wrapped(other, exact, self.error + other.error)
    }

    pub fn mul(self, other: Integer) -> Integer {
        let [a, b] = [self.value, other.value].map(f64::from);
        let error = a.abs() * other.error + b.abs() * self.error + self.error * other.error;
        self.wrapped(other, i64::from(self.value) * i64::from(other.value), error)
    }

    /// Absolute value; that of the smallest integer is itself.
    pub fn abs(self) -> Integer {
        self.wrapped(Integer::ZERO, i64::from(self.value).abs(), self.error)
    }

    pub fn is_zero(self) -> bool {
        self.value == 0
    }

    /// Selects the extreme value according to `before`.
    pub fn extreme(self, other: Integer, before: impl Fn(i32, i32) -> bool) -> Integer {
        let value = if before(other.value, self.value) { other.value } else { self.value };
        let is_open = self.is_open || other.is_open;
        Integer { value, error: self.error.max(other.error), is_open }
    }

    pub fn approx(self) -> Approx {
        let error = if self.is_open { f64::INFINITY } else { self.error };
        Approx { value: self.value.into(), error }
    }
}

impl From<i32> for Integer {
    fn from(value: i32) -> Integer {
        Integer { value, ..Integer::ZERO }
    }
}
