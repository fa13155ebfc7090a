//! Cache policies, which have no effect.

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::types::{Class, Type};

impl Decoder<'_> {
    /// A load, store or atomic without its policy, if it has one.
    pub(super) fn without_policy(&mut self, i: &Instruction) -> Result<Option<Instruction>> {
        let hint = |text: &String| text == "L2::cache_hint";
        let accesses = matches!(i.opcode.as_str(), "ld" | "st" | "atom" | "red");
        if !accesses || !i.modifiers.iter().any(hint) {
            return Ok(None);
        }
        let mut plain = i.clone();
        plain.modifiers.retain(|text| !hint(text));
        if let Some(policy) = plain.operands.pop() {
            self.source(&policy, Type::B64)?;
        }
        Ok(Some(plain))
    }

    pub(super) fn create_policy(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let (fractional, range) = (m.take("fractional"), m.take("range"));
        let convert = m.take("cvt") && m.take("L2");
        if range {
            m.take("global");
        }
        let priorities =
            ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];
        m.take_while(|text| priorities.contains(&text));
        if !fractional && !range && !convert || !m.take("b64") {
            return Err(m.error("is not a supported form"));
        }
        if fractional && i.operands.len() == 1 {
            let write = self.target(&i.operands[0], Class::Wide)?;
            self.copy(write, Source::Wide(0));
            return Ok(());
        }
        self.count(i, m, if range { 4 } else { 2 })?;
        let write = self.target(&i.operands[0], Class::Wide)?;
        self.copy(write, Source::Wide(0));
        Ok(())
    }
}
