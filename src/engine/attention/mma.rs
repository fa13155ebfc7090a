//! Attention on tensor cores by `mma.sync`, for 16-bit floats from sm_80 (Dao 2023,
//! "FlashAttention-2").

use kiln_sim::Operands;
use serde_json::json;

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, REGISTERS_THREAD_MAX, access_bytes, ceil_div};
use crate::engine::attention::parameters::{self, literal};
use crate::engine::attention::problem::Problem;
use crate::engine::attention::work::{Block, Units, work};
use crate::engine::config::combinations;
use crate::engine::signature::{arguments, ctype, merged};
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, Grid, KernelPlan, KernelSpec, KernelWork, Knob, LaunchPlan,
    Lowering, Notes, NumericalNote, Setting, Supported, TensorWork,
};
use crate::error::{Error, Result};
use crate::graph::{AttentionShape, CanonicalGraph, MatmulMath};
use crate::target::Target;

const NAME: &str = "attention_mma";

/// The names of the knobs.
const KNOBS: [&str; 4] = ["cta_k", "cta_q", "hold_q", "warp_q"];

/// The first architecture with asynchronous copies and these matrix products.
const CAPABILITY_MIN: u16 = 80;

const THREADS_MAX: i64 = 256;

/// Queries and keys of one matrix product.
const BAND: i64 = 16;

/// Registers for addresses, bounds and fragments on their way.
const REGISTERS_OTHER: i64 = 60;

/// Tiles in the order in which they are tried: queries of a block, of a warp, keys of a step.
/// Larger ones read keys and values less often; these leave no register to memory.
type Tiles = [[i64; 3]; 4];

/// For heads of up to so many elements.
const TILES: [(i64, Tiles); 3] = [
    (64, [[128, 32, 64], [64, 16, 64], [32, 16, 64], [16, 16, 64]]),
    (128, [[128, 16, 64], [64, 16, 64], [32, 16, 64], [16, 16, 64]]),
    (256, TILES_HEAVY),
];

/// Where every score takes registers of its own, for what it is modified by or for dropout.
const TILES_HEAVY: Tiles = [[128, 16, 32], [64, 16, 32], [32, 16, 32], [16, 16, 32]];

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct MmaEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Mma<'a> {
    problem: Problem<'a>,
    target: &'a Target,
    element: DType,
}

impl Engine for MmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let capability = target.arch.capability;
        let unsupported = |text: String| Err(Error::not_supported(text));
        if capability < CAPABILITY_MIN {
            return unsupported(format!("sm_{capability} is older than sm_{CAPABILITY_MIN}"));
        }
        let problem = Problem::of(graph, capability)?;
        if problem.op.math == MatmulMath::F64 {
            return unsupported("tensor cores are not used for f64".to_owned());
        }
        let element = problem.tensor("q").dtype;
        let types = ["q", "k", "v"].map(|slot| problem.tensor(slot).dtype);
        if element.bytes() != 2 || types != [element; 3] {
            let [q, k, v] = types;
            return unsupported(format!(
                "q is {q}, k is {k} and v is {v}: tensor cores take f16 or bf16 for all of them"
            ));
        }
        let mma = Mma { problem, target, element };
        mma.schedule(Settings::of_tile(mma.tiles()[3]))?;
        Ok(Box::new(mma))
    }
}

impl Mma<'_> {
    fn all_knobs(&self) -> [Knob; 4] {
        let keys = "keys of a step; changes the order of sums";
        [
            Knob { name: "cta_k", about: keys, values: vec![32, 64, 128] },
            Knob { name: "cta_q", about: "queries of a block", values: vec![16, 32, 64, 128] },
            Knob { name: "hold_q", about: "queries stay in registers", values: vec![0, 1] },
            Knob { name: "warp_q", about: "queries of a warp", values: vec![16, 32] },
        ]
    }

    /// The tiles to choose from.
    fn tiles(&self) -> Tiles {
        if self.problem.score.reads_tensors() || self.problem.op.dropout.is_some() {
            return TILES_HEAVY;
        }
        let elements = self.problem.shape.depth.max(self.problem.shape.width);
        let found = TILES.iter().find(|(most, _)| elements <= *most);
        found.expect("the number of elements is limited").1
    }

    /// The largest tile that fits, has queries for more than half of it, and leaves no
    /// multiprocessor idle.
    fn best(&self) -> Settings {
        let Problem { shape, .. } = &self.problem;
        let legal = |settings: &Settings| self.schedule(*settings).is_ok();
        let all: Vec<Settings> =
            self.tiles().into_iter().map(Settings::of_tile).filter(legal).collect();
        let good = |settings: &&Settings| {
            let busy = self.problem.blocks(settings.cta_q) >= i64::from(self.target.sm_count);
            busy && settings.cta_q / 2 < shape.queries
        };
        *all.iter().find(good).or(all.last()).expect("the least tile fits")
    }

    /// # Errors
    /// `NotSupported` where the device's limits rule the settings out.
    fn schedule(&self, settings: Settings) -> Result<Schedule> {
        let Problem { shape, .. } = &self.problem;
        let config = settings.config();
        let fail = |text: String| Err(Error::not_supported(format!("{config} {text}")));
        let Settings { cta_k, cta_q, warp_q, .. } = settings;
        let threads = cta_q / warp_q * 32;
        if threads == 0 || threads > THREADS_MAX {
            return fail(format!("takes {threads} threads, a block has 32 to {THREADS_MAX}"));
        }
        let tile = |rows: i64, elements: i64| rows * line_elements(elements) * 2;
        let queries = tile(cta_q, shape.depth.max(shape.width));
        let shared_bytes = queries + 2 * tile(cta_k, shape.depth) + tile(cta_k, shape.width);
        let available = i64::from(self.target.shared_block_bytes_max);
        if shared_bytes > available {
            return fail(format!(
                "needs {shared_bytes} bytes of shared memory, a block has {available}"
            ));
        }
        let registers = settings.registers(shape);
        if registers > REGISTERS_THREAD_MAX {
            return fail(format!(
                "needs about {registers} registers, a thread has {REGISTERS_THREAD_MAX}"
            ));
        }
        let blocks = self.problem.blocks(cta_q);
        if blocks > GRID_MAX {
            return fail(format!("needs {blocks} blocks, more than a grid has"));
        }
        Ok(Schedule { settings, threads, registers, shared_bytes, blocks })
    }

    fn lowering(&self, settings: Settings) -> Result<Lowering> {
        let problem = &self.problem;
        let Schedule { threads, shared_bytes, blocks, .. } = self.schedule(settings)?;
        let arch = self.target.arch;
        let stem = format!("sm80_attention_{}_mma", problem.tensor("o").dtype);
        let entry = "attention";
        let Settings { cta_k, cta_q, hold_q, warp_q } = settings;
        let scale = problem.op.scale_of(problem.shape.depth);
        // Greatest scores are those of greatest products only where the factor is positive.
        let modified = problem.score.is_modified() || scale <= 0.0;
        let natural = if modified { 1.0 } else { scale };
        let o = problem.tensor("o");
        let own = json!({
            "stem": stem,
            "entry": entry,
            "arch": arch.to_string(),
            "element": ctype(self.element),
            "mma": {
                "shape": "m16n8k16",
                "a": self.element.name(),
                "b": self.element.name(),
                "sum": "f32",
                "sum_type": "float",
                "constraint": "f",
            },
            "transposes": false,
            "modified": modified,
            "binary": literal(problem, natural * std::f64::consts::LOG2_E),
            "natural": literal(problem, natural),
            "q_access": self.access("q"),
            "k_access": self.access("k"),
            "v_access": self.access("v"),
            "o_access": self.access("o"),
            "staged_o": o.dtype.bytes() == 2,
            "cta_q": cta_q,
            "cta_k": cta_k,
            "warp_q": warp_q,
            "hold_q": hold_q == 1,
        });
        let passed: Vec<usize> = problem.passed().map(|(_, at)| at).collect();
        Ok(Lowering::from(KernelPlan {
            spec: KernelSpec {
                stem,
                template: "attention/sm80_attention_mma.cu",
                entry,
                arch,
                parameters: merged(parameters::shared(problem), own),
            },
            launch: LaunchPlan {
                grid: Grid::Fixed(if problem.is_empty() { 0 } else { blocks as u32 }),
                threads: threads as u32,
                shared_bytes: shared_bytes as u32,
                cooperative: false,
                arguments: arguments(problem.graph, passed.iter()),
                maps: Vec::new(),
                numbers: Vec::new(),
            },
        }))
    }

    /// Bytes of one access to the tensor of a slot, 8 elements at a time.
    fn access(&self, slot: &str) -> i64 {
        let tensor = self.problem.tensor(slot);
        match tensor.strides[3] == 1 || tensor.dims[3] == 1 {
            true => access_bytes(tensor, &tensor.strides[..3], &tensor.dims[..3], 8),
            false => tensor.dtype.bytes() as i64,
        }
    }
}

/// Elements of a line of a tile in shared memory: whole products, whole panels of 64.
fn line_elements(elements: i64) -> i64 {
    match elements {
        0..=16 => 16,
        17..=32 => 32,
        _ => ceil_div(elements, 64) * 64,
    }
}

impl Supported for Mma<'_> {
    fn knobs(&self) -> Vec<Knob> {
        self.all_knobs().to_vec()
    }

    fn heuristic(&self) -> EngineConfig {
        self.best().config()
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { cta_k, cta_q, hold_q, warp_q } = self.best();
        let (blocks, sm_count) = (self.problem.blocks(cta_q), self.target.sm_count);
        let AttentionShape { depth, width, .. } = self.problem.shape;
        let heavy = if self.tiles() == TILES_HEAVY { " and what else a score takes" } else { "" };
        let elements = format!("heads of {depth} and {width} elements{heavy}");
        vec![
            format!("cta_k={cta_k}: scores and results of {elements} fit in registers"),
            format!("cta_q={cta_q}: {blocks} blocks for {sm_count} multiprocessors"),
            format!("hold_q={hold_q}: shared memory has the queries, registers the results"),
            format!("warp_q={warp_q}: {elements} leave registers for so many rows"),
        ]
    }

    fn settings(&self) -> Vec<Setting> {
        let setting = |settings: Settings| {
            let schedule = self.schedule(settings).ok()?;
            Some(Setting { config: settings.config(), work: vec![schedule.work(&self.problem)] })
        };
        combinations(&self.all_knobs()).map(Settings::from).filter_map(setting).collect()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        let set = |knob: &str, value: i64| config.clone().with(knob, value);
        let candidates = [
            set("hold_q", 0),
            set("warp_q", 16).with("cta_q", config.knob("cta_q").ok()?.min(128)),
            set("cta_k", config.knob("cta_k").ok()? / 2),
        ];
        let legal = |smaller: &EngineConfig| {
            let known = smaller != config && smaller.validate(&self.all_knobs()).is_ok();
            known && Settings::of(smaller).is_ok_and(|of| self.schedule(of).is_ok())
        };
        candidates.into_iter().find(legal)
    }

    fn notes(&self, _config: &EngineConfig) -> Notes {
        let behavior = vec![BehaviorNote::RuntimeCompilation];
        Notes { numerical: vec![NumericalNote::TensorCore], behavior }
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        config.validate(&self.all_knobs())?;
        self.lowering(Settings::of(config)?)
    }
}

/// A value for each knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Settings {
    cta_k: i64,
    cta_q: i64,
    hold_q: i64,
    warp_q: i64,
}

impl From<[i64; 4]> for Settings {
    /// From values in the order of [`KNOBS`].
    fn from([cta_k, cta_q, hold_q, warp_q]: [i64; 4]) -> Settings {
        Settings { cta_k, cta_q, hold_q, warp_q }
    }
}

impl Settings {
    fn of_tile([cta_q, warp_q, cta_k]: [i64; 3]) -> Settings {
        Settings { cta_k, cta_q, hold_q: 0, warp_q }
    }

    fn of(config: &EngineConfig) -> Result<Settings> {
        config.values(KNOBS).map(Settings::from)
    }

    fn config(self) -> EngineConfig {
        let Settings { cta_k, cta_q, hold_q, warp_q } = self;
        EngineConfig::of_values(NAME, KNOBS, [cta_k, cta_q, hold_q, warp_q])
    }

    /// Registers of a thread, estimated: results, scores, weights of a product, queries.
    fn registers(self, shape: &AttentionShape) -> i64 {
        let bands = self.warp_q / BAND;
        let held = self.hold_q * ceil_div(shape.depth, BAND) * 4;
        let sums = (ceil_div(shape.width, BAND) * BAND + self.cta_k) / 2;
        bands * (sums + held) + REGISTERS_OTHER
    }
}

/// Settings that fit, and what follows from them.
struct Schedule {
    settings: Settings,
    threads: i64,
    registers: i64,
    shared_bytes: i64,
    blocks: i64,
}

impl Schedule {
    fn work(&self, problem: &Problem<'_>) -> KernelWork {
        let Schedule { settings, threads, registers, shared_bytes, .. } = *self;
        let Settings { cta_k, cta_q, hold_q, warp_q } = settings;
        // Clocks of a multiprocessor for the products of a warp with 16 keys, 16 deep: 1024
        // multiplications, or 128 bytes of shared memory, take one each.
        let products = (warp_q * BAND * BAND) as f64 / 1024.0;
        let of_q = if hold_q == 1 { 0 } else { warp_q * BAND / cta_k * BAND };
        let reads = ((BAND * BAND + of_q) * 2) as f64 / 128.0;
        let efficiency = products / (products + reads);
        let tensor = TensorWork { operands: Operands::Half, operations: 2.0, efficiency };
        let block = Block { cta_q, cta_k, threads, registers, shared_bytes, stages: 2 };
        work(problem, block, Units::Tensor(tensor))
    }
}
