//! What L2 does not hold: the bytes that device memory serves, by the order in which blocks read.
//!
//! All resident blocks take a step at the same time, in which each reads the next chunk of every
//! operand of its tile; L2 keeps the chunks that were used last.

use std::collections::{BTreeMap, HashMap};

/// An operand of a tile: chunks of memory, one for each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The first chunk; different memory has different numbers.
    pub first: u64,
    /// Chunks, which follow each other.
    pub chunks: u32,
    /// Bytes of a chunk.
    pub bytes: u32,
}

/// The tiles of a launch in the order in which blocks take them, each with its operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileOrder {
    /// The operands of each tile.
    pub tiles: Vec<Vec<Stream>>,
    /// Blocks of a cluster, which share a tile.
    pub blocks: u64,
    /// Whether a block takes each so many-th tile, as many as there are blocks; else a block that
    /// starts takes the next one.
    pub persistent: bool,
}

/// A cache that replaces what was not used for the longest time.
#[derive(Default)]
struct Cache {
    held: HashMap<u64, u64>,
    by_use: BTreeMap<u64, (u64, u32)>,
    bytes: u64,
    now: u64,
}

impl Cache {
    /// Reads a chunk; whether it was there.
    fn reads(&mut self, chunk: u64, bytes: u32, capacity: u64) -> bool {
        self.now += 1;
        let before = self.held.insert(chunk, self.now);
        let held = before.and_then(|before| self.by_use.remove(&before)).is_some();
        self.by_use.insert(self.now, (chunk, bytes));
        self.bytes += if held { 0 } else { u64::from(bytes) };
        while self.bytes > capacity
            && let Some((_, (old, bytes))) = self.by_use.pop_first()
        {
            self.held.remove(&old);
            self.bytes -= u64::from(bytes);
        }
        held
    }
}

impl TileOrder {
    /// Bytes that an L2 of so many bytes asks of device memory, with so many blocks at a time.
    pub fn dram_bytes(&self, capacity: u64, resident: u64) -> u64 {
        let resident = resident / self.blocks.max(1);
        let resident = resident.clamp(1, self.tiles.len().max(1) as u64) as usize;
        let mut cache = Cache::default();
        let mut tiles: Vec<usize> = (0..resident).collect();
        let mut steps = vec![0; resident];
        let (mut next, mut missed) = (resident, 0);
        let mut running = true;
        while running {
            running = false;
            for (tile, step) in tiles.iter_mut().zip(&mut steps) {
                let Some(streams) = self.tiles.get(*tile) else { continue };
                running = true;
                for stream in streams.iter().filter(|stream| *step < stream.chunks) {
                    let chunk = stream.first + u64::from(*step);
                    if !cache.reads(chunk, stream.bytes, capacity) {
                        missed += u64::from(stream.bytes);
                    }
                }
                *step += 1;
                if streams.iter().all(|stream| *step >= stream.chunks) {
                    *step = 0;
                    *tile = if self.persistent { *tile + resident } else { next };
                    next += 1;
                }
            }
        }
        missed
    }

    /// Steps of each of so many clusters of a persistent launch; `None` if blocks that start take
    /// the next tile.
    pub fn steps_of(&self, clusters: u64) -> Option<Vec<u64>> {
        let mut steps = vec![0; clusters.max(1) as usize];
        for (tile, streams) in self.tiles.iter().enumerate() {
            let of_tile = streams.iter().map(|stream| u64::from(stream.chunks)).max();
            let at = tile % steps.len();
            steps[at] += of_tile.unwrap_or(0);
        }
        self.persistent.then_some(steps)
    }

    /// Bytes of all chunks, each counted once.
    pub fn distinct_bytes(&self) -> u64 {
        self.dram_bytes(u64::MAX, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `heads` keys and values of 16 chunks of 64 KiB, 16 tiles each, head by head or tile by tile.
    fn order(heads: u64, heads_first: bool) -> TileOrder {
        let tile = |at: u64| if heads_first { at % heads } else { at / 16 };
        let stream = |head: u64| Stream { first: head * 16, chunks: 16, bytes: 64 << 10 };
        let tiles = (0..heads * 16).map(|at| vec![stream(tile(at))]).collect();
        TileOrder { tiles, blocks: 1, persistent: true }
    }

    #[test]
    fn heads_first_reads_all_again_and_tiles_first_once() {
        // Attention of 256 heads, 2048 keys of 128 elements on H100: 4.29 and 0.27 GB, as a model
        // in Python by someone else has it.
        let [first, last] = [true, false].map(|heads_first| order(256, heads_first));
        assert_eq!(first.distinct_bytes(), 268_435_456);
        assert_eq!(last.dram_bytes(50 << 20, 132), 268_435_456);
        assert_eq!(first.dram_bytes(50 << 20, 132), 16 * 268_435_456);
    }

    #[test]
    fn what_fits_is_read_once() {
        let order = order(8, true);
        assert_eq!(order.dram_bytes(8 << 20, 132), 8 << 20);
        assert_eq!(order.dram_bytes(0, 1), 16 * (8 << 20));
        let none = TileOrder { tiles: Vec::new(), blocks: 1, persistent: false };
        assert_eq!(none.dram_bytes(1, 1), 0);
        let empty = TileOrder { tiles: vec![Vec::new(); 3], blocks: 2, persistent: false };
        assert_eq!(empty.dram_bytes(1, 2), 0);
    }
}
