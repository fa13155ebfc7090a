//! Parser of what an indirect call may call.

use crate::ast::Prototype;
use crate::error::Result;
use crate::lex::Token;
use crate::parse::Parser;

impl Parser<'_> {
    /// Parses `.callprototype (.param .b32 _) _ (.param .b64 _);` or `.calltargets f, g;`.
    pub fn prototype(&mut self) -> Result<Prototype> {
        if self.eat(Token::Dot("calltargets")) {
            let mut targets = Vec::new();
            while !self.eat(Token::Mark(';')) {
                targets.push(self.name()?.to_string());
                self.eat(Token::Mark(','));
            }
            return Ok(Prototype::Targets(targets));
        }
        self.next();
        let returns = match self.peek() {
            Token::Mark('(') => self.prototype_params()?,
            _ => Vec::new(),
        };
        self.name()?;
        let params = match self.peek() {
            Token::Mark('(') => self.prototype_params()?,
            _ => Vec::new(),
        };
        self.eat(Token::Dot("noreturn"));
        self.mark(';')?;
        Ok(Prototype::Shape([returns, params]))
    }

    /// Parses a parenthesised list of parameters without names; returns their bytes.
    fn prototype_params(&mut self) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        self.mark('(')?;
        while !self.eat(Token::Mark(')')) {
            if !self.eat(Token::Dot("param")) {
                return self.unexpected("a parameter in memory");
            }
            let (_, ty, elements) = self.declaration_type()?;
            self.name()?;
            let mut bytes = ty.bytes().saturating_mul(elements);
            while self.eat(Token::Mark('[')) {
                bytes = bytes.saturating_mul(self.unsigned()?);
                self.mark(']')?;
            }
            out.push(bytes);
            self.eat(Token::Mark(','));
        }
        Ok(out)
    }
}
