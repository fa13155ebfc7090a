//! Clusters: addresses in other blocks, the cluster barrier, and some warp-wide ops.

use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::Unit;

impl Decoder<'_> {
    /// Decodes `mapa` and `getctarank`. Generic and shared memory addresses differ only above the
    /// bits that hold the rank.
    pub(super) fn map_address(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let shared = m.take("shared::cluster");
        let ty = m.ty()?;
        let map = i.opcode == "mapa";
        if !matches!(ty, Type::U32 | Type::U64) || ty == Type::U32 && !shared {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 2 + usize::from(map))?;
        let mut address = self.source(&i.operands[1], ty)?;
        if ty == Type::U32 {
            let kind = Kind::Lane(handler::<lanes::ExtendWide<u32>>());
            address = self.emit_new(Class::Wide, kind, vec![address], 0);
        }
        if !map {
            let write = self.target(&i.operands[0], Class::Word)?;
            self.emit(Kind::Unit(Unit::AddressRank), vec![write], vec![address], 0);
            return Ok(());
        }
        let reads = vec![address, self.source(&i.operands[2], Type::U32)?];
        let write = self.target(&i.operands[0], ty.class())?;
        if ty == Type::U64 {
            self.emit(Kind::Unit(Unit::MapAddress), vec![write], reads, 0);
            return Ok(());
        }
        let wide = self.new_value(Class::Wide);
        self.emit(Kind::Unit(Unit::MapAddress), vec![wide], reads, 0);
        self.lane(handler::<lanes::LowWord>(), write, vec![crate::draft::Source::Value(wide)], 0);
        Ok(())
    }

    pub(super) fn cluster_barrier(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let (arrive, wait) = (m.take("arrive"), m.take("wait"));
        let unit = match (arrive, wait) {
            (true, false) => {
                let relaxed = m.take("relaxed");
                let releases = m.take("release") || !relaxed;
                Unit::ClusterArrive { aligned: m.take("aligned"), releases }
            }
            (false, true) => {
                m.take("acquire");
                Unit::ClusterWait { aligned: m.take("aligned") }
            }
            _ => return Err(m.error("is not a supported form")),
        };
        self.emit(Kind::Unit(unit), Vec::new(), Vec::new(), 0);
        self.count(i, m, 0)
    }

    pub(super) fn elect(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if !m.take("sync") {
            return Err(m.error("lacks `.sync`"));
        }
        self.count(i, m, 2)?;
        let Operand::Pair(leader, chosen) = &i.operands[0] else {
            return Err(m.error("lacks a predicate"));
        };
        let writes = vec![self.target(leader, Class::Word)?, self.target(chosen, Class::Pred)?];
        let members = self.source(&i.operands[1], Type::B32)?;
        self.emit(Kind::Unit(Unit::Elect), writes, vec![members], 0);
        Ok(())
    }

    /// Decodes `setmaxnreg`.
    pub(super) fn register_budget(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let (more, fewer) = (m.take("inc"), m.take("dec"));
        if more == fewer || !m.take("sync") || !m.take("aligned") || !m.take("u32") {
            return Err(m.error("is not a supported form"));
        }
        match i.operands[..] {
            [Operand::Int(count)] if (24..=256).contains(&count) && count % 8 == 0 => {
                let unit = Unit::Registers { raises: more };
                self.emit(Kind::Unit(unit), Vec::new(), Vec::new(), count);
                Ok(())
            }
            _ => Err(m.error("has no count that is a multiple of 8 from 24 to 256")),
        }
    }
}
