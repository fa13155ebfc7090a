//! Mapping between a network's named tensors and the inputs and outputs of its graph.

use crate::error::{Error, Result};
use crate::frontend::{FrontEnd, Values};
use crate::graph::{OperationGraph, RowLayout};
use crate::rnn::lower::{Extent, Network};
use crate::rnn::parameters::HostTensor;
use crate::rnn::random;
use crate::rnn::role::Role;
use crate::rnn::weights::WeightKind;
use crate::tensor::TensorDesc;

impl FrontEnd for Network {
    fn graphs(&self) -> Vec<&OperationGraph> {
        vec![&self.graph]
    }

    /// Torch's names and dimensions: one tensor per parameter, and the states of all layers in one
    /// tensor. Uids are indices.
    fn named_inputs(&self) -> Vec<TensorDesc> {
        let mut named = Vec::new();
        let mut add = |name: &str, dtype, dims: &[i64]| {
            named.push(TensorDesc::packed(named.len() as i64, name, dims, dtype));
        };
        for role in self.roles().filter(|role| !role.is_output()) {
            let (dtype, dims) = self.tensor(role);
            if role != Role::Weights {
                add(role.name(), dtype, &dims);
                continue;
            }
            for (pseudo_layer, kind) in self.weights() {
                let block = self.space.block(pseudo_layer, kind).expect("it is one of the blocks");
                let name = self.rnn.torch_name(pseudo_layer, kind);
                match kind {
                    WeightKind::InputBias | WeightKind::RecurrentBias => {
                        add(&name, dtype, &[block.rows]);
                    }
                    _ => add(&name, dtype, &[block.rows, block.columns]),
                }
            }
        }
        named
    }

    fn named_outputs(&self) -> Vec<TensorDesc> {
        let outputs = (0..).zip(self.roles().filter(|role| role.is_output()));
        let named = outputs.map(|(uid, role)| {
            let (dtype, dims) = self.tensor(role);
            TensorDesc::packed(uid, role.name(), &dims, dtype)
        });
        named.collect()
    }

    fn random_values(&self, seed: u64) -> Result<Values> {
        random::random_values(self, seed)
    }

    /// Values of the graph's inputs, by uid.
    fn initial_values(&self, named: Values) -> Result<Values> {
        let inputs = self.named_inputs();
        let given = |name: &str| {
            let tensor = inputs.iter().find(|tensor| tensor.name == name)?;
            Some(HostTensor::new(&tensor.dims, named.get(&tensor.uid)?.clone()))
        };
        self.values_with(&self.rnn.from_torch(given)?, |role| given(role.name()))
    }

    fn named_values(&self, state: &Values) -> Values {
        let whole = |tensor: &TensorDesc| {
            let mut values = vec![0.0; tensor.elements().unwrap_or(0) as usize];
            for place in self.places.iter().filter(|place| place.role.name() == tensor.name) {
                let part = &state[&place.uid];
                let first = place.offset as usize;
                values[first..first + part.len()].copy_from_slice(part);
            }
            (tensor.uid, values)
        };
        self.named_outputs().iter().map(whole).collect()
    }
}

impl Network {
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
            let whole = match role {
                Role::Weights => HostTensor::new(&[weights.len() as i64], weights.to_vec()),
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
