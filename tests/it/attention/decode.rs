//! Few queries: blocks that share keys, and when they are chosen.

use kiln::DType;
use kiln::engine::EngineConfig;
use kiln::graph::{Attention, AttentionShape, MatmulMath};

use crate::attention::cases::{self, Case, Storage};
use crate::harness;

fn case(op: Attention, shape: AttentionShape) -> Case {
    cases::case(op, shape, Storage::packed(DType::F16), [true; 4])
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
    // More keys make a second launch worth twice the splits of the largest cluster.
    let long = AttentionShape { batches: 1, keys: 32768, ..shape };
    let graph = cases::graph(op.clone(), long, [storage; 4], [true; 4]);
    let chosen = kiln::engine::choose(graph.canonical(), &h200, &Default::default()).unwrap();
    assert_eq!(chosen.to_string(), "attention_decode{cluster=1, cta_k=64, cta_q=16, split=32}");
    let shape = AttentionShape { queries: 1024, ..shape };
    let graph = cases::graph(op, shape, [storage; 4], [true; 4]);
    let chosen = kiln::engine::choose(graph.canonical(), &h200, &Default::default()).unwrap();
    assert_eq!(chosen.engine, "attention_wgmma");
}
