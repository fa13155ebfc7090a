//! Worker threads that execute the blocks of a launch.
//!
//! The findings and counts of a launch do not depend on the number of workers. What a check finds
//! depends on the order of accesses, and with several workers that of different clusters is not
//! determined. It does not matter where no cluster accesses what another writes: each one then runs
//! as it would alone. So a launch with checks or counters is tried on several workers, each with a
//! shadow of its own. If in the end there are no findings and no errors, and no worker accessed a
//! word that another wrote, the counts are added up. Otherwise memory is restored, and the launch
//! runs on one worker, as do launches that are cooperative, or whose kernels have atomics or strong
//! accesses to global memory, and those on devices with memory of the host. To run twice costs
//! kernels that have mistakes time, and nothing else.

use crate::admission::{product, resident_max};
use crate::block::Turn;
use crate::cluster::Cluster;
use crate::config::DeviceConfig;
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::launch::Report;
use crate::undo::Undo;
use crate::watch::{Seen, Watch};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum number of warps per worker, since starting a thread costs tens of microseconds.
const WARPS_PER_WORKER_MIN: u64 = 32;
/// Rounds without progress of any worker after which clocks leap; after as many again a launch is
/// considered hung.
const IDLE_ROUNDS_MAX: u32 = 2000;
/// Clock leap: an hour in nanoseconds, longer than any wait that ends by a clock.
const LEAP_CLOCKS: u64 = 3_600_000_000_000;

/// Idle rounds after which a worker that may wait for another launch sleeps between rounds, and for
/// how long.
const SLEEPLESS_ROUNDS: u32 = 16;
const SLEEP: Duration = Duration::from_micros(20);

/// State shared by the workers of a launch.
struct Shared<'a> {
    cx: &'a Context<'a>,
    clusters: u64,
    /// Number of clusters that a worker holds at once.
    window: u64,
    workers: u64,
    /// How long its threads may poll for what others write.
    patience: Duration,
    next: AtomicU64,
    /// Incremented on every progress.
    progress: AtomicU64,
    /// Progress that each worker saw before its last idle round; all ones while it runs.
    idle_at: Vec<AtomicU64>,
    failed: AtomicBool,
    failure: Mutex<Option<(u64, Error)>>,
    report: Mutex<Report>,
    /// Output of `printf`, by block index.
    printed: Mutex<Vec<(u64, String)>>,
    /// Where watched workers save what they overwrite, if there are several.
    undo: Option<Arc<Undo>>,
    /// What watched workers have seen.
    seen: Mutex<Vec<Seen>>,
}

/// No idle round yet.
const BUSY: u64 = u64::MAX;
/// The worker has finished.
const FINISHED: u64 = u64::MAX - 1;

/// Runs all blocks.
pub(crate) fn run(cx: &Context<'_>, config: &DeviceConfig) -> Result<Report> {
    let clusters = cx.clusters();
    let warps = (clusters * product(cx.cluster)).saturating_mul(cx.threads.len() as u64);
    let wanted = (warps / WARPS_PER_WORKER_MIN).clamp(1, clusters);
    let workers = wanted.min(config.workers as u64);
    if !Watch::new(cx).on {
        return run_on(cx, config, workers, None).report;
    }
    // What the host writes meanwhile must not be undone.
    let apart = cx.program.keeps_to_clusters() && !cx.table.has_host_memory();
    if workers > 1 && !cx.launch.cooperative && apart {
        let undo = Arc::new(Undo::new(cx.table));
        let Ran { report, complete, seen } = run_on(cx, config, workers, Some(undo.clone()));
        if complete && Seen::apart(&seen) {
            return report;
        }
        undo.restore(cx.table, |area, word| seen.iter().any(|seen| seen.wrote(area, word)));
        cx.restart();
    }
    run_on(cx, config, 1, None).report
}

/// A time in which threads poll for what others write.
struct Idle {
    since: Instant,
    /// Until when clocks have followed.
    seen: Instant,
}

impl Idle {
    fn begun() -> Idle {
        let now = Instant::now();
        Idle { since: now, seen: now }
    }

    /// Nanoseconds since this was asked last.
    fn nanoseconds(&mut self) -> u64 {
        let now = Instant::now();
        let passed = now.duration_since(self.seen).as_nanos();
        self.seen = now;
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

/// How all blocks ran.
struct Ran {
    report: Result<Report>,
    /// Whether no worker stopped before the end.
    complete: bool,
    /// What each worker has seen, if the launch is watched.
    seen: Vec<Seen>,
}

/// Runs all blocks on some workers.
fn run_on(cx: &Context<'_>, config: &DeviceConfig, workers: u64, undo: Option<Arc<Undo>>) -> Ran {
    let size = product(cx.cluster);
    let clusters = cx.clusters();
    let resident = resident_max(cx.kernel, cx.launch, config).div_ceil(size);
    let shared = Shared {
        cx,
        clusters,
        window: match cx.launch.cooperative {
            true => clusters.div_ceil(workers),
            false => resident.div_ceil(workers),
        },
        workers,
        patience: match cx.program.reads_at_system_scope() {
            true => config.patience,
            false => Duration::ZERO,
        },
        next: AtomicU64::new(0),
        progress: AtomicU64::new(0),
        idle_at: (0..workers).map(|_| AtomicU64::new(BUSY)).collect(),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        report: Mutex::default(),
        printed: Mutex::default(),
        undo,
        seen: Mutex::default(),
    };
    if workers == 1 {
        shared.work(0);
    } else {
        std::thread::scope(|scope| {
            let shared = &shared;
            for index in 1..workers {
                scope.spawn(move || shared.work(index as usize));
            }
            shared.work(0);
        });
    }
    let complete = !shared.failed.load(SeqCst);
    let mut seen = shared.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failure = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, error)) = failure {
        return Ran { report: Err(error), complete, seen };
    }
    let mut report = shared.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut printed = shared.printed.into_inner().unwrap_or_else(PoisonError::into_inner);
    printed.sort();
    report.printed = printed.into_iter().map(|(_, text)| text).collect();
    let mut counted = seen.iter_mut().filter_map(|seen| seen.counting.take());
    if let Some(mut counting) = counted.next() {
        counted.for_each(|other| counting.add(&other));
        report.counters = Some(Box::new(counting.finish(cx)));
    }
    Ran { report: Ok(report), complete, seen }
}

impl Shared<'_> {
    fn work(&self, index: usize) {
        let mut watch = match &self.undo {
            Some(undo) => Watch::of_several(self.cx, undo.clone()),
            None => Watch::new(self.cx),
        };
        self.run(index, &mut watch);
        if watch.on {
            let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            report.findings.extend(watch.findings.take());
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(watch.seen());
        }
    }

    fn run(&self, index: usize, watch: &mut Watch) {
        let mut resident: VecDeque<Cluster> = VecDeque::new();
        let mut idle_rounds = 0;
        let mut idle = None;
        if self.cx.launch.cooperative {
            let mine = (0..self.clusters).skip(index).step_by(self.workers as usize);
            resident.extend(mine.map(|linear| Cluster::new(linear, self.cx)));
        }
        let mut admit = true;
        while !self.failed.load(SeqCst) {
            // A polling block may wait for one that has not started.
            if admit && (resident.len() as u64) < self.window && !self.cx.launch.cooperative {
                let linear = self.next.fetch_add(1, SeqCst);
                if linear < self.clusters {
                    let all = product(self.cx.launch.grid) / product(self.cx.cluster);
                    let chosen = u128::from(linear) * u128::from(all) / u128::from(self.clusters);
                    resident.push_back(Cluster::new(chosen as u64, self.cx));
                }
            }
            if resident.is_empty() {
                break;
            }
            let before = self.progress.load(SeqCst);
            let moved = match self.round(&mut resident, watch) {
                Ok(moved) => moved,
                Err((linear, error)) => {
                    return self.fail(linear, error.with_findings(watch.findings.take()));
                }
            };
            if let (0, Some(cluster)) = (self.cx.instructions_left(), resident.front()) {
                let error = out_of_instructions(&resident, self.cx);
                return self.fail(cluster.linear, error.with_findings(watch.findings.take()));
            }
            if self.undo.is_some() && !watch.findings.is_empty() {
                return self.failed.store(true, SeqCst);
            }
            admit = resident.is_empty() || !moved;
            if moved {
                self.progress.fetch_add(1, SeqCst);
                self.idle_at[index].store(BUSY, SeqCst);
                (idle_rounds, idle) = (0, None);
                continue;
            }
            self.idle_at[index].store(before, SeqCst);
            idle_rounds = if self.all_idle() { idle_rounds + 1 } else { 0 };
            if !self.patience.is_zero() {
                let own: &mut Idle = idle.get_or_insert_with(Idle::begun);
                if own.since.elapsed() < self.patience {
                    let passed = own.nanoseconds();
                    resident.iter_mut().for_each(|cluster| cluster.follow(passed));
                    if idle_rounds > SLEEPLESS_ROUNDS {
                        std::thread::sleep(SLEEP);
                        idle_rounds = SLEEPLESS_ROUNDS;
                    }
                    continue;
                }
            }
            if idle_rounds == IDLE_ROUNDS_MAX {
                resident.iter_mut().for_each(|cluster| cluster.leap(LEAP_CLOCKS));
            }
            if let (true, Some(cluster)) = (idle_rounds > 2 * IDLE_ROUNDS_MAX, resident.front()) {
                let error = cluster.hung(self.cx).with_findings(watch.findings.take());
                return self.fail(cluster.linear, error);
            }
            if self.workers > 1 {
                std::thread::yield_now();
            }
        }
        self.idle_at[index].store(FINISHED, SeqCst);
    }

    /// Runs a turn of each cluster; returns whether any made progress.
    fn round(
        &self,
        resident: &mut VecDeque<Cluster>,
        watch: &mut Watch,
    ) -> std::result::Result<bool, (u64, Error)> {
        let mut moved = false;
        for _ in 0..resident.len() {
            let Some(mut cluster) = resident.pop_front() else { break };
            match cluster.turn(self.cx, watch).map_err(|error| (cluster.linear, error))? {
                Turn::Done => {
                    moved = true;
                    self.count(&cluster, watch);
                }
                turn => {
                    moved |= turn == Turn::Moved;
                    resident.push_back(cluster);
                }
            }
        }
        Ok(moved)
    }

    /// Whether every worker with blocks was idle since the last progress.
    fn all_idle(&self) -> bool {
        let now = self.progress.load(SeqCst);
        self.idle_at.iter().all(|at| matches!(at.load(SeqCst), at if at == now || at == FINISHED))
    }

    fn count(&self, cluster: &Cluster, watch: &mut Watch) {
        if self.undo.is_some() && cluster.blocks.iter().any(|block| block.spent()) {
            watch.lost = true;
            self.failed.store(true, SeqCst);
        }
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        for block in &cluster.blocks {
            report.warp_instructions += block.state.warp_instructions;
            report.lane_instructions += block.state.lane_instructions;
            if !block.state.printed.is_empty() {
                let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
                printed.push((block.state.linear, block.state.printed.clone()));
            }
        }
    }

    /// Keeps the error of the first cluster.
    fn fail(&self, linear: u64, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(|&(first, _)| linear < first) {
            *failure = Some((linear, error));
        }
        self.failed.store(true, SeqCst);
    }
}

/// Error of a launch that reached its instruction limit, with the locations of its blocks.
fn out_of_instructions(resident: &VecDeque<Cluster>, cx: &Context<'_>) -> Error {
    let mut blocks = resident.iter().flat_map(Cluster::unfinished).peekable();
    let mut lines: Vec<u32> = blocks.clone().flat_map(|block| block.lines(cx)).collect();
    lines.sort_unstable();
    lines.dedup();
    let max = cx.launch.warp_instructions_max.unwrap_or_default();
    let what = format!("the launch has not ended after {max} warp instructions");
    match blocks.peek() {
        Some(block) => block.report(cx, ErrorKind::InstructionLimit, &what, &lines),
        None => Error::new(ErrorKind::InstructionLimit, what),
    }
}
