//! Lexer of PTX.
//!
//! Comments and white space are dropped; every token has its line. Names may contain `%`, `$` and
//! `_`; a leading dot starts a directive or modifier, which may contain `::` (`.shared::cta`).

use crate::error::{Error, ErrorKind, Result};
use std::fmt;

/// A token; names and strings borrow from the text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Token<'a> {
    /// A name: register, label, symbol or opcode.
    Name(&'a str),
    /// A directive or modifier, without its dot.
    Dot(&'a str),
    /// An integer literal.
    Int(u64),
    /// A single-precision literal by its bits.
    Single(u32),
    /// A double-precision literal by its bits.
    Double(u64),
    /// A string without its quotes.
    Text(&'a str),
    /// Any other character.
    Mark(char),
    /// The end of the text.
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(name) => write!(f, "`{name}`"),
            Token::Dot(name) => write!(f, "`.{name}`"),
            Token::Int(value) => write!(f, "`{value}`"),
            Token::Single(bits) => write!(f, "`0f{bits:08X}`"),
            Token::Double(bits) => write!(f, "`0d{bits:016X}`"),
            Token::Text(text) => write!(f, "\"{text}\""),
            Token::Mark(mark) => write!(f, "`{mark}`"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// A token and its line, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spanned<'a> {
    pub token: Token<'a>,
    pub line: u32,
}

/// Splits `text` into tokens, ending with [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Spanned<'_>>> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut out = Vec::with_capacity(text.len() / 4);
    loop {
        lexer.skip_blank()?;
        let line = lexer.line;
        let token = lexer.token()?;
        out.push(Spanned { token, line });
        if token == Token::End {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::at_line(ErrorKind::Parse, self.line, message))
    }

    fn skip_blank(&mut self) -> Result<()> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                (b'/', b'*') => {
                    let rest = &self.text[self.at..];
                    let Some(end) = rest.find("*/") else {
                        return self.error("a comment is not closed");
                    };
                    self.line += rest[..end].matches('\n').count() as u32;
                    self.at += end + 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn take_while(&mut self, keep: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.at < self.text.len() && keep(self.peek(0)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn token(&mut self) -> Result<Token<'a>> {
        let first = self.peek(0);
        if self.at >= self.text.len() {
            return Ok(Token::End);
        }
        match first {
            b'0'..=b'9' => self.number(),
            b'.' => {
                self.at += 1;
                let start = self.at;
                self.take_while(in_name);
                while self.peek(0) == b':' && self.peek(1) == b':' {
                    self.at += 2;
                    self.take_while(in_name);
                }
                Ok(Token::Dot(&self.text[start..self.at]))
            }
            b'"' => {
                self.at += 1;
                let text = self.take_while(|byte| byte != b'"' && byte != b'\n');
                if self.peek(0) != b'"' {
                    return self.error("a string is not closed");
                }
                self.at += 1;
                Ok(Token::Text(text))
            }
            byte if in_name(byte) => Ok(Token::Name(self.take_while(in_name))),
            byte if byte.is_ascii_graphic() => {
                self.at += 1;
                Ok(Token::Mark(byte as char))
            }
            byte => self.error(format!("invalid byte {byte:#04x}")),
        }
    }

    fn number(&mut self) -> Result<Token<'a>> {
        let word = self.take_while(|byte| byte.is_ascii_alphanumeric());
        let lower = word.to_ascii_lowercase();
        let bad = || Error::at_line(ErrorKind::Parse, self.line, format!("bad number `{word}`"));
        if let (Some(hex), 10) = (lower.strip_prefix("0f"), lower.len()) {
            return u32::from_str_radix(hex, 16).map(Token::Single).map_err(|_| bad());
        }
        if let (Some(hex), 18) = (lower.strip_prefix("0d"), lower.len()) {
            return u64::from_str_radix(hex, 16).map(Token::Double).map_err(|_| bad());
        }
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            return self.decimal_float(word);
        }
        let digits = lower.strip_suffix('u').unwrap_or(&lower);
        let parsed = if let Some(hex) = digits.strip_prefix("0x") {
            u64::from_str_radix(hex, 16)
        } else if let Some(binary) = digits.strip_prefix("0b") {
            u64::from_str_radix(binary, 2)
        } else if digits.len() > 1 && digits.starts_with('0') {
            u64::from_str_radix(digits, 8)
        } else {
            digits.parse()
        };
        parsed.map(Token::Int).map_err(|_| bad())
    }

    fn decimal_float(&mut self, whole: &'a str) -> Result<Token<'a>> {
        let start = self.at - whole.len();
        self.at += 1;
        self.take_while(|byte| byte.is_ascii_alphanumeric());
        let exponent = matches!(self.text.as_bytes()[self.at - 1], b'e' | b'E');
        if exponent && matches!(self.peek(0), b'+' | b'-') {
            self.at += 1;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let word = &self.text[start..self.at];
        match word.parse::<f64>() {
            Ok(value) => Ok(Token::Double(value.to_bits())),
            Err(_) => self.error(format!("bad number `{word}`")),
        }
    }
}
