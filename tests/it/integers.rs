//! Integers are computed in integers of 32 bits, which wrap around: against Rust's arithmetic, on
//! every engine, with values that neither `f32` nor one operation of 32 bits holds.

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Math, Mode, Pointwise, Program};
use kiln::graph::{Matmul, MatmulMath, Reduction, ReductionOp};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};

use crate::harness::{self, Values};

/// What neither 24 bits nor 31 hold once they are added or multiplied, and what they do.
const EDGES: [i32; 12] = [
    0,
    1,
    -1,
    7,
    -12,
    16_777_217,
    -33_554_435,
    1_000_000_007,
    i32::MAX,
    i32::MAX - 1,
    i32::MIN,
    i32::MIN + 1,
];

/// Runs a graph of integers by each engine that has settings for it, and compares every output.
/// There are as many engines as are named.
#[track_caller]
fn check(graph: &OperationGraph, inputs: &[&[i32]], expected: &[(&str, Vec<i32>)], names: &[&str]) {
    let values = |(tensor, values): (&TensorDesc, &&[i32])| {
        (tensor.uid, values.iter().map(|value| f64::from(*value)).collect())
    };
    let values: Values = graph.inputs().zip(inputs).map(values).collect();
    let mut ran = Vec::new();
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        for engine in engine::engines() {
            let Ok(supported) = engine.support(graph.canonical(), target) else { continue };
            let all = supported.settings();
            let step = all.len().div_ceil(3);
            let sample = all.into_iter().step_by(step).map(|setting| setting.config);
            for config in [supported.heuristic()].into_iter().chain(sample) {
                if let Some(actual) = run(kiln, graph, &config, &values) {
                    for (name, expected) in expected {
                        let tensor = graph.tensor_named(name).unwrap();
                        let integers = |value: &f64| DType::I32.round(*value) as i32;
                        let actual: Vec<i32> = actual[&tensor.uid].iter().map(integers).collect();
                        assert_eq!(actual, *expected, "{name} of {config}\n{graph}");
                    }
                    harness::compare(graph, &values, &actual, &config.to_string());
                    if !ran.contains(&engine.name()) {
                        ran.push(engine.name());
                    }
                }
            }
        }
    }
    let mut names = names.to_vec();
    names.sort_unstable();
    ran.sort_unstable();
    assert_eq!(ran, names, "{graph}");
}

/// Values of a setting, if this device can run it.
fn run(
    kiln: &kiln::Kiln,
    graph: &OperationGraph,
    config: &EngineConfig,
    values: &Values,
) -> Option<Values> {
    match harness::run(kiln, graph, Some(config), values) {
        Ok(values) => Some(values),
        Err(error) if error.kind() == ErrorKind::NotSupported => None,
        Err(error) => panic!("{config}: {error:?}\n{graph}"),
    }
}

#[test]
fn pointwise_integers_wrap_around() {
    use Mode::*;
    let count = EDGES.len();
    let at = |at: usize| (EDGES[at / count], EDGES[at % count]);
    let pairs: Vec<(i32, i32)> = (0..count * count).map(at).collect();
    type Expected = fn(i32, i32) -> i32;
    let modes: [(Pointwise, Expected); 21] = [
        (Pointwise::new(Add), i32::wrapping_add),
        (Pointwise::new(Sub), i32::wrapping_sub),
        (Pointwise::new(Mul), i32::wrapping_mul),
        (Pointwise::new(AddSquare), |x, b| x.wrapping_add(b.wrapping_mul(b))),
        (Pointwise::new(Mod), |x, b| if b == 0 { 0 } else { x.wrapping_rem(b) }),
        (Pointwise::new(Max), i32::max),
        (Pointwise::new(Min), i32::min),
        (Pointwise::new(CmpEq), |x, b| (x == b).into()),
        (Pointwise::new(CmpLt), |x, b| (x < b).into()),
        (Pointwise::new(CmpGe), |x, b| (x >= b).into()),
        (Pointwise::new(LogicalAnd), |x, b| (x != 0 && b != 0).into()),
        (Pointwise::new(Abs), |x, _| x.wrapping_abs()),
        (Pointwise::new(Neg), |x, _| x.wrapping_neg()),
        (Pointwise::new(Identity), |x, _| x),
        (Pointwise::new(LogicalNot), |x, _| (x == 0).into()),
        (Pointwise::new(Floor), |x, _| x),
        (Pointwise::new(ReluFwd), |x, _| x.max(0)),
        (Pointwise::new(ReluFwd).relu(-5.0, 16_777_217.0, 0.0), |x, _| x.clamp(-5, 16_777_217)),
        (Pointwise::new(BinarySelect), |x, b| if b != 0 { x } else { b }),
        (Pointwise::new(Add).alphas(3.0, -2_147_483_648.0), |x, b| {
            x.wrapping_mul(3).wrapping_add(b.wrapping_mul(i32::MIN))
        }),
        (Pointwise::new(Identity).alphas(16_777_217.0, 1.0), |x, _| x.wrapping_mul(16_777_217)),
    ];
    let mut graph = OperationGraph::builder();
    let dims = [count as i64, count as i64];
    let [x, b] = ["x", "b"].map(|name| graph.input(name, &dims, DType::I32));
    let mut expected = Vec::new();
    let names: Vec<String> = (0..modes.len()).map(|at| format!("y{at}")).collect();
    for ((op, of), name) in modes.iter().zip(&names) {
        let y = graph.pointwise(*op, &[x, b, b][..op.mode.arity()]).unwrap();
        graph.output(y, name, DType::I32);
        expected.push((name.as_str(), pairs.iter().map(|(x, b)| of(*x, *b)).collect()));
    }
    // Intermediates are integers of 32 bits, too, and mixed types meet in them.
    let small = graph.input("small", &dims, DType::I8);
    let sum = graph.pointwise(Pointwise::new(Add), &[x, small]).unwrap();
    let product = graph.pointwise(Pointwise::new(Mul), &[sum, b]).unwrap();
    graph.output(product, "chained", DType::I32);
    let [xs, bs] = [0, 1].map(|side| -> Vec<i32> {
        pairs.iter().map(|pair| if side == 0 { pair.0 } else { pair.1 }).collect()
    });
    let smalls: Vec<i32> = (0..pairs.len() as i32).map(|at| at % 256 - 128).collect();
    let chained = pairs.iter().zip(&smalls).map(|((x, b), s)| x.wrapping_add(*s).wrapping_mul(*b));
    expected.push(("chained", chained.collect()));
    let graph = graph.build().unwrap();
    check(&graph, &[&xs, &bs, &smalls], &expected, &["pointwise", "pointwise_general"]);
}

/// Of rows and of columns, of integers of 8 and of 32 bits.
#[test]
fn reductions_of_integers_wrap_around() {
    let [rows, columns] = [70_usize, 300];
    let wide = |at: usize| match at % 13 {
        12 => 0,
        _ => (at as i32 + 1).wrapping_mul(1_234_567_891),
    };
    // So that the sum of a row is past 2^24 and cannot be rounded to it.
    let narrow = |at: usize| if at % 3 == 2 { 1 } else { 127 - (at % 2) as i32 };
    for (dtype, value) in [(DType::I32, wide as fn(usize) -> i32), (DType::I8, narrow)] {
        let x: Vec<i32> = (0..rows * columns).map(value).collect();
        for along_columns in [true, false] {
            let mut graph = OperationGraph::builder();
            let input = graph.input("x", &[rows as i64, columns as i64], dtype);
            let kept = if along_columns { [rows as i64, 1] } else { [1, columns as i64] };
            let groups = |group: usize| -> Vec<i32> {
                match along_columns {
                    true => x[group * columns..][..columns].to_vec(),
                    false => (0..rows).map(|row| x[row * columns + group]).collect(),
                }
            };
            let groups: Vec<Vec<i32>> =
                (0..if along_columns { rows } else { columns }).map(groups).collect();
            let mut expected = Vec::new();
            for (op, first, of) in [
                (ReductionOp::Add, 0, i32::wrapping_add as fn(i32, i32) -> i32),
                (ReductionOp::Norm1, 0, |sum, x| sum.wrapping_add(x.wrapping_abs())),
                (ReductionOp::Mul, 1, i32::wrapping_mul),
                (
                    ReductionOp::MulNoZeros,
                    1,
                    |all, x| if x == 0 { all } else { all.wrapping_mul(x) },
                ),
                (ReductionOp::Max, i32::MIN, i32::max),
                (ReductionOp::Min, i32::MAX, i32::min),
                (ReductionOp::Amax, 0, |most, x| most.max(x.wrapping_abs())),
            ] {
                let y = graph.reduction(Reduction::new(op), input, &kept).unwrap();
                graph.output(y, op.name(), DType::I32);
                let all = groups.iter().map(|group| group.iter().fold(first, |a, x| of(a, *x)));
                expected.push((op.name(), all.collect()));
            }
            let graph = graph.build().unwrap();
            let engines = ["reduction", "reduction_columns"];
            check(&graph, &[&x], &expected, &engines[..2 - usize::from(along_columns)]);
        }
    }
}

/// The sum of a million bytes, past what `f32` counts to.
#[test]
fn long_sums_of_bytes_are_exact() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[1, 300_001], DType::U8);
    let sum = graph.reduction(Reduction::new(ReductionOp::Add), x, &[1, 1]).unwrap();
    graph.output(sum, "sum", DType::I32);
    let graph = graph.build().unwrap();
    let inputs = vec![253; 300_001];
    check(&graph, &[&inputs], &[("sum", vec![253 * 300_001])], &["reduction"]);
}

/// Products with an epilogue and a reduction behind them.
#[test]
fn products_of_integers_wrap_around() {
    let [m, n, k] = [40_usize, 36, 80];
    let of_words = |at: usize| (at as i32 + 3).wrapping_mul(987_654_321);
    let of_bytes = |at: usize| (at as i32 * 37) % 256 - 128;
    for (dtype, value, engines) in [
        (DType::I32, of_words as fn(usize) -> i32, &["gemm_simt"][..]),
        (DType::I8, of_bytes, &["gemm_mma", "gemm_simt", "gemm_wgmma"]),
    ] {
        let [a, b]: [Vec<i32>; 2] = [m * k, k * n].map(|count| (0..count).map(value).collect());
        let bias: Vec<i32> = (0..n).map(of_words).collect();
        let mut graph = OperationGraph::builder();
        let b_uid = 2;
        let a_uid = graph.input("a", &[m as i64, k as i64], dtype);
        // Packed along K, as bulk copies of bytes need it; the values are those of its rows.
        let b_desc = TensorDesc::packed(b_uid, "b", &[k as i64, n as i64], dtype);
        graph.tensor(TensorDesc { strides: vec![1, k as i64], ..b_desc });
        let bias_uid = graph.input("bias", &[1, n as i64], DType::I32);
        let c = graph.matmul(Matmul::new(MatmulMath::I32), a_uid, b_uid).unwrap();
        let y = graph.pointwise(Pointwise::new(Mode::Add), &[c, bias_uid]).unwrap();
        let sum = graph.reduction(Reduction::new(ReductionOp::Add), y, &[1, n as i64]).unwrap();
        graph.output(y, "y", DType::I32);
        graph.output(sum, "sum", DType::I32);
        let element = |row: usize, column: usize| {
            let product = |i: usize| a[row * k + i].wrapping_mul(b[i * n + column]);
            (0..k).map(product).fold(bias[column], i32::wrapping_add)
        };
        let expected: Vec<i32> =
            (0..m * n).map(|position| element(position / n, position % n)).collect();
        let sum_of =
            |column: usize| (0..m).map(|row| expected[row * n + column]).fold(0, i32::wrapping_add);
        let sums = (0..n).map(sum_of).collect();
        let graph = graph.build().unwrap();
        let expected = [("y", expected), ("sum", sums)];
        check(&graph, &[&a, &b, &bias], &expected, engines);
    }
}

/// A precision that is asked for is computed in; what has no integers is computed in `f32`.
#[test]
fn integers_are_computed_in_what_is_asked_for() {
    let run = |op: Pointwise, x: f64, dtype: DType| {
        let mut graph = OperationGraph::builder();
        let [a, b] = ["a", "b"].map(|name| graph.input(name, &[1], DType::I32));
        let y = graph.pointwise(op, &[a, b]).unwrap();
        graph.output(y, "y", dtype);
        let graph = graph.build().unwrap();
        let read = OperationGraph::from_json(&graph.to_json()).unwrap();
        assert_eq!(read, graph, "{}", graph.to_json());
        let inputs = Values::from([(a, vec![x]), (b, vec![3.0])]);
        let values = harness::run(harness::kiln(), &graph, None, &inputs).unwrap();
        harness::compare(&graph, &inputs, &values, &op.to_string());
        values[&y][0]
    };
    let add = Pointwise::new(Mode::Add);
    assert_eq!(run(add, 16_777_218.0, DType::I32), 16_777_221.0);
    assert_eq!(run(add.math(Math::I32), 16_777_218.0, DType::I32), 16_777_221.0);
    assert_eq!(run(add.math(Math::F32), 16_777_218.0, DType::I32), 16_777_220.0);
    assert_eq!(run(add.math(Math::F64), 2_147_483_647.0, DType::F64), 2_147_483_650.0);
    assert_eq!(run(add, 2_147_483_647.0, DType::F64), -2_147_483_646.0);
    assert_eq!(run(add.alphas(0.5, 1.0), 33_554_436.0, DType::I32), 16_777_220.0);
    assert_eq!(run(Pointwise::new(Mode::Div), 16_777_221.0, DType::I32), 5_592_406.0);
    assert_eq!(run(Pointwise::new(Mode::Div), 7.0, DType::F32), f64::from(7.0_f32 / 3.0));
}

#[test]
fn integers_of_what_has_none_are_refused() {
    let built = |op: Pointwise, dtype: DType| {
        let mut graph = OperationGraph::builder();
        let [a, b] = ["a", "b"].map(|name| graph.input(name, &[1], dtype));
        let y = graph.pointwise(op.math(Math::I32), &[a, b][..op.mode.arity()]).unwrap();
        graph.output(y, "y", DType::I32);
        graph.build().unwrap_err().to_string()
    };
    let exp = "exp: not defined for math i32";
    assert_eq!(built(Pointwise::new(Mode::Exp), DType::I32), exp);
    let add = Pointwise::new(Mode::Add);
    assert_eq!(built(add, DType::F32), "add: `a` is f32, math i32 accepts integers");
    let scaled = built(add.alphas(1.0, 0.25), DType::I32);
    assert_eq!(scaled, "add: alpha2 0.25 is no integer of math i32");
    let leaky = built(Pointwise::new(Mode::ReluFwd).relu(0.0, 6.0, 0.5), DType::I32);
    assert_eq!(leaky, "relu_fwd: math i32 has no relu_lower_clip_slope, 0.5");
    let reduced = |op: ReductionOp, dtype: DType| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[4], dtype);
        let y = graph.reduction(Reduction { op, math: Math::I32 }, x, &[1]).unwrap();
        graph.output(y, "y", DType::I32);
        graph.build().unwrap_err().to_string()
    };
    let mean = "reduce_avg[i32]: not defined for math i32";
    assert_eq!(reduced(ReductionOp::Avg, DType::I32), mean);
    let sum = "reduce_add[i32]: `x` is bf16, math i32 accepts integers";
    assert_eq!(reduced(ReductionOp::Add, DType::Bf16), sum);
    let mut program = Program::new();
    let x = program.input("x", DType::F32);
    let error = program.push("y", add.math(Math::I32), &[x, x], DType::F32).unwrap_err();
    assert_eq!(error.to_string(), "add: `x` is f32, math i32 accepts integers");
}
