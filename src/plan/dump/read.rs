//! Reading dumps, with consistency checks.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::codegen::KernelSource;
use crate::compile::Image;
use crate::device::{Device, DeviceChoice, Launch};
use crate::error::{Error, Result};
use crate::escape::{escaped, is_word};
use crate::frontend::Values;
use crate::graph::OperationGraph;
use crate::plan::dump::format::{
    AFTER, BEFORE, CUBIN, DumpArgument, DumpSpec, INPUTS, OPTIONS, OUTPUTS, PROBLEM, PTX, Passed,
    SCHEMA, SOURCE, SPEC, digest,
};
use crate::plan::dump::memory::SharedMemory;
use crate::plan::problem::tensors::{read_metadata, read_values};
use crate::target::{Arch, Target};
use crate::tensor::TensorDesc;

/// A dumped kernel.
#[derive(Debug, Clone)]
pub struct Dump {
    folder: PathBuf,
    pub(in crate::plan) spec: DumpSpec,
    graph: OperationGraph,
    pub(in crate::plan) source: KernelSource,
    pub(in crate::plan) options: Vec<String>,
    /// The image as it was compiled; the PTX in the folder may have been edited since.
    pub(in crate::plan) image: Image,
    /// The edit in the folder.
    edit: Option<Edit>,
    inputs: Option<Values>,
    outputs: Option<Values>,
    /// Memory that the captured launch shared with others, before it and after it.
    pub(in crate::plan) before: Option<SharedMemory>,
    after: Option<SharedMemory>,
    /// Device addresses in the captured launch, by tensor name.
    addresses: HashMap<String, u64>,
}

/// A source or PTX text that replaces a kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Edit {
    /// The file.
    pub path: PathBuf,
    /// Whether the text is PTX rather than CUDA C++.
    pub is_ptx: bool,
    /// The text.
    pub text: String,
}

impl Edit {
    /// Reads a `.cu` or `.ptx` file.
    ///
    /// # Errors
    /// `BadParam` for another extension, or when the file cannot be read.
    pub fn read(path: &Path) -> Result<Edit> {
        let is_ptx = match path.extension().and_then(|extension| extension.to_str()) {
            Some("cu") => false,
            Some("ptx") => true,
            _ => {
                let shown = path.display();
                let text = format!("`{shown}`: an edited kernel is a .cu or a .ptx file");
                return Err(Error::bad_param(text));
            }
        };
        Ok(Edit { path: path.to_owned(), is_ptx, text: read_text(path)? })
    }
}

impl Dump {
    /// Reads a dump folder.
    ///
    /// # Errors
    /// `BadParam` that names the file that is missing, malformed, or inconsistent with the others.
    pub fn open(folder: &Path) -> Result<Dump> {
        let text = |name: &str| read_text(&folder.join(name));
        let spec = read_spec(folder)?;
        let graph = OperationGraph::from_json(&text(PROBLEM)?)
            .map_err(|error| error.context(format_args!("`{}`", folder.join(PROBLEM).display())))?;
        for argument in &spec.launch.arguments {
            check_argument(argument, &graph).map_err(|error| {
                error.context(format_args!("`{}`", folder.join(SPEC).display()))
            })?;
        }
        let source = KernelSource {
            stem: spec.stem.clone(),
            entry: spec.entry.clone(),
            arch: spec.arch,
            text: text(SOURCE)?,
        };
        let cubin = folder.join(CUBIN);
        let image = Image {
            cubin: fs::read(&cubin).map_err(|error| unreadable(&cubin, error))?,
            ptx: text(PTX)?,
            log: String::new(),
            resources: spec.resources,
        };
        let (inputs, outputs) = (folder.join(INPUTS), folder.join(OUTPUTS));
        let values = |path: &Path, tensors: Vec<&TensorDesc>| match path.exists() {
            true => read_values(path, tensors.into_iter()).map(Some),
            false => Ok(None),
        };
        let shared = |name: &str| SharedMemory::open(&folder.join(name), &spec.launch);
        let mut addresses = HashMap::new();
        for path in [&inputs, &outputs].into_iter().filter(|path| path.exists()) {
            addresses.extend(read_addresses(path)?);
        }
        Ok(Dump {
            folder: folder.to_owned(),
            edit: edit_in_place(folder, &spec, &source.text, &image.ptx)?,
            inputs: values(&inputs, graph.inputs().collect())?,
            outputs: values(&outputs, graph.outputs().collect())?,
            before: shared(BEFORE)?,
            after: shared(AFTER)?,
            options: text(OPTIONS)?.lines().map(str::to_owned).collect(),
            addresses,
            spec,
            graph,
            source,
            image,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kernel's stem.
    pub fn stem(&self) -> &str {
        &self.spec.stem
    }

    /// The architecture that the kernel was compiled for.
    pub fn arch(&self) -> Arch {
        self.spec.arch
    }

    /// The name of the GPU, real or simulated, that the kernel was dumped on.
    pub fn target(&self) -> &str {
        &self.spec.target
    }

    /// The part of the graph that the kernel computes.
    pub fn graph(&self) -> &OperationGraph {
        &self.graph
    }

    /// The launch configuration.
    pub fn launch(&self) -> Launch {
        self.spec.launch.shape()
    }

    /// The captured inputs.
    pub fn inputs(&self) -> Option<&Values> {
        self.inputs.as_ref()
    }

    /// The captured outputs; `None` also if the captured launch failed.
    pub fn outputs(&self) -> Option<&Values> {
        self.outputs.as_ref()
    }

    /// Whether the outputs that the kernel writes are complete after it: it computes the problem
    /// alone, or is the last of several kernels.
    pub fn is_last(&self) -> bool {
        self.spec.launch.is_last()
    }

    /// The kernel's position among those that compute the problem together, and their number.
    pub fn position(&self) -> (usize, usize) {
        (self.spec.launch.position, self.spec.launch.launches)
    }

    /// The captured bytes of the scratch buffers that the kernel shares with others, by name, after
    /// the launch; empty also if the captured launch failed.
    pub fn scratch(&self) -> Vec<(String, Vec<u8>)> {
        self.after.as_ref().map_or(Vec::new(), |after| after.scratch(&self.spec.launch))
    }

    /// The edit of the source or PTX in the folder, if any.
    pub fn edit(&self) -> Option<&Edit> {
        self.edit.as_ref()
    }

    /// Whether the kernel was dumped on this kind of device, on which its outputs must be
    /// bit-identical.
    pub fn was_made_on(&self, device: &Device) -> bool {
        self.spec.device == device.kind()
    }

    /// The default device for a replay: a GPU if it was dumped on one and there is one, else the
    /// simulated device with the same limits.
    pub fn device(&self) -> DeviceChoice {
        if self.spec.device == "cuda" && Device::cuda_count().is_ok_and(|count| count > 0) {
            return DeviceChoice::Cuda(0);
        }
        let is_target =
            |key: &&str| Target::named(key).is_ok_and(|target| target.name == self.spec.target);
        DeviceChoice::Sim(Target::names().find(is_target).unwrap_or("sim").to_owned())
    }

    /// Misalignment in bytes of a tensor's address in the captured launch, relative to the
    /// alignment of allocations.
    pub(in crate::plan) fn misalignment(&self, name: &str) -> usize {
        let address = self.addresses.get(name).copied().unwrap_or(0);
        (address % crate::tensor::ALIGNMENT_MAX as u64) as usize
    }
}

/// Reads `spec.json` of a dump's folder.
pub(in crate::plan) fn read_spec(folder: &Path) -> Result<DumpSpec> {
    let path = folder.join(SPEC);
    let text = read_text(&path)
        .map_err(|error| error.context(format_args!("`{}` is no dump", folder.display())))?;
    let shown = path.display();
    let malformed =
        |error: serde_json::Error| Error::bad_param(format!("malformed `{shown}`: {error}"));
    let document: serde_json::Value = serde_json::from_str(&text).map_err(malformed)?;
    // Checked first: another schema has other fields.
    match document["schema"].as_u64() {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            let text = format!("`{shown}` has schema {schema}, this version reads {SCHEMA}");
            return Err(Error::bad_param(text));
        }
        None => return Err(Error::bad_param(format!("`{shown}` has no schema: it is no dump's"))),
    }
    let spec: DumpSpec = serde_json::from_value(document).map_err(malformed)?;
    if let Some(name) = [&spec.stem, &spec.entry].into_iter().find(|name| !is_word(name)) {
        let name = escaped(name);
        let text = format!("`{shown}` names a kernel `{name}`, which is no word");
        return Err(Error::bad_param(text));
    }
    Ok(spec)
}

/// The text that differs from the dumped one.
pub(in crate::plan) fn edit_in_place(
    folder: &Path,
    spec: &DumpSpec,
    source: &str,
    ptx: &str,
) -> Result<Option<Edit>> {
    let edited = |name: &str, text: &str| spec.digests.get(name) != Some(&digest(text));
    let edit = |name: &str, is_ptx: bool, text: &str| {
        Some(Edit { path: folder.join(name), is_ptx, text: text.to_owned() })
    };
    match (edited(SOURCE, source), edited(PTX, ptx)) {
        (false, false) => Ok(None),
        (true, false) => Ok(edit(SOURCE, false, source)),
        (false, true) => Ok(edit(PTX, true, ptx)),
        (true, true) => {
            let shown = folder.display();
            Err(Error::bad_param(format!(
                "both {SOURCE} and {PTX} of `{shown}` differ from what was dumped: only one can \
                 stand in for the kernel"
            )))
        }
    }
}

/// Checks an argument of the launch against the problem.
fn check_argument(argument: &DumpArgument, graph: &OperationGraph) -> Result<()> {
    let DumpArgument { tensor: name, passed, bytes, .. } = argument;
    if *passed == Passed::Scratch {
        return Ok(());
    }
    let tensor = graph.tensor_named(name)?;
    let (by_value, span) = (tensor.by_value, tensor.span_bytes()?);
    if tensor.is_virtual || by_value != (*passed == Passed::Value) || span != *bytes {
        return Err(Error::bad_param(format!(
            "argument `{name}` of {bytes} bytes is not the tensor of {PROBLEM}: {tensor}"
        )));
    }
    Ok(())
}

fn read_addresses(path: &Path) -> Result<HashMap<String, u64>> {
    let address = |(name, text): (String, String)| {
        let digits = text.strip_prefix("0x").unwrap_or_default();
        let address = u64::from_str_radix(digits, 16).map_err(|_| {
            let shown = path.display();
            Error::bad_param(format!("`{shown}`: `{text}` is no address of tensor `{name}`"))
        })?;
        Ok((name, address))
    };
    read_metadata(path)?.into_iter().map(address).collect()
}

pub(in crate::plan) fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::bad_param(format!("failed to read `{}`: {error}", path.display()))
}
