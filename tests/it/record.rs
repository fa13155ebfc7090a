//! Recording: the manifest of a program that ran lets it run again without compiling.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use kiln::cache::Pack;
use kiln::expr::{Mode, Pointwise};
use kiln::plan::{Manifest, Origin};
use kiln::target::Target;
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph, Result};

use crate::harness;

fn graph(columns: i64, name: &str) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input(name, &[3, columns], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

fn recording(file: &Path) -> Config {
    Config {
        device: Some("sim".parse().unwrap()),
        record: Some(file.to_owned()),
        ..harness::config()
    }
}

/// What a program does: plans of its own choice and of the heuristic's, some twice.
fn program(kiln: &Kiln) -> Result<Vec<Origin>> {
    let mut origins = Vec::new();
    for columns in [16, 40] {
        origins.push(kiln.plan(&graph(columns, "layers.1.x"))?.kernels()[0].report().origin);
        // The same form under another path of the model: the same kernel.
        origins.push(kiln.plan(&graph(columns, "layers.2.x"))?.kernels()[0].report().origin);
        let plan = kiln.plan(&graph(columns, "layers.1.x"))?;
        let config = plan.kernels()[0].config().clone().with("threads", 64);
        origins.push(kiln.plan_with(plan.graph(), &config)?.kernels()[0].report().origin);
    }
    Ok(origins)
}

#[test]
fn a_recorded_program_runs_from_a_warm_cache_and_from_a_pack() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recorded.toml");
    program(&Kiln::open(recording(&file)).unwrap()).unwrap();
    let manifest = Manifest::read(&file).unwrap();
    assert_eq!(manifest.problems.len(), 4, "{}", manifest.to_toml());
    assert!(manifest.problems.iter().all(|problem| problem.targets == ["sim"]));
    // Into an empty cache.
    let cache_dir = Some(folder.path().join("cache"));
    let empty = Config { record: None, cache_dir, ..recording(&file) };
    let strict = Config { no_jit: Some(true), ..empty.clone() };
    let missing = program(&Kiln::open(strict.clone()).unwrap()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotSupported);
    let summary = Kiln::open(empty).unwrap().warm(&manifest, &[], |_| {}).unwrap();
    assert_eq!((summary.warmed.len(), summary.failed.len()), (4, 0));
    let compiled = |origin: &Origin| *origin == Origin::Compiled;
    assert!(!program(&Kiln::open(strict).unwrap()).unwrap().iter().any(compiled));
    // Into a pack, for a machine without NVRTC.
    let path = folder.path().join("a.kilnpack");
    let builder = Kiln::open(Config { record: None, ..recording(&file) }).unwrap();
    builder.build_pack(&manifest, &Target::sim(), (0, 1), &path, |_| {}).unwrap();
    let packs = vec![Pack::open(&path).unwrap()];
    let coverage = builder.covers(&packs, &manifest, &Target::sim()).unwrap();
    assert_eq!((coverage.covered, coverage.missing.len()), (4, 0));
    let elsewhere = builder.covers(&packs, &manifest, &Target::named("a100").unwrap()).unwrap();
    assert_eq!(elsewhere.covered, 0, "it was recorded on another target");
    let deployed = Kiln::open(Config {
        packs: Some(packs),
        no_jit: Some(true),
        no_disk_cache: true,
        nvrtc: Some("/nowhere".into()),
        device: Some("sim".parse().unwrap()),
        ..Config::default()
    });
    program(&deployed.unwrap()).unwrap();
}

#[test]
fn processes_share_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recorded.toml");
    let by_hand = "# mine\n\n[[problem]]\ninline = '{}'\n[problem.vary]\nn = []\n";
    fs::write(&file, by_hand).unwrap();
    let problem = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/problems/swish_backward.json");
    let start = |threads: u32| {
        Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["run", problem, "--random", "1", "--device", "null"])
            .args(["--config", &format!("pointwise{{grid=0,items=1,threads={threads},vector=8}}")])
            .envs(harness::environment())
            .env("KILN_RECORD", &file)
            .stdout(Stdio::null())
            .spawn()
            .expect("the tool starts")
    };
    let threads = [64, 128, 256, 512, 64, 128, 256, 512, 1024];
    let children: Vec<_> = threads.into_iter().map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    // Threads of one process, each with a Kiln of its own.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let config = recording(&file);
            scope.spawn(move || {
                let kiln = Kiln::open(config).unwrap();
                for columns in [8 + thread, 9 + thread] {
                    kiln.plan(&graph(columns, "x")).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(by_hand), "what was there stays: {text}");
    let instances = Manifest::read(&file).unwrap().instances().unwrap();
    let configs: BTreeSet<_> = instances.iter().filter_map(|it| it.config.clone()).collect();
    assert_eq!((instances.len(), configs.len()), (5 + 5, 5));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no lock and no half is left");
}

#[test]
fn a_recording_that_can_not_be_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recorded.toml");
    let refused = |file: &Path| Kiln::open(recording(file)).unwrap_err();
    fs::write(&file, "[[problems]]\n").unwrap();
    let error = refused(&file);
    assert_eq!(error.kind(), ErrorKind::BadParam);
    let expected = format!("recording: `{}`: malformed manifest: TOML parse error", file.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "[[problems]]\n", "it is not overwritten");
    let error = refused(&folder.path().join("none/recorded.toml")).to_string();
    assert!(error.ends_with("none/recorded.toml`: its folder must take files"), "{error}");
}
