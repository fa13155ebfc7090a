//! Traversal of operands.

use crate::ast::{Operand, VariableId};

/// Visits the variables and names in an operand.
pub(super) fn walk(operand: &Operand, visit: &mut impl FnMut(Option<VariableId>, Option<&str>)) {
    match operand {
        Operand::Variable(id) => visit(Some(*id), None),
        Operand::Name(name) => visit(None, Some(name)),
        Operand::Vector(items) => items.iter().for_each(|item| walk(item, visit)),
        Operand::Not(inner) => walk(inner, visit),
        Operand::Pair(first, second) => {
            walk(first, visit);
            walk(second, visit);
        }
        Operand::Address { base, .. } => walk(base, visit),
        _ => {}
    }
}
