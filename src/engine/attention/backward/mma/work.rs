//! Work of the kernels of gradients on tensor cores, for the cost model.

use kiln_machine::Operands;

use crate::engine::attention::backward::dq_accum::{DqAccum, KeyBlocks};
use crate::engine::attention::backward::kernels::{Tile, delta_work, simt_work};
use crate::engine::attention::backward::mma::schedule::{DqSum, Half, Mma, Schedule};
use crate::engine::attention::backward::operands::{OPERAND_TILE, optional_work};
use crate::engine::attention::work::instructions_score;
use crate::engine::cost::machine_of;
use crate::engine::{CostModel, KernelWork, TensorWork};
use crate::graph::AttentionShape;

/// The share of the tensor cores' rate: a step reads its tiles for the block, and 16 rows of a warp
/// read them twice.
const EFFICIENCY: f64 = 0.5;

impl Mma<'_> {
    /// Work of all kernels, in order.
    pub(super) fn work_of(&self, schedule: &Schedule) -> Vec<KernelWork> {
        let [depth, width] = self.padded().map(|elements| elements as f64);
        let mut kernels = vec![delta_work(&self.problem)];
        // S, dP and dQ; S, dP, dK and dV.
        let (of_queries, of_keys) = (2.0 * depth + width, 2.0 * (depth + width));
        match schedule.dq {
            DqSum::Own(half) => kernels.extend([
                self.tile_work(&half, of_queries, false),
                self.tile_work(&schedule.of_keys, of_keys, true),
            ]),
            DqSum::Added(accum) => kernels.extend([
                self.adding_work(&schedule.of_keys, of_keys + depth, accum),
                accum.convert_work(&self.problem),
            ]),
        }
        kernels.extend(optional_work(&self.problem, self.target, OPERAND_TILE));
        kernels
    }

    fn operands(&self) -> Operands {
        if self.is_tf32() { Operands::Tf32 } else { Operands::Half }
    }

    /// Tiles of scores that a kernel computes, and their queries and keys.
    fn tiles(&self, half: &Half, keys_own: bool) -> (f64, Tile) {
        let AttentionShape { batches, heads, .. } = self.problem.forward.shape;
        let (cta_q, cta_k) = if keys_own { (half.step, half.rows) } else { (half.rows, half.step) };
        let tiles = (batches * heads) as f64 * self.problem.forward.tiles(cta_q, cta_k);
        (tiles, Tile { cta_q, cta_k })
    }

    /// Work of a kernel with so many multiply-adds for each score.
    fn tile_work(&self, half: &Half, each: f64, keys_own: bool) -> KernelWork {
        let (tiles, tile) = self.tiles(half, keys_own);
        let scores = tiles * (tile.cta_q * tile.cta_k) as f64;
        let operations = 2.0 * scores * each;
        let base = simt_work(&self.problem, tile, half.blocks, 0, keys_own);
        KernelWork {
            threads: half.threads() as u32,
            registers: half.registers as u32,
            shared_bytes: half.shared_bytes as u32,
            l2_bytes: base.dram_bytes + tiles * self.tile_bytes(half.step) as f64,
            in_flight_bytes: self.tile_bytes(half.step) as f64,
            lane_instructions: scores * (2.0 + instructions_score(&self.problem.forward)),
            f64_instructions: 0.0,
            tensor: Some(TensorWork {
                operands: self.operands(),
                operations,
                efficiency: EFFICIENCY,
                block_clocks: 0.0,
            }),
            ..base
        }
    }

    /// Work of the kernel of dK and dV where it adds to dQ too.
    fn adding_work(&self, half: &Half, each: f64, accum: DqAccum) -> KernelWork {
        let (tiles, _) = self.tiles(half, true);
        let base = self.tile_work(half, each, true);
        let blocks = KeyBlocks {
            cta_k: half.rows,
            count: half.blocks,
            resident: self.resident(half),
            steps: tiles,
            step_clocks: self.step_clocks(half, each),
        };
        accum.added_work(&self.problem, self.target, &blocks, base)
    }

    /// Blocks of keys that an SM holds.
    fn resident(&self, half: &Half) -> f64 {
        let model = CostModel::of(self.target);
        model.resident(half.threads(), half.registers, half.shared_bytes)
    }

    /// Clocks of a step of one of the blocks that an SM holds.
    fn step_clocks(&self, half: &Half, each: f64) -> f64 {
        let machine = machine_of(self.target);
        let rate = machine.tensor.of(self.operands()) / machine.tensor_hz;
        let of_sm = rate / f64::from(machine.sm_count) * EFFICIENCY;
        2.0 * (half.rows * half.step) as f64 * each * self.resident(half) / of_sm
    }
}
