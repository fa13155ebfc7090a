//! The cache: hits need no toolkit, damage is a rebuild, trouble is a warning.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use kiln::engine;
use kiln::expr::{Mode, Pointwise};
use kiln::plan::Origin;
use kiln::{Config, DType, Kiln, OperationGraph};

use crate::harness::{self, Values};

fn graph() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[777], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::TanhFwd), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

fn open(folder: &Path) -> Kiln {
    let config = Config { cache_dir: Some(folder.to_owned()), ..Config::default() };
    Kiln::open(config).expect("a cache never fails a call")
}

/// Plans and runs; where the kernel came from.
fn origin(kiln: &Kiln) -> Origin {
    let graph = graph();
    let inputs: Values =
        graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 1, 3.0))).collect();
    harness::check(kiln, &graph, None, &inputs, "cached");
    kiln.plan(&graph).unwrap().kernels()[0].report().origin
}

/// What is logged on this thread while `body` runs.
fn logged<T>(body: impl FnOnce() -> T) -> (T, String) {
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("kiln=warn")
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    let result = tracing::subscriber::with_default(subscriber, body);
    let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    (result, text)
}

/// The one entry file below a cache folder.
fn entry(folder: &Path) -> std::path::PathBuf {
    let shards: Vec<_> = fs::read_dir(folder.join("kernels")).unwrap().collect();
    let files = shards.into_iter().flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn a_hit_needs_no_toolkit() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("made/by/kiln");
    assert_eq!(origin(&open(&folder)), Origin::Compiled);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o077, 0, "private");
    let nowhere = folder.join("nowhere");
    let without = Config { cache_dir: Some(folder), nvrtc: Some(nowhere), ..Config::default() };
    let kiln = Kiln::open(without).unwrap();
    assert_eq!(origin(&kiln), Origin::Disk);
    assert!(kiln.compiler().is_err(), "there was no NVRTC to load");
    assert_eq!(kiln.disk_cache().unwrap().counts().hits, 1);
}

#[test]
fn other_knobs_share_nothing_and_equal_graphs_share_all() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    let first = kiln.plan(&graph()).unwrap();
    assert_eq!(first.kernels()[0].report().origin, Origin::Compiled);
    // Under other uids: another plan, the same kernel.
    let text = graph().to_json().replace("\"uid\": 1", "\"uid\": 41");
    let renamed = OperationGraph::from_json(&text).unwrap();
    let second = kiln.plan(&renamed).unwrap();
    assert_eq!(
        (second.kernels()[0].report().origin, second.kernels()[0].report().key),
        (Origin::Memory, first.kernels()[0].report().key)
    );
    let other =
        kiln.plan_with(&graph(), &first.kernels()[0].config().clone().with("threads", 64)).unwrap();
    assert_eq!(other.kernels()[0].report().origin, Origin::Compiled);
    assert_ne!(other.kernels()[0].report().key, first.kernels()[0].report().key);
}

#[test]
fn damage_is_a_rebuild() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(origin(&open(folder.path())), Origin::Compiled);
    let path = entry(folder.path());
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (damaged, reason) in [
        (&flipped[..], "digest differs"),
        (&whole[..whole.len() / 2], "digest differs"),
        (&whole[..7], "not an entry, or truncated"),
        (&[], "not an entry, or truncated"),
    ] {
        fs::write(&path, damaged).unwrap();
        let (origin, log) = logged(|| origin(&open(folder.path())));
        assert_eq!(origin, Origin::Compiled);
        assert!(log.contains(&format!(": {reason}; it is rebuilt")), "{log}");
        assert_ne!(fs::read(&path).unwrap(), damaged, "rebuilt in place");
    }
    assert_eq!(origin(&open(folder.path())), Origin::Disk);
}

#[test]
fn an_image_the_device_rejects_is_rebuilt() {
    use kiln::cache::{Entry, Key};
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    assert_eq!(origin(&kiln), Origin::Compiled);
    let key = kiln.plan(&graph()).unwrap().kernels()[0].report().key;
    let path = entry(folder.path());
    let Entry { request, mut image, compile } =
        Entry::decode(&fs::read(&path).unwrap(), key).unwrap();
    assert_eq!(Key::of(&request), key);
    image.ptx = ".version 8.0\n.target sm_90a\n.address_size 64\n".to_owned();
    image.cubin = b"no image".to_vec();
    fs::write(&path, Entry::encode(&request, &image, compile)).unwrap();
    let (origin, log) = logged(|| origin(&open(folder.path())));
    assert_eq!(origin, Origin::Compiled);
    assert!(log.contains("rejected cache entry"), "{log}");
}

#[test]
fn a_folder_that_can_not_be_used_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"in the way").unwrap();
    let (kiln, log) = logged(|| open(&file.join("cache")));
    assert!(kiln.disk_cache().is_none());
    let expected = format!(
        "failed to create cache folder `{}`: Not a directory (os error 20); caching in memory only",
        file.join("cache").display()
    );
    assert!(log.contains(&expected), "{log}");
    assert_eq!(origin(&kiln), Origin::Compiled);

    let open_to_all = folder.path().join("shared");
    fs::create_dir(&open_to_all).unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
    let (kiln, log) = logged(|| open(&open_to_all));
    assert!(kiln.disk_cache().is_none());
    assert!(log.contains("with mode 777; it must be yours and writable by nobody else"), "{log}");
}

#[test]
fn a_folder_that_stops_taking_writes_is_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    // A file where the shards go makes every write fail, for root too.
    fs::write(folder.path().join("kernels"), b"in the way").unwrap();
    let (_, log) = logged(|| {
        assert_eq!(origin(&kiln), Origin::Compiled);
        let plan = kiln.plan(&graph()).unwrap();
        kiln.plan_with(&graph(), &plan.kernels()[0].config().clone().with("threads", 64)).unwrap();
    });
    assert_eq!(log.matches("no more entries are written").count(), 1, "{log}");
}

#[test]
fn sixteen_threads_compile_once() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| kiln.plan(&graph()).unwrap());
        }
    });
    assert_eq!(kiln.disk_cache().unwrap().counts().misses_total(), 1);
    entry(folder.path());
}

#[test]
fn the_budget_is_kept_and_what_is_in_use_stays() {
    let folder = tempfile::tempdir().unwrap();
    let open = |cache_bytes| {
        let cache_dir = Some(folder.path().to_owned());
        let config = Config { cache_dir, cache_bytes: Some(cache_bytes), ..Config::default() };
        Kiln::open(config).unwrap()
    };
    let threads = |kiln: &Kiln| {
        let graph = graph();
        let config =
            engine::choose(graph.canonical(), kiln.device().target(), &Default::default()).unwrap();
        for threads in [64, 128, 256, 512] {
            kiln.plan_with(&graph, &config.clone().with("threads", threads)).unwrap();
        }
    };
    // Nothing fits in a byte, but a process keeps what it uses.
    let kiln = open(1);
    threads(&kiln);
    assert_eq!(kiln.disk_cache().unwrap().entries().len(), 4);
    drop(kiln);
    // The next process does not use them: its first write clears the way.
    let kiln = open(60_000);
    let config =
        engine::choose(graph().canonical(), kiln.device().target(), &Default::default()).unwrap();
    let plan = kiln.plan_with(&graph(), &config.with("threads", 1024)).unwrap();
    assert_eq!(plan.kernels()[0].report().origin, Origin::Compiled);
    let disk = kiln.disk_cache().unwrap();
    let left: Vec<String> = disk.entries().into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, [plan.kernels()[0].report().key.to_hex()], "only what this process uses");
    assert_eq!(disk.counts().evicted, 4);
}

#[test]
fn an_explanation_names_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let kiln = open(folder.path());
    let plan = kiln.plan(&graph()).unwrap();
    let disk = kiln.disk_cache().unwrap();
    let entry = disk.read(plan.kernels()[0].report().key).unwrap().unwrap();
    assert_eq!(disk.explain(&entry.request).to_string(), "no other entry to compare with");
    let threads = plan.kernels()[0].config().knob("threads").unwrap();
    kiln.plan_with(&graph(), &plan.kernels()[0].config().clone().with("threads", 2 * threads))
        .unwrap();
    let explanation = disk.explain(&entry.request).to_string();
    // The knob in the header, and the constant.
    let wanted = format!("wanted  //   threads = {threads} (");
    let found = format!("found   //   threads = {} (", 2 * threads);
    assert!(explanation.contains("source differs in 2 lines, first at line "), "{explanation}");
    assert!(explanation.contains(&wanted) && explanation.contains(&found), "{explanation}");
    let mut elsewhere = entry.request.clone();
    elsewhere.toolchain.build += 1;
    elsewhere.options[0] = "--gpu-architecture=sm_80".to_owned();
    let explanation = disk.explain(&elsewhere).to_string();
    assert!(explanation.contains("option differs: wanted `--gpu-architecture=sm_80`"));
    assert!(explanation.contains("compiled by another toolchain: wanted NVRTC "), "{explanation}");
}
