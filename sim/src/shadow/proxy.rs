//! Fences between the proxies through which threads and bulk copies see shared memory.

use super::clocks::{Clocks, Event};
use crate::registers::LANES;

/// The fences between the proxies that a block has met.
#[derive(Debug, Default)]
pub(crate) struct ProxyFences {
    /// The last epoch of each warp that a fence followed: for each of its own lanes, and for all
    /// by a fence of whoever knew of it.
    own: Vec<[u32; LANES]>,
    known: Vec<u32>,
}

impl ProxyFences {
    pub fn new(warps: usize) -> ProxyFences {
        let (own, known) = (vec![[0; LANES]; warps], vec![0; warps]);
        ProxyFences { own, known }
    }

    /// Whether a fence between the proxies followed a store.
    pub fn follow(&self, store: &Event) -> bool {
        let warp = store.warp as usize;
        self.own[warp][store.lane as usize].max(self.known[warp]) >= store.epoch
    }

    /// Lanes of a warp fence what they know of between the proxies.
    pub fn fence(&mut self, clocks: &mut Clocks, warp: usize, lanes: u32) {
        let (row, epoch) = clocks.fenced(warp);
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            self.own[warp][lane] = epoch;
        }
        self.known.iter_mut().zip(row).for_each(|(known, epoch)| *known = (*known).max(epoch));
    }
}
