//! A graph of one CTC loss: extents, and tensors by slot.

use crate::dtype::DType;
use crate::engine::access::{span_elements, stored};
use crate::engine::alone::alone;
use crate::engine::signature::refuse_older;
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, CtcLoss, Op, Operation, Slots};
use crate::tensor::TensorDesc;

/// Minimum compute capability of the template.
const CAPABILITY_MIN: u16 = 75;

/// Numbers of a sequence's lattice, and of the labels of all, are 32-bit.
const COUNT_MAX: i64 = i32::MAX as i64;

/// The one CTC loss of a graph.
#[derive(Debug, Clone)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a CtcLoss,
    pub(super) steps: i64,
    pub(super) sequences: i64,
    pub(super) classes: i64,
    operation: &'a Operation,
    slots: Slots,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` if the graph is not exactly one CTC loss of tensors in memory, or exceeds a
    /// limit of the kernel.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        let refuse = |rule: String| Err(Error::not_supported(rule));
        refuse_older(capability, CAPABILITY_MIN)?;
        let own = |op: &'a Op| match op {
            Op::CtcLoss(op) => Some(op),
            _ => None,
        };
        let (operation, op) = alone(graph, own, "CTC loss")?;
        let inputs = operation.inputs.iter().map(|at| &graph.tensors[*at as usize]);
        for TensorDesc { name, by_value, .. } in inputs {
            if *by_value {
                return refuse(format!("`{name}` is passed by value"));
            }
        }
        let dims = &graph.tensors[operation.inputs[0] as usize].dims;
        let [steps, sequences, classes] = [dims[0], dims[1], dims[2]];
        let slots = operation.op.slots();
        let problem = Problem { graph, op, steps, sequences, classes, operation, slots };
        let limits = [
            ("numbers of a sequence's lattice", steps.saturating_mul(problem.row())),
            ("classes", classes),
            ("labels", sequences.saturating_mul(op.label_length_max.max(1))),
        ];
        match limits.into_iter().find(|(_, count)| *count > COUNT_MAX) {
            Some((what, count)) => refuse(format!("{count} {what}, more than {COUNT_MAX}")),
            None => Ok(problem),
        }
    }

    /// Position of the tensor in a slot.
    pub(super) fn at(&self, slot: &str) -> Option<usize> {
        let Operation { inputs, outputs, .. } = self.operation;
        let input = self.slots.inputs.iter().zip(inputs);
        let mut all = input.chain(self.slots.outputs.iter().zip(outputs));
        all.find(|(name, _)| **name == slot).map(|(_, at)| *at as usize)
    }

    /// The tensor in a slot that every loss has.
    pub(super) fn tensor(&self, slot: &str) -> &'a TensorDesc {
        &self.graph.tensors[self.at(slot).expect("every loss has it")]
    }

    /// All slots, in the order of the kernel's parameters.
    pub(super) fn slots(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.slots.inputs.iter().chain(&self.slots.outputs).copied()
    }

    /// Pairs of states: of a blank and the label behind it, the last of a blank alone.
    pub(super) fn pairs(&self) -> i64 {
        self.op.label_length_max + 1
    }

    /// Directions in which states are followed.
    pub(super) fn directions(&self) -> i64 {
        if self.op.gradient { 2 } else { 1 }
    }

    /// Numbers that are kept of a step.
    pub(super) fn row(&self) -> i64 {
        let of_softmax = if self.op.input.is_softmax() { 2 } else { 0 };
        let kept = if self.op.gradient { of_softmax + 4 * self.pairs() } else { 0 };
        self.pairs() + kept
    }

    /// Whether the offset of an element needs 64 bits.
    pub(super) fn is_wide(&self, lattice_in_workspace: bool) -> bool {
        let spans = stored(self.graph).map(|(_, tensor)| span_elements(tensor));
        let lattices = self.steps * self.row();
        let lattices = if lattice_in_workspace { lattices } else { 0 };
        let most = spans.max().unwrap_or(0).max(lattices.saturating_mul(self.sequences));
        most > COUNT_MAX
    }

    pub(super) fn is_double(&self) -> bool {
        self.op.math.dtype() == DType::F64
    }

    pub(super) fn real_bytes(&self) -> i64 {
        self.op.math.dtype().bytes() as i64
    }

    /// Bytes of the lattices of all sequences.
    pub(super) fn lattice_bytes(&self) -> i64 {
        (self.steps * self.row()).saturating_mul(self.real_bytes())
    }
}
