//! Gradients on warpgroups: their rules, their GEMMs counted, and orders of blocks.

use kiln::device::Counters;
use kiln::engine::{self, EngineConfig, NumericalNote};
use kiln::graph::{Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::target::Target;
use kiln::{DType, reference};

use crate::attention::backward_cases;
use crate::attention::cases::{Case, Storage};
use crate::attention::counters::{attends, tiles};
use crate::harness::{self, Values, conflicts};

const NAME: &str = "attention_backward_wgmma";

const SHAPE: AttentionShape = AttentionShape {
    batches: 1,
    heads: 2,
    kv_heads: 1,
    queries: 256,
    keys: 256,
    depth: 64,
    width: 64,
};

/// Keys of a block.
const CTA_K: i64 = 128;

fn config(dq: i64) -> EngineConfig {
    format!("{NAME}{{dq={dq}}}").parse().unwrap()
}

fn case(op: Attention, shape: AttentionShape, dtype: DType) -> Case {
    let op = AttentionBackward::new(op);
    backward_cases::case_of(op, shape, [Storage::packed(dtype); 4], [true; 4], 1)
}

fn banded(band: Band) -> Attention {
    Attention { band, ..Attention::new(MatmulMath::F32) }
}

/// Queries of a step.
fn step_q(shape: &AttentionShape) -> i64 {
    if shape.depth.max(shape.width) <= 64 { CTA_K } else { CTA_K / 2 }
}

#[track_caller]
fn refused(op: Attention, shape: AttentionShape, storage: Storage, target: &str, want: &str) {
    let op = AttentionBackward::new(op);
    let graph = backward_cases::graph(&op, shape, [storage; 4], [true; 4]);
    let target = Target::named(target).unwrap();
    let refusal = engine::supported(NAME, graph.canonical(), &target).unwrap_err();
    assert!(refusal.to_string().ends_with(want), "{refusal}");
}

/// The rule that refuses is named.
#[test]
fn refusals_name_the_rule() {
    let packed = Storage::packed(DType::F16);
    let plain = || Attention::new(MatmulMath::F32);
    refused(plain(), SHAPE, packed, "b200", "sm_100a is not sm_90a");
    let long = AttentionShape { depth: 192, width: 128, ..SHAPE };
    refused(plain(), long, packed, "h200", "heads of 192 and 128 elements, more than 128");
    let odd = AttentionShape { width: 33, ..SHAPE };
    let want = "a stride of `v` is 66 bytes, a TMA copy needs multiples of 16";
    refused(plain(), odd, packed, "h200", want);
    let misaligned = Storage { alignment: 8, ..packed };
    let want = "`q` is aligned to 8 bytes, a TMA copy needs 16";
    refused(plain(), SHAPE, misaligned, "h200", want);
    let empty = AttentionShape { keys: 0, ..SHAPE };
    refused(plain(), empty, packed, "h200", "a TMA copy takes at least one element");
    let wide = Storage::packed(DType::F32);
    let want = "q is f32, k is f32, v is f32 and do is f32 in math tf32: warpgroups take f16 or \
                bf16 for all of them in f32 or tf32";
    refused(Attention::new(MatmulMath::Tf32), SHAPE, wide, "h200", want);
}

/// Five GEMMs of each tile that is attended to, whichever way dQ is added up, and no access to
/// shared memory that waits for a bank.
#[test]
fn gemms_are_those_of_tiles_that_are_attended_to() {
    let odd = AttentionShape { queries: 200, keys: 230, ..SHAPE };
    let long = AttentionShape { depth: 128, width: 128, ..odd };
    let short = AttentionShape { depth: 32, width: 32, ..odd };
    for (shape, left, right) in [
        (SHAPE, None, None),
        (SHAPE, None, Some(0)),
        (odd, None, Some(0)),
        (odd, Some(70), Some(0)),
        (long, None, Some(0)),
        (long, Some(10), Some(10)),
        (short, Some(20), None),
    ] {
        let band = Band { diagonal: Diagonal::BottomRight, left, right };
        let case = case(banded(band), shape, DType::F16);
        let step_q = step_q(&shape);
        let tiles = tiles(&shape, step_q, CTA_K, attends(&shape, band));
        let of_one = shape.heads * tiles * step_q * CTA_K * shape.depth;
        for dq in [1, 2] {
            let counts = harness::count_each(&case.graph, &config(dq), &case.inputs);
            let done =
                |of: &Counters| -> u64 { of.products.iter().map(|of| of.multiply_adds).sum() };
            let want = [0, 5 * of_one as u64, 0];
            assert_eq!(counts.iter().map(done).collect::<Vec<_>>(), want, "{shape:?} {band:?}");
            let conflicts: Vec<u64> = counts.iter().map(conflicts).collect();
            assert_eq!(conflicts, [0, 0, 0], "{shape:?} {band:?}");
        }
    }
}

/// Whichever blocks and warps run first, dQ is added in one order, and no block waits for ever.
#[test]
fn orders_of_blocks_change_no_bit() {
    let shape = AttentionShape { heads: 4, kv_heads: 2, queries: 150, keys: 300, ..SHAPE };
    let plain = Band::default();
    for band in [
        plain,
        Band { right: Some(0), diagonal: Diagonal::BottomRight, ..plain },
        Band { left: Some(40), right: Some(5), ..plain },
        Band { left: Some(30), diagonal: Diagonal::BottomRight, ..plain },
    ] {
        for shape in [shape, AttentionShape { depth: 128, width: 128, heads: 2, ..shape }] {
            let case = case(banded(band), shape, DType::Bf16);
            let expected = reference::evaluate(&case.graph, &case.inputs).unwrap();
            for dq in [1, 2] {
                let mut first: Option<Values> = None;
                for seed in 0..3 {
                    let kiln = harness::simulated_by_turns("sim", seed).expect("it opens");
                    let plan = kiln.plan_with(&case.graph, &config(dq)).unwrap();
                    let results = harness::run_plan(kiln, &plan, &case.inputs).unwrap();
                    let what = format!("dq={dq}, seed {seed}, {band:?}, {shape:?}");
                    harness::compare_with(&expected, &case.graph, &case.inputs, &results, &what);
                    let first = first.get_or_insert_with(|| results.clone());
                    assert!(dq == 2 || *first == results, "{what}");
                }
            }
        }
    }
}

/// What may differ from run to run says so.
#[test]
fn the_unordered_sum_has_a_note() {
    let case = case(Attention::new(MatmulMath::F32), SHAPE, DType::F16);
    let target = harness::kiln().device().target();
    let supported = engine::supported(NAME, case.graph.canonical(), target).unwrap();
    for (dq, noted) in [(1, false), (2, true)] {
        let notes = supported.notes(&config(dq)).numerical;
        assert_eq!(notes.contains(&NumericalNote::Nondeterministic), noted, "dq={dq}");
    }
    assert_eq!(supported.heuristic(), config(1));
}

/// MMAs run on without waiting for each other, which the assembler says where it is not so, and no
/// register goes to memory.
#[test]
fn products_are_not_serialised() {
    for (depth, width) in [(64, 64), (128, 128), (96, 64)] {
        let shape = AttentionShape { depth, width, ..SHAPE };
        for right in [None, Some(0)] {
            let band = Band { right, ..Band::default() };
            let case = case(banded(band), shape, DType::Bf16);
            for dq in [1, 2] {
                let image = harness::assembled_for(&case.graph, &config(dq)).remove(1);
                assert!(!image.log.contains("wgmma"), "{}", image.log);
                assert_eq!(image.resources.spill_bytes, 0, "{depth} {width} {right:?} {dq}");
            }
        }
    }
}
