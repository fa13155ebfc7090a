//! What operations beyond the pointwise mean: against plain formulas, against each other, against
//! the slope of their forward operation; and their form in JSON.

use std::collections::HashMap;

use kiln::expr::{Math, Mode, Pointwise};
use kiln::graph::{
    BnBackwardWeights, BnFinalize, GenStats, Matmul, MatmulMath, NormBackward, NormForward,
    NormMode, Op, OperationGraph, Phase, Reduction, ReductionOp,
};
use kiln::{DType, ErrorKind, TensorDesc, reference};

/// Values between -2 and 2, the same for the same seed.
fn values(count: i64, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 11) as f64 / (1_u64 << 51) as f64 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

/// An operation in double precision on packed tensors: its results by slot.
fn run(op: Op, operands: &[(&[i64], &[f64])]) -> HashMap<&'static str, Vec<f64>> {
    let mut graph = OperationGraph::builder();
    let slots = op.slots();
    let mut inputs = Vec::new();
    let mut given = HashMap::new();
    for (slot, (dims, values)) in slots.inputs.iter().zip(operands) {
        let integers = slot.ends_with("_override");
        let uid = graph.input(slot, dims, if integers { DType::I32 } else { DType::F64 });
        given.insert(uid, values.to_vec());
        inputs.push(uid);
    }
    let outputs = graph.operation(op, &inputs).unwrap();
    for (slot, uid) in slots.outputs.iter().zip(&outputs) {
        graph.output(*uid, &format!("out_{slot}"), DType::F64);
    }
    let graph = graph.build().unwrap();
    let mut results = reference::evaluate(&graph, &given).unwrap();
    let named = slots.outputs.iter().zip(&outputs);
    named.map(|(slot, uid)| (*slot, results.remove(uid).unwrap().values)).collect()
}

#[track_caller]
fn close(have: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(have.len(), want.len());
    for (at, (have, want)) in have.iter().zip(want).enumerate() {
        let error = (have - want).abs();
        assert!(error <= tolerance * (1.0 + want.abs()), "at {at}: {have}, not {want}");
    }
}

fn f64_matmul() -> Matmul {
    Matmul::new(MatmulMath::F64)
}

#[test]
fn products_broadcast_their_batches() {
    let (a, b) = (values(2 * 3 * 4, 1), values(3 * 4 * 5, 2));
    let c = run(Op::Matmul(f64_matmul()), &[(&[2, 1, 3, 4], &a), (&[1, 3, 4, 5], &b)]);
    let mut want = Vec::new();
    for (i, j) in (0..2).flat_map(|i| (0..3).map(move |j| (i, j))) {
        for (m, n) in (0..3).flat_map(|m| (0..5).map(move |n| (m, n))) {
            let term = |k: usize| a[(i * 3 + m) * 4 + k] * b[(j * 4 + k) * 5 + n];
            want.push((0..4).map(term).sum::<f64>());
        }
    }
    close(&c["c"], &want, 1e-14);
}

#[test]
fn overrides_leave_zeros() {
    let op = Matmul { overrides: [true, false, true], ..f64_matmul() };
    let ones = [1.0; 2 * 3 * 4];
    let operands: [(&[i64], &[f64]); 4] = [
        (&[2, 3, 4], &ones),
        (&[1, 4, 2], &ones[..8]),
        (&[2, 1, 1], &[2.0, 9.0]),
        (&[2, 1, 1], &[4.0, 1.0]),
    ];
    let c = run(Op::Matmul(op), &operands);
    assert_eq!(c["c"], [4.0, 4.0, 4.0, 4.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn integer_products_are_exact_and_empty_ones_zero() {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[1, 300], DType::I8);
    let b = graph.input("b", &[300, 1], DType::U8);
    let c = graph.matmul(Matmul::new(MatmulMath::I32), a, b).unwrap();
    graph.output(c, "c", DType::I32);
    let graph = graph.build().unwrap();
    let inputs = HashMap::from([(a, vec![-128.0; 300]), (b, vec![255.0; 300])]);
    let c = &reference::evaluate(&graph, &inputs).unwrap()[&c];
    assert_eq!((c.values[0], c.bounds[0]), (-128.0 * 255.0 * 300.0, 0.0));
    let none = run(Op::Matmul(f64_matmul()), &[(&[2, 0], &[]), (&[0, 2], &[])]);
    assert_eq!(none["c"], [0.0; 4]);
}

#[test]
fn reductions_by_hand() {
    let x = [3.0, -4.0, 0.0, 0.5, f64::NAN, 1.0];
    let reduce = |op: ReductionOp, dims: &[i64], out: &[i64], x: &[f64]| {
        let mut graph = OperationGraph::builder();
        let input = graph.input("x", dims, DType::F64);
        let reduction = Reduction { op, math: Math::F64 };
        let y = graph.reduction(reduction, input, out).unwrap();
        graph.output(y, "y", DType::F64);
        let inputs = HashMap::from([(input, x.to_vec())]);
        reference::evaluate(&graph.build().unwrap(), &inputs).unwrap()[&y].values.clone()
    };
    for (op, first, none) in [
        (ReductionOp::Add, -1.0, 0.0),
        (ReductionOp::Mul, 0.0, 1.0),
        (ReductionOp::Min, -4.0, f64::INFINITY),
        (ReductionOp::Max, 3.0, f64::NEG_INFINITY),
        (ReductionOp::Amax, 4.0, 0.0),
        (ReductionOp::Avg, -1.0 / 3.0, f64::NAN),
        (ReductionOp::Norm1, 7.0, 0.0),
        (ReductionOp::Norm2, 5.0, 0.0),
        (ReductionOp::MulNoZeros, -12.0, 1.0),
    ] {
        let rows = reduce(op, &[2, 3], &[2, 1], &x);
        assert!((rows[0] - first).abs() < 1e-15, "{op:?}: {rows:?}");
        assert!(rows[1].is_nan(), "{op:?}: {rows:?}");
        let empty = reduce(op, &[1, 0], &[1, 1], &[]);
        assert!(empty[0] == none || empty[0].is_nan() && none.is_nan(), "{op:?}: {empty:?}");
    }
    let columns = reduce(ReductionOp::Add, &[2, 2], &[1, 2], &[1.0, 2.0, 10.0, 20.0]);
    assert_eq!(columns, [11.0, 22.0]);
}

const MODES: [NormMode; 5] =
    [NormMode::Layer, NormMode::Rms, NormMode::Instance, NormMode::Batch, NormMode::Group(2)];

/// Data of 3 samples, 4 channels, 5 positions, and the dimensions of the parameters.
const DATA: [i64; 3] = [3, 4, 5];

fn parameters(mode: NormMode) -> Vec<i64> {
    match mode {
        NormMode::Layer | NormMode::Rms => vec![1, 4, 5],
        _ => vec![1, 4, 1],
    }
}

fn forward(mode: NormMode) -> NormForward {
    NormForward { math: Math::F64, statistics: true, ..NormForward::new(mode, Phase::Training) }
}

#[test]
fn normal_values_have_mean_0_and_variance_1() {
    for mode in MODES {
        let dims = parameters(mode);
        let count = dims.iter().product::<i64>();
        let (x, ones, zeros) =
            (values(60, 3), vec![1.0; count as usize], vec![0.0; count as usize]);
        let operands: [(&[i64], &[f64]); 4] =
            [(&DATA, &x), (&dims, &ones), (&dims, &zeros), (&[1, 1, 1], &[1e-12])];
        let results = run(Op::NormForward(forward(mode)), &operands);
        // Groups of elements, by hand: sample, channel, position of each.
        let group = |at: usize| match mode {
            NormMode::Layer | NormMode::Rms => at / 20,
            NormMode::Instance => at / 5,
            NormMode::Batch => at / 5 % 4,
            _ => at / 10,
        };
        let y = &results["y"];
        for number in 0..=group(59).max(group(19)) {
            let members: Vec<f64> =
                (0..60).filter(|at| group(*at) == number).map(|at| y[at]).collect();
            let count = members.len() as f64;
            let mean = members.iter().sum::<f64>() / count;
            let square = members.iter().map(|y| y * y).sum::<f64>() / count;
            assert!((square - 1.0).abs() < 1e-9, "{mode:?}: {square}");
            assert!(mode == NormMode::Rms || mean.abs() < 1e-12, "{mode:?}: {mean}");
        }
        assert_eq!(results.contains_key("mean"), mode != NormMode::Rms);
    }
}

/// Gradients against the central difference of `sum(dy * y)`.
#[test]
fn gradients_are_the_slope_of_the_forward_operation() {
    for mode in MODES {
        let dims = parameters(mode);
        let count = dims.iter().product::<i64>();
        let (x, dy) = (values(60, 5), values(60, 6));
        let (scale, bias) = (values(count, 7), values(count, 8));
        let epsilon: (&[i64], &[f64]) = (&[1, 1, 1], &[1e-3]);
        let loss = |x: &[f64], scale: &[f64], bias: &[f64]| -> f64 {
            let operands = [(&DATA[..], x), (&dims[..], scale), (&dims[..], bias), epsilon];
            let y = &run(Op::NormForward(forward(mode)), &operands)["y"];
            y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        };
        let slope = |of: &dyn Fn(&[f64]) -> f64, at: &[f64]| -> Vec<f64> {
            let step = 1e-5;
            let moved = |index: usize, by: f64| {
                let mut moved = at.to_vec();
                moved[index] += by;
                of(&moved)
            };
            let difference = |index| (moved(index, step) - moved(index, -step)) / (2.0 * step);
            (0..at.len()).map(difference).collect()
        };
        let backward =
            NormBackward { math: Math::F64, statistics: false, ..NormBackward::new(mode) };
        let operands = [(&DATA[..], &x[..]), (&DATA, &dy), (&dims, &scale), epsilon];
        let gradients = run(Op::NormBackward(backward), &operands);
        close(&gradients["dx"], &slope(&|x| loss(x, &scale, &bias), &x), 1e-7);
        close(&gradients["dscale"], &slope(&|scale| loss(&x, scale, &bias), &scale), 1e-7);
        close(&gradients["dbias"], &slope(&|bias| loss(&x, &scale, bias), &bias), 1e-7);
    }
}

/// Batch normalisation in one operation, and split around others.
#[test]
fn a_split_batch_norm_is_the_whole_one() {
    let (x, dy) = (values(60, 9), values(60, 10));
    let channels: &[i64] = &[1, 4, 1];
    let (scale, bias) = (values(4, 11), values(4, 12));
    let (old_mean, old_var) = (values(4, 13), vec![1.5; 4]);
    let one: &[i64] = &[1, 1, 1];
    let whole = NormForward { running: true, ..forward(NormMode::Batch) };
    let operands: [(&[i64], &[f64]); 7] = [
        (&DATA, &x),
        (channels, &scale),
        (channels, &bias),
        (one, &[1e-5]),
        (one, &[0.1]),
        (channels, &old_mean),
        (channels, &old_var),
    ];
    let whole = run(Op::NormForward(whole), &operands);
    let sums = run(Op::GenStats(GenStats { math: Math::F64 }), &[(&DATA, &x)]);
    let finalize = BnFinalize { math: Math::F64, running: true, phase: Phase::Training };
    let operands: [(&[i64], &[f64]); 9] = [
        (channels, &scale),
        (channels, &bias),
        (one, &[1e-5]),
        (channels, &sums["sum"]),
        (channels, &sums["sq_sum"]),
        (one, &[15.0]),
        (channels, &old_mean),
        (channels, &old_var),
        (one, &[0.1]),
    ];
    let line = run(Op::BnFinalize(finalize), &operands);
    let channel = |at: usize| at / 5 % 4;
    let y: Vec<f64> = (0..60)
        .map(|at| line["eq_scale"][channel(at)] * x[at] + line["eq_bias"][channel(at)])
        .collect();
    close(&y, &whole["y"], 1e-12);
    close(&line["saved_mean"], &whole["mean"], 1e-13);
    close(&line["saved_inv_std"], &whole["inv_variance"], 1e-12);
    close(&line["updated_running_mean"], &whole["output_running_mean"], 1e-13);
    close(&line["updated_running_var"], &whole["output_running_var"], 1e-12);
    // The unbiased variance goes into the running one.
    let deviation = |c: usize| {
        let of = (0..60).filter(|at| channel(*at) == c).map(|at| x[at]);
        let mean = of.clone().sum::<f64>() / 15.0;
        of.map(|x| (x - mean).powi(2)).sum::<f64>() / 14.0
    };
    let running: Vec<f64> = (0..4).map(|c| 0.9 * 1.5 + 0.1 * deviation(c)).collect();
    close(&whole["output_running_var"], &running, 1e-13);

    let backward = NormBackward { math: Math::F64, ..NormBackward::new(NormMode::Batch) };
    let statistics: [(&[i64], &[f64]); 2] =
        [(channels, &whole["mean"]), (channels, &whole["inv_variance"])];
    let data: [(&[i64], &[f64]); 3] = [(&DATA, &x), (&DATA, &dy), (channels, &scale)];
    let gradients = run(Op::NormBackward(backward), &[&data[..], &statistics].concat());
    let operands = [data[0], data[1], statistics[0], statistics[1], data[2]];
    let plane = run(Op::BnBackwardWeights(BnBackwardWeights { math: Math::F64 }), &operands);
    let dx: Vec<f64> = (0..60)
        .map(|at| {
            let of = |slot: &str| plane[slot][channel(at)];
            of("eq_dy_scale") * dy[at] + of("eq_x_scale") * x[at] + of("eq_bias")
        })
        .collect();
    close(&dx, &gradients["dx"], 1e-12);
    close(&plane["dscale"], &gradients["dscale"], 1e-12);
    close(&plane["dbias"], &gradients["dbias"], 1e-12);
}

/// A graph of every kind of operation goes to JSON and back.
#[test]
fn every_operation_has_a_json_form() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[2, 4, 6], DType::F32);
    let w = graph.input("w", &[1, 6, 6], DType::F32);
    let rows = graph.input("rows", &[2, 1, 1], DType::I32);
    let scale = graph.input("scale", &[1, 4, 1], DType::F32);
    let bias = graph.input("bias", &[1, 4, 1], DType::F32);
    let epsilon = graph.scalar("epsilon", 3, DType::F32);
    let count = graph.scalar("count", 3, DType::F32);
    let matmul = Matmul { overrides: [true, false, false], ..Matmul::new(MatmulMath::Tf32) };
    let h = graph.operation(Op::Matmul(matmul), &[x, w, rows]).unwrap()[0];
    let norm =
        NormForward { statistics: true, ..NormForward::new(NormMode::Group(2), Phase::Training) };
    let norm = graph.operation(Op::NormForward(norm), &[h, scale, bias, epsilon]).unwrap();
    let dy = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[norm[0]]).unwrap();
    let backward = Op::NormBackward(NormBackward::new(NormMode::Group(2)));
    let gradients = graph.operation(backward, &[h, dy, scale, norm[1], norm[2]]).unwrap();
    let sums = graph.operation(Op::GenStats(GenStats::default()), &[gradients[0]]).unwrap();
    let finalize = Op::BnFinalize(BnFinalize::new(Phase::Training));
    let line = graph.operation(finalize, &[scale, bias, epsilon, sums[0], sums[1], count]).unwrap();
    let weights = Op::BnBackwardWeights(BnBackwardWeights { math: Math::F64 });
    let plane = graph.operation(weights, &[h, dy, line[2], line[3], scale]).unwrap();
    let reduction = Reduction { op: ReductionOp::Norm2, math: Math::F64 };
    let total = graph.reduction(reduction, dy, &[1, 4, 1]).unwrap();
    let outputs = [&gradients[1..], &line[..2], &plane, &[total]].concat();
    for (at, uid) in outputs.into_iter().enumerate() {
        graph.output(uid, &format!("out{at}"), DType::F32);
    }
    let graph = graph.build().unwrap();
    let text = graph.to_json();
    let back = OperationGraph::from_json(&text).unwrap();
    assert_eq!(back, graph);
    assert_eq!(back.to_json(), text);
    for form in [
        "\"matmul\": \"tf32\",\n        \"a\": \"x\",\n        \"b\": \"w\",\n        \"m_ov",
        "\"norm_forward\": \"group\",\n        \"phase\": \"training\",\n        \"groups\": 2",
        "\"reduction\": \"norm2\",\n        \"math\": \"f64\"",
        "\"bn_backward_weights\": \"f64\"",
    ] {
        assert!(text.contains(form), "{form} is not in\n{text}");
    }
}

/// One product without a stride is a product; more of them would lie nowhere.
#[test]
fn batches_without_a_stride() {
    let graph = |irregular_batches: i64| {
        let mut graph = OperationGraph::builder();
        let [a, b] = ["a", "b"].map(|name| graph.input(name, &[1, 4, 4], DType::F32));
        let c = graph.matmul(Matmul { irregular_batches, ..f64_matmul() }, a, b)?;
        graph.output(c, "c", DType::F32);
        graph.build()
    };
    graph(1).unwrap();
    let error = graph(3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = "matmul: 3 irregularly strided batches: nothing says where each lies";
    assert_eq!(error.to_string(), text);
}

#[test]
fn operations_that_do_not_fit() {
    let graph = |operation: &str, more: &str| {
        let tensors = r#"{"name":"x","dtype":"f32","dims":[2,4,6]},
            {"name":"w","dtype":"f32","dims":[1,6,6]}, {"name":"e","dtype":"f32","dims":[1,1,1]},
            {"name":"s","dtype":"f32","dims":[1,4,1]}, {"name":"y","dtype":"f32","dims":[2,4,6]}"#;
        let text =
            format!(r#"{{"graph":{{"tensors":[{tensors}{more}],"operations":[{operation}]}}}}"#);
        OperationGraph::from_json(&text).unwrap_err().to_string()
    };
    let norm = |mode: &str, phase: &str, scale: &str, epsilon: &str| {
        let tensors = format!(r#""x":"x","scale":"{scale}","epsilon":"{epsilon}","y":"y""#);
        format!(r#"{{"norm_forward":{mode},"phase":"{phase}",{tensors}}}"#)
    };
    for (operation, text) in [
        (
            r#"{"matmul":"f32","a":"x","b":"x","c":"y"}"#,
            "matmul: the K extents of A and B differ: `x` is [2, 4, 6], `x` is [2, 4, 6]",
        ),
        (
            r#"{"matmul":"f32","a":"x","b":"w","c":"s"}"#,
            "matmul: output `s` is [1, 4, 1], expected [2, 4, 6]",
        ),
        (
            r#"{"matmul":"f32","irregularly_strided_batch_count":-1,"a":"x","b":"w","c":"y"}"#,
            "matmul: the count of irregularly strided batches is -1, less than 0",
        ),
        (
            r#"{"matmul":"f32","irregularly_strided_batch_count":3,"a":"x","b":"w","c":"y"}"#,
            "matmul: 3 irregularly strided batches next to those of `x`: [2, 4, 6]",
        ),
        (
            r#"{"matmul":"i32","a":"x","b":"w","c":"y"}"#,
            "matmul: `x` is f32, math i32 accepts i32, i8 and u8",
        ),
        (
            r#"{"matmul":"f16","a":"x","b":"w","c":"y"}"#,
            "matmul: key `matmul` is `f16`, expected one of f32, tf32, f64, i32",
        ),
        (r#"{"matmul":"f32","a":"x","c":"y"}"#, "matmul: key `b` is missing"),
        (r#"{"matmul":"f32","a":"x","b":"w","c":"y","d":"s"}"#, "matmul: unknown key `d`"),
        (
            r#"{"matmul":"f32","a":"x","b":"v","c":"y"}"#,
            "matmul: no tensor of the graph is named `v`",
        ),
        (
            r#"{"reduction":"median","x":"x","y":"s"}"#,
            "unknown reduction `median`: expected one of add, mul, min, max, amax, avg, norm1, \
             norm2, mul_no_zeros",
        ),
        (
            r#"{"reduction":"add","x":"x","y":"w"}"#,
            "reduce_add: output `w` is [1, 6, 6], expected the dimensions of `x`, [2, 4, 6], some \
             of them 1",
        ),
        (&norm(r#""group""#, "training", "s", "e"), "norm_forward: key `groups` is missing"),
        (
            &norm(r#""group","groups":3"#, "training", "s", "e"),
            "group norm: 4 channels do not split into 3 groups: `x` is [2, 4, 6], `s` is [1, 4, 1]",
        ),
        (
            &norm(r#""batch""#, "inference", "s", "e"),
            "batch_norm_inference: inference requires mean and inv_variance",
        ),
        (
            &norm(r#""layer""#, "training", "w", "e"),
            "layer norm: each extent of the scale must be that of x or 1: `x` is [2, 4, 6], `w` is \
             [1, 6, 6]",
        ),
        (
            &norm(r#""rms""#, "training", "s", "s"),
            "rms_norm_training: epsilon `s` is [1, 4, 1], expected one element",
        ),
        (
            r#"{"conv":"f32"}"#,
            "expected one of the keys pointwise, matmul, convolution_forward, \
             convolution_backward_data, convolution_backward_filter, resample_forward, \
             resample_backward, reduction, ctc_loss, rng, norm_forward, norm_backward, gen_stats, \
             bn_finalize, bn_backward_weights, recurrence, pointwise_loop, resident_loop, \
             attention, attention_backward, signal, slice, transpose, reshape, concatenate, \
             dynamic_slice, got {\"conv\":\"f32\"}",
        ),
    ] {
        assert_eq!(graph(operation, ""), text);
    }
    let strided = r#",{"name":"z","dtype":"f32","dims":[1,6,6],"strides":[144,24,2]}"#;
    assert_eq!(
        graph(r#"{"matmul":"f32","a":"x","b":"z","c":"y"}"#, strided),
        "matmul: neither rows nor columns of `z` are packed: dimensions [1, 6, 6], strides \
         [144, 24, 2]"
    );
}

/// Isomorphic graphs share a form, whatever the order of several results.
#[test]
fn several_results_have_one_form() {
    let graph = |first: i64| {
        let packed =
            |uid: i64, name: &str, dims: &[i64]| TensorDesc::packed(uid, name, dims, DType::F32);
        let uid = |at: i64| (first + at) % 7 + 1;
        let tensors = vec![
            packed(uid(0), "x", &[3, 4]),
            packed(uid(1), "sum", &[1, 4]),
            packed(uid(2), "squares", &[1, 4]),
        ];
        let op = Op::GenStats(GenStats::default());
        let operation =
            kiln::graph::Operation { op, inputs: vec![uid(0)], outputs: vec![uid(1), uid(2)] };
        OperationGraph::new(tensors, vec![operation]).unwrap()
    };
    assert_eq!(graph(0).form_digest(), graph(5).form_digest());
    assert_ne!(graph(0).digest(), graph(5).digest());
}
