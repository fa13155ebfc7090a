//! Recurrent networks: cells, stacks of layers, and their lowering to operation graphs.
//!
//! An [`Rnn`] describes a network; [`Rnn::network`] lowers it to an operation graph for a batch
//! size and a number of vectors. [`WeightSpace`] is the layout of the weights; [`RnnDescriptor`]
//! and [`RnnDataDescriptor`] are mcDNN's descriptors (chapter 6) with all their checks.
//!
//! `mcdnnAdvInferVersionCheck` (section 6.2.1.1) has no counterpart: there is only one library and
//! one version.

mod binding;
mod cells;
mod chunk;
mod chunk_data;
mod data;
mod descriptor;
mod json;
mod lower;
mod mode;
mod network;
mod parameters;
mod part_lengths;
mod quantise;
mod random;
mod role;
mod training;
mod weights;

pub use cells::{CellClip, CellKind, CellOptions, ClipPoint};
pub(crate) use chunk_data::DataChunks;
pub use data::{RnnDataDescriptor, RnnDataSettings};
pub use descriptor::{MathType, PaddedIo, RnnAlgo, RnnDescriptor, RnnSettings};
pub(crate) use json::problem_from_json;
pub(crate) use lower::ALIGNMENT;
pub use lower::{Extent, Network, Place};
pub use mode::{BiasMode, InputMode, Join, Stacking};
pub use network::{Rnn, RnnCell};
pub use parameters::{HostTensor, OneDnnWeights};
pub(crate) use part_lengths::PartLengths;
pub use quantise::WeightRow;
pub use role::{Optional, Role};
pub use training::Training;
pub use weights::{Block, WeightKind, WeightParams, WeightSlice, WeightSpace};
