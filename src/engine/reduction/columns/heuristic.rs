//! The best settings, and why.

use crate::engine::access::{access_bytes, ceil_div, stored};
use crate::engine::reduction::columns::layout::outer;
use crate::engine::reduction::columns::schedule::{Footprint, Settings, chunks, knobs};
use crate::engine::reduction::held::REGISTERS_WANTED;
use crate::engine::reduction::space::Space;
use crate::graph::CanonicalGraph;
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Threads of a block, of which a warp lies along the kept dimensions where these are wide enough:
/// it then reads 512 bytes side by side.
const THREADS: i64 = 256;
const WARP: i64 = 32;

/// Threads of a block where values are few: combining partials in shared memory costs less than in
/// another kernel.
const THREADS_FEW: i64 = 512;

/// Bytes that a thread asks memory for before it waits, and the part of an SM's threads
/// that suffices then: 32 KiB in flight on each are 4.3 MB on an H200, of which bandwidth times
/// latency is 2.9 MB; others need less.
const IN_FLIGHT_BYTES: i64 = 64;
const OCCUPANCY_PART: i64 = 4;

/// Bytes side by side that a block still reads where there are few values: a cache line.
const LINE_BYTES: i64 = 128;

/// Rounds of loads that a thread has at least where a value is split over blocks.
const ROUNDS_MIN: i64 = 2;

/// The least ratio of what all blocks read of a value to what they leave in scratch memory, which
/// is read again.
const LEFT_PART: i64 = 32;

/// Shared memory of a block with which two of them fit an SM of 64 KiB.
const SHARED_BYTES: i64 = 32 << 10;

/// The best settings, and what decided them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    vector: i64,
    items: i64,
    threads_x: i64,
    threads_y: i64,
    split: i64,
    /// Vectors that cover the kept dimensions.
    chunks: i64,
    /// Elements of a value.
    reduced: i64,
}

impl Decision {
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space, target: &Target) -> Decision {
        let footprint = Footprint::of(graph, space);
        let knobs = knobs(graph, space);
        let [items_max, split_max, x_max, y_max, vector_max] =
            [0, 1, 2, 3, 4].map(|knob: usize| *knobs[knob].values.last().expect("at least 1"));
        let mut vector = widest(graph, space, vector_max);
        while vector > 1
            && (footprint.registers(vector, 1) > REGISTERS_WANTED
                || footprint.shared_bytes(vector, WARP, THREADS / WARP) > SHARED_BYTES)
        {
            vector /= 2;
        }
        let (chunks, reduced) = (chunks(space, vector), space.columns.count());
        let (mut threads_x, mut threads_y) = block(chunks, x_max, y_max);
        let in_flight = (footprint.input_bytes.iter().sum::<i64>() * vector).max(1);
        let rounds = ceil_div(reduced, threads_y).max(1);
        let mut items = 1;
        while 2 * items <= items_max.min(rounds)
            && 2 * items * in_flight <= IN_FLIGHT_BYTES
            && footprint.registers(vector, 2 * items) <= REGISTERS_WANTED
        {
            items *= 2;
        }
        let wanted = i64::from(target.sm_count * target.threads_sm_max) / OCCUPANCY_PART;
        let threads = |x: i64, y: i64| ceil_div(chunks, x).saturating_mul(x * y);
        let shares = |y: i64| y <= y_max && reduced / y >= ROUNDS_MIN * items;
        let narrowest = footprint.input_bytes.iter().min().copied().unwrap_or(1);
        while threads(threads_x, threads_y) < wanted
            && threads_x / 2 * vector * narrowest >= LINE_BYTES
            && shares(2 * threads_y)
        {
            (threads_x, threads_y) = (threads_x / 2, 2 * threads_y);
        }
        while threads(threads_x, threads_y) < wanted
            && 2 * threads_x * threads_y <= THREADS_FEW
            && footprint.shared_bytes(vector, threads_x, 2 * threads_y) <= SHARED_BYTES
            && shares(2 * threads_y)
        {
            threads_y *= 2;
        }
        let value_bytes = reduced.saturating_mul(footprint.input_bytes.iter().sum());
        let pays = |split: i64| {
            let left = split * footprint.left_bytes;
            reduced / split >= ROUNDS_MIN * threads_y * items
                && 2 * left * LEFT_PART <= value_bytes
                // A block of the next kernel reads what all of this one left.
                && left <= value_bytes / split
        };
        let mut split = 1;
        while 2 * split <= split_max
            && threads(threads_x, threads_y).saturating_mul(split) < wanted
            && pays(2 * split)
        {
            split *= 2;
        }
        Decision { vector, items, threads_x, threads_y, split, chunks, reduced }
    }

    pub(super) fn settings(&self) -> Settings {
        let Decision { items, split, threads_x, threads_y, vector, .. } = *self;
        Settings { items, split, threads_x, threads_y, vector }
    }

    /// Reasons, one line per knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { vector, items, threads_x, threads_y, split, chunks, reduced } = *self;
        let split_why = match split {
            1 => format!("{chunks} vectors of values are work enough, or {reduced} elements few"),
            _ => format!("{chunks} vectors of values do not occupy the device"),
        };
        vec![
            format!("items={items}: so much of {reduced} elements is in flight"),
            format!("split={split}: {split_why}"),
            format!("threads_x={threads_x}: {chunks} vectors of neighbouring values over blocks"),
            format!("threads_y={threads_y}: they share the {reduced} elements of a value"),
            format!("vector={vector}: the widest access that layouts and alignment allow"),
        ]
    }
}

/// Threads along the kept and along the reduced dimensions: no more of either than there is work.
fn block(chunks: i64, x_max: i64, y_max: i64) -> (i64, i64) {
    let mut threads_y = (THREADS / WARP).min(y_max);
    let mut threads_x = (THREADS / threads_y).min(x_max);
    while threads_x / 2 >= chunks && threads_x > 1 {
        threads_x /= 2;
    }
    while threads_y < y_max && threads_x * threads_y < THREADS {
        threads_y *= 2;
    }
    (threads_x.max(WARP / threads_y), threads_y)
}

/// Elements in the widest access that some tensor's layout and alignment allow.
fn widest(graph: CanonicalGraph<'_>, space: &Space, vector_max: i64) -> i64 {
    let vectorised = |(at, tensor): (usize, &TensorDesc)| {
        let (strides, extents) = outer(space, at);
        match space.rows.stride(at) {
            1 => access_bytes(tensor, &strides, &extents, vector_max) / tensor.dtype.bytes() as i64,
            _ => 1,
        }
    };
    let elements = stored(graph).filter(|(at, _)| !space.is_row(*at));
    elements.map(vectorised).max().unwrap_or(1).min(vector_max)
}
