//! Pointwise loops as operations of a graph: their document, what is refused, every order, type and
//! shape against the reference.

use kiln::expr::{Mode, Pointwise, Program};
use kiln::graph::{LoopFrame, Op, Operation, PointwiseLoop};
use kiln::{DType, OperationGraph, TensorDesc};

use crate::harness::{self, Values};

/// Operands and results of a loop by name.
pub struct Case {
    pub op: PointwiseLoop,
    pub tensors: Vec<TensorDesc>,
    pub inputs: usize,
}

impl Case {
    pub fn graph(&self) -> OperationGraph {
        self.built().unwrap_or_else(|error| panic!("{error}"))
    }

    fn built(&self) -> kiln::Result<OperationGraph> {
        let uids: Vec<i64> = self.tensors.iter().map(|tensor| tensor.uid).collect();
        let (inputs, outputs) = uids.split_at(self.inputs);
        let op = Op::PointwiseLoop(self.op.clone());
        let operation = Operation { op, inputs: inputs.to_vec(), outputs: outputs.to_vec() };
        OperationGraph::new(self.tensors.clone(), vec![operation])
    }

    pub fn values(&self, numbers: &[(&str, f64)]) -> Values {
        let graph = self.graph();
        let spread = |(at, tensor): (usize, &TensorDesc)| {
            let named = numbers.iter().find(|(name, _)| *name == tensor.name);
            let values = match named {
                Some((_, number)) => vec![*number; tensor.elements().unwrap() as usize],
                None => harness::fill(tensor, at as u64 + 1, 1.0),
            };
            (tensor.uid, values)
        };
        graph.inputs().enumerate().map(spread).collect()
    }
}

fn tensors(all: &[(&str, &[i64], DType)]) -> Vec<TensorDesc> {
    let made = all.iter().enumerate();
    made.map(|(at, (name, dims, dtype))| TensorDesc::packed(at as i64 + 1, *name, dims, *dtype))
        .collect()
}

/// Discounted sums of rows in 16 bits, from the front and from the end, with the last of them.
pub fn scan() -> Case {
    let mut program = Program::new();
    let sum = program.input("sum", DType::F32);
    let [x, y] = ["x", "y"].map(|name| program.input(name, DType::F16));
    let gamma = program.input("gamma", DType::F32);
    let op = Pointwise::new;
    let kept = program.push("kept", op(Mode::Mul), &[gamma, sum], DType::F32).unwrap();
    let both = program.push("both", op(Mode::Add), &[x, y], DType::F32).unwrap();
    let next = program.push("next", op(Mode::Add), &[kept, both], DType::F32).unwrap();
    let small = program.push("small", op(Mode::Identity), &[next], DType::F16).unwrap();
    [next, small, kept].into_iter().for_each(|value| program.output(value));
    let op = PointwiseLoop {
        program: program.into(),
        frame: LoopFrame {
            states: 1,
            iterated: vec![false, true],
            captured: 1,
            last: vec![true],
            stacked: vec![false, true],
            count: true,
            condition: false,
            trips_max: 0,
        },
    };
    let tensors = tensors(&[
        ("n", &[1], DType::I32),
        ("start", &[3, 40], DType::F32),
        ("x", &[9, 3, 40], DType::F16),
        ("y", &[11, 3, 40], DType::F16),
        ("gamma", &[1, 40], DType::F32),
        ("last", &[3, 40], DType::F32),
        ("sums", &[10, 3, 40], DType::F16),
        ("kept", &[8, 3, 40], DType::F32),
    ]);
    Case { op, tensors, inputs: 5 }
}

/// Doublings until a counter, of one element, is at its end.
pub fn doubled() -> Case {
    let mut program = Program::new();
    let i = program.input("i", DType::I32);
    let x = program.input("x", DType::F64);
    let [n, one] = ["n", "one"].map(|name| program.input(name, DType::I32));
    let op = Pointwise::new;
    let next = program.push("next_i", op(Mode::Add), &[i, one], DType::I32).unwrap();
    let sum = program.push("next_x", op(Mode::Add), &[x, x], DType::F64).unwrap();
    let more = program.push("more", op(Mode::CmpLt), &[i, n], DType::Bool).unwrap();
    [next, sum, i, more].into_iter().for_each(|value| program.output(value));
    let op = PointwiseLoop {
        program: program.into(),
        frame: LoopFrame {
            states: 2,
            iterated: vec![],
            captured: 2,
            last: vec![false, true],
            stacked: vec![false],
            count: false,
            condition: true,
            trips_max: 6,
        },
    };
    let tensors = tensors(&[
        ("start", &[1], DType::I32),
        ("x", &[70], DType::F64),
        ("n", &[1], DType::I32),
        ("one", &[1], DType::I32),
        ("last", &[70], DType::F64),
        ("counted", &[9, 1], DType::I32),
        ("trips", &[1], DType::I32),
    ]);
    Case { op, tensors, inputs: 4 }
}

#[test]
fn scans_and_counters_in_every_setting() {
    let counts = [-3.0, 0.0, 1.0, 4.0, 8.0, 9.0, 10.0, 13.0];
    for kiln in harness::dialects() {
        for (case, name, counts) in
            [(scan(), "n", &counts[..]), (doubled(), "n", &[-1.0, 0.0, 3.0, 6.0, 7.0, 99.0])]
        {
            let graph = case.graph();
            let text = graph.to_json();
            assert_eq!(OperationGraph::from_json(&text).unwrap(), graph, "{text}");
            let plan = kiln.plan(&graph).unwrap();
            assert_eq!(plan.kernels().len(), 1);
            for count in counts {
                let inputs = case.values(&[(name, *count), ("start", 0.5), ("one", 1.0)]);
                let actual = harness::run_plan(kiln, &plan, &inputs).unwrap();
                harness::compare(&graph, &inputs, &actual, &format!("{count} trips"));
            }
        }
    }
}

/// What is iterated is read once, and what is stacked written once, whatever is ahead.
#[test]
fn elements_are_read_once() {
    let mut case = scan();
    // The count is as many as there are elements and rooms for.
    for (at, extent) in [(2, 8), (3, 8), (6, 8), (7, 8)] {
        let TensorDesc { uid, name, dtype, .. } = case.tensors[at].clone();
        case.tensors[at] = TensorDesc::packed(uid, name, &[extent, 3, 40], dtype);
    }
    let graph = case.graph();
    let inputs = case.values(&[("n", 8.0)]);
    let bytes = |at: usize| case.tensors[at].span_bytes().unwrap();
    let all: u64 = (1..4).chain(5..8).map(bytes).sum();
    for ahead in [1, 4, 8] {
        let knobs = [("ahead", ahead), ("threads", 64)];
        let config = kiln::engine::EngineConfig::new("pointwise_loop", &knobs);
        let counted = harness::count(&graph, Some(&config), &inputs);
        // A thread of each element reads the count and its factor besides, of 4 bytes each.
        assert_eq!(counted.total.global.bytes, all + 2 * bytes(1), "{ahead} ahead");
    }
}

#[test]
fn what_is_no_loop_is_refused() {
    type Change = fn(&mut Case);
    let cases: [(&str, Change); 12] = [
        ("it has neither a count nor a condition", |case| {
            case.op.frame.count = false;
            case.tensors.remove(0);
            case.inputs -= 1;
        }),
        ("inputs, outputs and last values are [4, 3, 2], expected [4, 3, 1]", |case| {
            case.op.frame.last.push(true);
            case.tensors.push(TensorDesc::packed(9, "more", &[3, 40], DType::F32));
        }),
        ("`n` is i32[2], expected i32 with one element", |case| {
            case.tensors[0] = TensorDesc::packed(1, "n", &[2], DType::I32);
        }),
        ("`x` is f32, `x` is f16", |case| case.tensors[2].dtype = DType::F32),
        ("`x` is [9, 3], expected 3 dimensions", |case| {
            case.tensors[2] = TensorDesc::packed(3, "x", &[9, 3], DType::F16);
        }),
        ("`x` is [0, 3, 40]: no trip has an element", |case| {
            case.tensors[2] = TensorDesc::packed(3, "x", &[0, 3, 40], DType::F16);
        }),
        ("extents 40 and 41 differ along axis 1", |case| {
            case.tensors[3] = TensorDesc::packed(4, "y", &[11, 3, 41], DType::F16);
        }),
        ("the next value of `start` is [3, 40], it is [1, 40]", |case| {
            case.tensors[1] = TensorDesc::packed(2, "start", &[1, 40], DType::F32);
        }),
        ("`last` is f32[3, 41], expected f32[3, 40]", |case| {
            case.tensors[5] = TensorDesc::packed(6, "last", &[3, 41], DType::F32);
        }),
        ("`sums` is f32[10, 3, 40], expected f16[10, 3, 40]", |case| {
            case.tensors[6] = TensorDesc::packed(7, "sums", &[10, 3, 40], DType::F32);
        }),
        ("trips_max -1 is not in [0, 2^31 - 1)", |case| case.op.frame.trips_max = -1),
        ("two values are named `x`", |case| {
            let mut program = Program::new();
            for name in ["x", "y", "x", "gamma"] {
                program.input(name, DType::F32);
            }
            (0..3).for_each(|at| program.output(kiln::expr::Value::Input(at)));
            case.op.program = program.into();
        }),
    ];
    for (text, change) in cases {
        let mut case = scan();
        change(&mut case);
        let error = case.built().expect_err(text).to_string();
        assert!(error.ends_with(text), "{error}");
        assert!(error.contains("pointwise_loop{1 states, "), "{error}");
    }
    let mut case = doubled();
    let mut tensor = TensorDesc::packed(2, "x", &[70], DType::F64);
    tensor.dims = vec![0];
    case.tensors[1] = tensor.clone();
    case.tensors[4] = TensorDesc::packed(5, "last", &[0], DType::F64);
    // The reference makes the trips of its counter.
    let inputs = case.values(&[("start", 0.0), ("n", 4.0), ("one", 1.0)]);
    let expected = kiln::reference::evaluate(&case.graph(), &inputs).unwrap();
    assert_eq!(expected[&7].values, [4.0]);
    let error = harness::kiln().plan(&case.graph()).expect_err("no elements").to_string();
    assert!(error.contains("its elements are [0]: there are none"), "{error}");
}
