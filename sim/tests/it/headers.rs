//! Kernels written with CUDA's headers for 16-bit formats.

use crate::run::{device, dialects, download, launch, line, upload};
use half::{bf16, f16};

/// Sizes around a warp and a block.
const SIZES: [usize; 6] = [1, 31, 32, 33, 64, 333];

/// Multiples of 1/64 between -4 and 4, which both formats hold as far as tests need it.
fn values(count: usize, salt: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + i / 3 * salt) % 513) as f64 / 64.0 - 4.0).collect()
}

#[test]
fn pairs_are_multiplied_added_and_clamped() {
    let [a, b, c] = [1.5, -0.75, 0.3].map(f16::from_f64);
    let device = device();
    for (module, pairs) in dialects("headers").iter().flat_map(|m| SIZES.map(|n| (m, n))) {
        let x: Vec<f16> = values(2 * pairs, 3).into_iter().map(f16::from_f64).collect();
        let bits: Vec<u16> = x.iter().map(|x| x.to_bits()).collect();
        let out = upload(&device, &vec![0_u16; 2 * pairs]);
        let scalars = [a, b, c].map(|value| u64::from(value.to_f32().to_bits()));
        let arguments =
            [upload(&device, &bits), out, pairs as u64, scalars[0], scalars[1], scalars[2]];
        let kernel = module.kernel("quadratic").unwrap();
        launch(&device, &kernel, line(pairs.div_ceil(64) as u32, 64), &arguments);
        for (x, got) in x.iter().zip(download::<u16>(&device, out, 2 * pairs)) {
            // Products and sums of these are exact in f64: each step rounds once.
            let step = |a: f16, b: f16| f16::from_f64(a.to_f64() * x.to_f64() + b.to_f64());
            let want = step(step(a, b), c).to_f64().clamp(-4.0, 4.0);
            assert_eq!(f16::from_bits(got).to_f64(), want, "{x}");
        }
    }
}

#[test]
fn powers_are_summed_by_atomics() {
    let device = device();
    for (module, pairs) in dialects("headers").iter().flat_map(|m| SIZES.map(|n| (m, n))) {
        let x: Vec<f16> =
            values(2 * pairs, 5).into_iter().map(|x| f16::from_f64(x - 4.0)).collect();
        let bits: Vec<u16> = x.iter().map(|x| x.to_bits()).collect();
        let (sum, positive) = (upload(&device, &[0_u16; 2]), upload(&device, &[0_u32]));
        let kernel = module.kernel("sum_of_powers").unwrap();
        let arguments = [upload(&device, &bits), sum, positive, pairs as u64];
        launch(&device, &kernel, line(2, 32), &arguments);
        for (part, got) in download::<u16>(&device, sum, 2).into_iter().enumerate() {
            let terms = x.iter().skip(part).step_by(2).map(|x| x.to_f64().exp2());
            let want: f64 = terms.sum();
            // Every term and every sum is rounded to f16: a thread's, and those of 64 threads.
            let roundings = (2 + pairs.div_ceil(64) + 64) as f64;
            let bound = want * roundings / f64::from(1 << 11);
            let got = f16::from_bits(got).to_f64();
            assert!((got - want).abs() <= bound, "{pairs} pairs: {got}, not {want}");
        }
        let above = x.iter().filter(|x| x.to_f64() > 0.0).count() as u32;
        assert_eq!(download::<u32>(&device, positive, 1), [above]);
    }
}

#[test]
fn rows_are_normalised_in_bf16() {
    let (rows, device) = (5, device());
    for (module, pairs) in dialects("headers").iter().flat_map(|m| SIZES.map(|n| (m, n))) {
        let count = 2 * rows * pairs;
        let x: Vec<bf16> = values(count, 7).into_iter().map(bf16::from_f64).collect();
        let bits: Vec<u16> = x.iter().map(|x| x.to_bits()).collect();
        let out = upload(&device, &vec![0_u16; count]);
        let arguments = [upload(&device, &bits), out, rows as u64, pairs as u64];
        launch(&device, &module.kernel("rms_norm").unwrap(), line(3, 64), &arguments);
        let got = download::<u16>(&device, out, count);
        for (x, got) in x.chunks(2 * pairs).zip(got.chunks(2 * pairs)) {
            let mean = x.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / (2 * pairs) as f64;
            for (x, got) in x.iter().zip(got) {
                let want = x.to_f64() / (mean + 1e-5).sqrt();
                // bf16 rounds by 2^-8 at most; f32 before it loses 2^-24 for each of its sums.
                let bound = want.abs() * (2_f64.powi(-8) + pairs as f64 * 2_f64.powi(-24));
                let got = bf16::from_bits(*got).to_f64();
                assert!((got - want).abs() <= bound, "{pairs} pairs: {got}, not {want}");
            }
        }
    }
}

#[test]
fn scalars_are_compared_and_converted() {
    let n = 200;
    let mut x: Vec<f16> = values(n, 9).into_iter().map(|x| f16::from_f64(x * 3.0)).collect();
    let mut y: Vec<bf16> = values(n, 11).into_iter().map(bf16::from_f64).collect();
    (x[5], x[6], y[7], y[8]) = (f16::NAN, f16::INFINITY, bf16::NAN, bf16::NEG_INFINITY);
    let device = device();
    for module in dialects("headers") {
        let out = upload(&device, &vec![0_i32; 4 * n]);
        let bits: [Vec<u16>; 2] =
            [x.iter().map(|x| x.to_bits()).collect(), y.iter().map(|y| y.to_bits()).collect()];
        let [x_at, y_at] = bits.map(|bits| upload(&device, &bits));
        let arguments = [x_at, y_at, out, n as u64];
        launch(&device, &module.kernel("scalars").unwrap(), line(4, 64), &arguments);
        let got = download::<i32>(&device, out, 4 * n);
        for ((x, y), got) in x.iter().zip(&y).zip(got.chunks(4)) {
            let (h, b) = (x.to_f64(), y.to_f64());
            let quarter = f16::from_f64(h * 0.25).to_f64().round_ties_even() as i32;
            assert_eq!(got[0], if h.is_nan() { -1 } else { quarter }, "{x}");
            assert_eq!(got[1], i32::from(h < 1.0) + 2 * i32::from(b >= -1.0), "{x} {y}");
            let square = f16::from_f64(h * h - 2.0);
            match square.is_nan() {
                true => assert!(f16::from_bits(got[2] as u16).is_nan(), "{x}"),
                false => assert_eq!(got[2] as u16, square.max(f16::ZERO).to_bits(), "{x}"),
            }
            match b.is_nan() {
                true => assert!(bf16::from_bits(got[3] as u16).is_nan(), "{y}"),
                false => assert_eq!(got[3] as u16, (-*y).to_bits(), "{y}"),
            }
        }
    }
}
