//! Random numbers: the stream and what is drawn from it, the same bits wherever they are drawn,
//! what is refused with which words, documents that say them, and graphs for tests of all kernels.

use std::collections::HashMap;

use kiln::expr::{Distribution, Math, Mode, Pointwise, Real};
use kiln::graph::{
    Attention, Convolution, ConvolutionPass, GraphBuilder, Matmul, MatmulMath, Op, Reduction,
    ReductionOp, Rng, Window,
};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc, reference};
use serde_json::{Value, json};

use crate::harness::{self, Values};

/// The numbers of an operation at an offset, by the reference, in this type.
fn numbers(op: Rng, offset: i64, dims: &[i64], dtype: DType) -> Vec<f64> {
    let (graph, offset_uid, y) = alone(op, dims, dtype);
    let inputs = HashMap::from([(offset_uid, vec![offset as f64])]);
    reference::evaluate(&graph, &inputs).unwrap().remove(&y).unwrap().values
}

/// A graph that is random numbers alone.
fn alone(op: Rng, dims: &[i64], dtype: DType) -> (OperationGraph, i64, i64) {
    let mut graph = OperationGraph::builder();
    let offset = graph.input("offset", &[1], DType::I64);
    let y = graph.rng(op, &[offset], dims).unwrap();
    graph.output(y, "y", dtype);
    (graph.build().unwrap(), offset, y)
}

/// `y = dropout(x + bias) + residual`, with elements kept with probability 0.9; the mask is stored
/// where it is asked for.
fn dropped(graph: &mut GraphBuilder, x: i64, dims: &[i64], mask: bool) {
    let offset = graph.input("offset", &[1], DType::I64);
    let rank = dims.len();
    let mut columns = vec![1; rank];
    columns[rank - 1] = dims[rank - 1];
    let bias = graph.input("bias", &columns, DType::F32);
    let residual = graph.input("residual", dims, DType::Bf16);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let keep = graph.rng(Rng::bernoulli(0.9).seed(Some(5)), &[offset], dims).unwrap();
    match mask {
        true => graph.output(keep, "keep", DType::Bool),
        false => graph.name(keep, "keep", DType::F32),
    }
    let kept = graph.pointwise(Pointwise::new(Mode::Mul), &[sum, keep]).unwrap();
    graph.name(kept, "kept", DType::F32);
    let add = Pointwise::new(Mode::Add).alphas(1.0 / 0.9, 1.0);
    let y = graph.pointwise(add, &[kept, residual]).unwrap();
    graph.output(y, "y", DType::Bf16);
}

/// Dropout between a bias and a residual connection.
pub fn dropout(dims: &[i64]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", dims, DType::Bf16);
    dropped(&mut graph, x, dims, false);
    graph.build().unwrap()
}

/// The same behind a GEMM.
pub fn gemm_dropout([m, n, k]: [i64; 3], dtype: DType, mask: bool) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let (a, b) = (graph.input("a", &[m, k], dtype), graph.input("b", &[k, n], dtype));
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.name(c, "c", DType::F32);
    dropped(&mut graph, c, &[m, n], mask);
    graph.build().unwrap()
}

/// `y = softmax-like weights of x with noise`: every distribution, a seed and a subsequence in
/// memory.
pub fn noise(dims: &[i64]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", dims, DType::F32);
    let ones = vec![1; dims.len()];
    let seed = graph.input("seed", &ones, DType::I32);
    let offset = graph.scalar("offset", dims.len(), DType::I64);
    let normal = graph.rng(Rng::normal(0.5, 2.0).seed(None), &[seed, offset], dims).unwrap();
    graph.name(normal, "jitter", DType::F32);
    let subsequence = graph.input("subsequence", &ones, DType::I64);
    let uniform = Rng::uniform(-1.0, 1.0).from_subsequence();
    let uniform = graph.rng(uniform, &[offset, subsequence], dims).unwrap();
    graph.name(uniform, "factor", DType::F16);
    let mut rows = dims.to_vec();
    rows[dims.len() - 1] = 1;
    let row = graph.rng(Rng::bernoulli(0.5).seed(Some(-1)), &[offset], &rows).unwrap();
    graph.name(row, "row", DType::F32);
    let noisy = graph.pointwise(Pointwise::new(Mode::Add), &[x, normal]).unwrap();
    let noisy = graph.pointwise(Pointwise::new(Mode::Mul), &[noisy, uniform]).unwrap();
    let noisy = graph.pointwise(Pointwise::new(Mode::Add), &[noisy, row]).unwrap();
    graph.name(noisy, "noisy", DType::F32);
    let total = graph.reduction(Reduction::new(ReductionOp::Avg), noisy, &rows).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Sub), &[noisy, total]).unwrap();
    graph.output(total, "total", DType::F32);
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// A convolution with dropout behind it, or in front of it, channels first or last.
pub fn convolution(last: bool, behind: bool) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let lay = |graph: &mut GraphBuilder, uid: i64, name: &str, dims: [i64; 4]| {
        let [_, c, h, w] = dims;
        let packed = TensorDesc::packed(uid, name, &dims, DType::F16);
        let strides = if last { vec![c * h * w, 1, c * w, c] } else { packed.strides.clone() };
        graph.tensor(TensorDesc { strides, ..packed })
    };
    let x = lay(&mut graph, 1, "x", [2, 16, 7, 6]);
    let w = lay(&mut graph, 2, "w", [24, 16, 3, 3]);
    let y = lay(&mut graph, 3, "y", [2, 24, 7, 6]);
    let offset = graph.input("offset", &[1], DType::I64);
    let dims = if behind { [2, 24, 7, 6] } else { [2, 16, 7, 6] };
    let keep = graph.rng(Rng::bernoulli(0.75).seed(Some(3)), &[offset], &dims).unwrap();
    graph.name(keep, "keep", DType::F16);
    let window = Window { pre_paddings: vec![1; 2], post_paddings: vec![1; 2], ..Window::unit(2) };
    let op = Convolution::new(ConvolutionPass::Forward, MatmulMath::F32, window);
    let op = Op::Convolution(op);
    if behind {
        let sum = graph.operation(op, &[x, w]).unwrap()[0];
        graph.pointwise_into(Pointwise::new(Mode::Mul).alphas(4.0 / 3.0, 1.0), &[sum, keep], y);
    } else {
        let kept = graph.pointwise(Pointwise::new(Mode::Mul), &[x, keep]).unwrap();
        graph.name(kept, "kept", DType::F16);
        graph.operation_into(op, &[kept, w], &[y]);
    }
    graph.build().unwrap()
}

/// Values for graphs of this file: small numbers, seeds and offsets.
pub fn values(graph: &OperationGraph) -> Values {
    let value = |of: &TensorDesc| match of.name.as_str() {
        "seed" => vec![-1_234_567.0],
        "offset" => vec![(1_u64 << 33) as f64 + 7.0],
        "subsequence" => vec![(1_u64 << 34) as f64 - 2.0],
        _ => harness::fill(of, of.uid as u64 + 3, 2.0),
    };
    graph.inputs().map(|of| (of.uid, value(of))).collect()
}

/// Test vector of Random123 (`kat_vectors`, philox4x32 10: key and counter 0), on the device: a
/// uniform number between 0 and 2^32 is half above its word in f64.
#[test]
fn words_are_those_of_philox() {
    let published = [0x6627_e8d5_u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    let op = Rng::uniform(0.0, 4_294_967_296.0).math(Math::F64);
    let (graph, offset, y) = alone(op, &[4], DType::F64);
    let want = published.map(|word| f64::from(word) + 0.5);
    for kiln in harness::dialects() {
        let inputs = HashMap::from([(offset, vec![0.0])]);
        let plan = kiln.plan(&graph).unwrap();
        assert_eq!(harness::run_plan(kiln, &plan, &inputs).unwrap()[&y], want);
    }
}

/// What `torch.manual_seed(0)` and two calls of `torch.rand(10, device="cuda")` print. Each of
/// PyTorch's threads has a subsequence of its own and takes its first word; a call moves the
/// generator on by 4, which is an offset of 1.
#[test]
fn the_stream_is_that_of_pytorch() {
    let printed = [
        [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096],
        [0.9722, 0.7910, 0.4690, 0.3300, 0.3345, 0.3783, 0.7640, 0.6405, 0.1103, 0.3594],
    ];
    for (offset, printed) in printed.iter().enumerate() {
        let all = numbers(Rng::uniform(0.0, 1.0), offset as i64, &[40], DType::F32);
        for (number, printed) in all.iter().step_by(4).zip(printed) {
            assert!((number - printed).abs() <= 0.5e-4, "{number}, {printed}");
        }
    }
}

/// Rows have no part in a position: it counts all elements in row-major order.
#[test]
fn numbers_follow_positions_not_dimensions_or_strides() {
    for op in [Rng::bernoulli(0.3), Rng::uniform(-2.0, 5.0), Rng::normal(1.0, 0.5)] {
        let flat = numbers(op, 3, &[105], DType::F32);
        assert_eq!(numbers(op, 3, &[3, 5, 7], DType::F32), flat);
        assert_eq!(numbers(op, 3, &[7, 15], DType::F32), flat);
        assert_ne!(numbers(op, 4, &[105], DType::F32), flat);
        assert_ne!(numbers(op.seed(Some(1)), 3, &[105], DType::F32), flat);
    }
}

/// From the subsequence of its first element on, a part has the numbers that the whole has there.
#[test]
fn a_part_is_drawn_as_in_the_whole() {
    let (rows, columns, first) = (24, 20, 8);
    let masked = |rows: i64, op: Rng| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[rows, 16], DType::F16);
        let w = graph.input("w", &[16, columns], DType::F16);
        let sum = graph.matmul(Matmul::default(), x, w).unwrap();
        graph.name(sum, "sum", DType::F32);
        let slots = Op::Rng(op).slots().inputs;
        let given: Vec<i64> = slots.iter().map(|slot| graph.scalar(slot, 2, DType::I64)).collect();
        let keep = graph.rng(op, &given, &[rows, columns]).unwrap();
        graph.output(keep, "keep", DType::Bool);
        let y = graph.pointwise(Pointwise::new(Mode::Mul), &[sum, keep]).unwrap();
        graph.output(y, "y", DType::F32);
        graph.build().unwrap()
    };
    let whole = masked(rows, Rng::bernoulli(0.5));
    let part = masked(rows - first, Rng::bernoulli(0.5).from_subsequence());
    let x: Vec<f64> = (0..rows * 16).map(|at| (at % 13) as f64 - 6.0).collect();
    let value = |of: &TensorDesc, from: i64| match of.name.as_str() {
        "x" => x[(from * 16) as usize..].to_vec(),
        "offset" => vec![5.0],
        "subsequence" => vec![(first * columns / 4) as f64],
        _ => (0..16 * columns).map(|at| (at % 7) as f64 - 3.0).collect(),
    };
    for kiln in harness::dialects() {
        let [all, some] = [(&whole, 0), (&part, first)].map(|(graph, from)| {
            let inputs = graph.inputs().map(|of| (of.uid, value(of, from))).collect();
            let results = harness::run_plan(kiln, &kiln.plan(graph).unwrap(), &inputs).unwrap();
            harness::compare(graph, &inputs, &results, "a part");
            let of = |name: &str| results[&graph.tensor_named(name).unwrap().uid].clone();
            [of("keep"), of("y")]
        });
        for (all, some) in all.iter().zip(&some) {
            assert_eq!(all[(first * columns) as usize..], some[..]);
        }
    }
}

/// Kolmogorov-Smirnov: the largest distance of the numbers' distribution from this one, times the
/// square root of their number. It is above 1.95 for one sample of a thousand.
fn distance(mut numbers: Vec<f64>, below: impl Fn(f64) -> f64) -> f64 {
    let count = numbers.len() as f64;
    numbers.sort_by(f64::total_cmp);
    let ends = |(at, number): (usize, &f64)| {
        let (below, at) = (below(*number), at as f64);
        (below - at / count).abs().max((below - (at + 1.0) / count).abs())
    };
    numbers.iter().enumerate().map(ends).fold(0.0, f64::max) * count.sqrt()
}

/// Seeds of the statistics. A bound that one sample of a thousand breaks holds for all of them.
const SEEDS: [i64; 4] = [0, 1, -1, 0x0123_4567_89ab_cdef];

#[test]
fn uniform_and_normal_numbers_are_distributed_so() {
    let count = 40_000;
    for seed in SEEDS {
        for (dtype, math) in [(DType::F32, Math::F32), (DType::F64, Math::F64)] {
            let draw = |op: Rng| numbers(op.seed(Some(seed)).math(math), 9, &[count], dtype);
            let uniform = draw(Rng::uniform(-3.0, 5.0));
            assert!(uniform.iter().all(|x| (-3.0..=5.0).contains(x)));
            let far = distance(uniform, |x| (x + 3.0) / 8.0);
            assert!(far < 1.95, "uniform, seed {seed}: {far}");
            let normal = draw(Rng::normal(2.0, 0.5));
            let mean = normal.iter().sum::<f64>() / count as f64;
            let variance = normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count as f64;
            // 3.3 standard deviations of either, beyond which one sample of a thousand lies.
            let (mean_off, variance_off) = (3.3 * 0.5 / 200.0, 3.3 * 0.25 * 2_f64.sqrt() / 200.0);
            assert!((mean - 2.0).abs() < mean_off, "seed {seed}: mean {mean}");
            assert!((variance - 0.25).abs() < variance_off, "seed {seed}: variance {variance}");
            let below = |x: f64| 0.5 * (1.0 + libm::erf((x - 2.0) / 0.5 / 2_f64.sqrt()));
            let far = distance(normal.clone(), below);
            assert!(far < 1.95, "normal, seed {seed}: {far}");
            // Neighbours, of which one pair is drawn from the same words, are not correlated.
            let pairs = normal.windows(2).map(|of| (of[0] - mean) * (of[1] - mean));
            let together = pairs.sum::<f64>() / count as f64 / variance;
            assert!(together.abs() < 3.3 / 200.0, "seed {seed}: correlation {together}");
        }
    }
}

/// Ones among elements, and among pairs of neighbours, against the probability: chi-square with 3
/// degrees of freedom, above 16.3 for one sample of a thousand.
#[test]
fn ones_are_as_frequent_as_their_probability() {
    for seed in SEEDS {
        for probability in [0.5, 0.9, 0.01] {
            let op = Rng::bernoulli(probability).seed(Some(seed));
            let all = numbers(op, 2, &[200, 1000], DType::I8);
            let mut counts = [0.0_f64; 4];
            for pair in all.chunks(2) {
                counts[(2.0 * pair[0] + pair[1]) as usize] += 1.0;
            }
            let (one, none) = (probability, 1.0 - probability);
            let shares = [none * none, none * one, one * none, one * one];
            let pairs = all.len() as f64 / 2.0;
            let terms = counts.iter().zip(shares).map(|(have, share)| {
                let want = pairs * share;
                (have - want).powi(2) / want
            });
            let square: f64 = terms.sum();
            assert!(square < 16.3, "probability {probability}, seed {seed}: {square} {counts:?}");
        }
    }
    let certain = |probability| numbers(Rng::bernoulli(probability), 0, &[1000], DType::Bool);
    assert_eq!(certain(1.0), [1.0; 1000]);
    assert_eq!(certain(0.0), [0.0; 1000]);
}

/// A mask that is stored is the one that is drawn in the place of it, in every kernel.
#[test]
fn a_mask_that_is_stored_is_the_one_that_is_used() {
    let graph = gemm_dropout([48, 40, 32], DType::F16, true);
    let plain = gemm_dropout([48, 40, 32], DType::F16, false);
    let kiln = harness::kiln();
    let run = |graph: &OperationGraph| {
        let plan = kiln.plan(graph).unwrap();
        assert_eq!(plan.kernels().len(), 1, "one kernel");
        let inputs = values(graph);
        let results = harness::run_plan(kiln, &plan, &inputs).unwrap();
        let of = |name: &str| results.get(&graph.tensor_named(name).unwrap().uid).cloned();
        (of("y").unwrap(), of("keep"))
    };
    let (with, mask) = run(&graph);
    let (without, _) = run(&plain);
    assert_eq!(with, without);
    let offset = (1_i64 << 33) + 7;
    let op = Rng::bernoulli(0.9).seed(Some(5));
    assert_eq!(mask.unwrap(), numbers(op, offset, &[48, 40], DType::Bool));
}

/// Uniform attention to values that are the unit vectors shows what dropout keeps.
#[test]
fn dropout_of_attention_draws_from_the_same_stream() {
    let (shape, probability) = ([2, 3, 5, 8], 0.3);
    let [batch, heads, queries, keys] = shape;
    let mut graph = OperationGraph::builder();
    let q = graph.input("q", &[batch, heads, queries, 4], DType::F32);
    let k = graph.input("k", &[batch, heads, keys, 4], DType::F32);
    let v = graph.input("v", &[batch, heads, keys, keys], DType::F32);
    let seed = graph.input("seed", &[1, 1, 1, 1], DType::I64);
    let offset = graph.input("offset", &[1, 1, 1, 1], DType::I64);
    let dropout = Some(Real::new(probability));
    let op = Attention { dropout, ..Attention::new(MatmulMath::F32) };
    let o = graph.operation(Op::Attention(op), &[q, k, v, seed, offset]).unwrap()[0];
    graph.output(o, "o", DType::F32);
    let graph = graph.build().unwrap();
    let units = (0..batch * heads * keys * keys).map(|at| at % (keys * keys) % (keys + 1));
    let (seed_value, offset_value) = (-0x0001_2345_6789_abcd_i64, (1_i64 << 40) + 3);
    let inputs = HashMap::from([
        (q, vec![0.0; (batch * heads * queries * 4) as usize]),
        (k, vec![0.0; (batch * heads * keys * 4) as usize]),
        (v, units.map(|at| if at == 0 { 1.0 } else { 0.0 }).collect()),
        (seed, vec![seed_value as f64]),
        (offset, vec![offset_value as f64]),
    ]);
    let keep = Rng::bernoulli(1.0 - probability).seed(Some(seed_value));
    let mask = numbers(keep, offset_value, &shape, DType::Bool);
    for kiln in harness::dialects() {
        let plan = kiln.plan(&graph).unwrap();
        let results = harness::run_plan(kiln, &plan, &inputs).unwrap();
        harness::compare(&graph, &inputs, &results, "attention");
        let kept: Vec<f64> = results[&o].iter().map(|of| f64::from(u8::from(*of > 0.0))).collect();
        assert_eq!(kept, mask);
    }
}

/// A seed or an offset that the graph computes is in memory before numbers are drawn.
#[test]
fn a_computed_offset_is_another_kernel() {
    let mut graph = OperationGraph::builder();
    let steps = graph.input("offset", &[1], DType::I32);
    let next = graph.pointwise(Pointwise::new(Mode::Add), &[steps, steps]).unwrap();
    graph.name(next, "next", DType::I32);
    let y = graph.rng(Rng::uniform(0.0, 1.0), &[next], &[5, 9]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let kiln = harness::kiln();
    let plan = kiln.plan(&graph).unwrap();
    assert_eq!(plan.kernels().len(), 2);
    let results = harness::run_plan(kiln, &plan, &HashMap::from([(steps, vec![21.0])])).unwrap();
    assert_eq!(results[&y], numbers(Rng::uniform(0.0, 1.0), 42, &[5, 9], DType::F32));
}

/// A problem of random numbers with changes to its keys and to its tensors.
fn problem(keys: &Value, tensors: &[Value]) -> String {
    let mut operation = json!({
        "rng": "bernoulli", "probability": 0.5, "offset": "offset", "y": "y",
    });
    for (key, value) in keys.as_object().unwrap() {
        match value.is_null() {
            true => drop(operation.as_object_mut().unwrap().remove(key)),
            false => operation[key] = value.clone(),
        }
    }
    let mut all = vec![
        json!({"name": "offset", "dtype": "i64", "dims": [1]}),
        json!({"name": "y", "dtype": "f32", "dims": [4, 6]}),
    ];
    for tensor in tensors {
        all.retain(|other| other["name"] != tensor["name"]);
        all.push(tensor.clone());
    }
    json!({"graph": {"tensors": all, "operations": [operation]}}).to_string()
}

#[track_caller]
fn refused(keys: Value, tensors: &[Value], words: &str) {
    let error = OperationGraph::from_json(&problem(&keys, tensors)).expect_err(words);
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, words));
}

/// The keys of a distribution of two parameters.
fn keys(name: &str, parameters: [(&str, f64); 2]) -> Value {
    let mut keys = json!({"rng": name, "probability": null});
    for (key, value) in parameters {
        keys[key] = json!(value);
    }
    keys
}

#[test]
fn what_is_no_distribution_is_said_with_its_numbers() {
    OperationGraph::from_json(&problem(&json!({}), &[])).unwrap();
    refused(json!({"probability": 1.5}), &[], "rng: probability 1.5 is not in [0, 1]");
    refused(json!({"probability": -0.25}), &[], "rng: probability -0.25 is not in [0, 1]");
    refused(json!({"probability": null}), &[], "rng: key `probability` is missing");
    let uniform =
        |minimum: f64, maximum: f64| keys("uniform", [("minimum", minimum), ("maximum", maximum)]);
    refused(uniform(2.0, 1.0), &[], "rng: maximum 1 is below minimum 2");
    refused(
        uniform(-3e38, 3e38),
        &[],
        "rng: the range from -300000000000000000000000000000000000000 to \
         300000000000000000000000000000000000000 is larger than f32 can hold",
    );
    let normal = |mean: f64, deviation: f64| {
        keys("normal", [("mean", mean), ("standard_deviation", deviation)])
    };
    refused(normal(0.0, -0.5), &[], "rng: standard_deviation -0.5 is negative");
    refused(
        normal(1e39, 1.0),
        &[],
        "rng: mean is 1000000000000000000000000000000000000000, which f32 cannot hold",
    );
    refused(
        json!({"rng": "poisson"}),
        &[],
        "rng: key `rng` is `poisson`, expected one of bernoulli, uniform, normal",
    );
    refused(
        json!({"seed": 0.5}),
        &[],
        "rng: key `seed` is 0.5, expected a whole number of 64 bits \
         or a tensor",
    );
    refused(json!({"math": "i32"}), &[], "rng: not defined for math i32");
    refused(json!({"mean": 0}), &[], "rng: unknown key `mean`");
}

#[test]
fn seeds_and_offsets_are_single_integers() {
    let offset =
        |dtype: &str, dims: &[i64]| json!({"name": "offset", "dtype": dtype, "dims": dims});
    let shown = "rng[bernoulli{probability=0.5}, seed 0]";
    refused(
        json!({}),
        &[offset("i64", &[2])],
        &format!("{shown}: offset `offset` is [2], expected one element"),
    );
    refused(
        json!({}),
        &[offset("f32", &[1])],
        &format!("{shown}: offset `offset` is f32, expected i64 or i32"),
    );
    refused(
        json!({"seed": "seed"}),
        &[json!({"name": "seed", "dtype": "u8", "dims": [1, 1]})],
        "rng[bernoulli{probability=0.5}]: seed `seed` is u8, expected i64 or i32",
    );
    refused(json!({"offset": null}), &[], "rng: key `offset` is missing");
    refused(
        json!({"subsequence": "first"}),
        &[json!({"name": "first", "dtype": "i64", "dims": [2]})],
        "rng[bernoulli{probability=0.5}, seed 0, from a subsequence]: subsequence `first` is [2], \
         expected one element",
    );
    refused(json!({"subsequence": 4}), &[], "rng: key `subsequence` is 4, expected a string");
    refused(
        json!({"rng": "uniform", "probability": null, "minimum": 0, "maximum": 1}),
        &[json!({"name": "y", "dtype": "i32", "dims": [4]})],
        "rng[uniform{minimum=0, maximum=1}, seed 0]: `y` is i32, expected a floating-point type",
    );
}

#[test]
fn documents_say_all_of_random_numbers() {
    let seeds = [json!({"name": "seed", "dtype": "i64", "dims": [1, 1], "by_value": true})];
    for (keys, tensors, shown) in [
        (json!({}), &seeds[..0], "rng[bernoulli{probability=0.5}, seed 0]"),
        (
            json!({"seed": i64::MIN}),
            &seeds[..0],
            "rng[bernoulli{probability=0.5}, seed -9223372036854775808]",
        ),
        (
            json!({
                "rng": "normal", "probability": null, "mean": -1.5, "standard_deviation": 0.25,
                "seed": "seed", "math": "f64",
            }),
            &seeds[..],
            "rng[normal{mean=-1.5, standard_deviation=0.25}, f64]",
        ),
        (
            json!({"seed": -3, "subsequence": "seed"}),
            &seeds[..],
            "rng[bernoulli{probability=0.5}, seed -3, from a subsequence]",
        ),
    ] {
        let graph = OperationGraph::from_json(&problem(&keys, tensors)).unwrap();
        let text = graph.to_json();
        let again = OperationGraph::from_json(&text).unwrap();
        assert_eq!((&again, again.to_json()), (&graph, text));
        assert_eq!(graph.operations()[0].op.to_string(), shown);
    }
}

/// What is not read does not make another graph.
#[test]
fn the_precision_of_zeros_and_ones_does_not_matter() {
    let digest = |op: Rng| alone(op, &[7], DType::F64).0.form_digest();
    let op = Rng::bernoulli(0.5);
    assert_eq!(digest(op), digest(op.math(Math::F64)));
    let uniform = Rng::uniform(0.0, 1.0);
    assert_ne!(digest(uniform), digest(uniform.math(Math::F64)));
    let other = Distribution::Bernoulli { probability: Real::new(0.25) };
    assert_ne!(digest(op), digest(Rng::new(other)));
}
