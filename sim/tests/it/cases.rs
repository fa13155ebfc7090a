//! Correct kernels of `tests/cuda` with arguments: what the checks must be silent about, and what
//! mutations change.

use crate::run::{Plain, dialects, f16_boxes, line, packed, seeded, upload};
use kiln_sim::{Checks, Device, Launch};

/// A shape, and arguments by their bytes.
pub type Call = (Launch, Vec<Vec<u8>>);

/// A kernel, as `stem/name`, and a launch of it. Outputs are memory that nobody wrote.
pub struct Case(pub &'static str, pub fn(&Device) -> Call);

macro_rules! bytes {
    ($($value:expr),* $(,)?) => { vec![$($value.bytes()),*] };
}

fn words(device: &Device, count: u32) -> u64 {
    upload(device, &(0..count).collect::<Vec<u32>>())
}

fn floats(device: &Device, count: usize) -> u64 {
    upload(device, &(0..count).map(|i| ((i * 7919) % 251) as f32 / 125.0 - 1.0).collect::<Vec<_>>())
}

fn halves(device: &Device, count: usize) -> u64 {
    let value = |i: usize| half::f16::from_f64(((i * 7919) % 251) as f64 / 125.0 - 1.0);
    upload(device, &(0..count).map(|i| value(i).to_bits()).collect::<Vec<_>>())
}

fn zeros(device: &Device, count: usize) -> u64 {
    upload(device, &vec![0_u32; count])
}

fn unwritten(device: &Device, bytes: u64) -> u64 {
    device.alloc(bytes).unwrap()
}

fn cooperative(blocks: u32, threads: u32) -> Launch {
    Launch { cooperative: true, ..line(blocks, threads) }
}

pub const CASES: &[Case] = &[
    Case("pointwise/f32_tanh", |d| {
        let out = unwritten(d, 400);
        (line(2, 64), bytes![floats(d, 100), floats(d, 100), out, 100])
    }),
    Case("halves/bf16_gelu_erf", |d| {
        let out = unwritten(d, 400 * 2);
        (line(1, 64), bytes![halves(d, 400), halves(d, 400), out, 50, 1.5_f32])
    }),
    Case("blocks/row_softmax", |d| {
        let out = unwritten(d, 2 * 300 * 4);
        (line(2, 128), bytes![floats(d, 2 * 300), out, 300])
    }),
    Case("blocks/matmul", |d| {
        let shape = Launch { grid: [2, 2, 1], block: [16, 16, 1], ..line(1, 1) };
        let out = unwritten(d, 20 * 30 * 4);
        (shape, bytes![floats(d, 20 * 40), floats(d, 40 * 30), out, 20, 30, 40])
    }),
    Case("blocks/histogram", |d| {
        let shape = Launch { shared_bytes: 256, ..line(3, 96) };
        (shape, bytes![words(d, 500), zeros(d, 64), 500])
    }),
    Case("blocks/votes", |d| (line(1, 64), bytes![words(d, 64), unwritten(d, 64 * 24)])),
    Case("blocks/grid_barrier", |d| {
        let data = unwritten(d, 16);
        (cooperative(4, 64), bytes![zeros(d, 1), data, zeros(d, 4), 3])
    }),
    Case("blocks/spinlock", |d| (line(2, 64), bytes![zeros(d, 1), zeros(d, 1)])),
    Case("blocks/spinlock_entered", |d| (line(2, 64), bytes![zeros(d, 1), zeros(d, 1)])),
    Case("blocks/calls", |d| (line(2, 64), bytes![floats(d, 100), unwritten(d, 400), 100])),
    Case("blocks/switches", |d| (line(2, 64), bytes![words(d, 100), unwritten(d, 400), 100])),
    Case("blocks/local_array", |d| (line(2, 64), bytes![words(d, 100), unwritten(d, 400), 100])),
    Case("blocks/variables", |d| (line(1, 64), bytes![unwritten(d, 256), unwritten(d, 4)])),
    Case("blocks/bytes", |d| (line(4, 64), bytes![unwritten(d, 250), 250])),
    Case("counters/reduction", |d| (line(2, 256), bytes![floats(d, 512), unwritten(d, 8)])),
    Case("counters/product_even", |d| {
        let shape = Launch { block: [32, 8, 1], ..line(2, 1) };
        let out = unwritten(d, 64 * 64 * 4);
        (shape, bytes![floats(d, 64 * 64), floats(d, 64 * 64), out, 64])
    }),
    Case("races/lanes_clean", |d| (line(1, 32), bytes![words(d, 32), unwritten(d, 128)])),
    Case("races/last_clean", |d| {
        (line(4, 64), bytes![zeros(d, 1), unwritten(d, 16), unwritten(d, 4)])
    }),
    Case("races/named_clean", |d| (line(1, 64), bytes![words(d, 32), unwritten(d, 128)])),
    Case("unwritten/register_read", |d| {
        let ones = upload(d, &[1_u32; 32]);
        (line(1, 32), bytes![ones, unwritten(d, 128)])
    }),
    Case("headers/quadratic", |d| {
        let arguments = bytes![halves(d, 200), unwritten(d, 400), 100, 1.5_f32, -0.5_f32, 0.25_f32];
        (line(2, 64), arguments)
    }),
    Case("headers/sum_of_powers", |d| {
        (line(2, 64), bytes![halves(d, 600), zeros(d, 1), zeros(d, 1), 300])
    }),
    Case("headers/rms_norm", |d| {
        (line(3, 64), bytes![halves(d, 5 * 80), unwritten(d, 5 * 160), 5, 40])
    }),
    Case("headers/scalars", |d| {
        (line(2, 64), bytes![halves(d, 100), halves(d, 100), unwritten(d, 1600), 100])
    }),
    Case("cooperative/normalise", |d| {
        let (sums, out) = (unwritten(d, 16), unwritten(d, 4000));
        (cooperative(4, 96), bytes![floats(d, 1000), sums, out, zeros(d, 1), 1000])
    }),
    Case("cooperative/gather", |d| {
        let out = unwritten(d, 800);
        (line(2, 64), bytes![floats(d, 200), -2.0_f32, out, zeros(d, 1), 200])
    }),
    Case("attention/attention", |d| {
        let count = 75 * 64;
        let [q, k, v] = [(); 3].map(|()| halves(d, count));
        let shape =
            Launch { grid: [2, 1, 1], shared_bytes: (64 + 4 * 32) * 72 * 2, ..line(1, 128) };
        (shape, bytes![q, k, v, unwritten(d, 2 * count as u64), 75, 0.18_f32])
    }),
    Case("lstm/lstm", |d| {
        let (width, batch, steps) = (32, 3, 3);
        let hidden = unwritten(d, 2 * 2 * batch * width);
        d.write(hidden, &vec![0; 2 * batch as usize * width as usize]).unwrap();
        let shape = Launch { shared_bytes: 72 * (32 + 8) * 2, ..cooperative(2, 128) };
        let arguments = bytes![
            floats(d, (steps * batch * 4 * width) as usize),
            halves(d, (4 * width * width) as usize),
            hidden,
            unwritten(d, steps * batch * width * 4),
            unwritten(d, batch * width * 4),
            zeros(d, 1),
            width as i32,
            batch as i32,
            steps as i32,
        ];
        (shape, arguments)
    }),
    Case("copies/pipeline", |d| (line(1, 288), bytes![floats(d, 5 * 256), unwritten(d, 1024), 5])),
    Case("copies/store_and_reduce", |d| {
        (line(2, 128), bytes![unwritten(d, 1024), upload(d, &[1_f32; 128])])
    }),
    Case("copies/small_copies", |d| (line(1, 32), bytes![words(d, 384), unwritten(d, 1536)])),
    Case("copies/neighbours", |d| (line(4, 32), bytes![unwritten(d, 48)])),
    Case("copies/multicast", |d| (line(4, 64), bytes![words(d, 256), unwritten(d, 1024)])),
    Case("copies/small_things", |d| (line(1, 32), bytes![unwritten(d, 128), 2.5_f32])),
    Case("clusters/center", |d| {
        let (x, out) = (halves(d, 100 * 256), unwritten(d, 2 * 100 * 256));
        let mut arguments = vec![f16_boxes(x, 100, 256), f16_boxes(out, 100, 256)];
        arguments.extend(bytes![100, 4]);
        (Launch { shared_bytes: 2 * 8192, ..line(2, 256) }, arguments)
    }),
    Case("products/matmul", |d| {
        let (a, b) = (halves(d, 64 * 264), halves(d, 64 * 264));
        let out = unwritten(d, 2 * 64 * 64);
        let boxes = [f16_boxes(a, 64, 264), f16_boxes(b, 64, 264), f16_boxes(out, 64, 64)];
        let shape = Launch { shared_bytes: 7 * 8192, ..line(1, 256) };
        (shape, boxes.into_iter().chain(bytes![5]).collect())
    }),
    Case("products/from_registers", |d| {
        let (a, b, out) = (halves(d, 64 * 64), halves(d, 64 * 64), unwritten(d, 4 * 64 * 64));
        let shape = Launch { shared_bytes: 8192, ..line(1, 128) };
        (shape, vec![a.bytes(), f16_boxes(b, 64, 64), out.bytes()])
    }),
];

#[test]
fn correct_kernels_have_no_findings() {
    for Case(name, call) in CASES {
        let (stem, kernel) = name.split_once('/').unwrap();
        for module in dialects(stem) {
            let kernel = module.kernel(kernel).unwrap();
            for seed in 0..20 {
                let device = seeded(seed);
                let (shape, arguments) = call(&device);
                let shape = Launch { checks: Checks::ALL, ..shape };
                let report = device.launch(&kernel, &shape, &packed(&kernel, &arguments));
                let report = report.unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
                if let Some(finding) = report.findings.first() {
                    panic!("{name}, {}, seed {seed}: {finding}", module.target());
                }
            }
        }
    }
}
