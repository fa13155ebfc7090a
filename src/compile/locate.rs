//! Where NVRTC is: every place it may have been installed to, in a fixed order.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// File names of NVRTC, newest first; both supported major versions.
const NAMES: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// The folder that `make setup` fills, in a checkout. The one that the library was built from is
/// looked at before Python's packages, which are many files to look at.
const INSTALLED: &str = "third_party/nvrtc/nvidia/cu13/lib";

/// What a user may say about where NVRTC is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Search {
    /// A library file or the folder that holds it; nothing else is tried then.
    pub configured: Option<PathBuf>,
    /// The value of `KILN_NVRTC`, of the same form.
    pub environment: Option<PathBuf>,
}

/// A found library.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Located {
    /// The library file.
    pub path: PathBuf,
    /// How it was found, for texts.
    pub found_by: &'static str,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.found_by)
    }
}

/// Finds NVRTC without loading it.
///
/// # Errors
/// `Compile` that lists every place looked at.
pub fn locate(search: &Search) -> Result<Located> {
    let mut looked = Vec::new();
    let explicit = [(&search.configured, "configured"), (&search.environment, "KILN_NVRTC")];
    for (place, found_by) in explicit {
        if let Some(place) = place {
            let found = library_at(place).map(|path| Located { path, found_by });
            return found.ok_or_else(|| not_found(&[format!("{} ({found_by})", place.display())]));
        }
    }
    if let Some(path) = loaded() {
        return Ok(Located { path, found_by: "already loaded" });
    }
    looked.push("libraries already loaded by the process".to_owned());
    // Each kind of place is listed only when the ones before it had nothing.
    for found_by in ["toolkit", "checkout", "python package", "working folder"] {
        let folders = match found_by {
            "toolkit" => toolkits(),
            "checkout" => vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(INSTALLED)],
            "python package" => packages(),
            _ => env::current_dir().iter().map(|here| here.join(INSTALLED)).collect(),
        };
        for folder in folders {
            if let Some(path) = library_at(&folder) {
                return Ok(Located { path, found_by });
            }
            looked.push(format!("{} ({found_by})", folder.display()));
        }
    }
    Err(not_found(&looked))
}

fn not_found(looked: &[String]) -> Error {
    let places = looked.join("\n  ");
    Error::compile(format!(
        "NVRTC not found; install it (`make setup`, or `pip install nvidia-cuda-nvrtc`) or set \
         KILN_NVRTC to its folder; looked at:\n  {places}"
    ))
}

/// The library a path means: itself, or the newest of the known names in the folder.
fn library_at(place: &Path) -> Option<PathBuf> {
    match place.metadata().ok()?.is_file() {
        true => Some(place.to_owned()),
        false => NAMES.iter().map(|name| place.join(name)).find(|path| path.is_file()),
    }
}

/// The library the process has loaded already, if any.
fn loaded() -> Option<PathBuf> {
    // The dynamic loader's own list; one line per mapping, the path last.
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| {
        let name = path.rsplit('/').next().unwrap_or("");
        name.starts_with("libnvrtc.so")
    })?;
    Some(PathBuf::from(path))
}

fn toolkits() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        if let Some(root) = env::var_os(variable) {
            folders.extend(
                ["lib64", "lib", "targets/x86_64-linux/lib"].map(|lib| Path::new(&root).join(lib)),
            );
        }
    }
    if let Some(paths) = env::var_os("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()));
    }
    folders.extend(
        ["/usr/local/cuda/lib64", "/opt/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
            .map(PathBuf::from),
    );
    // Versioned installations, newest name first.
    let mut versioned = children(Path::new("/usr/local"), "cuda-");
    versioned.sort();
    folders.extend(versioned.into_iter().rev().map(|root| root.join("lib64")));
    folders
}

/// `nvidia-cuda-nvrtc` in the site-packages of every Python that is easy to see.
fn packages() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .iter()
        .filter_map(|name| env::var_os(name).map(PathBuf::from))
        .collect();
    if let Some(home) = env::var_os("HOME") {
        let home = Path::new(&home);
        prefixes.push(home.join(".local"));
        prefixes.extend(children(&home.join(".pyenv/versions"), ""));
    }
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut folders = Vec::new();
    for prefix in prefixes {
        for python in children(&prefix.join("lib"), "python3") {
            for site in ["site-packages", "dist-packages"] {
                let nvidia = python.join(site).join("nvidia");
                if nvidia.is_dir() {
                    folders.push(nvidia.join("cu13/lib"));
                    folders.push(nvidia.join("cuda_nvrtc/lib"));
                }
            }
        }
    }
    folders
}

fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with(prefix))
    };
    entries.filter_map(|entry| entry.ok()).map(|entry| entry.path()).filter(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_place_is_the_only_one() {
        let search = Search { configured: Some("/nowhere".into()), environment: None };
        let error = locate(&search).expect_err("missing").to_string();
        assert!(error.starts_with("NVRTC not found; install it (`make setup`"), "{error}");
        assert!(error.ends_with("looked at:\n  /nowhere (configured)"), "{error}");
    }

    #[test]
    fn a_folder_means_the_newest_library_in_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for name in ["libnvrtc.so", "libnvrtc.so.12"] {
            std::fs::write(folder.path().join(name), b"").expect("writable");
        }
        let search = Search { configured: None, environment: Some(folder.path().to_owned()) };
        let located = locate(&search).expect("found");
        assert_eq!(located.path, folder.path().join("libnvrtc.so.12"));
        assert_eq!(located.found_by, "KILN_NVRTC");
    }
}
