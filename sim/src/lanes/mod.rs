//! Operations that treat every lane alike: what they compute is a type with a pure `eval`, and one
//! driver loops it over a row. The driver is compiled once per instruction-set level and the level
//! is chosen when a module is decoded, so a fused multiply-add is the hardware's where there is
//! one.

mod approx;
mod bits;
mod compare;
mod convert;
mod eight;
mod float;
mod int;
mod level;
mod packed;

pub(crate) use approx::*;
pub(crate) use bits::*;
pub(crate) use compare::*;
pub(crate) use convert::*;
pub(crate) use eight::*;
pub(crate) use float::*;
pub(crate) use int::*;
pub(crate) use level::{has_v3, leveled};
pub(crate) use packed::*;

use crate::half::{Bf16, F16};
use crate::op::MicroOp;
use crate::registers::{Constants, LANES, Registers, Slot};
use std::marker::PhantomData;

/// Runs one operation for the lanes of a mask.
///
/// Unsafe to call only because it may use instructions that the processor lacks; [`handler`] gives
/// no such function.
pub(crate) type Handler = unsafe fn(&mut Registers, &Constants, &MicroOp, u32);

/// A value that a lane holds.
pub(crate) trait Lane: Copy {
    type Source<'a>: Copy;
    type Sink: Copy;
    const EMPTY: Self::Sink;
    fn source<'a>(r: &'a Registers, k: &'a Constants, slot: Slot) -> Self::Source<'a>;
    fn get(source: Self::Source<'_>, lane: usize) -> Self;
    fn put(sink: &mut Self::Sink, lane: usize, value: Self);
    fn store(r: &mut Registers, slot: Slot, sink: &Self::Sink, mask: u32);
}

macro_rules! lane {
    ($bits:ty, $source:ident, $store:ident: $($ty:ty, $v:ident, $get:expr, $put:expr;)*) => {$(
        impl Lane for $ty {
            type Source<'a> = &'a [$bits; LANES];
            type Sink = [$bits; LANES];
            const EMPTY: [$bits; LANES] = [0; LANES];
            #[inline(always)]
            fn source<'a>(r: &'a Registers, k: &'a Constants, slot: Slot) -> &'a [$bits; LANES] {
                r.$source(k, slot)
            }
            #[inline(always)]
            fn get(source: &[$bits; LANES], lane: usize) -> $ty {
                let $v = source[lane];
                $get
            }
            #[inline(always)]
            fn put(sink: &mut [$bits; LANES], lane: usize, $v: $ty) {
                sink[lane] = $put;
            }
            #[inline(always)]
            fn store(r: &mut Registers, slot: Slot, sink: &[$bits; LANES], mask: u32) {
                r.$store(slot, sink, mask);
            }
        }
    )*};
}

lane! { u32, word, set_word:
    u8, v, v as u8, v.into();
    i8, v, v as i8, v as u32;
    u16, v, v as u16, v.into();
    i16, v, v as i16, v as u32;
    u32, v, v, v;
    i32, v, v as i32, v as u32;
    f32, v, f32::from_bits(v), v.to_bits();
    F16, v, F16(v as u16), v.0.into();
    Bf16, v, Bf16(v as u16), v.0.into();
}

lane! { u64, wide, set_wide:
    u64, v, v, v;
    i64, v, v as i64, v as u64;
    f64, v, f64::from_bits(v), v.to_bits();
}

impl Lane for bool {
    type Source<'a> = u32;
    type Sink = u32;
    const EMPTY: u32 = 0;
    #[inline(always)]
    fn source(r: &Registers, _: &Constants, slot: Slot) -> u32 {
        r.predicate(slot)
    }
    #[inline(always)]
    fn get(source: u32, lane: usize) -> bool {
        source >> lane & 1 != 0
    }
    #[inline(always)]
    fn put(sink: &mut u32, lane: usize, value: bool) {
        *sink |= u32::from(value) << lane;
    }
    #[inline(always)]
    fn store(r: &mut Registers, slot: Slot, sink: &u32, mask: u32) {
        r.set_predicate(slot, *sink, mask);
    }
}

/// An operand that an operation lacks.
impl Lane for () {
    type Source<'a> = ();
    type Sink = ();
    const EMPTY: () = ();
    #[inline(always)]
    fn source(_: &Registers, _: &Constants, _: Slot) {}
    #[inline(always)]
    fn get((): (), _: usize) {}
    #[inline(always)]
    fn put((): &mut (), _: usize, (): ()) {}
    #[inline(always)]
    fn store(_: &mut Registers, _: Slot, (): &(), _: u32) {}
}

/// What one lane computes from up to three operands and the micro-op's immediate.
pub(crate) trait LaneOp {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type D: Lane;
    fn eval(a: Self::A, b: Self::B, c: Self::C, imm: i64) -> Self::D;
}

/// Declares operations: `Name<T: Bound>(a: T, b: T) -> T = expression;`, or with `; imm` after the
/// operands when the immediate is used.
macro_rules! lane_ops {
    ($($(#[$doc:meta])* $name:ident $(<$($g:ident: $bound:path),+>)?
        ($a:ident: $A:ty $(, $b:ident: $B:ty $(, $c:ident: $C:ty)?)? $(; $imm:ident)?)
        -> $D:ty = $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name $(<$($g),+>(std::marker::PhantomData<($($g,)+)>))?;
        impl $(<$($g: $bound),+>)? crate::lanes::LaneOp for $name $(<$($g),+>)? {
            type A = $A;
            type B = crate::lanes::lane_ops!(@or $($B)?);
            type C = crate::lanes::lane_ops!(@or $($($C)?)?);
            type D = $D;
            #[inline(always)]
            fn eval($a: $A, _b: Self::B, _c: Self::C, _imm: i64) -> $D {
                $(let $b = _b; $(let $c = _c;)?)?
                $(let $imm = _imm;)?
                $body
            }
        }
    )*};
    (@or) => { () };
    (@or $t:ty) => { $t };
}
pub(crate) use lane_ops;

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

/// The function that runs `O` on this processor.
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

/// `.ftz`: subnormal operands and results of single and half precision become zero of their sign.
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
                // NaN becomes +0, and so does -0.
                let positive = if self > 0.0 { self } else { 0.0 };
                if positive < 1.0 { positive } else { 1.0 }
            }
        }
    )*};
}

saturate!(f32, f64);

/// `.sat`: the result is clamped to [0, 1], NaN to +0.
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
