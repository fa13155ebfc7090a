//! Incremental construction of a network.

use crate::error::{Error, Result};
use crate::graph::GraphBuilder;
use crate::loops::layer::{BranchResult, Layer, Loop, LoopOutput, TripLimit};
use crate::loops::network::{LoopDescriptor, Network, TRIPS_MAX};
use crate::loops::sequence;
use crate::tensor::TensorDesc;

/// Collects the layers of a network; tensors are identified by uid.
///
/// Operations, inputs and outputs are those of [a graph](NetworkBuilder::graph): an operation is
/// inside a loop if it uses a value of that loop.
#[derive(Debug, Clone, Default)]
pub struct NetworkBuilder {
    graph: GraphBuilder,
    boundaries: Vec<Layer>,
    /// Initial values of recurrences without a next value so far.
    open: Vec<(Loop, i64, i64)>,
    loops: Vec<LoopDescriptor>,
}

impl Network {
    /// Returns an empty builder.
    pub fn builder() -> NetworkBuilder {
        NetworkBuilder::default()
    }
}

impl NetworkBuilder {
    /// The builder of inputs, operations inside and outside of loops, and outputs.
    pub fn graph(&mut self) -> &mut GraphBuilder {
        &mut self.graph
    }

    /// Adds a loop (`addLoop`), whose name messages refer to it by.
    pub fn add_loop(&mut self, name: &str) -> Loop {
        self.loops.push(LoopDescriptor { name: name.to_owned(), trips_max: TRIPS_MAX });
        Loop(self.loops.len() - 1)
    }

    /// Bounds the trips of a loop whose condition does not become false: one more is an error. The
    /// default is [`TRIPS_MAX`].
    pub fn trips_max(&mut self, of: Loop, trips: i64) {
        self.loops[of.0].trips_max = trips;
    }

    /// Limits the trips of a loop (`addTripLimit`); a loop has one limit of each kind at most.
    pub fn trip_limit(&mut self, of: Loop, limit: TripLimit, x: i64) {
        self.boundaries.push(Layer::TripLimit { of, limit, x });
    }

    /// Adds an iterator over a tensor along an axis (`addIterator`). A tensor of one dimension
    /// gives tensors of one element.
    ///
    /// # Errors
    /// `BadParam` when the tensor is unknown or has no such axis.
    pub fn iterator(&mut self, of: Loop, x: i64, axis: usize, reverse: bool) -> Result<i64> {
        let desc = self.known("iterator", x)?;
        let (dims, dtype) = (sequence::element(desc, axis)?, desc.dtype);
        let y = self.intermediate(TensorDesc::packed(0, "", &dims, dtype));
        self.boundaries.push(Layer::Iterator { of, x, axis, reverse, y });
        Ok(y)
    }

    /// Adds a recurrence (`addRecurrence`) with an initial value from outside the loop. Its value
    /// of the following trip is set by [`NetworkBuilder::set_next`].
    ///
    /// # Errors
    /// `BadParam` when the tensor is unknown.
    pub fn recurrence(&mut self, of: Loop, initial: i64) -> Result<i64> {
        let desc = self.known("recurrence", initial)?.clone();
        let y = self.intermediate(TensorDesc::packed(0, "", &desc.dims, desc.dtype));
        self.open.push((of, initial, y));
        Ok(y)
    }

    /// Sets the value of a recurrence's following trip (`setInput(1, ..)`).
    ///
    /// # Errors
    /// `BadParam` when the tensor is no recurrence, or its next value is set already.
    pub fn set_next(&mut self, recurrence: i64, next: i64) -> Result<()> {
        let Some(at) = self.open.iter().position(|(_, _, y)| *y == recurrence) else {
            let is_set =
                |layer: &Layer| matches!(layer, Layer::Recurrence { y, .. } if *y == recurrence);
            let rule = match self.boundaries.iter().any(is_set) {
                true => "has a next value already",
                false => "is no recurrence",
            };
            return Err(Error::bad_param(format!("next value of #{recurrence}: it {rule}")));
        };
        let (of, initial, y) = self.open.remove(at);
        self.boundaries.push(Layer::Recurrence { of, initial, next, y });
        Ok(())
    }

    /// Adds an output of a loop (`addLoopOutput`).
    ///
    /// # Errors
    /// `BadParam` when the tensor is unknown, or the new axis or its length is impossible.
    pub fn loop_output(&mut self, of: Loop, output: LoopOutput, x: i64) -> Result<i64> {
        let desc = self.known(output.name(), x)?;
        let (dims, dtype) = (sequence::whole(desc, output)?, desc.dtype);
        let y = self.intermediate(TensorDesc::packed(0, "", &dims, dtype));
        self.boundaries.push(Layer::LoopOutput { of, output, x, y });
        Ok(y)
    }

    /// Adds a conditional: a result for each pair of a value where the condition is true and one
    /// where it is false. What only one branch needs is part of that branch.
    ///
    /// # Errors
    /// `BadParam` when a tensor is unknown.
    pub fn conditional(&mut self, condition: i64, values: &[(i64, i64)]) -> Result<Vec<i64>> {
        let mut results = Vec::new();
        for (then, otherwise) in values {
            let desc = self.known("conditional", *then)?.clone();
            let y = self.intermediate(TensorDesc::packed(0, "", &desc.dims, desc.dtype));
            results.push(BranchResult { then: *then, otherwise: *otherwise, y });
        }
        let outputs = results.iter().map(|of| of.y).collect();
        self.boundaries.push(Layer::Conditional { condition, results });
        Ok(outputs)
    }

    /// Validates the network and returns it.
    ///
    /// # Errors
    /// As [`Network::new`]; `BadParam` for a recurrence without a next value.
    pub fn build(self) -> Result<Network> {
        if let Some((of, _, y)) = self.open.first() {
            let (name, of) = (self.reference(*y), &self.loops[of.0].name);
            let text = format!("recurrence {name} of loop `{of}` has no next value");
            return Err(Error::bad_param(text));
        }
        let operations = self.graph.operations().iter().cloned().map(Layer::Operation);
        let layers = operations.chain(self.boundaries).collect();
        Network::new(self.graph.tensors().to_vec(), layers, self.loops)
    }

    fn known(&self, layer: &str, uid: i64) -> Result<&TensorDesc> {
        let unknown =
            || Error::bad_param(format!("{layer}: no tensor of the network has uid {uid}"));
        self.graph.descriptor(uid).ok_or_else(unknown)
    }

    fn reference(&self, uid: i64) -> String {
        let name = self.graph.descriptor(uid).map_or("", |desc| &desc.name);
        if name.is_empty() { format!("#{uid}") } else { format!("`{name}`") }
    }

    fn intermediate(&mut self, desc: TensorDesc) -> i64 {
        let uid = self.graph.fresh_uid();
        self.graph.tensor(TensorDesc { uid, is_virtual: true, ..desc })
    }
}
