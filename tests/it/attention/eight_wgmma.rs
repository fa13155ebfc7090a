//! Keys and values of 8 bits on warpgroups: TMA copies bring them as they are, other warps widen
//! them beside the products.

use kiln::engine::{self, EngineConfig, Selection};
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::attention::cases::{self, Case, Storage};
use crate::attention::features::{SHAPE, features};
use crate::harness::{self, conflicts};

const FOUR: DType = DType::F8E4M3;
const FIVE: DType = DType::F8E5M2;

fn case(op: &Attention, shape: AttentionShape, [q, k, v]: [DType; 3]) -> Case {
    let storage = [q, k, v, q].map(|dtype| Storage { page: 8, ..Storage::packed(dtype) });
    cases::case_of(op.clone(), shape, storage, [true; 4], 3)
}

fn causal() -> Attention {
    let band = Band::causal(Diagonal::BottomRight);
    Attention { band, statistics: true, ..Attention::new(MatmulMath::F32) }
}

fn check(case: &Case, config: Option<&str>, what: &str) {
    let kiln = harness::kiln();
    let supported =
        engine::supported("attention_wgmma", case.graph.canonical(), kiln.device().target());
    let own = supported.unwrap_or_else(|error| panic!("{what}: {error}")).heuristic();
    let config: EngineConfig = config.map_or(own, |config| config.parse().unwrap());
    harness::check(kiln, &case.graph, Some(&config), &case.inputs, &format!("{what}: {config}"));
}

#[test]
fn warpgroups_take_features_with_8_bits() {
    for (number, (name, op)) in features().into_iter().enumerate().step_by(3) {
        let shape = AttentionShape { keys: if op.paged { 56 } else { 55 }, ..SHAPE };
        let types = [[DType::Bf16, FOUR, FOUR], [DType::F16, FIVE, FOUR]][number % 2];
        check(&case(&op, shape, types), None, name);
    }
}

/// Heads of one panel, of an odd and of an even number of them, and of part of one.
#[test]
fn heads_of_8_bits_of_any_size() {
    for ([depth, width], types) in [
        ([16, 48], [DType::Bf16, FOUR, FIVE]),
        ([64, 16], [DType::F16, FOUR, FOUR]),
        ([80, 112], [DType::Bf16, DType::Bf16, FOUR]),
        ([128, 192], [DType::F16, FIVE, DType::F16]),
        ([192, 128], [DType::Bf16, FIVE, FOUR]),
        ([256, 256], [DType::Bf16, FOUR, FOUR]),
    ] {
        let shape = AttentionShape { queries: 70, keys: 90, depth, width, ..SHAPE };
        let what = format!("{depth} and {width} of {types:?}");
        check(&case(&causal(), shape, types), None, &what);
    }
}

/// Blocks stay for many tiles, of one to three warpgroups, with rings of every length.
#[test]
fn rings_of_8_bits_go_round() {
    let shape = AttentionShape { heads: 6, queries: 150, keys: 208, depth: 64, width: 64, ..SHAPE };
    let window = Band { diagonal: Diagonal::BottomRight, left: Some(60), right: Some(0) };
    let lengths = Attention { key_lengths: true, ..causal() };
    for (op, [cta_k, cta_q, stages]) in [
        (Attention::new(MatmulMath::F32), [16, 64, 2]),
        (Attention { band: window, ..causal() }, [64, 128, 3]),
        (lengths.clone(), [80, 192, 2]),
        (lengths, [32, 128, 4]),
    ] {
        let config = format!("attention_wgmma{{cta_k={cta_k}, cta_q={cta_q}, stages={stages}}}");
        check(&case(&op, shape, [DType::Bf16, FOUR, FOUR]), Some(&config), "ring");
    }
}

/// What no query attends to may be no number.
#[test]
fn values_of_8_bits_that_nobody_attends_to_may_be_anything() {
    let op = Attention { key_lengths: true, ..causal() };
    let mut case = case(&op, SHAPE, [DType::F16, FOUR, FOUR]);
    let uid = |name: &str| case.graph.inputs().find(|of| of.name == name).unwrap().uid;
    let [k, v, lengths] = ["k", "v", "key_lengths"].map(uid);
    case.inputs.insert(lengths, vec![20.0, 41.0]);
    for uid in [k, v] {
        for (at, value) in case.inputs.get_mut(&uid).unwrap().iter_mut().enumerate() {
            let (row, batch) = (at / 32 % 55, at / 32 / 55 / 2);
            if row >= [20, 41][batch] {
                *value = f64::NAN;
            }
        }
    }
    check(&case, None, "lengths");
}

fn served(op: Attention, [queries, keys, elements]: [i64; 3], types: [DType; 3]) -> OperationGraph {
    let (depth, width) = (elements, elements);
    let shape = AttentionShape { heads: 32, kv_heads: 8, queries, keys, depth, width, ..SHAPE };
    let [q, k, v] = types.map(Storage::packed);
    cases::graph(op, shape, [q, k, v, q], [true; 4])
}

/// From 64 queries on warpgroups are chosen, as they are for keys of 16 bits.
#[test]
fn warpgroups_are_chosen_for_8_bits() {
    let target = Target::named("h200").unwrap();
    for (queries, wanted) in [(2048, "attention_wgmma"), (1, "attention_decode")] {
        for elements in [64, 128, 256] {
            for types in [[DType::Bf16, FOUR, FOUR], [DType::F16, FIVE, FIVE]] {
                let graph = served(causal(), [queries, 2048, elements], types);
                let chosen = engine::choose(graph.canonical(), &target, &Selection::default());
                assert_eq!(chosen.unwrap().engine, wanted, "{queries} of {elements}, {types:?}");
            }
        }
    }
}

/// Every key and value is read once for each tile, a byte each, and no lane waits for a bank.
#[test]
fn bytes_and_conflicts_of_8_bits_on_warpgroups() {
    for (depth, width) in [(64, 64), (128, 128), (192, 128), (256, 256)] {
        let shape = AttentionShape { batches: 1, heads: 2, kv_heads: 1, ..SHAPE };
        let shape = AttentionShape { queries: 256, keys: 256, depth, width, ..shape };
        let case = case(&Attention::new(MatmulMath::F32), shape, [DType::Bf16, FOUR, FOUR]);
        let config = "attention_wgmma{cta_k=32, cta_q=128, stages=2}".parse().unwrap();
        let counters = harness::count(&case.graph, Some(&config), &case.inputs);
        assert_eq!(conflicts(&counters), 0, "{depth} and {width}");
    }
}
