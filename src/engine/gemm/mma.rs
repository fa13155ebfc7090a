//! Products on tensor cores by `mma.sync`: 16-bit floats, tf32 and 8-bit integers, from sm_80.

use kiln_sim::Operands;
use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::access::ceil_div;
use crate::engine::gemm::lowering::{Variant, lowering};
use crate::engine::gemm::parameters::{Context, Tile, access_of, merged};
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::tiling::{
    Tiling, behavior, slice_rows, split_knob, split_of, split_reason, tiles_of,
};
use crate::engine::gemm::work::{Block, Units, work};
use crate::engine::{
    Engine, EngineConfig, KernelWork, Knob, Lowering, Notes, NumericalNote, Setting, TensorWork,
};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, MatmulMath};
use crate::target::Target;

const NAME: &str = "gemm_mma";

/// The first architecture with asynchronous copies and these matrix products.
const CAPABILITY_MIN: u16 = 80;

/// The most threads of a block: with more, a thread has fewer registers than its share of sums
/// and fragments takes.
const THREADS_MAX: i64 = 512;

/// Bytes of the least asynchronous copy.
const COPY_BYTES_MIN: i64 = 4;

/// Steps of the depth that pay for a part's way through memory.
const SPLIT_STEPS_MIN: i64 = 8;

/// A block's tile and a warp's share of it, with how close it comes to the speed of the tensor
/// cores: a share of 64 x 64 reads 16 bytes of shared memory for 512 multiplications of 16-bit
/// types, one of 32 x 32 for 256, and so on.
const CANDIDATES: [([i64; 4], f64); 8] = [
    ([128, 256, 64, 64], 1.0),
    ([128, 128, 64, 64], 0.95),
    ([128, 64, 64, 32], 0.8),
    ([64, 128, 32, 64], 0.8),
    ([64, 64, 32, 32], 0.65),
    ([32, 64, 16, 32], 0.45),
    ([16, 128, 16, 32], 0.35),
    ([16, 64, 16, 32], 0.3),
];

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct MmaEngine;

impl Engine for MmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        let problem = problem(graph, target)?;
        let product = Product::of(&problem)?;
        Schedule::new(&problem, &product, target, &Decision::of(&problem, target).config())
            .map(drop)
    }

    fn knobs(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Knob> {
        knobs(&problem(graph, target).expect("the graph is supported"))
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        let problem = problem(graph, target).expect("the graph is supported");
        Decision::of(&problem, target).config()
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        let problem = problem(graph, target).expect("the graph is supported");
        Decision::of(&problem, target).reasons()
    }

    fn smaller(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Option<EngineConfig> {
        let problem = problem(graph, target).ok()?;
        let product = Product::of(&problem).ok()?;
        // A smaller share per warp: of the same tile by more warps, else of a smaller tile.
        let halved = |share: &str, tile: &str, least: i64| {
            let value = config.knob(share).ok().filter(|value| *value > least)?;
            let more = config.clone().with(share, value / 2);
            let less = more.clone().with(tile, config.knob(tile).ok()? / 2);
            let legal =
                |config: &EngineConfig| Schedule::new(&problem, &product, target, config).is_ok();
            [more, less].into_iter().find(legal)
        };
        halved("warp_n", "cta_n", 32).or_else(|| halved("warp_m", "cta_m", 16))
    }

    fn settings(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Setting> {
        let problem = problem(graph, target).expect("the graph is supported");
        let product = Product::of(&problem).expect("the graph is supported");
        let setting = |config: EngineConfig| {
            let schedule = Schedule::new(&problem, &product, target, &config).ok()?;
            Some(Setting { config, work: schedule.work(&problem) })
        };
        EngineConfig::all(NAME, &knobs(&problem)).into_iter().filter_map(setting).collect()
    }

    fn notes(&self, graph: CanonicalGraph<'_>, target: &Target, config: &EngineConfig) -> Notes {
        let math = problem(graph, target).map(|problem| problem.matmul.math);
        let rounds = math.is_ok_and(|math| math == MatmulMath::Tf32);
        let rounded = rounds.then_some(NumericalNote::DownConvertInputs);
        let numerical = std::iter::once(NumericalNote::TensorCore).chain(rounded).collect();
        Notes { numerical, behavior: behavior(config) }
    }

    fn lower(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Lowering> {
        let problem = problem(graph, target)?;
        let product = Product::of(&problem)?;
        config.validate(&knobs(&problem))?;
        let schedule = Schedule::new(&problem, &product, target, config)?;
        schedule.lowering(&problem, &product, target)
    }
}

fn problem<'a>(graph: CanonicalGraph<'a>, target: &Target) -> Result<Problem<'a>> {
    let capability = target.arch.capability;
    if capability < CAPABILITY_MIN {
        let text = format!("sm_{capability} is older than sm_{CAPABILITY_MIN}");
        return Err(Error::not_supported(text));
    }
    Problem::of(graph, capability)
}

/// What the instruction multiplies.
struct Product {
    /// Types of the elements in shared memory, of A and of B.
    elements: [DType; 2],
    /// The types' names in the instruction.
    names: [&'static str; 2],
}

impl Product {
    /// # Errors
    /// `NotSupported` for types that no instruction multiplies exactly.
    fn of(problem: &Problem<'_>) -> Result<Product> {
        let types = [&problem.a, &problem.b].map(|of| problem.graph.tensors[of.tensor].dtype);
        let math = problem.matmul.math;
        match math {
            MatmulMath::Tf32 => Ok(Product { elements: [DType::F32; 2], names: ["tf32"; 2] }),
            MatmulMath::I32 => {
                let name = |dtype| if dtype == DType::I8 { "s8" } else { "u8" };
                Ok(Product { elements: types, names: types.map(name) })
            }
            MatmulMath::F32 => [(DType::F16, "f16"), (DType::Bf16, "bf16")]
                .into_iter()
                .find(|(element, _)| types.iter().all(|dtype| dtype.fits_in(*element)))
                .map(|(element, name)| Product { elements: [element; 2], names: [name; 2] })
                .ok_or_else(|| {
                    let [a, b] = types;
                    Error::not_supported(format!(
                        "no tensor core multiplies {a} by {b} with the precision of f32"
                    ))
                }),
            MatmulMath::F64 => Err(Error::not_supported("tensor cores are not used for f64")),
        }
    }

    /// Elements in the 32 bytes that one instruction takes of the depth.
    fn depth(&self) -> i64 {
        32 / self.elements[0].bytes() as i64
    }

    fn parameters(&self, math: MatmulMath) -> Json {
        let integers = math == MatmulMath::I32;
        json!({
            "shape": format!("m16n8k{}", self.depth()),
            "a": self.names[0],
            "b": self.names[1],
            "sum": if integers { "s32" } else { "f32" },
            "sum_type": if integers { "int" } else { "float" },
            "constraint": if integers { "r" } else { "f" },
        })
    }
}

/// Whether an operand must be transposed on its way to shared memory: words of single bytes can
/// not be put together when they are read.
fn transposes(of: &Operand, element: DType) -> bool {
    element.bytes() == 1 && !of.depth_packed
}

/// How an operand comes into shared memory.
fn tile(problem: &Problem<'_>, of: &Operand, element: DType) -> Tile {
    let tensor = &problem.graph.tensors[of.tensor];
    let vector = if transposes(of, element) { 4 } else { 16 / element.bytes() as i64 };
    let view = of.part.axes.view(tensor);
    let packed = if of.depth_packed { view.column } else { view.row } == 1;
    let access =
        access_of(problem, of.tensor, &view, [of.extent, problem.k], of.depth_packed, vector);
    let copied = of.is_plain()
        && !tensor.by_value
        && tensor.dtype == element
        && packed
        && access >= COPY_BYTES_MIN
        && !transposes(of, element);
    Tile { dtype: element, vector, staged: !copied }
}

/// Steps of the depth are 64 or 128 bytes.
fn depths(problem: &Problem<'_>) -> Vec<i64> {
    let size = Product::of(problem).map_or(2, |product| product.elements[0].bytes() as i64);
    vec![64 / size, 128 / size]
}

fn knobs(problem: &Problem<'_>) -> Vec<Knob> {
    let tile = [16, 32, 64, 128, 256];
    vec![
        Knob { name: "cta_k", about: "depth of a step", values: depths(problem) },
        Knob { name: "cta_m", about: "rows of a block's tile", values: tile.to_vec() },
        Knob { name: "cta_n", about: "columns of a block's tile", values: tile[1..].to_vec() },
        Knob { name: "group", about: "rows of tiles walked together", values: vec![1, 8] },
        split_knob(problem),
        Knob { name: "stages", about: "steps in shared memory", values: vec![2, 3, 4] },
        Knob { name: "warp_m", about: "rows of a warp", values: vec![16, 32, 64] },
        Knob { name: "warp_n", about: "columns of a warp", values: vec![32, 64] },
    ]
}

/// The knob settings and what follows from them.
struct Schedule {
    tiling: Tiling,
    warp_m: i64,
    warp_n: i64,
    stages: i64,
    threads: i64,
    slice_rows: i64,
    shared_bytes: i64,
}

impl Schedule {
    /// # Errors
    /// `NotSupported` for a setting that the device's limits or the problem rule out.
    fn new(
        problem: &Problem<'_>,
        product: &Product,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Schedule> {
        let tiling = Tiling::new(problem, config)?;
        let [warp_m, warp_n, stages] =
            [config.knob("warp_m")?, config.knob("warp_n")?, config.knob("stages")?];
        let warps = tiling.cta_m / warp_m * (tiling.cta_n / warp_n);
        let threads = 32 * warps;
        if threads == 0 || threads > THREADS_MAX {
            return Err(Error::not_supported(format!(
                "{config} takes {threads} threads, a block has 32 to {THREADS_MAX}"
            )));
        }
        let size = product.elements[0].bytes() as i64;
        if size == 4 && !problem.a.depth_packed && tiling.cta_m < 32 {
            return Err(Error::not_supported(format!(
                "{config}: rows of A that lie side by side are read in tiles of at least 32"
            )));
        }
        let tiles = stages * (tiling.cta_m + tiling.cta_n) * tiling.cta_k * size;
        let row_bytes = warps * warp_n * 4;
        let slice_rows = slice_rows(warp_m, 16, row_bytes, tiles);
        let shared_bytes = tiles.max(slice_rows * row_bytes);
        let available = i64::from(target.shared_block_bytes_max);
        if shared_bytes > available {
            return Err(Error::not_supported(format!(
                "{config} needs {shared_bytes} bytes of shared memory, a block has {available}"
            )));
        }
        Ok(Schedule { tiling, warp_m, warp_n, stages, threads, slice_rows, shared_bytes })
    }

    fn work(&self, problem: &Problem<'_>) -> Vec<KernelWork> {
        let Schedule { warp_m, warp_n, stages, threads, shared_bytes, .. } = *self;
        // Sums, two products' fragments, addresses.
        let registers = warp_m * warp_n / 32 + (warp_m + warp_n) / 2 + 40;
        // Clocks of a multiprocessor for one product of every fragment of a warp: 1024
        // multiplications of 16 bits, or 128 bytes of shared memory, take one each. As if neither
        // went on beside the other.
        let (products, reads) = (warp_m * warp_n / 64, (warp_m + warp_n) / 4);
        let efficiency = products as f64 / (products + reads) as f64;
        let operands = match problem.matmul.math {
            MatmulMath::Tf32 => Operands::Tf32,
            MatmulMath::I32 => Operands::Int8,
            _ => Operands::Half,
        };
        let one = TensorWork { operands, operations: 2.0, efficiency };
        let block = Block { threads, registers, shared_bytes, stages: stages - 1 };
        work(problem, &self.tiling, block, Units::Tensor(one))
    }

    fn lowering(
        &self,
        problem: &Problem<'_>,
        product: &Product,
        target: &Target,
    ) -> Result<Lowering> {
        let context = Context::new(problem);
        let operand = |of: &Operand, element: DType, is_a: bool| {
            let transposed = transposes(of, element);
            let packed = if transposed { "true" } else { "DEPTH_PACKED" };
            let own = json!({
                "tile": format!("Swizzled<Element, ROWS, CTA_K, {packed}>"),
                "transposed": transposed,
            });
            merged(context.operand(of, tile(problem, of, element), is_a), own)
        };
        let [a, b] = product.elements;
        let operands = [operand(&problem.a, a, true), operand(&problem.b, b, false)];
        let variant = Variant {
            sm: "sm80",
            name: "mma",
            template: "gemm/sm80_gemm_mma.cu",
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            parameters: json!({
                "mma": product.parameters(problem.matmul.math),
                "mma_k": product.depth(),
                "warp_m": self.warp_m,
                "warp_n": self.warp_n,
                "stages": self.stages,
                "slice_rows": self.slice_rows,
                "staged": operands.iter().any(|operand| operand["staged"] == true),
            }),
            operands,
        };
        lowering(&context, &self.tiling, variant, target.arch)
    }
}

/// The settings expected to run best, and what decided them.
struct Decision {
    cta: [i64; 2],
    warp: [i64; 2],
    cta_k: i64,
    deep: bool,
    stages: i64,
    split_k: i64,
    tiles: i64,
    sm_count: i64,
    steps: i64,
    /// Blocks that a multiprocessor should hold at once.
    blocks: i64,
}

/// Registers of a thread whose warp has 64 x 64 sums: 128 sums, fragments of two products,
/// addresses.
const REGISTERS: i64 = 240;

impl Decision {
    fn of(problem: &Problem<'_>, target: &Target) -> Decision {
        let sm_count = i64::from(target.sm_count);
        let tiles = |candidate: &[i64; 4]| tiles_of(problem, [candidate[0], candidate[1]]);
        // The multiplications of the busiest multiprocessor, as far as a tile is efficient.
        let cost = |(candidate, efficiency): &([i64; 4], f64)| {
            let rounds = ceil_div(tiles(candidate), sm_count) as f64;
            rounds * (candidate[0] * candidate[1]) as f64 / efficiency
        };
        let words = problem.matmul.math == MatmulMath::Tf32 && !problem.a.depth_packed;
        let candidates = CANDIDATES.iter().filter(|(candidate, _)| !words || candidate[0] >= 32);
        let (chosen, _) =
            candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are candidates");
        let [cta_m, cta_n, warp_m, warp_n] = *chosen;
        let depths = depths(problem);
        // Small tiles take deep steps: there is little to do between two barriers. Not so where
        // threads hold the next step in registers, in single words that are transposed.
        let transposed = problem.matmul.math == MatmulMath::I32
            && !(problem.a.depth_packed && problem.b.depth_packed);
        let deep = cta_m * cta_n <= 64 * 64 && !transposed;
        let cta_k = depths[usize::from(deep)];
        let size = 64 / depths[0];
        let warps = cta_m / warp_m * (cta_n / warp_n);
        let blocks = (i64::from(target.registers_sm) / (32 * warps * REGISTERS)).clamp(1, 2);
        let step_bytes = (cta_m + cta_n) * cta_k * size;
        // The system keeps 1 KiB of shared memory per block.
        let shared = i64::from(target.shared_sm_bytes) / blocks - 1024;
        let stages = (shared / step_bytes).clamp(2, 4);
        let (tiles, steps) = (tiles(chosen), ceil_div(problem.k, cta_k));
        let split_k = split_of(tiles, sm_count, steps, SPLIT_STEPS_MIN);
        let (cta, warp) = ([cta_m, cta_n], [warp_m, warp_n]);
        Decision { cta, warp, cta_k, deep, stages, split_k, tiles, sm_count, steps, blocks }
    }

    fn config(&self) -> EngineConfig {
        EngineConfig::new(
            NAME,
            &[
                ("cta_k", self.cta_k),
                ("cta_m", self.cta[0]),
                ("cta_n", self.cta[1]),
                ("group", 8),
                ("split_k", self.split_k),
                ("stages", self.stages),
                ("warp_m", self.warp[0]),
                ("warp_n", self.warp[1]),
            ],
        )
    }

    /// A line for each knob.
    fn reasons(&self) -> Vec<String> {
        let Decision { cta: [cta_m, cta_n], warp: [warp_m, warp_n], cta_k, stages, .. } = self;
        let Decision { split_k, tiles, sm_count, steps, blocks, .. } = self;
        let tile = format!("{tiles} tiles load {sm_count} multiprocessors best");
        let depth = match self.deep {
            true => "a small tile does enough between two barriers only in deep steps",
            false => "enough to do between two barriers, and little to hold on the way there",
        };
        let share = "the share that reads shared memory least for this tile";
        vec![
            format!("cta_k={cta_k}: {depth}"),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            "group=8: blocks that run together share rows of A and columns of B".to_owned(),
            format!("split_k={split_k}: {}", split_reason(*split_k, *tiles, *sm_count, *steps)),
            format!("stages={stages}: up to 4 that fit with {blocks} blocks per multiprocessor"),
            format!("warp_m={warp_m}: {share}"),
            format!("warp_n={warp_n}: {share}"),
        ]
    }
}
