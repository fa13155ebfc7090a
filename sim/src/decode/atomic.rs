//! `atom` and `red`.

use super::{Decoder, Modifiers};
use crate::access::{Atomic, Modify, Window};
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::op::Kind;
use crate::types::{Class, Type};

impl Decoder<'_> {
    pub(super) fn atomic(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        self.take_strength(m);
        let window = self.take_window(m);
        let modify = m.take_map(modify);
        let Some(modify) = modify else {
            return Err(m.error("has no known operation"));
        };
        m.take("noftz");
        if m.take("b128") {
            return self.atomic_pair(i, m, (window, modify));
        }
        let vector = self.take_vector(m);
        let ty = m.ty()?;
        if !known(modify, ty) {
            return Err(m.error("is not a supported form"));
        }
        if let Some(count) = vector {
            return self.atomic_vector(i, m, (window, modify, ty), count);
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

    /// Decodes an exchange or compare-and-swap of 128 bits.
    fn atomic_pair(
        &mut self,
        i: &Instruction,
        m: &Modifiers<'_>,
        (window, modify): (Window, Modify),
    ) -> Result<()> {
        let compare = modify == Modify::Compare;
        if i.opcode != "atom" || !compare && modify != Modify::Exchange {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 3 + usize::from(compare))?;
        let address = self.address(&i.operands[1], window)?;
        let mut reads = vec![address.base];
        for operand in &i.operands[2..] {
            reads.extend(self.halves(operand)?.map(Source::Value));
        }
        let writes = self.halves(&i.operands[0])?.to_vec();
        let (window, wide_address) = (address.window, address.wide);
        let kind = Kind::Atomic(Atomic { window, modify, ty: Type::B128, wide_address });
        self.emit(kind, writes, reads, address.offset);
        Ok(())
    }

    /// Decodes a vector atomic as one atomic per element; only the elements are atomic.
    fn atomic_vector(
        &mut self,
        i: &Instruction,
        m: &Modifiers<'_>,
        (window, modify, ty): (Window, Modify, Type),
        count: usize,
    ) -> Result<()> {
        let half = matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
        let bytes = count as u32 * ty.bytes();
        if window != Window::Global || bytes > 16 || !half && ty != Type::F32 {
            return Err(m.error("is not a supported form"));
        }
        let at = usize::from(i.opcode == "atom");
        self.count(i, m, 2 + at)?;
        let address = self.address(&i.operands[at], window)?;
        let values = self.vector(m, &i.operands[at + 1], count, ty)?;
        let writes = match at {
            1 => self.targets(m, &i.operands[0], count, Class::Word)?,
            _ => (0..count).map(|_| self.new_value(Class::Word)).collect(),
        };
        let kind = Kind::Atomic(Atomic { window, modify, ty, wide_address: address.wide });
        for (index, (write, value)) in writes.into_iter().zip(values).enumerate() {
            let offset = address.offset + index as i64 * i64::from(ty.bytes());
            self.emit(kind, vec![write], vec![address.base, value], offset);
        }
        Ok(())
    }
}

/// Parses the operation of an atomic.
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

/// Whether PTX has the operation for a type.
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
