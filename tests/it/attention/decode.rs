//! Few queries: heads that share keys in one tile, blocks that share keys.

use std::sync::Arc;

use kiln::DType;
use kiln::engine::EngineConfig;
use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};

use crate::attention::cases::{self, Case, Storage};
use crate::harness;

fn case(op: Attention, shape: AttentionShape) -> Case {
    cases::case(op, shape, Storage::packed(DType::F16), [true; 4])
}

/// Whatever the number of parts, some of them without a key.
#[test]
fn parts_of_keys_are_joined() {
    let plain = Attention { statistics: true, ..Attention::new(MatmulMath::F32) };
    let bottom = Diagonal::BottomRight;
    let ops = [
        ("plain", plain.clone()),
        ("sinks", Attention { sinks: true, band: Band::causal(bottom), ..plain.clone() }),
        ("pages", Attention { paged: true, key_lengths: true, ..plain.clone() }),
        (
            "window of sequences",
            Attention {
                queries_max: Some(3),
                band: Band { diagonal: bottom, left: Some(60), right: Some(0) },
                ..plain.clone()
            },
        ),
        (
            "all",
            Attention {
                bias: true,
                slopes: true,
                mask: true,
                intervals: true,
                dropout: Some(Real::new(0.2)),
                keep: Some(Arc::new(cases::keep_program(DType::F32))),
                ..plain.clone()
            },
        ),
    ];
    for (queries, group) in [(1, 1), (1, 8), (3, 7)] {
        for (what, op) in &ops {
            if op.queries_max.is_some() != (queries == 3) && *what != "plain" {
                continue;
            }
            let shape = AttentionShape {
                batches: 2,
                heads: 2 * group,
                kv_heads: 2,
                queries,
                keys: 330,
                depth: 40,
                width: 32,
            };
            let case = case(op.clone(), shape);
            for kiln in harness::dialects() {
                for (cta_q, split, cluster) in
                    [(16, 1, 1), (16, 4, 1), (16, 4, 4), (32, 8, 8), (32, 16, 1)]
                {
                    let knobs = format!("cta_k=32, cta_q={cta_q}, split={split}");
                    let text = format!("attention_decode{{cluster={cluster}, {knobs}}}");
                    let config: EngineConfig = text.parse().unwrap();
                    let what = format!("{what} of {queries} queries, {group} heads: {text}");
                    harness::check(kiln, &case.graph, Some(&config), &case.inputs, &what);
                }
            }
        }
    }
}

/// A cluster joins its parts as another kernel does, in the same order.
#[test]
fn clusters_change_no_bit() {
    let op = Attention { statistics: true, key_lengths: true, ..Attention::new(MatmulMath::F32) };
    let shape = AttentionShape {
        batches: 2,
        heads: 6,
        kv_heads: 2,
        queries: 7,
        keys: 500,
        depth: 64,
        width: 50,
    };
    let case = case(op, shape);
    for split in [2, 8, 16] {
        let results = [1, split].map(|cluster| {
            let knobs = format!("cluster={cluster}, cta_k=32, cta_q=16, split={split}");
            let config: EngineConfig = format!("attention_decode{{{knobs}}}").parse().unwrap();
            let kiln = harness::kiln();
            let results = harness::run(kiln, &case.graph, Some(&config), &case.inputs).unwrap();
            harness::compare(&case.graph, &case.inputs, &results, &knobs);
            results
        });
        assert_eq!(results[0], results[1], "{split} parts");
    }
}

/// An H200 has SMs for many parts of the keys of two sequences.
#[test]
fn few_queries_are_decoded() {
    let h200 = kiln::target::Target::named("h200").unwrap();
    let shape = AttentionShape {
        batches: 2,
        heads: 32,
        kv_heads: 8,
        queries: 1,
        keys: 8192,
        depth: 128,
        width: 128,
    };
    let op = Attention { key_lengths: true, ..Attention::new(MatmulMath::F32) };
    let storage = Storage::packed(DType::Bf16);
    let graph = cases::graph(op.clone(), shape, [storage; 4], [true; 4]);
    let chosen = kiln::engine::choose(graph.canonical(), &h200, &Default::default()).unwrap();
    assert_eq!(chosen.to_string(), "attention_decode{cluster=16, cta_k=64, cta_q=16, split=16}");
    let shape = AttentionShape { queries: 1024, ..shape };
    let graph = cases::graph(op, shape, [storage; 4], [true; 4]);
    let chosen = kiln::engine::choose(graph.canonical(), &h200, &Default::default()).unwrap();
    assert_eq!(chosen.engine, "attention_wgmma");
}
