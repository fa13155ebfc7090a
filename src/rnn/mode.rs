//! Options of a network besides its cell.

/// Biases of a layer (`mcdnnRNNBiasMode_t`, section 6.1.2.4). The modes are equivalent except for
/// cells whose reset gate acts on the recurrent GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BiasMode {
    /// No bias.
    None,
    /// One bias, added to the input GEMM.
    SingleInput,
    /// One bias, added to the recurrent GEMM.
    SingleRecurrent,
    /// Both biases.
    #[default]
    Double,
}

impl BiasMode {
    /// All modes.
    pub const ALL: [BiasMode; 4] =
        [BiasMode::None, BiasMode::SingleInput, BiasMode::SingleRecurrent, BiasMode::Double];

    /// Name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            BiasMode::None => "none",
            BiasMode::SingleInput => "single_input",
            BiasMode::SingleRecurrent => "single_recurrent",
            BiasMode::Double => "double",
        }
    }

    /// Whether the input GEMM has a bias.
    pub fn has_input(self) -> bool {
        matches!(self, BiasMode::SingleInput | BiasMode::Double)
    }

    /// Whether the recurrent GEMM has a bias.
    pub fn has_recurrent(self) -> bool {
        matches!(self, BiasMode::SingleRecurrent | BiasMode::Double)
    }
}

/// Use of the network's input by the first layer (`mcdnnRNNInputMode_t`, section 6.1.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum InputMode {
    /// The input is multiplied by weights.
    #[default]
    Linear,
    /// The input, of the hidden size, is added to every gate.
    Skip,
}

impl InputMode {
    /// All modes.
    pub const ALL: [InputMode; 2] = [InputMode::Linear, InputMode::Skip];

    /// Name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            InputMode::Linear => "linear",
            InputMode::Skip => "skip",
        }
    }
}

/// Combination of the outputs of two directions (oneDNN's `bidirectional_concat` and
/// `bidirectional_sum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Join {
    /// Concatenation: the vectors have twice the size.
    #[default]
    Concat,
    /// Sum, rounded once.
    Sum,
}

impl Join {
    /// All modes.
    pub const ALL: [Join; 2] = [Join::Concat, Join::Sum];

    /// Name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            Join::Concat => "concat",
            Join::Sum => "sum",
        }
    }
}

/// Input of the layers above the first in a bidirectional network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stacking {
    /// Both directions of the layer below, combined: mcDNN (section 6.2.1.36), cuDNN, torch.
    #[default]
    Joined,
    /// The same direction of the layer below; only the last layer's outputs are combined: oneDNN.
    Separate,
}

impl Stacking {
    /// All modes.
    pub const ALL: [Stacking; 2] = [Stacking::Joined, Stacking::Separate];

    /// Name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            Stacking::Joined => "joined",
            Stacking::Separate => "separate",
        }
    }
}
