//! Decode attention on tensor cores: the query heads that share K and V are packed into the rows of
//! one tile, and blocks split the keys (split-KV; Dao et al. 2023, "Flash-Decoding"). The blocks of
//! a cluster combine their splits in distributed shared memory; otherwise a second kernel does.

use crate::engine::access::ceil_div;
use crate::engine::attention::schedule::{MMA_M, Matrices, Schedule, Tiling, WIDTH_WARP_MAX};
use crate::engine::attention::work::GAIN_MIN;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "attention_decode";

/// Maximum number of splits of the keys: the kernel that joins them has a lane for each.
const SPLIT_MAX: i64 = 32;

/// Minimum number of keys per split: fewer do not amortise the combine kernel.
const PART_KEYS_MIN: i64 = 256;

/// Blocks per SM that keep memory busy. On an H200 a block of one warp streamed 8.8 GB/s, however
/// many there were up to these (134 to 2147 MB of keys and values: 1.1 TB/s with 128 blocks, 2.2
/// with 256, 4.2 with 512). It formed the address of every copy anew then; now a step takes a third
/// of the clocks (`kiln sass`), so that half as many blocks would do, which was not measured.
const BLOCKS_EACH: i64 = 4;

/// Bytes of keys and values that each block must be spared for another kernel to join the parts:
/// 10 us of its stream, several times what a launch takes, since the join was not measured.
const JOIN_BYTES: i64 = 256 << 10;

/// Maximum bytes of a tile of K or V, whichever is larger, for `cta_k` above 16.
const STEP_BYTES: i64 = 16 << 10;

/// Maximum number of queries for which this engine is preferred: the tiles of other engines hold
/// rows of one head only, mostly padding.
const QUERIES_MAX: i64 = 63;

/// Maximum number of packed rows for which it is preferred, whatever the number of queries.
const ROWS_MAX: i64 = 64;

/// The settings with the lowest requirements.
const LEAST: Settings = Settings { cluster: 1, cta_k: 16, cta_q: MMA_M, split: 1 };

/// The engine `attention_decode`: Flash-Decoding, split-KV with packed query heads.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct DecodeEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Decode<'a>(Matrices<'a>);

impl Engine for DecodeEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        Ok(Box::new(Tuned::of(Decode(Matrices::of(graph, target)?), [LEAST])?))
    }
}

impl Decode<'_> {
    /// Packed rows that share K and V.
    fn rows(&self) -> i64 {
        let shape = &self.0.problem.shape;
        shape.queries.saturating_mul(shape.group())
    }

    /// Maximum cluster size.
    fn cluster_max(&self) -> i64 {
        i64::from(self.0.target.cluster_blocks_max())
    }

    /// The tile with as many splits as keep memory busy: those of a cluster, more where another
    /// kernel to join them pays.
    fn split(&self, tile: Settings) -> Settings {
        let shape = &self.0.problem.shape;
        let blocks = self.0.blocks(&tile.tiling()).max(1);
        let wanted = (BLOCKS_EACH * i64::from(self.0.target.sm_count)) as f64 / blocks as f64;
        let parts = (shape.keys / PART_KEYS_MIN).clamp(1, SPLIT_MAX);
        // The nearest power of two.
        let split = 1 << (wanted.max(1.0).log2().round() as u32).min(parts.ilog2());
        let cluster = split.min(1 << self.cluster_max().ilog2());
        let line = self.0.line_bytes(shape.depth) + self.0.line_bytes(shape.width);
        let part_bytes = |of: i64| ceil_div(shape.keys, of).saturating_mul(line);
        let joined = Settings { cluster, split: cluster, ..tile };
        let pays = part_bytes(cluster) - part_bytes(split) > JOIN_BYTES;
        match cluster > 1 && !pays && self.schedule(joined).is_ok() {
            true => joined,
            false => Settings { split, ..tile },
        }
    }
}

impl Tunable<4> for Decode<'_> {
    const KNOBS: [&'static str; 4] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Schedule;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 4] {
        let keys = "keys of a kv step; changes the order of sums";
        let split = "split-KV: CTAs per row; changes the order of sums";
        let cluster = "1, or `split`: the CTAs of a cluster combine their partials through DSMEM";
        let up_to = |most: i64| {
            std::iter::successors(Some(1), |n| Some(n * 2))
                .take_while(move |n| *n <= most)
                .collect()
        };
        [
            Knob { name: "cluster", about: cluster, values: up_to(self.cluster_max()) },
            Knob { name: "cta_k", about: keys, values: vec![16, 32, 64] },
            Knob {
                name: "cta_q",
                about: "rows of a CTA, queries times the heads of a GQA group",
                values: vec![16, 32, 64],
            },
            Knob { name: "split", about: split, values: up_to(SPLIT_MAX) },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        self.0.schedule(settings.tiling())
    }

    /// The fewest rows that hold all packed rows, and as many splits as keep memory busy; other
    /// rows where the cost model predicts a clear gain.
    fn best(&self) -> Settings {
        let shape = &self.0.problem.shape;
        let heavy = self.0.problem.is_modified();
        let line = self.0.line_bytes(shape.depth.max(shape.width));
        // Half of it where the score program needs registers.
        let (most, bytes) = if heavy { (32, STEP_BYTES / 2) } else { (64, STEP_BYTES) };
        let fits = |keys: &i64| *keys <= most && keys * line <= bytes;
        let cta_k = [64, 32].into_iter().find(fits).unwrap_or(16);
        let cta_k = if shape.width > WIDTH_WARP_MAX { 32 } else { cta_k };
        let tile =
            [16, 32, 64].into_iter().map(|cta_q| Settings { cluster: 1, cta_k, cta_q, split: 1 });
        let least = |of: Settings| match self.schedule(of) {
            Ok(_) => of,
            Err(_) => Settings { cta_k: 16, ..of },
        };
        let legal: Vec<Settings> =
            tile.map(least).filter(|of| self.schedule(*of).is_ok()).collect();
        let enough = legal.iter().find(|of| of.cta_q >= self.rows()).or(legal.last());
        let rule = self.split(*enough.unwrap_or(&LEAST));
        self.cheapest(self.0.target, rule, legal.iter().map(|tile| self.split(*tile)))
    }

    fn reasons(&self) -> Vec<String> {
        let settings = self.best();
        let Settings { cluster, cta_k, cta_q, split } = settings;
        let (rows, keys) = (self.rows(), self.0.problem.shape.keys);
        let (blocks, sm_count) = (self.0.blocks(&settings.tiling()), self.0.target.sm_count);
        let part = ceil_div(keys, split);
        let joined = match (split, cluster) {
            (1, _) => "nothing to join",
            (_, 1) => "another kernel joins the parts",
            _ => "blocks join their parts without another launch",
        };
        vec![
            format!("cluster={cluster}: {joined}"),
            format!(
                "cta_k={cta_k}: what a score takes fits in registers, several blocks in memory"
            ),
            format!("cta_q={cta_q}: {rows} rows read the same keys"),
            format!("split={split}: {blocks} blocks of {part} keys for {sm_count} SMs"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![Settings { cta_k: settings.cta_k / 2, ..settings }]
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, settings: Settings) -> Notes {
        let workspace = (settings.split > settings.cluster).then_some(BehaviorNote::Workspace);
        let behavior = std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace);
        Notes { numerical: self.0.notes(), behavior: behavior.collect() }
    }

    fn pays(&self) -> bool {
        self.rows() <= ROWS_MAX || self.0.problem.shape.queries <= QUERIES_MAX
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        self.0.work(schedule)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        self.0.lowering(schedule, "decode")
    }
}

settings! { struct Settings { cluster, cta_k, cta_q, split } }

impl Settings {
    fn tiling(self) -> Tiling {
        let Settings { cluster, cta_k, cta_q, split } = self;
        Tiling { cta_k, cta_q, hold_q: false, warp_q: MMA_M, packs: true, split, cluster }
    }
}
