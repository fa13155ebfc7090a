//! Instruction descriptors of `tcgen05.mma`.

use crate::format::Format;
use crate::unit::{TensorKind, TensorMultiply};

/// Shape and formats of an MMA on tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Format,
    pub b: Format,
    pub sum: Format,
    pub saturate: bool,
    pub negated: [bool; 2],
    /// Whether A and B are MN-major instead of K-major.
    pub transposed: [bool; 2],
    /// First byte of the scales in their words.
    pub scale_bytes: [usize; 2],
    /// Whether scales are ue4m3 instead of ue8m0.
    pub scale_fraction: bool,
}

fn narrow(code: u32) -> Option<Format> {
    Some(match code {
        0 => Format::E4m3,
        1 => Format::E5m2,
        3 => Format::E2m3,
        4 => Format::E3m2,
        5 => Format::E2m1Byte,
        _ => return None,
    })
}

fn format(kind: TensorKind, code: u32) -> Option<Format> {
    match (kind, code) {
        (TensorKind::F16, 0) => Some(Format::F16),
        (TensorKind::F16, 1) => Some(Format::Bf16),
        (TensorKind::Tf32, 2) => Some(Format::Tf32),
        (TensorKind::I8, 0) => Some(Format::U8),
        (TensorKind::I8, 1) => Some(Format::S8),
        (TensorKind::Mxf4 | TensorKind::Mxf4nvf4, 1) => Some(Format::E2m1),
        (TensorKind::F8f6f4 | TensorKind::Mxf8f6f4, code) => narrow(code),
        _ => None,
    }
}

/// Decodes an instruction descriptor; an error says what is not supported.
pub(crate) fn decode(bits: u32, op: TensorMultiply) -> Result<Shape, String> {
    let field = |low: u32, width: u32| bits >> low & ((1 << width) - 1);
    let flag = |at: u32| field(at, 1) != 0;
    let refused = |what: &str| Err(format!("the instruction descriptor {bits:#010x} has {what}"));
    let scaled = op.scales != 0;
    let formats = (format(op.kind, field(7, 3)), format(op.kind, field(10, 3)));
    let (Some(a), Some(b)) = formats else {
        return refused("an operand type that its kind lacks");
    };
    let sum = match (op.kind, field(4, 2)) {
        _ if scaled => Format::F32,
        (TensorKind::I8, 2) => Format::S32,
        (TensorKind::I8, _) => return refused("a type of D that its kind lacks"),
        (TensorKind::F16 | TensorKind::F8f6f4, 0) => Format::F16,
        (_, 1) => Format::F32,
        _ => return refused("a type of D that its kind lacks"),
    };
    if flag(2) {
        return refused("sparse operands, which are not supported");
    }
    let k = match op.kind {
        TensorKind::Tf32 => 8,
        TensorKind::F16 => 16,
        TensorKind::F8f6f4 | TensorKind::I8 | TensorKind::Mxf8f6f4 => 32,
        TensorKind::Mxf4 | TensorKind::Mxf4nvf4 => 64,
    };
    let (m, n) = (field(24, 5) as usize * 16, field(17, 6) as usize * 8);
    let step = if m == 128 { 16 } else { 8 };
    if !matches!(m, 64 | 128) || scaled && m != 128 || n == 0 || n > 256 || n % step != 0 {
        return refused(&format!("the shape {m} x {n}"));
    }
    if scaled && flag(31) {
        return refused("a K that is not supported");
    }
    let narrow = matches!(op.kind, TensorKind::Mxf4 | TensorKind::Mxf4nvf4);
    if narrow && (flag(15) || flag(16)) {
        return refused("transposed operands of 4 bits");
    }
    let scale_bytes = if scaled { [field(29, 2) as usize, field(4, 2) as usize] } else { [0; 2] };
    let fraction = scaled && !flag(23);
    if fraction && op.kind != TensorKind::Mxf4nvf4 {
        return refused("scales of a type that its kind lacks");
    }
    Ok(Shape {
        m,
        n,
        k,
        a,
        b,
        sum,
        saturate: !scaled && op.kind == TensorKind::I8 && flag(3),
        negated: [flag(13), flag(14)],
        transposed: [flag(15), flag(16)],
        scale_bytes,
        scale_fraction: fraction,
    })
}
