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
pub(in crate::plan) const SCHEMA: u32 = 1;

pub(in crate::plan) const SPEC: &str = "spec.json";
pub(in crate::plan) const PROBLEM: &str = "problem.json";
pub(in crate::plan) const SOURCE: &str = "kernel.cu";
pub(in crate::plan) const OPTIONS: &str = "options.txt";
pub(in crate::plan) const PTX: &str = "kernel.ptx";
pub(in crate::plan) const CUBIN: &str = "kernel.cubin";
pub(in crate::plan) const INPUTS: &str = "inputs.safetensors";
pub(in crate::plan) const OUTPUTS: &str = "outputs.safetensors";
pub(in crate::plan) const SASS: &str = "kernel.sass";

/// Dumps are for others to read, too.
pub(in crate::plan) const FILE_MODE: u32 = 0o644;

/// `spec.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::plan) struct DumpSpec {
    pub(in crate::plan) schema: u32,
    pub(in crate::plan) stem: String,
    pub(in crate::plan) template: String,
    pub(in crate::plan) entry: String,
    pub(in crate::plan) arch: Arch,
    /// `sim`, `cuda` or `null`.
    pub(in crate::plan) device: String,
    /// The name of the device's target.
    pub(in crate::plan) target: String,
    pub(in crate::plan) config: String,
    pub(in crate::plan) key: String,
    pub(in crate::plan) origin: String,
    /// The file that stood in for the generated kernel.
    pub(in crate::plan) overridden: Option<PathBuf>,
    pub(in crate::plan) launch: DumpLaunch,
    pub(in crate::plan) resources: Resources,
    /// The blake3 digests of the files a user may edit, as they were written.
    pub(in crate::plan) digests: BTreeMap<String, String>,
    pub(in crate::plan) parameters: serde_json::Value,
}

/// How the kernel is launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::plan) struct DumpLaunch {
    pub(in crate::plan) grid: u32,
    pub(in crate::plan) threads: u32,
    pub(in crate::plan) shared_bytes: u32,
    pub(in crate::plan) cooperative: bool,
    /// The kernel's parameters, in order.
    pub(in crate::plan) arguments: Vec<DumpArgument>,
    /// Parameters behind those: numbers of 8 bytes, the same at every launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::plan) numbers: Vec<u64>,
}

/// One parameter of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::plan) struct DumpArgument {
    /// The tensor's name in the problem; `#0`, `#1` for scratch memory.
    pub(in crate::plan) tensor: String,
    pub(in crate::plan) passed: Passed,
    /// Bytes it spans.
    pub(in crate::plan) bytes: u64,
    /// Whether the kernel writes it.
    pub(in crate::plan) written: bool,
    /// What the tensor map says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::plan) map: Option<TensorMap>,
}

/// How a tensor reaches the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::plan) enum Passed {
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
    pub(in crate::plan) fn shape(&self) -> Launch {
        let DumpLaunch { grid, threads, shared_bytes, cooperative, .. } = *self;
        Launch { grid, threads, shared_bytes, cooperative }
    }
}

/// The name of a kernel's folder in a dump, and its name for overrides.
pub(in crate::plan) fn identifier(stem: &str, key: Key) -> String {
    format!("{stem}-{}", &key.to_hex()[..16])
}

pub(in crate::plan) fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
