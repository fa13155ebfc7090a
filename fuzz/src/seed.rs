//! Writes the first inputs of the fuzzer: real kernels, compiled now, as entries and as packs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kiln::cache::{Entry, Key, Pack, PackItem, PackSigner, Validity};
use kiln::compile::Image;
use kiln::{Config, Kiln};

/// So much is kept of a cubin, a PTX text and a log: readers do not look into them, and small
/// inputs are quick to try.
const PAYLOAD_BYTES: usize = 96;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let entries = compile(&root.join("../examples/problems"), folder.path());
    let small: Vec<Entry> = entries.iter().map(shorten).collect();
    let encode = |entry: &Entry| Entry::encode(&entry.request, &entry.image, Duration::ZERO);
    let mut count = 0;
    for entry in entries.iter().chain(&small) {
        write(&root.join("corpus/entry"), &format!("{count}"), &encode(entry));
        count += 1;
    }
    let signer = PackSigner::generate().expect("random numbers");
    for packed in 0..=small.len() {
        let items = small[..packed]
            .iter()
            .map(|entry| PackItem { key: Key::of(&entry.request), entry: encode(entry) });
        let path = folder.path().join("seed.kilnpack");
        let Entry { request, .. } = &small[0];
        Pack::write(&path, request.arch, &request.toolchain, items.collect(), "[{}]")
            .expect("writable");
        let unsigned = fs::read(&path).expect("just written");
        Pack::sign(&path, &signer, Validity::default()).expect("writable");
        write(&root.join("corpus/pack"), &format!("{packed}"), &unsigned);
        let signed = fs::read(&path).expect("just written");
        write(&root.join("corpus/pack"), &format!("{packed}-signed"), &signed);
    }
    println!("{count} entries, {} packs", 2 * (small.len() + 1));
}

/// The kernels of all problem documents of a folder.
fn compile(problems: &Path, cache: &Path) -> Vec<Entry> {
    let cache_dir = Some(cache.join("cache"));
    let device = Some("sim".parse().expect("a device"));
    let kiln =
        Kiln::open(Config { cache_dir, device, ..Config::default() }).expect("the simulator");
    let mut paths: Vec<_> = fs::read_dir(problems)
        .expect("the examples are there")
        .map(|file| file.expect("readable").path())
        .collect();
    paths.sort();
    let entry = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).expect("readable");
        let graph = kiln::OperationGraph::from_json(&text).expect("a problem");
        let plan = kiln.plan(&graph).expect("NVRTC is there: `make setup`");
        let disk = kiln.disk_cache().expect("a folder of its own");
        disk.read(plan.report().key).expect("sound").expect("just compiled")
    };
    paths.iter().map(entry).collect()
}

fn shorten(entry: &Entry) -> Entry {
    let text = |text: &str| text.chars().take(PAYLOAD_BYTES).collect();
    let Image { cubin, ptx, log, resources } = &entry.image;
    let cubin = cubin[..PAYLOAD_BYTES.min(cubin.len())].to_vec();
    let mut request = entry.request.clone();
    request.source = text(&request.source);
    let image = Image { cubin, ptx: text(ptx), log: text(log), resources: *resources };
    Entry { request, image, compile: entry.compile }
}

/// Two inputs: one that is left as it is, one that is repaired.
fn write(folder: &Path, name: &str, bytes: &[u8]) {
    fs::create_dir_all(folder).expect("writable");
    for choice in [0u8, 1] {
        let input = [&[choice], bytes].concat();
        fs::write(folder.join(format!("seed-{name}-{choice}")), input).expect("writable");
    }
}
