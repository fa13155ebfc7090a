//! What a stream is given: it runs when it is submitted, or is kept in a graph.

use std::time::Instant;

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::*;

use crate::copy::Copy;
use crate::fill::Fill;
use crate::launch::{Outcome, Work};
use crate::machine::Machine;
use crate::pointer::Call;

#[derive(Clone)]
pub enum Task {
    Kernel(Box<Work>),
    Copy(Copy),
    Fill(Fill),
    Call(Call),
    /// Records an event.
    Record(u64),
}

impl Task {
    pub fn run(&self, machine: &Machine) -> Outcome {
        match self {
            Task::Kernel(work) => work.run(&machine.device),
            Task::Copy(copy) => copy.run(&machine.device),
            Task::Fill(fill) => fill.run(&machine.device),
            Task::Call(call) => {
                call.run();
                Ok(())
            }
            Task::Record(event) => {
                if let Some(event) = machine.state().events.get_mut(event) {
                    event.recorded = Some(Instant::now());
                }
                Ok(())
            }
        }
    }

    /// Whether who submits it learns of an error, rather than who waits: a launch is checked when
    /// it is made, its kernel runs later.
    pub fn at_once(&self, code: CUresult) -> bool {
        let of_launch = [
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            CUDA_ERROR_INVALID_CLUSTER_SIZE,
        ];
        !matches!(self, Task::Kernel(_)) || of_launch.contains(&code)
    }
}
