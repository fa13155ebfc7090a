//! Comparisons.

use super::lane::{Lane, lane_ops};
use crate::half::{Bf16, F16};

/// A comparable value; NaN is unordered.
pub(crate) trait Ordered: Lane {
    fn less(self, other: Self) -> bool;
    fn equal(self, other: Self) -> bool;
    fn unordered(self, other: Self) -> bool;
}

macro_rules! ordered {
    ($($ty:ty, $v:ident, $value:expr, $nan:expr;)*) => {$(
        impl Ordered for $ty {
            #[inline(always)]
            fn less(self, other: $ty) -> bool {
                let value = |$v: $ty| $value;
                value(self) < value(other)
            }
            #[inline(always)]
            fn equal(self, other: $ty) -> bool {
                let value = |$v: $ty| $value;
                value(self) == value(other)
            }
            #[inline(always)]
            fn unordered(self, other: $ty) -> bool {
                let nan = |$v: $ty| $nan;
                nan(self) | nan(other)
            }
        }
    )*};
}

ordered! {
    u16, _v, _v, false;
    i16, _v, _v, false;
    u32, _v, _v, false;
    i32, _v, _v, false;
    u64, _v, _v, false;
    i64, _v, _v, false;
    f32, v, v, v.is_nan();
    f64, v, v, v.is_nan();
    F16, v, v.to_f32(), v.to_f32().is_nan();
    Bf16, v, v.to_f32(), v.to_f32().is_nan();
}

lane_ops! {
    Equal<T: Ordered>(a: T, b: T) -> bool = a.equal(b);
    NotEqual<T: Ordered>(a: T, b: T) -> bool = !a.equal(b) & !a.unordered(b);
    Less<T: Ordered>(a: T, b: T) -> bool = a.less(b);
    LessEqual<T: Ordered>(a: T, b: T) -> bool = a.less(b) | a.equal(b);
    Greater<T: Ordered>(a: T, b: T) -> bool = b.less(a);
    GreaterEqual<T: Ordered>(a: T, b: T) -> bool = b.less(a) | a.equal(b);
    EqualUnordered<T: Ordered>(a: T, b: T) -> bool = a.equal(b) | a.unordered(b);
    NotEqualUnordered<T: Ordered>(a: T, b: T) -> bool = !a.equal(b);
    LessUnordered<T: Ordered>(a: T, b: T) -> bool = a.less(b) | a.unordered(b);
    LessEqualUnordered<T: Ordered>(a: T, b: T) -> bool = !b.less(a);
    GreaterUnordered<T: Ordered>(a: T, b: T) -> bool = b.less(a) | a.unordered(b);
    GreaterEqualUnordered<T: Ordered>(a: T, b: T) -> bool = !a.less(b);
    /// `num`: neither operand is NaN.
    BothNumbers<T: Ordered>(a: T, b: T) -> bool = !a.unordered(b);
    /// `nan`: either operand is NaN.
    EitherNan<T: Ordered>(a: T, b: T) -> bool = a.unordered(b);
}
