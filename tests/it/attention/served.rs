//! The choices of the rules for attentions as they are served, beside the best legal setting by the
//! cost model.

use kiln::engine::{self, Mode, Selection};
use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Softcap};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::attention::cases::{Storage, graph};

/// An attention of [batches, heads, kv_heads, queries, keys, depth, width].
fn of(op: Attention, extents: [i64; 7]) -> OperationGraph {
    let [batches, heads, kv_heads, queries, keys, depth, width] = extents;
    let shape = AttentionShape { batches, heads, kv_heads, queries, keys, depth, width };
    graph(op, shape, [Storage::packed(DType::Bf16); 4], [true; 4])
}

/// Few queries, which engines for tensor cores decode on every target.
fn few_queries() -> Vec<(&'static str, OperationGraph)> {
    let plain = Attention::new(MatmulMath::F32);
    let causal = Attention { band: Band::causal(Diagonal::BottomRight), ..plain.clone() };
    let softcap = Some(Softcap { cap: Real::new(50.0), last: false });
    let capped = Attention { softcap, ..causal.clone() };
    vec![
        ("MQA of 128 heads", of(plain.clone(), [4, 128, 1, 1, 4096, 128, 128])),
        ("MQA of 71 heads", of(plain.clone(), [8, 71, 1, 1, 4096, 64, 64])),
        ("MHA", of(plain.clone(), [8, 32, 32, 1, 4096, 128, 128])),
        ("GQA", of(plain.clone(), [8, 32, 8, 1, 4096, 128, 128])),
        ("speculation of 9", of(causal.clone(), [1, 64, 8, 9, 8192, 128, 128])),
        ("a chunk of 32", of(causal.clone(), [1, 32, 8, 32, 8192, 128, 128])),
        ("a chunk of 63", of(causal.clone(), [1, 32, 32, 63, 8192, 128, 128])),
        ("a chunk of 64", of(causal.clone(), [1, 32, 8, 64, 8192, 128, 128])),
        ("a chunk of 100", of(causal, [1, 32, 8, 100, 8192, 128, 128])),
        ("Whisper, across, one at a time", of(plain.clone(), [1, 20, 20, 4, 1500, 64, 64])),
        ("Whisper, across", of(plain.clone(), [8, 20, 20, 4, 1500, 64, 64])),
        ("Gemma 2", of(capped, [4, 8, 4, 1, 4096, 256, 256])),
        ("MLA", of(plain, [8, 128, 1, 1, 4096, 576, 512])),
    ]
}

/// Many queries.
fn many_queries() -> Vec<(&'static str, OperationGraph)> {
    let plain = Attention::new(MatmulMath::F32);
    let causal = Attention { band: Band::causal(Diagonal::BottomRight), ..plain.clone() };
    let (bias, mask, sinks, dropout) = (true, true, true, Some(Real::new(0.1)));
    let window = Band { diagonal: Diagonal::BottomRight, left: Some(127), right: Some(0) };
    let biased = Attention { bias, ..plain.clone() };
    let softcap = Some(Softcap { cap: Real::new(50.0), last: false });
    vec![
        ("D 64 with a bias", of(biased.clone(), [4, 16, 16, 1024, 1024, 64, 64])),
        ("long D 64 with a bias", of(biased.clone(), [1, 32, 8, 2048, 2048, 64, 64])),
        (
            "short D 64 with a mask",
            of(Attention { mask, ..causal.clone() }, [1, 32, 8, 512, 512, 64, 64]),
        ),
        (
            "D 64 with a mask",
            of(Attention { mask, ..plain.clone() }, [4, 16, 16, 1024, 1024, 64, 64]),
        ),
        ("D 128 with a bias", of(biased, [4, 16, 16, 1024, 1024, 128, 128])),
        ("Whisper", of(plain.clone(), [1, 20, 20, 1500, 1500, 64, 64])),
        ("Whisper, across", of(plain.clone(), [1, 20, 20, 448, 1500, 64, 64])),
        ("D 40", of(plain.clone(), [2, 8, 8, 4096, 4096, 40, 40])),
        ("D 40, across", of(plain.clone(), [2, 8, 8, 4096, 77, 40, 40])),
        ("D 80", of(plain.clone(), [2, 8, 8, 1024, 1024, 80, 80])),
        ("long D 80", of(causal.clone(), [1, 16, 16, 1024, 1024, 80, 80])),
        (
            "dropout of GQA",
            of(Attention { dropout, ..causal.clone() }, [1, 32, 8, 1024, 1024, 64, 64]),
        ),
        (
            "dropout, D 128",
            of(Attention { dropout, ..causal.clone() }, [1, 32, 8, 2048, 2048, 128, 128]),
        ),
        ("CLIP", of(plain.clone(), [8, 8, 8, 77, 77, 64, 64])),
        ("SigLIP", of(plain.clone(), [1, 16, 16, 729, 729, 72, 72])),
        ("dropout", of(Attention { dropout, ..plain.clone() }, [8, 16, 16, 512, 512, 64, 64])),
        ("Gemma 2", of(Attention { softcap, ..causal.clone() }, [1, 8, 4, 2048, 2048, 256, 256])),
        ("gpt-oss", of(Attention { sinks, band: window, ..plain }, [1, 64, 8, 2048, 2048, 64, 64])),
        ("MLA", of(causal.clone(), [1, 128, 128, 2048, 2048, 192, 128])),
        ("causal", of(causal, [1, 32, 8, 4096, 4096, 128, 128])),
    ]
}

/// How many times as long the choice of the rules takes as the best legal setting.
fn far(graph: &OperationGraph, target: &Target) -> (f64, String) {
    let own = engine::choose(graph.canonical(), target, &Selection::default()).unwrap();
    let model = Selection { mode: Mode::B, ..Selection::default() };
    let ranked = engine::choices(graph.canonical(), target, &model).unwrap();
    let us = |at: usize| ranked[at].predicted_us.unwrap();
    let at = ranked.iter().position(|choice| choice.config == own).expect("choices are legal");
    (us(at) / us(0), format!("{own}, the best is {}", ranked[0].config))
}

/// How much longer than the best legal setting the rules' may take by the model.
const FACTOR_MAX: f64 = 1.3;

const TARGETS: [&str; 6] = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];

#[test]
fn choices_come_close_to_the_model() {
    let (mut all, mut pairs) = (Vec::new(), 0);
    for name in TARGETS {
        let target = Target::named(name).unwrap();
        for (what, graph) in few_queries().into_iter().chain(many_queries()) {
            let (ratio, choice) = far(&graph, &target);
            pairs += 1;
            if ratio > FACTOR_MAX {
                all.push(format!("{what} on {name}: {ratio:.2} times: {choice}"));
            }
        }
    }
    assert!(all.is_empty(), "{} of {pairs}:\n{}", all.len(), all.join("\n"));
}
