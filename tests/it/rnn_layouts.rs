//! Networks in every layout, direction, stack and length, on every engine, under the sanitizer.

use std::collections::HashMap;

use kiln::engine::{self, Mode, Selection};
use kiln::graph::{Direction, RowLayout};
use kiln::plan::Problem;
use kiln::rnn::{CellKind, Extent, Join, Network, Optional, Rnn, Stacking};
use kiln::target::Target;
use kiln::{DType, ErrorKind, Kiln};

use crate::harness::{self, Values};

const BATCH: i64 = 3;
const STEPS: i64 = 4;
const HIDDEN: i64 = 16;

/// Engines that run recurrent layers.
const ENGINES: [&str; 5] = ["rnn_step", "rnn_cta", "rnn_cluster", "rnn_grid", "rnn_stream"];

/// How long sequences are, and packed vectors behind all of them.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    of: [i64; BATCH as usize],
    behind: i64,
}

const LENGTHS: [Lengths; 5] = [
    Lengths { of: [4, 4, 4], behind: 0 },
    Lengths { of: [4, 2, 1], behind: 0 },
    Lengths { of: [3, 1, 0], behind: 2 },
    Lengths { of: [4, 0, 0], behind: 0 },
    Lengths { of: [0, 0, 0], behind: 3 },
];

fn cells() -> Vec<Rnn> {
    let plain = CellKind::ALL.map(|kind| Rnn::new(kind, 6, HIDDEN));
    let projected = Rnn::lstm(6, HIDDEN).peephole().projection(5).dtype(DType::F16);
    plain.into_iter().chain([projected, Rnn::gru(6, HIDDEN).dtype(DType::Bf16)]).collect()
}

/// Every network: cells, layouts, directions, stacks.
fn networks() -> Vec<Rnn> {
    let mut all = Vec::new();
    for cell in cells() {
        for layout in [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed] {
            for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
                let one = cell.clone().layout(layout).direction(direction);
                all.extend([one.clone(), one.clone().layers(2)]);
                if direction == Direction::Both {
                    let summed = one.join(Join::Sum).stacking(Stacking::Separate);
                    all.extend([summed.clone(), summed.layers(2)]);
                }
            }
        }
    }
    all
}

fn network(rnn: &Rnn, lengths: Lengths) -> Network {
    let packed = rnn.layout == RowLayout::Packed;
    let rows = if packed { lengths.of.iter().sum::<i64>() + lengths.behind } else { STEPS * BATCH };
    let others = rnn.build_cell().states.len() > 1;
    let with = Optional {
        lengths: packed || lengths.of != [STEPS; BATCH as usize],
        h_initial: true,
        h_final: true,
        states_initial: others,
        history: others,
        ..Optional::default()
    };
    rnn.network(Extent { batch: BATCH, rows }, with).expect("it is valid")
}

fn values(network: &Network, lengths: Lengths) -> Values {
    let problem = Problem::new(network.clone());
    let mut values = problem.random_values(5).expect("there is memory");
    if let Ok(tensor) = network.graph.tensor_named("lengths") {
        values.insert(tensor.uid, lengths.of.iter().map(|length| *length as f64).collect());
    }
    values
}

/// The plan of a network with every layer on this engine; `None` where it refuses one.
fn plan_on(kiln: &Kiln, network: &Network, engine: &str) -> Option<kiln::ExecutionPlan> {
    let target = kiln.device().target();
    let plan = kiln.plan(&network.graph).expect("some engine runs it");
    let mut document: serde_json::Value =
        serde_json::from_str(&plan.to_json()).expect("plans are JSON");
    for (part, json) in
        plan.parts().into_iter().zip(document["parts"].as_array_mut().expect("it lists parts"))
    {
        if part.config.engine.starts_with("rnn_") {
            let own = engine::supported(engine, part.graph.canonical(), target).ok()?;
            json["config"] = own.heuristic().to_string().into();
        }
    }
    Some(kiln.plan_from_json(&document.to_string()).expect("the engine runs its parts"))
}

/// Every engine gives what the reference says, and reads nothing that was not written. A sample:
/// `KILN_TEST_ALL=1` (`make rnn-layouts`) runs all.
#[test]
fn every_layout_runs_clean_on_every_engine() {
    let all = harness::all_are_wanted();
    let (networks, kiln) = (networks(), harness::kiln());
    let mut ran: HashMap<&str, usize> = HashMap::new();
    for (at, engine) in ENGINES.into_iter().enumerate() {
        // Packed two-layer networks first: what they leave unwritten is read.
        let sampled = |number: usize| all || (number + 5 * at).is_multiple_of(41);
        let chosen = networks.iter().enumerate().filter(|(number, _)| sampled(*number));
        for (place, (_, rnn)) in chosen.enumerate() {
            // Two of the five, others for the next network and the next engine.
            let taken = |of: usize| all || (place + at + 2 * of) % LENGTHS.len() < 2;
            for lengths in (0..LENGTHS.len()).filter(|of| taken(*of)).map(|of| LENGTHS[of]) {
                let network = network(rnn, lengths);
                let Some(plan) = plan_on(kiln, &network, engine) else { continue };
                let what = format!("{engine}: {rnn:?} {lengths:?}");
                let values = values(&network, lengths);
                let actual = harness::run_plan(kiln, &plan, &values)
                    .unwrap_or_else(|error| panic!("{what}: {error:?}"));
                harness::compare(&network.graph, &values, &actual, &what);
                *ran.entry(engine).or_default() += 1;
            }
        }
    }
    for engine in ENGINES {
        println!("{engine}: {} networks", ran.get(engine).unwrap_or(&0));
        assert!(ran.get(engine).is_some_and(|count| *count >= 5), "{engine} hardly ran: {ran:?}");
    }
}

/// A layer without a place on chip has as many kernels packed as it has unpacked, and one more for
/// sequences that are longer than the mean.
#[test]
fn packed_rows_multiply_no_kernels() {
    let target = Target::named("t4").expect("it is known");
    let (batch, steps) = (64, 100);
    let kernels = |layout: RowLayout| {
        let rnn = Rnn::lstm(1024, 1024).dtype(DType::F16).layout(layout);
        let with = Optional { lengths: true, h_final: true, ..Optional::default() };
        let extent = Extent { batch, rows: batch * steps };
        let network = rnn.network(extent, with).expect("it is valid");
        let parts = engine::partition(&network.graph, &target, &Selection::default());
        let parts = parts.expect("engines run it");
        let part = parts.iter().find(|part| part.config.engine == "rnn_step");
        let part = part.expect("no other engine runs the layer");
        let own = engine::supported("rnn_step", part.graph.canonical(), &target);
        let own = own.expect("it was chosen");
        own.lower(&part.config).expect("it was chosen").kernels.len()
    };
    let unpacked = kernels(RowLayout::SequenceMajor);
    assert_eq!(unpacked, 2 * steps as usize + 2);
    assert_eq!(kernels(RowLayout::Packed), unpacked + 1);
}

/// Sequences beyond the mean length go on in the kernel behind: a whole batch in one sequence.
#[test]
fn one_sequence_has_all_packed_rows() {
    let kiln = harness::kiln();
    let lengths = Lengths { of: [11, 1, 0], behind: 0 };
    for rnn in [
        Rnn::lstm(4, 36).dtype(DType::F16).bidirectional(),
        Rnn::lstm(4, 12).projection(5).direction(Direction::Reverse),
        Rnn::new(CellKind::GruResetBefore, 4, 12).bidirectional(),
        Rnn::gru(4, 12).dtype(DType::F64),
        Rnn { tf32: true, ..Rnn::gru(4, 12) },
    ] {
        let network = network(&rnn.layout(RowLayout::Packed), lengths);
        let plan = plan_on(kiln, &network, "rnn_step").expect("it runs any layer");
        let values = values(&network, lengths);
        let actual = harness::run_plan(kiln, &plan, &values).expect("it runs");
        harness::compare(&network.graph, &values, &actual, &format!("{:?}", network.rnn));
    }
}

/// However many steps a layer has, its plan has a bounded number of kernels, and is found quickly
/// by every heuristic.
#[test]
fn planning_is_bounded_in_the_number_of_steps() {
    for target in ["sim", "t4"].map(|name| Target::named(name).expect("it is known")) {
        for (hidden, steps) in [(32, 1 << 31), (2048, 1 << 20), (2048, 20_000)] {
            let rnn = Rnn::lstm(16, hidden).dtype(DType::F16);
            let extent = Extent { batch: 4, rows: 4 * steps };
            let network = rnn.network(extent, Optional::default()).expect("it is valid");
            for mode in [Mode::A, Mode::B, Mode::Fallback] {
                let selection = Selection { mode, ..Selection::default() };
                let parts = match engine::partition(&network.graph, &target, &selection) {
                    Ok(parts) => parts,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
                        continue;
                    }
                };
                for part in parts {
                    let own =
                        engine::supported(&part.config.engine, part.graph.canonical(), &target);
                    let lowered = own.expect("it was chosen").lower(&part.config);
                    let count = lowered.expect("it was chosen").kernels.len();
                    assert!(count <= (1 << 13) + 8, "{}: {count} kernels", part.config);
                }
            }
        }
    }
}

/// A filter finds what is left: a layer without tensor cores on any, and none whose blocks must be
/// resident together.
#[test]
fn notes_are_what_the_kernels_do() {
    for name in ["sim", "t4", "a100", "h100"] {
        let target = Target::named(name).expect("it is known");
        for hidden in [64, 1024, 4096] {
            let rnn = Rnn::lstm(64, hidden).dtype(DType::F16);
            let extent = Extent { batch: 8, rows: 80 };
            let network = rnn.network(extent, Optional::default()).expect("it is valid");
            for note in ["tensor_core", "cooperative", "tensor_core, cooperative"] {
                let without = note.parse().expect("it is known");
                let selection = Selection { without, ..Selection::default() };
                let parts = engine::partition(&network.graph, &target, &selection);
                for part in parts.unwrap_or_else(|error| panic!("{name} {hidden}: {error}")) {
                    let own =
                        engine::supported(&part.config.engine, part.graph.canonical(), &target);
                    let lowered = own.expect("it was chosen").lower(&part.config);
                    for kernel in lowered.expect("it was chosen").kernels {
                        let uses = kernel.spec.template.contains("mma");
                        let refused = note.contains("tensor_core") && uses
                            || note.contains("cooperative") && kernel.launch.cooperative;
                        assert!(!refused, "{name} {hidden}, without {note}: {}", part.config);
                    }
                }
            }
        }
    }
}
