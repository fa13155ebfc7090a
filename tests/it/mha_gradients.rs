//! Gradients of classic attention layers: `tests/data/mha/gradients.py` computed them. What dropout
//! draws, and what misused reserve spaces are refused with.

use std::collections::HashMap;

use kiln::attention::{
    AttentionDescriptor, AttentionLayer, AttentionPass, AttentionPlace, AttentionRole,
    AttentionSettings, SequenceAxis,
};
use kiln::device::Buffer;
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::layers::{
    AttentionBackwardData, AttentionBackwardWeights, AttentionForward, DropoutStates,
    MultiHeadAttention, WeightGradientMode,
};
use kiln::plan::Memory;
use kiln::{DType, Kiln};
use serde::Deserialize;

use crate::harness;
use crate::mha_forward::{decoded, encoded};
use crate::mha_vectors::{Case, Described, TOLERANCE, positions};

/// A case of gradients, what its dropouts drop, and what torch says of it.
#[derive(Deserialize)]
pub struct Trained {
    #[serde(flatten)]
    pub case: Case,
    /// Probability and seed, of the softmax and of the outputs.
    pub drops: [(f64, i64); 2],
    pub gradients: HashMap<String, Vec<f64>>,
}

pub const PASSES: [AttentionPass; 3] =
    [AttentionPass::Forward, AttentionPass::BackwardData, AttentionPass::BackwardWeights];

pub const GRADIENTS: [AttentionRole; 4] = [
    AttentionRole::QueryGradients,
    AttentionRole::KeyGradients,
    AttentionRole::ValueGradients,
    AttentionRole::WeightGradients,
];

fn cases() -> Vec<Trained> {
    serde_json::from_str(include_str!("../data/mha/gradients.json")).expect("well-formed")
}

pub fn named(name: &str) -> Trained {
    cases().into_iter().find(|of| of.case.name == name).expect("there is such a case")
}

impl Trained {
    pub fn descriptor(&self, dtype: DType) -> AttentionDescriptor {
        let [attn_dropout, post_dropout] = self.drops.map(|(probability, seed)| {
            DropoutDescriptor::set(Real::new(probability), seed).expect("valid")
        });
        let settings = *self.case.descriptor(dtype).get();
        let settings = AttentionSettings { attn_dropout, post_dropout, ..settings };
        AttentionDescriptor::set(settings).expect("valid")
    }

    /// Elements of a role's vectors beyond the lengths.
    pub fn beyond(&self, role: AttentionRole, descriptor: &AttentionDescriptor) -> Vec<usize> {
        let described = self.case.described(descriptor);
        let data = &described[match role {
            AttentionRole::Queries | AttentionRole::QueryGradients => 0,
            AttentionRole::Keys | AttentionRole::KeyGradients => 1,
            AttentionRole::Values | AttentionRole::ValueGradients => 2,
            _ => 3,
        }];
        let lengths = &data.get().seq_lengths;
        let size = data.extent(SequenceAxis::Vector) as usize;
        let extents = data.order().map(|axis| data.extent(axis));
        let mut beyond = Vec::new();
        for at in 0..extents.iter().product() {
            let mut rest = at;
            let mut of = [0; 3];
            for (axis, extent) in data.order().into_iter().zip(extents).rev() {
                of[axis as usize] = rest % extent;
                rest /= extent;
            }
            let [step, sequence, _] = of;
            if step >= i64::from(lengths[sequence as usize]) {
                beyond.extend((0..size).map(|element| at as usize * size + element));
            }
        }
        beyond
    }
}

/// A case's layer and tensors on a device.
pub struct Bound {
    /// Apart from the buffers of its calls.
    pub layer: Option<MultiHeadAttention>,
    passes: [AttentionLayer; 3],
    pub described: Described,
    pub buffers: HashMap<AttentionRole, Buffer>,
    workspace: Buffer,
    pub reserve: Buffer,
}

impl Bound {
    /// Vectors beyond the lengths of sequences hold NaN, as everything that is to be written.
    pub fn new(kiln: &Kiln, of: &Trained, dtype: DType) -> Bound {
        let descriptor = of.descriptor(dtype);
        let extent = of.case.extent(&descriptor);
        let passes = PASSES.map(|pass| {
            let residuals = of.case.residuals && pass == AttentionPass::Forward;
            let extent = kiln::attention::AttentionExtent { training: true, residuals, ..extent };
            descriptor.lowered(pass, extent).expect("it is valid")
        });
        let mut buffers = HashMap::new();
        for (role, mut values) in of.case.memory(&passes[0]) {
            let given = [
                AttentionRole::Queries,
                AttentionRole::Keys,
                AttentionRole::Values,
                AttentionRole::OutputGradient,
            ];
            if given.contains(&role) {
                of.beyond(role, &descriptor).into_iter().for_each(|at| values[at] = f64::NAN);
            }
            if !role.is_intermediate() {
                let (dtype, _) = passes[0].tensor(role).expect("it is small");
                let buffer = kiln.device().upload(&encoded(dtype, &values));
                buffers.insert(role, buffer.expect("there is memory"));
            }
        }
        let bytes = descriptor.buffers(true).expect("they are small");
        let poisoned = |bytes: u64| {
            kiln.device().upload(&vec![0xff; bytes as usize]).expect("there is memory")
        };
        Bound {
            layer: Some(kiln.multi_head_attention(&descriptor).expect("there is memory")),
            passes,
            described: of.case.described(&descriptor),
            buffers,
            workspace: poisoned(bytes.workspace_bytes),
            reserve: poisoned(bytes.reserve_bytes),
        }
    }

    pub fn forward<'a>(&'a self, case: &'a Case) -> AttentionForward<'a> {
        let buffer = |role| Memory::from(&self.buffers[&role]);
        let [q_desc, k_desc, v_desc, o_desc] = &self.described;
        AttentionForward {
            curr_idx: -1,
            lo_win_idx: &case.low,
            hi_win_idx: &case.high,
            seq_lengths_qo: buffer(AttentionRole::QueryLengths),
            seq_lengths_kv: buffer(AttentionRole::KeyLengths),
            q_desc,
            queries: buffer(AttentionRole::Queries),
            residuals: case.residuals.then(|| buffer(AttentionRole::Residuals)),
            k_desc,
            keys: buffer(AttentionRole::Keys),
            v_desc,
            values: buffer(AttentionRole::Values),
            o_desc,
            out: buffer(AttentionRole::Output),
            weights: buffer(AttentionRole::Weights),
            workspace: Some((&self.workspace).into()),
            reserve: Some((&self.reserve).into()),
        }
    }

    pub fn data(&self) -> AttentionBackwardData<'_> {
        let buffer = |role| Memory::from(&self.buffers[&role]);
        let [q_desc, k_desc, v_desc, o_desc] = &self.described;
        AttentionBackwardData {
            seq_lengths_qo: buffer(AttentionRole::QueryLengths),
            seq_lengths_kv: buffer(AttentionRole::KeyLengths),
            o_desc,
            dout: buffer(AttentionRole::OutputGradient),
            q_desc,
            dqueries: buffer(AttentionRole::QueryGradients),
            k_desc,
            dkeys: buffer(AttentionRole::KeyGradients),
            v_desc,
            dvalues: buffer(AttentionRole::ValueGradients),
            weights: buffer(AttentionRole::Weights),
            workspace: Some((&self.workspace).into()),
            reserve: (&self.reserve).into(),
        }
    }

    pub fn weights(&self, mode: WeightGradientMode) -> AttentionBackwardWeights<'_> {
        let buffer = |role| Memory::from(&self.buffers[&role]);
        let [q_desc, k_desc, v_desc, o_desc] = &self.described;
        AttentionBackwardWeights {
            mode,
            seq_lengths_qo: buffer(AttentionRole::QueryLengths),
            seq_lengths_kv: buffer(AttentionRole::KeyLengths),
            q_desc,
            queries: buffer(AttentionRole::Queries),
            k_desc,
            keys: buffer(AttentionRole::Keys),
            v_desc,
            values: buffer(AttentionRole::Values),
            o_desc,
            dweights: buffer(AttentionRole::WeightGradients),
            workspace: Some((&self.workspace).into()),
            reserve: (&self.reserve).into(),
        }
    }

    /// The states of the layer's dropouts.
    pub fn states(&self) -> &DropoutStates {
        self.layer.as_ref().expect("it is there").dropout_states()
    }

    /// Takes another reserve space and returns this one.
    pub fn change_reserve(&mut self, kiln: &Kiln) -> Buffer {
        let other = kiln.device().alloc(self.reserve.bytes()).expect("there is memory");
        std::mem::replace(&mut self.reserve, other)
    }

    /// Runs a pass, which sets gradients of weights.
    pub fn run(&mut self, kiln: &Kiln, case: &Case, pass: AttentionPass) {
        let stream = kiln.stream();
        let mut layer = self.layer.take().expect("the layer is there");
        let ran = match pass {
            AttentionPass::Forward => layer.forward(&stream, &self.forward(case)),
            AttentionPass::BackwardData => layer.backward_data(&stream, &self.data()),
            AttentionPass::BackwardWeights => {
                layer.backward_weights(&stream, &self.weights(WeightGradientMode::Set))
            }
        };
        self.layer = Some(layer);
        let name = pass.name();
        ran.unwrap_or_else(|error| panic!("{}: {name}: {error:?}", case.name));
        stream.synchronize().unwrap_or_else(|error| panic!("{}: {name}: {error:?}", case.name));
    }

    /// What a role holds.
    pub fn values(&self, role: AttentionRole) -> Vec<f64> {
        let layer = &self.passes[0];
        let (dtype, count) = layer.tensor(role).expect("it is small");
        let buffer = match role {
            _ if role.is_temporary() => &self.workspace,
            _ if role.is_intermediate() => &self.reserve,
            _ => &self.buffers[&role],
        };
        let bytes = buffer.to_vec().expect("it can be read");
        let first = match role.is_intermediate() {
            true => layer.intermediate_offset(role).expect("it is small") as usize,
            false => 0,
        };
        decoded(dtype, &bytes[first..first + count as usize * dtype.bytes()])
    }

    /// Panics unless what each graph of a pass gave is what the reference makes of what it was
    /// given.
    fn check(&self, case: &Case, at: usize, what: &str) {
        let layer = &self.passes[at];
        for stage in &layer.stages {
            let values = |place: &AttentionPlace| -> Vec<f64> {
                let tensor = stage.graph.tensor(place.uid).expect("a place is of the graph");
                let whole = match place.role {
                    AttentionRole::LowWindow => case.low.iter().map(|at| f64::from(*at)).collect(),
                    AttentionRole::HighWindow => {
                        case.high.iter().map(|at| f64::from(*at)).collect()
                    }
                    AttentionRole::DropoutPositions => self
                        .states()
                        .positions()
                        .expect("it can be read")
                        .into_iter()
                        .map(f64::from)
                        .collect(),
                    AttentionRole::DropoutCount => vec![2.0],
                    AttentionRole::DropoutSeeds => self.values(AttentionRole::KeptSeeds),
                    role => self.values(role),
                };
                positions(layer, tensor, place, -1).into_iter().map(|at| whole[at]).collect()
            };
            let mut actual: HashMap<i64, Vec<f64>> =
                stage.places.iter().map(|place| (place.uid, values(place))).collect();
            // The positions that a pass was given are those that it kept.
            for place in &stage.places {
                let is_input = stage.graph.inputs().any(|tensor| tensor.uid == place.uid);
                if place.role == AttentionRole::DropoutPositions && is_input {
                    actual.insert(place.uid, self.values(AttentionRole::KeptPositions));
                }
            }
            let mut inputs = actual.clone();
            inputs.retain(|uid, _| stage.graph.inputs().any(|tensor| tensor.uid == *uid));
            let what = format!("{}: {}: {what}", case.name, layer.pass.name());
            harness::compare(&stage.graph, &inputs, &actual, &what);
        }
    }
}

pub fn trained(kiln: &Kiln, of: &Trained, dtype: DType) -> Bound {
    let mut bound = Bound::new(kiln, of, dtype);
    for (at, pass) in PASSES.into_iter().enumerate() {
        bound.run(kiln, &of.case, pass);
        bound.check(&of.case, at, &dtype.to_string());
    }
    bound
}

#[test]
fn gradients_are_torchs() {
    for (at, of) in cases().iter().enumerate() {
        for kiln in harness::dialects_by_turns(at) {
            let bound = trained(kiln, of, DType::F64);
            of.case.check(&bound.values(AttentionRole::Output), TOLERANCE, "output");
            for role in GRADIENTS {
                let (name, actual) = (role.name(), bound.values(role));
                let wanted = &of.gradients[name];
                assert_eq!(actual.len(), wanted.len(), "{}: {name}", of.case.name);
                for (at, (actual, wanted)) in actual.iter().zip(wanted).enumerate() {
                    assert!(
                        (actual - wanted).abs() <= TOLERANCE,
                        "{}: {name}: element {at} is {actual}, expected {wanted}",
                        of.case.name
                    );
                }
            }
        }
    }
}
