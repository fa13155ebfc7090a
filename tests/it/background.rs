//! Compiling in the background: served at once by a general kernel, then by the plan's own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kiln::expr::{Mode, Pointwise};
use kiln::plan::{Background, Origin, Tier};
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph};

use crate::harness::{self, Values};

const LONG: Duration = Duration::from_secs(60);

fn graph(rows: i64, columns: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, columns], DType::F16);
    let bias = graph.input("bias", &[1, columns], DType::F32);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[sum]).unwrap();
    graph.output(y, "y", DType::F16);
    graph.build().unwrap()
}

fn inputs(graph: &OperationGraph) -> Values {
    graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 7, 2.0))).collect()
}

fn config(folder: &Path) -> Config {
    Config {
        device: Some("sim".parse().unwrap()),
        cache_dir: Some(folder.to_owned()),
        background: Some(Background::default()),
        sanitize: Some(true),
        ..Config::default()
    }
}

/// A Kiln whose cache holds the general kernel of `graph`.
fn with_general(folder: &Path) -> Kiln {
    let kiln = Kiln::open(config(folder)).unwrap();
    let first = kiln.plan(&graph(3, 40)).unwrap();
    assert_eq!(
        (first.tier(), first.kernels()[0].report().origin),
        (Tier::Special, Origin::Compiled)
    );
    assert!(kiln.settle(LONG));
    kiln
}

#[test]
fn a_new_shape_is_served_at_once_and_then_by_its_own_kernel() {
    let folder = tempfile::tempdir().unwrap();
    drop(with_general(folder.path()));
    // Another process: the general kernel comes from disk.
    let kiln = Kiln::open(config(folder.path())).unwrap();
    let graph = graph(5, 333);
    let plan = kiln.plan(&graph).unwrap();
    let served = harness::run_plan(&kiln, &plan, &inputs(&graph)).unwrap();
    harness::compare(&graph, &inputs(&graph), &served, "at first");
    assert_eq!(plan.settle(LONG).unwrap(), Tier::Special);
    assert_eq!((plan.tier(), plan.kernels()[0].report().origin), (Tier::Special, Origin::Compiled));
    assert_eq!(plan.kernels()[0].config().engine, "pointwise");
    let own = harness::run_plan(&kiln, &plan, &inputs(&graph)).unwrap();
    assert_eq!(own, served);
    // Who plans it again shares the plan; the next process finds its own kernel.
    assert_eq!(kiln.plan(&graph).unwrap().kernels()[0].config(), plan.kernels()[0].config());
    let next = Kiln::open(config(folder.path())).unwrap().plan(&graph).unwrap();
    assert_eq!((next.tier(), next.kernels()[0].report().origin), (Tier::Special, Origin::Disk));
}

#[test]
fn many_shapes_and_threads_are_right_while_kernels_change() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = &with_general(folder.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..12 {
                    let graph = graph(1 + (thread + round) % 3, 100 + round % 4);
                    let plan = kiln.plan(&graph).unwrap();
                    let values = harness::run_plan(kiln, &plan, &inputs(&graph)).unwrap();
                    harness::compare(&graph, &inputs(&graph), &values, "meanwhile");
                }
            });
        }
    });
    assert!(kiln.settle(LONG));
    let plan = kiln.plan(&graph(1, 100)).unwrap();
    assert_eq!(
        (plan.tier(), plan.kernels()[0].config().engine.as_ref()),
        (Tier::Special, "pointwise")
    );
}

#[test]
fn a_full_queue_defers() {
    let folder = tempfile::tempdir().unwrap();
    drop(with_general(folder.path()));
    let background = Some(Background { queue: 0, ..Background::default() });
    let kiln = Kiln::open(Config { background, ..config(folder.path()) }).unwrap();
    let graph = graph(5, 334);
    let plan = kiln.plan(&graph).unwrap();
    for _ in 0..3 {
        let values = harness::run_plan(&kiln, &plan, &inputs(&graph)).unwrap();
        harness::compare(&graph, &inputs(&graph), &values, "deferred");
    }
    assert_eq!(plan.settle(Duration::from_millis(20)).unwrap(), Tier::Deferred);
    assert_eq!(plan.kernels()[0].config().engine, "pointwise_general");
}

#[test]
fn a_failed_compilation_leaves_the_general_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    drop(with_general(&cache));
    let templates = folder.path().join("templates");
    copy(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/templates")), &templates);
    let broken = templates.join("pointwise/sm75_pointwise.cu.tera");
    fs::write(broken, "#error no such luck\n").unwrap();
    let templates = Some(templates);
    let kiln = Kiln::open(Config { templates, ..config(&cache) }).unwrap();
    let graph = graph(5, 335);
    let plan = kiln.plan(&graph).unwrap();
    let error = plan.settle(LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Compile);
    assert!(error.to_string().contains("no such luck"), "{error}");
    let failure = error.compile_failure().expect("the compiler's own error");
    assert!(failure.source.contains("#error no such luck"), "{failure:?}");
    assert_eq!(
        (plan.tier(), plan.kernels()[0].config().engine.as_ref()),
        (Tier::Failed, "pointwise_general")
    );
    let values = harness::run_plan(&kiln, &plan, &inputs(&graph)).unwrap();
    harness::compare(&graph, &inputs(&graph), &values, "failed");
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}

#[test]
fn dropping_stops_the_queue_and_plans_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = with_general(folder.path());
    let graphs: Vec<OperationGraph> = (0..60).map(|n| graph(2, 400 + n)).collect();
    let plans: Vec<_> = graphs.iter().map(|graph| kiln.plan(graph).unwrap()).collect();
    let (start, other) = (Instant::now(), kiln.clone());
    drop(kiln);
    assert!(plans.iter().any(|plan| plan.tier() == Tier::Queued), "a clone keeps the queue");
    // Of sixty compilations of tens of milliseconds one is waited for.
    let device = other.device().clone();
    let stream = other.stream();
    drop(other);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let left: Vec<_> = plans.iter().filter(|plan| plan.tier() == Tier::Deferred).collect();
    assert!(left.len() > 30, "{} of 60 were left", left.len());
    assert_eq!(left[0].settle(LONG).unwrap(), Tier::Deferred, "nobody is left to wait for");
    let graph = left[0].graph();
    let mut pack = kiln::VariantPack::new();
    let buffer = |uid: i64| device.alloc(graph.tensor(uid).unwrap().span_bytes().unwrap()).unwrap();
    let buffers: Vec<_> = left[0].tensors().map(|uid| (uid, buffer(uid))).collect();
    for (uid, buffer) in &buffers {
        buffer.write(0, &vec![0; buffer.bytes() as usize]).unwrap();
        pack = pack.with(*uid, buffer);
    }
    left[0].execute(&stream, &pack).unwrap();
}

#[test]
fn strict_mode_stays_strict() {
    let folder = tempfile::tempdir().unwrap();
    drop(with_general(folder.path()));
    let kiln = Kiln::open(Config { no_jit: Some(true), ..config(folder.path()) }).unwrap();
    let error = kiln.plan(&graph(5, 336)).unwrap_err();
    assert!(error.to_string().starts_with("no-JIT mode: kernel "), "{error}");
}

#[test]
fn settings_are_checked() {
    for (text, expected) in [("2", (2, 64)), ("1:5", (1, 5)), ("0", (0, 64))] {
        let Background { threads, queue } = text.parse().unwrap();
        assert_eq!((threads, queue), expected);
    }
    for text in ["", "many", "1:", "-1", "1:2:3"] {
        let error = text.parse::<Background>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("malformed background `{text}`: expected ")), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    for (threads, queue) in [(9, 1), (1, 4097), (1, usize::MAX)] {
        let background = Some(Background { threads, queue });
        let error = Kiln::open(Config { background, ..config(folder.path()) }).unwrap_err();
        let expected = format!(
            "{threads} background threads with a queue of {queue}, expected at most 8 with"
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let tool = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["cache", "stats"])
        .env("KILN_BACKGROUND", "nine")
        .output()
        .expect("the tool starts");
    let errors = String::from_utf8(tool.stderr).unwrap();
    let expected = "kiln: environment KILN_BACKGROUND: malformed background `nine`: expected ";
    assert!(tool.status.code() == Some(2) && errors.starts_with(expected), "{errors}");
}
