//! Fences between the generic and the async proxy for shared memory.

use super::clocks::{Clocks, Event};
use crate::registers::LANES;

/// Proxy fences executed by a block.
#[derive(Debug, Default)]
pub(crate) struct ProxyFences {
    /// Last epoch of each warp covered by a fence: by fences of each of its own lanes, and by
    /// fences of any warp that knew the epoch.
    own: Vec<[u32; LANES]>,
    known: Vec<u32>,
}

impl ProxyFences {
    pub fn new(warps: usize) -> ProxyFences {
        let (own, known) = (vec![[0; LANES]; warps], vec![0; warps]);
        ProxyFences { own, known }
    }

    /// Whether a proxy fence covers a store.
    pub fn follow(&self, store: &Event) -> bool {
        let warp = store.warp as usize;
        self.own[warp][store.lane as usize].max(self.known[warp]) >= store.epoch
    }

    /// Lanes execute a proxy fence, which covers everything they know.
    pub fn fence(&mut self, clocks: &mut Clocks, warp: usize, lanes: u32) {
        let (row, epoch) = clocks.fenced(warp);
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            self.own[warp][lane] = epoch;
        }
        self.known.iter_mut().zip(row).for_each(|(known, epoch)| *known = (*known).max(epoch));
    }
}
