//! The modifiers of an instruction; all must be consumed, or the instruction is rejected.

use crate::ast::Instruction;
use crate::error::{Error, ErrorKind, Result};
use crate::rounding::Direction;
use crate::types::Type;

pub(super) struct Modifiers<'a> {
    instruction: &'a Instruction,
    taken: Vec<bool>,
}

impl<'a> Modifiers<'a> {
    pub fn new(instruction: &'a Instruction) -> Modifiers<'a> {
        Modifiers { instruction, taken: vec![false; instruction.modifiers.len()] }
    }

    fn left(&self) -> impl Iterator<Item = (usize, &'a str)> + '_ {
        let all = self.instruction.modifiers.iter().enumerate();
        all.filter(|&(index, _)| !self.taken[index]).map(|(index, text)| (index, text.as_str()))
    }

    /// Consumes the first modifier of that name.
    pub fn take(&mut self, name: &str) -> bool {
        let found = self.left().find(|&(_, text)| text == name);
        found.map(|(index, _)| self.taken[index] = true).is_some()
    }

    /// Consumes the first modifier that `choose` accepts.
    pub fn take_map<T>(&mut self, choose: impl Fn(&str) -> Option<T>) -> Option<T> {
        let found = self.left().find_map(|(index, text)| choose(text).map(|value| (index, value)));
        found.map(|(index, value)| {
            self.taken[index] = true;
            value
        })
    }

    /// Consumes every modifier that `drop` accepts.
    pub fn take_while(&mut self, drop: impl Fn(&str) -> bool) {
        while self.take_map(|text| drop(text).then_some(())).is_some() {}
    }

    /// Whether a modifier that `first` accepts precedes those in `others`.
    pub fn next_is(&self, first: impl Fn(&str) -> bool, others: [&str; 2]) -> bool {
        let found = self.left().find(|(_, text)| first(text) || others.contains(text));
        found.is_some_and(|(_, text)| first(text))
    }

    /// Whether the instruction has this modifier, consumed or not.
    pub fn has(&self, name: &str) -> bool {
        self.instruction.modifiers.iter().any(|text| text == name)
    }

    /// Consumes the next type, which is required. `b128` is left to the instructions that support
    /// it.
    pub fn ty(&mut self) -> Result<Type> {
        let ty = self.take_map(|text| Type::from_name(text).filter(|&ty| ty != Type::B128));
        ty.ok_or_else(|| self.error("has no known type"))
    }

    /// Consumes `.rn`, `.rz`, `.rm` or `.rp`.
    pub fn rounding(&mut self) -> Option<Direction> {
        self.take_map(|text| match text {
            "rn" => Some(Direction::Nearest),
            "rz" => Some(Direction::Zero),
            "rm" => Some(Direction::Down),
            "rp" => Some(Direction::Up),
            _ => None,
        })
    }

    /// Returns an error with the full opcode.
    pub fn error(&self, message: &str) -> Error {
        let mut text = self.instruction.opcode.clone();
        for modifier in &self.instruction.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        let line = self.instruction.line;
        Error::at_line(ErrorKind::Unsupported, line, format!("`{text}` {message}"))
    }

    /// Rejects the instruction if a modifier was not consumed.
    pub fn finish(self) -> Result<()> {
        match self.left().next() {
            None => Ok(()),
            Some((_, text)) => Err(self.error(&format!("has an unknown modifier `.{text}`"))),
        }
    }
}
