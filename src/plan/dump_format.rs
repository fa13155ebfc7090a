//! Dumps: everything about a kernel in one folder, to read, to edit and to replay.
//!
//! ```text
//! <stem>-<first digits of the key>/
//!   spec.json            template, parameters, architecture, engine and knobs, launch, resources
//!   problem.json         the problem, as `kiln run` reads it: the part of the graph it runs
//!   kernel.cu            the rendered source
//!   options.txt          what it is compiled with
//!   kernel.ptx           and what came of it
//!   kernel.cubin
//!   kernel.sass          where `nvdisasm` is installed
//!   log.txt              what compiler and assembler said
//!   stack.txt            who asked for the kernel
//!   inputs.safetensors   where tensors are captured: before the first launch
//!   outputs.safetensors  and after it
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cache::Key;
use crate::compile::Resources;
use crate::device::Launch;
use crate::kernel::TensorMap;
use crate::target::Arch;

/// Changes whenever a reader of older folders would misread a new one.
pub(super) const SCHEMA: u32 = 1;

pub(super) const SPEC: &str = "spec.json";
pub(super) const PROBLEM: &str = "problem.json";
pub(super) const SOURCE: &str = "kernel.cu";
pub(super) const OPTIONS: &str = "options.txt";
pub(super) const PTX: &str = "kernel.ptx";
pub(super) const CUBIN: &str = "kernel.cubin";
pub(super) const INPUTS: &str = "inputs.safetensors";
pub(super) const OUTPUTS: &str = "outputs.safetensors";
pub(super) const SASS: &str = "kernel.sass";

/// Dumps are for others to read, too.
pub(super) const FILE_MODE: u32 = 0o644;

/// `spec.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct DumpSpec {
    pub(super) schema: u32,
    pub(super) stem: String,
    pub(super) template: String,
    pub(super) entry: String,
    pub(super) arch: Arch,
    /// `sim`, `cuda` or `null`.
    pub(super) device: String,
    /// The name of the device's target.
    pub(super) target: String,
    pub(super) config: String,
    pub(super) key: String,
    pub(super) origin: String,
    /// The file that stood in for the generated kernel.
    pub(super) overridden: Option<PathBuf>,
    pub(super) launch: DumpLaunch,
    pub(super) resources: Resources,
    /// The blake3 digests of the files a user may edit, as they were written.
    pub(super) digests: BTreeMap<String, String>,
    pub(super) parameters: serde_json::Value,
}

/// How the kernel is launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DumpLaunch {
    pub(super) grid: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    pub(super) cooperative: bool,
    /// The kernel's parameters, in order.
    pub(super) arguments: Vec<DumpArgument>,
    /// Parameters behind those: numbers of 8 bytes, the same at every launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) numbers: Vec<u64>,
}

/// One parameter of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DumpArgument {
    /// The tensor's name in the problem; `#0`, `#1` for scratch memory.
    pub(super) tensor: String,
    pub(super) passed: Passed,
    /// Bytes it spans.
    pub(super) bytes: u64,
    /// Whether the kernel writes it.
    pub(super) written: bool,
    /// What the tensor map says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) map: Option<TensorMap>,
}

/// How a tensor reaches the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Passed {
    /// Its device address.
    Address,
    /// Its only element, as a `double`.
    Value,
    /// The address of what an engine's kernels leave to each other.
    Scratch,
    /// A tensor map of it.
    Map,
}

impl DumpLaunch {
    pub(super) fn shape(&self) -> Launch {
        let DumpLaunch { grid, threads, shared_bytes, cooperative, .. } = *self;
        Launch { grid, threads, shared_bytes, cooperative }
    }
}

/// The name of a kernel's folder in a dump, and its name for overrides.
pub(super) fn identifier(stem: &str, key: Key) -> String {
    format!("{stem}-{}", &key.to_hex()[..16])
}

pub(super) fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
