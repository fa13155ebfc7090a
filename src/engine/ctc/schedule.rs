//! What follows from settings of a CTC loss.

use crate::engine::access::{GRID_MAX, REGISTERS_SM, ceil_div, stored_bytes};
use crate::engine::cost::{INSTRUCTIONS_OPERATION, KernelWork};
use crate::engine::ctc::problem::Problem;
use crate::engine::signature::distinct;
use crate::engine::tunable::settings;
use crate::target::Target;

settings! { pub(super) struct Settings { lattice, threads } }

/// The lattice in shared memory, and in the workspace.
pub(super) const SHARED: i64 = 0;
pub(super) const WORKSPACE: i64 = 1;

const WARP: i64 = 32;

/// Round trips to memory as long as a step of the recursion: a shuffle, four approximations of 20
/// to 40 clocks one behind the other and a barrier are 150 clocks of the thousand of a round trip;
/// what is read of L2 is asked for a step ahead.
const STEP_SHARED: f64 = 0.15;
const STEP_L2: f64 = 0.3;

/// Registers of a thread: those of f64 and offsets of 64 bits are more than 1024 threads have.
fn registers(problem: &Problem<'_>, lattice: i64) -> i64 {
    match (problem.is_double(), problem.is_wide(lattice == WORKSPACE)) {
        (false, _) => 40,
        (true, false) => 64,
        (true, true) => 80,
    }
}

/// Everything derived from legal settings.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) settings: Settings,
    /// Threads that follow the states of one direction.
    pub(super) chain: i64,
    /// Dynamic shared memory.
    pub(super) shared_bytes: i64,
    /// Shared memory in all.
    block_bytes: i64,
}

impl Schedule {
    /// # Errors
    /// The limit of a block or of a grid that settings are beyond.
    pub(super) fn of(
        problem: &Problem<'_>,
        target: &Target,
        settings: Settings,
    ) -> Result<Schedule, String> {
        let Settings { lattice, threads } = settings;
        let chain = ceil_div(problem.pairs(), WARP) * WARP;
        let needed = problem.directions() * chain;
        if threads < needed {
            return Err(format!("has {threads} threads for {needed} pairs of states"));
        }
        let shared_bytes = if lattice == SHARED { problem.lattice_bytes() } else { 0 };
        // Labels and the next ones equal to them; the label of each warp, twice; both ends.
        let pairs = 2 * 4 * problem.pairs();
        let own = pairs + (needed / WARP * 2 + 2) * problem.real_bytes();
        let block_bytes = shared_bytes.saturating_add(own);
        let available = i64::from(target.shared_block_bytes_max);
        if block_bytes > available {
            return Err(format!(
                "needs {block_bytes} bytes of shared memory, a block has {available}"
            ));
        }
        let registers = threads * registers(problem, lattice);
        if registers > REGISTERS_SM {
            return Err(format!("needs {registers} registers, an SM has {REGISTERS_SM}"));
        }
        if problem.sequences > GRID_MAX {
            return Err(format!("needs {} blocks, more than a grid has", problem.sequences));
        }
        Ok(Schedule { settings, chain, shared_bytes, block_bytes })
    }

    pub(super) fn is_shared(&self) -> bool {
        self.settings.lattice == SHARED
    }

    /// The tensors that the kernel takes, each once.
    pub(super) fn passed(&self, problem: &Problem<'_>) -> Vec<usize> {
        distinct(problem.slots().filter_map(|slot| problem.at(slot)))
    }

    pub(super) fn work(&self, problem: &Problem<'_>) -> KernelWork {
        let [steps, sequences, classes] =
            [problem.steps, problem.sequences, problem.classes].map(|extent| extent as f64);
        let dram_bytes = stored_bytes(problem.graph);
        let lattices = problem.lattice_bytes() as f64 * sequences;
        let (lattices, step) = match self.is_shared() {
            true => (0.0, STEP_SHARED),
            false => (2.0 * lattices, STEP_L2),
        };
        // Classes are read for the maximum, for the sum and for the gradient.
        let passes = 1.0 + if problem.op.input.is_softmax() { 2.0 } else { 0.0 };
        let states = 2.0 * problem.pairs() as f64 * problem.directions() as f64;
        let functions = passes * classes + 3.0 * states;
        let instructions = INSTRUCTIONS_OPERATION * functions * steps * sequences;
        let is_double = problem.is_double();
        KernelWork {
            blocks: sequences as u64,
            threads: self.settings.threads as u32,
            registers: registers(problem, self.settings.lattice) as u32,
            shared_bytes: self.block_bytes as u32,
            dram_bytes: dram_bytes + lattices,
            l2_bytes: passes * dram_bytes + lattices,
            in_flight_bytes: (self.settings.threads * 4 * 4) as f64,
            round_trips: 3.0 + steps * step,
            lane_instructions: instructions,
            f64_instructions: if is_double { instructions } else { 0.0 },
            tensor: None,
        }
    }
}
