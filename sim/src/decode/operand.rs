//! Translation of operands.

use super::{Decoder, Modifiers, Placed, Register};
use crate::ast::{Instruction, Operand, RegisterId, Space, VariableId};
use crate::draft::{Source, Value};
use crate::error::Result;
use crate::lanes::LowWord;
use crate::memory::{LOCAL_BASE, PARAM_BASE, SHARED_BASE};
use crate::op::{Kind, Special};
use crate::types::{Class, Type};

impl Decoder<'_> {
    pub(super) fn count(&self, i: &Instruction, m: &Modifiers<'_>, count: usize) -> Result<()> {
        if i.operands.len() == count {
            return Ok(());
        }
        let found = i.operands.len();
        Err(m.error(&format!("has {found} operands instead of {count}")))
    }

    pub(super) fn class(&self, value: Value) -> Class {
        self.drafts.classes[value.0 as usize]
    }

    /// The virtual register of a declared one of at most 64 bits.
    pub(super) fn register(&self, id: RegisterId) -> Result<Value> {
        match self.top().registers[id as usize] {
            Register::One(value) => Ok(value),
            Register::Pair(_) => self.invalid("a register of 128 bits where another belongs"),
        }
    }

    /// Low and high half of a 128-bit register.
    pub(super) fn halves(&self, operand: &Operand) -> Result<[Value; 2]> {
        if let Operand::Register(id) = operand
            && let Register::Pair(halves) = self.top().registers[*id as usize]
        {
            return Ok(halves);
        }
        self.invalid("expected a register of 128 bits")
    }

    /// Translates a source operand of type `ty`.
    pub(super) fn source(&mut self, operand: &Operand, ty: Type) -> Result<Source> {
        match operand {
            Operand::Register(id) => {
                let value = self.register(*id)?;
                match (self.class(value), ty.class()) {
                    (have, want) if have == want => Ok(Source::Value(value)),
                    (Class::Wide, Class::Word) => {
                        Ok(self.lane_new::<LowWord>(Class::Word, vec![Source::Value(value)]))
                    }
                    _ => self.invalid(format!("an operand's register does not hold {ty}")),
                }
            }
            Operand::Special(name) => self.special(name, ty),
            Operand::Not(inner) if ty == Type::Pred => Ok(match self.source(inner, ty)? {
                Source::Value(value) => Source::Negated(value),
                Source::Negated(value) => Source::Value(value),
                Source::Bool(value) => Source::Bool(!value),
                other => other,
            }),
            Operand::Int(value) => self.literal(*value as u64, ty),
            Operand::Single(bits) if ty == Type::F64 => {
                Ok(Source::Wide(f64::from(f32::from_bits(*bits)).to_bits()))
            }
            Operand::Single(bits) => self.literal(u64::from(*bits), ty),
            Operand::Double(bits) if ty == Type::F32 => {
                Ok(Source::Word((f64::from_bits(*bits) as f32).to_bits()))
            }
            Operand::Double(bits) => self.literal(*bits, ty),
            Operand::Variable(id) => self.address_of(*id, 0, ty),
            Operand::Address { base, offset, rest } if rest.is_empty() => match **base {
                Operand::Variable(id) => self.address_of(id, *offset, ty),
                _ => self.invalid("an address where a value belongs"),
            },
            Operand::Name(name) => match self.function_address(name) {
                Some(address) if ty.class() == Class::Wide => Ok(Source::Wide(address)),
                _ => self.invalid(format!("unknown name `{name}`")),
            },
            _ => self.unsupported("an operand of an unknown form"),
        }
    }

    fn literal(&self, bits: u64, ty: Type) -> Result<Source> {
        Ok(match ty.class() {
            Class::Pred => Source::Bool(bits != 0),
            Class::Word => Source::Word(bits as u32),
            Class::Wide => Source::Wide(bits),
        })
    }

    pub(super) fn sources(&mut self, i: &Instruction, types: &[Type]) -> Result<Vec<Source>> {
        let operands = i.operands[1..].iter();
        operands.zip(types).map(|(operand, &ty)| self.source(operand, ty)).collect()
    }

    /// Destination register of class `class`.
    pub(super) fn target(&mut self, operand: &Operand, class: Class) -> Result<Value> {
        match operand {
            Operand::Register(id) => {
                let value = self.register(*id)?;
                if self.class(value) == class {
                    return Ok(value);
                }
                self.invalid("the result does not fit its register")
            }
            Operand::Sink => Ok(self.new_value(class)),
            _ => self.invalid("the result must be a register"),
        }
    }

    /// Destination register of class `class`; a 32-bit result may go to a 64-bit register.
    pub(super) fn extended_target(&mut self, operand: &Operand, class: Class) -> Result<Value> {
        match operand {
            Operand::Register(id) if class == Class::Word => {
                let value = self.register(*id)?;
                match self.class(value) {
                    Class::Wide => Ok(value),
                    _ => self.target(operand, class),
                }
            }
            other => self.target(other, class),
        }
    }

    pub(super) fn place(&self, id: VariableId) -> Placed {
        match id {
            VariableId::Function(index) => self.top().places[index as usize],
            VariableId::Module(index) => match self.ast.variables[index as usize].space {
                Space::Shared => {
                    Placed::Shared(self.shared_places.get(&index).copied().unwrap_or_default())
                }
                _ => Placed::Global(index),
            },
        }
    }

    /// Address of a variable in its own space, as `mov` returns it. Kernel parameters have generic
    /// addresses if those fit.
    fn address_of(&mut self, id: VariableId, offset: i64, ty: Type) -> Result<Source> {
        let bits = match self.place(id) {
            Placed::Shared(at) => {
                let bits = i64::from(at).wrapping_add(offset) as u64;
                return self.in_own_window(bits, ty);
            }
            Placed::Local(at) => i64::from(at).wrapping_add(offset) as u64,
            Placed::Param(at) => (i64::from(at).wrapping_add(offset) as u64) + PARAM_BASE,
            Placed::Global(_) if ty.class() != Class::Wide => {
                return self.invalid(format!("the address of a variable is not of type {ty}"));
            }
            Placed::Global(index) => {
                let base = self.variable_address(index);
                if offset == 0 {
                    return Ok(base);
                }
                let reads = vec![base, Source::Wide(offset as u64)];
                return Ok(self.lane_new::<crate::lanes::IntAdd<u64>>(Class::Wide, reads));
            }
        };
        self.literal(bits, ty)
    }

    /// An offset in the block's shared memory as an address of the cluster's.
    fn in_own_window(&mut self, offset: u64, ty: Type) -> Result<Source> {
        let class = ty.class();
        let Some(window) = self.read_special(Special::SharedWindow, class) else {
            return self.invalid(format!("an address is not of type {ty}"));
        };
        let reads = vec![window, self.literal(offset, ty)?];
        Ok(match class {
            Class::Wide => self.lane_new::<crate::lanes::IntAdd<u64>>(class, reads),
            _ => self.lane_new::<crate::lanes::IntAdd<u32>>(class, reads),
        })
    }

    pub(super) fn variable_address(&mut self, index: u32) -> Source {
        self.emit_new(Class::Wide, Kind::VariableAddress, Vec::new(), index.into())
    }

    /// Base of a state space in the generic address space.
    pub(super) fn generic_base(space: &str) -> Option<u64> {
        match space {
            "shared" | "shared::cta" | "shared::cluster" => Some(SHARED_BASE),
            "local" => Some(LOCAL_BASE),
            "param" | "param::entry" => Some(0),
            "global" | "const" => Some(0),
            _ => None,
        }
    }

    fn special(&mut self, name: &str, ty: Type) -> Result<Source> {
        let special = match name.split_once('.') {
            Some((stem, axis)) => axis_special(stem, axis.as_bytes()[0] - b'x'),
            None => plain_special(name),
        };
        let Some(special) = special else {
            return self.unsupported(format!("unknown special register `%{name}`"));
        };
        if special == Special::ExplicitCluster {
            let word = self.emit_new(Class::Word, Kind::Special(special), Vec::new(), 0);
            let reads = vec![word, Source::Word(0)];
            return match ty {
                Type::Pred => Ok(self.lane_new::<crate::lanes::NotEqual<u32>>(Class::Pred, reads)),
                _ => self.invalid("`%is_explicit_cluster` is a predicate"),
            };
        }
        match self.read_special(special, ty.class()) {
            Some(value) => Ok(value),
            None => self.invalid(format!("`%{name}` is no predicate")),
        }
    }

    /// A special register's value, unless it is asked for as a predicate.
    fn read_special(&mut self, special: Special, class: Class) -> Option<Source> {
        let kind = match class {
            Class::Pred => return None,
            Class::Word => Kind::Special(special),
            Class::Wide => Kind::SpecialWide(special),
        };
        Some(self.emit_new(class, kind, Vec::new(), 0))
    }
}

/// Special registers with a component per axis.
fn axis_special(stem: &str, axis: u8) -> Option<Special> {
    Some(match stem {
        "tid" => Special::Thread(axis),
        "ntid" => Special::BlockSize(axis),
        "ctaid" => Special::Block(axis),
        "nctaid" => Special::GridSize(axis),
        "clusterid" => Special::Cluster(axis),
        "nclusterid" => Special::ClusterCount(axis),
        "cluster_ctaid" => Special::ClusterBlock(axis),
        "cluster_nctaid" => Special::ClusterSize(axis),
        _ => return None,
    })
}

/// Special registers without components.
fn plain_special(name: &str) -> Option<Special> {
    Some(match name {
        "cluster_ctarank" => Special::ClusterRank,
        "cluster_nctarank" => Special::ClusterBlocks,
        "laneid" => Special::Lane,
        "warpid" => Special::Warp,
        "nwarpid" => Special::WarpCount,
        "smid" => Special::Multiprocessor,
        "nsmid" => Special::MultiprocessorCount,
        "gridid" => Special::Grid,
        "lanemask_eq" => Special::MaskEqual,
        "lanemask_le" => Special::MaskLessEqual,
        "lanemask_lt" => Special::MaskLess,
        "lanemask_ge" => Special::MaskGreaterEqual,
        "lanemask_gt" => Special::MaskGreater,
        "clock" | "clock64" | "globaltimer" | "globaltimer_lo" => Special::Clock,
        "clock_hi" | "globaltimer_hi" => Special::ClockHigh,
        "dynamic_smem_size" => Special::DynamicShared,
        "total_smem_size" => Special::TotalShared,
        "is_explicit_cluster" => Special::ExplicitCluster,
        "envreg1" => Special::WorkspaceHigh,
        "envreg2" => Special::WorkspaceLow,
        _ => return None,
    })
}
