//! Planning never panics and always ends: random graphs of any shape, attentions and recurrent
//! networks among them, under every heuristic, for a target of every class of architecture, with
//! all that is asked of an engine on the way.
//!
//! `make random-plans` plans twenty thousand (`KILN_PLANS`) and prints how far it is; a failure
//! prints the seed, and `make random-plans PLANS=1 PLANS_FROM=seed` plans that graph alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kiln::engine::{
    self, BehaviorNote, EngineConfig, Knob, Mode, Notes, Part, Selection, Supported, cuts,
};
use kiln::graph::Matmul;
use kiln::target::Target;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};

use crate::random_graphs::{Random, number};
use crate::wild::wild_graph;
use crate::wild_layers::wild_layers;
use crate::wild_menu::ANYTHING;

/// Graphs in the ordinary run of the tests.
const GRAPHS: u64 = 150;

/// Graphs between two lines about the progress.
const PROGRESS: u64 = 1000;

/// One target of every class: sm_75, 80, 89, 90a, 100a, 120.
const TARGETS: [&str; 6] = ["t4", "a100", "rtx4090", "h200", "b200", "sim120"];

/// Settings of an engine, drawn from what its knobs allow, that are lowered.
const SETTINGS: usize = 4;

/// What planning one graph may take of a processor, in a debug build.
const PLANNING_MAX: Duration = Duration::from_secs(20);

/// The processor's time of this thread: other work on the machine does not count.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has one");
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("it begins with a number"))
}

/// All that planning asks of the engines that take a part, and of those that would.
fn ask(random: &mut Random, graph: &OperationGraph, target: &Target) {
    for name in engine::engines().iter().map(|engine| engine.name()) {
        let Ok(supported) = engine::supported(name, graph.canonical(), target) else { continue };
        let knobs = supported.knobs();
        assert!(knobs.iter().all(|knob| !knob.values.is_empty()), "{name}: {knobs:?}");
        supported.reasons();
        supported.layouts();
        lower(&*supported, &supported.heuristic());
        lower_smaller(&*supported, supported.heuristic());
        for _ in 0..SETTINGS {
            let draw = |config: EngineConfig, knob: &Knob| {
                config.with(knob.name, random.pick(&knob.values))
            };
            let config = knobs.iter().fold(EngineConfig::new(named(name), &[]), draw);
            supported.notes(&config);
            // What knobs allow each may be too much together.
            match supported.lower(&config) {
                Ok(_) => lower_smaller(&*supported, config),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotSupported, "{config}: {error}")
                }
            }
        }
    }
}

fn named(name: &str) -> &'static str {
    engine::engine_named(name).unwrap().name()
}

/// Lowers a setting that an engine offers.
fn lower(supported: &dyn Supported, config: &EngineConfig) {
    supported.notes(config);
    let lowering = supported.lower(config).unwrap_or_else(|error| panic!("{config}: {error}"));
    assert_eq!(supported.scratch(config).unwrap(), lowering.scratch, "{config}");
}

/// Lowers all the smaller settings that would follow one where each spills.
fn lower_smaller(supported: &dyn Supported, config: EngineConfig) {
    let smaller = |config: &EngineConfig| supported.smaller(config);
    for (steps, config) in std::iter::successors(Some(config), smaller).skip(1).enumerate() {
        assert!(steps < 200, "{config}: there is no end of smaller settings");
        lower(supported, &config);
    }
}

/// Plans a graph as `Kiln::plan` does, short of compiling: every part has a setting that lowers, as
/// do those that take its place.
fn plan(graph: &OperationGraph, target: &Target, selection: &Selection) -> usize {
    let parts: Vec<Part> = match engine::partition(graph, target, selection) {
        Ok(parts) => parts,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
            return 0;
        }
    };
    for part in &parts {
        let supported = part.supported(target).unwrap();
        lower(&*supported, &part.config);
        if selection.without.behavior.contains(&BehaviorNote::Workspace) {
            let scratch = supported.scratch(&part.config).unwrap();
            assert!(scratch.iter().all(|bytes| *bytes == 0), "{}: {scratch:?}", part.config);
            let stored = |of: &TensorDesc| graph.tensor(of.uid).is_ok_and(|of| !of.is_virtual);
            assert!(part.graph.outputs().all(stored), "{}", part.graph);
        }
        lower_smaller(&*supported, part.config.clone());
    }
    cuts(graph, target, &parts);
    parts.len()
}

/// Every n-th graph, so that several tests share the work.
fn check(shard: u64, shards: u64) {
    let (first, count) = (number("KILN_PLANS_FROM", 1), number("KILN_PLANS", GRAPHS));
    let targets = TARGETS.map(|name| Target::named(name).unwrap());
    let without: [Notes; 2] = [Notes::default(), "workspace".parse().unwrap()];
    let (mut planned, mut refused, mut invalid, mut of_layers) = (0, 0, 0, 0);
    let mut longest = (Duration::ZERO, 0);
    let mut failed = Vec::new();
    for seed in (first..first + count).filter(|seed| (seed - first) % shards == shard) {
        let mut random = Random(seed);
        let layers = random.below(3) == 0;
        let graph = if layers { wild_layers(seed) } else { wild_graph(&ANYTHING, seed) };
        let Some(graph) = graph else {
            invalid += 1;
            continue;
        };
        let target = random.pick(&[0, 1, 2, 3, 4, 5]);
        let (target, without) = (&targets[target], without[random.below(2)].clone());
        // By the cost model every setting is looked at: that takes longer.
        let modes: &[Mode] = match random.below(3) {
            0 => &[Mode::A, Mode::Fallback, Mode::B],
            _ => &[Mode::A, Mode::Fallback],
        };
        let started = busy();
        let done = catch_unwind(AssertUnwindSafe(|| {
            let selection = |mode| Selection { mode, without: without.clone() };
            let parts = modes.iter().map(|mode| plan(&graph, target, &selection(*mode)));
            let parts: usize = parts.sum();
            ask(&mut random, &graph, target);
            let took = busy() - started;
            assert!(took < PLANNING_MAX, "took {took:?}");
            longest = longest.max((took, seed));
            parts
        }));
        match done {
            Ok(0) => refused += 1,
            Ok(_) => {
                planned += 1;
                of_layers += u64::from(layers);
            }
            Err(_) => {
                println!("seed {seed} failed: {graph}");
                failed.push(seed);
            }
        }
        if (seed - first) / shards % PROGRESS == PROGRESS - 1 {
            println!("shard {shard}: seed {seed}, {planned} graphs planned, failed: {failed:?}");
        }
    }
    println!(
        "shard {shard}: {planned} graphs planned, {of_layers} of them attentions and networks, \
         {refused} refused, {invalid} invalid; seed {} took {:?}, the longest",
        longest.1, longest.0
    );
    assert!(failed.is_empty(), "seeds of graphs that panic: {failed:?}");
    assert!((planned > 0 && of_layers > 0) || count < 50);
}

#[test]
fn random_plans_never_panic_0() {
    check(0, 2);
}

#[test]
fn random_plans_never_panic_1() {
    check(1, 2);
}

/// An empty GEMM may state strides that are more than 2^63 times an extent, though any number of
/// its elements that exist, none, stands inside of 2^63.
#[test]
fn products_of_strides_may_overflow() {
    let stride = 1 << 40;
    let extent = 1 << 31;
    let mut graph = OperationGraph::builder();
    let mut operand = |uid, name: &str, rows, columns| {
        let desc = TensorDesc::packed(uid, name, &[0, extent, extent, rows, columns], DType::F32);
        graph.tensor(TensorDesc { strides: vec![stride, stride, 64, 8, 1], ..desc })
    };
    let [a, b] = [operand(1, "a", 3, 8), operand(2, "b", 8, 8)];
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.output(c, "c", DType::F32);
    let graph = graph.build().unwrap();
    for name in TARGETS {
        let target = Target::named(name).unwrap();
        for mode in [Mode::A, Mode::B, Mode::Fallback] {
            plan(&graph, &target, &Selection { mode, ..Selection::default() });
        }
    }
}
