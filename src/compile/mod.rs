//! Compilation of CUDA C++ to a cubin and PTX with NVRTC.
//!
//! NVRTC is located and loaded only when something must be compiled; a cache hit does not need it.
//! This module knows sources and images; it must never know graphs, caches or devices.

mod compatible;
mod directives;
mod disassemble;
mod elf;
mod environment;
mod image;
mod locate;
mod nvrtc;
mod pool;
mod toolchain;

pub use compatible::REMEDY;
pub(crate) use compatible::{needs_cuda_13, refusal};
pub use disassemble::disassemble;
pub use environment::{is_privileged, variable};
pub use image::{Image, Resources};
pub use locate::{Located, Search, locate, places};
pub use nvrtc::Compiler;
pub(crate) use pool::at_once;
pub use pool::compile_all;
pub use toolchain::Toolchain;

use crate::target::Arch;

/// Compiler options without paths, as covered by the cache key.
///
/// Contraction is disabled because templates write every FMA explicitly. Line information has no
/// run-time cost and lets profilers and the simulator refer to source lines.
pub fn options(arch: Arch) -> Vec<String> {
    let mut options = ptx_options(arch);
    options[0] = format!("--gpu-architecture={arch}");
    options.push("--ptxas-options=--verbose".to_owned());
    options
}

/// The options for PTX alone, which only the simulator runs as it is: nothing is assembled, so the
/// image has no cubin and nothing is known of registers.
pub fn ptx_options(arch: Arch) -> Vec<String> {
    vec![
        format!("--gpu-architecture={}", arch.to_string().replace("sm_", "compute_")),
        "--std=c++17".to_owned(),
        "--fmad=false".to_owned(),
        "--generate-line-info".to_owned(),
    ]
}

/// Whether a foreign source may be compiled with an option: only options of code generation are
/// allowed, none that read or write files or change the meaning of the source.
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
        // Later standards have module imports, earlier ones trigraphs.
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
        assert_eq!(ptx_options(Arch::of_device(90))[0], "--gpu-architecture=compute_90a");
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
