//! `cp.async`, except TMA copies, and `mbarrier`.

use super::{Decoder, Modifiers};
use crate::access::Window;
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::{BarrierAction, MemoryBarrier, Unit};

impl Decoder<'_> {
    pub(super) fn asynchronous(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        m.take("reduce");
        if !m.take("async") {
            return Err(m.error("is not a supported form"));
        }
        if m.take("bulk") {
            return self.bulk(i, m);
        }
        if m.take("commit_group") {
            self.emit(Kind::Unit(Unit::CopyCommit), Vec::new(), Vec::new(), 0);
            return self.count(i, m, 0);
        }
        if m.take("wait_all") {
            self.emit(Kind::Unit(Unit::CopyWaitAll), Vec::new(), Vec::new(), 0);
            return self.count(i, m, 0);
        }
        if m.take("wait_group") {
            let left = self.group_count(i, m)?;
            self.emit(Kind::Unit(Unit::CopyWait), Vec::new(), Vec::new(), left);
            return Ok(());
        }
        if m.take("mbarrier") {
            return self.copy_arrive(i, m);
        }
        self.copy_bytes(i, m)
    }

    /// Parses the number of groups, a literal.
    pub(super) fn group_count(&self, i: &Instruction, m: &Modifiers<'_>) -> Result<i64> {
        match i.operands[..] {
            [Operand::Int(left)] if left >= 0 => Ok(left.min(u32::MAX.into())),
            _ => Err(m.error("lacks the number of groups")),
        }
    }

    fn copy_arrive(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let joins = !m.take("noinc");
        let window = self.take_window(m);
        if !m.take("arrive") || !m.take("b64") {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 1)?;
        let (window, address) = self.plain_address(&i.operands[0], window)?;
        let unit = Unit::CopyArrive { window, joins };
        self.emit(Kind::Unit(unit), Vec::new(), vec![address], 0);
        Ok(())
    }

    fn copy_bytes(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let (all, global) = (m.take("ca"), m.take("cg"));
        let shared = m.take("shared") || m.take("shared::cta");
        let hinted = m.take("L2::cache_hint");
        m.take_while(|text| text.starts_with("L2::"));
        let bytes = match i.operands.get(2) {
            Some(Operand::Int(bytes)) => *bytes,
            _ => 0,
        };
        let known = matches!(bytes, 4 | 8 if all) || bytes == 16 && (all || global);
        if !known || !shared || !m.take("global") {
            return Err(m.error("is not a supported form"));
        }
        let last = i.operands.len() - usize::from(hinted);
        if last > 4 {
            return Err(m.error(&format!("has {last} operands instead of 4 at most")));
        }
        let (_, to) = self.plain_address(&i.operands[0], Window::Shared)?;
        let (_, from) = self.plain_address(&i.operands[1], Window::Global)?;
        let (mut kept, mut ignored) = (Source::Word(bytes as u32), Source::Bool(false));
        if last == 4 {
            match &i.operands[3] {
                operand if self.is_predicate(operand) => {
                    ignored = self.source(operand, Type::Pred)?;
                }
                operand => kept = self.source(operand, Type::U32)?,
            }
        }
        let unit = Unit::Copy(bytes as u8);
        self.emit(Kind::Unit(unit), Vec::new(), vec![to, from, kept, ignored], 0);
        Ok(())
    }

    fn is_predicate(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Register(id) => {
                self.register(*id).is_ok_and(|value| self.class(value) == Class::Pred)
            }
            Operand::Not(_) => true,
            _ => false,
        }
    }

    /// Emits an address as one 64-bit operand, including its offset.
    pub(super) fn plain_address(
        &mut self,
        operand: &Operand,
        window: Window,
    ) -> Result<(Window, Source)> {
        let address = self.address(operand, window)?;
        let mut base = address.base;
        if let (false, Source::Value(_)) = (address.wide, base) {
            if address.offset != 0 {
                let reads = vec![base, Source::Word(address.offset as u32)];
                base = self.lane_new::<lanes::IntAdd<u32>>(Class::Word, reads);
            }
            let kind = Kind::Lane(handler::<lanes::ExtendWide<u32>>());
            return Ok((address.window, self.emit_new(Class::Wide, kind, vec![base], 0)));
        }
        if address.offset != 0 {
            let reads = vec![base, Source::Wide(address.offset as u64)];
            base = self.lane_new::<lanes::IntAdd<u64>>(Class::Wide, reads);
        }
        Ok((address.window, base))
    }

    pub(super) fn memory_barrier(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        self.take_strength(m);
        let parity = m.take("parity");
        let (expects, no_complete) = (m.take("expect_tx"), m.take("noComplete"));
        if m.take("pending_count") {
            m.take("b64");
            self.count(i, m, 2)?;
            let read = self.source(&i.operands[1], Type::B64)?;
            let write = self.target(&i.operands[0], Class::Word)?;
            self.emit(Kind::Unit(Unit::PendingCount), vec![write], vec![read], 0);
            return Ok(());
        }
        let action = m.take_map(|text| match text {
            "init" => Some(BarrierAction::Initialise),
            "inval" => Some(BarrierAction::Invalidate),
            "arrive" => Some(BarrierAction::Arrive { drops: false, no_complete }),
            "arrive_drop" => Some(BarrierAction::Arrive { drops: true, no_complete }),
            "complete_tx" => Some(BarrierAction::Complete),
            "test_wait" | "try_wait" if parity => Some(BarrierAction::TestParity),
            "test_wait" | "try_wait" => Some(BarrierAction::TestState),
            _ => None,
        });
        let action = action.or(expects.then_some(BarrierAction::Expect));
        let window = self.take_window(m);
        let Some(action) = action.filter(|_| m.take("b64")) else {
            return Err(m.error("is not a supported form"));
        };
        match action {
            BarrierAction::Arrive { .. } => self.barrier_arrive(i, m, window, action, expects),
            BarrierAction::TestState | BarrierAction::TestParity => {
                self.barrier_test(i, m, window, action)
            }
            _ => {
                let counted = usize::from(action != BarrierAction::Invalidate);
                self.count(i, m, 1 + counted)?;
                let (window, address) = self.plain_address(&i.operands[0], window)?;
                let mut reads = vec![address];
                if let Some(operand) = i.operands.get(1) {
                    reads.push(self.source(operand, Type::U32)?);
                }
                let unit = Unit::Barrier(MemoryBarrier { window, action });
                self.emit(Kind::Unit(unit), Vec::new(), reads, 0);
                Ok(())
            }
        }
    }

    fn barrier_arrive(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        window: Window,
        action: BarrierAction,
        expects: bool,
    ) -> Result<()> {
        // The state operand may be omitted: `mbarrier.arrive.b64 [addr];`.
        let at = usize::from(!matches!(i.operands.first(), Some(Operand::Address { .. })));
        let given = i.operands.len().saturating_sub(at);
        if given == 0 || given > 2 || expects && given != 2 {
            return Err(m.error("has an unsupported number of operands"));
        }
        let write = match at {
            1 => self.target(&i.operands[0], Class::Wide)?,
            _ => self.new_value(Class::Wide),
        };
        let (window, address) = self.plain_address(&i.operands[at], window)?;
        let number = match i.operands.get(at + 1) {
            Some(operand) => self.source(operand, Type::U32)?,
            None => Source::Word(1),
        };
        let (count, bytes) =
            if expects { (Source::Word(1), number) } else { (number, Source::Word(0)) };
        let unit = Unit::Barrier(MemoryBarrier { window, action });
        self.emit(Kind::Unit(unit), vec![write], vec![address, count, bytes], 0);
        Ok(())
    }

    fn barrier_test(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        window: Window,
        action: BarrierAction,
    ) -> Result<()> {
        // A fourth operand is a time limit hint.
        let timed = i.operands.len() == 4 && m.has("try_wait");
        self.count(i, m, 3 + usize::from(timed))?;
        let write = self.target(&i.operands[0], Class::Pred)?;
        let (window, address) = self.plain_address(&i.operands[1], window)?;
        let ty = if action == BarrierAction::TestParity { Type::B32 } else { Type::B64 };
        let reads = vec![address, self.source(&i.operands[2], ty)?];
        let unit = Unit::Barrier(MemoryBarrier { window, action });
        self.emit(Kind::Unit(unit), vec![write], reads, 0);
        Ok(())
    }
}
