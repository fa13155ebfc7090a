//! Barriers, exchanges between lanes, and fences.

use super::{Decoder, Modifiers};
use crate::access::{Modify, Window};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::op::{Barrier, Kind, Shuffle, Vote};
use crate::types::{Class, Type};
use crate::unit::Unit;

impl Decoder<'_> {
    pub(super) fn barrier(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let bar = i.opcode == "bar";
        if m.take("warp") {
            m.take("sync");
            self.count(i, m, 1)?;
            let members = self.source(&i.operands[0], Type::B32)?;
            self.emit(Kind::WarpSync, Vec::new(), vec![members], 0);
            return Ok(());
        }
        if m.take("cluster") {
            return self.cluster_barrier(i, m);
        }
        m.take("cta");
        let aligned = m.take("aligned") || bar;
        let (sync, arrive) = (m.take("sync"), m.take("arrive"));
        if m.take("red") {
            return self.barrier_reduce(i, m, aligned);
        }
        if !sync && !arrive || i.operands.is_empty() || i.operands.len() > 2 {
            return Err(m.error("is not a supported form"));
        }
        let mut reads = vec![self.source(&i.operands[0], Type::U32)?];
        reads.push(match i.operands.get(1) {
            Some(operand) => self.source(operand, Type::U32)?,
            None => Source::Word(0),
        });
        reads.push(Source::Bool(false));
        let kind = Kind::Barrier(Barrier { aligned, wait: sync, reduce: None });
        self.emit(kind, Vec::new(), reads, 0);
        Ok(())
    }

    fn barrier_reduce(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        aligned: bool,
    ) -> Result<()> {
        let reduce = m.take_map(|text| match text {
            "popc" => Some(Vote::Population),
            "and" => Some(Vote::All),
            "or" => Some(Vote::Any),
            _ => None,
        });
        let ty = m.ty()?;
        if reduce.is_none() || !(3..=4).contains(&i.operands.len()) {
            return Err(m.error("is not a supported form"));
        }
        let write = self.target(&i.operands[0], ty.class())?;
        let id = self.source(&i.operands[1], Type::U32)?;
        let last = i.operands.len() - 1;
        let threads = match last {
            3 => self.source(&i.operands[2], Type::U32)?,
            _ => Source::Word(0),
        };
        let predicate = self.source(&i.operands[last], Type::Pred)?;
        let kind = Kind::Barrier(Barrier { aligned, wait: true, reduce });
        self.emit(kind, vec![write], vec![id, threads, predicate], 0);
        Ok(())
    }

    pub(super) fn exchange(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if i.opcode == "activemask" {
            m.take("b32");
            self.count(i, m, 1)?;
            let write = self.target(&i.operands[0], Class::Word)?;
            self.emit(Kind::ActiveMask, vec![write], Vec::new(), 0);
            return Ok(());
        }
        if !m.take("sync") {
            return Err(m.error("lacks `.sync`"));
        }
        match i.opcode.as_str() {
            "shfl" => self.shuffle(i, m),
            "vote" => self.vote(i, m),
            "match" => self.matching(i, m),
            _ => self.reduce(i, m),
        }
    }

    fn shuffle(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let mode = m.take_map(|text| match text {
            "up" => Some(Shuffle::Up),
            "down" => Some(Shuffle::Down),
            "bfly" => Some(Shuffle::Butterfly),
            "idx" => Some(Shuffle::Index),
            _ => None,
        });
        let Some(mode) = mode.filter(|_| m.take("b32")) else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 5)?;
        let reads = self.sources(i, &[Type::B32, Type::B32, Type::B32, Type::B32])?;
        let (d, p) = match &i.operands[0] {
            Operand::Pair(d, p) => (&**d, self.target(p, Class::Pred)?),
            d => (d, self.new_value(Class::Pred)),
        };
        let d = self.target(d, Class::Word)?;
        self.emit(Kind::Shuffle(mode), vec![d, p], reads, 0);
        Ok(())
    }

    fn vote(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let mode = m.take_map(|text| match text {
            "all" => Some(Vote::All),
            "any" => Some(Vote::Any),
            "uni" => Some(Vote::Uniform),
            "ballot" => Some(Vote::Ballot),
            _ => None,
        });
        let ty = m.ty()?;
        let class = if mode == Some(Vote::Ballot) { Class::Word } else { Class::Pred };
        let Some(mode) = mode.filter(|_| ty.class() == class) else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 3)?;
        let reads = self.sources(i, &[Type::Pred, Type::B32])?;
        let write = self.target(&i.operands[0], class)?;
        self.emit(Kind::Vote(mode), vec![write], reads, 0);
        Ok(())
    }

    fn matching(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let all = m.take("all");
        if !all && !m.take("any") {
            return Err(m.error("lacks `.all` or `.any`"));
        }
        let ty = m.ty()?;
        self.count(i, m, 3)?;
        let reads = self.sources(i, &[ty, Type::B32])?;
        let (d, p) = match &i.operands[0] {
            Operand::Pair(d, p) => (&**d, self.target(p, Class::Pred)?),
            d => (d, self.new_value(Class::Pred)),
        };
        let d = self.target(d, Class::Word)?;
        let kind = match ty {
            Type::B32 => Kind::MatchWord { all },
            Type::B64 => Kind::MatchWide { all },
            _ => return Err(m.error("is not a supported form")),
        };
        self.emit(kind, vec![d, p], reads, 0);
        Ok(())
    }

    fn reduce(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let modify = m.take_map(|text| match text {
            "add" => Some(Modify::Add),
            "min" => Some(Modify::Min),
            "max" => Some(Modify::Max),
            "and" => Some(Modify::And),
            "or" => Some(Modify::Or),
            "xor" => Some(Modify::Xor),
            _ => None,
        });
        let (magnitude, nan) = (m.take("abs"), m.take("NaN"));
        let ty = m.ty()?;
        if let (Type::F32, Some(modify @ (Modify::Min | Modify::Max))) = (ty, modify) {
            self.count(i, m, 3)?;
            let reads = self.sources(i, &[ty, Type::B32])?;
            let write = self.target(&i.operands[0], Class::Word)?;
            let kind = Kind::ReduceFloat { max: modify == Modify::Max, magnitude, nan };
            self.emit(kind, vec![write], reads, 0);
            return Ok(());
        }
        let integer = matches!(ty, Type::B32 | Type::U32 | Type::S32) && !magnitude && !nan;
        let Some(modify) = modify.filter(|_| integer) else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 3)?;
        let reads = self.sources(i, &[ty, Type::B32])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        self.emit(Kind::Reduce { modify, signed: ty.signed() }, vec![write], reads, 0);
        Ok(())
    }

    /// Decodes fences, which have no effect: a warp's accesses are performed in order.
    pub(super) fn order(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        match i.opcode.as_str() {
            "nanosleep" => {
                self.count(i, m, 1)?;
                let ty = m.ty()?;
                self.source(&i.operands[0], ty)?;
                self.emit(Kind::Sleep, Vec::new(), Vec::new(), 0);
            }
            "membar" | "fence" => {
                self.fence(i, m)?;
                self.emit(Kind::Fence, Vec::new(), Vec::new(), 0);
                if let [map, bytes] = &i.operands[..] {
                    if *bytes != Operand::Int(128) {
                        return Err(m.error("has a size that is not 128"));
                    }
                    let (_, address) = self.plain_address(map, Window::Generic)?;
                    self.emit(Kind::Unit(Unit::AcquireMap), Vec::new(), vec![address], 0);
                }
            }
            "griddepcontrol" => {
                let waits = m.take("wait");
                if !waits && !m.take("launch_dependents") {
                    return Err(m.error("is not a supported form"));
                }
                self.count(i, m, 0)?;
                // Launches run one after another: what is before has ended.
                if waits {
                    self.emit(Kind::GridWait, Vec::new(), Vec::new(), 0);
                }
            }
            _ => self.count(i, m, 1)?,
        }
        Ok(())
    }

    /// Checks the form of `fence` and `membar`; memory accesses are performed in order.
    fn fence(&self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        fn any(m: &mut Modifiers<'_>, names: &[&str]) -> bool {
            names.iter().any(|name| m.take(name))
        }
        let mut operands = 0;
        let known = if m.take("proxy") {
            if any(m, &["tensormap::generic", "async::generic"]) {
                let acquires = m.take("acquire");
                operands = if acquires && m.has("tensormap::generic") { 2 } else { 0 };
                m.take_while(|text| text.starts_with("sync_restrict::"));
                (acquires || m.take("release")) && any(m, &["cta", "cluster", "gpu", "sys"])
            } else if m.take("async") {
                any(m, &["global", "shared::cta", "shared::cluster"]);
                true
            } else {
                m.take("alias")
            }
        } else if i.opcode == "membar" {
            any(m, &["cta", "gl", "sys"])
        } else {
            any(m, &["mbarrier_init"]);
            any(m, &["sc", "acq_rel", "acquire", "release"]);
            m.take_while(|text| text.starts_with("sync_restrict::"));
            any(m, &["cta", "cluster", "gpu", "sys"])
        };
        if !known {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, operands)
    }
}
