//! Parser of functions: heads, scopes and instructions.

use crate::ast::{
    Function, Guard, Instruction, Loc, Operand, RegisterId, Space, Statement, Variable, VariableId,
};
use crate::error::{Error, ErrorKind, Result};
use crate::lex::Token;
use crate::parse::{Parser, twice};
use crate::types::Type;
use std::collections::{HashMap, HashSet};

/// Meaning of a name within a body.
#[derive(Clone, Copy)]
enum Named {
    Register(RegisterId),
    Variable(u32),
}

/// Maximum number of registers of a function.
const REGISTERS_MAX: usize = 1 << 20;

/// A scope `{ .. }`.
#[derive(Default)]
struct Scope {
    id: u32,
    names: HashMap<String, Named>,
    labels: HashSet<String>,
    /// Register ranges `%r<48>`: prefix, first register, count.
    ranges: Vec<(String, RegisterId, u32)>,
}

#[derive(Default)]
struct Body {
    function: Function,
    scopes: Vec<Scope>,
    loc: Loc,
}

impl Body {
    fn lookup(&self, name: &str) -> Option<Named> {
        self.scopes.iter().rev().find_map(|scope| scope.lookup(name))
    }

    fn scope(&self) -> u32 {
        self.scopes.last().map_or(0, |scope| scope.id)
    }

    fn open(&mut self) {
        let id = self.function.scopes.len() as u32;
        self.function.scopes.push(self.scope());
        self.scopes.push(Scope { id, ..Scope::default() });
    }

    fn innermost(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a body has a scope until its last brace")
    }

    fn bind(&mut self, name: &str, named: Named, line: u32) -> Result<()> {
        let scope = self.innermost();
        if scope.lookup(name).is_some() {
            return Err(twice(line, name));
        }
        scope.names.insert(name.to_string(), named);
        Ok(())
    }

    fn variable(&mut self, variable: Variable) -> Result<()> {
        let index = self.function.variables.len() as u32;
        self.bind(&variable.name, Named::Variable(index), variable.line)?;
        self.function.variables.push(variable);
        Ok(())
    }

    fn register(&mut self, name: &str, ty: Type, line: u32) -> Result<RegisterId> {
        let register = self.function.registers.len() as u32;
        self.bind(name, Named::Register(register), line)?;
        self.function.registers.push(ty);
        Ok(register)
    }

    /// Declares a register range: `%r<48>`.
    fn registers(&mut self, prefix: &str, count: u32, ty: Type, line: u32) -> Result<()> {
        let scope = self.innermost();
        let holds = |name: &String| {
            let index = name.strip_prefix(prefix).and_then(|index| index.parse().ok());
            index.is_some_and(|index: u32| index < count)
        };
        let again = scope.ranges.iter().any(|(range, _, _)| range == prefix);
        if again || scope.names.keys().any(holds) {
            return Err(twice(line, prefix));
        }
        let first = self.function.registers.len() as u32;
        self.innermost().ranges.push((prefix.to_string(), first, count));
        self.function.registers.extend((0..count).map(|_| ty));
        Ok(())
    }
}

impl Scope {
    fn lookup(&self, name: &str) -> Option<Named> {
        self.names.get(name).copied().or_else(|| {
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let index: u32 = name[prefix.len()..].parse().ok()?;
            let ranges = self.ranges.iter().filter(|&&(_, _, count)| index < count);
            let mut named = ranges.filter(|(range, _, _)| range == prefix);
            named.next().map(|&(_, first, _)| Named::Register(first + index))
        })
    }
}

impl Parser<'_> {
    /// Parses what follows `.entry` or `.func`.
    pub fn function(&mut self, entry: bool) -> Result<()> {
        let mut body = Body::default();
        body.open();
        body.function.entry = entry;
        body.function.line = self.line();
        if self.peek() == Token::Mark('(') {
            body.function.returns = self.formal_params(&mut body)?;
        }
        body.function.name = self.name()?.to_string();
        if self.peek() == Token::Mark('(') {
            body.function.params = self.formal_params(&mut body)?;
        }
        if entry {
            let Function { returns, register_params, variables, .. } = &body.function;
            if *returns > 0 || !register_params.is_empty() {
                let text = "a kernel returns nothing, and its parameters are in memory";
                return self.error(text);
            }
            let bytes = variables.iter().try_fold(0_u32, |at, formal| {
                at.checked_next_multiple_of(formal.align)?.checked_add(formal.bytes)
            });
            self.check_param_bytes(&body.function.name, bytes, body.function.line)?;
        }
        while let Token::Dot(directive) = self.peek() {
            self.next();
            self.tuning(&mut body.function, directive)?;
        }
        if !self.eat(Token::Mark(';')) {
            self.mark('{')?;
            self.block(&mut body)?;
            body.function.defined = true;
        }
        self.add_function(body.function)
    }

    /// Parses a performance-tuning directive between a function's head and body.
    fn tuning(&mut self, function: &mut Function, directive: &str) -> Result<()> {
        let line = self.line();
        let mut values = Vec::new();
        while matches!(self.peek(), Token::Int(_)) {
            values.push(self.unsigned()?);
            self.eat(Token::Mark(','));
        }
        let axes = || match values[..] {
            [x] => Ok([x, 1, 1]),
            [x, y] => Ok([x, y, 1]),
            [x, y, z] => Ok([x, y, z]),
            _ => {
                let text = format!("`.{directive}` has {} numbers, not 1 to 3", values.len());
                Err(Error::at_line(ErrorKind::Parse, line, text))
            }
        };
        match directive {
            "maxntid" => {
                let threads = axes()?.into_iter().try_fold(1, u32::checked_mul);
                function.threads_max = Some(threads.unwrap_or(u32::MAX));
            }
            "reqntid" => function.threads_required = Some(axes()?),
            "pragma" => self.skip_past(';')?,
            "reqnctapercluster" => function.cluster = Some(axes()?),
            "maxclusterrank" => function.cluster_blocks_max = Some(axes()?[0]),
            "minnctapersm" => function.blocks_min = Some(axes()?[0]),
            "maxnreg" => function.registers_max = Some(axes()?[0]),
            "maxnctapersm" | "noreturn" | "explicitcluster" => {}
            other => return self.error(format!("unknown directive `.{other}`")),
        }
        Ok(())
    }

    /// Parses a parenthesised parameter list; returns the number of parameters.
    fn formal_params(&mut self, body: &mut Body) -> Result<usize> {
        let mut count = 0;
        self.mark('(')?;
        while !self.eat(Token::Mark(')')) {
            let line = self.line();
            match self.next() {
                Token::Dot("param") => {
                    let (align, ty, elements) = self.declaration_type()?;
                    self.pointer_attributes()?;
                    let variable = self.declarator(Space::Param, align, ty, elements)?;
                    body.variable(variable)?;
                    count += 1;
                }
                Token::Dot("reg") => {
                    let (_, ty, _) = self.declaration_type()?;
                    let register = body.register(self.name()?, ty, line)?;
                    body.function.register_params.push(register);
                }
                _ => return self.unexpected("a parameter"),
            }
            if !self.eat(Token::Mark(',')) {
                self.mark(')')?;
                break;
            }
        }
        Ok(count)
    }

    /// Parses pointer attributes such as `.ptr .global .align 4`, which describe the pointed-to
    /// memory, not the parameter.
    fn pointer_attributes(&mut self) -> Result<()> {
        while let Token::Dot(word) = self.peek() {
            self.next();
            match word {
                "ptr" | "global" | "const" | "shared" | "local" => {}
                "align" => {
                    self.int()?;
                }
                other => return self.error(format!("unknown attribute `.{other}`")),
            }
        }
        Ok(())
    }

    /// Parses statements up to the closing brace.
    fn block(&mut self, body: &mut Body) -> Result<()> {
        loop {
            let line = self.line();
            match self.peek() {
                Token::Mark('}') => {
                    self.next();
                    body.scopes.pop();
                    return Ok(());
                }
                Token::Mark('{') => {
                    self.next();
                    body.open();
                    self.nested(|parser| parser.block(body))?;
                }
                Token::Mark(';') => {
                    self.next();
                }
                Token::Dot(directive) => {
                    self.next();
                    self.body_directive(body, directive, line)?;
                }
                Token::Name(name) if self.peek_second() == Token::Mark(':') => {
                    self.next();
                    self.next();
                    self.label(body, name, line)?;
                }
                Token::Name(_) | Token::Mark('@') => {
                    let instruction = self.instruction(body)?;
                    body.function.body.push(Statement::Instruction(instruction));
                }
                _ => return self.unexpected("a statement"),
            }
        }
    }

    fn label(&mut self, body: &mut Body, name: &str, line: u32) -> Result<()> {
        if !body.innermost().labels.insert(name.to_string()) {
            return Err(twice(line, name));
        }
        let (name, scope) = (name.to_string(), body.scope());
        if self.eat(Token::Dot("branchtargets")) {
            let mut targets = Vec::new();
            while !self.eat(Token::Mark(';')) {
                targets.push(self.name()?.to_string());
                self.eat(Token::Mark(','));
            }
            body.function.body.push(Statement::BranchTargets { name, scope, targets });
        } else if matches!(self.peek(), Token::Dot("callprototype" | "calltargets")) {
            let prototype = self.prototype()?;
            body.function.body.push(Statement::Prototype { name, scope, prototype });
        } else {
            body.function.body.push(Statement::Label { name, scope });
        }
        Ok(())
    }

    fn body_directive(&mut self, body: &mut Body, directive: &str, line: u32) -> Result<()> {
        match directive {
            "reg" => self.registers(body)?,
            "local" | "shared" | "param" => {
                let space = match directive {
                    "local" => Space::Local,
                    "shared" => Space::Shared,
                    _ => Space::Param,
                };
                for variable in self.variables(space)? {
                    body.variable(variable)?;
                }
            }
            "loc" => {
                let (file, line_number) = (self.unsigned()?, self.unsigned()?);
                body.loc = Loc { file, line: line_number };
                self.skip_line(line);
            }
            "pragma" => self.skip_past(';')?,
            other => return self.error(format!("unknown directive `.{other}`")),
        }
        Ok(())
    }

    /// Parses a register declaration: `.reg .b32 %r<48>, %x;`.
    fn registers(&mut self, body: &mut Body) -> Result<()> {
        let (_, ty, _) = self.declaration_type()?;
        loop {
            let (line, name) = (self.line(), self.name()?);
            if self.eat(Token::Mark('<')) {
                let count = self.unsigned()?;
                self.mark('>')?;
                if count as usize > REGISTERS_MAX - body.function.registers.len() {
                    return self.error(format!("more than {REGISTERS_MAX} registers"));
                }
                body.registers(name, count, ty, line)?;
            } else {
                body.register(name, ty, line)?;
            }
            if self.eat(Token::Mark(';')) {
                return Ok(());
            }
            self.mark(',')?;
        }
    }

    fn instruction(&mut self, body: &Body) -> Result<Instruction> {
        let line = self.line();
        let mut guard = None;
        if self.eat(Token::Mark('@')) {
            let negated = self.eat(Token::Mark('!'));
            let name = self.name()?;
            let Some(Named::Register(register)) = body.lookup(name) else {
                return self.error(format!("unknown predicate `{name}`"));
            };
            guard = Some(Guard { register, negated });
        }
        let opcode = self.name()?.to_string();
        let mut modifiers = Vec::new();
        while let Token::Dot(modifier) = self.peek() {
            self.next();
            modifiers.push(modifier.to_string());
        }
        let mut operands = Vec::new();
        while !self.eat(Token::Mark(';')) {
            operands.push(self.operand(body)?);
            if self.peek() != Token::Mark(';') {
                self.mark(',')?;
            }
        }
        let (loc, scope) = (body.loc, body.scope());
        Ok(Instruction { guard, opcode, modifiers, operands, line, loc, scope })
    }

    fn operand(&mut self, body: &Body) -> Result<Operand> {
        let first = self.simple_operand(body)?;
        if self.eat(Token::Mark('|')) {
            let second = self.simple_operand(body)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        if let (Operand::Variable(_), Token::Mark('+')) = (&first, self.peek()) {
            self.next();
            let offset = self.int()?;
            return Ok(Operand::Address { base: Box::new(first), offset, rest: Vec::new() });
        }
        Ok(first)
    }

    fn simple_operand(&mut self, body: &Body) -> Result<Operand> {
        match self.peek() {
            Token::Mark('[') => self.address(body),
            Token::Mark('{') => self.list(body, '{', '}'),
            Token::Mark('(') => self.list(body, '(', ')'),
            Token::Mark('!') => {
                self.next();
                let inner = self.nested(|parser| parser.simple_operand(body))?;
                Ok(Operand::Not(Box::new(inner)))
            }
            Token::Mark('-') => match self.peek_second() {
                Token::Double(bits) => {
                    self.next();
                    self.next();
                    Ok(Operand::Double(bits ^ 1 << 63))
                }
                _ => Ok(Operand::Int(self.int()?)),
            },
            Token::Int(value) => {
                self.next();
                Ok(Operand::Int(value as i64))
            }
            Token::Single(bits) => {
                self.next();
                Ok(Operand::Single(bits))
            }
            Token::Double(bits) => {
                self.next();
                Ok(Operand::Double(bits))
            }
            Token::Name("_") => {
                self.next();
                Ok(Operand::Sink)
            }
            Token::Name(name) => {
                let operand = self.named(body, name)?;
                self.next();
                Ok(self.special_component(operand))
            }
            _ => self.unexpected("an operand"),
        }
    }

    fn named(&self, body: &Body, name: &str) -> Result<Operand> {
        match body.lookup(name) {
            Some(Named::Register(register)) => return Ok(Operand::Register(register)),
            Some(Named::Variable(index)) => {
                return Ok(Operand::Variable(VariableId::Function(index)));
            }
            None => {}
        }
        if let Some(&index) = self.names.get(name) {
            return Ok(Operand::Variable(VariableId::Module(index)));
        }
        match name.strip_prefix('%') {
            Some(special) if is_special(special) => Ok(Operand::Special(special.to_string())),
            Some(_) => self.error(format!("unknown register `{name}`")),
            None if name == "WARP_SZ" => Ok(Operand::Int(32)),
            None => Ok(Operand::Name(name.to_string())),
        }
    }

    /// Consumes the component of a special register, such as the `.x` of `%tid.x`.
    fn special_component(&mut self, operand: Operand) -> Operand {
        match (operand, self.peek()) {
            (Operand::Special(name), Token::Dot(part @ ("x" | "y" | "z"))) => {
                self.next();
                Operand::Special(format!("{name}.{part}"))
            }
            (operand, _) => operand,
        }
    }

    fn list(&mut self, body: &Body, open: char, close: char) -> Result<Operand> {
        self.mark(open)?;
        let mut items = Vec::new();
        while !self.eat(Token::Mark(close)) {
            items.push(self.nested(|parser| parser.operand(body))?);
            if self.peek() != Token::Mark(close) {
                self.mark(',')?;
            }
        }
        Ok(Operand::Vector(items))
    }

    fn address(&mut self, body: &Body) -> Result<Operand> {
        self.mark('[')?;
        let base = Box::new(self.nested(|parser| parser.simple_operand(body))?);
        let mut offset = 0_i64;
        while self.eat(Token::Mark('+')) {
            offset = offset.wrapping_add(self.int()?);
        }
        if self.peek() == Token::Mark('-') {
            offset = offset.wrapping_add(self.int()?);
        }
        let mut rest = Vec::new();
        while self.eat(Token::Mark(',')) {
            rest.push(self.nested(|parser| parser.operand(body))?);
        }
        self.mark(']')?;
        Ok(Operand::Address { base, offset, rest })
    }
}

fn is_special(name: &str) -> bool {
    const NAMES: [&str; 32] = [
        "tid",
        "ntid",
        "laneid",
        "warpid",
        "nwarpid",
        "ctaid",
        "nctaid",
        "smid",
        "nsmid",
        "gridid",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "dynamic_smem_size",
        "total_smem_size",
        "is_explicit_cluster",
        "clusterid",
        "nclusterid",
        "cluster_ctarank",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_nctarank",
        "envreg1",
        "envreg2",
    ];
    NAMES.contains(&name)
}
