//! `wgmma`.

use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::format::Format;
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::{Unit, WarpgroupMultiply};

impl Decoder<'_> {
    pub(super) fn warpgroup(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let product = m.take("mma_async");
        let unit = m.take_map(|text| match text {
            "fence" => Some(Unit::WarpgroupFence),
            "commit_group" => Some(Unit::WarpgroupCommit),
            "wait_group" => Some(Unit::WarpgroupWait),
            _ => None,
        });
        if !m.take("sync") || !m.take("aligned") || product == unit.is_some() {
            return Err(m.error("is not a supported form"));
        }
        match unit {
            None => self.warpgroup_multiply(i, m),
            Some(unit) => {
                let waits = unit == Unit::WarpgroupWait;
                let left = if waits { self.group_count(i, m)? } else { 0 };
                self.emit(Kind::Unit(unit), Vec::new(), Vec::new(), left);
                self.count(i, m, usize::from(waits))
            }
        }
    }

    fn warpgroup_multiply(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let shape = m.take_map(Format::shape);
        let mut format = || m.take_map(Format::from_name);
        let (Some(sum), Some(a), Some(b)) = (format(), format(), format()) else {
            return Err(m.error("is not a supported form"));
        };
        let saturate = a.integer() && m.take("satfinite");
        let Some([_, n, k]) = shape.filter(|&shape| known(shape, a, b, sum)) else {
            return Err(m.error("is not a supported form"));
        };
        let half = matches!(a, Format::F16 | Format::Bf16);
        let a_registers = matches!(i.operands.get(1), Some(Operand::Vector(_)));
        let literals = match (half, a.integer()) {
            (true, _) => 4 - usize::from(a_registers),
            (false, false) => 2,
            (false, true) => 0,
        };
        self.count(i, m, 4 + literals)?;
        let mut values = Vec::new();
        for (index, operand) in i.operands[4..].iter().enumerate() {
            match operand {
                Operand::Int(value @ (1 | -1)) if index < 2 => values.push(*value),
                Operand::Int(value @ (0 | 1)) if index >= 2 => values.push(*value),
                _ => return Err(m.error("has an unsupported scale or transposition")),
            }
        }
        let value = |index: usize| values.get(index).copied();
        let product = WarpgroupMultiply {
            n: n as u16,
            k: k as u8,
            a,
            b,
            sum,
            saturate,
            a_registers,
            negated: [value(0) == Some(-1), value(1) == Some(-1)],
            transposed: match a_registers {
                true => [false, value(2) == Some(1)],
                false => [value(2) == Some(1), value(3) == Some(1)],
            },
        };
        let registers = product.registers();
        let writes = self.targets(m, &i.operands[0], registers, Class::Word)?;
        let mut reads = match a_registers {
            true => self.vector(m, &i.operands[1], 4, Type::B32)?,
            false => vec![self.source(&i.operands[1], Type::B64)?],
        };
        reads.push(self.source(&i.operands[2], Type::B64)?);
        reads.push(self.source(&i.operands[3], Type::Pred)?);
        // The accumulators are read when issued and written when waited for.
        reads.extend(writes.iter().map(|&value| Source::Value(value)));
        self.accumulators.extend(&writes);
        self.emit(Kind::Unit(Unit::WarpgroupMultiply(product)), writes, reads, 0);
        Ok(())
    }

    /// Prevents accumulator registers from being reused until the wgmma is waited for.
    pub(super) fn hold_accumulators(&mut self) {
        self.accumulators.sort_unstable();
        self.accumulators.dedup();
        for draft in &mut self.drafts.ops {
            if let Kind::Unit(Unit::WarpgroupWait) = draft.kind {
                draft.reads = self.accumulators.iter().map(|&value| Source::Value(value)).collect();
            }
        }
    }
}

/// Whether `wgmma.mma_async` supports the shape and formats.
fn known([m, n, k]: [u32; 3], a: Format, b: Format, sum: Format) -> bool {
    use Format::*;
    let by_eight = n % 8 == 0 && (8..=256).contains(&n) && m == 64;
    let integer = n <= 32 || n % 16 == 0;
    by_eight
        && match (a, b, sum) {
            (F16, F16, F16 | F32) | (Bf16, Bf16, F32) => k == 16,
            (Tf32, Tf32, F32) => k == 8,
            (E4m3 | E5m2, E4m3 | E5m2, F16 | F32) => k == 32,
            (S8 | U8, S8 | U8, S32) => k == 32 && integer,
            _ => false,
        }
}
