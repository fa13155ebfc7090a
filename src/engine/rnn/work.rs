//! What a recurrent layer asks of a GPU, for the cost model.

use kiln_sim::Operands;

use crate::engine::access::ceil_div;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{Placed, Schedule, Units};
use crate::engine::{KernelWork, TensorWork};

/// Clocks of a step that are not products: two barriers, reading sums and operands, the cell
/// (Luo et al. 2024 for the latencies of an H100).
const STEP_CLOCKS: f64 = 280.0;

/// Lane instructions that a multiprocessor issues in a clock.
const LANES: f64 = 128.0;

/// One launch.
pub(super) fn of(layer: &Layer<'_>, schedule: &Schedule) -> KernelWork {
    let (op, steps) = (layer.op, layer.steps() as f64);
    let tiles = ceil_div(op.batch, schedule.settings.batch_tile);
    let blocks = (op.direction.count() * tiles) as f64;
    let bytes: i64 = layer
        .tensors()
        .map(|(_, uid)| &layer.graph.tensors[uid])
        .map(|tensor| tensor.elements().unwrap_or(0) * tensor.dtype.bytes() as i64)
        .sum();
    let lines: usize = op.cell.stages.iter().map(|of| of.program.instructions().len()).sum();
    let cells = (schedule.slice * schedule.settings.batch_tile) as f64;
    let own = cells * lines as f64 * INSTRUCTIONS_OPERATION + STEP_CLOCKS * LANES;
    // Products on padding count too.
    let product = |of: &Placed| {
        let depth = of.steps * schedule.settings.parts * 2 * schedule.units.fragment_depth();
        let rows = of.shape.gates * of.groups * 8 * schedule.settings.columns;
        (rows * depth * schedule.settings.batch_tile) as f64
    };
    let products: f64 = schedule.products.iter().map(product).sum();
    let lanes = schedule.units == Units::Lanes;
    let tensor = TensorWork {
        operands: if schedule.units == Units::Tf32 { Operands::Tf32 } else { Operands::Half },
        operations: 2.0 * products * blocks * steps,
        efficiency: 0.5,
    };
    KernelWork {
        blocks: blocks as u64,
        threads: schedule.threads as u32,
        registers: schedule.registers as u32,
        shared_bytes: schedule.memory.total as u32,
        dram_bytes: bytes as f64,
        l2_bytes: bytes as f64,
        in_flight_bytes: cells * op.cell.gates.len() as f64 * 4.0,
        round_trips: 2.0,
        lane_instructions: blocks * steps * (own + if lanes { products } else { 0.0 }),
        f64_instructions: 0.0,
        tensor: (!lanes).then_some(tensor),
    }
}
