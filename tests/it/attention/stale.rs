//! Keys that no query attends to: what memory holds there reaches no result.

use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::{DType, reference};

use crate::attention::cases::{self, Case, Storage};
use crate::attention::features::{ENGINES, SHAPE, check};

/// Makes rows of keys and values NaN and infinite, all but those that `is_read` names by the first
/// dimension of their tensor and the third, and checks every engine.
fn check_without(mut case: Case, what: &str, is_read: impl Fn(&Case, i64, i64) -> bool) {
    for name in ["k", "v"] {
        let tensor = case.graph.inputs().find(|tensor| tensor.name == name).unwrap().clone();
        let [_, heads, rows, elements] = tensor.dims[..] else { panic!("four dimensions") };
        let mut values = case.inputs[&tensor.uid].clone();
        let mut left_out = 0;
        for (at, value) in values.iter_mut().enumerate() {
            let row = at as i64 / elements;
            if !is_read(&case, row / rows / heads, row % rows) {
                *value = if at % 3 == 0 { f64::INFINITY } else { f64::NAN };
                left_out += 1;
            }
        }
        assert!(left_out > 0, "{what}: every key is read");
        case.inputs.insert(tensor.uid, values);
    }
    let expected = reference::evaluate(&case.graph, &case.inputs).expect("inputs fit the graph");
    let mut results = case.graph.outputs().flat_map(|tensor| &expected[&tensor.uid].values);
    assert!(results.all(|value| value.is_finite()), "{what}: the reference reads them");
    assert!(check(&case, what).len() >= ENGINES.len(), "{what}");
}

fn case(op: Attention) -> Case {
    case_of(op, SHAPE)
}

fn case_of(op: Attention, shape: AttentionShape) -> Case {
    cases::case(op, shape, Storage::packed(DType::F16), [true; 4])
}

/// An integer operand's values.
fn integers(case: &Case, name: &str) -> Vec<i64> {
    let uid = case.graph.inputs().find(|tensor| tensor.name == name).unwrap().uid;
    case.inputs[&uid].iter().map(|value| *value as i64).collect()
}

#[test]
fn keys_beyond_a_sequence_are_not_read() {
    let op = Attention { key_lengths: true, ..Attention::new(MatmulMath::F32) };
    let read =
        |case: &Case, batch: i64, key: i64| key < integers(case, "key_lengths")[batch as usize];
    check_without(case(op.clone()), "lengths", read);
    let wide = AttentionShape { depth: 264, width: 320, ..SHAPE };
    check_without(case_of(op, wide), "lengths of wide heads", read);
}

#[test]
fn keys_of_no_sequence_are_not_read() {
    let op = Attention { keys_max: Some(SHAPE.keys), ..Attention::new(MatmulMath::F32) };
    let read = |case: &Case, _, row: i64| {
        let offsets = integers(case, "key_offsets");
        let within = |pair: &[i64]| (pair[0]..pair[1].min(pair[0] + SHAPE.keys)).contains(&row);
        offsets.windows(2).any(within)
    };
    let mut case = case(op);
    let offsets = case.graph.inputs().find(|tensor| tensor.name == "key_offsets").unwrap().uid;
    case.inputs.insert(offsets, vec![5.0, 40.0, 90.0]);
    check_without(case, "offsets", read);
}

#[test]
fn pages_are_not_read_beyond_a_sequence() {
    let (paged, key_lengths) = (true, true);
    let op = Attention { paged, key_lengths, ..Attention::new(MatmulMath::F32) };
    for (page, each) in [(5, 11), (8, 7)] {
        let read = |case: &Case, at: i64, row: i64| {
            let (table, lengths) = (integers(case, "page_table"), integers(case, "key_lengths"));
            let pages = case.graph.inputs().find(|tensor| tensor.name == "k").unwrap().dims[0];
            table.iter().zip(0..).any(|(entry, number)| {
                let key = number % each * page + row;
                (*entry).clamp(0, pages - 1) == at && key < lengths[(number / each) as usize]
            })
        };
        let shape = AttentionShape { keys: page * each, ..SHAPE };
        let storage = Storage { page, ..Storage::packed(DType::F16) };
        let case = cases::case(op.clone(), shape, storage, [true; 4]);
        check_without(case, &format!("pages of {page}"), read);
    }
}

/// In front of the first window and behind the last, in the order of queries and of tiles of them.
#[test]
fn keys_outside_of_all_windows_are_not_read() {
    // The last query meets the last key: of 55 keys the first 18 - 9 are before every window.
    let band = Band { diagonal: Diagonal::BottomRight, left: Some(9), right: Some(0) };
    let op = Attention { band, ..Attention::new(MatmulMath::F32) };
    let first = SHAPE.keys - SHAPE.queries - 9;
    check_without(case(op), "window", |_, _, key| key >= first);
    // The first query meets the first key: of 55 keys the last 55 - 37 - 3 are behind every one.
    let band = Band { diagonal: Diagonal::TopLeft, left: None, right: Some(3) };
    let op = Attention { band, ..Attention::new(MatmulMath::F32) };
    check_without(case(op), "causal", |_, _, key| key < SHAPE.queries + 3);
    // Several tiles of queries and steps of keys.
    let band = Band { diagonal: Diagonal::BottomRight, left: Some(40), right: Some(0) };
    let op = Attention { band, ..Attention::new(MatmulMath::F32) };
    let shape = AttentionShape { queries: 150, keys: 350, ..SHAPE };
    let case = cases::case(op, shape, Storage::packed(DType::F16), [true; 4]);
    check_without(case, "long window", |_, _, key| key >= 350 - 150 - 40);
}

/// Rows of one interval leave out keys in front of it and behind it.
#[test]
fn keys_outside_of_all_intervals_are_not_read() {
    let op = Attention { intervals: true, ..Attention::new(MatmulMath::F32) };
    let mut case = cases::case(op, SHAPE, Storage::packed(DType::F16), [true; 4]);
    let uids: Vec<(String, i64)> =
        case.graph.inputs().map(|tensor| (tensor.name.clone(), tensor.uid)).collect();
    for (name, uid) in uids {
        let values = case.inputs.get_mut(&uid).unwrap();
        for (row, value) in values.iter_mut().enumerate() {
            match name.as_str() {
                "key_begin" => *value = (11 + row % 3) as f64,
                "key_end" => *value = (40 - row % 5) as f64,
                _ => {}
            }
        }
    }
    check_without(case, "intervals", |_, _, key| (11..40).contains(&key));
}

/// Keys that a mask leaves out may be anything; their values are multiplied by 0.
#[test]
fn scores_that_a_mask_leaves_out_may_be_nan() {
    let op = Attention { mask: true, ..Attention::new(MatmulMath::F32) };
    let shape = [false, false, false, true];
    let mut case = cases::case(op, SHAPE, Storage::packed(DType::F16), shape);
    let mask = integers(&case, "mask");
    let k = case.graph.inputs().find(|tensor| tensor.name == "k").unwrap().clone();
    for (at, value) in case.inputs.get_mut(&k.uid).unwrap().iter_mut().enumerate() {
        if mask[at / k.dims[3] as usize % k.dims[2] as usize] == 0 {
            *value = f64::NAN;
        }
    }
    assert!(mask.contains(&0));
    assert!(check(&case, "mask").len() >= ENGINES.len());
}
