//! What a user may want to know, or to exclude, of a setting.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How results may differ from plain arithmetic (`mcdnnBackendNumericalNote_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NumericalNote {
    /// Products are summed by tensor cores, in an order of their own.
    TensorCore,
    /// Operands are rounded to a narrower type first.
    DownConvertInputs,
    /// Partial sums are rounded to a narrower type than the math precision's.
    ReducedPrecisionReduction,
    /// Two runs may give different bits.
    Nondeterministic,
}

/// What a setting asks of its surroundings (`mcdnnBackendBehaviorNote_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BehaviorNote {
    /// Its kernels are compiled at run time where no cache or pack holds them.
    RuntimeCompilation,
    /// It needs a workspace.
    Workspace,
    /// All its blocks must be resident together.
    Cooperative,
}

/// All notes of a setting, each kind ascending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Notes {
    /// Of its numbers.
    pub numerical: Vec<NumericalNote>,
    /// Of its behaviour.
    pub behavior: Vec<BehaviorNote>,
}

impl NumericalNote {
    /// All of them.
    pub const ALL: [NumericalNote; 4] = [
        NumericalNote::TensorCore,
        NumericalNote::DownConvertInputs,
        NumericalNote::ReducedPrecisionReduction,
        NumericalNote::Nondeterministic,
    ];

    /// The name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NumericalNote::TensorCore => "tensor_core",
            NumericalNote::DownConvertInputs => "down_convert_inputs",
            NumericalNote::ReducedPrecisionReduction => "reduced_precision_reduction",
            NumericalNote::Nondeterministic => "nondeterministic",
        }
    }
}

impl BehaviorNote {
    /// All of them.
    pub const ALL: [BehaviorNote; 3] =
        [BehaviorNote::RuntimeCompilation, BehaviorNote::Workspace, BehaviorNote::Cooperative];

    /// The name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            BehaviorNote::RuntimeCompilation => "runtime_compilation",
            BehaviorNote::Workspace => "workspace",
            BehaviorNote::Cooperative => "cooperative",
        }
    }
}

impl Notes {
    /// The names of all, numerical ones first.
    pub fn names(&self) -> Vec<&'static str> {
        let numerical = self.numerical.iter().map(|note| note.name());
        numerical.chain(self.behavior.iter().map(|note| note.name())).collect()
    }

    /// The first note that both have.
    pub(crate) fn common(&self, other: &Notes) -> Option<&'static str> {
        self.names().into_iter().find(|name| other.names().contains(name))
    }
}

impl fmt::Display for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(", "))
    }
}

impl FromStr for Notes {
    type Err = Error;

    /// Reads names separated by commas; empty text is none.
    fn from_str(text: &str) -> Result<Self> {
        let mut notes = Notes::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let numerical = NumericalNote::ALL.into_iter().find(|note| note.name() == name);
            let behavior = BehaviorNote::ALL.into_iter().find(|note| note.name() == name);
            match (numerical, behavior) {
                (Some(note), _) => notes.numerical.push(note),
                (None, Some(note)) => notes.behavior.push(note),
                (None, None) => {
                    let known = NumericalNote::ALL.map(NumericalNote::name).join(", ");
                    let more = BehaviorNote::ALL.map(BehaviorNote::name).join(", ");
                    return Err(Error::bad_param(format!(
                        "unknown note `{name}`: expected some of {known}, {more}"
                    )));
                }
            }
        }
        Ok(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let text = "tensor_core, nondeterministic, workspace";
        assert_eq!(text.parse::<Notes>().expect("valid").to_string(), text);
        assert_eq!("".parse::<Notes>().expect("valid"), Notes::default());
        let error = "fft".parse::<Notes>().expect_err("unknown").to_string();
        assert!(error.starts_with("unknown note `fft`: expected some of tensor_core, "), "{error}");
    }
}
