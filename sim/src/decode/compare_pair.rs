//! `setp` and `set` on packed pairs of 16-bit values.

use super::relation::{comparison, truth};
use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::{Handler, Kind};
use crate::types::{Class, Type};

impl Decoder<'_> {
    pub(super) fn compare_pair(
        &mut self,
        i: &Instruction,
        m: &Modifiers<'_>,
        (relation, combine, flush): (&str, Option<Handler>, bool),
        result: Option<Type>,
        ty: Type,
    ) -> Result<()> {
        let half = if ty == Type::F16x2 { Type::F16 } else { Type::Bf16 };
        let missing = || m.error("is not a supported form");
        let chosen = comparison(relation, half, flush).ok_or_else(missing)?;
        self.count(i, m, 3 + usize::from(combine.is_some()))?;
        let low = self.sources(i, &[ty, ty])?[..2].to_vec();
        let high: Vec<Source> = low
            .iter()
            .map(|&read| self.lane_new::<lanes::HighHalf>(Class::Word, vec![read]))
            .collect();
        let mut holds = Vec::new();
        for reads in [low, high] {
            let mut truth = self.emit_new(Class::Pred, Kind::Lane(chosen), reads, 0);
            if let Some(combine) = combine {
                let other = self.source(&i.operands[3], Type::Pred)?;
                truth = self.emit_new(Class::Pred, Kind::Lane(combine), vec![truth, other], 0);
            }
            holds.push(truth);
        }
        match (result, &i.operands[0]) {
            (None, Operand::Pair(p, q)) => {
                for (operand, truth) in [p, q].into_iter().zip(holds) {
                    let write = self.target(operand, Class::Pred)?;
                    self.lane(handler::<lanes::Move<bool>>(), write, vec![truth], 0);
                }
                Ok(())
            }
            (Some(result), operand) => {
                let each = match result {
                    Type::U32 | Type::S32 => 0xffff,
                    Type::F16x2 | Type::Bf16x2 => truth(result).ok_or_else(missing)?,
                    _ => return Err(missing()),
                };
                let write = self.target(operand, Class::Word)?;
                self.lane(handler::<lanes::SetHalves>(), write, holds, each);
                Ok(())
            }
            _ => Err(missing()),
        }
    }
}
