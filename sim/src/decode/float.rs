//! Floating-point arithmetic and functions.

use super::{Decoder, Modifiers};
use crate::accuracy::Accuracy;
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::half::{Bf16, F16};
use crate::lanes::{self, Flush, Ftz, LaneOp, Sat, Saturate, handler};
use crate::op::{Handler, Kind};
use crate::rounding::{Direction, Down, Nearest, Up, Zero};
use crate::types::{Class, Type};

/// Selects the operation by flush and saturation.
fn flagged<O>(flush: bool, saturate: bool) -> Handler
where
    O: LaneOp<A: Flush, B: Flush, C: Flush, D: Flush + Saturate>,
{
    match (flush, saturate) {
        (false, false) => handler::<O>(),
        (true, false) => handler::<Ftz<O>>(),
        (false, true) => handler::<Sat<O>>(),
        (true, true) => handler::<Sat<Ftz<O>>>(),
    }
}

/// Selects the operation by flush.
pub(super) fn flushed<O>(flush: bool) -> Handler
where
    O: LaneOp<A: Flush, B: Flush, C: Flush, D: Flush>,
{
    if flush { handler::<Ftz<O>>() } else { handler::<O>() }
}

/// Selects the operation by rounding mode.
macro_rules! rounded {
    ($op:ident, $ty:ty, $direction:expr, $flush:expr, $saturate:expr) => {
        match $direction {
            Direction::Nearest => flagged::<lanes::$op<$ty, Nearest>>($flush, $saturate),
            Direction::Zero => flagged::<lanes::$op<$ty, Zero>>($flush, $saturate),
            Direction::Down => flagged::<lanes::$op<$ty, Down>>($flush, $saturate),
            Direction::Up => flagged::<lanes::$op<$ty, Up>>($flush, $saturate),
        }
    };
}

/// Selects the operation by precision and rounding mode; only single precision flushes and
/// saturates.
macro_rules! by_precision {
    ($op:ident, $ty:expr, $direction:expr, $flush:expr, $saturate:expr) => {
        match $ty {
            Type::F32 => rounded!($op, f32, $direction, $flush, $saturate),
            _ => match $direction {
                Direction::Nearest => handler::<lanes::$op<f64, Nearest>>(),
                Direction::Zero => handler::<lanes::$op<f64, Zero>>(),
                Direction::Down => handler::<lanes::$op<f64, Down>>(),
                Direction::Up => handler::<lanes::$op<f64, Up>>(),
            },
        }
    };
}

/// Selects an operation without rounding by precision.
macro_rules! unrounded {
    ($op:ident, $ty:expr, $flush:expr) => {
        match $ty {
            Type::F32 => flushed::<lanes::$op<f32>>($flush),
            _ => handler::<lanes::$op<f64>>(),
        }
    };
}

/// Selects the operation by 16-bit type.
macro_rules! by_half {
    ($op:ident, $ty:expr) => {
        match $ty {
            Type::F16 => handler::<lanes::Scalar<F16, lanes::$op>>(),
            Type::F16x2 => handler::<lanes::Packed<F16, lanes::$op>>(),
            Type::Bf16 => handler::<lanes::Scalar<Bf16, lanes::$op>>(),
            _ => handler::<lanes::Packed<Bf16, lanes::$op>>(),
        }
    };
}

/// Arithmetic in single precision by opcode, with its number of operands.
pub(super) fn single_arithmetic(
    opcode: &str,
    direction: Direction,
    flush: bool,
    saturate: bool,
) -> Option<(Handler, usize)> {
    Some(match opcode {
        "add" => (rounded!(FloatAdd, f32, direction, flush, saturate), 2),
        "sub" => (rounded!(FloatSub, f32, direction, flush, saturate), 2),
        "mul" => (rounded!(FloatMul, f32, direction, flush, saturate), 2),
        "fma" => (rounded!(FloatFma, f32, direction, flush, saturate), 3),
        _ => return None,
    })
}

impl Decoder<'_> {
    pub(super) fn float_arithmetic(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        ty: Type,
    ) -> Result<()> {
        let single = ty == Type::F32;
        let flush = single && m.take("ftz");
        let opcode = i.opcode.as_str();
        if matches!(opcode, "min" | "max") {
            return self.extremum(i, m, ty, flush);
        }
        if matches!(opcode, "abs" | "neg") {
            let chosen = match opcode {
                "abs" => unrounded!(FloatAbs, ty, flush),
                _ => unrounded!(FloatNeg, ty, flush),
            };
            return self.plain(i, m, Some(chosen), ty, 1);
        }
        let direction = m.rounding();
        let approximate = opcode == "div" && (m.take("approx") || m.take("full"));
        if opcode == "div" && direction.is_none() && !approximate {
            return Err(m.error("lacks a rounding"));
        }
        if approximate && single && self.accuracy == Accuracy::Worst {
            return self.plain(i, m, Some(flushed::<lanes::DivWorst>(flush)), ty, 2);
        }
        if opcode == "fma" && direction.is_none() {
            return Err(m.error("lacks a rounding"));
        }
        let direction = direction.unwrap_or(Direction::Nearest);
        let saturate = single && opcode != "div" && m.take("sat");
        let (chosen, operands) = match opcode {
            "add" => (by_precision!(FloatAdd, ty, direction, flush, saturate), 2),
            "sub" => (by_precision!(FloatSub, ty, direction, flush, saturate), 2),
            "mul" => (by_precision!(FloatMul, ty, direction, flush, saturate), 2),
            "div" => (by_precision!(FloatDiv, ty, direction, flush, false), 2),
            "fma" | "mad" => (by_precision!(FloatFma, ty, direction, flush, saturate), 3),
            _ => return Err(m.error("is not a supported form")),
        };
        self.plain(i, m, Some(chosen), ty, operands)
    }

    fn extremum(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        ty: Type,
        flush: bool,
    ) -> Result<()> {
        let nan = m.take("NaN");
        let min = i.opcode == "min";
        if m.take("xorsign") {
            if !m.take("abs") || ty != Type::F32 {
                return Err(m.error("is not a supported form"));
            }
            let chosen = match min {
                true => flushed::<lanes::FloatMinXor<f32>>(flush),
                false => flushed::<lanes::FloatMaxXor<f32>>(flush),
            };
            self.count(i, m, 3)?;
            let reads = self.sources(i, &[ty, ty])?;
            let write = self.target(&i.operands[0], ty.class())?;
            self.lane(chosen, write, reads, nan.into());
            return Ok(());
        }
        let chosen = match (min, nan) {
            (true, false) => unrounded!(FloatMin, ty, flush),
            (true, true) => unrounded!(FloatMinNan, ty, flush),
            (false, false) => unrounded!(FloatMax, ty, flush),
            (false, true) => unrounded!(FloatMaxNan, ty, flush),
        };
        if i.operands.len() == 4 {
            let reads = self.sources(i, &[ty, ty, ty])?;
            let pair = vec![reads[0], reads[1]];
            let first = self.emit_new(ty.class(), Kind::Lane(chosen), pair, 0);
            let write = self.target(&i.operands[0], ty.class())?;
            self.lane(chosen, write, vec![first, reads[2]], 0);
            return Ok(());
        }
        self.plain(i, m, Some(chosen), ty, 2)
    }

    pub(super) fn half_arithmetic(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        ty: Type,
    ) -> Result<()> {
        m.take("rn");
        let mut flags = 0;
        let f16 = matches!(ty, Type::F16 | Type::F16x2);
        let mut flag = |name: &str, bit: i64| {
            if m.take(name) {
                flags |= bit;
            }
        };
        let opcode = i.opcode.as_str();
        if f16 {
            flag("ftz", lanes::FLUSH);
        }
        if matches!(opcode, "add" | "sub" | "mul" | "fma") && f16 {
            flag("sat", lanes::SATURATE);
        }
        if opcode == "fma" {
            flag("relu", lanes::RELU);
        }
        if matches!(opcode, "min" | "max") {
            flag("NaN", lanes::NAN);
            if m.take("xorsign") {
                if !m.take("abs") {
                    return Err(m.error("lacks `.abs`"));
                }
                flags |= lanes::XOR_SIGN;
            }
        }
        let (chosen, operands) = match opcode {
            "add" => (by_half!(HalfAdd, ty), 2),
            "sub" => (by_half!(HalfSub, ty), 2),
            "mul" => (by_half!(HalfMul, ty), 2),
            "fma" => (by_half!(HalfFma, ty), 3),
            "min" => (by_half!(HalfMin, ty), 2),
            "max" => (by_half!(HalfMax, ty), 2),
            "neg" => (by_half!(HalfNeg, ty), 1),
            "abs" => (by_half!(HalfAbs, ty), 1),
            _ => return Err(m.error("is not a supported form")),
        };
        self.half_op(i, m, ty, chosen, operands, flags)
    }

    fn half_op(
        &mut self,
        i: &Instruction,
        m: &Modifiers<'_>,
        ty: Type,
        chosen: Handler,
        operands: usize,
        flags: i64,
    ) -> Result<()> {
        self.count(i, m, operands + 1)?;
        let mut reads = self.sources(i, &[ty, ty, ty])?;
        // The operation reads three operands regardless of use.
        reads.resize(3, Source::Word(0));
        let write = self.target(&i.operands[0], Class::Word)?;
        self.lane(chosen, write, reads, flags);
        Ok(())
    }

    /// `rcp`, `sqrt`, `rsqrt`, `ex2`, `lg2`, `sin`, `cos`, `tanh`, `copysign`, `testp`.
    pub(super) fn function(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let opcode = i.opcode.as_str();
        let approximate = m.take("approx");
        let flush = m.take("ftz");
        let direction = m.rounding();
        let property =
            m.take_map(|text| lanes::TEST_PROPERTIES.iter().position(|&property| property == text));
        let ty = m.ty()?;
        let known = Direction::Nearest;
        let worst = approximate && self.accuracy == Accuracy::Worst;
        let chosen = match (opcode, ty) {
            (_, Type::F32) if worst => match opcode {
                "rcp" => flushed::<lanes::RcpWorst>(flush),
                "sqrt" => flushed::<lanes::SqrtWorst>(flush),
                "rsqrt" => flushed::<lanes::RsqrtWorst>(flush),
                "ex2" => flushed::<lanes::Ex2Worst>(flush),
                "lg2" => flushed::<lanes::Lg2Worst>(flush),
                "sin" => flushed::<lanes::SinWorst>(flush),
                "cos" => flushed::<lanes::CosWorst>(flush),
                "tanh" => flushed::<lanes::TanhWorst>(flush),
                _ => return Err(m.error("is not a supported form")),
            },
            ("copysign", Type::F32 | Type::F64) => {
                let chosen = unrounded!(FloatCopySign, ty, false);
                return self.plain(i, m, Some(chosen), ty, 2);
            }
            ("testp", Type::F32 | Type::F64) => return self.test(i, m, ty, property),
            ("rcp", Type::F64) if approximate => handler::<lanes::RcpHigh>(),
            ("rsqrt", Type::F64) if flush => handler::<lanes::RsqrtHigh>(),
            ("rsqrt", Type::F64) if approximate => handler::<lanes::RsqrtDouble>(),
            ("rcp" | "sqrt", Type::F32 | Type::F64) if approximate || direction.is_some() => {
                let direction = direction.unwrap_or(known);
                match opcode {
                    "rcp" => by_precision!(FloatRcp, ty, direction, flush, false),
                    _ => by_precision!(FloatSqrt, ty, direction, flush, false),
                }
            }
            ("tanh" | "ex2", Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)
                if approximate =>
            {
                let chosen = match opcode {
                    "tanh" if worst => by_half!(HalfTanhWorst, ty),
                    "tanh" => by_half!(HalfTanh, ty),
                    _ if worst => by_half!(HalfEx2Worst, ty),
                    _ => by_half!(HalfEx2, ty),
                };
                return self.half_op(i, m, ty, chosen, 1, 0);
            }
            (_, Type::F32) if approximate => match opcode {
                "rsqrt" => flushed::<lanes::Rsqrt>(flush),
                "ex2" => flushed::<lanes::Ex2>(flush),
                "lg2" => flushed::<lanes::Lg2>(flush),
                "sin" => flushed::<lanes::Sin>(flush),
                "cos" => flushed::<lanes::Cos>(flush),
                "tanh" => flushed::<lanes::Tanh>(flush),
                _ => return Err(m.error("is not a supported form")),
            },
            _ => return Err(m.error("is not a supported form")),
        };
        self.plain(i, m, Some(chosen), ty, 1)
    }

    fn test(
        &mut self,
        i: &Instruction,
        m: &Modifiers<'_>,
        ty: Type,
        property: Option<usize>,
    ) -> Result<()> {
        let Some(property) = property else {
            return Err(m.error("lacks a property"));
        };
        self.count(i, m, 2)?;
        let reads = self.sources(i, &[ty])?;
        let write = self.target(&i.operands[0], Class::Pred)?;
        self.lane(unrounded!(FloatTest, ty, false), write, reads, property as i64);
        Ok(())
    }
}
