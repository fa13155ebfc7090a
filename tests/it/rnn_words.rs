//! Blocks that exchange h in words of global memory, each of which tells whether it was written.

use kiln::engine::{self, EngineConfig};
use kiln::graph::{MatmulMath, Quantization, Recurrence, RecurrenceSlots};
use kiln::rnn::{CellKind, CellOptions};
use kiln::{DType, Kiln, OperationGraph};

use crate::harness::{self, Values};
use crate::recurrence::{graph, layer, samples, setting, values};

/// More than twice as many as have words of their own.
const STEPS: i64 = 70;

/// Blocks of one warp along K, whose weights are in shared memory.
fn config(kiln: &Kiln, graph: &OperationGraph, exchange: i64) -> EngineConfig {
    let warps = [("warps_k", 1), ("warps_n", 4), ("weight_registers", 0)];
    let knobs = [&[("group_ctas", 2), ("exchange", exchange)], &warps[..]].concat();
    setting(kiln, graph, "rnn_grid", &knobs)
}

/// Words are used again by later steps: layers of every precision, of one exchange in a step and of
/// two, have the bits of blocks that count arrivals, under several orders of warps.
#[test]
fn long_sequences_have_the_bits_of_counters() {
    for (at, (op, dtype)) in (0..).zip(samples([7, 40])) {
        let graph = graph(&op, STEPS, dtype);
        let values = values(&graph, &op, STEPS);
        let run = |kiln: &Kiln, exchange: i64| -> Values {
            let config = config(kiln, &graph, exchange);
            let actual = harness::run(kiln, &graph, Some(&config), &values);
            actual.unwrap_or_else(|error| panic!("{op}: {config}: {error}"))
        };
        let counted = run(harness::kiln(), 0);
        harness::compare(&graph, &values, &counted, &op.to_string());
        for seed in [at, at + 1] {
            let Some(kiln) = harness::simulated_by_turns("sim", seed) else { continue };
            let actual = run(kiln, 1);
            for tensor in graph.outputs() {
                let bits = |of: &Values| -> Vec<u64> {
                    of[&tensor.uid].iter().map(|value| value.to_bits()).collect()
                };
                assert_eq!(bits(&actual), bits(&counted), "{op}: {}, seed {seed}", tensor.name);
            }
        }
    }
}

/// A word that was not written has all of its bits set, as a NaN may have: what sequences without
/// steps keep of an initial state like that is exchanged nevertheless.
#[test]
fn not_a_number_is_no_word_that_is_missing() {
    let projected = CellOptions { projected: true, ..CellOptions::default() };
    for (kind, options, math, dtype) in [
        (CellKind::Lstm, projected, MatmulMath::F32, DType::F16),
        (CellKind::Lstm, projected, MatmulMath::F32, DType::F32),
        (CellKind::Gru, CellOptions::default(), MatmulMath::F64, DType::F64),
    ] {
        let with = RecurrenceSlots {
            h_initial: true,
            h_final: true,
            lengths: true,
            ..RecurrenceSlots::default()
        };
        let op = Recurrence { with, ..layer(kind, options, math, [8, 32]) };
        let graph = graph(&op, 3, dtype);
        let kiln = harness::kiln();
        let config = config(kiln, &graph, 1);
        let plan = kiln.plan_with(&graph, &config).unwrap();
        let mut bound = harness::bind(kiln, &graph, &values(&graph, &op, 3)).unwrap();
        let initial = graph.tensor_named("h_initial").unwrap();
        let bytes = initial.span_bytes().unwrap();
        let ones = kiln.device().upload(&vec![0xff; bytes as usize]).unwrap();
        harness::place(&mut bound.pack, initial.uid, ones.address(), bytes);
        let actual = harness::run_bound(kiln, &plan, &bound).unwrap();
        let last = &actual[&graph.tensor_named("h_final").unwrap().uid];
        assert!(last.iter().all(|value| value.is_nan()), "{config}: {last:?}");
    }
}

/// Rows of chunks 8 apart take other turns in shared memory where a chunk has 16 elements: a warp
/// alone would store words of 8 bits in other rows' places. Whoever is not refused agrees with the
/// reference.
#[test]
fn few_warps_receive_words_of_every_size() {
    let op = layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [8, 32]);
    let integers = Recurrence { quantization: Some(Quantization::new(63.0, 128)), ..op.clone() };
    let mut refused = Vec::new();
    for (op, dtype) in [(&op, DType::F32), (&op, DType::Bf16), (&integers, DType::U8)] {
        let graph = graph(op, 4, dtype);
        let values = values(&graph, op, 4);
        let kiln = harness::kiln();
        let target = kiln.device().target();
        let supported = engine::supported("rnn_grid", graph.canonical(), target).unwrap();
        for (exchange, warps) in [(0, 1), (1, 1), (1, 2)] {
            let knobs = [("exchange", exchange), ("group_ctas", 2), ("warps_k", 1)];
            let more = [("warps_n", warps), ("weight_registers", 0)];
            let config = setting(kiln, &graph, "rnn_grid", &[&knobs[..], &more].concat());
            match supported.lower(&config) {
                Ok(_) => harness::check(kiln, &graph, Some(&config), &values, &config.to_string()),
                Err(error) => refused.push((dtype, warps, error.to_string())),
            }
        }
    }
    let [(DType::U8, 1, text)] = &refused[..] else { panic!("{refused:?}") };
    assert!(text.ends_with("words of 8 bits by 64 threads at least, a block has 32"), "{text}");
}
