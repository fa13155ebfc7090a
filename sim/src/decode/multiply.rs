//! `mma`.

use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::error::Result;
use crate::format::Format;
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::{Multiply, Scale, Sparsity, Unit};

/// Kind of the operands, where an instruction names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// Elements of 4, 6 and 8 bits, each in a byte.
    Bytes,
    /// The same with scales.
    ScaledBytes,
    /// Elements of 4 bits with scales of ue8m0, or of either type.
    Scaled4,
    Scaled4Either,
}

fn named(text: &str) -> Option<Named> {
    Some(match text {
        "kind::f8f6f4" => Named::Bytes,
        "kind::mxf8f6f4" => Named::ScaledBytes,
        "kind::mxf4" => Named::Scaled4,
        "kind::mxf4nvf4" => Named::Scaled4Either,
        _ => return None,
    })
}

impl Decoder<'_> {
    pub(super) fn multiply_matrices(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
    ) -> Result<()> {
        if !m.take("sync") || !m.take("aligned") {
            return Err(m.error("lacks `.sync.aligned`"));
        }
        let ordered = m.take("sp::ordered_metadata");
        let sparse = ordered || m.take("sp");
        let shape = m.take_map(Format::shape);
        let (row, column) = (m.take("row"), m.take("col"));
        let kind = m.take_map(named);
        let scaled = m.take("block_scale");
        let vector = m.take_map(|text| match text {
            "scale_vec::1X" => Some(1),
            "scale_vec::2X" => Some(2),
            "scale_vec::4X" => Some(4),
            _ => None,
        });
        let saturate = m.take("satfinite");
        let mut format = || m.take_map(Format::from_name);
        let formats = [format(), format(), format(), format()];
        let [Some(sum), Some(mut a), Some(mut b), Some(c)] = formats else {
            return Err(m.error("is not a supported form"));
        };
        if matches!(kind, Some(Named::Bytes | Named::ScaledBytes)) {
            (a, b) = (a.in_byte(), b.in_byte());
        }
        let float = matches!(sum, Format::F16 | Format::F32);
        let fits = |shape: [u32; 3]| match (kind, sparse) {
            (None, false) => known(shape, a, b, sum),
            (None, true) => known_sparse(shape, a, b, sum),
            (Some(Named::Bytes), false) => shape == [16, 8, 32] && bytes(a, b) && float,
            (Some(Named::Bytes), true) => shape == [16, 8, 64] && bytes(a, b) && float && ordered,
            (Some(_), true) => false,
            (Some(Named::ScaledBytes), false) => {
                shape == [16, 8, 32] && bytes(a, b) && sum == Format::F32
            }
            (Some(_), false) => {
                shape == [16, 8, 64] && [a, b, sum] == [Format::E2m1, Format::E2m1, Format::F32]
            }
        };
        let whole = row && column && c == sum && (!saturate || a.integer());
        let Some([rows, _, k]) = shape.filter(|&shape| whole && fits(shape)) else {
            return Err(m.error("is not a supported form"));
        };
        let scale = match (kind, scaled) {
            (None | Some(Named::Bytes), false) => None,
            (Some(kind), true) => Some(self.scale(i, m, kind, vector)?),
            _ => return Err(m.error("is not a supported form")),
        };
        self.count(
            i,
            m,
            if scaled {
                8
            } else if sparse {
                6
            } else {
                4
            },
        )?;
        let sparsity = match sparse {
            true => Some(Sparsity { selector: selector(i, m, k as usize / a.chunk())?, ordered }),
            false => None,
        };
        let product = Multiply { m: rows as u8, k: k as u8, a, b, sum, saturate, scale, sparsity };
        let [in_a, in_b, in_c] = product.registers();
        let (class, ty) = match a {
            Format::F64 => (Class::Wide, Type::B64),
            _ => (Class::Word, Type::B32),
        };
        let mut reads = self.vector(m, &i.operands[1], in_a, ty)?;
        reads.extend(self.vector(m, &i.operands[2], in_b, ty)?);
        reads.extend(self.vector(m, &i.operands[3], in_c, ty)?);
        if scaled || sparse {
            reads.push(self.source(&i.operands[4], Type::B32)?);
        }
        if scaled {
            reads.push(self.source(&i.operands[6], Type::B32)?);
        }
        let writes = self.targets(m, &i.operands[0], in_c, class)?;
        self.emit(Kind::Unit(Unit::Multiply(product)), writes, reads, 0);
        Ok(())
    }

    /// Decodes the scales' type, their number along K, and where they are.
    fn scale(
        &self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        kind: Named,
        vector: Option<u8>,
    ) -> Result<Scale> {
        let fraction = m.take("ue4m3");
        let power = m.take("ue8m0");
        let vector = match (kind, vector) {
            (Named::ScaledBytes, None | Some(1)) if power => 1,
            (Named::Scaled4, None | Some(2)) if power => 2,
            (Named::Scaled4Either, Some(2)) if power => 2,
            (Named::Scaled4Either, Some(4)) if power || fraction => 4,
            _ => return Err(m.error("is not a supported form")),
        };
        let selector = |at: usize, threads: i64| match i.operands.get(at) {
            Some(Operand::Vector(items)) => match items[..] {
                [Operand::Int(byte), Operand::Int(thread)]
                    if (0..4).contains(&byte)
                        && byte % i64::from(vector) == 0
                        && (0..threads).contains(&thread) =>
                {
                    Ok([byte as u8, thread as u8])
                }
                _ => Err(m.error("has an unsupported selector of scales")),
            },
            _ => Err(m.error("lacks a selector of scales")),
        };
        Ok(Scale { vector, fraction, a: selector(5, 2)?, b: selector(7, 4)? })
    }
}

/// Whether `mma.sync` supports the shape and formats.
fn known(shape: [u32; 3], a: Format, b: Format, sum: Format) -> bool {
    use Format::*;
    match (a, b, sum) {
        (F16, F16, F16 | F32) | (Bf16, Bf16, F32) => {
            matches!(shape, [16, 8, 8] | [16, 8, 16])
        }
        (Tf32, Tf32, F32) => matches!(shape, [16, 8, 4] | [16, 8, 8]),
        (F64, F64, F64) => matches!(shape, [8, 8, 4] | [16, 8, 4 | 8 | 16]),
        (E4m3 | E5m2, E4m3 | E5m2, F16 | F32) => matches!(shape, [16, 8, 16 | 32]),
        (S8 | U8, S8 | U8, S32) => matches!(shape, [8, 8, 16] | [16, 8, 16 | 32]),
        (S4 | U4, S4 | U4, S32) => matches!(shape, [8, 8, 32] | [16, 8, 32 | 64]),
        _ => false,
    }
}

/// Whether `mma.sp.sync` supports the shape and formats.
fn known_sparse(shape: [u32; 3], a: Format, b: Format, sum: Format) -> bool {
    use Format::*;
    match (a, b, sum) {
        (F16, F16, F16 | F32) | (Bf16, Bf16, F32) => matches!(shape, [16, 8, 16 | 32]),
        (Tf32, Tf32, F32) => matches!(shape, [16, 8, 8 | 16]),
        (E4m3 | E5m2, E4m3 | E5m2, F32) => shape == [16, 8, 64],
        (S8 | U8, S8 | U8, S32) => matches!(shape, [16, 8, 32 | 64]),
        (S4 | U4, S4 | U4, S32) => matches!(shape, [16, 8, 64 | 128]),
        _ => false,
    }
}

/// The sparsity selector of an MMA with rows of 4, 8 or 16 chunks: which thread, or which two
/// threads, of four hold the metadata; 0 where all of them do.
fn selector(i: &Instruction, m: &Modifiers<'_>, chunks: usize) -> Result<u8> {
    let choices = 16 / chunks;
    match i.operands[5] {
        Operand::Int(choice) if (0..choices as i64).contains(&choice) => Ok(choice as u8),
        _ => Err(m.error("has an unsupported sparsity selector")),
    }
}

/// Whether the formats are those of floating-point elements in bytes.
fn bytes(a: Format, b: Format) -> bool {
    let narrow = |format| {
        use Format::*;
        matches!(format, E4m3 | E5m2 | E3m2 | E2m3 | E2m1Byte)
    };
    narrow(a) && narrow(b)
}
