//! Gradients of attention: against central differences in double precision, what they must not
//! read, and invalid operations.

use std::sync::Arc;

use kiln::expr::Real;
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath, Softcap,
};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc, reference};
use serde::Deserialize;

use crate::attention::backward_cases;
use crate::attention::cases::{self, Case, Storage};
use crate::attention::torch;
use crate::harness::{self, Values};

const SMALL: AttentionShape =
    AttentionShape { batches: 2, heads: 4, kv_heads: 2, queries: 5, keys: 7, depth: 3, width: 2 };

/// All gradients that an operation has.
fn all(op: Attention) -> AttentionBackward {
    let captures = op.score.as_deref().is_some_and(|score| score.inputs().len() > 1);
    let mut backward = AttentionBackward {
        dlse: true,
        dbias: op.bias,
        dslopes: op.slopes,
        dsinks: op.sinks,
        ..AttentionBackward::new(op)
    };
    backward.dscore[0] = captures && backward.forward.score.is_some();
    backward
}

/// The gradients are the slopes of the forward operation's results, weighted.
#[track_caller]
fn slopes(op: Attention, broadcast: [bool; 4]) {
    let mut backward = all(op);
    // Coordinates are inputs of programs too.
    let slots = kiln::graph::Op::Attention(backward.forward.clone()).slots().inputs;
    backward.dscore[0] &= slots.contains(&"score_0");
    let storage = [Storage::packed(DType::F64); 4];
    let forward = cases::case_of(backward.forward.clone(), SMALL, storage, broadcast, 1);
    let forward = in_f64(&forward);
    let graph = backward_cases::graph(&backward, SMALL, storage, broadcast);
    let graph = widened(&graph);
    let inputs = backward_cases::with_results(&graph, &forward, 1);
    let found = reference::evaluate(&graph, &inputs).unwrap();
    let weight = |slot: &str| &inputs[&graph.tensor_named(slot).unwrap().uid];
    let weighted = |inputs: &Values| -> f64 {
        let results = reference::evaluate(&forward.graph, inputs).unwrap();
        let sum = |result: &str, weights: &[f64]| -> f64 {
            let values = &results[&forward.graph.tensor_named(result).unwrap().uid].values;
            let finite = values.iter().zip(weights).filter(|(value, _)| value.is_finite());
            finite.map(|(value, weight)| value * weight).sum()
        };
        sum("o", weight("do")) + sum("lse", weight("dlse"))
    };
    let mut checked = 0;
    for tensor in graph.outputs() {
        let operand = forward.graph.tensor_named(&tensor.name[1..]).unwrap().uid;
        for at in 0..forward.inputs[&operand].len() {
            let step = 1e-5;
            let beside = |side: f64| {
                let mut moved = forward.inputs.clone();
                moved.get_mut(&operand).unwrap()[at] += side * step;
                weighted(&moved)
            };
            let slope = (beside(1.0) - beside(-1.0)) / (2.0 * step);
            let have = found[&tensor.uid].values[at];
            let same = (have - slope).abs() <= 2e-8 * (1.0 + slope.abs());
            assert!(same, "`{}`[{at}]: {have}, the slope is {slope}\n{graph}", tensor.name);
            checked += 1;
        }
    }
    assert!(checked > 0);
}

/// The same graph with every floating-point tensor in double precision.
fn widened(graph: &OperationGraph) -> OperationGraph {
    let mut builder = OperationGraph::builder();
    for tensor in graph.tensors() {
        let wide = tensor.dtype.is_float() && !tensor.name.starts_with("score_");
        let wide = wide && !tensor.name.starts_with("dscore_");
        let dtype = if wide { DType::F64 } else { tensor.dtype };
        let dtype = if tensor.name.starts_with("dscore_") { DType::F64 } else { dtype };
        builder.tensor(TensorDesc { dtype, ..tensor.clone() });
    }
    for of in graph.operations() {
        builder.operation_into(of.op.clone(), &of.inputs, &of.outputs);
    }
    builder.build().unwrap()
}

fn in_f64(case: &Case) -> Case {
    Case { graph: widened(&case.graph), inputs: case.inputs.clone() }
}

#[test]
fn gradients_are_slopes() {
    let band = Band::causal(Diagonal::BottomRight);
    let softcap = |last| Some(Softcap { cap: Real::new(0.75), last });
    let plain = Attention::new(MatmulMath::F64);
    for op in [
        plain.clone(),
        Attention { scale: Some(Real::new(-0.7)), band, ..plain.clone() },
        Attention {
            band: Band { diagonal: Diagonal::TopLeft, left: Some(2), right: Some(1) },
            ..plain.clone()
        },
        Attention { softcap: softcap(false), bias: true, ..plain.clone() },
        Attention { softcap: softcap(true), bias: true, slopes: true, ..plain.clone() },
        Attention { sinks: true, mask: true, ..plain.clone() },
        Attention { intervals: true, sinks: true, ..plain.clone() },
        Attention { query_lengths: true, key_lengths: true, band, ..plain.clone() },
        Attention { queries_max: Some(5), keys_max: Some(7), ..plain.clone() },
        Attention { dropout: Some(Real::new(0.3)), slopes: true, ..plain.clone() },
        Attention { score: Some(Arc::new(cases::wave_program(DType::F64))), ..plain.clone() },
        Attention {
            score: Some(Arc::new(cases::place_program(&SMALL, DType::F64))),
            keep: Some(Arc::new(cases::keep_program(DType::F64))),
            softcap: softcap(false),
            ..plain.clone()
        },
    ] {
        slopes(op, [true; 4]);
    }
    for broadcast in [[false, true, true, true], [true, false, true, false], [false; 4]] {
        slopes(Attention { bias: true, softcap: softcap(true), ..plain.clone() }, broadcast);
    }
}

/// A gradient is the sum over what its operand is broadcast along, whatever type that has.
#[test]
fn captured_tensors_have_gradients() {
    let shape = AttentionShape { queries: 19, keys: 33, depth: 16, width: 24, ..SMALL };
    for (broadcast, program) in [
        ([true; 4], cases::score_program(&shape, DType::F32)),
        ([false, true, false, true], cases::score_program(&shape, DType::F32)),
        ([false, true, true, false], cases::captured_program(DType::F32)),
    ] {
        let op = Attention { score: Some(Arc::new(program)), ..Attention::new(MatmulMath::F32) };
        let mut op = AttentionBackward::new(op);
        op.dscore[0] = true;
        let storage = [Storage::packed(DType::F16); 4];
        let case = backward_cases::case_of(op, shape, storage, broadcast, 1);
        backward_cases::check(&case, "captured");
    }
}

/// What lies beyond lengths, in operands and in gradients of results, reaches no gradient.
#[test]
fn nothing_beyond_a_length_is_read() {
    let shape = AttentionShape { queries: 40, keys: 50, depth: 32, width: 32, ..SMALL };
    let op = Attention {
        query_lengths: true,
        key_lengths: true,
        sinks: true,
        bias: true,
        band: Band::causal(Diagonal::BottomRight),
        ..Attention::new(MatmulMath::F32)
    };
    for dtype in [DType::Bf16, DType::F32] {
        let mut case = backward_cases::case(all(op.clone()), shape, dtype);
        let of = |name: &str| case.graph.tensor_named(name).unwrap().uid;
        let rows = |slot: &str| match slot {
            "k" | "v" => ("key_lengths", shape.keys, shape.kv_heads),
            _ => ("query_lengths", shape.queries, shape.heads),
        };
        let mut spoilt = 0;
        for slot in ["q", "k", "v", "o", "lse", "do", "dlse"] {
            let (lengths, extent, heads) = rows(slot);
            let lengths = case.inputs[&of(lengths)].clone();
            let elements = case.graph.tensor_named(slot).unwrap().dims[3];
            let values = case.inputs.get_mut(&of(slot)).unwrap();
            for (at, value) in values.iter_mut().enumerate() {
                let row = at as i64 / elements;
                if (row % extent) as f64 >= lengths[(row / extent / heads) as usize] {
                    *value = if at % 2 == 0 { f64::NAN } else { f64::INFINITY };
                    spoilt += 1;
                }
            }
        }
        assert!(spoilt > 0, "some rows lie beyond lengths");
        let found = reference::evaluate(&case.graph, &case.inputs).unwrap();
        for tensor in case.graph.outputs() {
            assert!(found[&tensor.uid].values.iter().all(|value| value.is_finite()));
            assert!(found[&tensor.uid].bounds.iter().all(|bound| bound.is_finite()));
        }
        backward_cases::check(&case, "beyond lengths");
    }
}

/// Masks that serving stacks add to scores: rows that are masked altogether have an `lse` as large
/// as the mask, and no gradient is NaN.
#[test]
fn large_biases_make_no_nan() {
    let shape = AttentionShape { queries: 20, keys: 35, depth: 16, width: 16, ..SMALL };
    for mask in [f64::NEG_INFINITY, f64::from(f32::MIN), -3e38, -65504.0, -1e9] {
        let op = Attention { bias: true, ..Attention::new(MatmulMath::F32) };
        let storage = [Storage::packed(DType::F32); 4];
        let op = AttentionBackward::new(op);
        let mut forward = cases::case_of(op.forward.clone(), shape, storage, [true; 4], 1);
        let bias = forward.graph.tensor_named("bias").unwrap().uid;
        for (at, value) in forward.inputs.get_mut(&bias).unwrap().iter_mut().enumerate() {
            let (query, key) = (at as i64 / shape.keys % shape.queries, at as i64 % shape.keys);
            if query % 5 == 2 || key > query + 10 {
                *value = mask;
            }
        }
        let graph = backward_cases::graph(&op, shape, storage, [true; 4]);
        let inputs = backward_cases::with_results(&graph, &forward, 1);
        let found = reference::evaluate(&graph, &inputs).unwrap();
        for tensor in graph.outputs() {
            let Some(bounds) = found.get(&tensor.uid).map(|of| &of.bounds) else { continue };
            assert!(bounds.iter().all(|bound| !bound.is_nan()), "{mask}: `{}`", tensor.name);
        }
        backward_cases::check(&Case { graph, inputs }, &format!("mask {mask}"));
    }
}

#[test]
fn what_has_no_gradient_is_refused() {
    let plain = Attention::new(MatmulMath::F32);
    let error = |op: AttentionBackward| {
        let forward = op.forward.clone();
        let mut graph = OperationGraph::builder();
        let slots = kiln::graph::Op::AttentionBackward(op.clone()).slots();
        let shape = |slot: &str| match slot {
            "page_table" => ([2, 1, 1, 4], DType::I32),
            "descale_k" => ([2, 2, 1, 1], DType::F32),
            "lse" | "dlse" => ([2, 4, 5, 1], DType::F32),
            "q" | "o" | "do" | "dq" => ([2, 4, 5, 8], DType::F16),
            _ => ([2, 2, 7, 8], DType::F16),
        };
        let mut add = |slot: &str| {
            let (dims, dtype) = shape(slot);
            graph.input(slot, &dims, dtype)
        };
        let inputs: Vec<i64> = slots.inputs.iter().map(|slot| add(slot)).collect();
        let outputs: Vec<i64> = slots.outputs.iter().map(|slot| add(slot)).collect();
        graph.operation_into(kiln::graph::Op::AttentionBackward(op), &inputs, &outputs);
        let error = graph.build().expect_err(&forward.to_string());
        (error.kind(), error.to_string())
    };
    let refused = |op: Attention, text: &str| {
        let (kind, found) = error(AttentionBackward::new(op));
        assert_eq!((kind, &*found), (ErrorKind::NotSupported, text));
    };
    refused(
        Attention { paged: true, ..plain.clone() },
        "attention_backward: a paged cache, which is for inference only",
    );
    refused(
        Attention { descale_k: true, ..plain.clone() },
        "attention_backward: descale_k, which is for inference only",
    );
    let without = AttentionBackward { dbias: true, ..AttentionBackward::new(plain.clone()) };
    let found = error(without);
    assert_eq!(found, (ErrorKind::BadParam, "attention_backward: dbias without bias".to_owned()));
    let f8 = Storage::packed(DType::F8E4M3);
    let f16 = Storage::packed(DType::F16);
    let forward = cases::graph(plain.clone(), SMALL, [f16, f8, f16, f16], [true; 4]);
    let k = forward.tensor_named("k").unwrap().clone();
    let graph = backward_cases::graph(&AttentionBackward::new(plain), SMALL, [f16; 4], [true; 4]);
    let mut builder = OperationGraph::builder();
    for tensor in graph.tensors() {
        let dtype = if tensor.name == "k" { k.dtype } else { tensor.dtype };
        builder.tensor(TensorDesc { dtype, ..tensor.clone() });
    }
    let of = &graph.operations()[0];
    builder.operation_into(of.op.clone(), &of.inputs, &of.outputs);
    let found = builder.build().unwrap_err();
    assert_eq!(found.kind(), ErrorKind::NotSupported);
    assert_eq!(
        found.to_string(),
        "attention_backward: k `k` is f8e4m3, which is for inference only"
    );
}

/// Gradients that torch computed (`tests/data/attention/torch_gradients.py`).
#[derive(Deserialize)]
struct Torch {
    name: String,
    problem: serde_json::Value,
}

/// The same in double precision, on the reference, on an engine, and by the vector-Jacobian product
/// of the forward operation.
#[test]
fn gradients_are_those_of_torch() {
    let cases: Vec<Torch> =
        serde_json::from_str(include_str!("../../data/attention/gradients.json"))
            .expect("well-formed");
    assert_eq!(cases.len(), 16);
    for case in &cases {
        let graph = OperationGraph::from_json(&case.problem.to_string())
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let inputs = torch::values("gradients", &case.name, graph.inputs());
        let wanted = torch::values("gradients", &case.name, graph.outputs());
        let found = reference::evaluate(&graph, &inputs).unwrap();
        for tensor in graph.outputs() {
            for (at, torch) in wanted[&tensor.uid].iter().enumerate() {
                let own = found[&tensor.uid].values[at];
                let same = (own - torch).abs() <= 1e-12 * (1.0 + torch.abs());
                let (name, what) = (&case.name, &tensor.name);
                assert!(same, "{name}: `{what}`[{at}]: {own}, torch {torch}\n{graph}");
            }
        }
        harness::check(harness::kiln(), &graph, None, &inputs, &case.name);
    }
}
