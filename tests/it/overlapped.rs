//! Kernels of a plan that may begin before those before them have ended (programmatic dependent
//! launch): which may, and that all of them wait before they access memory, which the sanitizer
//! checks in every launch.

use std::fs;
use std::path::Path;

use kiln::device::DeviceChoice;
use kiln::engine::{self, EngineConfig};
use kiln::graph::MatmulMath;
use kiln::rnn::{CellKind, CellOptions};
use kiln::{Config, DType, Kiln, OperationGraph};

use crate::cuda_graphs::graph;
use crate::harness;
use crate::recurrence;
use crate::signal::producer;

const WAIT: &str = "wait_on_dependent_grids();";
const LAUNCH: &str = "launch_dependent_grids();";

fn lstm() -> OperationGraph {
    let op = recurrence::layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [20, 128]);
    recurrence::graph(&op, 5, DType::F16)
}

/// Entry of each kernel of a plan, whether it is a cooperative launch and whether it may begin
/// early.
fn launches(
    kiln: &Kiln,
    graph: &OperationGraph,
    config: Option<&EngineConfig>,
) -> Vec<(String, bool, bool)> {
    let plan = match config {
        Some(config) => kiln.plan_with(graph, config).unwrap(),
        None => kiln.plan(graph).unwrap(),
    };
    let kernels = plan.kernels().iter().map(|kernel| {
        let launch = kernel.launch();
        (kernel.spec().entry.to_owned(), launch.cooperative, launch.programmatic)
    });
    kernels.collect()
}

#[test]
fn kernels_behind_others_of_their_plan_may_begin_early() {
    for target in ["sim", "t4", "a100", "h100", "b200", "rtx5090"] {
        let Some(kiln) = harness::simulated(target) else { continue };
        let able = kiln.device().target().arch.capability >= 90;
        let two = launches(kiln, &graph(), None);
        let early: Vec<bool> = two.iter().map(|of| of.2).collect();
        assert_eq!(early, [false, able], "{target}: {two:?}");
        // A signal must not hold the room that whoever it waits for needs.
        let more = launches(kiln, &producer(), None);
        assert_eq!(more.last().unwrap().0, "signal_set", "{more:?}");
        for (at, (entry, _, early)) in more.iter().enumerate() {
            let expected = able && at > 0 && entry != "signal_set";
            assert_eq!(*early, expected, "{target}: {more:?}");
        }
        // Older kernels have nothing of it.
        let plan = kiln.plan(&producer()).unwrap();
        for kernel in plan.kernels() {
            let waits = kernel.source().text.contains("dependent_grids");
            let expected = able && kernel.spec().entry != "signal_set";
            assert_eq!(waits, expected, "{target}: {}", kernel.spec().stem);
        }
        let values = kiln::plan::random_values(&graph(), 3).unwrap();
        harness::check(kiln, &graph(), None, &values, target);
    }
}

#[test]
fn cooperative_launches_begin_behind_the_end_of_others() {
    let kiln = harness::kiln();
    let graph = lstm();
    for (name, exchange) in [("rnn_grid", 0), ("rnn_grid", 1), ("rnn_step", 0)] {
        let target = kiln.device().target();
        let own = engine::supported(name, graph.canonical(), target).unwrap().heuristic();
        let config = match name {
            "rnn_grid" => own.with("group_ctas", 2).with("exchange", exchange),
            _ => own,
        };
        let all = launches(kiln, &graph, Some(&config));
        assert!(all.len() > 1, "{config}: {all:?}");
        assert_eq!(all.iter().any(|of| of.1), name == "rnn_grid", "{config}: {all:?}");
        for (at, (_, cooperative, early)) in all.iter().enumerate() {
            assert_eq!(*early, at > 0 && !cooperative, "{config}, kernel {at}: {all:?}");
        }
    }
}

#[test]
fn launches_overlap_only_where_they_are_let() {
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    let overlap_launches = Some(false);
    let kiln = Kiln::open(Config { overlap_launches, ..harness::checked(device) }).unwrap();
    for graph in [graph(), lstm()] {
        assert!(launches(&kiln, &graph, None).iter().all(|of| !of.2));
    }
}

/// A chain of small kernels, each of which needs what the one before it has written: the same bits
/// as without overlap, again and again where launches do overlap.
#[test]
fn overlap_changes_no_bit() {
    let overlapped = harness::kiln();
    let device = overlapped.device();
    let choice = match device.kind() {
        "cuda" => DeviceChoice::Cuda(0),
        _ => DeviceChoice::Sim("sim".to_owned()),
    };
    let runs = if device.kind() == "cuda" { 200 } else { 2 };
    let overlap_launches = Some(false);
    let alone = Kiln::open(Config { overlap_launches, ..harness::checked(Some(choice)) }).unwrap();
    let graph = lstm();
    let values = kiln::plan::random_values(&graph, 3).unwrap();
    let supported = engine::supported("rnn_step", graph.canonical(), device.target()).unwrap();
    let config = supported.heuristic();
    let expected = harness::run(&alone, &graph, Some(&config), &values).unwrap();
    let plan = overlapped.plan_with(&graph, &config).unwrap();
    assert!(plan.kernels().len() > 10);
    for run in 0..runs {
        let actual = harness::run_plan(overlapped, &plan, &values).unwrap();
        assert!(actual == expected, "run {run}");
    }
}

/// All kernels but signals wait, once, and let the next launch begin behind that.
#[test]
fn kernels_wait_for_those_before_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let (mut waiting, mut signals) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".cu.snap") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for body in text.split("__global__").skip(1) {
            let said = [WAIT, LAUNCH].map(|call| (body.matches(call).count(), body.find(call)));
            if name.contains("_signal_") {
                assert_eq!(said, [(0, None); 2], "{name}");
                signals += 1;
            } else {
                let [(1, Some(wait)), (1, Some(launch))] = said else { panic!("{name}: {said:?}") };
                assert!(wait < launch, "{name}");
                waiting += 1;
            }
        }
    }
    assert!(waiting > 70 && signals > 0, "{waiting} wait, {signals} are signals");
}
