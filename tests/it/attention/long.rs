//! Heads that are too long for blocks to hold whole: lanes compute them slice by slice, with every
//! feature, and nothing that no query attends to reaches a result.

use std::sync::Arc;

use kiln::DType;
use kiln::engine;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::target::Target;

use crate::attention::cases::{self, Case, Storage};
use crate::attention::classes::open;
use crate::attention::features::{SHAPE, features};
use crate::harness;

/// Slices of the depth, the last of 8 elements; or of the width.
const DEEP: AttentionShape =
    AttentionShape { queries: 9, keys: 23, depth: 1032, width: 24, ..SHAPE };
const WIDE: AttentionShape = AttentionShape { depth: 24, width: 1032, ..DEEP };

/// Runs a case as it is chosen.
fn check(case: &Case, what: &str) {
    for kiln in harness::dialects() {
        let plan = kiln.plan(&case.graph).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let engines: Vec<&str> =
            plan.parts().iter().map(|part| part.config.engine.as_ref()).collect();
        assert_eq!(engines, ["attention_simt"], "{what}");
        let actual = harness::run_plan(kiln, &plan, &case.inputs).expect("it runs");
        let what = format!("{what} on {}", kiln.device().target().name);
        harness::compare(&case.graph, &case.inputs, &actual, &what);
    }
}

#[test]
fn long_heads_with_every_feature() {
    let eight = [DType::F16, DType::F8E4M3, DType::F8E5M2, DType::F16].map(Storage::packed);
    for (number, (name, op)) in features().into_iter().enumerate() {
        let shape = if number % 2 == 0 { DEEP } else { WIDE };
        let keys = if op.paged { 25 } else { shape.keys };
        let shape = AttentionShape { keys, ..shape };
        let queries_max = op.queries_max.map(|_| shape.queries);
        let score = op.score.as_ref().map(|_| Arc::new(cases::score_program(&shape, DType::F32)));
        let op = Attention { queries_max, keys_max: op.keys_max.map(|_| keys), score, ..op };
        let storage = if number % 3 == 0 { eight } else { [Storage::packed(DType::F16); 4] };
        check(&cases::case_of(op, shape, storage, [true; 4], 3), name);
    }
}

#[test]
fn types_and_edges_of_long_heads() {
    let band = Band { diagonal: Diagonal::BottomRight, left: Some(12), right: Some(2) };
    let op = |math| Attention { band, statistics: true, ..Attention::new(math) };
    for (math, dtype, [depth, width]) in [
        (MatmulMath::F32, DType::F32, [1280, 1280]),
        (MatmulMath::Tf32, DType::F32, [24, 2049]),
        (MatmulMath::F64, DType::F64, [1100, 300]),
        (MatmulMath::F32, DType::Bf16, [3000, 1]),
    ] {
        let shape = AttentionShape { heads: 2, depth, width, ..DEEP };
        let storage = Storage { positions_first: dtype == DType::F32, ..Storage::packed(dtype) };
        let case = cases::case(op(math), shape, storage, [true; 4]);
        check(&case, &format!("{dtype} of {depth} and {width}"));
    }
    for (queries, keys) in [(0, 5), (3, 0), (1, 1)] {
        let shape = AttentionShape { queries, keys, ..WIDE };
        let case = cases::case(op(MatmulMath::F32), shape, Storage::packed(DType::F16), [true; 4]);
        check(&case, &format!("{queries} queries, {keys} keys"));
    }
}

/// What lies behind lengths and in front of windows is no number.
#[test]
fn long_heads_read_no_stale_keys() {
    let band = Band { diagonal: Diagonal::BottomRight, left: Some(6), right: Some(0) };
    let op = Attention { band, key_lengths: true, ..Attention::new(MatmulMath::F32) };
    for shape in [DEEP, WIDE] {
        let mut case = cases::case(op.clone(), shape, Storage::packed(DType::F16), [true; 4]);
        let uid = |name: &str| case.graph.inputs().find(|of| of.name == name).unwrap().uid;
        let lengths = [17, 21];
        for (slot, elements) in [("k", shape.depth), ("v", shape.width)] {
            let uid = uid(slot);
            let values = case.inputs.get_mut(&uid).unwrap();
            for (at, value) in values.iter_mut().enumerate() {
                let row = at as i64 / elements;
                let (key, length) = (row % 23, lengths[(row / 23 / 2) as usize]);
                if key >= length || key < length - shape.queries - 6 {
                    *value = f64::NAN;
                }
            }
        }
        case.inputs.insert(uid("key_lengths"), lengths.map(|length| length as f64).to_vec());
        check(&case, "stale");
    }
}

/// MLA in f64 where a block has 99 KB or less: of keys and values behind lengths nothing is read.
#[test]
fn latent_attention_in_f64_on_every_class_of_devices() {
    let shape = AttentionShape { kv_heads: 1, depth: 576, width: 512, ..DEEP };
    let op = Attention { key_lengths: true, paged: true, ..Attention::new(MatmulMath::F64) };
    let shape = AttentionShape { keys: 24, ..shape };
    let storage = Storage { page: 8, ..Storage::packed(DType::F64) };
    let case = cases::case(op, shape, storage, [true; 4]);
    for target in ["t4", "a100", "rtx4090", "h200", "b200", "sim120"] {
        let kiln = open(target);
        harness::check(&kiln, &case.graph, None, &case.inputs, target);
    }
}

/// Every target has a setting for every head.
#[test]
fn heads_of_any_length_have_an_engine() {
    for name in ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        for (math, dtype) in [(MatmulMath::F64, DType::F64), (MatmulMath::F32, DType::Bf16)] {
            for elements in [1, 255, 256, 257, 512, 576, 1024, 1025, 4096, 100_000] {
                let shape = AttentionShape { depth: elements, width: elements, ..DEEP };
                let storage = [Storage::packed(dtype); 4];
                let graph = cases::graph(Attention::new(math), shape, storage, [true; 4]);
                let supported = engine::supported("attention_simt", graph.canonical(), &target);
                let supported = supported.unwrap_or_else(|error| panic!("{name}: {error}"));
                supported.lower(&supported.heuristic()).unwrap();
            }
        }
    }
}
