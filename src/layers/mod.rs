//! Recurrent networks and multi-head attention on a device, with the calls of mcDNN's chapter 6,
//! networks with loops, and oneDNN's primitives.
//!
//! A layer plans the graphs that it is lowered to, once per extent, and executes the plans on the
//! caller's buffers. [`PersistentRnn`] is built by [`Kiln::build_rnn_dynamic`],
//! [`MultiHeadAttention`] by [`Kiln::multi_head_attention`], [`LoopsPlan`] by
//! [`Kiln::build_loops`], [`OneDnnPrimitive`] by [`Kiln::onednn_primitive`].
//!
//! [`Kiln::build_loops`]: crate::Kiln::build_loops
//! [`Kiln::build_rnn_dynamic`]: crate::Kiln::build_rnn_dynamic
//! [`Kiln::onednn_primitive`]: crate::Kiln::onednn_primitive
//! [`Kiln::multi_head_attention`]: crate::Kiln::multi_head_attention

mod attention;
mod attention_backward;
mod attention_forward;
mod attention_windows;
mod bounded;
mod dropout;
mod loops;
mod loops_planned;
mod loops_run;
mod loops_text;
mod loops_values;
mod octaves;
mod onednn;
mod reserves;
mod rnn;
mod rnn_backward;
mod rnn_checkpoints;
mod rnn_chunking;
mod rnn_forward;
mod rnn_lengths;
mod rnn_pack;
mod rnn_planning;
mod rnn_plans;
mod rnn_sizes;
mod rnn_wavefront;
mod weight_sum;

pub use attention::MultiHeadAttention;
pub use attention_backward::{AttentionBackwardData, AttentionBackwardWeights};
pub use attention_forward::AttentionForward;
pub use dropout::DropoutStates;
pub use loops::LoopsPlan;
pub use onednn::OneDnnPrimitive;
pub use rnn::PersistentRnn;
pub use rnn_backward::{RnnBackwardData, RnnBackwardWeights};
pub use rnn_checkpoints::CheckpointedRnn;
pub use rnn_forward::{ForwardMode, RnnForward};
pub use rnn_pack::RnnPack;
pub use rnn_sizes::TempSpace;
pub use weight_sum::WeightGradientMode;
