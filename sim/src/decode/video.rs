//! Arithmetic on packed integers: the SIMD video instructions, and `add`, `min`, `max` of `.u16x2`
//! and `.s16x2`.

use super::{Decoder, Modifiers};
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, VideoOp, handler};
use crate::types::{Class, Type};

/// Operation and number of parts of a video instruction.
fn parts(opcode: &str) -> Option<(VideoOp, i64)> {
    Some(match opcode {
        "vadd2" => (VideoOp::Add, 2),
        "vadd4" => (VideoOp::Add, 4),
        "vsub2" => (VideoOp::Subtract, 2),
        "vsub4" => (VideoOp::Subtract, 4),
        "vavrg2" => (VideoOp::Average, 2),
        "vavrg4" => (VideoOp::Average, 4),
        "vabsdiff2" => (VideoOp::Difference, 2),
        "vabsdiff4" => (VideoOp::Difference, 4),
        "vmin2" => (VideoOp::Min, 2),
        "vmin4" => (VideoOp::Min, 4),
        "vmax2" => (VideoOp::Max, 2),
        "vmax4" => (VideoOp::Max, 4),
        "vset2" => (VideoOp::Equal, 2),
        "vset4" => (VideoOp::Equal, 4),
        _ => return None,
    })
}

fn relation(text: &str) -> Option<VideoOp> {
    Some(match text {
        "eq" => VideoOp::Equal,
        "ne" => VideoOp::NotEqual,
        "lt" => VideoOp::Less,
        "le" => VideoOp::LessEqual,
        "gt" => VideoOp::Greater,
        "ge" => VideoOp::GreaterEqual,
        _ => return None,
    })
}

impl Decoder<'_> {
    pub(super) fn video(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let Some((mut op, parts)) = parts(&i.opcode) else {
            return Err(m.error("is not a supported form"));
        };
        let compares = op == VideoOp::Equal;
        let result = if compares { Type::U32 } else { m.ty()? };
        let types = [result, m.ty()?, m.ty()?];
        if !types.iter().all(|ty| matches!(ty, Type::U32 | Type::S32)) {
            return Err(m.error("is not a supported form"));
        }
        let saturate = !compares && m.take("sat");
        let adds = m.take("add");
        if compares {
            match m.take_map(relation) {
                Some(relation) => op = relation,
                None => return Err(m.error("lacks a comparison")),
            }
        }
        self.count(i, m, 4)?;
        let reads = self.sources(i, &[types[1], types[2], Type::B32])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        let mut flags = parts | (op as i64) << lanes::VIDEO_OP;
        let bits = [
            (types[0].signed(), lanes::VIDEO_SIGNED_RESULT),
            (types[1].signed(), lanes::VIDEO_SIGNED_A),
            (types[2].signed(), lanes::VIDEO_SIGNED_B),
            (saturate, lanes::VIDEO_SATURATES),
            (adds, lanes::VIDEO_ADDS),
        ];
        flags |= bits.iter().filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit);
        self.lane(handler::<lanes::Video>(), write, reads, flags);
        Ok(())
    }

    /// `add`, `min` and `max` of two 16-bit integers.
    pub(super) fn integer_pair(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let signed = m.take("s16x2");
        let op = match i.opcode.as_str() {
            "add" => VideoOp::Add,
            "min" => VideoOp::Min,
            "max" => VideoOp::Max,
            _ => return Err(m.error("is not a supported form")),
        };
        if !signed && !m.take("u16x2") {
            return Err(m.error("is not a supported form"));
        }
        let relu = signed && op != VideoOp::Add && m.take("relu");
        self.count(i, m, 3)?;
        let mut reads = self.sources(i, &[Type::B32, Type::B32])?;
        reads.push(Source::Word(0));
        let write = self.target(&i.operands[0], Class::Word)?;
        let mut flags = 2 | (op as i64) << lanes::VIDEO_OP;
        if signed {
            flags |= lanes::VIDEO_SIGNED_A | lanes::VIDEO_SIGNED_B | lanes::VIDEO_SIGNED_RESULT;
        }
        if relu {
            flags |= lanes::VIDEO_RELU;
        }
        self.lane(handler::<lanes::Video>(), write, reads, flags);
        Ok(())
    }
}
