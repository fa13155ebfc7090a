//! The derivative as a cell: what it writes, and its programs.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise, Program, Value};
use crate::graph::cell::{Cell, CellValue, RecurrentGemm, Stage};
use crate::graph::gradient::cell::cell_vjp::{CellVjp, Given, Written};
use crate::graph::gradient::cell::differentiation::{Differentiation, Root};

impl Differentiation<'_> {
    /// What the derivative writes, and the cells.
    pub(super) fn finish(mut self, gates: Vec<String>, given: Given) -> Result<CellVjp> {
        let cell = self.cell;
        let of_first = self.recurrent(0)?;
        let mut outputs: Vec<(String, Value)> = Vec::new();
        for (gate, value) in cell.stages[0].gemm.iter().flat_map(|of| &of.gates).zip(of_first) {
            outputs.push((self.fresh(&format!("d_r_{gate}")), value));
        }
        if outputs.is_empty() {
            let value = self.value(CellValue::Gate(0));
            outputs.push((self.fresh(&format!("d_x_{}", cell.gates[0])), self.gradient(value)?));
        }
        for (name, value) in &outputs {
            self.root(&format!("next_{name}"), *value);
        }
        for at in 0..cell.states.len() {
            let value = self.value(CellValue::State(at));
            let own = self.gradient(value)?;
            self.root(&format!("next_{}", self.states[at]), own);
        }
        let mut written =
            Writer { outputs: outputs.iter().map(|of| of.1).collect(), saved: vec![] };
        let gate = |at| CellValue::Gate(at);
        let of_gates = self.found((0..cell.gates.len()).map(gate));
        let gates_written = written.all(&self, &of_gates);
        let of_recurrent = self.found((0..cell.recurrent_gates()).map(CellValue::Recurrent));
        let recurrent = written.each(&self, &of_recurrent);
        let of = self.found((0..cell.parameters.len()).map(CellValue::Parameter));
        let parameters = written.saved(&of);
        let of = self.found((0..cell.row_inputs.len()).map(CellValue::RowInput));
        let row_inputs = written.saved(&of);
        let of = self.found((0..cell.unit_inputs.len()).map(CellValue::UnitInput));
        let unit_inputs = written.saved(&of);
        let (mut behind, mut of_final) = (Vec::new(), None);
        if cell.projected && cell.stages[0].gemm.is_some() {
            let before: Vec<String> = outputs.iter().map(|(name, _)| name.clone()).collect();
            let before = before.into_iter().map(|name| Some(self.given(name))).collect::<Vec<_>>();
            behind = written.saved(&before);
        }
        if cell.projected && given.h_final {
            let name = self.fresh(&format!("{}_final", self.states[0]));
            let none = self.push("none", Pointwise::new(Mode::CmpLt), &[self.dy, self.dy])?;
            self.root(&format!("next_{name}"), none);
            let own = self.given(name.clone());
            self.states.push(name);
            of_final = written.saved(&[Some(own)])[0];
        }
        let gradients: Vec<String> = written
            .saved
            .iter()
            .enumerate()
            .map(|(at, value)| self.root(&format!("gradient{at}"), *value))
            .collect();
        let states: Vec<String> =
            outputs.into_iter().map(|(name, _)| name).chain(self.states.iter().cloned()).collect();
        let needed = self.needed();
        let operands = self.operands();
        let saved = self.cut(&needed, &operands);
        let (forward, names) = self.forward(&saved);
        let operands = operands
            .iter()
            .map(|operand| saved.iter().position(|of| of == operand).expect("operands are saved"))
            .collect();
        let backward = self.backward(gates, states, &saved, &names)?;
        Ok(CellVjp {
            forward,
            saved: names,
            backward,
            gradients,
            gates: gates_written,
            recurrent,
            parameters,
            row_inputs,
            unit_inputs,
            operands,
            behind,
            of_final,
        })
    }

    /// Gradients of values of the cell.
    fn found(&mut self, values: impl Iterator<Item = CellValue>) -> Vec<Option<Value>> {
        let mut found = Vec::new();
        for of in values {
            let value = self.value(of);
            found.push(self.gradients.get(&value).copied());
        }
        found
    }

    /// A value without the copies of it.
    pub(super) fn source(&self, value: Value) -> Value {
        let Value::Result(at) = value else { return value };
        let line = &self.joint.instructions()[at];
        match line.operands[0] {
            of if line.op.is_copy() && self.joint.dtype(of) == line.dtype => self.source(of),
            _ => value,
        }
    }

    /// Names of what stages read and hand on.
    fn names_of(&self, unit_inputs: &[String]) -> BTreeSet<String> {
        let inputs = self.joint.inputs().iter().map(|input| &input.name);
        let roots = self.roots.iter().map(|root| &root.name);
        inputs.chain(roots).chain(unit_inputs).cloned().collect()
    }

    /// The cell of the derivative.
    fn backward(
        &mut self,
        gates: Vec<String>,
        states: Vec<String>,
        saved: &[Value],
        names: &[String],
    ) -> Result<Cell> {
        let cell = self.cell;
        let unit_inputs: Vec<String> = names.iter().map(|name| self.fresh(name)).collect();
        let mut stages = Vec::new();
        let mut read = BTreeSet::new();
        for (at, step) in self.steps.iter().enumerate() {
            let mut writing = Writing {
                of: self,
                stage: at,
                saved: saved.iter().copied().zip(unit_inputs.iter().map(String::as_str)).collect(),
                program: Program::new(),
                known: BTreeMap::new(),
                names: self.names_of(&unit_inputs),
            };
            for root in self.roots.iter().filter(|root| root.stage == at) {
                let value = writing.value(root.value)?;
                let copy = Pointwise::new(Mode::Identity).math(Math::of(self.dtype));
                let value = writing.program.push(&root.name, copy, &[value], self.dtype)?;
                writing.program.output(value);
            }
            let program = writing.program;
            read.extend(program.inputs().iter().map(|input| input.name.clone()));
            let gemm = match at {
                0 => cell.stages[0].gemm.as_ref().map(|gemm| RecurrentGemm {
                    operands: states[..gemm.gates.len()].to_vec(),
                    gates: vec![self.gate.clone()],
                    transposed: true,
                }),
                _ => step.gemm.clone(),
            };
            stages.push(Stage { gemm, statistics: step.statistics.clone(), program });
        }
        let read_of = |names: &[String]| match names.iter().any(|name| read.contains(name)) {
            true => names.to_vec(),
            false => Vec::new(),
        };
        let backward = Cell {
            name: format!("{}_backward", cell.name),
            gates,
            states,
            parameters: read_of(&cell.parameters),
            row_inputs: read_of(&cell.row_inputs),
            unit_inputs,
            stages,
            projected: false,
        };
        backward.validate()?;
        Ok(backward)
    }
}

/// What the derivative writes at every step.
struct Writer {
    outputs: Vec<Value>,
    saved: Vec<Value>,
}

impl Writer {
    /// Gradients side by side: the output itself where it is they.
    fn all(
        &mut self,
        of: &Differentiation<'_>,
        gradients: &[Option<Value>],
    ) -> Vec<Option<Written>> {
        let same = |(output, own): (&Value, &Option<Value>)| {
            own.is_some_and(|own| of.source(own) == of.source(*output))
        };
        let count = self.outputs.len();
        if count == gradients.len() && self.outputs.iter().zip(gradients).all(same) {
            return (0..count).map(|at| Some(Written::Output(at))).collect();
        }
        self.saved(gradients)
    }

    /// Each gradient where it is written already, or saved.
    fn each(
        &mut self,
        of: &Differentiation<'_>,
        gradients: &[Option<Value>],
    ) -> Vec<Option<Written>> {
        let place = |own: &Option<Value>| {
            let own = of.source((*own)?);
            let at = |values: &[Value]| values.iter().position(|other| of.source(*other) == own);
            let output = at(&self.outputs).map(Written::Output);
            Some(output.or_else(|| at(&self.saved).map(Written::Saved)).unwrap_or_else(|| {
                self.saved.push(own);
                Written::Saved(self.saved.len() - 1)
            }))
        };
        gradients.iter().map(place).collect()
    }

    /// Gradients that are saved, behind each other.
    fn saved(&mut self, gradients: &[Option<Value>]) -> Vec<Option<Written>> {
        let place = |own: &Option<Value>| {
            self.saved.push((*own)?);
            Some(Written::Saved(self.saved.len() - 1))
        };
        gradients.iter().map(place).collect()
    }
}

/// The program of a stage of the derivative.
struct Writing<'a> {
    of: &'a Differentiation<'a>,
    stage: usize,
    /// Values of the cell that are saved, and their names as unit inputs.
    saved: Vec<(Value, &'a str)>,
    program: Program,
    known: BTreeMap<Value, Value>,
    /// Names that no further line may have.
    names: BTreeSet<String>,
}

impl Writing<'_> {
    /// A value of the joint program: read, or computed with what it is computed from.
    fn value(&mut self, value: Value) -> Result<Value> {
        let value = self.of.source(value);
        if let Some(known) = self.known.get(&value) {
            return Ok(*known);
        }
        let (of, dtype) = (self.of, self.of.dtype);
        let saved = self.saved.iter().find(|(known, _)| *known == value);
        let earlier = |line: usize| {
            let before = !of.is_forward(line) && of.step_of(line) < self.stage;
            let root = |root: &&Root| root.value == value && root.stage < self.stage;
            of.roots.iter().find(root).filter(|_| before)
        };
        let own = match (saved, value) {
            (Some((_, name)), _) => self.program.input(*name, dtype),
            (None, Value::Input(at)) => self.program.input(&of.joint.inputs()[at].name, dtype),
            (None, Value::Result(line)) => match earlier(line) {
                Some(root) => self.program.input(&root.name, dtype),
                None => {
                    let line = &of.joint.instructions()[line];
                    let operands = line.operands.iter();
                    let operands: Vec<Value> =
                        operands.map(|operand| self.value(*operand)).collect::<Result<_>>()?;
                    let mut name = line.name.clone();
                    while !self.names.insert(name.clone()) {
                        name.push('_');
                    }
                    self.program.push(&name, line.op, &operands, line.dtype)?
                }
            },
        };
        self.known.insert(value, own);
        Ok(own)
    }
}
