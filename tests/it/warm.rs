//! Manifests and warm-up: what was warmed is never compiled again.

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use kiln::plan::{Manifest, ManifestProblem, Origin};
use kiln::target::Target;
use kiln::{Config, Kiln};

fn manifest() -> Manifest {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cache/pointwise.toml");
    let mut manifest = Manifest::read(Path::new(path)).unwrap();
    let problem = &mut manifest.problems[0];
    problem.vary.insert("tokens".to_owned(), vec![1.into(), 9.into()]);
    problem.vary.insert("hidden".to_owned(), vec![64.into(), 65.into()]);
    manifest
}

fn open(folder: &Path) -> Kiln {
    let config = Config {
        device: Some("sim".parse().unwrap()),
        cache_dir: Some(folder.to_owned()),
        ..Config::default()
    };
    Kiln::open(config).unwrap()
}

#[test]
fn what_is_warm_is_not_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    let mut steps = Vec::new();
    let summary = kiln.warm(&manifest(), &[], |step| steps.push((step.done, step.total))).unwrap();
    assert_eq!(summary.warmed.len(), 8);
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    assert_eq!(summary.kernels()["compiled"], 8);
    assert_eq!(steps, (1..=8).map(|done| (done, 8)).collect::<Vec<_>>());
    // This process has the kernels loaded, the next one finds them on disk.
    for instance in manifest().instances().unwrap() {
        let hits = kiln.disk_cache().unwrap().counts().hits;
        kiln.plan(instance.planned.graph().unwrap()).unwrap();
        assert_eq!(kiln.disk_cache().unwrap().counts().hits, hits, "planned while warming");
    }
    let next = open(folder.path());
    for instance in manifest().instances().unwrap() {
        assert_eq!(
            next.plan(instance.planned.graph().unwrap()).unwrap().kernels()[0].report().origin,
            Origin::Disk
        );
    }
    let again = open(folder.path()).warm(&manifest(), &[], |_| {}).unwrap();
    assert_eq!(again.kernels().into_iter().collect::<Vec<_>>(), [("found", 8)]);
}

/// Of two warm-ups of one folder at once, one compiles a kernel and the other takes it.
#[test]
fn two_at_once_compile_each_kernel_once() {
    let folder = tempfile::tempdir().unwrap();
    let together = Barrier::new(2);
    let warm = || {
        let kiln = open(folder.path());
        together.wait();
        kiln.warm(&manifest(), &[], |_| {}).unwrap().kernels()
    };
    let counts = thread::scope(|scope| {
        [scope.spawn(warm), scope.spawn(warm)].map(|thread| thread.join().unwrap())
    });
    let all = |name: &str| counts.iter().filter_map(|of| of.get(name)).sum::<usize>();
    assert_eq!((all("compiled"), all("found")), (8, 8), "{counts:?}");
}

#[test]
fn other_targets_are_warmed_without_their_device() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    let targets = ["t4", "b200"].map(|name| Target::named(name).unwrap());
    let summary = kiln.warm(&manifest(), &targets, |_| {}).unwrap();
    assert_eq!(summary.warmed.len(), 16);
    let archs: Vec<String> =
        summary.warmed.iter().map(|warmed| warmed.request.arch.to_string()).collect();
    assert!(archs.iter().any(|arch| arch == "sm_75") && archs.iter().any(|arch| arch == "sm_100a"));
}

#[test]
fn one_bad_problem_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    let mut manifest = manifest();
    let tensors =
        ["x", "y"].map(|name| format!(r#"{{"name": "{name}", "dtype": "f32", "dims": [4]}}"#));
    let problem = format!(
        r#"{{"graph": {{"tensors": [{}], "operations": [
            {{"pointwise": "neg", "inputs": ["x"], "output": "y"}}]}}}}"#,
        tensors.join(", ")
    );
    let config = Some("pointwise{grid=0, items=3, threads=64, vector=1}".to_owned());
    manifest.problems.push(ManifestProblem { inline: Some(problem), config, ..Default::default() });
    let summary = kiln.warm(&manifest, &[], |_| {}).unwrap();
    assert_eq!((summary.warmed.len(), summary.failed.len()), (8, 1));
    let (name, error) = &summary.failed[0];
    assert_eq!(name, "problem 2 for sm_90a");
    assert!(error.to_string().contains("knob `items` is 3"), "{error}");
}
