//! Recurrent networks of 8-bit integers through C: bit for bit what the Rust interface computes,
//! and as near to the network in float as rounding allows.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use kiln::device::DeviceChoice;
use kiln::graph::{Direction, Quantization, RowLayout};
use kiln::layers::RnnPack;
use kiln::rnn::{CellKind, Rnn, Role, WeightKind, WeightSpace};
use kiln::{Config, DType, Kiln};

use crate::harness::{compile, run_on, scratch, succeeded};

const BATCH: usize = 3;
const STEPS: usize = 5;

struct Case {
    name: &'static str,
    kind: CellKind,
    layers: i64,
    direction: Direction,
    /// Elements of an input vector, and hidden units.
    sizes: [usize; 2],
    layout: RowLayout,
    dtype: DType,
    quantization: Quantization,
    lengths: [usize; BATCH],
    /// The integer of outputs beyond the lengths.
    fill: i8,
}

/// A number of several tensors, of absolute value below a half.
fn noise(at: usize, tensor: usize) -> f64 {
    ((at + 1) * 89 * (tensor + 1) % 251) as f64 / 251.0 - 0.5
}

impl Case {
    /// The network in float.
    fn rnn(&self) -> Rnn {
        let [input, hidden] = self.sizes.map(|size| size as i64);
        let rnn = Rnn::new(self.kind, input, hidden).layers(self.layers);
        rnn.direction(self.direction).layout(self.layout)
    }

    fn quantised(&self) -> Rnn {
        let Quantization { scale, shift } = self.quantization;
        let fill = (f64::from(self.fill) - shift as f64) / scale.get();
        self.rnn().quantised(self.dtype, self.quantization).fill(fill)
    }

    fn states(&self) -> usize {
        self.layers as usize * self.rnn().directions() as usize
    }

    /// The row of a step of a sequence.
    fn row(&self, step: usize, sequence: usize) -> usize {
        match self.layout {
            RowLayout::SequenceMajor => step * BATCH + sequence,
            RowLayout::BatchMajor => sequence * STEPS + step,
            RowLayout::Packed => {
                let before = |at: usize| self.lengths.iter().filter(move |length| **length > at);
                (0..step).map(|at| before(at).count()).sum::<usize>() + sequence
            }
        }
    }

    fn rows(&self) -> usize {
        match self.layout {
            RowLayout::Packed => self.lengths.iter().sum(),
            _ => BATCH * STEPS,
        }
    }

    /// An integer for each element of a tensor.
    fn integers(&self, count: usize, tensor: usize) -> Vec<u8> {
        let Quantization { scale, shift } = self.quantization;
        let integer = |at| (2.0 * noise(at, tensor) * scale.get()).round() + shift as f64;
        let bytes = (0..count).map(|at| {
            let mut byte = [0];
            self.dtype.write(integer(at), &mut byte);
            byte[0]
        });
        bytes.collect()
    }

    /// What an integer stands for.
    fn number(&self, integer: u8) -> f64 {
        let Quantization { scale, shift } = self.quantization;
        (self.dtype.read(&[integer]) - shift as f64) / scale.get()
    }

    fn weights(&self) -> Vec<f64> {
        let count = WeightSpace::new(&self.rnn()).unwrap().elements() as usize;
        let root = (self.sizes[1] as f64).sqrt();
        (0..count).map(|at| DType::F32.round(noise(at, 3) / root)).collect()
    }
}

/// The tensors of a case: integers of `x` and `hx`, numbers of `cx` and the weights.
struct Given {
    x: Vec<u8>,
    hx: Vec<u8>,
    cx: Vec<f64>,
    weights: Vec<f64>,
}

impl Given {
    fn of(case: &Case) -> Given {
        let count = case.states() * BATCH * case.sizes[1];
        Given {
            x: case.integers(case.rows() * case.sizes[0], 0),
            hx: case.integers(count, 1),
            cx: (0..count).map(|at| DType::F32.round(noise(at, 2))).collect(),
            weights: case.weights(),
        }
    }
}

fn floats(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as f32).to_ne_bytes()).collect()
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).unwrap()
}

fn read_floats(folder: &Path, name: &str) -> Vec<f64> {
    let bytes = read(folder, name);
    bytes.as_chunks::<4>().0.iter().map(|of| f32::from_ne_bytes(*of).into()).collect()
}

/// Runs the program on a case, on a device as [`run_on`] takes it; gives the folder of what it has
/// written.
fn in_c(case: &Case, given: &Given, device: Option<&str>) -> PathBuf {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| compile("rnn_int8"));
    let folder = scratch(&format!("integers/{}", case.name));
    fs::write(folder.join("x"), &given.x).unwrap();
    fs::write(folder.join("hx"), &given.hx).unwrap();
    fs::write(folder.join("cx"), floats(&given.cx)).unwrap();
    fs::write(folder.join("weights"), floats(&given.weights)).unwrap();
    let cells = [CellKind::Relu, CellKind::Tanh, CellKind::Lstm, CellKind::Gru];
    let layouts = [RowLayout::SequenceMajor, RowLayout::Packed, RowLayout::BatchMajor];
    let numbers = [
        cells.iter().position(|of| *of == case.kind).unwrap() as i64,
        case.layers,
        case.rnn().directions() - 1,
        case.sizes[0] as i64,
        case.sizes[1] as i64,
        BATCH as i64,
        STEPS as i64,
        layouts.iter().position(|of| *of == case.layout).unwrap() as i64,
        if case.dtype == DType::I8 { 3 } else { 6 },
    ];
    let mut arguments = vec![folder.display().to_string()];
    arguments.extend(numbers.map(|number| number.to_string()));
    arguments.push(case.quantization.scale.to_string());
    arguments.push(case.quantization.shift.to_string());
    arguments.push(case.fill.to_string());
    arguments.extend(case.lengths.map(|length| length.to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    succeeded(run_on(device, &PROGRAM, &arguments), &arguments);
    folder
}

/// The bytes of `y`, `hy` and `cy`, and of the weight space, from the Rust interface.
fn in_rust(case: &Case, given: &Given) -> ([Vec<u8>; 3], Vec<u8>) {
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    let config = Config { device, cache_dir: Some(scratch("cache")), ..Config::default() };
    let kiln = Kiln::open(config).unwrap();
    let rnn = case.quantised();
    let weights = rnn.quantise_weights(&given.weights, |row| row.factor()).unwrap();
    let mut space = rnn.encode(&weights);
    let integers = WeightSpace::new(&rnn).unwrap().elements_of(Role::Weights) as usize;
    let numbers = space.split_off(integers);
    let lengths: Vec<u8> = case.lengths.iter().flat_map(|of| (*of as i32).to_ne_bytes()).collect();
    let upload = |bytes: &[u8]| kiln.device().upload(bytes).unwrap();
    let width = case.rnn().output_size() as usize;
    let sizes = [case.rows() * width, given.hx.len(), 4 * given.cx.len()];
    let outputs = sizes.map(|bytes| upload(&vec![0; bytes]));
    let mut pack = RnnPack::new();
    for (role, bytes) in [
        (Role::Input, &given.x),
        (Role::HInitial, &given.hx),
        (Role::Weights, &space),
        (Role::WeightNumbers, &numbers),
        (Role::Lengths, &lengths),
    ] {
        pack = pack.with(role, &upload(bytes));
    }
    pack = pack.with(Role::Output, &outputs[0]).with(Role::HFinal, &outputs[1]);
    if case.kind == CellKind::Lstm {
        pack = pack.with(Role::StatesInitial, &upload(&floats(&given.cx)));
        pack = pack.with(Role::StatesFinal, &outputs[2]);
    }
    let mut built = kiln.rnn(&rnn, BATCH as i64).unwrap();
    let (stream, rows) = (kiln.stream(), case.rows() as i64);
    let with = pack.optional();
    let workspace = kiln.device().alloc(built.temp_space(rows, with).unwrap().workspace_bytes);
    let pack = pack.with_workspace(&workspace.unwrap());
    match case.layout {
        RowLayout::Packed => built.forward_packed(&stream, rows, &pack),
        _ => built.forward(&stream, STEPS as i64, &pack),
    }
    .unwrap();
    stream.synchronize().unwrap();
    space.resize(integers.next_multiple_of(16), 0);
    space.extend(numbers);
    (outputs.map(|output| output.to_vec().unwrap()), space)
}

/// A number of the network in float, and how far off that of integers may be.
#[derive(Debug, Clone, Copy, Default)]
struct Off {
    value: f64,
    error: f64,
}

/// Beside rounding to integers: sums of f32, and activations within 2^-21.
const FLOAT_ERROR: f64 = 2e-6;

impl Off {
    fn product(self, by: Off) -> Off {
        let error = (self.value.abs() + self.error) * by.error + by.value.abs() * self.error;
        Off { value: self.value * by.value, error }
    }

    fn plus(self, other: Off) -> Off {
        Off { value: self.value + other.value, error: self.error + other.error }
    }

    /// The least distance from 0, where activations are steepest.
    fn nearest(self) -> f64 {
        (self.value.abs() - self.error).max(0.0)
    }

    fn sigmoid(self) -> Off {
        let of = |value: f64| 1.0 / (1.0 + (-value).exp());
        let slope = of(self.nearest()) * (1.0 - of(self.nearest()));
        Off { value: of(self.value), error: self.error * slope + FLOAT_ERROR }
    }

    fn tanh(self) -> Off {
        let slope = 1.0 - self.nearest().tanh().powi(2);
        Off { value: self.value.tanh(), error: self.error * slope + FLOAT_ERROR }
    }
}

/// `y`, `hy` and `cy` of an LSTM: `y` by row.
struct Bounded {
    y: Vec<Vec<Off>>,
    hy: Vec<Off>,
    cy: Vec<Off>,
}

/// A row of weights times a vector. Each weight of the row is off by half of what an integer stands
/// for, of which the largest one is 127.
fn row_product(row: &[f64], vector: &[Off]) -> Off {
    let largest = row.iter().map(|weight| weight.abs()).fold(0.0, f64::max);
    let error = 0.5 * largest / 127.0 * (1.0 + 1e-5);
    let products =
        row.iter().zip(vector).map(|(weight, of)| of.product(Off { value: *weight, error }));
    products.fold(Off { value: 0.0, error: FLOAT_ERROR }, Off::plus)
}

/// The LSTM in f64, with what rounding to integers makes of it at the most.
fn bounded(case: &Case, given: &Given) -> Bounded {
    let (rnn, [input, hidden]) = (case.rnn(), case.sizes);
    let (space, directions) = (WeightSpace::new(&rnn).unwrap(), rnn.directions() as usize);
    let part = |at, kind| {
        let block = space.block(at, kind).unwrap();
        let first = block.offset as usize;
        (&given.weights[first..first + (block.rows * block.columns) as usize], block.columns)
    };
    let exact = |value: f64| Off { value, error: 0.0 };
    let own = |integer: &u8| exact(case.number(*integer));
    let mut below: Vec<Vec<Off>> =
        given.x.chunks(input).map(|row| row.iter().map(own).collect()).collect();
    let (mut hy, mut cy) = (Vec::new(), Vec::new());
    for layer in 0..case.layers as usize {
        let mut y = vec![vec![Off::default(); directions * hidden]; case.rows()];
        for direction in 0..directions {
            let at = layer * directions + direction;
            let kinds = [WeightKind::Input, WeightKind::Recurrent];
            let [(w, columns), (r, _)] = kinds.map(|kind| part(at, kind));
            let kinds = [WeightKind::InputBias, WeightKind::RecurrentBias];
            let biases = kinds.map(|kind| part(at, kind).0);
            for sequence in 0..BATCH {
                let first = (at * BATCH + sequence) * hidden;
                let mut h: Vec<Off> = given.hx[first..first + hidden].iter().map(own).collect();
                let mut c: Vec<Off> =
                    given.cx[first..first + hidden].iter().map(|value| exact(*value)).collect();
                let length = case.lengths[sequence];
                for step in 0..length {
                    let step = if direction == 1 { length - 1 - step } else { step };
                    let row = case.row(step, sequence);
                    let gate = |at: usize| {
                        let of = |matrix: &[f64], columns: usize, vector: &[Off]| {
                            row_product(&matrix[at * columns..][..columns], vector)
                        };
                        let bias = exact(biases[0][at] + biases[1][at]);
                        of(w, columns as usize, &below[row]).plus(of(r, hidden, &h)).plus(bias)
                    };
                    let gates: Vec<Off> = (0..4 * hidden).map(gate).collect();
                    for unit in 0..hidden {
                        let [i, f, g, o] = [0, 1, 2, 3].map(|of| gates[of * hidden + unit]);
                        let kept = f.sigmoid().product(c[unit]);
                        c[unit] = kept.plus(i.sigmoid().product(g.tanh()));
                        let mut new = o.sigmoid().product(c[unit].tanh());
                        new.error += 0.5 / case.quantization.scale.get() * (1.0 + 1e-5);
                        h[unit] = new;
                    }
                    y[row][direction * hidden..][..hidden].copy_from_slice(&h);
                }
                hy.extend(h);
                cy.extend(c);
            }
        }
        below = y;
    }
    Bounded { y: below, hy, cy }
}

/// Compares what both networks have computed of a tensor; gives the largest error that was allowed.
fn compare(what: &str, bounds: &[Off], integers: &[f64], in_float: &[f64]) -> f64 {
    assert_eq!((integers.len(), in_float.len()), (bounds.len(), bounds.len()), "{what}");
    for (at, Off { value, error }) in bounds.iter().enumerate() {
        let (own, float) = (integers[at], in_float[at]);
        assert!((float - value).abs() <= 1e-5, "{what}[{at}] is {float} in float, {value} in f64");
        let off = (own - float).abs();
        assert!(
            off <= error + 1e-5,
            "{what}[{at}] is {own}, in float {float}: off by more than {error}"
        );
    }
    bounds.iter().map(|of| of.error).fold(0.0, f64::max)
}

/// An LSTM of integers is as near to that of float as rounding of weights and states allows.
fn check_bounds(case: &Case, given: &Given, folder: &Path) {
    let bounded = bounded(case, given);
    let numbers = |name| read(folder, name).iter().map(|of| case.number(*of)).collect::<Vec<_>>();
    let (y, y_float) = (numbers("y"), read_floats(folder, "y_float"));
    let width = case.rnn().output_size() as usize;
    let mut largest: f64 = 0.0;
    for sequence in 0..BATCH {
        for step in 0..case.lengths[sequence] {
            let row = case.row(step, sequence);
            let of = row * width..(row + 1) * width;
            let what = format!("{}: y of step {step}", case.name);
            let most = compare(&what, &bounded.y[row], &y[of.clone()], &y_float[of]);
            largest = largest.max(most);
        }
    }
    let what = |name| format!("{}: {name}", case.name);
    compare(&what("hy"), &bounded.hy, &numbers("hy"), &read_floats(folder, "hy_float"));
    let cy = read_floats(folder, "cy");
    compare(&what("cy"), &bounded.cy, &cy, &read_floats(folder, "cy_float"));
    let most = y_float.iter().fold(0.0, |most: f64, of| most.max(of.abs()));
    assert!(most > 5.0 * largest, "{}: {largest} of {most} may be off", case.name);
}

/// Outputs beyond the lengths are the integer that the descriptor of `y` gives.
fn check_fill(case: &Case, y: &[u8]) {
    let width = case.rnn().output_size() as usize;
    for sequence in (0..BATCH).filter(|_| case.layout != RowLayout::Packed) {
        for step in case.lengths[sequence]..STEPS {
            let row = &y[case.row(step, sequence) * width..][..width];
            assert!(row.iter().all(|of| *of == case.fill as u8), "{}: {row:?}", case.name);
        }
    }
}

#[test]
fn networks_of_integers() {
    use RowLayout::{BatchMajor, Packed, SequenceMajor};
    let case = |name,
                kind,
                layers,
                direction,
                sizes,
                layout,
                dtype,
                quantization,
                lengths,
                fill| {
        let quantization: (f64, i64) = quantization;
        let quantization = Quantization::new(quantization.0, quantization.1);
        Case { name, kind, layers, direction, sizes, layout, dtype, quantization, lengths, fill }
    };
    let (whole, ragged, falling) = ([STEPS; BATCH], [3, 5, 0], [5, 4, 2]);
    let (one, both) = (Direction::Forward, Direction::Both);
    let (u8, i8) = (DType::U8, DType::I8);
    use CellKind::{Gru, Lstm, Relu, Tanh};
    let (shifted, plain) = ((100.0, 128), (120.5, 0));
    let cases = [
        case("lstm", Lstm, 1, one, [12, 16], SequenceMajor, i8, plain, whole, 0),
        case("lstm_2_both", Lstm, 2, both, [12, 16], SequenceMajor, u8, shifted, ragged, 77),
        case("lstm_2_both_i8", Lstm, 2, both, [7, 5], BatchMajor, i8, plain, ragged, -9),
        case("lstm_packed", Lstm, 2, both, [8, 16], Packed, u8, shifted, falling, 0),
        case("gru", Gru, 2, both, [6, 10], SequenceMajor, u8, (63.0, 128), ragged, 1),
        // Behind whose 18 and 40 integers numbers are aligned.
        case("tanh", Tanh, 1, one, [3, 3], SequenceMajor, i8, plain, whole, 0),
        case("relu", Relu, 1, one, [3, 5], BatchMajor, u8, (20.0, 3), ragged, 5),
    ];
    for (turn, case) in cases.iter().enumerate() {
        let given = Given::of(case);
        // By turns on the simulator and behind CUDA's driver, which is simulated.
        let folder = in_c(case, &given, [Some("sim"), None][turn % 2]);
        let (outputs, weights) = in_rust(case, &given);
        assert!(read(&folder, "weights_int8") == weights, "{}: weights", case.name);
        for (name, expected) in ["y", "hy", "cy"].into_iter().zip(&outputs) {
            assert!(read(&folder, name) == *expected, "{}: {name} is not Rust's", case.name);
        }
        check_fill(case, &outputs[0]);
        if case.kind == Lstm {
            check_bounds(case, &given, &folder);
        }
    }
}
