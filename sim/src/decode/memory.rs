//! Loads, stores and addresses.

use super::{Decoder, Modifiers, Placed};
use crate::access::{Access, Window};
use crate::ast::{Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::lanes::{self, handler};
use crate::memory::{LOCAL_BASE, PARAM_BASE, SHARED_BASE};
use crate::op::Kind;
use crate::types::{Class, Type};

/// A decoded address operand.
pub(super) struct Address {
    pub window: Window,
    pub base: Source,
    pub wide: bool,
    pub offset: i64,
}

/// Whether a modifier is a cache hint, which has no effect on values.
fn is_cache_hint(text: &str) -> bool {
    ["ca", "cg", "cs", "cv", "wb", "wt", "nc", "lu"].contains(&text)
        || text.starts_with("L1::")
        || text.starts_with("L2::")
}

impl Decoder<'_> {
    pub(super) fn take_window(&self, m: &mut Modifiers<'_>) -> Window {
        let window = m.take_map(|text| match text {
            "global" | "const" => Some(Window::Global),
            "shared" | "shared::cta" | "shared::cluster" => Some(Window::Shared),
            "local" => Some(Window::Local),
            "param" | "param::entry" | "param::func" => Some(Window::Param),
            _ => None,
        });
        window.unwrap_or(Window::Generic)
    }

    /// Consumes the ordering modifiers; returns whether the access is strong.
    pub(super) fn take_strength(&self, m: &mut Modifiers<'_>) -> bool {
        m.take("mmio");
        let strong = ["volatile", "relaxed", "acquire", "release", "acq_rel"];
        let found = m.take_map(|text| strong.contains(&text).then_some(())).is_some();
        m.take("weak");
        let scopes = ["cta", "cluster", "gpu", "sys"];
        m.take_map(|text| scopes.contains(&text).then_some(()));
        found
    }

    /// Decodes a cache control instruction, which has no effect.
    pub(super) fn cache_hint(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let window = self.take_window(m);
        let (levels, operands): (&[&str], usize) = match i.opcode.as_str() {
            "prefetch" => (&["L1", "L2", "L2::evict_last", "L2::evict_normal", "tensormap"], 1),
            "prefetchu" => (&["L1"], 1),
            "applypriority" => (&["L2::evict_normal"], 2),
            _ => (&["L2"], 2),
        };
        if !levels.iter().any(|level| m.take(level)) {
            return Err(m.error("is not a supported form"));
        }
        self.count(i, m, operands)?;
        if operands == 2 && i.operands[1] != Operand::Int(128) {
            return Err(m.error("has a size that is not 128"));
        }
        self.address(&i.operands[0], window).map(drop)
    }

    pub(super) fn address(&mut self, operand: &Operand, window: Window) -> Result<Address> {
        let Operand::Address { base, offset, rest } = operand else {
            return self.invalid("expected an address in brackets");
        };
        if !rest.is_empty() {
            return self.invalid("an address with coordinates");
        }
        let at = |window, bits: u64| Address {
            window,
            base: Source::Wide(bits),
            wide: true,
            offset: *offset,
        };
        match **base {
            Operand::Variable(id) => Ok(match (self.place(id), window) {
                (Placed::Shared(place), Window::Generic) => {
                    at(window, SHARED_BASE + u64::from(place))
                }
                (Placed::Local(place), Window::Generic) => {
                    at(window, LOCAL_BASE + u64::from(place))
                }
                (Placed::Shared(place), _) => at(Window::Shared, place.into()),
                (Placed::Local(place), _) => at(Window::Local, place.into()),
                (Placed::Param(place), _) => at(Window::Param, place.into()),
                (Placed::Global(index), _) => {
                    let base = self.variable_address(index);
                    Address { window, base, wide: true, offset: *offset }
                }
            }),
            Operand::Register(id) => {
                let value = self.register(id)?;
                // The parameters of a function are in local memory.
                let window = match window {
                    Window::Param if !self.top().entry => Window::Local,
                    other => other,
                };
                let wide = match self.class(value) {
                    Class::Wide => true,
                    Class::Word => false,
                    Class::Pred => return self.invalid("a predicate where an address belongs"),
                };
                Ok(Address { window, base: Source::Value(value), wide, offset: *offset })
            }
            Operand::Int(value) => Ok(at(window, value as u64)),
            Operand::Name(ref name) => self.invalid(format!("unknown name `{name}`")),
            _ => self.unsupported("an address of an unknown form"),
        }
    }

    /// Consumes `.v2`, `.v4` or `.v8`.
    pub(super) fn take_vector(&self, m: &mut Modifiers<'_>) -> Option<usize> {
        m.take_map(|text| match text {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        })
    }

    /// Consumes the modifiers of a load or store; returns the access and the element type.
    fn access(&mut self, m: &mut Modifiers<'_>) -> Result<(Access, Type)> {
        let past_l1 = m.has("cg") || m.has("cv");
        m.take_while(is_cache_hint);
        let strong = self.take_strength(m);
        let window = self.take_window(m);
        m.take_while(is_cache_hint);
        // A 128-bit element is two 64-bit words.
        if m.take("b128") {
            let access = Access::weak(window, 8);
            let access = Access { count: 2, strong, single: true, past_l1, ..access };
            return Ok((access, Type::B128));
        }
        let count = self.take_vector(m).unwrap_or(1) as u8;
        let ty = m.ty()?;
        if ty == Type::Pred {
            return Err(m.error("is not a supported form"));
        }
        let (bytes, signed) = (ty.bytes() as u8, ty.signed());
        Ok((Access { count, signed, strong, past_l1, ..Access::weak(window, bytes) }, ty))
    }

    /// Elements of a vector operand, or the operand itself.
    pub(super) fn elements<'o>(
        &self,
        m: &Modifiers<'_>,
        operand: &'o Operand,
        count: u8,
    ) -> Result<Vec<&'o Operand>> {
        let elements: Vec<&Operand> = match operand {
            Operand::Vector(items) => items.iter().collect(),
            other => vec![other],
        };
        if elements.len() == usize::from(count) {
            return Ok(elements);
        }
        Err(m.error(&format!("has {} elements instead of {count}", elements.len())))
    }

    pub(super) fn load(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let (mut access, ty) = self.access(m)?;
        self.count(i, m, 2)?;
        let (mut writes, elements) = match ty {
            Type::B128 => (self.halves(&i.operands[0])?.to_vec(), Vec::new()),
            _ => (Vec::new(), self.elements(m, &i.operands[0], access.count)?),
        };
        let mut after = Vec::new();
        for element in elements {
            let target = self.extended_target(element, ty.class())?;
            if self.class(target) == ty.class() {
                writes.push(target);
                continue;
            }
            let value = self.new_value(ty.class());
            writes.push(value);
            after.push((target, Source::Value(value)));
        }
        let address = self.address(&i.operands[1], access.window)?;
        (access.window, access.wide_address) = (address.window, address.wide);
        self.emit(Kind::Load(access), writes, vec![address.base], address.offset);
        for (target, value) in after {
            self.extend(target, value, ty);
        }
        Ok(())
    }

    pub(super) fn store(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let (mut access, ty) = self.access(m)?;
        self.count(i, m, 2)?;
        let address = self.address(&i.operands[0], access.window)?;
        (access.window, access.wide_address) = (address.window, address.wide);
        let mut reads = vec![address.base];
        if ty == Type::B128 {
            reads.extend(self.halves(&i.operands[1])?.map(Source::Value));
        } else {
            for element in self.elements(m, &i.operands[1], access.count)? {
                reads.push(self.source(element, ty)?);
            }
        }
        self.emit(Kind::Store(access), Vec::new(), reads, address.offset);
        Ok(())
    }

    /// Decodes `cvta`: to generic addresses, or with `.to` from them.
    pub(super) fn convert_address(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let to = m.take("to");
        if !to && (m.take("param") || m.take("param::entry")) {
            let ty = m.ty()?;
            self.count(i, m, 2)?;
            let read = self.source(&i.operands[1], Type::U64)?;
            let write = self.target(&i.operands[0], ty.class())?;
            // `mov` to 64 bits gives a generic address already.
            let reads = vec![read, Source::Wide(PARAM_BASE)];
            self.lane(handler::<lanes::Or<u64>>(), write, reads, 0);
            return Ok(());
        }
        let Some(base) = m.take_map(Self::generic_base) else {
            return Err(m.error("lacks a state space"));
        };
        let ty = m.ty()?;
        self.count(i, m, 2)?;
        let read = self.source(&i.operands[1], ty)?;
        let write = self.target(&i.operands[0], ty.class())?;
        if base == 0 || ty.class() != Class::Wide {
            self.copy(write, read);
            return Ok(());
        }
        let delta = if to { base.wrapping_neg() } else { base };
        let reads = vec![read, Source::Wide(delta)];
        self.lane(handler::<lanes::IntAdd<u64>>(), write, reads, 0);
        Ok(())
    }

    /// Decodes `isspacep`: windows are aligned to their size, so the high word suffices.
    pub(super) fn is_space(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        use crate::memory::GLOBAL_BASE;
        let base = m.take_map(|text| match text {
            "global" | "const" => Some(GLOBAL_BASE),
            "param" | "param::entry" => Some(PARAM_BASE),
            other => Self::generic_base(other).filter(|&base| base != 0),
        });
        let Some(base) = base else {
            return Err(m.error("lacks a state space"));
        };
        self.count(i, m, 2)?;
        let read = self.source(&i.operands[1], Type::U64)?;
        let write = self.target(&i.operands[0], Class::Pred)?;
        let high = self.lane_new::<lanes::HighWord>(Class::Word, vec![read]);
        let bound = Source::Word((base >> 32) as u32);
        let chosen = match base == GLOBAL_BASE {
            true => handler::<lanes::GreaterEqual<u32>>(),
            false => handler::<lanes::Equal<u32>>(),
        };
        self.lane(chosen, write, vec![high, bound], 0);
        Ok(())
    }
}
