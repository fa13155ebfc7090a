//! The classic multi-head attention layer (mcDNN, chapter 6), lowered to operation graphs.
//!
//! An [`AttentionDescriptor`] describes a layer, [`SequenceDataDescriptor`]s the memory layout of
//! its vectors, and [`AttentionWeights`] that of its weights. [`AttentionDescriptor::layer`] lowers
//! the layer to graphs for a given extent, [`AttentionDescriptor::lowered`] each pass of training;
//! [`AttentionCall`] holds the data of a call on host values. [`sdpa_from_json`] reads a single
//! scaled dot-product attention.

mod call;
mod data;
mod descriptor;
mod draws;
mod extent;
mod gradients;
mod heads;
mod json;
mod layer;
mod lowering;
mod pass;
mod passes;
mod random;
mod role;
mod sdpa;
mod stages;
mod weights;

pub use call::AttentionCall;
pub use data::{
    SequenceAxis, SequenceDataDescriptor, SequenceDataSettings, SequenceDataView, SequenceExtents,
};
pub use descriptor::{AttentionDescriptor, AttentionSettings, AttentionSizes, QueryMap};
pub use extent::AttentionExtent;
pub use layer::{AttentionBuffers, AttentionLayer, AttentionPlace, AttentionStage};
pub(crate) use layer::{DROPOUTS, WINDOW_STEPS};
pub use pass::AttentionPass;
pub use role::AttentionRole;
pub use sdpa::sdpa_from_json;
pub use weights::{AttentionWeightKind, AttentionWeightSlice, AttentionWeights};
