//! Gradients of attention, which need its log-sum-exp.

use crate::error::Result;
use crate::graph::gradient::kept::Kept;
use crate::graph::gradient::sum::gradient;
use crate::graph::gradient::tape::{Contribution, Tape};
use crate::graph::operation::{Op, Operation};
use crate::graph::{Attention, AttentionBackward};
use crate::tensor::TensorDesc;

/// The attention with its log-sum-exp, where it has none.
pub(super) fn keeping(op: &Attention, o: &TensorDesc) -> Option<Kept> {
    let mut dims = o.dims.clone();
    dims[3] = 1;
    let with = || Kept {
        op: Op::Attention(Attention { statistics: true, ..op.clone() }),
        name: "lse".to_owned(),
        dims,
        dtype: op.score_dtype(),
    };
    (!op.statistics).then(with)
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
