//! `ldmatrix`, `stmatrix` and `movmatrix`.

use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::draft::{Source, Value};
use crate::error::Result;
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::{MatrixMove, Unit};

impl Decoder<'_> {
    pub(super) fn matrix(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if !m.take("sync") || !m.take("aligned") {
            return Err(m.error("lacks `.sync.aligned`"));
        }
        match i.opcode.as_str() {
            "ldmatrix" | "stmatrix" => self.matrix_move(i, m),
            _ => self.matrix_transpose(i, m),
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
