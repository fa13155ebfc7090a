//! Enumerations of multi-head attention, and what of Kiln's they are.

use kiln::attention::{AttentionWeightKind as Kind, SequenceAxis};

use crate::declare::enumeration;
use crate::status::Outcome;

enumeration! {
    /// A dimension of sequence data.
    mcdnnSeqDataAxis_t SeqDataAxis "MCDNN_SEQDATA_" {
        TIME_DIM = 0, BATCH_DIM = 1, BEAM_DIM = 2, VECT_DIM = 3,
    }
}

enumeration! {
    /// Weights or biases of a layer.
    mcdnnMultiHeadAttnWeightKind_t AttentionWeightKind "MCDNN_MH_ATTN_" {
        Q_WEIGHTS = 0, K_WEIGHTS = 1, V_WEIGHTS = 2, O_WEIGHTS = 3, Q_BIASES = 4, K_BIASES = 5,
        V_BIASES = 6, O_BIASES = 7,
    }
}

/// `MCDNN_ATTN_QUERYMAP_ONE_TO_ONE`, of `attnMode`.
pub const ONE_TO_ONE: u32 = 1;
/// `MCDNN_ATTN_ENABLE_PROJ_BIASES`, of `attnMode`.
pub const PROJ_BIASES: u32 = 2;

impl SeqDataAxis {
    /// The axis.
    pub fn axis(self) -> Outcome<SequenceAxis> {
        let known = self.known("axes")?;
        Ok(SequenceAxis::ALL[known.0 as usize])
    }

    /// That of an axis.
    pub fn of(axis: SequenceAxis) -> SeqDataAxis {
        SeqDataAxis(axis as i32)
    }
}

impl AttentionWeightKind {
    /// The kind.
    pub fn kind(self) -> Outcome<Kind> {
        let known = self.known("wKind")?;
        Ok(Kind::ALL[known.0 as usize])
    }
}
