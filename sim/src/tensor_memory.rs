//! Tensor memory of a block: 128 lanes of 512 columns of words, its allocations, and what the
//! tensor core has yet to do.
//!
//! MMAs and copies are executed in order, some time after they are issued. What they write must not
//! be accessed until the mbarrier of a later commit is observed.

use crate::matrix_descriptor::Descriptor;
use crate::mbarrier::BarrierAddress;
use crate::tensor_descriptor::Shape;
use crate::unit::{TensorCopy, TensorMultiply};
use std::collections::VecDeque;

pub(crate) const LANES: usize = 128;
pub(crate) const COLUMNS: usize = 512;
/// Smallest allocation in columns.
const COLUMNS_MIN: u32 = 32;

/// Columns in some lanes: of each 32, the first 16, the others or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub first: u32,
    pub count: u32,
    pub halves: [bool; 2],
}

impl Region {
    pub fn all(first: u32, count: u32) -> Region {
        Region { first, count, halves: [true; 2] }
    }

    pub fn meets(self, other: Region) -> bool {
        self.first < other.first + other.count
            && other.first < self.first + self.count
            && (0..2).any(|half| self.halves[half] && other.halves[half])
    }
}

/// Work of the tensor core.
#[derive(Debug)]
pub(crate) enum Work {
    Multiply(Box<Product>),
    Copy { to: u32, from: Descriptor, copy: TensorCopy },
    Commit(Vec<BarrierAddress>),
}

/// A decoded MMA.
#[derive(Debug)]
pub(crate) struct Product {
    pub op: TensorMultiply,
    pub shape: Shape,
    pub d: u32,
    pub a: Result<Descriptor, u32>,
    pub b: Descriptor,
    pub scales: [u32; 2],
    pub adds: bool,
}

/// Work with its issuer.
#[derive(Debug)]
pub(crate) struct Job {
    pub work: Work,
    pub number: u64,
    /// Thread of the block, and op.
    pub by: (u32, u32),
}

/// Tensor memory that an issued job accesses.
#[derive(Debug)]
struct Pending {
    number: u64,
    thread: u32,
    region: Region,
    writes: bool,
}

/// A commit whose mbarrier has been signalled: its phase, and the jobs before it.
#[derive(Debug)]
struct Signal {
    barrier: BarrierAddress,
    odd: bool,
    number: u64,
    thread: u32,
}

/// An allocation, with the op that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub first: u32,
    pub count: u32,
    pub pc: u32,
    pub warp: u32,
}

#[derive(Debug, Default)]
pub(crate) struct TensorMemory {
    /// By lane, then column; empty until something is allocated.
    pub cells: Vec<u32>,
    pub allocations: Vec<Allocation>,
    pub relinquished: bool,
    pub queue: VecDeque<Job>,
    pending: Vec<Pending>,
    signals: Vec<Signal>,
    issued: u64,
}

impl TensorMemory {
    /// Allocates columns; returns the first.
    pub fn allocate(&mut self, count: u32, warp: u32, pc: u32) -> Result<u32, String> {
        if !(COLUMNS_MIN..=COLUMNS as u32).contains(&count) || !count.is_power_of_two() {
            return Err(format!(
                "tcgen05.alloc of {count} columns, not a power of 2 from 32 to 512"
            ));
        }
        if self.relinquished {
            return Err("tcgen05.alloc after tcgen05.relinquish_alloc_permit".to_string());
        }
        let taken = |first: u32| {
            let meets =
                |own: &&Allocation| first < own.first + own.count && own.first < first + count;
            self.allocations.iter().any(|own| meets(&own))
        };
        let mut places = (0..=COLUMNS as u32 - count).step_by(count as usize);
        let Some(first) = places.find(|&first| !taken(first)) else {
            let used: u32 = self.allocations.iter().map(|own| own.count).sum();
            let free = COLUMNS as u32 - used;
            return Err(format!("tcgen05.alloc of {count} columns where {free} are free"));
        };
        if self.cells.is_empty() {
            self.cells = vec![0; LANES * COLUMNS];
        }
        self.allocations.push(Allocation { first, count, pc, warp });
        Ok(first)
    }

    pub fn free(&mut self, address: u32, count: u32) -> Result<(), String> {
        let own = |own: &Allocation| own.first == address && own.count == count;
        let Some(at) = self.allocations.iter().position(own) else {
            return Err(format!(
                "tcgen05.dealloc of {count} columns at {address:#x}, which were not allocated so"
            ));
        };
        if self.pending.iter().any(|p| p.region.meets(Region::all(address, count))) {
            return Err(
                "tcgen05.dealloc of columns that the tensor core has yet to use".to_string()
            );
        }
        self.allocations.remove(at);
        Ok(())
    }

    /// Rejects columns that are not allocated.
    pub fn check_allocated(&self, what: &str, region: Region) -> Result<(), String> {
        let Region { first, count, .. } = region;
        let holds = |own: &Allocation| first >= own.first && first + count <= own.first + own.count;
        match self.allocations.iter().any(holds) {
            true => Ok(()),
            false => Err(format!(
                "{what} of tensor memory columns {first} to {}, which are not allocated",
                first + count - 1
            )),
        }
    }

    /// Rejects an access that a job under way conflicts with.
    pub fn check_idle(&self, what: &str, region: Region, writes: bool) -> Result<(), String> {
        let conflict = |p: &&Pending| (p.writes || writes) && p.region.meets(region);
        let Some(pending) = self.pending.iter().find(conflict) else { return Ok(()) };
        let verb = if pending.writes { "writes" } else { "reads" };
        Err(format!(
            "{what} of tensor memory columns {} to {}, which a tcgen05 operation {verb} whose \
             commit has not been waited for",
            region.first,
            region.first + region.count - 1
        ))
    }

    /// Queues work that accesses some tensor memory.
    pub fn issue(&mut self, work: Work, by: (u32, u32), regions: &[(Region, bool)]) {
        let number = self.issued;
        self.issued += 1;
        for &(region, writes) in regions {
            self.pending.push(Pending { number, thread: by.0, region, writes });
        }
        self.queue.push_back(Job { work, number, by });
    }

    /// Records that a commit has signalled an mbarrier in a phase.
    pub fn signalled(&mut self, job: &Job, barrier: BarrierAddress, odd: bool) {
        let (number, thread) = (job.number, job.by.0);
        self.signals.push(Signal { barrier, odd, number, thread });
    }

    /// Records that a thread has seen the end of an mbarrier's phase.
    pub fn observed(&mut self, barrier: BarrierAddress, odd: bool) {
        let seen = |signal: &Signal| signal.barrier == barrier && signal.odd == odd;
        let Some(at) = self.signals.iter().rposition(seen) else { return };
        let Signal { number, thread, .. } = self.signals[at];
        self.signals.retain(|signal| signal.thread != thread || signal.number > number);
        self.pending.retain(|pending| pending.thread != thread || pending.number > number);
    }

    pub fn cell(&mut self, lane: usize, column: usize) -> &mut u32 {
        &mut self.cells[lane * COLUMNS + column % COLUMNS]
    }
}
