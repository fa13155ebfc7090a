//! Gradients of attentions under test: the operation, its tensors, and values for them.

use kiln::graph::{AttentionBackward, AttentionShape, Op};
use kiln::{DType, OperationGraph, TensorDesc, reference};

use crate::attention::cases::{self, Broadcast, Case, Storage};
use crate::harness::{self, Values};

/// The engines of the family.
pub const ENGINES: [&str; 3] =
    ["attention_backward_wgmma", "attention_backward_mma", "attention_backward_simt"];

/// The graph of a case; tensors are named as their slots. Gradients lie as what they are of.
pub fn graph(
    op: &AttentionBackward,
    shape: AttentionShape,
    storage: [Storage; 4],
    broadcast: Broadcast,
) -> OperationGraph {
    let forward = cases::graph(op.forward.clone(), shape, storage, broadcast);
    let of_forward = |slot: &str| forward.tensor_named(slot).expect("the operation has the slot");
    let mut graph = OperationGraph::builder();
    let slots = Op::AttentionBackward(op.clone()).slots();
    let mut add = |slot: &'static str, uid: i64| {
        let like = match slot.strip_prefix('d') {
            // `dk` and `dlse`, but not `descale_k`.
            Some(operand) if !slot.starts_with("descale") => of_forward(operand),
            _ => of_forward(slot),
        };
        graph.tensor(TensorDesc { uid, name: slot.to_owned(), ..like.clone() })
    };
    let inputs: Vec<i64> = slots.inputs.iter().zip(1..).map(|(slot, uid)| add(slot, uid)).collect();
    let outputs: Vec<i64> =
        slots.outputs.iter().zip(100..).map(|(slot, uid)| add(slot, uid)).collect();
    graph.operation_into(Op::AttentionBackward(op.clone()), &inputs, &outputs);
    graph.build().unwrap_or_else(|error| panic!("{error}"))
}

/// A case of gradients: `o` and `lse` are what the forward operation gives.
pub fn case_of(
    op: AttentionBackward,
    shape: AttentionShape,
    storage: [Storage; 4],
    broadcast: Broadcast,
    seed: u64,
) -> Case {
    let graph = graph(&op, shape, storage, broadcast);
    let forward = cases::case_of(op.forward, shape, storage, broadcast, seed);
    let inputs = with_results(&graph, &forward, seed);
    Case { graph, inputs }
}

/// Values of the inputs of gradients: those of the forward operation, its results, and random
/// gradients of these.
pub fn with_results(graph: &OperationGraph, forward: &Case, seed: u64) -> Values {
    let known = reference::evaluate(&forward.graph, &forward.inputs).expect("inputs fit");
    let value = |tensor: &TensorDesc| {
        let own = match forward.graph.tensor_named(&tensor.name) {
            // Rows of no sequence hold anything.
            Ok(of) => known[&of.uid].values.clone(),
            Err(_) => harness::fill(tensor, seed + tensor.name.len() as u64 * 31, 1.0),
        };
        (tensor.uid, own)
    };
    graph.inputs().map(value).collect()
}

/// A case with all operands of one type, in order.
pub fn case(op: AttentionBackward, shape: AttentionShape, dtype: DType) -> Case {
    case_of(op, shape, [Storage::packed(dtype); 4], [true; 4], 1)
}

/// Runs a case on every engine that takes it, at its heuristic setting, and gives their names.
#[track_caller]
pub fn check(case: &Case, what: &str) -> Vec<&'static str> {
    cases::check_on(&ENGINES, case, what)
}
