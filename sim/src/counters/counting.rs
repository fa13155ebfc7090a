//! Collection of counters during a launch.

use super::{
    ClassCount, Count, Counters, InstructionClass, LineCount, ProductCount, SharedCount,
    SourceCount,
};
use crate::admission::product;
use crate::context::Context;
use crate::groups::GROUP;
use crate::op::Kind;
use crate::program::Program;
use crate::registers::LANES;
use crate::shadow::{GlobalRange, Lanes};
use crate::warp::{At, Warp};
use kiln_machine::Operands;
use std::collections::{BTreeMap, HashMap};

/// Bytes per cache sector.
const SECTOR_BYTES: u64 = 32;
/// Bytes per cache line.
const LINE_BYTES: u64 = 128;
/// Number of 4-byte banks of shared memory.
const BANKS: usize = 32;

/// Bytes that a warp's access moves at once.
const PASS_BYTES: u64 = 128;

/// What a lane copies to another block of its cluster.
#[derive(Debug, Clone, Copy)]
pub struct PeerCopy {
    pub lane: usize,
    /// The block's rank in the cluster.
    pub rank: usize,
    /// The address in its shared memory.
    pub at: u64,
    pub bytes: u64,
}

/// An op, a memory area, and the lanes that access it.
type Touched<'a> = (u32, u64, &'a Lanes);

/// A bit per sector of an allocation.
type Sectors = Vec<u64>;

/// Counters under collection.
#[derive(Debug)]
pub(crate) struct Counting {
    ops: Vec<Count>,
    /// Instructions of each warp of a block, by op.
    warps: Vec<Vec<u64>>,
    /// Ops that end a PTX instruction; the others prepare its operands.
    ends: Vec<bool>,
    read: HashMap<u64, Sectors>,
    written: HashMap<u64, Sectors>,
}

impl Counting {
    pub fn new(program: &Program) -> Counting {
        let number = |at: usize| program.origins.get(at).map(|o| o.traits.instruction);
        let count = program.ops.len();
        Counting {
            ops: vec![Count::default(); count],
            warps: Vec::new(),
            // The implicit exit of a kernel is not an instruction of the text; it belongs to the
            // one before it.
            ends: (1..=count)
                .map(|next| next + 1 == count || number(next - 1) != number(next))
                .enumerate()
                .map(|(at, ends)| ends && at + 1 < count)
                .collect(),
            read: HashMap::new(),
            written: HashMap::new(),
        }
    }

    /// Counts an op issued by a warp.
    #[inline]
    pub fn issue(&mut self, program: &Program, warp: &Warp, at: At) {
        let pc = at.pc as usize;
        if !self.ends[pc] {
            return;
        }
        let warp = warp.index as usize;
        if self.warps.len() <= warp {
            self.warps.resize(warp + 1, vec![0; self.ops.len()]);
        }
        self.warps[warp][pc] += 1;
        let count = &mut self.ops[pc];
        count.warp_instructions += 1;
        if let Kind::Branch = program.ops[pc].kind {
            // A branch is executed by all lanes, taken or not.
            count.lane_instructions += u64::from(at.mask.count_ones());
            count.diverged += u64::from(at.active != 0 && at.active != at.mask);
        } else {
            count.lane_instructions += u64::from(at.active.count_ones());
        }
    }

    /// Retracts an op that waits and will be issued again.
    pub fn retract(&mut self, warp: &Warp, at: At) {
        let pc = at.pc as usize;
        if self.ends[pc] {
            self.warps[warp.index as usize][pc] -= 1;
            self.ops[pc].warp_instructions -= 1;
            self.ops[pc].lane_instructions -= u64::from(at.active.count_ones());
        }
    }

    /// Counts a load of an allocation that L1 may hold.
    pub fn cached(&mut self, (pc, area, lanes): Touched<'_>) {
        let before = self.ops[pc as usize].global.sectors;
        self.global((pc, area, lanes), false);
        let target = &mut self.ops[pc as usize].global;
        target.cached_sectors += target.sectors - before;
    }

    /// Counts another access to an allocation.
    pub fn global(&mut self, (pc, area, lanes): Touched<'_>, writes: bool) {
        let bytes = u64::from(lanes.bytes);
        let mut sectors = [0; LANES];
        let mut count = 0;
        if lanes.run {
            let (first, end) = (lanes.offsets[0], lanes.offsets[0] + bytes * LANES as u64);
            let parts = |of: u64| (end - 1) / of - first / of + 1;
            let target = &mut self.ops[pc as usize].global;
            target.requests += 1;
            target.bytes += end - first;
            target.sectors += parts(SECTOR_BYTES);
            target.lines += parts(LINE_BYTES);
            for sector in first / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
                self.mark(area, sector, writes);
            }
            return;
        }
        // Each lane's bytes are naturally aligned, so they are within one sector.
        for lane in lanes.each() {
            sectors[count] = lanes.offsets[lane] / SECTOR_BYTES;
            count += 1;
        }
        let sectors = &mut sectors[..count];
        sectors.sort_unstable();
        let distinct = |of: u64| {
            let steps = sectors.windows(2).filter(|pair| pair[0] / of != pair[1] / of);
            steps.count() as u64 + 1
        };
        let (each, lines) = (distinct(1), distinct(LINE_BYTES / SECTOR_BYTES));
        let target = &mut self.ops[pc as usize].global;
        target.requests += 1;
        target.bytes += bytes * count as u64;
        target.sectors += each;
        target.lines += lines;
        let mut last = None;
        for &sector in sectors.iter() {
            if last.replace(sector) != Some(sector) {
                self.mark(area, sector, writes);
            }
        }
    }

    /// Counts an asynchronous copy from an allocation that requests `asked` bytes, which excludes
    /// zero fill.
    pub fn copied(&mut self, (pc, area, lanes): Touched<'_>, asked: u64) {
        self.global((pc, area, lanes), false);
        let whole = u64::from(lanes.bytes) * u64::from(lanes.active.count_ones());
        self.ops[pc as usize].global.bytes -= whole - asked;
    }

    /// Counts a bulk access to allocations: of the ranges given.
    pub fn bulk(&mut self, pc: u32, ranges: &[GlobalRange], writes: bool) {
        let mut sectors = Vec::new();
        for &GlobalRange { area, at, bytes } in ranges.iter().filter(|range| range.bytes != 0) {
            let touched = at / SECTOR_BYTES..=(at + bytes - 1) / SECTOR_BYTES;
            sectors.extend(touched.map(|sector| (area, sector)));
        }
        sectors.sort_unstable();
        sectors.dedup();
        let mut lines: Vec<(u64, u64)> = sectors
            .iter()
            .map(|&(area, sector)| (area, sector * SECTOR_BYTES / LINE_BYTES))
            .collect();
        lines.dedup();
        let target = &mut self.ops[pc as usize].global;
        target.requests += 1;
        target.bytes += ranges.iter().map(|range| range.bytes).sum::<u64>();
        target.sectors += sectors.len() as u64;
        target.lines += lines.len() as u64;
        for (area, sector) in sectors {
            self.mark(area, sector, writes);
        }
    }

    /// Counts a copy of so many bytes to the shared memory of `blocks` blocks.
    pub fn copied_to_shared(&mut self, pc: u32, bytes: u64, blocks: u32) {
        self.ops[pc as usize].copies.bytes += bytes * u64::from(blocks);
    }

    /// Counts what an instruction copies to the shared memory of other blocks, out of that in
    /// [`Counting::copied_to_shared`].
    pub fn copied_to_peers(&mut self, pc: u32, copies: &[PeerCopy]) {
        let mut sectors = Vec::new();
        for &PeerCopy { lane, rank, at, bytes } in copies.iter().filter(|of| of.bytes != 0) {
            let pass = lane as u64 / (PASS_BYTES / bytes).max(1);
            let touched = at / SECTOR_BYTES..=(at + bytes - 1) / SECTOR_BYTES;
            sectors.extend(touched.map(|sector| (pass, rank, sector)));
        }
        sectors.sort_unstable();
        sectors.dedup();
        let target = &mut self.ops[pc as usize].copies;
        target.cluster_bytes += copies.iter().map(|of| of.bytes).sum::<u64>();
        target.cluster_sectors += sectors.len() as u64;
    }

    fn mark(&mut self, area: u64, sector: u64, writes: bool) {
        let table = if writes { &mut self.written } else { &mut self.read };
        let bits = table.entry(area).or_default();
        let (word, bit) = ((sector / 64) as usize, sector % 64);
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        bits[word] |= 1 << bit;
    }

    /// Counts an access to shared memory.
    pub fn shared(&mut self, (pc, _, lanes): Touched<'_>, writes: bool) {
        let pairs = if writes { None } else { pairs(lanes) };
        let (wavefronts, least) = wavefronts(lanes, pairs);
        let count = &mut self.ops[pc as usize];
        let target: &mut SharedCount =
            if writes { &mut count.shared_stores } else { &mut count.shared_loads };
        target.requests += 1;
        target.wavefronts += wavefronts;
        target.conflicts += wavefronts - least;
        target.paired += pairs.map_or(0, |_| self::wavefronts(lanes, None).1 - least);
    }

    /// Adds what was counted elsewhere in the same launch.
    pub fn add(&mut self, other: &Counting) {
        for (mine, theirs) in self.ops.iter_mut().zip(&other.ops) {
            mine.add(theirs);
        }
        let most = self.warps.len().max(other.warps.len());
        self.warps.resize(most, vec![0; self.ops.len()]);
        for (mine, theirs) in self.warps.iter_mut().zip(&other.warps) {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        for (mine, theirs) in [(&mut self.read, &other.read), (&mut self.written, &other.written)] {
            for (area, sectors) in theirs {
                let bits = mine.entry(*area).or_default();
                bits.resize(bits.len().max(sectors.len()), 0);
                bits.iter_mut().zip(sectors).for_each(|(mine, theirs)| *mine |= theirs);
            }
        }
    }

    /// Returns the counters of the launch.
    pub fn finish(&self, cx: &Context<'_>) -> Counters {
        let program = cx.program;
        let mut lines: BTreeMap<u32, LineCount> = BTreeMap::new();
        let mut sources: BTreeMap<(String, u32), Count> = BTreeMap::new();
        let mut classes: BTreeMap<InstructionClass, ClassCount> = BTreeMap::new();
        let mut products: BTreeMap<Operands, ProductCount> = BTreeMap::new();
        let mut total = Count::default();
        for (pc, count) in self.ops.iter().enumerate().filter(|(_, c)| **c != Count::default()) {
            let origin = program.origins[pc];
            let place = cx.place([0; 3], [0; 3], pc as u32);
            if let Some(source) = place.source.clone() {
                sources.entry(source).or_default().add(count);
            }
            let line = lines.entry(origin.line).or_insert_with(|| LineCount {
                line: origin.line,
                text: place.text,
                source: place.source,
                count: Count::default(),
                warps: vec![0; self.warps.len()],
            });
            line.count.add(count);
            for (all, own) in line.warps.iter_mut().zip(&self.warps) {
                *all += own[pc];
            }
            let class = origin.traits.class;
            let none = ClassCount { class, warp_instructions: 0, lane_instructions: 0 };
            let of = classes.entry(class).or_insert(none);
            of.warp_instructions += count.warp_instructions;
            of.lane_instructions += count.lane_instructions;
            if let Some((operands, each)) = origin.traits.product {
                let none = ProductCount { operands, warp_instructions: 0, multiply_adds: 0 };
                let of = products.entry(operands).or_insert(none);
                of.warp_instructions += count.warp_instructions;
                of.multiply_adds += count.warp_instructions * each;
            }
            total.add(count);
        }
        let bytes = |table: &HashMap<u64, Sectors>| {
            let words = table.values().flatten();
            words.map(|word| u64::from(word.count_ones())).sum::<u64>() * SECTOR_BYTES
        };
        Counters {
            total,
            classes: classes.into_values().collect(),
            products: products.into_values().collect(),
            lines: lines.into_values().collect(),
            sources: sources
                .into_iter()
                .map(|((file, line), count)| SourceCount { file, line, count })
                .collect(),
            dram_read_bytes: bytes(&self.read),
            dram_written_bytes: bytes(&self.written),
            bytes_min: cx.launch.bytes_min,
            blocks: cx.clusters() * product(cx.cluster),
        }
    }
}

/// How far apart the lanes of pairs are, 1 or 2, all of which load the same 8 or 16 bytes: the
/// words of both are returned at once, and twice as many lanes processed together (Greg Smith,
/// NVIDIA, forums.developer.nvidia.com, 77228, of Volta and Turing; the lanes of CUTLASS's SIMT
/// GEMMs are interleaved for it).
fn pairs(lanes: &Lanes) -> Option<usize> {
    let alike = |apart: &usize| {
        let other = |lane: usize| lane ^ apart;
        let mut both = lanes.each().filter(|lane| lanes.active >> other(*lane) & 1 != 0);
        both.all(|lane| lanes.offsets[lane] == lanes.offsets[other(lane)])
    };
    [1, 2].into_iter().find(alike).filter(|_| matches!(lanes.lane_words(), 2 | 4))
}

/// Number of wavefronts of a shared memory access, and the minimum for its size. 8-byte accesses
/// are processed by half warps, 16-byte ones by quarter warps, twice as many where lanes so far
/// apart are pairs; lanes that access one word share it.
fn wavefronts(lanes: &Lanes, pairs: Option<usize>) -> (u64, u64) {
    let alone = LANES / lanes.lane_words().clamp(1, 4);
    let together = if pairs.is_some() { 2 * alone } else { alone };
    let (mut passes, mut least) = (0, 0);
    for first in (0..LANES).step_by(together) {
        let group = lanes.active >> first & (u32::MAX >> (32 - together));
        if group == 0 {
            continue;
        }
        least += 1;
        if lanes.run || lanes.uniform {
            passes += 1;
            continue;
        }
        let mut wanted = [0_usize; LANES];
        let mut count = 0;
        let alike = if lanes.step == Some(0) { GROUP } else { 1 };
        // The other lane of a pair wants the same.
        let is_other = |lane: usize| match pairs {
            Some(apart) => lane & apart != 0 && group >> (lane - apart) & 1 != 0,
            None => false,
        };
        let wanting = (0..together).step_by(alike).filter(|lane| group >> lane & 1 != 0);
        for lane in wanting.filter(|lane| !is_other(*lane)) {
            for word in lanes.words(first + lane).0.take(LANES / alone) {
                wanted[count] = word;
                count += 1;
            }
        }
        let wanted = &mut wanted[..count];
        if fit_banks(wanted) {
            passes += 1;
            continue;
        }
        wanted.sort_unstable();
        let mut banks = [0_u64; BANKS];
        let mut last = usize::MAX;
        for &word in wanted.iter().filter(|&&word| std::mem::replace(&mut last, word) != word) {
            banks[word % BANKS] += 1;
        }
        passes += banks.into_iter().max().unwrap_or(1);
    }
    (passes, least)
}

/// Whether no bank is accessed at two different words.
fn fit_banks(words: &[usize]) -> bool {
    let mut held = [usize::MAX; BANKS];
    words.iter().all(|&word| {
        let before = std::mem::replace(&mut held[word % BANKS], word);
        before == usize::MAX || before == word
    })
}
