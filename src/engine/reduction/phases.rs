//! The phases of a graph: what is computed of elements, reduced to values of rows, and computed of
//! those, until the next reductions need the elements again.

use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::step::Step;
use crate::engine::reduction::variance;
use crate::graph::{CanonicalGraph, Op, Operation};

/// What happens between two rounds of reductions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Phase {
    /// Values of rows that elements need, from those that are known.
    pub(super) row: GraphProgram,
    /// What is computed of an element, from the elements of inputs, what earlier phases held and
    /// values of rows. The outputs are reduced, stored or held.
    pub(super) elements: GraphProgram,
    pub(super) steps: Vec<Step>,
    /// Reductions of columns, over all rows.
    pub(super) sums: Vec<Step>,
}

/// Where the elements of a row stay between phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Residence {
    /// In registers, with what is computed of them: none is computed twice.
    Registers,
    /// Those of inputs in shared memory: each phase computes what it needs of them.
    Shared,
    /// In memory, which each phase reads: a variance is reduced in the phase of its mean, so that
    /// elements are not read once more.
    Memory,
}

/// A graph in phases.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Phases {
    pub(super) phases: Vec<Phase>,
    /// Values of rows that are only stored.
    pub(super) last: GraphProgram,
    /// Values of rows that are stored.
    pub(super) row_outputs: Vec<usize>,
    /// What is computed from sums of columns, for one column.
    pub(super) columns: GraphProgram,
    /// Elements that later phases read from registers.
    pub(super) resident: Vec<usize>,
}

/// What is known of every tensor of a graph.
struct Analysis<'a> {
    graph: CanonicalGraph<'a>,
    space: &'a Space,
    /// The phase that computes a tensor.
    phase: Vec<usize>,
    /// Whether the elements of some row need a tensor.
    needed: Vec<bool>,
    residence: Residence,
}

impl Phases {
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space, residence: Residence) -> Phases {
        let analysis = Analysis::of(graph, space, residence);
        let count = 1 + analysis.phase.iter().max().expect("a graph has tensors");
        let held = (0..graph.tensors.len()).filter(|at| analysis.crosses(*at)).collect();
        let phases = (0..count).map(|number| analysis.phase(number)).collect::<Vec<_>>();
        let row_outputs: Vec<usize> = graph
            .operations
            .iter()
            .map(|operation| operation.outputs[0] as usize)
            .filter(|at| !graph.tensors[*at].is_virtual && space.is_row(*at))
            .collect();
        let last: Vec<usize> =
            row_outputs.iter().copied().filter(|at| !analysis.needed[*at]).collect();
        let operations = analysis.pointwise(|at| space.is_row(at) && !analysis.needed[at]);
        let last = GraphProgram::of(graph, operations, &last);
        let is_empty = |phase: &Phase| {
            phase.elements.outputs.is_empty() && phase.steps.is_empty() && phase.sums.is_empty()
        };
        let columns: Vec<usize> = (0..graph.tensors.len())
            .filter(|at| space.follows_sums(*at) && !graph.tensors[*at].is_virtual)
            .collect();
        let operations = analysis.pointwise(|at| space.follows_sums(at));
        let columns = GraphProgram::of(graph, operations, &columns);
        let phases = phases.into_iter().filter(|phase| !is_empty(phase)).collect();
        Phases { phases, last, row_outputs, columns, resident: held }
    }

    /// The tensors in memory that a program reads.
    pub(super) fn reads(program: &GraphProgram) -> impl Iterator<Item = usize> + '_ {
        program.sources.iter().enumerate().filter_map(|(input, source)| match source {
            Source::Tensor(at) if program.reads(input) => Some(*at),
            _ => None,
        })
    }
}

impl Phase {
    /// The reductions, and those that need a result of them first: squared distances from a mean.
    pub(super) fn in_turn(&self) -> [Vec<&Step>; 2] {
        let (variances, steps) = self.steps.iter().partition(|step| step.around.is_some());
        [steps, variances]
    }

    /// Whether elements of the tensor are read.
    pub(super) fn reads(&self, at: usize) -> bool {
        let mut operands = self.steps.iter().chain(&self.sums).map(|step| step.operand);
        Phases::reads(&self.elements).any(|read| read == at) || operands.any(|read| read == at)
    }
}

impl<'a> Analysis<'a> {
    fn of(graph: CanonicalGraph<'a>, space: &'a Space, residence: Residence) -> Analysis<'a> {
        let mut phase = vec![0; graph.tensors.len()];
        let variance = |operation: &Operation| match residence {
            Residence::Registers | Residence::Shared => None,
            Residence::Memory => variance::of(graph, space, operation),
        };
        for operation in graph.operations {
            let output = operation.outputs[0] as usize;
            if space.follows_sums(output) {
                continue;
            }
            let after = usize::from(matches!(operation.op, Op::Reduction(_)));
            let last = operation.inputs.iter().map(|uid| phase[*uid as usize]).max();
            let last = variance(operation).map(|step| phase[step.operand]).or(last);
            phase[output] = last.unwrap_or(0) + after;
        }
        let mut needed = vec![false; graph.tensors.len()];
        for operation in graph.operations.iter().rev() {
            let output = operation.outputs[0] as usize;
            let is_element = !space.is_row(output) && !space.follows_sums(output);
            if operation.is_elementwise() && (is_element || needed[output]) {
                operation.inputs.iter().for_each(|uid| needed[*uid as usize] = true);
            }
        }
        Analysis { graph, space, phase, needed, residence }
    }

    /// The elementwise operations whose results are so, in their order.
    fn pointwise(&self, chosen: impl Fn(usize) -> bool) -> impl Iterator<Item = &'a Operation> {
        let chosen = move |operation: &&Operation| {
            operation.is_elementwise() && chosen(operation.outputs[0] as usize)
        };
        self.graph.operations.iter().filter(chosen)
    }

    /// Whether an operation computes elements of the tensor.
    fn is_element(&self, at: usize) -> bool {
        let Analysis { graph, space, .. } = self;
        graph.is_written(at) && !space.is_row(at) && !space.follows_sums(at)
    }

    /// Whether an operation computes elements of the tensor that registers keep for a later phase.
    fn crosses(&self, at: usize) -> bool {
        let later = |operation: &&Operation| {
            self.residence == Residence::Registers
                && operation.is_elementwise()
                && operation.inputs.contains(&(at as i64))
                && self.phase[operation.outputs[0] as usize] > self.phase[at]
        };
        self.is_element(at) && self.graph.operations.iter().any(|operation| later(&operation))
    }

    fn phase(&self, number: usize) -> Phase {
        let Analysis { graph, space, residence, .. } = *self;
        let steps = graph.operations.iter().filter_map(|operation| self.step(operation, number));
        let (sums, steps): (Vec<Step>, Vec<Step>) =
            steps.partition(|step| space.follows_sums(step.result));
        let element = |at: usize| self.is_element(at);
        let is_output = |at: usize| {
            let reduced = steps.iter().chain(&sums).any(|step| step.operand == at);
            let stored = !graph.tensors[at].is_virtual && self.phase[at] == number;
            reduced || stored || (self.phase[at] == number && self.crosses(at))
        };
        let outputs = self.pointwise(|at| element(at) && is_output(at));
        let outputs: Vec<usize> = outputs.map(|operation| operation.outputs[0] as usize).collect();
        let computed = |at: usize| {
            let here = match residence {
                Residence::Registers => self.phase[at] == number,
                Residence::Shared | Residence::Memory => self.phase[at] <= number,
            };
            here && element(at)
        };
        let elements = GraphProgram::of(graph, self.pointwise(computed), &outputs);
        let here = |at: usize| space.is_row(at) && self.needed[at] && self.phase[at] == number;
        let values = self.pointwise(here).map(|operation| operation.outputs[0] as usize);
        let values: Vec<usize> = values.filter(|at| self.leaves(*at)).collect();
        let row = GraphProgram::of(graph, self.pointwise(here), &values);
        Phase { row, elements, steps, sums }
    }

    /// Whether a value of a row is read elsewhere than by the values computed next to it.
    fn leaves(&self, at: usize) -> bool {
        let outside = |operation: &Operation| {
            let output = operation.outputs[0] as usize;
            let beside = self.space.is_row(output)
                && self.needed[output]
                && self.phase[output] == self.phase[at];
            operation.inputs.contains(&(at as i64)) && !beside
        };
        !self.graph.tensors[at].is_virtual || self.graph.operations.iter().any(outside)
    }

    fn step(&self, operation: &Operation, number: usize) -> Option<Step> {
        let Op::Reduction(op) = operation.op else { return None };
        let (operand, result) = (operation.inputs[0] as usize, operation.outputs[0] as usize);
        let variance = || variance::of(self.graph, self.space, operation);
        let step = (self.residence == Residence::Memory).then(variance).flatten();
        let step = step.unwrap_or(Step { op, operand, result, around: None });
        (self.phase[step.operand] == number).then_some(step)
    }
}
