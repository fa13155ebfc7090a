//! What attention means: the reference against plain formulas, its form in JSON, its errors.

use std::collections::HashMap;

use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Op, Softcap};
use kiln::{DType, OperationGraph, reference};

use crate::attention::cases::{self, Case, Storage};

const SHAPE: AttentionShape =
    AttentionShape { batches: 2, heads: 4, kv_heads: 2, queries: 5, keys: 7, depth: 3, width: 6 };

fn case(op: Attention) -> Case {
    cases::case(op, SHAPE, Storage::packed(DType::F64), [true; 4])
}

fn f64_op() -> Attention {
    Attention::new(MatmulMath::F64)
}

/// The results by slot, from scores modified by `score` and left out where it gives `None`.
fn formula(
    case: &Case,
    scale: f64,
    score: impl Fn([usize; 4], f64) -> Option<f64>,
) -> (Vec<f64>, Vec<f64>) {
    let [q, k, v] = [1, 2, 3].map(|uid| &case.inputs[&uid]);
    let AttentionShape { batches, heads, queries, keys, depth, width, .. } = SHAPE;
    let [batches, heads, queries, keys, depth, width] =
        [batches, heads, queries, keys, depth, width].map(|extent| extent as usize);
    let (mut o, mut lse) = (Vec::new(), Vec::new());
    for (b, h, i) in (0..batches)
        .flat_map(|b| (0..heads).flat_map(move |h| (0..queries).map(move |i| (b, h, i))))
    {
        let kv = b * 2 + h / 2;
        let dot = |j: usize| -> f64 {
            let term =
                |d| q[((b * heads + h) * queries + i) * depth + d] * k[(kv * keys + j) * depth + d];
            (0..depth).map(term).sum()
        };
        let weight = |j: usize| score([b, h, i, j], scale * dot(j)).map_or(0.0, f64::exp);
        let sum: f64 = (0..keys).map(weight).sum();
        lse.push(sum.ln());
        o.extend((0..width).map(|column| {
            let total: f64 =
                (0..keys).map(|j| weight(j) * v[(kv * keys + j) * width + column]).sum();
            if sum == 0.0 { 0.0 } else { total / sum }
        }));
    }
    (o, lse)
}

#[track_caller]
fn close(have: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(have.len(), want.len());
    for (at, (have, want)) in have.iter().zip(want).enumerate() {
        let same = have == want || (have - want).abs() <= tolerance * (1.0 + want.abs());
        assert!(same, "at {at}: {have}, not {want}");
    }
}

#[track_caller]
fn means(op: Attention, score: impl Fn(&Case, [usize; 4], f64) -> Option<f64>) {
    let op = Attention { statistics: true, ..op };
    let scale = op.scale_of(SHAPE.depth);
    let case = case(op);
    let results = reference::evaluate(&case.graph, &case.inputs).unwrap();
    let (o, lse) = formula(&case, scale, |at, value| score(&case, at, value));
    close(&results[&100].values, &o, 1e-13);
    // Stored in single precision.
    close(&results[&101].values, &lse, 1e-7);
}

#[test]
fn plain_and_causal() {
    means(f64_op(), |_, _, score| Some(score));
    means(Attention { scale: Some(Real::new(-0.7)), ..f64_op() }, |_, _, score| Some(score));
    for (diagonal, offset) in [(Diagonal::TopLeft, 0), (Diagonal::BottomRight, 2)] {
        let band = Band::causal(diagonal);
        means(Attention { band, ..f64_op() }, |_, [_, _, i, j], score| {
            (j <= i + offset).then_some(score)
        });
        let band = Band { diagonal, left: Some(1), right: Some(2) };
        means(Attention { band, ..f64_op() }, |_, [_, _, i, j], score| {
            (j + 1 >= i + offset && j <= i + offset + 2).then_some(score)
        });
    }
}

#[test]
fn scores_are_modified_in_order() {
    let bias =
        |case: &Case, [b, h, i, j]: [usize; 4]| case.inputs[&4][((b * 4 + h) * 5 + i) * 7 + j];
    let slope = |h: usize| 0.5_f64.powi(h as i32 + 1);
    let full = |last: bool| Attention {
        softcap: Some(Softcap { cap: Real::new(0.5), last }),
        bias: true,
        slopes: true,
        ..f64_op()
    };
    let distance = |i: usize, j: usize| j as f64 - i as f64;
    means(full(false), |case, at @ [_, h, i, j], score| {
        Some(0.5 * (score / 0.5).tanh() + bias(case, at) + slope(h) * distance(i, j))
    });
    means(full(true), |case, at @ [_, h, i, j], score| {
        Some(0.5 * ((score + bias(case, at) + slope(h) * distance(i, j)) / 0.5).tanh())
    });
}

#[test]
fn masks_intervals_and_lengths() {
    means(Attention { mask: true, ..f64_op() }, |case, [b, h, i, j], score| {
        (case.inputs[&4][((b * 4 + h) * 5 + i) * 7 + j] != 0.0).then_some(score)
    });
    means(Attention { intervals: true, ..f64_op() }, |case, [b, h, i, j], score| {
        let of = |uid: i64| case.inputs[&uid][(b * 4 + h) * 5 + i];
        (of(4) <= j as f64 && (j as f64) < of(5)).then_some(score)
    });
    let band = Band::causal(Diagonal::BottomRight);
    let op = Attention { query_lengths: true, key_lengths: true, band, ..f64_op() };
    means(op, |case, [b, _, i, j], score| {
        let (queries, keys) = (case.inputs[&4][b], case.inputs[&5][b].clamp(0.0, 7.0));
        let (i, j) = (i as f64, j as f64);
        (i < queries && j < keys && j <= i + keys - queries).then_some(score)
    });
}

/// A sink weighs like a key whose value is 0.
#[test]
fn sinks_take_their_share() {
    let plain = case(Attention { statistics: true, ..f64_op() });
    let plain = reference::evaluate(&plain.graph, &plain.inputs).unwrap();
    let sinks = case(Attention { sinks: true, statistics: true, ..f64_op() });
    let results = reference::evaluate(&sinks.graph, &sinks.inputs).unwrap();
    for row in 0..40 {
        let (sum, sink) = (plain[&101].values[row].exp(), sinks.inputs[&4][row / 5 % 4].exp());
        let own = results[&101].values[row];
        assert!((own - (sum + sink).ln()).abs() < 1e-6, "{own}");
        for column in 0..6 {
            let at = row * 6 + column;
            let want = plain[&100].values[at] * sum / (sum + sink);
            assert!((results[&100].values[at] - want).abs() < 1e-6);
        }
    }
}

/// Dropped and kept weights: their number, and that both seed and offset matter.
#[test]
fn dropout_drops_its_share() {
    let op = Attention { dropout: Some(Real::new(0.25)), ..f64_op() };
    let (queries, keys) = (200, 200);
    let shape =
        AttentionShape { batches: 1, heads: 4, kv_heads: 4, queries, keys, depth: 8, width: 8 };
    let kept = |seed: i64, offset: i64| -> Vec<bool> {
        let of = |at: i64| op.kept(seed, offset, &shape, [0, 3, at / keys, at % keys]);
        (0..queries * keys).map(of).collect()
    };
    let first = kept(1, 0);
    let count = first.iter().filter(|kept| **kept).count() as f64;
    // Three standard deviations of 40000 draws.
    assert!((count - 30_000.0).abs() < 3.0 * (40_000.0_f64 * 0.25 * 0.75).sqrt(), "{count}");
    for other in [kept(2, 0), kept(1, 1)] {
        let same = first.iter().zip(&other).filter(|(a, b)| a == b).count() as f64;
        let want = 40_000.0 * (0.75 * 0.75 + 0.25 * 0.25);
        assert!((same - want).abs() < 3.0 * (40_000.0_f64 * 0.625 * 0.375).sqrt(), "{same}");
    }
}

#[test]
fn programs_do_what_attributes_do() {
    let program = std::sync::Arc::new(cases::keep_program(DType::F64));
    means(Attention { keep: Some(program), ..f64_op() }, |case, [b, _, i, j], score| {
        (case.inputs[&4][b * 5 + i] == case.inputs[&5][b * 7 + j]).then_some(score)
    });
}

#[test]
fn problems_read_what_they_write() {
    let band = Band { diagonal: Diagonal::BottomRight, left: Some(3), right: Some(0) };
    let shape = SHAPE;
    let op = Attention {
        scale: Some(Real::new(0.25)),
        softcap: Some(Softcap { cap: Real::new(30.0), last: true }),
        band,
        intervals: true,
        bias: true,
        slopes: true,
        mask: true,
        sinks: true,
        query_lengths: true,
        key_lengths: true,
        dropout: Some(Real::new(0.1)),
        score: Some(cases::score_program(&shape, DType::F32).into()),
        keep: Some(cases::keep_program(DType::F32).into()),
        statistics: true,
        ..Attention::new(MatmulMath::F32)
    };
    let case = cases::case(op, SHAPE, Storage::packed(DType::Bf16), [true, false, true, true]);
    let text = case.graph.to_json();
    let again = OperationGraph::from_json(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(case.graph == again, "{text}");
    assert_eq!(text, again.to_json());
    let values = |graph: &OperationGraph| {
        reference::evaluate(graph, &case.inputs).unwrap().remove(&100).unwrap()
    };
    assert_eq!(values(&case.graph), values(&again));
}

#[test]
fn bad_attributes_and_shapes_are_named() {
    let problem = |attributes: &str, k: &str, more: &str| {
        let text = format!(
            r#"{{"graph": {{"tensors": [
                {{"name": "q", "dtype": "f16", "dims": [2, 4, 5, 8]}},
                {{"name": "k", "dtype": "f16", "dims": {k}}},
                {{"name": "v", "dtype": "f16", "dims": [2, 2, 7, 16]}},
                {more}
                {{"name": "o", "dtype": "f16", "dims": [2, 4, 5, 16]}}],
              "operations": [{{"attention": "f32", {attributes}
                "q": "q", "k": "k", "v": "v", "o": "o"}}]}}}}"#
        );
        OperationGraph::from_json(&text).map_or_else(|error| error.to_string(), |_| "fine".into())
    };
    let attribute = |text: &str| problem(text, "[2, 2, 7, 8]", "");
    let shape = |k: &str| problem("", k, "");
    assert_eq!(attribute(""), "fine");
    assert_eq!(shape("[2, 3, 7, 8]"), "attention: v `v` is [2, 2, 7, 16], expected [2, 3, 7, 16]");
    assert_eq!(shape("[2, 2, 7, 4]"), "attention: k `k` is [2, 2, 7, 4], expected [2, 2, 7, 8]");
    assert_eq!(shape("[2, 7, 8]"), "attention: k `k` is [2, 7, 8], expected 4 dimensions");
    assert_eq!(
        attribute(r#""left": -1,"#),
        "attention: left is -1: a window has no fewer than 0 keys"
    );
    assert_eq!(attribute(r#""softcap": 0,"#), "attention: softcap 0 is not a number above 0");
    assert_eq!(
        attribute(r#""softcap_last": true,"#),
        "attention: key `softcap_last` without `softcap`"
    );
    assert_eq!(attribute(r#""dropout": 1.0,"#).split(':').nth(1), Some(" key `seed` is missing"));
    assert_eq!(attribute(r#""seed": "q","#), "attention: key `seed` without `dropout`");
    assert_eq!(
        attribute(r#""diagonal": "middle","#),
        "attention: key `diagonal` is `middle`, expected one of top_left, bottom_right"
    );
    assert_eq!(attribute(r#""key_end": "q","#), "attention: key `key_begin` is missing");
    assert_eq!(
        attribute(r#""bias": "q","#),
        "attention: bias `q` is [2, 4, 5, 8], which cannot be broadcast to [2, 4, 5, 7]"
    );
    assert_eq!(
        attribute(
            r#""score": {"operations": [{"pointwise": "add", "inputs": ["score", "x"],
            "output": "y"}], "output": "y"},"#
        ),
        "attention: score: `x` is neither a coordinate, captured nor a result so far"
    );
    let lengths = r#"{"name": "lengths", "dtype": "f32", "dims": [2, 1, 1, 1]},"#;
    assert_eq!(
        problem(r#""key_lengths": "lengths","#, "[2, 2, 7, 8]", lengths),
        "attention: key_lengths `lengths` is f32, expected i32 or i64"
    );
    let mut graph = OperationGraph::builder();
    let mut input = |name: &str, heads: i64| graph.input(name, &[1, heads, 4, 8], DType::F16);
    let operands = [input("q", 5), input("k", 2), input("v", 2)];
    let op = Op::Attention(Attention::default());
    let error = graph.operation(op, &operands).unwrap_err().to_string();
    assert_eq!(error, "attention: 5 heads of q `q` do not share 2 heads of k `k` evenly");
    let none = HashMap::new();
    assert!(reference::evaluate(&case(f64_op()).graph, &none).is_err());
}

/// What a program may ask for that a problem file cannot, or in other words.
#[test]
fn bad_operations_are_named() {
    let plain = || Attention::new(MatmulMath::F32);
    let built = |op: Attention, dtype: DType, pages: i64| {
        let lone = |is_ragged| if is_ragged { 1 } else { 2 };
        let queries = lone(op.queries_max.is_some());
        let keys = if op.paged { pages } else { lone(op.keys_max.is_some()) };
        let ends = if op.queries_max == Some(5) { 0 } else { 3 };
        let mut graph = OperationGraph::builder();
        let op = Op::Attention(op);
        let dims = |slot: &str| match slot {
            "q" => [queries, 4, 5, 8],
            "k" | "v" => [keys, 2, 5, 8],
            "page_table" => [2, 1, 1, 3],
            "query_offsets" | "key_offsets" => [ends, 1, 1, 1],
            "bias" => [2, 4, 5, 5],
            _ => [1, 1, 1, 1],
        };
        let dtype = |slot: &str| match slot {
            "q" | "bias" => dtype,
            "k" | "v" => DType::F16,
            _ => DType::I32,
        };
        let slots = op.slots().inputs;
        let inputs: Vec<_> =
            slots.iter().map(|slot| graph.input(slot, &dims(slot), dtype(slot))).collect();
        let built = graph.operation(op, &inputs).and_then(|outputs| {
            graph.output(outputs[0], "o", DType::F16);
            graph.build()
        });
        built.map_or_else(|error| error.to_string(), |_| "fine".into())
    };
    let refused = |op: Attention| built(op, DType::F16, 4);
    let right = |right| Band { right: Some(right), ..Band::default() };
    let dropout = |rate| Attention { dropout: Some(Real::new(rate)), ..plain() };
    assert_eq!(refused(dropout(0.5)), "fine");
    for (op, text) in [
        (dropout(1.0), "dropout 1 is not in [0, 1)"),
        (dropout(-0.5), "dropout -0.5 is not in [0, 1)"),
        (dropout(f64::NAN), "dropout NaN is not in [0, 1)"),
        (Attention { scale: Some(Real::new(f64::INFINITY)), ..plain() }, "scale inf is not finite"),
        (
            Attention { band: right(-2), ..plain() },
            "right is -2: a window has no fewer than 0 keys",
        ),
        (
            Attention { keys_max: Some(-1), ..plain() },
            "keys_max is -1: a sequence has no fewer than 0 of them",
        ),
        (
            Attention { queries_max: Some(-3), ..plain() },
            "queries_max is -3: a sequence has no fewer than 0 of them",
        ),
        (
            Attention { paged: true, keys_max: Some(5), ..plain() },
            "keys are either paged or concatenated, not both",
        ),
        (
            Attention { queries_max: Some(5), ..plain() },
            "offsets `query_offsets` have no end of the last sequence",
        ),
        (
            Attention::new(MatmulMath::I32),
            "math i32 has no exponentials: expected f32, tf32 or f64",
        ),
    ] {
        assert_eq!(refused(op), format!("attention: {text}"));
    }
    let paged = Attention { paged: true, ..plain() };
    let text = "attention: k `k` is [0, 2, 5, 8]: expected at least one page";
    assert_eq!(built(paged, DType::F16, 0), text);
    let text = "attention: q `q` is i32, expected a floating-point type";
    assert_eq!(built(plain(), DType::I32, 4), text);
    let text = "attention: bias `bias` is i8, expected a floating-point type";
    assert_eq!(built(Attention { bias: true, ..plain() }, DType::I8, 4), text);
}
