//! The turns that the blocks of a resident grid take at tiles, whose keys differ in number below a
//! diagonal: a fixed order, without a counter in memory, that leaves blocks about as much to do.

use crate::engine::access::ceil_div;
use crate::engine::attention::problem::Problem;
use crate::engine::tile_order::grouped;
use crate::graph::AttentionShape;
use crate::target::Target;

/// Queries up to which all tiles of a pair run at the same time whatever the order.
const QUERIES_SHORT: i64 = 64;

/// The share of L2 for K and V; FlashAttention-3 takes 32 MB of Hopper's 50.
const L2_SHARE: f64 = 0.625;

/// What a tile takes besides its steps of keys, in steps: its first loads and its results.
const STEPS_TILE: i64 = 1;

/// Tiles up to which blocks are compared; of more, even numbers of tiles are paired.
const TILES_MAX: i64 = 1 << 14;

/// How a block goes on from tile to tile, by its number in `attention/tile_turns.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// Tiles as they come.
    Straight = 0,
    /// As they come, and from the last block to the first, by turns.
    Snake = 1,
    /// Two tiles of a head that have as many keys together as any other two.
    Paired = 2,
}

/// The order of tiles, and the turns at them.
#[derive(Debug, Clone, Copy)]
pub(super) struct TileTurns {
    pub(super) turns: Turns,
    /// Pairs of batch and heads, those that run at the same time, and tiles of a pair.
    pairs: i64,
    group: i64,
    tiles: i64,
    /// Whether tiles with the most keys are first.
    descending: bool,
}

impl TileTurns {
    /// Those of tiles of so many queries and steps of so many keys that leave the busiest block of
    /// the target the least.
    pub(super) fn of(
        problem: &Problem<'_>,
        target: &Target,
        [cta_q, cta_k]: [i64; 2],
    ) -> TileTurns {
        let AttentionShape { batches, heads, queries, .. } = problem.shape;
        let straight = TileTurns {
            turns: Turns::Straight,
            pairs: batches.saturating_mul(heads),
            group: raster_pairs(problem, target, false),
            tiles: ceil_div(queries, cta_q),
            descending: problem.op.band.right.is_some(),
        };
        let (blocks, count) = (i64::from(target.sm_count), straight.count());
        let paired = TileTurns { turns: Turns::Paired, ..straight };
        if !takes_turns(problem) || count <= blocks {
            return straight;
        }
        if count > TILES_MAX {
            return if straight.tiles % 2 == 0 { paired } else { straight };
        }
        let steps = |tile: i64| {
            let rows = [tile * cta_q, ((tile + 1) * cta_q).min(queries) - 1];
            let [begin, end] = problem.steps(rows, cta_k);
            end - begin + STEPS_TILE
        };
        let steps: Vec<i64> = (0..straight.tiles).map(steps).collect();
        let all = [straight, paired, TileTurns { turns: Turns::Snake, ..straight }];
        let least = all.into_iter().min_by_key(|of| of.busiest(&steps, blocks));
        least.unwrap_or(straight)
    }

    /// Number of blocks with work: a pair of tiles is one block's.
    pub(super) fn blocks_max(&self) -> i64 {
        match self.turns {
            Turns::Paired => self.pairs * ceil_div(self.tiles, 2),
            _ => self.pairs * self.tiles,
        }
    }

    /// The tiles of a block of so many, as pairs of batch and heads and their tiles of queries;
    /// `None` for what an odd number of tiles lacks.
    pub(super) fn of_block(
        self,
        block: i64,
        blocks: i64,
    ) -> impl Iterator<Item = Option<[i64; 2]>> {
        let first = if self.turns == Turns::Paired { 2 * block } else { block };
        let next = move |at: &i64| match self.turns {
            Turns::Straight => at + blocks,
            Turns::Snake => 2 * (at / blocks + 1) * blocks - 1 - at,
            Turns::Paired if at % 2 == 0 => at + 1,
            Turns::Paired => at + 2 * blocks - 1,
        };
        let all = std::iter::successors(Some(first), move |at| Some(next(at)));
        all.take_while(move |at| *at < self.count()).map(move |at| self.tile(at))
    }

    /// Numbers of tiles in their order, with those that an odd number lacks.
    fn count(&self) -> i64 {
        match self.turns {
            Turns::Paired => 2 * self.blocks_max(),
            _ => self.blocks_max(),
        }
    }

    fn tile(&self, at: i64) -> Option<[i64; 2]> {
        let Turns::Paired = self.turns else {
            let [pair, place] = grouped(self.group, [self.pairs, self.tiles], at);
            return Some([pair, if self.descending { self.tiles - 1 - place } else { place }]);
        };
        let items = ceil_div(self.tiles, 2);
        let [pair, place] = grouped(self.group, [self.pairs, items], at / 2);
        let tile = if at % 2 == 0 { 2 * items - 1 - place } else { place };
        (tile < self.tiles).then_some([pair, tile])
    }

    /// Steps of the block that has the most.
    fn busiest(self, steps: &[i64], blocks: i64) -> i64 {
        let of_block = |block: i64| -> i64 {
            self.of_block(block, blocks).flatten().map(|[_, tile]| steps[tile as usize]).sum()
        };
        (0..blocks.min(self.blocks_max())).map(of_block).max().unwrap_or(0)
    }
}

/// Whether blocks may take turns at tiles in more ways than one: where tiles differ in keys.
/// Of sequences one behind the other, only the device knows the tiles.
pub(super) fn takes_turns(problem: &Problem<'_>) -> bool {
    problem.op.band.right.is_some() && problem.op.queries_max.is_none()
}

/// How many pairs of batch and heads run at the same time. One reads K and V least often where all
/// tiles have as many keys. Where they have not, concurrent tiles of one pair drift apart; those of
/// several, ordered by their keys, do so less: as many as L2 has room for.
pub(super) fn raster_pairs(problem: &Problem<'_>, target: &Target, packs: bool) -> i64 {
    let AttentionShape { queries, keys, depth, width, .. } = problem.shape;
    if problem.op.band.right.is_none() || queries <= QUERIES_SHORT {
        return 1;
    }
    let bytes = |slot: &str, elements: i64| (problem.tensor(slot).dtype.bytes() as i64) * elements;
    let bytes = keys.saturating_mul(bytes("k", depth) + bytes("v", width)).max(1);
    let fit = (target.l2_bytes as f64 * L2_SHARE) as i64 / bytes;
    let sharing = if packs { 1 } else { problem.shape.group() };
    // The tiles of all are counted in 32 bits.
    fit.saturating_mul(sharing).min((1 << 30) / queries).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tile_is_taken_once() {
        for turns in [Turns::Straight, Turns::Snake, Turns::Paired] {
            for (pairs, group, tiles) in [(1, 1, 1), (3, 2, 5), (7, 3, 4), (8, 8, 7), (40, 16, 1)] {
                let all = TileTurns { turns, pairs, group, tiles, descending: true };
                for blocks in 1..=all.blocks_max().min(13) {
                    let of_block = |block| all.of_block(block, blocks).flatten();
                    let mut taken: Vec<_> = (0..blocks).flat_map(of_block).collect();
                    taken.sort_unstable();
                    let each = (0..pairs).flat_map(|pair| (0..tiles).map(move |tile| [pair, tile]));
                    assert_eq!(taken, each.collect::<Vec<_>>(), "{all:?} of {blocks} blocks");
                }
            }
        }
    }

    /// Below the diagonal, the k-th tile of queries has k + 1 tiles of keys.
    #[test]
    fn pairs_have_as_many_steps() {
        for tiles in [2, 7, 8] {
            let (turns, descending) = (Turns::Paired, true);
            let all = TileTurns { turns, pairs: 12, group: 5, tiles, descending };
            let blocks = all.blocks_max();
            for block in 0..blocks {
                let steps: i64 = all.of_block(block, blocks).flatten().map(|[_, at]| at + 1).sum();
                let lone = tiles % 2 == 1 && steps == 1;
                assert!(lone || steps == tiles + 1 + tiles % 2, "{all:?}: {steps}");
            }
        }
    }
}
