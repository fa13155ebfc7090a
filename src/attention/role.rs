//! Roles of a layer's tensors.

/// Role of a tensor: passed by the caller (`mcdnnMultiHeadAttnForward`, section 6.2.1.35), or an
/// intermediate between the layer's graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionRole {
    /// Query vectors.
    Queries,
    /// Residuals, added to the outputs.
    Residuals,
    /// Key vectors.
    Keys,
    /// Value vectors.
    Values,
    /// The weight buffer.
    Weights,
    /// Number of time steps of each query sequence: `devSeqLengthsQO`.
    QueryLengths,
    /// Number of time steps of each key sequence: `devSeqLengthsKV`.
    KeyLengths,
    /// The index of the time step that is computed, of a call for one.
    Steps,
    /// First key of the window of each time step: `loWinIdx`.
    LowWindow,
    /// End of the window of each time step, exclusive: `hiWinIdx`.
    HighWindow,
    /// Output vectors.
    Output,
    /// Gradient of the outputs.
    OutputGradient,
    /// Gradient of the queries.
    QueryGradients,
    /// Gradient of the keys.
    KeyGradients,
    /// Gradient of the values.
    ValueGradients,
    /// Gradient of the weight buffer, in its layout.
    WeightGradients,
    /// Seeds of the dropouts, of the softmax and of the outputs.
    DropoutSeeds,
    /// Positions at which the dropouts of the next call in training draw.
    DropoutPositions,
    /// Number of the dropouts, by which positions move on.
    DropoutCount,
    /// Projected queries of all heads.
    ProjectedQueries,
    /// Projected keys of all KV heads.
    ProjectedKeys,
    /// Projected values of all KV heads.
    ProjectedValues,
    /// First key of each query.
    KeyBegin,
    /// End of the keys of each query, exclusive.
    KeyEnd,
    /// Attention results of all heads.
    Attended,
    /// Log-sum-exp of the scores of each query, in training.
    LogSumExp,
    /// Seeds of the dropouts of a call in training.
    KeptSeeds,
    /// Positions at which the dropouts of a call in training draw.
    KeptPositions,
    /// Gradient of what the dropout of the outputs is applied to, 0 beyond the lengths.
    MaskedOutputGradient,
    /// Gradient of the projected queries of all heads.
    ProjectedQueryGradients,
    /// Gradient of the projected keys of all KV heads.
    ProjectedKeyGradients,
    /// Gradient of the projected values of all KV heads.
    ProjectedValueGradients,
    /// Gradient of the attention results of all heads.
    AttendedGradient,
}

impl AttentionRole {
    /// All roles.
    pub const ALL: [AttentionRole; 33] = [
        AttentionRole::Queries,
        AttentionRole::Residuals,
        AttentionRole::Keys,
        AttentionRole::Values,
        AttentionRole::Weights,
        AttentionRole::QueryLengths,
        AttentionRole::KeyLengths,
        AttentionRole::Steps,
        AttentionRole::LowWindow,
        AttentionRole::HighWindow,
        AttentionRole::Output,
        AttentionRole::OutputGradient,
        AttentionRole::QueryGradients,
        AttentionRole::KeyGradients,
        AttentionRole::ValueGradients,
        AttentionRole::WeightGradients,
        AttentionRole::DropoutSeeds,
        AttentionRole::DropoutPositions,
        AttentionRole::DropoutCount,
        AttentionRole::ProjectedQueries,
        AttentionRole::ProjectedKeys,
        AttentionRole::ProjectedValues,
        AttentionRole::KeyBegin,
        AttentionRole::KeyEnd,
        AttentionRole::Attended,
        AttentionRole::LogSumExp,
        AttentionRole::KeptSeeds,
        AttentionRole::KeptPositions,
        AttentionRole::MaskedOutputGradient,
        AttentionRole::ProjectedQueryGradients,
        AttentionRole::ProjectedKeyGradients,
        AttentionRole::ProjectedValueGradients,
        AttentionRole::AttendedGradient,
    ];

    /// Name in messages and of tensors.
    pub fn name(self) -> &'static str {
        match self {
            AttentionRole::Queries => "queries",
            AttentionRole::Residuals => "residuals",
            AttentionRole::Keys => "keys",
            AttentionRole::Values => "values",
            AttentionRole::Weights => "weights",
            AttentionRole::QueryLengths => "query_lengths",
            AttentionRole::KeyLengths => "key_lengths",
            AttentionRole::Steps => "steps",
            AttentionRole::LowWindow => "low_window",
            AttentionRole::HighWindow => "high_window",
            AttentionRole::Output => "output",
            AttentionRole::OutputGradient => "output_gradient",
            AttentionRole::QueryGradients => "query_gradients",
            AttentionRole::KeyGradients => "key_gradients",
            AttentionRole::ValueGradients => "value_gradients",
            AttentionRole::WeightGradients => "weight_gradients",
            AttentionRole::DropoutSeeds => "dropout_seeds",
            AttentionRole::DropoutPositions => "dropout_positions",
            AttentionRole::DropoutCount => "dropout_count",
            AttentionRole::ProjectedQueries => "projected_queries",
            AttentionRole::ProjectedKeys => "projected_keys",
            AttentionRole::ProjectedValues => "projected_values",
            AttentionRole::KeyBegin => "key_begin",
            AttentionRole::KeyEnd => "key_end",
            AttentionRole::Attended => "attended",
            AttentionRole::LogSumExp => "log_sum_exp",
            AttentionRole::KeptSeeds => "kept_seeds",
            AttentionRole::KeptPositions => "kept_positions",
            AttentionRole::MaskedOutputGradient => "masked_output_gradient",
            AttentionRole::ProjectedQueryGradients => "projected_query_gradients",
            AttentionRole::ProjectedKeyGradients => "projected_key_gradients",
            AttentionRole::ProjectedValueGradients => "projected_value_gradients",
            AttentionRole::AttendedGradient => "attended_gradient",
        }
    }

    /// Whether the tensor is an intermediate, possibly kept for a backward pass.
    pub fn is_intermediate(self) -> bool {
        self >= AttentionRole::ProjectedQueries
    }

    /// Whether the tensor is an intermediate of one pass of training, which no other pass reads.
    pub fn is_temporary(self) -> bool {
        self == AttentionRole::AttendedGradient
    }

    /// Whether only calls in training have the tensor.
    pub fn is_of_training(self) -> bool {
        let of_caller = AttentionRole::OutputGradient..=AttentionRole::DropoutCount;
        of_caller.contains(&self) || self >= AttentionRole::LogSumExp
    }
}
