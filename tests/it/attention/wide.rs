//! Heads of more than 256 elements, DeepSeek's MLA among them: on every engine that takes them, of
//! every class of devices, with the features of serving.

use kiln::engine;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::{DType, TensorDesc};

use crate::attention::cases::{self, Case, Storage};
use crate::attention::classes::open;
use crate::attention::features::{ENGINES, check};
use crate::harness;

/// The heads of MLA in absorbed form: 512 elements that are values, too, and 64 of positions.
const MLA: AttentionShape = AttentionShape {
    batches: 2,
    heads: 20,
    kv_heads: 1,
    queries: 2,
    keys: 48,
    depth: 576,
    width: 512,
};

fn served() -> Attention {
    let band = Band::causal(Diagonal::BottomRight);
    Attention { paged: true, key_lengths: true, band, ..Attention::new(MatmulMath::F32) }
}

fn case(op: &Attention, shape: AttentionShape, dtypes: [DType; 3]) -> Case {
    let [q, k, v] = dtypes.map(|dtype| Storage { page: 16, ..Storage::packed(dtype) });
    cases::case_of(op.clone(), shape, [q, k, v, q], [true; 4], 2)
}

#[test]
fn wide_heads_of_every_type_and_feature() {
    let plain = Attention { statistics: true, ..Attention::new(MatmulMath::F32) };
    let window = Band { diagonal: Diagonal::BottomRight, left: Some(20), right: Some(0) };
    let all = Attention {
        queries_max: Some(MLA.queries),
        sinks: true,
        bias: true,
        band: window,
        ..plain.clone()
    };
    let tf32 = Attention { math: MatmulMath::Tf32, ..plain.clone() };
    let double = Attention { math: MatmulMath::F64, ..plain.clone() };
    let (half, single, eight) = (DType::Bf16, DType::F32, DType::F8E4M3);
    for (name, op, dtypes, engines) in [
        ("served", served(), [half; 3], 3),
        ("all", all, [DType::F16; 3], 3),
        ("8 bits", served(), [half, eight, eight], 3),
        ("tf32", tf32, [single; 3], 2),
        ("single", plain.clone(), [single; 3], 1),
        ("double", double, [DType::F64; 3], 1),
    ] {
        let ran = check(&case(&op, MLA, dtypes), name);
        assert!(ran.len() >= engines, "{name}: {ran:?}");
    }
    for (depth, width) in [(257, 16), (16, 257), (320, 320), (40, 530), (600, 1000)] {
        let shape = AttentionShape { depth, width, heads: 3, keys: 33, ..MLA };
        let ran = check(&case(&plain, shape, [half; 3]), &format!("{depth} and {width}"));
        assert!(ran.contains(&"attention_decode"), "{depth} and {width}: {ran:?}");
    }
    for (queries, keys) in [(0, 5), (3, 0), (1, 1)] {
        let shape = AttentionShape { queries, keys, ..MLA };
        let what = format!("{queries} queries, {keys} keys");
        assert!(check(&case(&plain, shape, [half; 3]), &what).len() >= 3, "{what}");
    }
}

/// Parts of the keys are joined both ways; every class of devices has an engine for MLA.
#[test]
fn latent_attention_on_every_class_of_devices() {
    let half = [DType::Bf16; 3];
    for shape in [MLA, AttentionShape { kv_heads: 4, depth: 192, width: 128, ..MLA }] {
        let case = case(&served(), shape, half);
        for target in ["t4", "a100", "l40s", "h200", "b200"] {
            let kiln = open(target);
            let what = format!("{} on {target}", shape.depth);
            let own = kiln.device().target();
            let taken = |name: &&str| engine::supported(name, case.graph.canonical(), own).is_ok();
            let engine = ENGINES.iter().find(|name| taken(name)).expect(target);
            let expected = if target == "t4" { "attention_simt" } else { "attention_decode" };
            assert_eq!(*engine, expected, "{what}");
            harness::check(&kiln, &case.graph, None, &case.inputs, &what);
            for cluster in [1, 2] {
                let text =
                    format!("attention_decode{{cluster={cluster}, cta_k=16, cta_q=32, split=2}}");
                let config = text.parse().unwrap();
                if expected == "attention_decode" && cluster <= own.cluster_blocks_max() {
                    harness::check(&kiln, &case.graph, Some(&config), &case.inputs, &text);
                }
            }
        }
    }
}

/// Values are the first 512 elements of keys, in the memory of keys.
#[test]
fn values_are_a_view_of_keys() {
    let mut case = case(&served(), MLA, [DType::Bf16; 3]);
    let tensor = |name: &str| case.graph.inputs().find(|of| of.name == name).unwrap().clone();
    let [k, v] = ["k", "v"].map(tensor);
    let view = TensorDesc { strides: k.strides.clone(), ..v.clone() };
    let mut graph = kiln::OperationGraph::builder();
    for desc in case.graph.inputs().chain(case.graph.outputs()) {
        graph.tensor(if desc.uid == v.uid { view.clone() } else { desc.clone() });
    }
    for operation in case.graph.operations() {
        graph.operation_into(operation.op.clone(), &operation.inputs, &operation.outputs);
    }
    let rows = case.inputs[&k.uid].chunks(MLA.depth as usize);
    let values = rows.flat_map(|row| row[..MLA.width as usize].to_vec()).collect();
    case.inputs.insert(v.uid, values);
    case.graph = graph.build().unwrap();
    for kiln in harness::dialects() {
        let plan = kiln.plan(&case.graph).unwrap();
        let mut bound = harness::bind(kiln, &case.graph, &case.inputs).unwrap();
        bound.read_from(&view, &k);
        let actual = harness::run_bound(kiln, &plan, &bound).unwrap();
        harness::compare(&case.graph, &case.inputs, &actual, "values in keys");
    }
}
