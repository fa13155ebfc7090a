//! What is in the body of a loop, for the ways to run one.

use crate::graph::Operation;
use crate::loops::layer::{Layer, Loop};
use crate::loops::network::Network;
use crate::tensor::TensorDesc;

/// Why a loop is not run in some way.
pub(super) type Refused<T> = std::result::Result<T, String>;

/// A recurrence of the loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recurrence {
    pub(super) initial: i64,
    pub(super) y: i64,
    pub(super) next: i64,
}

/// A tensor of the network.
pub(super) fn desc(network: &Network, uid: i64) -> Refused<&TensorDesc> {
    network.tensor(uid).map_err(|error| error.to_string())
}

/// The recurrences of a loop.
pub(super) fn recurrences(network: &Network, of: Loop) -> Vec<Recurrence> {
    let own = network.boundaries(of).filter_map(|layer| match layer {
        Layer::Recurrence { initial, next, y, .. } => {
            Some(Recurrence { initial: *initial, next: *next, y: *y })
        }
        _ => None,
    });
    own.collect()
}

/// The operations of a loop's body in the network's order.
pub(super) fn operations(network: &Network, of: Loop) -> Refused<Vec<&Operation>> {
    let mut operations = Vec::new();
    for layer in network.layers() {
        let is_inside = |uid: &i64| network.nest(*uid).contains(&of);
        match layer {
            Layer::Operation(operation) if operation.outputs.iter().any(is_inside) => {
                operations.push(operation);
            }
            Layer::Conditional { results, .. } if results.iter().any(|of| is_inside(&of.y)) => {
                return Err("its body has a conditional".to_owned());
            }
            layer => {
                let inner = layer.of_loop().filter(|inner| network.around(*inner).contains(&of));
                if let Some(inner) = inner {
                    let name = &network.descriptor(inner).name;
                    return Err(format!("loop `{name}` is inside of it"));
                }
            }
        }
    }
    Ok(operations)
}

/// The least extent that a loop iterates over, and the least length of its outputs.
pub(super) fn room(network: &Network, of: Loop) -> (i64, i64) {
    let (mut extent, mut least) = (i64::MAX, i64::MAX);
    for layer in network.boundaries(of) {
        match layer {
            Layer::Iterator { x, axis, .. } => {
                let own = network.tensor(*x).map_or(0, |x| x.dims[*axis]);
                extent = extent.min(own);
            }
            Layer::LoopOutput { output, .. } => {
                least = output.concatenated().map_or(least, |(_, length)| least.min(length));
            }
            _ => {}
        }
    }
    (extent, least)
}
