//! Micro-ops before register allocation.

use crate::op::{Kind, Origin};
use crate::types::Class;
use crate::unit::Unit;

/// A virtual register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value(pub u32);

/// A source operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Value(Value),
    /// A negated predicate.
    Negated(Value),
    Bool(bool),
    Word(u32),
    Wide(u64),
}

/// A micro-op with virtual registers.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub kind: Kind,
    pub guard: Option<(Value, bool)>,
    pub writes: Vec<Value>,
    pub reads: Vec<Source>,
    pub imm: i64,
    /// Branch target labels.
    pub targets: Vec<u32>,
    pub origin: Origin,
}

impl Draft {
    /// Virtual registers that are read, including the guard.
    pub fn values_read(&self) -> impl Iterator<Item = Value> + '_ {
        let reads = self.reads.iter().filter_map(|source| match *source {
            Source::Value(value) | Source::Negated(value) => Some(value),
            Source::Bool(_) | Source::Word(_) | Source::Wide(_) => None,
        });
        reads.chain(self.guard.map(|(value, _)| value))
    }

    /// Number of operands whose values are used. Further operands are read only to keep their rows
    /// allocated: accumulators that a wgmma may overwrite, or that an op merely waits for.
    pub fn used(&self) -> usize {
        match self.kind {
            Kind::Unit(Unit::WarpgroupWait) => 0,
            Kind::Unit(Unit::WarpgroupMultiply(product)) => self.reads.len() - product.registers(),
            _ => self.reads.len(),
        }
    }

    /// Whether control never continues to the next op.
    pub fn ends(&self) -> bool {
        self.guard.is_none()
            && matches!(self.kind, Kind::Branch | Kind::BranchIndexed | Kind::Exit | Kind::Trap)
    }
}

/// Micro-ops of a kernel before register allocation.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    pub ops: Vec<Draft>,
    /// Register class of every virtual register.
    pub classes: Vec<Class>,
    /// Index of the op that follows each label.
    pub labels: Vec<usize>,
}
