//! `tcgen05`.

use super::{Decoder, Modifiers};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::{
    TensorCopy, TensorKind, TensorMove, TensorMultiply, TensorOp, TensorShape, Unit,
};

impl Decoder<'_> {
    pub(super) fn tensor_core(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if i.modifiers.iter().any(|text| text.starts_with("cta_group::") && text.ends_with('2')) {
            return Err(m.error("needs pairs of blocks, which are not supported"));
        }
        let op = i.modifiers.first().map_or("", String::as_str);
        if ["alloc", "dealloc", "relinquish_alloc_permit"].contains(&op) {
            return self.tensor_allocation(i, m);
        }
        if m.take("ld") || m.take("st") {
            return self.tensor_move(i, m);
        }
        if op == "wait::ld" || op == "wait::st" {
            m.take(op);
            if !m.take("sync") || !m.take("aligned") {
                return Err(m.error("is not a supported form"));
            }
            self.count(i, m, 0)?;
            self.tensor(TensorOp::Wait { loads: op == "wait::ld" }, Vec::new());
            return Ok(());
        }
        if m.take("fence::before_thread_sync") || m.take("fence::after_thread_sync") {
            self.count(i, m, 0)?;
            self.emit(Kind::Fence, Vec::new(), Vec::new(), 0);
            return Ok(());
        }
        let group = m.take("cta_group::1");
        match op {
            "commit" if group => self.tensor_commit(i, m),
            "cp" if group => self.tensor_copy(i, m),
            "mma" if group => self.tensor_multiply(i, m),
            _ => Err(m.error("is not a supported form")),
        }
    }

    fn tensor(&mut self, op: TensorOp, reads: Vec<Source>) {
        self.emit(Kind::Unit(Unit::Tensor(op)), Vec::new(), reads, 0);
    }

    fn tensor_allocation(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let all = ["cta_group::1", "sync", "aligned"];
        if !all.iter().all(|name| m.take(name)) {
            return Err(m.error("is not a supported form"));
        }
        if m.take("relinquish_alloc_permit") {
            self.count(i, m, 0)?;
            self.tensor(TensorOp::Relinquish, Vec::new());
            return Ok(());
        }
        let window = self.take_window(m);
        if !m.take("b32") {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 2)?;
        let count = self.source(&i.operands[1], Type::U32)?;
        if m.take("alloc") {
            let (window, address) = self.plain_address(&i.operands[0], window)?;
            self.tensor(TensorOp::Allocate { window }, vec![address, count]);
        } else {
            m.take("dealloc");
            let address = self.source(&i.operands[0], Type::B32)?;
            self.tensor(TensorOp::Free, vec![address, count]);
        }
        Ok(())
    }

    /// An address in tensor memory: `[%r1 + 8]`.
    fn tensor_address(&mut self, operand: &Operand) -> Result<Source> {
        let Operand::Address { base, offset, rest } = operand else {
            return self.invalid("expected an address in brackets");
        };
        if !rest.is_empty() {
            return self.invalid("an address with coordinates");
        }
        let base = self.source(base, Type::B32)?;
        if *offset == 0 {
            return Ok(base);
        }
        let reads = vec![base, Source::Word(*offset as u32)];
        Ok(self.lane_new::<crate::lanes::IntAdd<u32>>(Class::Word, reads))
    }

    fn tensor_move(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let load = i.modifiers.first().is_some_and(|name| name == "ld");
        let shape = m.take_map(|text| match text {
            "32x32b" => Some((TensorShape::L32x32, 1)),
            "16x64b" => Some((TensorShape::L16x64, 1)),
            "16x128b" => Some((TensorShape::L16x128, 2)),
            "16x256b" => Some((TensorShape::L16x256, 4)),
            "16x32bx2" => Some((TensorShape::L16x32x2(0), 1)),
            _ => None,
        });
        let count = m.take_map(|text| {
            let count: usize = text.strip_prefix('x')?.parse().ok()?;
            (count.is_power_of_two() && count <= 128).then_some(count)
        });
        let packed = m.take(if load { "pack::16b" } else { "unpack::16b" });
        let all = ["sync", "aligned", "b32"].iter().all(|name| m.take(name));
        let (Some((mut shape, registers)), Some(count), true) = (shape, count, all) else {
            return Err(m.error("is not a supported form"));
        };
        let words = registers * count;
        if words > 128 {
            return Err(m.error("is not a supported form"));
        }
        let (address, data, split) = match (load, matches!(shape, TensorShape::L16x32x2(_))) {
            (true, split) => (1, 0, split.then_some(2)),
            (false, false) => (0, 1, None),
            (false, true) => (0, 2, Some(1)),
        };
        self.count(i, m, 2 + usize::from(split.is_some()))?;
        if let Some(at) = split {
            let Operand::Int(columns @ 0..512) = i.operands[at] else {
                return Err(m.error("has an unsupported split offset"));
            };
            shape = TensorShape::L16x32x2(columns as u16);
        }
        let moved = TensorMove { shape, words: words as u8, packed };
        let mut reads = vec![self.tensor_address(&i.operands[address])?];
        if load {
            let writes = self.targets(m, &i.operands[data], words, Class::Word)?;
            self.emit(Kind::Unit(Unit::Tensor(TensorOp::Load(moved))), writes, reads, 0);
        } else {
            reads.extend(self.vector(m, &i.operands[data], words, Type::B32)?);
            self.tensor(TensorOp::Store(moved), reads);
        }
        Ok(())
    }

    fn tensor_commit(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        m.take("commit");
        let arrives = m.take("mbarrier::arrive::one");
        let window = self.take_window(m);
        let multicast = m.take("multicast::cluster");
        if !arrives || !m.take("b64") {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, 1 + usize::from(multicast))?;
        let barrier = match &i.operands[0] {
            address @ Operand::Address { .. } => address.clone(),
            register => {
                Operand::Address { base: Box::new(register.clone()), offset: 0, rest: Vec::new() }
            }
        };
        let (window, address) = self.plain_address(&barrier, window)?;
        let mut reads = vec![address];
        if multicast {
            reads.push(self.source(&i.operands[1], Type::B16)?);
        }
        self.tensor(TensorOp::Commit { window, multicast }, reads);
        Ok(())
    }

    fn tensor_copy(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        m.take("cp");
        let shape = m.take_map(|text| match text {
            "128x256b" => Some((128, 2)),
            "128x128b" => Some((128, 1)),
            "64x128b" => Some((64, 1)),
            "32x128b" => Some((32, 1)),
            _ => None,
        });
        let multicast = m.take_map(|text| match text {
            "warpx4" => Some((32, [0xf, 0, 0, 0])),
            "warpx2::02_13" => Some((64, [0b0101, 0b1010, 0, 0])),
            "warpx2::01_23" => Some((64, [0b0011, 0b1100, 0, 0])),
            _ => None,
        });
        let places = match (shape, multicast) {
            (Some((128, _)), None) => Some([1, 2, 4, 8]),
            (Some((rows, _)), Some((of, places))) if rows == of => Some(places),
            _ => None,
        };
        let (Some((rows, chunks)), Some(places)) = (shape, places) else {
            return Err(m.error("is not a supported form"));
        };
        self.count(i, m, 2)?;
        let address = self.tensor_address(&i.operands[0])?;
        let descriptor = self.source(&i.operands[1], Type::B64)?;
        let copy = TensorCopy { rows, chunks, places };
        self.tensor(TensorOp::Copy(copy), vec![address, descriptor]);
        Ok(())
    }

    fn tensor_multiply(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        m.take("mma");
        let kind = m.take_map(|text| match text {
            "kind::f16" => Some(TensorKind::F16),
            "kind::tf32" => Some(TensorKind::Tf32),
            "kind::f8f6f4" => Some(TensorKind::F8f6f4),
            "kind::i8" => Some(TensorKind::I8),
            "kind::mxf8f6f4" => Some(TensorKind::Mxf8f6f4),
            "kind::mxf4" => Some(TensorKind::Mxf4),
            "kind::mxf4nvf4" => Some(TensorKind::Mxf4nvf4),
            _ => None,
        });
        // Between the two may be `.sp` and `.ws`.
        let plain = i.modifiers.get(1).is_some_and(|text| text == "cta_group::1");
        let Some(kind) = kind.filter(|_| plain) else {
            return Err(m.error("is not a supported form"));
        };
        let scaled = m.take("block_scale");
        let vector = m.take_map(|text| match text {
            "scale_vec::1X" => Some(1),
            "scale_vec::2X" => Some(2),
            "scale_vec::4X" | "block16" => Some(4),
            "block32" => Some(if kind == TensorKind::Mxf8f6f4 { 1 } else { 2 }),
            _ => None,
        });
        let scales = match (kind, vector) {
            (TensorKind::Mxf8f6f4, None | Some(1)) => 1,
            (TensorKind::Mxf4, None | Some(2)) => 2,
            (TensorKind::Mxf4nvf4, Some(vector @ (2 | 4))) => vector,
            (TensorKind::Mxf8f6f4 | TensorKind::Mxf4 | TensorKind::Mxf4nvf4, _) => {
                return Err(m.error("is not a supported form"));
            }
            _ => 0,
        };
        if scaled != (scales != 0) || !scaled && vector.is_some() {
            return Err(m.error("is not a supported form"));
        }
        // Hints of what to keep of A.
        m.take_while(|text| {
            ["collector::a::fill", "collector::a::use", "collector::a::lastuse"].contains(&text)
                || text == "collector::a::discard"
        });
        let shifted = i.operands.len() == 6 && !scaled;
        self.count(i, m, if scaled { 7 } else { 5 + usize::from(shifted) })?;
        let shift = match i.operands.get(5) {
            Some(Operand::Int(shift @ 0..16)) if shifted => *shift as u8,
            _ if shifted => return Err(m.error("has lanes that are disabled, or another scale")),
            _ => 0,
        };
        let a_tensor = matches!(i.operands[1], Operand::Address { .. });
        let a = match a_tensor {
            true => self.tensor_address(&i.operands[1])?,
            false => self.source(&i.operands[1], Type::B64)?,
        };
        let mut reads = vec![
            self.tensor_address(&i.operands[0])?,
            a,
            self.source(&i.operands[2], Type::B64)?,
            self.source(&i.operands[3], Type::B32)?,
            self.source(&i.operands[if scaled { 6 } else { 4 }], Type::Pred)?,
        ];
        if scaled {
            reads.push(self.tensor_address(&i.operands[4])?);
            reads.push(self.tensor_address(&i.operands[5])?);
        }
        let op = TensorMultiply { kind, a_tensor, scales, shift };
        self.tensor(TensorOp::Multiply(op), reads);
        Ok(())
    }
}
