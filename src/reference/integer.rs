//! Integers of 32 bits that wrap around, and how far off an implementation's may be.

use crate::reference::approx::Approx;

/// An integer and the most that an implementation's may differ before either wraps around; nothing
/// is known of one whose distance does not fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Integer {
    value: i32,
    error: f64,
    /// Whether the distance may have wrapped around.
    is_open: bool,
}

impl Integer {
    pub const ZERO: Integer = Integer { value: 0, error: 0.0, is_open: false };
    pub const ONE: Integer = Integer { value: 1, ..Integer::ZERO };

    /// A value that is an integer of 32 bits.
    pub fn of(Approx { value, error }: Approx) -> Integer {
        Integer { value: value as i32, error, is_open: error.is_nan() }
    }

    /// What the exact result is, of which an implementation's differs by no more than `error`.
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

    /// The magnitude; of the least integer it is itself.
    pub fn abs(self) -> Integer {
        self.wrapped(Integer::ZERO, i64::from(self.value).abs(), self.error)
    }

    pub fn is_zero(self) -> bool {
        self.value == 0
    }

    /// The one of two values that comes before the other.
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
