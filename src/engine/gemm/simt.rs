//! Products on the ordinary arithmetic units, for every type and architecture.

use serde_json::json;

use crate::dtype::DType;
use crate::engine::access::ceil_div;
use crate::engine::gemm::lowering::{Variant, lowering};
use crate::engine::gemm::parameters::{Context, Tile, merged};
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::tiling::{
    Tiling, behavior, slice_rows, split_knob, split_of, split_reason, tiles_of,
};
use crate::engine::gemm::work::{Block, Units, work};
use crate::engine::signature::ctype;
use crate::engine::{Engine, EngineConfig, KernelWork, Knob, Lowering, Notes, Setting};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, MatmulMath};
use crate::target::Target;

const NAME: &str = "gemm_simt";

/// More threads would leave each too few registers for its share of the tile.
const THREADS_MAX: i64 = 512;

/// Steps of the depth that pay for a part's way through memory.
const SPLIT_STEPS_MIN: i64 = 16;

/// Tiles to choose from with a thread's share of them, and how close each comes to the speed of
/// the arithmetic: the larger the share, the fewer reads of shared memory per multiplication.
const CANDIDATES: [([i64; 4], f64); 5] = [
    ([128, 128, 8, 8], 1.0),
    ([128, 64, 8, 4], 0.85),
    ([64, 64, 4, 4], 0.7),
    ([32, 64, 4, 4], 0.6),
    ([32, 32, 4, 4], 0.5),
];

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct SimtEngine;

impl Engine for SimtEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        let problem = Problem::of(graph, target.arch.capability)?;
        Schedule::new(&problem, target, &Decision::of(&problem, target).config()).map(drop)
    }

    fn knobs(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Knob> {
        let problem = Problem::of(graph, target.arch.capability).expect("the graph is supported");
        knobs(&problem)
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        let problem = Problem::of(graph, target.arch.capability).expect("the graph is supported");
        Decision::of(&problem, target).config()
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        let problem = Problem::of(graph, target.arch.capability).expect("the graph is supported");
        Decision::of(&problem, target).reasons()
    }

    fn smaller(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Option<EngineConfig> {
        let problem = Problem::of(graph, target.arch.capability).ok()?;
        // A smaller share per thread, of a tile for as many threads.
        let halved = |share: &str, tile: &str| {
            let value = config.knob(share).ok().filter(|value| *value > 4)?;
            let cta = config.knob(tile).ok()?;
            let smaller = config.clone().with(share, value / 2).with(tile, (cta / 2).max(32));
            Schedule::new(&problem, target, &smaller).is_ok().then_some(smaller)
        };
        halved("thread_n", "cta_n").or_else(|| halved("thread_m", "cta_m"))
    }

    fn settings(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Setting> {
        let problem = Problem::of(graph, target.arch.capability).expect("the graph is supported");
        let setting = |config: EngineConfig| {
            let work = Schedule::new(&problem, target, &config).ok()?.work(&problem);
            Some(Setting { config, work })
        };
        EngineConfig::all(NAME, &knobs(&problem)).into_iter().filter_map(setting).collect()
    }

    fn notes(&self, _graph: CanonicalGraph<'_>, _target: &Target, config: &EngineConfig) -> Notes {
        Notes { behavior: behavior(config), ..Notes::default() }
    }

    fn lower(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Lowering> {
        let problem = Problem::of(graph, target.arch.capability)?;
        config.validate(&knobs(&problem))?;
        let schedule = Schedule::new(&problem, target, config)?;
        schedule.lowering(&problem, target)
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
        MatmulMath::I32 => "int(unsigned(x) * unsigned(y) + unsigned(sums[i][j]))",
        _ => "fma(x, y, sums[i][j])",
    }
}

fn knobs(problem: &Problem<'_>) -> Vec<Knob> {
    let tile = vec![32, 64, 128];
    vec![
        Knob { name: "cta_k", about: "depth of a step", values: vec![8, 16] },
        Knob { name: "cta_m", about: "rows of a block's tile", values: tile.clone() },
        Knob { name: "cta_n", about: "columns of a block's tile", values: tile },
        Knob { name: "group", about: "rows of tiles walked together", values: vec![1, 4, 8] },
        split_knob(problem),
        Knob { name: "thread_m", about: "rows of a thread", values: vec![4, 8] },
        Knob { name: "thread_n", about: "columns of a thread", values: vec![4, 8] },
    ]
}

/// The knob settings and what follows from them.
struct Schedule {
    tiling: Tiling,
    thread_m: i64,
    thread_n: i64,
    threads: i64,
    slice_rows: i64,
    shared_bytes: i64,
}

impl Schedule {
    /// # Errors
    /// `NotSupported` for a setting that the device's limits or the problem rule out.
    fn new(problem: &Problem<'_>, target: &Target, config: &EngineConfig) -> Result<Schedule> {
        let tiling = Tiling::new(problem, config)?;
        let (thread_m, thread_n) = (config.knob("thread_m")?, config.knob("thread_n")?);
        let (warp_m, warp_n) = (4 * thread_m, 8 * thread_n);
        let warps = tiling.cta_m / warp_m * (tiling.cta_n / warp_n);
        let threads = 32 * warps;
        if threads == 0 || threads > THREADS_MAX {
            return Err(Error::not_supported(format!(
                "{config} takes {threads} threads, a block has 32 to {THREADS_MAX}"
            )));
        }
        let size = element(problem).bytes() as i64;
        let tiles = 2 * (tiling.cta_m + tiling.cta_n) * tiling.cta_k * size;
        let row_bytes = warps * warp_n * size;
        let band = 4 * 16 / size;
        let slice_rows = slice_rows(warp_m, band, row_bytes, tiles);
        let shared_bytes = tiles.max(slice_rows * row_bytes);
        let available = i64::from(target.shared_block_bytes_max);
        if shared_bytes > available {
            return Err(Error::not_supported(format!(
                "{config} needs {shared_bytes} bytes of shared memory, a block has {available}"
            )));
        }
        Ok(Schedule { tiling, thread_m, thread_n, threads, slice_rows, shared_bytes })
    }

    fn work(&self, problem: &Problem<'_>) -> Vec<KernelWork> {
        let Schedule { thread_m, thread_n, threads, shared_bytes, .. } = *self;
        let words = element(problem).bytes() as i64 / 4;
        // Sums, two steps of both operands' fragments, addresses.
        let registers = words * (thread_m * thread_n + 2 * (thread_m + thread_n)) + 40;
        // A multiplication, and its share of the reads of both operands: 16 bytes each.
        let reads = (thread_m + thread_n) as f64 / (thread_m * thread_n) as f64;
        let each = 1.0 + reads * words as f64 / 4.0;
        let units = if words == 2 { Units::F64(each) } else { Units::Lanes(each) };
        let block = Block { threads, registers, shared_bytes, stages: 1 };
        work(problem, &self.tiling, block, units)
    }

    fn lowering(&self, problem: &Problem<'_>, target: &Target) -> Result<Lowering> {
        let context = Context::new(problem);
        let element = element(problem);
        let tile = Tile { dtype: element, vector: 16 / element.bytes() as i64, staged: true };
        let operand = |of: &Operand, is_a: bool| {
            let tile_type = "DepthMajor<Element, ROWS, CTA_K, VECTOR, DEPTH_PACKED>";
            merged(context.operand(of, tile, is_a), json!({"tile": tile_type, "transposed": false}))
        };
        let variant = Variant {
            sm: "sm75",
            name: "simt",
            template: "gemm/sm75_gemm_simt.cu",
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            operands: [operand(&problem.a, true), operand(&problem.b, false)],
            parameters: json!({
                "element": ctype(element),
                "thread_m": self.thread_m,
                "thread_n": self.thread_n,
                "slice_rows": self.slice_rows,
                "multiply_add": multiply_add(problem.matmul.math),
            }),
        };
        lowering(&context, &self.tiling, variant, target.arch)
    }
}

/// The settings expected to run best, and what decided them.
struct Decision {
    cta: [i64; 2],
    thread: [i64; 2],
    split_k: i64,
    tiles: i64,
    sm_count: i64,
    steps: i64,
    double: bool,
}

impl Decision {
    fn of(problem: &Problem<'_>, target: &Target) -> Decision {
        let double = element(problem) == DType::F64;
        let sm_count = i64::from(target.sm_count);
        let tiles = |candidate: &[i64; 4]| tiles_of(problem, [candidate[0], candidate[1]]);
        // The multiplications of the busiest multiprocessor, as far as a tile is efficient.
        let cost = |(candidate, efficiency): &([i64; 4], f64)| {
            let rounds = ceil_div(tiles(candidate), sm_count) as f64;
            rounds * (candidate[0] * candidate[1]) as f64 / efficiency
        };
        // A thread's share of doubles takes twice the registers.
        let candidates = CANDIDATES.iter().filter(|(candidate, _)| !double || candidate[3] <= 4);
        let (chosen, _) =
            candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are candidates");
        let (tiles, steps) = (tiles(chosen), ceil_div(problem.k, 16));
        let split_k = split_of(tiles, sm_count, steps, SPLIT_STEPS_MIN);
        let [cta_m, cta_n, thread_m, thread_n] = *chosen;
        let (cta, thread) = ([cta_m, cta_n], [thread_m, thread_n]);
        Decision { cta, thread, split_k, tiles, sm_count, steps, double }
    }

    fn config(&self) -> EngineConfig {
        EngineConfig::new(
            NAME,
            &[
                ("cta_k", 16),
                ("cta_m", self.cta[0]),
                ("cta_n", self.cta[1]),
                ("group", 8),
                ("split_k", self.split_k),
                ("thread_m", self.thread[0]),
                ("thread_n", self.thread[1]),
            ],
        )
    }

    /// A line for each knob.
    fn reasons(&self) -> Vec<String> {
        let Decision { cta: [cta_m, cta_n], thread: [thread_m, thread_n], tiles, .. } = self;
        let Decision { split_k, sm_count, steps, .. } = self;
        let tile = format!("{tiles} tiles load {sm_count} multiprocessors best");
        let share = match self.double {
            true => "doubles take two registers each",
            false => "the share that reads shared memory least for this tile",
        };
        vec![
            "cta_k=16: two tiles of both operands fit beside another block's".to_owned(),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            "group=8: blocks that run together share rows of A and columns of B".to_owned(),
            format!("split_k={split_k}: {}", split_reason(*split_k, *tiles, *sm_count, *steps)),
            format!("thread_m={thread_m}: {share}"),
            format!("thread_n={thread_n}: {share}"),
        ]
    }
}
