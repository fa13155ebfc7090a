//! Queries of 8 bits: with keys and values of 8 bits products are of f16, which has all their
//! values; beside wider operands, of theirs. On every engine, on a target of every class.

use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Softcap};
use kiln::{DType, ErrorKind};

use crate::attention::cases::{self, Case, Storage};
use crate::attention::classes::{TARGETS, check, open};
use crate::attention::features::{self, SHAPE, features};
use crate::harness;

const FOUR: DType = DType::F8E4M3;
const FIVE: DType = DType::F8E5M2;

fn case(op: &Attention, shape: AttentionShape, types: [DType; 4]) -> Case {
    let storage = types.map(|dtype| Storage { page: 8, ..Storage::packed(dtype) });
    cases::case_of(op.clone(), shape, storage, [true; 4], 3)
}

fn scaled() -> Attention {
    Attention {
        descale_q: true,
        descale_k: true,
        descale_v: true,
        statistics: true,
        band: Band::causal(Diagonal::BottomRight),
        ..Attention::new(MatmulMath::F32)
    }
}

#[test]
fn queries_of_8_bits_on_every_class_of_devices() {
    let softcap = Some(Softcap { cap: Real::new(0.75), last: false });
    let lengths = Attention { key_lengths: true, query_lengths: true, softcap, ..scaled() };
    let all = [
        (scaled(), [FOUR, FOUR, FOUR, DType::F16]),
        (lengths.clone(), [FIVE, FOUR, FIVE, DType::Bf16]),
        (scaled(), [FOUR, DType::Bf16, DType::Bf16, DType::Bf16]),
        (lengths, [FIVE, FOUR, DType::F16, DType::F32]),
    ];
    for (number, (target, engines)) in TARGETS.into_iter().enumerate() {
        let kiln = open(target);
        for (op, types) in all.iter().skip(number % 2).step_by(2) {
            let types = *types;
            let what = format!("{types:?} on {target}");
            assert_eq!(check(&kiln, &case(op, SHAPE, types), &what), engines, "{what}");
        }
    }
}

#[test]
fn queries_of_8_bits_with_features() {
    for (number, (name, op)) in features().into_iter().enumerate().skip(2).step_by(5) {
        let shape = AttentionShape { keys: if op.paged { 56 } else { 55 }, ..SHAPE };
        let q = [FOUR, FIVE][number % 2];
        let ran = features::check(&case(&op, shape, [q, FOUR, FOUR, DType::F16]), name);
        assert!(features::ENGINES.iter().all(|engine| ran.contains(engine)), "{name}: {ran:?}");
    }
}

/// Heads of any size, rows anywhere, and queries that warps keep in registers.
#[test]
fn queries_of_8_bits_may_lie_anywhere() {
    let types = [FOUR, FIVE, FOUR, DType::F16];
    for ([depth, width], spacing, gap, alignment) in [
        ([1, 1], 1, 0, 16),
        ([17, 33], 1, 3, 1),
        ([64, 64], 2, 1, 1),
        ([128, 80], 1, 4, 4),
        ([192, 128], 1, 0, 16),
        ([576, 512], 1, 0, 16),
    ] {
        let shape = AttentionShape { depth, width, ..SHAPE };
        let of = |dtype: DType| {
            let alignment = alignment.max(dtype.bytes());
            let packed = Storage::packed(dtype);
            Storage { positions_first: true, spacing, gap, alignment, ..packed }
        };
        let case = cases::case_of(scaled(), shape, types.map(of), [true; 4], 5);
        features::check(&case, &format!("{depth} and {width}, {spacing} apart, {gap} between"));
    }
    let shape = AttentionShape { depth: 64, width: 64, queries: 100, ..SHAPE };
    for config in [
        "attention_mma{cta_k=32, cta_q=64, hold_q=1, warp_q=32}",
        "attention_wgmma{cta_k=32, cta_q=64, stages=3}",
        "attention_wgmma{cta_k=64, cta_q=192, stages=2}",
        "attention_decode{cluster=2, cta_k=32, cta_q=32, split=2}",
    ] {
        let case = case(&scaled(), shape, types);
        let parsed = config.parse().unwrap();
        harness::check(harness::kiln(), &case.graph, Some(&parsed), &case.inputs, config);
    }
}

/// Factors of queries are of their own heads, those of keys of the heads that share them.
#[test]
fn factors_of_queries_are_those_of_their_heads() {
    let mut graph = kiln::OperationGraph::builder();
    let dims = [2, 4, 3, 16];
    let mut inputs: Vec<i64> = ["q", "k", "v"].map(|name| graph.input(name, &dims, FOUR)).to_vec();
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
