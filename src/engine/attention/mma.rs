//! Attention on tensor cores by `mma.sync`, for 16-bit floats from sm_80 (Dao 2023,
//! "FlashAttention-2").

use crate::engine::attention::problem::Problem;
use crate::engine::attention::schedule::{Matrices, Schedule, Tiling};
use crate::engine::config::combinations;
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, Knob, Lowering, Notes, NumericalNote, Setting, Supported,
};
use crate::error::{Error, Result};
use crate::graph::{AttentionShape, CanonicalGraph};
use crate::target::Target;

const NAME: &str = "attention_mma";

/// The names of the knobs.
const KNOBS: [&str; 4] = ["cta_k", "cta_q", "hold_q", "warp_q"];

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
struct Mma<'a>(Matrices<'a>);

impl Engine for MmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let mma = Mma(Matrices::of(graph, target)?);
        mma.schedule(Settings::of_tile(mma.tiles()[3]))?;
        Ok(Box::new(mma))
    }
}

impl Mma<'_> {
    fn all_knobs(&self) -> [Knob; 4] {
        let keys = "keys of a step; changes the order of sums";
        [
            Knob { name: "cta_k", about: keys, values: vec![16, 32, 64, 128] },
            Knob { name: "cta_q", about: "queries of a block", values: vec![16, 32, 64, 128] },
            Knob { name: "hold_q", about: "queries stay in registers", values: vec![0, 1] },
            Knob { name: "warp_q", about: "queries of a warp", values: vec![16, 32] },
        ]
    }

    /// Whether every score takes registers of its own.
    fn is_heavy(&self) -> bool {
        let Problem { op, score, .. } = &self.0.problem;
        score.reads_tensors() || op.dropout.is_some()
    }

    /// The tiles to choose from.
    fn tiles(&self) -> Tiles {
        let Problem { shape, score, .. } = &self.0.problem;
        let wide = shape.depth.max(shape.width) > 128;
        match self.is_heavy() {
            true if wide => return TILES_HEAVY.map(|[cta_q, warp_q, _]| [cta_q, warp_q, 16]),
            true => return TILES_HEAVY,
            false => {}
        }
        // Lines of a program take registers, too.
        let least = if score.is_modified() { 65 } else { 0 };
        let elements = shape.depth.max(shape.width).max(least);
        let found = TILES.iter().find(|(most, _)| elements <= *most);
        found.expect("the number of elements is limited").1
    }

    /// The largest tile that fits, has queries for more than half of it, and leaves no
    /// multiprocessor idle.
    fn best(&self) -> Settings {
        let legal = |settings: &Settings| self.schedule(*settings).is_ok();
        let all: Vec<Settings> =
            self.tiles().into_iter().map(Settings::of_tile).filter(legal).collect();
        let good = |settings: &&Settings| {
            let blocks = self.0.blocks(&settings.tiling());
            let busy = blocks >= i64::from(self.0.target.sm_count);
            busy && settings.cta_q / 2 < self.0.problem.shape.queries
        };
        *all.iter().find(good).or(all.last()).expect("the least tile fits")
    }

    /// # Errors
    /// `NotSupported` where the device's limits rule the settings out.
    fn schedule(&self, settings: Settings) -> Result<Schedule> {
        let refused =
            |rule: String| Err(Error::not_supported(format!("{} {rule}", settings.config())));
        self.0.schedule(settings.tiling()).or_else(refused)
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
        let settings = self.best();
        let Settings { cta_k, cta_q, hold_q, warp_q } = settings;
        let (blocks, sm_count) = (self.0.blocks(&settings.tiling()), self.0.target.sm_count);
        let AttentionShape { depth, width, .. } = self.0.problem.shape;
        let heavy = if self.is_heavy() { " and what else a score takes" } else { "" };
        let elements = format!("heads of {depth} and {width} elements{heavy}");
        vec![
            format!("cta_k={cta_k}: scores and results of {elements} fit in registers"),
            format!("cta_q={cta_q}: {blocks} blocks for {sm_count} multiprocessors"),
            format!("hold_q={hold_q}: shared memory has the queries, registers the results"),
            format!("warp_q={warp_q}: {elements} leave registers for so many rows"),
        ]
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

    fn settings(&self) -> Vec<Setting> {
        let setting = |settings: Settings| {
            let work = self.0.work(&self.schedule(settings).ok()?);
            Some(Setting { config: settings.config(), work })
        };
        combinations(&self.all_knobs()).map(Settings::from).filter_map(setting).collect()
    }

    fn notes(&self, _config: &EngineConfig) -> Notes {
        let behavior = vec![BehaviorNote::RuntimeCompilation];
        Notes { numerical: vec![NumericalNote::TensorCore], behavior }
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        config.validate(&self.all_knobs())?;
        Ok(self.0.lowering(&self.schedule(Settings::of(config)?)?, "mma"))
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

    fn tiling(self) -> Tiling {
        let Settings { cta_k, cta_q, hold_q, warp_q } = self;
        Tiling { cta_k, cta_q, hold_q: hold_q == 1, warp_q, packs: false, split: 1 }
    }
}
