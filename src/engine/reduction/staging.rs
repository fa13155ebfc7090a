//! Rows in shared memory: a thread copies what it will read, rows ahead of the one that its block
//! reduces, so that memory is busy while warps wait for each other. A thread reads its own copies
//! alone and waits for nothing else.

use crate::engine::access::{ACCESS_BYTES_MAX, access_bytes, stored};
use crate::engine::reduction::phases::{Phases, Residence};
use crate::engine::reduction::space::Space;
use crate::graph::CanonicalGraph;
use crate::target::Target;

/// The first architecture with copies that bypass registers.
const CAPABILITY_MIN: u16 = 80;

/// Least bytes of an access of `cp.async`, and of a chunk that shared memory gives back at once.
const ACCESS_BYTES_MIN: i64 = 4;
const CHUNK_BYTES_MIN: i64 = 8;

/// The inputs of elements, as far as shared memory holds them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Staging {
    inputs: Vec<Input>,
    /// Bytes of one result of each reduction.
    partial_bytes: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Input {
    /// Of an element.
    bytes: i64,
    /// The widest access that its layout and alignment allow.
    access_bytes: i64,
    /// Whether all rows share it.
    shared: bool,
}

impl Staging {
    /// Of a graph whose inputs are contiguous along a row, on a device that copies without
    /// registers.
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space, target: &Target) -> Option<Staging> {
        let read = |(at, _): &(usize, _)| !graph.is_written(*at) && !space.is_row(*at);
        let input = |(at, tensor)| {
            let (strides, extents) = space.outer(at);
            let access_bytes = access_bytes(tensor, &strides, &extents, ACCESS_BYTES_MAX);
            let input = Input {
                bytes: tensor.dtype.bytes() as i64,
                access_bytes,
                shared: space.is_shared(at),
            };
            (space.stride(at) == 1 && access_bytes >= ACCESS_BYTES_MIN).then_some(input)
        };
        let inputs = stored(graph).filter(read).map(input).collect::<Option<Vec<Input>>>()?;
        let phases = Phases::of(graph, space, Residence::Shared).phases;
        let steps = phases.iter().flat_map(|phase| &phase.steps);
        let partial_bytes = steps.map(|step| step.op.math.dtype().bytes() as i64).sum();
        let streams = inputs.iter().any(|input| !input.shared);
        (streams && target.arch.capability >= CAPABILITY_MIN)
            .then_some(Staging { inputs, partial_bytes })
    }

    /// Whether so many elements are a chunk that is copied and read at once.
    pub(super) fn takes(&self, vector: i64) -> bool {
        self.inputs.iter().all(|input| vector * input.bytes >= CHUNK_BYTES_MIN)
    }

    /// Shared memory of a block in bytes: so many rows, what all rows share, and the partial
    /// results of warps, of a block and of the row.
    pub(super) fn bytes(&self, stages: i64, threads: i64, chunk_elements: i64) -> i64 {
        let rows = |input: &Input| if input.shared { 1 } else { stages };
        let inputs = self.inputs.iter().map(|input| rows(input) * input.bytes).sum::<i64>();
        inputs * threads * chunk_elements + self.partial_bytes * (threads / 32 + 1)
    }
}
