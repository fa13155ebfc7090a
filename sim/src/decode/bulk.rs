//! TMA copies: `cp.async.bulk`, `cp.reduce.async.bulk`, their tensor forms, `st.async` and
//! `red.async`.

use super::atomic::{known, modify};
use super::{Decoder, Modifiers};
use crate::access::{Modify, Window};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::op::Kind;
use crate::types::Type;
use crate::unit::{BulkCopy, BulkKind, StoreAsync, TileMode, Unit};

/// Modifiers of a TMA copy.
struct Request {
    /// Mode of a tensor copy.
    tensor: Option<TileMode>,
    barrier: bool,
    multicast: bool,
    hinted: bool,
    reduce: Option<(Modify, Type)>,
}

/// Parses the rank and the mode of a tensor copy.
fn tile_mode(m: &mut Modifiers<'_>) -> Result<TileMode> {
    let loads = !m.has("bulk_group");
    let dimensions = |text: &str| text.strip_suffix('d')?.parse().ok();
    let rank: Option<u8> = m.take_map(dimensions).filter(|rank| (1..=5).contains(rank));
    let rows = m.take(if loads { "tile::gather4" } else { "tile::scatter4" });
    let pixels = m.take(if loads { "im2col" } else { "im2col_no_offs" });
    match rank {
        Some(2) if rows => Ok(TileMode::Rows),
        Some(rank @ 3..) if pixels => Ok(TileMode::Pixels { rank, offsets: loads }),
        Some(rank) if !rows && !pixels => {
            m.take("tile");
            Ok(TileMode::Box { rank })
        }
        _ => Err(m.error("is not a supported form")),
    }
}

impl Decoder<'_> {
    pub(super) fn bulk(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if m.take("commit_group") {
            self.emit(Kind::Unit(Unit::BulkCommit), Vec::new(), Vec::new(), 0);
            return self.count(i, m, 0);
        }
        if m.take("wait_group") {
            let reads = m.take("read");
            let left = self.group_count(i, m)?;
            self.emit(Kind::Unit(Unit::BulkWait { reads }), Vec::new(), Vec::new(), left);
            return Ok(());
        }
        let tensor = if m.take("tensor") { Some(tile_mode(m)?) } else { None };
        if m.take("prefetch") {
            return self.bulk_prefetch(i, m, tensor);
        }
        let request = self.bulk_request(i, m, tensor)?;
        self.bulk_copy(i, m, &request)
    }

    /// Decodes a prefetch, which has no effect; only its form is checked.
    fn bulk_prefetch(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        tensor: Option<TileMode>,
    ) -> Result<()> {
        if !m.take("L2") || !m.take("global") {
            return Err(m.error("is not a supported form"));
        }
        let hinted = usize::from(m.take("L2::cache_hint"));
        let plain = match tensor {
            Some(mode) => 1 + usize::from(mode.offsets() > 0),
            None => 2,
        };
        self.count(i, m, plain + hinted)
    }

    fn bulk_request(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        tensor: Option<TileMode>,
    ) -> Result<Request> {
        let barrier = m.take("mbarrier::complete_tx::bytes");
        let group = m.take("bulk_group");
        let multicast = m.take("multicast::cluster");
        let hinted = m.take("L2::cache_hint");
        let reduces = i.modifiers.first().is_some_and(|first| first == "reduce");
        let reduce = if reduces { Some(self.bulk_reduction(m, tensor)?) } else { None };
        if barrier == group {
            return Err(m.error("lacks its completion"));
        }
        Ok(Request { tensor, barrier, multicast, hinted, reduce })
    }

    /// Parses the operation of a reduction; the element type of a tensor is that of its map.
    fn bulk_reduction(
        &mut self,
        m: &mut Modifiers<'_>,
        tensor: Option<TileMode>,
    ) -> Result<(Modify, Type)> {
        m.take("noftz");
        let chosen = m.take_map(modify);
        let chosen = chosen.filter(|m| !matches!(m, Modify::Exchange | Modify::Compare));
        let ty = if tensor.is_some() { Type::U32 } else { m.ty()? };
        match chosen {
            Some(chosen) if tensor.is_some() || known(chosen, ty) => Ok((chosen, ty)),
            _ => Err(m.error("is not a supported form")),
        }
    }

    fn bulk_copy(&mut self, i: &Instruction, m: &mut Modifiers<'_>, r: &Request) -> Result<()> {
        const SPACES: [&str; 4] = ["global", "shared", "shared::cta", "shared::cluster"];
        let mut space = || m.take_map(|text| SPACES.iter().position(|&name| name == text));
        let (Some(to), Some(from)) = (space(), space()) else {
            return Err(m.error("lacks a state space"));
        };
        let kind = match (to == 0, from == 0, r.tensor, r.barrier) {
            (false, true, None, true) if r.reduce.is_none() => BulkKind::GlobalToShared,
            (false, false, None, true) if !r.multicast => BulkKind::SharedToShared,
            (true, false, None, false) => BulkKind::SharedToGlobal,
            (false, true, Some(mode), true) if r.reduce.is_none() => BulkKind::TileToShared(mode),
            (true, false, Some(mode), false) => {
                if mode == TileMode::Rows && r.reduce.is_some() {
                    return Err(m.error("is not a supported form"));
                }
                BulkKind::SharedToTile(mode)
            }
            _ => return Err(m.error("is not a supported form")),
        };
        let mut operands: Vec<&Operand> = i.operands.iter().collect();
        if r.hinted {
            operands.pop();
        }
        let extra = usize::from(r.barrier) + usize::from(r.multicast);
        let offsets = r.tensor.map_or(0, TileMode::offsets);
        let plain = if r.tensor.is_some() { 2 } else { 3 };
        let extra = extra + usize::from(offsets > 0);
        if operands.len() != plain + extra {
            let found = operands.len();
            return Err(m.error(&format!("has {found} operands instead of {}", plain + extra)));
        }
        let mut reads = match kind {
            BulkKind::TileToShared(mode) => {
                let mut reads = self.tile_operands(m, operands[0], operands[1], mode)?;
                if offsets > 0 {
                    reads.extend(self.offsets(m, operands.remove(plain + 1), offsets)?);
                }
                reads
            }
            BulkKind::SharedToTile(mode) => {
                self.tile_operands(m, operands[1], operands[0], mode)?
            }
            _ => {
                let windows = [to, from].map(|space| match space {
                    0 => Window::Global,
                    _ => Window::Shared,
                });
                vec![
                    self.plain_address(operands[0], windows[0])?.1,
                    self.plain_address(operands[1], windows[1])?.1,
                    self.source(operands[2], Type::U32)?,
                ]
            }
        };
        if r.barrier {
            reads.push(self.plain_address(operands[plain], Window::Shared)?.1);
        }
        if r.multicast {
            reads.push(self.source(operands[plain + 1], Type::B16)?);
        }
        let copy = BulkCopy { kind, barrier: r.barrier, multicast: r.multicast, reduce: r.reduce };
        self.emit(Kind::Unit(Unit::Bulk(copy)), Vec::new(), reads, 0);
        Ok(())
    }

    /// Decodes the shared memory address, the tensor map's address and the coordinates.
    fn tile_operands(
        &mut self,
        m: &Modifiers<'_>,
        shared: &Operand,
        tile: &Operand,
        mode: TileMode,
    ) -> Result<Vec<Source>> {
        let Operand::Address { base, offset, rest } = tile else {
            return self.invalid("expected a tensor map and coordinates in brackets");
        };
        let coordinates = match &rest[..] {
            [Operand::Vector(items)] if items.len() == mode.coordinates() => items,
            _ => return Err(m.error(&format!("has no {} coordinates", mode.coordinates()))),
        };
        let map = Operand::Address { base: base.clone(), offset: *offset, rest: Vec::new() };
        let mut reads = vec![
            self.plain_address(shared, Window::Shared)?.1,
            self.plain_address(&map, Window::Generic)?.1,
        ];
        for coordinate in coordinates {
            reads.push(self.source(coordinate, Type::S32)?);
        }
        Ok(reads)
    }

    /// Decodes the offsets of a copy of pixels.
    fn offsets(
        &mut self,
        m: &Modifiers<'_>,
        operand: &Operand,
        count: usize,
    ) -> Result<Vec<Source>> {
        match operand {
            Operand::Vector(items) if items.len() == count => {
                items.iter().map(|offset| self.source(offset, Type::B16)).collect()
            }
            _ => Err(m.error(&format!("has no {count} offsets"))),
        }
    }

    pub(super) fn store_async(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        m.take("async");
        m.take("weak");
        let ordered = m.take("relaxed") & m.take("cluster");
        if !m.take("mbarrier::complete_tx::bytes") {
            return Err(m.error("is not a supported form"));
        }
        m.take("shared::cluster");
        let reduces = i.opcode == "red";
        let reduce = if reduces { m.take_map(modify) } else { None };
        let count = if m.take("v2") {
            2
        } else if m.take("v4") {
            4
        } else {
            1
        };
        let ty = m.ty()?;
        let fits = matches!(ty.bytes(), 4 | 8) && ty != Type::Pred;
        let reducible = reduce.is_some_and(|modify| ordered && known(modify, ty) && count == 1);
        if !fits || reduces && !reducible {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 3)?;
        let mut reads = vec![
            self.plain_address(&i.operands[0], Window::Shared)?.1,
            self.plain_address(&i.operands[2], Window::Shared)?.1,
        ];
        reads.extend(self.vector(m, &i.operands[1], count, ty)?);
        let unit = Unit::StoreAsync(StoreAsync { ty, count: count as u8, reduce });
        self.emit(Kind::Unit(unit), Vec::new(), reads, 0);
        Ok(())
    }
}
