//! Branches, calls and exits.

use super::{Decoder, Modifiers, Placed};
use crate::access::{Access, Window};
use crate::ast::{Function, Instruction, Operand};
use crate::draft::Source;
use crate::error::Result;
use crate::op::Kind;
use crate::types::{Class, Type};
use crate::unit::Unit;
use std::collections::HashMap;

impl Decoder<'_> {
    /// Resolves a label, innermost scope first.
    fn label(&self, scope: u32, name: &str) -> Result<u32> {
        self.scoped(scope, name, |frame, key| frame.labels.get(key).copied())
    }

    pub(super) fn scoped<T>(
        &self,
        scope: u32,
        name: &str,
        find: impl Fn(&super::Frame, &(u32, String)) -> Option<T>,
    ) -> Result<T> {
        let frame = self.top();
        let mut at = scope;
        loop {
            if let Some(found) = find(frame, &(at, name.to_string())) {
                return Ok(found);
            }
            let parent = frame.scopes[at as usize];
            if parent == at {
                return self.invalid(format!("unknown label `{name}`"));
            }
            at = parent;
        }
    }

    pub(super) fn branch(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        m.take("uni");
        self.count(i, m, 1)?;
        let Operand::Name(name) = &i.operands[0] else {
            return self.invalid("expected a label");
        };
        let label = self.label(i.scope, name)?;
        self.push(Kind::Branch, Vec::new(), Vec::new(), 0).targets = vec![label];
        Ok(())
    }

    pub(super) fn branch_indexed(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        if !m.take("idx") {
            return Err(m.error("is not a supported form"));
        }
        m.take("uni");
        self.count(i, m, 2)?;
        let index = self.source(&i.operands[0], Type::U32)?;
        let Operand::Name(name) = &i.operands[1] else {
            return self.invalid("expected a list of branch targets");
        };
        let names = self.scoped(i.scope, name, |frame, key| frame.targets.get(key).cloned())?;
        let labels: Vec<u32> =
            names.iter().map(|name| self.label(i.scope, name)).collect::<Result<_>>()?;
        self.push(Kind::BranchIndexed, Vec::new(), vec![index], 0).targets = labels;
        Ok(())
    }

    pub(super) fn leave(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        self.count(i, m, 0)?;
        match i.opcode.as_str() {
            "ret" => {
                m.take("uni");
                let end = self.top().end;
                self.push(Kind::Branch, Vec::new(), Vec::new(), 0).targets = vec![end];
            }
            "exit" => self.emit(Kind::Exit, Vec::new(), Vec::new(), 0),
            _ => self.emit(Kind::Trap, Vec::new(), Vec::new(), 0),
        }
        Ok(())
    }

    /// Decodes a call, which is inlined. Parameters are the caller's variables.
    pub(super) fn call(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        m.take("uni");
        let (mut returns, mut name, mut arguments) = (&[][..], None, &[][..]);
        let (mut target, mut admitted) = (None, None);
        for operand in &i.operands {
            match operand {
                Operand::Vector(items) if name.is_none() && target.is_none() => returns = items,
                Operand::Vector(items) => arguments = items,
                Operand::Register(_) if target.is_none() => target = Some(operand),
                Operand::Name(text) if target.is_some() => admitted = Some(text.as_str()),
                Operand::Name(text) if name.is_none() => name = Some(text.as_str()),
                _ => return self.unsupported("a call of an unknown form"),
            }
        }
        if let (Some(target), Some(admitted)) = (target, admitted) {
            return self.call_indirect((target, admitted), i.scope, returns, arguments);
        }
        let Some(name) = name else {
            return self.unsupported("an indirect call without a prototype");
        };
        let ast = self.ast;
        let Some(callee) = ast.functions.iter().find(|f| f.name == name) else {
            return self.invalid(format!("unknown function `{name}`"));
        };
        if name == "__assertfail" {
            self.emit(Kind::Trap, Vec::new(), Vec::new(), 0);
            return Ok(());
        }
        if name == "vprintf" && !callee.defined {
            return self.print(returns, arguments);
        }
        if !callee.defined && matches!(name, "malloc" | "free") {
            return self.of_heap(name, returns, arguments);
        }
        if !callee.defined {
            return self.unsupported(format!("call of the undefined function `{name}`"));
        }
        let end = self.new_label();
        if let Some((value, negated)) = self.guard.take() {
            self.skip(end, value, !negated);
        }
        self.inline(callee, returns, arguments)?;
        self.bind_label(end);
        Ok(())
    }

    /// Inlines a device function.
    pub(super) fn inline(
        &mut self,
        callee: &Function,
        returns: &[Operand],
        arguments: &[Operand],
    ) -> Result<()> {
        let name = &callee.name;
        let actuals: Vec<&Operand> = returns.iter().chain(arguments).collect();
        if !callee.register_params.is_empty() {
            return self.unsupported(format!("register parameters of `{name}`"));
        }
        let formals = callee.returns + callee.params;
        if actuals.len() != formals {
            return self.invalid(format!("`{name}` takes {formals} parameters"));
        }
        let mut bound: HashMap<usize, Placed> = HashMap::new();
        for (index, actual) in actuals.into_iter().enumerate() {
            let Operand::Variable(id) = actual else {
                return self.unsupported("a call argument that is not a parameter variable");
            };
            bound.insert(index, self.place(*id));
        }
        let end = self.new_label();
        let frame = self.frame(callee, end, &bound)?;
        self.body(callee, frame)?;
        self.bind_label(end);
        Ok(())
    }

    /// Address of a parameter of a call in local memory.
    fn parameter(&self, name: &str, operand: &Operand) -> Result<Source> {
        match operand {
            Operand::Variable(id) => match self.place(*id) {
                Placed::Local(place) => Ok(Source::Wide(place.into())),
                _ => self.invalid(format!("a parameter of `{name}` is not a local parameter")),
            },
            _ => self.unsupported("a call argument that is not a parameter variable"),
        }
    }

    /// Decodes a call of `vprintf(format, arguments)`.
    fn print(&mut self, returns: &[Operand], arguments: &[Operand]) -> Result<()> {
        let ([result], [format, values]) = (returns, arguments) else {
            return self.invalid("`vprintf` takes 2 parameters");
        };
        let [result, format, values] =
            [result, format, values].map(|operand| self.parameter("vprintf", operand));
        let load = Kind::Load(Access::weak(Window::Local, 8));
        let format = self.emit_new(Class::Wide, load, vec![format?], 0);
        let values = self.emit_new(Class::Wide, load, vec![values?], 0);
        let count = self.new_value(Class::Word);
        self.emit(Kind::Unit(Unit::Print), vec![count], vec![format, values], 0);
        let store = Kind::Store(Access::weak(Window::Local, 4));
        self.emit(store, Vec::new(), vec![result?, Source::Value(count)], 0);
        Ok(())
    }

    /// Decodes a call of `malloc(size)` or `free(address)`.
    fn of_heap(&mut self, name: &str, returns: &[Operand], arguments: &[Operand]) -> Result<()> {
        let results = usize::from(name == "malloc");
        let ([argument], true) = (arguments, returns.len() == results) else {
            return self.invalid(format!("`{name}` takes 1 parameter and returns {results}"));
        };
        let argument = self.parameter(name, argument)?;
        let load = Kind::Load(Access::weak(Window::Local, 8));
        let argument = self.emit_new(Class::Wide, load, vec![argument], 0);
        let [result] = returns else {
            self.emit(Kind::Unit(Unit::Free), Vec::new(), vec![argument], 0);
            return Ok(());
        };
        let result = self.parameter(name, result)?;
        let address = self.emit_new(Class::Wide, Kind::Unit(Unit::Allocate), vec![argument], 0);
        self.emit(
            Kind::Store(Access::weak(Window::Local, 8)),
            Vec::new(),
            vec![result, address],
            0,
        );
        Ok(())
    }
}
