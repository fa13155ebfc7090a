//! What a pack of 500 kernels costs: opening it, one kernel, all kernels, and checking every byte.
//!
//! `cargo bench --bench pack`. One kernel is compiled; the others are it under other sources, so
//! that all have the size of a real one.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use kiln::cache::{Entry, Key, Pack, PackItem};
use kiln::device::DeviceChoice;
use kiln::expr::{Mode, Pointwise};
use kiln::plan::Origin;
use kiln::{Config, DType, Kiln, OperationGraph};

const KERNELS: usize = 500;

/// `y = gelu(x + bias)` in bf16.
fn graph() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[1024, 1024], DType::Bf16);
    let bias = graph.input("bias", &[1, 1024], DType::Bf16);
    let biased = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).expect("valid");
    let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[biased]).expect("valid");
    graph.output(y, "y", DType::Bf16);
    graph.build().expect("valid")
}

fn open(device: &str, packs: Vec<Pack>, cache_dir: Option<&Path>) -> Kiln {
    Kiln::open(Config {
        device: Some(device.parse::<DeviceChoice>().expect("a device")),
        packs: Some(packs),
        no_disk_cache: cache_dir.is_none(),
        cache_dir: cache_dir.map(Path::to_owned),
        ..Config::default()
    })
    .expect("the device opens")
}

/// Writes the pack; the bytes of its entries.
fn write(path: &Path, cache: &Path) -> u64 {
    let kiln = open("null:sim", Vec::new(), Some(cache));
    let plan = kiln.plan(&graph()).expect("NVRTC is there");
    let disk = kiln.disk_cache().expect("a folder of its own");
    let entry = disk.read(plan.kernels()[0].report().key).expect("sound").expect("just compiled");
    let Entry { request, image, .. } = &entry;
    let item = |number: usize| {
        let mut request = request.clone();
        if number > 0 {
            request.source += &format!("// {number}\n");
        }
        let entry = Entry::encode(&request, image, Duration::ZERO);
        PackItem { key: Key::of(&request), entry }
    };
    let items: Vec<PackItem> = (0..KERNELS).map(item).collect();
    let bytes = items.iter().map(|item| item.entry.len() as u64).sum();
    Pack::write(path, request.arch, &request.toolchain, items, "[]").expect("writable");
    bytes
}

fn bench(c: &mut Criterion, path: &Path, entries_bytes: u64) {
    let mut group = c.benchmark_group("pack_500");
    // Target: 5 ms.
    group.bench_function("open", |b| b.iter(|| Pack::open(black_box(path))));
    let pack = Pack::open(path).expect("just written");
    let keys: Vec<Key> = pack.keys().collect();
    let mut next = keys.iter().cycle();
    group.bench_function("get_one", |b| b.iter(|| pack.get(*next.next().expect("a cycle"))));
    // A fresh `Kiln` to a kernel on the device. Target: 1 ms.
    let graph = graph();
    for device in ["null:sim", "sim:sim"] {
        group.bench_function(format!("ready_one_{}", &device[..3]), |b| {
            let fresh = || open(device, vec![pack.clone()], None);
            b.iter_batched_ref(
                fresh,
                |kiln| {
                    let plan = kiln.plan(&graph).expect("packed");
                    assert_eq!(plan.kernels()[0].report().origin, Origin::Pack);
                    plan
                },
                BatchSize::PerIteration,
            )
        });
    }
    // Target: 100 ms.
    group.sample_size(20);
    group.bench_function("get_all", |b| {
        b.iter(|| assert!(keys.iter().all(|key| pack.get(*key).is_ok_and(|entry| entry.is_some()))))
    });
    // Target: 1 GB/s.
    group.throughput(Throughput::Bytes(entries_bytes));
    group.bench_function("verify", |b| b.iter(|| assert!(pack.verify().is_empty())));
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("500.kilnpack");
    let entries_bytes = write(&path, &folder.path().join("cache"));
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion, &path, entries_bytes);
    criterion.final_summary();
}
