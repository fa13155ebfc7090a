//! Kernels in the terms of cooperative groups.

use crate::run::{device, dialects, download, launch, line, upload};
use kiln_sim::Launch;

/// Sizes around a warp, a block and a grid.
const SIZES: [usize; 8] = [1, 31, 32, 33, 255, 256, 257, 1000];

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919) % 251) as f32 / 16.0).collect()
}

#[test]
fn grids_share_a_sum() {
    let device = device();
    for (module, n) in dialects("cooperative").iter().flat_map(|m| SIZES.map(|n| (m, n))) {
        let x: Vec<f32> = values(n).into_iter().map(|x| x + 1.0).collect();
        let (sums, out) = (upload(&device, &[0_f32; 4]), upload(&device, &vec![0_f32; n]));
        let arrived = upload(&device, &[0_u32]);
        let shape = Launch { cooperative: true, ..line(4, 96) };
        let arguments = [upload(&device, &x), sums, out, arrived, n as u64];
        launch(&device, &module.kernel("normalise").unwrap(), shape, &arguments);
        // Sixteenths below 2^20 have exact sums; the quotient is rounded once.
        let total: f32 = x.iter().sum();
        for (x, got) in x.iter().zip(download::<f32>(&device, out, n)) {
            assert_eq!(got, x / total, "of {n}");
        }
    }
}

#[test]
fn lanes_that_are_together_take_places() {
    let device = device();
    for (module, n) in dialects("cooperative").iter().flat_map(|m| SIZES.map(|n| (m, n))) {
        for limit in [-1.0_f32, 7.5, 100.0] {
            let x = values(n);
            let (out, count) = (upload(&device, &vec![0_f32; n]), upload(&device, &[0_u32]));
            let arguments = [upload(&device, &x), limit.to_bits().into(), out, count, n as u64];
            launch(&device, &module.kernel("gather").unwrap(), line(3, 70), &arguments);
            let mut want: Vec<f32> = x.into_iter().filter(|x| *x > limit).collect();
            assert_eq!(download::<u32>(&device, count, 1), [want.len() as u32]);
            let mut got = download::<f32>(&device, out, want.len());
            got.sort_by(f32::total_cmp);
            want.sort_by(f32::total_cmp);
            assert_eq!(got, want, "{n} {limit}");
        }
    }
}
