//! The classic multi-head attention layer (mcDNN, chapter 6), lowered to operation graphs.
//!
//! An [`AttentionDescriptor`] says what a layer is, [`SequenceDataDescriptor`]s how its vectors
//! stand in memory, [`AttentionWeights`] where its weights do. [`AttentionDescriptor::layer`] makes
//! graphs of it for vectors of some number.

mod data;
mod descriptor;
mod layer;
mod stages;
mod weights;

pub use data::{SequenceAxis, SequenceDataDescriptor, SequenceDataSettings, SequenceDataView};
pub use descriptor::{AttentionDescriptor, AttentionSettings, QueryMap};
pub use layer::{
    AttentionBuffers, AttentionExtent, AttentionLayer, AttentionPlace, AttentionRole,
    AttentionStage,
};
pub use weights::{AttentionWeightKind, AttentionWeightSlice, AttentionWeights};
