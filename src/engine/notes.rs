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
    /// Sigmoid and tanh are off by up to 2^-11; not one of the document's.
    FastActivations,
    /// Two runs may give different bits.
    Nondeterministic,
    /// Convolutions by Fourier transforms; no setting has it.
    Fft,
    /// Convolutions by Winograd's algorithm, with tiles of any or of one size; no setting has it.
    Winograd,
    /// See `Winograd`.
    WinogradTile4x4,
    /// See `Winograd`.
    WinogradTile6x6,
    /// See `Winograd`.
    WinogradTile13x13,
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
    /// Filters of convolutions must be reordered first; no setting has it.
    RequiresFilterInt8x32Reorder,
    /// Biases of convolutions must be reordered first; no setting has it.
    RequiresBiasInt8x32Reorder,
}

/// All notes of a setting, each kind ascending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Notes {
    /// What is special of the numbers that it computes with.
    pub numerical: Vec<NumericalNote>,
    /// What is special of how it runs or what it needs.
    pub behavior: Vec<BehaviorNote>,
}

impl NumericalNote {
    /// All of them.
    pub const ALL: [NumericalNote; 10] = [
        NumericalNote::TensorCore,
        NumericalNote::DownConvertInputs,
        NumericalNote::ReducedPrecisionReduction,
        NumericalNote::FastActivations,
        NumericalNote::Nondeterministic,
        NumericalNote::Fft,
        NumericalNote::Winograd,
        NumericalNote::WinogradTile4x4,
        NumericalNote::WinogradTile6x6,
        NumericalNote::WinogradTile13x13,
    ];

    /// The name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NumericalNote::TensorCore => "tensor_core",
            NumericalNote::DownConvertInputs => "down_convert_inputs",
            NumericalNote::ReducedPrecisionReduction => "reduced_precision_reduction",
            NumericalNote::FastActivations => "fast_activations",
            NumericalNote::Nondeterministic => "nondeterministic",
            NumericalNote::Fft => "fft",
            NumericalNote::Winograd => "winograd",
            NumericalNote::WinogradTile4x4 => "winograd_tile_4x4",
            NumericalNote::WinogradTile6x6 => "winograd_tile_6x6",
            NumericalNote::WinogradTile13x13 => "winograd_tile_13x13",
        }
    }
}

impl BehaviorNote {
    /// All of them.
    pub const ALL: [BehaviorNote; 5] = [
        BehaviorNote::RuntimeCompilation,
        BehaviorNote::Workspace,
        BehaviorNote::Cooperative,
        BehaviorNote::RequiresFilterInt8x32Reorder,
        BehaviorNote::RequiresBiasInt8x32Reorder,
    ];

    /// The name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            BehaviorNote::RuntimeCompilation => "runtime_compilation",
            BehaviorNote::Workspace => "workspace",
            BehaviorNote::Cooperative => "cooperative",
            BehaviorNote::RequiresFilterInt8x32Reorder => "requires_filter_int8x32_reorder",
            BehaviorNote::RequiresBiasInt8x32Reorder => "requires_bias_int8x32_reorder",
        }
    }
}

impl Notes {
    /// The names of all, numerical ones first.
    pub fn names(&self) -> Vec<&'static str> {
        let numerical = self.numerical.iter().map(|note| note.name());
        numerical.chain(self.behavior.iter().map(|note| note.name())).collect()
    }

    /// All but where kernels come from, which is not known before they are looked for.
    pub(crate) fn of_settings(&self) -> Notes {
        let mut notes = self.clone();
        notes.behavior.retain(|note| *note != BehaviorNote::RuntimeCompilation);
        notes
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
        let error = "magic".parse::<Notes>().expect_err("unknown").to_string();
        let expected = "unknown note `magic`: expected some of tensor_core, ";
        assert!(error.starts_with(expected), "{error}");
        for note in NumericalNote::ALL.map(NumericalNote::name) {
            assert_eq!(note.parse::<Notes>().expect("valid").names(), [note]);
        }
        for note in BehaviorNote::ALL.map(BehaviorNote::name) {
            assert_eq!(note.parse::<Notes>().expect("valid").names(), [note]);
        }
    }
}
