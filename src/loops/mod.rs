//! Networks with loops and conditionals (TensorRT's `ILoop`): lazy sequences of tensors.
//!
//! Inside a loop a tensor is a sequence `<X0, X1, ..>` with an element for each trip; only those
//! elements are evaluated that an output needs.
//!
//! | layer | meaning |
//! |---|---|
//! | trip limit `count(t)` | `n = max(t, 0)` trips; `t` is from outside |
//! | trip limit `while(t)` | the least `n` whose `t_n` is false; with a count the smaller one |
//! | iterator over `X` | `<X[0], X[1], ..>` along an axis, or from the end |
//! | recurrence | `<initial, next0, next1, ..>`: the only back edge |
//! | output `last_value` of a recurrence | its `n`-th element |
//! | output `concatenate`, `reverse` | elements 0 to `n - 1` along a new axis, then 0 |
//! | conditional | the branch that the condition chooses |
//!
//! Everything else is an operation of a [graph](crate::graph), applied element by element. What a
//! loop does not compute is the same in all of its trips. Which loop is in which follows from the
//! flow of data. A scalar has one element, as graphs have no tensors without dimensions.
//!
//! ```
//! use kiln::DType;
//! use kiln::expr::{Mode, Pointwise};
//! use kiln::loops::{LoopOutput, Network, TripLimit};
//!
//! // for (i = j; ...; i += k): the sum of j and n times k.
//! let mut network = Network::builder();
//! let [j, k, n] = ["j", "k", "n"].map(|name| network.graph().input(name, &[1], DType::I32));
//! let counting = network.add_loop("counting");
//! network.trip_limit(counting, TripLimit::Count, n);
//! let i = network.recurrence(counting, j)?;
//! let next = network.graph().pointwise(Pointwise::new(Mode::Add), &[i, k])?;
//! network.set_next(i, next)?;
//! let last = network.loop_output(counting, LoopOutput::LastValue, i)?;
//! network.graph().output(last, "last", DType::I32);
//! let network = network.build()?;
//! assert_eq!(network.layers().len(), 4);
//! # Ok::<(), kiln::Error>(())
//! ```

mod assemble;
mod body;
mod builder;
mod cell;
mod cell_known;
mod cell_stages;
mod demand;
mod framed;
mod hoist;
mod items;
mod json;
mod ladder;
mod layer;
mod loop_operation;
mod lower;
mod nest;
mod nesting;
mod network;
mod order;
mod place;
mod pointwise;
mod program;
mod random;
mod recurrent;
mod resident;
mod resident_body;
mod rewrite;
mod scope;
mod sequence;
mod served;
mod text;
mod trouble;
mod turn;
mod validate;

pub use builder::NetworkBuilder;
pub(crate) use demand::Trace;
pub(crate) use ladder::Refusals;
pub use layer::{BranchResult, Layer, Loop, LoopOutput, TripLimit};
pub(crate) use loop_operation::LoopOperation;
pub use network::{LoopDescriptor, Network, TRIPS_MAX};
pub(crate) use place::{Moment, Place, Region};
pub(crate) use program::{
    Along, ConditionalStep, LoopStep, MOVED_FROM, MOVED_TO, Program, Stacked, Step, Turned,
    WhileStep,
};
pub(crate) use trouble::Trouble;
