//! Products of f32 in tf32 on tensor cores: what they cost, and who refuses them.

use kiln::engine::{self, EngineConfig, NumericalNote};
use kiln::graph::{Attention, AttentionShape, MatmulMath};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::attention::cases::{self, SHAPE, Storage};
use crate::attention::registers::of_models;
use crate::harness::{self, conflicts};

/// The engines that take tf32.
const TENSOR: [&str; 2] = ["attention_decode", "attention_mma"];

/// As many multiplications as the tiles have, every operand once, and no conflict: values are read
/// untransposed, by words.
#[test]
fn tf32_products_bytes_and_conflicts() {
    for (depth, width) in [(16, 16), (32, 32), (64, 64), (72, 40), (128, 128), (192, 128)] {
        let shape = AttentionShape { batches: 1, heads: 2, kv_heads: 1, ..SHAPE };
        let shape = AttentionShape { queries: 256, keys: 256, depth, width, ..shape };
        let storage = Storage { alignment: 256, ..Storage::packed(DType::F32) };
        let op = Attention::new(MatmulMath::Tf32);
        let case = cases::case(op, shape, storage, [true; 4]);
        let rows = 2 * 256;
        for (config, blocks) in [
            ("attention_mma{cta_k=32, cta_q=64, hold_q=0, warp_q=16}", 8),
            ("attention_mma{cta_k=16, cta_q=128, hold_q=1, warp_q=32}", 4),
            ("attention_decode{cluster=1, cta_k=32, cta_q=64, split=1}", 8),
        ] {
            let parsed: EngineConfig = config.parse().unwrap();
            if harness::kiln().plan_with(&case.graph, &parsed).is_err() {
                assert!(depth > 64, "{config} of {depth}");
                continue;
            }
            let counters = harness::count(&case.graph, Some(&parsed), &case.inputs);
            let [products] = &counters.products[..] else { panic!("one kind of product") };
            let padded = (depth + 7) / 8 * 8 + (width + 15) / 16 * 16;
            let what = format!("{config} of {depth} and {width}");
            assert_eq!(products.multiply_adds as i64, rows * 256 * padded, "{what}");
            assert_eq!(products.warp_instructions as i64 * 1024, rows * 256 * padded, "{what}");
            let once = 4 * (rows * depth + rows * width);
            let step = 4 * 256 * (depth + width);
            assert_eq!(counters.total.global.bytes as i64, once + blocks * step, "{what}");
            assert_eq!(conflicts(&counters), 0, "{what}");
        }
    }
}

/// No default spills a register, with what models ask for and with all there is. A sample:
/// `KILN_TEST_ALL=1` (`make spills`) compiles all.
#[test]
fn tf32_defaults_spill_nothing() {
    let mut graphs = of_models(MatmulMath::Tf32, [DType::F32; 2], None);
    graphs.extend(of_models(MatmulMath::F32, [DType::F16, DType::Bf16], None));
    let sources = harness::default_sources(&TENSOR, &["a100", "rtx4090", "h200"], &graphs);
    harness::compile_without_spills(&harness::sampled(sources, 8));
}

fn refusal(name: &str, graph: &OperationGraph) -> String {
    let target = Target::named("h200").unwrap();
    engine::supported(name, graph.canonical(), &target).map(|_| ()).unwrap_err().to_string()
}

/// Only where it is asked for, and said in a note.
#[test]
fn tf32_is_asked_for() {
    let graph = |math, types: [DType; 3]| {
        let [q, k, v] = types.map(Storage::packed);
        cases::graph(Attention::new(math), SHAPE, [q, k, v, q], [true; 4])
    };
    let exact = graph(MatmulMath::F32, [DType::F32; 3]);
    let mixed = graph(MatmulMath::Tf32, [DType::F32, DType::F32, DType::F8E4M3]);
    for (graph, types) in
        [(exact, "q is f32, k is f32 and v is f32"), (mixed, "q is f32, k is f32 and v is f8e4m3")]
    {
        for name in ["attention_decode", "attention_mma", "attention_wgmma"] {
            let error = refusal(name, &graph);
            let rule = format!(
                "{types}: tensor cores take f16, bf16 or f8, or f32 next to f16 and bf16 where \
                 math is tf32"
            );
            assert!(error.contains(&rule), "{name}: {error}");
        }
    }
    let rounded = graph(MatmulMath::Tf32, [DType::F32; 3]);
    let error = refusal("attention_wgmma", &rounded);
    assert!(error.contains("warpgroups do not read values of tf32 transposed"), "{error}");
    let widened = graph(MatmulMath::F32, [DType::F16, DType::Bf16, DType::Bf16]);
    let target = Target::named("h200").unwrap();
    for name in TENSOR {
        let notes = |graph: &OperationGraph| {
            let supported = engine::supported(name, graph.canonical(), &target).unwrap();
            supported.notes(&supported.heuristic()).numerical
        };
        let own = [NumericalNote::TensorCore, NumericalNote::DownConvertInputs];
        assert_eq!(notes(&rounded), own);
        assert_eq!(notes(&widened), own[..1], "tf32 represents f16 and bf16");
    }
}
