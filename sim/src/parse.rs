//! Parser of modules: directives, declarations and scopes. Bodies are in `parse_body`.

use crate::ast::{Ast, Function, Relocation, Space, Variable};
use crate::error::{Error, ErrorKind, Result};
use crate::lex::{Spanned, Token, tokens};
use crate::types::Type;
use std::collections::HashMap;

/// Maximum nesting of braces, brackets and negations.
const NESTING_MAX: u32 = 64;
/// Maximum size of a kernel's parameters in bytes, from PTX ISA 8.1 on and before.
const PARAM_BYTES_MAX: u32 = 32764;
const PARAM_BYTES_MAX_OLD: u32 = 4352;

/// Parses a module.
pub(crate) fn parse(text: &str) -> Result<Ast> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        ast: Ast::default(),
        names: HashMap::new(),
        external: false,
        version: 0.0,
        nesting: 0,
    };
    if parser.peek() != Token::Dot("version") {
        return parser.unexpected("`.version`");
    }
    while parser.peek() != Token::End {
        parser.module_item()?;
    }
    for variable in &parser.ast.variables {
        parser.check_links(variable)?;
    }
    Ok(parser.ast)
}

pub(crate) struct Parser<'a> {
    tokens: Vec<Spanned<'a>>,
    at: usize,
    pub ast: Ast,
    /// Module variables by name.
    pub names: HashMap<String, u32>,
    /// Whether the current item is `.extern`.
    external: bool,
    /// Version of the PTX ISA.
    version: f64,
    nesting: u32,
}

impl<'a> Parser<'a> {
    pub fn peek(&self) -> Token<'a> {
        self.tokens[self.at].token
    }

    pub fn peek_second(&self) -> Token<'a> {
        self.tokens.get(self.at + 1).map_or(Token::End, |spanned| spanned.token)
    }

    pub fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    pub fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::at_line(ErrorKind::Parse, self.line(), message))
    }

    pub fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        self.error(format!("expected {wanted}, found {}", self.peek()))
    }

    /// Consumes the token if it is this one.
    pub fn eat(&mut self, token: Token<'_>) -> bool {
        let found = self.peek() == token;
        if found {
            self.next();
        }
        found
    }

    pub fn mark(&mut self, mark: char) -> Result<()> {
        if self.eat(Token::Mark(mark)) { Ok(()) } else { self.unexpected(&format!("`{mark}`")) }
    }

    pub fn name(&mut self) -> Result<&'a str> {
        match self.peek() {
            Token::Name(name) => {
                self.next();
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    pub fn int(&mut self) -> Result<i64> {
        let negative = self.eat(Token::Mark('-'));
        match self.peek() {
            Token::Int(value) => {
                self.next();
                let value = value as i64;
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => self.unexpected("an integer"),
        }
    }

    /// Parses an integer that fits 32 bits.
    pub fn unsigned(&mut self) -> Result<u32> {
        let line = self.line();
        let value = self.int()?;
        u32::try_from(value).map_err(|_| {
            let text = format!("{value} is not within 0 and 4294967295");
            Error::at_line(ErrorKind::Parse, line, text)
        })
    }

    /// Parses a construct that may nest.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting == NESTING_MAX {
            return self.error(format!("nesting deeper than {NESTING_MAX}"));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    /// Rejects parameters beyond a kernel's limit.
    pub fn check_param_bytes(&self, name: &str, bytes: Option<u32>, line: u32) -> Result<()> {
        let max = if self.version < 8.1 { PARAM_BYTES_MAX_OLD } else { PARAM_BYTES_MAX };
        match bytes {
            Some(bytes) if bytes <= max => Ok(()),
            bytes => {
                let bytes = bytes.map_or("4 GiB".to_string(), |bytes| format!("{bytes} bytes"));
                let text = format!("the parameters of `{name}` take {bytes} where {max} fit");
                Err(Error::at_line(ErrorKind::Parse, line, text))
            }
        }
    }

    /// Skips the rest of a line.
    pub fn skip_line(&mut self, line: u32) {
        while self.line() == line && self.peek() != Token::End {
            self.next();
        }
    }

    fn module_item(&mut self) -> Result<()> {
        let line = self.line();
        let Token::Dot(directive) = self.peek() else {
            return self.unexpected("a directive");
        };
        self.next();
        match directive {
            "version" => {
                let Token::Double(bits) = self.next() else {
                    return Err(Error::at_line(ErrorKind::Parse, line, "a version like `8.0`"));
                };
                self.version = f64::from_bits(bits);
            }
            "address_size" => match self.int()? {
                64 => {}
                bits => {
                    let text = format!("addresses of {bits} bits, not 64");
                    return Err(Error::at_line(ErrorKind::Unsupported, line, text));
                }
            },
            "target" => {
                self.ast.target = self.name()?.to_string();
                self.skip_line(line);
            }
            "file" => {
                let number = self.unsigned()?;
                if let Token::Text(path) = self.peek() {
                    self.ast.files.insert(number, path.to_string());
                }
                self.skip_line(line);
            }
            "section" => self.skip_section()?,
            "visible" | "weak" | "common" => {}
            "extern" => {
                self.external = true;
                return Ok(());
            }
            "pragma" => self.skip_past(';')?,
            "entry" => self.function(true)?,
            "func" => self.function(false)?,
            "global" | "const" | "shared" => {
                let space = match directive {
                    "global" => Space::Global,
                    "const" => Space::Const,
                    _ => Space::Shared,
                };
                for variable in self.variables(space)? {
                    self.declare(variable)?;
                }
            }
            other => {
                let text = format!("unknown directive `.{other}`");
                return Err(Error::at_line(ErrorKind::Unsupported, line, text));
            }
        }
        self.external = false;
        Ok(())
    }

    /// Adds a variable; a definition replaces its declaration.
    fn declare(&mut self, mut variable: Variable) -> Result<()> {
        variable.external = self.external;
        let Some(&index) = self.names.get(&variable.name) else {
            let index = self.ast.variables.len() as u32;
            self.names.insert(variable.name.clone(), index);
            self.ast.variables.push(variable);
            return Ok(());
        };
        let known = &mut self.ast.variables[index as usize];
        if !known.external && !variable.external {
            return Err(twice(variable.line, &variable.name));
        }
        if known.external {
            *known = variable;
        }
        Ok(())
    }

    /// Rejects unresolved external variables, and addresses of them.
    fn check_links(&self, variable: &Variable) -> Result<()> {
        let fail = |text| Err(Error::at_line(ErrorKind::Parse, variable.line, text));
        if variable.external && variable.space != Space::Shared {
            return fail(format!("`{}` is declared and not defined", variable.name));
        }
        for Relocation { symbol, .. } in &variable.relocations {
            let known = self.names.get(symbol).map(|&index| &self.ast.variables[index as usize]);
            let function = self.ast.function_address(symbol).is_some();
            if known.is_none_or(|known| known.space == Space::Shared) && !function {
                let name = &variable.name;
                return fail(format!(
                    "`{symbol}`, in `{name}`, is not a variable in global memory"
                ));
            }
        }
        Ok(())
    }

    pub fn skip_past(&mut self, mark: char) -> Result<()> {
        while self.peek() != Token::End {
            if self.next() == Token::Mark(mark) {
                return Ok(());
            }
        }
        self.unexpected(&format!("`{mark}`"))
    }

    fn skip_section(&mut self) -> Result<()> {
        self.next();
        self.mark('{')?;
        self.skip_past('}')
    }

    /// Parses what follows a state space, including the semicolon: `.align 4 .b8 name[24] = {..},
    /// name2;`.
    pub fn variables(&mut self, space: Space) -> Result<Vec<Variable>> {
        let mut out = Vec::new();
        let managed = self.managed(space)?;
        let (align, ty, elements) = self.declaration_type()?;
        loop {
            let mut variable = self.declarator(space, align, ty, elements)?;
            variable.managed = managed;
            if self.eat(Token::Mark('=')) {
                self.initial_values(&mut variable, ty)?;
            }
            out.push(variable);
            if self.eat(Token::Mark(';')) {
                return Ok(out);
            }
            self.mark(',')?;
        }
    }

    /// Parses an attribute, if there is one: whether it makes variables managed.
    fn managed(&mut self, space: Space) -> Result<bool> {
        if !self.eat(Token::Dot("attribute")) {
            return Ok(false);
        }
        self.mark('(')?;
        if space != Space::Global || !self.eat(Token::Dot("managed")) {
            return self.unexpected("`.managed`, of a variable in global memory");
        }
        self.mark(')')?;
        Ok(true)
    }

    /// Parses alignment, type and vector size: `.align 8 .v4 .f32`.
    pub fn declaration_type(&mut self) -> Result<(Option<u32>, Type, u32)> {
        let (mut align, mut elements) = (None, 1);
        loop {
            let Token::Dot(word) = self.peek() else {
                return self.unexpected("a type");
            };
            self.next();
            match word {
                "align" => align = Some(self.unsigned()?),
                "ptr" | "global" | "const" | "shared" | "local" => {}
                "v2" => elements = 2,
                "v4" => elements = 4,
                _ => match Type::from_name(word) {
                    Some(ty) => return Ok((align, ty, elements)),
                    None => return self.error(format!("unknown type `.{word}`")),
                },
            }
        }
    }

    /// Parses a declared name with array bounds.
    pub fn declarator(
        &mut self,
        space: Space,
        align: Option<u32>,
        ty: Type,
        elements: u32,
    ) -> Result<Variable> {
        let (line, name) = (self.line(), self.name()?.to_string());
        let mut count = 1_u32;
        while self.eat(Token::Mark('[')) {
            if self.eat(Token::Mark(']')) {
                count = 0;
                continue;
            }
            let bound = self.int()?;
            count = match u32::try_from(bound).ok().and_then(|bound| count.checked_mul(bound)) {
                Some(count) => count,
                None => return self.error(format!("`{name}` is too large")),
            };
            self.mark(']')?;
        }
        let natural = ty.bytes() * elements;
        let align = align.unwrap_or(natural).max(1);
        let Some(bytes) = natural.checked_mul(count) else {
            return self.error(format!("`{name}` is too large"));
        };
        if !align.is_power_of_two() {
            return self.error(format!("alignment {align} of `{name}` is not a power of two"));
        }
        let (init, relocations, managed) = (Vec::new(), Vec::new(), false);
        let external = false;
        Ok(Variable { name, space, align, bytes, init, relocations, external, managed, line })
    }

    /// Parses an initialiser, which determines the size of an array without bounds.
    fn initial_values(&mut self, variable: &mut Variable, ty: Type) -> Result<()> {
        let name = variable.name.clone();
        if !matches!(variable.space, Space::Global | Space::Const) {
            return self.error(format!("`{name}` cannot have an initial value"));
        }
        self.initialiser(variable, ty)?;
        let bytes = variable.init.len() as u32;
        if variable.bytes == 0 {
            variable.bytes = bytes;
        }
        if bytes > variable.bytes {
            let room = variable.bytes;
            return self.error(format!("{bytes} bytes of values for the {room} of `{name}`"));
        }
        Ok(())
    }

    fn initialiser(&mut self, variable: &mut Variable, ty: Type) -> Result<()> {
        if !self.eat(Token::Mark('{')) {
            return self.initial_value(variable, ty);
        }
        while !self.eat(Token::Mark('}')) {
            self.nested(|parser| parser.initialiser(variable, ty))?;
            self.eat(Token::Mark(','));
        }
        Ok(())
    }

    fn initial_value(&mut self, variable: &mut Variable, ty: Type) -> Result<()> {
        let offset = variable.init.len() as u32;
        let bits = match self.peek() {
            Token::Single(bits) if ty == Type::F64 => f64::from(f32::from_bits(bits)).to_bits(),
            Token::Single(bits) => u64::from(bits),
            Token::Double(bits) if ty == Type::F32 => {
                u64::from((f64::from_bits(bits) as f32).to_bits())
            }
            Token::Double(bits) => bits,
            Token::Int(_) | Token::Mark('-') => {
                let value = self.int()?;
                variable.init.extend(&value.to_le_bytes()[..ty.bytes().min(8) as usize]);
                return Ok(());
            }
            Token::Name(name) if ty.bytes() == 8 => {
                let generic = name == "generic" && self.peek_second() == Token::Mark('(');
                self.next();
                let mut symbol = name;
                if generic {
                    self.mark('(')?;
                    symbol = self.name()?;
                    self.mark(')')?;
                }
                let add = if self.eat(Token::Mark('+')) { self.int()? } else { 0 };
                let symbol = symbol.to_string();
                variable.relocations.push(Relocation { offset, symbol, add });
                variable.init.extend([0; 8]);
                return Ok(());
            }
            _ => return self.unexpected("an initial value"),
        };
        self.next();
        variable.init.extend(&bits.to_le_bytes()[..ty.bytes().min(8) as usize]);
        Ok(())
    }

    /// Adds a function, replacing an earlier declaration without a body.
    pub fn add_function(&mut self, function: Function) -> Result<()> {
        let found = self.ast.functions.iter_mut().find(|known| known.name == function.name);
        match found {
            Some(known) if !known.defined => *known = function,
            Some(_) if function.defined => return Err(twice(function.line, &function.name)),
            Some(_) => {}
            None => self.ast.functions.push(function),
        }
        Ok(())
    }
}

/// Error for a duplicate definition.
pub(crate) fn twice(line: u32, name: &str) -> Error {
    Error::at_line(ErrorKind::Parse, line, format!("`{name}` is defined twice"))
}
