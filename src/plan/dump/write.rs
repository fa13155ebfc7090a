//! Writing dumps.

use std::backtrace::Backtrace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::cache::Held;
use crate::codegen::KernelSource;
use crate::compile::{Image, disassemble, options};
use crate::device::{Device, Launch, REPORT_BYTES};
use crate::error::{Error, Result};
use crate::kernel::{Argument, KernelSpec, Mapped};
use crate::plan::dump::format::{
    AFTER, BEFORE, CUBIN, DumpArgument, DumpLaunch, DumpSpec, FILE_MODE, INPUTS, OPTIONS, OUTPUTS,
    PROBLEM, PTX, Passed, SASS, SCHEMA, SOURCE, SPEC, digest, identifier,
};
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe::{Feed, PlannedKernel};

impl ExecutionPlan {
    /// Writes each kernel of the plan to its own folder in `folder`, with the current call stack,
    /// and returns those folders. An earlier dump is replaced and its captured tensors are removed;
    /// edited files are not overwritten, and links are not followed.
    ///
    /// # Errors
    /// `Io` when a file cannot be written or was edited.
    pub fn dump(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let device = &self.inner.device;
        self.kernels().iter().map(|kernel| kernel.dump(device, folder)).collect()
    }
}

impl PlannedKernel {
    /// The kernel's name, which is that of its dump folder and of overrides.
    pub fn identifier(&self) -> String {
        identifier(&self.report.stem, self.report.key)
    }

    pub(in crate::plan) fn dump(&self, device: &Device, folder: &Path) -> Result<PathBuf> {
        let own = folder.join(self.identifier());
        let failed = |error: io::Error| {
            let shown = own.display();
            Error::io(format!("failed to write dump `{shown}`: {error}")).caused_by(error)
        };
        let held = self.write_files(device, folder).map_err(failed)?;
        match disassemble(&own.join(CUBIN)) {
            Some(Ok(sass)) => held.put(SASS, sass.as_bytes(), FILE_MODE).map_err(failed)?,
            Some(Err(error)) => warn!("{error}; the dump has no SASS"),
            None => {}
        }
        Ok(own)
    }

    /// Writes all files but the SASS and returns the kernel's folder, still open.
    fn write_files(&self, device: &Device, folder: &Path) -> io::Result<Held> {
        let KernelSource { text, arch, .. } = &*self.source;
        let Image { cubin, ptx, log, .. } = &*self.image;
        let spec = self.dump_spec(device);
        let spec = serde_json::to_string_pretty(&spec).expect("plain data is JSON") + "\n";
        fs::create_dir_all(folder)?;
        if fs::symlink_metadata(folder)?.is_symlink() {
            let text = "the folder is a symbolic link, which dumps do not follow";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
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
        let stale = [INPUTS, OUTPUTS, BEFORE, AFTER, SASS];
        stale.into_iter().try_for_each(|name| own.remove(name))?;
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
        let report = &self.report;
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
            launch: self.dump_launch(),
            resources: report.resources,
            digests: editable.map(|(name, text)| (name.to_owned(), digest(text))).into(),
            parameters: serde_json::Value::clone(parameters),
        }
    }

    /// The launch as dumps describe it.
    pub(in crate::plan) fn dump_launch(&self) -> DumpLaunch {
        let Launch { grid, threads, shared_bytes, cooperative, .. } = self.launch;
        let canonical = self.part.graph.canonical();
        let named = |at: i64, passed: Passed| {
            let uid = canonical.uids[at as usize];
            let tensor = self.part.graph.tensor(uid).expect("canonical uids are the graph's");
            DumpArgument {
                tensor: tensor.name.clone(),
                passed,
                bytes: tensor.span_bytes().expect("tensors of a graph are valid"),
                offset: canonical.offset_bytes(at as usize),
                written: canonical.is_written(at as usize),
                map: None,
            }
        };
        let scratch = |at: usize| DumpArgument {
            tensor: format!("#{at}"),
            passed: Passed::Scratch,
            bytes: self.scratch[at],
            offset: 0,
            written: true,
            map: None,
        };
        let argument = |argument: &Argument| match *argument {
            Argument::Scratch(at) => scratch(at),
            // What it reports is not the problem's.
            Argument::Report(_) => DumpArgument {
                tensor: "#report".to_owned(),
                passed: Passed::Scratch,
                bytes: REPORT_BYTES,
                offset: 0,
                written: false,
                map: None,
            },
            Argument::Address(at) => named(at, Passed::Address),
            Argument::Value(at, _) => named(at, Passed::Value),
            Argument::Map(at) => {
                let map = &self.described.maps[at];
                let of = match map.memory {
                    Mapped::Tensor(uid) => named(uid, Passed::Map),
                    Mapped::Scratch(at) => scratch(at),
                };
                DumpArgument { map: Some(map.clone()), ..of }
            }
        };
        let number = |feed: &Feed| match feed {
            Feed::Number(number) => Some(*number),
            _ => None,
        };
        DumpLaunch {
            grid,
            threads,
            shared_bytes,
            cooperative,
            position: self.position,
            launches: self.launches,
            arguments: self.described.arguments.iter().map(argument).collect(),
            numbers: self.feeds.iter().filter_map(number).collect(),
        }
    }
}
