//! Micro-ops whose operands are still virtual registers.

use crate::op::{Kind, Origin};
use crate::types::Class;
use crate::unit::Unit;

/// A virtual register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value(pub u32);

/// An operand that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Value(Value),
    /// A predicate, negated.
    Negated(Value),
    Bool(bool),
    Word(u32),
    Wide(u64),
}

/// One micro-op.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub kind: Kind,
    pub guard: Option<(Value, bool)>,
    pub writes: Vec<Value>,
    pub reads: Vec<Source>,
    pub imm: i64,
    /// Labels that control may go to.
    pub targets: Vec<u32>,
    pub origin: Origin,
}

impl Draft {
    /// The virtual registers read, the guard's among them.
    pub fn values_read(&self) -> impl Iterator<Item = Value> + '_ {
        let reads = self.reads.iter().filter_map(|source| match *source {
            Source::Value(value) | Source::Negated(value) => Some(value),
            Source::Bool(_) | Source::Word(_) | Source::Wide(_) => None,
        });
        reads.chain(self.guard.map(|(value, _)| value))
    }

    /// How many of the reads are of values: accumulators that a product may overwrite, or that
    /// only wait, are read to keep their rows.
    pub fn used(&self) -> usize {
        match self.kind {
            Kind::Unit(Unit::WarpgroupWait) => 0,
            Kind::Unit(Unit::WarpgroupMultiply(product)) => self.reads.len() - product.registers(),
            _ => self.reads.len(),
        }
    }

    /// Whether control never goes on to the next op.
    pub fn ends(&self) -> bool {
        self.guard.is_none()
            && matches!(self.kind, Kind::Branch | Kind::BranchIndexed | Kind::Exit | Kind::Trap)
    }
}

/// The micro-ops of a kernel before registers are assigned.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    pub ops: Vec<Draft>,
    /// The class of every virtual register.
    pub classes: Vec<Class>,
    /// The op that each label stands before.
    pub labels: Vec<usize>,
}
