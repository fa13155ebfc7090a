//! Recurrent layers, computed per sequence, step and hidden unit.
//!
//! The error of a single step is bounded analytically. Such bounds diverge when propagated over
//! steps, although the network's own dynamics damp errors, so per-step errors are propagated by
//! Monte Carlo arithmetic instead (Parker, "Monte Carlo Arithmetic", 1997): [`SAMPLES`] further
//! runs are perturbed at every step by up to the step's bound, and their maximum deviation times
//! [`SAFETY`] is the bound of the result.

use crate::expr::Program;
use crate::graph::{Cell, CellValue, MatmulMath, Recurrence, RowLayout, Semantics};
use crate::reference::approx::{ANYTHING, Approx, Arithmetic};
use crate::reference::quantized::Quantized;
use crate::reference::{Expected, Operand, bound, matmul};
use crate::tensor::TensorDesc;

/// Number of perturbed runs.
const SAMPLES: usize = 2;
/// Factor from the deviation of the perturbed runs to the bound.
const SAFETY: f64 = 2.0;

pub(super) fn evaluate(
    op: &Recurrence,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let slots = op.slots();
    let layer = Layer::new(op, &slots.inputs, operands, outputs[0]);
    let mut results = Results::new(&layer, &slots.outputs, outputs);
    for direction in 0..op.direction.count() as usize {
        for b in 0..op.batch as usize {
            layer.run(direction, b, &mut results);
        }
    }
    results.expected
}

/// States of one sequence: for each state, a value per hidden unit; of quantised ones the integers
/// that stand for them.
type States = Vec<Vec<f64>>;

/// A layer with its operands by slot name.
struct Layer<'a> {
    op: &'a Recurrence,
    slots: &'a [&'static str],
    operands: &'a [Operand<'a>],
    y: &'a TensorDesc,
    arithmetic: Arithmetic,
    /// How the states that make up `y` are stored, if they are quantised.
    quantized: Option<Quantized>,
    hidden_size: usize,
    /// Elements of the first state.
    size: usize,
    /// Number of states that make up `y`.
    outputs: usize,
    rows: usize,
    lengths: Vec<usize>,
    stages: Vec<StageSources>,
    /// Next value of each state.
    next: Vec<CellValue>,
    /// What is saved at every step.
    saved: Vec<CellValue>,
}

/// Sources of the values that a stage reads.
struct StageSources {
    /// The GEMM operands.
    operands: Vec<CellValue>,
    /// Sources of each layer-norm statistic.
    statistics: Vec<Vec<CellValue>>,
    /// Sources of the program's inputs.
    inputs: Vec<CellValue>,
}

impl StageSources {
    fn of(cell: &Cell, at: usize) -> StageSources {
        let stage = &cell.stages[at];
        let source = |name: &String, with_moments: bool| {
            cell.value(at, name, with_moments).expect("the cell is valid")
        };
        let operand = |name: &String| match at.checked_sub(1) {
            None => source(name, false),
            Some(stage) => {
                let at = cell.output(stage, name).expect("the cell is valid");
                CellValue::Result { stage, at }
            }
        };
        let statistics = stage.statistics.iter();
        let statistics =
            statistics.map(|of| of.of.iter().map(|name| source(name, false)).collect());
        let inputs = stage.program.inputs().iter().map(|input| source(&input.name, true));
        StageSources {
            operands: stage.gemm.iter().flat_map(|gemm| &gemm.operands).map(operand).collect(),
            statistics: statistics.collect(),
            inputs: inputs.collect(),
        }
    }
}

impl<'a> Layer<'a> {
    fn new(
        op: &'a Recurrence,
        slots: &'a [&'static str],
        operands: &'a [Operand<'a>],
        y: &'a TensorDesc,
    ) -> Layer<'a> {
        let rows = operands[0].desc.dims[1] as usize;
        let cell = &op.cell;
        let next = |state| cell.next(state).expect("the cell is valid");
        let directions = if op.apart { 1 } else { op.direction.count() };
        let arithmetic = Arithmetic::new(op.math.dtype());
        let quantized = |own| Quantized::new(own, y.dtype, arithmetic);
        let mut layer = Layer {
            op,
            slots,
            operands,
            y,
            arithmetic,
            quantized: op.quantization.map(quantized),
            hidden_size: op.hidden_size as usize,
            size: y.dims[2] as usize / directions as usize / cell.outputs(),
            outputs: cell.outputs(),
            rows,
            lengths: Vec::new(),
            stages: (0..cell.stages.len()).map(|at| StageSources::of(cell, at)).collect(),
            next: (0..cell.states.len()).map(next).collect(),
            saved: op
                .saved
                .iter()
                .map(|name| cell.final_value(name).expect("the operation is valid"))
                .collect(),
        };
        let batch = op.batch as usize;
        layer.lengths = match layer.operand("lengths") {
            None => vec![rows / batch; batch],
            Some(lengths) => {
                let longest = if op.layout == RowLayout::Packed { rows } else { rows / batch };
                let values = lengths.expected.values.iter();
                values.map(|length| (*length as i64).clamp(0, longest as i64) as usize).collect()
            }
        };
        layer
    }

    fn operand(&self, slot: &str) -> Option<&Operand<'a>> {
        self.slots.iter().position(|at| *at == slot).map(|at| &self.operands[at])
    }

    /// Element of an operand; an operand shared by all directions has one.
    fn element(&self, slot: &str, index: [usize; 3]) -> Option<Approx> {
        let operand = self.operand(slot)?;
        let [directions, height, width] = [0, 1, 2].map(|at| operand.desc.dims[at] as usize);
        let [direction, row, column] = index;
        let direction = if directions == 1 { 0 } else { direction };
        Some(operand.at(self.arithmetic, (direction * height + row) * width + column))
    }

    /// Row of a step of a sequence; `None` for a step that a packed tensor does not have.
    fn row(&self, step: usize, b: usize) -> Option<usize> {
        let batch = self.lengths.len();
        let row = match self.op.layout {
            RowLayout::SequenceMajor => step * batch + b,
            RowLayout::BatchMajor => b * (self.rows / batch) + step,
            RowLayout::Packed => self.lengths.iter().map(|len| step.min(*len)).sum::<usize>() + b,
        };
        (row < self.rows).then_some(row)
    }

    /// Runs a sequence. What is saved at a step follows the states after it.
    fn run(&self, direction: usize, b: usize, results: &mut Results<'_>) {
        let mut states = self.initial(direction, b);
        let zeros = self.zeros(&states);
        let mut errors: States = states.iter().map(|state| vec![0.0; state.len()]).collect();
        let mut strays = vec![states.clone(); SAMPLES];
        let mut noise = Noise(b as u64 + 1);
        let reverse = self.op.is_reversed(direction as i64);
        for at in 0..self.lengths[b] {
            let step = if reverse { self.lengths[b] - 1 - at } else { at };
            let Some(row) = self.row(step, b) else { continue };
            let next = self.step(direction, row, &states, true);
            for stray in &mut strays {
                let moved = self.step(direction, row, stray, false);
                let disturbed = moved.iter().zip(&next).map(|(moved, own)| {
                    let disturbed = moved.iter().zip(own);
                    disturbed.map(|(to, own)| to.value + noise.next() * own.error).collect()
                });
                *stray = disturbed.collect();
            }
            states.resize(next.len(), Vec::new());
            errors.resize(next.len(), Vec::new());
            for (state, own) in next.iter().enumerate() {
                let apart = |stray: &States| {
                    let apart = own.iter().zip(&stray[state]).map(|(own, other)| {
                        if own.value == *other { 0.0 } else { (own.value - other).abs() }
                    });
                    apart.filter(|apart| !apart.is_nan()).fold(0.0, f64::max)
                };
                let far = SAFETY * strays.iter().map(apart).fold(0.0, f64::max);
                // A unit that is NaN in only some runs may be anything.
                let differs = |unit: usize, own: &Approx| {
                    let is_nan = own.value.is_nan();
                    strays.iter().any(|stray| stray[state][unit].is_nan() != is_nan)
                };
                let error = |(unit, own): (usize, &Approx)| {
                    if differs(unit, own) { ANYTHING } else { own.error + far }
                };
                errors[state] = own.iter().enumerate().map(error).collect();
                states[state] = own.iter().map(|own| own.value).collect();
            }
            results.step(direction, row, &states, &errors);
            if self.op.backward && self.resets(row) {
                states = zeros.clone();
                errors.iter_mut().for_each(|errors| errors.fill(0.0));
                strays.fill(zeros.clone());
            }
            for of in strays.iter_mut().chain([&mut states, &mut errors]) {
                of.truncate(zeros.len());
            }
        }
        results.finish(direction, b, &states, &errors);
    }

    fn initial(&self, direction: usize, b: usize) -> States {
        let value = |slot: &str, column: usize, zero: f64| {
            self.element(slot, [direction, b, column]).map_or(zero, |value| value.value)
        };
        let output = |state: usize| {
            let column = |unit: usize| state * self.size + unit;
            (0..self.size).map(|unit| value("h_initial", column(unit), self.zero())).collect()
        };
        let other = |state: usize| {
            let column = |unit: usize| (state - self.outputs) * self.hidden_size + unit;
            (0..self.hidden_size).map(|unit| value("states_initial", column(unit), 0.0)).collect()
        };
        let others = self.outputs..self.op.cell.states.len();
        (0..self.outputs).map(output).chain(others.map(other)).collect()
    }

    /// What stands for 0 in the states that make up `y`.
    fn zero(&self) -> f64 {
        self.quantized.map_or(0.0, Quantized::zero)
    }

    /// States as of a sequence that begins without initial ones.
    fn zeros(&self, like: &States) -> States {
        let zero = |state: usize| if state < self.outputs { self.zero() } else { 0.0 };
        like.iter().enumerate().map(|(at, state)| vec![zero(at); state.len()]).collect()
    }

    fn resets(&self, row: usize) -> bool {
        self.element("reset", [0, row, 0]).is_some_and(|mask| mask.value != 0.0)
    }

    /// Computes the states after a step and what is saved of it, with the error bound of that step.
    fn step(
        &self,
        direction: usize,
        row: usize,
        states: &States,
        bounded: bool,
    ) -> Vec<Vec<Approx>> {
        let reset = !self.op.backward && self.resets(row);
        let states: States = if reset { self.zeros(states) } else { states.clone() };
        let mut step = Step {
            layer: self,
            at: [direction, row],
            states: &states,
            bounded,
            rows: Vec::new(),
            statistics: Vec::new(),
            results: Vec::new(),
        };
        for stage in 0..self.op.cell.stages.len() {
            step.stage(stage);
        }
        let next = |state: usize| {
            let value = |unit: usize| step.value(self.next[state], unit);
            let own: Vec<Approx> = (0..self.hidden_size).map(value).collect();
            if state < self.outputs { step.first(&own) } else { own }
        };
        let saved = self.saved.iter().map(|of| {
            let value = |unit: usize| step.value(*of, unit);
            (0..self.hidden_size).map(value).collect()
        });
        (0..states.len()).map(next).chain(saved).collect()
    }
}

/// One sequence at one step.
struct Step<'a> {
    layer: &'a Layer<'a>,
    /// Direction and row.
    at: [usize; 2],
    states: &'a States,
    bounded: bool,
    /// Recurrent contributions: for each gate, a value per hidden unit.
    rows: Vec<Vec<Approx>>,
    /// Mean and inverse standard deviation of each statistic of each stage.
    statistics: Vec<Vec<[Approx; 2]>>,
    /// Results of each stage: a value per hidden unit.
    results: Vec<Vec<Vec<Approx>>>,
}

impl Step<'_> {
    fn value(&self, source: CellValue, unit: usize) -> Approx {
        let (layer, [direction, row]) = (self.layer, self.at);
        let read = |slot, index| layer.element(slot, index).expect("the operation is valid");
        match source {
            CellValue::Gate(gate) => {
                let gates = layer.operands[0].desc.dims[2] as usize / layer.hidden_size;
                let shared = if gates == 1 { 0 } else { gate };
                let x = read("x", [direction, row, shared * layer.hidden_size + unit]);
                match layer.element("x_bias", [direction, 0, gate * layer.hidden_size + unit]) {
                    None => x,
                    Some(bias) => layer.arithmetic.add(x, bias),
                }
            }
            CellValue::Recurrent(at) => self.rows[at][unit],
            CellValue::State(state) => {
                let value = self.states[state][unit];
                match layer.quantized.filter(|_| state < layer.outputs) {
                    None => Approx::exact(value),
                    Some(quantized) => quantized.number(value),
                }
            }
            CellValue::Parameter(at) => read("parameters", [direction, at, unit]),
            CellValue::RowInput(at) => read("row_inputs", [direction, row, at]),
            CellValue::UnitInput(at) => {
                read("unit_inputs", [direction, row, at * layer.hidden_size + unit])
            }
            CellValue::Mean { stage, at } => self.statistics[stage][at][0],
            CellValue::InverseDeviation { stage, at } => self.statistics[stage][at][1],
            CellValue::Result { stage, at } => self.results[stage][at][unit],
        }
    }

    fn stage(&mut self, at: usize) {
        let (cell, sources) = (&self.layer.op.cell, &self.layer.stages[at]);
        let stage = &cell.stages[at];
        if let Some(gemm) = &stage.gemm {
            let mut operand = Vec::new();
            for source in &sources.operands {
                match source {
                    CellValue::State(at) => {
                        operand.extend(self.states[*at].iter().map(|value| Approx::exact(*value)));
                    }
                    source => {
                        let units = 0..self.layer.hidden_size;
                        let values: Vec<Approx> =
                            units.map(|unit| self.value(*source, unit)).collect();
                        operand.extend(self.stored(&values));
                    }
                }
            }
            let first = cell.first_block(at);
            for gate in 0..gemm.gates.len() {
                let results = match gemm.transposed {
                    true => self.transposed_gemm(first, &operand),
                    false => self.gemm(first + gate, &operand),
                };
                self.rows.push(self.biased(cell.first_gate(at) + gate, results));
            }
        }
        self.statistics.push(Vec::new());
        let units = 0..self.layer.hidden_size;
        for (statistics, of) in stage.statistics.iter().zip(&sources.statistics) {
            let values = of.iter().flat_map(|of| units.clone().map(move |unit| (*of, unit)));
            let values: Vec<Approx> = values.map(|(of, unit)| self.value(of, unit)).collect();
            let found = self.statistics_of(&values, statistics.epsilon.get());
            self.statistics[at].push(found);
        }
        let mut results = vec![Vec::new(); stage.program.outputs().len()];
        for unit in units {
            let inputs: Vec<Approx> =
                sources.inputs.iter().map(|source| self.value(*source, unit)).collect();
            for (result, value) in results.iter_mut().zip(self.program(&stage.program, &inputs)) {
                result.push(value);
            }
        }
        self.results.push(results);
    }

    /// Multiplies the operand by one recurrent gate of every hidden unit.
    fn gemm(&self, gate: usize, operand: &[Approx]) -> Vec<Approx> {
        let units = 0..self.layer.hidden_size;
        let row = |unit: usize| self.dot("r", gate * self.layer.hidden_size + unit, operand);
        let Some(quantized) = self.layer.quantized else { return units.map(row).collect() };
        let scales = self.layer.operand("r_scales").expect("the operation is valid");
        let columns = scales.desc.dims[2] as usize;
        let scale = |unit: usize| {
            let column = (gate * self.layer.hidden_size + unit).min(columns - 1);
            self.layer.element("r_scales", [self.at[0], 0, column]).expect("it is there")
        };
        units.map(|unit| quantized.gate(row(unit), scale(unit))).collect()
    }

    /// Multiplies the operand by columns of the weights, from a block of rows on.
    fn transposed_gemm(&self, block: usize, operand: &[Approx]) -> Vec<Approx> {
        let hidden_size = self.layer.hidden_size;
        let weights = self.layer.operand("r").expect("the operation is valid");
        let height = weights.desc.dims[1] as usize;
        let first = self.at[0] * height + block * hidden_size;
        let column = |unit: usize| {
            let rows = first..first + operand.len();
            let weights = rows.map(|row| weights.expected.values[row * hidden_size + unit]);
            self.product(weights, operand)
        };
        (0..hidden_size).map(column).collect()
    }

    /// Adds the bias of a recurrent gate.
    fn biased(&self, gate: usize, results: Vec<Approx>) -> Vec<Approx> {
        let (layer, direction) = (self.layer, self.at[0]);
        let biased = |(unit, product): (usize, Approx)| {
            let bias = [direction, 0, gate * layer.hidden_size + unit];
            match layer.element("r_bias", bias) {
                None => product,
                Some(bias) => layer.arithmetic.add(product, bias),
            }
        };
        results.into_iter().enumerate().map(biased).collect()
    }

    fn dot(&self, weights: &str, row: usize, operand: &[Approx]) -> Approx {
        let weights = self.layer.operand(weights).expect("the operation is valid");
        let [_, height, width] = [0, 1, 2].map(|at| weights.desc.dims[at] as usize);
        let first = (self.at[0] * height + row) * width;
        self.product(weights.expected.values[first..first + width].iter().copied(), operand)
    }

    fn product(&self, weights: impl Iterator<Item = f64>, operand: &[Approx]) -> Approx {
        let layer = self.layer;
        if let Some(quantized) = layer.quantized {
            return quantized.sum(weights, operand);
        }
        let tf32 = |value: Approx| match layer.op.math {
            MatmulMath::Tf32 => matmul::tf32(value),
            _ => value,
        };
        let weights = weights.map(|weight| tf32(Approx::exact(weight)));
        let factors = weights.zip(operand.iter().map(|value| tf32(*value)));
        if !self.bounded {
            return Approx::exact(factors.map(|(a, b)| a.value * b.value).sum());
        }
        layer.arithmetic.sum(factors.map(|(a, b)| layer.arithmetic.mul(a, b)))
    }

    /// Rounds values to the GEMM operand type.
    fn stored(&self, values: &[Approx]) -> Vec<Approx> {
        let stored = |value: &Approx| match self.layer.quantized {
            None => value.stored(self.layer.y.dtype),
            Some(quantized) => quantized.stored(*value),
        };
        values.iter().map(stored).collect()
    }

    /// The first state: optionally projected, rounded to its storage type.
    fn first(&self, own: &[Approx]) -> Vec<Approx> {
        let own = self.stored(own);
        match self.layer.op.cell.projected {
            false => own,
            true => {
                let sums = (0..self.layer.size).map(|unit| self.dot("projection", unit, &own));
                self.stored(&sums.collect::<Vec<_>>())
            }
        }
    }

    fn statistics_of(&self, values: &[Approx], epsilon: f64) -> [Approx; 2] {
        let arithmetic = self.layer.arithmetic;
        let count = Approx::exact(values.len() as f64);
        let mean = arithmetic.div(arithmetic.sum(values.iter().copied()), count);
        let squares = values.iter().map(|value| {
            let apart = arithmetic.sub(*value, mean);
            arithmetic.mul(apart, apart)
        });
        let variance = arithmetic.div(arithmetic.sum(squares), count);
        let epsilon = arithmetic.operand(epsilon, 0.0);
        [mean, arithmetic.rsqrt(arithmetic.add(variance, epsilon))]
    }

    fn program(&self, program: &Program, inputs: &[Approx]) -> Vec<Approx> {
        if self.bounded {
            let activations = self.layer.op.activations(self.layer.y.dtype);
            return bound::program(program, inputs, activations);
        }
        let values: Vec<f64> = inputs.iter().map(|input| input.value).collect();
        program.eval(&values).into_iter().map(Approx::exact).collect()
    }
}

/// Results of all sequences, filled as they complete.
struct Results<'a> {
    op: &'a Recurrence,
    slots: &'a [&'static str],
    outputs: &'a [&'a TensorDesc],
    expected: Vec<Expected>,
}

impl<'a> Results<'a> {
    fn new(
        layer: &Layer<'a>,
        slots: &'a [&'static str],
        outputs: &'a [&'a TensorDesc],
    ) -> Results<'a> {
        let op = layer.op;
        let filled = |(tensor, slot): (&&TensorDesc, &&str)| {
            let count = tensor.elements().unwrap_or(0) as usize;
            let fill = match (*slot, layer.quantized) {
                ("saved", _) => 0.0,
                ("y", Some(quantized)) => quantized.stored(Approx::exact(op.fill.get())).value,
                _ => tensor.dtype.round(op.fill.get()),
            };
            Expected { values: vec![fill; count], bounds: vec![0.0; count] }
        };
        let expected = outputs.iter().zip(slots).map(filled).collect();
        Results { op, slots, outputs, expected }
    }

    /// Writes states to a result; a packed row may belong to a wider matrix.
    fn write(&mut self, slot: &str, first: [usize; 2], values: &[f64], errors: &[f64]) {
        let Some(at) = self.slots.iter().position(|known| *known == slot) else { return };
        let (tensor, expected) = (self.outputs[at], &mut self.expected[at]);
        let width = tensor.dims[2] as usize;
        let [matrix_row, column] = first;
        for (unit, (value, error)) in values.iter().zip(errors).enumerate() {
            let stored = Approx { value: *value, error: *error }.stored(tensor.dtype);
            let own = matrix_row * width + column + unit;
            (expected.values[own], expected.bounds[own]) = (stored.value, stored.error);
        }
    }

    /// Writes `y`, `history` and `saved` after a step.
    fn step(&mut self, direction: usize, row: usize, states: &States, errors: &States) {
        let rows = self.outputs[0].dims[1] as usize;
        let outputs = self.op.cell.outputs();
        let size = states[0].len() * outputs;
        let place = match self.op.apart {
            true => [direction * rows + row, 0],
            false => [row, direction * size],
        };
        self.concatenated("y", place, &states[..outputs], &errors[..outputs]);
        let place = [direction * rows + row, 0];
        self.others("history", place, states, errors);
        let count = self.op.cell.states.len();
        self.concatenated("saved", place, &states[count..], &errors[count..]);
    }

    fn finish(&mut self, direction: usize, b: usize, states: &States, errors: &States) {
        let place = [direction * self.op.batch as usize + b, 0];
        let outputs = self.op.cell.outputs();
        self.concatenated("h_final", place, &states[..outputs], &errors[..outputs]);
        self.others("states_final", place, states, errors);
    }

    fn others(&mut self, slot: &str, place: [usize; 2], states: &States, errors: &States) {
        let others = self.op.cell.outputs()..self.op.cell.states.len();
        self.concatenated(slot, place, &states[others.clone()], &errors[others]);
    }

    fn concatenated(
        &mut self,
        slot: &str,
        [row, column]: [usize; 2],
        values: &[Vec<f64>],
        errors: &[Vec<f64>],
    ) {
        for (at, (values, errors)) in values.iter().zip(errors).enumerate() {
            self.write(slot, [row, column + at * values.len()], values, errors);
        }
    }
}

/// Deterministic pseudo-random numbers in (-1, 1).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}
