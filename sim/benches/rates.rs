//! How much the simulator computes in a second on one core, and what checks cost: each kernel's
//! shortest run of several, without checks, with all, with counters, and with all on two workers.
//!
//! `cargo bench -p kiln-sim --bench rates [name ..]`. The kernels are those of `tests/cuda`.

use kiln_sim::{
    Checks, Device, DeviceConfig, Interleave, Kernel, L2Promotion, Launch, Module, OutOfBoundsFill,
    Swizzle, TensorMap, TensorType, Tiled,
};
use std::time::{Duration, Instant};

/// Runs of each kind, in turn, so that a slow second of the machine does not favour one.
const RUNS: u32 = 15;

/// A launch to be measured.
struct Case {
    name: &'static str,
    kernel: Kernel,
    launch: Launch,
    params: Vec<u8>,
}

fn kernel(stem: &str, name: &str) -> Kernel {
    let path = format!("{}/tests/cuda/{stem}.ptx", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the tests' PTX is beside the bench");
    let module = Module::load(&text).expect("the tests' PTX loads");
    module.kernel(name).expect("the kernel is in its module")
}

fn pack(kernel: &Kernel, values: &[&[u8]]) -> Vec<u8> {
    let mut block = vec![0; kernel.param_bytes()];
    for (param, value) in kernel.params().iter().zip(values) {
        block[param.offset..][..param.bytes].copy_from_slice(&value[..param.bytes]);
    }
    block
}

fn filled(device: &Device, byte: u8, bytes: u64) -> [u8; 8] {
    let address = device.alloc(bytes).expect("the device has room");
    device.fill(address, byte, bytes).expect("the range is allocated");
    address.to_le_bytes()
}

/// A matrix of f16 in boxes of 64 by 64, swizzled by 128 bytes.
fn boxes(address: [u8; 8], rows: u64, columns: u64) -> [u8; 128] {
    let tiled = Tiled {
        data_type: TensorType::F16,
        address: u64::from_le_bytes(address),
        dims: &[columns, rows],
        strides: &[columns * 2],
        box_dims: &[64, 64],
        element_strides: &[1, 1],
        interleave: Interleave::None,
        swizzle: Swizzle::B128,
        l2_promotion: L2Promotion::None,
        fill: OutOfBoundsFill::Zero,
    };
    *TensorMap::encode_tiled(&tiled).expect("the shape is one of tensor maps").bytes()
}

fn cases(device: &Device) -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |name, stem, entry, shape: ([u32; 2], u32, u32), values: &[&[u8]]| {
        let (kernel, ([x, y], threads, shared_bytes)) = (kernel(stem, entry), shape);
        let params = pack(&kernel, values);
        let launch =
            Launch { grid: [x, y, 1], block: [threads, 1, 1], shared_bytes, ..Launch::default() };
        out.push(Case { name, kernel, launch, params });
    };
    let result = filled(device, 0, 1 << 20);
    let number = |value: i32| value.to_le_bytes();
    let (half, one) = (0.5_f32.to_le_bytes(), 1_f32.to_le_bytes());
    let rates = "rates.sm_90a";
    add("fma", rates, "fma_f32", ([4, 1], 256, 0), &[&result, &half, &one, &number(4096)]);
    // A third of 1, and small numbers of 8 bits.
    for (name, value, steps) in [
        ("mma_f16", 0x3555_3555_u32, 2048),
        ("mma_bf16", 0x3eab_3eab, 2048),
        ("mma_tf32", 0x3eaa_a000, 4096),
        ("mma_s8", 0x0102_fdfc, 1024),
    ] {
        let value = value.to_le_bytes();
        add(name, rates, name, ([1, 1], 128, 0), &[&result, &value, &number(steps)]);
    }
    let third = (1_f64 / 3.0).to_le_bytes();
    add("mma_f64", rates, "mma_f64", ([1, 1], 128, 0), &[&result, &third, &number(4096)]);
    let (a, b) = (filled(device, 0x3e, 1 << 18), filled(device, 0x3e, 1 << 18));
    let shape = ([2, 1], 128, 24576);
    for (name, chunks, repeats) in [("wgmma", 8, 64), ("wgmma and copies", 128, 1)] {
        let values: &[&[u8]] = &[&a, &b, &result, &number(chunks), &number(repeats)];
        add(name, rates, "wgmma_bf16", shape, values);
    }
    let (m, n, k) = (128, 128, 512);
    let maps = [boxes(a, m, k), boxes(b, n, k), boxes(filled(device, 0, 1 << 16), m, n)];
    let values: &[&[u8]] = &[&maps[0], &maps[1], &maps[2], &number(k as i32 / 64)];
    add("wgmma and TMA", "products.sm_90a", "matmul", ([2, 2], 256, 7 * 8192), values);
    let (x, y) = (filled(device, 0x3f, 1 << 21), filled(device, 0, 1 << 21));
    for name in ["copy_16", "copy_async_16"] {
        let tiles = number((1 << 21) / 4096);
        add(name, rates, name, ([32, 1], 256, 0), &[&x, &y, &tiles]);
    }
    let buffers = [0; 3].map(|_| filled(device, 0x3f, 1 << 18));
    let size = 256_u64.to_le_bytes();
    let values: &[&[u8]] = &[&buffers[0], &buffers[1], &buffers[2], &size, &size, &size];
    add("tiled product", "blocks.sm_80", "matmul", ([16, 16], 0, 0), values);
    out.last_mut().expect("it was added").launch.block = [16, 16, 1];
    out
}

/// The shortest time of a launch, with checks and with counters or without, on devices of one
/// worker and of two.
fn shortest(devices: &[Device; 2], case: &Case) -> [Duration; 5] {
    let (none, all) = (Checks::NONE, Checks::ALL);
    let modes =
        [(0, none, false), (0, all, false), (0, none, true), (0, all, true), (1, all, false)];
    let mut best = [Duration::MAX; 5];
    for _ in 0..RUNS {
        for (best, (device, checks, counters)) in best.iter_mut().zip(modes) {
            let launch = Launch { checks, counters, ..case.launch };
            let start = Instant::now();
            let report = devices[device].launch(&case.kernel, &launch, &case.params);
            *best = start.elapsed().min(*best);
            let report = report.expect("the kernel is correct");
            assert!(report.findings.is_empty(), "{}: {}", case.name, report.findings[0]);
        }
    }
    best
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| name != "--bench").collect();
    let devices =
        [1, 2].map(|workers| Device::new(DeviceConfig { workers, ..DeviceConfig::default() }));
    println!(
        "{:18} {:>9} {:>13} {:>9} {:>7} {:>9} {:>7} {:>12}",
        "kernel", "ms", "G lanes/s", "GFLOP/s", "checks", "counters", "both", "on 2 workers"
    );
    // Addresses are the same on both devices.
    let [cases, _] = devices.each_ref().map(cases);
    for case in cases {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == case.name) {
            continue;
        }
        let launch = Launch { counters: true, ..case.launch };
        let report = devices[0].launch(&case.kernel, &launch, &case.params);
        let counters = report.expect("the kernel is correct").counters.expect("it counted");
        let products: u64 = counters.products.iter().map(|product| product.multiply_adds).sum();
        let [alone, rest @ ..] = shortest(&devices, &case);
        let seconds = alone.as_secs_f64();
        let lanes = counters.total.lane_instructions as f64 / seconds / 1e9;
        let flops = 2.0 * products as f64 / seconds / 1e9;
        let [checks, counted, both, on_two] = rest.map(|time| time.as_secs_f64() / seconds);
        let name = case.name;
        let ms = seconds * 1e3;
        println!(
            "{name:18} {ms:9.2} {lanes:13.2} {flops:9.1} {checks:7.1} {counted:9.1} {both:7.1} \
             {on_two:12.1}"
        );
    }
}
