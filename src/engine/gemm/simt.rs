//! GEMM on FP32 cores, for every type and architecture.

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::{REGISTERS_SM, ceil_div};
use crate::engine::config::combinations;
use crate::engine::gemm::context::Context;
use crate::engine::gemm::lowering::{Variant, check_workspace, lowering, scratch};
use crate::engine::gemm::operand::OperandTile;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::rasterization::{Rasterization, distinguished, group_knob, raster_knob};
use crate::engine::gemm::tiling::{
    Candidate, Rates, Refusal, Tiling, behavior, best, counts_k, dynamic_knobs, dynamic_reasons,
    for_any_k, slice_rows, split_knob, split_reason, tiles_of,
};
use crate::engine::gemm::window::WINDOWED_BYTES_MAX;
use crate::engine::gemm::work::{Block, Demand, MathPath};
use crate::engine::instruction::multiply_add;
use crate::engine::signature::ctype;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{Engine, KernelWork, Knob, Notes, Supported};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "gemm_simt";

/// More threads would leave each too few registers for its thread tile.
const THREADS_MAX: i64 = 512;

/// Elements of a K step per thread that are found one by one through a window: more take 0.35 s to
/// compile, and their registers leave too few warps.
const GATHERED_MAX: i64 = 24;

/// Registers of a thread with a tile of 8 x 8 of which two blocks of 256 are on an SM.
const REGISTERS: i64 = 128;

/// How much longer a multiply-add takes with what else is issued, where an SM has as many FP32
/// lanes as issue slots, 128. By estimates of GEMMs on H200 and L40S; of half as many lanes, on
/// A100 and T4, the model has it right.
const FULL_ISSUE: f64 = 1.2;

/// Multiply-adds of an SM in 2.6 us: 128 per cycle at 1.6 GHz.
const LAUNCH: f64 = (1 << 19) as f64;

/// Candidate block and thread tiles with the estimated fraction of peak: the larger the thread
/// tile, the fewer reads of shared memory per multiply-add.
const CANDIDATES: [Candidate; 5] = [
    ([128, 128, 8, 8], 1.0),
    ([128, 64, 8, 4], 0.78),
    ([64, 64, 4, 4], 0.7),
    ([32, 64, 4, 4], 0.6),
    ([32, 32, 4, 4], 0.5),
];

/// The names of the knobs.
const KNOBS: [&str; 10] = [
    "cta_k",
    "cta_m",
    "cta_n",
    "dynamic_k",
    "dynamic_m",
    "group",
    "raster",
    "split_k",
    "thread_m",
    "thread_n",
];

/// The engine `gemm_simt`: GEMMs on FP32 cores, for every type and architecture.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct SimtEngine;

impl Engine for SimtEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn adds_in_place(&self, _is_whole: bool) -> bool {
        true
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let problem = Problem::of(graph, target.arch.capability)?;
        if problem.dual.is_some() {
            return Err(Error::not_supported("a dual GEMM needs tensor cores"));
        }
        let demand = Demand::of(&problem);
        let simt = Simt { problem, demand, target };
        let candidates: Vec<Settings> =
            candidates(&simt.problem).map(|(tile, _)| simt.of_tile(tile, 1)).collect();
        Ok(Box::new(Tuned::of(simt, candidates)?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Simt<'a> {
    problem: Problem<'a>,
    demand: Demand,
    target: &'a Target,
}

impl Simt<'_> {
    fn of_tile(&self, tile: [i64; 4], split_k: i64) -> Settings {
        Settings::of_tile(tile, split_k, &self.problem, self.target)
    }
}

impl Tunable<10> for Simt<'_> {
    const KNOBS: [&'static str; 10] = KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = Refusal;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 10] {
        knobs(&self.problem)
    }

    fn listed_knobs(&self) -> Vec<Knob> {
        for_any_k(&self.problem, self.all_knobs())
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, Refusal> {
        Schedule::new(&self.problem, self.target, settings)
    }

    fn best(&self) -> Settings {
        Decision::of(self).settings
    }

    fn reasons(&self) -> Vec<String> {
        Decision::of(self).reasons()
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        // A smaller thread tile, of a block tile for as many threads.
        let Settings { tiling, thread_m, thread_n } = settings;
        let narrow = Tiling { cta_n: (tiling.cta_n / 2).max(32), ..tiling };
        let low = Tiling { cta_m: (tiling.cta_m / 2).max(32), ..tiling };
        vec![
            Settings { tiling: narrow, thread_n: thread_n / 2, ..settings },
            Settings { tiling: low, thread_m: thread_m / 2, ..settings },
        ]
    }

    fn ranked(&self) -> Vec<Settings> {
        let sm_count = i64::from(self.target.sm_count);
        let ordered = |values: [i64; 10]| {
            let mut settings = Settings::from(values);
            let Tiling { cta_m, cta_n, .. } = settings.tiling;
            settings.tiling.rasterization =
                Rasterization::of(&self.problem, [cta_m, cta_n], sm_count);
            settings
        };
        combinations(&self.all_knobs().map(distinguished)).map(ordered).collect()
    }

    fn notes(&self, settings: Settings) -> Notes {
        let behavior = behavior(&self.problem, settings.tiling.split_k);
        Notes { behavior, ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        schedule.work(&self.problem, &self.demand, self.target)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        schedule.lowering(&self.problem, self.target)
    }

    fn scratch(&self, schedule: &Schedule) -> Vec<u64> {
        let Settings { tiling, thread_n, .. } = schedule.settings;
        scratch(&self.problem, tiling.split_k, [schedule.slice_rows, 8 * thread_n])
    }
}

/// Type of the elements in shared memory, in which they are multiplied. Operands of tf32 GEMMs keep
/// all bits.
fn element(problem: &Problem<'_>) -> DType {
    problem.matmul.math.dtype()
}

fn knobs(problem: &Problem<'_>) -> [Knob; 10] {
    let tile = vec![32, 64, 128];
    let [dynamic_k, dynamic_m] = dynamic_knobs(problem);
    [
        Knob { name: "cta_k", about: "K of a pipeline step", values: vec![8, 16] },
        Knob { name: "cta_m", about: "rows of a CTA's tile of C", values: tile.clone() },
        Knob { name: "cta_n", about: "columns of a CTA's tile of C", values: tile },
        dynamic_k,
        dynamic_m,
        group_knob(&[1, 4, 8]),
        raster_knob(),
        split_knob(problem),
        Knob { name: "thread_m", about: "rows of a thread's tile", values: vec![4, 8] },
        Knob { name: "thread_n", about: "columns of a thread's tile", values: vec![4, 8] },
    ]
}

/// A value for each knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Settings {
    tiling: Tiling,
    thread_m: i64,
    thread_n: i64,
}

impl From<[i64; 10]> for Settings {
    /// From values in the order of [`KNOBS`].
    fn from(values: [i64; 10]) -> Settings {
        let [cta_k, cta_m, cta_n, k, m, group, raster, split_k, thread_m, thread_n] = values;
        let rasterization = Rasterization::from_knobs(group, raster);
        let [dynamic_k, dynamic_m] = [k, m].map(|knob| knob == 1);
        let tiling = Tiling { cta_m, cta_n, cta_k, rasterization, split_k, dynamic_k, dynamic_m };
        Settings { tiling, thread_m, thread_n }
    }
}

impl From<Settings> for [i64; 10] {
    fn from(settings: Settings) -> Self {
        let Settings { tiling, thread_m, thread_n } = settings;
        let Tiling { cta_m, cta_n, cta_k, rasterization, split_k, .. } = tiling;
        let (group, raster) = (rasterization.group, rasterization.raster());
        let [k, m] = [tiling.dynamic_k, tiling.dynamic_m].map(i64::from);
        [cta_k, cta_m, cta_n, k, m, group, raster, split_k, thread_m, thread_n]
    }
}

/// Whether a thread takes more registers than it needs where it may, so that an SM has one block
/// for two: with a large tile of operands that are loaded as they are.
fn is_crowded(problem: &Problem<'_>, [thread_m, thread_n]: [i64; 2]) -> bool {
    let is_plain = [&problem.a, &problem.b].into_iter().all(Operand::is_plain);
    let is_f64 = element(problem) == DType::F64;
    thread_m * thread_n == 64 && is_plain && !is_f64 && !problem.is_windowed()
}

/// How A or B is loaded into shared memory.
fn tile(problem: &Problem<'_>, of: &Operand, element: DType) -> OperandTile {
    let vector = 16 / element.bytes() as i64;
    OperandTile {
        dtype: element,
        layout: "MnMajor<Element, ROWS, CTA_K, VECTOR, K_MAJOR>",
        vector,
        staged: true,
        transposed: false,
        scattered: of.is_scattered(problem, vector),
        moved: false,
        more: 0,
        joined: false,
    }
}

/// Everything derived from legal settings.
struct Schedule {
    settings: Settings,
    /// Type of the elements in shared memory.
    element: DType,
    threads: i64,
    /// Blocks whose registers an SM has room for.
    min_blocks: i64,
    slice_rows: i64,
    shared_bytes: i64,
}

impl Schedule {
    /// # Errors
    /// Where the settings exceed a limit of the device or do not fit the problem.
    fn new(
        problem: &Problem<'_>,
        target: &Target,
        settings: Settings,
    ) -> Result<Schedule, Refusal> {
        let Settings { tiling, thread_m, thread_n } = settings;
        let (warp_m, warp_n) = (4 * thread_m, 8 * thread_n);
        let warps = tiling.cta_m / warp_m * (tiling.cta_n / warp_n);
        let threads = 32 * warps;
        if threads == 0 || threads > THREADS_MAX {
            return Err(Refusal::Threads { count: threads, max: THREADS_MAX });
        }
        tiling.check(problem, 1)?;
        let element = element(problem);
        let size = element.bytes() as i64;
        let held = (tiling.cta_m + tiling.cta_n) * tiling.cta_k / threads;
        let ways = [&problem.a, &problem.b].map(|of| (tile(problem, of, element), of));
        let max = match problem.is_windowed() {
            _ if ways.iter().any(|(tile, _)| tile.scattered) => GATHERED_MAX,
            true => WINDOWED_BYTES_MAX / size,
            false => i64::MAX,
        };
        if held > max {
            return Err(Refusal::Elements { count: held, max });
        }
        let tiles = 2 * (tiling.cta_m + tiling.cta_n) * tiling.cta_k * size;
        let row_bytes = warps * warp_n * size;
        let band = 4 * 16 / size;
        let slice_rows = slice_rows(warp_m, band, row_bytes, tiles);
        let shared_bytes = tiles.max(slice_rows * row_bytes);
        let available = i64::from(target.shared_block_bytes_max);
        let found = ways.iter().map(|(tile, of)| tile.found_bytes(of, tiling.cta_k));
        let needed = shared_bytes + found.sum::<i64>();
        if needed > available {
            return Err(Refusal::SharedBytes { needed, available });
        }
        check_workspace(problem, tiling.split_k, [slice_rows, warp_n])?;
        // With a large tile a thread takes more registers than it needs where it may.
        let fits = threads * 2 * REGISTERS <= REGISTERS_SM;
        let min_blocks = if fits && is_crowded(problem, [thread_m, thread_n]) { 2 } else { 1 };
        Ok(Schedule { settings, element, threads, min_blocks, slice_rows, shared_bytes })
    }

    fn work(&self, problem: &Problem<'_>, demand: &Demand, target: &Target) -> Vec<KernelWork> {
        let Schedule { settings, element, threads, min_blocks, shared_bytes, .. } = *self;
        let Settings { tiling, thread_m, thread_n } = settings;
        let words = element.bytes() as i64 / 4;
        // Accumulators, two steps of both operands' fragments, addresses.
        let registers = words * (thread_m * thread_n + 2 * (thread_m + thread_n)) + 40;
        let registers = if min_blocks > 1 { registers.min(REGISTERS) } else { registers };
        // A multiply-add, and its share of the reads of both operands, 16 bytes each.
        let reads = (thread_m + thread_n) as f64 / (thread_m * thread_n) as f64;
        let each = 1.0 + reads * words as f64 / 4.0;
        let is_full = ![75, 80].contains(&target.arch.capability) && words == 1;
        let each = if is_full { each * FULL_ISSUE } else { each };
        let math_path = if words == 2 { MathPath::F64(each) } else { MathPath::Fp32(each) };
        let epilogue_tile = [self.slice_rows, 8 * thread_n];
        let loading = [&problem.a, &problem.b].map(|of| tile(problem, of, element).loading());
        let block = Block { threads, registers, shared_bytes, stages: 1, epilogue_tile };
        demand.loading(loading).work(problem, &tiling, block, math_path)
    }

    fn lowering(&self, problem: &Problem<'_>, target: &Target) -> Lowering {
        let Schedule { settings: Settings { tiling, thread_m, thread_n }, element, .. } = *self;
        let context = Context::new(problem, tiling);
        let operand =
            |of: &Operand, is_a: bool| context.operand(of, tile(problem, of, element), is_a);
        let variant = Variant {
            sm: "sm75",
            name: "simt",
            template: "gemm/sm75_gemm_simt.cu",
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            epilogue_tile: [self.slice_rows, 8 * thread_n],
            operands: [operand(&problem.a, true), operand(&problem.b, false)],
            own: Parameters {
                element: ctype(element),
                min_blocks: self.min_blocks,
                thread_m,
                thread_n,
                multiply_add: multiply_add(problem.matmul.math),
            },
        };
        lowering(&context, variant, target.arch)
    }
}

/// What its template alone reads.
#[derive(Serialize)]
struct Parameters {
    /// Type of the elements in shared memory.
    element: &'static str,
    /// Blocks that an SM has registers for.
    min_blocks: i64,
    thread_m: i64,
    thread_n: i64,
    /// Expression of a multiply-add.
    multiply_add: &'static str,
}

/// The best settings, and what decided them.
struct Decision {
    settings: Settings,
    tiles: i64,
    sm_count: i64,
    steps: i64,
    double: bool,
}

impl Decision {
    fn of(simt: &Simt<'_>) -> Decision {
        let (problem, sm_count) = (&simt.problem, i64::from(simt.target.sm_count));
        let legal = |tile: [i64; 4], split_k: i64| {
            let settings = simt.of_tile(tile, split_k);
            simt.schedule(settings).is_ok().then_some((settings.tiling, settings))
        };
        let rates = Rates { sm_count, launch: LAUNCH };
        let settings = best(problem, rates, candidates(problem), legal);
        let Tiling { cta_m, cta_n, cta_k, .. } = settings.tiling;
        let tiles = tiles_of(problem, [cta_m, cta_n]);
        let steps = ceil_div(problem.k, cta_k);
        Decision { settings, tiles, sm_count, steps, double: element(problem) == DType::F64 }
    }

    /// Reasons, one line per knob.
    fn reasons(&self) -> Vec<String> {
        let Decision { settings, tiles, sm_count, steps, double } = *self;
        let Settings { tiling, thread_m, thread_n } = settings;
        let Tiling { cta_k, cta_m, cta_n, rasterization, split_k, .. } = tiling;
        let [group, raster] = rasterization.reasons();
        let [dynamic_k, dynamic_m] = dynamic_reasons(tiling.dynamic_k);
        let tile = format!("{tiles} tiles for {sm_count} SMs: the best wave");
        let share = match double {
            true => "doubles take two registers each",
            false => "the thread tile with the fewest shared memory reads",
        };
        let k_step = match cta_k {
            8 => "registers for the next step beside the tile's",
            _ => "two tiles of both operands fit beside another block's",
        };
        vec![
            format!("cta_k={cta_k}: {k_step}"),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            dynamic_k,
            dynamic_m,
            group,
            raster,
            format!("split_k={split_k}: {}", split_reason(split_k, tiles, sm_count, steps)),
            format!("thread_m={thread_m}: {share}"),
            format!("thread_n={thread_n}: {share}"),
        ]
    }
}

/// Candidate tiles; thread tiles of doubles take twice the registers.
fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
    let double = element(problem) == DType::F64;
    CANDIDATES.into_iter().filter(move |(tile, _)| !double || tile[3] <= 4)
}

impl Settings {
    /// The settings for a block and thread tile.
    fn of_tile(tile: [i64; 4], split_k: i64, problem: &Problem<'_>, target: &Target) -> Settings {
        let [cta_m, cta_n, thread_m, thread_n] = tile;
        let rasterization = Rasterization::of(problem, [cta_m, cta_n], i64::from(target.sm_count));
        let dynamic_k = counts_k(problem);
        let cta_k = if is_crowded(problem, [thread_m, thread_n]) { 8 } else { 16 };
        let tiling =
            Tiling { cta_m, cta_n, cta_k, rasterization, split_k, dynamic_k, dynamic_m: false };
        Settings { tiling, thread_m, thread_n }
    }
}
