//! FP8 keys and values on warpgroups: when they are chosen, and what they cost.

use kiln::engine::{self, Selection};
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::attention::cases::{self, Case, SHAPE, Storage};
use crate::harness::{self, conflicts};

const E4M3: DType = DType::F8E4M3;
const E5M2: DType = DType::F8E5M2;

fn case(op: &Attention, shape: AttentionShape, [q, k, v]: [DType; 3]) -> Case {
    let storage = [q, k, v, q].map(|dtype| Storage { page: 8, ..Storage::packed(dtype) });
    cases::case_of(op.clone(), shape, storage, [true; 4], 3)
}

fn causal() -> Attention {
    let band = Band::causal(Diagonal::BottomRight);
    Attention { band, statistics: true, ..Attention::new(MatmulMath::F32) }
}

fn served(op: Attention, [queries, keys, elements]: [i64; 3], types: [DType; 3]) -> OperationGraph {
    let (depth, width) = (elements, elements);
    let shape = AttentionShape { heads: 32, kv_heads: 8, queries, keys, depth, width, ..SHAPE };
    let [q, k, v] = types.map(Storage::packed);
    cases::graph(op, shape, [q, k, v, q], [true; 4])
}

/// From 64 queries on warpgroups are chosen, as they are for keys of 16 bits.
#[test]
fn warpgroups_are_chosen_for_fp8() {
    let target = Target::named("h200").unwrap();
    for (queries, wanted) in [(2048, "attention_wgmma"), (1, "attention_decode")] {
        for elements in [64, 128, 256] {
            for types in [[DType::Bf16, E4M3, E4M3], [DType::F16, E5M2, E5M2]] {
                let graph = served(causal(), [queries, 2048, elements], types);
                let chosen = engine::choose(graph.canonical(), &target, &Selection::default());
                assert_eq!(chosen.unwrap().engine, wanted, "{queries} of {elements}, {types:?}");
            }
        }
    }
}

/// Every key and value is read once for each tile, a byte each, and no lane waits for a bank.
#[test]
fn bytes_and_conflicts_of_fp8_on_warpgroups() {
    for (depth, width) in [(64, 64), (128, 128), (192, 128), (256, 256)] {
        let shape = AttentionShape { batches: 1, heads: 2, kv_heads: 1, ..SHAPE };
        let shape = AttentionShape { queries: 256, keys: 256, depth, width, ..shape };
        let case = case(&Attention::new(MatmulMath::F32), shape, [DType::Bf16, E4M3, E4M3]);
        let config = "attention_wgmma{cta_k=32, cta_q=128, stages=2}".parse().unwrap();
        let counters = harness::count(&case.graph, Some(&config), &case.inputs);
        assert_eq!(conflicts(&counters), 0, "{depth} and {width}");
    }
}
