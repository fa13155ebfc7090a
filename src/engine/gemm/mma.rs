//! GEMM on tensor cores by `mma.sync`: 16-bit floats, tf32 and 8-bit integers from sm_80, f16 and
//! 8-bit integers from sm_75.

use kiln_machine::Operands;
use kiln_sass::{Architecture, TileOrder};
use serde::Serialize;

use crate::engine::access::{VECTOR_BYTES, ceil_div};
use crate::engine::config::combinations;
use crate::engine::gemm::context::Context;
use crate::engine::gemm::lowering::{Variant, check_workspace, lowering, scratch};
use crate::engine::gemm::mma_tiles::candidates;
use crate::engine::gemm::mma_types::MmaTypes;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::rasterization::{Rasterization, distinguished, group_knob, raster_knob};
use crate::engine::gemm::tiling::{
    Candidate, Rates, Refusal, Tiling, behavior, best, counts_k, dynamic_knobs, dynamic_reasons,
    for_any_k, slice_rows, split_knob, split_reason, tiles_of,
};
use crate::engine::gemm::window::WINDOWED_BYTES_MAX;
use crate::engine::gemm::work::{Block, Demand, MathPath, MmaStep};
use crate::engine::instruction::{AMPERE, MmaInstruction, mma_sm, ones};
use crate::engine::signature::refuse_older;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{
    CostModel, Engine, KernelWork, Knob, Notes, NumericalNote, Supported, TensorWork,
};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "gemm_mma";

/// Minimum `cta_m` where A is column-major with 32-bit elements.
const ROWS_MIN: i64 = 32;

/// The first architecture with `ldmatrix` and MMAs of 8 columns.
const CAPABILITY_MIN: u16 = 75;

/// Maximum threads of a block: more leave registers for warp tiles of 32 x 32, which read more.
const THREADS_MAX: i64 = 256;

/// Multiply-adds of an SM in 2.6 us: 1024 of 16-bit types per cycle at 1.6 GHz.
const LAUNCH: f64 = (4 << 20) as f64;

/// Elements of a K step per thread that are found one by one with offsets of 64 bits: more spill.
const CROWDED_MAX: i64 = 32;

/// Bytes of a K step per thread that are found one by one through a window: 96 take 0.35 s to
/// compile, and their registers leave too few warps.
const GATHERED_BYTES_MAX: i64 = 80;

/// Maximum number of accumulators per thread.
const ACCUMULATORS_MAX: i64 = 128;

/// Registers of a thread that sums of an operand and the words of ones take.
const SUM_REGISTERS: i64 = 8;

/// The names of the knobs.
const KNOBS: [&str; 11] = [
    "cta_k",
    "cta_m",
    "cta_n",
    "dynamic_k",
    "dynamic_m",
    "group",
    "raster",
    "split_k",
    "stages",
    "warp_m",
    "warp_n",
];

/// The engine `gemm_mma`: GEMMs on `mma.sync` tensor cores, from sm_75.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct MmaEngine;

impl Engine for MmaEngine {
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
        let capability = target.arch.capability;
        refuse_older(capability, CAPABILITY_MIN)?;
        let vector_bytes = (capability >= AMPERE).then_some(VECTOR_BYTES);
        let problem = Problem::of_vectors(graph, capability, vector_bytes)?;
        let types = MmaTypes::of(&problem, target.arch)?;
        let demand = Demand::of(&problem);
        let mma = Mma { problem, types, demand, target, model: CostModel::of(target) };
        let candidates: Vec<Settings> =
            mma.candidates().map(|(tile, _)| mma.of_tile(tile, 1)).collect();
        Ok(Box::new(Tuned::of(mma, candidates)?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Mma<'a> {
    problem: Problem<'a>,
    types: MmaTypes,
    demand: Demand,
    target: &'a Target,
    model: CostModel,
}

impl Mma<'_> {
    fn of_tile(&self, tile: [i64; 4], split_k: i64) -> Settings {
        Settings::of_tile(tile, split_k, &self.problem, &self.types, self.target)
    }

    fn candidates(&self) -> impl Iterator<Item = Candidate> + use<> {
        candidates(&self.problem, self.types.is_scattered(&self.problem))
    }

    fn decision(&self) -> Decision {
        Decision::of(self)
    }
}

impl Tunable<11> for Mma<'_> {
    const KNOBS: [&'static str; 11] = KNOBS;
    // By estimates the rules are as good where the model sees less to gain.
    const CHEAPER: f64 = 0.85;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = Refusal;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 11] {
        knobs(&self.problem, &self.types)
    }

    fn listed_knobs(&self) -> Vec<Knob> {
        for_any_k(&self.problem, self.all_knobs())
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, Refusal> {
        Schedule::new(&self.problem, &self.types, self.target, settings)
    }

    fn best(&self) -> Settings {
        self.decision().settings
    }

    fn reasons(&self) -> Vec<String> {
        self.decision().reasons(self.target)
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        // A smaller warp tile: of the same block tile by more warps, else of a smaller block tile.
        let Settings { tiling, warp_m, warp_n, .. } = settings;
        let narrow = Settings { warp_n: warp_n / 2, ..settings };
        let low = Settings { warp_m: warp_m / 2, ..settings };
        let halved = |cta_m: i64, cta_n: i64| Tiling { cta_m, cta_n, ..tiling };
        let Tiling { cta_m, cta_n, .. } = tiling;
        vec![
            narrow,
            Settings { tiling: halved(cta_m, cta_n / 2), ..narrow },
            low,
            Settings { tiling: halved(cta_m / 2, cta_n), ..low },
        ]
    }

    fn ranked(&self) -> Vec<Settings> {
        let sm_count = i64::from(self.target.sm_count);
        let ordered = |values: [i64; 11]| {
            let mut settings = Settings::from(values);
            let Tiling { cta_m, cta_n, .. } = settings.tiling;
            settings.tiling.rasterization =
                Rasterization::of(&self.problem, [cta_m, cta_n], sm_count);
            settings
        };
        combinations(&self.all_knobs().map(distinguished)).map(ordered).collect()
    }

    fn notes(&self, settings: Settings) -> Notes {
        let rounded = self.types.rounds.then_some(NumericalNote::DownConvertInputs);
        let numerical = std::iter::once(NumericalNote::TensorCore).chain(rounded).collect();
        let behavior = behavior(&self.problem, settings.tiling.split_k);
        Notes { numerical, behavior }
    }

    fn tile_order(&self, schedule: &Schedule) -> Option<TileOrder> {
        schedule.settings.tiling.tile_order(&self.problem, 1, false)
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        schedule.work(self)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        schedule.lowering(&self.problem, &self.types, self.target)
    }

    fn scratch(&self, schedule: &Schedule) -> Vec<u64> {
        let Settings { tiling, warp_n, .. } = schedule.settings;
        scratch(&self.problem, tiling.split_k, [schedule.slice_rows, warp_n])
    }
}

fn knobs(problem: &Problem<'_>, types: &MmaTypes) -> [Knob; 11] {
    let tile = [16, 32, 64, 128, 256];
    let [dynamic_k, dynamic_m] = dynamic_knobs(problem);
    [
        Knob { name: "cta_k", about: "K of a pipeline step", values: types.k_steps().to_vec() },
        Knob { name: "cta_m", about: "rows of a CTA's tile of C", values: tile.to_vec() },
        Knob { name: "cta_n", about: "columns of a CTA's tile of C", values: tile[1..].to_vec() },
        dynamic_k,
        dynamic_m,
        group_knob(&[1, 8]),
        raster_knob(),
        split_knob(problem),
        Knob { name: "stages", about: "pipeline stages in shared memory", values: vec![2, 3, 4] },
        Knob { name: "warp_m", about: "rows of a warp's tile", values: vec![16, 32, 64] },
        Knob { name: "warp_n", about: "columns of a warp's tile", values: vec![32, 64] },
    ]
}

/// A value for each knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Settings {
    tiling: Tiling,
    stages: i64,
    warp_m: i64,
    warp_n: i64,
}

impl From<[i64; 11]> for Settings {
    /// From values in the order of [`KNOBS`].
    fn from(values: [i64; 11]) -> Settings {
        let [cta_k, cta_m, cta_n, k, m, group, raster, split_k, stages, warp_m, warp_n] = values;
        let rasterization = Rasterization::from_knobs(group, raster);
        let [dynamic_k, dynamic_m] = [k, m].map(|knob| knob == 1);
        let tiling = Tiling { cta_m, cta_n, cta_k, rasterization, split_k, dynamic_k, dynamic_m };
        Settings { tiling, stages, warp_m, warp_n }
    }
}

impl From<Settings> for [i64; 11] {
    fn from(settings: Settings) -> Self {
        let Settings { tiling, stages, warp_m, warp_n } = settings;
        let Tiling { cta_m, cta_n, cta_k, rasterization, split_k, .. } = tiling;
        let (group, raster) = (rasterization.group, rasterization.raster());
        let [k, m] = [tiling.dynamic_k, tiling.dynamic_m].map(i64::from);
        [cta_k, cta_m, cta_n, k, m, group, raster, split_k, stages, warp_m, warp_n]
    }
}

/// Everything derived from legal settings.
struct Schedule {
    settings: Settings,
    threads: i64,
    slice_rows: i64,
    shared_bytes: i64,
    operands: Operands,
    /// Instructions that load an element of A and of B, where those are many.
    loading: [f64; 2],
    gemm_count: i64,
}

impl Schedule {
    /// # Errors
    /// Where the settings exceed a limit of the device or do not fit the problem.
    fn new(
        problem: &Problem<'_>,
        types: &MmaTypes,
        target: &Target,
        settings: Settings,
    ) -> Result<Schedule, Refusal> {
        let Settings { tiling, stages, warp_m, warp_n } = settings;
        let (warps, threads) = (settings.warps(), 32 * settings.warps());
        if threads == 0 || threads > THREADS_MAX {
            return Err(Refusal::Threads { count: threads, max: THREADS_MAX });
        }
        tiling.check(problem, 1)?;
        if problem.dual.is_some() {
            let count = warp_m * warp_n * 2 / 32;
            if count > ACCUMULATORS_MAX {
                return Err(Refusal::Accumulators { count, max: ACCUMULATORS_MAX });
            }
        }
        let size = types.element_bytes();
        let held = settings.held();
        if let Some(max) = elements_held_max(problem, types).filter(|max| held > *max) {
            return Err(Refusal::Elements { count: held, max });
        }
        if size == 4 && !problem.a.k_major && tiling.cta_m < ROWS_MIN {
            return Err(Refusal::Rows { min: ROWS_MIN });
        }
        let gemm_count = problem.gemm_count();
        let lines = tiling.cta_m + tiling.cta_n * gemm_count;
        let tiles = stages * lines * tiling.cta_k * size;
        let row_bytes = warps * warp_n * gemm_count * 4;
        let slice_rows = slice_rows(warp_m, 16, row_bytes, tiles);
        let shared_bytes = tiles.max(slice_rows * row_bytes);
        let available = i64::from(target.shared_block_bytes_max);
        let ways = [true, false].map(|is_a| types.tile(problem, is_a));
        let found = ways.iter().zip([&problem.a, &problem.b]);
        let found = found.map(|(tile, of)| tile.found_bytes(of, tiling.cta_k));
        let needed = shared_bytes + found.sum::<i64>();
        if needed > available {
            return Err(Refusal::SharedBytes { needed, available });
        }
        check_workspace(problem, tiling.split_k, [slice_rows, warp_n])?;
        let operands = types.operands();
        let loading = ways.map(|tile| tile.loading());
        Ok(Schedule { settings, operands, loading, gemm_count, threads, slice_rows, shared_bytes })
    }

    fn work(&self, mma: &Mma<'_>) -> Vec<KernelWork> {
        let Mma { problem, types, demand, target, model } = mma;
        let demand = demand.loading(self.loading);
        let Schedule { settings, operands, threads, shared_bytes, .. } = *self;
        let Settings { tiling, stages, warp_m, warp_n } = settings;
        // Accumulators, fragments of two K steps, addresses.
        let columns = warp_n * self.gemm_count;
        let sums = if problem.summed().is_some() { SUM_REGISTERS } else { 0 };
        let registers = warp_m * columns / 32 + (warp_m + columns) / 2 + 40 + sums;
        let resident = model.resident(threads, registers, shared_bytes);
        let [tiles, steps] = problem.tiles_and_steps([tiling.cta_m, tiling.cta_n, tiling.cta_k]);
        let splits = tiles * tiling.split_k as f64;
        let of_sm = (splits / f64::from(target.sm_count)).ceil().max(1.0);
        let k_steps = (tiling.cta_k / types.mma_k()) as f64;
        let lines = tiling.cta_m + tiling.cta_n * self.gemm_count;
        let copied =
            (lines * tiling.cta_k * types.element_bytes()) as f64 / settings.warps() as f64;
        // Words of fragments of a thread.
        let words = ((warp_m + columns) / 4) as f64 * k_steps;
        let rounded = if types.rounds { threads as f64 * words } else { 0.0 };
        let step = MmaStep {
            warps: (threads / 32) as f64,
            mmas: (warp_m / 16 * (columns / 8)) as f64 * k_steps,
            bytes: ((warp_m + columns) * 32) as f64 * k_steps + copied,
            results: (warp_m * columns) as f64 * splits / steps.max(1.0),
            passed: demand.passed_instructions(problem, &tiling),
            rounded,
        };
        let architecture = Architecture::of(u32::from(target.arch.capability));
        let block_clocks = step.clocks(&architecture);
        let efficiency = step.efficiency(resident.min(of_sm), &architecture);
        let one = TensorWork { operands, operations: 2.0, efficiency, block_clocks };
        let epilogue_tile = [self.slice_rows, warp_n];
        let stages = stages - 1;
        let block = Block { threads, registers, shared_bytes, stages, epilogue_tile };
        demand.work(problem, &tiling, block, MathPath::Tensor(one))
    }

    fn lowering(&self, problem: &Problem<'_>, types: &MmaTypes, target: &Target) -> Lowering {
        let Settings { tiling, stages, warp_m, warp_n } = self.settings;
        let context = Context::new(problem, tiling);
        let operand =
            |of: &Operand, is_a: bool| context.operand(of, types.tile(problem, is_a), is_a);
        let operands = [operand(&problem.a, true), operand(&problem.b, false)];
        let variant = Variant {
            sm: mma_sm(target.arch),
            name: "mma",
            template: "gemm/sm75_gemm_mma.cu",
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            epilogue_tile: [self.slice_rows, warp_n],
            own: Parameters {
                mma: MmaInstruction::new(types.mma_k(), types.names).on(target.arch),
                rounds: types.rounds,
                mma_k: types.mma_k(),
                warp_m,
                warp_n,
                stages,
                ones: ones(types.names[0]),
                staged: operands.iter().any(|operand| operand.staged),
                copies: !operands.iter().all(|operand| operand.staged),
                all_walk: operands.iter().all(|operand| operand.walk.is_some()),
            },
            operands,
        };
        lowering(&context, variant, target.arch)
    }
}

/// What its template alone reads.
#[derive(Serialize)]
struct Parameters {
    mma: MmaInstruction,
    /// Whether operands are rounded to tf32.
    rounds: bool,
    mma_k: i64,
    warp_m: i64,
    warp_n: i64,
    stages: i64,
    /// A word of ones.
    ones: &'static str,
    /// Whether an operand passes through registers, and whether one is copied past them.
    staged: bool,
    copies: bool,
    /// Whether both operands know which K step is next.
    all_walk: bool,
}

/// The best settings, and what decided them.
struct Decision {
    settings: Settings,
    tiles: i64,
    sm_count: i64,
    steps: i64,
}

/// The most elements of a K step per thread of tiles beside the rules' where they pass through
/// registers: 64 beside 128 accumulators spill.
const STAGED_MAX: i64 = 48;

/// The most blocks for each SM where K is split.
const BLOCKS_MAX: i64 = 4;

/// Registers of a warp tile of 64 x 64: 128 accumulators, fragments of two K steps, addresses.
const REGISTERS: i64 = 240;

impl Decision {
    fn of(mma: &Mma<'_>) -> Decision {
        let (problem, sm_count) = (&mma.problem, i64::from(mma.target.sm_count));
        let legal = |tile: [i64; 4], split_k: i64| {
            let settings = mma.of_tile(tile, split_k);
            mma.schedule(settings).is_ok().then_some((settings.tiling, settings))
        };
        let rates = Rates { sm_count, launch: LAUNCH };
        let rule = best(problem, rates, mma.candidates(), legal);
        let splits = split_knob(problem).values;
        let others = mma.candidates().flat_map(|(tile, _)| {
            let tiles = tiles_of(problem, [tile[0], tile[1]]);
            let few =
                move |split_k: &i64| *split_k == 1 || tiles * split_k <= BLOCKS_MAX * sm_count;
            splits.iter().copied().filter(few).map(move |split_k| mma.of_tile(tile, split_k))
        });
        let is_staged = mma.types.is_staged(problem);
        let others = others.filter(|of| !is_staged || of.held() <= STAGED_MAX);
        let settings = mma.cheapest(mma.target, rule, others);
        let Tiling { cta_m, cta_n, cta_k, .. } = settings.tiling;
        let tiles = tiles_of(problem, [cta_m, cta_n]);
        let steps = ceil_div(problem.k, cta_k);
        Decision { settings, tiles, sm_count, steps }
    }

    /// Reasons, one line per knob.
    fn reasons(&self, target: &Target) -> Vec<String> {
        let Decision { settings, tiles, sm_count, steps } = *self;
        let Settings { tiling, stages, warp_m, warp_n } = settings;
        let Tiling { cta_m, cta_n, cta_k, rasterization, split_k, .. } = tiling;
        let [group, raster] = rasterization.reasons();
        let [dynamic_k, dynamic_m] = dynamic_reasons(tiling.dynamic_k);
        let tile = format!("{tiles} tiles for {sm_count} SMs: the best wave");
        let k_step = match is_small([cta_m, cta_n]) {
            true => "a small tile needs a large K step for enough work between barriers",
            false => "enough work between barriers with few registers in flight",
        };
        let share = "the warp tile with the fewest shared memory reads";
        let blocks = blocks_wanted([cta_m, cta_n, warp_m, warp_n], target);
        vec![
            format!("cta_k={cta_k}: {k_step}"),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            dynamic_k,
            dynamic_m,
            group,
            raster,
            format!("split_k={split_k}: {}", split_reason(split_k, tiles, sm_count, steps)),
            format!("stages={stages}: up to 4 that fit with {blocks} blocks per SM"),
            format!("warp_m={warp_m}: {share}"),
            format!("warp_n={warp_n}: {share}"),
        ]
    }
}

impl Settings {
    fn warps(&self) -> i64 {
        self.tiling.cta_m / self.warp_m * (self.tiling.cta_n / self.warp_n)
    }

    /// Elements of a K step per thread.
    fn held(&self) -> i64 {
        let Tiling { cta_m, cta_n, cta_k, .. } = self.tiling;
        (cta_m + cta_n) * cta_k / (32 * self.warps()).max(1)
    }

    /// The settings for a block and warp tile.
    fn of_tile(
        tile: [i64; 4],
        split_k: i64,
        problem: &Problem<'_>,
        types: &MmaTypes,
        target: &Target,
    ) -> Settings {
        let [cta_m, cta_n, warp_m, warp_n] = tile;
        // Small tiles take large K steps for enough work between barriers, except where threads
        // hold the next step in registers, or find its elements one by one.
        let deep = is_small([cta_m, cta_n]) && !types.transposes && !types.is_scattered(problem);
        let cta_k = types.k_steps()[usize::from(deep)];
        let lines = cta_m + cta_n * problem.gemm_count();
        let step_bytes = lines * cta_k * types.element_bytes();
        // The driver reserves 1 KiB of shared memory per block.
        let shared = i64::from(target.shared_sm_bytes) / blocks_wanted(tile, target) - 1024;
        let stages = (shared / step_bytes).clamp(2, 4);
        let rasterization = Rasterization::of(problem, [cta_m, cta_n], i64::from(target.sm_count));
        let dynamic_k = counts_k(problem);
        let tiling =
            Tiling { cta_m, cta_n, cta_k, rasterization, split_k, dynamic_k, dynamic_m: false };
        Settings { tiling, stages, warp_m, warp_n }
    }
}

fn is_small([cta_m, cta_n]: [i64; 2]) -> bool {
    cta_m * cta_n <= 64 * 64
}

/// The most elements of a K step per thread where an operand is read through a window, which takes
/// many instructions.
fn elements_held_max(problem: &Problem<'_>, types: &MmaTypes) -> Option<i64> {
    let of_bytes = |bytes: i64| bytes / types.element_bytes();
    match types.is_scattered(problem) {
        true if problem.offset_max(0) >= 1 << 31 => Some(CROWDED_MAX),
        true => Some(of_bytes(GATHERED_BYTES_MAX)),
        false => problem.is_windowed().then(|| of_bytes(WINDOWED_BYTES_MAX)),
    }
}

/// Desired number of resident blocks per SM.
fn blocks_wanted([cta_m, cta_n, warp_m, warp_n]: [i64; 4], target: &Target) -> i64 {
    let warps = cta_m / warp_m * (cta_n / warp_n);
    (i64::from(target.registers_sm) / (32 * warps * REGISTERS)).clamp(1, 2)
}
