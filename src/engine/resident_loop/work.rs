//! What a resident loop does, for the estimate of its time.

use crate::engine::KernelWork;
use crate::engine::access::stored_bytes;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::resident_loop::Settings;
use crate::engine::resident_loop::barrier::Barrier;
use crate::engine::resident_loop::problem::Problem;

/// Trips that a loop is taken to make where no tensor says how many.
const TRIPS_USUAL: i64 = 64;

pub(super) fn of(problem: &Problem<'_>, settings: Settings, barrier: Barrier) -> KernelWork {
    let Problem { op, graph, levels, .. } = problem;
    let trips = problem.tensors.trips(*graph).unwrap_or(TRIPS_USUAL) as f64;
    let lines = op.stages.iter().map(|stage| {
        let of_terms = stage.folds.iter().map(|fold| {
            let lines = fold.term.instructions().len() + fold.operands.len() + 1;
            fold.terms() * lines as i64
        });
        let of_element = stage.program.instructions().len() + stage.operands.len() + 4;
        stage.elements() as f64 * (of_terms.sum::<i64>() + of_element as i64) as f64
    });
    let instructions = INSTRUCTIONS_OPERATION * lines.sum::<f64>() * trips;
    KernelWork {
        blocks: settings.ctas as u64,
        threads: settings.threads as u32,
        registers: 48,
        shared_bytes: 0,
        dram_bytes: stored_bytes(*graph),
        l2_bytes: 4.0 * op.terms() as f64 * trips,
        in_flight_bytes: (settings.threads * 16) as f64,
        round_trips: 2.0 + trips * levels.stages.len() as f64 * barrier.round_trips(),
        lane_instructions: instructions,
        f64_instructions: if problem.is_double() { instructions } else { 0.0 },
        tensor: None,
    }
}
