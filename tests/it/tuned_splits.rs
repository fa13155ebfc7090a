//! The split of a graph into parts is tuned: what is tried, kept, used and not used.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Reduction, ReductionOp};
use kiln::{Config, DType, Kiln, OperationGraph};
use serde_json::{Value, json};

use crate::harness;

/// One part by the heuristic; every tensor has a name.
fn graph() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[24, 96], DType::F32);
    let b = graph.input("b", &[1, 96], DType::F32);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, b]).unwrap();
    graph.name(sum, "sum", DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[sum]).unwrap();
    graph.output(y, "y", DType::F32);
    let most = graph.reduction(Reduction::new(ReductionOp::Max), y, &[24, 1]).unwrap();
    graph.output(most, "most", DType::F32);
    graph.build().unwrap()
}

fn open(folder: &std::path::Path, device: &str, without: &str) -> Kiln {
    Kiln::open(Config {
        device: Some(device.parse().unwrap()),
        cache_dir: Some(folder.to_owned()),
        without: Some(without.parse().unwrap()),
        count: device == "sim",
        ..Config::default()
    })
    .unwrap()
}

fn engines(kiln: &Kiln) -> Vec<String> {
    let plan = kiln.plan(&graph()).unwrap();
    plan.parts().iter().map(|part| part.config.engine.to_string()).collect()
}

#[test]
fn fusions_are_undone_and_the_best_split_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let kiln = open(folder, "sim", "");
    assert_eq!(engines(&kiln), ["reduction"]);
    let mut steps = 0;
    let tuned = kiln.tune_split(&graph(), |_| steps += 1).unwrap();
    // One, and a cut behind each of the first two operations.
    assert_eq!((tuned.tried.len(), steps), (3, 3), "{tuned:?}");
    let mut parts: Vec<usize> = tuned.tried.iter().map(|tried| tried.parts.len()).collect();
    parts.sort_unstable();
    assert_eq!(parts, [1, 2, 2]);
    // Fewer bytes are moved at once than twice: counts know that.
    assert_eq!((tuned.parts.len(), Some(tuned.us)), (1, tuned.heuristic_us));
    assert!(tuned.tried.iter().all(|tried| tried.us.unwrap() >= tuned.us), "{tuned:?}");
    assert_eq!(engines(&kiln), ["reduction"]);

    // As if a split in two had won.
    let path = tuned.path.unwrap();
    let mut record: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let other = tuned.tried.iter().find(|tried| tried.parts[0].starts_with("pointwise{"));
    let [first, second] = &other.unwrap().parts[..] else { panic!("{:?}", tuned.tried) };
    let behind_first = second.starts_with("reduction{");
    assert!(behind_first, "{second}");
    let cut = [&["sum", "y"][..], &["most"]];
    let listed: Vec<Value> = [first, second]
        .iter()
        .zip(cut)
        .map(|(config, writes)| json!({"config": config, "writes": writes}))
        .collect();
    record["plan"]["parts"] = json!(listed);
    let write = |record: &Value| std::fs::write(&path, record.to_string()).unwrap();
    write(&record);
    let kiln = open(folder, "sim", "");
    assert_eq!(engines(&kiln), ["pointwise", "reduction"]);
    let inputs = graph().inputs().map(|of| (of.uid, harness::fill(of, 3, 1.0))).collect();
    harness::check(&kiln, &graph(), None, &inputs, "a tuned split");

    // Counts say nothing of a GPU, a filter searches by itself, damage is a warning.
    assert_eq!(engines(&open(folder, "null", "")), ["reduction"]);
    assert_eq!(engines(&open(folder, "sim", "tensor_core")), ["reduction"]);
    record["measurement"]["measured"] = json!("time");
    write(&record);
    assert_eq!(engines(&open(folder, "null", "")), ["pointwise", "reduction"]);
    record["plan"]["parts"][0]["writes"] = json!(["sum"]);
    write(&record);
    assert_eq!(engines(&open(folder, "sim", "")), ["reduction"]);
    std::fs::write(&path, "{").unwrap();
    assert_eq!(engines(&open(folder, "sim", "")), ["reduction"]);
}
