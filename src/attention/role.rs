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
    /// Indices of the time steps computed.
    Steps,
    /// First key of the window of each time step: `loWinIdx`.
    LowWindow,
    /// End of the window of each time step, exclusive: `hiWinIdx`.
    HighWindow,
    /// Output vectors.
    Output,
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
}

impl AttentionRole {
    /// All roles.
    pub const ALL: [AttentionRole; 18] = [
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
        AttentionRole::ProjectedQueries,
        AttentionRole::ProjectedKeys,
        AttentionRole::ProjectedValues,
        AttentionRole::KeyBegin,
        AttentionRole::KeyEnd,
        AttentionRole::Attended,
        AttentionRole::LogSumExp,
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
            AttentionRole::ProjectedQueries => "projected_queries",
            AttentionRole::ProjectedKeys => "projected_keys",
            AttentionRole::ProjectedValues => "projected_values",
            AttentionRole::KeyBegin => "key_begin",
            AttentionRole::KeyEnd => "key_end",
            AttentionRole::Attended => "attended",
            AttentionRole::LogSumExp => "log_sum_exp",
        }
    }

    /// Whether the tensor is an intermediate, possibly kept for a backward pass.
    pub fn is_intermediate(self) -> bool {
        self >= AttentionRole::ProjectedQueries
    }
}
