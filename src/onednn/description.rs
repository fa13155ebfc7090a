//! Descriptions of RNN operations.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::onednn::argument::{Arg, Tensor};
use crate::onednn::attr::PrimitiveAttr;
use crate::onednn::memory::MemoryDesc;

/// The activation of a vanilla RNN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `eltwise_relu`, with slope 0.
    Relu,
    /// `eltwise_tanh`.
    Tanh,
    /// `eltwise_logistic`.
    Logistic,
}

/// A cell function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cell {
    /// One gate.
    VanillaRnn(Activation),
    /// Gates `i f c o`, with peepholes and a projection where their weights are given.
    Lstm,
    /// Gates `u r o`.
    Gru,
    /// Gates `u r o`, the reset gate behind the linear layer.
    LbrGru,
    /// A GRU with an attention that scales the update gate.
    Augru,
    /// An LBR GRU with an attention that scales the update gate.
    LbrAugru,
}

impl Cell {
    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Cell::VanillaRnn(_) => "vanilla_rnn",
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
            Cell::LbrGru => "lbr_gru",
            Cell::Augru => "augru",
            Cell::LbrAugru => "lbr_augru",
        }
    }

    /// Number of gates.
    pub fn gates(self) -> i64 {
        match self {
            Cell::VanillaRnn(_) => 1,
            Cell::Lstm => 4,
            _ => 3,
        }
    }

    /// Number of biases of a unit.
    pub fn biases(self) -> i64 {
        self.gates() + i64::from(self.is_linear_before_reset())
    }

    /// Whether the reset gate acts behind the linear layer.
    pub fn is_linear_before_reset(self) -> bool {
        matches!(self, Cell::LbrGru | Cell::LbrAugru)
    }

    /// Whether the cell has a tensor.
    pub fn has(self, tensor: Tensor) -> bool {
        match tensor {
            Tensor::SrcIterC
            | Tensor::DstIterC
            | Tensor::WeightsPeephole
            | Tensor::WeightsProjection => self == Cell::Lstm,
            Tensor::AugruAttention => matches!(self, Cell::Augru | Cell::LbrAugru),
            _ => true,
        }
    }
}

/// What a primitive is for (`dnnl::prop_kind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PropKind {
    /// Outputs.
    ForwardInference,
    /// Outputs, and in the workspace what gradients need.
    ForwardTraining,
    /// Gradients.
    Backward,
}

impl PropKind {
    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            PropKind::ForwardInference => "forward_inference",
            PropKind::ForwardTraining => "forward_training",
            PropKind::Backward => "backward",
        }
    }
}

/// The order of steps (`dnnl::rnn_direction`). Stacks of two directions are separate; only the
/// outputs of the last layer are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RnnDirection {
    /// First to last.
    LeftToRight,
    /// Last to first.
    RightToLeft,
    /// Both, with outputs side by side.
    BidirectionalConcat,
    /// Both, with outputs added.
    BidirectionalSum,
}

impl RnnDirection {
    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            RnnDirection::LeftToRight => "left2right",
            RnnDirection::RightToLeft => "right2left",
            RnnDirection::BidirectionalConcat => "bidirectional_concat",
            RnnDirection::BidirectionalSum => "bidirectional_sum",
        }
    }

    /// Number of directions.
    pub fn count(self) -> i64 {
        match self {
            RnnDirection::LeftToRight | RnnDirection::RightToLeft => 1,
            RnnDirection::BidirectionalConcat | RnnDirection::BidirectionalSum => 2,
        }
    }
}

/// An RNN operation: what a primitive descriptor is made from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RnnDesc {
    /// The cell function.
    pub cell: Cell,
    /// What it is for.
    pub prop_kind: PropKind,
    /// The order of steps.
    pub direction: RnnDirection,
    /// Descriptors of the tensors, and in a backward pass of their gradients. Those that are
    /// optional and absent are zero memory descriptors.
    pub descs: BTreeMap<Arg, MemoryDesc>,
    /// Attributes.
    pub attr: PrimitiveAttr,
    /// `rnn_flags::diff_weights_overwrite`: whether gradients of weights replace what is in memory
    /// instead of being added to it.
    pub diff_weights_overwrite: bool,
}

impl RnnDesc {
    /// An operation without tensors and attributes.
    pub fn new(cell: Cell, prop_kind: PropKind, direction: RnnDirection) -> RnnDesc {
        RnnDesc {
            cell,
            prop_kind,
            direction,
            descs: BTreeMap::new(),
            attr: PrimitiveAttr::default(),
            diff_weights_overwrite: false,
        }
    }

    /// Sets the descriptor of a tensor.
    #[must_use]
    pub fn with(mut self, tensor: Tensor, desc: MemoryDesc) -> RnnDesc {
        self.descs.insert(Arg::Of(tensor), desc);
        self
    }

    /// Sets the descriptor of a tensor's gradient.
    #[must_use]
    pub fn with_diff(mut self, tensor: Tensor, desc: MemoryDesc) -> RnnDesc {
        self.descs.insert(Arg::Diff(tensor), desc);
        self
    }

    /// The descriptor of a tensor, if there is one.
    pub fn desc(&self, tensor: Tensor) -> Option<&MemoryDesc> {
        self.descs.get(&Arg::Of(tensor))
    }

    /// Whether there is a tensor.
    pub fn has(&self, tensor: Tensor) -> bool {
        self.desc(tensor).is_some()
    }

    /// An error of the operation.
    pub(super) fn error(&self, kind: ErrorKind, rule: &str) -> Error {
        let (cell, prop_kind) = (self.cell.name(), self.prop_kind.name());
        Error::with(kind, format!("onednn {cell} {prop_kind}: {rule}"))
    }
}
