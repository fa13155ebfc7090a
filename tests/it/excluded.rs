//! What is excluded by its note is looked for elsewhere: in other settings, other engines, other
//! splits of the graph.

use kiln::engine::{self, Selection};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, Reduction, ReductionOp};
use kiln::plan::Problem;
use kiln::target::Target;
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph};
use serde_json::json;

use crate::harness;

/// The maximum of each row is subtracted from rows, of which the maxima of each column are
/// wanted. Merging joins the last two operations, which saves the most bytes, and no engine the
/// first to both.
fn centred(stored: bool) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[64, 256], DType::F16);
    let z = graph.input("z", &[64, 256], DType::F16);
    let maximum = graph.reduction(Reduction::new(ReductionOp::Max), x, &[64, 1]).unwrap();
    let less = graph.pointwise(Pointwise::new(Mode::Sub), &[z, maximum]).unwrap();
    if stored {
        graph.output(less, "less", DType::F16);
    }
    let y = graph.reduction(Reduction::new(ReductionOp::Max), less, &[1, 256]).unwrap();
    graph.output(y, "y", DType::F16);
    graph.build().unwrap()
}

fn without(note: &str) -> Kiln {
    let without = Some(note.parse().unwrap());
    Kiln::open(Config { device: Some("sim".parse().unwrap()), without, ..harness::config() })
        .unwrap()
}

#[test]
fn another_split_needs_no_workspace() {
    let kiln = without("workspace");
    let graph = centred(true);
    let plan = kiln.plan(&graph).unwrap();
    assert_eq!((plan.parts().len(), plan.workspace_bytes()), (2, 0));
    let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 4, 1.0))).collect();
    harness::check(&kiln, &graph, None, &inputs, "without a workspace");
}

#[test]
fn no_split_needs_no_workspace() {
    let error = without("workspace").plan(&centred(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = error.to_string();
    // Two reductions, the difference, and what rounds it.
    let expected = "workspace is excluded, and 4 operations pass virtual tensors to each other: \
                    no engine runs the graph: ";
    assert!(text.starts_with(expected), "{text}");
}

/// Every heuristic finds a setting without the note where any is legal, for a target of each class.
#[test]
fn every_heuristic_looks_at_every_setting() {
    let graph = {
        let mut graph = OperationGraph::builder();
        let a = graph.input("a", &[64, 4096], DType::F16);
        let b = graph.input("b", &[4096, 64], DType::F16);
        let c = graph.matmul(Matmul::default(), a, b).unwrap();
        graph.output(c, "c", DType::F16);
        graph.build().unwrap()
    };
    for name in ["t4", "a100", "h200", "b200", "sim120"] {
        let target = Target::named(name).unwrap();
        for mode in [engine::Mode::A, engine::Mode::B, engine::Mode::Fallback] {
            for note in ["workspace", "tensor_core", "cooperative", "workspace,tensor_core"] {
                let selection = Selection { mode, without: note.parse().unwrap() };
                let parts = engine::partition(&graph, &target, &selection).unwrap();
                let notes = parts[0].supported(&target).unwrap().notes(&parts[0].config);
                assert!(
                    note.split(',').all(|note| !notes.names().contains(&note)),
                    "{name}, {mode} without {note}: {}",
                    parts[0].config
                );
            }
        }
    }
}

/// Only the kernels of another split have been compiled.
#[test]
fn another_split_is_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let open = |note: &str| {
        let (device, without) = (Some("sim".parse().unwrap()), Some(note.parse().unwrap()));
        let cache_dir = Some(folder.path().to_owned());
        Kiln::open(Config { device, without, cache_dir, ..Config::default() }).unwrap()
    };
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[64, 256], DType::F16);
    let y = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[x]).unwrap();
    graph.output(y, "y", DType::F16);
    let z = graph.reduction(Reduction::new(ReductionOp::Max), y, &[64, 1]).unwrap();
    graph.output(z, "z", DType::F16);
    let graph = graph.build().unwrap();
    let target = open("").device().target().clone();
    let whole = engine::partition(&graph, &target, &Selection::default()).unwrap();
    let apart = engine::splits_undone(&whole, &target, &Selection::default()).remove(0);
    assert_eq!((whole.len(), apart.len()), (1, 2));
    let strict = open("runtime_compilation");
    let error = strict.plan(&graph).unwrap_err();
    assert!(error.to_string().starts_with("runtime_compilation is excluded, "), "{error}");
    for part in &apart {
        open("").plan_with(&part.graph, &part.config).unwrap();
    }
    let plan = strict.plan(&graph).unwrap();
    let parts: Vec<_> = plan.parts().into_iter().cloned().collect();
    assert_eq!(parts, apart);
}

/// What a heuristic offers, and what takes its place where that spills, fits the device: weights
/// that leave registers need shared memory.
#[test]
fn what_is_offered_fits() {
    let rnn = json!({ "rnn": {
        "cell": "lstm", "input_mode": "skip", "input_size": 256, "hidden_size": 256, "layers": 1,
        "direction": "forward", "bias": "none", "dtype": "bf16", "layout": "sequence_major",
        "batch": 16, "steps": 7, "tensors": [],
    } });
    let problem = Problem::from_json(&rnn.to_string()).unwrap();
    let graph = problem.only_graph().unwrap();
    for name in ["t4", "a100", "h200", "b200", "sim120"] {
        let target = Target::named(name).unwrap();
        for mode in [engine::Mode::A, engine::Mode::B, engine::Mode::Fallback] {
            for note in ["", "workspace"] {
                let selection = Selection { mode, without: note.parse().unwrap() };
                let Ok(parts) = engine::partition(graph, &target, &selection) else { continue };
                let supported = parts[0].supported(&target).unwrap();
                let first = Some(parts[0].config.clone());
                for config in std::iter::successors(first, |config| supported.smaller(config)) {
                    supported.lower(&config).unwrap_or_else(|error| panic!("{config}: {error}"));
                }
            }
        }
    }
}
