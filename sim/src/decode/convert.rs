//! `cvt`.

use super::float::flushed;
use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::draft::{Source, Value};
use crate::error::Result;
use crate::half::{Bf16, F16, Half};
use crate::lanes::{self, handler};
use crate::op::{Handler, Kind};
use crate::rounding::{Direction, Down, Nearest, Up, Zero};
use crate::types::{Class, Type};

fn is_float(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::Bf16 | Type::F32 | Type::F64)
}

/// Whether the type is a single number; untyped bits cannot be converted.
fn is_number(ty: Type) -> bool {
    use Type::*;
    is_float(ty) || matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}

/// Modifiers of a conversion.
struct Request {
    to: Type,
    from: Type,
    rounding: Option<Direction>,
    /// Whether to round to an integral value (`.rni` and so on).
    integral: bool,
    flush: bool,
    saturate: bool,
    relu: bool,
}

macro_rules! by_mode {
    ($op:ident<$($ty:ty),+>, $direction:expr) => {
        match $direction {
            Direction::Nearest => handler::<lanes::$op<$($ty),+, Nearest>>(),
            Direction::Zero => handler::<lanes::$op<$($ty),+, Zero>>(),
            Direction::Down => handler::<lanes::$op<$($ty),+, Down>>(),
            Direction::Up => handler::<lanes::$op<$($ty),+, Up>>(),
        }
    };
}

macro_rules! by_mode_flushed {
    ($op:ident<$($ty:ty),+>, $direction:expr, $flush:expr) => {
        match $direction {
            Direction::Nearest => flushed::<lanes::$op<$($ty),+, Nearest>>($flush),
            Direction::Zero => flushed::<lanes::$op<$($ty),+, Zero>>($flush),
            Direction::Down => flushed::<lanes::$op<$($ty),+, Down>>($flush),
            Direction::Up => flushed::<lanes::$op<$($ty),+, Up>>($flush),
        }
    };
}

/// Converts a floating-point type to an integer type.
macro_rules! integer_from {
    ($from:ty, $to:expr, $direction:expr, $flush:expr) => {
        match $to {
            Type::U8 => by_mode_flushed!(IntegerFrom<$from, u8>, $direction, $flush),
            Type::S8 => by_mode_flushed!(IntegerFrom<$from, i8>, $direction, $flush),
            Type::U16 => by_mode_flushed!(IntegerFrom<$from, u16>, $direction, $flush),
            Type::S16 => by_mode_flushed!(IntegerFrom<$from, i16>, $direction, $flush),
            Type::U32 => by_mode_flushed!(IntegerFrom<$from, u32>, $direction, $flush),
            Type::S32 => by_mode_flushed!(IntegerFrom<$from, i32>, $direction, $flush),
            Type::U64 => by_mode_flushed!(IntegerFrom<$from, u64>, $direction, $flush),
            _ => by_mode_flushed!(IntegerFrom<$from, i64>, $direction, $flush),
        }
    };
}

/// Saturates a wide integer.
macro_rules! clamped {
    ($from:ty, $to:expr) => {
        match $to {
            Type::U8 => handler::<lanes::ClampInteger<$from, u8>>(),
            Type::S8 => handler::<lanes::ClampInteger<$from, i8>>(),
            Type::U16 => handler::<lanes::ClampInteger<$from, u16>>(),
            Type::S16 => handler::<lanes::ClampInteger<$from, i16>>(),
            Type::U32 => handler::<lanes::ClampInteger<$from, u32>>(),
            Type::S32 => handler::<lanes::ClampInteger<$from, i32>>(),
            Type::U64 => handler::<lanes::ClampInteger<$from, u64>>(),
            _ => handler::<lanes::ClampInteger<$from, i64>>(),
        }
    };
}

impl Decoder<'_> {
    pub(super) fn convert(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if i.modifiers.iter().any(|text| matches!(text.as_str(), "e4m3x2" | "e5m2x2")) {
            return self.convert_eight(i, m);
        }
        if m.has("ue8m0x2") {
            return self.convert_exponent(i, m);
        }
        if m.has("e2m1x2") || m.has("e2m3x2") || m.has("e3m2x2") {
            return self.convert_narrow(i, m);
        }
        let mut integral = false;
        let mut rounding = m.rounding();
        if rounding.is_none() {
            rounding = m.take_map(|text| match text {
                "rni" => Some(Direction::Nearest),
                "rzi" => Some(Direction::Zero),
                "rmi" => Some(Direction::Down),
                "rpi" => Some(Direction::Up),
                _ => None,
            });
            integral = rounding.is_some();
        }
        let (flush, saturate, relu) = (m.take("ftz"), m.take("sat"), m.take("relu"));
        if m.take("tf32") {
            return self.convert_tf32(i, m, rounding);
        }
        let (to, from) = (m.ty()?, m.ty()?);
        let request = Request { to, from, rounding, integral, flush, saturate, relu };
        match to {
            Type::F16x2 | Type::Bf16x2 => self.convert_pair(i, m, &request),
            _ => self.convert_one(i, m, &request),
        }
    }

    fn convert_tf32(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        rounding: Option<Direction>,
    ) -> Result<()> {
        let away = m.take("rna");
        if m.ty()? != Type::F32 || !away && rounding != Some(Direction::Nearest) {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 2)?;
        let reads = self.sources(i, &[Type::F32])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        let nearest = handler::<lanes::Tf32Nearest>();
        let chosen = if away { handler::<lanes::Tf32Away>() } else { nearest };
        self.lane(chosen, write, reads, 0);
        Ok(())
    }

    /// Converts two singles to a packed pair, the first in the high half.
    fn convert_pair(&mut self, i: &Instruction, m: &Modifiers<'_>, r: &Request) -> Result<()> {
        let f16 = r.to == Type::F16x2;
        let nearest = match r.rounding {
            Some(Direction::Nearest) => true,
            Some(Direction::Zero) => false,
            _ => return Err(m.error("is not a supported form")),
        };
        if r.from != Type::F32 || r.flush || r.saturate || r.integral {
            return Err(m.error("is not a supported form"));
        }
        let chosen = match (f16, nearest, r.relu) {
            (true, true, false) => handler::<lanes::PackNearest<F16>>(),
            (true, false, false) => handler::<lanes::PackZero<F16>>(),
            (true, true, true) => handler::<lanes::PackNearestRelu<F16>>(),
            (true, false, true) => handler::<lanes::PackZeroRelu<F16>>(),
            (false, true, false) => handler::<lanes::PackNearest<Bf16>>(),
            (false, false, false) => handler::<lanes::PackZero<Bf16>>(),
            (false, true, true) => handler::<lanes::PackNearestRelu<Bf16>>(),
            (false, false, true) => handler::<lanes::PackZeroRelu<Bf16>>(),
        };
        self.count(i, m, 3)?;
        let reads = self.sources(i, &[Type::F32, Type::F32])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        self.lane(chosen, write, reads, 0);
        Ok(())
    }

    fn convert_one(&mut self, i: &Instruction, m: &Modifiers<'_>, r: &Request) -> Result<()> {
        if !is_number(r.to) || !is_number(r.from) {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 2)?;
        let read = self.source(&i.operands[1], r.from)?;
        let write = self.extended_target(&i.operands[0], r.to.class())?;
        match (is_float(r.from), is_float(r.to)) {
            (false, false) if !r.flush && !r.relu && r.rounding.is_none() => {
                self.integer_to_integer(r, read, write);
                Ok(())
            }
            (false, true) if !r.integral => {
                let single = (r.to == Type::F32, r.to == Type::F64);
                let value = self.integer_to_float(r, read);
                if r.saturate && !single.0 {
                    return Err(m.error("is not a supported form"));
                }
                let chosen = match r.saturate {
                    true => handler::<lanes::Sat<lanes::SingleIdentity>>(),
                    false if single.1 => handler::<lanes::Move<u64>>(),
                    false => handler::<lanes::Move<u32>>(),
                };
                self.finish_float(m, chosen, write, value, r.to)
            }
            (true, false) if r.rounding.is_some() => {
                let Some(chosen) = float_to_integer(r) else {
                    return Err(m.error("is not a supported form"));
                };
                let whole = self.emit_new(r.to.class(), Kind::Lane(chosen), vec![read], 0);
                self.extend(write, whole, r.to);
                Ok(())
            }
            (true, true) => {
                if self.class(write) != r.to.class() {
                    return self.invalid("the result does not fit its register");
                }
                let Some(chosen) = float_to_float(r) else {
                    return Err(m.error("is not a supported form"));
                };
                if !r.saturate {
                    self.lane(chosen, write, vec![read], 0);
                    return Ok(());
                }
                let value = self.emit_new(r.to.class(), Kind::Lane(chosen), vec![read], 0);
                self.lane(clamped_to_one(r.to), write, vec![value], 0);
                Ok(())
            }
            _ => Err(m.error("is not a supported form")),
        }
    }

    fn finish_float(
        &mut self,
        m: &Modifiers<'_>,
        chosen: Handler,
        write: Value,
        value: Source,
        to: Type,
    ) -> Result<()> {
        if self.class(write) != to.class() {
            return Err(m.error("does not fit its register"));
        }
        self.lane(chosen, write, vec![value], 0);
        Ok(())
    }

    /// Extends an integer to the width of its destination register.
    pub(super) fn extend(&mut self, write: Value, value: Source, ty: Type) {
        let chosen = match (self.class(write), ty) {
            (Class::Word, Type::U8 | Type::B8) => handler::<lanes::ExtendWord<u8>>(),
            (Class::Word, Type::S8) => handler::<lanes::ExtendWord<i8>>(),
            (Class::Word, Type::U16 | Type::B16 | Type::F16 | Type::Bf16) => {
                handler::<lanes::ExtendWord<u16>>()
            }
            (Class::Word, Type::S16) => handler::<lanes::ExtendWord<i16>>(),
            (Class::Word, _) if ty.class() == Class::Wide => handler::<lanes::LowWord>(),
            (Class::Word, _) => handler::<lanes::Move<u32>>(),
            (_, Type::U8 | Type::B8) => handler::<lanes::ExtendWide<u8>>(),
            (_, Type::S8) => handler::<lanes::ExtendWide<i8>>(),
            (_, Type::U16 | Type::B16 | Type::F16 | Type::Bf16) => {
                handler::<lanes::ExtendWide<u16>>()
            }
            (_, Type::S16) => handler::<lanes::ExtendWide<i16>>(),
            (_, Type::S32) => handler::<lanes::ExtendWide<i32>>(),
            (_, _) if ty.class() == Class::Wide => handler::<lanes::Move<u64>>(),
            (_, _) => handler::<lanes::ExtendWide<u32>>(),
        };
        self.lane(chosen, write, vec![value], 0);
    }

    fn integer_to_integer(&mut self, r: &Request, read: Source, write: Value) {
        if r.saturate {
            let wide = self.new_value(Class::Wide);
            let guard = self.guard.take();
            self.extend(wide, read, r.from);
            self.guard = guard;
            let chosen = match r.from.signed() {
                true => clamped!(i64, r.to),
                false => clamped!(u64, r.to),
            };
            let reads = vec![Source::Value(wide)];
            let clamped = self.emit_new(r.to.class(), Kind::Lane(chosen), reads, 0);
            self.extend(write, clamped, r.to);
            return;
        }
        if r.to.bytes() <= r.from.bytes() {
            let narrowed = match (r.from.class(), r.to.class()) {
                (Class::Wide, Class::Word) => {
                    self.lane_new::<lanes::LowWord>(Class::Word, vec![read])
                }
                _ => read,
            };
            self.extend(write, narrowed, r.to);
            return;
        }
        if r.to.bytes() == 2 && r.from.signed() != r.to.signed() {
            let guard = self.guard.take();
            let middle = self.new_value(Class::Word);
            self.extend(middle, read, r.from);
            self.guard = guard;
            self.extend(write, Source::Value(middle), r.to);
            return;
        }
        if r.to.class() == Class::Word && self.class(write) == Class::Wide {
            let guard = self.guard.take();
            let middle = self.new_value(Class::Word);
            self.extend(middle, read, r.from);
            self.guard = guard;
            self.extend(write, Source::Value(middle), r.to);
            return;
        }
        self.extend(write, read, r.from);
    }

    fn integer_to_float(&mut self, r: &Request, read: Source) -> Source {
        let direction = r.rounding.unwrap_or(Direction::Nearest);
        let mut operand = read;
        let mut from = r.from;
        if from.bytes() < 4 {
            let guard = self.guard.take();
            let word = self.new_value(Class::Word);
            self.extend(word, read, from);
            self.guard = guard;
            operand = Source::Value(word);
            from = if from.signed() { Type::S32 } else { Type::U32 };
        }
        let nearest = direction == Direction::Nearest;
        let chosen = match (r.to, from) {
            (Type::F32, Type::S32) if nearest => handler::<lanes::SingleFromS32>(),
            (Type::F32, Type::U32) if nearest => handler::<lanes::SingleFromU32>(),
            (Type::F32, Type::S64) if nearest => handler::<lanes::SingleFromS64>(),
            (Type::F32, Type::U64) if nearest => handler::<lanes::SingleFromU64>(),
            (Type::F32, Type::S32) => by_mode!(RealFromInteger<i32, f32>, direction),
            (Type::F32, Type::U32) => by_mode!(RealFromInteger<u32, f32>, direction),
            (Type::F32, Type::S64) => by_mode!(RealFromInteger<i64, f32>, direction),
            (Type::F32, _) => by_mode!(RealFromInteger<u64, f32>, direction),
            (Type::F64, Type::S32) => handler::<lanes::DoubleFromS32>(),
            (Type::F64, Type::U32) => handler::<lanes::DoubleFromU32>(),
            (Type::F64, Type::S64) => by_mode!(DoubleFromInteger<i64>, direction),
            (Type::F64, _) => by_mode!(DoubleFromInteger<u64>, direction),
            (Type::F16, Type::S32) => by_mode!(RealFromInteger<i32, F16>, direction),
            (Type::F16, Type::U32) => by_mode!(RealFromInteger<u32, F16>, direction),
            (Type::F16, Type::S64) => by_mode!(RealFromInteger<i64, F16>, direction),
            (Type::F16, _) => by_mode!(RealFromInteger<u64, F16>, direction),
            (_, Type::S32) => by_mode!(RealFromInteger<i32, Bf16>, direction),
            (_, Type::U32) => by_mode!(RealFromInteger<u32, Bf16>, direction),
            (_, Type::S64) => by_mode!(RealFromInteger<i64, Bf16>, direction),
            (_, _) => by_mode!(RealFromInteger<u64, Bf16>, direction),
        };
        self.emit_new(r.to.class(), Kind::Lane(chosen), vec![operand], 0)
    }
}

fn float_to_integer(r: &Request) -> Option<Handler> {
    if r.flush && r.from != Type::F32 || r.relu || r.to.class() == Class::Pred {
        return None;
    }
    let direction = r.rounding?;
    Some(match r.from {
        Type::F16 => integer_from!(F16, r.to, direction, false),
        Type::Bf16 => integer_from!(Bf16, r.to, direction, false),
        Type::F32 => integer_from!(f32, r.to, direction, r.flush),
        _ => integer_from!(f64, r.to, direction, false),
    })
}

/// Converts from single precision with ReLU.
fn rectified<H: Half>(direction: Direction) -> Option<Handler> {
    match direction {
        Direction::Nearest => Some(handler::<lanes::HalfFromSingleRelu<H>>()),
        Direction::Zero => Some(handler::<lanes::HalfFromSingleZeroRelu<H>>()),
        Direction::Down | Direction::Up => None,
    }
}

/// Clamps to [0, 1].
fn clamped_to_one(ty: Type) -> Handler {
    match ty {
        Type::F16 => handler::<lanes::HalfSaturate<F16>>(),
        Type::Bf16 => handler::<lanes::HalfSaturate<Bf16>>(),
        Type::F32 => handler::<lanes::Sat<lanes::SingleIdentity>>(),
        _ => handler::<lanes::Sat<lanes::DoubleIdentity>>(),
    }
}

fn float_to_float(r: &Request) -> Option<Handler> {
    let direction = r.rounding.unwrap_or(Direction::Nearest);
    if r.relu && (r.integral || r.from != Type::F32) {
        return None;
    }
    if r.integral {
        return Some(match (r.to, r.from) {
            (Type::F32, Type::F32) => by_mode_flushed!(Integral<f32, f32>, direction, r.flush),
            (Type::F64, Type::F64) => by_mode!(Integral<f64, f64>, direction),
            (Type::F16, Type::F16) => by_mode!(Integral<F16, F16>, direction),
            (Type::Bf16, Type::Bf16) => by_mode!(Integral<Bf16, Bf16>, direction),
            _ => return None,
        });
    }
    Some(match (r.to, r.from) {
        (Type::F32, Type::F32) => flushed::<lanes::SingleIdentity>(r.flush),
        (Type::F64, Type::F64) => handler::<lanes::DoubleIdentity>(),
        (Type::F32, Type::F16) => handler::<lanes::SingleFromF16>(),
        (Type::F32, Type::Bf16) => handler::<lanes::SingleFromBf16>(),
        (Type::F32, Type::F64) => by_mode_flushed!(RealFrom<f64, f32>, direction, r.flush),
        (Type::F64, Type::F32) => flushed::<lanes::RealFrom<f32, f64, Nearest>>(r.flush),
        (Type::F64, Type::F16) => handler::<lanes::RealFrom<F16, f64, Nearest>>(),
        (Type::F64, Type::Bf16) => handler::<lanes::RealFrom<Bf16, f64, Nearest>>(),
        (Type::F16, Type::F32) if r.relu => rectified::<F16>(direction)?,
        (Type::Bf16, Type::F32) if r.relu => rectified::<Bf16>(direction)?,
        (Type::F16, Type::F32) if direction == Direction::Nearest => {
            flushed::<lanes::HalfFromSingle<F16>>(r.flush)
        }
        (Type::Bf16, Type::F32) if direction == Direction::Nearest => {
            flushed::<lanes::HalfFromSingle<Bf16>>(r.flush)
        }
        (Type::F16, Type::F32) => by_mode!(RealFrom<f32, F16>, direction),
        (Type::Bf16, Type::F32) => by_mode!(RealFrom<f32, Bf16>, direction),
        (Type::F16, Type::F64) => by_mode!(RealFrom<f64, F16>, direction),
        (Type::Bf16, Type::F64) => by_mode!(RealFrom<f64, Bf16>, direction),
        (Type::F16, Type::F16) => handler::<lanes::Move<u16>>(),
        (Type::Bf16, Type::Bf16) => handler::<lanes::Move<u16>>(),
        (Type::F16, Type::Bf16) => by_mode!(RealFrom<Bf16, F16>, direction),
        (Type::Bf16, Type::F16) => by_mode!(RealFrom<F16, Bf16>, direction),
        _ => return None,
    })
}
