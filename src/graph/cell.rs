//! Recurrent cells: the computation of one time step.
//!
//! A cell is a list of [`Stage`]s. A stage first computes what depends on several hidden units of a
//! row (a GEMM with recurrent weights, layer-norm statistics) and then evaluates a [`Program`] for
//! each hidden unit independently. LSTM and GRU are expressed the same way as user-defined cells.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::expr::{Program, Real};

/// One time step of a recurrent network, for any batch and hidden size.
///
/// The programs of the stages read values by name:
/// - `x_<gate>`: the input contribution to a gate, including its bias;
/// - `r_<gate>`: the recurrent contribution to a gate, from this or an earlier stage's GEMM,
///   including its bias;
/// - the name of a state: its value after the previous step;
/// - the names of parameters (a value per hidden unit), row inputs (a value per row and step) and
///   unit inputs (a value per hidden unit, row and step);
/// - `<statistics>_mean` and `<statistics>_inv`: mean and inverse standard deviation, of this or an
///   earlier stage;
/// - the names of results of earlier stages.
///
/// The results must include `next_<state>` for every state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Name of the cell in messages and kernel names.
    pub name: String,
    /// Gates that receive an input contribution, in the order of the columns of `x`.
    pub gates: Vec<String>,
    /// States carried to the next step. The first are the cell's [outputs](Cell::outputs) and the
    /// operands of the first stage's GEMM.
    pub states: Vec<String>,
    /// Parameter vectors with one value per hidden unit.
    pub parameters: Vec<String>,
    /// Inputs besides `x` with one value per row and step.
    pub row_inputs: Vec<String>,
    /// Inputs besides `x` with one value per hidden unit, row and step.
    pub unit_inputs: Vec<String>,
    /// The stages in execution order.
    pub stages: Vec<Stage>,
    /// Whether the first state is a projection of `next_<first state>`, with a size of its own.
    /// Programs must not read it then.
    pub projected: bool,
}

/// A part of a cell between two points at which hidden units exchange values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stage {
    /// GEMM with recurrent weights, computed first.
    pub gemm: Option<RecurrentGemm>,
    /// Layer-norm statistics, computed after the GEMM.
    pub statistics: Vec<LayerNormStatistics>,
    /// The program evaluated for every hidden unit.
    pub program: Program,
}

/// A GEMM of recurrent weights with values per hidden unit: of one operand for several gates, or
/// with the transposed weights, as gradients ask for, of several operands for one gate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecurrentGemm {
    /// The operands: the first states in the first stage, results of the previous stage in later
    /// ones. They are rounded to the type of `y`.
    pub operands: Vec<String>,
    /// The gates `r_<gate>` that the GEMM computes.
    pub gates: Vec<String>,
    /// Whether the weights are transposed: their blocks of `hidden_size` rows are those of the
    /// operands, in order, instead of those of the gates.
    pub transposed: bool,
}

impl RecurrentGemm {
    /// A GEMM of one operand.
    pub fn new(operand: impl Into<String>, gates: &[&str]) -> RecurrentGemm {
        RecurrentGemm {
            operands: vec![operand.into()],
            gates: gates.iter().map(|gate| (*gate).to_owned()).collect(),
            transposed: false,
        }
    }

    /// Number of blocks of `hidden_size` rows of its weights.
    pub fn blocks(&self) -> usize {
        if self.transposed { self.operands.len() } else { self.gates.len() }
    }
}

/// Layer-norm statistics: mean and inverse standard deviation over the hidden units of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerNormStatistics {
    /// Name of the statistics, read as `<name>_mean` and `<name>_inv`.
    pub name: String,
    /// The values over which the statistics are computed jointly.
    pub of: Vec<String>,
    /// Added to the variance before the square root.
    pub epsilon: Real,
}

/// Source of a value that a stage reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellValue {
    /// Input contribution to this gate.
    Gate(usize),
    /// Recurrent contribution, by gate index over all stages.
    Recurrent(usize),
    /// Value of this state after the previous step.
    State(usize),
    /// Parameter vector.
    Parameter(usize),
    /// Row input.
    RowInput(usize),
    /// Unit input.
    UnitInput(usize),
    /// Mean of layer-norm statistics.
    Mean {
        /// Index of the stage.
        stage: usize,
        /// Index into [`Stage::statistics`].
        at: usize,
    },
    /// Inverse standard deviation of layer-norm statistics.
    InverseDeviation {
        /// Index of the stage.
        stage: usize,
        /// Index into [`Stage::statistics`].
        at: usize,
    },
    /// Result of an earlier stage.
    Result {
        /// Index of the stage.
        stage: usize,
        /// Index of the program output.
        at: usize,
    },
}

impl Cell {
    /// Number of recurrent gates of all stages.
    pub fn recurrent_gates(&self) -> usize {
        self.gemms().map(|(_, gemm)| gemm.gates.len()).sum()
    }

    /// Number of the first states that make up `y`: one, or as many as the first stage's GEMM has
    /// operands.
    pub fn outputs(&self) -> usize {
        self.stages[0].gemm.as_ref().map_or(1, |gemm| gemm.operands.len())
    }

    /// Whether GEMMs are with transposed weights.
    pub fn is_transposed(&self) -> bool {
        self.gemms().any(|(_, gemm)| gemm.transposed)
    }

    /// Blocks of `hidden_size` rows of the weights of all stages.
    pub fn blocks(&self) -> usize {
        self.gemms().map(|(_, gemm)| gemm.blocks()).sum()
    }

    /// Index of a stage's first block of weights.
    pub fn first_block(&self, stage: usize) -> usize {
        self.gemms().take_while(|(at, _)| *at < stage).map(|(_, of)| of.blocks()).sum()
    }

    /// Returns the GEMMs with the index of their stage.
    pub fn gemms(&self) -> impl Iterator<Item = (usize, &RecurrentGemm)> {
        let stages = self.stages.iter().enumerate();
        stages.filter_map(|(at, stage)| stage.gemm.as_ref().map(|gemm| (at, gemm)))
    }

    /// Index of a stage's first gate among the recurrent gates of all stages.
    pub fn first_gate(&self, stage: usize) -> usize {
        self.gemms().take_while(|(at, _)| *at < stage).map(|(_, of)| of.gates.len()).sum()
    }

    /// Resolves a name that a stage reads. `with_statistics` tells whether the stage's own
    /// layer-norm statistics are available already.
    pub fn value(&self, stage: usize, name: &str, with_statistics: bool) -> Option<CellValue> {
        let at = |names: &[String]| names.iter().position(|known| known == name);
        let gate = name.strip_prefix("x_").and_then(|gate| {
            self.gates.iter().position(|known| known == gate).map(CellValue::Gate)
        });
        let plain = gate
            .or_else(|| at(&self.states).map(CellValue::State))
            .or_else(|| at(&self.parameters).map(CellValue::Parameter))
            .or_else(|| at(&self.row_inputs).map(CellValue::RowInput))
            .or_else(|| at(&self.unit_inputs).map(CellValue::UnitInput));
        plain.or_else(|| self.made_up_to(stage, name, with_statistics))
    }

    /// Resolves a name of a value that is known when all stages have been computed.
    pub fn final_value(&self, name: &str) -> Option<CellValue> {
        self.value(self.stages.len(), name, true)
    }

    fn made_up_to(&self, stage: usize, name: &str, with_statistics: bool) -> Option<CellValue> {
        let mut stages = 0..(stage + 1).min(self.stages.len());
        stages.find_map(|of| self.made(of, name, of < stage, with_statistics))
    }

    /// Resolves a name that stage `of` computes.
    fn made(
        &self,
        of: usize,
        name: &str,
        earlier: bool,
        with_statistics: bool,
    ) -> Option<CellValue> {
        let stage = &self.stages[of];
        if let (Some(gate), Some(gemm)) = (name.strip_prefix("r_"), &stage.gemm)
            && let Some(at) = gemm.gates.iter().position(|known| known == gate)
        {
            return Some(CellValue::Recurrent(self.first_gate(of) + at));
        }
        if earlier || with_statistics {
            for (at, statistics) in stage.statistics.iter().enumerate() {
                match name.strip_prefix(statistics.name.as_str()) {
                    Some("_mean") => return Some(CellValue::Mean { stage: of, at }),
                    Some("_inv") => return Some(CellValue::InverseDeviation { stage: of, at }),
                    _ => {}
                }
            }
        }
        let at = self.output(of, name).filter(|_| earlier)?;
        Some(CellValue::Result { stage: of, at })
    }

    /// Returns the values that a stage reads, for its statistics and its program, without
    /// duplicates.
    pub fn reads(&self, stage: usize) -> Vec<CellValue> {
        let of = &self.stages[stage];
        let inputs = of.program.inputs().iter().map(|input| (&input.name, true));
        let taken =
            of.statistics.iter().flat_map(|statistics| &statistics.of).map(|name| (name, false));
        let mut values = Vec::new();
        for (name, with_statistics) in taken.chain(inputs) {
            let value = self.value(stage, name, with_statistics);
            values.extend(value.filter(|value| !values.contains(value)));
        }
        values
    }

    /// Returns the stage that computes a value; `None` for inputs of the step.
    pub fn made_in(&self, value: CellValue) -> Option<usize> {
        match value {
            CellValue::Mean { stage, .. }
            | CellValue::InverseDeviation { stage, .. }
            | CellValue::Result { stage, .. } => Some(stage),
            CellValue::Recurrent(row) => {
                let before = self.gemms().take_while(|(at, _)| self.first_gate(*at) <= row);
                before.map(|(at, _)| at).last()
            }
            _ => None,
        }
    }

    /// Returns the index of a name among the outputs of a stage.
    pub fn output(&self, stage: usize, name: &str) -> Option<usize> {
        let program = &self.stages[stage].program;
        program.outputs().iter().position(|value| program.name(*value) == name)
    }

    /// Returns the result that holds a state's next value.
    pub fn next(&self, state: usize) -> Option<CellValue> {
        let name = format!("next_{}", self.states[state]);
        let stages = (0..self.stages.len()).rev();
        stages
            .filter_map(|stage| Some(CellValue::Result { stage, at: self.output(stage, &name)? }))
            .next()
    }

    /// Returns the cell with all programs and their inputs in `f64`.
    #[must_use]
    pub(crate) fn in_f64(&self) -> Cell {
        let mut cell = self.clone();
        for stage in &mut cell.stages {
            stage.program = stage.program.in_f64();
        }
        cell
    }

    /// Checks that every value read is defined.
    ///
    /// # Errors
    /// `BadParam` with the name and the rule.
    pub fn validate(&self) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("cell {}: {rule}", self.name)));
        if self.states.is_empty() || self.stages.is_empty() {
            return fail("expected at least one state and one stage".to_owned());
        }
        if self.gates.is_empty() {
            return fail("expected at least one gate".to_owned());
        }
        let mut names = BTreeSet::new();
        let gates = self.gates.iter().map(|gate| format!("x_{gate}"));
        let recurrent = self.gemms().flat_map(|(_, gemm)| &gemm.gates);
        let recurrent = recurrent.map(|gate| format!("r_{gate}"));
        let vectors = [&self.states, &self.parameters, &self.row_inputs, &self.unit_inputs];
        let plain = vectors.into_iter().flatten().cloned();
        for name in gates.chain(recurrent).chain(plain) {
            if !names.insert(name.clone()) {
                return fail(format!("duplicate name `{name}`"));
            }
        }
        for (at, stage) in self.stages.iter().enumerate() {
            self.check_stage(at, stage)?;
        }
        match (0..self.states.len()).find(|state| self.next(*state).is_none()) {
            Some(state) => fail(format!("no stage computes `next_{}`", self.states[state])),
            None => Ok(()),
        }
    }

    fn check_gemm(&self, at: usize, gemm: &RecurrentGemm) -> Result<()> {
        let fail =
            |rule: String| Err(Error::bad_param(format!("cell {}: stage {at}: {rule}", self.name)));
        let RecurrentGemm { operands, gates, transposed } = gemm;
        let kind = if *transposed { "transposed GEMM" } else { "GEMM" };
        if gates.is_empty() {
            return fail(format!("the {kind} has no gate"));
        }
        let (single, of) = if *transposed { (gates, "gate") } else { (operands, "operand") };
        if single.len() != 1 || operands.is_empty() {
            let count = if operands.is_empty() { 0 } else { single.len() };
            let of = if operands.is_empty() { "operand" } else { of };
            return fail(format!("the {kind} has {count} {of}s, expected 1"));
        }
        if *transposed != self.is_transposed() || *transposed && self.projected {
            return fail("GEMMs with transposed weights do not go with others".to_owned());
        }
        for (index, operand) in operands.iter().enumerate() {
            let first = at == 0 && self.states.get(index) == Some(operand);
            let earlier = at > 0 && self.output(at - 1, operand).is_some();
            if !first && !earlier {
                let of = match (at, self.states.get(index)) {
                    (0, Some(state)) if index == 0 => format!("the first state, `{state}`"),
                    (0, Some(state)) => format!("state {index}, `{state}`"),
                    (0, None) => "a state".to_owned(),
                    _ => "a result of the stage before".to_owned(),
                };
                return fail(format!("the {kind} is of `{operand}`, expected {of}"));
            }
        }
        Ok(())
    }

    fn check_stage(&self, at: usize, stage: &Stage) -> Result<()> {
        let fail =
            |rule: String| Err(Error::bad_param(format!("cell {}: stage {at}: {rule}", self.name)));
        if let Some(gemm) = &stage.gemm {
            self.check_gemm(at, gemm)?;
            if self.projected && at > 0 {
                return fail("a projected cell has a GEMM in the first stage only".to_owned());
            }
        }
        for statistics in &stage.statistics {
            if statistics.of.is_empty()
                || statistics.epsilon.get().is_nan()
                || statistics.epsilon.get() < 0.0
            {
                let name = &statistics.name;
                return fail(format!("statistics `{name}` have no values or a negative epsilon"));
            }
        }
        let read = stage.program.inputs().iter().map(|input| (&input.name, true));
        let taken =
            stage.statistics.iter().flat_map(|statistics| &statistics.of).map(|of| (of, false));
        for (name, with_statistics) in read.chain(taken) {
            match self.value(at, name, with_statistics) {
                None => return fail(format!("reads `{name}`, which is not defined")),
                Some(CellValue::State(0)) if self.projected => {
                    return fail(format!("reads `{name}`, which is projected"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
