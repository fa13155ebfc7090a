//! Many processes on one folder, left alone or killed at random moments.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use kiln::cache::DiskCache;

use crate::work::{self, BUDGET_BYTES, DONE, OPERATIONS};
use crate::{Context, Outcome};

const PROCESSES: u64 = 16;

/// What workers said, counted as it arrives: one that is killed can not report.
#[derive(Default)]
struct Said {
    operations: u64,
    corrupt: u64,
    failed: u64,
    texts: Vec<String>,
}

impl Said {
    fn line(&mut self, line: String) {
        match line.as_str() {
            DONE => self.operations += 1,
            text => {
                match text.starts_with("corrupt") {
                    true => self.corrupt += 1,
                    false => self.failed += 1,
                }
                self.texts.push(line);
            }
        }
    }

    fn report(self, outcome: &mut Outcome) {
        outcome.figure("operations", self.operations);
        outcome.figure("corrupt reads", self.corrupt);
        outcome.figure("failed calls", self.failed);
        outcome.failures.extend(self.texts);
    }
}

/// A worker, and a thread that counts what it says.
struct Worker {
    child: Child,
    listener: JoinHandle<()>,
}

impl Worker {
    fn start(role: &str, folder: &Path, seed: u64, said: &Arc<Mutex<Said>>) -> Worker {
        let mut child = work::command(role, folder, seed).spawn().expect("this program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe was asked for")).lines();
        let said = said.clone();
        let listener = thread::spawn(move || {
            // A line that a killed process has not finished is none.
            let whole = |line: &String| line == DONE || line.contains(':');
            let lines = lines.map_while(Result::ok).filter(whole);
            lines.for_each(|line| said.lock().expect("no panic").line(line));
        });
        Worker { child, listener }
    }

    /// Waits for its end; whether it ended by itself and well.
    fn end(mut self) -> bool {
        let status = self.child.wait().expect("own child");
        self.listener.join().expect("no panic");
        status.success()
    }
}

fn take(said: &Mutex<Said>) -> Said {
    std::mem::take(&mut *said.lock().expect("no panic"))
}

/// 16 processes do 1,000 operations each.
pub fn sixteen_processes(context: &Context) -> Outcome {
    let (mut outcome, said) = (Outcome::default(), Arc::default());
    let folder = context.folder.join("cache");
    let seeds = (0..PROCESSES).map(|process| context.seed.wrapping_mul(PROCESSES) + process);
    let workers: Vec<Worker> =
        seeds.map(|seed| Worker::start("worker", &folder, seed, &said)).collect();
    for (process, worker) in workers.into_iter().enumerate() {
        let well = worker.end();
        outcome.expect(well, || format!("process {process} did not end well"));
    }
    outcome.figure("processes", PROCESSES);
    let said = take(&said);
    outcome.expect(said.operations == PROCESSES * OPERATIONS, || "operations are missing".into());
    said.report(&mut outcome);
    aftermath(&folder, &mut outcome);
    outcome
}

/// 16 processes, of which a random one is killed every few milliseconds and replaced.
pub fn kill_at_random_moments(context: &Context) -> Outcome {
    let (mut outcome, said) = (Outcome::default(), Arc::default());
    let folder = context.folder.join("cache");
    let mut random = Rng::with_seed(context.seed);
    let start = |random: &mut Rng| Worker::start("endless-worker", &folder, random.u64(..), &said);
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| start(&mut random)).collect();
    let deadline = Instant::now() + Duration::from_secs(context.seconds);
    let mut kills = 0;
    while Instant::now() < deadline {
        thread::sleep(Duration::from_micros(random.u64(..30_000)));
        let victim = random.usize(..workers.len());
        let next = start(&mut random);
        let mut worker = std::mem::replace(&mut workers[victim], next);
        let ended = worker.child.try_wait().expect("own child").is_some();
        outcome.expect(!ended, || "a process ended before it was killed".to_owned());
        // SIGKILL.
        worker.child.kill().expect("own child");
        worker.end();
        kills += 1;
    }
    for mut worker in workers {
        worker.child.kill().expect("own child");
        worker.end();
        kills += 1;
    }
    outcome.figure("kills", kills);
    take(&said).report(&mut outcome);
    aftermath(&folder, &mut outcome);
    outcome
}

/// Everything that is left must be right, and what the dead have left must go.
fn aftermath(folder: &Path, outcome: &mut Outcome) {
    let entries = work::check_all(folder, outcome);
    outcome.figure("entries left", entries);
    let Some(cache) = DiskCache::open(folder, BUDGET_BYTES) else { return };
    // A first collection removes the leases of the dead, which protect nothing any more.
    let first = cache.collect(BUDGET_BYTES);
    outcome.expect(first.is_some(), || "the dead hold the collector's turn".to_owned());
    let bytes: u64 = cache.entries().iter().map(|entry| entry.bytes).sum();
    outcome.expect(bytes <= BUDGET_BYTES, || format!("{bytes} bytes exceed the budget"));
    let left = abandoned(folder);
    outcome.figure("files of the dead", left.len() as u64);
    // An hour passes.
    for path in &left {
        let then = SystemTime::now() - Duration::from_secs(2 * 3600);
        File::open(path).and_then(|file| file.set_modified(then)).expect("own file");
    }
    cache.collect(BUDGET_BYTES);
    let left = abandoned(folder);
    outcome.expect(left.is_empty(), || format!("{} files are never removed", left.len()));
}

/// Temporary files, locks and leases; not the one lease of this process, which is locked.
fn abandoned(folder: &Path) -> Vec<PathBuf> {
    let unlocked = |path: &PathBuf| File::open(path).is_ok_and(|file| file.try_lock().is_ok());
    let leases = work::children(&folder.join("leases")).filter(unlocked);
    let locks = work::children(&folder.join("locks"));
    work::temporary(folder).chain(locks).chain(leases).collect()
}
