//! Resource usage of a kernel, from its cubin and the assembler's log.

use kiln_sass::{Code, Cubin};

use crate::compile::Resources;
use crate::error::{Error, Result};

/// Returns the resource usage of the kernel `entry`.
///
/// # Errors
/// `Compile` when the image does not contain the kernel, `Internal` when it is not a cubin.
pub(super) fn resources(cubin: &[u8], entry: &str, log: &str) -> Result<Resources> {
    let cubin = Cubin::parse(cubin)
        .map_err(|error| Error::internal("failed to read the cubin").caused_by(error))?;
    let Some(kernel) = cubin.codes.iter().find(|code| code.name == entry) else {
        return Err(Error::compile(format!("the cubin contains no kernel `{entry}`")));
    };
    // Functions that it calls run with its registers and on its stack.
    let most = |of: fn(&Code) -> u32| cubin.codes.iter().map(of).max().unwrap_or(0);
    Ok(Resources {
        registers: most(|code| code.registers),
        shared_bytes: kernel.shared_bytes,
        local_bytes: most(|code| code.local_bytes),
        spill_bytes: spill_bytes(log),
    })
}

/// Total of "N bytes spill stores" over the functions in the assembler's log.
fn spill_bytes(log: &str) -> u32 {
    let before =
        |text: &str| text.trim_end().rsplit(' ').next().and_then(|n| n.parse::<u32>().ok());
    log.match_indices(" bytes spill stores").filter_map(|(at, _)| before(&log[..at])).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_are_read_from_the_log() {
        let log = "ptxas info : x\n    0 bytes stack frame, 12 bytes spill stores, 8 bytes spill \
                   loads\n    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads";
        assert_eq!(spill_bytes(log), 16);
        assert_eq!(spill_bytes(""), 0);
    }

    #[test]
    fn what_is_no_image_is_an_error() {
        let error = resources(b"not an elf file", "k", "").expect_err("invalid").to_string();
        assert_eq!(error, "failed to read the cubin");
    }
}
