//! The reverse pass over a graph.

use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::graph::gradient::rules;
use crate::graph::gradient::sum::gradient;
use crate::graph::gradient::tape::{Contribution, Tape, active};

/// The forward graph with the operations that compute the gradients of `inputs` from those of
/// `outputs` behind it.
///
/// # Errors
/// As [`OperationGraph::vjp`].
pub(super) fn reversed<'a>(
    forward: &'a OperationGraph,
    outputs: &[i64],
    inputs: &[i64],
) -> Result<Tape<'a>> {
    let mut tape = Tape::new(forward, active(forward, inputs));
    for uid in outputs {
        let given = tape.named(*uid)?;
        tape.builder.tensor(given.clone());
        tape.output_gradients.push(given.uid);
        tape.contribute(*uid, Contribution::Whole(given.uid));
    }
    for operation in forward.operations().iter().rev() {
        if operation.outputs.iter().any(|uid| tape.has_gradient(*uid)) {
            rules::reverse(&mut tape, operation)?;
        }
    }
    for uid in inputs {
        let Some(gradient) = gradient(&mut tape, *uid)? else {
            let name = &forward.tensor(*uid)?.name;
            let text = format!("vjp: no output that is given depends on `{name}`");
            return Err(Error::bad_param(text));
        };
        let gradient = tape.filled(gradient, *uid)?;
        let stored = tape.stored(gradient, *uid)?;
        tape.input_gradients.push(stored);
    }
    Ok(tape)
}
