//! What bugs are planted in.

use kiln::OperationGraph;

use crate::harness::Values;

/// A kernel to plant bugs in: a graph with values, an engine and the knobs that choose its form.
pub struct Form {
    pub name: &'static str,
    pub graph: OperationGraph,
    pub inputs: Values,
    pub engine: &'static str,
    pub knobs: Knobs,
    /// The device that runs it.
    pub device: &'static str,
}

impl Form {
    /// The form on another device.
    pub fn on(self, device: &'static str) -> Form {
        Form { device, ..self }
    }
}

/// A graph with values of its inputs.
pub type Task = (OperationGraph, Values);

/// Values of knobs; a heuristic chooses the others.
pub type Knobs = &'static [(&'static str, i64)];

pub fn form(name: &'static str, engine: &'static str, task: Task, knobs: Knobs) -> Form {
    let (graph, inputs) = task;
    Form { name, graph, inputs, engine, knobs, device: "sim" }
}
