//! What can go wrong when a network runs, which its inputs decide.

use crate::error::Error;
use crate::loops::layer::{Layer, Loop};
use crate::loops::network::Network;

/// Something that an output needs and that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// An element of an iterator past the end of its tensor.
    PastEnd {
        /// The iterator's result.
        y: i64,
        /// The element.
        element: i64,
    },
    /// More trips than a concatenation has room for.
    TooLong {
        /// The loop output.
        y: i64,
        /// The trips.
        trips: i64,
    },
    /// A condition that is still true after the most trips of the loop.
    Endless {
        /// The loop.
        of: Loop,
    },
}

impl Trouble {
    /// The error that the caller gets.
    pub(crate) fn error(self, network: &Network) -> Error {
        let name = |of: Loop| &network.descriptor(of).name;
        let tensor = |uid: i64| network.reference(uid);
        let text = match self {
            Trouble::PastEnd { y, element } => match network.writer(y) {
                Some(Layer::Iterator { of, x, axis, .. }) => {
                    let extent = network.tensor(*x).map_or(0, |x| x.dims[*axis]);
                    format!(
                        "loop `{}`: element {element} of the iterator over `{}` is needed, its \
                         extent is {extent}",
                        name(*of),
                        tensor(*x)
                    )
                }
                _ => format!("element {element} of `{}` does not exist", tensor(y)),
            },
            Trouble::TooLong { y, trips } => match network.writer(y) {
                Some(Layer::LoopOutput { of, output, .. }) => {
                    let length = output.concatenated().map_or(0, |(_, length)| length);
                    format!(
                        "loop `{}` makes {trips} trips, `{}` has a length of {length}",
                        name(*of),
                        tensor(y)
                    )
                }
                _ => format!("`{}` is too short for {trips} trips", tensor(y)),
            },
            Trouble::Endless { of } => {
                let trips = network.descriptor(of).trips_max;
                format!("loop `{}`: its condition is still true after {trips} trips", name(of))
            }
        };
        Error::bad_param(text)
    }
}
