//! The lengths of sequences in a part of their steps, as a graph.

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::OperationGraph;
use crate::tensor::TensorDesc;

/// How many steps each sequence has in some of all steps: `min(max(length, first) - first, steps)`.
#[derive(Debug)]
pub(crate) struct PartLengths;

impl PartLengths {
    /// Uids of lengths in all steps and in the part, and of the numbers of the part's first step
    /// and of its steps.
    pub(crate) const READ: i64 = 1;
    pub(crate) const WRITTEN: i64 = 2;
    pub(crate) const FIRST: i64 = 3;
    pub(crate) const STEPS: i64 = 4;

    /// The graph for so many sequences, in which numbers are given by value.
    pub(crate) fn graph(batch: i64) -> Result<OperationGraph> {
        let mut graph = OperationGraph::builder();
        let integers = |mode| Pointwise::new(mode).math(Math::I32);
        let all = |uid, name| TensorDesc::packed(uid, name, &[batch], DType::I32);
        let one = |uid, name| TensorDesc {
            by_value: true,
            ..TensorDesc::packed(uid, name, &[1], DType::I32)
        };
        let read = graph.tensor(all(PartLengths::READ, "lengths"));
        let written = graph.tensor(all(PartLengths::WRITTEN, "part_lengths"));
        let first = graph.tensor(one(PartLengths::FIRST, "first"));
        let steps = graph.tensor(one(PartLengths::STEPS, "steps"));
        let reached = graph.pointwise(integers(Mode::Max), &[read, first])?;
        let left = graph.pointwise(integers(Mode::Sub), &[reached, first])?;
        graph.pointwise_into(integers(Mode::Min), &[left, steps], written);
        graph.build()
    }
}
