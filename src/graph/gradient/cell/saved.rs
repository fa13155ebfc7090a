//! What the derivative of a cell reads of the cell.

use std::collections::BTreeSet;

use crate::expr::Value;
use crate::graph::cell::{Cell, CellValue, RecurrentGemm};
use crate::graph::gradient::cell::differentiation::{Differentiation, Root};
use crate::graph::gradient::min_cut::Network;

impl Differentiation<'_> {
    /// The values of the cell that the derivative reads; values that one of its stages needs of an
    /// earlier one become results of that.
    pub(super) fn needed(&mut self) -> BTreeSet<Value> {
        let mut needed = BTreeSet::new();
        for stage in (0..self.steps.len()).rev() {
            let own = self.roots.iter().filter(|root| root.stage == stage);
            let mut open: Vec<Value> = own.map(|root| self.source(root.value)).collect();
            let mut seen = BTreeSet::new();
            while let Some(value) = open.pop() {
                if !seen.insert(value) {
                    continue;
                }
                match value {
                    Value::Input(at) if self.inputs.contains_key(&at) => {
                        needed.insert(value);
                    }
                    Value::Input(_) => {}
                    Value::Result(line) if self.is_forward(line) => {
                        needed.insert(value);
                    }
                    Value::Result(line) if self.step_of(line) < stage => {
                        let of = self.step_of(line);
                        let known = |root: &Root| root.value == value && root.stage == of;
                        if !self.roots.iter().any(known) {
                            let name = self.joint.name(value).to_owned();
                            let name = self.fresh(&name);
                            self.roots.push(Root { value, name, stage: of });
                        }
                    }
                    Value::Result(line) => {
                        let operands = &self.joint.instructions()[line].operands;
                        open.extend(operands.iter().map(|operand| self.source(*operand)));
                    }
                }
            }
        }
        needed
    }

    /// The operands of the GEMMs, or what is projected to one.
    pub(super) fn operands(&mut self) -> Vec<Value> {
        let cell = self.cell;
        if cell.projected {
            let value = self.value(cell.next(0).expect("the cell is valid"));
            return vec![self.source(value)];
        }
        let operand = |(stage, gemm): (usize, &RecurrentGemm)| match stage {
            0 => CellValue::State(0),
            stage => {
                let at = cell.output(stage - 1, &gemm.operands[0]).expect("the cell is valid");
                CellValue::Result { stage: stage - 1, at }
            }
        };
        cell.gemms().map(|gemm| self.value(operand(gemm))).collect()
    }

    /// The fewest values of the cell from which all that is needed can be computed: operands are
    /// saved anyway, parameters and row inputs are in memory.
    pub(super) fn cut(&self, needed: &BTreeSet<Value>, operands: &[Value]) -> Vec<Value> {
        let inputs: Vec<Value> = self.inputs.keys().map(|at| Value::Input(*at)).collect();
        let lines = (0..self.steps[0].first).map(Value::Result);
        let nodes: Vec<Value> = inputs.into_iter().chain(lines).collect();
        let node = |value: &Value| nodes.iter().position(|of| of == value).expect("it is a node");
        let is_free = |value: &Value| match value {
            Value::Input(at) => {
                matches!(self.inputs[at], CellValue::Parameter(_) | CellValue::RowInput(_))
            }
            Value::Result(_) => false,
        };
        let cost = |value: &Value| u64::from(!is_free(value) && !operands.contains(value));
        let costs: Vec<u64> = nodes.iter().map(cost).collect();
        // From what is needed to what it is computed from: the cut next to the former.
        let mut network = Network::of(&costs);
        for (at, value) in nodes.iter().enumerate() {
            match value {
                Value::Input(_) => network.leads_to_sink(at),
                Value::Result(line) => {
                    let from = &self.joint.instructions()[*line].operands;
                    from.iter().for_each(|of| network.leads(at, node(of)));
                }
            }
        }
        needed.iter().for_each(|value| network.leads_from_source(node(value)));
        let cut = network.cut().into_iter().map(|at| nodes[at]);
        let read = cut.filter(|value| !is_free(value) && !operands.contains(value));
        operands.iter().copied().chain(read).collect()
    }

    /// The cell with what is saved among its results, and the names of that.
    pub(super) fn forward(&self, saved: &[Value]) -> (Cell, Vec<String>) {
        let mut cell = self.cell.clone();
        let mut names = Vec::new();
        for value in saved {
            let line = match value {
                Value::Input(at) => {
                    names.push(cell.name_of(self.inputs[at]));
                    continue;
                }
                Value::Result(line) => *line,
            };
            let after = self.lines.iter().position(|first| *first > line);
            let stage = after.expect("the line is one of the cell") - 1;
            let own = Value::Result(line - self.lines[stage]);
            let mut name = self.joint.name(*value).to_owned();
            let position = cell.stages[stage].program.outputs().iter().position(|of| *of == own);
            let known = position.map(|at| CellValue::Result { stage, at });
            if known.is_none() || cell.final_value(&name) != known {
                while cell.final_value(&name).is_some() {
                    name.push('_');
                }
                let program = &mut cell.stages[stage].program;
                program.rename(line - self.lines[stage], &name);
                if known.is_none() {
                    program.output(own);
                }
            }
            names.push(name);
        }
        (cell, names)
    }
}
