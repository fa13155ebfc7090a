//! FP8 operands: what they cost, that they are exact, and where they are refused.

use kiln::engine::EngineConfig;
use kiln::graph::{Attention, AttentionShape, MatmulMath, Op};
use kiln::plan::Problem;
use kiln::{DType, ErrorKind, ExecutionPlan, OperationGraph, TensorDesc};

use crate::attention::cases::{self, Case, SHAPE, Storage};
use crate::harness::{self, conflicts};

const FP8: [DType; 2] = [DType::F8E4M3, DType::F8E5M2];

/// A case with queries and results of one type, keys and values of two others.
fn case(op: &Attention, shape: AttentionShape, [q, k, v]: [DType; 3]) -> Case {
    let storage = [q, k, v, q].map(Storage::packed);
    cases::case_of(op.clone(), shape, storage, [true; 4], 3)
}

/// Every key and value is read once for each tile of queries, a byte each, without a bank conflict,
/// and all that arrives in 8 bits takes no more shared memory than in 16.
#[test]
fn multiply_adds_bytes_and_conflicts_of_fp8() {
    for (depth, width) in [(16, 16), (32, 32), (64, 64), (128, 128), (192, 128), (256, 256)] {
        let shape = AttentionShape { batches: 1, heads: 2, kv_heads: 1, ..SHAPE };
        let shape = AttentionShape { queries: 256, keys: 256, depth, width, ..shape };
        let graph = |kv: DType| {
            let of = |dtype| Storage { alignment: 256, ..Storage::packed(dtype) };
            let storage = [DType::Bf16, kv, kv, DType::Bf16].map(of);
            cases::case_of(Attention::new(MatmulMath::F32), shape, storage, [true; 4], 7)
        };
        let (case, wide) = (graph(DType::F8E4M3), graph(DType::Bf16));
        let rows = 2 * 256;
        for (config, blocks) in [
            ("attention_mma{cta_k=32, cta_q=64, hold_q=0, warp_q=16}", 8),
            ("attention_mma{cta_k=64, cta_q=128, hold_q=0, warp_q=16}", 4),
            ("attention_decode{cluster=1, cta_k=32, cta_q=64, split=1}", 8),
        ] {
            let what = format!("{config} of {depth} and {width}");
            let config: EngineConfig = config.parse().unwrap();
            let plan = |case: &Case| harness::kiln().plan_with(&case.graph, &config);
            let Ok(widest) = plan(&wide) else {
                assert!(depth > 128, "{what}");
                continue;
            };
            let shared = |plan: &ExecutionPlan| plan.kernels()[0].launch().shared_bytes;
            assert!(shared(&plan(&case).unwrap()) <= shared(&widest), "{what}");
            let counters = harness::count(&case.graph, Some(&config), &case.inputs);
            let [products] = &counters.products[..] else { panic!("one kind of product") };
            let multiply_adds = rows * 256 * (depth + width);
            assert_eq!(products.multiply_adds as i64, multiply_adds, "{what}");
            let once = 2 * rows * (depth + width);
            let step = 256 * (depth + width);
            assert_eq!(counters.total.global.bytes as i64, once + blocks * step, "{what}");
            assert_eq!(conflicts(&counters), 0, "{what}");
        }
    }
}

/// All 256 values of both types, each as the one value that a query attends to.
#[test]
fn every_fp8_value_is_exact() {
    let shape = AttentionShape {
        batches: 1,
        heads: 1,
        kv_heads: 1,
        queries: 1,
        keys: 1,
        depth: 1,
        width: 256,
    };
    for fp8 in FP8 {
        for q in [DType::F16, DType::Bf16, DType::F32] {
            let mut case = case(&Attention::new(MatmulMath::F32), shape, [q, q, fp8]);
            let uid = case.graph.inputs().find(|tensor| tensor.name == "v").unwrap().uid;
            let all: Vec<f64> = (0..=255).map(|bits| fp8.read(&[bits])).collect();
            let finite = |value: &f64| if value.is_finite() { *value } else { 0.0 };
            case.inputs.insert(uid, all.iter().map(finite).collect());
            for kiln in harness::dialects().into_iter().chain(harness::oldest()) {
                let outputs = harness::run(kiln, &case.graph, None, &case.inputs).unwrap();
                let o = &outputs[&case.graph.outputs().next().unwrap().uid];
                assert_eq!(*o, case.inputs[&uid], "{fp8} for {q}");
            }
            case.inputs.insert(uid, all.clone());
            for kiln in harness::dialects().into_iter().chain(harness::oldest()) {
                let outputs = harness::run(kiln, &case.graph, None, &case.inputs).unwrap();
                let o = &outputs[&case.graph.outputs().next().unwrap().uid];
                for (own, wanted) in o.iter().zip(&all) {
                    assert!(own == wanted || (own.is_nan() && wanted.is_nan()), "{fp8}: {own}");
                }
            }
        }
    }
}

#[test]
fn other_operations_refuse_fp8() {
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
    for (op, slots, name) in
        [(Op::Pointwise(cast), 1, "identity: x"), (Op::Matmul(product), 2, "matmul: a")]
    {
        let (kind, text) = graph(FP8[0], op, slots).unwrap_err();
        assert_eq!(kind, ErrorKind::NotSupported, "{text}");
        let rule = "`x0` is f8e4m3, which only q, k and v of attention may have";
        assert!(text.starts_with(name) && text.ends_with(rule), "{text}");
    }
    let rnn = r#"{"rnn": {"cell": "gru", "input_size": 4, "hidden_size": 4, "dtype": "f8e5m2",
        "batch": 1, "steps": 1}}"#;
    assert!(Problem::from_json(rnn).unwrap_err().to_string().contains("f8e5m2"));
}

/// Factors of queries are of their own heads, those of keys of the heads that share them.
#[test]
fn factors_of_queries_are_those_of_their_heads() {
    let mut graph = kiln::OperationGraph::builder();
    let dims = [2, 4, 3, 16];
    let mut inputs: Vec<i64> =
        ["q", "k", "v"].map(|name| graph.input(name, &dims, FP8[0])).to_vec();
    inputs.push(graph.input("descale_q", &[2, 2, 1, 1], DType::F32));
    let o = graph.tensor(kiln::TensorDesc::packed(9, "o", &dims, DType::F16));
    let op = Attention { descale_q: true, ..Attention::new(MatmulMath::F32) };
    graph.operation_into(kiln::graph::Op::Attention(op), &inputs, &[o]);
    let error = graph.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadParam);
    let want = "attention: descale_q `descale_q` is [2, 2, 1, 1], which cannot be broadcast to \
                [2, 4, 1, 1]";
    assert_eq!(error.to_string(), want);
}
