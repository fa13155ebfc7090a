//! The manifest of loops: its documents are the examples' networks, they are planned for every
//! class of target, and a pack of them serves without a compiler.

use std::path::Path;

use kiln::cache::Pack;
use kiln::loops::Network;
use kiln::plan::{Manifest, ManifestProblem, Origin, Planned};
use kiln::target::Target;
use kiln::{Config, Kiln, reference};
use safetensors::SafeTensors;

use crate::harness;
use crate::looped;

#[path = "../../examples/char_rnn_loops.rs"]
#[expect(dead_code, reason = "the example's own run")]
mod char_rnn;
#[path = "../../examples/loops.rs"]
#[expect(dead_code, reason = "the example's own run")]
mod examples;

fn manifest() -> Manifest {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cache/loops.toml");
    Manifest::read(Path::new(path)).expect("it is well-formed")
}

/// The same with few tokens and channels.
fn small() -> Manifest {
    let mut manifest = manifest();
    for (name, values) in manifest.problems.iter_mut().flat_map(|problem| &mut problem.vary) {
        match name.as_str() {
            "tokens" => *values = vec![16.into()],
            "channels" => *values = vec![64.into()],
            _ => {}
        }
    }
    manifest
}

fn open(config: Config) -> Kiln {
    let device = Some("sim".parse().expect("a device"));
    Kiln::open(Config { device, ..config }).expect("the simulator opens")
}

/// The pack of a manifest.
fn pack(builder: &Kiln, manifest: &Manifest) -> Pack {
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("loops.kilnpack");
    builder.build_pack(manifest, &Target::sim(), (0, 1), &file, |_| {}).expect("it is built");
    Pack::open(&file).expect("it was built")
}

/// A device with a pack, without a compiler and a cache.
fn packed(pack: &Pack) -> Config {
    Config {
        packs: Some(vec![pack.clone()]),
        no_jit: Some(true),
        no_disk_cache: true,
        nvrtc: Some("/nowhere".into()),
        ..Config::default()
    }
}

/// Runs a network with kernels of packs alone, against the interpreter of lazy sequences.
fn run(strict: &Kiln, network: &Network, what: &str) {
    let plan = strict.build_loops(network).unwrap_or_else(|error| panic!("{what}: {error}"));
    let kernels = plan.plans().iter().flat_map(|plan| plan.kernels());
    for kernel in kernels {
        assert_eq!(kernel.report().origin, Origin::Pack, "{what}: {}", kernel.identifier());
    }
    let values = network.random_values(3).expect("they fit");
    let ran = looped::run_plan(strict, &plan, &values);
    match reference::evaluate_network(network, &values) {
        Ok(expected) => {
            let actual = ran.unwrap_or_else(|error| panic!("{what}: {error}"));
            looped::compare(network, &expected, &actual, what);
        }
        // Words of random scores may have no end.
        Err(error) => assert_eq!(ran.expect_err(what).to_string(), error.to_string()),
    }
}

#[test]
fn documents_are_the_examples() {
    let bytes = std::fs::read(char_rnn::FILE).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let head = file.tensor("head.weight").unwrap().shape().to_vec();
    for (name, network) in [
        ("mandelbrot", examples::mandelbrot().unwrap()),
        ("greedy_decoding", examples::decoder().unwrap()),
        ("char_rnn", char_rnn::writer(head[0] as i64, head[1] as i64).unwrap()),
    ] {
        let path = format!("{}/examples/loops/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap();
        let read = Network::from_json(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.to_json(), network.to_json(), "{name}");
    }
}

/// What is missing in no packs at all is everything, but all of it is planned.
#[test]
fn every_class_of_target_plans_the_manifest() {
    let instances = manifest().instances().expect("all are valid");
    assert!(instances.len() >= 5 + 16, "{}", instances.len());
    let kiln = harness::kiln();
    for name in ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        let coverage = kiln.covers(&[], &manifest(), &target).unwrap();
        assert_eq!((coverage.covered, coverage.missing.len()), (0, instances.len()), "{name}");
    }
}

#[test]
fn what_the_manifest_lists_is_warmed_and_packed() {
    let builder = open(harness::config());
    let warmed = builder.warm(&small(), &[], |_| {}).expect("the manifest is valid");
    assert!(warmed.failed.is_empty(), "{:?}", warmed.failed);
    let names: Vec<&str> = warmed.warmed.iter().map(|of| &*of.name).collect();
    let of_char_rnn = names.iter().filter(|name| name.contains("char_rnn.json"));
    assert!(of_char_rnn.count() >= 2, "{names:?}");
    let pack = pack(&builder, &small());
    let strict = open(packed(&pack));
    let coverage = builder.covers(std::slice::from_ref(&pack), &small(), &Target::sim());
    let coverage = coverage.expect("it can be told");
    let instances = small().instances().expect("all are valid");
    assert_eq!((coverage.covered, coverage.missing), (instances.len(), Vec::new()));
    let verified = builder.verify_pack(&pack).expect("the catalog is sound");
    assert!(verified.problems.is_empty() && verified.canaries > 0, "{verified:?}");
    for instance in &instances {
        match &instance.planned {
            Planned::Graph(graph) => drop(strict.plan(graph).expect("the pack has its kernels")),
            Planned::Loops(network) => run(&strict, network, &instance.name),
        }
    }
}

/// A loop over integers of 64 bits, which `pointwise_loop` refuses.
const WIDE: &str = r#"{
  "loop": {
    "tensors": [
      {"name": "n", "dtype": "i32", "dims": [1]},
      {"name": "x", "dtype": "i64", "dims": [8, 4]},
      {"name": "start", "dtype": "f32", "dims": [4]},
      {"name": "row", "dtype": "i64", "dims": [4], "virtual": true},
      {"name": "own", "dtype": "f32", "dims": [4], "virtual": true},
      {"name": "sum", "dtype": "f32", "dims": [4], "virtual": true},
      {"name": "next", "dtype": "f32", "dims": [4], "virtual": true},
      {"name": "last", "dtype": "f32", "dims": [4]}
    ],
    "loops": [{"name": "sums"}],
    "layers": [
      {"layer": "trip_limit", "loop": "sums", "limit": "count", "x": "n"},
      {"layer": "iterator", "loop": "sums", "axis": 0, "x": "x", "y": "row"},
      {"layer": "recurrence", "loop": "sums", "initial": "start", "next": "next", "y": "sum"},
      {"pointwise": "identity", "inputs": ["row"], "output": "own"},
      {"pointwise": "add", "inputs": ["sum", "own"], "output": "next"},
      {"layer": "loop_output", "loop": "sums", "output": "last_value", "x": "sum", "y": "last"}
    ]
  }
}"#;

/// Where no engine runs a loop as an operation, kernels of its trips are warmed; a configuration is
/// one graph's.
#[test]
fn loops_that_no_engine_runs_are_warmed_trip_by_trip() {
    let problem = ManifestProblem { inline: Some(WIDE.to_owned()), ..ManifestProblem::default() };
    let manifest = Manifest::of(vec![problem.clone()]);
    let served = open(packed(&pack(&open(harness::config()), &manifest)));
    let network = Network::from_json(WIDE).expect("it is valid");
    let steps = served.build_loops(&network).expect("the pack has its kernels").steps();
    assert!(steps.contains("loop sums, count n: launched by the host, trip by trip"), "{steps}");
    assert!(steps.contains("no pointwise loop: no engine runs the graph"), "{steps}");
    run(&served, &network, "trip by trip");

    let config = Some("pointwise{items=2}".to_owned());
    let error = Manifest::of(vec![ManifestProblem { config, ..problem }]).instances().unwrap_err();
    let text = "problem 1: a configuration requires a problem of one graph";
    assert_eq!(error.to_string(), text);
}
