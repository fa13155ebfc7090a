//! Gradients of attention, which need its log-sum-exp.

use crate::error::Result;
use crate::graph::gradient::sum::gradient;
use crate::graph::gradient::tape::{Contribution, Tape, active};
use crate::graph::operation::{Op, Operation};
use crate::graph::{Attention, AttentionBackward, OperationGraph};
use crate::tensor::TensorDesc;

/// The graph with the log-sum-exp of every attention that depends on `inputs` as an output.
///
/// # Errors
/// As [`OperationGraph::new`].
pub(super) fn with_statistics(graph: &OperationGraph, inputs: &[i64]) -> Result<OperationGraph> {
    let active = active(graph, inputs);
    let (mut tensors, mut operations) = (graph.tensors().to_vec(), graph.operations().to_vec());
    for operation in &mut operations {
        let depends = operation.inputs.iter().any(|uid| active.contains(uid));
        let Op::Attention(op) = &mut operation.op else { continue };
        if op.statistics || !depends {
            continue;
        }
        let dtype = op.score_dtype();
        op.statistics = true;
        let mut name = "lse".to_owned();
        while tensors.iter().any(|tensor| tensor.name == name) {
            name.push('_');
        }
        let uid = tensors.iter().map(|tensor| tensor.uid).max().unwrap_or(0) + 1;
        let mut dims = graph.tensor(operation.outputs[0])?.dims.clone();
        dims[3] = 1;
        tensors.push(TensorDesc::packed(uid, name, &dims, dtype));
        operation.outputs.push(uid);
    }
    OperationGraph::new(tensors, operations)
}

/// Contributes the gradients of an attention's operands.
///
/// # Errors
/// `NotSupported` for one that is for inference only.
pub(super) fn attention(tape: &mut Tape<'_>, op: &Attention, of: &Operation) -> Result<()> {
    let (o, lse) = (of.outputs[0], of.outputs[1]);
    let [d_o, dlse] = [gradient(tape, o)?, gradient(tape, lse)?];
    let narrow = of.inputs[..3].iter().any(|uid| tape.desc(*uid).dtype.is_f8());
    if narrow || op.paged || op.descale_q || op.descale_k || op.descale_v {
        return tape.refuse(of);
    }
    let d_o = match d_o {
        Some(d_o) => tape.filled(d_o, o)?,
        None => {
            let dtype = tape.desc(o).dtype;
            let zeros = tape.zeros(o)?;
            tape.cast(zeros, dtype)?
        }
    };
    let dlse = dlse.map(|dlse| tape.filled(dlse, lse)).transpose()?;
    let slots = of.op.slots().inputs;
    let input = |slot: &str| {
        let at = slots.iter().position(|name| *name == slot);
        at.map(|at| of.inputs[at])
    };
    let wanted = |slot: &str| input(slot).is_some_and(|uid| tape.is_active(uid));
    let backward = AttentionBackward {
        dlse: dlse.is_some(),
        dbias: wanted("bias"),
        dslopes: wanted("slopes"),
        dsinks: wanted("sinks"),
        dscore: std::array::from_fn(|at| wanted(&format!("score_{at}"))),
        ..AttentionBackward::new(op.clone())
    };
    let operands: Vec<i64> = of.inputs.iter().copied().chain([o, lse, d_o]).chain(dlse).collect();
    let own = Op::AttentionBackward(backward);
    let results = own.slots().outputs;
    let gradients = tape.builder.operation(own, &operands)?;
    for (slot, gradient) in results.into_iter().zip(gradients) {
        let Some(uid) = input(&slot[1..]) else { continue };
        if !tape.is_active(uid) {
            tape.keep(gradient, uid)?;
            continue;
        }
        // The operation rounds its results once.
        let dtype = tape.desc(uid).dtype;
        tape.builder.name(gradient, "", dtype);
        tape.contribute(uid, Contribution::Whole(gradient));
    }
    Ok(())
}
