//! Tiles of the kernels of gradients on tensor cores, what they take, and which fit.

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::attention::backward::kernels::{DqAccum, Tile, check_optional};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::schedule::{MMA_M, line_bytes};
use crate::engine::tunable::settings;
use crate::graph::AttentionShape;
use crate::target::Target;

const THREADS_MAX: i64 = 256;

/// K of one MMA: 32 bytes.
pub(super) const MMA_K: i64 = 16;

/// Registers for addresses, coordinates and fragments, by NVRTC's report.
const REGISTERS_OTHER: i64 = 64;

/// Bytes of lse, delta and the bounds of the keys of a query.
const QUERY_BYTES: i64 = 16;

/// Bytes of a block's ticket in shared memory.
const TICKET_BYTES: i64 = 16;

/// The first architecture with reductions of four floats in L2.
const VECTORS_CAPABILITY: u16 = 90;

/// Threads of the kernel that converts dQ, each of which has 8 columns of two rows.
pub(super) const CONVERT_THREADS: i64 = 256;

/// The share of L2 for what blocks of keys that run at the same time read and add to.
const L2_SHARE: f64 = 0.625;

/// The tile of scores of the kernels on FP32 cores.
pub(super) const OPERAND_TILE: Tile = Tile { cta_q: 32, cta_k: 32 };

/// The settings with the lowest requirements.
pub(super) const LEAST: Settings =
    Settings { cta_k: 16, cta_q: 16, dq: OWN, step_k: 16, step_q: 16 };

/// Rows of a block and of a step in the order in which they are tried: larger ones read what they
/// iterate over less often.
const TILES: [[i64; 2]; 7] =
    [[128, 64], [128, 32], [64, 64], [64, 32], [64, 16], [32, 16], [16, 16]];

/// Values of the knob `dq`: dQ has a kernel of its own; blocks of keys add to it in order; they add
/// to it in any order.
pub(super) const OWN: i64 = 0;
pub(super) const ORDERED: i64 = 1;
pub(super) const UNORDERED: i64 = 2;

settings! { pub(super) struct Settings { cta_k, cta_q, dq, step_k, step_q } }

/// A graph as this engine runs it.
#[derive(Debug)]
pub(super) struct Mma<'a> {
    pub(super) problem: BackwardProblem<'a>,
    pub(super) target: &'a Target,
    pub(super) element: DType,
}

/// A kernel's tile: rows of a block, rows of a step of the other operand, and what they take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Half {
    pub(super) rows: i64,
    pub(super) step: i64,
    pub(super) registers: i64,
    pub(super) shared_bytes: i64,
    pub(super) blocks: i64,
}

impl Half {
    pub(super) fn threads(&self) -> i64 {
        self.rows / MMA_M * 32
    }
}

/// How dQ is summed.
#[derive(Debug, Clone, Copy)]
pub(super) enum DqSum {
    /// By a kernel of its own.
    Own(Half),
    /// By the blocks of keys, in workspace.
    Added(DqAccum),
}

/// Everything derived from legal settings.
pub(super) struct Schedule {
    pub(super) of_keys: Half,
    pub(super) dq: DqSum,
}

impl Schedule {
    /// dQ in workspace.
    pub(super) fn accum(&self) -> Option<DqAccum> {
        match self.dq {
            DqSum::Own(_) => None,
            DqSum::Added(accum) => Some(accum),
        }
    }
}

impl Mma<'_> {
    /// Head dimensions in whole MMAs.
    pub(super) fn padded(&self) -> [i64; 2] {
        let AttentionShape { depth, width, .. } = self.problem.forward.shape;
        [depth, width].map(|elements| ceil_div(elements, MMA_K) * MMA_K)
    }

    /// Registers for what a score is modified with and for random numbers. Programs of the scores
    /// of a step overlap: 17 registers in steps of 32, more than 60 in steps of 64.
    fn score_registers(&self, step: i64) -> i64 {
        match self.problem.forward.is_modified() {
            true => step * step / 64,
            false => 0,
        }
    }

    /// Bytes of tiles of the two operands of this many rows.
    pub(super) fn tile_bytes(&self, rows: i64) -> i64 {
        let AttentionShape { depth, width, .. } = self.problem.forward.shape;
        rows * (line_bytes(self.element, depth) + line_bytes(self.element, width))
    }

    fn of_keys(&self, cta_k: i64, step_q: i64, dq: i64) -> Half {
        let [depth, width] = self.padded();
        // dS of a tile, and the ticket. Scores are no longer needed where dQ is computed.
        let own_bytes = match dq {
            OWN => 0,
            _ => cta_k * line_bytes(self.element, step_q) + TICKET_BYTES,
        };
        Half {
            rows: cta_k,
            step: step_q,
            registers: (depth + width) / 2
                + step_q
                + REGISTERS_OTHER
                + self.score_registers(step_q),
            shared_bytes: self.tile_bytes(cta_k)
                + 2 * (self.tile_bytes(step_q) + step_q * QUERY_BYTES)
                + own_bytes,
            blocks: self.problem.key_tiles(cta_k),
        }
    }

    fn of_queries(&self, cta_q: i64, step_k: i64) -> Half {
        let [depth, _] = self.padded();
        Half {
            rows: cta_q,
            step: step_k,
            registers: depth / 2 + step_k + REGISTERS_OTHER + self.score_registers(step_k),
            shared_bytes: self.tile_bytes(cta_q) + 2 * self.tile_bytes(step_k),
            blocks: self.problem.forward.blocks(cta_q),
        }
    }

    /// # Errors
    /// The limit of the device that a kernel exceeds.
    fn check(&self, half: &Half) -> Result<(), String> {
        let threads = half.threads();
        if threads > THREADS_MAX || threads < half.step {
            return Err(format!(
                "needs {threads} threads for steps of {}, a block has up to {THREADS_MAX}",
                half.step
            ));
        }
        let available = i64::from(self.target.shared_block_bytes_max);
        let bytes = half.shared_bytes;
        if bytes > available {
            return Err(format!("needs {bytes} bytes of shared memory, a block has {available}"));
        }
        if half.registers > REGISTERS_THREAD_MAX {
            return Err(format!(
                "needs about {} registers, a thread has {REGISTERS_THREAD_MAX}",
                half.registers
            ));
        }
        match half.blocks > GRID_MAX {
            true => Err(format!("needs {} blocks, more than a grid has", half.blocks)),
            false => Ok(()),
        }
    }

    /// As [`check`](Self::check), and what adding to dQ asks for besides.
    fn check_keys(&self, half: &Half, dq: i64) -> Result<(), String> {
        self.check(half)?;
        if dq == OWN {
            return Ok(());
        }
        if self.problem.rows() == 0 {
            return Err(format!("dq={dq}: there are no queries"));
        }
        if half.step > half.rows {
            let [rows, step] = [half.rows, half.step];
            return Err(format!("dq={dq}: {step} queries of dQ are more than {rows} keys"));
        }
        let blocks = self.convert_blocks(half.step);
        match blocks > GRID_MAX {
            true => Err(format!("needs {blocks} blocks, more than a grid has")),
            false => Ok(()),
        }
    }

    /// Rows of dQ in workspace: whole tiles of all heads.
    fn accum_rows(&self, step_q: i64) -> i64 {
        self.problem.forward.blocks(step_q).saturating_mul(step_q)
    }

    /// Bytes of dQ in workspace.
    pub(super) fn accum_bytes(&self, step_q: i64) -> i64 {
        self.accum_rows(step_q).saturating_mul(self.padded()[0] * 4)
    }

    /// Bytes of the ticket and of the counters of tiles of dQ.
    pub(super) fn semaphore_bytes(&self, step_q: i64) -> i64 {
        (self.problem.forward.blocks(step_q).saturating_add(1)).saturating_mul(4)
    }

    /// Blocks of the kernel that converts dQ.
    pub(super) fn convert_blocks(&self, step_q: i64) -> i64 {
        let chunks = ceil_div(self.problem.forward.shape.depth, 8);
        ceil_div((self.accum_rows(step_q) / 2).saturating_mul(chunks), CONVERT_THREADS)
    }

    /// Pairs of a sequence and a KV head whose blocks of keys run at the same time, where they add
    /// to dQ in order: blocks of one pair follow each other by a step, so the fewer of one pair run
    /// the less they wait. L2 holds what a pair reads, and its dQ.
    pub(super) fn raster_pairs(&self) -> i64 {
        let AttentionShape { queries, depth, width, .. } = self.problem.forward.shape;
        let of_query = (depth + width) * self.element.bytes() as i64 + self.padded()[0] * 4;
        let rows = queries.saturating_mul(self.problem.forward.shape.group());
        let bytes = rows.saturating_mul(of_query).max(1);
        ((self.target.l2_bytes as f64 * L2_SHARE) as i64 / bytes).clamp(1, 1 << 10)
    }

    /// The schedule of settings.
    pub(super) fn schedule_of(&self, settings: Settings) -> Result<Schedule, String> {
        let Settings { cta_k, cta_q, dq, step_k, step_q } = settings;
        let of_keys = self.of_keys(cta_k, step_q, dq);
        self.check_keys(&of_keys, dq)?;
        let dq = match dq {
            OWN if cta_q == 0 || step_k == 0 => {
                return Err(format!("dq={dq}: the kernel of dQ has tiles"));
            }
            OWN => {
                let of_queries = self.of_queries(cta_q, step_k);
                self.check(&of_queries)?;
                DqSum::Own(of_queries)
            }
            _ if cta_q != 0 || step_k != 0 => {
                return Err(format!("dq={dq}: dQ has no kernel with tiles"));
            }
            _ => DqSum::Added(DqAccum {
                step_q,
                mma_k: MMA_K,
                ordered: dq == ORDERED,
                vectors: self.target.arch.capability >= VECTORS_CAPABILITY,
            }),
        };
        check_optional(&self.problem, OPERAND_TILE)?;
        Ok(Schedule { of_keys, dq })
    }

    /// The first tile that fits and leaves no SM idle.
    fn first(
        &self,
        half: impl Fn(i64, i64) -> Half,
        check: impl Fn(&Half) -> Result<(), String>,
    ) -> Option<Half> {
        let all: Vec<Half> = TILES
            .into_iter()
            .map(|[rows, step]| half(rows, step))
            .filter(|half| check(half).is_ok())
            .collect();
        let busy = |half: &&Half| half.blocks >= i64::from(self.target.sm_count);
        all.iter().find(busy).or(all.last()).copied()
    }

    /// The largest legal tiles that leave no SM idle, with dQ summed in this way.
    pub(super) fn best_of(&self, dq: i64) -> Option<Settings> {
        let of_keys = self
            .first(|rows, step| self.of_keys(rows, step, dq), |half| self.check_keys(half, dq))?;
        let (cta_k, step_q) = (of_keys.rows, of_keys.step);
        if dq != OWN {
            return Some(Settings { cta_k, cta_q: 0, dq, step_k: 0, step_q });
        }
        let of_queries =
            self.first(|rows, step| self.of_queries(rows, step), |half| self.check(half))?;
        Some(Settings { cta_k, cta_q: of_queries.rows, dq, step_k: of_queries.step, step_q })
    }
}
