//! Products on the ordinary arithmetic units, for every type and architecture.

use serde_json::json;

use crate::dtype::DType;
use crate::engine::access::ceil_div;
use crate::engine::config::combinations;
use crate::engine::gemm::lowering::{Variant, lowering};
use crate::engine::gemm::order::{Order, group_knob, raster_knob, told_apart};
use crate::engine::gemm::parameters::{Context, Tile};
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::tiling::{
    Candidate, DYNAMIC_REASON, Rates, Refusal, Tiling, behavior, best, dynamic_knob, slice_rows,
    split_knob, split_reason, tiles_of,
};
use crate::engine::gemm::work::{Block, Demand, Units};
use crate::engine::header::described;
use crate::engine::signature::{ctype, merged};
use crate::engine::{Engine, EngineConfig, KernelWork, Knob, Notes, Setting, Supported, WorkOf};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, MatmulMath};
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "gemm_simt";

/// More threads would leave each too few registers for its share of the tile.
const THREADS_MAX: i64 = 512;

/// Multiplications in 2.6 us: 128 in each of 1.6 GHz.
const LAUNCH: f64 = (1 << 19) as f64;

/// Tiles to choose from with a thread's share of them, and how close each comes to the speed of
/// the arithmetic: the larger the share, the fewer reads of shared memory per multiplication.
const CANDIDATES: [Candidate; 5] = [
    ([128, 128, 8, 8], 1.0),
    ([128, 64, 8, 4], 0.85),
    ([64, 64, 4, 4], 0.7),
    ([32, 64, 4, 4], 0.6),
    ([32, 32, 4, 4], 0.5),
];

/// The names of the knobs.
const KNOBS: [&str; 9] =
    ["cta_k", "cta_m", "cta_n", "dynamic_m", "group", "raster", "split_k", "thread_m", "thread_n"];

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct SimtEngine;

impl Engine for SimtEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let problem = Problem::of(graph, target.arch.capability)?;
        if problem.twin.is_some() {
            return Err(Error::not_supported("two products are multiplied by tensor cores only"));
        }
        let simt = Simt { problem, target };
        let fits = |(tile, _): Candidate| {
            let settings = Settings::of_tile(tile, 1, &simt.problem, target);
            let schedule = Schedule::new(&simt.problem, target, settings);
            schedule.map(drop).map_err(|refusal| (refusal, settings))
        };
        let any = candidates(&simt.problem).map(fits).reduce(Result::or);
        any.expect("there are candidates").map_err(|(refusal, of)| refusal.error(&of.config()))?;
        Ok(Box::new(simt))
    }
}

/// A problem for which there are settings.
#[derive(Debug, Clone)]
struct Simt<'a> {
    problem: Problem<'a>,
    target: &'a Target,
}

impl Simt<'_> {
    fn schedule(&self, settings: Settings) -> Result<Schedule, Refusal> {
        Schedule::new(&self.problem, self.target, settings)
    }
}

impl Supported for Simt<'_> {
    fn knobs(&self) -> Vec<Knob> {
        knobs(&self.problem).to_vec()
    }

    fn heuristic(&self) -> EngineConfig {
        Decision::of(&self.problem, self.target).settings.config()
    }

    fn reasons(&self) -> Vec<String> {
        Decision::of(&self.problem, self.target).reasons()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        // A smaller share per thread, of a tile for as many threads.
        let halved = |share: &str, tile: &str| {
            let value = config.knob(share).ok().filter(|value| *value > 4)?;
            let cta = config.knob(tile).ok()?;
            let smaller = config.clone().with(share, value / 2).with(tile, (cta / 2).max(32));
            let settings = Settings::of(&smaller).ok()?;
            self.schedule(settings).is_ok().then_some(smaller)
        };
        halved("thread_n", "cta_n").or_else(|| halved("thread_m", "cta_m"))
    }

    fn settings(&self) -> Vec<Setting> {
        let demand = Demand::of(&self.problem);
        let sm_count = i64::from(self.target.sm_count);
        let setting = |mut settings: Settings| {
            let work = self.schedule(settings).ok()?.work(&demand);
            let Tiling { cta_m, cta_n, .. } = settings.tiling;
            settings.tiling.order = Order::of(&self.problem, [cta_m, cta_n], sm_count);
            Some(Setting { config: settings.config(), work })
        };
        let all = knobs(&self.problem).map(told_apart);
        combinations(&all).map(Settings::from).filter_map(setting).collect()
    }

    fn work_of(&self) -> WorkOf<'_> {
        let demand = Demand::of(&self.problem);
        Box::new(move |config| {
            let schedule = self.schedule(Settings::of(config).ok()?).ok()?;
            Some(schedule.work(&demand))
        })
    }

    fn notes(&self, config: &EngineConfig) -> Notes {
        Notes { behavior: behavior(&self.problem, config), ..Notes::default() }
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        let knobs = knobs(&self.problem);
        config.validate(&knobs)?;
        let schedule = self.schedule(Settings::of(config)?);
        let schedule = schedule.map_err(|refusal| refusal.error(config))?;
        Ok(described(schedule.lowering(&self.problem, self.target)?, config, &knobs))
    }
}

/// The type of elements in shared memory: that in which is multiplied. Operands of tf32 products
/// keep all bits.
fn element(problem: &Problem<'_>) -> DType {
    problem.matmul.math.dtype()
}

/// The expression that adds a product to a sum.
fn multiply_add(math: MatmulMath) -> &'static str {
    match math {
        // Unsigned: sums of integers wrap around.
        MatmulMath::I32 => "int(unsigned(x) * unsigned(y) + unsigned(acc[i][j]))",
        _ => "fma(x, y, acc[i][j])",
    }
}

fn knobs(problem: &Problem<'_>) -> [Knob; 9] {
    let tile = vec![32, 64, 128];
    [
        Knob { name: "cta_k", about: "K of a pipeline step", values: vec![8, 16] },
        Knob { name: "cta_m", about: "rows of a CTA's tile of C", values: tile.clone() },
        Knob { name: "cta_n", about: "columns of a CTA's tile of C", values: tile },
        dynamic_knob(),
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

impl From<[i64; 9]> for Settings {
    /// From values in the order of [`KNOBS`].
    fn from(values: [i64; 9]) -> Settings {
        let [cta_k, cta_m, cta_n, dynamic_m, group, raster, split_k, thread_m, thread_n] = values;
        let (order, dynamic_m) = (Order::from_knobs(group, raster), dynamic_m == 1);
        let tiling = Tiling { cta_m, cta_n, cta_k, order, split_k, dynamic_m };
        Settings { tiling, thread_m, thread_n }
    }
}

impl Settings {
    fn of(config: &EngineConfig) -> Result<Settings> {
        config.values(KNOBS).map(Settings::from)
    }

    fn config(&self) -> EngineConfig {
        let Settings { tiling, thread_m, thread_n } = *self;
        let Tiling { cta_m, cta_n, cta_k, order, split_k, dynamic_m } = tiling;
        let (group, raster, dynamic_m) = (order.group, order.raster(), i64::from(dynamic_m));
        let values = [cta_k, cta_m, cta_n, dynamic_m, group, raster, split_k, thread_m, thread_n];
        EngineConfig::of_values(NAME, KNOBS, values)
    }
}

/// Knob settings and what follows from them.
struct Schedule {
    settings: Settings,
    /// The type of elements in shared memory.
    element: DType,
    threads: i64,
    slice_rows: i64,
    shared_bytes: i64,
}

impl Schedule {
    /// # Errors
    /// Where the device's limits or the problem rule the settings out.
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
        let tiles = 2 * (tiling.cta_m + tiling.cta_n) * tiling.cta_k * size;
        let row_bytes = warps * warp_n * size;
        let band = 4 * 16 / size;
        let slice_rows = slice_rows(warp_m, band, row_bytes, tiles);
        let shared_bytes = tiles.max(slice_rows * row_bytes);
        let available = i64::from(target.shared_block_bytes_max);
        if shared_bytes > available {
            return Err(Refusal::SharedBytes { needed: shared_bytes, available });
        }
        Ok(Schedule { settings, element, threads, slice_rows, shared_bytes })
    }

    fn work(&self, demand: &Demand<'_>) -> Vec<KernelWork> {
        let Schedule { settings, element, threads, shared_bytes, .. } = *self;
        let Settings { tiling, thread_m, thread_n } = settings;
        let words = element.bytes() as i64 / 4;
        // Sums, two steps of both operands' fragments, addresses.
        let registers = words * (thread_m * thread_n + 2 * (thread_m + thread_n)) + 40;
        // A multiplication, and its share of the reads of both operands: 16 bytes each.
        let reads = (thread_m + thread_n) as f64 / (thread_m * thread_n) as f64;
        let each = 1.0 + reads * words as f64 / 4.0;
        let units = if words == 2 { Units::F64(each) } else { Units::Lanes(each) };
        let finished = [self.slice_rows, 8 * thread_n];
        let block = Block { threads, registers, shared_bytes, stages: 1, finished };
        demand.work(&tiling, block, units)
    }

    fn lowering(&self, problem: &Problem<'_>, target: &Target) -> Result<Lowering> {
        let Schedule { settings: Settings { tiling, thread_m, thread_n }, element, .. } = *self;
        let context = Context::new(problem, tiling);
        let tile = Tile { dtype: element, vector: 16 / element.bytes() as i64, staged: true };
        let operand = |of: &Operand, is_a: bool| {
            let tile_type = "DepthMajor<Element, ROWS, CTA_K, VECTOR, K_MAJOR>";
            merged(context.operand(of, tile, is_a), json!({"tile": tile_type, "transposed": false}))
        };
        let variant = Variant {
            sm: "sm75",
            name: "simt",
            template: "gemm/sm75_gemm_simt.cu",
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            finished: [self.slice_rows, 8 * thread_n],
            operands: [operand(&problem.a, true), operand(&problem.b, false)],
            parameters: json!({
                "element": ctype(element),
                "thread_m": thread_m,
                "thread_n": thread_n,
                "slice_rows": self.slice_rows,
                "multiply_add": multiply_add(problem.matmul.math),
            }),
        };
        lowering(&context, variant, target.arch)
    }
}

/// The settings expected to run best, and what decided them.
struct Decision {
    settings: Settings,
    tiles: i64,
    sm_count: i64,
    steps: i64,
    double: bool,
}

impl Decision {
    fn of(problem: &Problem<'_>, target: &Target) -> Decision {
        let sm_count = i64::from(target.sm_count);
        let legal = |tile: [i64; 4], split_k: i64| {
            let settings = Settings::of_tile(tile, split_k, problem, target);
            let schedule = Schedule::new(problem, target, settings).ok()?;
            Some((schedule.settings.tiling, settings))
        };
        let rates = Rates { sm_count, launch: LAUNCH };
        let settings = best(problem, rates, candidates(problem), legal);
        let Tiling { cta_m, cta_n, cta_k, .. } = settings.tiling;
        let tiles = tiles_of(problem, [cta_m, cta_n]);
        let steps = ceil_div(problem.k, cta_k);
        Decision { settings, tiles, sm_count, steps, double: element(problem) == DType::F64 }
    }

    /// A line for each knob.
    fn reasons(&self) -> Vec<String> {
        let Decision { settings, tiles, sm_count, steps, double } = *self;
        let Settings { tiling, thread_m, thread_n } = settings;
        let Tiling { cta_m, cta_n, order, split_k, .. } = tiling;
        let [group, raster] = order.reasons();
        let tile = format!("{tiles} tiles load {sm_count} multiprocessors best");
        let share = match double {
            true => "doubles take two registers each",
            false => "the share that reads shared memory least for this tile",
        };
        vec![
            "cta_k=16: two tiles of both operands fit beside another block's".to_owned(),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            DYNAMIC_REASON.to_owned(),
            group,
            raster,
            format!("split_k={split_k}: {}", split_reason(split_k, tiles, sm_count, steps)),
            format!("thread_m={thread_m}: {share}"),
            format!("thread_n={thread_n}: {share}"),
        ]
    }
}

/// The tiles to choose from: a thread's share of doubles takes twice the registers.
fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
    let double = element(problem) == DType::F64;
    CANDIDATES.into_iter().filter(move |(tile, _)| !double || tile[3] <= 4)
}

impl Settings {
    /// The settings that go with a tile and a thread's share of it.
    fn of_tile(tile: [i64; 4], split_k: i64, problem: &Problem<'_>, target: &Target) -> Settings {
        let [cta_m, cta_n, thread_m, thread_n] = tile;
        let order = Order::of(problem, [cta_m, cta_n], i64::from(target.sm_count));
        let tiling = Tiling { cta_m, cta_n, cta_k: 16, order, split_k, dynamic_m: false };
        Settings { tiling, thread_m, thread_n }
    }
}
