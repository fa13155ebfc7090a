//! The values of a cell as members of one C++ struct, and its programs as functions of that.

use std::collections::BTreeSet;

use crate::engine::rnn::layer::Layer;
use crate::expr::{Emission, Identifiers};
use crate::graph::{Cell, CellValue};

/// Members that `rnn/cell.cuh` adds to the struct.
const FLAGS: [&str; 3] = ["active", "reset", "pending"];

/// Name of a struct of which programs are functions.
const CELL: &str = "cell";

/// Names of the members: the values that outlive a program.
#[derive(Debug, Clone)]
pub(super) struct CellStruct {
    names: Vec<(CellValue, String)>,
}

/// All stage programs as C++ text.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    /// Lines of each stage's program.
    pub(super) lines: Vec<Vec<String>>,
    /// Functions of `device/ops` that they call.
    pub(super) functions: BTreeSet<&'static str>,
}

impl CellStruct {
    pub(super) fn of(layer: &Layer<'_>) -> CellStruct {
        let cell = &*layer.op.cell;
        let mut identifiers = Identifiers::reserving(&FLAGS);
        let mut names = Vec::new();
        let mut add = |value: CellValue, name: &str| names.push((value, identifiers.fresh(name)));
        for (at, gate) in cell.gates.iter().enumerate() {
            add(CellValue::Gate(at), &format!("x_{gate}"));
        }
        for (at, name) in cell.row_inputs.iter().enumerate() {
            add(CellValue::RowInput(at), name);
        }
        for (at, name) in cell.unit_inputs.iter().enumerate() {
            add(CellValue::UnitInput(at), name);
        }
        let gates = cell.gemms().flat_map(|(_, gemm)| &gemm.gates);
        for (row, gate) in gates.enumerate() {
            add(CellValue::Recurrent(row), &format!("r_{gate}"));
        }
        for (at, name) in cell.parameters.iter().enumerate() {
            add(CellValue::Parameter(at), name);
        }
        for (at, name) in cell.states.iter().enumerate() {
            add(CellValue::State(at), &format!("state_{name}"));
        }
        for (stage, of) in cell.stages.iter().enumerate() {
            for (at, statistics) in of.statistics.iter().enumerate() {
                add(CellValue::Mean { stage, at }, &format!("{}_mean", statistics.name));
                add(CellValue::InverseDeviation { stage, at }, &format!("{}_inv", statistics.name));
            }
            for (at, value) in of.program.outputs().iter().enumerate() {
                add(CellValue::Result { stage, at }, of.program.name(*value));
            }
        }
        CellStruct { names }
    }

    pub(super) fn name(&self, value: CellValue) -> &str {
        let named = self.names.iter().find(|(known, _)| *known == value);
        named.map(|(_, name)| name.as_str()).expect("every value has a name")
    }

    /// All names, in struct order.
    pub(super) fn all(&self) -> Vec<&str> {
        self.names.iter().map(|(_, name)| name.as_str()).collect()
    }

    /// Values read from memory at every step.
    pub(super) fn step_inputs(&self) -> impl Iterator<Item = (CellValue, &str)> {
        let named = self.names.iter().map(|(value, name)| (*value, name.as_str()));
        named.filter(|(value, _)| {
            matches!(value, CellValue::Gate(_) | CellValue::RowInput(_) | CellValue::UnitInput(_))
        })
    }

    pub(super) fn parameters(&self) -> impl Iterator<Item = &str> {
        let named = self.names.iter();
        let named = named.filter(|(value, _)| matches!(value, CellValue::Parameter(_)));
        named.map(|(_, name)| name.as_str())
    }

    pub(super) fn recurrent(&self, row: usize) -> &str {
        self.name(CellValue::Recurrent(row))
    }

    pub(super) fn state(&self, at: usize) -> &str {
        self.name(CellValue::State(at))
    }

    pub(super) fn result(&self, stage: usize, at: usize) -> &str {
        self.name(CellValue::Result { stage, at })
    }

    /// The programs of all stages, which operate on members of a `cell`.
    pub(super) fn programs(&self, layer: &Layer<'_>) -> Programs {
        let cell: &Cell = &layer.op.cell;
        let activations = layer.op.activations(layer.dtype());
        let mut programs = Programs { lines: Vec::new(), functions: BTreeSet::new() };
        for (stage, of) in cell.stages.iter().enumerate() {
            let member = |value| format!("{CELL}.{}", self.name(value));
            let simple = of.program.simplified();
            let inputs: Vec<String> = simple
                .inputs()
                .iter()
                .map(|input| cell.value(stage, &input.name, true).expect("the cell is valid"))
                .map(member)
                .collect();
            let outputs: Vec<String> = (0..simple.outputs().len())
                .map(|at| member(CellValue::Result { stage, at }))
                .collect();
            let names = &mut Identifiers::reserving(&[CELL]);
            let emitted =
                simple.emit_with(&inputs, &outputs, names, Emission { activations, shared: &[] });
            programs.lines.push(emitted.lines);
            programs.functions.extend(emitted.functions);
        }
        programs
    }
}
