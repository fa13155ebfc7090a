//! How rows are distributed over threads: knobs, registers, the launch grid.

use std::fmt;

use crate::dtype::DType;
use crate::engine::Knob;
use crate::engine::access::{
    ACCESS_BYTES_MAX, GRID_MAX, REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div, stored,
};
use crate::engine::reduction::phases::{Phase, Phases, Residence};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::staging::Staging;
use crate::engine::reduction::step::Step;
use crate::engine::reduction::variance;
use crate::engine::tunable::settings;
use crate::graph::{CanonicalGraph, Op};
use crate::kernel::Grid;
use crate::target::{Arch, Target};
use crate::tensor::TensorDesc;

/// Registers a kernel needs besides its fragments: addresses, coordinates, partial results.
pub(super) const REGISTERS_BASE: i64 = 40;

/// What double-precision functions add, once and per element in flight. Measured with the logarithm
/// of softmax: 12 elements take 48 to 64 registers, less than is estimated.
pub(super) const REGISTERS_F64: i64 = 24;
pub(super) const REGISTERS_F64_ELEMENT: i64 = 2;

/// Threads of an SM where each block leaves sums of columns: enough to keep memory busy,
/// few enough that the sums are little beside the data.
const SUM_THREADS: i64 = 512;

/// Rows that a thread sums up at least, unless that leaves SMs idle.
const SUM_ROWS: i64 = 4;

/// The same where each block has this many rows or more, beside which its sums are nothing.
const SUM_THREADS_MANY: i64 = 1024;
const SUM_ROWS_MANY: i64 = 32;

/// Most blocks of an SM that load a row while the row before is reduced: more of them hide each
/// other's loads.
const PREFETCH_BLOCKS_MAX: i64 = 2;

/// The first architecture with clusters of blocks.
const CLUSTER_CAPABILITY: u16 = 90;

/// Blocks of a cluster, as many as every such device takes.
const CLUSTER_MAX: i64 = 8;

/// Elements of a row for each block of a cluster, at least: a block alone keeps more.
const CLUSTER_COLUMNS: i64 = 4096;

/// Maximum chunks per thread.
pub(super) const ITEMS_MAX: i64 = 16;

settings! {
    pub(super) struct Settings {
        cluster, grid, items, split, stages, threads, threads_row, vector
    }
}

/// Everything derived from legal settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Schedule {
    pub(super) vector: i64,
    /// Chunks in flight per thread; those of a whole row unless that is read again.
    pub(super) items: i64,
    pub(super) threads: i64,
    pub(super) row_threads: i64,
    pub(super) residence: Residence,
    /// Rows that shared memory holds, the one that is reduced among them.
    pub(super) stages: i64,
    /// Shared memory of a block in bytes.
    pub(super) shared_bytes: i64,
    /// Chunks of `vector` elements in a row.
    pub(super) chunks: i64,
    /// Splits of a row; the next kernel combines their partials.
    pub(super) segments: i64,
    /// Blocks of a cluster that keep a row together.
    pub(super) cluster: i64,
    pub(super) persistent: bool,
    /// Whether a row is loaded while the row before is reduced: where an SM has few blocks, each of
    /// which would wait for its loads.
    pub(super) prefetch: bool,
    /// Maximum number of blocks with column sums.
    blocks_max: Option<i64>,
}

/// Why settings are not legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Refusal {
    Threads { threads: i64, row_threads: i64 },
    NotKept { chunks: i64 },
    Cluster { chunks: i64 },
    Stages { stages: i64 },
    Shared { needed: i64, available: i64 },
    Registers { needed: i64, available: i64 },
    Blocks { blocks: i64 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Threads { threads, row_threads } => {
                write!(f, "gives a row {row_threads} of a block's {threads} threads")
            }
            Refusal::NotKept { chunks } => {
                write!(f, "does not keep a row of {chunks} chunks, whose columns are summed up")
            }
            Refusal::Cluster { chunks } => {
                write!(f, "does not keep a row of {chunks} chunks in the blocks of a cluster")
            }
            Refusal::Stages { stages } => {
                write!(
                    f,
                    "does not copy {stages} whole rows to shared memory, one behind the other"
                )
            }
            Refusal::Shared { needed, available } => {
                write!(f, "needs {needed} bytes of a block's {available} of shared memory")
            }
            Refusal::Registers { needed, available } => {
                write!(f, "needs about {needed} registers of a thread's {available}")
            }
            Refusal::Blocks { blocks } => {
                write!(f, "needs {blocks} blocks, more than a grid has; use grid=1")
            }
        }
    }
}

impl Schedule {
    /// # Errors
    /// Where the settings contradict each other, or need more registers than a thread has, or more
    /// blocks than a grid.
    pub(super) fn new(
        space: &Space,
        footprint: &Footprint,
        target: &Target,
        settings: Settings,
    ) -> Result<Schedule, Refusal> {
        let Settings { cluster, grid, items, split: segments, threads, .. } = settings;
        let Settings { stages, threads_row: row_threads, vector, .. } = settings;
        let persistent = grid == 1;
        let shared = segments > 1 || cluster > 1;
        if threads < row_threads || (shared && threads != row_threads) {
            return Err(Refusal::Threads { threads, row_threads });
        }
        let chunks = space.lines().saturating_mul(ceil_div(space.width(), vector));
        let thread_chunks = ceil_div(chunks, row_threads * cluster);
        let kept = (1..=items).contains(&thread_chunks) && segments == 1;
        let items = items.min(thread_chunks.max(1));
        if space.has_sums() && !kept {
            return Err(Refusal::NotKept { chunks });
        }
        if cluster > 1 && !kept {
            return Err(Refusal::Cluster { chunks });
        }
        let staging =
            footprint.staging.as_ref().filter(|of| persistent && kept && of.takes(vector));
        let (residence, shared_bytes) = match (stages, staging) {
            (0, _) if kept => (Residence::Registers, 0),
            (0, _) => (Residence::Memory, 0),
            (_, None) => return Err(Refusal::Stages { stages }),
            (_, Some(of)) => (Residence::Shared, of.bytes(stages, threads, items * vector)),
        };
        let available = target.shared_block_bytes_max.into();
        if shared_bytes > available {
            return Err(Refusal::Shared { needed: shared_bytes, available });
        }
        let blocks_max = space.has_sums().then(|| {
            let sms = i64::from(target.sm_count);
            let several_rows = ceil_div(space.rows.count(), threads / row_threads * SUM_ROWS);
            let blocks = several_rows.saturating_mul(cluster).max(sms);
            let many = space.rows.count() / SUM_ROWS_MANY * row_threads * cluster;
            let threads_sm = match many >= sms * SUM_THREADS_MANY && residence != Residence::Shared
            {
                true => SUM_THREADS_MANY,
                false => SUM_THREADS,
            };
            (blocks.min(sms * threads_sm / threads) / cluster).max(1) * cluster
        });
        let needed = footprint.registers(vector, items, residence);
        let available = (REGISTERS_SM / threads).min(REGISTERS_THREAD_MAX);
        let ahead = needed + footprint.loaded(vector, items);
        let blocks_sm = |registers: i64| REGISTERS_SM / (threads * registers);
        let prefetch = persistent
            && residence == Residence::Registers
            && ahead <= available
            && blocks_sm(needed) <= PREFETCH_BLOCKS_MAX
            && blocks_sm(ahead) == blocks_sm(needed);
        let schedule = Schedule {
            vector,
            items,
            threads,
            row_threads,
            residence,
            stages,
            shared_bytes,
            chunks,
            segments,
            cluster,
            persistent,
            prefetch,
            blocks_max,
        };
        // The estimate steers away from spills; the smallest setting is for the assembler to judge.
        if needed > available && (vector > 1 || items > 1) {
            return Err(Refusal::Registers { needed, available });
        }
        if !persistent && schedule.blocks(space) > GRID_MAX {
            return Err(Refusal::Blocks { blocks: schedule.blocks(space) });
        }
        Ok(schedule)
    }

    /// Rows per block and iteration.
    pub(super) fn block_rows(&self) -> i64 {
        self.threads / self.row_threads
    }

    /// Chunks per split of a row.
    pub(super) fn segment_chunks(&self) -> i64 {
        ceil_div(self.chunks, self.segments)
    }

    /// Number of blocks with work.
    pub(super) fn blocks(&self, space: &Space) -> i64 {
        let blocks = ceil_div(space.rows.count(), self.block_rows())
            .saturating_mul(self.segments * self.cluster);
        blocks.min(self.blocks_max.unwrap_or(i64::MAX))
    }

    /// Sums of columns that are left in scratch memory: one for each row of each block, or of a
    /// cluster's blocks together.
    pub(super) fn slots(&self, space: &Space) -> i64 {
        self.blocks(space) / self.cluster * self.block_rows()
    }

    /// The launch grid of so many blocks.
    pub(super) fn grid(&self, blocks: i64) -> Grid {
        let (blocks, multiple_of) = (blocks.min(GRID_MAX) as u32, self.cluster as u32);
        match self.persistent && blocks > 0 && self.blocks_max.is_none() {
            true => {
                let blocks_max = (blocks / multiple_of * multiple_of).into();
                Grid::Resident { blocks_max, multiple_of }
            }
            false => Grid::fixed(blocks),
        }
    }
}

/// The knobs with the values this graph allows.
pub(super) fn knobs(graph: CanonicalGraph<'_>, space: &Space, target: &Target) -> [Knob; 8] {
    let guarded = stored(graph).any(|(at, _)| {
        graph.is_written(at) && !space.is_row(at) && space.stride(at) == 0 && space.width() > 1
    });
    let elements = stored(graph).filter(|(at, _)| !space.is_row(*at));
    let narrowest = elements.map(|(_, tensor)| tensor.dtype.bytes() as i64).min().unwrap_or(4);
    let power = |count: i64| (count.max(1) as u64).next_power_of_two().min(1 << 20) as i64;
    let vector_max =
        if guarded { 1 } else { (ACCESS_BYTES_MAX / narrowest).min(power(space.width())) };
    let columns = power(space.columns.count());
    let threads_max = i64::from(Arch::BLOCK_THREADS_MAX);
    let up_to = |max: i64| (0..).map(|n| 1 << n).take_while(|n| *n <= max).collect();
    let cluster_max = if target.arch.capability >= CLUSTER_CAPABILITY {
        (columns / CLUSTER_COLUMNS).clamp(1, CLUSTER_MAX)
    } else {
        1
    };
    [
        Knob {
            name: "cluster",
            about: "blocks of a cluster that keep a row together",
            values: up_to(cluster_max),
        },
        Knob {
            name: "grid",
            about: "0: a block per tile of rows; 1: persistent, blocks loop over tiles",
            values: if space.has_sums() { vec![1] } else { vec![0, 1] },
        },
        Knob {
            name: "items",
            about: "the most chunks of a row that a thread keeps; a longer row is read again",
            values: up_to(ITEMS_MAX.min(columns)),
        },
        Knob {
            name: "split",
            about: "blocks that share a row",
            values: up_to((columns / threads_max).clamp(1, 1024)),
        },
        Knob {
            name: "stages",
            about: "rows in shared memory, the one that is reduced and those behind it; 0: a row \
                    stays in registers",
            values: match Staging::of(graph, space, target) {
                Some(_) => vec![0, 1, 2, 3, 4],
                None => vec![0],
            },
        },
        Knob { name: "threads", about: "threads per block", values: vec![128, 256, 512, 1024] },
        Knob {
            name: "threads_row",
            about: "threads per row",
            values: up_to(columns.min(threads_max)),
        },
        Knob { name: "vector", about: "elements per chunk", values: up_to(vector_max) },
    ]
}

/// Register and shared memory demand of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Footprint {
    /// Registers for values of rows.
    row_words: i64,
    /// Registers of one element of every output, until its chunk is stored.
    output_words: i64,
    /// Of these, registers of what is computed of sums of columns.
    column_words: i64,
    /// Operands with one element for a whole chunk.
    broadcast: i64,
    /// Bytes of one element of each other operand.
    pub(super) input_bytes: Vec<i64>,
    /// Bytes of one element of each other operand as it is held between phases: the compiler keeps
    /// what several of them read in the type it is computed in.
    held_bytes: Vec<i64>,
    /// Bytes of one element of each intermediate that stays in registers between phases.
    resident_bytes: Vec<i64>,
    /// Whether these are of more than an instruction or two on each element.
    pub(super) keeps_functions: bool,
    pub(super) staging: Option<Staging>,
    /// Registers of the sums of one column.
    sum_words: i64,
    /// Registers of one element of each variance that is taken in the phase of its mean.
    variance_words: i64,
    is_double: bool,
}

/// For each tensor, whether its elements are computed by more than an instruction or two each.
fn functions(graph: CanonicalGraph<'_>, space: &Space) -> Vec<bool> {
    let mut functions = vec![false; graph.tensors.len()];
    for of in graph.operations {
        let is_short = matches!(&of.op, Op::Pointwise(op) if op.mode.is_short())
            && !of.inputs.iter().any(|input| functions[*input as usize]);
        for output in &of.outputs {
            functions[*output as usize] = !is_short && !space.is_row(*output as usize);
        }
    }
    functions
}

impl Footprint {
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space, target: &Target) -> Footprint {
        let words = |tensor: &TensorDesc| if tensor.dtype == DType::F64 { 2 } else { 1 };
        let bytes = |tensor: &TensorDesc| tensor.dtype.bytes() as i64;
        let (rows, elements): (Vec<_>, Vec<_>) =
            stored(graph).partition(|(at, _)| space.is_row(*at));
        let (outputs, inputs): (Vec<_>, Vec<_>) =
            elements.into_iter().partition(|(at, _)| graph.is_written(*at));
        let (broadcast, inputs): (Vec<_>, Vec<_>) =
            inputs.into_iter().partition(|(at, _)| space.stride(*at) == 0);
        let phases = Phases::of(graph, space, Residence::Registers);
        let functions = functions(graph, space);
        let held = |at: usize, tensor: &TensorDesc| {
            let reads = |phase: &&Phase| phase.reads(at);
            match phases.phases.iter().filter(reads).count() {
                0 | 1 => bytes(tensor),
                _ => bytes(tensor).max(4),
            }
        };
        let sum_words = |step: &Step| step.op.math.dtype().bytes() as i64 / 4;
        Footprint {
            row_words: rows.iter().map(|(_, tensor)| words(tensor)).sum(),
            output_words: outputs.iter().map(|(_, tensor)| words(tensor)).sum(),
            column_words: outputs
                .iter()
                .filter(|(at, _)| space.follows_sums(*at))
                .map(|(_, tensor)| words(tensor))
                .sum(),
            broadcast: broadcast.len() as i64,
            input_bytes: inputs.iter().map(|(_, tensor)| bytes(tensor)).collect(),
            sum_words: phases.phases.iter().flat_map(|phase| &phase.sums).map(sum_words).sum(),
            variance_words: variance::words(graph, space),
            held_bytes: inputs.iter().map(|(at, tensor)| held(*at, tensor)).collect(),
            resident_bytes: phases.resident.iter().map(|at| bytes(&graph.tensors[*at])).collect(),
            keeps_functions: phases.resident.iter().any(|at| functions[*at]),
            staging: Staging::of(graph, space, target),
            is_double: graph.operations.iter().any(|of| of.op.math() == DType::F64),
        }
    }

    /// 32-bit registers of what a thread loads of a row.
    fn loaded(&self, vector: i64, items: i64) -> i64 {
        let words = |bytes: &i64| items * ((bytes * vector + 3) / 4);
        self.row_words + self.input_bytes.iter().map(words).sum::<i64>()
    }

    /// 32-bit registers of a thread: the fragments that it holds and one chunk's results.
    pub(super) fn registers(&self, vector: i64, items: i64, residence: Residence) -> i64 {
        let fragments = |bytes: &[i64]| -> i64 {
            bytes.iter().map(|bytes| items * ((bytes * vector + 3) / 4)).sum()
        };
        let held = match residence {
            Residence::Registers => fragments(&self.held_bytes) + fragments(&self.resident_bytes),
            Residence::Shared => fragments(&self.input_bytes) / items - vector * self.column_words,
            // A chunk of terms; mean, squares and count of those before.
            Residence::Memory => fragments(&self.input_bytes) + self.variance_words * (vector + 3),
        };
        let held = held + items * self.broadcast;
        let double = match self.is_double {
            true => REGISTERS_F64 + REGISTERS_F64_ELEMENT * vector * items.min(8),
            false => 0,
        };
        let sums = self.sum_words * vector * items;
        held + sums + self.row_words + vector * self.output_words + REGISTERS_BASE + double
    }
}
