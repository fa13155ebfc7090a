//! `tensormap.replace` and `tensormap.cp_fenceproxy`.

use super::{Decoder, Modifiers};
use crate::access::Window;
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::{MapField, Unit};

impl Decoder<'_> {
    pub(super) fn tensor_map(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if m.take("cp_fenceproxy") {
            let names = ["global", "shared::cta", "tensormap::generic", "release"];
            let known = names.iter().all(|name| m.take(name))
                && ["cta", "cluster", "gpu", "sys"].iter().any(|scope| m.take(scope))
                && m.take("sync")
                && m.take("aligned");
            if !known {
                return Err(m.error("is not a supported form"));
            }
            self.count(i, m, 3)?;
            let (_, to) = self.plain_address(&i.operands[0], Window::Global)?;
            let (_, from) = self.plain_address(&i.operands[1], Window::Shared)?;
            self.emit(Kind::Unit(Unit::CopyMap), Vec::new(), vec![to, from], 0);
            return Ok(());
        }
        if !m.take("replace") || !m.take("tile") {
            return Err(m.error("is not a supported form"));
        }
        let field = m.take_map(field);
        let window = self.take_window(m);
        let ty = if m.take("b1024") { m.ty()? } else { Type::Pred };
        let Some(field) = field.filter(|_| matches!(ty, Type::B32 | Type::B64)) else {
            return Err(m.error("is not a supported form"));
        };
        let by_axis = matches!(
            field,
            MapField::BoxDim | MapField::Dim | MapField::Stride | MapField::ElementStride
        );
        self.count(i, m, 2 + usize::from(by_axis))?;
        let (window, address) = self.plain_address(&i.operands[0], window)?;
        let axis = match (by_axis, &i.operands[1]) {
            (false, _) => 0,
            (true, crate::ast::Operand::Int(axis @ 0..5)) => *axis,
            _ => return Err(m.error("has an unsupported dimension")),
        };
        let mut value = self.source(&i.operands[1 + usize::from(by_axis)], ty)?;
        value = match value {
            Source::Word(word) => Source::Wide(word.into()),
            Source::Value(_) if ty == Type::B32 => {
                let kind = Kind::Lane(handler::<lanes::ExtendWide<u32>>());
                self.emit_new(Class::Wide, kind, vec![value], 0)
            }
            other => other,
        };
        let unit = Unit::ReplaceMap { field, window };
        self.emit(Kind::Unit(unit), Vec::new(), vec![address, value], axis);
        Ok(())
    }
}

fn field(text: &str) -> Option<MapField> {
    Some(match text {
        "global_address" => MapField::Address,
        "rank" => MapField::Rank,
        "box_dim" => MapField::BoxDim,
        "global_dim" => MapField::Dim,
        "global_stride" => MapField::Stride,
        "element_stride" => MapField::ElementStride,
        "elemtype" => MapField::ElementType,
        "interleave_layout" => MapField::Interleave,
        "swizzle_mode" => MapField::Swizzle,
        "fill_mode" => MapField::Fill,
        _ => return None,
    })
}
