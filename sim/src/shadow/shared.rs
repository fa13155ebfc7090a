//! Shadow of a block's shared memory: the last writer of each word, the readers since, and the
//! initialised bytes.

use super::actor::{Actor, Conflict};
use super::clocks::{Clocks, Event};
use super::lanes::Lanes;
use super::rows::{
    self, ALL_BYTES, BYTES, COPIED, EPOCH, LANES, Limit, MANY, PC, STRONG, THREAD, THREADS, WARP,
    read,
};
use crate::groups::{GROUP, GROUPS, Groups};
use crate::lanes::has_v3;
use std::collections::HashMap;
use std::ops::Range;

/// Shadow of a block's shared memory.
#[derive(Debug, Default)]
pub(crate) struct SharedShadow {
    writes: Vec<u64>,
    /// Last read by each warp, one plane of words per warp.
    reads: Vec<u64>,
    /// Epoch of the last read of each warp.
    latest: Vec<u32>,
    /// Up to four entries of each divided word, by source and word. A source is the writes, 0, or
    /// the reads of a warp, from 1 on.
    divided: HashMap<(usize, usize), [u64; 4]>,
    /// Writes of asynchronous copies.
    copies: Vec<Event>,
    /// The last copy's entry that each warp was found to be ordered after.
    seen: Vec<u64>,
    has_v3: bool,
}

fn event(entry: u64, block: u32, many: bool) -> Event {
    let thread = entry >> THREAD & 0x3ff;
    let warp = (thread / LANES) as u32;
    Event {
        block,
        clock: warp,
        warp,
        lane: (thread % LANES) as u32,
        many,
        epoch: (entry >> EPOCH) as u32,
        pc: (entry >> PC & 0x7_ffff) as u32,
    }
}

/// What an entry stands for, given the writes of asynchronous copies.
fn event_of(copies: &[Event], entry: u64, block: u32, many: bool) -> Event {
    match entry >> EPOCH {
        COPIED => copies[(entry >> THREAD) as usize & ((1 << (EPOCH - THREAD)) - 1)],
        _ => event(entry, block, many),
    }
}

impl SharedShadow {
    pub fn new(words: usize, warps: usize) -> SharedShadow {
        let (writes, reads) = (vec![0; words], vec![0; words * warps]);
        let (latest, seen, has_v3) = (vec![0; warps], vec![0; warps], has_v3());
        SharedShadow { writes, reads, latest, seen, has_v3, ..SharedShadow::default() }
    }

    /// Number of words of the block's shared memory.
    pub fn words(&self) -> usize {
        self.writes.len()
    }

    fn plane(&self, warp: usize) -> usize {
        warp * self.writes.len()
    }

    fn entry(clocks: &Clocks, by: Actor, lane: usize, bytes: u64) -> u64 {
        let epoch = u64::from(clocks.warps[by.warp].epoch);
        let thread = by.warp as u64 * LANES + lane as u64;
        let strong = if by.strong { STRONG } else { 0 };
        epoch << EPOCH | u64::from(by.pc) << PC | thread << THREAD | strong | bytes << BYTES
    }

    fn limit(&self, clocks: &Clocks, warp: usize) -> Limit {
        let last = ((u64::from(clocks.warps[warp].floor) + 1) << EPOCH) - 1;
        Limit { last, seen: self.seen[warp] }
    }

    /// Whether no entry is beyond a limit.
    fn known(&self, entries: &[u64], limit: Limit) -> bool {
        rows::known(self.has_v3, entries, limit)
    }

    fn event(&self, entry: u64, block: u32, many: bool) -> Event {
        event_of(&self.copies, entry, block, many)
    }

    /// Records what an asynchronous copy wrote: whole words.
    pub fn copied(&mut self, lanes: &Lanes, copy: Event) {
        let of = |copy: &Event| (copy.clock, copy.epoch, copy.pc);
        if self.copies.last().map(of) != Some(of(&copy)) {
            self.copies.push(copy);
        }
        let number = self.copies.len() as u64 - 1;
        let entry = COPIED << EPOCH | number << THREAD | ALL_BYTES | 0xf;
        for lane in lanes.each() {
            self.writes[lanes.words(lane).0].fill(entry);
        }
    }

    /// Lanes with uninitialised bytes.
    pub fn unwritten(&self, lanes: &Lanes) -> u32 {
        if lanes.step.is_some() {
            let words = |all, lane| {
                self.writes[lanes.group_words(lane)].iter().fold(all, |all, entry| all & entry)
            };
            if lanes.groups().fold(0xf, words) == 0xf {
                return 0;
            }
        } else if let Some(words) = lanes.single_words() {
            let all = words.fold(0xf, |all, (_, word)| all & self.writes[word]);
            if all & 0xf == 0xf {
                return 0;
            }
        }
        let mut out = 0;
        for lane in lanes.each() {
            let (mut words, bytes) = lanes.words(lane);
            let missing = words.any(|word| self.writes[word] & bytes != bytes);
            out |= u32::from(missing) << lane;
        }
        out
    }

    /// First uninitialised byte of a lane.
    pub fn first_unset(&self, lanes: &Lanes, lane: usize) -> u64 {
        let at = lanes.offsets[lane];
        let unset = |&at: &u64| self.writes[at as usize / 4] >> (at % 4) & 1 == 0;
        (at..at + u64::from(lanes.bytes)).find(unset).unwrap_or(at)
    }

    /// Last stores to the bytes of a word.
    pub fn writers(&self, word: usize, block: u32) -> impl Iterator<Item = Event> + '_ {
        let entries = self.entries(0, word).into_iter().filter(|entry| entry >> EPOCH != 0);
        entries.map(move |entry| self.event(entry, block, false))
    }

    fn entry_of(&mut self, source: usize, word: usize) -> &mut u64 {
        match source {
            0 => &mut self.writes[word],
            _ => {
                let at = self.plane(source - 1) + word;
                &mut self.reads[at]
            }
        }
    }

    /// Entries that hold the last accesses of a source to the bytes of a word.
    fn entries(&self, source: usize, word: usize) -> [u64; 4] {
        let entry = match source {
            0 => self.writes[word],
            _ => self.reads[self.plane(source - 1) + word],
        };
        match entry >> EPOCH != 0 && entry & ALL_BYTES == 0 {
            true => self.divided.get(&(source, word)).copied().unwrap_or_default(),
            false => [entry, 0, 0, 0],
        }
    }

    /// Records an access to some bytes of a word; accesses to its other bytes are kept, but for
    /// reads that every warp is ordered after.
    fn part(&mut self, clocks: &Clocks, source: usize, word: usize, new: u64) {
        let (old, before) = (*self.entry_of(source, word), self.entries(source, word));
        let reads = source != 0;
        let kept = |entry: &u64| {
            let settled = || reads && clocks.settled(&event(*entry, clocks.block, false));
            entry & ALL_BYTES & !new != 0 && !settled()
        };
        if !before.iter().any(kept) {
            let covered = before.into_iter().filter(|entry| reads && entry & new & ALL_BYTES != 0);
            let entry = covered.fold(new, |new, entry| read(entry, new));
            *self.entry_of(source, word) = if reads { entry } else { entry | old & 0xf };
            return;
        }
        let mut parts = [0; 4];
        for (byte, part) in parts.iter_mut().enumerate() {
            let bit = 1 << (BYTES + byte as u32);
            let of = |entry: u64| entry & !ALL_BYTES | bit;
            let earlier = before.into_iter().find(|entry| entry & bit != 0).map(of);
            *part = match (earlier, new & bit != 0) {
                (Some(earlier), true) if reads => read(earlier, of(new)),
                (_, true) => of(new),
                (earlier, false) => earlier.unwrap_or_default(),
            };
        }
        for byte in 1..parts.len() {
            // Bytes of one access stand in one entry.
            if (parts[byte - 1] ^ parts[byte]) & !ALL_BYTES == 0 {
                parts[byte] |= std::mem::take(&mut parts[byte - 1]);
            }
        }
        self.divided.insert((source, word), parts);
        let last = parts.into_iter().map(|part| part >> EPOCH).max().unwrap_or_default();
        let own = if reads { MANY } else { (old | new) & 0xf };
        *self.entry_of(source, word) = last << EPOCH | THREADS | own;
    }

    /// Marks bytes as initialised or not, without a writer.
    pub fn set_written(&mut self, lanes: &Lanes, written: bool) {
        for lane in lanes.each() {
            let (words, bytes) = lanes.words(lane);
            for entry in &mut self.writes[words] {
                *entry = if written { *entry | bytes } else { *entry & !bytes };
            }
        }
    }

    /// Records a load of a word by every lane, in groups at an offset, if each word was written as
    /// a whole and is ordered before the warp; returns whether it did.
    #[inline(always)]
    pub fn load_groups(
        &mut self,
        clocks: &Clocks,
        groups: &Groups,
        offset: i64,
        by: Actor,
    ) -> bool {
        let mut firsts = [0; GROUPS];
        for (first, &at) in firsts.iter_mut().zip(&groups.firsts) {
            let at = at.wrapping_add(offset as u64);
            if at % 4 != 0 {
                return false;
            }
            *first = at as usize / 4;
        }
        let limit = self.limit(clocks, by.warp);
        let plane = self.plane(by.warp);
        self.latest[by.warp] = clocks.warps[by.warp].epoch;
        let (writes, new) = (&self.writes[..], Self::entry(clocks, by, 0, 0xf));
        let reads = &mut self.reads[plane..][..writes.len()];
        let of = |lane: usize| new + ((lane as u64) << THREAD);
        if groups.step != 0 {
            if !Self::settled::<GROUP>(writes, firsts, limit) {
                return false;
            }
            for (group, first) in firsts.into_iter().enumerate() {
                let entries = reads[first..first + GROUP].iter_mut();
                for (entry, lane) in entries.zip(group * GROUP..) {
                    *entry = read(*entry, of(lane));
                }
            }
            return true;
        }
        if !Self::settled::<1>(writes, firsts, limit) {
            return false;
        }
        if firsts == [firsts[0]; GROUPS] {
            reads[firsts[0]] = read(reads[firsts[0]], new) | MANY;
            return true;
        }
        for (group, first) in firsts.into_iter().enumerate() {
            reads[first] = read(reads[first], of(group * GROUP + GROUP - 1)) | MANY;
        }
        true
    }

    /// Whether what wrote chunks of 16 bytes is certainly ordered before a warp's access and, as
    /// `visible` says of the writes of a warp up to an epoch, visible to the async proxy.
    pub fn visible(
        &mut self,
        clocks: &Clocks,
        starts: &[u64],
        warp: usize,
        visible: impl Fn(&Event) -> bool,
    ) -> bool {
        const WHOLE: u64 = ALL_BYTES | 0xf;
        let limit = self.limit(clocks, warp);
        // The last entry, and the last epoch and warp that were found in order; neighbours mostly
        // have one writer.
        let (mut last, mut writer) = (0, 0);
        starts.iter().all(|start| {
            let first = *start as usize / 4;
            self.writes[first..first + 4].iter().all(|&entry| {
                if entry == last {
                    return true;
                }
                last = entry;
                let copied = entry >> EPOCH == COPIED;
                let of = if copied { entry } else { entry & (WARP | !((1 << EPOCH) - 1)) };
                if entry & WHOLE != WHOLE
                    || of != writer && {
                        let event = self.event(entry, clocks.block, false);
                        let ordered = copied && clocks.ordered(&event, warp, 0);
                        !(ordered || limit.beyond(entry) >> 63 == 0) || !visible(&event)
                    }
                {
                    return false;
                }
                writer = of;
                true
            })
        })
    }

    /// Records a read of whole words by a lane, without comparing it with the writes.
    pub fn reread(&mut self, clocks: &Clocks, words: Range<usize>, by: Actor, lane: usize) {
        let (plane, new) = (self.plane(by.warp), Self::entry(clocks, by, lane, 0xf));
        self.latest[by.warp] = clocks.warps[by.warp].epoch;
        rows::reread(self.has_v3, &mut self.reads[plane + words.start..plane + words.end], new);
    }

    /// Whether ranges of `COUNT` words were written as a whole before `limit`.
    #[inline(always)]
    fn settled<const COUNT: usize>(writes: &[u64], firsts: [usize; GROUPS], limit: Limit) -> bool {
        let (mut all, mut beyond) = ([0xf; COUNT], [0; COUNT]);
        for first in firsts {
            let Some(entries) = writes.get(first..first + COUNT) else { return false };
            for at in 0..COUNT {
                all[at] &= entries[at];
                beyond[at] |= limit.beyond(entries[at]);
            }
        }
        all == [0xf; COUNT] && beyond.into_iter().fold(0, |any, bits| any | bits) >> 63 == 0
    }

    /// Records a load; conflicts with earlier stores are appended to `out`.
    pub fn load(&mut self, clocks: &Clocks, lanes: &Lanes, by: Actor, out: &mut Vec<Conflict>) {
        let limit = self.limit(clocks, by.warp);
        let plane = self.plane(by.warp);
        self.latest[by.warp] = clocks.warps[by.warp].epoch;
        if let Some(step) = lanes.step.filter(|_| !lanes.uniform) {
            for first in lanes.groups() {
                let words = lanes.group_words(first);
                if !self.known(&self.writes[words.clone()], limit) {
                    let group = first..first + GROUP;
                    group.for_each(|lane| self.check(clocks, lanes, by, lane, 0, out));
                }
                let reads = &mut self.reads[plane + words.start..plane + words.end];
                let new = Self::entry(clocks, by, first, 0xf);
                if step == 0 {
                    let last = new + ((GROUP as u64 - 1) << THREAD);
                    reads.iter_mut().for_each(|entry| *entry = read(*entry, last) | MANY);
                    continue;
                }
                for (lane, entries) in (0..).zip(reads.chunks_exact_mut(lanes.lane_words())) {
                    let new = new + (lane << THREAD);
                    entries.iter_mut().for_each(|entry| *entry = read(*entry, new));
                }
            }
            return;
        }
        let whole = lanes.bytes.is_multiple_of(4) && !lanes.uniform;
        if whole && rows::known_lanes(self.has_v3, &self.writes, lanes, limit) {
            let first = Self::entry(clocks, by, 0, 0xf);
            let reads = &mut self.reads[plane..][..self.writes.len()];
            return rows::reread_lanes(self.has_v3, reads, lanes, first);
        }
        for lane in lanes.each() {
            let (words, bytes) = lanes.words(lane);
            if !self.known(&self.writes[words.clone()], limit) {
                self.check(clocks, lanes, by, lane, 0, out);
            }
            let many = if lanes.uniform && lanes.active.count_ones() > 1 { MANY } else { 0 };
            let new = Self::entry(clocks, by, lane, bytes) | many;
            if bytes != 0xf {
                self.part(clocks, by.warp + 1, words.start, new);
            } else {
                for entry in &mut self.reads[plane + words.start..plane + words.end] {
                    *entry = read(*entry, new) | many;
                }
            }
            if lanes.uniform {
                break;
            }
        }
    }

    /// Records a store or atomic; conflicts with earlier accesses are appended to `out`.
    pub fn store(&mut self, clocks: &Clocks, lanes: &Lanes, by: Actor, out: &mut Vec<Conflict>) {
        let sources = clocks.warps.len() + 1;
        let apart = lanes.step.is_some_and(|step| step != 0);
        let clean = |first| {
            let words = lanes.group_words(first);
            (0..sources).all(|source| self.settled_source(clocks, by.warp, source, words.clone()))
        };
        if apart && lanes.groups().all(clean) {
            for first in lanes.groups() {
                let entries =
                    self.writes[lanes.group_words(first)].chunks_exact_mut(lanes.lane_words());
                for (lane, entries) in (first..).zip(entries) {
                    entries.fill(Self::entry(clocks, by, lane, 0xf) | 0xf);
                }
            }
            return;
        }
        let whole = lanes.bytes.is_multiple_of(4);
        if whole
            && (0..sources).all(|source| {
                let source = self.source(clocks, by.warp, source);
                source.is_none_or(|(entries, limit)| {
                    rows::known_lanes(self.has_v3, entries, lanes, limit)
                })
            })
        {
            for lane in lanes.each() {
                let new = Self::entry(clocks, by, lane, 0xf) | 0xf;
                self.writes[lanes.words(lane).0].fill(new);
            }
            return;
        }
        for lane in lanes.each() {
            let (words, bytes) = lanes.words(lane);
            for source in 0..sources {
                if !self.settled_source(clocks, by.warp, source, words.clone()) {
                    self.check(clocks, lanes, by, lane, source, out);
                }
            }
            let new = Self::entry(clocks, by, lane, bytes) | bytes;
            if bytes != 0xf {
                self.part(clocks, 0, words.start, new);
                continue;
            }
            for entry in &mut self.writes[words] {
                *entry = new;
            }
        }
    }

    /// The accesses of a source, and which of them a warp is ordered after for certain; `None` if
    /// it is after all.
    fn source(&self, clocks: &Clocks, warp: usize, source: usize) -> Option<(&[u64], Limit)> {
        let Some(reader) = source.checked_sub(1) else {
            return Some((&self.writes, self.limit(clocks, warp)));
        };
        let last = clocks.warps[warp].known_of(reader);
        let limit = Limit { last: ((u64::from(last) + 1) << EPOCH) - 1, seen: 0 };
        let reads = &self.reads[self.plane(reader)..][..self.writes.len()];
        (self.latest[reader] > last).then_some((reads, limit))
    }

    /// Whether a warp is ordered after all accesses of a source to some words, for certain.
    fn settled_source(
        &self,
        clocks: &Clocks,
        warp: usize,
        source: usize,
        words: Range<usize>,
    ) -> bool {
        let source = self.source(clocks, warp, source);
        source.is_none_or(|(entries, limit)| self.known(&entries[words], limit))
    }

    /// Compares a lane with earlier accesses of a source to its words: 0 is the write, from 1 on
    /// the reads of each warp.
    fn check(
        &mut self,
        clocks: &Clocks,
        lanes: &Lanes,
        by: Actor,
        lane: usize,
        source: usize,
        out: &mut Vec<Conflict>,
    ) {
        let (words, bytes) = lanes.words(lane);
        // The last entry that the lane is ordered after.
        let mut last = 0;
        for word in words {
            for entry in self.entries(source, word) {
                let common = entry >> BYTES & bytes;
                if entry == last || common == 0 || by.strong && entry & STRONG != 0 {
                    continue;
                }
                let many = source != 0 && entry & MANY != 0;
                let earlier = self.event(entry, clocks.block, many);
                if !clocks.ordered(&earlier, by.warp, lane as u32) {
                    let at = word as u64 * 4 + u64::from(common.trailing_zeros());
                    out.push(Conflict { lane, at, earlier, open: false });
                    continue;
                }
                last = entry;
                if entry >> EPOCH == COPIED {
                    self.seen[by.warp] = entry;
                }
            }
        }
    }
}
