//! `ldmatrix`, `stmatrix`, `movmatrix` and `mma`.

use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::draft::{Source, Value};
use crate::error::Result;
use crate::format::Format;
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::{MatrixMove, Multiply, Unit};

impl Decoder<'_> {
    pub(super) fn matrix(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if !m.take("sync") || !m.take("aligned") {
            return Err(m.error("lacks `.sync.aligned`"));
        }
        match i.opcode.as_str() {
            "ldmatrix" | "stmatrix" => self.matrix_move(i, m),
            "movmatrix" => self.matrix_transpose(i, m),
            _ => self.multiply_matrices(i, m),
        }
    }

    fn matrix_move(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let load = i.opcode == "ldmatrix";
        let count = m.take_map(|text| match text {
            "x1" => Some(1),
            "x2" => Some(2),
            "x4" => Some(4),
            _ => None,
        });
        let transposed = m.take("trans");
        let Some(count) = count.filter(|_| m.take("m8n8")) else {
            return Err(m.error("is not a supported form"));
        };
        let window = self.take_window(m);
        if !m.take("b16") {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 2)?;
        let (words, address) = match load {
            true => (&i.operands[0], &i.operands[1]),
            false => (&i.operands[1], &i.operands[0]),
        };
        let address = self.address(address, window)?;
        let (window, wide_address) = (address.window, address.wide);
        let moved = MatrixMove { count, transposed, window, wide_address };
        let mut reads = vec![address.base];
        if load {
            let writes = self.targets(m, words, count.into(), Class::Word)?;
            self.emit(Kind::Unit(Unit::LoadMatrix(moved)), writes, reads, address.offset);
        } else {
            reads.extend(self.vector(m, words, count.into(), Type::B32)?);
            self.emit(Kind::Unit(Unit::StoreMatrix(moved)), Vec::new(), reads, address.offset);
        }
        Ok(())
    }

    fn matrix_transpose(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if !m.take("m8n8") || !m.take("trans") || !m.take("b16") {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 2)?;
        let reads = self.sources(i, &[Type::B32])?;
        let write = self.target(&i.operands[0], Class::Word)?;
        self.emit(Kind::Unit(Unit::TransposeMatrix), vec![write], reads, 0);
        Ok(())
    }

    fn multiply_matrices(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let shape = m.take_map(Format::shape);
        let (row, column) = (m.take("row"), m.take("col"));
        let kind = m.take("kind::f8f6f4");
        let saturate = m.take("satfinite");
        let mut format = || m.take_map(Format::from_name);
        let formats = [format(), format(), format(), format()];
        let [Some(sum), Some(a), Some(b), Some(c)] = formats else {
            return Err(m.error("is not a supported form"));
        };
        let eight = matches!(a, Format::E4m3 | Format::E5m2);
        let known = shape.filter(|&shape| {
            row && column
                && c == sum
                && (!kind || eight)
                && (!saturate || a.integer())
                && known(shape, a, b, sum)
        });
        let Some([rows, _, k]) = known else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 4)?;
        let product = Multiply { m: rows as u8, k: k as u8, a, b, sum, saturate };
        let [in_a, in_b, in_c] = product.registers();
        let (class, ty) = match a {
            Format::F64 => (Class::Wide, Type::B64),
            _ => (Class::Word, Type::B32),
        };
        let mut reads = self.vector(m, &i.operands[1], in_a, ty)?;
        reads.extend(self.vector(m, &i.operands[2], in_b, ty)?);
        reads.extend(self.vector(m, &i.operands[3], in_c, ty)?);
        let writes = self.targets(m, &i.operands[0], in_c, class)?;
        self.emit(Kind::Unit(Unit::Multiply(product)), writes, reads, 0);
        Ok(())
    }

    /// Registers of a vector destination.
    pub(super) fn targets(
        &mut self,
        m: &Modifiers<'_>,
        operand: &Operand,
        count: usize,
        class: Class,
    ) -> Result<Vec<Value>> {
        let elements = self.elements(m, operand, count as u8)?;
        elements.into_iter().map(|element| self.target(element, class)).collect()
    }

    /// Elements of a vector source.
    pub(super) fn vector(
        &mut self,
        m: &Modifiers<'_>,
        operand: &Operand,
        count: usize,
        ty: Type,
    ) -> Result<Vec<Source>> {
        let elements = self.elements(m, operand, count as u8)?;
        elements.into_iter().map(|element| self.source(element, ty)).collect()
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
