//! `Accuracy::Worst`: approximate functions use their documented errors and stay within them, and
//! tensor cores truncate.

use crate::run::{device, download, line, params, upload};
use half::f16;
use kiln_sim::{Accuracy, Module};

/// `y[i] = f(x[i])` for 4096 values, by these instructions on `%f1`, and `%f2`, a third of it.
fn applied(instruction: &str, accuracy: Accuracy, x: &[f32]) -> Vec<f32> {
    let text = format!(
        ".version 8.0 .target sm_90 .address_size 64
         .visible .entry apply(.param .u64 x, .param .u64 y) {{
             .reg .b32 %r<4>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
             ld.param.u64 %rd1, [x];
             ld.param.u64 %rd2, [y];
             mov.u32 %r1, %ctaid.x;
             mov.u32 %r2, %tid.x;
             mad.lo.u32 %r3, %r1, 256, %r2;
             mul.wide.u32 %rd3, %r3, 4;
             add.s64 %rd4, %rd1, %rd3;
             add.s64 %rd5, %rd2, %rd3;
             ld.global.f32 %f1, [%rd4];
             mul.f32 %f2, %f1, 0f3eaaaaab;
             {instruction}
             st.global.f32 [%rd5], %f3;
             ret;
         }}"
    );
    let module = Module::load_with(&text, accuracy).unwrap_or_else(|error| panic!("{error}"));
    let (kernel, device) = (module.kernel("apply").unwrap(), device());
    let [from, to] = [x, &vec![0.0; x.len()]].map(|values| upload(&device, values));
    let shape = line(x.len() as u32 / 256, 256);
    device.launch(&kernel, &shape, &params(&kernel, &[from, to])).unwrap();
    download(&device, to, x.len())
}

#[test]
fn functions_are_off_by_what_is_documented() {
    /// The instruction, the function of its operand, and the error of a value.
    type Case<'a> = (&'a str, fn(f64) -> f64, &'a dyn Fn(f64) -> f64);
    let relative = |power: f64| move |exact: f64| exact.abs() * power.exp2();
    let (ulp, third) = (relative(-23.0), f64::from(f32::from_bits(0x3eaa_aaab)));
    let logarithm = |exact: f64| exact.abs().max(1.0) * (-22_f64).exp2();
    let sine = |_: f64| (-20.9_f64).exp2();
    let cases: [Case<'_>; 11] = [
        ("rcp.approx.f32 %f3, %f1;", |x| 1.0 / x, &ulp),
        ("rcp.approx.ftz.f32 %f3, %f1;", |x| 1.0 / x, &ulp),
        ("sqrt.approx.f32 %f3, %f1;", f64::sqrt, &ulp),
        ("rsqrt.approx.f32 %f3, %f1;", |x| 1.0 / x.sqrt(), &relative(-22.9)),
        ("ex2.approx.f32 %f3, %f1;", f64::exp2, &relative(-22.0)),
        ("lg2.approx.f32 %f3, %f1;", f64::log2, &logarithm),
        ("sin.approx.f32 %f3, %f1;", f64::sin, &sine),
        ("cos.approx.f32 %f3, %f1;", f64::cos, &sine),
        ("tanh.approx.f32 %f3, %f1;", f64::tanh, &relative(-11.0)),
        ("div.approx.f32 %f3, %f2, %f1;", |_| f64::NAN, &relative(-22.0)),
        ("div.full.f32 %f3, %f2, %f1;", |_| f64::NAN, &relative(-22.0)),
    ];
    let x: Vec<f32> = (1..=4096).map(|at| at as f32 / 1311.0).collect();
    for (instruction, function, bound) in cases {
        let exact: Vec<f64> = match instruction.starts_with("div") {
            true => {
                x.iter().map(|&x| f64::from((f64::from(x) * third) as f32) / f64::from(x)).collect()
            }
            false => x.iter().map(|&x| function(f64::from(x))).collect(),
        };
        let worst = |accuracy: Accuracy| {
            let values = applied(instruction, accuracy, &x);
            let errors = values
                .iter()
                .zip(&exact)
                .map(|(value, exact)| (f64::from(*value) - exact) / bound(*exact));
            errors.fold([0.0_f64; 2], |[low, high], error| [low.min(error), high.max(error)])
        };
        let [low, high] = worst(Accuracy::Worst);
        assert!((-1.0..=-0.75).contains(&low), "{instruction} {low}");
        assert!(
            (0.75..=1.0).contains(&high) || instruction.starts_with("tanh"),
            "{instruction} {high}"
        );
        let [low, high] = worst(Accuracy::Nearest);
        assert!(low > -0.51 && high < 0.51, "{instruction} {low} {high}");
    }
    // What is no number, or none that is finite, stays.
    for (instruction, x, expected) in [
        ("rcp.approx.f32 %f3, %f1;", 0.0, f32::INFINITY),
        ("rcp.approx.f32 %f3, %f1;", f32::NEG_INFINITY, -0.0),
        ("ex2.approx.f32 %f3, %f1;", f32::NEG_INFINITY, 0.0),
        ("ex2.approx.f32 %f3, %f1;", 200.0, f32::INFINITY),
        ("ex2.approx.f32 %f3, %f1;", -7.0, 1.0 / 128.0),
        ("ex2.approx.ftz.f32 %f3, %f1;", -0.0, 1.0),
        ("sin.approx.f32 %f3, %f1;", -0.0, -0.0),
        ("cos.approx.f32 %f3, %f1;", 0.0, 1.0),
        ("lg2.approx.f32 %f3, %f1;", 0.0, f32::NEG_INFINITY),
        ("tanh.approx.f32 %f3, %f1;", f32::INFINITY, 1.0),
        ("sqrt.approx.f32 %f3, %f1;", 0.0, 0.0),
    ] {
        let found = applied(instruction, Accuracy::Worst, &[x; 256])[0];
        let distance = if instruction.starts_with("tanh") { 2_f32.powi(-11) } else { 0.0 };
        let same = found == expected || (found - expected).abs() <= distance;
        assert!(same, "{instruction} of {x} is {found}");
    }
    assert!(applied("sqrt.approx.f32 %f3, %f1;", Accuracy::Worst, &[-1.0; 256])[0].is_nan());
}

/// An element of D = A x B + 1 by `mma.sync` m16n8k16, where a row of A has these first elements,
/// and B is `b`.
fn multiplied(target: &str, accuracy: Accuracy, a: [f32; 2], b: f32) -> f32 {
    let pair = |[low, high]: [f32; 2]| {
        let bits = |value| u32::from(f16::from_f32(value).to_bits());
        bits(low) | bits(high) << 16
    };
    let (first, rest, b) = (pair(a), pair([a[1]; 2]), pair([b; 2]));
    let text = format!(
        ".version 8.0 .target {target} .address_size 64
         .visible .entry multiply(.param .u64 y) {{
             .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<5>;
             ld.param.u64 %rd1, [y];
             mov.u32 %r1, %tid.x;
             and.b32 %r2, %r1, 3;
             setp.eq.u32 %p, %r2, 0;
             mov.b32 %r3, {rest};
             @%p mov.b32 %r3, {first};
             mov.b32 %r4, {rest};
             mov.b32 %r5, {b};
             mov.f32 %f1, 0f3f800000;
             mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
                 {{%f1, %f2, %f3, %f4}}, {{%r3, %r3, %r4, %r4}}, {{%r5, %r5}},
                 {{%f1, %f1, %f1, %f1}};
             mul.wide.u32 %rd2, %r1, 4;
             add.s64 %rd3, %rd1, %rd2;
             st.global.f32 [%rd3], %f1;
             ret;
         }}"
    );
    let module = Module::load_with(&text, accuracy).unwrap_or_else(|error| panic!("{error}"));
    let (kernel, device) = (module.kernel("multiply").unwrap(), device());
    let to = upload(&device, &[0_f32; 32]);
    device.launch(&kernel, &line(1, 32), &params(&kernel, &[to])).unwrap();
    let out: Vec<f32> = download(&device, to, 32);
    assert!(out.iter().all(|value| value == &out[0]), "{out:?}");
    out[0]
}

#[test]
fn tensor_cores_truncate() {
    use Accuracy::{Nearest, Worst};
    let tiny = |power: i32| 2_f32.powi(power);
    // 16 products of 2^-25 beside 1: lost one by one; Hopper keeps them, Ampere cuts each.
    let many = |target, accuracy| multiplied(target, accuracy, [tiny(-13); 2], tiny(-12));
    assert_eq!(many("sm_90a", Nearest), 1.0);
    assert_eq!(many("sm_90a", Worst), 1.0 + tiny(-21));
    assert_eq!(many("sm_80", Worst), 1.0);
    // A product of -2^-25: half an ulp less than 1 is cut to the number below.
    let one = |target, accuracy| multiplied(target, accuracy, [-tiny(-13), 0.0], tiny(-12));
    assert_eq!(one("sm_90a", Nearest), 1.0);
    assert_eq!(one("sm_90a", Worst), 1.0 - tiny(-24));
    assert_eq!(one("sm_80", Worst), 1.0);
}
