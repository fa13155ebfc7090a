//! Blocks of a cluster that share their sums, fed by tensor copies.

use crate::run::{Plain, dialects, download, f16_boxes, line, packed, seeded, upload};
use half::f16;
use kiln_sim::Launch;

#[test]
fn columns_lose_their_means() {
    // Rows of both blocks, of the first and a row of the second, of the first alone.
    for (rows, panels, clusters) in [(128, 1, 1), (65, 2, 1), (100, 5, 2), (40, 3, 2), (1, 1, 1)] {
        let columns = 64 * panels;
        let x: Vec<f64> =
            (0..rows * columns).map(|i| ((i * 7919 + i / 64) % 251) as f64 / 8.0 - 12.0).collect();
        let bits: Vec<u16> = x.iter().map(|&x| f16::from_f64(x).to_bits()).collect();
        for (module, seed) in dialects("clusters").iter().flat_map(|m| (0..3).map(move |s| (m, s)))
        {
            let kernel = module.kernel("center").unwrap();
            let device = seeded(seed);
            let out = upload(&device, &vec![0_u16; rows * columns]);
            let arguments = [
                f16_boxes(upload(&device, &bits), rows, columns),
                f16_boxes(out, rows, columns),
                (rows as i32).bytes(),
                (panels as i32).bytes(),
            ];
            let shape = Launch { shared_bytes: 2 * 8192, ..line(2 * clusters, 256) };
            device
                .launch(&kernel, &shape, &packed(&kernel, &arguments))
                .unwrap_or_else(|error| panic!("{error}"));
            for (at, got) in download::<u16>(&device, out, rows * columns).into_iter().enumerate() {
                let column = x.iter().skip(at % columns).step_by(columns);
                let want = x[at] - column.sum::<f64>() / rows as f64;
                // The sum is exact; the mean and the difference are rounded to f32, then to f16.
                let bound = want.abs() * 2_f64.powi(-11) + 32.0 * 2_f64.powi(-23);
                let got = f16::from_bits(got).to_f64();
                assert!((got - want).abs() <= bound, "{rows} rows, at {at}: {got}, not {want}");
            }
        }
    }
}
