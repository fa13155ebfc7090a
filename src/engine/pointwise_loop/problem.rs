//! A graph of one pointwise loop: its elements, and its tensors by what they are.

use crate::dtype::DType;
use crate::engine::access::{PARAMETERS_MAX, span_elements, stored};
use crate::engine::alone::alone;
use crate::engine::signature::{distinct, refuse_i64, refuse_older};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation, PointwiseLoop};
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
    operation: &'a Operation,
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
        let mut problem = Problem { graph, op, operation, dims: Vec::new(), elements: 0 };
        let operands = operation.inputs[usize::from(op.frame.count)..].iter();
        problem.dims = op.domain(operands.map(|at| &graph.tensors[*at as usize]));
        problem.elements =
            problem.dims.iter().fold(1, |all: i64, extent| all.saturating_mul(*extent));
        let passed = problem.passed().len();
        if passed > PARAMETERS_MAX {
            return refuse(format!("{passed} tensors exceed the {PARAMETERS_MAX} of a kernel"));
        }
        match problem.elements {
            0 => refuse(format!("its elements are {:?}: there are none", problem.dims)),
            _ => Ok(problem),
        }
    }

    /// Position of the count.
    pub(super) fn count(&self) -> Option<usize> {
        self.op.frame.count.then(|| self.operation.inputs[0] as usize)
    }

    /// Position of the number of trips that were made.
    pub(super) fn trips_made(&self) -> Option<usize> {
        let last = self.operation.outputs.last().filter(|_| self.op.frame.condition);
        last.map(|at| *at as usize)
    }

    /// The program's operands in order, then the results.
    pub(super) fn tensors(&self) -> Vec<(Role, usize)> {
        let op = self.op;
        let iterated = (0..op.frame.iterated.len()).map(Role::Iterated);
        let inputs = (0..op.frame.states).map(Role::Initial).chain(iterated);
        let inputs = inputs.chain(std::iter::repeat_n(Role::Captured, op.frame.captured));
        let last = (0..op.frame.states).filter(|state| op.frame.last[*state]).map(Role::Last);
        let results = last.chain((0..op.frame.stacked.len()).map(Role::Stacked));
        let operands = &self.operation.inputs[usize::from(op.frame.count)..];
        let inputs = inputs.zip(operands);
        inputs
            .chain(results.zip(&self.operation.outputs))
            .map(|(of, at)| (of, *at as usize))
            .collect()
    }

    /// The tensors that the kernel takes, each once.
    pub(super) fn passed(&self) -> Vec<usize> {
        let tensors = self.tensors().into_iter().map(|(_, at)| at);
        distinct(self.count().into_iter().chain(tensors).chain(self.trips_made()))
    }

    /// Trips that tensors have elements for.
    pub(super) fn trips(&self) -> Option<i64> {
        let tensors = self.tensors();
        let led = tensors.iter().filter(|(role, _)| role.leading() == 1);
        led.map(|(_, at)| self.graph.tensors[*at].dims[0]).max()
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
