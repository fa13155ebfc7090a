//! Arguments of a primitive: its tensors, their gradients, and the workspace.

/// A tensor of the RNN primitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tensor {
    /// `[T, N, SLC]`: inputs.
    SrcLayer,
    /// `[L, D, N, SIC]`: `h` before the first step; 0 if absent.
    SrcIter,
    /// `[L, D, N, DHC]`: the cell state before the first step (LSTM); 0 if absent.
    SrcIterC,
    /// `[T, N, 1]`: attention (AUGRU).
    AugruAttention,
    /// `[L, D, SLC, G, DHC]`: weights of inputs.
    WeightsLayer,
    /// `[L, D, SIC, G, DHC]`: weights of states.
    WeightsIter,
    /// `[L, D, 3, DHC]`: peepholes `i f o` (LSTM); none if absent.
    WeightsPeephole,
    /// `[L, D, DHC, DIC]`: projection (LSTM); none if absent.
    WeightsProjection,
    /// `[L, D, G, DHC]`, of linear-before-reset cells `[L, D, G + 1, DHC]`; 0 if absent.
    Bias,
    /// `[T, N, DLC]`: outputs.
    DstLayer,
    /// `[L, D, N, DIC]`: `h` after the last step; not written if absent.
    DstIter,
    /// `[L, D, N, DHC]`: the cell state after the last step (LSTM); not written if absent.
    DstIterC,
}

impl Tensor {
    /// All tensors.
    pub const ALL: [Tensor; 12] = [
        Tensor::SrcLayer,
        Tensor::SrcIter,
        Tensor::SrcIterC,
        Tensor::AugruAttention,
        Tensor::WeightsLayer,
        Tensor::WeightsIter,
        Tensor::WeightsPeephole,
        Tensor::WeightsProjection,
        Tensor::Bias,
        Tensor::DstLayer,
        Tensor::DstIter,
        Tensor::DstIterC,
    ];

    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Tensor::SrcLayer => "src_layer",
            Tensor::SrcIter => "src_iter",
            Tensor::SrcIterC => "src_iter_c",
            Tensor::AugruAttention => "augru_attention",
            Tensor::WeightsLayer => "weights_layer",
            Tensor::WeightsIter => "weights_iter",
            Tensor::WeightsPeephole => "weights_peephole",
            Tensor::WeightsProjection => "weights_projection",
            Tensor::Bias => "bias",
            Tensor::DstLayer => "dst_layer",
            Tensor::DstIter => "dst_iter",
            Tensor::DstIterC => "dst_iter_c",
        }
    }

    /// `DNNL_ARG_*`.
    fn number(self) -> i32 {
        match self {
            Tensor::SrcLayer => 1,
            Tensor::SrcIter => 2,
            Tensor::SrcIterC => 3,
            Tensor::AugruAttention => 4,
            Tensor::DstLayer => 17,
            Tensor::DstIter => 18,
            Tensor::DstIterC => 19,
            Tensor::WeightsLayer => 33,
            Tensor::WeightsIter => 34,
            Tensor::WeightsPeephole => 35,
            Tensor::WeightsProjection => 36,
            Tensor::Bias => 41,
        }
    }

    /// Whether a forward pass writes it.
    pub fn is_dst(self) -> bool {
        matches!(self, Tensor::DstLayer | Tensor::DstIter | Tensor::DstIterC)
    }

    /// Whether all steps share it, so that its gradient is added to what is in memory.
    pub fn is_weights(self) -> bool {
        matches!(
            self,
            Tensor::WeightsLayer
                | Tensor::WeightsIter
                | Tensor::WeightsPeephole
                | Tensor::WeightsProjection
                | Tensor::Bias
        )
    }
}

/// An argument of a primitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arg {
    /// A tensor.
    Of(Tensor),
    /// Its gradient.
    Diff(Tensor),
    /// What a forward pass in training keeps for the backward pass.
    Workspace,
}

impl Arg {
    /// What a reorder reads: its number is that of `src_layer`.
    pub const FROM: Arg = Arg::Of(Tensor::SrcLayer);
    /// What a reorder writes: its number is that of `dst_layer`.
    pub const TO: Arg = Arg::Of(Tensor::DstLayer);

    /// All arguments.
    pub fn all() -> impl Iterator<Item = Arg> {
        let tensors = Tensor::ALL.into_iter();
        tensors.flat_map(|tensor| [Arg::Of(tensor), Arg::Diff(tensor)]).chain([Arg::Workspace])
    }

    /// `DNNL_ARG_*`.
    pub fn number(self) -> i32 {
        match self {
            Arg::Of(tensor) => tensor.number(),
            Arg::Diff(tensor) => 128 + tensor.number(),
            Arg::Workspace => 64,
        }
    }

    /// The argument of a number.
    pub fn of_number(number: i32) -> Option<Arg> {
        Arg::all().find(|arg| arg.number() == number)
    }

    /// Name in messages.
    pub fn name(self) -> String {
        match self {
            Arg::Of(tensor) => tensor.name().to_owned(),
            Arg::Diff(tensor) => format!("diff_{}", tensor.name()),
            Arg::Workspace => "workspace".to_owned(),
        }
    }
}
