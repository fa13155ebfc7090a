//! Work of a recurrent layer: for the cost model, and for the choice of engine.

use crate::engine::KernelWork;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{Exchange, Placed, Schedule, Settings, Units};
use crate::tensor::TensorDesc;

/// Clocks of a step besides MMAs: two barriers, loading accumulators and operands, the cell (Luo et
/// al. 2024 for the latencies of an H100).
const STEP_CLOCKS: f64 = 280.0;

/// Latency of an exchange in clocks: a store within a cluster; write, count and read through L2;
/// write and successful poll there, a hand-off of 160 ns and half a poll.
const PUSH_CLOCKS: f64 = 250.0;
const COUNT_CLOCKS: f64 = 1500.0;
const TAG_CLOCKS: f64 = 600.0;

/// L2 bandwidth of an SM in bytes per clock.
const L2_BYTES: f64 = 32.0;

/// Predicted clocks of one step.
pub(super) fn step_clocks(layer: &Layer<'_>, schedule: &Schedule) -> f64 {
    let products: f64 = schedule.products.iter().map(|of| multiplications(schedule, of)).sum();
    let math = match schedule.units {
        Units::Half => products / 2048.0 * schedule.mma_clocks / 4.0,
        Units::Tf32 => products / 1024.0 * schedule.mma_clocks / 4.0,
        Units::Lanes => products / schedule.lanes,
    };
    let warps = schedule.threads / 32;
    let streamed = |of: &Placed| (of.streamed() * of.step_bytes * warps) as f64 / L2_BYTES;
    let streamed: f64 = schedule.products.iter().map(streamed).sum();
    let moments = layer.op.cell.stages.iter().filter(|stage| !stage.moments.is_empty()).count();
    let stops = (schedule.products.len() + moments).max(1) as f64;
    let exchange = exchange_clocks(layer, schedule, schedule.exchange);
    let cells = (schedule.slice * schedule.settings.batch_tile) as f64;
    let own = cells * instructions(layer) / schedule.lanes;
    math.max(streamed) + own + stops * (STEP_CLOCKS + exchange)
}

/// Bytes that a block receives per exchange, without flags.
pub(super) fn exchange_bytes(layer: &Layer<'_>, schedule: &Schedule) -> i64 {
    let Settings { batch_tile, blocks, .. } = schedule.settings;
    let others = schedule.shared_width / blocks * (blocks - 1);
    batch_tile * others * layer.dtype().bytes() as i64
}

/// Predicted clocks of an exchange of this kind.
pub(super) fn exchange_clocks(layer: &Layer<'_>, schedule: &Schedule, exchange: Exchange) -> f64 {
    let read = exchange_bytes(layer, schedule) as f64 / L2_BYTES;
    match exchange {
        Exchange::None => 0.0,
        Exchange::Cluster => PUSH_CLOCKS,
        Exchange::Counter => COUNT_CLOCKS + read,
        Exchange::Data => TAG_CLOCKS + 2.0 * read,
    }
}

/// Multiply-adds of a block for a GEMM, including padding.
fn multiplications(schedule: &Schedule, of: &Placed) -> f64 {
    let depth = of.steps * schedule.settings.parts * 2 * schedule.units.fragment_depth();
    let rows = of.shape.gates * of.groups * 8 * schedule.settings.columns;
    (rows * depth * schedule.settings.batch_tile) as f64
}

fn instructions(layer: &Layer<'_>) -> f64 {
    let stages = layer.op.cell.stages.iter();
    let lines: usize = stages.map(|of| of.program.instructions().len()).sum();
    lines as f64 * INSTRUCTIONS_OPERATION
}

/// Bytes of all tensors of the layer.
pub(super) fn bytes(layer: &Layer<'_>) -> f64 {
    let tensors = layer.tensors().map(|(_, uid)| &layer.graph.tensors[uid]);
    let bytes = |of: &TensorDesc| of.elements().unwrap_or(0) * of.dtype.bytes() as i64;
    tensors.map(bytes).sum::<i64>() as f64
}

/// Work of the launch, for a layer whose tensors have `bytes` bytes.
///
/// A step is bound by latency: no other block fills its gaps. Its clocks include MMAs and waiting;
/// x is prefetched steps ahead.
pub(super) fn of(layer: &Layer<'_>, schedule: &Schedule, bytes: f64) -> KernelWork {
    let steps = layer.steps() as f64;
    let blocks = (schedule.teams * schedule.settings.blocks) as f64;
    KernelWork {
        blocks: blocks as u64,
        threads: schedule.threads as u32,
        registers: schedule.registers as u32,
        shared_bytes: schedule.memory.total as u32,
        dram_bytes: bytes,
        l2_bytes: bytes,
        in_flight_bytes: bytes,
        round_trips: 2.0,
        lane_instructions: blocks * steps * step_clocks(layer, schedule) * schedule.lanes,
        f64_instructions: 0.0,
        tensor: None,
    }
}
