//! Keys and values of 8 bits: on every engine, and where they are refused.

use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Op, Softcap};
use kiln::plan::Problem;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};

use crate::attention::cases::{self, Case, Storage};
use crate::attention::features::{ENGINES, SHAPE, check};
use crate::harness;

const EIGHT: [DType; 2] = [DType::F8E4M3, DType::F8E5M2];

/// A case with queries and results of one type, keys and values of two others.
fn case(op: &Attention, shape: AttentionShape, [q, k, v]: [DType; 3]) -> Case {
    let storage = [q, k, v, q].map(Storage::packed);
    cases::case_of(op.clone(), shape, storage, [true; 4], 3)
}

#[test]
fn every_engine_takes_keys_and_values_of_8_bits() {
    let plain = Attention::new(MatmulMath::F32);
    let band = Band::causal(Diagonal::BottomRight);
    let scaled = Attention {
        descale_k: true,
        descale_v: true,
        softcap: Some(Softcap { cap: Real::new(0.75), last: false }),
        statistics: true,
        band,
        ..plain.clone()
    };
    let paged = Attention { paged: true, key_lengths: true, sinks: true, ..plain.clone() };
    let [four, five] = EIGHT;
    for (name, op) in [("plain", plain), ("scaled", scaled), ("paged", paged)] {
        for q in [DType::F16, DType::Bf16, DType::F32] {
            let mixed = if q == DType::F16 { [[five, four], [q, five]] } else { [EIGHT; 2] };
            for [k, v] in if name == "plain" { mixed } else { [EIGHT; 2] } {
                let ran = check(&case(&op, SHAPE, [q, k, v]), &format!("{name}: {q}, {k}, {v}"));
                let wanted = if q == DType::F32 { 1 } else { ENGINES.len() };
                assert!(ran.len() >= wanted, "{name}: {q}, {k}, {v}: {ran:?}");
            }
        }
    }
}

/// Rows that begin anywhere, elements apart, heads of odd sizes; and the oldest architecture, which
/// converts by arithmetic.
#[test]
fn keys_of_8_bits_may_lie_anywhere() {
    let op = Attention { descale_v: true, ..Attention::new(MatmulMath::F32) };
    for (depth, width) in [(17, 33), (64, 64), (8, 1)] {
        let shape = AttentionShape { depth, width, ..SHAPE };
        for (spacing, gap, alignment) in [(1, 0, 16), (1, 3, 1), (2, 1, 1), (1, 4, 4)] {
            let of = |dtype: DType| {
                let size = dtype.bytes();
                let alignment = alignment.max(size);
                let packed = Storage::packed(dtype);
                Storage { positions_first: true, spacing, gap, alignment, ..packed }
            };
            let storage = [DType::F16, EIGHT[0], EIGHT[1], DType::F16].map(of);
            let case = cases::case_of(op.clone(), shape, storage, [true; 4], 5);
            check(&case, &format!("{depth} and {width}, {spacing} apart, gaps of {gap}"));
        }
    }
    for dtypes in [[DType::Bf16, EIGHT[0], EIGHT[1]], [DType::F16, EIGHT[1], EIGHT[0]]] {
        let case = case(&op, SHAPE, dtypes);
        for kiln in harness::oldest() {
            let arch = kiln.device().target().arch;
            harness::check(kiln, &case.graph, None, &case.inputs, &format!("{dtypes:?}, {arch}"));
        }
    }
}

/// All 256 values of both types, each as the one value that a query attends to.
#[test]
fn every_value_of_8_bits_is_exact() {
    let shape = AttentionShape {
        batches: 1,
        heads: 1,
        kv_heads: 1,
        queries: 1,
        keys: 1,
        depth: 1,
        width: 256,
    };
    for eight in EIGHT {
        for q in [DType::F16, DType::Bf16, DType::F32] {
            let mut case = case(&Attention::new(MatmulMath::F32), shape, [q, q, eight]);
            let uid = case.graph.inputs().find(|tensor| tensor.name == "v").unwrap().uid;
            let all: Vec<f64> = (0..=255).map(|bits| eight.read(&[bits])).collect();
            let finite = |value: &f64| if value.is_finite() { *value } else { 0.0 };
            case.inputs.insert(uid, all.iter().map(finite).collect());
            for kiln in harness::dialects().into_iter().chain(harness::oldest()) {
                let outputs = harness::run(kiln, &case.graph, None, &case.inputs).unwrap();
                let o = &outputs[&case.graph.outputs().next().unwrap().uid];
                assert_eq!(*o, case.inputs[&uid], "{eight} for {q}");
            }
            case.inputs.insert(uid, all.clone());
            for kiln in harness::dialects().into_iter().chain(harness::oldest()) {
                let outputs = harness::run(kiln, &case.graph, None, &case.inputs).unwrap();
                let o = &outputs[&case.graph.outputs().next().unwrap().uid];
                for (own, wanted) in o.iter().zip(&all) {
                    assert!(own == wanted || (own.is_nan() && wanted.is_nan()), "{eight}: {own}");
                }
            }
        }
    }
}

#[test]
fn other_operations_refuse_floats_of_8_bits() {
    let graph = |dtype: DType, op: Op, slots: usize| {
        let mut graph = OperationGraph::builder();
        let dims = [2, 2, 4, 4];
        let inputs: Vec<i64> =
            (0..slots).map(|at| graph.input(&format!("x{at}"), &dims, dtype)).collect();
        let y = graph.tensor(TensorDesc::packed(9, "y", &dims, DType::F32));
        graph.operation_into(op, &inputs, &[y]);
        graph.build().map_err(|error| (error.kind(), error.to_string()))
    };
    let cast = kiln::expr::Pointwise::new(kiln::expr::Mode::Identity);
    let product = kiln::graph::Matmul::new(MatmulMath::F32);
    for (op, slots, name) in [
        (Op::Pointwise(cast), 1, "identity: x"),
        (Op::Matmul(product), 2, "matmul: a"),
        (Op::Attention(Attention::new(MatmulMath::F32)), 3, "attention: q"),
    ] {
        let (kind, text) = graph(EIGHT[0], op, slots).unwrap_err();
        assert_eq!(kind, ErrorKind::NotSupported, "{text}");
        let rule = "`x0` is f8e4m3, which keys and values of attention may be only";
        assert!(text.starts_with(name) && text.ends_with(rule), "{text}");
    }
    let rnn = r#"{"rnn": {"cell": "gru", "input_size": 4, "hidden_size": 4, "dtype": "f8e5m2",
        "batch": 1, "steps": 1}}"#;
    assert!(Problem::from_json(rnn).unwrap_err().to_string().contains("f8e5m2"));
}
