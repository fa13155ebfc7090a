//! Layers of gradients whose blocks exchange partial sums.

use std::collections::BTreeMap;

use kiln::DType;
use kiln::device::Counters;
use kiln::engine::{self, EngineConfig};
use kiln::graph::{MatmulMath, Recurrence};
use kiln::rnn::{CellKind, CellOptions};

use crate::harness;
use crate::recurrence::{graph, layer, values};
use crate::recurrence_vjp::{derivative, layers, turned};

/// Blocks, batch rows of one, and its warps along units and K.
const KNOBS: [[i64; 4]; 7] = [
    [2, 8, 1, 4],
    [2, 16, 2, 1],
    [4, 8, 1, 1],
    [4, 32, 1, 8],
    [8, 8, 2, 4],
    [16, 8, 1, 2],
    [16, 16, 1, 4],
];

fn with(own: &EngineConfig, exchange: i64, knobs: [i64; 4], registers: i64) -> EngineConfig {
    let [group_ctas, batch_tile, warps_n, warps_k] = knobs;
    let values = [
        ("exchange", exchange),
        ("group_ctas", group_ctas),
        ("batch_tile", batch_tile),
        ("warps_n", warps_n),
        ("warps_k", warps_k),
        ("weight_registers", registers),
    ];
    values.iter().fold(own.clone(), |config, (knob, value)| config.with(knob, *value))
}

/// Every cell whose gradient is one product per step, of sizes that leave blocks and warps with
/// nothing to do, in every layout, direction and type of tensor cores.
#[test]
fn partial_sums_give_the_reference() {
    // On the simulator of every class of target that has clusters.
    let targets: &[&str] = match harness::kiln().device().kind() {
        "sim" => &["sim", "b200", "rtx5090"],
        _ => &["sim"],
    };
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for (at, sizes) in [[5, 20], [9, 72], [17, 33], [1, 8]].into_iter().enumerate() {
        let math = [MatmulMath::F32, MatmulMath::Tf32][at % 2];
        for (nth, op) in layers(math, sizes).into_iter().enumerate() {
            let dtype = match math {
                MatmulMath::Tf32 => DType::F32,
                _ => [DType::F16, DType::Bf16][nth % 2],
            };
            let own = derivative(&turned(op, at + nth), dtype);
            let target = targets[(nth + at) % targets.len()];
            let kiln = harness::simulated_by_turns(target, nth as u64).expect("it opens");
            let graph = graph(&own, 3, dtype);
            let target = kiln.device().target();
            let Ok(supported) = engine::supported("rnn_cluster", graph.canonical(), target) else {
                continue;
            };
            let given = values(&graph, &own, 3);
            let knobs = KNOBS[(nth + at) % KNOBS.len()];
            let config = with(&supported.heuristic(), 1, knobs, [0, 32][nth % 2]);
            if let Err(error) = supported.lower(&config) {
                let text = error.to_string();
                let refused =
                    ["partial sums", "hidden units", "registers", "needs a cluster of 16"];
                assert!(refused.iter().any(|part| text.contains(part)), "{text}");
                continue;
            }
            harness::check(kiln, &graph, Some(&config), &given, &format!("{own} {config}"));
            *runs.entry(target.arch.to_string()).or_insert(0) += 1;
        }
    }
    println!("{runs:?}");
    assert!(runs.len() == targets.len() && runs.values().sum::<usize>() > 20, "{runs:?}");
}

fn count(exchange: i64, steps: i64) -> Counters {
    let lstm = layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [8, 128]);
    let own = derivative(&lstm, DType::F16);
    let graph = graph(&own, steps, DType::F16);
    let kiln = harness::kiln();
    let supported = engine::supported("rnn_cluster", graph.canonical(), kiln.device().target());
    let config = with(&supported.unwrap().heuristic(), exchange, [4, 8, 2, 1], 32);
    harness::count(&graph, Some(&config), &values(&graph, &own, steps))
}

/// The gradients of 4 gates in 16 bits from every block for all units of a row, against a partial
/// sum in 32 from every block for its own: half the bytes, and as many multiply-adds.
#[test]
fn partial_sums_are_half_the_bytes_of_gradients_of_gates() {
    let (batch, units, blocks) = (8, 128, 4);
    let stored = |exchange: i64, bytes: u64| {
        let lanes = |steps: i64| -> u64 {
            let counters = count(exchange, steps);
            assert_eq!(harness::conflicts(&counters), 0, "exchange={exchange}");
            let multiply_adds = counters.products[0].multiply_adds;
            assert_eq!(multiply_adds, (steps * 4 * units * units * batch) as u64);
            let lines = counters.lines.iter().filter(|line| line.text.contains("st.async"));
            lines.map(|line| line.count.lane_instructions).sum()
        };
        (lanes(6) - lanes(4)) / 2 * bytes
    };
    let gathered = stored(0, 16);
    assert_eq!(gathered, (blocks * (blocks - 1) * batch * (4 * units / blocks) * 2) as u64);
    // A block's own sums take the same way as the others'.
    let reduced = stored(1, 8);
    assert_eq!(reduced, (blocks * batch * units * 4) as u64);
    assert_eq!(reduced / blocks as u64 * (blocks - 1) as u64, gathered / 2);
}

/// What has no partial sums says so: a layer's own product is of all units already.
#[test]
fn layers_have_no_partial_sums() {
    let op: Recurrence = layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [8, 64]);
    let graph = graph(&op, 2, DType::F16);
    let kiln = harness::kiln();
    let supported = engine::supported("rnn_cluster", graph.canonical(), kiln.device().target());
    let supported = supported.unwrap();
    let error = supported.lower(&supported.heuristic().with("exchange", 1)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("partial sums of one transposed GEMM per step"), "{text}");
}
