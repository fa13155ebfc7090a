//! IEEE directed rounding, which the host does not provide, and rounding to odd.
//!
//! A directed result is the nearest one, moved by at most one ulp according to the sign of the
//! exact error. Rounding to odd records inexactness in the last bit, so that a second rounding to a
//! format at least two bits shorter yields the correctly rounded result.

use std::cmp::Ordering;

/// Rounding direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Nearest,
    Zero,
    Down,
    Up,
}

/// A direction as a type, for specialisation.
pub(crate) trait Mode {
    const DIRECTION: Direction;
}

macro_rules! modes {
    ($($name:ident),*) => {$(
        pub(crate) struct $name;
        impl Mode for $name {
            const DIRECTION: Direction = Direction::$name;
        }
    )*};
}

modes!(Nearest, Zero, Down, Up);

/// The nearest sum `a + b` and its exact error.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let other = sum - a;
    (sum, (a - (sum - other)) + (b - other))
}

/// Rounds to odd a value given as the nearest double and an error below half an ulp.
#[inline(always)]
fn to_odd(nearest: f64, error: f64) -> f64 {
    let bits = nearest.to_bits();
    let inexact = error != 0.0 && nearest.is_finite();
    // With an even last bit the exact value lies beside `nearest`; step towards it.
    let outward = (error > 0.0) == (nearest > 0.0);
    let stepped = if outward { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f64::from_bits(if inexact && bits & 1 == 0 { stepped } else { bits })
}

/// `a + b` rounded to odd.
#[inline(always)]
pub(crate) fn add_to_odd(a: f64, b: f64) -> f64 {
    let (sum, error) = two_sum(a, b);
    to_odd(sum, error)
}

/// Rounds a double to odd in single precision, saturating at the largest finite value.
#[inline(always)]
pub(crate) fn single_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let bits = nearest.to_bits();
    let back = f64::from(nearest);
    let inexact = back != value && value.is_finite();
    let outward = value.abs() > back.abs();
    let stepped = if outward { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f32::from_bits(if inexact && bits & 1 == 0 { stepped } else { bits })
}

/// Rounds a double, possibly rounded to odd, to single precision.
#[inline(always)]
pub(crate) fn single<M: Mode>(value: f64) -> f32 {
    let nearest = value as f32;
    if matches!(M::DIRECTION, Direction::Nearest) {
        return nearest;
    }
    step_single::<M>(nearest, value - f64::from(nearest), value)
}

/// Moves the nearest single by one ulp if the direction requires it.
#[inline(always)]
fn step_single<M: Mode>(nearest: f32, error: f64, exact: f64) -> f32 {
    match step::<M>(exact > 0.0, error) {
        Ordering::Less => nearest.next_down(),
        Ordering::Equal => nearest,
        Ordering::Greater => nearest.next_up(),
    }
}

/// How the direction moves the nearest value, given the signs of the exact value and its error.
#[inline(always)]
fn step<M: Mode>(positive: bool, error: f64) -> Ordering {
    let below = match M::DIRECTION {
        Direction::Nearest => return Ordering::Equal,
        Direction::Zero => positive,
        Direction::Down => true,
        Direction::Up => false,
    };
    if below && error < 0.0 {
        Ordering::Less
    } else if !below && error > 0.0 {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

/// Moves the nearest double by one ulp if the direction requires it; `error` has the sign of the
/// exact value minus `nearest`.
#[inline(always)]
pub(crate) fn step_double<M: Mode>(nearest: f64, error: f64) -> f64 {
    match step::<M>(nearest > 0.0 || nearest == 0.0 && error > 0.0, error) {
        Ordering::Less => nearest.next_down(),
        Ordering::Equal => nearest,
        Ordering::Greater => nearest.next_up(),
    }
}

/// The zero of an exact sum of opposite values: negative only when rounding down.
#[inline(always)]
fn signed_zero<M: Mode>(sum: f64, a: f64, b: f64) -> f64 {
    let cancels = sum == 0.0 && a.is_sign_negative() != b.is_sign_negative();
    if matches!(M::DIRECTION, Direction::Down) && cancels { -0.0 } else { sum }
}

/// `a + b` in double precision.
#[inline(always)]
pub(crate) fn add_double<M: Mode>(a: f64, b: f64) -> f64 {
    let (sum, error) = two_sum(a, b);
    if matches!(M::DIRECTION, Direction::Nearest) || sum.is_nan() || a.is_infinite() {
        return a + b;
    }
    if sum.is_infinite() && b.is_finite() {
        return overflow::<M>(sum);
    }
    step_double::<M>(signed_zero::<M>(sum, a, b), error)
}

/// A finite result that overflows.
#[inline(always)]
fn overflow<M: Mode>(infinite: f64) -> f64 {
    let stays = match M::DIRECTION {
        Direction::Nearest => true,
        Direction::Zero => false,
        Direction::Down => infinite < 0.0,
        Direction::Up => infinite > 0.0,
    };
    if stays { infinite } else { f64::MAX.copysign(infinite) }
}

/// 2^-900: above it, errors of doubles have no bits below the smallest subnormal.
const TINY: f64 = f64::from_bits((1023 - 900) << 52);
/// 2^300: scales roots of tiny values to the normal range, and its square the values.
const GROWN_ROOT: f64 = f64::from_bits((1023 + 300) << 52);
const GROWN: f64 = GROWN_ROOT * GROWN_ROOT;
/// 2^-100: scales overflowing products to finite ones.
const SHRUNK: f64 = f64::from_bits((1023 - 100) << 52);

/// A value with the sign of `a * b - product`, where `product` is the nearest double.
#[inline(always)]
fn product_error(a: f64, b: f64, product: f64) -> f64 {
    if product.abs() >= TINY || a == 0.0 || b == 0.0 {
        return a.mul_add(b, -product);
    }
    if product == 0.0 {
        return 1_f64.copysign(product);
    }
    let (small, large) = if a.abs() < b.abs() { (a, b) } else { (b, a) };
    (small * GROWN).mul_add(large, -(product * GROWN))
}

/// `a * b` in double precision.
#[inline(always)]
pub(crate) fn mul_double<M: Mode>(a: f64, b: f64) -> f64 {
    let product = a * b;
    if matches!(M::DIRECTION, Direction::Nearest) || product.is_nan() {
        return product;
    }
    if product.is_infinite() && a.is_finite() && b.is_finite() {
        return overflow::<M>(product);
    }
    step_double::<M>(product, product_error(a, b, product))
}

/// A value with the sign of `a * b + c - nearest`, for a product that neither underflows nor
/// overflows: Boldo and Muller, "Exact and approximated error of the FMA" (2011).
#[inline(always)]
fn sum_error(a: f64, b: f64, c: f64, nearest: f64) -> f64 {
    let (high, low) = (a * b, a.mul_add(b, -(a * b)));
    let (alpha, alpha_error) = two_sum(c, low);
    let (beta, beta_error) = two_sum(high, alpha);
    (beta - nearest) + beta_error + alpha_error
}

/// A value with the sign of `a * b + c - nearest`.
#[inline(always)]
fn fma_error(a: f64, b: f64, c: f64, nearest: f64) -> f64 {
    let product = a * b;
    if product.is_finite() && product.abs() >= TINY || a == 0.0 || b == 0.0 {
        return sum_error(a, b, c, nearest);
    }
    let (small, large) = if a.abs() < b.abs() { (a, b) } else { (b, a) };
    if product.is_infinite() {
        return sum_error(small, large * SHRUNK, c * SHRUNK, nearest * SHRUNK);
    }
    // Below half an ulp of `c`, only the sign of the product matters.
    let negligible = (small * GROWN * large).abs() < TINY || c.abs() * GROWN_ROOT > 1.0;
    match negligible {
        true => 1_f64.copysign(product),
        false => sum_error(small * GROWN, large, c * GROWN, nearest * GROWN),
    }
}

/// `a * b + c` in double precision.
#[inline(always)]
pub(crate) fn fma_double<M: Mode>(a: f64, b: f64, c: f64) -> f64 {
    let nearest = a.mul_add(b, c);
    if matches!(M::DIRECTION, Direction::Nearest) || nearest.is_nan() {
        return nearest;
    }
    if nearest.is_infinite() {
        let exact = a.is_infinite() || b.is_infinite() || c.is_infinite();
        return if exact { nearest } else { overflow::<M>(nearest) };
    }
    match fma_error(a, b, c, nearest) {
        0.0 => signed_zero::<M>(nearest, a * b, c),
        error => step_double::<M>(nearest, error),
    }
}

/// `a / b` in double precision.
#[inline(always)]
pub(crate) fn div_double<M: Mode>(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if matches!(M::DIRECTION, Direction::Nearest) || quotient.is_nan() || b == 0.0 {
        return quotient;
    }
    if quotient.is_infinite() && a.is_finite() {
        return overflow::<M>(quotient);
    }
    if quotient.is_infinite() || b.is_infinite() {
        return quotient;
    }
    let scale = if a.abs() < TINY { GROWN } else { 1.0 };
    let rest = (-quotient * scale).mul_add(b, a * scale);
    step_double::<M>(quotient, if b < 0.0 { -rest } else { rest })
}

/// The square root in double precision.
#[inline(always)]
pub(crate) fn sqrt_double<M: Mode>(a: f64) -> f64 {
    let root = a.sqrt();
    if matches!(M::DIRECTION, Direction::Nearest) || !root.is_finite() || root == 0.0 {
        return root;
    }
    let scale = if a < TINY { GROWN_ROOT } else { 1.0 };
    let scaled = root * scale;
    step_double::<M>(root, (-scaled).mul_add(scaled, a * scale * scale))
}

/// `a + b` in single precision.
#[inline(always)]
pub(crate) fn add_single<M: Mode>(a: f32, b: f32) -> f32 {
    if matches!(M::DIRECTION, Direction::Nearest) {
        return a + b;
    }
    let (a, b) = (f64::from(a), f64::from(b));
    single::<M>(signed_zero::<M>(add_to_odd(a, b), a, b))
}

/// `a * b` in single precision; the double product is exact.
#[inline(always)]
pub(crate) fn mul_single<M: Mode>(a: f32, b: f32) -> f32 {
    if matches!(M::DIRECTION, Direction::Nearest) {
        return a * b;
    }
    single::<M>(f64::from(a) * f64::from(b))
}

/// `a * b + c` in single precision; the double product is exact.
#[inline(always)]
pub(crate) fn fma_single<M: Mode>(a: f32, b: f32, c: f32) -> f32 {
    if matches!(M::DIRECTION, Direction::Nearest) {
        return a.mul_add(b, c);
    }
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    single::<M>(signed_zero::<M>(add_to_odd(product, c), product, c))
}

/// `a / b` in single precision.
#[inline(always)]
pub(crate) fn div_single<M: Mode>(a: f32, b: f32) -> f32 {
    if matches!(M::DIRECTION, Direction::Nearest) {
        return a / b;
    }
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    if !quotient.is_finite() || b.is_infinite() {
        return quotient as f32;
    }
    // The remainder is exact, so its sign is that of the error.
    let rest = (-quotient).mul_add(b, a);
    single::<M>(to_odd(quotient, if b < 0.0 { -rest } else { rest }))
}

/// The square root in single precision.
#[inline(always)]
pub(crate) fn sqrt_single<M: Mode>(a: f32) -> f32 {
    // Tests the bits, since a NaN test of the vectorised square root was seen to be optimised away.
    let bits = a.to_bits();
    if bits > 0x7f80_0000 && bits != 0x8000_0000 {
        return f32::from_bits(0x7fff_ffff);
    }
    if matches!(M::DIRECTION, Direction::Nearest) {
        return a.sqrt();
    }
    let a = f64::from(a);
    let root = a.sqrt();
    if !root.is_finite() || root == 0.0 {
        return root as f32;
    }
    single::<M>(to_odd(root, (-root).mul_add(root, a)))
}

/// Converts an integer to a double, rounded to odd.
#[inline(always)]
pub(crate) fn double_to_odd(value: i128) -> f64 {
    let nearest = value as f64;
    // Integers up to 64 bits: `nearest` is an integer below 2^65, so the difference is exact.
    to_odd(nearest, (value - nearest as i128) as f64)
}

/// Converts an integer to a double.
#[inline(always)]
pub(crate) fn double_from_integer<M: Mode>(value: i128) -> f64 {
    let nearest = value as f64;
    step_double::<M>(nearest, (value - nearest as i128) as f64)
}
