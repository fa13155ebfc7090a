//! Knobs and their settings.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A tuning parameter of an engine and the values it may take for one graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Knob {
    /// Its name, the same in configurations, templates and texts.
    pub name: &'static str,
    /// What it changes, in one line.
    pub about: &'static str,
    /// The allowed values, ascending.
    pub values: Vec<i64>,
}

/// An engine with a value for each of its knobs; prints as `pointwise{grid=0, items=2, ...}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineConfig {
    /// The engine's name.
    pub engine: Cow<'static, str>,
    /// A value per knob name, sorted by name.
    knobs: Vec<(Cow<'static, str>, i64)>,
}

/// The values of every combination, those of the last knob alternating fastest.
pub(super) fn combinations<const N: usize>(knobs: &[Knob; N]) -> impl Iterator<Item = [i64; N]> {
    let full = knobs.iter().all(|knob| !knob.values.is_empty());
    let mut next = full.then_some([0; N]);
    std::iter::from_fn(move || {
        let places = next?;
        next = following(places, knobs);
        Some(std::array::from_fn(|at| knobs[at].values[places[at]]))
    })
}

/// The places of the next combination.
fn following<const N: usize>(mut places: [usize; N], knobs: &[Knob; N]) -> Option<[usize; N]> {
    for (place, knob) in places.iter_mut().zip(knobs).rev() {
        *place += 1;
        if *place < knob.values.len() {
            return Some(places);
        }
        *place = 0;
    }
    None
}

impl EngineConfig {
    /// A configuration from knob names, each once, and values.
    pub fn new(engine: &'static str, knobs: &[(&'static str, i64)]) -> Self {
        let knob = |(name, value): &(&'static str, i64)| (Cow::Borrowed(*name), *value);
        let mut knobs: Vec<_> = knobs.iter().map(knob).collect();
        knobs.sort_by(|(a, _), (b, _)| a.cmp(b));
        EngineConfig { engine: Cow::Borrowed(engine), knobs }
    }

    /// A configuration from knob names, each once, and their values in the same order.
    pub(super) fn of_values<const N: usize>(
        engine: &'static str,
        knobs: [&'static str; N],
        values: [i64; N],
    ) -> Self {
        EngineConfig::new(engine, &std::array::from_fn::<_, N, _>(|at| (knobs[at], values[at])))
    }

    /// The names and values of all knobs, sorted by name.
    pub fn knobs(&self) -> impl Iterator<Item = (&str, i64)> {
        self.knobs.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    fn find(&self, knob: &str) -> std::result::Result<usize, usize> {
        self.knobs.binary_search_by(|(name, _)| name.as_ref().cmp(knob))
    }

    fn set(mut self, knob: Cow<'static, str>, value: i64) -> Self {
        match self.find(&knob) {
            Ok(at) => self.knobs[at].1 = value,
            Err(at) => self.knobs.insert(at, (knob, value)),
        }
        self
    }

    /// Every combination of knob values; what they ask for together may still be too much.
    pub fn all(engine: &'static str, knobs: &[Knob]) -> Vec<EngineConfig> {
        let mut all = vec![EngineConfig::new(engine, &[])];
        for knob in knobs {
            let with = |config: EngineConfig| {
                knob.values
                    .iter()
                    .map(move |value| config.clone().set(Cow::Borrowed(knob.name), *value))
            };
            all = all.into_iter().flat_map(with).collect();
        }
        all
    }

    /// The values of these knobs.
    ///
    /// # Errors
    /// `BadParam` when one is not set.
    pub(super) fn values<const N: usize>(&self, knobs: [&str; N]) -> Result<[i64; N]> {
        let mut values = [0; N];
        for (value, knob) in values.iter_mut().zip(knobs) {
            *value = self.knob(knob)?;
        }
        Ok(values)
    }

    /// Sets one knob, whether the configuration has it yet or not.
    pub fn with(self, knob: &str, value: i64) -> Self {
        self.set(Cow::Owned(knob.to_owned()), value)
    }

    /// The configuration with a knob at half its value; `None` where that is not set or less than
    /// 2.
    pub(super) fn halved(&self, knob: &str) -> Option<Self> {
        let value = self.knob(knob).ok().filter(|value| *value > 1)?;
        Some(self.clone().with(knob, value / 2))
    }

    /// The value of a knob.
    ///
    /// # Errors
    /// `BadParam` when it is not set.
    pub fn knob(&self, name: &str) -> Result<i64> {
        let engine = &self.engine;
        let missing = || Error::bad_param(format!("engine {engine}: knob `{name}` is not set"));
        self.find(name).map(|at| self.knobs[at].1).map_err(|_| missing())
    }

    /// Checks every setting against the knobs an engine offers.
    ///
    /// # Errors
    /// `BadParam` for an unknown or missing knob or a value that is not allowed.
    pub fn validate(&self, knobs: &[Knob]) -> Result<()> {
        let engine = &self.engine;
        for (name, _) in &self.knobs {
            if !knobs.iter().any(|knob| knob.name == name) {
                return Err(Error::bad_param(format!("engine {engine}: unknown knob `{name}`")));
            }
        }
        for knob in knobs {
            let value = self.knob(knob.name)?;
            if !knob.values.contains(&value) {
                let (name, values) = (knob.name, &knob.values);
                return Err(Error::bad_param(format!(
                    "engine {engine}: knob `{name}` is {value}, expected one of {values:?}"
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Display for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knobs: Vec<String> =
            self.knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        write!(f, "{}{{{}}}", self.engine, knobs.join(", "))
    }
}

impl FromStr for EngineConfig {
    type Err = Error;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::bad_param(format!(
                "malformed engine configuration `{text}`: expected like pointwise{{items=2}}"
            ))
        };
        let (engine, rest) = text.split_once('{').ok_or_else(bad)?;
        let body = rest.strip_suffix('}').ok_or_else(bad)?;
        let engine = Cow::Owned(engine.trim().to_owned());
        let mut config = EngineConfig { engine, knobs: Vec::new() };
        for setting in body.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').ok_or_else(bad)?;
            let value = value.trim().parse().map_err(|_| bad())?;
            config = config.with(name.trim(), value);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let config = EngineConfig::new("pointwise", &[("vector", 8), ("items", 2)]);
        assert_eq!(config.to_string(), "pointwise{items=2, vector=8}");
        assert_eq!(config.to_string().parse::<EngineConfig>().expect("valid"), config);
        assert!("pointwise".parse::<EngineConfig>().is_err());
    }

    #[test]
    fn combinations_are_in_order() {
        let knob = |values: &[i64]| Knob { name: "", about: "", values: values.to_vec() };
        let all: Vec<[i64; 2]> = combinations(&[knob(&[1, 2]), knob(&[3, 4])]).collect();
        assert_eq!(all, [[1, 3], [1, 4], [2, 3], [2, 4]]);
    }

    #[test]
    fn settings_are_checked() {
        let knobs = [Knob { name: "items", about: "", values: vec![1, 2] }];
        let check = |config: EngineConfig| config.validate(&knobs).expect_err("bad").to_string();
        let config = EngineConfig::new("e", &[]);
        assert_eq!(check(config.clone()), "engine e: knob `items` is not set");
        assert_eq!(
            check(config.clone().with("items", 3)),
            "engine e: knob `items` is 3, expected one of [1, 2]"
        );
        assert_eq!(check(config.with("item", 1)), "engine e: unknown knob `item`");
    }
}
