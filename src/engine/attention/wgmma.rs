//! Attention on Hopper's tensor cores: a producer warp loads Q, K and V by TMA, and consumer
//! warpgroups overlap the softmax of one tile with the `wgmma` of others (Shah et al. 2024,
//! "FlashAttention-3").

use std::collections::BTreeSet;

use kiln_machine::Operands;
use kiln_sass::TileOrder;
use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::attention::parameters::{
    AttentionParameters, ProblemParameters, attention_parameters, problem_parameters,
};
use crate::engine::attention::schedule::{MMA_M, Matrices, SoftmaxParameters};
use crate::engine::attention::tile_order::tile_order;
use crate::engine::attention::tma_operand::TmaOperand;
use crate::engine::attention::turns::{TileTurns, Turns, takes_turns};
use crate::engine::attention::work::{Block, GAIN_MIN, MathPath, instructions_score, work};
use crate::engine::instruction::{
    WARPGROUP, WGMMA_M, WgmmaInstruction, WgmmaParameters, cycles, expect_wgmma,
};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{
    BehaviorNote, Engine, KernelWork, Knob, Notes, NumericalNote, Supported, TensorWork,
};
use crate::error::{Error, Result};
use crate::graph::{AttentionShape, CanonicalGraph};
use crate::kernel::{Argument, Grid, Lowering};
use crate::target::Target;

const NAME: &str = "attention_wgmma";

/// FP32 lanes per SM.
const LANES: f64 = 128.0;

/// Registers for addresses and bounds: with fewer, the assembler spills.
const REGISTERS_OTHER: i64 = 32;

/// Registers for a block's place among sequences of different numbers of tiles.
const REGISTERS_TURNS: i64 = 8;

/// Registers for a score program.
const REGISTERS_MODIFIED: i64 = 32;

/// Maximum head dimension: O of larger heads exceeds the registers of a warpgroup.
const ELEMENTS_MAX: i64 = 256;

/// Values of `cta_k` in the order in which they are tried.
const KEYS: [i64; 7] = [128, 112, 96, 80, 64, 32, 16];

/// Larger values, for keys that all queries attend to: of others, tiles on the band are masked.
const KEYS_WIDE: [i64; 3] = [176, 160, 144];

/// Keys that take as long as what a kv step does besides: waits, barriers, row statistics.
const KEYS_STEP: i64 = 24;

/// Minimum `cta_k` for which smaller alternatives are tried.
const KEYS_MIN: i64 = 64;

/// Maximum `cta_k` with dropout: a lane holds a quarter of a row, one bit per key.
const DRAWN_KEYS_MAX: i64 = 128;

/// Rows per swizzle atom.
const PATTERN_LINES: i64 = 8;

/// Columns of O up to which a single MMA is used.
const PRODUCT_WIDTH: i64 = 128;

/// Minimum number of queries: below, warpgroup tiles are mostly padding.
const QUERIES_MIN: i64 = WGMMA_M;

/// Lanes of the converter warps.
const CONVERTER_LANES: f64 = 96.0;

/// Instructions per converted element: 16 take 8 conversions, 4 shifts, 3 accesses and addresses;
/// those to bf16 go through f32, 3 more per pair.
const CONVERSION_F16: f64 = 1.5;
const CONVERSION_BF16: f64 = 3.0;

/// The settings with the lowest requirements.
const LEAST: Settings = Settings { cta_k: 16, cta_q: WGMMA_M, stages: 2 };

/// The engine `attention_wgmma`: FlashAttention-3 on Hopper's `wgmma`, fed by TMA.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct WgmmaEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Wgmma<'a> {
    matrices: Matrices<'a>,
    q: TmaOperand,
    k: TmaOperand,
    v: TmaOperand,
}

/// Everything derived from legal settings.
struct Schedule {
    settings: Settings,
    /// Keys per TMA box.
    box_k: i64,
    shared_bytes: i64,
    tiles: i64,
}

impl Engine for WgmmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        expect_wgmma(target.arch)?;
        let matrices = Matrices::of(graph, target)?;
        if matrices.is_tf32() {
            return Err(Error::not_supported("warpgroups do not read values of tf32 transposed"));
        }
        let AttentionShape { depth, width, .. } = matrices.problem.shape;
        if depth.max(width) > ELEMENTS_MAX {
            return Err(Error::not_supported(format!(
                "heads of {depth} and {width} elements, more than {ELEMENTS_MAX}"
            )));
        }
        let [q, k, v] = ["q", "k", "v"].map(|slot| TmaOperand::of(&matrices.problem, slot));
        let wgmma = Wgmma { q: q?, k: k?, v: v?, matrices };
        Ok(Box::new(Tuned::of(wgmma, [LEAST])?))
    }
}

impl Wgmma<'_> {
    fn shape(&self) -> &AttentionShape {
        &self.matrices.problem.shape
    }

    /// Whether a tile's key range depends on data.
    fn has_bounds(&self) -> bool {
        self.matrices.problem.has_lengths() || self.matrices.problem.op.intervals
    }

    /// Whether there are converter warps for 8-bit operands.
    fn converts(&self) -> bool {
        [&self.q, &self.k, &self.v].iter().any(|operand| operand.fp8_bytes > 0)
    }

    /// Whether a tile of keys may contain keys that are masked for all queries.
    fn clears(&self) -> bool {
        let band = self.matrices.problem.op.band;
        self.has_bounds() || band.left.or(band.right).is_some()
    }

    /// Legal tiles, best first: more queries read K and V less often. Three warpgroups leave enough
    /// registers for small heads only.
    fn tiles(&self) -> Vec<Settings> {
        let AttentionShape { depth, width, .. } = *self.shape();
        let groups = if depth.max(width) <= 64 { 3 } else { 2 };
        let largest = |groups: i64| {
            let settings = |cta_k: i64| Settings { cta_k, cta_q: groups * WGMMA_M, stages: 2 };
            let legal = |settings: &Settings| self.schedule(*settings).is_ok();
            let largest = KEYS.map(settings).into_iter().find(legal)?;
            let wide = KEYS_WIDE.map(settings).into_iter().filter(|of| !self.clears() && legal(of));
            wide.chain([largest]).min_by_key(|of| self.keys_taken(of.cta_k))
        };
        // One warpgroup fewer with twice `cta_k` is the better tile: every tile of keys waits for
        // its MMAs.
        let mut tiles: Vec<Settings> = (1..=groups).rev().filter_map(largest).collect();
        while let [first, second, ..] = tiles[..]
            && 2 * first.cta_k <= second.cta_k
        {
            tiles.remove(0);
        }
        tiles
    }

    /// How blocks take turns at tiles.
    fn turns(&self, settings: Settings) -> TileTurns {
        let Settings { cta_k, cta_q, .. } = settings;
        TileTurns::of(&self.matrices.problem, self.matrices.target, [cta_q, cta_k])
    }

    /// What all kv steps of a tile take, in keys.
    fn keys_taken(&self, cta_k: i64) -> i64 {
        ceil_div(self.shape().keys, cta_k) * (cta_k + KEYS_STEP)
    }

    /// Registers of a producer and of a consumer thread after `setmaxnreg`; multiples of 8 that add
    /// up to those of the launch.
    fn registers(&self, settings: Settings) -> [i64; 2] {
        match settings.consumers() {
            1 => [REGISTERS_THREAD_MAX; 2],
            2 if self.has_bounds() || self.converts() || takes_turns(&self.matrices.problem) => {
                [40, 232]
            }
            2 => [24, 240],
            _ => [32, 160],
        }
    }

    /// Estimated registers of a consumer thread: O; S, and P at half the size; what a score program
    /// and turns at ragged sequences keep; others.
    fn registers_needed(&self, settings: Settings) -> i64 {
        let problem = &self.matrices.problem;
        let accumulators = ceil_div(self.shape().width, MMA_M) * MMA_M / 2;
        let of_scores = match problem.score.reads_tensors() {
            true => 4 * settings.cta_k,
            false if problem.is_modified() => settings.cta_k + REGISTERS_MODIFIED,
            false => ceil_div(3 * settings.cta_k, 4),
        };
        let of_turns = if problem.op.queries_max.is_some() { REGISTERS_TURNS } else { 0 };
        accumulators + of_scores + of_turns + REGISTERS_OTHER
    }

    fn parameters(&self, schedule: &Schedule, passed: &[(&'static str, usize)]) -> Parameters {
        let Schedule { settings, box_k, shared_bytes, .. } = *schedule;
        let Settings { cta_k, cta_q, stages } = settings;
        let [producer_registers, consumer_registers] = self.registers(settings);
        let (problem, element) = (&self.matrices.problem, self.matrices.element);
        let product = |[n, k]: [i64; 2], a_in_registers: bool, b_k_major: bool| {
            let instruction = WgmmaInstruction {
                n,
                bytes: element.bytes() as i64,
                operands: [element.name(); 2],
                a_in_registers,
                k_major: [true, b_k_major],
                steps: ceil_div(k, MMA_M),
            };
            instruction.parameters()
        };
        let AttentionShape { depth, width, .. } = *self.shape();
        let product_width = product_width(width);
        let (attention, functions) = attention_parameters(problem, self.matrices.target, false);
        let mut parameters = problem_parameters(problem, passed, false, functions);
        parameters.takes_turns = takes_turns(problem);
        let k_batch = if problem.op.paged { "page" } else { parameters.sequence.k_batch };
        let operand = |of: &TmaOperand, name, title, tile, fp8| SteppedOperand {
            name,
            title,
            tile,
            fp8: (of.fp8_bytes > 0).then_some(fp8),
            coordinates: of.arguments("head / GQA_GROUP", k_batch),
        };
        Parameters {
            q_coordinates: self.q.arguments("head", parameters.sequence.q_batch),
            stepped: [
                operand(&self.k, "k", "keys", "TileK", "Fp8K"),
                operand(&self.v, "v", "values", "TileV", "Fp8V"),
            ],
            problem: parameters,
            attention,
            softmax: self.matrices.softmax_parameters(1, 1),
            fp8_q: self.matrices.narrow_type("q"),
            fp8_k: self.matrices.narrow_type("k"),
            fp8_v: self.matrices.narrow_type("v"),
            products: [
                product([cta_k, depth], false, true),
                product([product_width, cta_k], true, false),
            ],
            product_width,
            loaded_ranks: [&self.q, &self.k, &self.v].map(|of| of.tensor.rank()).into(),
            stored_ranks: [],
            cluster: 1,
            ping_pong: false,
            cta_q,
            cta_k,
            stages,
            box_k,
            clears: self.clears(),
            consumers: settings.consumers(),
            producer_registers,
            consumer_registers,
            shared_bytes,
        }
    }

    /// Fraction of tensor core peak. An m64 MMA reads its operands from shared memory at 128 bytes
    /// per cycle, and TMA writes them there. A single warpgroup leaves the tensor cores idle where
    /// its softmax takes longer than P V.
    fn efficiency(&self, settings: Settings) -> f64 {
        let Settings { cta_k, .. } = settings;
        let AttentionShape { depth, width, .. } = *self.shape();
        let consumers = settings.consumers() as f64;
        let steps = |extent: i64| ceil_div(extent, MMA_M) as f64;
        let of_scores = steps(depth) * cycles([WGMMA_M, cta_k]);
        let of_results = steps(cta_k) * cycles([WGMMA_M, width]);
        let products = consumers * (of_scores + of_results);
        let read = steps(depth) * (WGMMA_M + cta_k) as f64 + steps(cta_k) * width as f64;
        let written = steps(cta_k) * (depth + width) as f64;
        let shared = (consumers * read + written) * 32.0 / 128.0;
        let softmax = (WGMMA_M * cta_k) as f64 * instructions_score(&self.matrices.problem) / LANES;
        let idle = if consumers == 1.0 { (softmax - of_results).max(0.0) } else { 0.0 };
        products / (products + idle).max(shared).max(self.conversion_cycles(cta_k))
    }
}

impl Wgmma<'_> {
    /// Cycles in which three warps convert K and V of a tile.
    fn conversion_cycles(&self, cta_k: i64) -> f64 {
        let each = match self.matrices.element {
            DType::F16 => CONVERSION_F16,
            _ => CONVERSION_BF16,
        };
        (cta_k * (self.k.fp8_bytes + self.v.fp8_bytes)) as f64 * each / CONVERTER_LANES
    }
}

impl Tunable<3> for Wgmma<'_> {
    const KNOBS: [&'static str; 3] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Schedule;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 3] {
        let keys = "keys of a kv step; changes the order of sums";
        let queries = "queries of a tile, 64 per consumer warpgroup";
        [
            Knob {
                name: "cta_k",
                about: keys,
                values: vec![16, 32, 64, 80, 96, 112, 128, 144, 160, 176],
            },
            Knob { name: "cta_q", about: queries, values: vec![64, 128, 192] },
            Knob {
                name: "stages",
                about: "pipeline stages in shared memory",
                values: vec![2, 3, 4],
            },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        let Settings { cta_k, stages, .. } = settings;
        if self.matrices.problem.op.dropout.is_some() && cta_k > DRAWN_KEYS_MAX {
            return Err(format!("draws dropout bits of {cta_k} keys, a word has {DRAWN_KEYS_MAX}"));
        }
        let shape = self.shape();
        let consumers = settings.consumers();
        let panels = |elements: i64| ceil_div(elements, 64) * 128;
        let fp8 = [(&self.q, consumers), (&self.k, stages), (&self.v, stages)];
        let of_fp8 = fp8.map(|(operand, count)| if operand.fp8_bytes > 0 { 2 * count } else { 0 });
        let barriers = consumers * 2
            + stages * 4
            + if consumers > 1 { consumers } else { 0 }
            + i64::from(self.clears() && self.v.fp8_bytes == 0)
            + of_fp8.iter().sum::<i64>();
        let shared_bytes = consumers * WGMMA_M * (panels(shape.depth) + self.q.fp8_bytes)
            + stages * cta_k * (panels(shape.depth) + panels(shape.width))
            + stages * cta_k * (self.k.fp8_bytes + self.v.fp8_bytes)
            + barriers * 8;
        let available = i64::from(self.matrices.target.shared_block_bytes_max);
        if shared_bytes > available {
            return Err(format!(
                "needs {shared_bytes} bytes of shared memory, a block has {available}"
            ));
        }
        let ([_, available], needed) = (self.registers(settings), self.registers_needed(settings));
        if needed > available {
            return Err(format!("needs about {needed} registers, a thread has {available}"));
        }
        let box_k = match self.matrices.problem.op.paged {
            true => common_divisor(self.matrices.problem.tensor("k").dims[2], cta_k),
            false => cta_k,
        };
        if box_k % PATTERN_LINES != 0 {
            return Err(format!(
                "copies {box_k} keys at once, which {PATTERN_LINES} do not divide"
            ));
        }
        let tiles = self.matrices.problem.blocks(settings.cta_q);
        // Pairs of tiles are counted in 32 bits, of odd numbers one more.
        if tiles > GRID_MAX / 2 {
            return Err(format!("needs {tiles} tiles, more than blocks count"));
        }
        Ok(Schedule { settings, box_k, shared_bytes, tiles })
    }

    /// The largest legal tile that is more than half full and leaves no SM idle; another where the
    /// cost model predicts a clear gain.
    fn best(&self) -> Settings {
        let all = self.tiles();
        let good = |settings: &&Settings| {
            let tiles = self.matrices.problem.blocks(settings.cta_q);
            let busy = tiles >= i64::from(self.matrices.target.sm_count);
            busy && settings.cta_q / 2 < self.shape().queries
        };
        let rule = *all.iter().find(good).or(all.last()).unwrap_or(&LEAST);
        let others = all.iter().flat_map(|tile| {
            let keys = KEYS.into_iter().filter(|keys| (KEYS_MIN..=tile.cta_k).contains(keys));
            let of = |cta_k: i64| [2, 3, 4].map(|stages| Settings { cta_k, stages, ..*tile });
            keys.chain([tile.cta_k]).flat_map(of)
        });
        self.cheapest(self.matrices.target, rule, others)
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { cta_k, cta_q, stages } = self.best();
        let tiles = self.matrices.problem.blocks(cta_q);
        let AttentionShape { depth, width, .. } = self.shape();
        let sm_count = self.matrices.target.sm_count;
        vec![
            format!(
                "cta_k={cta_k}: S, P and O of heads of {depth} and {width} elements fit in \
                 registers"
            ),
            format!("cta_q={cta_q}: {tiles} tiles for {sm_count} SMs"),
            format!("stages={stages}: keys and values of a step come while others are multiplied"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let keys = KEYS.into_iter().filter(|keys| *keys < settings.cta_k);
        keys.map(|cta_k| Settings { cta_k, ..settings }).collect()
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, _settings: Settings) -> Notes {
        let behavior = vec![BehaviorNote::RuntimeCompilation];
        Notes { numerical: vec![NumericalNote::TensorCore], behavior }
    }

    fn pays(&self) -> bool {
        self.shape().queries >= QUERIES_MIN
    }

    fn tile_order(&self, schedule: &Schedule) -> Option<TileOrder> {
        let Settings { cta_k, cta_q, .. } = schedule.settings;
        let Matrices { problem, target, .. } = &self.matrices;
        let turns = self.turns(schedule.settings);
        // Turns are listed for one block of each SM; a single warpgroup leaves room for more.
        let is_listed = turns.turns == Turns::Straight || schedule.settings.consumers() > 1;
        is_listed.then(|| tile_order(problem, target, [cta_q, cta_k], false, Some(turns)))?
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        let Schedule { settings, shared_bytes, tiles, .. } = *schedule;
        let Settings { cta_k, cta_q, stages } = settings;
        let threads = settings.threads();
        let efficiency = self.efficiency(settings);
        let tensor =
            TensorWork { operands: Operands::Half, operations: 2.0, efficiency, block_clocks: 0.0 };
        let block = Block {
            cta_q,
            cta_k,
            pack: 1,
            blocks: tiles,
            threads,
            registers: (REGISTERS_SM / threads / 8 * 8).min(REGISTERS_THREAD_MAX),
            shared_bytes,
            stages: 2 * (stages - 1),
        };
        vec![work(&self.matrices.problem, block, MathPath::Tensor(tensor))]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let Schedule { settings, box_k, shared_bytes, .. } = *schedule;
        let mut passed: Vec<_> = self.matrices.problem.passed().collect();
        passed.retain(|(slot, _)| !["q", "k", "v"].contains(slot));
        let names = self.matrices.names("sm90", "wgmma", "attention/sm90_attention_wgmma.cu");
        let parameters = self.parameters(schedule, &passed);
        let mut kernel = self.matrices.kernel(names, &parameters, &passed);
        let launch = &mut kernel.launch;
        launch.maps = [(&self.q, WGMMA_M), (&self.k, box_k), (&self.v, box_k)]
            .map(|(of, rows)| of.map(rows))
            .to_vec();
        launch.arguments.splice(0..0, [0, 1, 2].map(Argument::Map));
        let turns = self.turns(settings);
        launch.numbers.extend(takes_turns(&self.matrices.problem).then_some(turns.turns as i64));
        let blocks_max = (turns.blocks_max() as u32).into();
        launch.grid = Grid::Resident { blocks_max, multiple_of: 1 };
        launch.threads = settings.threads() as u32;
        launch.shared_bytes = shared_bytes as u32;
        Lowering::from(kernel)
    }
}

settings! { struct Settings { cta_k, cta_q, stages } }

#[derive(Serialize)]
struct Parameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    attention: AttentionParameters,
    #[serde(flatten)]
    softmax: SoftmaxParameters,
    /// Types of 8-bit operands.
    fp8_q: Option<&'static str>,
    fp8_k: Option<&'static str>,
    fp8_v: Option<&'static str>,
    /// `Q K^T` and `P V`.
    products: [WgmmaParameters; 2],
    /// Columns of O per MMA.
    product_width: i64,
    /// Ranks of tensors that TMA loads, and stores.
    loaded_ranks: BTreeSet<usize>,
    stored_ranks: [usize; 0],
    cluster: i64,
    ping_pong: bool,
    cta_q: i64,
    cta_k: i64,
    stages: i64,
    /// Keys per TMA box.
    box_k: i64,
    /// Coordinates of boxes of Q after that of the row.
    q_coordinates: String,
    /// K and V, of which each step loads a tile.
    stepped: [SteppedOperand; 2],
    /// Whether a tile of keys may contain keys that are masked for all queries.
    clears: bool,
    /// Consumer warpgroups.
    consumers: i64,
    /// Registers of a thread.
    producer_registers: i64,
    consumer_registers: i64,
    shared_bytes: i64,
}

#[derive(Serialize)]
struct SteppedOperand {
    name: &'static str,
    title: &'static str,
    tile: &'static str,
    /// The staging of 8-bit elements.
    fp8: Option<&'static str>,
    /// Coordinates of boxes after that of the row.
    coordinates: String,
}

impl Settings {
    /// Consumer warpgroups.
    fn consumers(self) -> i64 {
        self.cta_q / WGMMA_M
    }

    /// Threads per block, including the producer warpgroup.
    fn threads(self) -> i64 {
        (self.consumers() + 1) * WARPGROUP
    }
}

/// Columns of O per MMA. Two MMAs of half the width take as long as one, and the assembler
/// allocates their accumulators faster.
fn product_width(width: i64) -> i64 {
    let all = ceil_div(width, MMA_M) * MMA_M;
    if all % PRODUCT_WIDTH == 0 { PRODUCT_WIDTH } else { all }
}

fn common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
