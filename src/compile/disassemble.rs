//! Disassembly of cubins with NVIDIA's `nvdisasm`, where it is installed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compile::environment::variable;
use crate::error::{Error, Result};

const NAME: &str = "nvdisasm";

/// Returns the SASS of a cubin file, annotated with source lines; `None` if `nvdisasm` is neither
/// on the `PATH` nor in a toolkit.
///
/// # Errors
/// `Driver` when the tool fails to start or rejects the file, for example because it is too old.
pub fn disassemble(cubin: &Path) -> Option<Result<String>> {
    let tool = folders().into_iter().map(|folder| folder.join(NAME)).find(|path| path.is_file())?;
    Some(run(&tool, cubin))
}

fn run(tool: &Path, cubin: &Path) -> Result<String> {
    let (shown, file) = (tool.display(), cubin.display());
    let output = Command::new(tool)
        .args(["--print-code", "--print-line-info"])
        .arg(cubin)
        .output()
        .map_err(|error| Error::io(format!("failed to start `{shown}`")).caused_by(error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim_end();
        return Err(Error::io(format!("`{shown}` failed to disassemble `{file}`: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Folders that may contain the tool, in order of preference.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    // A relative path would be resolved against the working folder.
    if let Some(paths) = variable("PATH") {
        folders.extend(env::split_paths(&paths).filter(|path| path.is_absolute()));
    }
    let roots = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].into_iter().filter_map(variable);
    let roots = roots.filter(|root| Path::new(root).is_absolute());
    folders.extend(roots.map(|root| Path::new(&root).join("bin")));
    folders.extend(["/usr/local/cuda/bin", "/opt/cuda/bin"].map(PathBuf::from));
    folders
}
