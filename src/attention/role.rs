//! What the tensors of a layer are.

/// What a tensor of a layer is: its caller's (`mcdnnMultiHeadAttnForward`, section 6.2.1.35), or
/// one between its graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionRole {
    /// The vectors that attend.
    Queries,
    /// What is added to the outputs.
    Residuals,
    /// The vectors that scores are taken with.
    Keys,
    /// The vectors that are summed.
    Values,
    /// The weight buffer.
    Weights,
    /// Steps of each sequence of queries: `devSeqLengthsQO`.
    QueryLengths,
    /// Steps of each sequence of keys: `devSeqLengthsKV`.
    KeyLengths,
    /// The steps that are computed.
    Steps,
    /// The first key of the window of each of them: `loWinIdx`.
    LowWindow,
    /// The key behind the window of each of them: `hiWinIdx`.
    HighWindow,
    /// The outputs.
    Output,
    /// Queries of all heads.
    ProjectedQueries,
    /// Keys of all heads, or of one that all share.
    ProjectedKeys,
    /// Values of all heads, or of one that all share.
    ProjectedValues,
    /// The first key of each query.
    KeyBegin,
    /// The key behind the last one of each query.
    KeyEnd,
    /// Results of all heads.
    Attended,
    /// The logarithm of the sum of each query's exponentials, in training.
    LogSumExp,
}

impl AttentionRole {
    /// All of them.
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

    /// The name in texts and of tensors.
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

    /// Whether one graph of a layer writes it for others, or for a backward pass.
    pub fn is_intermediate(self) -> bool {
        self >= AttentionRole::ProjectedQueries
    }
}
