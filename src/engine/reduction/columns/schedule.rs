//! How kept and reduced dimensions are distributed over threads: knobs, registers, the launch grid.

use crate::dtype::DType;
use crate::engine::Knob;
use crate::engine::access::{
    ACCESS_BYTES_MAX, GRID_MAX, REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div, stored,
};
use crate::engine::reduction::phases::{Phases, Residence};
use crate::engine::reduction::schedule::{REGISTERS_BASE, REGISTERS_F64, REGISTERS_F64_ELEMENT};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::variance;
use crate::engine::tunable::settings;
use crate::graph::{CanonicalGraph, Op};
use crate::target::Arch;

/// Maximum number of threads along the kept and along the reduced dimensions.
const THREADS_X_MAX: i64 = 256;
const THREADS_Y_MAX: i64 = 64;

/// Maximum number of blocks per value.
const SPLIT_MAX: i64 = 1024;

/// Maximum vectors of an operand in flight per thread.
const ITEMS_MAX: i64 = 8;

/// Minimum elements per split of a value.
const SEGMENT_MIN: i64 = 32;

/// Bytes of static shared memory per block.
const SHARED_BYTES_MAX: i64 = 48 << 10;

settings! { pub(super) struct Settings { items, split, threads_x, threads_y, vector } }

/// Everything derived from legal settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Schedule {
    /// Neighbouring values per thread.
    pub(super) vector: i64,
    /// Vectors in flight per thread.
    pub(super) items: i64,
    /// Threads along the kept dimensions.
    pub(super) threads_x: i64,
    /// Threads along the reduced dimensions.
    pub(super) threads_y: i64,
    /// Vectors that cover the kept dimensions.
    pub(super) chunks: i64,
    /// Blocks per value.
    pub(super) segments: i64,
    /// Elements of a value per split.
    pub(super) segment: i64,
}

impl Schedule {
    /// # Errors
    /// Where a block has too few or too many threads, or the settings need more registers or shared
    /// memory than there are, or more blocks than a grid has.
    pub(super) fn new(
        space: &Space,
        footprint: &Footprint,
        settings: Settings,
    ) -> Result<Schedule, String> {
        let Settings { items, split: segments, threads_x, threads_y, vector } = settings;
        let threads = threads_x * threads_y;
        let threads_max = i64::from(Arch::BLOCK_THREADS_MAX);
        if !(32..=threads_max).contains(&threads) {
            return Err(format!("has blocks of {threads} threads, not of 32 to {threads_max}"));
        }
        let shared_bytes = footprint.shared_bytes(vector, threads_x, threads_y);
        if shared_bytes > SHARED_BYTES_MAX {
            return Err(format!(
                "needs {shared_bytes} bytes of shared memory, not {SHARED_BYTES_MAX}"
            ));
        }
        let needed = footprint.registers(vector, items);
        let available = (REGISTERS_SM / threads).min(REGISTERS_THREAD_MAX);
        // The estimate steers away from spills; the smallest setting is for the assembler to judge.
        if needed > available && (vector > 1 || items > 1) {
            return Err(format!("needs about {needed} registers of a thread's {available}"));
        }
        let chunks = chunks(space, vector);
        let segment = ceil_div(space.columns.count(), segments);
        let schedule = Schedule { vector, items, threads_x, threads_y, chunks, segments, segment };
        let blocks = schedule.tiles().saturating_mul(segments);
        if blocks > GRID_MAX {
            return Err(format!("needs {blocks} blocks, more than a grid has"));
        }
        Ok(schedule)
    }

    pub(super) fn threads(&self) -> i64 {
        self.threads_x * self.threads_y
    }

    /// Blocks that cover the kept dimensions.
    pub(super) fn tiles(&self) -> i64 {
        ceil_div(self.chunks, self.threads_x)
    }
}

/// Vectors of this many values that cover the kept dimensions.
pub(super) fn chunks(space: &Space, vector: i64) -> i64 {
    let lines = space.rows.outer().iter().product::<i64>();
    lines.saturating_mul(ceil_div(space.rows.width(), vector))
}

/// The knobs with the values this graph allows.
pub(super) fn knobs(graph: CanonicalGraph<'_>, space: &Space) -> [Knob; 5] {
    let (rows, columns) = (&space.rows, &space.columns);
    // An output that is smaller than the space is written once, by a thread of one value.
    let guarded = rows.width() > 1
        && stored(graph).any(|(at, _)| graph.is_written(at) && rows.stride(at) == 0);
    let elements = stored(graph).filter(|(at, _)| !space.is_row(*at));
    let narrowest = elements.map(|(_, tensor)| tensor.dtype.bytes() as i64).min().unwrap_or(4);
    let power = |count: i64| (count.max(1) as u64).next_power_of_two().min(1 << 20) as i64;
    let vector_max = match guarded {
        true => 1,
        false => (ACCESS_BYTES_MAX / narrowest).min(power(rows.width())),
    };
    let up_to = |max: i64| (0..).map(|n| 1 << n).take_while(|n| *n <= max).collect();
    let reduced = power(columns.count());
    [
        Knob {
            name: "items",
            about: "vectors in flight per thread",
            values: up_to(ITEMS_MAX.min(reduced)),
        },
        Knob {
            name: "split",
            about: "blocks that share a value",
            values: up_to((columns.count() / SEGMENT_MIN).clamp(1, SPLIT_MAX)),
        },
        Knob {
            name: "threads_x",
            about: "threads along the kept dimensions",
            values: up_to(power(rows.count()).clamp(32, THREADS_X_MAX)),
        },
        Knob {
            name: "threads_y",
            about: "threads along the reduced dimensions",
            values: up_to(THREADS_Y_MAX.min(reduced)),
        },
        Knob { name: "vector", about: "neighbouring values per thread", values: up_to(vector_max) },
    ]
}

/// The knobs with the values that some count of rows allows: a kernel serves them all.
pub(super) fn for_any_count(mut knobs: [Knob; 5]) -> [Knob; 5] {
    for knob in &mut knobs {
        let most = match knob.name {
            "items" => ITEMS_MAX,
            "split" => SPLIT_MAX,
            "threads_x" => THREADS_X_MAX,
            "threads_y" => THREADS_Y_MAX,
            _ => continue,
        };
        knob.values = (0..).map(|n| 1 << n).take_while(|n| *n <= most).collect();
    }
    knobs
}

/// Register and shared memory demand of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Footprint {
    /// Registers for the values at one kept position: results of reductions, and what elements need
    /// besides.
    value_words: i64,
    /// Registers of one element of every output, until its vector is stored.
    output_words: i64,
    /// Operands with one element for a whole vector.
    broadcast: i64,
    /// Bytes of one element of each other operand.
    pub(super) input_bytes: Vec<i64>,
    /// Bytes of the partials of one value.
    part_bytes: i64,
    /// Bytes of the partials per value and split, of all reductions.
    pub(super) left_bytes: i64,
    is_double: bool,
}

impl Footprint {
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space) -> Footprint {
        let words = |dtype: DType| if dtype == DType::F64 { 2 } else { 1 };
        let elements = stored(graph).filter(|(at, _)| !space.is_row(*at));
        let (outputs, inputs): (Vec<_>, Vec<_>) =
            elements.partition(|(at, _)| graph.is_written(*at));
        let (broadcast, inputs): (Vec<_>, Vec<_>) =
            inputs.into_iter().partition(|(at, _)| space.rows.stride(*at) == 0);
        let phases = Phases::of(graph, space, Residence::Memory).phases;
        let values = phases.iter().flat_map(|phase| phase.row.outputs.iter().copied());
        let read = phases.iter().flat_map(|phase| [&phase.row, &phase.elements]);
        let mut read: Vec<usize> = read.flat_map(Phases::reads).collect();
        read.sort_unstable();
        read.dedup();
        let read = read.into_iter().filter(|at| {
            let tensor = &graph.tensors[*at];
            space.is_row(*at) && !graph.is_written(*at) && !tensor.by_value
        });
        let values = values.chain(read).map(|at| words(graph.tensors[at].dtype));
        let maths = graph.operations.iter().filter(|of| matches!(of.op, Op::Reduction(_)));
        let maths: Vec<DType> = maths.map(|operation| operation.op.math()).collect();
        let partials = maths.iter().map(|math| words(*math));
        let used = |math: DType| if maths.contains(&math) { math.bytes() as i64 } else { 0 };
        Footprint {
            value_words: values.chain(partials).sum::<i64>() + variance::words(graph, space),
            output_words: outputs.iter().map(|(_, tensor)| words(tensor.dtype)).sum(),
            broadcast: broadcast.len() as i64,
            input_bytes: inputs.iter().map(|(_, tensor)| tensor.dtype.bytes() as i64).collect(),
            part_bytes: used(DType::F32) + used(DType::F64),
            left_bytes: maths.iter().map(|math| math.bytes() as i64).sum(),
            is_double: graph.operations.iter().any(|of| of.op.math() == DType::F64),
        }
    }

    /// 32-bit registers of a thread: the fragments that it holds, and its values.
    pub(super) fn registers(&self, vector: i64, items: i64) -> i64 {
        let fragments = self.input_bytes.iter().map(|bytes| (bytes * vector + 3) / 4).sum::<i64>();
        let double = match self.is_double {
            true => REGISTERS_F64 + REGISTERS_F64_ELEMENT * vector * items,
            false => 0,
        };
        let values = vector * (self.value_words + self.output_words);
        REGISTERS_BASE + items * (fragments + self.broadcast) + values + double
    }

    /// Bytes of shared memory of a block: a part of each value from each of its threads.
    pub(super) fn shared_bytes(&self, vector: i64, threads_x: i64, threads_y: i64) -> i64 {
        match threads_y {
            1 => 0,
            _ => self.part_bytes * vector * threads_x * (threads_y + 1),
        }
    }
}
