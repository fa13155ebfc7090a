//! Functions: heads, scopes and instructions.

use crate::ast::{
    Function, Guard, Instruction, Loc, Operand, RegisterId, Space, Statement, Variable, VariableId,
};
use crate::error::Result;
use crate::lex::Token;
use crate::parse::Parser;
use crate::types::Type;
use std::collections::HashMap;

/// What a name means inside a body.
#[derive(Clone, Copy)]
enum Named {
    Register(RegisterId),
    Variable(u32),
}

/// One `{ .. }`.
#[derive(Default)]
struct Scope {
    id: u32,
    names: HashMap<String, Named>,
    /// `%r<48>`: the prefix, the first register, the count.
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
        self.scopes.iter().rev().find_map(|scope| {
            scope.names.get(name).copied().or_else(|| {
                let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
                let index: u32 = name[prefix.len()..].parse().ok()?;
                let ranges = scope.ranges.iter().filter(|&&(_, _, count)| index < count);
                let mut named = ranges.filter(|(range, _, _)| range == prefix);
                named.next().map(|&(_, first, _)| Named::Register(first + index))
            })
        })
    }

    fn scope(&self) -> u32 {
        self.scopes.last().map_or(0, |scope| scope.id)
    }

    fn open(&mut self) {
        let id = self.function.scopes.len() as u32;
        self.function.scopes.push(self.scope());
        self.scopes.push(Scope { id, ..Scope::default() });
    }

    fn bind(&mut self, name: &str, named: Named) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name.to_string(), named);
        }
    }

    fn variable(&mut self, variable: Variable) {
        let index = self.function.variables.len() as u32;
        self.bind(&variable.name.clone(), Named::Variable(index));
        self.function.variables.push(variable);
    }

    fn register(&mut self, ty: Type) -> RegisterId {
        self.function.registers.push(ty);
        self.function.registers.len() as u32 - 1
    }
}

impl Parser<'_> {
    /// What follows `.entry` or `.func`.
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
        while let Token::Dot(directive) = self.peek() {
            self.next();
            let mut values = Vec::new();
            while matches!(self.peek(), Token::Int(_)) {
                values.push(self.int()?);
                self.eat(Token::Mark(','));
            }
            match directive {
                "maxntid" | "reqntid" => {
                    let threads: i64 = values.iter().product();
                    body.function.threads_max = Some(threads as u32);
                }
                "pragma" => self.skip_past(';')?,
                "reqnctapercluster" => {
                    let axis = |at: usize| values.get(at).map_or(1, |&value| value as u32);
                    body.function.cluster = Some([axis(0), axis(1), axis(2)]);
                }
                "maxclusterrank" => {
                    body.function.cluster_blocks_max = values.first().map(|&value| value as u32);
                }
                "minnctapersm" | "maxnctapersm" | "maxnreg" | "noreturn" | "explicitcluster" => {}
                other => return self.error(format!("unknown directive `.{other}`")),
            }
        }
        if !self.eat(Token::Mark(';')) {
            self.mark('{')?;
            self.block(&mut body)?;
            body.function.defined = true;
        }
        self.add_function(body.function);
        Ok(())
    }

    /// A parenthesised parameter list; the number of parameters.
    fn formal_params(&mut self, body: &mut Body) -> Result<usize> {
        let mut count = 0;
        self.mark('(')?;
        while !self.eat(Token::Mark(')')) {
            match self.next() {
                Token::Dot("param") => {
                    let (align, ty, elements) = self.declaration_type()?;
                    self.pointer_attributes()?;
                    let variable = self.declarator(Space::Param, align, ty, elements)?;
                    body.variable(variable);
                }
                Token::Dot("reg") => {
                    let (_, ty, _) = self.declaration_type()?;
                    let register = body.register(ty);
                    body.function.register_params.push(register);
                    let name = self.name()?;
                    body.bind(name, Named::Register(register));
                }
                _ => return self.unexpected("a parameter"),
            }
            count += 1;
            self.eat(Token::Mark(','));
        }
        Ok(count)
    }

    /// `.ptr .global .align 4` after a parameter's type says what it points to, not how the
    /// parameter itself is aligned.
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

    /// Statements up to the closing brace.
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
                    self.block(body)?;
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
                    self.label(body, name)?;
                }
                Token::Name(_) | Token::Mark('@') => {
                    let instruction = self.instruction(body)?;
                    body.function.body.push(Statement::Instruction(instruction));
                }
                _ => return self.unexpected("a statement"),
            }
        }
    }

    fn label(&mut self, body: &mut Body, name: &str) -> Result<()> {
        let (name, scope) = (name.to_string(), body.scope());
        if self.eat(Token::Dot("branchtargets")) {
            let mut targets = Vec::new();
            while !self.eat(Token::Mark(';')) {
                targets.push(self.name()?.to_string());
                self.eat(Token::Mark(','));
            }
            body.function.body.push(Statement::BranchTargets { name, scope, targets });
        } else if matches!(self.peek(), Token::Dot("callprototype" | "calltargets")) {
            return self.error("indirect calls are not supported");
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
                    body.variable(variable);
                }
            }
            "loc" => {
                let (file, line_number) = (self.int()? as u32, self.int()? as u32);
                body.loc = Loc { file, line: line_number };
                self.skip_line(line);
            }
            "pragma" => self.skip_past(';')?,
            other => return self.error(format!("unknown directive `.{other}`")),
        }
        Ok(())
    }

    /// `.reg .b32 %r<48>, %x;`
    fn registers(&mut self, body: &mut Body) -> Result<()> {
        let (_, ty, _) = self.declaration_type()?;
        loop {
            let name = self.name()?;
            if self.eat(Token::Mark('<')) {
                let count = self.int()?;
                self.mark('>')?;
                if !(0..=1 << 20).contains(&count) {
                    return self.error(format!("{count} registers `{name}`"));
                }
                let first = body.function.registers.len() as u32;
                body.function.registers.extend((0..count).map(|_| ty));
                if let Some(scope) = body.scopes.last_mut() {
                    scope.ranges.push((name.to_string(), first, count as u32));
                }
            } else {
                let register = body.register(ty);
                body.bind(name, Named::Register(register));
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
                Ok(Operand::Not(Box::new(self.simple_operand(body)?)))
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

    /// Takes the `.x` of `%tid.x`.
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
            items.push(self.operand(body)?);
            if self.peek() != Token::Mark(close) {
                self.mark(',')?;
            }
        }
        Ok(Operand::Vector(items))
    }

    fn address(&mut self, body: &Body) -> Result<Operand> {
        self.mark('[')?;
        let base = Box::new(self.simple_operand(body)?);
        let mut offset = 0_i64;
        while self.eat(Token::Mark('+')) {
            offset = offset.wrapping_add(self.int()?);
        }
        if self.peek() == Token::Mark('-') {
            offset = offset.wrapping_add(self.int()?);
        }
        let mut rest = Vec::new();
        while self.eat(Token::Mark(',')) {
            rest.push(self.operand(body)?);
        }
        self.mark(']')?;
        Ok(Operand::Address { base, offset, rest })
    }
}

fn is_special(name: &str) -> bool {
    const NAMES: [&str; 30] = [
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
    ];
    NAMES.contains(&name)
}
