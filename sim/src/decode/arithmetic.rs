//! Integer arithmetic, and dispatch between integer and floating-point arithmetic.

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::{Handler, Kind};
use crate::types::{Class, Type};

/// Selects the operation for an integer type; untyped bits are unsigned.
macro_rules! by_integer {
    ($op:ident, $ty:expr) => {
        match $ty {
            Type::U16 | Type::B16 => Some(handler::<lanes::$op<u16>>()),
            Type::S16 => Some(handler::<lanes::$op<i16>>()),
            Type::U32 | Type::B32 => Some(handler::<lanes::$op<u32>>()),
            Type::S32 => Some(handler::<lanes::$op<i32>>()),
            Type::U64 | Type::B64 => Some(handler::<lanes::$op<u64>>()),
            Type::S64 => Some(handler::<lanes::$op<i64>>()),
            _ => None,
        }
    };
}
pub(super) use by_integer;

/// Selects the operation for an integer type that can be doubled.
macro_rules! by_narrow_integer {
    ($op:ident, $ty:expr) => {
        match $ty {
            Type::U16 => Some(handler::<lanes::$op<u16>>()),
            Type::S16 => Some(handler::<lanes::$op<i16>>()),
            Type::U32 => Some(handler::<lanes::$op<u32>>()),
            Type::S32 => Some(handler::<lanes::$op<i32>>()),
            _ => None,
        }
    };
}

/// The type of twice the width.
fn doubled(ty: Type) -> Type {
    match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        _ => Type::S64,
    }
}

impl Decoder<'_> {
    pub(super) fn arithmetic(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let opcode = i.opcode.as_str();
        if i.modifiers.iter().any(|text| text == "cc") || matches!(opcode, "addc" | "subc" | "madc")
        {
            return self.with_carry(i, m);
        }
        if matches!(opcode, "dp4a" | "dp2a") {
            return self.dot(i, m);
        }
        if m.take("f32x2") {
            return self.pair_arithmetic(i, m);
        }
        if m.has("u16x2") || m.has("s16x2") {
            return self.integer_pair(i, m);
        }
        let ty = m.ty()?;
        match ty {
            Type::F32 if m.has("f16") || m.has("bf16") => {
                let narrow = m.ty()?;
                return self.mixed_arithmetic(i, m, narrow);
            }
            Type::F32 | Type::F64 => return self.float_arithmetic(i, m, ty),
            Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 => {
                return self.half_arithmetic(i, m, ty);
            }
            _ => {}
        }
        match opcode {
            "mul" | "mad" => self.multiply(i, m, ty),
            "mul24" | "mad24" => self.multiply_24(i, m, ty),
            _ => {
                let saturate = ty == Type::S32 && m.take("sat");
                let relu = ty == Type::S32 && matches!(opcode, "min" | "max") && m.take("relu");
                let (chosen, operands) = match opcode {
                    "min" if relu => (Some(handler::<lanes::MinRelu>()), 2),
                    "max" if relu => (Some(handler::<lanes::MaxRelu>()), 2),
                    "add" if saturate => (Some(handler::<lanes::AddSat>()), 2),
                    "sub" if saturate => (Some(handler::<lanes::SubSat>()), 2),
                    _ if saturate => (None, 2),
                    "add" => (by_integer!(IntAdd, ty), 2),
                    "sub" => (by_integer!(IntSub, ty), 2),
                    "div" => (by_integer!(IntDiv, ty), 2),
                    "rem" => (by_integer!(IntRem, ty), 2),
                    "min" => (by_integer!(IntMin, ty), 2),
                    "max" => (by_integer!(IntMax, ty), 2),
                    "abs" => (by_integer!(IntAbs, ty), 1),
                    "neg" => (by_integer!(IntNeg, ty), 1),
                    "sad" => (by_integer!(IntSad, ty), 3),
                    _ => (None, 0),
                };
                self.plain(i, m, chosen, ty, operands)
            }
        }
    }

    /// Decodes an operation whose operands and result have one type.
    pub(super) fn plain(
        &mut self,
        i: &Instruction,
        m: &Modifiers<'_>,
        chosen: Option<Handler>,
        ty: Type,
        operands: usize,
    ) -> Result<()> {
        let Some(chosen) = chosen else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, operands + 1)?;
        let reads = self.sources(i, &[ty, ty, ty])?;
        let write = self.target(&i.operands[0], ty.class())?;
        self.lane(chosen, write, reads, 0);
        Ok(())
    }

    fn multiply(&mut self, i: &Instruction, m: &mut Modifiers<'_>, ty: Type) -> Result<()> {
        let mad = i.opcode == "mad";
        if m.take("wide") {
            let chosen = match mad {
                false => by_narrow_integer!(IntMulWide, ty),
                true => by_narrow_integer!(IntMadWide, ty),
            };
            let Some(chosen) = chosen else {
                return Err(m.error("is not a supported form"));
            };
            self.count(i, m, 3 + usize::from(mad))?;
            let reads = self.sources(i, &[ty, ty, doubled(ty)])?;
            let write = self.target(&i.operands[0], doubled(ty).class())?;
            self.lane(chosen, write, reads, 0);
            return Ok(());
        }
        let high = m.take("hi");
        if !high && !m.take("lo") {
            return Err(m.error("lacks `.lo`, `.hi` or `.wide`"));
        }
        let chosen = match (mad, high) {
            (false, false) => by_integer!(IntMulLow, ty),
            (false, true) => by_integer!(IntMulHigh, ty),
            (true, false) => by_integer!(IntMadLow, ty),
            (true, true) => by_integer!(IntMadHigh, ty),
        };
        self.plain(i, m, chosen, ty, 2 + usize::from(mad))
    }

    fn multiply_24(&mut self, i: &Instruction, m: &mut Modifiers<'_>, ty: Type) -> Result<()> {
        let high = m.take("hi");
        if !high && !m.take("lo") {
            return Err(m.error("lacks `.lo` or `.hi`"));
        }
        let product = match (ty, high) {
            (Type::U32, false) => handler::<lanes::Mul24LowU>(),
            (Type::U32, true) => handler::<lanes::Mul24HighU>(),
            (Type::S32, false) => handler::<lanes::Mul24LowS>(),
            (Type::S32, true) => handler::<lanes::Mul24HighS>(),
            _ => return Err(m.error("is not a supported form")),
        };
        if i.opcode == "mul24" {
            return self.plain(i, m, Some(product), ty, 2);
        }
        self.count(i, m, 4)?;
        let reads = self.sources(i, &[ty, ty, ty])?;
        let product = self.emit_new(Class::Word, Kind::Lane(product), reads[..2].to_vec(), 0);
        let write = self.target(&i.operands[0], Class::Word)?;
        self.lane(handler::<lanes::IntAdd<u32>>(), write, vec![product, reads[2]], 0);
        Ok(())
    }

    fn dot(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let dot = match i.opcode.as_str() {
            "dp4a" => handler::<lanes::Dp4a>(),
            _ if m.take("lo") => handler::<lanes::Dp2aLow>(),
            _ if m.take("hi") => handler::<lanes::Dp2aHigh>(),
            _ => return Err(m.error("is not a supported form")),
        };
        let (a, b) = (m.ty()?, m.ty()?);
        if ![a, b].iter().all(|ty| matches!(ty, Type::U32 | Type::S32)) {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 4)?;
        let reads = self.sources(i, &[a, b, Type::B32])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        let imm = i64::from(a.signed()) | i64::from(b.signed()) << 1;
        self.lane(dot, write, reads, imm);
        Ok(())
    }

    /// The carry flag, a virtual predicate.
    fn carry(&mut self) -> Source {
        if self.carry.is_none() {
            self.carry = Some(self.new_value(Class::Pred));
        }
        Source::Value(self.carry.expect("the carry was just made"))
    }

    /// Decodes `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc` and `madc`. The flag is computed first,
    /// into a new register, since the result may overwrite an operand.
    ///
    /// A subtraction is the sum `a + !b + carry`, as hardware has it: after one the flag is 1 where
    /// nothing was borrowed. Compilers let an addition follow.
    fn with_carry(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let sets = m.take("cc");
        let uses = i.opcode.len() == 4;
        let multiplies = i.opcode.starts_with("mad");
        let ty = m.ty()?;
        let high = multiplies && m.take("hi");
        if multiplies && !high && !m.take("lo") {
            return Err(m.error("lacks `.lo` or `.hi`"));
        }
        self.count(i, m, 3 + usize::from(multiplies))?;
        let mut reads = self.sources(i, &[ty, ty, ty])?;
        let missing = || m.error("is not a supported form");
        if multiplies {
            let product =
                if high { by_integer!(IntMulHigh, ty) } else { by_integer!(IntMulLow, ty) };
            let kind = Kind::Lane(product.ok_or_else(missing)?);
            let product = self.emit_new(ty.class(), kind, reads[..2].to_vec(), 0);
            reads = vec![product, reads[2]];
        }
        let subtracts = i.opcode.starts_with("sub");
        let (value, flag) = if subtracts {
            (by_integer!(SubCarry, ty), by_integer!(SubCarryOut, ty))
        } else {
            (by_integer!(AddCarry, ty), by_integer!(AddCarryOut, ty))
        };
        let (value, flag) = (value.ok_or_else(missing)?, flag.ok_or_else(missing)?);
        let carry = self.carry();
        reads.push(if uses { carry } else { Source::Bool(subtracts) });
        let write = self.target(&i.operands[0], ty.class())?;
        let next = self.emit_new(Class::Pred, Kind::Lane(flag), reads.clone(), 0);
        self.lane(value, write, reads, 0);
        if let (true, Source::Value(carry)) = (sets, carry) {
            self.lane(handler::<lanes::Move<bool>>(), carry, vec![next], 0);
        }
        Ok(())
    }
}
