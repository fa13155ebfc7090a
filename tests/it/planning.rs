//! What planning takes has the bounds that the documentation states, whatever the graph.

use std::time::Duration;

use kiln::engine::{self, EngineConfig, Mode, Selection};
use kiln::graph::Matmul;
use kiln::plan::Problem;
use kiln::target::Target;
use kiln::{Config, DType, Kiln, OperationGraph};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::harness;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/engines.md");

/// Of processors and of memory, for a graph, without compiling; as documented.
const PLANNING_MAX: Duration = Duration::from_secs(20);
const PLANNING_BYTES_MAX: i64 = 512 << 20;

/// For a part, by the default heuristic; as documented.
const RULES_MAX: Duration = Duration::from_micros(1000);

const MODES: [Mode; 3] = [Mode::A, Mode::B, Mode::Fallback];

/// What the process has taken of processors, and the most memory it has had.
fn taken() -> (Duration, i64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|word| word.parse::<u64>().unwrap()).sum();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: i64 = most.split_whitespace().next().unwrap().parse().unwrap();
    (Duration::from_millis(10 * ticks), kib << 10)
}

/// What this thread has taken of processors.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// A process that compiles what is not in the cache yet, and one that measures.
const TASKS: [&str; 2] = ["compile", "measure"];

/// Plans a graph under every heuristic.
fn plan(task: &str, what: &str, graph: &OperationGraph) {
    for heuristic in MODES {
        let open = || {
            let device = Some("null:h200".parse().unwrap());
            let config = Config { device, heuristic: Some(heuristic), ..harness::config() };
            Kiln::open(config).unwrap()
        };
        let planned = |kiln: &Kiln| kiln.plan(graph).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (before, _) = taken();
        let kernels = planned(&open()).kernels().len();
        if task == "compile" {
            continue;
        }
        let (after, bytes) = taken();
        let took = after - before;
        println!("{what}, {heuristic}: {kernels} kernels, {took:?}, {} MiB", bytes >> 20);
        assert!(took < PLANNING_MAX, "{what}, {heuristic}: {took:?}");
        assert!(bytes < PLANNING_BYTES_MAX, "{what}, {heuristic}: {bytes} bytes");
    }
}

#[test]
fn many_heads_are_planned_in_bounds() {
    let Some(task) =
        harness::in_own_processes("planning::many_heads_are_planned_in_bounds", &TASKS)
    else {
        return;
    };
    let mha = json!({ "mha": {
        "heads": 512, "q_size": 8, "k_size": 8, "v_size": 8, "dtype": "f16", "batch": 2,
        "beams": 1, "queries": 5, "keys": 20,
    } });
    let problem = Problem::from_json(&mha.to_string()).unwrap();
    problem.graphs().into_iter().for_each(|graph| plan(&task, "512 heads", graph));
}

#[test]
fn many_steps_are_planned_in_bounds() {
    let Some(task) =
        harness::in_own_processes("planning::many_steps_are_planned_in_bounds", &TASKS)
    else {
        return;
    };
    for cell in ["lstm", "gru"] {
        let rnn = json!({ "rnn": {
            "cell": cell, "input_size": 64, "hidden_size": 64, "dtype": "f16", "batch": 4,
            "layout": "sequence_major", "steps": 1_i64 << 31, "tensors": [],
        } });
        let problem = Problem::from_json(&rnn.to_string()).unwrap();
        plan(&task, &format!("an {cell} of 2^31 steps"), problem.only_graph().unwrap());
    }
}

#[test]
fn many_products_are_planned_in_bounds() {
    let Some(task) =
        harness::in_own_processes("planning::many_products_are_planned_in_bounds", &TASKS)
    else {
        return;
    };
    // All layers share their kernels.
    let layers = if task == "compile" { 2 } else { 600 };
    let mut graph = OperationGraph::builder();
    let mut x = graph.input("x", &[256, 256], DType::Bf16);
    for layer in 0..layers {
        let weights = graph.input(&format!("layers.{layer}.w"), &[256, 256], DType::Bf16);
        x = graph.matmul(Matmul::default(), x, weights).unwrap();
        graph.name(x, &format!("layers.{layer}.y"), DType::Bf16);
    }
    graph.output(x, "y", DType::Bf16);
    plan(&task, &format!("{layers} products"), &graph.build().unwrap());
}

/// One of many takes, of the thread's processor time: the machine may be busy for a while.
#[test]
fn rules_take_microseconds() {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[1024, 1024], DType::Bf16);
    let b = graph.input("b", &[1024, 1024], DType::Bf16);
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.output(c, "c", DType::Bf16);
    let graph = graph.build().unwrap();
    for name in ["t4", "a100", "h200", "b200"] {
        let target = Target::named(name).unwrap();
        let choose = |_| {
            let start = thread_time();
            let choose = || engine::choose(graph.canonical(), &target, &Selection::default());
            let all: Vec<EngineConfig> = (0..20).map(|_| choose().unwrap()).collect();
            (thread_time() - start) / all.len() as u32
        };
        let mut least = Duration::MAX;
        let mut takes = (0..200).map(choose).inspect(|took| least = least.min(*took));
        let is_fast = takes.any(|took| took < RULES_MAX);
        assert!(is_fast, "{name}: {least:?}");
    }
}

#[test]
fn the_bounds_are_documented() {
    let text = std::fs::read_to_string(DOCS).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (seconds, bytes) = (PLANNING_MAX.as_secs(), PLANNING_BYTES_MAX >> 20);
    for bound in [format!("{seconds} s of a processor"), format!("{bytes} MiB of memory")] {
        assert!(words.contains(&bound), "{bound}");
    }
}
