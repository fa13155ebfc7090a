//! What a stream is given: it runs when it is submitted, or is kept in a graph.

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::Device;

use crate::conditional::Conditional;
use crate::copy::Copy;
use crate::fill::Fill;
use crate::launch::Work;
use crate::outcome::Outcome;
use crate::pointer::Call;

#[derive(Clone)]
pub enum Task {
    Kernel(Box<Work>),
    Copy(Copy),
    Fill(Fill),
    Call(Call),
    /// Records an event, which the machine has.
    Record(u64),
    /// Runs graphs if, or while, a number says so.
    Conditional(Conditional),
}

impl Task {
    /// Runs all but what is the machine's own.
    pub fn run(&self, device: &Device) -> Outcome {
        match self {
            Task::Kernel(work) => work.run(device),
            Task::Copy(copy) => copy.run(device),
            Task::Fill(fill) => fill.run(device),
            Task::Call(call) => {
                call.run();
                Ok(())
            }
            Task::Record(_) | Task::Conditional(_) => Ok(()),
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
