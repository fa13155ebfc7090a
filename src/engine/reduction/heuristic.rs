//! The best settings, and why.

use crate::engine::Knob;
use crate::engine::access::{
    ACCESS_BYTES_MAX, GRID_MAX, REGISTERS_SM, access_bytes, ceil_div, stored,
};
use crate::engine::reduction::phases::Residence;
use crate::engine::reduction::schedule::{Footprint, ITEMS_MAX, Settings, knobs};
use crate::engine::reduction::space::Space;
use crate::graph::CanonicalGraph;
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Maximum registers per thread for half occupancy.
pub(super) const REGISTERS_WANTED: i64 = 128;

/// Threads per row by the most elements it has: short rows share warps, and a row of one warp needs
/// no barrier; beyond, so many that each thread still holds enough to keep memory busy.
const THREADS_BY_COLUMNS: [(i64, i64); 5] =
    [(64, 8), (128, 16), (3072, 32), (6144, 64), (16384, 128)];
const THREADS_LONG: i64 = 256;

/// Threads of a block: enough warps to fill an SM with few blocks, few enough to balance.
const THREADS: i64 = 128;

/// Minimum waves for which a persistent grid is profitable.
const PASSES_MIN: i64 = 4;

/// Minimum elements per split of a row: 16 for each of 256 threads.
const SEGMENT_MIN: i64 = 4096;

/// Threads of an SM that reduce rows in shared memory, if so many fit: their registers have sums
/// of columns, and copies keep memory busy.
const STAGED_THREADS: i64 = 512;

/// Rows in shared memory, so that one is reduced while another is copied, and at most.
const STAGES_WANTED: i64 = 2;
const STAGES_MAX: i64 = 4;

/// Bytes that an SM asks memory for while it reduces a row: what memory moves in its latency, and
/// half as much again while a block waits for its own warps.
const IN_FLIGHT_BYTES: i64 = 64 << 10;

/// Shared memory that a block has besides its own.
const SHARED_RESERVED: i64 = 1024;

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
                    let held =
                        held(space, &footprint, vector, chunks, [row_threads_max, last(&clusters)]);
                    let least = least_staged(&held, space, &footprint, target, vector);
                    let staged = least.and_then(|least| {
                        let of = |stages| staged(&footprint, target, [vector, chunks, stages]);
                        let found = (least.stages..=STAGES_WANTED).rev().find_map(of);
                        found.filter(|(blocks, _)| *blocks >= least.blocks)
                    });
                    staged.map_or(held, |(_, staged)| staged)
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
            (true, true) => format!("{passes} passes over the device load what rows share once"),
            (false, true) => "one pass needs more blocks than a grid has".to_owned(),
            (true, false) => "too few passes to load what rows share once".to_owned(),
            _ => "rows share no elements".to_owned(),
        };
        let items_why = match self.residence {
            Residence::Registers => {
                format!("a row of {columns} stays in registers: it is read once")
            }
            Residence::Shared => format!("a row of {columns} in shared memory"),
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

/// How a row is held.
struct Held {
    row_threads: i64,
    items: i64,
    cluster: i64,
    stages: i64,
    residence: Residence,
}

/// Threads, items and cluster that keep a row in registers, or else those that reread it.
fn held(
    space: &Space,
    footprint: &Footprint,
    vector: i64,
    chunks: i64,
    [row_threads_max, cluster_max]: [i64; 2],
) -> Held {
    let columns = space.columns.count();
    let first = THREADS_BY_COLUMNS.iter().find(|(most, _)| columns <= *most);
    let mut row_threads = first.map_or(THREADS_LONG, |(_, threads)| *threads);
    let useful = (chunks.max(1) as u64).next_power_of_two().min(1 << 20) as i64;
    row_threads = row_threads.min(useful).min(row_threads_max);
    let items = |sharers: i64| ceil_div(chunks, sharers).max(1);
    let fits = |sharers: i64| {
        let items = items(sharers);
        items <= ITEMS_MAX
            && footprint.registers(vector, items, Residence::Registers) <= REGISTERS_WANTED
    };
    while !fits(row_threads) && row_threads < row_threads_max.min(512) {
        row_threads *= 2;
    }
    let clusters = std::iter::successors(Some(1), |cluster| Some(cluster * 2));
    let mut clusters = clusters.take_while(|cluster| *cluster <= cluster_max);
    match clusters.find(|cluster| fits(row_threads * cluster)) {
        Some(cluster) => {
            let items = (items(row_threads * cluster) as u64).next_power_of_two() as i64;
            Held { row_threads, items, cluster, stages: 0, residence: Residence::Registers }
        }
        None => {
            let in_flight = (footprint.input_bytes.iter().sum::<i64>() * vector).max(1);
            let mut items = 1 << (4 * ACCESS_BYTES_MAX / in_flight).clamp(1, 4).ilog2();
            while items > 1
                && footprint.registers(vector, items, Residence::Memory) > REGISTERS_WANTED
            {
                items /= 2;
            }
            Held {
                row_threads: THREADS_LONG.min(row_threads_max),
                items,
                cluster: 1,
                stages: 0,
                residence: Residence::Memory,
            }
        }
    }
}

/// Rows in shared memory, and blocks of an SM that have so many.
struct LeastStaged {
    stages: i64,
    blocks: i64,
}

/// What shared memory must hold at least for rows to be better copied there than held so, if they
/// ever are: a row where nothing holds it; two, if there are many rows, where an SM has one block
/// beside its sums of columns, which would wait for its loads; those of two blocks where blocks of a
/// cluster would wait for each other, since there elements are computed once.
fn least_staged(
    held: &Held,
    space: &Space,
    footprint: &Footprint,
    target: &Target,
    vector: i64,
) -> Option<LeastStaged> {
    let Held { row_threads, items, cluster, residence, .. } = *held;
    let many = space.rows.count() >= PASSES_MIN * i64::from(target.sm_count);
    let needed = row_threads * footprint.registers(vector, items, residence);
    match residence {
        Residence::Registers => {
            let blocks = if space.has_sums() { 1 } else { 2 };
            let waits = cluster > 1 || (space.has_sums() && 2 * needed > REGISTERS_SM);
            (many && waits).then_some(LeastStaged { stages: STAGES_WANTED, blocks })
        }
        Residence::Shared | Residence::Memory => {
            (many || space.has_sums()).then_some(LeastStaged { stages: 1, blocks: 1 })
        }
    }
}

/// Threads, items and stages that keep rows in shared memory, where it has at least so many, and the
/// blocks of an SM: as few threads for each as their registers allow, so many stages that memory is
/// busy.
fn staged(
    footprint: &Footprint,
    target: &Target,
    [vector, chunks, stages_min]: [i64; 3],
) -> Option<(i64, Held)> {
    let staging = footprint.staging.as_ref().filter(|of| of.takes(vector))?;
    let block_max = i64::from(target.shared_block_bytes_max);
    let sm_max = i64::from(target.shared_sm_bytes);
    let held = |row_threads: i64| {
        let items = ceil_div(chunks, row_threads).max(1);
        let registers = footprint.registers(vector, items, Residence::Shared);
        let bytes = |stages| staging.bytes(stages, row_threads, items * vector) + SHARED_RESERVED;
        let fits = items <= ITEMS_MAX
            && registers <= REGISTERS_WANTED.min(REGISTERS_SM / row_threads)
            && bytes(stages_min) <= block_max;
        let blocks = (REGISTERS_SM / (row_threads * registers))
            .min(sm_max / bytes(stages_min))
            .min((STAGED_THREADS / row_threads).max(1));
        let busy = |stages: &i64| {
            blocks * (bytes(*stages) - bytes(1)) >= IN_FLIGHT_BYTES
                || bytes(stages + 1) > block_max.min(sm_max / blocks)
        };
        let stages = fits.then(|| (stages_min..STAGES_MAX).find(busy).unwrap_or(STAGES_MAX))?;
        let items = (items as u64).next_power_of_two() as i64;
        let held = Held { row_threads, items, cluster: 1, stages, residence: Residence::Shared };
        Some((blocks, held))
    };
    let threads_sm = |(blocks, held): &(i64, Held)| *blocks * held.row_threads;
    // Of those with as many threads of an SM, the one with the smallest blocks.
    [1024, 512, 256, 128].into_iter().filter_map(held).max_by_key(threads_sm)
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
