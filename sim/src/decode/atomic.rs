//! `atom` and `red`.

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::error::Result;
use crate::op::{Atomic, Kind, Modify};
use crate::types::Type;

impl Decoder<'_> {
    pub(super) fn atomic(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        self.take_strength(m);
        let window = self.take_window(m);
        let modify = m.take_map(modify);
        let Some(modify) = modify else {
            return Err(m.error("has no operation that is known"));
        };
        m.take("noftz");
        let ty = m.ty()?;
        if !known(modify, ty) {
            return Err(m.error("is not a form that is known"));
        }
        let returns = i.opcode == "atom";
        let compare = modify == Modify::Compare;
        self.count(i, m, 2 + usize::from(returns) + usize::from(compare))?;
        let at = usize::from(returns);
        let address = self.address(&i.operands[at], window)?;
        let mut reads = vec![address.base];
        for operand in &i.operands[at + 1..] {
            reads.push(self.source(operand, ty)?);
        }
        let write = match returns {
            true => self.target(&i.operands[0], ty.class())?,
            false => self.new_value(ty.class()),
        };
        let (window, wide_address) = (address.window, address.wide);
        let kind = Kind::Atomic(Atomic { window, modify, ty, wide_address });
        self.emit(kind, vec![write], reads, address.offset);
        Ok(())
    }
}

/// The operation that a modifier names.
pub(super) fn modify(text: &str) -> Option<Modify> {
    Some(match text {
        "add" => Modify::Add,
        "min" => Modify::Min,
        "max" => Modify::Max,
        "and" => Modify::And,
        "or" => Modify::Or,
        "xor" => Modify::Xor,
        "exch" => Modify::Exchange,
        "cas" => Modify::Compare,
        "inc" => Modify::Increment,
        "dec" => Modify::Decrement,
        _ => return None,
    })
}

/// Whether an operation has a form for a type.
pub(crate) fn known(modify: Modify, ty: Type) -> bool {
    use Type::*;
    match modify {
        Modify::Add => {
            matches!(ty, U32 | S32 | U64 | S64 | F32 | F64 | F16 | Bf16 | F16x2 | Bf16x2)
        }
        Modify::Min | Modify::Max => {
            matches!(ty, U32 | S32 | U64 | S64 | F16 | Bf16 | F16x2 | Bf16x2)
        }
        Modify::And | Modify::Or | Modify::Xor => matches!(ty, B32 | B64 | U32 | S32 | U64),
        Modify::Exchange => matches!(ty, B32 | B64 | U32 | S32 | U64 | F32),
        Modify::Compare => matches!(ty, B16 | B32 | B64 | U32 | S32 | U64),
        Modify::Increment | Modify::Decrement => ty == U32,
    }
}
