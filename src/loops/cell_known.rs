//! Cells that libraries have, whoever wrote them: what differs in names and in the order of a sum's
//! operands alone is the same kernel.

use std::collections::HashMap;

use crate::expr::{Math, Mode, Value};
use crate::graph::{Cell, CellValue};
use crate::rnn::{CellKind, CellOptions};

/// The predefined cell that a cell is, or itself.
pub(super) fn known(cell: Cell) -> Cell {
    let mut formulas = Formulas::default();
    let own = formulas.meaning(&cell);
    let mut kinds = CellKind::ALL.into_iter().flat_map(|kind| {
        let options = [Math::F32, Math::F64].into_iter().flat_map(|math| {
            [false, true].map(|drop_nan| CellOptions { math, drop_nan, ..CellOptions::default() })
        });
        options.map(move |options| kind.cell(&options)).collect::<Vec<Cell>>()
    });
    kinds.find(|kind| formulas.meaning(kind) == own).unwrap_or(cell)
}

/// Numbers of formulas, whose parts are numbers.
#[derive(Default)]
struct Formulas(HashMap<String, usize>);

/// Numbers that are known already of a cell's values.
type Known = HashMap<(usize, Value), usize>;

impl Formulas {
    /// The next value of each state as a formula of what a step reads, with the numbers of gates
    /// and parameters.
    fn meaning(&mut self, cell: &Cell) -> Option<(usize, usize, Vec<usize>)> {
        let mut known = Known::new();
        let mut next = Vec::new();
        for state in 0..cell.states.len() {
            next.push(self.formula(cell, cell.next(state)?, &mut known));
        }
        Some((cell.gates.len(), cell.parameters.len(), next))
    }

    fn formula(&mut self, cell: &Cell, value: CellValue, known: &mut Known) -> usize {
        let text = match value {
            CellValue::Result { stage, at } => {
                let value = cell.stages[stage].program.outputs()[at];
                return self.value(cell, stage, value, known);
            }
            CellValue::Recurrent(gate) => {
                let stage = cell.made_in(value).unwrap_or(0);
                let gemm = cell.stages[stage].gemm.as_ref().expect("a GEMM computes the gate");
                let operand = match stage {
                    0 => Some(CellValue::State(0)),
                    _ => cell.value(stage, &gemm.operands[0], false),
                };
                let operand = operand.map(|value| self.formula(cell, value, known));
                format!("gate {} of {operand:?}", gate - cell.first_gate(stage))
            }
            other => format!("{other:?}"),
        };
        self.number(text)
    }

    fn value(&mut self, cell: &Cell, stage: usize, value: Value, known: &mut Known) -> usize {
        if let Some(number) = known.get(&(stage, value)) {
            return *number;
        }
        let program = &cell.stages[stage].program;
        let number = match value {
            Value::Input(at) => {
                let name = &program.inputs()[at].name;
                let read = cell.value(stage, name, true).expect("cells read what is defined");
                self.formula(cell, read, known)
            }
            Value::Result(at) => {
                let line = &program.instructions()[at];
                let of = |value: &Value| self.value(cell, stage, *value, known);
                let mut operands: Vec<usize> = line.operands.iter().map(of).collect();
                let alike = line.op.alpha1 == line.op.alpha2;
                if matches!(line.op.mode, Mode::Add | Mode::Mul) && alike {
                    operands.sort_unstable();
                }
                self.number(format!("{:?} {} {operands:?}", line.op.normalised(), line.dtype))
            }
        };
        known.insert((stage, value), number);
        number
    }

    fn number(&mut self, text: String) -> usize {
        let next = self.0.len();
        *self.0.entry(text).or_insert(next)
    }
}
