//! Feature by feature and in all combinations, on every engine that takes them, sanitized, in both
//! dialects.

use std::sync::Arc;

use kiln::DType;
use kiln::engine;
use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Softcap};

use crate::attention::cases::{self, Case, Storage};
use crate::harness;
use crate::settings::legal;

/// The engines of the family.
pub const ENGINES: [&str; 4] =
    ["attention_decode", "attention_mma", "attention_simt", "attention_wgmma"];

/// Runs a case on every engine that takes it, at its heuristic setting, and gives their names.
#[track_caller]
pub fn check(case: &Case, what: &str) -> Vec<&'static str> {
    let mut ran = Vec::new();
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        for name in ENGINES {
            let Ok(supported) = engine::supported(name, case.graph.canonical(), target) else {
                continue;
            };
            let config = supported.heuristic();
            let what = format!("{what}: {config} on {}", target.name);
            harness::check(kiln, &case.graph, Some(&config), &case.inputs, &what);
            ran.push(name);
        }
    }
    assert!(!ran.is_empty(), "{what}: no engine takes {}", case.graph);
    ran
}

pub const SHAPE: AttentionShape = AttentionShape {
    batches: 2,
    heads: 4,
    kv_heads: 2,
    queries: 37,
    keys: 55,
    depth: 32,
    width: 32,
};

/// Each feature by itself, and what it changes of plain attention.
pub fn features() -> Vec<(&'static str, Attention)> {
    features_in(MatmulMath::F32)
}

fn features_in(math: MatmulMath) -> Vec<(&'static str, Attention)> {
    let plain = Attention::new(math);
    let dtype = math.dtype();
    let score = |program| Attention { score: Some(Arc::new(program)), ..plain.clone() };
    let band =
        |diagonal, left, right| Attention { band: Band { diagonal, left, right }, ..plain.clone() };
    let softcap = |last| Some(Softcap { cap: Real::new(0.75), last });
    let (top, bottom) = (Diagonal::TopLeft, Diagonal::BottomRight);
    vec![
        ("plain", plain.clone()),
        ("scale", Attention { scale: Some(Real::new(1.5)), ..plain.clone() }),
        ("statistics", Attention { statistics: true, ..plain.clone() }),
        ("causal", band(top, None, Some(0))),
        ("causal at the end", band(bottom, None, Some(0))),
        ("window", band(top, Some(9), Some(3))),
        ("window at the end", band(bottom, Some(20), Some(0))),
        ("one key", band(bottom, Some(0), Some(0))),
        ("wide window", band(top, Some(i64::MAX), Some(i64::MAX))),
        ("intervals", Attention { intervals: true, ..plain.clone() }),
        ("softcap", Attention { softcap: softcap(false), ..plain.clone() }),
        ("bias", Attention { bias: true, ..plain.clone() }),
        ("softcap of bias", Attention { bias: true, softcap: softcap(true), ..plain.clone() }),
        ("slopes", Attention { slopes: true, ..plain.clone() }),
        ("mask", Attention { mask: true, ..plain.clone() }),
        ("sinks", Attention { sinks: true, statistics: true, ..plain.clone() }),
        ("query lengths", Attention { query_lengths: true, statistics: true, ..plain.clone() }),
        ("key lengths", Attention { key_lengths: true, statistics: true, ..plain.clone() }),
        (
            "lengths at the end",
            Attention { query_lengths: true, key_lengths: true, ..band(bottom, Some(30), Some(0)) },
        ),
        ("pages", Attention { paged: true, key_lengths: true, ..band(bottom, None, Some(0)) }),
        (
            "sequences",
            Attention {
                queries_max: Some(SHAPE.queries),
                keys_max: Some(SHAPE.keys),
                statistics: true,
                ..band(bottom, None, Some(0))
            },
        ),
        (
            "sequences of pages",
            Attention { queries_max: Some(SHAPE.queries), paged: true, ..plain.clone() },
        ),
        ("dropout", Attention { dropout: Some(Real::new(0.3)), ..plain.clone() }),
        ("score", score(cases::score_program(&SHAPE, dtype))),
        ("score by itself", score(cases::wave_program(dtype))),
        ("score by data alone", score(cases::captured_program(dtype))),
        ("score by its place", score(cases::place_program(&SHAPE, dtype))),
        ("keep", Attention { keep: Some(Arc::new(cases::keep_program(dtype))), ..plain.clone() }),
    ]
}

/// Every engine takes every feature; the other tests need not ask for that.
#[test]
fn each_feature_by_itself() {
    for (name, op) in features() {
        // Whole pages of keys are what TMA copies take.
        let shape = AttentionShape { keys: if op.paged { 56 } else { 55 }, ..SHAPE };
        let storage = Storage { page: 8, ..Storage::packed(DType::F16) };
        let ran = check(&cases::case(op, shape, storage, [true; 4]), &format!("{name} of f16"));
        assert!(ENGINES.iter().all(|engine| ran.contains(engine)), "{name}: {ran:?}");
    }
}

#[test]
fn each_feature_by_itself_in_single_and_double_precision() {
    for (math, dtype) in [(MatmulMath::F32, DType::F32), (MatmulMath::F64, DType::F64)] {
        for (name, op) in features_in(math) {
            let case = cases::case(op, SHAPE, Storage::packed(dtype), [true; 4]);
            check(&case, &format!("{name} of {dtype}"));
        }
    }
}

#[test]
fn operands_are_broadcast() {
    let (bias, mask, intervals) = (true, true, true);
    let op = Attention { bias, mask, intervals, ..Attention::new(MatmulMath::F32) };
    for broadcast in 0..16 {
        let dims = [0, 1, 2, 3].map(|axis| broadcast >> axis & 1 == 1);
        let shape = AttentionShape { queries: 9, keys: 19, ..SHAPE };
        let case = cases::case(op.clone(), shape, Storage::packed(DType::F16), dims);
        check(&case, &format!("broadcast {dims:?}"));
    }
}

#[test]
fn double_precision_and_tf32() {
    for math in [MatmulMath::F64, MatmulMath::Tf32] {
        for dtype in [DType::F64, DType::F32] {
            let op = Attention {
                softcap: Some(Softcap { cap: Real::new(2.0), last: false }),
                bias: true,
                slopes: true,
                dropout: Some(Real::new(0.5)),
                keep: Some(Arc::new(cases::keep_program(math.dtype()))),
                statistics: true,
                band: Band::causal(Diagonal::BottomRight),
                ..Attention::new(math)
            };
            let case = cases::case(op, SHAPE, Storage::packed(dtype), [true; 4]);
            check(&case, &format!("{dtype} in {}", math.name()));
        }
    }
}

/// Lengths, intervals and entries of page tables that are out of range count as the nearest that
/// are in it: nothing else is read, nothing becomes NaN.
#[test]
fn numbers_out_of_range_are_limited() {
    let plain = Attention { statistics: true, ..Attention::new(MatmulMath::F32) };
    let (query_lengths, key_lengths) = (true, true);
    for (name, op) in [
        ("lengths", Attention { query_lengths, key_lengths, intervals: true, ..plain.clone() }),
        ("pages", Attention { paged: true, key_lengths, ..plain.clone() }),
        (
            "offsets",
            Attention { queries_max: Some(37), keys_max: Some(55), sinks: true, ..plain.clone() },
        ),
    ] {
        let shape = AttentionShape { keys: if op.paged { 56 } else { 55 }, ..SHAPE };
        let storage = Storage { page: 8, ..Storage::packed(DType::F16) };
        let mut case = cases::case(op, shape, storage, [true; 4]);
        let far = [i32::MIN, -1, 1000, i32::MAX, 12].map(f64::from);
        for tensor in case.graph.inputs().filter(|tensor| tensor.dtype == DType::I32) {
            let values = case.inputs.get_mut(&tensor.uid).unwrap();
            for (value, far) in values.iter_mut().zip(far.into_iter().cycle()) {
                *value = far;
            }
        }
        let ran = check(&case, name);
        assert!(ENGINES.iter().all(|engine| ran.contains(engine)), "{name}: {ran:?}");
    }
}

/// Every legal setting of these engines gives results within the bounds.
pub fn check_settings(engines: &[&str], case: &Case) {
    let kiln = harness::kiln();
    for name in engines {
        let mut ran = 0;
        for config in legal(&case.graph, name) {
            let plan = harness::planned(&case.graph, &config);
            let actual = harness::run_plan(kiln, &plan, &case.inputs).unwrap();
            harness::compare(&case.graph, &case.inputs, &actual, &config.to_string());
            ran += 1;
        }
        assert!(ran >= 12, "{name}: {ran} settings");
    }
}

#[test]
fn every_setting_of_the_knobs() {
    let (_, op) = features().swap_remove(17);
    check_settings(&ENGINES, &cases::case(op, SHAPE, Storage::packed(DType::F16), [true; 4]));
}

/// No operand of scores is read, so that the largest steps are legal, too.
#[test]
fn every_setting_with_dropout_and_a_long_program() {
    let op = Attention {
        key_lengths: true,
        statistics: true,
        dropout: Some(Real::new(0.2)),
        score: Some(Arc::new(cases::wave_program(DType::F32))),
        ..Attention::new(MatmulMath::F32)
    };
    check_settings(&ENGINES, &cases::case(op, SHAPE, Storage::packed(DType::F16), [true; 4]));
}
