//! How rows are held between phases: by registers of threads, of a cluster's blocks, by shared
//! memory, or by none.

use crate::engine::access::{ACCESS_BYTES_MAX, REGISTERS_SM, ceil_div};
use crate::engine::reduction::phases::Residence;
use crate::engine::reduction::schedule::{Footprint, ITEMS_MAX};
use crate::engine::reduction::space::Space;
use crate::target::Target;

/// Maximum registers per thread for half occupancy.
pub(super) const REGISTERS_WANTED: i64 = 128;

/// Minimum waves for which a persistent grid is profitable.
pub(super) const PASSES_MIN: i64 = 4;

/// Threads per row by the most elements it has: short rows share warps, and a row of one warp needs
/// no barrier; beyond, so many that each thread still holds enough to keep memory busy.
const THREADS_BY_COLUMNS: [(i64, i64); 5] =
    [(64, 8), (128, 16), (3072, 32), (6144, 64), (16384, 128)];
const THREADS_LONG: i64 = 256;

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

/// How a row is held.
pub(super) struct Held {
    pub(super) row_threads: i64,
    pub(super) items: i64,
    pub(super) cluster: i64,
    pub(super) stages: i64,
    pub(super) residence: Residence,
}

impl Held {
    /// The best way to hold rows of so many chunks of `vector` elements, by at most so many threads
    /// of a block and blocks of a cluster.
    pub(super) fn of(
        space: &Space,
        footprint: &Footprint,
        target: &Target,
        [vector, chunks]: [i64; 2],
        maxima: [i64; 2],
    ) -> Held {
        let held = held(space, footprint, vector, chunks, maxima);
        let Some(least) = least_staged(&held, space, footprint, target, vector) else {
            return held;
        };
        let of = |stages| staged(footprint, target, [vector, chunks, stages]);
        let found = (least.stages..=STAGES_WANTED).rev().find_map(of);
        match found.filter(|(blocks, _)| *blocks >= least.blocks) {
            Some((_, staged)) => staged,
            None => held,
        }
    }
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
/// beside its sums of columns, which would wait for its loads, and where blocks of a cluster would
/// wait for each other; those of two blocks if there functions of elements are computed once.
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
            let computed_once = footprint.keeps_functions && !space.has_sums();
            let blocks = if computed_once { 2 } else { 1 };
            let waits = cluster > 1 || (space.has_sums() && 2 * needed > REGISTERS_SM);
            (many && waits).then_some(LeastStaged { stages: STAGES_WANTED, blocks })
        }
        Residence::Shared | Residence::Memory => {
            (many || space.has_sums()).then_some(LeastStaged { stages: 1, blocks: 1 })
        }
    }
}

/// Threads, items and stages that keep rows in shared memory, where it has at least so many, and
/// the blocks of an SM: as few threads for each as their registers allow, so many stages that
/// memory is busy.
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
    let threads_sm =
        |(blocks, held): &(i64, Held)| (*blocks * held.row_threads).min(STAGED_THREADS);
    // Of those with as many threads of an SM, the one with the smallest blocks.
    [1024, 512, 256, 128].into_iter().filter_map(held).max_by_key(threads_sm)
}
