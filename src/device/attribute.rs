//! What the CUDA driver is told of a launch.

use std::ptr;

use cudarc::driver::sys;

use crate::device::driver::Launch;

/// The attribute of a launch, if it has one.
pub(super) fn attribute(launch: &Launch) -> Option<sys::CUlaunchAttribute> {
    use sys::CUlaunchAttributeID::*;
    let (id, value) = match (launch.cooperative, launch.programmatic) {
        (true, _) => {
            (CU_LAUNCH_ATTRIBUTE_COOPERATIVE, sys::CUlaunchAttributeValue { cooperative: 1 })
        }
        (false, true) => (
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        ),
        (false, false) => return None,
    };
    Some(sys::CUlaunchAttribute { id, pad: [0; 4], value })
}

/// The shape of a launch, without stream and attributes.
pub(super) fn config(launch: &Launch) -> sys::CUlaunchConfig {
    sys::CUlaunchConfig {
        gridDimX: launch.grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: launch.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.shared_bytes,
        hStream: ptr::null_mut(),
        attrs: ptr::null_mut(),
        numAttrs: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_have_the_attribute_of_their_kind() {
        let told = |cooperative, programmatic| {
            let (grid, threads, shared_bytes, registers) = (1, 32, 0, 0);
            let launch =
                Launch { grid, threads, shared_bytes, cooperative, programmatic, registers };
            attribute(&launch).map(|told| told.id as u32)
        };
        // `CUlaunchAttributeID` of cuda.h.
        assert_eq!(told(false, false), None);
        assert_eq!(told(false, true), Some(6));
        assert_eq!([told(true, false), told(true, true)], [Some(2); 2]);
    }
}
