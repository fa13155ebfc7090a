//! Ranges of bits: `szext`, `bmsk`, and `fns`, which finds a set bit.

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::types::{Class, Type};

impl Decoder<'_> {
    pub(super) fn bit_range(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if i.opcode == "fns" {
            if !m.take("b32") {
                return Err(m.error("is not a supported form"));
            }
            self.count(i, m, 4)?;
            let reads = self.sources(i, &[Type::B32, Type::U32, Type::S32])?;
            let write = self.target(&i.operands[0], Class::Word)?;
            self.lane(handler::<lanes::FindNth>(), write, reads, 0);
            return Ok(());
        }
        let clamp = m.take("clamp");
        if !clamp && !m.take("wrap") {
            return Err(m.error("lacks `.clamp` or `.wrap`"));
        }
        let ty = m.ty()?;
        let (chosen, signed) = match (i.opcode.as_str(), ty) {
            ("szext", Type::U32 | Type::S32) => (handler::<lanes::ExtendFrom>(), ty.signed()),
            ("bmsk", Type::B32) => (handler::<lanes::BitMask>(), false),
            _ => return Err(m.error("is not a supported form")),
        };
        self.count(i, m, 3)?;
        let reads = self.sources(i, &[ty, Type::U32])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        let flags = if clamp { lanes::CLAMPS } else { 0 } | if signed { lanes::SIGNED } else { 0 };
        self.lane(chosen, write, reads, flags);
        Ok(())
    }
}
