//! Heads of more than 256 elements: values that are a view of keys, as in DeepSeek's MLA, and an
//! engine for heads of any length.

use kiln::engine;
use kiln::graph::{Attention, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::target::Target;
use kiln::{DType, TensorDesc};

use crate::attention::cases::{self, Case, Storage};
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

/// Every target has a setting for every head.
#[test]
fn heads_of_any_length_have_an_engine() {
    for name in ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        for (math, dtype) in [(MatmulMath::F64, DType::F64), (MatmulMath::F32, DType::Bf16)] {
            for elements in [1, 255, 256, 257, 512, 576, 1024, 1025, 4096, 100_000] {
                let shape = AttentionShape { depth: elements, width: elements, ..MLA };
                let storage = [Storage::packed(dtype); 4];
                let graph = cases::graph(Attention::new(math), shape, storage, [true; 4]);
                let supported = engine::supported("attention_simt", graph.canonical(), &target);
                let supported = supported.unwrap_or_else(|error| panic!("{name}: {error}"));
                supported.lower(&supported.heuristic()).unwrap();
            }
        }
    }
}
