//! The classic layer interfaces: recurrent networks and multi-head attention.

pub(in crate::plan) mod attention_forward;
pub(in crate::plan) mod rnn;
pub(in crate::plan) mod rnn_forward;
pub(in crate::plan) mod rnn_pack;
