//! The manifest of attention: what it lists is valid, and a pack of it serves without a compiler.

use std::path::Path;

use kiln::cache::Pack;
use kiln::engine::{self, Selection};
use kiln::plan::{Manifest, Origin};
use kiln::target::Target;
use kiln::{Config, Kiln};

use crate::harness;

fn manifest() -> Manifest {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cache/attention.toml");
    Manifest::read(Path::new(path)).expect("it is well-formed")
}

/// The same with few tokens and sequences.
fn small() -> Manifest {
    let mut manifest = manifest();
    for (name, values) in manifest.problems.iter_mut().flat_map(|problem| &mut problem.vary) {
        match name.as_str() {
            "tokens" => *values = vec![16.into()],
            "batch" => *values = vec![2.into()],
            _ => {}
        }
    }
    manifest
}

#[test]
fn every_problem_of_the_manifest_is_taken_by_tensor_cores() {
    let h200 = Target::named("h200").expect("known");
    let instances = manifest().instances().expect("all are valid");
    assert!(instances.len() > 70, "{}", instances.len());
    for instance in instances {
        let parts =
            engine::partition(instance.planned.graph().unwrap(), &h200, &Selection::default());
        let parts = parts.unwrap_or_else(|error| panic!("{}: {error}", instance.name));
        assert_eq!(parts.len(), 1, "{}", instance.name);
        // The keys of each query are counted by a pointwise kernel.
        let engine = &parts[0].config.engine;
        let fast = ["attention_", "gemm_", "pointwise"].iter().any(|of| engine.starts_with(of));
        assert!(fast && !engine.ends_with("simt"), "{}: {engine}", instance.name);
    }
}

#[test]
fn what_the_manifest_lists_is_warmed_and_packed() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let open = |config: Config| {
        let device = Some("sim".parse().expect("a device"));
        Kiln::open(Config { device, ..config }).expect("the simulator opens")
    };
    let builder = open(harness::config());
    let warmed = builder.warm(&small(), &[], |_| {}).expect("the manifest is valid");
    assert!(warmed.failed.is_empty(), "{:?}", warmed.failed);
    let file = folder.path().join("attention.kilnpack");
    builder.build_pack(&small(), &Target::sim(), (0, 1), &file, |_| {}).expect("it is built");
    let pack = Pack::open(&file).expect("it was built");
    let coverage = builder.covers(std::slice::from_ref(&pack), &small(), &Target::sim());
    let coverage = coverage.expect("it can be told");
    let instances = small().instances().expect("all are valid");
    assert_eq!((coverage.covered, coverage.missing), (instances.len(), Vec::new()));
    let verified = builder.verify_pack(&pack).expect("the catalog is sound");
    assert!(verified.problems.is_empty() && verified.canaries > 0, "{verified:?}");

    let strict = open(Config {
        packs: Some(vec![pack]),
        no_jit: Some(true),
        no_disk_cache: true,
        nvrtc: Some("/nowhere".into()),
        ..Config::default()
    });
    for instance in &instances {
        let plan =
            strict.plan(instance.planned.graph().unwrap()).expect("the pack has its kernels");
        assert!(plan.kernels().iter().all(|kernel| kernel.report().origin == Origin::Pack));
    }
}
