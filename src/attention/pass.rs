//! Passes through a layer.

/// A pass through a layer; cuDNN's `cudnnMultiHeadAttnBackwardData` and
/// `cudnnMultiHeadAttnBackwardWeights` are the last two, which mcDNN's document names and does not
/// describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AttentionPass {
    /// The outputs; in training also what the other passes need.
    #[default]
    Forward,
    /// Gradients of queries, keys and values.
    BackwardData,
    /// Gradients of weights and biases, after those of the data.
    BackwardWeights,
}

impl AttentionPass {
    /// All passes, in their order.
    pub const ALL: [AttentionPass; 3] =
        [AttentionPass::Forward, AttentionPass::BackwardData, AttentionPass::BackwardWeights];

    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            AttentionPass::Forward => "attention forward",
            AttentionPass::BackwardData => "attention backward data",
            AttentionPass::BackwardWeights => "attention backward weights",
        }
    }
}
