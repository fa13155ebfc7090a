//! What is particular to warpgroups and TMA copies: the rules they obey, products that run on.

use std::collections::BTreeSet;

use kiln::DType;
use kiln::engine::{self, EngineConfig};
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::target::Target;

use crate::attention::cases::{self, Storage};
use crate::harness;

const SHAPE: AttentionShape = AttentionShape {
    batches: 2,
    heads: 4,
    kv_heads: 2,
    queries: 150,
    keys: 208,
    depth: 64,
    width: 72,
};

fn config(cta_k: i64, cta_q: i64, stages: i64) -> EngineConfig {
    let text = format!("attention_wgmma{{cta_k={cta_k}, cta_q={cta_q}, stages={stages}}}");
    text.parse().unwrap()
}

fn bottom(right: Option<i64>) -> Attention {
    let band = Band { diagonal: Diagonal::BottomRight, left: None, right };
    Attention { band, statistics: true, ..Attention::new(MatmulMath::F32) }
}

#[track_caller]
fn refused(op: Attention, shape: AttentionShape, storage: Storage, target: &str, want: &str) {
    let graph = cases::graph(op, shape, [storage; 4], [true; 4]);
    let target = Target::named(target).unwrap();
    let refusal = engine::supported("attention_wgmma", graph.canonical(), &target).unwrap_err();
    assert!(refusal.to_string().ends_with(want), "{refusal}");
}

/// The rule that refuses is named.
#[test]
fn refusals_name_the_rule() {
    let packed = Storage::packed(DType::F16);
    let plain = || bottom(None);
    refused(plain(), SHAPE, packed, "b200", "sm_100a is not sm_90a");
    let odd = AttentionShape { width: 33, ..SHAPE };
    let want = "a stride of `v` is 66 bytes, a TMA copy needs multiples of 16";
    refused(plain(), odd, packed, "h200", want);
    let apart = Storage { spacing: 2, ..packed };
    refused(plain(), SHAPE, apart, "h200", "no dimension of `q` is packed");
    let misaligned = Storage { alignment: 8, ..packed };
    let want = "`q` is aligned to 8 bytes, a TMA copy needs 16";
    refused(plain(), SHAPE, misaligned, "h200", want);
    let empty = AttentionShape { keys: 0, ..SHAPE };
    refused(plain(), empty, packed, "h200", "a TMA copy takes at least one element");
    let pages = Attention { paged: true, ..plain() };
    let shape = AttentionShape { keys: 40, ..SHAPE };
    let want = "copies 1 keys at once, which 8 do not divide";
    refused(pages, shape, packed, "h200", want);
}

/// Products run on without waiting for each other, which the assembler says where it is not so.
#[test]
fn products_are_not_serialised() {
    for elements in [64, 128, 256] {
        let shape = AttentionShape { queries: 512, depth: elements, width: elements, ..SHAPE };
        for op in [bottom(None), bottom(Some(0))] {
            let storage = Storage::packed(DType::F16);
            let graph = cases::graph(op, shape, [storage; 4], [true; 4]);
            for (cta_k, cta_q) in [(80, 128), (96, 192), (64, 64)] {
                let config = config(cta_k, cta_q, 2);
                let target = harness::kiln().device().target();
                let supported = engine::supported("attention_wgmma", graph.canonical(), target);
                if supported.unwrap().lower(&config).is_err() {
                    continue;
                }
                let image = harness::assembled_for(&graph, &config).remove(0);
                assert!(!image.log.contains("wgmma"), "{config}: {}", image.log);
            }
        }
    }
}

/// Blocks that take turns at tiles in other ways than as they come take each once; numbers of heads
/// and tiles for which either way is the most even.
#[test]
fn turns_at_tiles_give_the_references_results() {
    let (snake, paired) = (1, 2);
    for (heads, queries, way) in [(27, 320, snake), (66, 250, paired), (66, 300, paired)] {
        let [depth, width] = [16; 2];
        let (kv_heads, keys) = (heads, queries);
        let shape = AttentionShape { batches: 1, heads, kv_heads, queries, keys, depth, width };
        let case = cases::case(bottom(Some(0)), shape, Storage::packed(DType::F16), [true; 4]);
        let config = config(32, 64, 2);
        for kiln in harness::dialects() {
            let target = kiln.device().target();
            let supported = engine::supported("attention_wgmma", case.graph.canonical(), target);
            let Ok(supported) = supported else { continue };
            let lowered = supported.lower(&config).unwrap();
            assert_eq!(lowered.kernels[0].launch.numbers, [1, way], "{heads} x {queries}");
            harness::check(kiln, &case.graph, Some(&config), &case.inputs, "turns");
        }
    }
}

/// One kernel serves every batch from 2 on, whatever turns blocks take.
#[test]
fn turns_at_tiles_are_numbers() {
    let target = Target::named("h200").unwrap();
    let (mut turns, mut texts) = (BTreeSet::new(), BTreeSet::new());
    for batches in [2, 4, 8, 16, 64] {
        let [queries, keys] = [1024; 2];
        let (heads, kv_heads, [depth, width]) = (16, 16, [128; 2]);
        let shape = AttentionShape { batches, heads, kv_heads, queries, keys, depth, width };
        let storage = [Storage::packed(DType::F16); 4];
        let graph = cases::graph(bottom(Some(0)), shape, storage, [true; 4]);
        let supported = engine::supported("attention_wgmma", graph.canonical(), &target).unwrap();
        let config = config(128, 128, 2);
        turns.insert(supported.lower(&config).unwrap().kernels[0].launch.numbers[1]);
        texts.extend(harness::sources("", &*supported, &config).into_iter().map(|of| of.1.text));
    }
    assert!(turns.len() > 1 && texts.len() == 1, "{turns:?}, {} kernels", texts.len());
}

/// Sequences of different numbers of tiles, two without any, the last one beyond all rows: more
/// tiles than blocks.
#[test]
fn turns_at_tiles_of_ragged_sequences_give_the_references_results() {
    let [depth, width] = [16; 2];
    let (batches, heads, queries, keys) = (6, 16, 320, 320);
    let shape = AttentionShape { batches, heads, kv_heads: 8, queries, keys, depth, width };
    let offsets = [0.0, 0.0, 320.0, 384.0, 384.0, 500.0, 9e8];
    for right in [None, Some(0)] {
        let (queries_max, keys_max) = (Some(queries), Some(keys));
        let op = Attention { queries_max, keys_max, ..bottom(right) };
        let mut case = cases::case(op, shape, Storage::packed(DType::F16), [true; 4]);
        for tensor in case.graph.inputs().filter(|tensor| tensor.name.ends_with("_offsets")) {
            case.inputs.insert(tensor.uid, offsets.to_vec());
        }
        for kiln in harness::dialects() {
            let target = kiln.device().target();
            let supported = engine::supported("attention_wgmma", case.graph.canonical(), target);
            if supported.is_err() {
                continue;
            }
            let config = config(32, 64, 2);
            harness::check(kiln, &case.graph, Some(&config), &case.inputs, "ragged");
        }
    }
}
