//! Values of lanes and lane-wise operations.

use crate::half::{Bf16, F16};
use crate::registers::{Constants, LANES, Registers, Slot};

/// A value held by a lane.
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

/// An absent operand.
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

/// A lane-wise operation on up to three operands and the micro-op's immediate.
pub(crate) trait LaneOp {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type D: Lane;
    fn eval(a: Self::A, b: Self::B, c: Self::C, imm: i64) -> Self::D;
}

/// Declares operations: `Name<T: Bound>(a: T, b: T) -> T = expression;`, with `; imm` after the
/// operands if the immediate is used.
macro_rules! lane_ops {
    ($($(#[$doc:meta])* $name:ident $(<$($g:ident: $bound:path),+>)?
        ($a:ident: $A:ty $(, $b:ident: $B:ty $(, $c:ident: $C:ty)?)? $(; $imm:ident)?)
        -> $D:ty = $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name $(<$($g),+>(std::marker::PhantomData<($($g,)+)>))?;
        impl $(<$($g: $bound),+>)? crate::lanes::lane::LaneOp for $name $(<$($g),+>)? {
            type A = $A;
            type B = crate::lanes::lane::lane_ops!(@or $($B)?);
            type C = crate::lanes::lane::lane_ops!(@or $($($C)?)?);
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
