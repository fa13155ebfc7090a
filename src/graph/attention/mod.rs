//! Scaled dot-product attention.

mod backward;
mod modifier;
mod semantics;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

pub use backward::AttentionBackward;
pub use modifier::{CAPTURED_MAX, ScoreInput, score_inputs};
pub(super) use modifier::{COORDINATES, SCORE, captured_slots, is_captured, normalised};

use crate::dtype::DType;
use crate::expr::{Activations, Program, Real, random_words};
use crate::graph::matmul::MatmulMath;

/// Alignment of the diagonal: the diagonal key of query `i` is `i` plus an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Diagonal {
    /// Aligned to the first query and the first key: the offset is 0.
    #[default]
    TopLeft,
    /// Aligned to the last query and the last key: the offset is the number of keys minus the
    /// number of queries, per sequence where lengths are given.
    BottomRight,
}

/// Sliding window: a query attends to keys `diagonal - left <= key <= diagonal + right`. Causal
/// attention has `right = 0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Band {
    /// Alignment of the diagonal.
    pub diagonal: Diagonal,
    /// Number of keys before the diagonal; `None` is unbounded.
    pub left: Option<i64>,
    /// Number of keys after the diagonal; `None` is unbounded.
    pub right: Option<i64>,
}

impl Band {
    /// Returns the causal mask: keys up to the diagonal.
    pub fn causal(diagonal: Diagonal) -> Band {
        Band { diagonal, left: None, right: Some(0) }
    }
}

/// Soft cap of the scores: `cap * tanh(score / cap)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softcap {
    /// The cap, above 0.
    pub cap: Real,
    /// Whether it is applied after bias and slopes instead of before.
    pub last: bool,
}

/// `O = softmax(scores) V` with `scores = scale * Q K^T`, modified and masked as the fields say
/// (Vaswani et al. 2017, "Attention Is All You Need").
///
/// Operands are `q` [B, Hq, Sq, D], `k` [B, Hkv, Skv, D] and `v` [B, Hkv, Skv, Dv], in any memory
/// order (see also `paged`, `queries_max` and `keys_max`), followed by those that the fields
/// enable; results are `o` [B, Hq, Sq, Dv] and, with `statistics`, `lse` [B, Hq, Sq, 1]. Query head
/// `h` reads KV head `h / (Hq / Hkv)`.
///
/// A score is modified in this order: scale, `descale_q`, `descale_k`, soft cap, bias, slopes
/// (ALiBi), `score` program; masked keys are excluded from the softmax. A query without unmasked
/// keys has a result of 0 and an `lse` of minus infinity. Operands are rounded to the math
/// precision. Unnormalised probabilities P may be rounded to the operand type where that has 16
/// bits, to the [type of the MMA](Attention::product_dtype) where it has 8.
///
/// Rows of `k` and `v` beyond the length of a sequence, outside every sequence or page, or outside
/// the sliding window and key intervals of all queries that share the head, are never used and may
/// hold anything, including NaN. Rows of `k` that are masked for another reason may hold anything
/// too. Such rows of `v` must be finite: 0 times NaN is NaN, as in FlashAttention.
///
/// For inference `q`, `k` and `v` may be [8-bit floats](DType::F8E4M3), which are exact in every
/// math precision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Attention {
    /// Precision of the computation; not `i32`.
    pub math: MatmulMath,
    /// Scale of the scores; `None` is `1 / sqrt(D)`.
    pub scale: Option<Real>,
    /// Soft cap of the scores.
    pub softcap: Option<Softcap>,
    /// Sliding window around the diagonal.
    pub band: Band,
    /// Whether `key_begin` and `key_end`, `i32` broadcast to [B, Hq, Sq, 1], restrict each query to
    /// keys `begin <= key < end`.
    pub intervals: bool,
    /// Whether the KV cache is paged: `k` and `v` are [P, Hkv, page, ..]. `page_table`, `i32` [B,
    /// 1, 1, N], holds the N pages of each sequence; entries are clamped to [0, P).
    pub paged: bool,
    /// For variable-length sequences concatenated in `q` [1, Hq, T, D] and in the results: the
    /// maximum number of queries of a sequence. `query_offsets`, `i32` [B + 1, 1, 1, 1], holds the
    /// first row of each sequence and the end of the last. Result rows outside every sequence are
    /// not written.
    pub queries_max: Option<i64>,
    /// For variable-length key sequences concatenated in `k` and `v` [1, Hkv, T, D]: the maximum
    /// number of keys of a sequence. `key_offsets`, `i32` [B + 1, 1, 1, 1], holds the first row of
    /// each sequence and the end of the last.
    pub keys_max: Option<i64>,
    /// Whether scores are multiplied by `descale_q`, broadcast to [B, Hq, 1, 1], after the scale:
    /// the dequantisation factor of an 8-bit `q`.
    pub descale_q: bool,
    /// Whether scores are multiplied by `descale_k`, broadcast to [B, Hkv, 1, 1], after
    /// `descale_q`: the dequantisation factor of an 8-bit `k`.
    pub descale_k: bool,
    /// Whether results are multiplied by `descale_v`, the dequantisation factor of an 8-bit `v`.
    pub descale_v: bool,
    /// Whether `bias`, broadcast to [B, Hq, Sq, Skv], is added to the scores.
    pub bias: bool,
    /// Whether `slopes` [1, Hq, 1, 1] times `key - query` is added to the scores: ALiBi (Press et
    /// al. 2021, "Train Short, Test Long").
    pub slopes: bool,
    /// Whether a bool `mask`, broadcast to [B, Hq, Sq, Skv], selects the unmasked keys.
    pub mask: bool,
    /// Whether `sinks` [1, Hq, 1, 1] are added to the softmax denominator as scores without a
    /// value.
    pub sinks: bool,
    /// Whether `query_lengths`, `i32` [B, 1, 1, 1], holds the number of queries of each sequence,
    /// clamped to [0, Sq]; queries beyond it attend to nothing.
    pub query_lengths: bool,
    /// Whether `key_lengths`, `i32` [B, 1, 1, 1], holds the number of keys of each sequence,
    /// clamped to [0, Skv].
    pub key_lengths: bool,
    /// Probability of dropping an element of P after the softmax; the others are scaled up to
    /// compensate. `seed` and `offset`, `i32` [1, 1, 1, 1], seed the generator (see
    /// [`Attention::kept`]).
    pub dropout: Option<Real>,
    /// Program that modifies a score; its inputs are described at [`score_inputs`]. Captured
    /// tensors are `score_0` and so on.
    pub score: Option<Arc<Program>>,
    /// Program that masks keys: 0 masks the key. Captured tensors are `keep_0` and so on.
    pub keep: Option<Arc<Program>>,
    /// Whether `lse`, the log-sum-exp of each row of scores, is a result.
    pub statistics: bool,
}

/// Extents of an attention operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Batch size.
    pub batches: i64,
    /// Query heads.
    pub heads: i64,
    /// KV heads.
    pub kv_heads: i64,
    /// Queries of a sequence.
    pub queries: i64,
    /// Keys of a sequence.
    pub keys: i64,
    /// Head dimension of queries and keys.
    pub depth: i64,
    /// Head dimension of values.
    pub width: i64,
}

impl AttentionShape {
    /// Dimensions of the scores.
    pub fn scores(&self) -> [i64; 4] {
        [self.batches, self.heads, self.queries, self.keys]
    }

    /// Dimensions of a tensor with one element per query.
    pub fn rows(&self) -> [i64; 4] {
        [self.batches, self.heads, self.queries, 1]
    }

    /// Query heads per KV head.
    pub fn group(&self) -> i64 {
        if self.kv_heads == 0 { 1 } else { self.heads / self.kv_heads }
    }
}

impl Attention {
    /// Returns attention in this precision without modifications.
    pub fn new(math: MatmulMath) -> Attention {
        Attention { math, ..Attention::default() }
    }

    /// Scale of the scores for queries of head dimension `depth`.
    pub fn scale_of(&self, depth: i64) -> f64 {
        self.scale.map_or(1.0 / (depth as f64).sqrt(), Real::get)
    }

    /// Whether dropout keeps the probability of a key: as an element of the random numbers
    /// [`Rng`](crate::graph::Rng) of this seed and offset with dimensions [B, Hq, Sq, Skv], 1 with
    /// probability `1 - dropout`. Rows are whole subsequences, so Skv is the next multiple of 4:
    /// one call of Philox serves four keys wherever a tile begins.
    pub fn kept(&self, seed: i64, offset: i64, shape: &AttentionShape, at: [i64; 4]) -> bool {
        let [batch, head, query, key] = at.map(|at| at as u64);
        let AttentionShape { heads, queries, keys, .. } = *shape;
        let row = (batch * heads as u64 + head) * queries as u64 + query;
        let position = row * (keys as u64).next_multiple_of(4) + key;
        let words = random_words(seed, offset, position);
        words[key as usize % 4] <= self.kept_max()
    }

    /// The largest word that keeps: as many do as the probability of keeping, times 2^32.
    pub fn kept_max(&self) -> u32 {
        let keep = 1.0 - self.dropout.map_or(0.0, Real::get);
        ((keep * 4_294_967_296.0).ceil() - 1.0) as u32
    }

    /// Factor of the kept probabilities.
    pub fn dropout_scale(&self) -> f64 {
        1.0 / (1.0 - self.dropout.map_or(0.0, Real::get))
    }

    /// The score programs present, by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, &Program)> {
        let programs = [("score", &self.score), ("keep", &self.keep)];
        programs.into_iter().filter_map(|(name, of)| of.as_deref().map(|program| (name, program)))
    }

    /// Type in which scores are computed.
    pub fn score_dtype(&self) -> DType {
        self.math.dtype()
    }

    /// Type to which narrower operands are widened for the MMA, given the types of `q`, `k` and
    /// `v`: the widest among them, f32 for f16 next to bf16, and f16 where all have 8 bits. It
    /// represents all their values.
    pub fn product_dtype(types: [DType; 3]) -> DType {
        let wide = types.into_iter().filter(|dtype| !dtype.is_f8());
        wide.reduce(|a, b| match a.bytes().cmp(&b.bytes()) {
            Ordering::Equal if a != b => DType::F32,
            Ordering::Less => b,
            _ => a,
        })
        .unwrap_or(DType::F16)
    }

    /// How sigmoid and tanh, including that of a soft cap, are computed for this type of `q`.
    /// Tensor core operands are rounded with a relative error of at least 2^-12, beside which the
    /// approximation's error of 2^-21 of the cap is negligible for caps up to 512.
    pub fn activations(&self, q: DType) -> Activations {
        match self.math != MatmulMath::F64 && (q.bytes() <= 2 || self.math == MatmulMath::Tf32) {
            true => Activations::Approximate,
            false => Activations::Precise,
        }
    }
}

impl fmt::Display for Attention {
    /// Formats as `attention[causal, softcap 30]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.math != MatmulMath::F32 {
            parts.push(self.math.name().to_owned());
        }
        parts.extend(self.scale.map(|scale| format!("scale {scale}")));
        parts.extend(self.softcap.map(|softcap| {
            let place = if softcap.last { " last" } else { "" };
            format!("softcap {}{place}", softcap.cap)
        }));
        let Band { diagonal, left, right } = self.band;
        parts.extend(left.map(|left| format!("left {left}")));
        parts.extend(right.map(|right| format!("right {right}")));
        if diagonal == Diagonal::BottomRight {
            parts.push("bottom_right".to_owned());
        }
        parts.extend(self.paged.then(|| "paged".to_owned()));
        parts.extend(self.queries_max.map(|most| format!("queries_max {most}")));
        parts.extend(self.keys_max.map(|most| format!("keys_max {most}")));
        parts.extend(self.dropout.map(|probability| format!("dropout {probability}")));
        for (name, program) in self.programs() {
            let lines: Vec<String> = program.to_string().lines().map(str::to_owned).collect();
            parts.push(format!("{name} {{{}}}", lines.join("; ")));
        }
        match parts.is_empty() {
            true => f.write_str("attention"),
            false => write!(f, "attention[{}]", parts.join(", ")),
        }
    }
}
