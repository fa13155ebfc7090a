//! Which drivers take the images of which NVRTC.
//!
//! A driver takes cubins of its own CUDA major version and of earlier ones, whatever the minor
//! version (*CUDA Compatibility*). Those of CUDA 13 are ELF files of another kind than those of
//! CUDA 12.

/// `ELFOSABI` of cubins since CUDA 13, in this byte of the file.
const OSABI_CUDA_13: (usize, u8) = (7, 0x41);

/// What to do where NVRTC is newer than the driver.
pub const REMEDY: &str = "install NVRTC 12 (`make setup`, or `pip install \
                          nvidia-cuda-nvrtc-cu12`), or a driver for CUDA 13 (580 or newer)";

/// Why a driver takes no images of an NVRTC, by their versions; `None` if it does.
pub(crate) fn refusal(nvrtc: (i32, i32), driver: (i32, i32)) -> Option<String> {
    (nvrtc.0 > driver.0).then(|| {
        format!(
            "NVRTC {}.{} compiles for drivers of CUDA {} and newer, this driver supports CUDA \
             {}.{}: {REMEDY}",
            nvrtc.0, nvrtc.1, nvrtc.0, driver.0, driver.1
        )
    })
}

/// Whether a cubin is for drivers of CUDA 13 and newer.
pub(crate) fn needs_cuda_13(cubin: &[u8]) -> bool {
    let (at, abi) = OSABI_CUDA_13;
    cubin.starts_with(b"\x7fELF") && cubin.get(at) == Some(&abi)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_takes_what_is_no_newer_than_it() {
        for (nvrtc, driver, taken) in [
            ((12, 0), (12, 8), true),
            ((12, 9), (12, 8), true),
            ((12, 8), (13, 0), true),
            ((13, 0), (13, 0), true),
            ((13, 0), (12, 9), false),
        ] {
            assert_eq!(refusal(nvrtc, driver).is_none(), taken, "{nvrtc:?} {driver:?}");
        }
        let text = refusal((13, 0), (12, 8)).expect("newer");
        let begin = "NVRTC 13.0 compiles for drivers of CUDA 13 and newer, this driver supports \
                     CUDA 12.8: install NVRTC 12 (";
        assert!(text.starts_with(begin), "{text}");
    }

    #[test]
    fn cubins_say_what_they_are_for() {
        assert!(needs_cuda_13(b"\x7fELF\x02\x01\x01\x41\x08"));
        assert!(!needs_cuda_13(b"\x7fELF\x02\x01\x01\x33\x07"));
        assert!(!needs_cuda_13(b""));
    }
}
