//! A graph of pointwise operations as one program over the elements of its domain.

use crate::engine::pointwise::domain::Domain;
use crate::expr::{Mode, Program, Value};
use crate::graph::CanonicalGraph;

/// What an input of the program is fed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// An element of the tensor with this canonical uid.
    Tensor(usize),
    /// The coordinate along a collapsed dimension; `None` is always 0.
    Coordinate(Option<usize>),
}

/// The program, where its inputs come from, and which tensor each output is stored to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GraphProgram {
    pub(super) program: Program,
    pub(super) sources: Vec<Source>,
    pub(super) outputs: Vec<usize>,
}

impl GraphProgram {
    /// Lowers a valid graph; results of real and virtual tensors are rounded alike.
    pub(super) fn of(graph: CanonicalGraph<'_>, domain: &Domain) -> GraphProgram {
        let mut program = Program::new();
        let mut sources = Vec::new();
        let mut values: Vec<Option<Value>> = vec![None; graph.tensors.len()];
        let mut outputs = Vec::new();
        for operation in graph.operations {
            let op = operation.as_pointwise().expect("the engine supports the graph");
            let (inputs, output) = (&operation.inputs, operation.outputs[0] as usize);
            let mut operands = Vec::new();
            for uid in inputs.iter().map(|uid| *uid as usize) {
                let tensor = &graph.tensors[uid];
                if op.mode == Mode::GenIndex {
                    let axis = op.axis as usize;
                    let extent = tensor.dims[axis];
                    let dimension = domain.axes[axis].filter(|_| extent != 1);
                    sources.push(Source::Coordinate(dimension));
                    operands.push(program.index(format!("axis{axis}"), axis, extent));
                    continue;
                }
                let value = *values[uid].get_or_insert_with(|| {
                    sources.push(Source::Tensor(uid));
                    program.input(tensor.name.clone(), tensor.dtype)
                });
                operands.push(value);
            }
            let result = &graph.tensors[output];
            let name = match result.name.as_str() {
                "" => op.mode.name(),
                name => name,
            };
            let value = program
                .push(name, *op, &operands, result.dtype)
                .expect("operations of a valid graph are valid");
            values[output] = Some(value);
            if !result.is_virtual {
                outputs.push(output);
                program.output(value);
            }
        }
        GraphProgram { program: program.simplified(), sources, outputs }
    }

    /// Whether an input is still read after simplification.
    pub(super) fn reads(&self, input: usize) -> bool {
        let value = Value::Input(input);
        self.program.outputs().contains(&value)
            || self.program.instructions().iter().any(|line| line.operands.contains(&value))
    }
}
