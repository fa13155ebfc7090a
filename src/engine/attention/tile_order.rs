//! The order in which tiles read K and V, for a model of L2.

use kiln_sass::{Stream, TileOrder};

use crate::engine::access::ceil_div;
use crate::engine::attention::problem::Problem;
use crate::engine::attention::turns::{TileTurns, raster_pairs};
use crate::engine::tile_order::{STEPS_MAX, grouped};
use crate::graph::AttentionShape;
use crate::target::Target;

/// The order of tiles of `cta_q` rows and `cta_k` keys as `attention/rasterize.cuh` has it, with
/// heads packed into them or not, or in which the blocks of a resident grid take `turns`; `None` if
/// data decides which keys they read, or there are too many.
pub(super) fn tile_order(
    problem: &Problem<'_>,
    target: &Target,
    [cta_q, cta_k]: [i64; 2],
    packs: bool,
    turns: Option<TileTurns>,
) -> Option<TileOrder> {
    let AttentionShape { batches, heads, kv_heads, queries, keys, depth, width } = problem.shape;
    if problem.has_lengths() || problem.op.intervals {
        return None;
    }
    let pack = if packs { problem.shape.group() } else { 1 };
    let (pairs, sharing) = (batches * heads / pack, problem.shape.group() / pack);
    let (tiles, steps_all) = (ceil_div(queries * pack, cta_q), ceil_div(keys, cta_k));
    if pairs.saturating_mul(tiles).saturating_mul(steps_all.max(1)) > STEPS_MAX || kv_heads == 0 {
        return None;
    }
    let bytes = |slot: &str, elements: i64| problem.tensor(slot).dtype.bytes() as i64 * elements;
    let bytes = u32::try_from(cta_k * (bytes("k", depth) + bytes("v", width))).ok()?;
    let stream = |[pair, tile]: [i64; 2]| {
        let rows = [tile * cta_q, ((tile + 1) * cta_q).min(queries * pack) - 1];
        let [begin, end] = problem.steps(rows.map(|row| row / pack), cta_k);
        let first = (pair / sharing * steps_all + begin) as u64;
        vec![Stream { first, chunks: (end - begin) as u32, bytes }]
    };
    let Some(turns) = turns else {
        let group = raster_pairs(problem, target, packs);
        let is_descending = problem.op.band.right.is_some();
        let tile = |at: i64| {
            let [pair, place] = grouped(group, [pairs, tiles], at);
            stream([pair, if is_descending { tiles - 1 - place } else { place }])
        };
        let tiles = (0..pairs * tiles).map(tile).collect();
        return Some(TileOrder { tiles, blocks: 1, persistent: false });
    };
    // Turn by turn, of each block its tile.
    let blocks = turns.blocks_max().min(target.sm_count.into());
    let of_block = |block| turns.of_block(block, blocks).map(|tile| tile.map_or(vec![], stream));
    let mut of_blocks: Vec<_> = (0..blocks).map(of_block).collect();
    let most = ceil_div(pairs * (tiles + 1), blocks.max(1)) + 1;
    let turn = |_| of_blocks.iter_mut().map(|of| of.next().unwrap_or_default()).collect::<Vec<_>>();
    let tiles = (0..most).flat_map(turn).collect();
    Some(TileOrder { tiles, blocks: 1, persistent: true })
}
