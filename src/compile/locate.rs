//! Where NVRTC is: every place it may have been installed to, in a fixed order.
//!
//! 1. what the configuration says, else `KILN_NVRTC`: nothing else is looked at then;
//! 2. a library that the process has loaded already;
//! 3. a CUDA toolkit: `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT`, `LD_LIBRARY_PATH`, then the usual
//!    folders of the system;
//! 4. the checkout that `cargo` runs (`CARGO_MANIFEST_DIR`), or in whose `target/` the executable
//!    lies: `third_party/`, which `make setup` fills;
//! 5. Python's `nvidia-cuda-nvrtc` in `VIRTUAL_ENV`, `CONDA_PREFIX`, below `HOME`, in the system.
//!
//! Neither the working folder nor the place where the library was built counts, nor does a relative
//! path in a variable. Below 3 to 5 a library is passed over that others may write or put another
//! one in the place of. A privileged program sees no variables ([`variable`]).

use std::env;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::compile::environment::{is_privileged, variable};
use crate::error::{Error, Result};

/// File names of NVRTC, newest first; both supported major versions.
const NAMES: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// The folder that `make setup` fills, in a checkout.
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
    for kind in KINDS {
        for folder in kind.folders() {
            match library_at(&folder).map(|path| check(&path).map(|()| path)) {
                Some(Ok(path)) => return Ok(Located { path, found_by: kind.name() }),
                Some(Err(why)) => looked.push(format!("{why} ({})", kind.name())),
                None => looked.push(format!("{} ({})", folder.display(), kind.name())),
            }
        }
    }
    Err(not_found(&looked))
}

/// Kinds of places that are looked at where nothing is said, in their order.
const KINDS: [Kind; 3] = [Kind::Toolkit, Kind::Checkout, Kind::Package];

#[derive(Clone, Copy)]
enum Kind {
    Toolkit,
    Checkout,
    Package,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Toolkit => "toolkit",
            Kind::Checkout => "checkout",
            Kind::Package => "python package",
        }
    }

    fn folders(self) -> Vec<PathBuf> {
        match self {
            Kind::Toolkit => toolkits(),
            Kind::Checkout => checkouts(),
            Kind::Package => packages(),
        }
    }
}

/// Where a library is looked for, in that order, where the process has none and nothing is said:
/// each folder with the kind of place that it is.
pub fn places() -> Vec<(&'static str, PathBuf)> {
    let of = |kind: Kind| kind.folders().into_iter().map(move |folder| (kind.name(), folder));
    KINDS.into_iter().flat_map(of).collect()
}

/// Whether only this user and root decide what a library file is.
fn check(library: &Path) -> std::result::Result<(), String> {
    let shown = library.display();
    let unreadable = |error: std::io::Error| format!("{shown}: {error}");
    let path = library.canonicalize().map_err(unreadable)?;
    let mut inside: Option<Metadata> = None;
    for place in path.ancestors() {
        let metadata = fs::metadata(place).map_err(unreadable)?;
        let (owner, mode) = (metadata.uid(), metadata.mode());
        let ours = |owner: u32| [0, rustix::process::geteuid().as_raw()].contains(&owner);
        // In a folder that is open to all and sticky, what is ours stays ours.
        let kept = mode & 0o1000 != 0 && inside.is_some_and(|inside| ours(inside.uid()));
        if !ours(owner) || (mode & 0o002 != 0 && !kept) {
            let place = place.display();
            return Err(format!(
                "{shown}, passed over: `{place}` belongs to uid {owner} with mode {:o}",
                mode & 0o7777
            ));
        }
        inside = Some(metadata);
    }
    Ok(())
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

/// A variable that is an absolute path: a relative one would mean the working folder.
fn folder_of(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn toolkits() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].into_iter().filter_map(folder_of) {
        folders.extend(["lib64", "lib", "targets/x86_64-linux/lib"].map(|lib| root.join(lib)));
    }
    if let Some(paths) = variable("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&paths).filter(|path| path.is_absolute()));
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

/// What `make setup` installed, of the checkout at hand.
fn checkouts() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = folder_of("CARGO_MANIFEST_DIR").into_iter().collect();
    // A privileged program may be linked to from anywhere.
    let own = if is_privileged() { None } else { env::current_exe().ok() };
    roots.extend(own.as_deref().and_then(built_in).map(Path::to_owned));
    roots.dedup();
    roots.into_iter().map(|root| root.join(INSTALLED)).collect()
}

/// The checkout in whose `target/` an executable lies.
fn built_in(executable: &Path) -> Option<&Path> {
    let target = executable.ancestors().find(|folder| folder.ends_with("target"))?;
    target.parent().filter(|root| root.join("Cargo.toml").is_file())
}

/// `nvidia-cuda-nvrtc` in the site-packages of every Python that is easy to see.
fn packages() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder_of).collect();
    if let Some(home) = folder_of("HOME") {
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
    fn what_others_may_write_is_passed_over() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("temporary folder");
        let (lib, library) = (folder.path().join("lib"), folder.path().join("lib/libnvrtc.so.13"));
        fs::create_dir(&lib).expect("writable");
        fs::write(&library, b"").expect("writable");
        let with_modes = |of_folder: u32, of_file: u32| {
            for (path, mode) in [(&lib, of_folder), (&library, of_file)] {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own");
            }
            check(&library)
        };
        assert_eq!(with_modes(0o755, 0o644), Ok(()));
        assert_eq!(with_modes(0o1777, 0o644), Ok(()));
        let why = with_modes(0o777, 0o644).expect_err("anyone may replace it");
        assert!(why.contains("lib/libnvrtc.so.13, passed over: `") && why.ends_with("mode 777"));
        let why = with_modes(0o755, 0o666).expect_err("anyone may write it");
        assert!(why.ends_with("mode 666"), "{why}");
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
