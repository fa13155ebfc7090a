//! A graph of one pointwise loop: its elements, and its tensors by what they are.

use crate::dtype::DType;
use crate::engine::access::{PARAMETERS_MAX, span_elements, stored};
use crate::engine::alone::alone;
use crate::engine::loop_tensors::LoopTensors;
use crate::engine::signature::{refuse_i64, refuse_older};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, PointwiseLoop};
use crate::tensor::TensorDesc;

/// Minimum compute capability of the template.
const CAPABILITY_MIN: u16 = 75;

/// What a tensor of the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Initial(usize),
    Iterated(usize),
    Captured,
    /// The last value of this state.
    Last(usize),
    /// This further output of the program.
    Stacked(usize),
}

/// The one loop of a graph.
#[derive(Debug, Clone)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a PointwiseLoop,
    pub(super) tensors: LoopTensors<'a>,
    /// Dimensions of the elements.
    pub(super) dims: Vec<i64>,
    pub(super) elements: i64,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` if the graph is not exactly one loop, its tensors have no elements, or a type
    /// cannot be computed with.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        let refuse = |rule: String| Err(Error::not_supported(rule));
        refuse_older(capability, CAPABILITY_MIN)?;
        let own = |op: &'a Op| match op {
            Op::PointwiseLoop(op) => Some(op),
            _ => None,
        };
        let (operation, op) = alone(graph, own, "pointwise loop")?;
        refuse_i64(graph)?;
        let tensors = LoopTensors { frame: &op.frame, operation };
        let passed = tensors.passed().len();
        if passed > PARAMETERS_MAX {
            return refuse(format!("{passed} tensors exceed the {PARAMETERS_MAX} of a kernel"));
        }
        let dims = op.domain(tensors.operands().into_iter().map(|at| &graph.tensors[at]));
        match dims.iter().fold(1, |all: i64, extent| all.saturating_mul(*extent)) {
            0 => refuse(format!("its elements are {dims:?}: there are none")),
            elements => Ok(Problem { graph, op, tensors, dims, elements }),
        }
    }

    /// The program's operands in order, then the results.
    pub(super) fn roles(&self) -> Vec<(Role, usize)> {
        let LoopTensors { frame, .. } = self.tensors;
        let iterated = (0..frame.iterated.len()).map(Role::Iterated);
        let inputs = (0..frame.states).map(Role::Initial).chain(iterated);
        let inputs = inputs.chain(std::iter::repeat_n(Role::Captured, frame.captured));
        let last = self.tensors.last().into_iter().map(|(state, at)| (Role::Last(state), at));
        let stacked = (0..).map(Role::Stacked).zip(self.tensors.stacked());
        inputs.zip(self.tensors.operands()).chain(last).chain(stacked).collect()
    }

    /// Whether the offset of an element needs 64 bits.
    pub(super) fn is_wide(&self) -> bool {
        let spans = stored(self.graph).map(|(_, tensor): (_, &TensorDesc)| span_elements(tensor));
        spans.max().unwrap_or(0).max(self.elements) > i64::from(i32::MAX) - 1024
    }

    pub(super) fn is_double(&self) -> bool {
        self.op.program.inputs().iter().any(|input| input.dtype() == DType::F64)
    }
}

impl Role {
    /// Dimensions of the tensor in front of those of an element.
    pub(super) fn leading(self) -> usize {
        usize::from(matches!(self, Role::Iterated(_) | Role::Stacked(_)))
    }
}
