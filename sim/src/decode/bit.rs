//! Logic, shifts, bit fields, selection and moves.

use super::arithmetic::by_integer;
use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::{Handler, Kind};
use crate::types::{Class, Type};

macro_rules! by_class {
    ($op:ident, $ty:expr) => {
        match $ty.class() {
            Class::Pred => handler::<lanes::$op<bool>>(),
            Class::Word => handler::<lanes::$op<u32>>(),
            Class::Wide => handler::<lanes::$op<u64>>(),
        }
    };
}

macro_rules! by_field {
    ($op:ident, $ty:expr) => {
        match $ty {
            Type::B32 | Type::U32 => Some(handler::<lanes::$op<u32>>()),
            Type::S32 => Some(handler::<lanes::$op<i32>>()),
            Type::B64 | Type::U64 => Some(handler::<lanes::$op<u64>>()),
            Type::S64 => Some(handler::<lanes::$op<i64>>()),
            _ => None,
        }
    };
}

impl Decoder<'_> {
    pub(super) fn bits(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        match i.opcode.as_str() {
            "shf" => self.funnel(i, m),
            "selp" | "slct" => self.select(i, m),
            "prmt" | "lop3" => self.permute(i, m),
            "bfe" | "bfi" => self.field(i, m),
            "popc" | "clz" | "bfind" => self.measure(i, m),
            opcode => {
                let ty = m.ty()?;
                let (chosen, types, operands): (Option<Handler>, [Type; 2], usize) = match opcode {
                    "and" => (Some(by_class!(And, ty)), [ty, ty], 2),
                    "or" => (Some(by_class!(Or, ty)), [ty, ty], 2),
                    "xor" => (Some(by_class!(Xor, ty)), [ty, ty], 2),
                    "not" => (Some(by_class!(Not, ty)), [ty, ty], 1),
                    "cnot" => (by_integer!(LogicalNot, ty), [ty, ty], 1),
                    "shl" => (by_integer!(ShiftLeft, ty), [ty, Type::U32], 2),
                    "shr" => (by_integer!(ShiftRight, ty), [ty, Type::U32], 2),
                    "brev" => (by_field!(Reverse, ty), [ty, ty], 1),
                    _ => (None, [ty, ty], 0),
                };
                self.shaped(i, m, chosen, &types[..operands], ty.class())
            }
        }
    }

    /// Decodes an operation with the given operand types.
    fn shaped(
        &mut self,
        i: &Instruction,
        m: &Modifiers<'_>,
        chosen: Option<Handler>,
        types: &[Type],
        result: Class,
    ) -> Result<()> {
        let Some(chosen) = chosen else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, types.len() + 1)?;
        let reads = self.sources(i, types)?;
        let write = self.target(&i.operands[0], result)?;
        self.lane(chosen, write, reads, 0);
        Ok(())
    }

    fn measure(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let shift = m.take("shiftamt");
        let ty = m.ty()?;
        let chosen = match i.opcode.as_str() {
            _ if shift && i.opcode != "bfind" => None,
            "popc" => by_field!(Population, ty),
            "clz" => by_field!(LeadingZeros, ty),
            _ if shift => by_field!(FindShift, ty),
            _ => by_field!(Find, ty),
        };
        self.shaped(i, m, chosen, &[ty], Class::Word)
    }

    fn funnel(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let left = m.take("l");
        if !left && !m.take("r") {
            return Err(m.error("lacks `.l` or `.r`"));
        }
        let clamp = m.take("clamp");
        if !clamp && !m.take("wrap") {
            return Err(m.error("lacks `.clamp` or `.wrap`"));
        }
        let ty = m.ty()?;
        let chosen = match (left, clamp) {
            (true, true) => handler::<lanes::FunnelLeftClamp>(),
            (true, false) => handler::<lanes::FunnelLeftWrap>(),
            (false, true) => handler::<lanes::FunnelRightClamp>(),
            (false, false) => handler::<lanes::FunnelRightWrap>(),
        };
        let chosen = (ty == Type::B32).then_some(chosen);
        self.shaped(i, m, chosen, &[ty, ty, Type::U32], Class::Word)
    }

    fn select(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let flush = m.take("ftz");
        let ty = m.ty()?;
        let wide = match ty.class() {
            Class::Wide => true,
            Class::Word => false,
            Class::Pred => return Err(m.error("is not a supported form")),
        };
        if i.opcode == "selp" {
            let chosen = match wide {
                false => handler::<lanes::Select<u32>>(),
                true => handler::<lanes::Select<u64>>(),
            };
            let chosen = (!flush).then_some(chosen);
            return self.shaped(i, m, chosen, &[ty, ty, Type::Pred], ty.class());
        }
        let sign = m.ty()?;
        let chosen = match (wide, sign) {
            (false, Type::S32) => Some(handler::<lanes::SelectSigned<u32>>()),
            (true, Type::S32) => Some(handler::<lanes::SelectSigned<u64>>()),
            (false, Type::F32) if flush => Some(handler::<lanes::SelectSignedFlushed<u32>>()),
            (true, Type::F32) if flush => Some(handler::<lanes::SelectSignedFlushed<u64>>()),
            (false, Type::F32) => Some(handler::<lanes::SelectSignedFloat<u32>>()),
            (true, Type::F32) => Some(handler::<lanes::SelectSignedFloat<u64>>()),
            _ => None,
        };
        let chosen = chosen.filter(|_| !flush || sign == Type::F32);
        self.shaped(i, m, chosen, &[ty, ty, sign], ty.class())
    }

    fn permute(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let ty = m.ty()?;
        if ty != Type::B32 {
            return Err(m.error("is not a supported form"));
        }
        if let Some(Operand::Pair(word, truth)) = i.operands.first() {
            return self.logic_and_test(i, m, word, truth);
        }
        if i.opcode == "lop3" {
            self.count(i, m, 5)?;
            let write = self.target(&i.operands[0], Class::Word)?;
            let Operand::Int(table) = i.operands[4] else {
                return Err(m.error("lacks a truth table"));
            };
            let reads = self.sources(i, &[ty, ty, ty])?;
            self.lane(handler::<lanes::Logic>(), write, reads, table);
            return Ok(());
        }
        self.count(i, m, 4)?;
        let write = self.target(&i.operands[0], Class::Word)?;
        const MODES: [&str; 6] = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"];
        let mode = m.take_map(|text| MODES.iter().position(|&mode| mode == text));
        let reads = self.sources(i, &[ty, ty, ty])?;
        let mode = mode.map_or(0, |mode| mode as i64 + 1);
        self.lane(handler::<lanes::Permute>(), write, reads, mode);
        Ok(())
    }

    /// Decodes `lop3` with a second result: whether the first is not 0, combined with a predicate.
    fn logic_and_test(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        word: &Operand,
        truth: &Operand,
    ) -> Result<()> {
        let combine = m.take_map(|text| match text {
            "or" => Some(handler::<lanes::Or<bool>>()),
            "and" => Some(handler::<lanes::And<bool>>()),
            _ => None,
        });
        let Some(combine) = combine.filter(|_| i.opcode == "lop3") else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 6)?;
        let Operand::Int(table) = i.operands[4] else {
            return Err(m.error("lacks a truth table"));
        };
        let ty = Type::B32;
        let reads = self.sources(i, &[ty, ty, ty])?;
        let other = self.source(&i.operands[5], Type::Pred)?;
        let kind = Kind::Lane(handler::<lanes::Logic>());
        let value = self.emit_new(Class::Word, kind, reads, table);
        let nonzero = vec![value, Source::Word(0)];
        let nonzero = self.lane_new::<lanes::NotEqual<u32>>(Class::Pred, nonzero);
        let truth = self.target(truth, Class::Pred)?;
        self.lane(combine, truth, vec![nonzero, other], 0);
        let word = self.target(word, Class::Word)?;
        self.copy(word, value);
        Ok(())
    }

    fn field(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let ty = m.ty()?;
        if i.opcode == "bfe" {
            let chosen = by_field!(Extract, ty);
            return self.shaped(i, m, chosen, &[ty, Type::U32, Type::U32], ty.class());
        }
        let Some(chosen) = by_field!(Insert, ty) else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 5)?;
        let reads = self.sources(i, &[ty, ty, Type::U32, Type::U32])?;
        let range = self.lane_new::<lanes::InsertRange>(Class::Word, reads[2..].to_vec());
        let write = self.target(&i.operands[0], ty.class())?;
        self.lane(chosen, write, vec![reads[0], reads[1], range], 0);
        Ok(())
    }

    pub(super) fn copy(&mut self, write: crate::draft::Value, read: Source) {
        let chosen = match self.class(write) {
            Class::Pred => handler::<lanes::Move<bool>>(),
            Class::Word => handler::<lanes::Move<u32>>(),
            Class::Wide => handler::<lanes::Move<u64>>(),
        };
        self.lane(chosen, write, vec![read], 0);
    }

    pub(super) fn mov(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if m.take("b128") {
            return self.mov_pair(i, m);
        }
        let ty = m.ty()?;
        self.count(i, m, 2)?;
        match (&i.operands[0], &i.operands[1]) {
            (Operand::Vector(parts), source) => self.unpack(m, ty, parts, source),
            (target, Operand::Vector(parts)) => {
                let packed = self.pack(m, ty, parts)?;
                let write = self.target(target, ty.class())?;
                self.copy(write, packed);
                Ok(())
            }
            (target, source) => {
                let read = self.source(source, ty)?;
                let write = self.target(target, ty.class())?;
                self.copy(write, read);
                Ok(())
            }
        }
    }

    /// Decodes `mov.b128`, which copies a 128-bit register, or packs or unpacks two 64-bit ones.
    fn mov_pair(&mut self, i: &Instruction, m: &Modifiers<'_>) -> Result<()> {
        self.count(i, m, 2)?;
        let reads = match &i.operands[1] {
            Operand::Vector(parts) if parts.len() == 2 => {
                [self.source(&parts[0], Type::B64)?, self.source(&parts[1], Type::B64)?]
            }
            source => self.halves(source)?.map(Source::Value),
        };
        let writes = match &i.operands[0] {
            Operand::Vector(parts) if parts.len() == 2 => {
                [self.target(&parts[0], Class::Wide)?, self.target(&parts[1], Class::Wide)?]
            }
            target => self.halves(target)?,
        };
        // A destination may be the other half's source.
        let kept = self.lane_new::<lanes::Move<u64>>(Class::Wide, vec![reads[1]]);
        self.copy(writes[0], reads[0]);
        self.copy(writes[1], kept);
        Ok(())
    }

    /// Packs two or four parts, low part first: `mov.b64 rd, {a, b}`.
    fn pack(&mut self, m: &Modifiers<'_>, ty: Type, parts: &[Operand]) -> Result<Source> {
        let part = match (ty.bytes(), parts.len()) {
            (2, 2) => Type::B8,
            (4, 2) => Type::B16,
            (4, 4) => Type::B8,
            (8, 2) => Type::B32,
            (8, 4) => Type::B16,
            _ => return Err(m.error("is not a supported form")),
        };
        let mut reads = Vec::new();
        for operand in parts {
            reads.push(self.source(operand, part)?);
        }
        while reads.len() > 1 {
            let kind = match (part.bytes(), parts.len() / reads.len() * part.bytes() as usize) {
                (_, 1) => handler::<lanes::PackBytes>(),
                (_, 2) => handler::<lanes::PackHalves>(),
                _ => handler::<lanes::PackWords>(),
            };
            let class = if reads.len() == 2 { ty.class() } else { Class::Word };
            reads = reads
                .chunks(2)
                .map(|pair| self.emit_new(class, Kind::Lane(kind), pair.to_vec(), 0))
                .collect();
        }
        Ok(reads[0])
    }

    /// Unpacks a register: `mov.b64 {a, b}, rd`. No part can alias the source, which is wider.
    fn unpack(
        &mut self,
        m: &Modifiers<'_>,
        ty: Type,
        parts: &[Operand],
        source: &Operand,
    ) -> Result<()> {
        let whole = self.source(source, ty)?;
        let word = |decoder: &mut Self, high: bool, whole: Source| match high {
            false => decoder.lane_new::<lanes::LowWord>(Class::Word, vec![whole]),
            true => decoder.lane_new::<lanes::HighWord>(Class::Word, vec![whole]),
        };
        let high_half = |decoder: &mut Self, whole: Source| {
            decoder.lane_new::<lanes::HighHalf>(Class::Word, vec![whole])
        };
        let high_byte = |decoder: &mut Self, whole: Source| {
            decoder.lane_new::<lanes::HighByte>(Class::Word, vec![whole])
        };
        let values = match (ty.bytes(), parts.len()) {
            (2, 2) => vec![whole, high_byte(self, whole)],
            (4, 2) => vec![whole, high_half(self, whole)],
            (4, 4) => {
                let high = high_half(self, whole);
                vec![whole, high_byte(self, whole), high, high_byte(self, high)]
            }
            (8, 2) => vec![word(self, false, whole), word(self, true, whole)],
            (8, 4) => {
                let (low, high) = (word(self, false, whole), word(self, true, whole));
                vec![low, high_half(self, low), high, high_half(self, high)]
            }
            _ => return Err(m.error("is not a supported form")),
        };
        for (part, value) in parts.iter().zip(values) {
            if !matches!(part, Operand::Sink) {
                let write = self.target(part, Class::Word)?;
                self.copy(write, value);
            }
        }
        Ok(())
    }
}
