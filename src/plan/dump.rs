//! Dumps: everything about a kernel in one folder, to read and to debug.
//!
//! ```text
//! <stem>-<first digits of the key>/
//!   spec.json        template, parameters, architecture, engine and knobs, launch, resources
//!   problem.json     the graph, as `kiln run` reads it
//!   kernel.cu        the rendered source
//!   options.txt      what it is compiled with
//!   kernel.ptx       and what came of it
//!   kernel.cubin
//!   log.txt          what compiler and assembler said
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::codegen::KernelSource;
use crate::compile::{Image, options};
use crate::engine::KernelSpec;
use crate::error::{Error, Result};
use crate::plan::execute::ExecutionPlan;

impl ExecutionPlan {
    /// Writes the plan's kernel to a folder of its own below `folder`; returns that folder.
    ///
    /// # Errors
    /// `Driver` when a file can not be written.
    pub fn dump(&self, folder: &Path) -> Result<PathBuf> {
        let report = self.report();
        let own = folder.join(format!("{}-{}", report.stem, &report.key.to_hex()[..16]));
        self.write_files(&own).map_err(|error| {
            let shown = own.display();
            Error::driver(format!("failed to write dump `{shown}`: {error}")).caused_by(error)
        })?;
        Ok(own)
    }

    fn write_files(&self, folder: &Path) -> io::Result<()> {
        let KernelSource { text, arch, .. } = self.source();
        let KernelSpec { stem, template, entry, parameters, .. } = self.spec();
        let Image { cubin, ptx, log, resources } = self.image();
        let report = self.report();
        let launch = self.launch();
        let spec = json!({
            "stem": stem,
            "template": template,
            "entry": entry,
            "arch": arch.to_string(),
            "config": self.config().to_string(),
            "key": report.key.to_hex(),
            "origin": report.origin.to_string(),
            "launch": {
                "grid": launch.grid,
                "threads": launch.threads,
                "shared_bytes": launch.shared_bytes,
                "cooperative": launch.cooperative,
                "arguments": self.arguments(),
            },
            "resources": resources,
            "parameters": parameters,
        });
        fs::create_dir_all(folder)?;
        fs::write(folder.join("spec.json"), format!("{spec:#}\n"))?;
        fs::write(folder.join("problem.json"), self.graph().to_json() + "\n")?;
        fs::write(folder.join("kernel.cu"), text)?;
        fs::write(folder.join("options.txt"), options(*arch).join("\n") + "\n")?;
        fs::write(folder.join("kernel.ptx"), ptx)?;
        fs::write(folder.join("kernel.cubin"), cubin)?;
        fs::write(folder.join("log.txt"), log)
    }
}
