//! Kernels that Triton compiled (`tests/triton`), without Triton.

use crate::run::{device, download, f16_boxes_of, packed, text, upload};
use half::f16;
use kiln_sim::{Checks, FindingKind, Launch, Module};

/// Runs the only kernel of a file with all checks; Triton's two scratch arguments are added.
fn run(
    device: &kiln_sim::Device,
    name: &str,
    (grid, threads, shared_bytes): ([u32; 3], u32, u32),
    mut arguments: Vec<Vec<u8>>,
) {
    let module = Module::load(&text(&format!("triton/ptx/{name}.ptx"))).unwrap();
    let only = module.kernels().next().unwrap().to_string();
    let kernel = module.kernel(&only).unwrap();
    arguments.extend([vec![0; 8], vec![0; 8]]);
    // Triton leaves out the fence after mbarrier.init where a block is alone in its cluster, and
    // LLVM moves arithmetic on what a tcgen05.ld loads before the wait for it.
    let checks = Checks::ALL
        .without(FindingKind::MissingBarrierFence)
        .without(FindingKind::UnfinishedTensorLoad);
    let shape = Launch { grid, block: [threads, 1, 1], shared_bytes, checks, ..Launch::default() };
    let report = device.launch(&kernel, &shape, &packed(&kernel, &arguments));
    assert_eq!(report.unwrap_or_else(|error| panic!("{error}")).findings, []);
}

fn wide(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn word(value: usize) -> Vec<u8> {
    (value as u32).to_le_bytes().to_vec()
}

/// Integers, whose products and sums are exact in every format.
fn integers(count: usize, salt: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + salt) % 9) as f32 - 4.0).collect()
}

fn halves(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&value| f16::from_f32(value).to_bits()).collect()
}

/// Rows of A by rows of B, as f16.
fn products(
    a: &[f32],
    b: impl Fn(usize, usize) -> f32,
    (m, n, k): (usize, usize, usize),
) -> Vec<f16> {
    let at = |row: usize, column: usize| (0..k).map(|i| a[row * k + i] * b(i, column)).sum();
    (0..m * n).map(|i| f16::from_f32(at(i / n, i % n))).collect()
}

#[test]
fn rows_are_normalised() {
    let (rows, columns) = (5, 781);
    let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 37) % 101) as f32 / 16.0 - 3.0).collect();
    let device = device();
    let (input, out) = (upload(&device, &x), upload(&device, &vec![0_f32; x.len()]));
    let arguments = vec![wide(input), wide(out), word(rows), word(columns), word(columns)];
    run(&device, "softmax.sm_100", ([2, 1, 1], 256, 12320), arguments);
    let got = download::<f32>(&device, out, x.len());
    for (x, got) in x.chunks(columns).zip(got.chunks(columns)) {
        let total: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
        for (x, got) in x.iter().zip(got) {
            let want = f64::from(*x).exp() / total;
            // An exponent of at most 2^4 is rounded to 24 bits.
            assert!((f64::from(*got) - want).abs() <= want * 2_f64.powi(-18), "{got}, not {want}");
        }
    }
}

#[test]
fn matrices_in_tensor_memory() {
    let (m, n, k) = (130, 120, 144);
    let (a, b) = (integers(m * k, 0), integers(k * n, 3));
    let device = device();
    let out = upload(&device, &vec![0_u16; m * n]);
    let mut arguments: Vec<Vec<u8>> =
        [upload(&device, &halves(&a)), upload(&device, &halves(&b)), out].map(wide).to_vec();
    arguments.extend([m, n, k, k, n, n].map(word));
    run(&device, "matmul_f16_64x64.sm_100", ([6, 1, 1], 128, 24592), arguments);
    let want = products(&a, |i, column| b[i * n + column], (m, n, k));
    let got = download::<u16>(&device, out, m * n);
    assert_eq!(got, want.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
}

#[test]
fn matrices_by_specialised_warps() {
    let (m, n, k) = (200, 144, 160);
    let (a, b) = (integers(m * k, 0), integers(n * k, 3));
    let device = device();
    let out = upload(&device, &vec![0_u16; m * n]);
    let tensor = |address: u64, rows: usize, columns: usize| {
        let map = f16_boxes_of(address, [rows, columns], 128);
        vec![map, word(rows), word(columns), wide(columns as u64), wide(1)]
    };
    let mut arguments = tensor(upload(&device, &halves(&a)), m, k);
    arguments.extend(tensor(upload(&device, &halves(&b)), n, k));
    arguments.extend(tensor(out, m, n));
    arguments.extend([m, n, k].map(word));
    run(&device, "matmul_warp-specialised.sm_100", ([2, 2, 1], 256, 98524), arguments);
    let want = products(&a, |i, column| b[column * k + i], (m, n, k));
    let got = download::<u16>(&device, out, m * n);
    assert_eq!(got, want.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
}

#[test]
fn layers_are_normalised() {
    let (rows, columns) = (3, 1200);
    let x = integers(rows * columns, 1);
    let (w, b) = (integers(columns, 2), integers(columns, 5));
    let device = device();
    let (y, mean, deviation) = (
        upload(&device, &vec![0_u16; x.len()]),
        upload(&device, &[0_f32; 3]),
        upload(&device, &[0_f32; 3]),
    );
    let [x_at, w_at, b_at] = [&x, &w, &b].map(|values| upload(&device, &halves(values)));
    let mut arguments: Vec<Vec<u8>> = [x_at, y, w_at, b_at, mean, deviation].map(wide).to_vec();
    arguments.extend([word(columns), word(columns), 1e-5_f32.to_le_bytes().to_vec()]);
    run(&device, "layer_norm.sm_120", ([rows as u32, 1, 1], 128, 16), arguments);
    let got = download::<u16>(&device, y, x.len());
    for (row, (x, got)) in x.chunks(columns).zip(got.chunks(columns)).enumerate() {
        let count = columns as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
        for (i, (x, got)) in x.iter().zip(got).enumerate() {
            let scaled = (f64::from(*x) - mean) / (variance + 1e-5).sqrt() * f64::from(w[i]);
            let want = scaled + f64::from(b[i]);
            // Sums of 1200 singles, and one rounding to f16.
            let bound =
                want.abs() * 2_f64.powi(-11) + (scaled.abs() + 4.0) * 1200.0 * 2_f64.powi(-24);
            let got = f16::from_bits(*got).to_f64();
            assert!((got - want).abs() <= bound, "row {row}, column {i}: {got}, not {want}");
        }
    }
}
