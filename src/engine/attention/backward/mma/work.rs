//! Work of the kernels of gradients on tensor cores, for the cost model.

use kiln_machine::{Occupancy, Operands, Resources};

use crate::engine::attention::backward::kernels::{DqAccum, Tile, delta_work, simt_work};
use crate::engine::attention::backward::mma::schedule::{
    CONVERT_THREADS, DqSum, Half, Mma, OPERAND_TILE, Schedule,
};
use crate::engine::attention::backward::operands::optional_work;
use crate::engine::attention::work::instructions_score;
use crate::engine::cost::machine_of;
use crate::engine::{KernelWork, TensorWork};
use crate::graph::AttentionShape;

/// The share of the tensor cores' rate: a step reads its tiles for the block, and 16 rows of a warp
/// read them twice.
const EFFICIENCY: f64 = 0.5;

/// Clocks from a block's last addition to a tile of dQ until the next one knows that it is its
/// turn: write, count and read through L2, as the exchange by counters of recurrent layers.
const TURN_CLOCKS: f64 = 1500.0;

/// Bytes that an addition in L2 counts for, of each byte: L2 reads and writes it.
const ADDITION: f64 = 2.0;

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
                self.convert_work(accum),
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
            }),
            ..base
        }
    }

    /// Work of the kernel of dK and dV where it adds to dQ too.
    fn adding_work(&self, half: &Half, each: f64, accum: DqAccum) -> KernelWork {
        let (tiles, tile) = self.tiles(half, true);
        let base = self.tile_work(half, each, true);
        let added = tiles * (tile.cta_q * self.padded()[0] * 4) as f64;
        let waits = 1.0 + self.steps_waited(half, each, accum) / self.steps_of_sm(half, tiles);
        let tensor = base.tensor.map(|of| TensorWork { efficiency: of.efficiency / waits, ..of });
        KernelWork {
            dram_bytes: base.dram_bytes + self.accum_bytes(accum.step_q) as f64,
            l2_bytes: base.l2_bytes + ADDITION * added,
            tensor,
            ..base
        }
    }

    /// Blocks of keys that an SM holds.
    fn resident(&self, half: &Half) -> f64 {
        let machine = machine_of(self.target);
        let (registers, shared_bytes) = (half.registers as u32, half.shared_bytes as u32);
        let resources = Resources { registers, shared_bytes };
        f64::from(Occupancy::of(&machine, half.threads() as u32, resources).blocks.max(1))
    }

    /// Steps that follow each other on an SM.
    fn steps_of_sm(&self, half: &Half, tiles: f64) -> f64 {
        let slots = f64::from(self.target.sm_count) * self.resident(half);
        (tiles / slots.min(half.blocks as f64).max(1.0)).max(1.0)
    }

    /// Clocks of a step of one of the blocks that an SM holds.
    fn step_clocks(&self, half: &Half, each: f64) -> f64 {
        let machine = machine_of(self.target);
        let rate = machine.tensor.of(self.operands()) / machine.tensor_hz;
        let of_sm = rate / f64::from(machine.sm_count) * EFFICIENCY;
        2.0 * (half.rows * half.step) as f64 * each * self.resident(half) / of_sm
    }

    /// Steps that the last of the blocks that start together waits until it may add to its first
    /// tile of dQ. A block follows that before it by a step, and by the time that a turn takes to
    /// be passed on. Blocks that start with their own first query, as those of a causal mask do,
    /// are apart from the start.
    fn steps_waited(&self, half: &Half, each: f64, accum: DqAccum) -> f64 {
        if !accum.ordered {
            return 0.0;
        }
        let behind = (TURN_CLOCKS / self.step_clocks(half, each)).max(1.0);
        let apart = match self.problem.forward.op.band.right {
            Some(_) => half.rows as f64 / half.step as f64,
            None => 0.0,
        };
        let slots = f64::from(self.target.sm_count) * self.resident(half);
        let AttentionShape { batches, kv_heads, .. } = self.problem.forward.shape;
        let pairs = (batches * kv_heads).max(1);
        let pairs_together = self.raster_pairs().min(pairs);
        let together = (slots.min(half.blocks as f64) / pairs_together as f64).ceil();
        let of_pair = half.blocks as f64 / pairs as f64;
        (together.min(of_pair) - 1.0) * (behind - apart).max(0.0)
    }

    /// Work of the kernel that converts dQ.
    fn convert_work(&self, accum: DqAccum) -> KernelWork {
        let read = self.accum_bytes(accum.step_q) as f64;
        let written = crate::engine::access::tensor_bytes(self.problem.forward.tensor("dq"));
        KernelWork {
            blocks: self.convert_blocks(accum.step_q) as u64,
            threads: CONVERT_THREADS as u32,
            registers: 40,
            dram_bytes: read + written,
            l2_bytes: read + written,
            in_flight_bytes: (CONVERT_THREADS * 64) as f64,
            round_trips: 1.0,
            lane_instructions: read,
            ..delta_work(&self.problem)
        }
    }
}
