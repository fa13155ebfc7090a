//! Stacks of layers side by side, in chunks of steps, against torch's, which
//! `tests/data/rnn/torch_stacked.py` ran in double precision: results, and gradients.

use std::collections::HashMap;
use std::path::PathBuf;

use kiln::device::{Buffer, DeviceChoice};
use kiln::dropout::DropoutDescriptor;
use kiln::engine::Mode;
use kiln::expr::Real;
use kiln::layers::RnnPack;
use kiln::rnn::{CellKind, Extent, Network, Optional, Rnn, Role};
use kiln::{Config, DType, Kiln, TensorDesc, plan};
use serde::Deserialize;

use crate::harness;
use crate::rnn_gradients::{agree, weights};

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
    dropout: Dropout,
    /// The steps that tensors of every step are known of.
    shown: Vec<usize>,
}

#[derive(Deserialize)]
struct Dropout {
    probability: f64,
    seed: i64,
}

impl Case {
    fn rnn(&self, dtype: DType) -> Rnn {
        let mut kinds = CellKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.name() == self.cell).expect("a known cell");
        let Dropout { probability, seed } = self.dropout;
        let dropout = DropoutDescriptor::set(Real::new(probability), seed).expect("valid");
        let rnn = Rnn::new(kind, self.input_size, self.hidden_size).layers(self.layers);
        let rnn = rnn.dtype(dtype).dropout(dropout);
        match self.projection_size {
            0 => rnn,
            size => rnn.projection(size),
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

    /// The inputs of `torch_stacked.py`, which every type holds.
    fn given(name: &str, dims: &[i64]) -> Vec<f64> {
        let scale = match name {
            name if name.starts_with("weight") || name.starts_with("bias") => 0.25,
            "h_0" => 0.5,
            _ => 1.0,
        };
        harness::hashed(&TensorDesc::packed(0, name, dims, DType::F64), scale)
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
            let (dtype, dims) = network.tensor(role);
            let mut bytes = vec![0; network.bytes(role) as usize];
            let values = match (role, &self.lengths) {
                (Role::Weights, _) => {
                    let mut space = vec![0.0; dims[0] as usize];
                    for (name, offset, dims) in weights(rnn) {
                        let values = Case::given(&name, &dims);
                        space[offset as usize..][..values.len()].copy_from_slice(&values);
                    }
                    space
                }
                (Role::Lengths, Some(own)) => own.iter().map(|length| f64::from(*length)).collect(),
                (role, _) if role.is_output() => Vec::new(),
                (role, _) => Case::given(role.name(), &dims),
            };
            let elements = bytes.chunks_exact_mut(dtype.bytes());
            elements.zip(values).for_each(|(to, value)| dtype.write(value, to));
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
    assert_eq!(cases.len(), 6);
    let targets = ["h200", "t4", "a100", "rtx5090", "b200"];
    for (at, case) in cases.iter().enumerate() {
        let of_turn = [Mode::A, Mode::Fallback][at % 2];
        for (next, dtype, heuristic) in [
            (0, DType::F64, Mode::A),
            (3, DType::F64, Mode::B),
            (1, DType::F32, Mode::B),
            (2, DType::F16, Mode::A),
            (4, DType::Bf16, of_turn),
        ] {
            let target = targets[(at + next) % targets.len()];
            let device = Some(DeviceChoice::Sim(target.to_owned()));
            let (sim_late, sim_seed) = (Some(true), Some((at + next) as u64));
            let config = Config { sim_late, sim_seed, ..harness::checked(device) };
            let config = Config { heuristic: Some(heuristic), ..config };
            let what = format!("{target}, heuristic {heuristic:?}: {}, {dtype}", case.name);
            let kiln = Kiln::open(config).expect("it opens");
            // The engine that runs everything launches a kernel for each step.
            agrees(case, dtype, (&kiln, heuristic != Mode::Fallback), &what);
        }
    }
}

/// Checks that what was found is what torch computed: in double precision each element, else the
/// norm of all by the bound of oneDNN's benchdnn for recurrent networks (driver `rnn`), of which
/// half is for forward passes.
fn is_of_torch(case: &Case, dtype: DType, found: &[f64], wanted: &[f64], what: &str) {
    if dtype == DType::F64 {
        return agree(found, wanted, what);
    }
    assert_eq!(found.len(), wanted.len(), "{what}");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let error = norm(&mut found.iter().zip(wanted).map(|(found, wanted)| found - wanted));
    let scale = norm(&mut wanted.iter().copied());
    let added = (case.input_size + case.hidden_size) * case.steps;
    let bound = 8.0 * (added as f64).log2().ceil() * dtype.epsilon();
    assert!(error <= bound * scale, "{what}: {error:e}, {scale} with {bound:e}");
}

fn agrees(case: &Case, dtype: DType, (kiln, in_chunks): (&Kiln, bool), what: &str) {
    let (rnn, steps, batch) = (case.rnn(dtype), case.steps, case.batch);
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
    let wanted = [in_chunks, in_chunks && case.projection_size == 0].map(|is| is.then_some(16));
    assert_eq!(chunks.map(|of| of.expect("supported")), wanted, "{what}");
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
    let read = |network: &Network, role: Role| {
        let (dtype, dims) = network.tensor(role);
        let bytes = memory[&role].to_vec().expect("it can be read");
        (bytes.chunks_exact(dtype.bytes()).map(|of| dtype.read(of)).collect::<Vec<_>>(), dims)
    };
    for network in &networks[..2] {
        let results = network.roles().filter(|role| role.is_output() && *role != Role::Reserve);
        for role in results {
            let (mut found, mut dims) = read(network, role);
            if [Role::Output, Role::InputGradient].contains(&role) {
                (found, dims[0]) = (case.shown(&found), case.shown.len() as i64);
            }
            let wanted = case.torch(role.name(), &dims);
            is_of_torch(case, dtype, &found, &wanted, &format!("{what}: {}", role.name()));
        }
    }
    let (found, _) = read(networks[2], Role::WeightGradients);
    for (name, offset, dims) in weights(&rnn) {
        let dims = if name.starts_with("bias") { &dims[..1] } else { &dims[..] };
        let wanted = case.torch(&format!("d_{name}"), dims);
        let own = &found[offset as usize..][..wanted.len()];
        is_of_torch(case, dtype, own, &wanted, &format!("{what}: d_{name}"));
    }
}
