//! Enumerations of recurrent networks, and what of Kiln's they are.

use kiln::graph::{Direction, RowLayout};
use kiln::layers::ForwardMode as Forward;
use kiln::rnn::{BiasMode, CellKind, InputMode, RnnAlgo};

use crate::declare::enumeration;
use crate::status::Outcome;

enumeration! {
    /// The cell of a network.
    mcdnnRNNMode_t RnnMode "MCDNN_" { RNN_RELU = 0, RNN_TANH = 1, LSTM = 2, GRU = 3 }
}

enumeration! {
    /// The biases of a cell.
    mcdnnRNNBiasMode_t RnnBiasMode "MCDNN_RNN_" {
        NO_BIAS = 0, SINGLE_INP_BIAS = 1, DOUBLE_BIAS = 2, SINGLE_REC_BIAS = 3,
    }
}

enumeration! {
    /// The algorithm of a network. Kernels are chosen as for any graph; an algorithm is only what
    /// it may be used for.
    mcdnnRNNAlgo_t RnnAlgorithm "MCDNN_RNN_ALGO_" {
        STANDARD = 0, PERSIST_STATIC = 1, PERSIST_DYNAMIC = 2, PERSIST_STATIC_SMALL_H = 3,
        COUNT = 4,
    }
}

enumeration! {
    /// The directions that a network goes in.
    mcdnnDirectionMode_t DirectionMode "MCDNN_" { UNIDIRECTIONAL = 0, BIDIRECTIONAL = 1 }
}

enumeration! {
    /// What the first layer does with its input.
    mcdnnRNNInputMode_t RnnInputMode "MCDNN_" { LINEAR_INPUT = 0, SKIP_INPUT = 1 }
}

enumeration! {
    /// Whether the cell state is clipped.
    mcdnnRNNClipMode_t RnnClipMode "MCDNN_RNN_CLIP_" { NONE = 0, MINMAX = 1 }
}

enumeration! {
    /// Whether a forward pass keeps what backward passes need.
    mcdnnForwardMode_t ForwardMode "MCDNN_FWD_MODE_" { INFERENCE = 0, TRAINING = 1 }
}

enumeration! {
    /// The order of the vectors of all steps and sequences.
    mcdnnRNNDataLayout_t RnnDataLayout "MCDNN_RNN_DATA_LAYOUT_" {
        SEQ_MAJOR_UNPACKED = 0, SEQ_MAJOR_PACKED = 1, BATCH_MAJOR_UNPACKED = 2,
    }
}

/// `MCDNN_RNN_PADDED_IO_ENABLED`, of `auxFlags`.
pub const PADDED_IO_ENABLED: u32 = 1;

impl RnnMode {
    /// The cell.
    pub fn cell(self) -> Outcome<CellKind> {
        Ok(match self.known("cellMode")? {
            RnnMode::RNN_RELU => CellKind::Relu,
            RnnMode::RNN_TANH => CellKind::Tanh,
            RnnMode::LSTM => CellKind::Lstm,
            _ => CellKind::Gru,
        })
    }
}

impl RnnBiasMode {
    /// The biases.
    pub fn bias(self) -> Outcome<BiasMode> {
        Ok(match self.known("biasMode")? {
            RnnBiasMode::NO_BIAS => BiasMode::None,
            RnnBiasMode::SINGLE_INP_BIAS => BiasMode::SingleInput,
            RnnBiasMode::SINGLE_REC_BIAS => BiasMode::SingleRecurrent,
            _ => BiasMode::Double,
        })
    }
}

impl RnnAlgorithm {
    /// The algorithm.
    pub fn algorithm(self) -> Outcome<RnnAlgo> {
        Ok(match self.known("algo")? {
            RnnAlgorithm::STANDARD => RnnAlgo::Standard,
            RnnAlgorithm::PERSIST_DYNAMIC => RnnAlgo::PersistDynamic,
            RnnAlgorithm::COUNT => return crate::status::bad("algo is MCDNN_RNN_ALGO_COUNT"),
            _ => RnnAlgo::PersistStatic,
        })
    }
}

impl DirectionMode {
    /// The direction.
    pub fn direction(self) -> Outcome<Direction> {
        Ok(match self.known("dirMode")? {
            DirectionMode::BIDIRECTIONAL => Direction::Both,
            _ => Direction::Forward,
        })
    }
}

impl RnnInputMode {
    /// The input mode.
    pub fn input(self) -> Outcome<InputMode> {
        Ok(match self.known("inputMode")? {
            RnnInputMode::SKIP_INPUT => InputMode::Skip,
            _ => InputMode::Linear,
        })
    }
}

impl ForwardMode {
    /// The mode.
    pub fn forward(self) -> Outcome<Forward> {
        Ok(match self.known("fwdMode")? {
            ForwardMode::TRAINING => Forward::Training,
            _ => Forward::Inference,
        })
    }
}

impl RnnDataLayout {
    /// The layout.
    pub fn layout(self) -> Outcome<RowLayout> {
        Ok(match self.known("layout")? {
            RnnDataLayout::SEQ_MAJOR_PACKED => RowLayout::Packed,
            RnnDataLayout::BATCH_MAJOR_UNPACKED => RowLayout::BatchMajor,
            _ => RowLayout::SequenceMajor,
        })
    }
}
