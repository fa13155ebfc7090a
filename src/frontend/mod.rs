//! Front-ends: computations with descriptions of their own (operation graphs themselves, recurrent
//! networks, attention layers) that are lowered to operation graphs.
//!
//! A [`FrontEnd`] is all that planning, manifests and the command line know of such a computation.
//! The list of problem documents is in `documents`.

mod operation_graph;
mod values;

use std::fmt;

pub use operation_graph::random_values;
pub(crate) use operation_graph::set_awaited;
pub use values::Values;
pub(crate) use values::{random_tensors, random_values_of};

use crate::error::Result;
use crate::graph::OperationGraph;
use crate::tensor::TensorDesc;

/// A computation lowered to operation graphs that run in sequence.
///
/// The caller provides values of named tensors ([`FrontEnd::named_inputs`]), which
/// [`FrontEnd::initial_values`] converts to the *state*: the values that the graphs read and write.
/// Before each graph, [`FrontEnd::inputs`] reads its inputs from the state; after it,
/// [`FrontEnd::store`] writes its outputs to the state. After the last one,
/// [`FrontEnd::named_values`] converts the state to values of [`FrontEnd::named_outputs`].
///
/// The keys of the state are the front-end's own. With the default methods they are uids of graph
/// tensors: tensors of different graphs with the same uid have the same values.
pub trait FrontEnd: fmt::Debug + Send + Sync {
    /// The operation graphs in execution order.
    fn graphs(&self) -> Vec<&OperationGraph>;

    /// Other graphs that a layer on a device plans for the same computation, such as those of a
    /// network that it runs in chunks of steps.
    fn besides(&self) -> Vec<OperationGraph> {
        Vec::new()
    }

    /// Descriptors of the caller's inputs. Files of tensors refer to them by name, [`Values`] by
    /// uid.
    fn named_inputs(&self) -> Vec<TensorDesc>;

    /// Descriptors of the caller's outputs, as for [`FrontEnd::named_inputs`].
    fn named_outputs(&self) -> Vec<TensorDesc>;

    /// Reproducible random values of [`FrontEnd::named_inputs`] that are valid (lengths, pages and
    /// windows in range) and of a magnitude that occurs in practice.
    ///
    /// # Errors
    /// `Io` when host memory is exhausted.
    fn random_values(&self, seed: u64) -> Result<Values>;

    /// The state before the first graph, from values of [`FrontEnd::named_inputs`].
    ///
    /// # Errors
    /// `BadParam` when values are missing, out of range, or their number is wrong; `Io` when host
    /// memory is exhausted.
    fn initial_values(&self, named: Values) -> Result<Values>;

    /// Values of the inputs of a graph, given by its position, by uid; more than these are allowed.
    #[expect(unused_variables, reason = "all graphs read the state by uid")]
    fn inputs(&self, graph: usize, state: &Values) -> Values {
        state.clone()
    }

    /// Writes values of the outputs of a graph, given by its position, to the state.
    #[expect(unused_variables, reason = "all graphs write the state by uid")]
    fn store(&self, graph: usize, outputs: &Values, state: &mut Values) {
        state.extend(outputs.iter().map(|(uid, output)| (*uid, output.clone())));
    }

    /// Values of [`FrontEnd::named_outputs`] after the last graph.
    ///
    /// # Panics
    /// When the state lacks an output of a graph.
    fn named_values(&self, state: &Values) -> Values;
}
