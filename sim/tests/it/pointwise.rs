//! CUDA's pointwise functions against Rust's, in units in the last place of the result's type.

use crate::run::{Plain, device, dialects, download, launch, line, upload};
use kiln_sim::Module;

const COUNT: usize = 4099;

/// A sequence without structure, from a fixed seed.
fn noise(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

fn uniform(seed: u64, low: f64, high: f64) -> Vec<f64> {
    noise(seed)
        .take(COUNT)
        .map(|n| low + (high - low) * (n >> 11) as f64 / 2_f64.powi(53))
        .collect()
}

fn apply<T: Plain>(name: &str, stem: &str, a: &[T], b: &[T]) -> Vec<Vec<T>> {
    let device = device();
    let run = |module: Module| {
        let kernel = module.kernel(name).unwrap();
        let out = upload(&device, &vec![T::default(); a.len()]);
        let values = [upload(&device, a), upload(&device, b), out, a.len() as u64];
        launch(&device, &kernel, line(a.len().div_ceil(128) as u32, 128), &values);
        download(&device, out, a.len())
    };
    dialects(stem).into_iter().map(run).collect()
}

/// The distance of `got` from `want` in units in the last place of `want` as f32.
fn ulp_f32(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got == rounded || got.is_nan() && rounded.is_nan() {
        return 0.0;
    }
    let unit = f64::from(rounded.abs().max(f32::MIN_POSITIVE).next_up())
        - f64::from(rounded.abs().max(f32::MIN_POSITIVE));
    (f64::from(got) - want).abs() / unit
}

fn ulp_f64(got: f64, want: f64) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    (got - want).abs() / (want.abs().next_up() - want.abs())
}

/// Checks an f32 function on a range; bounds are the CUDA programming guide's, which count from the
/// rounded value: half a unit more from the exact one.
#[track_caller]
fn check(name: &str, (low, high): (f64, f64), bound: f64, reference: impl Fn(f64, f64) -> f64) {
    let a: Vec<f32> = uniform(1, low, high).iter().map(|&v| v as f32).collect();
    let b: Vec<f32> = uniform(2, low, high).iter().map(|&v| v as f32).collect();
    for out in apply(name, "pointwise", &a, &b) {
        for (i, &got) in out.iter().enumerate() {
            let want = reference(a[i].into(), b[i].into());
            let error = ulp_f32(got, want);
            assert!(
                error == 0.0 || error <= bound + 0.5,
                "{name}({}, {}) = {got}, not {want}: {error} ulp",
                a[i],
                b[i]
            );
        }
    }
}

#[track_caller]
fn check_f64(name: &str, (low, high): (f64, f64), bound: f64, reference: fn(f64, f64) -> f64) {
    let (a, b) = (uniform(3, low, high), uniform(4, low, high));
    for out in apply(name, "pointwise", &a, &b) {
        for (i, &got) in out.iter().enumerate() {
            let want = reference(a[i], b[i]);
            let error = ulp_f64(got, want);
            assert!(error <= bound, "{name}({}, {}) = {got}, not {want}: {error} ulp", a[i], b[i]);
        }
    }
}

#[test]
fn exponentials() {
    check("f32_exp", (-80.0, 80.0), 2.0, |x, _| x.exp());
    check("f32_exp2", (-100.0, 100.0), 2.0, |x, _| x.exp2());
    check("f32_expm1", (-5.0, 5.0), 1.0, |x, _| x.exp_m1());
    check("f32_log", (1e-3, 1e4), 1.0, |x, _| x.ln());
    check("f32_log2", (1e-3, 1e4), 1.0, |x, _| x.log2());
    check("f32_log1p", (-0.9, 10.0), 1.0, |x, _| x.ln_1p());
    check("f32_pow", (0.1, 9.0), 4.0, f64::powf);
}

#[test]
fn trigonometry() {
    check("f32_sin", (-50.0, 50.0), 2.0, |x, _| x.sin());
    check("f32_cos", (-50.0, 50.0), 2.0, |x, _| x.cos());
    check("f32_sin", (-1e8, 1e8), 2.0, |x, _| x.sin());
    check("f32_tan", (-20.0, 20.0), 4.0, |x, _| x.tan());
    check("f32_atan", (-20.0, 20.0), 2.0, |x, _| x.atan());
    check("f32_atan2", (-20.0, 20.0), 3.0, f64::atan2);
    check("f32_tanh", (-9.0, 9.0), 2.0, |x, _| x.tanh());
    check("f32_sinh", (-9.0, 9.0), 3.0, |x, _| x.sinh());
}

#[test]
fn error_function() {
    check("f32_erf", (-4.0, 4.0), 2.0, |x, _| libm::erf(x));
    check("f32_erfc", (-4.0, 9.0), 4.0, |x, _| libm::erfc(x));
}

#[test]
fn roots() {
    check("f32_cbrt", (-1e5, 1e5), 1.0, |x, _| x.cbrt());
    check("f32_sqrt", (0.0, 1e5), 0.5, |x, _| x.sqrt());
    check("f32_rsqrt", (1e-5, 1e5), 2.0, |x, _| 1.0 / x.sqrt());
}

#[test]
fn exact_arithmetic() {
    let range = (-1e3, 1e3);
    check("f32_floor", range, 0.0, |x, _| x.floor());
    check("f32_ceil", range, 0.0, |x, _| x.ceil());
    check("f32_trunc", range, 0.0, |x, _| x.trunc());
    check("f32_rint", range, 0.0, |x, _| x.round_ties_even());
    check("f32_round", range, 0.0, |x, _| x.round());
    check("f32_fmod", range, 0.0, |x, y| x % y);
    check("f32_div", range, 0.0, |x, y| f64::from(x as f32 / y as f32));
    check("f32_fma", range, 0.0, |x, y| f64::from((x as f32).mul_add(y as f32, x as f32)));
    check("f32_min", range, 0.0, f64::min);
    check("f32_max", range, 0.0, f64::max);
    let toward_zero = |sum: f64| {
        let near = sum as f32;
        if f64::from(near).abs() > sum.abs() { near.abs().next_down().copysign(near) } else { near }
    };
    check("f32_add_rz", range, 0.0, |x, y| toward_zero(x + y).into());
    let up = |product: f64| {
        let near = product as f32;
        if f64::from(near) < product { near.next_up() } else { near }
    };
    check("f32_mul_ru", range, 0.0, |x, y| up(x * y).into());
}

#[test]
fn fast_math() {
    // ex2.approx is within 2 ulp; the product before it loses |x| * 2^-24 of the exponent.
    check("f32_fast_exp", (-10.0, 10.0), 20.0, |x, _| x.exp());
    check("f32_fast_div", (1.0, 100.0), 2.0, |x, y| x / y);
    let a: Vec<f32> = uniform(1, 0.6, 3.0).iter().map(|&v| v as f32).collect();
    for (name, reference) in
        [("f32_fast_log", f64::ln as fn(f64) -> f64), ("f32_fast_sin", f64::sin)]
    {
        for out in apply(name, "pointwise", &a, &a) {
            for (x, got) in a.iter().zip(out) {
                let error = (f64::from(got) - reference((*x).into())).abs();
                assert!(error < 2_f64.powi(-21), "{name}({x}) = {got}");
            }
        }
    }
    let gelu = |x: f64| 0.5 * x * (1.0 + libm::erf(x * 0.5_f64.sqrt()));
    check("f32_gelu_erf", (0.0, 5.0), 4.0, |x, _| gelu(x));
    check("f32_silu", (0.0, 5.0), 6.0, |x, _| x / (1.0 + (-x).exp()));
}

#[test]
fn double_precision() {
    check_f64("f64_exp", (-300.0, 300.0), 2.0, |x, _| x.exp());
    check_f64("f64_log", (1e-9, 1e9), 2.0, |x, _| x.ln());
    check_f64("f64_sin", (-1e3, 1e3), 3.0, |x, _| x.sin());
    check_f64("f64_cos", (-1e3, 1e3), 3.0, |x, _| x.cos());
    check_f64("f64_tanh", (-9.0, 9.0), 3.0, |x, _| x.tanh());
    check_f64("f64_erf", (-4.0, 4.0), 3.0, |x, _| libm::erf(x));
    check_f64("f64_pow", (0.1, 9.0), 3.0, f64::powf);
    check_f64("f64_fmod", (-1e3, 1e3), 0.0, |x, y| x % y);
    check_f64("f64_sqrt", (0.0, 1e3), 0.0, |x, _| x.sqrt());
    check_f64("f64_div", (-1e3, 1e3), 0.0, |x, y| x / y);
}

#[track_caller]
fn check_bits<T: Plain>(name: &str, from: fn(u64) -> T, reference: impl Fn(T, T) -> T) {
    // Few bits every other time, so that quotients are not all zero.
    let draw = |seed| -> Vec<T> {
        let values = noise(seed).take(COUNT).enumerate();
        values.map(|(i, n)| from(if i % 2 == 0 { n } else { n >> (n % 61) })).collect()
    };
    let (a, b) = (draw(5), draw(6));
    for out in apply(name, "pointwise", &a, &b) {
        for i in 0..COUNT {
            assert_eq!(out[i], reference(a[i], b[i]), "{name}({:?}, {:?})", a[i], b[i]);
        }
    }
}

#[test]
fn integers() {
    let word = |n: u64| n as u32;
    check_bits("s32_div", |n| n as i32, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) });
    check_bits("s32_rem", |n| n as i32, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) });
    check_bits("u32_div", word, |x: u32, y| x.checked_div(y).unwrap_or(0));
    check_bits("u32_rem", word, |x: u32, y| x.checked_rem(y).unwrap_or(0));
    check_bits("s64_div", |n| n as i64, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) });
    check_bits("u64_rem", |n| n, |x, y| x.checked_rem(y).unwrap_or(0));
    check_bits("u32_mulhi", word, |x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32);
    check_bits("u64_mulhi", |n| n, |x, y| ((u128::from(x) * u128::from(y)) >> 64) as u64);
    check_bits("u32_bits", word, |x, y| {
        let first = if x == 0 { 0 } else { x.trailing_zeros() + 1 };
        (x.count_ones() + 100 * x.leading_zeros() + 10000 * first).wrapping_add(y.reverse_bits())
    });
    check_bits("u32_byte_perm", word, |x, y| {
        let bytes = u64::from(x) | u64::from(y) << 32;
        let byte = |at: u64| (bytes >> (8 * at)) as u8;
        u32::from_le_bytes([byte(5), byte(1), byte(7), byte(3)])
    });
    check_bits("u32_funnel", word, |x, y| {
        let both = u64::from(y) << 32 | u64::from(x);
        let left = (both << (x & 31) >> 32) as u32;
        left ^ (both >> (y & 63).min(32)) as u32
    });
}

fn bf16_to_f64(bits: u16) -> f64 {
    f32::from_bits(u32::from(bits) << 16).into()
}

#[test]
fn bf16_chain() {
    let bits = |seed| -> Vec<u16> {
        uniform(seed, -3.0, 3.0).iter().map(|&v| ((v as f32).to_bits() >> 16) as u16).collect()
    };
    let (a, b) = (bits(7)[..4096].to_vec(), bits(8)[..4096].to_vec());
    let erf = |x: f64| 0.5 * x * (1.0 + libm::erf(x * 0.5_f64.sqrt()));
    let tanh = |x: f64| 0.5 * x * (1.0 + (0.797_884_56 * (x + 0.044_715 * x * x * x)).tanh());
    let device = device();
    for module in dialects("halves") {
        for (name, gelu) in [("bf16_gelu_erf", erf as fn(f64) -> f64), ("bf16_gelu_tanh", tanh)] {
            let kernel = module.kernel(name).unwrap();
            let out = upload(&device, &[0_u16; 4096]);
            let alpha = u64::from(1.5_f32.to_bits());
            let values = [upload(&device, &a), upload(&device, &b), out, 512, alpha];
            launch(&device, &kernel, line(2, 256), &values);
            let out: Vec<u16> = download(&device, out, 4096);
            for i in 0..4096 {
                let want = gelu(bf16_to_f64(a[i]) * 1.5 + bf16_to_f64(b[i]));
                let got = bf16_to_f64(out[i]);
                // Half a unit of bf16, and what cancellation leaves of f32.
                let bound = want.abs() / 250.0 + 1e-6;
                assert!((got - want).abs() <= bound, "{name} {i}: {got}, not {want}");
            }
        }
    }
}

#[test]
fn f16_scalars() {
    let a: Vec<u16> = noise(9).take(COUNT).map(|n| n as u16 & 0xbfff).collect();
    let b: Vec<u16> = noise(10).take(COUNT).map(|n| n as u16 & 0xbfff).collect();
    for out in apply("f16_scalar", "halves", &a, &b) {
        for i in 0..COUNT {
            let product = half::f16::from_bits(a[i]).to_f32() * half::f16::from_bits(b[i]).to_f32();
            assert_eq!(out[i], half::f16::from_f32(product).to_bits(), "{:#x} {:#x}", a[i], b[i]);
        }
    }
}
