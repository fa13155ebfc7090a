//! The cache's own files: found in the folder that was checked, whatever becomes of its path, and
//! never through a link that somebody has put in their place.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use kiln::cache::{DiskCache, Key};
use kiln::compile::{Located, Toolchain};
use kiln::{Config, Kiln};

use crate::cli;

const BUDGET_BYTES: u64 = 1 << 20;

fn key() -> Key {
    Key::from_hex(&"ab".repeat(32)).unwrap()
}

/// Everything that a cache writes besides entries.
fn use_all(cache: &DiskCache, library: &Path) {
    drop(cache.lock(key()));
    cache.keep(key());
    assert!(cache.get(key()).is_none(), "a miss is counted");
    cache.collect(BUDGET_BYTES);
    let located = Located { path: library.to_owned(), found_by: "test" };
    let toolchain = Toolchain { version: (13, 0), build: 88 };
    cache.remember(&located, &toolchain).unwrap();
    assert_eq!(cache.recall(&located), Some(toolchain.clone()));
    assert_eq!(cache.recall_latest(), Some(toolchain));
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

#[test]
fn the_folder_that_was_checked_is_the_one_that_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let [path, moved, library] =
        ["cache", "moved", "libnvrtc.so"].map(|name| folder.path().join(name));
    fs::write(&library, "").unwrap();
    let cache = DiskCache::open(&path, BUDGET_BYTES).unwrap();
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    use_all(&cache, &library);
    cache.put(key(), b"no entry");
    assert_eq!(cache.entries().len(), 1);
    assert!(cache.get(key()).is_none(), "it is rejected and removed");
    assert_eq!(cache.entries().len(), 0);
    drop(cache);
    assert_eq!(names(&path), [] as [&str; 0]);
    let own = names(&moved);
    for name in ["gc.lock", "kernels", "leases", "locks", "stats.json", "toolchain-"] {
        assert!(own.iter().any(|own| own.starts_with(name)), "{name}: {own:?}");
    }
    assert_eq!(names(&moved.join("leases")), [] as [&str; 0], "this process has left");
}

#[test]
fn links_are_neither_followed_nor_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let [path, library, precious, elsewhere] =
        ["cache", "libnvrtc.so", "precious", "elsewhere"].map(|name| folder.path().join(name));
    fs::write(&library, "").unwrap();
    fs::write(&precious, "precious").unwrap();
    fs::create_dir(&elsewhere).unwrap();
    use_all(&DiskCache::open(&path, BUDGET_BYTES).unwrap(), &library);
    let files: Vec<String> =
        names(&path).into_iter().filter(|name| path.join(name).is_file()).collect();
    assert!(files.len() >= 3, "{files:?}");
    for name in files.iter().map(String::as_str).chain(["stats.lock"]) {
        let _ = fs::remove_file(path.join(name));
        symlink(&precious, path.join(name)).unwrap();
    }
    fs::remove_dir(path.join("locks")).unwrap();
    fs::remove_dir(path.join("leases")).unwrap();
    for name in ["locks", "leases", "kernels"] {
        symlink(&elsewhere, path.join(name)).unwrap();
    }
    let cache = DiskCache::open(&path, BUDGET_BYTES).unwrap();
    assert!(cache.lock(key()).is_none(), "a link is no folder of locks");
    use_all(&cache, &library);
    cache.put(key(), b"no entry");
    assert_eq!((cache.counts_of_all().misses_total(), cache.entries().len()), (0, 0));
    drop(cache);
    // Links that lead nowhere would be files made elsewhere.
    fs::remove_file(path.join("locks")).unwrap();
    fs::create_dir(path.join("locks")).unwrap();
    let nowhere = elsewhere.join("nowhere");
    symlink(&nowhere, path.join("locks").join(key().to_hex())).unwrap();
    let _ = fs::remove_file(path.join("gc.lock"));
    symlink(&nowhere, path.join("gc.lock")).unwrap();
    let cache = DiskCache::open(&path, BUDGET_BYTES).unwrap();
    assert!(cache.lock(key()).is_none() && cache.collect(0).is_none());
    drop(cache);
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    assert_eq!(names(&elsewhere), [] as [&str; 0]);
}

/// Sticky or not, others cannot replace what only its owner may write; a group without the sticky
/// bit can. The message says which folder it is.
#[test]
fn a_cache_below_a_folder_that_a_group_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    if std::os::unix::fs::chown(&shared, None, Some(65_533)).is_err() {
        println!("skipped: this user cannot give folders to a group");
        return;
    }
    let cache = shared.join("cache");
    for (mode, is_used) in [(0o775, false), (0o2775, false), (0o1775, true), (0o755, true)] {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        let device = Some("sim".parse().unwrap());
        let config = Config { device, cache_dir: Some(cache.clone()), ..Config::default() };
        assert_eq!(Kiln::open(config).unwrap().disk_cache().is_some(), is_used, "{mode:o}");
        let mut command = cli::command(&["run", cli::PROBLEM, "--device", "sim"]);
        let output = command.env("KILN_CACHE_DIR", &cache).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = format!("gid 65533 with mode {mode:o}; caching in memory only");
        assert_eq!(errors.contains(&said), !is_used, "{mode:o}: {errors}");
    }
}
