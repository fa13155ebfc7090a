//! A graph around one convolution, or one of its gradients, as extents, strides and programs:
//! `epilogue(convolution(prologue(first), prologue(second)))`.

use std::collections::BTreeSet;

use crate::engine::access::{PARAMETERS_MAX, span_elements};
use crate::engine::convolution::axes::{Axes, Role, Strides};
use crate::engine::program::{GraphProgram, Source, ancestors, check_results};
use crate::engine::signature::refuse_i64;
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Convolution, ConvolutionPass, ConvolutionShape, Op, Operation};

/// Minimum compute capability of the templates.
const CAPABILITY_MIN: u16 = 75;

/// Pointwise operations on one of the convolution's tensors, and how their tensors lie along its
/// dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fusion {
    /// The tensor of the convolution.
    pub(super) tensor: usize,
    pub(super) role: Role,
    /// Computes the operand; or, from the result, what is stored.
    pub(super) program: GraphProgram,
    pub(super) axes: Axes,
}

/// The graph.
#[derive(Debug, Clone)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a Convolution,
    pub(super) shape: ConvolutionShape,
    pub(super) operands: [Fusion; 2],
    pub(super) epilogue: Fusion,
}

impl Fusion {
    /// The tensors that the program reads, from memory or by value; not the convolution's result.
    pub(super) fn inputs(&self) -> impl Iterator<Item = usize> {
        let read = |(input, source): (usize, &Source)| match source {
            Source::Tensor(at) if self.program.reads(input) => Some(*at),
            _ => None,
        };
        self.program.sources.iter().enumerate().filter_map(read)
    }

    /// Whether the operand is a tensor in memory that nothing is computed from.
    pub(super) fn is_plain(&self) -> bool {
        self.program.program.instructions().is_empty()
    }
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` with the rule that the graph breaks.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        if capability < CAPABILITY_MIN {
            let text = format!("sm_{capability} is older than sm_{CAPABILITY_MIN}");
            return Err(Error::not_supported(text));
        }
        refuse_i64(graph)?;
        let (operation, op) = convolution(graph)?;
        let result = operation.outputs[0] as usize;
        let operands = [0, 1].map(|slot| operation.inputs[slot] as usize);
        let [image, filter, response] = op.pass.roles(operands, result);
        let shape = op.shape([image, filter, response].map(|at| &graph.tensors[at]))?;
        let [first, second, own] = roles_of(op);
        let prologues = operands.map(|at| ancestors(graph, &[at]));
        let stored: Vec<usize> = (0..graph.tensors.len())
            .filter(|at| graph.is_written(*at) && !graph.tensors[*at].is_virtual)
            .collect();
        check_results(graph, &prologues, &stored, (result, "convolution"))?;
        let fusion = |tensor, role, operations: &BTreeSet<usize>, outputs: &[usize]| {
            let operations = operations.iter().map(|index| &graph.operations[*index]);
            let program = GraphProgram::of(graph, operations, outputs);
            let axes = Axes::of(op, &shape, &graph.tensors[tensor], role);
            Fusion { tensor, role, program, axes }
        };
        let problem = Problem {
            graph,
            op,
            operands: [
                fusion(operands[0], first, &prologues[0], &operands[..1]),
                fusion(operands[1], second, &prologues[1], &operands[1..]),
            ],
            epilogue: fusion(result, own, &ancestors(graph, &stored), &stored),
            shape,
        };
        for fusion in problem.fusions() {
            let outputs = fusion.program.outputs.iter().copied();
            let tensors = fusion.inputs().chain(fusion.program.positions()).chain(outputs);
            for at in tensors {
                problem.strides(fusion, at)?;
            }
        }
        let needed = problem.passed().len();
        match needed <= PARAMETERS_MAX {
            true => Ok(problem),
            false => Err(Error::not_supported(format!(
                "{needed} parameters exceed the {PARAMETERS_MAX} of a kernel"
            ))),
        }
    }

    fn fusions(&self) -> impl Iterator<Item = &Fusion> {
        self.operands.iter().chain([&self.epilogue])
    }

    /// How a tensor lies along the dimensions of the convolution's.
    ///
    /// # Errors
    /// `NotSupported` where it does not broadcast to it.
    pub(super) fn strides(&self, fusion: &Fusion, at: usize) -> Result<Strides> {
        fusion.axes.strides(&self.graph.tensors[at])
    }

    /// What the epilogue reads besides the convolution.
    pub(super) fn followers(&self) -> impl Iterator<Item = usize> {
        self.epilogue.inputs().filter(|at| *at != self.epilogue.tensor)
    }

    /// The tensors that are passed: each once, inputs first.
    pub(super) fn passed(&self) -> Vec<usize> {
        let inputs = self.operands.iter().flat_map(Fusion::inputs).chain(self.followers());
        let mut all = Vec::new();
        for at in inputs.chain(self.epilogue.program.outputs.iter().copied()) {
            if !all.contains(&at) {
                all.push(at);
            }
        }
        all
    }

    /// The largest element offset of any tensor, or position in random numbers.
    pub(super) fn offset_max(&self) -> i64 {
        let stored = |at: &usize| !self.graph.tensors[*at].by_value;
        let span = |at: usize| span_elements(&self.graph.tensors[at]);
        let drawn = self.fusions().flat_map(|fusion| fusion.program.positions());
        self.passed().into_iter().filter(stored).chain(drawn).map(span).max().unwrap_or(0)
    }

    /// Multiply-adds, those in the padding too.
    pub(super) fn multiply_adds(&self) -> f64 {
        let ConvolutionShape { n, groups, c, k, filter, response, .. } = &self.shape;
        let extents = [*n, *groups, *c, *k].into_iter();
        let extents = extents.chain(filter.iter().chain(response).copied());
        extents.map(|extent| extent as f64).product()
    }
}

/// The roles of the two operands and the result.
fn roles_of(op: &Convolution) -> [Role; 3] {
    match op.pass {
        ConvolutionPass::Forward => [Role::Image, Role::Filter, Role::Response],
        ConvolutionPass::BackwardData => [Role::Filter, Role::Response, Role::Image],
        ConvolutionPass::BackwardFilter => [Role::Image, Role::Response, Role::Filter],
    }
}

/// The one convolution of the graph, all else of which is pointwise.
fn convolution(graph: CanonicalGraph<'_>) -> Result<(&Operation, &Convolution)> {
    let mut found = None;
    for operation in graph.operations {
        match &operation.op {
            Op::Pointwise(_) | Op::Rng(_) => {}
            Op::Convolution(op) if found.is_none() => found = Some((operation, op)),
            Op::Convolution(_) => {
                return Err(Error::not_supported("the graph has more than one convolution"));
            }
            op => {
                let text = format!("{op} is neither a convolution nor pointwise");
                return Err(Error::not_supported(text));
            }
        }
    }
    found.ok_or_else(|| Error::not_supported("the graph has no convolution"))
}
