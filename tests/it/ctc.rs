//! CTC losses: every form of the kernel at every edge, what is refused with which words, and what a
//! loss costs.

use kiln::expr::Math;
use kiln::graph::{CtcInfinite, CtcInput, CtcLoss, Matmul, Op, Reduction, ReductionOp};
use kiln::plan::random_values;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc, engine, reference};
use kiln_sim::InstructionClass;
use serde_json::{Value, json};

use crate::cases::Agreement;
use crate::harness::{self, Values};
use crate::settings;

/// Where steps, sequences and classes are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lay {
    /// Packed as `[T, N, A]`.
    Steps,
    /// Packed as `[N, T, A]`.
    Sequences,
    /// Classes furthest apart, with gaps of odd length.
    Apart,
}

/// A loss and its tensors.
#[derive(Debug, Clone)]
pub struct Case {
    pub op: CtcLoss,
    /// Steps, sequences, classes.
    pub dims: [i64; 3],
    /// Of `x`, of the loss and of the gradient.
    pub types: [DType; 3],
    pub lay: Lay,
    /// Whether the labels of all sequences lie one behind the other.
    pub concatenated: bool,
}

impl Case {
    pub fn new(dims: [i64; 3], label_length_max: i64) -> Case {
        let (op, types) = (CtcLoss::new(label_length_max), [DType::F32; 3]);
        Case { op, dims, types, lay: Lay::Steps, concatenated: false }
    }

    pub fn graph(&self) -> OperationGraph {
        let [steps, sequences, classes] = self.dims;
        let most = self.op.label_length_max;
        let three = |uid: i64, name: &str, dtype: DType| {
            let packed = TensorDesc::packed(uid, name, &self.dims, dtype);
            let (strides, alignment) = match self.lay {
                Lay::Steps => return packed,
                Lay::Sequences => (vec![classes, steps * classes, 1], 16),
                Lay::Apart => (vec![1, steps + 1, sequences * (steps + 1) + 3], dtype.bytes()),
            };
            TensorDesc { strides, alignment, ..packed }
        };
        let one = |uid: i64, name: &str, dtype: DType| {
            let packed = TensorDesc::packed(uid, name, &[sequences], dtype);
            let strides = if self.lay == Lay::Apart { vec![3] } else { vec![1] };
            TensorDesc { strides, ..packed }
        };
        let labels = match self.concatenated {
            true => TensorDesc::packed(2, "labels", &[sequences * most], DType::I32),
            false => {
                let packed = TensorDesc::packed(2, "labels", &[sequences, most], DType::I32);
                TensorDesc { strides: vec![most + 2, 1], ..packed }
            }
        };
        let [x, loss, dx] = self.types;
        let mut graph = OperationGraph::builder();
        let mut inputs = vec![
            graph.tensor(three(1, "x", x)),
            graph.tensor(labels),
            graph.tensor(one(3, "label_lengths", DType::I32)),
            graph.tensor(one(4, "input_lengths", DType::I32)),
        ];
        if self.op.gradient && self.op.infinite == CtcInfinite::Keep {
            inputs.push(graph.tensor(three(5, "before", dx)));
        }
        let mut outputs = vec![graph.tensor(one(6, "loss", loss))];
        if self.op.gradient {
            outputs.push(graph.tensor(three(7, "dx", dx)));
        }
        graph.operation_into(Op::CtcLoss(self.op.clone()), &inputs, &outputs);
        graph.build().unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Labels with repeats; sequences with as many steps as they need, with one less, with none,
    /// and with all; of all lengths in turn.
    pub fn values(&self) -> Values {
        let [steps, sequences, classes] = self.dims;
        let CtcLoss { label_length_max: most, blank, input, .. } = self.op;
        let mut random = fastrand::Rng::with_seed(7);
        let count = (steps * sequences * classes) as usize;
        let element = |random: &mut fastrand::Rng| {
            let value = 4.0 * random.f64() - 2.0;
            let probability = (0.2 + random.f64()) / classes as f64;
            match input {
                CtcInput::Logits => value,
                CtcInput::Probabilities => probability,
                CtcInput::LogProbabilities => probability.ln(),
            }
        };
        let x: Vec<f64> = (0..count).map(|_| self.types[0].round(element(&mut random))).collect();
        let label = |random: &mut fastrand::Rng| {
            let label = random.i64(0..(classes - 1).clamp(1, 4));
            (label + i64::from(label >= blank && classes > 1)) as f64
        };
        let mut rows = Vec::new();
        let (mut label_lengths, mut input_lengths) = (Vec::new(), Vec::new());
        for n in 0..sequences {
            let row: Vec<f64> = (0..most).map(|_| label(&mut random)).collect();
            let most = if classes > 1 { most } else { 0 };
            let length = [most, most / 2, 1.min(most), 0, (most - 1).max(0)][n as usize % 5];
            let own = &row[..length as usize];
            let needed = length + own.windows(2).filter(|pair| pair[0] == pair[1]).count() as i64;
            let all = [steps, needed, needed - 1, steps - 1, 0, steps / 2, needed + 1];
            label_lengths.push(length as f64);
            input_lengths.push(all[n as usize % 7].clamp(0, steps) as f64);
            rows.push(row);
        }
        let labels = match self.concatenated {
            false => rows.concat(),
            true => {
                let spelled = rows.iter().zip(&label_lengths);
                let own = spelled.flat_map(|(row, length)| &row[..*length as usize]);
                let own: Vec<f64> = own.copied().collect();
                // What lies behind is no class.
                let all = (sequences * most) as usize;
                own.into_iter().chain(std::iter::repeat(-9.0)).take(all).collect()
            }
        };
        let before = (0..count).map(|at| at as f64 / 8.0);
        let before = before.map(|value| self.types[2].round(value)).collect();
        let mut values = Values::from([
            (1, x),
            (2, labels),
            (3, label_lengths),
            (4, input_lengths),
            (5, before),
        ]);
        values.retain(|uid, _| self.graph().inputs().any(|tensor| tensor.uid == *uid));
        values
    }

    fn check(&self) {
        let (graph, values) = (self.graph(), self.values());
        for kiln in harness::dialects() {
            let target = kiln.device().target();
            let supported = engine::supported("ctc_loss", graph.canonical(), target).unwrap();
            let best = supported.heuristic();
            for config in [best.clone(), best.with("lattice", 1).with("threads", 1024)] {
                harness::check(kiln, &graph, Some(&config), &values, &format!("{self:?}"));
            }
        }
    }
}

/// Activations in f16 of two warps of pairs, labels one behind the other.
pub fn concatenated() -> Case {
    let case = Case::new([50, 5, 40], 33);
    Case { types: [DType::F16, DType::F32, DType::F16], concatenated: true, ..case }
}

/// Probabilities whose gradient stays where there is no loss.
pub fn kept() -> Case {
    let case = Case::new([9, 8, 5], 3);
    let op = CtcLoss { input: CtcInput::Probabilities, infinite: CtcInfinite::Keep, ..case.op };
    Case { op, ..case }
}

/// Logarithms of probabilities in f64, a loss alone.
pub fn alone() -> Case {
    let case = Case::new([9, 8, 5], 3);
    let (input, math) = (CtcInput::LogProbabilities, Math::F64);
    let op = CtcLoss { input, math, gradient: false, infinite: CtcInfinite::Zero, ..case.op };
    Case { op, types: [DType::F64; 3], ..case }
}

#[test]
fn every_input_and_every_infinite_loss() {
    for input in CtcInput::ALL {
        for infinite in CtcInfinite::ALL {
            for gradient in [true, false] {
                let case = Case::new([12, 14, 6], 4);
                let op = CtcLoss { input, infinite, gradient, blank: 2, ..case.op };
                Case { op, concatenated: gradient, ..case }.check();
            }
        }
    }
}

#[test]
fn every_type_and_layout() {
    use DType::{Bf16, F16, F32, F64};
    for (at, types) in [
        [F16, F32, F16],
        [Bf16, F32, Bf16],
        [F32, F64, F16],
        [F16, Bf16, F32],
        [F64, F64, F64],
        [F64, F32, F32],
    ]
    .into_iter()
    .enumerate()
    {
        for lay in [Lay::Steps, Lay::Sequences, Lay::Apart] {
            let case = Case::new([10, 7, 37], 5);
            let math = if types[0] == F64 { Math::F64 } else { Math::F32 };
            let input = CtcInput::ALL[at % 3];
            let op = CtcLoss { math, input, infinite: CtcInfinite::ALL[at / 2], ..case.op };
            Case { op, types, lay, concatenated: at % 2 == 0, ..case }.check();
        }
    }
}

/// Labels that fill a warp of pairs, and one more or less; two warps; as many as there may be.
#[test]
fn every_number_of_labels() {
    for (most, steps) in [(0, 3), (1, 4), (30, 50), (31, 50), (32, 50), (63, 90), (64, 90)] {
        Case::new([steps, 5, 9], most).check();
    }
    let case = Case::new([300, 1, 5], 255);
    Case { op: CtcLoss { infinite: CtcInfinite::Zero, ..case.op }, ..case }.check();
}

#[test]
fn every_extent() {
    for dims in [[0, 3, 4], [1, 7, 2], [2, 7, 3], [5, 0, 4], [5, 1, 31], [5, 2, 32], [5, 3, 33]] {
        Case::new(dims, 2).check();
        Case { concatenated: true, ..Case::new(dims, 2) }.check();
    }
    // The blank alone.
    Case::new([4, 7, 1], 2).check();
    // More sequences than lanes before the last.
    Case { concatenated: true, ..Case::new([6, 70, 4], 3) }.check();
}

/// What is not a number stays in its sequence, and where it is not read it is nowhere.
#[test]
fn what_is_not_finite() {
    for input in CtcInput::ALL {
        for infinite in CtcInfinite::ALL {
            let case = Case::new([7, 6, 5], 2);
            let case = Case { op: CtcLoss { input, infinite, ..case.op }, ..case };
            let mut values = case.values();
            values.insert(3, vec![2.0; 6]);
            values.insert(4, vec![7.0, 7.0, 7.0, 7.0, 4.0, 7.0]);
            let x = values.get_mut(&1).unwrap();
            let at = |t: usize, n: usize, k: usize| (t * 6 + n) * 5 + k;
            x[at(2, 0, 3)] = f64::NAN;
            x[at(6, 1, 0)] = f64::INFINITY;
            x[at(1, 2, 4)] = if input == CtcInput::Probabilities { 0.0 } else { f64::NEG_INFINITY };
            (0..5).for_each(|k| {
                x[at(3, 3, k)] = if input == CtcInput::Probabilities { 0.0 } else { -1e30 };
                x[at(5, 4, k)] = f64::NAN;
            });
            x[at(0, 5, 1)] = if input == CtcInput::Probabilities { -1.0 } else { -300.0 };
            let graph = case.graph();
            for kiln in harness::dialects() {
                harness::check(kiln, &graph, None, &values, &format!("{case:?}"));
            }
            let expected = reference::evaluate(&graph, &values).unwrap();
            assert!(expected[&6].values[4].is_finite() && expected[&6].values[2].is_finite());
        }
    }
}

/// Lengths and labels out of range give NaN in their sequence, and read nothing else: the
/// simulated device would report it.
#[test]
fn lengths_and_labels_out_of_range() {
    for concatenated in [false, true] {
        let case = Case { concatenated, ..Case::new([6, 9, 5], 3) };
        let graph = case.graph();
        let mut values = case.values();
        values.insert(3, vec![3.0, -1.0, 4.0, 1e9, 2.0, 3.0, 3.0, 3.0, 3.0]);
        values.insert(4, vec![6.0, 6.0, 6.0, 6.0, 7.0, -1.0, 6.0, 6.0, 6.0]);
        let mut labels = [1.0, 2.0, 3.0].repeat(9);
        // Of the seventh and the eighth sequence; lengths count as the nearest in range.
        let (outside, blank) = if concatenated { (15, 18) } else { (18, 21) };
        labels[outside] = 5.0;
        labels[blank] = 0.0;
        values.insert(2, labels);
        let expected = reference::evaluate(&graph, &values).unwrap();
        let wrong: Vec<bool> = expected[&6].values.iter().map(|loss| loss.is_nan()).collect();
        assert_eq!(wrong, [false, true, true, true, true, true, true, true, false]);
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &values, "out of range");
        }
    }
}

#[test]
fn a_gradient_that_is_kept_may_be_in_place() {
    // Their values have no label that does not fit: one has no steps.
    let graph = kept().graph();
    harness::check_added_in_place(&graph, &["ctc_loss"], 1);
}

/// What a loss costs, to the access: 128 classes and their gradient are 512 bytes a step, read
/// thrice, for the maximum, the sum and the gradient, and written once; what labels are read and
/// written for is beside it. A step of the recursion is seven functions in each of two warps,
/// without a barrier or a conflict of banks.
#[test]
fn a_loss_costs_what_it_must() {
    let [steps, sequences, classes, labels] = [64, 4, 128, 20_u64];
    let dims = [steps, sequences, classes].map(|extent| extent as i64);
    let case = Case::new(dims, labels as i64);
    let mut values = case.values();
    let own = (1..=labels).map(|label| label as f64).collect::<Vec<f64>>();
    values.insert(2, own.repeat(sequences as usize));
    values.insert(3, vec![labels as f64; sequences as usize]);
    values.insert(4, vec![steps as f64; sequences as usize]);
    for (lattice, threads) in [(0, 128), (1, 256)] {
        let config = format!("ctc_loss{{lattice={lattice}, threads={threads}}}").parse().unwrap();
        let counters = harness::count(&case.graph(), Some(&config), &values);
        let lines = steps * sequences * classes * 4;
        let around = 4 * 1024;
        let written = counters.dram_written_bytes;
        if lattice == 0 {
            // Each step: the blank and the labels, of which each has a thread of its own.
            let step = 4 * (3 * classes + 2 * (labels + 1)) + 4 * (classes + labels + 1);
            let block = 4 * (labels + 2 * threads + 1);
            assert_eq!(counters.total.global.bytes, sequences * (steps * step + block));
            let read = counters.dram_read_bytes;
            assert!((lines..lines + around).contains(&read), "{read} bytes read");
            assert!((lines..lines + around).contains(&written), "{written} bytes written");
        }
        let functions = counters.class(InstructionClass::SpecialFunction).warp_instructions;
        let lanes = classes / 32;
        let row = (lanes + 1) + (lanes + 4);
        let total = sequences * (steps * (2 * 7 + row) + 3 * threads / 32);
        assert_eq!(functions, total, "lattice={lattice}");
        assert_eq!(harness::conflicts(&counters), 0, "lattice={lattice}");
    }
}

/// A problem of 4 steps, 2 sequences and 5 classes, with changes to its keys and its tensors.
fn problem(keys: &Value, tensors: &[(&str, &str, &[i64])]) -> kiln::Result<OperationGraph> {
    let mut operation = json!({
        "ctc_loss": "logits", "label_length_max": 3, "x": "x", "labels": "labels",
        "label_lengths": "label_lengths", "input_lengths": "input_lengths", "loss": "loss",
        "dx": "dx",
    });
    for (key, value) in keys.as_object().unwrap() {
        match value.is_null() {
            true => drop(operation.as_object_mut().unwrap().remove(key)),
            false => operation[key] = value.clone(),
        }
    }
    let mut all = vec![
        ("x", "f32", &[4, 2, 5][..]),
        ("labels", "i32", &[2, 3]),
        ("label_lengths", "i32", &[2]),
        ("input_lengths", "i32", &[2]),
        ("loss", "f32", &[2]),
        ("dx", "f32", &[4, 2, 5]),
        ("before", "f32", &[4, 2, 5]),
    ];
    for tensor in tensors {
        all.retain(|(name, ..)| name != &tensor.0);
        all.push(*tensor);
    }
    let used = |name: &str| operation.as_object().unwrap().values().any(|value| value == name);
    let tensors: Vec<Value> = all
        .into_iter()
        .filter(|(name, ..)| used(name))
        .map(|(name, dtype, dims)| json!({"name": name, "dtype": dtype, "dims": dims}))
        .collect();
    let problem = json!({"graph": {"tensors": tensors, "operations": [operation]}});
    OperationGraph::from_json(&problem.to_string())
}

#[test]
fn what_is_refused() {
    for (keys, tensors, words) in [
        (
            json!({"ctc_loss": "softmax"}),
            vec![],
            "ctc_loss: key `ctc_loss` is `softmax`, expected \
          one of logits, probabilities, log_probabilities",
        ),
        (json!({"label_length_max": null}), vec![], "ctc_loss: key `label_length_max` is missing"),
        (
            json!({"label_length_max": 256}),
            vec![],
            "ctc_loss: label_length_max is 256, expected 0 \
          to 255",
        ),
        (
            json!({"label_length_max": -1}),
            vec![],
            "ctc_loss: label_length_max is -1, expected 0 \
          to 255",
        ),
        (json!({"blank": 5}), vec![], "ctc_loss: blank is 5, `x` has 5 classes"),
        (json!({"blank": -1}), vec![], "ctc_loss: blank is -1, `x` has 5 classes"),
        (
            json!({"infinite": "never"}),
            vec![],
            "ctc_loss: key `infinite` is `never`, expected one \
          of propagate, zero, keep",
        ),
        (json!({"infinite": "keep"}), vec![], "ctc_loss: key `dx_before` is missing"),
        (json!({"dx_before": "before"}), vec![], "ctc_loss: unknown key `dx_before`"),
        (json!({"math": "i32"}), vec![], "ctc_loss: not defined for math i32"),
        (
            json!({}),
            vec![("x", "f32", &[4, 10][..])],
            "ctc_loss: x `x` is [4, 10], expected \
          [T, N, A]",
        ),
        (
            json!({}),
            vec![("x", "i32", &[4, 2, 5][..])],
            "ctc_loss: x `x` is i32, expected a \
          floating-point type",
        ),
        (
            json!({}),
            vec![("x", "f8e4m3", &[4, 2, 5][..])],
            "ctc_loss: x `x` is f8e4m3, expected a floating-point type",
        ),
        (
            json!({}),
            vec![("labels", "i32", &[2, 2][..])],
            "ctc_loss: labels `labels` is [2, 2], \
          expected [M] or [2, 3 or more]",
        ),
        (
            json!({}),
            vec![("labels", "i32", &[3, 3][..])],
            "ctc_loss: labels `labels` is [3, 3], \
          expected [M] or [2, 3 or more]",
        ),
        (
            json!({}),
            vec![("labels", "f32", &[2, 3][..])],
            "ctc_loss: `labels` is f32, expected i32",
        ),
        (
            json!({}),
            vec![("label_lengths", "i32", &[3][..])],
            "ctc_loss: `label_lengths` is [3], \
          expected [2]",
        ),
        (
            json!({}),
            vec![("input_lengths", "i64", &[2][..])],
            "ctc_loss: `input_lengths` is i64, \
          expected i32",
        ),
        (json!({}), vec![("loss", "f32", &[2, 1][..])], "ctc_loss: `loss` is [2, 1], expected [2]"),
        (
            json!({}),
            vec![("loss", "i32", &[2][..])],
            "ctc_loss: `loss` is i32, expected a \
          floating-point type",
        ),
        (
            json!({}),
            vec![("dx", "f32", &[4, 2, 6][..])],
            "ctc_loss: dx `dx` is [4, 2, 6], x `x` \
          is [4, 2, 5]",
        ),
        (
            json!({"infinite": "keep", "dx_before": "before"}),
            vec![("before", "f32", &[4, 2, 4][..])],
            "ctc_loss: `before` is [4, 2, 4], what it is added to, `dx`, is [4, 2, 5]",
        ),
    ] {
        let error = problem(&keys, &tensors).expect_err(words);
        assert_eq!((error.to_string().as_str(), error.kind()), (words, ErrorKind::BadParam));
    }
    let refused = |graph: &OperationGraph, words: &str| {
        let target = harness::kiln().device().target();
        let error = engine::supported("ctc_loss", graph.canonical(), target).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.kind()), (words, ErrorKind::NotSupported));
    };
    let long =
        problem(&json!({}), &[("x", "f32", &[1 << 28, 2, 5]), ("dx", "f32", &[1 << 28, 2, 5])]);
    let words = "5905580032 numbers of a sequence's lattice, more than 2147483647";
    refused(&long.unwrap(), words);
}

/// A document is what was written of it, and a text says what is not usual.
#[test]
fn documents_and_texts() {
    let texts = [
        "ctc_loss{logits, label_length_max=33}",
        "ctc_loss{probabilities, label_length_max=3, infinite=keep}",
        "ctc_loss{log_probabilities, label_length_max=3, f64, infinite=zero}",
    ];
    for (case, text) in [concatenated(), kept(), alone()].into_iter().zip(texts) {
        let graph = case.graph();
        assert!(graph.to_string().contains(text), "{graph}");
        let again = OperationGraph::from_json(&graph.to_json()).unwrap();
        assert_eq!(again.to_json(), graph.to_json());
        assert_eq!(again.digest(), graph.digest());
    }
    let error = problem(&json!({"infinite": "keep", "dx": null}), &[]);
    assert!(error.is_ok(), "without a gradient nothing is kept: {error:?}");
}

/// Graphs that other operations are part of run in parts: logits of a product, and the mean of
/// losses.
#[test]
fn a_loss_between_other_operations() {
    let mut graph = OperationGraph::builder();
    let h = graph.input("h", &[6, 4, 16], DType::F32);
    let w = graph.input("w", &[1, 16, 5], DType::F32);
    let labels = graph.input("labels", &[4, 2], DType::I32);
    let [lengths, steps] = ["lengths", "steps"].map(|name| graph.input(name, &[4], DType::I32));
    let wide = graph.reshape(h, &[1, 24, 16]).unwrap();
    let logits = graph.matmul(Matmul::default(), wide, w).unwrap();
    let logits = graph.reshape(logits, &[6, 4, 5]).unwrap();
    let op = Op::CtcLoss(CtcLoss::new(2));
    let results = graph.operation(op, &[logits, labels, lengths, steps]).unwrap();
    let mean = graph.reduction(Reduction::new(ReductionOp::Avg), results[0], &[1]).unwrap();
    graph.output(mean, "mean", DType::F32);
    graph.output(results[1], "dlogits", DType::F32);
    let graph = graph.build().unwrap();
    let values = random_values(&graph, 3).unwrap();
    for kiln in harness::dialects() {
        harness::check(kiln, &graph, None, &values, "in parts");
    }
}

#[test]
fn every_setting_gives_the_same_bits() {
    for case in [concatenated(), kept(), alone()] {
        settings::agree(&case.graph(), &case.values(), "ctc_loss", usize::MAX, Agreement::Order);
    }
}
