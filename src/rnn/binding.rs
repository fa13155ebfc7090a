//! Mapping between a network's named tensors and the inputs and outputs of its graph.

use crate::error::{Error, Result};
use crate::frontend::{FrontEnd, Values};
use crate::graph::{OperationGraph, RowLayout};
use crate::rnn::lower::{Extent, Network};
use crate::rnn::parameters::HostTensor;
use crate::rnn::random;
use crate::rnn::role::Role;
use crate::rnn::training::Training;
use crate::rnn::weights::WeightKind;
use crate::tensor::TensorDesc;

impl FrontEnd for Network {
    fn graphs(&self) -> Vec<&OperationGraph> {
        vec![&self.graph]
    }

    fn besides(&self) -> Vec<OperationGraph> {
        let octaves = self.graphs_of_octaves().unwrap_or_default();
        [octaves, self.graphs_of_chunks().unwrap_or_default()].concat()
    }

    /// Torch's names and dimensions: one tensor per parameter, and the states of all layers in one
    /// tensor. Uids are indices.
    fn named_inputs(&self) -> Vec<TensorDesc> {
        self.named(self.roles().filter(|role| !role.is_output()))
    }

    fn named_outputs(&self) -> Vec<TensorDesc> {
        self.named(self.roles().filter(|role| role.is_output()))
    }

    fn random_values(&self, seed: u64) -> Result<Values> {
        random::random_values(self, &self.named_inputs(), seed)
    }

    /// Values of the graph's inputs, by uid.
    fn initial_values(&self, named: Values) -> Result<Values> {
        initial_values(&[self], &self.named_inputs(), &named)
    }

    fn named_values(&self, state: &Values) -> Values {
        named_values(&[self], &self.named_outputs(), state)
    }
}

impl Network {
    /// The graphs whose kernels a layer runs for up to as many steps, with all states: of every
    /// power of two.
    fn graphs_of_octaves(&self) -> Result<Vec<OperationGraph>> {
        let (Extent { batch, rows }, with) = (self.extent, self.with_all_states());
        let last = (rows / batch.max(1)).max(1).ilog2();
        let graph = |octave: u32| {
            Ok(self.rnn.network(Extent { batch, rows: batch << octave }, with)?.graph)
        };
        (0..=last).map(graph).collect()
    }
}

impl Training {
    fn networks(&self) -> Vec<&Network> {
        [&self.forward, &self.data].into_iter().chain(&self.weights).collect()
    }

    /// Named tensors of these roles, of which the reserve space is the passes' own.
    fn named(&self, is_output: bool) -> Vec<TensorDesc> {
        let networks = self.networks();
        let used = |role: &Role| networks.iter().any(|of| of.roles().any(|own| own == *role));
        let own = |role: &Role| role.is_output() == is_output && *role != Role::Reserve;
        self.forward.named(Role::ALL.into_iter().filter(used).filter(own))
    }
}

/// The passes one after the other: torch's names for the inputs, gradients of outputs and inputs
/// behind `d_`. Uids of named tensors are indices.
impl FrontEnd for Training {
    fn graphs(&self) -> Vec<&OperationGraph> {
        self.networks().into_iter().map(|network| &network.graph).collect()
    }

    fn besides(&self) -> Vec<OperationGraph> {
        self.graphs_of_chunks().unwrap_or_default()
    }

    fn named_inputs(&self) -> Vec<TensorDesc> {
        self.named(false)
    }

    fn named_outputs(&self) -> Vec<TensorDesc> {
        self.named(true)
    }

    fn random_values(&self, seed: u64) -> Result<Values> {
        random::random_values(&self.forward, &self.named_inputs(), seed)
    }

    fn initial_values(&self, named: Values) -> Result<Values> {
        initial_values(&self.networks(), &self.named_inputs(), &named)
    }

    fn named_values(&self, state: &Values) -> Values {
        named_values(&self.networks(), &self.named_outputs(), state)
    }
}

/// Values of the inputs of networks that share uids, from named ones.
fn initial_values(networks: &[&Network], inputs: &[TensorDesc], named: &Values) -> Result<Values> {
    let given = |name: &str| {
        let tensor = inputs.iter().find(|tensor| tensor.name == name)?;
        Some(HostTensor::new(&tensor.dims, named.get(&tensor.uid)?.clone()))
    };
    let weights = networks[0].rnn.from_torch(given)?;
    let mut values = Values::new();
    for network in networks {
        values.extend(network.values_with(&weights, |role| given(role.name()))?);
    }
    Ok(values)
}

/// Named values of the outputs of networks that share uids.
fn named_values(networks: &[&Network], outputs: &[TensorDesc], state: &Values) -> Values {
    let first = networks[0];
    let whole = |role: Role| {
        let (_, dims) = first.tensor(role);
        let mut values = vec![0.0; dims.iter().product::<i64>() as usize];
        for network in networks {
            for place in network.places.iter().filter(|place| place.role == role) {
                let tensor = network.graph.tensor(place.uid).expect("places are of the graph");
                let offsets = tensor.offsets().map(|at| place.offset as usize + at);
                offsets.zip(&state[&place.uid]).for_each(|(at, value)| values[at] = *value);
            }
        }
        values
    };
    let mut named = Values::new();
    let mut weights = None;
    for tensor in outputs {
        let role = Role::ALL.into_iter().find(|role| role.name() == tensor.name);
        let values = match role {
            Some(role) => whole(role),
            None => {
                let all = weights.get_or_insert_with(|| whole(Role::WeightGradients));
                let mut blocks = first.weights();
                let block = blocks.find_map(|(pseudo_layer, kind)| {
                    let name = first.rnn.torch_name(pseudo_layer, kind);
                    let block = first.space.block(pseudo_layer, kind);
                    block.filter(|_| tensor.name.strip_prefix("d_") == Some(name.as_str()))
                });
                let block = block.expect("outputs are roles or gradients of weights");
                let count = (block.rows * block.columns) as usize;
                all[block.offset as usize..][..count].to_vec()
            }
        };
        named.insert(tensor.uid, values);
    }
    named
}

impl Network {
    /// Tensors of these roles by torch's names; uids are indices.
    fn named(&self, roles: impl Iterator<Item = Role>) -> Vec<TensorDesc> {
        let mut named = Vec::new();
        let mut add = |name: &str, dtype, dims: &[i64]| {
            named.push(TensorDesc::packed(named.len() as i64, name, dims, dtype));
        };
        for role in roles {
            let (dtype, dims) = self.tensor(role);
            let prefix = match role {
                Role::Weights => "",
                // Listed with the others.
                Role::WeightNumbers => continue,
                Role::WeightGradients => "d_",
                _ => {
                    add(role.name(), dtype, &dims);
                    continue;
                }
            };
            for (pseudo_layer, kind) in self.weights() {
                let block = self.space.block(pseudo_layer, kind).expect("it is one of the blocks");
                let name = format!("{prefix}{}", self.rnn.torch_name(pseudo_layer, kind));
                let (dtype, _) = self.tensor(self.space.tensor_of(kind).0);
                match kind.is_vector() {
                    true => add(&name, dtype, &[block.rows]),
                    false => add(&name, dtype, &[block.rows, block.columns]),
                }
            }
        }
        named
    }

    /// All blocks of the weight space.
    fn weights(&self) -> impl Iterator<Item = (usize, WeightKind)> + '_ {
        let all = (0..self.space.pseudo_layers())
            .flat_map(|pseudo_layer| WeightKind::ALL.map(|kind| (pseudo_layer, kind)));
        all.filter(|(pseudo_layer, kind)| self.space.block(*pseudo_layer, *kind).is_some())
    }

    /// Values of the graph's inputs, by uid, from the weight space and the other tensors.
    ///
    /// # Errors
    /// `BadParam` when a tensor is missing or its dimensions are not those of [`Network::tensor`],
    /// or the weight space has the wrong size.
    pub fn values_with(
        &self,
        weights: &[f64],
        mut given: impl FnMut(Role) -> Option<HostTensor>,
    ) -> Result<Values> {
        let mut values = Values::new();
        for role in self.roles().filter(|role| !role.is_output()) {
            let (_, dims) = self.tensor(role);
            let integers = (self.space.elements_of(Role::Weights) as usize).min(weights.len());
            let of_weights =
                |weights: &[f64]| HostTensor::new(&[weights.len() as i64], weights.to_vec());
            let whole = match role {
                Role::WeightNumbers => of_weights(&weights[integers..]),
                Role::Weights if self.rnn.quantization.is_some() => {
                    of_weights(&weights[..integers])
                }
                Role::Weights => of_weights(weights),
                _ => given(role).unwrap_or_default(),
            };
            whole.expect(role.name(), &dims)?;
            if role == Role::Lengths {
                self.check_lengths(&whole.values)?;
            }
            for place in self.places.iter().filter(|place| place.role == role) {
                let offsets = self.graph.tensor(place.uid)?.offsets();
                let elements = offsets.map(|at| whole.values[place.offset as usize + at]);
                values.insert(place.uid, elements.collect());
            }
        }
        Ok(values)
    }

    /// Checks the sequence lengths against the extent.
    ///
    /// # Errors
    /// `BadParam` for a length below 0 or above the number of steps; packed: for lengths that
    /// increase, or whose sum exceeds the number of vectors.
    fn check_lengths(&self, lengths: &[f64]) -> Result<()> {
        let bad = |rule: String| Err(Error::bad_param(format!("rnn: {rule}")));
        let Extent { batch, rows } = self.extent;
        let packed = self.rnn.layout == RowLayout::Packed;
        let longest = if packed { rows } else { rows / batch };
        let off = |length: &f64| !(0.0..=longest as f64).contains(length);
        if let Some(at) = lengths.iter().position(off) {
            let length = lengths[at];
            return bad(format!("length {length} of sequence {at}, expected 0 to {longest}"));
        }
        if !packed {
            return Ok(());
        }
        if let Some(at) = lengths.windows(2).position(|pair| pair[0] < pair[1]) {
            return bad(format!(
                "packed: length {} of sequence {} after length {}: lengths may not increase",
                lengths[at + 1],
                at + 1,
                lengths[at]
            ));
        }
        let sum: f64 = lengths.iter().sum();
        match sum <= rows as f64 {
            true => Ok(()),
            false => bad(format!("packed: {rows} vectors of sequences with {sum}")),
        }
    }
}
