//! `cvt` of packed pairs of floats of 4 and 6 bits, and of exponents (`ue8m0`).

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::rounding::Direction;
use crate::types::{Class, Type};

/// Bits of the exponent and the fraction.
fn format(text: &str) -> Option<i64> {
    match text {
        "e2m1x2" => Some(lanes::narrow_format(2, 1)),
        "e2m3x2" => Some(lanes::narrow_format(2, 3)),
        "e3m2x2" => Some(lanes::narrow_format(3, 2)),
        _ => None,
    }
}

impl Decoder<'_> {
    pub(super) fn convert_narrow(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let to_narrow = m.next_is(|text| format(text).is_some(), ["f32", "f16x2"]);
        let bounded = m.take("satfinite");
        let relu = if m.take("relu") { lanes::RELU } else { 0 };
        let nearest = m.take("rn");
        let flags = m.take_map(format).unwrap_or_default();
        let other = m.ty()?;
        if !nearest {
            return Err(m.error("lacks `.rn`"));
        }
        let (chosen, types, class) = match (to_narrow, bounded, other) {
            (true, true, Type::F32) => {
                (handler::<lanes::NarrowFromSingles>(), vec![Type::F32; 2], Class::Word)
            }
            (false, false, Type::F16x2) => {
                (handler::<lanes::HalvesFromNarrow>(), vec![Type::B16], Class::Word)
            }
            _ => return Err(m.error("is not a supported form")),
        };
        self.count(i, m, types.len() + 1)?;
        let reads = self.sources(i, &types)?;
        let write = self.target(&i.operands[0], class)?;
        self.lane(chosen, write, reads, flags | relu);
        Ok(())
    }

    pub(super) fn convert_exponent(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
    ) -> Result<()> {
        let to_exponent = m.next_is(|text| text == "ue8m0x2", ["f32", "bf16x2"]);
        let bounded = m.take("satfinite");
        let direction = m.rounding();
        m.take("ue8m0x2");
        let other = m.ty()?;
        let up = match (to_exponent, direction) {
            (true, Some(Direction::Up)) => lanes::EXPONENT_UP,
            (true, Some(Direction::Zero)) => 0,
            (false, Some(Direction::Nearest)) => 0,
            _ => return Err(m.error("has an unsupported rounding")),
        };
        let (chosen, operands, from) = match (to_exponent, other) {
            (true, Type::F32) => (handler::<lanes::ExponentsFromSingles>(), 2, Type::F32),
            (true, Type::Bf16x2) => (handler::<lanes::ExponentsFromHalves>(), 1, Type::B32),
            (false, Type::Bf16x2) if !bounded => {
                (handler::<lanes::HalvesFromExponents>(), 1, Type::B16)
            }
            _ => return Err(m.error("is not a supported form")),
        };
        self.count(i, m, operands + 1)?;
        let reads = self.sources(i, &[from, from])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        let flags = up | if bounded { lanes::EXPONENT_FINITE } else { 0 };
        self.lane(chosen, write, reads, flags);
        Ok(())
    }
}
