//! A graph around one convolution, or one of its gradients, as extents, strides and programs:
//! `epilogue(convolution(prologue(first), prologue(second)))`.

use std::collections::BTreeSet;

use crate::engine::convolution::role::Role;
use crate::engine::items::{Fusion, Item, check_parameters, offset_max, only, passed};
use crate::engine::program::{GraphProgram, ancestors, check_results};
use crate::engine::signature::{refuse_i64, refuse_older};
use crate::error::Result;
use crate::graph::{
    CanonicalGraph, Convolution, ConvolutionPass, ConvolutionShape, Op, Operation, Window,
};

/// Minimum compute capability of the templates.
const CAPABILITY_MIN: u16 = 75;

/// The graph.
#[derive(Debug, Clone)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) op: &'a Convolution,
    pub(super) window: Window,
    pub(super) shape: ConvolutionShape,
    pub(super) operands: [Fusion; 2],
    pub(super) epilogue: Fusion,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `NotSupported` with the rule that the graph breaks.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        refuse_older(capability, CAPABILITY_MIN)?;
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
        let fusion = |tensor, role: Role, operations: &BTreeSet<usize>, outputs: &[usize]| {
            let operations = operations.iter().map(|index| &graph.operations[*index]);
            Fusion {
                tensor,
                name: role.name(),
                scope: (tensor != result).then_some(role.type_name()),
                program: GraphProgram::of(graph, operations, outputs),
                axes: role.axes(op, &shape, &graph.tensors[tensor]),
                coordinates: role.coordinates(op.pass, shape.image.len()),
                element: "const Point& p, const Meeting& m, index_t r".to_owned(),
            }
        };
        let problem = Problem {
            graph,
            op,
            window: op.window.clone(),
            operands: [
                fusion(operands[0], first, &prologues[0], &operands[..1]),
                fusion(operands[1], second, &prologues[1], &operands[1..]),
            ],
            epilogue: fusion(result, own, &ancestors(graph, &stored), &stored),
            shape,
        };
        problem.operands.iter().try_for_each(|fusion| fusion.check(graph))?;
        problem.epilogue.check(graph)?;
        check_parameters(&problem.passed())?;
        Ok(problem)
    }

    /// The same along two spatial dimensions: what has one is a row.
    pub(super) fn planar(mut self) -> Problem<'a> {
        if self.shape.image.len() != 1 {
            return self;
        }
        let ConvolutionShape { image, filter, response, .. } = &mut self.shape;
        [image, filter, response].into_iter().for_each(|extents| extents.insert(0, 1));
        let Window { filter_strides, dilations, pre_paddings, post_paddings } = &mut self.window;
        [filter_strides, dilations].into_iter().for_each(|steps| steps.insert(0, 1));
        [pre_paddings, post_paddings].into_iter().for_each(|padding| padding.insert(0, 0));
        self.operands.iter_mut().for_each(Fusion::add_row);
        self.epilogue.add_row();
        self
    }

    /// The tensors that are passed: each once, inputs first.
    pub(super) fn passed(&self) -> Vec<usize> {
        passed(&self.operands, &self.epilogue)
    }

    /// What a thread's items are: groups where each has one channel of the result.
    pub(super) fn item(&self) -> Item {
        if self.epilogue.axes.inner == 1 { Item::Group } else { Item::Inner }
    }

    /// The largest coordinate on the way to an element.
    pub(super) fn reach(&self) -> i64 {
        let Problem { window, shape, .. } = self;
        let reach = |axis: usize| {
            let padding = window.pre_paddings[axis].saturating_add(window.post_paddings[axis]);
            let taps = window.dilations[axis].saturating_mul(shape.filter[axis]);
            let moved = window.filter_strides[axis].saturating_mul(shape.response[axis]);
            let padded = shape.image[axis].saturating_add(padding);
            padded.saturating_add(taps).saturating_add(moved)
        };
        (0..shape.image.len()).map(reach).max().unwrap_or(0)
    }

    /// The largest element offset of any tensor, or position in random numbers.
    pub(super) fn offset_max(&self) -> i64 {
        let fusions = self.operands.iter().chain([&self.epilogue]);
        let drawn = fusions.flat_map(|fusion| fusion.program.positions());
        offset_max(self.graph, &self.passed().into_iter().chain(drawn).collect::<Vec<_>>())
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

/// The one convolution of the graph, all else of which is elementwise.
fn convolution(graph: CanonicalGraph<'_>) -> Result<(&Operation, &Convolution)> {
    only(graph, "convolution", |op| match op {
        Op::Convolution(op) => Some(op),
        _ => None,
    })
}
