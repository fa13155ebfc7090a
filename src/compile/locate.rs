//! Search for NVRTC, in this order:
//!
//! 1. the configured path, otherwise `KILN_NVRTC`; if one is set, nothing else is searched;
//! 2. a library that the process has already loaded;
//! 3. a CUDA toolkit: `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT`, `LD_LIBRARY_PATH`, then the system's
//!    usual folders;
//! 4. `third_party/`, which `make setup` fills, of the checkout that `cargo` runs
//!    (`CARGO_MANIFEST_DIR`) or whose `target/` contains the executable;
//! 5. Python's `nvidia-cuda-nvrtc` in `VIRTUAL_ENV`, `CONDA_PREFIX`, below `HOME`, and in the
//!    system.
//!
//! The working folder, the library's build folder and relative paths in variables are never
//! searched. Steps 3 to 5 skip libraries that other users can write or replace, and those whose
//! images the driver is too old for, as long as there are others. A privileged program sees no
//! variables ([`variable`]).

use std::env;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::compile::environment::{is_privileged, variable};
use crate::error::{Error, Result};

/// File names of NVRTC for the supported major versions, newest first.
const NAMES: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Folders that `make setup` fills, one of them, relative to a checkout: with NVRTC 13, or 12.
const INSTALLED: [&str; 2] =
    ["third_party/nvrtc/nvidia/cu13/lib", "third_party/nvrtc/nvidia/cuda_nvrtc/lib"];

/// Explicit locations of NVRTC.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Search {
    /// Configured library file or folder; excludes all others.
    pub configured: Option<PathBuf>,
    /// Value of `KILN_NVRTC`, likewise.
    pub environment: Option<PathBuf>,
    /// CUDA version of the driver that loads what is compiled, where there is one: an NVRTC of a
    /// later major version is taken only if there is no other.
    pub driver: Option<(i32, i32)>,
}

/// A located library.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Located {
    /// Library file.
    pub path: PathBuf,
    /// How it was found, for messages.
    pub found_by: &'static str,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.found_by)
    }
}

/// Searches for NVRTC without loading it.
///
/// # Errors
/// `NoCompiler` with the list of all places searched.
pub fn locate(search: &Search) -> Result<Located> {
    let mut looked = Vec::new();
    let fits = |library: &Path| fits(library, search.driver);
    let explicit = [(&search.configured, "configured"), (&search.environment, "KILN_NVRTC")];
    for (place, found_by) in explicit {
        if let Some(place) = place {
            let library = library_at(place, fits).or_else(|| library_at(place, |_| true));
            let found = library.map(|path| Located { path, found_by });
            return found.ok_or_else(|| not_found(&[format!("{} ({found_by})", place.display())]));
        }
    }
    if let Some(path) = loaded() {
        return Ok(Located { path, found_by: "already loaded" });
    }
    looked.push("libraries already loaded by the process".to_owned());
    // Each kind is searched, and listed, only if the previous ones had nothing.
    let mut too_new = None;
    for kind in KINDS {
        let found_by = kind.name();
        for folder in kind.folders() {
            let library = library_at(&folder, fits).or_else(|| library_at(&folder, |_| true));
            match library.map(|path| check(&path).map(|()| path)) {
                Some(Ok(path)) if fits(&path) => return Ok(Located { path, found_by }),
                Some(Ok(path)) => {
                    too_new.get_or_insert(Located { path, found_by });
                }
                Some(Err(why)) => looked.push(format!("{why} ({found_by})")),
                None => looked.push(format!("{} ({found_by})", folder.display())),
            }
        }
    }
    too_new.ok_or_else(|| not_found(&looked))
}

/// Kinds of places to search by default, in order.
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

/// Folders searched for a library by default, in order, each with its kind.
pub fn places() -> Vec<(&'static str, PathBuf)> {
    let of = |kind: Kind| kind.folders().into_iter().map(move |folder| (kind.name(), folder));
    KINDS.into_iter().flat_map(of).collect()
}

/// Checks that only this user and root can write or replace a library file.
fn check(library: &Path) -> std::result::Result<(), String> {
    let shown = library.display();
    let unreadable = |error: std::io::Error| format!("{shown}: {error}");
    let path = library.canonicalize().map_err(unreadable)?;
    let mut inside: Option<Metadata> = None;
    for place in path.ancestors() {
        let metadata = fs::metadata(place).map_err(unreadable)?;
        let (owner, mode) = (metadata.uid(), metadata.mode());
        let ours = |owner: u32| [0, rustix::process::geteuid().as_raw()].contains(&owner);
        // In a world-writable folder with the sticky bit, files owned by us cannot be replaced.
        let kept = mode & 0o1000 != 0 && inside.is_some_and(|inside| ours(inside.uid()));
        if !ours(owner) || (mode & 0o002 != 0 && !kept) {
            let place = place.display();
            return Err(format!(
                "{shown}, skipped: `{place}` belongs to uid {owner} with mode {:o}",
                mode & 0o7777
            ));
        }
        inside = Some(metadata);
    }
    Ok(())
}

fn not_found(looked: &[String]) -> Error {
    let places = looked.join("\n  ");
    Error::no_compiler(format!(
        "NVRTC not found: install it (`make setup`, or `pip install nvidia-cuda-nvrtc`) or set \
         KILN_NVRTC to its folder; searched:\n  {places}"
    ))
}

/// Resolves a path to a library that fits: the file itself, or the newest known name in the folder.
fn library_at(place: &Path, fits: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    match place.metadata().ok()?.is_file() {
        true => Some(place.to_owned()),
        false => {
            let mut paths = NAMES.iter().map(|name| place.join(name));
            paths.find(|path| path.is_file() && fits(path))
        }
    }
}

/// Whether a driver loads what a library compiles, as far as its file name says which it is.
fn fits(library: &Path, driver: Option<(i32, i32)>) -> bool {
    let Some((driver, _)) = driver else { return true };
    let file = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let version = name.strip_prefix("libnvrtc.so.").unwrap_or("");
    let major = version.split('.').next().and_then(|major| major.parse::<i32>().ok());
    major.is_none_or(|major| major <= driver)
}

/// The library that the process has already loaded, if any.
fn loaded() -> Option<PathBuf> {
    // The mapped files of the process: one mapping per line, the path last.
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| {
        let name = path.rsplit('/').next().unwrap_or("");
        name.starts_with("libnvrtc.so")
    })?;
    Some(PathBuf::from(path))
}

/// A variable with an absolute path; relative ones would be resolved against the working folder.
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
    // Versioned installations, newest first.
    let mut versioned = children(Path::new("/usr/local"), "cuda-");
    versioned.sort();
    folders.extend(versioned.into_iter().rev().map(|root| root.join("lib64")));
    folders
}

/// Folders that `make setup` fills, of the current checkouts.
fn checkouts() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = folder_of("CARGO_MANIFEST_DIR").into_iter().collect();
    // A privileged program may be linked to from anywhere.
    let own = if is_privileged() { None } else { env::current_exe().ok() };
    roots.extend(own.as_deref().and_then(built_in).map(Path::to_owned));
    roots.dedup();
    roots.into_iter().flat_map(|root| INSTALLED.map(|folder| root.join(folder))).collect()
}

/// The checkout whose `target/` contains an executable.
fn built_in(executable: &Path) -> Option<&Path> {
    let target = executable.ancestors().find(|folder| folder.ends_with("target"))?;
    target.parent().filter(|root| root.join("Cargo.toml").is_file())
}

/// `nvidia-cuda-nvrtc` in the site-packages of common Python installations.
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
        let search = Search { configured: Some("/nowhere".into()), ..Search::default() };
        let error = locate(&search).expect_err("missing").to_string();
        assert!(error.starts_with("NVRTC not found: install it (`make setup`"), "{error}");
        assert!(error.ends_with("searched:\n  /nowhere (configured)"), "{error}");
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
        assert!(why.contains("lib/libnvrtc.so.13, skipped: `") && why.ends_with("mode 777"));
        let why = with_modes(0o755, 0o666).expect_err("anyone may write it");
        assert!(why.ends_with("mode 666"), "{why}");
    }

    #[test]
    fn a_folder_means_the_newest_library_in_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for name in ["libnvrtc.so", "libnvrtc.so.12"] {
            std::fs::write(folder.path().join(name), b"").expect("writable");
        }
        let search = Search { environment: Some(folder.path().to_owned()), ..Search::default() };
        let located = locate(&search).expect("found");
        assert_eq!(located.path, folder.path().join("libnvrtc.so.12"));
        assert_eq!(located.found_by, "KILN_NVRTC");
    }

    #[test]
    fn a_driver_of_cuda_12_prefers_nvrtc_12() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let create = |name: &str| fs::write(folder.path().join(name), b"").expect("writable");
        let located = |driver| {
            let environment = Some(folder.path().to_owned());
            let located = locate(&Search { configured: None, environment, driver });
            let path = located.expect("found").path;
            path.file_name().expect("a file").to_string_lossy().into_owned()
        };
        create("libnvrtc.so.13");
        // There is no other: what loads it says why it does not do.
        assert_eq!(located(Some((12, 8))), "libnvrtc.so.13");
        create("libnvrtc.so.12.8.93");
        std::os::unix::fs::symlink("libnvrtc.so.12.8.93", folder.path().join("libnvrtc.so"))
            .expect("writable");
        assert_eq!(located(Some((12, 8))), "libnvrtc.so");
        create("libnvrtc.so.12");
        assert_eq!(located(Some((12, 8))), "libnvrtc.so.12");
        for driver in [Some((13, 0)), Some((14, 0)), None] {
            assert_eq!(located(driver), "libnvrtc.so.13");
        }
    }
}
