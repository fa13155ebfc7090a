//! Shadow of a block's tensor memory: which cells were written, and stores that their warps have
//! yet to wait for.

use super::clocks::{Event, Known, joined};
use crate::tensor_memory::{COLUMNS, LANES, Region};
use std::rc::Rc;

/// Shadow of tensor memory.
#[derive(Debug, Default)]
pub(crate) struct TensorShadow {
    /// By lane, then column; empty until something is written.
    written: Vec<bool>,
    /// Stores by warp and op, until a `tcgen05.wait::st`.
    stores: Vec<(Region, usize, u32)>,
    /// The completions that a later commit tells of too.
    pub told: Rc<Known>,
}

/// Lanes and columns of a region.
fn cells(region: Region) -> impl Iterator<Item = (usize, usize)> {
    let lanes = (0..LANES).filter(move |lane| region.halves[lane / 16 % 2]);
    let columns = region.first as usize..(region.first + region.count) as usize;
    lanes.flat_map(move |lane| columns.clone().map(move |column| (lane, column)))
}

fn index((lane, column): (usize, usize)) -> usize {
    lane * COLUMNS + column % COLUMNS
}

impl TensorShadow {
    pub fn write(&mut self, cells: impl Iterator<Item = (usize, usize)>, written: bool) {
        if self.written.is_empty() {
            self.written = vec![false; LANES * COLUMNS];
        }
        cells.for_each(|cell| self.written[index(cell)] = written);
    }

    pub fn write_region(&mut self, region: Region, written: bool) {
        self.write(cells(region), written);
    }

    /// The first of some cells that nobody wrote.
    pub fn unwritten(
        &self,
        mut cells: impl Iterator<Item = (usize, usize)>,
    ) -> Option<(usize, usize)> {
        cells.find(|&cell| !self.written.get(index(cell)).copied().unwrap_or_default())
    }

    pub fn unwritten_region(&self, region: Region) -> Option<(usize, usize)> {
        self.unwritten(cells(region))
    }

    pub fn stored(&mut self, region: Region, warp: usize, pc: u32) {
        self.stores.push((region, warp, pc));
    }

    /// `tcgen05.wait::st`
    pub fn stores_waited(&mut self, warp: usize) {
        self.stores.retain(|(_, by, _)| *by != warp);
    }

    /// A store to a region that was not waited for, as its warp and op.
    pub fn pending_store(&self, region: Region) -> Option<(usize, u32)> {
        let found = self.stores.iter().find(|(stored, ..)| stored.meets(region));
        found.map(|&(_, warp, pc)| (warp, pc))
    }

    /// Another completion, and with it the earlier ones.
    pub fn tell(&mut self, known: &Rc<Known>) -> Rc<Known> {
        self.told = joined(&self.told, known);
        self.told.clone()
    }
}

/// How far an MMA or copy on tensor memory has come that reads shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorRead {
    /// No commit follows it.
    Issued,
    /// Whoever knows the completion of a commit is ordered after it.
    Committed(Event),
}
