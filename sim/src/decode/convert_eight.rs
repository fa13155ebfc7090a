//! `cvt` of packed pairs of 8-bit floats.

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::types::{Class, Type};

impl Decoder<'_> {
    pub(super) fn convert_eight(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let eight = |text: &str| match text {
            "e4m3x2" => Some(0),
            "e5m2x2" => Some(lanes::FORMAT_E5M2),
            _ => None,
        };
        let to_eight = m.next_is(|text| eight(text).is_some(), ["f32", "f16x2"]);
        let flags = m.take_map(eight).unwrap_or(0);
        let relu = if m.take("relu") { lanes::RELU } else { 0 };
        let (nearest, bounded) = (m.take("rn"), m.take("satfinite"));
        let other = m.ty()?;
        let form = (to_eight, bounded, other);
        let (chosen, operands) = match form {
            (true, true, Type::F32) => (handler::<lanes::EightFromSingles>(), 2),
            (true, true, Type::F16x2) => (handler::<lanes::EightFromHalves>(), 1),
            (false, false, Type::F16x2) => (handler::<lanes::HalvesFromEight>(), 1),
            _ => return Err(m.error("is not a supported form")),
        };
        if !nearest {
            return Err(m.error("lacks `.rn`"));
        }
        self.count(i, m, operands + 1)?;
        let from = if to_eight { other } else { Type::B16 };
        let reads = self.sources(i, &[from, from])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        self.lane(chosen, write, reads, flags | relu);
        Ok(())
    }
}
