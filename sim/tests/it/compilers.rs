//! What compilers make of CUDA's own headers and of calls through addresses.

use crate::run::{device, dialects, download, launch, line, upload};
use half::f16;
use kiln_sim::{Checks, Launch};

fn checked(shape: Launch) -> Launch {
    Launch { checks: Checks::ALL, ..shape }
}

#[test]
fn a_grid_of_cooperative_groups_meets() {
    let (blocks, threads, rounds) = (3, 64, 4);
    let count = (blocks * threads) as usize;
    for module in dialects("groups") {
        let device = device();
        let values = upload(&device, &(0..count as u32).map(|i| i * i).collect::<Vec<_>>());
        let shape = checked(Launch { cooperative: true, ..line(blocks, threads) });
        let kernel = module.kernel("rounds").unwrap();
        // The barrier's word is left as it was found, so a second launch works as well.
        for _ in 0..2 {
            let report = launch(&device, &kernel, shape, &[values, rounds]);
            assert_eq!(report.findings, []);
        }
        let mut want: Vec<u32> = (0..count as u32).map(|i| i * i).collect();
        for _ in 0..2 * rounds {
            let added: Vec<u32> = want.iter().zip(0..).map(|(value, rank)| value + rank).collect();
            want = (0..count).map(|i| added[(i + threads as usize) % count]).collect();
        }
        assert_eq!(download::<u32>(&device, values, count), want);
    }
}

#[test]
fn tiles_of_a_warp_reduce() {
    for module in dialects("groups") {
        let device = device();
        let x: Vec<i32> = (0..64).map(|i| i * 37 % 19 - 6).collect();
        let (sums, odd) = (upload(&device, &[0_i32; 64]), upload(&device, &[9_u32; 64]));
        let kernel = module.kernel("tiles").unwrap();
        let arguments = [upload(&device, &x), sums, odd];
        let report = launch(&device, &kernel, checked(line(1, 64)), &arguments);
        assert_eq!(report.findings, []);
        let tile = |i: usize| x[i / 8 * 8..][..8].iter().sum();
        assert_eq!(download::<i32>(&device, sums, 64), (0..64).map(tile).collect::<Vec<i32>>());
        let group = |i: usize| x[i / 32 * 32..][..32].iter().filter(|x| **x & 1 != 0).count();
        let want = (0..64).map(|i| if x[i] & 1 != 0 { group(i) as u32 } else { 0 });
        assert_eq!(download::<u32>(&device, odd, 64), want.collect::<Vec<u32>>());
    }
}

#[test]
fn matrices_by_the_functions_of_mma_h() {
    let (m, n, k) = (32, 48, 64);
    let value = |i: usize| f16::from_f64(((i * 7919) % 13) as f64 - 6.0);
    let bits = |count: usize, salt: usize| -> Vec<u16> {
        (0..count).map(|i| value(i + salt).to_bits()).collect()
    };
    for module in dialects("fragments") {
        let device = device();
        let (a, b) = (bits(m * k, 0), bits(n * k, 5));
        let c = device.alloc((m * n * 4) as u64).unwrap();
        let arguments = [upload(&device, &a), upload(&device, &b), c, n as u64, k as u64];
        let grid = [n as u32 / 16, m as u32 / 16, 1];
        let shape = checked(Launch { grid, ..line(1, 32) });
        let kernel = module.kernel("product").unwrap();
        assert_eq!(launch(&device, &kernel, shape, &arguments).findings, []);
        let at = |bits: &[u16], i: usize| f16::from_bits(bits[i]).to_f32();
        // Integers, whose sums are exact.
        let want = (0..m * n).map(|i| {
            let products = (0..k).map(|j| at(&a, i / n * k + j) * at(&b, i % n * k + j));
            2.0 * products.sum::<f32>()
        });
        assert_eq!(download::<f32>(&device, c, m * n), want.collect::<Vec<_>>());
    }
}

#[test]
fn functions_are_called_by_their_address() {
    for module in dialects("indirect") {
        let device = device();
        let sides: Vec<i32> = (0..64).map(|i| i * 5 % 23).collect();
        let out = upload(&device, &[0_i32; 64]);
        let kernel = module.kernel("areas").unwrap();
        let arguments = [upload(&device, &sides), out, 11];
        assert_eq!(launch(&device, &kernel, checked(line(1, 64)), &arguments).findings, []);
        let want = sides.iter().map(|&side| {
            let area = if side % 3 == 0 { side * side } else { side * 11 };
            if side & 1 == 0 { 2 * area } else { area - 7 }
        });
        assert_eq!(download::<i32>(&device, out, 64), want.collect::<Vec<_>>());
    }
}

/// Values of the magnitudes of a format without infinities, in order of their codes.
fn magnitudes(exponent_bits: u32, fraction_bits: u32) -> Vec<f64> {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let unit = f64::from(1 << fraction_bits);
    let value = |code: u32| {
        let (exponent, fraction) = (code >> fraction_bits, f64::from(code % (1 << fraction_bits)));
        match exponent {
            0 => fraction / unit * 2_f64.powi(1 - bias),
            _ => (1.0 + fraction / unit) * 2_f64.powi(exponent as i32 - bias),
        }
    };
    (0..1 << (exponent_bits + fraction_bits)).map(value).collect()
}

/// The code nearest to a value, the even one of two.
fn nearest(table: &[f64], x: f32) -> u8 {
    let distance = |code: &usize| (table[*code] - f64::from(x.abs())).abs();
    let order =
        |a: &usize, b: &usize| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2)));
    let code = (0..table.len()).min_by(order).unwrap();
    code as u8 | if x.is_sign_negative() { table.len() as u8 } else { 0 }
}

#[test]
fn formats_of_4_and_6_bits() {
    const COUNT: usize = 64;
    let x: Vec<f32> = (0..COUNT)
        .map(|i| ((i * 53 % 64) as f32 - 31.5) / 8.0 * [1.0, 0.125, 8.0][i % 3])
        .collect();
    for module in dialects("narrow") {
        let device = device();
        let codes = upload(&device, &[0_u8; 4 * COUNT]);
        let values = upload(&device, &[0_f32; 4 * COUNT]);
        let arguments = [upload(&device, &x), codes, values, COUNT as u64];
        let kernel = module.kernel("codes").unwrap();
        let shape = checked(line(1, COUNT as u32));
        assert_eq!(launch(&device, &kernel, shape, &arguments).findings, []);
        let codes = download::<u8>(&device, codes, 4 * COUNT);
        let values = download::<f32>(&device, values, 4 * COUNT);
        for (part, (exponent_bits, fraction_bits)) in [(2, 1), (2, 3), (3, 2)].iter().enumerate() {
            let table = magnitudes(*exponent_bits, *fraction_bits);
            for (i, &x) in x.iter().enumerate() {
                let at = part * COUNT + i;
                assert_eq!(codes[at], nearest(&table, x), "{x} in format {part}");
                let magnitude = table[usize::from(codes[at]) % table.len()];
                assert_eq!(f64::from(values[at]), magnitude.copysign(x.into()));
            }
        }
        for (i, &x) in x.iter().enumerate() {
            let power = f64::from(x.abs()).log2().ceil();
            assert_eq!(f64::from(codes[3 * COUNT + i]), power + 127.0, "{x}");
            assert_eq!(f64::from(values[3 * COUNT + i]), power.exp2());
        }
    }
}

#[test]
fn pairs_of_singles() {
    let a: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) / 7.0).collect();
    let b: Vec<f32> = (0..64).map(|i| 3.0 / (i as f32 + 1.0)).collect();
    for module in dialects("narrow") {
        let device = device();
        let out = upload(&device, &[0_f32; 64]);
        let kernel = module.kernel("pairs").unwrap();
        let arguments = [upload(&device, &a), upload(&device, &b), out];
        assert_eq!(launch(&device, &kernel, checked(line(1, 32)), &arguments).findings, []);
        let want = a.iter().zip(&b).map(|(a, b)| a.mul_add(*b, a + b));
        assert_eq!(download::<f32>(&device, out, 64), want.collect::<Vec<_>>());
    }
}
