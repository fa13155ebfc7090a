//! Integers of 96 and 128 bits against Rust's: NVRTC divides by chains of carries in which
//! additions follow subtractions.

use crate::run::{device, dialects, download, launch, line, upload};

/// Values around powers of two, small ones, and some without structure; none is 0.
fn values() -> Vec<u128> {
    let mut out: Vec<u128> = vec![1, 2, 3, 7, 10, u128::MAX, u128::MAX - 1, u128::MAX / 3];
    for bit in [16, 31, 32, 33, 63, 64, 65, 95, 96, 97, 126, 127] {
        let power = 1_u128 << bit;
        out.extend([power - 1, power, power + 1]);
    }
    let mut state = 1_u128;
    for shift in 0..60 {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(99);
        out.push((state >> shift).max(1));
    }
    out
}

/// Both operands of every pair of values.
fn pairs() -> (Vec<u128>, Vec<u128>) {
    let values = values();
    let pairs = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b)));
    pairs.unzip()
}

fn words(values: &[u128]) -> Vec<u64> {
    values.iter().flat_map(|&value| [value as u64, (value >> 64) as u64]).collect()
}

#[track_caller]
fn check(name: &str, expected: impl Fn(u128, u128) -> u128) {
    let (a, b) = pairs();
    for module in dialects("wide") {
        let device = device();
        let out = upload(&device, &vec![0_u64; 2 * a.len()]);
        let values = [upload(&device, &words(&a)), upload(&device, &words(&b)), out];
        let values = [&values[..], &[a.len() as u64]].concat();
        let shape = line(a.len().div_ceil(128) as u32, 128);
        launch(&device, &module.kernel(name).unwrap(), shape, &values);
        let found: Vec<u64> = download(&device, out, 2 * a.len());
        for (index, found) in found.chunks(2).enumerate() {
            let found = u128::from(found[0]) | u128::from(found[1]) << 64;
            let expected = expected(a[index], b[index]);
            assert_eq!(found, expected, "{name} of {:#x} and {:#x}", a[index], b[index]);
        }
    }
}

#[test]
fn quotients_of_128_bits() {
    check("divide", |a, b| a / b);
    check("divide_signed", |a, b| (a as i128).wrapping_div(b as i128) as u128);
}

#[test]
fn remainders_of_128_bits() {
    check("modulo", |a, b| a % b);
}

#[test]
fn differences_of_96_bits_and_their_carry() {
    const LOW: u128 = (1 << 96) - 1;
    check("difference_96", |a, b| {
        let (a, b) = (a & LOW, b & LOW);
        a.wrapping_sub(b) & LOW | u128::from(a >= b) << 96
    });
}
