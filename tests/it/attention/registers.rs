//! Default settings leave no register to memory, on every architecture, and no product waits.

use std::sync::Arc;

use kiln::expr::Real;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath, Softcap};
use kiln::{DType, OperationGraph};

use crate::attention::cases::ENGINES;
use crate::attention::cases::{self, Storage};
use crate::harness;

/// All keys; nothing but causal, what models of language ask for, all there is, floats of 8 bits
/// with the first and the last of these, and dropout with the first two.
pub fn operations(shape: &AttentionShape) -> [Attention; 8] {
    let full = Attention { statistics: true, ..Attention::new(MatmulMath::F32) };
    let causal = Attention { band: Band::causal(Diagonal::BottomRight), ..full.clone() };
    let model = Attention {
        softcap: Some(Softcap { cap: Real::new(30.0), last: false }),
        slopes: true,
        sinks: true,
        key_lengths: true,
        band: Band { left: Some(1024), ..causal.band },
        ..causal.clone()
    };
    let all = Attention {
        intervals: true,
        bias: true,
        mask: true,
        query_lengths: true,
        dropout: Some(Real::new(0.1)),
        score: Some(Arc::new(cases::score_program(shape, DType::F32))),
        keep: Some(Arc::new(cases::keep_program(DType::F32))),
        ..model.clone()
    };
    let (descale_k, descale_v) = (true, true);
    let fp8 = Attention { descale_k, descale_v, ..causal.clone() };
    let all_fp8 = Attention { descale_k, descale_v, ..all.clone() };
    let [dropped, dropped_model] =
        [&causal, &model].map(|op: &Attention| Attention { dropout: all.dropout, ..op.clone() });
    [full, causal, model, all, fp8, all_fp8, dropped, dropped_model]
}

/// Heads of models, with q and o, and k and v, of these types; also with k and v of 8 bits.
pub fn of_models(
    math: MatmulMath,
    [own, kv]: [DType; 2],
    fp8: Option<DType>,
) -> Vec<OperationGraph> {
    let mut graphs = Vec::new();
    for elements in [64, 128, 256] {
        let shape = AttentionShape {
            batches: 2,
            heads: 32,
            kv_heads: 8,
            queries: 2048,
            keys: 2048,
            depth: elements,
            width: elements,
        };
        for op in operations(&shape) {
            let kv = if op.descale_k { fp8 } else { Some(kv) };
            let Some(kv) = kv else { continue };
            let storage = [own, kv, kv, own].map(Storage::packed);
            graphs.push(cases::graph(Attention { math, ..op }, shape, storage, [true; 4]));
        }
    }
    graphs
}

/// A sample: `KILN_TEST_ALL=1` (`make spills`) compiles all.
#[test]
fn defaults_spill_nothing() {
    let graphs = of_models(MatmulMath::F32, [DType::Bf16; 2], Some(DType::F8E4M3));
    let targets = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];
    let sources = harness::default_sources(&ENGINES, &targets, &graphs);
    harness::compile_without_spills(&harness::sampled(sources, 8));
}
