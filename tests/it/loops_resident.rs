//! Loops with small bodies of any operations are one kernel that makes all trips.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath, Op, Reduction, ReductionOp, Slice, Transpose};
use kiln::loops::{LoopOutput, Network, TripLimit};
use kiln::{DType, Kiln};

use crate::harness;
use crate::looped::{self, Net};
use crate::loops_cells::{check, everywhere};

impl Net {
    fn fold(&mut self, op: ReductionOp, x: i64, dims: &[i64]) -> i64 {
        self.builder.graph().reduction(Reduction::new(op), x, dims).unwrap()
    }

    fn moved(&mut self, op: Op, x: i64) -> i64 {
        self.builder.graph().operation(op, &[x]).unwrap()[0]
    }

    fn matmul(&mut self, a: i64, b: i64) -> i64 {
        self.builder.graph().matmul(Matmul::new(MatmulMath::F32), a, b).unwrap()
    }
}

/// Attention of a query that moves: softmax of scores over keys, then a mean of values, with a
/// residual. Products with matrices that the trip computes are no recurrent layer.
fn attending(dtype: DType) -> Network {
    let (queries, keys, depth) = (3, 20, 16);
    let mut net = Net::default();
    let q = net.input("q", &[queries, depth], dtype);
    let k = net.input("k", &[keys, depth], dtype);
    let v = net.input("v", &[keys, depth], dtype);
    let shift = net.input("shift", &[9, 1, depth], dtype);
    let n = net.count("n");
    let of = net.counted("hops", n);
    let here = net.recurrence(of, q);
    let row = net.iterator(of, shift, 0, true);
    let transposed = net.moved(Op::Transpose(Transpose { permutation: vec![1, 0] }), k);
    let scores = net.matmul(here, transposed);
    let most = net.fold(ReductionOp::Max, scores, &[queries, 1]);
    let apart = net.op(Mode::Sub, &[scores, most]);
    let weights = net.op(Mode::Exp, &[apart]);
    let sum = net.fold(ReductionOp::Add, weights, &[queries, 1]);
    let shares = net.op(Mode::Div, &[weights, sum]);
    let shares = net.named(shares, "", dtype);
    let found = net.matmul(shares, v);
    let moved = net.op(Mode::Add, &[found, row]);
    let next = net.op(Mode::Add, &[here, moved]);
    let next = net.named(next, "", dtype);
    net.next(here, next);
    let size = net.fold(ReductionOp::Norm2, next, &[queries, 1]);
    let size = net.named(size, "", dtype);
    let (last, all) = (net.last(of, here), net.stack(of, shares, 1, 10));
    let turned = net.turned(of, size, 0, 10);
    for (uid, name) in [(last, "last"), (all, "all"), (turned, "sizes")] {
        net.output(uid, name, dtype);
    }
    net.build()
}

#[test]
fn an_attention_that_hops_is_one_kernel() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let network = attending(dtype);
        let steps = check(&network, &[0.0, 1.0, 2.0, 9.0]);
        assert!(steps.contains("loop hops, count n: a resident loop"), "{dtype}: {steps}");
    }
}

#[test]
fn attentions_on_every_target() {
    everywhere(&[attending(DType::F16)], 7.0, "a resident loop of the graph above");
}

/// Views of what a trip has: parts, transposes and reshapes of states and results, reductions of
/// all kinds, two states that change places, what is constant, and a condition.
fn views() -> Network {
    let mut net = Net::default();
    let (a, b) = (net.f32("a", &[6, 8]), net.f32("b", &[6, 8]));
    let (constant, small) = (net.f32("constant", &[2, 24]), net.f32("small", &[1, 1]));
    let n = net.count("n");
    let of = net.counted("views", n);
    let [x, y, z] = [a, b, constant].map(|initial| net.recurrence(of, initial));
    let part =
        net.moved(Op::Slice(Slice { begin: vec![1, 0], end: vec![6, 8], stride: vec![2, 1] }), x);
    let turned = net.moved(Op::Transpose(Transpose { permutation: vec![1, 0] }), part);
    let square = net.matmul(part, turned);
    let flat = net.builder.graph().reshape(y, &[2, 24]).unwrap();
    let both = net.op(Mode::Mul, &[flat, z]);
    let ops = [
        ReductionOp::Add,
        ReductionOp::Mul,
        ReductionOp::Min,
        ReductionOp::Max,
        ReductionOp::Amax,
        ReductionOp::Avg,
        ReductionOp::Norm1,
        ReductionOp::Norm2,
    ];
    let rows: Vec<i64> = ops.iter().map(|op| net.fold(*op, square, &[3, 1])).collect();
    let all = rows.iter().copied().reduce(|sum, row| net.op(Mode::Add, &[sum, row])).unwrap();
    let mean = net.fold(ReductionOp::Avg, all, &[1, 1]);
    let tanh = net.op(Mode::TanhFwd, &[mean]);
    let more = net.compare(Mode::CmpGt, &[tanh, small], "more");
    net.builder.trip_limit(of, TripLimit::While, more);
    let scaled = net.op(Mode::Mul, &[both, tanh]);
    let back = net.builder.graph().reshape(scaled, &[6, 8]).unwrap();
    let moved = net.op(Mode::Add, &[back, x]);
    let moved = net.builder.graph().pointwise(
        Pointwise { alpha1: kiln::expr::Real::new(0.25), ..Pointwise::new(Mode::Identity) },
        &[moved],
    );
    // The states change places.
    net.next(x, y);
    net.next(y, moved.unwrap());
    net.next(z, constant);
    for (uid, name) in [(x, "x"), (y, "y"), (z, "z")] {
        let last = net.last(of, uid);
        net.output(last, name, DType::F32);
    }
    let stacked = [(turned, 1, "parts"), (tanh, 0, "means"), (z, 2, "constants")];
    for (uid, axis, name) in stacked {
        let all = net.stack(of, uid, axis, 12);
        net.output(all, name, DType::F32);
    }
    net.build()
}

#[test]
fn views_reductions_and_conditions() {
    let network = views();
    let steps = check(&network, &[0.0, 1.0, 2.0, 7.0, 12.0]);
    assert!(steps.contains("loop views, count n, while more: a resident loop"), "{steps}");
    everywhere(&[network], 5.0, "a resident loop of the graph above");
}

/// Greedy decoding: a score for every word, the best one by an equality, until the end.
#[test]
fn decoding_is_one_kernel() {
    let (words, size) = (24, 16);
    let mut net = Net::default();
    let table = net.input("table", &[words, size], DType::I8);
    let w = net.input("w", &[size, words], DType::I8);
    let numbers = net.input("numbers", &[1, words], DType::I32);
    let first = net.input("first", &[1, words], DType::I8);
    let end = net.input("end", &[1, 1], DType::I32);
    let n = net.count("n");
    let of = net.counted("decode", n);
    let word = net.recurrence(of, first);
    let integers = |net: &mut Net, a, b, dtype| {
        let product = net.builder.graph().matmul(Matmul::new(MatmulMath::I32), a, b).unwrap();
        net.named(product, "", dtype)
    };
    let embedded = integers(&mut net, word, table, DType::I8);
    let scores = integers(&mut net, embedded, w, DType::I32);
    let best = net.fold(ReductionOp::Max, scores, &[1, 1]);
    let next = net.op(Mode::CmpEq, &[scores, best]);
    let next = net.named(next, "", DType::I8);
    net.next(word, next);
    let number = net.op(Mode::Mul, &[word, numbers]);
    let number = net.fold(ReductionOp::Add, number, &[1, 1]);
    let more = net.compare(Mode::CmpNeq, &[number, end], "more");
    net.builder.trip_limit(of, TripLimit::While, more);
    let all = net.stack(of, number, 0, 16);
    net.output(all, "decoded", DType::I32);
    let network = net.build();
    let plan = harness::kiln().build_loops(&network).unwrap();
    assert!(plan.steps().contains("a resident loop"), "{}", plan.steps());
    // One word leads to the next, until the last.
    let one = |at: i64, of: i64| if at == of { 1.0 } else { 0.0 };
    // Rows of 1 and -1, of which none is another one.
    let sign = |word: i64, at: i64| match (word * 40503 + 977) >> at & 1 {
        0 => -1.0,
        _ => 1.0,
    };
    let table: Vec<f64> = (0..words * size).map(|at| sign(at / size, at % size)).collect();
    let leads = |at: i64| (at * 5 + 1) % words;
    let from = |to: i64| (0..words).find(|from| leads(*from) == to).unwrap();
    let w: Vec<f64> = (0..size * words).map(|at| sign(from(at % words), at / words)).collect();
    let first: Vec<f64> = (0..words).map(|at| one(at, 3)).collect();
    let numbers: Vec<f64> = (0..words).map(|at| at as f64).collect();
    for (count, end) in [(16.0, leads(leads(leads(3)))), (2.0, 99), (0.0, 99)] {
        let inputs: looped::Named = &[
            ("table", &table),
            ("w", &w),
            ("numbers", &numbers),
            ("first", &first),
            ("end", &[end as f64]),
            ("n", &[count]),
        ];
        let decoded = looped::check(&network, inputs, "decoded");
        let expected: Vec<f64> = match (count as i64, end) {
            (0, _) => vec![],
            (2, _) => vec![3.0, leads(3) as f64],
            _ => vec![3.0, leads(3) as f64, leads(leads(3)) as f64],
        };
        assert_eq!(decoded[..expected.len()], expected);
        assert!(decoded[expected.len()..].iter().all(|of| *of == 0.0), "{decoded:?}");
    }
}

/// What is too large, or has another operation, is launched trip by trip and says why.
#[test]
fn what_is_not_resident_says_why() {
    let kiln: &Kiln = harness::kiln();
    let mut net = Net::default();
    let size = 256;
    let (x, n) = (net.f32("x", &[size, size]), net.count("n"));
    let of = net.counted("squares", n);
    let state = net.recurrence(of, x);
    let next = net.matmul(state, state);
    net.next(state, next);
    let last = net.last(of, state);
    net.output(last, "last", DType::F32);
    let steps = kiln.build_loops(&net.build()).unwrap().steps();
    let reason = "no resident loop: a trip has 16842752 terms, more than the 8388608 that are \
                  faster than launches";
    assert!(steps.contains(reason), "{steps}");
    assert!(steps.contains("launched by the host"), "{steps}");
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[2, 4]), net.count("n"));
    let of = net.counted("turns", n);
    let state = net.recurrence(of, x);
    let turned = net.moved(Op::Transpose(Transpose { permutation: vec![1, 0] }), state);
    let flat = net.builder.graph().reshape(turned, &[2, 4]).unwrap();
    net.next(state, flat);
    let last = net.builder.loop_output(of, LoopOutput::LastValue, state).unwrap();
    net.output(last, "last", DType::F32);
    let steps = kiln.build_loops(&net.build()).unwrap().steps();
    assert!(steps.contains("no resident loop: its body reshapes a part of a tensor"), "{steps}");
}
