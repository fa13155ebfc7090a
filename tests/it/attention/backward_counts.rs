//! What gradients of attention cost, counted: products of the tiles that are attended to, operands
//! read once for each tile, no conflict, and no register in memory.

use std::sync::Arc;

use kiln::DType;
use kiln::expr::Real;
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath, Softcap,
};

use crate::attention::backward_cases::{self, ENGINES};
use crate::attention::cases::{self, Case, Storage};
use crate::attention::counters::tiles;
use crate::harness::{self, conflicts};

const SHAPE: AttentionShape = AttentionShape {
    batches: 1,
    heads: 2,
    kv_heads: 1,
    queries: 256,
    keys: 256,
    depth: 64,
    width: 64,
};

fn case(band: Band, shape: AttentionShape) -> Case {
    let op = Attention { band, ..Attention::new(MatmulMath::F32) };
    let storage = [Storage { alignment: 256, ..Storage::packed(DType::F16) }; 4];
    backward_cases::case_of(AttentionBackward::new(op), shape, storage, [true; 4], 1)
}

/// Four products of each tile, in the kernel of dK and dV, which is the last one.
#[test]
fn products_are_those_of_tiles_that_are_attended_to() {
    let odd = AttentionShape { queries: 200, keys: 230, ..SHAPE };
    for (shape, left, right) in [
        (SHAPE, None, None),
        (SHAPE, None, Some(0)),
        (odd, None, Some(0)),
        (odd, Some(70), Some(0)),
        (odd, Some(10), Some(10)),
    ] {
        let band = Band { diagonal: Diagonal::BottomRight, left, right };
        let (cta_k, cta_q, step_k, step_q) = (64, 128, 32, 32);
        let config = format!(
            "attention_backward_mma{{cta_k={cta_k}, cta_q={cta_q}, step_k={step_k}, \
             step_q={step_q}}}"
        );
        let case = case(band, shape);
        let counters = harness::count(&case.graph, Some(&config.parse().unwrap()), &case.inputs);
        let offset = shape.keys - shape.queries;
        let attends = |query: i64, key: i64| {
            let own = query + offset;
            left.is_none_or(|left| key >= own - left)
                && right.is_none_or(|right| key <= own + right)
        };
        let want = shape.heads * tiles(&shape, step_q, cta_k, attends) * step_q * cta_k * 4 * 64;
        let [products] = &counters.products[..] else { panic!("one kind of product") };
        assert_eq!(products.multiply_adds, want as u64, "{band:?}");
        assert_eq!(conflicts(&counters), 0, "{band:?}");
    }
}

/// A block reads its tile of keys once, and all queries that attend to it once.
#[test]
fn tiles_are_read_once_for_a_tile() {
    let case = case(Band::default(), SHAPE);
    let config = "attention_backward_mma{cta_k=128, cta_q=128, step_k=64, step_q=64}";
    let counters = harness::count(&case.graph, Some(&config.parse().unwrap()), &case.inputs);
    let bytes = |heads: i64| 2 * (heads * 256 * 64) as u64;
    let (of_queries, of_keys) = (2 * bytes(2), 2 * bytes(1));
    // lse and delta of every query.
    let rows = 2 * 4 * 2 * 256;
    // Two tiles of keys read all queries of both heads.
    assert_eq!(counters.total.global.bytes, of_keys + 2 * (of_queries + rows) + of_keys);
    // Tensors of the least alignment may take a sector more.
    let least = of_keys + of_queries + rows;
    assert!((least..=least + 64).contains(&counters.dram_read_bytes));
    assert_eq!(counters.dram_written_bytes, of_keys);
}

/// On FP32 cores, with heads of whole warps of elements.
#[test]
fn shared_memory_has_no_conflicts() {
    let storage = [Storage { alignment: 256, ..Storage::packed(DType::F32) }; 4];
    let op = Attention { bias: true, ..Attention::new(MatmulMath::F32) };
    let op = AttentionBackward { dbias: true, ..AttentionBackward::new(op) };
    let shape = AttentionShape { queries: 64, keys: 64, ..SHAPE };
    let case = backward_cases::case_of(op, shape, storage, [true; 4], 1);
    for config in [
        "attention_backward_simt{cta_k=16, cta_q=16}",
        "attention_backward_simt{cta_k=32, cta_q=32}",
    ] {
        let counters = harness::count(&case.graph, Some(&config.parse().unwrap()), &case.inputs);
        assert_eq!(conflicts(&counters), 0, "{config}");
    }
}

/// A sample: `KILN_TEST_ALL=1` (`make spills`) compiles all.
#[test]
fn defaults_spill_nothing() {
    let causal =
        Attention { band: Band::causal(Diagonal::BottomRight), ..Attention::new(MatmulMath::F32) };
    let model = Attention {
        softcap: Some(Softcap { cap: Real::new(30.0), last: false }),
        slopes: true,
        sinks: true,
        key_lengths: true,
        band: Band { left: Some(1024), ..causal.band },
        ..causal.clone()
    };
    let mut graphs = Vec::new();
    for elements in [64, 96, 128] {
        let shape = AttentionShape {
            batches: 2,
            heads: 32,
            kv_heads: 8,
            queries: 2048,
            keys: 2048,
            depth: elements,
            width: elements,
        };
        let all = Attention {
            intervals: true,
            bias: true,
            mask: true,
            query_lengths: true,
            dropout: Some(Real::new(0.1)),
            score: Some(Arc::new(cases::score_program(&shape, DType::F32))),
            keep: Some(Arc::new(cases::keep_program(DType::F32))),
            ..model.clone()
        };
        let dropped = Attention { dropout: all.dropout, ..causal.clone() };
        for op in [causal.clone(), model.clone(), dropped, all] {
            let (bias, sinks) = (op.bias, op.sinks);
            let op = AttentionBackward { dbias: bias, dsinks: sinks, ..AttentionBackward::new(op) };
            let storage = [Storage::packed(DType::Bf16); 4];
            graphs.push(backward_cases::graph(&op, shape, storage, [true; 4]));
        }
    }
    let targets = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];
    let sources = harness::default_sources(&ENGINES, &targets, &graphs);
    harness::compile_without_spills(&harness::sampled(sources, 8));
}
