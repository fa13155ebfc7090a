//! What child processes do.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use kiln::cache::DiskCache;

use crate::sample;
use crate::{Outcome, mounts};

/// The numbers that workers share: few enough to meet, too many for the budget.
pub const NUMBERS: u64 = 400;

/// Half of what all entries occupy: about 16 KiB each.
pub const BUDGET_BYTES: u64 = NUMBERS * (16 << 10) / 2;

/// A call that takes longer has hung. A compilation waits for another one for 20 seconds.
const CALL_MAX: Duration = Duration::from_secs(25);

/// Operations of a worker that is not killed.
pub const OPERATIONS: u64 = 1000;

/// What a worker writes after each operation, so that its parent can count without its help.
pub const DONE: &str = "done";

/// Plays a role in a folder; what it found goes to standard output.
pub fn inside(role: &str, folder: &Path, seed: u64) -> ExitCode {
    let outcome = match role {
        "worker" => return worker(folder, seed, OPERATIONS),
        "endless-worker" => return worker(folder, seed, u64::MAX),
        "disk-full" => mounts::inside_full(folder),
        "read-only" => mounts::inside_read_only(folder),
        "nobody" => mounts::inside_nobody(folder),
        _ => unreachable!("roles are named by this program"),
    };
    println!("{}", serde_json::to_string(&outcome).expect("plain data is JSON"));
    ExitCode::SUCCESS
}

/// This program in a role.
pub fn command(role: &str, folder: &Path, seed: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.args(["--seed", &seed.to_string(), "--inside", role]).arg(folder);
    command.stdout(Stdio::piped());
    command
}

/// Uses a cache as processes do, at random; a line per operation.
fn worker(folder: &Path, seed: u64, operations: u64) -> ExitCode {
    let mut random = Rng::with_seed(seed);
    let mut out = std::io::stdout();
    let mut cache = DiskCache::open(folder, BUDGET_BYTES);
    for _ in 0..operations {
        let start = Instant::now();
        let said = match &cache {
            Some(cache) => operate(cache, &mut random),
            None => Err("the folder was refused".to_owned()),
        };
        let said = match said {
            Ok(()) if start.elapsed() > CALL_MAX => format!("failed: {:?}", start.elapsed()),
            Ok(()) => DONE.to_owned(),
            Err(text) => text,
        };
        // A parent that has gone needs no lines.
        if writeln!(out, "{said}").is_err() {
            break;
        }
        if random.u32(..100) == 0 {
            drop(cache);
            cache = DiskCache::open(folder, BUDGET_BYTES);
        }
    }
    ExitCode::SUCCESS
}

/// One operation: mostly a lookup, then what follows from it.
fn operate(cache: &DiskCache, random: &mut Rng) -> Result<(), String> {
    let number = random.u64(..NUMBERS);
    let key = sample::key(number);
    let check = |found: Option<kiln::compile::Image>| match found {
        Some(image) if !sample::is_right(number, &image) => {
            Err(format!("corrupt: number {number} has another image"))
        }
        found => Ok(found.is_some()),
    };
    match random.u32(..100) {
        // What `plan` does: look, take the turn, look again, compile, keep.
        0..=89 => {
            if !check(cache.get(key))? {
                let _turn = cache.lock(key);
                if !check(cache.get(key))? {
                    cache.put(key, &sample::entry(number, random.u64(..4)));
                }
            }
            cache.keep(key);
        }
        // Another compilation replaces an entry that is being read.
        90..=95 => cache.put(key, &sample::entry(number, random.u64(..4))),
        96..=97 => drop(cache.collect(BUDGET_BYTES)),
        98 => drop(cache.entries()),
        _ => cache.reject(key, "device", "thrown away"),
    }
    let rejected = |reason: &&String| !["absent", "device"].contains(&reason.as_str());
    match cache.counts().misses.keys().find(rejected) {
        Some(reason) => Err(format!("corrupt: an entry was rejected: {reason}")),
        None => Ok(()),
    }
}

/// Reads every number through a fresh cache; how many entries there are.
pub fn check_all(folder: &Path, outcome: &mut Outcome) -> u64 {
    let Some(cache) = DiskCache::open(folder, BUDGET_BYTES) else {
        outcome.failures.push("the folder was refused".to_owned());
        return 0;
    };
    let mut found = 0;
    for number in 0..NUMBERS {
        match cache.read(sample::key(number)) {
            Ok(Some(entry)) => {
                found += 1;
                let right = sample::is_right(number, &entry.image);
                outcome.expect(right, || format!("number {number} has another image"));
            }
            Ok(None) => {}
            Err(error) => outcome.failures.push(format!("number {number}: {error}")),
        }
    }
    found
}

/// Temporary files of entries and of the counts beside them.
pub fn temporary(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let shards = children(&folder.join("kernels"));
    shards.flat_map(|shard| children(&shard)).chain(children(folder)).filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp"))
    })
}

pub fn children(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}
