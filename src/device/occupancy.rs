//! How many blocks of a kernel a GPU holds at once, as its driver counts them.
//!
//! Launches whose blocks wait for each other are planned from the target's numbers and the kernel's
//! registers. The driver knows more: what a partition of the GPU or another process has taken, and
//! what the hardware reserves. Asked first, it says how many there may be; a launch only fails.

#![expect(unsafe_code, reason = "the CUDA driver is a C library")]

use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};

use crate::device::attribute::config;
use crate::device::driver::Launch;
use crate::error::{Error, Result};

/// What is known of a kernel on its GPU.
#[derive(Debug, Default)]
pub(super) struct Occupancy {
    /// Of launches of this shape, the blocks that the GPU holds.
    known: OnceLock<(Shape, Resident)>,
}

/// Threads of a block, bytes of dynamic shared memory.
type Shape = (u32, u32);

/// Blocks that a GPU holds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resident {
    pub(super) blocks: u32,
    /// Blocks of a cluster.
    pub(super) cluster: u32,
}

impl Occupancy {
    /// Checks that the GPU holds the blocks that wait for each other: those of a cluster, all of a
    /// cooperative launch. `failed` gives the error of a call.
    ///
    /// # Errors
    /// `NotSupported` if it does not.
    pub(super) fn check(
        &self,
        name: &str,
        function: sys::CUfunction,
        sm_count: u32,
        launch: &Launch,
        failed: impl Fn(DriverError) -> Error,
    ) -> Result<()> {
        let shape = (launch.threads, launch.shared_bytes);
        let ask = || resident(function, sm_count, launch).map_err(failed);
        let resident = match self.known.get() {
            Some((known, resident)) if *known == shape => *resident,
            // A launch of another shape is asked for every time; plans have one.
            _ => {
                let resident = ask()?;
                self.known.get_or_init(|| (shape, resident));
                resident
            }
        };
        match refusal(resident, launch) {
            Some(why) => Err(Error::not_supported(format!("failed to launch `{name}`: {why}"))),
            None => Ok(()),
        }
    }
}

/// Why a launch does not fit; `None` if it does.
fn refusal(resident: Resident, launch: &Launch) -> Option<String> {
    let Resident { blocks, cluster } = resident;
    let Launch { grid, threads, shared_bytes, cooperative, .. } = *launch;
    let each = format!("of {threads} threads and {shared_bytes} bytes of dynamic shared memory");
    if cluster > 1 && blocks < cluster {
        return Some(format!(
            "a cluster has {cluster} blocks {each}, the GPU holds no such cluster at present"
        ));
    }
    (cooperative && blocks < grid).then(|| {
        format!("all {grid} blocks {each} must run at once, the GPU holds {blocks} at present")
    })
}

fn resident(
    function: sys::CUfunction,
    sm_count: u32,
    launch: &Launch,
) -> Result<Resident, DriverError> {
    let width = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
    // SAFETY: the function is alive.
    let cluster = unsafe { result::function::get_function_attribute(function, width) }?;
    let mut count = 0;
    if cluster > 1 {
        let grid = launch.grid.max(cluster as u32);
        let config = config(&Launch { grid, ..*launch });
        // SAFETY: the function is alive, `count` valid for a write, and there are no attributes.
        unsafe { sys::cuOccupancyMaxActiveClusters(&mut count, function, &config) }.result()?;
        return Ok(Resident { blocks: (count * cluster) as u32, cluster: cluster as u32 });
    }
    let (threads, shared) = (launch.threads as i32, launch.shared_bytes as usize);
    // SAFETY: the function is alive and `count` valid for a write.
    unsafe {
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut count, function, threads, shared)
    }
    .result()?;
    Ok(Resident { blocks: count as u32 * sm_count, cluster: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(grid: u32, cooperative: bool) -> Launch {
        let (threads, shared_bytes) = (128, 4096);
        Launch { grid, threads, shared_bytes, cooperative, programmatic: false, registers: 0 }
    }

    #[test]
    fn blocks_that_wait_for_each_other_must_fit() {
        let resident = |blocks, cluster| Resident { blocks, cluster };
        assert_eq!(refusal(resident(4, 1), &launch(4, true)), None);
        assert_eq!(refusal(resident(4, 1), &launch(400, false)), None);
        assert_eq!(refusal(resident(16, 16), &launch(400, false)), None);
        let text = "all 5 blocks of 128 threads and 4096 bytes of dynamic shared memory must run \
                    at once, the GPU holds 4 at present";
        assert_eq!(refusal(resident(4, 1), &launch(5, true)).as_deref(), Some(text));
        let text = "a cluster has 16 blocks of 128 threads and 4096 bytes of dynamic shared \
                    memory, the GPU holds no such cluster at present";
        assert_eq!(refusal(resident(0, 16), &launch(32, false)).as_deref(), Some(text));
        assert!(refusal(resident(16, 16), &launch(32, true)).is_some());
    }
}
