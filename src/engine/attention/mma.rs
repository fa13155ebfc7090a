//! Attention on tensor cores by `mma.sync`, for 16-bit floats and tf32 from sm_80, for f16 from
//! sm_75 (Dao 2023, "FlashAttention-2").

use kiln_sass::TileOrder;

use crate::engine::attention::schedule::{Matrices, Schedule, Tiling, WIDTH_WARP_MAX};
use crate::engine::attention::work::GAIN_MIN;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::{AttentionShape, CanonicalGraph};
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "attention_mma";

/// Tiles in the order in which they are tried: `cta_q`, `warp_q`, `cta_k`. Larger ones read K and V
/// less often; none of these spills.
type Tiles = &'static [[i64; 3]];

/// For value heads of up to 128 elements without a score program. A warp of 32 rows reads K and V
/// half as often per row; bounds per row need registers, so half of the keys fit.
const TILES_PLAIN: Tiles =
    &[[128, 32, 64], [128, 32, 32], [64, 16, 64], [32, 16, 64], [16, 16, 64]];

/// With a score program or dropout, which need registers.
const TILES_MODIFIED: Tiles =
    &[[128, 32, 32], [128, 16, 32], [64, 16, 32], [32, 16, 32], [16, 16, 32]];

/// For heads of up to 32 elements in tf32, and of up to 64.
const TILES_TF32_LEAST: Tiles = &[[128, 32, 64], [64, 16, 64], [32, 16, 64], [16, 16, 64]];
const TILES_TF32_SMALL: Tiles = &[[128, 16, 64], [64, 16, 64], [32, 16, 64], [16, 16, 64]];

/// For tf32 heads of more than 128 elements, whose rows take twice the shared memory: the last two
/// fit in 99 KB.
const TILES_TF32: Tiles = &[[128, 16, 32], [64, 16, 32], [32, 16, 16], [16, 16, 16]];

/// For larger value heads, and tf32 with a score program that needs registers.
const TILES_HEAVY: Tiles = &[[128, 16, 32], [64, 16, 32], [32, 16, 32], [16, 16, 32]];

/// The engine `attention_mma`: FlashAttention-2 on `mma.sync` tensor cores.
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
        let least = Settings::of_tile(*mma.tiles().last().expect("there are tiles"));
        Ok(Box::new(Tuned::of(mma, [least])?))
    }
}

impl Mma<'_> {
    /// Whether the score program needs registers per score.
    fn is_heavy(&self) -> bool {
        self.0.problem.score.reads_tensors()
    }

    /// The settings for a tile. Q of tf32, which takes twice as long to reload, stays in registers
    /// beside O for heads of at most 128 elements.
    fn of_tile(&self, tile: [i64; 3]) -> Settings {
        let AttentionShape { depth, width, .. } = self.0.problem.shape;
        let holds = self.0.is_tf32() && (65..=128).contains(&depth.max(width)) && !self.is_heavy();
        Settings { hold_q: i64::from(holds), ..Settings::of_tile(tile) }
    }

    /// Candidate tiles.
    fn tiles(&self) -> Vec<[i64; 3]> {
        let AttentionShape { depth, width, .. } = self.0.problem.shape;
        let (elements, is_tf32) = (depth.max(width), self.0.is_tf32());
        let wide = elements > 128;
        let most = if is_tf32 { elements } else { width };
        if elements > WIDTH_WARP_MAX || (most > 128 && self.is_heavy()) {
            return TILES_HEAVY.iter().map(|[cta_q, warp_q, _]| [*cta_q, *warp_q, 16]).collect();
        }
        let is_modified = self.0.problem.is_modified();
        let has_dropout = self.0.problem.op.dropout.is_some();
        let tight_from = if is_modified { 90 } else { 120 };
        let is_tight = width > 96 && self.0.target.arch.capability >= tight_from;
        let tiles = match is_tf32 {
            false if width > 128 => TILES_HEAVY,
            // The assembler spills a few words with 32 rows: with a causal band and twice the keys,
            // with dropout beside a window, from Hopper on with a score program, and on GeForce
            // Blackwell.
            false if is_modified && (width > 64 && has_dropout || is_tight) => &TILES_MODIFIED[1..],
            false if is_modified => TILES_MODIFIED,
            false if is_tight => &TILES_PLAIN[2..],
            false if width > 96 => &TILES_PLAIN[1..],
            false => TILES_PLAIN,
            true if wide => TILES_TF32,
            // A row takes the memory of a 16-bit row of twice the length.
            true if elements > 64 || self.is_heavy() => TILES_HEAVY,
            true if elements > 32 || is_modified => TILES_TF32_SMALL,
            true => TILES_TF32_LEAST,
        };
        tiles.to_vec()
    }

    /// A tile; without a score program or dropout, which need registers, also with fewer warps, and
    /// for small heads also with Q in registers. On GeForce Blackwell the assembler spills a few
    /// words of 32 rows of both.
    fn variants(&self, tile: Settings) -> impl Iterator<Item = Settings> {
        let AttentionShape { depth, width, .. } = self.0.problem.shape;
        let is_plain = !self.0.problem.is_modified();
        let holds = is_plain && !self.0.is_tf32() && depth.max(width) <= 64;
        let wide = Settings { warp_q: 32, ..tile };
        let is_geforce = self.0.target.arch.capability >= 120;
        let held = [tile, wide].map(|of| Settings { hold_q: 1, ..of });
        let held = held.into_iter().filter(move |of| !(is_geforce && of.warp_q == 32));
        let own = [tile, wide].into_iter().take(if is_plain { 2 } else { 1 });
        own.chain(held.filter(move |_| holds))
    }
}

impl Tunable<4> for Mma<'_> {
    const KNOBS: [&'static str; 4] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Schedule;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 4] {
        let keys = "keys of a kv step; changes the order of sums";
        [
            Knob { name: "cta_k", about: keys, values: vec![16, 32, 64, 128] },
            Knob { name: "cta_q", about: "queries of a CTA", values: vec![16, 32, 64, 128] },
            Knob { name: "hold_q", about: "1: Q stays in registers", values: vec![0, 1] },
            Knob { name: "warp_q", about: "queries of a warp", values: vec![16, 32] },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        self.0.schedule(settings.tiling())
    }

    /// The largest legal tile that is more than half full and leaves no SM idle; another where the
    /// cost model predicts a clear gain.
    fn best(&self) -> Settings {
        let legal = |settings: &Settings| self.schedule(*settings).is_ok();
        let all: Vec<Settings> =
            self.tiles().into_iter().map(|tile| self.of_tile(tile)).filter(legal).collect();
        let good = |settings: &&Settings| {
            let blocks = self.0.blocks(&settings.tiling());
            let busy = blocks >= i64::from(self.0.target.sm_count);
            busy && settings.cta_q / 2 < self.0.problem.shape.queries
        };
        let rule = all.iter().find(good).or(all.last()).expect("the least tile fits");
        self.cheapest(self.0.target, *rule, all.iter().flat_map(|tile| self.variants(*tile)))
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
            format!("cta_q={cta_q}: {blocks} blocks for {sm_count} SMs"),
            match hold_q {
                0 => "hold_q=0: shared memory has the queries, registers the results".to_owned(),
                _ => format!("hold_q=1: registers have the queries, too, of {elements}"),
            },
            format!("warp_q={warp_q}: {elements} leave registers for so many rows"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { cta_k, cta_q, .. } = settings;
        vec![
            Settings { hold_q: 0, ..settings },
            Settings { warp_q: 16, cta_q: cta_q.min(128), ..settings },
            Settings { cta_k: cta_k / 2, ..settings },
        ]
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, _settings: Settings) -> Notes {
        let behavior = vec![BehaviorNote::RuntimeCompilation];
        Notes { numerical: self.0.notes(), behavior }
    }

    fn tile_order(&self, schedule: &Schedule) -> Option<TileOrder> {
        self.0.tile_order(schedule)
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        self.0.work(schedule)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        self.0.lowering(schedule, "mma")
    }
}

settings! { struct Settings { cta_k, cta_q, hold_q, warp_q } }

impl Settings {
    fn of_tile([cta_q, warp_q, cta_k]: [i64; 3]) -> Settings {
        Settings { cta_k, cta_q, hold_q: 0, warp_q }
    }

    fn tiling(self) -> Tiling {
        let Settings { cta_k, cta_q, hold_q, warp_q } = self;
        Tiling { cta_k, cta_q, hold_q: hold_q == 1, warp_q, packs: false, split: 1, cluster: 1 }
    }
}
