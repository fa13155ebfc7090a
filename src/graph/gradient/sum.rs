//! The gradient of a tensor: the sum of what was contributed to it.

use crate::error::Result;
use crate::graph::gradient::pieces;
use crate::graph::gradient::tape::{Contribution, Tape};
use crate::tensor::TensorDesc;

/// The gradient of a tensor in the tensor's type; dimensions of extent 1 may stand for broadcast
/// ones. `None` where nothing was contributed.
pub(super) fn gradient(tape: &mut Tape<'_>, uid: i64) -> Result<Option<i64>> {
    let Some(contributions) = tape.contributions.remove(&uid) else { return Ok(None) };
    let TensorDesc { dtype, dims, .. } = tape.forward.tensor(uid)?.clone();
    let mut wholes = pieces::joined(tape, uid, &dims, contributions)?;
    let mut sum = wholes.remove(0);
    for other in wholes {
        sum = tape.sum(sum, other)?;
    }
    let sum = tape.cast(sum, dtype)?;
    tape.contributions.insert(uid, vec![Contribution::Whole(sum)]);
    Ok(Some(sum))
}
