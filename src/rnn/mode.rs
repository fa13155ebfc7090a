//! The choices that make a network of cells, besides the cell.

/// Which biases there are (`mcdnnRNNBiasMode_t`, section 6.1.2.4). They are the same for all cells
/// but those whose reset gate acts on the recurrent product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BiasMode {
    /// None.
    None,
    /// One, added to the product with the input.
    SingleInput,
    /// One, added to the recurrent product.
    SingleRecurrent,
    /// Both.
    #[default]
    Double,
}

impl BiasMode {
    /// All of them.
    pub const ALL: [BiasMode; 4] =
        [BiasMode::None, BiasMode::SingleInput, BiasMode::SingleRecurrent, BiasMode::Double];

    /// The name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            BiasMode::None => "none",
            BiasMode::SingleInput => "single_input",
            BiasMode::SingleRecurrent => "single_recurrent",
            BiasMode::Double => "double",
        }
    }

    /// Whether the product with the input has a bias.
    pub fn has_input(self) -> bool {
        matches!(self, BiasMode::SingleInput | BiasMode::Double)
    }

    /// Whether the recurrent product has a bias.
    pub fn has_recurrent(self) -> bool {
        matches!(self, BiasMode::SingleRecurrent | BiasMode::Double)
    }
}

/// What the first layer does with the network's input (`mcdnnRNNInputMode_t`, section 6.1.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum InputMode {
    /// Multiplies it with weights.
    #[default]
    Linear,
    /// Gives it to every gate as it is: it has the size of the hidden state.
    Skip,
}

impl InputMode {
    /// All of them.
    pub const ALL: [InputMode; 2] = [InputMode::Linear, InputMode::Skip];

    /// The name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            InputMode::Linear => "linear",
            InputMode::Skip => "skip",
        }
    }
}

/// How the results of two directions become one (oneDNN's `bidirectional_concat` and
/// `bidirectional_sum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Join {
    /// One after the other: a vector of twice the size.
    #[default]
    Concat,
    /// Added, rounded once.
    Sum,
}

impl Join {
    /// All of them.
    pub const ALL: [Join; 2] = [Join::Concat, Join::Sum];

    /// The name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            Join::Concat => "concat",
            Join::Sum => "sum",
        }
    }
}

/// What a layer above the first reads in a network of two directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stacking {
    /// Both directions of the layer below, joined: mcDNN (section 6.2.1.36), cuDNN, torch.
    #[default]
    Joined,
    /// Its own direction of the layer below; only the last results are joined: oneDNN.
    Separate,
}

impl Stacking {
    /// All of them.
    pub const ALL: [Stacking; 2] = [Stacking::Joined, Stacking::Separate];

    /// The name in problem files.
    pub fn name(self) -> &'static str {
        match self {
            Stacking::Joined => "joined",
            Stacking::Separate => "separate",
        }
    }
}
