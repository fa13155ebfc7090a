//! Attention by matrix instructions and asynchronous copies.

use crate::run::{device, dialects, download, launch, line, upload};
use half::f16;
use kiln_sim::Launch;

const WIDTH: usize = 64;

/// Values between -1 and 1 that f16 holds.
fn values(count: usize, salt: u32) -> Vec<f16> {
    let hash = |i: u32| (i.wrapping_mul(2_654_435_761) ^ salt.wrapping_mul(40_503)) >> 7;
    (0..count as u32).map(|i| f16::from_f32((hash(i) % 257) as f32 / 128.0 - 1.0)).collect()
}

fn reference(q: &[f16], k: &[f16], v: &[f16], scale: f64) -> Vec<f64> {
    let row = |x: &[f16], i: usize| x[i * WIDTH..][..WIDTH].to_vec();
    let length = k.len() / WIDTH;
    let mut out = Vec::new();
    for query in 0..length {
        let scores: Vec<f64> = (0..length)
            .map(|key| {
                let pairs = row(q, query).into_iter().zip(row(k, key));
                pairs.map(|(a, b)| a.to_f64() * b.to_f64()).sum::<f64>() * scale
            })
            .collect();
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp2()).collect();
        let total: f64 = weights.iter().sum();
        for column in 0..WIDTH {
            let sum: f64 = (0..length).map(|i| weights[i] * v[i * WIDTH + column].to_f64()).sum();
            out.push(sum / total);
        }
    }
    out
}

#[test]
fn attention() {
    let (length, heads) = (75, 2);
    let [q, k, v] = [1, 2, 3].map(|salt| values(heads * length * WIDTH, salt));
    let device = device();
    for module in dialects("attention") {
        let kernel = module.kernel("attention").unwrap();
        assert!(kernel.warp_bytes() <= 64 << 10, "{} bytes", kernel.warp_bytes());
        let bits = |x: &[f16]| x.iter().map(|x| x.to_bits()).collect::<Vec<u16>>();
        let buffers = [&q, &k, &v].map(|x| upload(&device, &bits(x)));
        let out = upload(&device, &vec![0_u16; q.len()]);
        let scale = 0.18_f32;
        let shared_bytes = (64 + 4 * 32) * 72 * 2;
        let shape = Launch { grid: [2, heads as u32, 1], shared_bytes, ..line(1, 128) };
        let scalars = [out, length as u64, scale.to_bits().into()];
        let arguments = [&buffers[..], &scalars[..]].concat();
        launch(&device, &kernel, shape, &arguments);
        let got = download::<u16>(&device, out, q.len());
        for head in 0..heads {
            let part = head * length * WIDTH..(head + 1) * length * WIDTH;
            let [q, k, v] = [&q, &k, &v].map(|x| &x[part.clone()]);
            let want = reference(q, k, v, scale.into());
            for (at, (want, got)) in want.iter().zip(&got[part]).enumerate() {
                let got = f16::from_bits(*got).to_f64();
                // Weights and the result are rounded to f16, 2^-11 each.
                assert!((got - want).abs() < 2e-3, "head {head} at {at}: {got}, not {want}");
            }
        }
    }
}
