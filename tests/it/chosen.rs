//! `kiln engines` and plans choose alike: for every example, for one of two GPUs. What is chosen is
//! in the log, with its reasons.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use kiln::engine::{EngineConfig, engines};
use kiln::graph::Matmul;
use kiln::plan::Problem;
use kiln::{Config, DType, Kiln, OperationGraph};
use serde_json::Value;
use tracing::Event;
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::harness;

const DEVICES: [&str; 2] = ["null:h200", "null:t4"];

fn examples() -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/problems");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 20);
    paths
}

/// What the tool says, and which settings the plans of the problem have.
fn told_and_planned(kiln: &Kiln, path: &Path, device: &str) -> [Vec<String>; 2] {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["engines", path.to_str().unwrap(), "--json", "--device", device])
        .envs(harness::environment())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{}: {error}: {}", path.display(), String::from_utf8_lossy(&output.stderr))
    });
    let parts = document["parts"].as_array().unwrap();
    let told = parts.iter().map(|part| part["chosen"].as_str().unwrap().to_owned()).collect();
    let problem = Problem::from_json(&std::fs::read_to_string(path).unwrap()).unwrap();
    let planned = problem.graphs().into_iter().flat_map(|graph| {
        let plan = kiln.plan(graph).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        plan.parts().iter().map(|part| part.config.to_string()).collect::<Vec<_>>()
    });
    [told, planned.collect()]
}

#[test]
fn the_tool_tells_what_a_plan_has() {
    for (turn, device) in DEVICES.into_iter().enumerate() {
        let chosen = Some(device.parse().unwrap());
        let kiln = Kiln::open(Config { device: chosen, ..harness::config() }).unwrap();
        // Half of them on each, another one.
        let own = examples().into_iter().skip(turn).collect();
        for path in harness::sampled(own, DEVICES.len()) {
            let name = path.display();
            let [told, planned] = told_and_planned(&kiln, &path, device);
            assert!(!planned.is_empty(), "{name}");
            assert_eq!(told, planned, "{name} on {device}");
        }
    }
}

/// The fields of an event.
#[derive(Debug, Clone, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

/// Collects what is said of choices.
#[derive(Clone, Default)]
struct Choices(Arc<Mutex<Vec<Fields>>>);

impl<S: tracing::Subscriber> Layer<S> for Choices {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.0.get("message").is_some_and(|message| message == "engine chosen") {
            assert_eq!(*event.metadata().level(), tracing::Level::DEBUG);
            self.0.lock().unwrap().push(fields);
        }
    }
}

fn product() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[256, 256], DType::Bf16);
    let b = graph.input("b", &[256, 256], DType::Bf16);
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.output(c, "c", DType::Bf16);
    graph.build().unwrap()
}

/// Runs in a process of its own: whether an event is heard is remembered for all threads.
#[test]
fn a_choice_is_told_with_its_reasons() {
    if harness::in_own_processes("chosen::a_choice_is_told_with_its_reasons", &["run"]).is_none() {
        return;
    }
    let (device, without) =
        (Some("null:h200".parse().unwrap()), Some("cooperative".parse().unwrap()));
    let kiln = Kiln::open(Config { device, without, ..harness::config() }).unwrap();
    let choices = Choices::default();
    let subscriber = tracing_subscriber::registry().with(choices.clone());
    let (asked_for, stem): (EngineConfig, String) =
        tracing::subscriber::with_default(subscriber, || {
            let plan = kiln.plan(&product()).unwrap();
            // A plan that was made before chooses nothing.
            kiln.plan(&product()).unwrap();
            let config = plan.parts()[0].config.clone();
            kiln.plan_with(&product(), &config).unwrap();
            (config, plan.kernels()[0].report().stem.clone())
        });
    let told = choices.0.lock().unwrap().clone();
    let [planned, asked] = &told[..] else { panic!("one for each part: {told:?}") };
    let (planned, asked) = (&planned.0, &asked.0);
    assert_eq!(planned["config"], asked_for.to_string());
    assert_eq!([&planned["kernels"], &asked["kernels"]], [&stem, &stem]);
    assert!(planned["predicted_us"].parse::<f64>().unwrap() > 0.0, "{planned:?}");
    let by = &planned["chosen_by"];
    assert!(by == "the rules" || by.starts_with("the cost model: "), "{by}");
    assert_eq!(asked["chosen_by"], "the caller");
    // Each of the other engines: what it would take, or why it does not run the part.
    let others = &planned["others"];
    for engine in engines().iter().filter(|engine| engine.name() != asked_for.engine) {
        let name = engine.name();
        assert!(others.contains(&format!("{name}: ")) || others.contains(&format!("{name}{{")));
    }
    assert!(others.contains("gemm_simt{") && others.contains(" us; "), "{others}");
    assert!(others.contains("pointwise: matmul is not pointwise"), "{others}");
}
