//! The workspace between the kernels of `rnn_step`.

/// Buffers of the workspace, in order: vectors of every batch row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    /// h.
    Hidden,
    /// The states other than h.
    States,
    /// Results of the GEMMs with recurrent weights; with transposed weights, of the last one.
    Gates,
    /// Results of the projection.
    Projected,
    /// Results of a stage that are the operand of a GEMM.
    Operand,
    /// Results of stages that later stages read.
    Carried,
    /// What results of GEMMs with a quantised h are too large by, in each direction.
    Compensation,
}

impl Buffer {
    pub(super) const ALL: [Buffer; 7] = [
        Buffer::Hidden,
        Buffer::States,
        Buffer::Gates,
        Buffer::Projected,
        Buffer::Operand,
        Buffer::Carried,
        Buffer::Compensation,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Buffer::Hidden => "hidden",
            Buffer::States => "states",
            Buffer::Gates => "gates",
            Buffer::Projected => "projected",
            Buffer::Operand => "operand",
            Buffer::Carried => "carried",
            Buffer::Compensation => "compensation",
        }
    }
}
