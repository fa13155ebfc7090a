//! Format of a dump: a folder with everything about a kernel, to read, edit and replay.
//!
//! ```text
//! <stem>-<first digits of the key>/
//!   spec.json            template, parameters, architecture, configuration, launch, resources
//!   problem.json         the part of the graph that it computes, as `kiln run` reads it
//!   kernel.cu            the rendered source
//!   options.txt          compiler options
//!   kernel.ptx           compiled PTX
//!   kernel.cubin         assembled machine code
//!   kernel.sass          disassembly, if `nvdisasm` is installed
//!   log.txt              output of compiler and assembler
//!   stack.txt            call stack of the plan
//!   inputs.safetensors   with captured tensors: before the first launch
//!   outputs.safetensors  with captured tensors: after the first launch
//!   before.safetensors   of kernels that share memory with others: what they write, before it
//!   after.safetensors    the same memory after it
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cache::Key;
use crate::compile::Resources;
use crate::device::Launch;
use crate::kernel::TensorMap;
use crate::target::Arch;

/// Increases whenever an older reader would misread a newer folder.
pub(in crate::plan) const SCHEMA: u32 = 1;

pub(in crate::plan) const SPEC: &str = "spec.json";
pub(in crate::plan) const PROBLEM: &str = "problem.json";
pub(in crate::plan) const SOURCE: &str = "kernel.cu";
pub(in crate::plan) const OPTIONS: &str = "options.txt";
pub(in crate::plan) const PTX: &str = "kernel.ptx";
pub(in crate::plan) const CUBIN: &str = "kernel.cubin";
pub(in crate::plan) const INPUTS: &str = "inputs.safetensors";
pub(in crate::plan) const OUTPUTS: &str = "outputs.safetensors";
pub(in crate::plan) const BEFORE: &str = "before.safetensors";
pub(in crate::plan) const AFTER: &str = "after.safetensors";
pub(in crate::plan) const SASS: &str = "kernel.sass";

/// Dumps are readable by all users.
pub(in crate::plan) const FILE_MODE: u32 = 0o644;

/// Contents of `spec.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::plan) struct DumpSpec {
    pub(in crate::plan) schema: u32,
    pub(in crate::plan) stem: String,
    pub(in crate::plan) template: String,
    pub(in crate::plan) entry: String,
    pub(in crate::plan) arch: Arch,
    /// `sim`, `cuda` or `null`.
    pub(in crate::plan) device: String,
    /// Name of the device's target.
    pub(in crate::plan) target: String,
    pub(in crate::plan) config: String,
    pub(in crate::plan) key: String,
    pub(in crate::plan) origin: String,
    /// The file that replaced the generated kernel.
    pub(in crate::plan) overridden: Option<PathBuf>,
    pub(in crate::plan) launch: DumpLaunch,
    pub(in crate::plan) resources: Resources,
    /// Blake3 digests of the editable files as they were written.
    pub(in crate::plan) digests: BTreeMap<String, String>,
    pub(in crate::plan) parameters: serde_json::Value,
}

/// The launch configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::plan) struct DumpLaunch {
    pub(in crate::plan) grid: u32,
    pub(in crate::plan) threads: u32,
    pub(in crate::plan) shared_bytes: u32,
    pub(in crate::plan) cooperative: bool,
    /// Position among the launches that compute the problem together.
    #[serde(default)]
    pub(in crate::plan) position: usize,
    /// Number of launches that compute the problem together.
    #[serde(default = "alone")]
    pub(in crate::plan) launches: usize,
    /// The kernel's tensor parameters, in order.
    pub(in crate::plan) arguments: Vec<DumpArgument>,
    /// The parameters after `arguments`: 8-byte constants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::plan) numbers: Vec<u64>,
}

/// A tensor parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::plan) struct DumpArgument {
    /// The tensor's name in the problem; `#0`, `#1`, ... for scratch buffers.
    pub(in crate::plan) tensor: String,
    pub(in crate::plan) passed: Passed,
    /// Size in bytes from the first to the last element.
    pub(in crate::plan) bytes: u64,
    /// Where in the tensor's memory the parameter's begins, in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(in crate::plan) offset: u64,
    /// Whether the kernel writes the tensor.
    pub(in crate::plan) written: bool,
    /// The tensor map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::plan) map: Option<TensorMap>,
}

/// How a tensor is passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::plan) enum Passed {
    /// By device address.
    Address,
    /// By value, as a `double`.
    Value,
    /// By the address of a scratch buffer of the part.
    Scratch,
    /// By tensor map.
    Map,
}

fn is_zero(offset: &u64) -> bool {
    *offset == 0
}

/// [`DumpLaunch::launches`] of dumps that do not say it.
fn alone() -> usize {
    1
}

impl DumpLaunch {
    /// The launch, without its registers, which depend on the compiler.
    pub(in crate::plan) fn shape(&self) -> Launch {
        let DumpLaunch { grid, threads, shared_bytes, cooperative, .. } = *self;
        Launch { grid, threads, shared_bytes, cooperative, programmatic: false, registers: 0 }
    }

    /// Whether the kernel reads what launches before it left, or leaves something for later ones.
    pub(in crate::plan) fn shares_memory(&self) -> bool {
        self.launches > 1
    }

    /// Whether the outputs that the kernel writes are complete after it.
    pub(in crate::plan) fn is_last(&self) -> bool {
        self.position + 1 == self.launches
    }
}

/// The name of a kernel's dump folder, which is also its name for overrides.
pub(in crate::plan) fn identifier(stem: &str, key: Key) -> String {
    format!("{stem}-{}", &key.to_hex()[..16])
}

pub(in crate::plan) fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
