//! Tiles of the kernels of gradients on tensor cores, what they take, and which fit.

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::attention::backward::dq_accum::{DqAccum, ORDERED};
use crate::engine::attention::backward::operands::{OPERAND_TILE, check_optional};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::schedule::{MMA_M, line_bytes};
use crate::engine::tunable::settings;
use crate::graph::AttentionShape;
use crate::target::Target;

const THREADS_MAX: i64 = 256;

/// Columns of B that a warp loads at once: head dimensions are padded to them.
const COLUMNS: i64 = 16;

/// Registers for addresses, coordinates and fragments, by NVRTC's report.
const REGISTERS_OTHER: i64 = 64;

/// More of them where operands are rounded to tf32 in registers, and where a score is modified
/// beside accumulators that leave little room.
const REGISTERS_MORE: i64 = 16;

/// Warps that share 16 keys where dK and dV of these are more than one warp's registers.
const WARPS_SHARING: i64 = 2;

/// Bytes of lse, delta and the bounds of the keys of a query.
const QUERY_BYTES: i64 = 16;

/// Bytes of a block's ticket in shared memory.
const TICKET_BYTES: i64 = 16;

/// The settings with the lowest requirements.
pub(super) const LEAST: Settings =
    Settings { cta_k: 16, cta_q: 16, dq: OWN, step_k: 16, step_q: 16 };

/// The same where warps share keys.
pub(super) const LEAST_SHARED: Settings = Settings { step_q: 32, ..LEAST };

/// Rows of a block and of a step in the order in which they are tried: larger ones read what they
/// iterate over less often.
const TILES: [[i64; 2]; 7] =
    [[128, 64], [128, 32], [64, 64], [64, 32], [64, 16], [32, 16], [16, 16]];

/// The same where warps share keys: each has at least 16 queries of a step.
const TILES_SHARED: [[i64; 2]; 3] = [[64, 32], [32, 32], [16, 32]];

/// The value of the knob `dq` where it has a kernel of its own.
pub(super) const OWN: i64 = 0;

settings! { pub(super) struct Settings { cta_k, cta_q, dq, step_k, step_q } }

/// A graph as this engine runs it.
#[derive(Debug)]
pub(super) struct Mma<'a> {
    pub(super) problem: BackwardProblem<'a>,
    pub(super) target: &'a Target,
    /// Type of the MMA's operands in memory; f32 is rounded to tf32.
    pub(super) element: DType,
}

/// A kernel's tile: rows of a block, rows of a step of the other operand, and what they take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Half {
    pub(super) rows: i64,
    pub(super) step: i64,
    /// Warps that share 16 rows: each has some of the scores, and of the columns of results.
    pub(super) warps_d: i64,
    /// How often a warp computes a part of its columns of dQ, where it does.
    pub(super) dq_chunks: i64,
    pub(super) registers: i64,
    pub(super) shared_bytes: i64,
    pub(super) blocks: i64,
}

impl Half {
    pub(super) fn threads(&self) -> i64 {
        self.rows / MMA_M * 32 * self.warps_d
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
        [depth, width].map(|elements| ceil_div(elements, COLUMNS) * COLUMNS)
    }

    pub(super) fn is_tf32(&self) -> bool {
        self.element == DType::F32
    }

    /// K of one MMA: 32 bytes.
    pub(super) fn mma_k(&self) -> i64 {
        32 / self.element.bytes() as i64
    }

    /// Warps that share 16 keys. Those of tf32 do not: their P is no operand from shared memory
    /// (`attention/tile.cuh` permutes lines that it reads by columns).
    fn warps_d(&self) -> i64 {
        let [depth, width] = self.padded();
        let of_score = if self.problem.forward.is_modified() { REGISTERS_MORE } else { 0 };
        let alone = (depth + width) / 2 + COLUMNS + of_score + REGISTERS_OTHER;
        if alone <= REGISTERS_THREAD_MAX || self.is_tf32() { 1 } else { WARPS_SHARING }
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
        let warps_d = self.warps_d();
        let share = |elements: i64, warps: i64| ceil_div(elements, COLUMNS * warps) * COLUMNS;
        let [depth, width] = self.padded().map(|elements| share(elements, warps_d));
        let warp_q = step_q / warps_d;
        let of_tf32 = if self.is_tf32() { REGISTERS_MORE } else { 0 };
        let others = (depth + width) / 2 + REGISTERS_OTHER + of_tf32 + self.score_registers(warp_q);
        // Scores are not needed any more where dQ is computed, as much of it at a time as fits.
        let warps_dq = (cta_k * warps_d / step_q).max(1);
        let [dq_columns, dq_chunks] = match dq {
            OWN => [0, 0],
            _ => chunks_of(share(self.padded()[0], warps_dq), others),
        };
        // dS of a tile and the ticket; P and dS where warps share keys.
        let tile_s = cta_k * line_bytes(self.element, step_q);
        let own_bytes = match (dq, warps_d) {
            (OWN, 1) => 0,
            (OWN, _) => 2 * tile_s,
            (_, warps_d) => warps_d.min(2) * tile_s + TICKET_BYTES,
        };
        Half {
            rows: cta_k,
            step: step_q,
            warps_d,
            dq_chunks,
            registers: others + warp_q.max(dq_columns / 2),
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
            warps_d: 1,
            dq_chunks: 0,
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
        let Half { rows, step, warps_d, .. } = *half;
        if warps_d > 1 && step < warps_d * COLUMNS {
            return Err(format!("{warps_d} warps share {step} queries, 16 at least for each"));
        }
        self.check(half)?;
        if dq == OWN {
            return Ok(());
        }
        if self.problem.rows() == 0 {
            return Err(format!("dq={dq}: there are no queries"));
        }
        if step > rows * warps_d {
            return Err(format!("dq={dq}: {step} queries of dQ for the warps of {rows} keys"));
        }
        DqAccum::of(self.target, step, dq == ORDERED).check(&self.problem)
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
            _ => DqSum::Added(DqAccum::of(self.target, step_q, dq == ORDERED)),
        };
        check_optional(&self.problem, OPERAND_TILE)?;
        Ok(Schedule { of_keys, dq })
    }

    /// The first tile that fits and leaves no SM idle.
    fn first(
        &self,
        tiles: &[[i64; 2]],
        half: impl Fn(i64, i64) -> Half,
        check: impl Fn(&Half) -> Result<(), String>,
    ) -> Option<Half> {
        let all: Vec<Half> = tiles
            .iter()
            .map(|[rows, step]| half(*rows, *step))
            .filter(|half| check(half).is_ok())
            .collect();
        let busy = |half: &&Half| half.blocks >= i64::from(self.target.sm_count);
        all.iter().find(busy).or(all.last()).copied()
    }

    /// All tiles, with dQ added up by blocks in this way.
    pub(super) fn tiles_of(&self, dq: i64) -> impl Iterator<Item = Settings> {
        let of = move |[cta_k, step_q]: &[i64; 2]| {
            let (cta_k, step_q) = (*cta_k, *step_q);
            Settings { cta_k, cta_q: 0, dq, step_k: 0, step_q }
        };
        self.tiles_of_keys().iter().map(of)
    }

    /// Tiles of the kernel of dK and dV, in order.
    fn tiles_of_keys(&self) -> &'static [[i64; 2]] {
        if self.warps_d() == 1 { &TILES } else { &TILES_SHARED }
    }

    /// The largest legal tiles that leave no SM idle, with dQ summed in this way.
    pub(super) fn best_of(&self, dq: i64) -> Option<Settings> {
        let of_keys = self.first(
            self.tiles_of_keys(),
            |rows, step| self.of_keys(rows, step, dq),
            |half| self.check_keys(half, dq),
        )?;
        let (cta_k, step_q) = (of_keys.rows, of_keys.step);
        if dq != OWN {
            return Some(Settings { cta_k, cta_q: 0, dq, step_k: 0, step_q });
        }
        let of_queries =
            self.first(&TILES, |rows, step| self.of_queries(rows, step), |half| self.check(half))?;
        Some(Settings { cta_k, cta_q: of_queries.rows, dq, step_k: of_queries.step, step_q })
    }
}

/// So many columns of dQ, of which a warp computes as many at a time as registers have room for
/// beside `others`; and how often.
fn chunks_of(columns: i64, others: i64) -> [i64; 2] {
    let all = columns / COLUMNS;
    let fits = |chunks: i64| others + columns / chunks / 2 <= REGISTERS_THREAD_MAX;
    let chunks = (1..all).find(|chunks| all % chunks == 0 && fits(*chunks)).unwrap_or(all);
    [columns / chunks, chunks]
}
