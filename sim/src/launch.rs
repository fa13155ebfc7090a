//! A launch: its shape, its checks, and the workers that share its blocks.

use crate::block::Turn;
use crate::cluster::Cluster;
use crate::counters::Counters;
use crate::device::DeviceConfig;
use crate::error::{Error, ErrorKind, Place, Result};
use crate::memory::{Memory, RANK_BYTES, Table};
use crate::module::Kernel;
use crate::op::Program;
use crate::registers::{LANES, Row};
use crate::watch::{Checks, Finding, Watch};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// The shape of one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be resident at once, as grid barriers need.
    pub cooperative: bool,
    /// Blocks of a cluster along x, y and z; zeros for what the kernel itself says.
    pub cluster: [u32; 3],
    /// What to look for.
    pub checks: Checks,
    /// Whether to count what is executed.
    pub counters: bool,
    /// Bytes that must move between memory and the device at least, for the counters to compare.
    pub bytes_min: Option<u64>,
    /// Instructions that the launch may execute, each counted once for a warp; none for no limit.
    /// Several workers may each exceed it by what they have begun, at most 4096.
    pub warp_instructions_max: Option<u64>,
}

impl Default for Launch {
    /// One thread, and nothing looked for.
    fn default() -> Launch {
        Launch {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            checks: Checks::NONE,
            counters: false,
            bytes_min: None,
            warp_instructions_max: None,
        }
    }
}

impl Launch {
    /// The cluster's shape: the kernel's own, the launch's, or one block.
    pub(crate) fn cluster_of(&self, kernel: &Kernel) -> [u32; 3] {
        let own = if self.cluster == [0; 3] { [1; 3] } else { self.cluster };
        kernel.cluster().unwrap_or(own)
    }
}

/// What one launch executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Instructions executed, each counted once for a warp.
    pub warp_instructions: u64,
    /// Instructions executed, each counted once for every lane that took part.
    pub lane_instructions: u64,
    /// What the checks found, in the order in which it was met.
    pub findings: Vec<Finding>,
    /// What was executed, if the launch asked for it.
    pub counters: Option<Box<Counters>>,
    /// What `printf` wrote, block after block.
    pub printed: String,
}

/// Threads of a block, at most.
const BLOCK_THREADS_MAX: u64 = 1024;
/// Threads that a multiprocessor holds at once.
const SM_THREADS: u64 = 2048;
/// Blocks that a multiprocessor holds at once.
const SM_BLOCKS: u64 = 32;
/// Blocks of a cluster, at most; 8 are portable between devices.
const CLUSTER_BLOCKS_MAX: u32 = 16;
/// Fewer warps than this are not worth a second thread, whose start costs tens of microseconds.
const WARPS_PER_WORKER_MIN: u64 = 32;
/// Rounds without progress of any worker before clocks leap, and as many again before a launch
/// counts as hung.
const IDLE_ROUNDS_MAX: u32 = 2000;
/// How far: an hour of nanoseconds, more than any wait that ends by a clock.
const LEAP_CLOCKS: u64 = 3_600_000_000_000;

/// What every block of a launch sees.
pub(crate) struct Context<'a> {
    pub kernel: &'a Kernel,
    pub program: &'a Program,
    pub launch: &'a Launch,
    pub memory: &'a Memory,
    pub table: &'a Table,
    pub params: &'a [u32],
    pub param_bytes: u64,
    /// Addresses of the module's variables.
    pub variables: &'a [u64],
    /// Thread indices by warp and axis.
    pub threads: Vec<[Row<u32>; 3]>,
    /// Blocks of a cluster, and whether the kernel or the launch asked for clusters.
    pub cluster: [u32; 3],
    pub explicit_cluster: bool,
    pub sm_count: u32,
    pub seed: u64,
    /// Whether the processor has the instructions of the `v3` level.
    pub has_v3: bool,
    /// Warp instructions executed so far, counted where the launch has a limit.
    pub executed: AtomicU64,
}

impl Context<'_> {
    /// The index in the grid of a block by its number.
    pub fn block_index(&self, linear: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(u64::from);
        [linear % x, linear / x % y, linear / x / y].map(|part| part as u32)
    }

    /// Warp instructions that may yet be executed.
    pub fn instructions_left(&self) -> u64 {
        match self.launch.warp_instructions_max {
            Some(max) => max.saturating_sub(self.executed.load(Relaxed)),
            None => u64::MAX,
        }
    }

    /// Counts what a warp executed.
    pub fn count_instructions(&self, count: u64) {
        if self.launch.warp_instructions_max.is_some() {
            self.executed.fetch_add(count, Relaxed);
        }
    }

    pub fn place(&self, block: [u32; 3], thread: [u32; 3], pc: u32) -> Place {
        let origin = self.program.origins[pc as usize];
        let module = &self.kernel.module;
        let file = module.ast.files.get(&origin.loc.file);
        Place {
            kernel: self.kernel.name().to_string(),
            block,
            thread,
            line: origin.line,
            text: module.line(origin.line).split_whitespace().collect::<Vec<_>>().join(" "),
            source: file.map(|file| (file.clone(), origin.loc.line)),
        }
    }
}

/// The thread indices of each warp of a block.
pub(crate) fn thread_rows(block: [u32; 3]) -> Vec<[Row<u32>; 3]> {
    let count: u32 = block.iter().product();
    let [x, y, _] = block;
    let warps = 0..count.div_ceil(LANES as u32);
    let row = |warp: u32, part: &dyn Fn(u32) -> u32| {
        Row(std::array::from_fn(|lane| part(warp * LANES as u32 + lane as u32)))
    };
    warps.map(|w| [row(w, &|t| t % x), row(w, &|t| t / x % y), row(w, &|t| t / x / y)]).collect()
}

/// How many there are in all three dimensions, or more than any launch may have.
fn product(size: [u32; 3]) -> u64 {
    size.iter().fold(1, |all, &n| u64::saturating_mul(all, n.into()))
}

fn bad<T>(kernel: &Kernel, why: String) -> Result<T> {
    let text = format!("failed to launch `{}`: {why}", kernel.name());
    Err(Error::new(ErrorKind::BadLaunch, text))
}

/// Blocks that the device holds at once.
fn resident_max(kernel: &Kernel, launch: &Launch, config: &DeviceConfig) -> u64 {
    let threads = product(launch.block);
    let shared = u64::from(kernel.shared_bytes()) + u64::from(launch.shared_bytes);
    let by_threads = SM_THREADS / threads.next_multiple_of(LANES as u64);
    // A block may use 1 KiB less than what a multiprocessor has; each costs 1 KiB itself.
    let by_shared = (u64::from(config.shared_bytes_max) + 1024) / (shared + 1024);
    by_threads.min(by_shared).clamp(1, SM_BLOCKS) * u64::from(config.sm_count)
}

/// Refuses launches that a driver would refuse.
pub(crate) fn check(
    kernel: &Kernel,
    launch: &Launch,
    params: &[u8],
    config: &DeviceConfig,
) -> Result<()> {
    let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
    if gx == 0 || gy == 0 || gz == 0 || gx > i32::MAX as u32 || gy > 65535 || gz > 65535 {
        return bad(
            kernel,
            format!("grid ({gx}, {gy}, {gz}) is not within (2147483647, 65535, 65535)"),
        );
    }
    let threads = product(launch.block);
    if threads == 0 || threads > BLOCK_THREADS_MAX || bz > 64 {
        return bad(kernel, format!("block ({bx}, {by}, {bz}) is not within 1024 threads"));
    }
    if let Some([x, y, z]) = kernel.block().filter(|&own| launch.block != own) {
        return bad(
            kernel,
            format!("block ({bx}, {by}, {bz}) where .reqntid says ({x}, {y}, {z})"),
        );
    }
    if let Some(max) = kernel.block_threads_max().filter(|&max| threads > u64::from(max)) {
        return bad(kernel, format!("{threads} threads where .maxntid allows {max}"));
    }
    let shared = u64::from(kernel.shared_bytes()) + u64::from(launch.shared_bytes);
    let max = u64::from(config.shared_bytes_max).min(RANK_BYTES);
    if shared > max {
        return bad(kernel, format!("{shared} bytes of shared memory of {max}"));
    }
    if params.len() != kernel.param_bytes() {
        let (found, want) = (params.len(), kernel.param_bytes());
        return bad(kernel, format!("{found} bytes of parameters instead of {want}"));
    }
    check_cluster(kernel, launch)?;
    let blocks = product(launch.grid);
    let resident = resident_max(kernel, launch, config);
    if launch.cooperative && blocks > resident {
        return bad(kernel, format!("a cooperative grid of {blocks} blocks; {resident} fit"));
    }
    Ok(())
}

/// The failure of a launch that has executed what it may, naming where its blocks are.
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

fn check_cluster(kernel: &Kernel, launch: &Launch) -> Result<()> {
    let [x, y, z] = launch.cluster;
    if let Some(own) =
        kernel.cluster().filter(|&own| launch.cluster != [0; 3] && launch.cluster != own)
    {
        let [a, b, c] = own;
        return bad(
            kernel,
            format!("cluster ({x}, {y}, {z}) where .reqnctapercluster says ({a}, {b}, {c})"),
        );
    }
    let size = launch.cluster_of(kernel);
    let ([x, y, z], [gx, gy, gz]) = (size, launch.grid);
    let blocks = product(size);
    let max = kernel.cluster_blocks_max().unwrap_or(CLUSTER_BLOCKS_MAX).min(CLUSTER_BLOCKS_MAX);
    if blocks == 0 || blocks > u64::from(max) {
        return bad(kernel, format!("cluster ({x}, {y}, {z}) is not within {max} blocks"));
    }
    if gx % x != 0 || gy % y != 0 || gz % z != 0 {
        return bad(
            kernel,
            format!("grid ({gx}, {gy}, {gz}) is not a multiple of cluster ({x}, {y}, {z})"),
        );
    }
    Ok(())
}

/// What the workers of a launch share.
struct Shared<'a> {
    cx: &'a Context<'a>,
    clusters: u64,
    /// Clusters that one worker holds at once.
    window: u64,
    workers: u64,
    next: AtomicU64,
    /// Counts everything that moves.
    progress: AtomicU64,
    /// The progress that each worker saw before its last idle round; all ones while it runs.
    idle_at: Vec<AtomicU64>,
    failed: AtomicBool,
    failure: Mutex<Option<(u64, Error)>>,
    report: Mutex<Report>,
    /// What blocks printed, by their index.
    printed: Mutex<Vec<(u64, String)>>,
}

/// No idle round yet.
const BUSY: u64 = u64::MAX;
/// The worker has no blocks left.
const FINISHED: u64 = u64::MAX - 1;

/// Runs every block.
pub(crate) fn run(cx: &Context<'_>, config: &DeviceConfig) -> Result<Report> {
    let (blocks, size) = (product(cx.launch.grid), product(cx.cluster));
    let clusters = blocks / size;
    let warps = blocks.saturating_mul(cx.threads.len() as u64);
    let wanted = (warps / WARPS_PER_WORKER_MIN).clamp(1, clusters);
    let watched = Watch::new(cx).on;
    let workers = if watched { 1 } else { wanted.min(config.workers as u64) };
    let resident = resident_max(cx.kernel, cx.launch, config).div_ceil(size);
    let shared = Shared {
        cx,
        clusters,
        window: match cx.launch.cooperative {
            true => clusters.div_ceil(workers),
            false => resident.div_ceil(workers),
        },
        workers,
        next: AtomicU64::new(0),
        progress: AtomicU64::new(0),
        idle_at: (0..workers).map(|_| AtomicU64::new(BUSY)).collect(),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        report: Mutex::default(),
        printed: Mutex::default(),
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
    let failure = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, error)) = failure {
        return Err(error);
    }
    let mut report = shared.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut printed = shared.printed.into_inner().unwrap_or_else(PoisonError::into_inner);
    printed.sort();
    report.printed = printed.into_iter().map(|(_, text)| text).collect();
    Ok(report)
}

impl Shared<'_> {
    fn work(&self, index: usize) {
        let mut resident: VecDeque<Cluster> = VecDeque::new();
        let mut idle_rounds = 0;
        let mut watch = Watch::new(self.cx);
        if self.cx.launch.cooperative {
            let mine = (0..self.clusters).skip(index).step_by(self.workers as usize);
            resident.extend(mine.map(|linear| Cluster::new(linear, self.cx)));
        }
        let mut admit = true;
        while !self.failed.load(SeqCst) {
            // A block that polls may wait for one that has not begun.
            if admit && (resident.len() as u64) < self.window && !self.cx.launch.cooperative {
                let linear = self.next.fetch_add(1, SeqCst);
                if linear < self.clusters {
                    resident.push_back(Cluster::new(linear, self.cx));
                }
            }
            if resident.is_empty() {
                break;
            }
            let before = self.progress.load(SeqCst);
            let moved = match self.round(&mut resident, &mut watch) {
                Ok(moved) => moved,
                Err((linear, error)) => {
                    return self.fail(linear, error.with_findings(watch.findings.take()));
                }
            };
            if let (0, Some(cluster)) = (self.cx.instructions_left(), resident.front()) {
                let error = out_of_instructions(&resident, self.cx);
                return self.fail(cluster.linear, error.with_findings(watch.findings.take()));
            }
            admit = resident.is_empty() || !moved;
            if moved {
                self.progress.fetch_add(1, SeqCst);
                self.idle_at[index].store(BUSY, SeqCst);
                idle_rounds = 0;
                continue;
            }
            self.idle_at[index].store(before, SeqCst);
            idle_rounds = if self.all_idle() { idle_rounds + 1 } else { 0 };
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
        if watch.on {
            let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            report.findings = watch.findings.take();
            report.counters = watch.counting.map(|counting| Box::new(counting.finish(self.cx)));
        }
    }

    /// One turn of each cluster; whether any moved.
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
                    self.count(&cluster);
                }
                turn => {
                    moved |= turn == Turn::Moved;
                    resident.push_back(cluster);
                }
            }
        }
        Ok(moved)
    }

    /// Whether every worker that has blocks was idle since anything last moved.
    fn all_idle(&self) -> bool {
        let now = self.progress.load(SeqCst);
        self.idle_at.iter().all(|at| matches!(at.load(SeqCst), at if at == now || at == FINISHED))
    }

    fn count(&self, cluster: &Cluster) {
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

    /// Keeps the failure of the first cluster.
    fn fail(&self, linear: u64, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(|&(first, _)| linear < first) {
            *failure = Some((linear, error));
        }
        self.failed.store(true, SeqCst);
    }
}
