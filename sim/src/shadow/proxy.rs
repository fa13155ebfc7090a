//! Fences between proxies. A store of a thread is visible to what accesses memory by another proxy
//! after a proxy fence, by the thread itself or by one that the store is ordered before, that is
//! ordered before the access.
//!
//! What fences of whole warps cover is in the clocks, and is passed on with them. A fence of some
//! lanes covers those lanes besides, wherever it stands.

use super::clocks::{Clocks, Event};
use crate::registers::LANES;
use crate::traits::Proxy;
use std::collections::HashMap;

/// An acquire of a tensor map, and the writes to it that are released.
#[derive(Debug)]
pub(crate) struct AcquiredMap {
    pub by: Event,
    pub writers: Vec<Event>,
}

/// Last epoch that each lane of a warp of a block fenced itself.
#[derive(Debug, Default)]
pub(crate) struct LaneFences(HashMap<(Proxy, u32, u32), [u32; LANES]>);

impl LaneFences {
    /// Some lanes of a warp, all of them or not, execute fences.
    pub fn fence(
        &mut self,
        clocks: &mut Clocks,
        warp: usize,
        (lanes, live): (u32, u32),
        proxies: &[Proxy],
    ) {
        let all = lanes & live == live;
        let epoch = clocks.fenced(warp, all, proxies);
        if all {
            return;
        }
        for &proxy in proxies {
            let own = self.0.entry((proxy, clocks.block, warp as u32)).or_insert([0; LANES]);
            for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
                own[lane] = epoch;
            }
        }
    }

    /// Whether a warp of these clocks accesses what a store wrote after a fence.
    pub fn cover(&self, clocks: &Clocks, warp: usize, proxy: Proxy, store: &Event) -> bool {
        let own = self.0.get(&(proxy, store.block, store.warp));
        clocks.covered(warp, proxy, store)
            || own.is_some_and(|own| own[store.lane as usize] >= store.epoch)
    }

    /// Whether it does so of all that the store's warp wrote up to it.
    pub fn cover_all(&self, clocks: &Clocks, warp: usize, proxy: Proxy, store: &Event) -> bool {
        let own = self.0.get(&(proxy, store.block, store.warp));
        clocks.covered(warp, proxy, store)
            || own.is_some_and(|own| own.iter().all(|epoch| *epoch >= store.epoch))
    }
}
