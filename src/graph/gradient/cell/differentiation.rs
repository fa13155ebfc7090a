//! The reverse pass over the stages of a cell.

use std::collections::{BTreeMap, BTreeSet};

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise, Program, Real, Value};
use crate::graph::cell::{Cell, CellValue, LayerNormStatistics, RecurrentGemm};
use crate::graph::gradient::cell::cell_vjp::{CellVjp, Given};

/// A value that a stage of the derivative hands on.
#[derive(Debug, Clone)]
pub(super) struct Root {
    pub(super) value: Value,
    pub(super) name: String,
    /// The stage that has it among its results.
    pub(super) stage: usize,
}

/// A stage of the derivative.
#[derive(Debug, Clone, Default)]
pub(super) struct Step {
    pub(super) gemm: Option<RecurrentGemm>,
    pub(super) statistics: Vec<LayerNormStatistics>,
    /// The first of its lines.
    pub(super) first: usize,
}

/// A cell, its lines and gradients.
pub(super) struct Differentiation<'a> {
    pub(super) cell: &'a Cell,
    pub(super) dtype: DType,
    /// All programs of the cell, and behind them those of the derivative.
    pub(super) joint: Program,
    /// What inputs of `joint` are of the cell; the others are the derivative's.
    pub(super) inputs: BTreeMap<usize, CellValue>,
    /// First line of each stage of the cell, and the end of the last.
    pub(super) lines: Vec<usize>,
    pub(super) gradients: BTreeMap<Value, Value>,
    pub(super) steps: Vec<Step>,
    pub(super) roots: Vec<Root>,
    pub(super) names: BTreeSet<String>,
    /// The gradient of `y`.
    pub(super) dy: Value,
    /// Names of the gradients of the states, and of the output's from the first GEMM.
    pub(super) states: Vec<String>,
    pub(super) gate: String,
}

impl<'a> Differentiation<'a> {
    /// The programs of the cell, one behind the other.
    pub(super) fn of(cell: &'a Cell, dtype: DType) -> Differentiation<'a> {
        let mut own = Differentiation {
            cell,
            dtype,
            joint: Program::new(),
            inputs: BTreeMap::new(),
            lines: Vec::new(),
            gradients: BTreeMap::new(),
            steps: vec![Step::default()],
            roots: Vec::new(),
            names: cell.parameters.iter().chain(&cell.row_inputs).cloned().collect(),
            states: Vec::new(),
            gate: String::new(),
            dy: Value::Input(0),
        };
        own.dy = own.given("x_dy".to_owned());
        own.names.insert("x_dy".to_owned());
        own.states = cell.states.iter().map(|state| own.fresh(&format!("d_{state}"))).collect();
        own.gate = own.gate(&cell.states[0]);
        for (at, stage) in cell.stages.iter().enumerate() {
            let first = own.joint.instructions().len();
            own.lines.push(first);
            let inputs: Vec<Value> = stage
                .program
                .inputs()
                .iter()
                .map(|input| cell.value(at, &input.name, true).expect("the cell is valid"))
                .map(|value| own.value(value))
                .collect();
            let moved = |value: &Value| match value {
                Value::Input(at) => inputs[*at],
                Value::Result(line) => Value::Result(first + line),
            };
            for line in stage.program.instructions() {
                let operands: Vec<Value> = line.operands.iter().map(moved).collect();
                let pushed = own.joint.push(&line.name, line.op, &operands, line.dtype);
                pushed.expect("the line is one of the cell");
            }
        }
        own.lines.push(own.joint.instructions().len());
        own.steps[0].first = own.joint.instructions().len();
        own
    }

    /// A value of the cell in the joint program.
    pub(super) fn value(&mut self, of: CellValue) -> Value {
        if let CellValue::Result { stage, at } = of {
            let program = &self.cell.stages[stage].program;
            return match program.outputs()[at] {
                Value::Result(line) => Value::Result(self.lines[stage] + line),
                Value::Input(input) => {
                    let name = &program.inputs()[input].name;
                    let own = self.cell.value(stage, name, true).expect("the cell is valid");
                    self.value(own)
                }
            };
        }
        if let Some((at, _)) = self.inputs.iter().find(|(_, known)| **known == of) {
            return Value::Input(*at);
        }
        let value = self.joint.input(self.cell.name_of(of), self.dtype);
        self.inputs.insert(self.joint.inputs().len() - 1, of);
        value
    }

    /// An input of the derivative.
    pub(super) fn given(&mut self, name: String) -> Value {
        self.joint.input(name, self.dtype)
    }

    pub(super) fn fresh(&mut self, name: &str) -> String {
        let mut name = name.to_owned();
        while !self.names.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    /// A name for a gate, whose recurrent contribution has another.
    fn gate(&mut self, name: &str) -> String {
        self.fresh(&format!("r_{name}"))["r_".len()..].to_owned()
    }

    pub(super) fn push(&mut self, name: &str, op: Pointwise, operands: &[Value]) -> Result<Value> {
        let math = Math::of(self.dtype);
        self.joint.push(name, op.math(math), operands, self.dtype)
    }

    pub(super) fn add(&mut self, to: Value, gradient: Value) -> Result<()> {
        let sum = match self.gradients.get(&to).copied() {
            None => gradient,
            Some(before) => self.push("sum", Pointwise::new(Mode::Add), &[before, gradient])?,
        };
        self.gradients.insert(to, sum);
        Ok(())
    }

    /// Hands on a value as a result of the last stage so far, and returns its name.
    pub(super) fn root(&mut self, name: &str, value: Value) -> String {
        let name = self.fresh(name);
        let stage = self.steps.len() - 1;
        self.roots.push(Root { value, name: name.clone(), stage });
        name
    }

    /// A gradient, or 0.
    pub(super) fn gradient(&mut self, of: Value) -> Result<Value> {
        match self.gradients.get(&of) {
            Some(own) => Ok(*own),
            // Nothing is less than itself, not even NaN.
            None => self.push("none", Pointwise::new(Mode::CmpLt), &[self.dy, self.dy]),
        }
    }

    pub(super) fn run(mut self, given: Given) -> Result<CellVjp> {
        let cell = self.cell;
        let first = cell.stages[0].gemm.as_ref();
        let next = |at: usize| cell.next(at).expect("the cell is valid");
        let mut gates = vec!["dy".to_owned()];
        for at in 0..cell.states.len() {
            let value = self.value(next(at));
            let own = self.given(self.states[at].clone());
            self.add(value, own)?;
            if at == 0 {
                self.add(value, self.dy)?;
            } else if given.history {
                let seen = self.given(format!("x_{}", self.states[at]));
                gates.push(self.states[at].clone());
                self.add(value, seen)?;
            }
        }
        if first.is_some() {
            let value = self.value(next(0));
            let own = self.given(format!("r_{}", self.gate));
            self.add(value, own)?;
        }
        for stage in (0..cell.stages.len()).rev() {
            let lines = self.lines[stage]..self.lines[stage + 1];
            self.joint.reverse_lines(lines, &mut self.gradients)?;
            self.layer_norms(stage)?;
            if stage > 0 && cell.stages[stage].gemm.is_some() {
                self.gemm(stage)?;
            }
        }
        self.finish(gates, given)
    }

    /// The gradients of the recurrent contributions of a stage.
    pub(super) fn recurrent(&mut self, stage: usize) -> Result<Vec<Value>> {
        let gates = self.cell.stages[stage].gemm.as_ref().map_or(0, |gemm| gemm.gates.len());
        let first = self.cell.first_gate(stage);
        let rows = first..first + gates;
        rows.map(|row| {
            let value = self.value(CellValue::Recurrent(row));
            self.gradient(value)
        })
        .collect()
    }

    /// The gradient of the operand of a later stage's GEMM.
    fn gemm(&mut self, stage: usize) -> Result<()> {
        let gemm = self.cell.stages[stage].gemm.as_ref().expect("the stage has a GEMM");
        let gradients = self.recurrent(stage)?;
        let named = gemm.gates.iter().zip(gradients);
        let operands =
            named.map(|(gate, value)| self.root(&format!("d_r_{gate}"), value)).collect();
        let gate = self.gate(&gemm.operands[0]);
        let result = self.given(format!("r_{gate}"));
        let gemm = RecurrentGemm { operands, gates: vec![gate], transposed: true };
        self.steps.push(Step {
            gemm: Some(gemm),
            first: self.joint.instructions().len(),
            ..Step::default()
        });
        let source = self.cell.stages[stage].gemm.as_ref().map(|gemm| &gemm.operands[0]);
        let output = source.and_then(|name| self.cell.output(stage - 1, name));
        let at = output.expect("the cell is valid");
        let operand = self.value(CellValue::Result { stage: stage - 1, at });
        self.add(operand, result)
    }

    /// The gradients of the values that layer norms of a stage are of. Of `n` vectors, with the
    /// sums over all units of the gradients of mean and inverse deviation, each value has
    /// `sum_mean / count - inv^3 (value - mean) sum_inv / count`.
    fn layer_norms(&mut self, stage: usize) -> Result<()> {
        let statistics = self.cell.stages[stage].statistics.clone();
        if statistics.is_empty() {
            return Ok(());
        }
        let epsilon = Real::new(1.0);
        let mut sums = Vec::new();
        for (at, of) in statistics.iter().enumerate() {
            for value in [CellValue::Mean { stage, at }, CellValue::InverseDeviation { stage, at }]
            {
                let value = self.value(value);
                let gradient = self.gradient(value)?;
                let name = self.root(&format!("d_{}", of.name), gradient);
                let sum = self.fresh(&format!("sum_{name}"));
                sums.push(LayerNormStatistics { name: sum, of: vec![name], epsilon });
            }
        }
        let means: Vec<Value> = sums
            .iter()
            .map(|sum| format!("{}_mean", sum.name))
            .map(|name| self.given(name))
            .collect();
        self.steps.push(Step {
            statistics: sums,
            first: self.joint.instructions().len(),
            ..Step::default()
        });
        for (at, of) in statistics.iter().enumerate() {
            let [mean, inverse] =
                [CellValue::Mean { stage, at }, CellValue::InverseDeviation { stage, at }]
                    .map(|value| self.value(value));
            let [of_mean, of_inverse] = [means[2 * at], means[2 * at + 1]];
            let share = 1.0 / of.of.len() as f64;
            let mul = |factor: f64| Pointwise::new(Mode::Mul).alphas(factor, 1.0);
            let square = self.push("square", mul(1.0), &[inverse, inverse])?;
            let cubed = self.push("cubed", mul(-share), &[square, inverse])?;
            let slope = self.push("slope", mul(1.0), &[cubed, of_inverse])?;
            let scaled = Pointwise::new(Mode::Identity).alphas(share, 1.0);
            let shared = self.push("shared", scaled, &[of_mean])?;
            for name in &of.of {
                let value = self.cell.value(stage, name, false).expect("the cell is valid");
                let value = self.value(value);
                let apart = self.push("apart", Pointwise::new(Mode::Sub), &[value, mean])?;
                let bent = self.push("bent", mul(1.0), &[slope, apart])?;
                let whole = self.push("whole", Pointwise::new(Mode::Add), &[shared, bent])?;
                self.add(value, whole)?;
            }
        }
        Ok(())
    }

    /// Whether a line is one of the cell.
    pub(super) fn is_forward(&self, line: usize) -> bool {
        line < self.steps[0].first
    }

    /// The stage of the derivative that a line belongs to.
    pub(super) fn step_of(&self, line: usize) -> usize {
        self.steps.iter().rposition(|step| step.first <= line).unwrap_or(0)
    }
}
