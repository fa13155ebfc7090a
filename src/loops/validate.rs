//! The rules of each layer by itself: types and shapes.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Op, check_operation};
use crate::loops::layer::{BranchResult, Layer, Loop, LoopOutput, TripLimit};
use crate::loops::network::Network;
use crate::loops::sequence;
use crate::tensor::TensorDesc;

/// Checks types and shapes of a layer's tensors.
///
/// # Errors
/// `BadParam` naming layer, tensors and rule; `NotSupported` for an operation that has no place in
/// a network.
pub(super) fn check_layer(network: &Network, layer: &Layer) -> Result<()> {
    if let Some(of) = layer.of_loop()
        && network.loops().all(|known| known != of)
    {
        return Err(Error::bad_param(format!("no loop of the network has number {}", of.0)));
    }
    match layer {
        Layer::Operation(operation) => {
            let sees_memory = match &operation.op {
                Op::Concatenate(op) => op.in_place.is_some(),
                Op::DynamicSlice(op) => op.writes(),
                op => matches!(op, Op::Signal(_)),
            };
            if sees_memory {
                let rule = "a network has no memory of its tensors that another could see";
                return Err(Error::not_supported(format!("{}: {rule}", operation.op)));
            }
            check_operation(network.tensors(), operation)
        }
        Layer::TripLimit { of, limit, x } => {
            let dtype = match limit {
                TripLimit::Count => DType::I32,
                TripLimit::While => DType::Bool,
            };
            let what = format!("{} limit of loop `{}`", limit.name(), name(network, *of));
            check_scalar(network, &what, *x, dtype)
        }
        Layer::Iterator { of, x, axis, y, .. } => {
            let (x, y) = (network.tensor(*x)?, network.tensor(*y)?);
            let what = format!("iterator of loop `{}` over {}", name(network, *of), shown(x));
            if x.by_value {
                return Err(Error::not_supported(format!("{what}: it is by value")));
            }
            let wanted = TensorDesc { dims: sequence::element(x, *axis)?, ..x.clone() };
            check_same(&what, "its element", y, "expected", &wanted)
        }
        Layer::Recurrence { of, initial, next, y } => {
            let [y, initial, next] = [y, initial, next].map(|uid| network.tensor(*uid));
            let (y, initial, next) = (y?, initial?, next?);
            let what = format!("recurrence {} of loop `{}`", shown(y), name(network, *of));
            let against = |what: &str, of: &TensorDesc| format!("{what} {}", shown(of));
            let value = against("the initial value", initial);
            check_same(&what, &against("the next value", next), next, &value, initial)?;
            check_same(&what, "its value", y, &value, initial)
        }
        Layer::LoopOutput { of, output, x, y } => {
            let (x, y) = (network.tensor(*x)?, network.tensor(*y)?);
            let what = format!("{output} of {} in loop `{}`", shown(x), name(network, *of));
            let is_own = |layer: &Layer| match layer {
                Layer::Recurrence { of: own, y, .. } => own == of && *y == x.uid,
                _ => false,
            };
            if *output == LoopOutput::LastValue && !network.layers().iter().any(is_own) {
                let text = format!("{what}: {} is no recurrence of the loop", shown(x));
                return Err(Error::bad_param(text));
            }
            let wanted = TensorDesc { dims: sequence::whole(x, *output)?, ..x.clone() };
            check_same(&what, "its result", y, "expected", &wanted)
        }
        Layer::Conditional { condition, results } => {
            check_scalar(network, "condition of a conditional", *condition, DType::Bool)?;
            if results.is_empty() {
                let name = network.reference(*condition);
                let text = format!("conditional on `{name}` has no result");
                return Err(Error::bad_param(text));
            }
            for BranchResult { then, otherwise, y } in results {
                let [then, otherwise, y] = [then, otherwise, y].map(|uid| network.tensor(*uid));
                let (then, otherwise, y) = (then?, otherwise?, y?);
                let what = format!("conditional on `{}`", network.reference(*condition));
                let [value, other] = [("then", then), ("else", otherwise)]
                    .map(|(branch, of)| format!("{} of `{branch}`", shown(of)));
                check_same(&what, &other, otherwise, &value, then)?;
                check_same(&what, "its result", y, &value, then)?;
            }
            Ok(())
        }
    }
}

fn check_scalar(network: &Network, what: &str, uid: i64, dtype: DType) -> Result<()> {
    let x = network.tensor(uid)?;
    match x.dtype == dtype && x.elements() == Some(1) {
        true => Ok(()),
        false => Err(Error::bad_param(format!(
            "{what}: {} is {}{:?}, expected {dtype} with one element",
            shown(x),
            x.dtype,
            x.dims
        ))),
    }
}

fn check_same(
    what: &str,
    own: &str,
    x: &TensorDesc,
    other: &str,
    wanted: &TensorDesc,
) -> Result<()> {
    match x.dtype == wanted.dtype && x.dims == wanted.dims {
        true => Ok(()),
        false => Err(Error::bad_param(format!(
            "{what}: {own} is {}{:?}, {other} {}{:?}",
            x.dtype, x.dims, wanted.dtype, wanted.dims
        ))),
    }
}

fn name(network: &Network, of: Loop) -> &str {
    &network.descriptor(of).name
}

fn shown(tensor: &TensorDesc) -> String {
    match tensor.name.as_str() {
        "" => format!("`#{}`", tensor.uid),
        name => format!("`{name}`"),
    }
}
