//! Stacks of layers side by side, in chunks of steps, against torch's, which
//! `tests/data/rnn/torch_stacked.py` ran: results, and gradients in double precision.

use std::collections::HashMap;
use std::path::PathBuf;

use kiln::device::{Buffer, DeviceChoice};
use kiln::layers::RnnPack;
use kiln::rnn::{CellKind, Extent, Network, Optional, Rnn, Role};
use kiln::{Config, DType, Kiln, TensorDesc, plan};
use serde::Deserialize;

use crate::harness;
use crate::rnn_gradients::{agree, bytes, floats, weights};

#[derive(Deserialize)]
struct Case {
    name: String,
    cell: String,
    input_size: i64,
    hidden_size: i64,
    layers: i64,
    projection_size: i64,
    batch: i64,
    steps: i64,
    lengths: Option<Vec<i32>>,
    /// The steps that tensors of every step are known of.
    shown: Vec<usize>,
}

impl Case {
    fn rnn(&self) -> Rnn {
        let mut kinds = CellKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.name() == self.cell).expect("a known cell");
        let rnn = Rnn::new(kind, self.input_size, self.hidden_size).layers(self.layers);
        match self.projection_size {
            0 => rnn.dtype(DType::F64),
            size => rnn.dtype(DType::F64).projection(size),
        }
    }

    /// What torch computed.
    fn torch(&self, name: &str, dims: &[i64]) -> Vec<f64> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data/rnn/torch_stacked.safetensors");
        let tensor = TensorDesc::packed(1, format!("{}/{name}", self.name), dims, DType::F64);
        let values = plan::read_values(&path, std::iter::once(&tensor));
        values.expect("the container has the tensor").remove(&1).expect("it is read")
    }

    /// The inputs of `torch_stacked.py`.
    fn given(name: &str, dims: &[i64]) -> Vec<f64> {
        let scale = match name {
            name if name.starts_with("weight") || name.starts_with("bias") => 0.25,
            "h_0" => 0.5,
            _ => 1.0,
        };
        harness::hashed(&TensorDesc::packed(1, name, dims, DType::F64), scale)
    }

    /// The steps of a tensor that are known, and how many elements a step has.
    fn shown(&self, found: &[f64]) -> Vec<f64> {
        let of_step = found.len() / self.steps as usize;
        self.shown.iter().flat_map(|step| &found[step * of_step..][..of_step]).copied().collect()
    }

    fn memory(&self, kiln: &Kiln, rnn: &Rnn, networks: &[&Network]) -> HashMap<Role, Buffer> {
        let mut buffers = HashMap::new();
        for (network, role) in networks.iter().flat_map(|of| of.roles().map(move |role| (of, role)))
        {
            let (_, dims) = network.tensor(role);
            let values = match role {
                Role::Weights => {
                    let mut space = vec![0.0; network.bytes(role) as usize / 8];
                    for (name, offset, dims) in weights(rnn) {
                        let values = Case::given(&name, &dims);
                        space[offset as usize..][..values.len()].copy_from_slice(&values);
                    }
                    space
                }
                role if role.is_output() => vec![0.0; (network.bytes(role) as usize).div_ceil(8)],
                role => Case::given(role.name(), &dims),
            };
            let bytes = match (role, &self.lengths) {
                (Role::Lengths, Some(own)) => own.iter().flat_map(|of| of.to_le_bytes()).collect(),
                _ => bytes(&values),
            };
            let buffer = kiln.device().upload(&bytes).expect("there is memory");
            buffers.entry(role).or_insert(buffer);
        }
        buffers
    }
}

#[test]
fn layers_side_by_side_agree_with_torch() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../data/rnn/torch_stacked.json")).expect("well-formed");
    assert_eq!(cases.len(), 5);
    for (at, case) in cases.iter().enumerate() {
        let targets = ["h200", "t4", "a100", "rtx5090", "b200"];
        for (seed, target) in (at as u64..).zip([targets[at], targets[(at + 3) % 5]]) {
            let device = Some(DeviceChoice::Sim(target.to_owned()));
            let (sim_late, sim_seed) = (Some(true), Some(seed));
            let config = Config { sim_late, sim_seed, ..harness::checked(device) };
            agrees(case, &Kiln::open(config).expect("it opens"), target);
        }
    }
}

fn agrees(case: &Case, kiln: &Kiln, target: &str) {
    let (rnn, steps, batch) = (case.rnn(), case.steps, case.batch);
    let lstm = case.cell == "lstm";
    let with = Optional {
        h_initial: true,
        states_initial: lstm,
        lengths: case.lengths.is_some(),
        h_final: true,
        states_final: lstm,
        reserve: true,
        ..Optional::default()
    };
    let extent = Extent { batch, rows: steps * batch };
    let training = rnn.training(extent, with).expect("it has gradients");
    let mut networks = vec![&training.forward, &training.data];
    networks.extend(&training.weights);
    let mut built = kiln.rnn(&rnn, batch).expect("valid");
    built.set_chunk_steps(Some(16));
    let chunks = [built.chunk_steps(steps, with), built.backward_chunk_steps(steps, with)];
    // A projected layer's gradients of weights are partly of its last step.
    let projected = case.projection_size > 0;
    let wanted = [Some(16), Some(16).filter(|_| !projected)];
    assert_eq!(chunks.map(|of| of.expect("supported")), wanted, "{}", case.name);
    let memory = case.memory(kiln, &rnn, &networks);
    let space = built.temp_space(extent.rows, with).expect("supported");
    let workspace = kiln.device().alloc(space.workspace_bytes).expect("there is memory");
    let pack = RnnPack::new().with_workspace(&workspace);
    let pack = memory.iter().fold(pack, |pack, (role, buffer)| pack.with(*role, buffer));
    let stream = kiln.device().stream().expect("a stream");
    built.forward(&stream, steps, &pack).expect("runs");
    built.backward_data(&stream, steps, &pack).expect("runs");
    built.backward_weights(&stream, steps, &pack).expect("runs");
    stream.synchronize().expect("runs");
    for network in &networks[..2] {
        let results = network.roles().filter(|role| role.is_output() && *role != Role::Reserve);
        for role in results {
            let (mut found, (_, mut dims)) = (floats(&memory[&role]), network.tensor(role));
            if [Role::Output, Role::InputGradient].contains(&role) {
                (found, dims[0]) = (case.shown(&found), case.shown.len() as i64);
            }
            let wanted = case.torch(role.name(), &dims);
            agree(&found, &wanted, &format!("{target}: {}: {}", case.name, role.name()));
        }
    }
    let found = floats(&memory[&Role::WeightGradients]);
    for (name, offset, dims) in weights(&rnn) {
        let dims = if name.starts_with("bias") { &dims[..1] } else { &dims[..] };
        let wanted = case.torch(&format!("d_{name}"), dims);
        let own = &found[offset as usize..][..wanted.len()];
        agree(own, &wanted, &format!("{target}: {}: d_{name}", case.name));
    }
}
