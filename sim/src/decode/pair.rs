//! Single-precision arithmetic on pairs (`.f32x2`), and with 16-bit operands (`.f32.f16`).

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::{Handler, Kind};
use crate::rounding::Direction;
use crate::types::{Class, Type};

impl Decoder<'_> {
    /// Decodes `.f32x2`: the operation of `.f32` on each half of 64-bit registers.
    pub(super) fn pair_arithmetic(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let flush = m.take("ftz");
        let (chosen, operands) = self.single(i, m, flush, false)?;
        self.count(i, m, operands + 1)?;
        let wides = self.sources(i, &[Type::B64, Type::B64, Type::B64])?;
        let write = self.target(&i.operands[0], Class::Wide)?;
        let mut half = |part: fn(&mut Self, Source) -> Source| {
            let reads = wides.iter().map(|&wide| part(self, wide)).collect();
            self.emit_new(Class::Word, Kind::Lane(chosen), reads, 0)
        };
        let low = half(|decoder, wide| decoder.lane_new::<lanes::LowWord>(Class::Word, vec![wide]));
        let high =
            half(|decoder, wide| decoder.lane_new::<lanes::HighWord>(Class::Word, vec![wide]));
        self.lane(handler::<lanes::PackWords>(), write, vec![low, high], 0);
        Ok(())
    }

    /// Decodes `add`, `sub` and `fma` whose last operand is single and whose others have 16 bits,
    /// which convert exactly.
    pub(super) fn mixed_arithmetic(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        narrow: Type,
    ) -> Result<()> {
        if !matches!(i.opcode.as_str(), "add" | "sub" | "fma") {
            return Err(m.error("is not a supported form"));
        }
        let saturate = m.take("sat");
        let (chosen, operands) = self.single(i, m, false, saturate)?;
        self.count(i, m, operands + 1)?;
        let mut types = [narrow; 3];
        types[operands - 1] = Type::F32;
        let mut reads = self.sources(i, &types[..operands])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        for read in &mut reads[..operands - 1] {
            *read = match narrow {
                Type::F16 => self.lane_new::<lanes::SingleFromF16>(Class::Word, vec![*read]),
                _ => self.lane_new::<lanes::SingleFromBf16>(Class::Word, vec![*read]),
            };
        }
        self.lane(chosen, write, reads, 0);
        Ok(())
    }

    /// The operation on singles with its number of operands.
    fn single(
        &self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        flush: bool,
        saturate: bool,
    ) -> Result<(Handler, usize)> {
        let direction = m.rounding();
        if i.opcode == "fma" && direction.is_none() {
            return Err(m.error("lacks a rounding"));
        }
        let direction = direction.unwrap_or(Direction::Nearest);
        super::float::single_arithmetic(&i.opcode, direction, flush, saturate)
            .ok_or_else(|| m.error("is not a supported form"))
    }
}
