//! The best settings, and why.

use crate::engine::Knob;
use crate::engine::access::{GRID_MAX, REGISTERS_SM, access_bytes, ceil_div, stored};
use crate::engine::reduction::held::{Held, PASSES_MIN, REGISTERS_WANTED};
use crate::engine::reduction::phases::Residence;
use crate::engine::reduction::schedule::{Footprint, Settings, knobs};
use crate::engine::reduction::space::Space;
use crate::graph::CanonicalGraph;
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Threads of a block: enough warps to fill an SM with few blocks, few enough to balance.
const THREADS: i64 = 128;

/// Minimum elements per split of a row: 16 for each of 256 threads.
const SEGMENT_MIN: i64 = 4096;

/// The best settings, and what decided them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    vector: i64,
    items: i64,
    threads: i64,
    row_threads: i64,
    split: i64,
    cluster: i64,
    persistent: bool,
    /// Whether there are column sums.
    sums: bool,
    residence: Residence,
    stages: i64,
    /// Whether neighbours in memory belong to different rows.
    across: bool,
    /// Whether all rows share elements of an operand.
    shares: bool,
    rows: i64,
    columns: i64,
    /// Waves over the whole device.
    passes: i64,
}

impl Decision {
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space, target: &Target) -> Decision {
        let (rows, columns) = (space.rows.count(), space.columns.count());
        let across = space.is_across(graph);
        let [clusters, _, _, splits, _, _, row_threads, vectors] = knobs(graph, space, target);
        let last = |knob: &Knob| *knob.values.last().expect("a knob has a value");
        let (row_threads_max, split_max) = (last(&row_threads), last(&splits));
        let footprint = Footprint::of(graph, space, target);
        let mut vector = if across { 1 } else { widest(graph, space, last(&vectors)) };
        while vector > 1 && footprint.registers(vector, 1, Residence::Registers) > REGISTERS_WANTED
        {
            vector /= 2;
        }
        let chunks = space.lines().saturating_mul(ceil_div(space.width(), vector));
        let device_threads = i64::from(target.sm_count * target.threads_sm_max);
        let Held { mut row_threads, items, cluster, stages, residence } =
            match across && !space.has_sums() {
                true => Held {
                    row_threads: 1,
                    items: 1,
                    cluster: 1,
                    stages: 0,
                    residence: Residence::Memory,
                },
                false => {
                    let maxima = [row_threads_max, last(&clusters)];
                    Held::of(space, &footprint, target, [vector, chunks], maxima)
                }
            };
        // Too few rows to occupy the device: more threads for each, or several blocks.
        while across
            && row_threads < row_threads_max
            && footprint.registers(vector, items, residence) <= REGISTERS_SM / (2 * row_threads)
            && rows.saturating_mul(row_threads) < device_threads / 4
        {
            row_threads *= 2;
        }
        let threads = row_threads.max(THREADS);
        let mut split = 1;
        while residence == Residence::Memory
            && threads == row_threads
            && split < split_max
            && rows.saturating_mul(split * threads) < device_threads
            && columns / (2 * split) >= SEGMENT_MIN
        {
            split *= 2;
        }
        let shares = rows > 1
            && stored(graph)
                .any(|(at, _)| !graph.is_written(at) && !space.is_row(at) && space.is_shared(at));
        let passes = rows.saturating_mul(row_threads) / device_threads.max(1);
        let persistent = space.has_sums()
            || (shares
                && residence == Residence::Registers
                && cluster == 1
                && passes >= PASSES_MIN)
            || residence == Residence::Shared
            || ceil_div(rows, threads / row_threads).saturating_mul(split * cluster) > GRID_MAX;
        Decision {
            vector,
            items,
            threads,
            row_threads,
            split,
            cluster,
            persistent,
            sums: space.has_sums(),
            residence,
            stages,
            across,
            shares,
            rows,
            columns,
            passes,
        }
    }

    /// Whether a row is read once.
    pub(super) fn is_resident(&self) -> bool {
        self.residence != Residence::Memory
    }

    pub(super) fn settings(&self) -> Settings {
        let Decision { cluster, items, split, stages, threads, row_threads, vector, .. } = *self;
        let grid = i64::from(self.persistent);
        Settings { cluster, grid, items, split, stages, threads, threads_row: row_threads, vector }
    }

    /// Reasons, one line per knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { vector, items, threads, row_threads, split, stages, cluster, .. } = *self;
        let Decision { rows, columns, passes, .. } = *self;
        let cluster_why = match cluster {
            1 if self.is_resident() => "a block keeps a row",
            1 => "registers of a cluster do not keep a row, or there are none",
            _ => "one block does not keep a row, these do",
        };
        let grid = match (self.shares, self.persistent) {
            _ if self.sums => "a block sums up the columns of many rows".to_owned(),
            _ if self.stages > 0 => "a block copies rows ahead of its own".to_owned(),
            (true, true) => format!("{passes} passes over the device load what rows share once"),
            (false, true) => "one pass needs more blocks than a grid has".to_owned(),
            (true, false) => "too few passes to load what rows share once".to_owned(),
            _ => "rows share no elements".to_owned(),
        };
        let items_why = match self.residence {
            Residence::Registers => {
                format!("a row of {columns} stays in registers: it is read once")
            }
            Residence::Shared => {
                format!("a row of {columns} stays in shared memory: it is read once")
            }
            Residence::Memory => {
                format!("a row of {columns} is read in each phase; so much is in flight")
            }
        };
        let split_why = match split {
            1 => format!("{rows} rows are work enough, or short"),
            _ => format!("{rows} rows of {columns} do not occupy the device"),
        };
        let stages_why = match stages {
            0 => "registers keep a row, or nothing does",
            _ => "rows are copied while another one is reduced",
        };
        let row_why = match self.across {
            true => "neighbours in memory are in different rows".to_owned(),
            false => format!("for {columns} elements"),
        };
        let vector_why = match self.across {
            true => "neighbours in memory are in different rows",
            false => "the widest access that layouts and alignment allow",
        };
        vec![
            format!("cluster={cluster}: {cluster_why}"),
            format!("grid={}: {grid}", i64::from(self.persistent)),
            format!("items={items}: {items_why}"),
            format!("split={split}: {split_why}"),
            format!("stages={stages}: {stages_why}"),
            format!("threads={threads}: {} rows per block", threads / row_threads),
            format!("threads_row={row_threads}: {row_why}"),
            format!("vector={vector}: {vector_why}"),
        ]
    }
}

/// Elements in the widest access, up to this one, that some tensor's layout and alignment allow.
fn widest(graph: CanonicalGraph<'_>, space: &Space, widest: i64) -> i64 {
    let vectorised = |(at, tensor): (usize, &TensorDesc)| {
        let (strides, extents) = space.outer(at);
        match space.stride(at) {
            1 => access_bytes(tensor, &strides, &extents, widest) / tensor.dtype.bytes() as i64,
            _ => 1,
        }
    };
    let elements = stored(graph).filter(|(at, _)| !space.is_row(*at));
    elements.map(vectorised).max().unwrap_or(1).min(widest)
}
