//! Heads of more elements than any engine of attention takes: products with a softmax between.

use std::sync::Arc;

use kiln::expr::{Mode, Pointwise, Program, Real};
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Softcap};
use kiln::{DType, ErrorKind};

use crate::attention::cases::{self, Case, Storage};
use crate::attention::features::{SHAPE, features};
use crate::harness;

const WIDE: AttentionShape =
    AttentionShape { queries: 19, keys: 23, depth: 1032, width: 24, ..SHAPE };

/// Features that only an engine of attention has, by what is said of them.
const REFUSED: [(&str, &str); 4] = [
    ("pages", "keys in pages"),
    ("sequences", "queries of sequences one behind the other"),
    ("sequences of pages", "keys in pages"),
    ("dropout", "dropout"),
];

/// Runs a case in several parts.
fn check(case: &Case, what: &str) {
    for kiln in harness::dialects() {
        let plan = kiln.plan(&case.graph).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let engines: Vec<&str> =
            plan.parts().iter().map(|part| part.config.engine.as_ref()).collect();
        let products = engines.iter().filter(|engine| engine.starts_with("gemm_")).count();
        assert!(products == 2, "{what}: {engines:?}");
        let actual = harness::run_plan(kiln, &plan, &case.inputs).expect("it runs");
        let what = format!("{what} on {}: {engines:?}", kiln.device().target().name);
        harness::compare(&case.graph, &case.inputs, &actual, &what);
    }
}

#[test]
fn wide_heads_are_products() {
    for (name, op) in features() {
        let score = op.score.as_ref().map(|_| Arc::new(cases::score_program(&WIDE, DType::F32)));
        let op = Attention { score, ..op };
        let case = cases::case(op, WIDE, Storage::packed(DType::F16), [true; 4]);
        let Some((_, rule)) = REFUSED.iter().find(|(refused, _)| *refused == name) else {
            check(&case, name);
            continue;
        };
        let error = harness::kiln().plan(&case.graph).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported, "{name}: {error}");
        let text = error.to_string();
        assert!(text.contains("heads of 1032 and 24 elements, more than 1024"), "{text}");
        assert!(text.contains(&format!("attention as products: {rule}")), "{text}");
    }
}

#[test]
fn types_layouts_and_combinations_of_wide_heads() {
    let op = |math| Attention {
        softcap: Some(Softcap { cap: Real::new(2.0), last: true }),
        band: Band { diagonal: Diagonal::BottomRight, left: Some(12), right: Some(2) },
        bias: true,
        slopes: true,
        mask: true,
        sinks: true,
        query_lengths: true,
        key_lengths: true,
        descale_k: true,
        descale_v: true,
        statistics: true,
        ..Attention::new(math)
    };
    for (math, dtype) in [
        (MatmulMath::F32, DType::Bf16),
        (MatmulMath::F32, DType::F32),
        (MatmulMath::Tf32, DType::F32),
        (MatmulMath::F64, DType::F64),
    ] {
        let shape = AttentionShape { depth: 24, width: 1032, ..WIDE };
        let positions_first = dtype == DType::F32;
        let storage = Storage { positions_first, ..Storage::packed(dtype) };
        let case = cases::case(op(math), shape, storage, [true, true, false, true]);
        check(&case, &format!("{dtype} in {}", math.name()));
    }
}

/// A program that gives one captured tensor or another, whatever the score, by the head.
#[test]
fn programs_that_select_what_they_capture() {
    let mut program = Program::new();
    program.input("score", DType::F32);
    let table = program.input("table", DType::F16);
    let head = program.index("head", 1, WIDE.heads);
    let one = Pointwise::new(Mode::ReluFwd).relu(2.0, 2.0, 0.0);
    let two = program.push("two", one, &[head], DType::F32).unwrap();
    let first =
        program.push("first", Pointwise::new(Mode::CmpLt), &[head, two], DType::F32).unwrap();
    let chosen = Pointwise::new(Mode::BinarySelect);
    let chosen = program.push("chosen", chosen, &[table, head, first], DType::F32).unwrap();
    program.output(chosen);
    let op = Attention { score: Some(Arc::new(program)), ..Attention::new(MatmulMath::F32) };
    let case = cases::case(op, WIDE, Storage::packed(DType::F16), [false, false, false, true]);
    check(&case, "select");
}

#[test]
fn what_products_can_not_be_is_refused_by_rule() {
    let refused = |case: &Case, rule: &str| {
        let error = harness::kiln().plan(&case.graph).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
        assert!(error.to_string().contains(rule), "{error}");
    };
    let plain = Attention::new(MatmulMath::F32);
    let eight = [DType::F16, DType::F8E4M3, DType::F16, DType::F16].map(Storage::packed);
    let case = cases::case_of(plain.clone(), WIDE, eight, [true; 4], 1);
    refused(&case, "attention as products: `k` is f8e4m3 or by value");
    let empty = AttentionShape { keys: 0, ..WIDE };
    let case = cases::case(plain, empty, Storage::packed(DType::F16), [true; 4]);
    refused(&case, "attention as products: there are no scores: [2, 4, 19, 0]");
}
