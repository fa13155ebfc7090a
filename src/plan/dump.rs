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

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::cache::{Held, Key};
use crate::codegen::KernelSource;
use crate::compile::{Image, Resources, disassemble, options};
use crate::device::{Device, Launch};
use crate::error::{Error, Result};
use crate::kernel::{Argument, KernelSpec, TensorMap};
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe::{Feed, PlannedKernel};
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
const SASS: &str = "kernel.sass";

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

impl ExecutionPlan {
    /// Writes each of the plan's kernels to a folder of its own below `folder`, with the stack of
    /// this call; returns those folders. What an earlier dump wrote is replaced, and its tensors
    /// are removed; what was edited since is not overwritten, and no link is followed.
    ///
    /// # Errors
    /// `Driver` when a file can not be written, or was edited.
    pub fn dump(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let device = &self.inner.device;
        self.kernels().iter().map(|kernel| kernel.dump(device, folder)).collect()
    }
}

impl PlannedKernel {
    /// The kernel's name: its folder in a dump is called so, and an override for it.
    pub fn identifier(&self) -> String {
        identifier(&self.report.stem, self.report.key)
    }

    pub(super) fn dump(&self, device: &Device, folder: &Path) -> Result<PathBuf> {
        let own = folder.join(self.identifier());
        let failed = |error: io::Error| {
            let shown = own.display();
            Error::driver(format!("failed to write dump `{shown}`: {error}")).caused_by(error)
        };
        let held = self.write_files(device, folder).map_err(failed)?;
        match disassemble(&own.join(CUBIN)) {
            Some(Ok(sass)) => held.put(SASS, sass.as_bytes(), FILE_MODE).map_err(failed)?,
            Some(Err(error)) => warn!("{error}; the dump has no SASS"),
            None => {}
        }
        Ok(own)
    }

    /// Writes all but the SASS into the kernel's folder in `folder`; that folder, still held.
    fn write_files(&self, device: &Device, folder: &Path) -> io::Result<Held> {
        let KernelSource { text, arch, .. } = &self.source;
        let Image { cubin, ptx, log, .. } = &*self.image;
        let spec = self.dump_spec(device);
        let spec = serde_json::to_string_pretty(&spec).expect("plain data is JSON") + "\n";
        fs::create_dir_all(folder)?;
        let own = Held::open(folder)?.made(self.identifier(), 0o755)?.private()?;
        for (name, text) in [(SOURCE, text), (PTX, ptx)] {
            let found = own.file(name).and_then(io::read_to_string);
            match found {
                Ok(found) if found != *text => {
                    let text = format!("{name} was edited, it is not overwritten");
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
                }
                _ => {}
            }
        }
        [INPUTS, OUTPUTS, SASS].into_iter().try_for_each(|stale| own.remove(stale))?;
        let problem = self.part.graph.to_json() + "\n";
        let options = options(*arch).join("\n") + "\n";
        let stack = Backtrace::force_capture().to_string();
        let files: [(&str, &[u8]); 8] = [
            (SPEC, spec.as_bytes()),
            (PROBLEM, problem.as_bytes()),
            (SOURCE, text.as_bytes()),
            (OPTIONS, options.as_bytes()),
            (PTX, ptx.as_bytes()),
            (CUBIN, cubin),
            ("log.txt", log.as_bytes()),
            ("stack.txt", stack.as_bytes()),
        ];
        files.into_iter().try_for_each(|(name, bytes)| own.put(name, bytes, FILE_MODE))?;
        Ok(own)
    }

    fn dump_spec(&self, device: &Device) -> DumpSpec {
        let KernelSpec { stem, template, entry, arch, parameters } = &self.spec;
        let (report, launch) = (&self.report, self.launch);
        let canonical = self.part.graph.canonical();
        let named = |at: i64, passed: Passed| {
            let uid = canonical.uids[at as usize];
            let tensor = self.part.graph.tensor(uid).expect("canonical uids are the graph's");
            DumpArgument {
                tensor: tensor.name.clone(),
                passed,
                bytes: tensor.span_bytes().expect("tensors of a graph are valid"),
                written: canonical.is_written(at as usize),
                map: None,
            }
        };
        let argument = |argument: &Argument| match *argument {
            Argument::Scratch(at) => DumpArgument {
                tensor: format!("#{at}"),
                passed: Passed::Scratch,
                bytes: self.scratch[at],
                written: true,
                map: None,
            },
            Argument::Address(at) => named(at, Passed::Address),
            Argument::Value(at, _) => named(at, Passed::Value),
            Argument::Map(at) => {
                let map = &self.maps[at].0;
                DumpArgument { map: Some(map.clone()), ..named(map.tensor, Passed::Map) }
            }
        };
        let number = |feed: &Feed| match feed {
            Feed::Number(number) => Some(*number),
            _ => None,
        };
        let editable = [(SOURCE, &self.source.text), (PTX, &self.image.ptx)];
        DumpSpec {
            schema: SCHEMA,
            stem: stem.clone(),
            template: (*template).to_owned(),
            entry: (*entry).to_owned(),
            arch: *arch,
            device: device.kind().to_owned(),
            target: device.target().name.clone(),
            config: self.config().to_string(),
            key: report.key.to_hex(),
            origin: report.origin.to_string(),
            overridden: report.overridden.clone(),
            launch: DumpLaunch {
                grid: launch.grid,
                threads: launch.threads,
                shared_bytes: launch.shared_bytes,
                cooperative: launch.cooperative,
                arguments: self.arguments.iter().map(argument).collect(),
                numbers: self.feeds.iter().filter_map(number).collect(),
            },
            resources: report.resources,
            digests: editable.map(|(name, text)| (name.to_owned(), digest(text))).into(),
            parameters: parameters.clone(),
        }
    }
}
