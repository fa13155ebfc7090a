//! Cells of recurrent networks: what one step makes of its input and of what it has kept.
//!
//! A cell is a list of [`Stage`]s. A stage first gathers what needs more than one unit of a row (a
//! product with recurrent weights, moments along the units) and then runs a [`Program`] for every
//! unit by itself. Nothing in it is special to any kind of cell: LSTM and GRU are written like a
//! user's own.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::expr::{Program, Real};

/// One step of a recurrent network, for any number of rows and units.
///
/// The programs of stages read by name:
/// - `x_<gate>`: what the input gives to a gate, its bias added;
/// - `r_<gate>`: a row of this or an earlier stage's product, its bias added;
/// - a state's name: its value after the step before;
/// - parameters (a value per unit), row inputs (a value per row and step), unit inputs (a value per
///   unit, row and step) by their names;
/// - `<moments>_mean` and `<moments>_inv`: mean and inverse deviation, of this or an earlier stage;
/// - the results of earlier stages.
///
/// The last results must include `next_<state>` for every state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Its name in texts and in the names of kernels.
    pub name: String,
    /// What the input gives to each unit, in the order of the columns of `x`.
    pub gates: Vec<String>,
    /// What a step keeps for the next. The first is what the cell gives out, and what the first
    /// product is taken of.
    pub states: Vec<String>,
    /// Vectors of one value per unit.
    pub parameters: Vec<String>,
    /// What each row is given at each step besides `x`: one value for all its units.
    pub row_inputs: Vec<String>,
    /// What each row is given at each step besides `x`: one value for each unit.
    pub unit_inputs: Vec<String>,
    /// In order.
    pub stages: Vec<Stage>,
    /// Whether the first state is a product of a projection with `next_<first state>`, and so has a
    /// size of its own. Programs do not read it then.
    pub projected: bool,
}

/// A part of a cell between two points at which units hear of each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stage {
    /// The product with recurrent weights that is taken first.
    pub product: Option<Product>,
    /// Moments that are taken next.
    pub moments: Vec<Moments>,
    /// What every unit computes then.
    pub program: Program,
}

/// A product of recurrent weights with one value of all units.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Product {
    /// What the weights are multiplied with: the first state in the first stage, a result of an
    /// earlier stage in a later one. It is rounded to the type of `y`.
    pub operand: String,
    /// What the product gives to each unit, `r_<gate>`: in the order of the weights' rows.
    pub gates: Vec<String>,
}

/// Mean and inverse deviation of values along the units of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Moments {
    /// The values are called `<name>_mean` and `<name>_inv`.
    pub name: String,
    /// The values whose moments are taken, all together.
    pub of: Vec<String>,
    /// Added to the variance under the root.
    pub epsilon: Real,
}

/// Where a value that a stage reads comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellValue {
    /// What the input gives to this gate.
    Gate(usize),
    /// What a product gives: the position among all rows of recurrent weights.
    Recurrent(usize),
    /// A state after the step before.
    State(usize),
    /// A parameter.
    Parameter(usize),
    /// A row input.
    RowInput(usize),
    /// A unit input.
    UnitInput(usize),
    /// The mean of these moments.
    Mean {
        /// Index of the stage that has the moments.
        stage: usize,
        /// Index of the moments among those of the stage.
        at: usize,
    },
    /// The inverse deviation of these moments.
    InverseDeviation {
        /// Index of the stage that has the moments.
        stage: usize,
        /// Index of the moments among those of the stage.
        at: usize,
    },
    /// A result of an earlier stage.
    Result {
        /// Index of the stage.
        stage: usize,
        /// Index of the output among those of the stage.
        at: usize,
    },
}

impl Cell {
    /// How many rows of recurrent weights each unit has, of all products.
    pub fn recurrent_gates(&self) -> usize {
        self.products().map(|(_, product)| product.gates.len()).sum()
    }

    /// The products with the stages they belong to.
    pub fn products(&self) -> impl Iterator<Item = (usize, &Product)> {
        let stages = self.stages.iter().enumerate();
        stages.filter_map(|(at, stage)| stage.product.as_ref().map(|product| (at, product)))
    }

    /// The position of a stage's first row among all rows of recurrent weights.
    pub fn first_row(&self, stage: usize) -> usize {
        self.products().take_while(|(at, _)| *at < stage).map(|(_, of)| of.gates.len()).sum()
    }

    /// Where a value comes from that a stage reads; `with_moments` says whether those of the stage
    /// itself are there already.
    pub fn value(&self, stage: usize, name: &str, with_moments: bool) -> Option<CellValue> {
        let at = |names: &[String]| names.iter().position(|known| known == name);
        let gate = name.strip_prefix("x_").and_then(|gate| {
            self.gates.iter().position(|known| known == gate).map(CellValue::Gate)
        });
        let plain = gate
            .or_else(|| at(&self.states).map(CellValue::State))
            .or_else(|| at(&self.parameters).map(CellValue::Parameter))
            .or_else(|| at(&self.row_inputs).map(CellValue::RowInput))
            .or_else(|| at(&self.unit_inputs).map(CellValue::UnitInput));
        plain.or_else(|| (0..=stage).find_map(|of| self.made(of, name, of < stage, with_moments)))
    }

    /// A value that a stage makes.
    fn made(&self, of: usize, name: &str, earlier: bool, with_moments: bool) -> Option<CellValue> {
        let stage = &self.stages[of];
        if let (Some(gate), Some(product)) = (name.strip_prefix("r_"), &stage.product)
            && let Some(at) = product.gates.iter().position(|known| known == gate)
        {
            return Some(CellValue::Recurrent(self.first_row(of) + at));
        }
        if earlier || with_moments {
            for (at, moments) in stage.moments.iter().enumerate() {
                match name.strip_prefix(moments.name.as_str()) {
                    Some("_mean") => return Some(CellValue::Mean { stage: of, at }),
                    Some("_inv") => return Some(CellValue::InverseDeviation { stage: of, at }),
                    _ => {}
                }
            }
        }
        let at = self.output(of, name).filter(|_| earlier)?;
        Some(CellValue::Result { stage: of, at })
    }

    /// What a stage reads, for its moments and its program; each once.
    pub fn reads(&self, stage: usize) -> Vec<CellValue> {
        let of = &self.stages[stage];
        let inputs = of.program.inputs().iter().map(|input| (&input.name, true));
        let taken = of.moments.iter().flat_map(|moments| &moments.of).map(|name| (name, false));
        let mut values = Vec::new();
        for (name, with_moments) in taken.chain(inputs) {
            let value = self.value(stage, name, with_moments);
            values.extend(value.filter(|value| !values.contains(value)));
        }
        values
    }

    /// The stage that makes a value; `None` for what is there before the first.
    pub fn made_in(&self, value: CellValue) -> Option<usize> {
        match value {
            CellValue::Mean { stage, .. }
            | CellValue::InverseDeviation { stage, .. }
            | CellValue::Result { stage, .. } => Some(stage),
            CellValue::Recurrent(row) => {
                let before = self.products().take_while(|(at, _)| self.first_row(*at) <= row);
                before.map(|(at, _)| at).last()
            }
            _ => None,
        }
    }

    /// The position of a name among the outputs of a stage.
    pub fn output(&self, stage: usize, name: &str) -> Option<usize> {
        let program = &self.stages[stage].program;
        program.outputs().iter().position(|value| program.name(*value) == name)
    }

    /// Where a state's next value is: the stage and its output.
    pub fn next(&self, state: usize) -> Option<CellValue> {
        let name = format!("next_{}", self.states[state]);
        let stages = (0..self.stages.len()).rev();
        stages
            .filter_map(|stage| Some(CellValue::Result { stage, at: self.output(stage, &name)? }))
            .next()
    }

    /// The cell with every line computed in `f64`, as are the values that it reads and makes.
    #[must_use]
    pub(crate) fn in_f64(&self) -> Cell {
        let mut cell = self.clone();
        for stage in &mut cell.stages {
            stage.program = stage.program.in_f64();
        }
        cell
    }

    /// Checks that everything that is read is there.
    ///
    /// # Errors
    /// `BadParam` with the name and the rule.
    pub fn validate(&self) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("cell {}: {rule}", self.name)));
        if self.states.is_empty() || self.stages.is_empty() {
            return fail("it has no state or no stage".to_owned());
        }
        if self.gates.is_empty() {
            return fail("it has no gate, and so no input".to_owned());
        }
        let mut names = BTreeSet::new();
        let gates = self.gates.iter().map(|gate| format!("x_{gate}"));
        let recurrent = self.products().flat_map(|(_, product)| &product.gates);
        let recurrent = recurrent.map(|gate| format!("r_{gate}"));
        let vectors = [&self.states, &self.parameters, &self.row_inputs, &self.unit_inputs];
        let plain = vectors.into_iter().flatten().cloned();
        for name in gates.chain(recurrent).chain(plain) {
            if !names.insert(name.clone()) {
                return fail(format!("the name `{name}` is there twice"));
            }
        }
        for (at, stage) in self.stages.iter().enumerate() {
            self.check_stage(at, stage)?;
        }
        match (0..self.states.len()).find(|state| self.next(*state).is_none()) {
            Some(state) => fail(format!("no stage gives `next_{}`", self.states[state])),
            None => Ok(()),
        }
    }

    fn check_stage(&self, at: usize, stage: &Stage) -> Result<()> {
        let fail =
            |rule: String| Err(Error::bad_param(format!("cell {}: stage {at}: {rule}", self.name)));
        if let Some(Product { operand, gates }) = &stage.product {
            if gates.is_empty() {
                return fail("the product has no gate".to_owned());
            }
            let first = at == 0 && *operand == self.states[0];
            let earlier = at > 0 && self.output(at - 1, operand).is_some();
            if !first && !earlier {
                let of = match at {
                    0 => format!("the first state, `{}`", self.states[0]),
                    _ => "a result of the stage before".to_owned(),
                };
                return fail(format!("the product is of `{operand}`, expected {of}"));
            }
            if self.projected && at > 0 {
                return fail("a projected cell has one product, in the first stage".to_owned());
            }
        }
        for moments in &stage.moments {
            if moments.of.is_empty()
                || moments.epsilon.get().is_nan()
                || moments.epsilon.get() < 0.0
            {
                let name = &moments.name;
                return fail(format!("moments `{name}` are of nothing or epsilon is negative"));
            }
        }
        let read = stage.program.inputs().iter().map(|input| (&input.name, true));
        let taken = stage.moments.iter().flat_map(|moments| &moments.of).map(|of| (of, false));
        for (name, with_moments) in read.chain(taken) {
            match self.value(at, name, with_moments) {
                None => return fail(format!("reads `{name}`, which nothing gives")),
                Some(CellValue::State(0)) if self.projected => {
                    return fail(format!("reads `{name}`, which is projected"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
