//! Pointwise operations of a graph as one program over the elements of a domain.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::expr::{Draw, Mode, Program, Seed, Value};
use crate::graph::{CanonicalGraph, Op, Operation, Rng};

/// What an input of the program is fed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// An element of the tensor with this canonical uid.
    Tensor(usize),
    /// The coordinate along an axis, for GEN_INDEX; `None` is always 0.
    Coordinate(Option<usize>),
    /// The row-major position in these random numbers, of which no element is stored: the offset of
    /// an element, as their strides are packed.
    Position(usize),
}

/// The program, where its inputs come from, and which tensor each output is an element of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GraphProgram {
    pub(super) program: Program,
    pub(super) sources: Vec<Source>,
    pub(super) outputs: Vec<usize>,
}

impl GraphProgram {
    /// The program of a graph that is pointwise throughout; its outputs are what is stored.
    pub(super) fn whole(graph: CanonicalGraph<'_>) -> GraphProgram {
        let stored = |operation: &&Operation| {
            let output = operation.outputs[0] as usize;
            !graph.tensors[output].is_virtual
        };
        let outputs = graph.operations.iter().filter(stored).map(|op| op.outputs[0] as usize);
        GraphProgram::of(graph, graph.operations.iter(), &outputs.collect::<Vec<_>>())
    }

    /// The program of these pointwise operations, in their order in the graph, for the values of
    /// these tensors. What the operations read and none of them writes is an input, stored or not.
    /// Results of real and virtual tensors are rounded alike.
    pub(super) fn of<'a>(
        graph: CanonicalGraph<'_>,
        operations: impl Iterator<Item = &'a Operation>,
        outputs: &[usize],
    ) -> GraphProgram {
        let mut builder = Builder {
            graph,
            program: Program::new(),
            sources: Vec::new(),
            values: vec![None; graph.tensors.len()],
        };
        for operation in operations {
            builder.push(operation);
        }
        for output in outputs {
            let value = builder.tensor(*output);
            builder.program.output(value);
        }
        let Builder { program, sources, .. } = builder;
        GraphProgram { program: program.simplified(), sources, outputs: outputs.to_vec() }
    }

    /// The random numbers that are read, as the tensors that have their strides.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.sources.iter().enumerate().filter_map(|(input, source)| match source {
            Source::Position(at) if self.reads(input) => Some(*at),
            _ => None,
        })
    }

    /// Whether an input is still read after simplification.
    pub(super) fn reads(&self, input: usize) -> bool {
        self.program.reads(Value::Input(input))
    }
}

/// The elementwise operations that these tensors are computed by, as far back as another kind
/// of operation.
pub(super) fn ancestors(graph: CanonicalGraph<'_>, tensors: &[usize]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<i64> = tensors.iter().map(|at| *at as i64).collect();
    while let Some(uid) = pending.pop() {
        let writes = |operation: &Operation| operation.outputs.contains(&uid);
        let Some(index) = graph.operations.iter().position(writes) else { continue };
        let operation = &graph.operations[index];
        if operation.is_elementwise() && found.insert(index) {
            pending.extend(&operation.inputs);
        }
    }
    found
}

/// Checks that what is stored or reduced has the dimensions of an operation's result, and follows
/// it: none is computed on the way to its operands.
///
/// # Errors
/// `NotSupported` naming the tensor, and the operation by its name.
pub(super) fn check_results(
    graph: CanonicalGraph<'_>,
    operands: &[BTreeSet<usize>],
    results: &[usize],
    (c, operation): (usize, &str),
) -> Result<()> {
    for at in results {
        let (tensor, product) = (&graph.tensors[*at], &graph.tensors[c]);
        let (name, dims) = (&tensor.name, &tensor.dims);
        let writes = |index: &usize| graph.operations[*index].outputs.contains(&tensor.uid);
        if operands.iter().flatten().any(writes) {
            return Err(Error::not_supported(format!(
                "`{name}` is a result and an operand of the {operation} is computed from it"
            )));
        }
        if *dims != product.dims {
            let expected = &product.dims;
            return Err(Error::not_supported(format!(
                "`{name}` is {dims:?}, the {operation} is {expected:?}"
            )));
        }
    }
    Ok(())
}

struct Builder<'a> {
    graph: CanonicalGraph<'a>,
    program: Program,
    sources: Vec<Source>,
    /// The value of each tensor that has been read or written; `None` for the others.
    values: Vec<Option<Value>>,
}

impl Builder<'_> {
    fn push(&mut self, operation: &Operation) {
        if let Op::Rng(op) = &operation.op {
            return self.draw(op, operation);
        }
        let op = operation.as_pointwise().expect("the engine supports the operation");
        let output = operation.outputs[0] as usize;
        let mut operands = Vec::new();
        for uid in operation.inputs.iter().map(|uid| *uid as usize) {
            if op.mode == Mode::GenIndex {
                let axis = op.axis as usize;
                let extent = self.graph.tensors[uid].dims[axis];
                self.sources.push(Source::Coordinate((extent != 1).then_some(axis)));
                operands.push(self.program.index(format!("axis{axis}"), axis, extent));
            } else {
                operands.push(self.tensor(uid));
            }
        }
        let result = &self.graph.tensors[output];
        let name = match result.name.as_str() {
            "" => op.mode.name(),
            name => name,
        };
        let value = self
            .program
            .push(name, *op, &operands, result.dtype)
            .expect("operations of a valid graph are valid");
        self.values[output] = Some(value);
    }

    fn draw(&mut self, op: &Rng, operation: &Operation) {
        let mut inputs = operation.inputs.iter().map(|uid| self.input(*uid as usize));
        let seed = match op.seed {
            Some(seed) => Seed::Value(seed),
            None => Seed::Input(inputs.next().expect("the operation was checked")),
        };
        let offset = inputs.next().expect("the operation was checked");
        let subsequence = inputs.next();
        let at = operation.outputs[0] as usize;
        let result = &self.graph.tensors[at];
        let draw =
            Draw { distribution: op.distribution, seed, offset, subsequence, dtype: result.dtype };
        self.sources.push(Source::Position(at));
        let name = if result.name.is_empty() { "random" } else { &result.name };
        self.values[at] = Some(self.program.random(name, draw));
    }

    /// The input that is fed from a tensor that no operation writes.
    fn input(&mut self, at: usize) -> usize {
        match self.tensor(at) {
            Value::Input(input) => input,
            Value::Result(_) => unreachable!("seeds and offsets are inputs"),
        }
    }

    /// The value of a tensor's element; an input where no operation has written it.
    fn tensor(&mut self, at: usize) -> Value {
        let tensor = &self.graph.tensors[at];
        *self.values[at].get_or_insert_with(|| {
            self.sources.push(Source::Tensor(at));
            self.program.input(tensor.name.clone(), tensor.dtype)
        })
    }
}
