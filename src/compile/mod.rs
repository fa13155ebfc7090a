//! From CUDA C++ text to a cubin and its PTX, through NVRTC.
//!
//! NVRTC is found and loaded only when something must be compiled: a cache hit needs none of it.
//! This module knows sources and images; it must never know graphs, caches or devices.

mod directives;
mod disassemble;
mod elf;
mod environment;
mod image;
mod locate;
mod nvrtc;
mod pool;
mod toolchain;

pub use disassemble::disassemble;
pub use environment::{is_privileged, variable};
pub use image::{Image, Resources};
pub use locate::{Located, Search, locate, places};
pub use nvrtc::Compiler;
pub(crate) use pool::at_once;
pub use pool::compile_all;
pub use toolchain::Toolchain;

use crate::target::Arch;

/// The options a source is compiled with, without paths: what the cache key covers.
///
/// Contraction is off because templates write every fusion they mean; line information costs
/// nothing at run time and lets profilers and the simulator speak in source lines.
pub fn options(arch: Arch) -> Vec<String> {
    vec![
        format!("--gpu-architecture={arch}"),
        "--std=c++17".to_owned(),
        "--fmad=false".to_owned(),
        "--generate-line-info".to_owned(),
        "--ptxas-options=--verbose".to_owned(),
    ]
}

/// Whether a source may be compiled with an option that comes from a file: one that says how code
/// is generated. Others read or write files, or define what the source means.
pub fn is_allowed(option: &str) -> bool {
    const FLAGS: [&str; 5] = [
        "--generate-line-info",
        "--device-debug",
        "--use_fast_math",
        "--extra-device-vectorization",
        "--restrict",
    ];
    const VALUES: [&str; 8] = [
        "--gpu-architecture",
        "--fmad",
        "--ftz",
        "--prec-div",
        "--prec-sqrt",
        "--maxrregcount",
        "--diag-suppress",
        "--ptxas-options",
    ];
    let ptxas = ["--verbose", "-v", "-O0", "-O1", "-O2", "-O3"];
    match option.split_once('=') {
        None => FLAGS.contains(&option),
        Some(("--ptxas-options", value)) => ptxas.contains(&value),
        // Later ones import files, earlier ones have trigraphs.
        Some(("--std", value)) => value == "c++17",
        Some((name, value)) => {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'+';
            VALUES.contains(&name) && !value.is_empty() && value.bytes().all(plain)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_files_say_how_code_is_generated() {
        assert!(options(Arch::of_device(90)).iter().all(|option| is_allowed(option)));
        assert!(is_allowed("--fmad=true") && is_allowed("--maxrregcount=64"));
        for option in [
            "-I/etc",
            "--include-path=/etc",
            "--pre-include=/etc/passwd",
            "-DX=1",
            "--define-macro=X",
            "--fdevice-time-trace=/tmp/x",
            "--create-pch=/tmp/x",
            "--ptxas-options=--output-file=/tmp/x",
            "--diag-suppress=177 -I/etc",
            "--std=",
            "--std=c++20",
            "--std=c++14",
            "--optix-ir",
            "",
        ] {
            assert!(!is_allowed(option), "{option}");
        }
    }
}
