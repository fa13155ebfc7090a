//! Pipelined products by warpgroups, fed by tensor copies.

use crate::run::{Plain, device, dialects, download, f16_boxes, line, packed, seeded, upload};
use half::f16;
use kiln_sim::{Kernel, Launch, Operands};

fn kernel(name: &str) -> Kernel {
    dialects("products")[0].kernel(name).unwrap()
}

fn values(count: usize, salt: usize) -> Vec<i32> {
    (0..count).map(|i| ((i * 37 + i / 7 * salt) % 9) as i32 - 4).collect()
}

fn halves(values: &[i32]) -> Vec<u16> {
    values.iter().map(|&value| f16::from_f32(value as f32).to_bits()).collect()
}

#[test]
fn tiles_flow_through_warpgroups() {
    let (m, n, k) = (100, 136, 264);
    let (a, b) = (values(m * k, 3), values(n * k, 5));
    let kernel = kernel("matmul");
    for seed in 0..4 {
        let device = seeded(seed);
        let [in_a, in_b] = [&a, &b].map(|values| upload(&device, &halves(values)));
        let out = upload(&device, &vec![0_u16; m * n]);
        let arguments =
            [f16_boxes(in_a, m, k), f16_boxes(in_b, n, k), f16_boxes(out, m, n), 5_i32.bytes()];
        let shape = Launch { grid: [3, 2, 1], shared_bytes: 7 * 8192, ..line(1, 256) };
        device
            .launch(&kernel, &shape, &packed(&kernel, &arguments))
            .unwrap_or_else(|error| panic!("{error}"));
        for (at, got) in download::<u16>(&device, out, m * n).into_iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let want: i32 = (0..k).map(|i| a[row * k + i] * b[column * k + i]).sum();
            // The sum is exact in f32; f16 rounds it.
            assert_eq!(got, f16::from_f32(want as f32).to_bits(), "row {row} column {column}");
        }
    }
}

#[test]
fn left_sides_come_from_registers() {
    let (a, b) = (values(64 * 64, 3), values(64 * 64, 5));
    let kernel = kernel("from_registers");
    let device = device();
    let [in_a, in_b] = [&a, &b].map(|values| upload(&device, &halves(values)));
    let out = upload(&device, &[0_f32; 64 * 64]);
    let arguments = [in_a.bytes(), f16_boxes(in_b, 64, 64), out.bytes()];
    let shape = Launch { shared_bytes: 8192, counters: true, ..line(1, 128) };
    let report = device
        .launch(&kernel, &shape, &packed(&kernel, &arguments))
        .unwrap_or_else(|error| panic!("{error}"));
    let [product] = report.counters.unwrap().products[..] else { panic!("one kind of operands") };
    assert_eq!((product.operands, product.multiply_adds), (Operands::Half, 64 * 64 * 64));
    for (at, got) in download::<f32>(&device, out, 64 * 64).into_iter().enumerate() {
        let (row, column) = (at / 64, at % 64);
        let want: i32 = (0..64).map(|i| a[row * 64 + i] * b[i * 64 + column]).sum();
        assert_eq!(got, want as f32 + 1.0, "row {row} column {column}");
    }
}
