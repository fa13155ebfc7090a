//! Lane-wise operations: types with a pure `eval`, which a generic driver loops over a row. The
//! driver is compiled for each instruction-set level, and the level is chosen when a module is
//! decoded, so that FMA instructions are used where available.

mod approx;
mod bit_range;
mod bits;
mod compare;
mod convert;
mod eight;
mod float;
mod int;
mod lane;
mod level;
mod narrow;
mod packed;
mod video;

pub(crate) use approx::*;
pub(crate) use bit_range::*;
pub(crate) use bits::*;
pub(crate) use compare::*;
pub(crate) use convert::*;
pub(crate) use eight::*;
pub(crate) use float::*;
pub(crate) use int::*;
pub(crate) use lane::{Lane, LaneOp};
pub(crate) use level::{has_v3, leveled};
pub(crate) use narrow::*;
pub(crate) use packed::*;
pub(crate) use video::*;

use crate::half::{Bf16, F16};
use crate::op::{Handler, MicroOp};
use crate::registers::{Constants, LANES, Registers};
use std::marker::PhantomData;

#[inline(always)]
fn lanes<O: LaneOp>(registers: &mut Registers, constants: &Constants, op: &MicroOp, mask: u32) {
    let mut out = O::D::EMPTY;
    {
        let a = O::A::source(registers, constants, op.a);
        let b = O::B::source(registers, constants, op.b);
        let c = O::C::source(registers, constants, op.c);
        for lane in 0..LANES {
            let (a, b, c) = (O::A::get(a, lane), O::B::get(b, lane), O::C::get(c, lane));
            O::D::put(&mut out, lane, O::eval(a, b, c, op.imm));
        }
    }
    O::D::store(registers, op.d, &out, mask);
}

fn baseline<O: LaneOp>(r: &mut Registers, k: &Constants, op: &MicroOp, mask: u32) {
    lanes::<O>(r, k, op, mask);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn v3<O: LaneOp>(r: &mut Registers, k: &Constants, op: &MicroOp, mask: u32) {
    lanes::<O>(r, k, op, mask);
}

/// Handler of `O` for this processor.
pub(crate) fn handler<O: LaneOp>() -> Handler {
    #[cfg(target_arch = "x86_64")]
    if has_v3() {
        return v3::<O>;
    }
    baseline::<O>
}

/// An operand that `.ftz` may flush.
pub(crate) trait Flush: Lane {
    fn flush(self) -> Self;
}

impl Flush for f32 {
    #[inline(always)]
    fn flush(self) -> f32 {
        let bits = self.to_bits();
        f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
    }
}

impl Flush for F16 {
    #[inline(always)]
    fn flush(self) -> F16 {
        F16(if self.0 & 0x7c00 == 0 { self.0 & 0x8000 } else { self.0 })
    }
}

macro_rules! no_flush {
    ($($ty:ty),*) => {$(
        impl Flush for $ty {
            #[inline(always)]
            fn flush(self) -> $ty {
                self
            }
        }
    )*};
}

no_flush!((), bool, i8, u8, u16, i16, u32, i32, u64, i64, f64, Bf16);

/// `.ftz`: flushes subnormal operands and results of single and half precision to signed zero.
pub(crate) struct Ftz<O>(PhantomData<O>);

impl<O: LaneOp<A: Flush, B: Flush, C: Flush, D: Flush>> LaneOp for Ftz<O> {
    type A = O::A;
    type B = O::B;
    type C = O::C;
    type D = O::D;
    #[inline(always)]
    fn eval(a: O::A, b: O::B, c: O::C, imm: i64) -> O::D {
        O::eval(a.flush(), b.flush(), c.flush(), imm).flush()
    }
}

/// A result that `.sat` may clamp to [0, 1].
pub(crate) trait Saturate: Lane {
    fn saturate(self) -> Self;
}

macro_rules! saturate {
    ($($ty:ty),*) => {$(
        impl Saturate for $ty {
            #[inline(always)]
            fn saturate(self) -> $ty {
                // NaN and -0 become +0.
                let positive = if self > 0.0 { self } else { 0.0 };
                if positive < 1.0 { positive } else { 1.0 }
            }
        }
    )*};
}

saturate!(f32, f64);

/// `.sat`: clamps the result to [0, 1]; NaN becomes +0.
pub(crate) struct Sat<O>(PhantomData<O>);

impl<O: LaneOp<D: Saturate>> LaneOp for Sat<O> {
    type A = O::A;
    type B = O::B;
    type C = O::C;
    type D = O::D;
    #[inline(always)]
    fn eval(a: O::A, b: O::B, c: O::C, imm: i64) -> O::D {
        O::eval(a, b, c, imm).saturate()
    }
}
