//! Scaled dot product attention.

mod check;
mod modifier;

use std::fmt;
use std::sync::Arc;

pub use modifier::{CAPTURED_MAX, ScoreInput, score_inputs};
pub(super) use modifier::{COORDINATES, SCORE, captured_slots, is_captured, normalised};

use crate::dtype::DType;
use crate::expr::{Activations, Program, Real};
use crate::graph::matmul::MatmulMath;
use crate::graph::slots::Slots;

/// Which key is on the diagonal of the scores: that of query `i` is `i` plus an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Diagonal {
    /// The first query meets the first key: the offset is 0.
    #[default]
    TopLeft,
    /// The last query meets the last key: the offset is the number of keys less that of queries,
    /// of a sequence's own where lengths are given.
    BottomRight,
}

/// The keys around the diagonal that a query attends to: `diagonal - left <= key <= diagonal +
/// right`. Causal attention has a `right` of 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Band {
    /// Where the diagonal is.
    pub diagonal: Diagonal,
    /// Keys before the diagonal; `None` is all.
    pub left: Option<i64>,
    /// Keys behind the diagonal; `None` is all.
    pub right: Option<i64>,
}

impl Band {
    /// Keys up to the diagonal.
    pub fn causal(diagonal: Diagonal) -> Band {
        Band { diagonal, left: None, right: Some(0) }
    }
}

/// Scores within bounds: `cap * tanh(score / cap)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softcap {
    /// The bound, above 0.
    pub cap: Real,
    /// Whether it applies behind bias and slopes; or else before them.
    pub last: bool,
}

/// `O = softmax(scores) V` with `scores = scale * Q K^T`, modified and masked as the fields say
/// (Vaswani et al. 2017, "Attention Is All You Need").
///
/// Operands are `q` [B, Hq, Sq, D], `k` [B, Hkv, Skv, D] and `v` [B, Hkv, Skv, Dv], in any memory
/// order (or as `paged`, `queries_max` and `keys_max` say), then what the fields add; results are
/// `o` [B, Hq, Sq, Dv] and, with `statistics`, `lse` [B, Hq, Sq, 1]. Query head `h` reads head `h /
/// (Hq / Hkv)` of keys and values.
///
/// A score passes, in this order, the scale, `descale_q`, `descale_k`, the soft cap, the bias, the
/// slopes (ALiBi) and the `score` program; what the masks leave out takes no part in the sum. A
/// query with nothing to attend to gives 0, and an `lse` of minus infinity. Operands are rounded to
/// the math precision; the weights of 16-bit values, relative to the largest, may be rounded to
/// their type, those of 8-bit values to the [type of the products](Attention::product_dtype).
///
/// Keys behind the length of a sequence, of no sequence, on no page of one, and in front of or
/// behind all that queries attend to by band and intervals, in heads that share them, may be
/// anything, stale memory included, and so may rows of `k` that a query leaves out for another
/// reason. Such rows of `v` must be finite: a weight of 0 times NaN is NaN, as in FlashAttention.
///
/// For inference `q`, `k` and `v` may be [floats of 8 bits](DType::F8E4M3), which are exact in
/// every precision that is computed in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Attention {
    /// What is computed in: not `i32`.
    pub math: MatmulMath,
    /// Factor of the scores; `None` is `1 / sqrt(D)`.
    pub scale: Option<Real>,
    /// Whether scores are capped.
    pub softcap: Option<Softcap>,
    /// The keys around the diagonal that take part.
    pub band: Band,
    /// Whether `key_begin` and `key_end`, `i32` broadcast to [B, Hq, Sq, 1], give the keys `begin
    /// <= key < end` that take part.
    pub intervals: bool,
    /// Whether `k` and `v` are [P, Hkv, page, ..], pages of keys. `page_table`, `i32` [B, 1, 1, N],
    /// gives each sequence N of them; entries are limited to [0, P).
    pub paged: bool,
    /// The most queries of a sequence, where those of all sequences lie one behind the other in
    /// `q` [1, Hq, T, D], and their results alike. `query_offsets`, `i32` [B + 1, 1, 1, 1], says
    /// where each begins and the next one ends it. Results of no sequence are left as they are.
    pub queries_max: Option<i64>,
    /// The most keys of a sequence, where those of all sequences lie one behind the other in `k`
    /// and `v` [1, Hkv, T, D]; `key_offsets`, `i32` [B + 1, 1, 1, 1], says where each begins.
    pub keys_max: Option<i64>,
    /// Whether scores are multiplied with `descale_q`, broadcast to [B, Hq, 1, 1], before anything
    /// else: what `q` was divided by to fit in 8 bits.
    pub descale_q: bool,
    /// Whether scores are multiplied with `descale_k`, broadcast to [B, Hkv, 1, 1], behind
    /// `descale_q`: what `k` was divided by to fit in 8 bits.
    pub descale_k: bool,
    /// Whether results are multiplied with `descale_v`, as `v` was divided.
    pub descale_v: bool,
    /// Whether a `bias`, broadcast to [B, Hq, Sq, Skv], is added to the scores.
    pub bias: bool,
    /// Whether `slopes` [1, Hq, 1, 1] times `key - query` are added to the scores (Press et al.
    /// 2021, "Train Short, Test Long").
    pub slopes: bool,
    /// Whether a `mask` of bool, broadcast to [B, Hq, Sq, Skv], says which keys take part.
    pub mask: bool,
    /// Whether `sinks` [1, Hq, 1, 1] are scores that take part in the sum but have no value.
    pub sinks: bool,
    /// Whether `query_lengths`, `i32` [B, 1, 1, 1], gives the queries of each sequence, limited to
    /// [0, Sq]; those beyond attend to nothing.
    pub query_lengths: bool,
    /// Whether `key_lengths`, `i32` [B, 1, 1, 1], gives the keys of each sequence, limited to
    /// [0, Skv].
    pub key_lengths: bool,
    /// The probability that a weight is dropped, behind the softmax; others are scaled to make up
    /// for it. `seed` and `offset`, `i32` [1, 1, 1, 1], say which (see [`Attention::kept`]).
    pub dropout: Option<Real>,
    /// What becomes of a score, as [`score_inputs`] reads it; captured tensors are `score_0` and
    /// so on.
    pub score: Option<Arc<Program>>,
    /// Whether a key takes part: not where the program gives 0. Captured tensors are `keep_0` and
    /// so on.
    pub keep: Option<Arc<Program>>,
    /// Whether `lse`, the logarithm of the sum of the exponentials of a row's scores, is a result.
    pub statistics: bool,
}

/// The extents of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Sequences.
    pub batches: i64,
    /// Heads of queries.
    pub heads: i64,
    /// Heads of keys and values.
    pub kv_heads: i64,
    /// Queries of a sequence.
    pub queries: i64,
    /// Keys of a sequence.
    pub keys: i64,
    /// Elements of a query and a key.
    pub depth: i64,
    /// Elements of a value.
    pub width: i64,
}

impl AttentionShape {
    /// The dimensions of the scores.
    pub fn scores(&self) -> [i64; 4] {
        [self.batches, self.heads, self.queries, self.keys]
    }

    /// The dimensions of what there is one of for each query.
    pub fn rows(&self) -> [i64; 4] {
        [self.batches, self.heads, self.queries, 1]
    }

    /// Query heads that read one head of keys and values.
    pub fn group(&self) -> i64 {
        if self.kv_heads == 0 { 1 } else { self.heads / self.kv_heads }
    }
}

impl Attention {
    /// Plain attention in this precision.
    pub fn new(math: MatmulMath) -> Attention {
        Attention { math, ..Attention::default() }
    }

    /// The factor of the scores of queries with `depth` elements.
    pub fn scale_of(&self, depth: i64) -> f64 {
        self.scale.map_or(1.0 / (depth as f64).sqrt(), Real::get)
    }

    /// Whether dropout keeps the weight of a key. The number of a weight is word `key % 4` of
    /// Philox 4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3") with the
    /// key (`seed`, 0) at the counter (`key / 4`, `query`, `batch * Hq + head`, `offset`); the
    /// weight is kept where it is not below the [threshold](Attention::dropout_threshold).
    pub fn kept(&self, seed: i32, [key, query, row, offset]: [u32; 4]) -> bool {
        let words = philox([seed as u32, 0], [key / 4, query, row, offset]);
        words[key as usize % 4] >= self.dropout_threshold()
    }

    /// Weights whose number is below are dropped: the probability times 2^32, rounded down.
    pub fn dropout_threshold(&self) -> u32 {
        self.dropout.map_or(0, |probability| (probability.get() * 4_294_967_296.0) as u32)
    }

    /// What kept weights are multiplied with.
    pub fn dropout_scale(&self) -> f64 {
        1.0 / (1.0 - self.dropout.map_or(0.0, Real::get))
    }

    /// The programs over scores that there are, by their names.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, &Program)> {
        let programs = [("score", &self.score), ("keep", &self.keep)];
        programs.into_iter().filter_map(|(name, of)| of.as_deref().map(|program| (name, program)))
    }

    /// This attention with programs that compute in the type of [`Attention::math`].
    pub(super) fn in_own_math(self) -> Attention {
        let raised = |program: &Option<Arc<Program>>| {
            program.as_deref().map(|program| Arc::new(program.lines_in_f64()))
        };
        match self.math {
            MatmulMath::F64 => {
                let (score, keep) = (raised(&self.score), raised(&self.keep));
                Attention { score, keep, ..self }
            }
            _ => self,
        }
    }

    /// This attention with programs in canonical form: their names are those of slots and
    /// coordinates.
    pub(super) fn normalised(&self) -> Attention {
        let plain = |name: &str, program: &Option<Arc<Program>>| {
            program.as_deref().map(|program| Arc::new(normalised(name, program)))
        };
        let (score, keep) = (plain("score", &self.score), plain("keep", &self.keep));
        Attention { score, keep, ..self.clone() }
    }

    pub(super) fn slots(&self) -> Slots {
        let mut slots = Slots::new(&["q", "k", "v"], &["o"]);
        let inputs = &mut slots.inputs;
        let mut given = |given: bool, names: &[&'static str]| {
            inputs.extend(names.iter().filter(|_| given));
        };
        given(self.paged, &["page_table"]);
        given(self.queries_max.is_some(), &["query_offsets"]);
        given(self.keys_max.is_some(), &["key_offsets"]);
        given(self.intervals, &["key_begin", "key_end"]);
        given(self.descale_q, &["descale_q"]);
        given(self.descale_k, &["descale_k"]);
        given(self.descale_v, &["descale_v"]);
        given(self.bias, &["bias"]);
        given(self.slopes, &["slopes"]);
        given(self.mask, &["mask"]);
        given(self.sinks, &["sinks"]);
        given(self.query_lengths, &["query_lengths"]);
        given(self.key_lengths, &["key_lengths"]);
        given(self.dropout.is_some(), &["seed", "offset"]);
        for (name, program) in self.programs() {
            let count = modifier::captured(program).count();
            inputs.extend(captured_slots(name).take(count));
        }
        if self.statistics {
            slots.outputs.push("lse");
        }
        slots
    }

    /// The type that scores are computed in.
    pub fn score_dtype(&self) -> DType {
        self.math.dtype()
    }

    /// The type that operands of 8 bits are widened to beside others of these, `q`, `k` and `v`:
    /// that of the first wider one, else f16, which has all their values.
    pub fn product_dtype(types: [DType; 3]) -> DType {
        types.into_iter().find(|dtype| !dtype.is_f8()).unwrap_or(DType::F16)
    }

    /// How sigmoid and tanh, that of a softcap too, are computed where queries have this type:
    /// weights of tensor cores are rounded to 2^-12 of themselves or more, to which 2^-21 of a cap
    /// adds less up to one of 512.
    pub fn activations(&self, q: DType) -> Activations {
        match self.math != MatmulMath::F64 && (q.bytes() <= 2 || self.math == MatmulMath::Tf32) {
            true => Activations::Approximate,
            false => Activations::Precise,
        }
    }
}

/// Four words of Philox 4x32-10.
fn philox(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    for _ in 0..10 {
        let product = |at: usize| u64::from(MULTIPLIERS[at]) * u64::from(counter[2 * at]);
        let [a, b] = [product(0), product(1)];
        let high = |of: u64| (of >> 32) as u32;
        counter =
            [high(b) ^ counter[1] ^ key[0], b as u32, high(a) ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

impl fmt::Display for Attention {
    /// `attention[causal, softcap 30]`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Random123 (`kat_vectors`, philox4x32 10).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(philox([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
