//! The classic multi-head attention layer (mcDNN, chapter 6), lowered to operation graphs.
//!
//! An [`AttentionDescriptor`] says what a layer is, [`SequenceDataDescriptor`]s how its vectors
//! stand in memory, [`AttentionWeights`] where its weights do. [`AttentionDescriptor::layer`] makes
//! graphs of it for vectors of some number, [`AttentionCall`] runs them on values from the host.
//! [`sdpa_from_json`] reads the one operation in the middle by itself.

mod call;
mod data;
mod descriptor;
mod extent;
mod json;
mod layer;
mod role;
mod sdpa;
mod stages;
mod weights;

pub use call::{AttentionCall, Memory};
pub use data::{
    SequenceAxis, SequenceDataDescriptor, SequenceDataSettings, SequenceDataView, SequenceExtents,
};
pub use descriptor::{AttentionDescriptor, AttentionSettings, AttentionSizes, QueryMap};
pub use extent::AttentionExtent;
pub use layer::{AttentionBuffers, AttentionLayer, AttentionPlace, AttentionStage};
pub use role::AttentionRole;
pub use sdpa::sdpa_from_json;
pub use weights::{AttentionWeightKind, AttentionWeightSlice, AttentionWeights};
