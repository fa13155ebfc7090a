//! Work of a recurrent layer: for the cost model, and for the choice of engine.

use crate::engine::KernelWork;
use crate::engine::access::ceil_div;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{MathPath, PlacedGemm, Schedule, Settings};
use crate::engine::rnn::variant::Exchange;
use crate::tensor::TensorDesc;

/// Clocks of a step besides MMAs: two barriers, loading accumulators and operands, the cell. A warp
/// walks 790 to 1,100 in the machine code of LSTMs of 256 to 1,024 units for an H200, with MMAs.
const STEP_CLOCKS: f64 = 700.0;

/// The same of blocks that exchange nothing, of one barrier: by the estimator, LSTMs, GRUs and
/// tanh networks of 32 to 128 units on an H200.
const STEP_CLOCKS_ALONE: f64 = 400.0;

/// Latency of an exchange in clocks: a store within a cluster (Luo et al. 2024); write, count and
/// read through L2; write and successful poll there.
///
/// Those through L2, and the rates of both, are what LSTMs of 256 to 1,024 units in f16 took on an
/// H200 (benches/results), less [`STEP_CLOCKS`] and MMAs. Words had flags as long as their data
/// then and were polled whole, about twice, at 900 bytes in a clock, and what a counter announced
/// was loaded by four accesses at once. Neither was measured since: words have no flags and only
/// what is missing is polled again, and eight loads are in flight (700 clocks less by the
/// estimator).
const CLUSTER_CLOCKS: f64 = 180.0;
const COUNTER_CLOCKS: f64 = 3000.0;
const WORDS_CLOCKS: f64 = 2300.0;

/// Bytes per clock that an SM receives from others of its cluster: an H200 took 4.2 clocks for
/// 16 bytes, of another sector of 32 each; now they are whole lines, which was not measured.
const CLUSTER_BYTES: f64 = 7.6;

/// Bytes per clock of the words that all SMs poll.
const WORDS_BYTES: f64 = 1500.0;

/// By how much steps with exchanges through memory are taken to be longer than predicted: what they
/// do besides is up to 1.4 times as long by the estimator, of gradients, which have more of it.
const MEMORY_DOUBT: f64 = 1.25;

/// Bytes per clock of shared memory.
const SHARED_BYTES: f64 = 128.0;

/// Latency of L2 in clocks, which every further pass of loads adds.
const L2_CLOCKS: f64 = 270.0;

/// What a warp without tensor cores waits for streamed weights each time, in clocks: by the
/// estimator, LSTMs of 512 and 1,024 units in f32, 64 and 128 sequences, on an H200.
const STREAM_CLOCKS: f64 = 400.0;

/// L2 bandwidth of an SM in bytes per clock, where all of them read.
const L2_BYTES: f64 = 27.0;

/// Predicted clocks of one step.
pub(super) fn step_clocks(layer: &Layer<'_>, schedule: &Schedule) -> f64 {
    let multiply_adds: f64 = schedule.gemms.iter().map(|of| multiply_adds(schedule, of)).sum();
    let math = match schedule.path {
        MathPath::MmaI8 => multiply_adds / 4096.0 * schedule.mma_clocks / 4.0,
        MathPath::Mma16 => multiply_adds / 2048.0 * schedule.mma_clocks / 4.0,
        MathPath::MmaTf32 => multiply_adds / 1024.0 * schedule.mma_clocks / 4.0,
        MathPath::Simt => multiply_adds / schedule.f32_lanes,
    };
    let warps = schedule.threads / 32;
    let streamed =
        |of: &PlacedGemm| (of.streamed_steps() * of.step_bytes * warps) as f64 / L2_BYTES;
    let streamed: f64 = schedule.gemms.iter().map(streamed).sum();
    let [operands, waited] = shared_bytes(layer, schedule).map(|bytes| bytes as f64 / SHARED_BYTES);
    let waits: f64 = schedule.gemms.iter().map(|of| streaming_waits(schedule, of)).sum();
    let norms = layer.op.cell.stages.iter().filter(|stage| !stage.statistics.is_empty()).count();
    let exchanges = (schedule.gemms.len() + norms).max(1) as f64;
    let exchange = exchange_clocks(layer, schedule, schedule.exchange);
    let cells = (schedule.cta_hidden * schedule.settings.batch_tile) as f64;
    let cells = cells * instructions(layer) / schedule.f32_lanes;
    let step = if schedule.exchange == Exchange::None { STEP_CLOCKS_ALONE } else { STEP_CLOCKS };
    let doubt = if schedule.exchange.through_memory() { MEMORY_DOUBT } else { 1.0 };
    let products = math.max(streamed).max(operands) + waited + waits * STREAM_CLOCKS;
    doubt * (products + cells + exchanges * (step + exchange))
}

/// Bytes that a block receives per exchange of this kind.
pub(super) fn exchange_bytes(layer: &Layer<'_>, schedule: &Schedule, exchange: Exchange) -> i64 {
    let Settings { batch_tile, group_ctas, .. } = schedule.settings;
    if exchange == Exchange::ReduceScatter {
        return (group_ctas - 1) * schedule.partials_bytes(layer.op.math.dtype().bytes() as i64);
    }
    let others = schedule.exchange_width / group_ctas * (group_ctas - 1);
    let bytes = match exchange {
        Exchange::Words => Schedule::word_element_bytes(layer),
        _ => layer.dtype().bytes() as i64,
    };
    batch_tile * others * bytes
}

/// Bytes of shared memory that the warps of a block move per step for MMAs: operands, which are
/// read ahead; and what they wait for, weights that are there and partial sums of warps along K or
/// of other blocks.
fn shared_bytes(layer: &Layer<'_>, schedule: &Schedule) -> [i64; 2] {
    let warps = schedule.threads / 32;
    // Without tensor cores eight lanes load the same.
    let lanes = if schedule.path == MathPath::Simt { 8 } else { 1 };
    let k_step = 2 * schedule.path.fragment_k() * schedule.element_bytes * lanes;
    let operand = |of: &PlacedGemm| warps * of.k_steps * k_step * schedule.settings.batch_tile;
    let weights = |of: &PlacedGemm| warps * of.smem_steps * of.step_bytes;
    if schedule.path == MathPath::Simt {
        // Weights are read ahead, too, those from L2 by the same units.
        let read = |of: &PlacedGemm| warps * (of.k_steps - of.register_steps) * of.step_bytes;
        return [schedule.gemms.iter().map(|of| operand(of) + read(of)).sum(), 0];
    }
    let sums = match schedule.exchange {
        kind @ Exchange::ReduceScatter => exchange_bytes(layer, schedule, kind),
        _ => 2 * schedule.warp_partials_bytes(layer.op.math.dtype().bytes() as i64),
    };
    let gemms = || schedule.gemms.iter();
    [gemms().map(operand).sum(), gemms().map(weights).sum::<i64>() + sums]
}

/// How often a warp without tensor cores waits for weights from L2: once for the halves of K steps
/// that are unrolled, as many as have 512 results of a warp.
fn streaming_waits(schedule: &Schedule, of: &PlacedGemm) -> f64 {
    if schedule.path != MathPath::Simt {
        return 0.0;
    }
    let tiles = ceil_div(of.shape.gates * of.unit_groups, 2);
    let unrolled = (32 / (tiles * schedule.settings.batch_tile)).max(1);
    ceil_div(2 * of.streamed_steps(), unrolled) as f64
}

/// Predicted clocks of an exchange of this kind.
pub(super) fn exchange_clocks(layer: &Layer<'_>, schedule: &Schedule, exchange: Exchange) -> f64 {
    let bytes = exchange_bytes(layer, schedule, exchange) as f64;
    // Loaded to registers, and stored to shared memory.
    let received = 2.0 * bytes / SHARED_BYTES;
    let again = |exchange| (schedule.passes(layer, exchange) - 1) as f64 * L2_CLOCKS;
    match exchange {
        Exchange::None => 0.0,
        Exchange::Cluster | Exchange::ReduceScatter => CLUSTER_CLOCKS + bytes / CLUSTER_BYTES,
        Exchange::Counter => COUNTER_CLOCKS + again(exchange) + bytes / L2_BYTES + received,
        Exchange::Words => {
            let blocks = (schedule.cta_groups * schedule.settings.group_ctas) as f64;
            WORDS_CLOCKS + again(exchange) + blocks * bytes / WORDS_BYTES + received
        }
    }
}

/// Multiply-adds of a block for a GEMM, including padding.
fn multiply_adds(schedule: &Schedule, of: &PlacedGemm) -> f64 {
    let k = of.k_steps * schedule.settings.warps_k * 2 * schedule.path.fragment_k();
    let rows = ceil_div(of.shape.gates * of.unit_groups, 2) * 16 * schedule.settings.warps_n;
    (rows * k * schedule.settings.batch_tile) as f64
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
    let blocks = (schedule.cta_groups * schedule.settings.group_ctas) as f64;
    KernelWork {
        blocks: blocks as u64,
        threads: schedule.threads as u32,
        registers: schedule.registers as u32,
        shared_bytes: schedule.memory.total as u32,
        dram_bytes: bytes,
        l2_bytes: bytes,
        in_flight_bytes: bytes,
        round_trips: 2.0,
        lane_instructions: blocks * steps * step_clocks(layer, schedule) * schedule.f32_lanes,
        f64_instructions: 0.0,
        tensor: None,
    }
}
