//! Packs as a deployment uses them: built, proven to cover a manifest, verified, run without NVRTC.

use std::path::{Path, PathBuf};

use kiln::cache::Pack;
use kiln::plan::{Manifest, Origin, catalog, merge_packs};
use kiln::target::Target;
use kiln::{Config, ErrorKind, Kiln};

use crate::harness;

fn manifest() -> Manifest {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cache/pointwise.toml");
    let mut manifest = Manifest::read(Path::new(path)).unwrap();
    let problem = &mut manifest.problems[0];
    problem.vary.insert("tokens".to_owned(), vec![1.into(), 9.into()]);
    problem.vary.insert("hidden".to_owned(), vec![64.into(), 65.into()]);
    manifest
}

fn builder() -> Kiln {
    let device = Some("sim".parse().unwrap());
    Kiln::open(Config { device, ..harness::config() }).unwrap()
}

/// A machine without NVRTC, without a cache, that may not compile.
fn deployed(packs: Vec<Pack>) -> Kiln {
    Kiln::open(Config {
        device: Some("sim".parse().unwrap()),
        packs: Some(packs),
        no_jit: Some(true),
        no_disk_cache: true,
        nvrtc: Some("/nowhere".into()),
        ..Config::default()
    })
    .unwrap()
}

fn build(folder: &Path, name: &str, shard: (usize, usize)) -> PathBuf {
    let path = folder.join(name);
    builder().build_pack(&manifest(), &Target::sim(), shard, &path, |_| {}).unwrap();
    path
}

#[test]
fn a_covered_program_never_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let pack = Pack::open(&build(folder.path(), "a.kilnpack", (0, 1))).unwrap();
    assert_eq!(pack.len(), 8);
    let packs = [pack];
    let coverage = builder().covers(&packs, &manifest(), &Target::sim()).unwrap();
    assert_eq!((coverage.covered, coverage.missing.len()), (8, 0));
    let kiln = deployed(packs.to_vec());
    for instance in manifest().instances().unwrap() {
        let plan = kiln.plan(instance.planned.graph().unwrap()).unwrap();
        assert_eq!(plan.kernels()[0].report().origin, Origin::Pack);
        let graph = instance.planned.graph().unwrap();
        let inputs =
            graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 1, 2.0))).collect();
        harness::check(&kiln, graph, None, &inputs, &instance.name);
    }
}

#[test]
fn what_is_missing_is_named_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let half = Pack::open(&build(folder.path(), "half.kilnpack", (0, 2))).unwrap();
    let coverage =
        builder().covers(std::slice::from_ref(&half), &manifest(), &Target::sim()).unwrap();
    assert_eq!((coverage.covered, coverage.missing.len()), (4, 4));
    let (name, key) = &coverage.missing[0];
    let instances = manifest().instances().unwrap();
    let instance = instances.iter().find(|instance| instance.name == *name).unwrap();
    let error = deployed(vec![half]).plan(instance.planned.graph().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = error.to_string();
    assert!(text.starts_with("no-JIT mode: kernel sm75_pointwise_"), "{text}");
    assert!(text.contains(&format!("key {key}")), "{text}");
    assert!(text.contains("source differs in "), "{text}");
}

#[test]
fn shards_merge_to_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let whole = build(folder.path(), "whole.kilnpack", (0, 1));
    let again = build(folder.path(), "again.kilnpack", (0, 1));
    assert_eq!(std::fs::read(&whole).unwrap(), std::fs::read(&again).unwrap(), "reproducible");
    let shards: Vec<Pack> = (0..3)
        .map(|at| Pack::open(&build(folder.path(), &format!("{at}.kilnpack"), (at, 3))).unwrap())
        .collect();
    let merged = folder.path().join("merged.kilnpack");
    assert_eq!(merge_packs(&shards, &merged).unwrap(), 8);
    let (whole, merged) = (Pack::open(&whole).unwrap(), Pack::open(&merged).unwrap());
    assert!(whole.keys().eq(merged.keys()));
    assert_eq!(catalog(&merged).unwrap().len(), 8);
}

#[test]
fn verification_runs_the_canaries() {
    let folder = tempfile::tempdir().unwrap();
    let path = build(folder.path(), "a.kilnpack", (0, 1));
    let verified = builder().verify_pack(&Pack::open(&path).unwrap()).unwrap();
    assert_eq!((verified.sound, verified.canaries, verified.without_canary), (8, 8, 0));
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    // A kernel that computes something else, correctly framed: only its canary can tell.
    let pack = Pack::open(&path).unwrap();
    let key = pack.keys().next().unwrap();
    let mut entry = pack.get(key).unwrap().unwrap();
    assert!(entry.image.ptx.contains("add.f32") || entry.image.ptx.contains("add.rn.f32"));
    entry.image.ptx =
        entry.image.ptx.replace("add.rn.f32", "sub.rn.f32").replace("add.f32", "sub.f32");
    let mut items = pack.items().unwrap();
    let item = items.iter_mut().find(|item| item.key == key).unwrap();
    item.entry = kiln::cache::Entry::encode(&entry.request, &entry.image, entry.compile);
    let forged = folder.path().join("forged.kilnpack");
    Pack::write(&forged, pack.arch(), pack.toolchain(), items, &pack.catalog().unwrap()).unwrap();
    let verified = builder().verify_pack(&Pack::open(&forged).unwrap()).unwrap();
    assert_eq!((verified.sound, verified.canaries), (8, 7));
    let has = |text: &str| verified.problems.iter().any(|problem| problem.contains(text));
    assert!(has("the canary gives ") && has("its source gives other PTX"), "{verified:?}");
    // A flipped byte in an entry.
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&forged, bytes).unwrap();
    let verified = builder().verify_pack(&Pack::open(&forged).unwrap()).unwrap();
    assert!(verified.problems.iter().any(|text| text.contains("the digest differs")));
}

#[test]
fn packs_are_searched_in_order_before_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let halves: Vec<Pack> = (0..2)
        .map(|at| Pack::open(&build(folder.path(), &format!("{at}.kilnpack"), (at, 2))).unwrap())
        .collect();
    let kiln = deployed(halves);
    for instance in manifest().instances().unwrap() {
        assert_eq!(
            kiln.plan(instance.planned.graph().unwrap()).unwrap().kernels()[0].report().origin,
            Origin::Pack
        );
    }
    let error = Pack::open(Path::new("/nowhere.kilnpack")).unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to open pack `/nowhere.kilnpack`: No such file or directory (os error 2)"
    );
    let error = Pack::embedded(b"not a pack at all", "mine").unwrap_err().to_string();
    assert_eq!(error, "failed to open pack `mine`: it is not a pack");
}
