//! The best settings, and why.

use crate::engine::access::{ACCESS_BYTES_MAX, GRID_MAX, access_bytes, ceil_div, stored};
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::schedule::{
    Access, Settings, broadcast, has_row_operand, knobs, registers,
};
use crate::graph::CanonicalGraph;
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Maximum registers per thread for half occupancy.
const REGISTERS_WANTED: i64 = 128;

/// Minimum waves for which a persistent grid is profitable.
const PASSES_MIN: i64 = 4;

/// The best settings, and what decided them.
///
/// 16 bytes per access and about 64 bytes in flight per thread keep an H100-class memory busy at
/// half occupancy (Little's law: 3.35 TB/s x 600 ns = 2 MB = 132 SMs x 1024 threads x 15 bytes);
/// past that more items only cost registers. A persistent grid pays once it saves reloading row
/// operands several times over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    vector: i64,
    items: i64,
    threads: i64,
    persistent: bool,
    /// The vector width that layouts and alignment allow.
    widest: i64,
    /// The items that keep memory busy.
    busy: i64,
    /// The items left when the problem is spread over the device first.
    spread: i64,
    /// Chunks of `vector` elements in the whole problem.
    chunks: i64,
    /// Threads that the whole device holds at once.
    threads_max: i64,
    /// Whether an operand is the same in every row.
    row_operand: bool,
    /// Waves over the whole device.
    passes: i64,
}

impl Decision {
    pub(super) fn of(graph: CanonicalGraph<'_>, domain: &Domain, target: &Target) -> Decision {
        let widest = widest(graph, domain);
        let mut vector = widest;
        let in_flight = streamed_bytes(graph, domain) * vector;
        let busy = 1 << (4 * ACCESS_BYTES_MAX / in_flight.max(1)).clamp(1, 4).ilog2();
        let threads_max = i64::from(target.sm_count * target.threads_sm_max);
        let chunks = |vector: i64| domain.rows().saturating_mul(ceil_div(domain.columns(), vector));
        let mut items = busy;
        // A small problem is spread over the whole device before anything is done per thread.
        while items > 1 && chunks(vector) / items < threads_max {
            items /= 2;
        }
        let spread = items;
        let threads = if chunks(vector) / items < threads_max / 2 { 128 } else { 256 };
        let needed = |vector, items| registers(graph, domain, vector, items);
        while needed(vector, items) > REGISTERS_WANTED && (items > 1 || vector > 1) {
            if items > 1 { items /= 2 } else { vector /= 2 }
        }
        let passes = chunks(vector) / items / threads_max.max(1);
        let blocks = ceil_div(chunks(vector), items * threads);
        let row_operand = has_row_operand(graph, domain);
        let columns_fit = ceil_div(domain.columns(), vector * threads) <= GRID_MAX / 32;
        let persistent = match row_operand {
            true => passes >= PASSES_MIN && columns_fit || blocks > GRID_MAX,
            false => blocks > GRID_MAX,
        };
        let chunks = chunks(vector);
        Decision {
            vector,
            items,
            threads,
            persistent,
            widest,
            busy,
            spread,
            chunks,
            threads_max,
            row_operand,
            passes,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        let Decision { items, threads, vector, persistent, .. } = *self;
        Settings { grid: i64::from(persistent), items, threads, vector }
    }

    /// Reasons, one line per knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { vector, items, threads, chunks, threads_max, passes, .. } = self;
        let (grid, within) =
            (i64::from(self.persistent), format!("stay within {REGISTERS_WANTED} registers"));
        let grid_why = match (self.row_operand, self.persistent) {
            (true, true) => {
                format!("{passes} passes over the device, so what rows share is loaded once")
            }
            (true, false) if *passes >= PASSES_MIN => {
                "rows are too wide for one pass of a grid".to_owned()
            }
            (true, false) => {
                format!("{passes} passes over the device, too few to load what rows share once")
            }
            (false, true) => "one pass needs more blocks than a grid has".to_owned(),
            (false, false) => "rows share no operand".to_owned(),
        };
        let items_why = match (self.items < self.spread, self.spread < self.busy) {
            (true, _) => format!("{} keep memory busy; fewer {within}", self.busy),
            (_, true) => format!("{chunks} chunks are spread over {threads_max} threads first"),
            _ => "enough in flight to keep memory busy".to_owned(),
        };
        let threads_why = match threads {
            128 => format!("{chunks} chunks do not fill half of {threads_max} threads"),
            _ => format!("{chunks} chunks fill {threads_max} threads"),
        };
        let vector_why = match *vector < self.widest {
            true => format!("accesses could hold {}; fewer {within}", self.widest),
            false => "the widest access that layouts and alignment allow".to_owned(),
        };
        vec![
            format!("grid={grid}: {grid_why}"),
            format!("items={items}: {items_why}"),
            format!("threads={threads}: {threads_why}"),
            format!("vector={vector}: {vector_why}"),
        ]
    }
}

/// Elements in the widest access that some tensor's layout and alignment allow.
fn widest(graph: CanonicalGraph<'_>, domain: &Domain) -> i64 {
    let knobs = knobs(graph, domain);
    let widest = *knobs[3].values.last().expect("at least one vector width");
    let vectorised = |(at, tensor): (usize, &TensorDesc)| match domain.column_stride(at) {
        1 => {
            let outer = &domain.extents[..domain.extents.len() - 1];
            access_bytes(tensor, domain.row_strides(at), outer, widest)
                / tensor.dtype.bytes() as i64
        }
        _ => 1,
    };
    stored(graph).map(vectorised).max().unwrap_or(1).min(widest)
}

/// Bytes that are loaded for one element of the domain.
pub(super) fn streamed_bytes(graph: CanonicalGraph<'_>, domain: &Domain) -> i64 {
    stored(graph)
        .filter(|(at, _)| !graph.is_written(*at))
        .filter(|(at, _)| broadcast(graph, domain, *at) == Access::Stream)
        .map(|(_, tensor)| tensor.dtype.bytes() as i64)
        .sum()
}
