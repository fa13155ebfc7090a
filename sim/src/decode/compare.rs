//! `setp` and `set`.

use super::relation::{RELATIONS, comparison, truth};
use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::Kind;
use crate::types::{Class, Type};

impl Decoder<'_> {
    /// `setp` and `set`.
    pub(super) fn compare(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let relation = m.take_map(|text| RELATIONS.iter().find(|&&name| name == text).copied());
        let Some(relation) = relation else {
            return Err(m.error("lacks a comparison"));
        };
        let combine = m.take_map(|text| match text {
            "and" => Some(handler::<lanes::And<bool>>()),
            "or" => Some(handler::<lanes::Or<bool>>()),
            "xor" => Some(handler::<lanes::Xor<bool>>()),
            _ => None,
        });
        let flush = m.take("ftz");
        let result = if i.opcode == "set" { Some(m.ty()?) } else { None };
        let ty = m.ty()?;
        if matches!(ty, Type::F16x2 | Type::Bf16x2) {
            return self.compare_pair(i, m, (relation, combine, flush), result, ty);
        }
        let Some(chosen) = comparison(relation, ty, flush) else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 3 + usize::from(combine.is_some()))?;
        let reads = self.sources(i, &[ty, ty])?[..2].to_vec();
        let other = match combine {
            Some(_) => Some(self.source(&i.operands[3], Type::Pred)?),
            None => None,
        };
        let combined = |decoder: &mut Self, truth: Source| match (combine, other) {
            (Some(combine), Some(other)) => {
                decoder.emit_new(Class::Pred, Kind::Lane(combine), vec![truth, other], 0)
            }
            _ => truth,
        };
        if let (None, Operand::Register(_), None) = (result, &i.operands[0], combine) {
            let write = self.target(&i.operands[0], Class::Pred)?;
            self.lane(chosen, write, reads, 0);
            return Ok(());
        }
        let truth = self.emit_new(Class::Pred, Kind::Lane(chosen), reads, 0);
        let negated = match truth {
            Source::Value(value) => Source::Negated(value),
            other => other,
        };
        let first = combined(self, truth);
        let copy = handler::<lanes::Move<bool>>();
        match (result, &i.operands[0]) {
            (Some(result), operand) => return self.set(m, operand, first, result),
            (None, Operand::Pair(p, q)) => {
                let second = combined(self, negated);
                let p = self.target(p, Class::Pred)?;
                let q = self.target(q, Class::Pred)?;
                self.lane(copy, p, vec![first], 0);
                self.lane(copy, q, vec![second], 0);
            }
            (None, operand) => {
                let write = self.target(operand, Class::Pred)?;
                self.lane(copy, write, vec![first], 0);
            }
        }
        Ok(())
    }

    /// Emits the value of `set` for a true comparison: all ones, or one.
    fn set(
        &mut self,
        m: &Modifiers<'_>,
        operand: &Operand,
        holds: Source,
        result: Type,
    ) -> Result<()> {
        let write = self.target(operand, Class::Word)?;
        match (result, truth(result)) {
            (Type::F32, _) => self.lane(handler::<lanes::SetFloat>(), write, vec![holds], 0),
            (Type::U32 | Type::S32 | Type::B32, _) => {
                self.lane(handler::<lanes::SetOnes>(), write, vec![holds], 0);
            }
            (_, Some(truth)) => {
                let reads = vec![holds, Source::Bool(false)];
                self.lane(handler::<lanes::SetHalves>(), write, reads, truth);
            }
            _ => return Err(m.error("is not a supported form")),
        }
        Ok(())
    }
}
