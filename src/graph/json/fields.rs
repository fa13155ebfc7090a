//! Keys of one operation, removed as they are read: keys that remain are unknown.

use serde_json::{Map, Value, json};

use super::keys::referred;
use super::pointwise::read_math;
use crate::error::{Error, Result};
use crate::expr::{Math, Real};
use crate::graph::{NormMode, Op, Operation};
use crate::tensor::TensorDesc;

/// The keys of `alpha` and `beta`; what is usual is left out.
pub(super) fn write_factors(factors: [Real; 2]) -> impl Iterator<Item = (&'static str, Value)> {
    let named = [("alpha", 1.0), ("beta", 0.0)].into_iter().zip(factors);
    let unusual = named.filter(|((_, usual), value)| value.get() != *usual);
    unusual.map(|((key, _), value)| (key, json!(value.get())))
}

/// The unread keys of an operation.
pub(super) struct Fields {
    pub kind: &'static str,
    pub map: Map<String, Value>,
}

impl Fields {
    pub(super) fn fail<T>(&self, text: impl std::fmt::Display) -> Result<T> {
        Err(Error::bad_param(format!("{}: {text}", self.kind)))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(super) fn value(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    /// Reads an integer.
    pub(super) fn number(&mut self, key: &str) -> Result<i64> {
        match self.value(key).as_ref().map(|value| (value, value.as_i64())) {
            None => self.fail(format_args!("key `{key}` is missing")),
            Some((_, Some(number))) => Ok(number),
            Some((value, None)) => {
                self.fail(format_args!("key `{key}` is {value}, expected a whole number"))
            }
        }
    }

    /// Returns the string under a key without removing it.
    pub(super) fn peek(&self, key: &str) -> Option<&str> {
        self.map.get(key).and_then(Value::as_str)
    }

    /// Inserts a string under an absent key.
    pub(super) fn put(&mut self, key: &str, text: String) {
        self.map.insert(key.to_owned(), Value::String(text));
    }

    /// Reads an optional value.
    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.map.remove(key) else { return Ok(None) };
        match read(&value) {
            None => self.fail(format_args!("key `{key}` is {value}, expected {expected}")),
            found => Ok(found),
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>> {
        match self.map.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => self.fail(format_args!("key `{key}` is {other}, expected a string")),
        }
    }

    /// Reads a string that must be one of the choices.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<T> {
        let text = self.text(key)?.unwrap_or_default();
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                self.fail(format_args!("key `{key}` is `{text}`, expected one of {names}"))
            }
        }
    }

    /// Reads an optional string that must be one of the choices.
    pub(super) fn choice_or<T: Copy>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T> {
        if self.has(key) { self.choice(key, choices) } else { Ok(default) }
    }

    pub(super) fn math(&mut self) -> Result<Math> {
        let text = self.text("math")?;
        read_math(&self.kind, text.as_deref())
    }

    /// Reads `alpha` and `beta`, by default 1 and 0.
    pub(super) fn factors(&mut self) -> Result<[Real; 2]> {
        let mut factor = |key, default| {
            let given = self.optional(key, "a number", Value::as_f64);
            given.map(|given| Real::new(given.unwrap_or(default)))
        };
        Ok([factor("alpha", 1.0)?, factor("beta", 0.0)?])
    }

    pub(super) fn mode(&mut self, kind: &'static str) -> Result<NormMode> {
        let groups = self.optional("groups", "a number", Value::as_i64)?;
        let modes = [NormMode::Layer, NormMode::Rms, NormMode::Instance, NormMode::Batch];
        let mut choices = modes.map(|mode| (mode.name(), mode)).to_vec();
        choices.push(("group", NormMode::Group(groups.unwrap_or(0))));
        let mode = self.choice(kind, &choices)?;
        match (mode, groups) {
            (NormMode::Group(_), None) => self.fail("key `groups` is missing"),
            (NormMode::Group(_), Some(_)) | (_, None) => Ok(mode),
            (_, Some(_)) => self.fail("key `groups` is that of group norm"),
        }
    }

    /// Reads the tensors of the slots and checks that no key remains.
    pub(super) fn operation(mut self, op: Op, tensors: &[TensorDesc]) -> Result<Operation> {
        let slots = op.slots();
        let mut read = |slot: &'static str| {
            let Some(name) = self.text(slot)? else {
                return self.fail(format_args!("key `{slot}` is missing"));
            };
            match referred(tensors, &name) {
                Some(uid) => Ok(uid),
                None => self.fail(format_args!("no tensor of the graph is named `{name}`")),
            }
        };
        let inputs = slots.inputs.iter().map(|slot| read(slot)).collect::<Result<_>>()?;
        let outputs = slots.outputs.iter().map(|slot| read(slot)).collect::<Result<_>>()?;
        match self.map.keys().next() {
            Some(key) => self.fail(format_args!("unknown key `{key}`")),
            None => Ok(Operation { op, inputs, outputs }),
        }
    }
}
