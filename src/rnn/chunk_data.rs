//! The backward pass of the data in chunks of steps, the last one first.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Op, Operation, OperationGraph, Semantics, cone, slot};
use crate::rnn::lower::{Network, Place};
use crate::rnn::role::Role;
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// The backward pass of the data in chunks.
///
/// Behind its steps a layer of it hands on what it multiplies with the weights at every step, and
/// the gradients of all states beside; nothing is rounded between chunks. What a network reads of
/// these has the roles of gradients of final states, what it writes those of initial ones.
#[derive(Debug, Clone)]
pub(crate) struct DataChunks {
    /// From the gradients of final states, those that the last chunk reads, in whose place is 0
    /// what is multiplied with the weights.
    pub(crate) before: Vec<Network>,
    pub(crate) chunk: Network,
    /// From what the first chunk leaves behind, the gradients of initial states.
    pub(crate) after: Vec<Network>,
}

/// What a layer takes over from the steps behind, and leaves behind.
struct Layer {
    h_final: i64,
    states: i64,
    states_final: i64,
    /// Where `h` and the states lie between chunks, in elements.
    offsets: [i64; 2],
}

impl Network {
    /// The pass of the data, which this network is, in chunks of as many steps.
    ///
    /// # Errors
    /// `NotSupported` where more than the gradients of initial states comes of what layers leave
    /// behind their first step, as of projected ones.
    pub(crate) fn data_in_chunks(&self) -> Result<DataChunks> {
        let refused = || Error::not_supported("rnn backward data: layers in chunks");
        let graph = &self.graph;
        let operations = graph.operations();
        let recurs = |at: usize| matches!(operations[at].op, Op::Recurrence(_));
        let layers = self.layers().ok_or_else(refused)?;
        let is_initial = |uid: i64| {
            let place = self.places.iter().find(|place| place.uid == uid);
            let role = place.map(|place| place.role);
            [Some(Role::HInitialGradient), Some(Role::StatesInitialGradient)].contains(&role)
        };
        let outputs = graph.outputs().map(|tensor| tensor.uid);
        let (initial, others): (Vec<i64>, Vec<i64>) = outputs.partition(|uid| is_initial(*uid));
        let states: Vec<i64> = layers.iter().map(|layer| layer.states).collect();
        let of_states = cone(graph, &states, |_| false);
        let of_steps = cone(graph, &others, |at| of_states.contains(&at));
        let left: BTreeSet<i64> =
            layers.iter().flat_map(|layer| [layer.h_final, layer.states_final]).collect();
        let reads_left = |at: &usize| operations[*at].inputs.iter().any(|uid| left.contains(uid));
        if of_states.iter().any(|at| recurs(*at)) || of_steps.iter().any(reads_left) {
            return Err(refused());
        }
        let mut before = Vec::new();
        let mut after = Vec::new();
        for layer in &layers {
            before.push(self.before(layer)?);
            let own: Vec<i64> = initial
                .iter()
                .copied()
                .filter(|uid| {
                    let cone = cone(graph, &[*uid], recurs);
                    let read = cone.iter().flat_map(|at| &operations[*at].inputs);
                    let own = [layer.h_final, layer.states_final];
                    read.into_iter().any(|uid| own.contains(uid))
                })
                .collect();
            let own: Vec<usize> = cone(graph, &own, recurs).into_iter().collect();
            let [h, states] = layer.offsets;
            let read = [
                Place { uid: layer.h_final, role: Role::HFinalGradient, offset: h },
                Place { uid: layer.states_final, role: Role::StatesFinalGradient, offset: states },
            ];
            after.push(self.with_places(graph.subgraph(&own)?, &read));
        }
        let of_steps: Vec<usize> = of_steps.into_iter().collect();
        let chunk = self.steps(&layers, &of_steps)?.drawn_from_a_step()?;
        Ok(DataChunks { before, chunk, after })
    }

    /// The layers of a backward pass, the last one first; `None` where one does not hand on all
    /// that it has behind its steps, or begins with something else.
    fn layers(&self) -> Option<Vec<Layer>> {
        let mut layers = Vec::new();
        let mut ends = [0; 2];
        for operation in self.graph.operations() {
            let Op::Recurrence(op) = &operation.op else { continue };
            let of_slot = |name: &str| slot(op, operation, name);
            let (h_final, states_final) = (of_slot("h_final")?, of_slot("states_final")?);
            if !op.backward || op.with.h_initial {
                return None;
            }
            let mut place = |at: usize, uid: i64| {
                let tensor = self.graph.tensor(uid).ok()?;
                let (width, offset) = (tensor.dtype.bytes() as i64, ends[at]);
                let bytes = tensor.dims.iter().product::<i64>() * width;
                ends[at] += (bytes as u64).next_multiple_of(ALIGNMENT_MAX as u64) as i64;
                Some(offset / width)
            };
            let offsets = [place(0, h_final)?, place(1, states_final)?];
            let states = of_slot("states_initial")?;
            layers.push(Layer { h_final, states, states_final, offsets });
        }
        Some(layers)
    }

    /// What computes the states that a layer of the last chunk reads.
    fn before(&self, layer: &Layer) -> Result<Network> {
        let graph = &self.graph;
        let own: Vec<usize> = cone(graph, &[layer.states], |_| false).into_iter().collect();
        let (graph, written) = match own.is_empty() {
            false => (graph.subgraph(&own)?, layer.states),
            true => {
                // The caller's, as they are.
                let given = graph.tensor(layer.states)?;
                let mut copy = OperationGraph::builder();
                copy.tensor(given.clone());
                let identity = Pointwise::new(Mode::Identity).math(Math::of(given.dtype));
                let written = copy.pointwise(identity, &[given.uid])?;
                copy.output(written, "states", given.dtype);
                (copy.build()?, written)
            }
        };
        let (role, offset) = (Role::StatesInitialGradient, layer.offsets[1]);
        Ok(self.with_places(graph, &[Place { uid: written, role, offset }]))
    }

    /// The network of these operations, all steps of a chunk, whose layers begin with what others
    /// have left behind.
    fn steps(&self, layers: &[Layer], operations: &[usize]) -> Result<Network> {
        let own = self.graph.subgraph(operations)?;
        let mut tensors = own.tensors().to_vec();
        let mut operations = own.operations().to_vec();
        let mut fresh = tensors.iter().map(|tensor| tensor.uid).max().unwrap_or(0);
        let mut places = Vec::new();
        for Operation { op, inputs, outputs } in &mut operations {
            let Op::Recurrence(op) = op else { continue };
            let layer = layers.iter().find(|layer| outputs.contains(&layer.h_final));
            let layer = layer.expect("each recurrence is a layer");
            let of_h = own.tensor(layer.h_final)?;
            fresh += 1;
            let name = format!("{}_before", of_h.name);
            tensors.push(TensorDesc { uid: fresh, name, ..of_h.clone() });
            op.with.h_initial = true;
            let at = op.slots().inputs.iter().position(|slot| *slot == "h_initial");
            inputs.insert(at.expect("it is one now"), fresh);
            let [h, states] = layer.offsets;
            places.extend([
                Place { uid: fresh, role: Role::HFinalGradient, offset: h },
                Place { uid: layer.h_final, role: Role::HInitialGradient, offset: h },
                Place { uid: layer.states, role: Role::StatesFinalGradient, offset: states },
                Place {
                    uid: layer.states_final,
                    role: Role::StatesInitialGradient,
                    offset: states,
                },
            ]);
        }
        Ok(self.with_places(OperationGraph::new(tensors, operations)?, &places))
    }

    /// A network of a part of the graph, some of whose tensors are elsewhere.
    fn with_places(&self, graph: OperationGraph, elsewhere: &[Place]) -> Network {
        let is_elsewhere = |uid: i64| elsewhere.iter().any(|place| place.uid == uid);
        let own = self.places.iter().filter(|place| !is_elsewhere(place.uid));
        let touched = |place: &Place| {
            graph.inputs().chain(graph.outputs()).any(|tensor| tensor.uid == place.uid)
        };
        let mut places: Vec<Place> = own.chain(elsewhere).copied().filter(touched).collect();
        places.sort_by_key(|place| place.uid);
        Network { graph, places, ..self.clone() }
    }
}
