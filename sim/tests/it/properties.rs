//! Properties over random operands: what the machine computes is what Rust computes.

use crate::run::{device, download, launch, line, upload};
use kiln_sim::Module;
use proptest::prelude::*;

/// Applies one instruction to 64 pairs of words; `%r1` and `%r2` are the operands.
fn apply(body: &str, pairs: &[(u32, u32)]) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param \
         .u64 b, .param .u64 o)\n{{\n.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .f32 \
         %f<4>; .reg .b64 %rd<8>;\nld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 \
         %rd3, [o];\nmov.u32 %r0, %tid.x; mul.wide.u32 %rd4, %r0, 4;\nadd.s64 %rd1, %rd1, %rd4; \
         add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;\nld.global.u32 %r1, [%rd1]; \
         ld.global.u32 %r2, [%rd2]; mov.b32 %f1, %r1; mov.b32 %f2, %r2;\n{body}\nst.global.u32 \
         [%rd3], %r3;\nret;\n}}\n"
    );
    let kernel = Module::load(&text).unwrap().kernel("k").unwrap();
    let device = device();
    let a: Vec<u32> = pairs.iter().map(|pair| pair.0).collect();
    let b: Vec<u32> = pairs.iter().map(|pair| pair.1).collect();
    let out = upload(&device, &vec![0_u32; pairs.len()]);
    let values = [upload(&device, &a), upload(&device, &b), out];
    launch(&device, &kernel, line(1, pairs.len() as u32), &values);
    download(&device, out, pairs.len())
}

fn pairs() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let word = prop_oneof![any::<u32>(), 0_u32..70, (0_u32..70).prop_map(u32::wrapping_neg)];
    prop::collection::vec((word.clone(), word), 64)
}

/// Singles, the special and the subnormal among them.
fn floats() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let special = prop::sample::select(vec![
        0,
        1,
        0x7f80_0000,
        0x7fc0_0000,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0x3f80_0000,
    ]);
    let sign = any::<bool>().prop_map(|sign| u32::from(sign) << 31);
    let special = (special, sign).prop_map(|(bits, sign)| bits | sign);
    let small = (0x3000_0000_u32..0x4fff_ffff).prop_map(|bits| bits);
    let word = prop_oneof![any::<u32>(), special, small];
    prop::collection::vec((word.clone(), word), 64)
}

fn check(body: &str, pairs: &[(u32, u32)], want: impl Fn(u32, u32) -> u32) {
    for (&(a, b), got) in pairs.iter().zip(apply(body, pairs)) {
        assert_eq!(got, want(a, b), "{body} of {a:#x}, {b:#x}: {got:#x}");
    }
}

fn canonical(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

fn check_float(body: &str, pairs: &[(u32, u32)], want: impl Fn(f32, f32) -> f32) {
    check(&format!("{body} mov.b32 %r3, %f3;"), pairs, |a, b| {
        canonical(want(f32::from_bits(a), f32::from_bits(b)))
    });
}

/// A failing seed becomes a case of its own, not a file.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn integers(pairs in pairs()) {
        check("add.u32 %r3, %r1, %r2;", &pairs, u32::wrapping_add);
        check("sub.s32 %r3, %r1, %r2;", &pairs, u32::wrapping_sub);
        check("mul.lo.s32 %r3, %r1, %r2;", &pairs, u32::wrapping_mul);
        check("shl.b32 %r3, %r1, %r2;", &pairs, |a, b| a.checked_shl(b).unwrap_or(0));
        check("shr.u32 %r3, %r1, %r2;", &pairs, |a, b| a.checked_shr(b).unwrap_or(0));
        check("shr.s32 %r3, %r1, %r2;", &pairs, |a, b| (a as i32 >> b.min(31)) as u32);
        check("min.s32 %r3, %r1, %r2;", &pairs, |a, b| (a as i32).min(b as i32) as u32);
        check("mul.hi.s32 %r3, %r1, %r2;", &pairs, |a, b| {
            ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
        });
        check("bfe.u32 %r3, %r1, %r2, 7;", &pairs, |a, b| {
            a.checked_shr(b & 0xff).unwrap_or(0) & 0x7f
        });
        check("setp.le.s32 %p1, %r1, %r2; selp.u32 %r3, 1, 0, %p1;", &pairs, |a, b| {
            u32::from(a as i32 <= b as i32)
        });
    }

    #[test]
    fn singles(pairs in floats()) {
        check_float("add.f32 %f3, %f1, %f2;", &pairs, |a, b| a + b);
        check_float("mul.f32 %f3, %f1, %f2;", &pairs, |a, b| a * b);
        check_float("div.rn.f32 %f3, %f1, %f2;", &pairs, |a, b| a / b);
        check_float("fma.rn.f32 %f3, %f1, %f2, %f1;", &pairs, |a, b| a.mul_add(b, a));
        check_float("sqrt.rn.f32 %f3, %f1;", &pairs, |a, _| a.sqrt());
        check_float("rcp.rn.f32 %f3, %f1;", &pairs, |a, _| 1.0 / a);
        check_float("cvt.rzi.f32.f32 %f3, %f1;", &pairs, |a, _| a.trunc());
        check("cvt.rzi.s32.f32 %r3, %f1;", &pairs, |a, _| f32::from_bits(a) as i32 as u32);
        check("cvt.rni.u32.f32 %r3, %f1;", &pairs, |a, _| {
            f32::from_bits(a).round_ties_even() as u32
        });
    }

    #[test]
    fn halves(pairs in floats()) {
        let f16 = |bits: u32| half::f16::from_bits(bits as u16);
        let bits = |value: half::f16| {
            u32::from(if value.is_nan() { 0x7fff } else { value.to_bits() })
        };
        check("cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r3, %h1;", &pairs, |a, _| {
            bits(half::f16::from_f32(f32::from_bits(a)))
        });
        check("cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r3, %h1;", &pairs, |a, _| {
            let value = half::bf16::from_f32(f32::from_bits(a));
            u32::from(if value.is_nan() { 0x7fff } else { value.to_bits() })
        });
        check("cvt.u16.u32 %h1, %r1; cvt.f32.f16 %f3, %h1; mov.b32 %r3, %f3;", &pairs, |a, _| {
            canonical(f16(a).to_f32())
        });
        let operands = "cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2;";
        let result = "cvt.u32.u16 %r3, %h3;";
        // Twice f16's digits and two more: rounding to single first changes nothing.
        check(&format!("{operands} mul.f16 %h3, %h1, %h2; {result}"), &pairs, |a, b| {
            bits(half::f16::from_f32(f16(a).to_f32() * f16(b).to_f32()))
        });
        check(&format!("{operands} add.f16 %h3, %h1, %h2; {result}"), &pairs, |a, b| {
            bits(half::f16::from_f32(f16(a).to_f32() + f16(b).to_f32()))
        });
    }
}

/// Every f16 there is, both ways.
#[test]
fn every_f16_converts_there_and_back() {
    let all: Vec<(u32, u32)> = (0..=0xffff).map(|bits| (bits, 0)).collect();
    for chunk in all.chunks(1024) {
        let body = "cvt.u16.u32 %h1, %r1; cvt.f32.f16 %f3, %h1; cvt.rn.f16.f32 %h2, %f3; \
                    cvt.u32.u16 %r3, %h2;";
        check(body, chunk, |bits, _| if bits & 0x7fff > 0x7c00 { 0x7fff } else { bits });
    }
}
