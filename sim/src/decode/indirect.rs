//! Calls through a function's address.
//!
//! All calls are inlined, so an indirect call compares the address with that of each function that
//! its prototype or its list of targets admits. A function's address is its index, below every
//! window of memory.

use super::Decoder;
use crate::ast::{Function, Operand, Prototype};
use crate::draft::{Source, Value};
use crate::error::Result;
use crate::lanes::{NotEqual, handler};
use crate::op::Kind;
use crate::types::{Class, Type};

/// Bytes of the parameters: returns, then arguments.
fn shape(function: &Function) -> [Vec<u32>; 2] {
    let (returns, rest) = function.variables.split_at(function.returns);
    let bytes = |variables: &[crate::ast::Variable]| variables.iter().map(|v| v.bytes).collect();
    [bytes(returns), bytes(&rest[..function.params])]
}

impl Decoder<'_> {
    /// Address of a function by name.
    pub(super) fn function_address(&self, name: &str) -> Option<u64> {
        self.ast.function_address(name)
    }

    /// Decodes a call of the function whose address is in a register.
    pub(super) fn call_indirect(
        &mut self,
        (target, admitted): (&Operand, &str),
        scope: u32,
        returns: &[Operand],
        arguments: &[Operand],
    ) -> Result<()> {
        let ast = self.ast;
        let prototype =
            self.scoped(scope, admitted, |frame, key| frame.prototypes.get(key).cloned())?;
        let fits = |function: &Function| match &prototype {
            Prototype::Targets(names) => names.contains(&function.name),
            Prototype::Shape(wanted) => shape(function) == *wanted,
        };
        let address = self.source(target, Type::B64)?;
        let end = self.new_label();
        if let Some((value, negated)) = self.guard.take() {
            self.skip(end, value, !negated);
        }
        let candidates = ast.functions.iter().filter(|f| !f.entry && f.defined && fits(f));
        for callee in candidates {
            // One that is being called already would be a recursive call.
            if self.frames.iter().any(|frame| frame.name == callee.name) {
                continue;
            }
            let Some(own) = self.function_address(&callee.name) else { continue };
            let other = self.new_value(Class::Pred);
            let reads = vec![address, Source::Wide(own)];
            self.lane(handler::<NotEqual<u64>>(), other, reads, 0);
            let next = self.new_label();
            self.skip(next, other, false);
            self.inline(callee, returns, arguments)?;
            self.push(Kind::Branch, Vec::new(), Vec::new(), 0).targets = vec![end];
            self.bind_label(next);
        }
        self.emit(Kind::Trap, Vec::new(), Vec::new(), 1);
        self.bind_label(end);
        Ok(())
    }

    /// Branches to a label if a predicate holds, or if it does not.
    pub(super) fn skip(&mut self, label: u32, value: Value, negated: bool) {
        let skip = self.push(Kind::Branch, Vec::new(), Vec::new(), 0);
        skip.guard = Some((value, negated));
        skip.targets = vec![label];
    }
}
