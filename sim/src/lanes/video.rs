//! Arithmetic on two or four integers packed in a word.
//!
//! The immediate holds the number of parts in its low bits, the flags below and the operation.

use super::lane::lane_ops;

/// Operation on a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VideoOp {
    Add,
    Subtract,
    Average,
    Difference,
    Min,
    Max,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

pub(crate) const VIDEO_SIGNED_A: i64 = 1 << 4;
pub(crate) const VIDEO_SIGNED_B: i64 = 1 << 5;
pub(crate) const VIDEO_SIGNED_RESULT: i64 = 1 << 6;
/// Immediate flag: clamp the results to their type.
pub(crate) const VIDEO_SATURATES: i64 = 1 << 7;
/// Immediate flag: the results are added up, and to the third operand.
pub(crate) const VIDEO_ADDS: i64 = 1 << 8;
/// Immediate flag: negative results are zero.
pub(crate) const VIDEO_RELU: i64 = 1 << 9;
/// Position of the operation.
pub(crate) const VIDEO_OP: i64 = 12;

/// Part `index` of a word.
#[inline(always)]
fn part(word: u32, bits: u32, index: u32, signed: bool) -> i32 {
    let high = word << (32 - bits * (index + 1));
    if signed { high as i32 >> (32 - bits) } else { (high >> (32 - bits)) as i32 }
}

#[inline(always)]
fn apply(op: i64, a: i32, b: i32) -> i32 {
    const OPS: [VideoOp; 12] = [
        VideoOp::Add,
        VideoOp::Subtract,
        VideoOp::Average,
        VideoOp::Difference,
        VideoOp::Min,
        VideoOp::Max,
        VideoOp::Equal,
        VideoOp::NotEqual,
        VideoOp::Less,
        VideoOp::LessEqual,
        VideoOp::Greater,
        VideoOp::GreaterEqual,
    ];
    match OPS[op as usize % OPS.len()] {
        VideoOp::Add => a + b,
        VideoOp::Subtract => a - b,
        // Halves are rounded away from zero.
        VideoOp::Average if a + b >= 0 => (a + b + 1) >> 1,
        VideoOp::Average => (a + b) >> 1,
        VideoOp::Difference => (a - b).abs(),
        VideoOp::Min => a.min(b),
        VideoOp::Max => a.max(b),
        VideoOp::Equal => (a == b).into(),
        VideoOp::NotEqual => (a != b).into(),
        VideoOp::Less => (a < b).into(),
        VideoOp::LessEqual => (a <= b).into(),
        VideoOp::Greater => (a > b).into(),
        VideoOp::GreaterEqual => (a >= b).into(),
    }
}

#[inline(always)]
fn video(a: u32, b: u32, c: u32, flags: i64) -> u32 {
    let parts = (flags & 15) as u32;
    let bits = 32 / parts.max(1);
    let has = |flag: i64| flags & flag != 0;
    let (mut packed, mut sum) = (0_u32, c);
    for index in 0..parts {
        let a = part(a, bits, index, has(VIDEO_SIGNED_A));
        let b = part(b, bits, index, has(VIDEO_SIGNED_B));
        let mut value = apply(flags >> VIDEO_OP, a, b);
        if has(VIDEO_SATURATES) {
            value = match has(VIDEO_SIGNED_RESULT) {
                true => value.clamp(-1 << (bits - 1), (1 << (bits - 1)) - 1),
                false => value.clamp(0, (1 << bits) - 1),
            };
        }
        if has(VIDEO_RELU) {
            value = value.max(0);
        }
        sum = sum.wrapping_add(value as u32);
        packed |= (value as u32 & ((1 << bits) - 1)) << (bits * index);
    }
    if has(VIDEO_ADDS) { sum } else { packed }
}

lane_ops! {
    Video(a: u32, b: u32, c: u32; flags) -> u32 = video(a, b, c, flags);
    MinRelu(a: i32, b: i32) -> i32 = a.min(b).max(0);
    MaxRelu(a: i32, b: i32) -> i32 = a.max(b).max(0);
}
