//! How fast modules load and kernels run: the pointwise chain of 1 M elements, a tiled product with
//! its rate in instructions of lanes, attention, a tiny launch.
//!
//! `cargo bench -p kiln-sim`. The kernels are those of `tests/cuda`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kiln_sim::{Checks, Device, DeviceConfig, Kernel, Launch, Module};
use std::hint::black_box;

fn kernel(stem: &str, name: &str) -> Kernel {
    let module = Module::load(&text(stem)).expect("the tests' PTX loads");
    module.kernel(name).expect("the kernel is in its module")
}

fn pack(kernel: &Kernel, values: &[u64]) -> Vec<u8> {
    let mut block = vec![0; kernel.param_bytes()];
    for (param, value) in kernel.params().iter().zip(values) {
        block[param.offset..param.offset + param.bytes]
            .copy_from_slice(&value.to_le_bytes()[..param.bytes]);
    }
    block
}

fn shape(grid: [u32; 3], block: [u32; 3]) -> Launch {
    Launch { grid, block, ..Launch::default() }
}

fn filled(device: &Device, bytes: u64) -> u64 {
    let address = device.alloc(bytes).expect("the device has room");
    device.fill(address, 0x3f, bytes).expect("the range is allocated");
    address
}

fn pointwise(c: &mut Criterion) {
    const ELEMENTS: u64 = 1 << 20;
    for workers in [1, 2] {
        let device = Device::new(DeviceConfig { workers, ..DeviceConfig::default() });
        let buffers = [0; 3].map(|_| filled(&device, ELEMENTS * 2));
        for name in ["bf16_gelu_tanh", "bf16_gelu_erf"] {
            let kernel = kernel("halves", name);
            let scalars = [ELEMENTS / 8, u64::from(1.5_f32.to_bits())];
            let params = pack(&kernel, &[&buffers[..], &scalars[..]].concat());
            let launch = shape([(ELEMENTS / 8).div_ceil(256) as u32, 1, 1], [256, 1, 1]);
            c.bench_function(&format!("{name} 1M, {workers} workers"), |b| {
                b.iter(|| black_box(device.launch(&kernel, &launch, &params)));
            });
        }
    }
}

fn text(stem: &str) -> String {
    let path = format!("{}/tests/cuda/{stem}.sm_80.ptx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the tests' PTX is beside the bench")
}

/// Parsing and decoding: the whole of `Module::load`.
fn load(c: &mut Criterion) {
    let text = text("attention");
    let mut group = c.benchmark_group("load");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function(format!("attention, {} KB of PTX", text.len() / 1000), |b| {
        b.iter(|| Module::load(black_box(&text)));
    });
}

fn matmul(c: &mut Criterion) {
    let (m, n, k) = (250_u64, 200_u64, 256_u64);
    let kernel = kernel("blocks", "matmul");
    let mut group = c.benchmark_group(format!("matmul {m}x{n}x{k}"));
    for workers in [1, 2] {
        let device = Device::new(DeviceConfig { workers, ..DeviceConfig::default() });
        let buffers = [m * k, k * n, m * n].map(|count| filled(&device, count * 4));
        let params = pack(&kernel, &[&buffers[..], &[m, n, k][..]].concat());
        let grid = [n.div_ceil(16) as u32, m.div_ceil(16) as u32, 1];
        let launch = shape(grid, [16, 16, 1]);
        let counted = Launch { counters: true, ..launch };
        let report = device.launch(&kernel, &counted, &params).expect("the launch counts");
        let total = report.counters.expect("it was asked to").total;
        // Elements are instructions, once for each lane.
        group.throughput(Throughput::Elements(total.lane_instructions));
        group.bench_function(format!("{workers} workers"), |b| {
            b.iter(|| black_box(device.launch(&kernel, &launch, &params)));
        });
    }
}

fn attention(c: &mut Criterion) {
    let (length, heads, width) = (256_u64, 2_u64, 64_u64);
    let kernel = kernel("attention", "attention");
    let device = Device::new(DeviceConfig { workers: 1, ..DeviceConfig::default() });
    let buffers = [0; 4].map(|_| filled(&device, heads * length * width * 2));
    let scalars = [length, u64::from(0.18_f32.to_bits())];
    let params = pack(&kernel, &[&buffers[..], &scalars[..]].concat());
    let shared_bytes = (64 + 4 * 32) * 72 * 2;
    let grid = [length.div_ceil(64) as u32, heads as u32, 1];
    for (name, checks) in [("unchecked", Checks::NONE), ("all checks", Checks::ALL)] {
        let launch = Launch { shared_bytes, checks, ..shape(grid, [128, 1, 1]) };
        let name = format!("attention {heads}x{length}x{width}, {name}");
        c.bench_function(&name, |b| {
            b.iter(|| black_box(device.launch(&kernel, &launch, &params)));
        });
    }
}

/// What each class of checks, and counting, costs on one worker.
fn watched(c: &mut Criterion) {
    let off = Checks::NONE;
    let modes = [
        ("unchecked", off, false),
        ("uninitialised", Checks { uninitialised: true, ..off }, false),
        ("shared races", Checks { shared_races: true, ..off }, false),
        ("global races", Checks { global_races: true, ..off }, false),
        ("all checks", Checks::ALL, false),
        ("counters", off, true),
        ("all checks and counters", Checks::ALL, true),
    ];
    let device = Device::new(DeviceConfig { workers: 1, ..DeviceConfig::default() });
    let (m, n, k) = (256_u64, 256_u64, 256_u64);
    let product = kernel("blocks", "matmul");
    let buffers = [m * k, k * n, m * n].map(|count| filled(&device, count * 4));
    let product_params = pack(&product, &[&buffers[..], &[m, n, k][..]].concat());
    const ELEMENTS: u64 = 1 << 20;
    let chain = kernel("halves", "bf16_gelu_tanh");
    let buffers = [0; 3].map(|_| filled(&device, ELEMENTS * 2));
    let scalars = [ELEMENTS / 8, u64::from(1.5_f32.to_bits())];
    let chain_params = pack(&chain, &[&buffers[..], &scalars[..]].concat());
    let copy = kernel("pointwise", "f32_floor");
    let buffers = [0; 3].map(|_| filled(&device, ELEMENTS * 4));
    let copy_params = pack(&copy, &[&buffers[..], &[ELEMENTS][..]].concat());
    for (name, checks, counters) in modes {
        let launch = Launch { checks, counters, ..shape([16, 16, 1], [16, 16, 1]) };
        c.bench_function(&format!("matmul 256x256x256, {name}"), |b| {
            b.iter(|| black_box(device.launch(&product, &launch, &product_params)));
        });
        let blocks = (ELEMENTS / 8).div_ceil(256) as u32;
        let launch = Launch { checks, counters, ..shape([blocks, 1, 1], [256, 1, 1]) };
        c.bench_function(&format!("bf16_gelu_tanh 1M, {name}"), |b| {
            b.iter(|| black_box(device.launch(&chain, &launch, &chain_params)));
        });
        let blocks = ELEMENTS.div_ceil(256) as u32;
        let launch = Launch { checks, counters, ..shape([blocks, 1, 1], [256, 1, 1]) };
        c.bench_function(&format!("f32_floor 1M, {name}"), |b| {
            b.iter(|| black_box(device.launch(&copy, &launch, &copy_params)));
        });
    }
}

fn tiny(c: &mut Criterion) {
    let device = Device::new(DeviceConfig::default());
    let kernel = kernel("pointwise", "f32_floor");
    let buffers = [0; 3].map(|_| filled(&device, 4096));
    let params = pack(&kernel, &[&buffers[..], &[1024][..]].concat());
    c.bench_function("launch of 4 blocks", |b| {
        b.iter(|| black_box(device.launch(&kernel, &shape([4, 1, 1], [256, 1, 1]), &params)));
    });
}

criterion_group!(benches, load, pointwise, matmul, attention, watched, tiny);
criterion_main!(benches);
