//! Gradients of torch's networks by the passes of training: `tests/data/rnn/torch_gradients.py` ran
//! them. What a misused reserve space is refused with.

use std::collections::HashMap;
use std::path::PathBuf;

use kiln::device::Buffer;
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::frontend::FrontEnd;
use kiln::graph::{Direction, RowLayout};
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::rnn::{
    BiasMode, CellKind, Extent, Join, Optional, Rnn, Role, Stacking, WeightKind, WeightSpace,
};
use kiln::{DType, Kiln, TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{self, Values};
use crate::random_graphs::{Random, number};

pub const BATCH: i64 = 3;
pub const STEPS: i64 = 4;

#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    cell: String,
    input_size: i64,
    hidden_size: i64,
    layers: i64,
    both: bool,
    bias: bool,
    layout: String,
    lengths: bool,
    projection_size: i64,
}

pub fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../data/rnn/gradients.json")).expect("well-formed")
}

impl Case {
    pub fn rnn(&self) -> Rnn {
        let kinds = CellKind::ALL.into_iter();
        // torch's GRU resets behind the product, as cuDNN's.
        let kind = kinds.into_iter().find(|kind| kind.name() == self.cell).expect("a known cell");
        let layouts = [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed];
        let layout = layouts.into_iter().find(|of| of.name() == self.layout).expect("known");
        let direction = if self.both { Direction::Both } else { Direction::Forward };
        let bias = if self.bias { BiasMode::Double } else { BiasMode::None };
        let rnn = Rnn::new(kind, self.input_size, self.hidden_size).layers(self.layers);
        let rnn = rnn.direction(direction).bias(bias).dtype(DType::F64).layout(layout);
        match self.projection_size {
            0 => rnn,
            size => rnn.projection(size),
        }
    }

    /// The values of a tensor in the container.
    fn values(&self, name: &str, dims: &[i64], dtype: DType) -> Vec<f64> {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/rnn/gradients.safetensors");
        let tensor = TensorDesc::packed(1, format!("{}/{name}", self.name), dims, dtype);
        let values = plan::read_values(&path, std::iter::once(&tensor));
        values.expect("the container has the tensor").remove(&1).expect("it is read")
    }
}

pub fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn floats(buffer: &Buffer) -> Vec<f64> {
    let bytes = buffer.to_vec().expect("it can be read");
    bytes.chunks_exact(8).map(|of| f64::from_le_bytes(of.try_into().unwrap())).collect()
}

/// The blocks of the weight space and torch's names of them.
pub fn weights(rnn: &Rnn) -> Vec<(String, i64, [i64; 2])> {
    let space = WeightSpace::new(rnn).expect("a valid network");
    let kinds = [
        WeightKind::Input,
        WeightKind::Recurrent,
        WeightKind::InputBias,
        WeightKind::RecurrentBias,
        WeightKind::Projection,
    ];
    let mut blocks = Vec::new();
    for layer in 0..rnn.layers {
        for direction in 0..rnn.directions() {
            for kind in kinds {
                let at = (layer * rnn.directions() + direction) as usize;
                let Some(block) = space.block(at, kind) else { continue };
                let suffix = if direction == 1 { "_reverse" } else { "" };
                let name = format!("{}_l{layer}{suffix}", kind.torch_name());
                blocks.push((name, block.offset, [block.rows, block.columns]));
            }
        }
    }
    blocks
}

/// Memory of all tensors of the passes.
pub struct Trained {
    pub buffers: HashMap<Role, Buffer>,
    rows: i64,
    with: Optional,
}

impl Trained {
    pub fn pack(&self, roles: &[Role]) -> RnnPack {
        let of = |pack: RnnPack, role: &Role| match self.buffers.get(role) {
            Some(buffer) => pack.with(*role, buffer),
            None => pack,
        };
        let pack = roles.iter().fold(RnnPack::new(), of);
        pack.with_workspace(&self.buffers[&Role::History])
    }
}

pub const FORWARD: [Role; 9] = [
    Role::Input,
    Role::Weights,
    Role::HInitial,
    Role::StatesInitial,
    Role::Lengths,
    Role::Output,
    Role::HFinal,
    Role::StatesFinal,
    Role::Reserve,
];
pub const DATA: [Role; 11] = [
    Role::Weights,
    Role::HInitial,
    Role::StatesInitial,
    Role::Lengths,
    Role::OutputGradient,
    Role::HFinalGradient,
    Role::StatesFinalGradient,
    Role::Reserve,
    Role::InputGradient,
    Role::HInitialGradient,
    Role::StatesInitialGradient,
];
pub const WEIGHTS: [Role; 6] = [
    Role::Input,
    Role::HInitial,
    Role::Lengths,
    Role::Output,
    Role::Reserve,
    Role::WeightGradients,
];

/// The memory of a case, and one of the workspace under the role of a history that it does not
/// have.
pub fn memory(kiln: &Kiln, case: &Case, rnn: &Rnn) -> Trained {
    let lengths = case.values_of_lengths();
    let rows = match rnn.layout {
        RowLayout::Packed => lengths.iter().sum::<f64>() as i64,
        _ => STEPS * BATCH,
    };
    let lstm = case.cell == "lstm";
    let with = Optional {
        h_initial: true,
        states_initial: lstm,
        lengths: case.lengths,
        h_final: true,
        states_final: lstm,
        reserve: true,
        ..Optional::default()
    };
    let training = rnn.training(Extent { batch: BATCH, rows }, with).expect("it has gradients");
    let device = kiln.device();
    let mut buffers = HashMap::new();
    let networks = [&training.forward, &training.data].into_iter().chain(&training.weights);
    for network in networks {
        for role in network.roles() {
            let size = network.bytes(role);
            let (dtype, dims) = network.tensor(role);
            let own = match role {
                Role::Weights => {
                    let mut space = vec![0.0; network.bytes(role) as usize / 8];
                    for (name, offset, dims) in weights(rnn) {
                        let vector = name.starts_with("bias");
                        let dims = if vector { &dims[..1] } else { &dims[..] };
                        let values = case.values(&name, dims, DType::F64);
                        space[offset as usize..][..values.len()].copy_from_slice(&values);
                    }
                    device.upload(&bytes(&space)).unwrap()
                }
                Role::Lengths => {
                    let lengths = lengths.iter().flat_map(|of| (*of as i32).to_le_bytes());
                    device.upload(&lengths.collect::<Vec<u8>>()).unwrap()
                }
                // What was there before is added to.
                Role::WeightGradients => {
                    device.upload(&bytes(&vec![0.5; size as usize / 8])).unwrap()
                }
                role if !role.is_output() => {
                    device.upload(&bytes(&case.values(role.name(), &dims, dtype))).unwrap()
                }
                _ => device.alloc(size.max(1)).unwrap(),
            };
            buffers.entry(role).or_insert(own);
        }
    }
    buffers.insert(Role::History, device.alloc(1 << 20).unwrap());
    Trained { buffers, rows, with }
}

impl Case {
    fn values_of_lengths(&self) -> Vec<f64> {
        match self.lengths {
            true => self.values("lengths", &[BATCH], DType::I32),
            false => vec![STEPS as f64; BATCH as usize],
        }
    }
}

fn train(built: &mut PersistentRnn, kiln: &Kiln, of: &Trained) -> kiln::Result<()> {
    let stream = kiln.stream();
    let packs = [of.pack(&FORWARD), of.pack(&DATA), of.pack(&WEIGHTS)];
    if built.rnn().layout == RowLayout::Packed {
        built.forward_packed(&stream, of.rows, &packs[0])?;
        built.backward_data_packed(&stream, of.rows, &packs[1])?;
        built.backward_weights_packed(&stream, of.rows, &packs[2])?;
    } else {
        let steps = of.rows / BATCH;
        built.forward(&stream, steps, &packs[0])?;
        built.backward_data(&stream, steps, &packs[1])?;
        built.backward_weights(&stream, steps, &packs[2])?;
    }
    stream.synchronize()
}

#[track_caller]
pub fn agree(found: &[f64], wanted: &[f64], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (found - wanted).abs();
        assert!(error <= 1e-12 * (1.0 + wanted.abs()), "{what}[{at}]: {found}, torch: {wanted}");
    }
}

/// Checks the results of both backward passes.
pub fn are_of_torch(case: &Case, rnn: &Rnn, of: &Trained) {
    let training = rnn.training(Extent { batch: BATCH, rows: of.rows }, of.with).unwrap();
    for network in [&training.forward, &training.data] {
        let results = network.roles().filter(|role| role.is_output());
        for role in results.filter(|role| *role != Role::Reserve) {
            let (dtype, dims) = network.tensor(role);
            let wanted = case.values(role.name(), &dims, dtype);
            let what = format!("{}: {}", case.name, role.name());
            agree(&floats(&of.buffers[&role]), &wanted, &what);
        }
    }
    let found = floats(&of.buffers[&Role::WeightGradients]);
    for (name, offset, dims) in weights(rnn) {
        let dims = if name.starts_with("bias") { &dims[..1] } else { &dims[..] };
        let wanted = case.values(&format!("d_{name}"), dims, DType::F64);
        let own: Vec<f64> =
            found[offset as usize..][..wanted.len()].iter().map(|value| value - 0.5).collect();
        agree(&own, &wanted, &format!("{}: d_{name}", case.name));
    }
}

#[test]
fn gradients_are_those_of_torch() {
    for (at, case) in cases().iter().enumerate() {
        let rnn = case.rnn();
        for kiln in harness::dialects_by_turns(at) {
            let mut built = kiln.build_rnn_dynamic(&rnn, BATCH).expect("supported");
            let of = memory(kiln, case, &rnn);
            train(&mut built, kiln, &of).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            are_of_torch(case, &rnn, &of);
        }
    }
}

#[test]
fn a_reserve_space_of_something_else_is_refused() {
    let kiln = harness::kiln();
    let case = &cases()[0];
    let rnn = case.rnn();
    let of = memory(kiln, case, &rnn);
    let mut built = kiln.build_rnn_dynamic(&rnn, BATCH).unwrap();
    let stream = kiln.stream();
    let mut refused = |pass: &str, steps: i64, pack: &RnnPack| {
        let result = match pass {
            "forward" => built.forward(&stream, steps, pack),
            "data" => built.backward_data(&stream, steps, pack),
            _ => built.backward_weights(&stream, steps, pack),
        };
        result.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let [forward, data, weights] = [of.pack(&FORWARD), of.pack(&DATA), of.pack(&WEIGHTS)];
    assert_eq!(
        refused("data", STEPS, &data),
        "rnn backward data: no reserve space has been through a forward pass in training of this \
         problem"
    );
    assert_eq!(refused("forward", STEPS, &forward), "");
    assert_eq!(
        refused("weights", STEPS, &weights),
        "rnn backward weights: the reserve space has not been through rnn backward data"
    );
    assert_eq!(
        refused("data", STEPS - 1, &data),
        "rnn backward data: the reserve space is of 12 vectors, not of 9 vectors"
    );
    let without =
        of.pack(&DATA.map(|role| if role == Role::Reserve { Role::Lengths } else { role }));
    assert_eq!(refused("data", STEPS, &without), "rnn backward data: `reserve` is missing");
    let small = kiln.device().alloc(64).unwrap();
    let pack = data.clone().with(Role::Reserve, &small);
    let needed = of.buffers[&Role::Reserve].bytes();
    assert_eq!(
        refused("data", STEPS, &pack),
        format!("rnn backward data: `reserve` has 64 bytes, the network needs {needed}")
    );
    assert_eq!(refused("data", STEPS, &data), "");
    assert_eq!(refused("weights", STEPS, &weights), "");
}

/// A small network of any cell, with tensors that are there for some.
fn drawn(random: &mut Random) -> (Rnn, Optional, Vec<i64>) {
    let kind = random.pick(&CellKind::ALL);
    let sizes = [1, 3, 8, 13, 20];
    let (input, hidden) = (random.pick(&sizes), random.pick(&sizes));
    let direction = random.pick(&[Direction::Forward, Direction::Reverse, Direction::Both]);
    let layouts = [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed];
    let biases =
        [BiasMode::None, BiasMode::Double, BiasMode::SingleInput, BiasMode::SingleRecurrent];
    let dtypes = [DType::F16, DType::Bf16, DType::F32, DType::F64];
    let mut rnn = Rnn::new(kind, input, hidden)
        .layers(random.pick(&[1, 1, 2]))
        .direction(direction)
        .bias(random.pick(&biases))
        .dtype(random.pick(&dtypes))
        .layout(random.pick(&layouts));
    if direction == Direction::Both && random.below(3) == 0 {
        rnn = rnn.stacking(Stacking::Separate).join(random.pick(&[Join::Concat, Join::Sum]));
    }
    if random.below(5) == 0 {
        rnn = Rnn { input_size: hidden, ..rnn.skip_input() };
    }
    if kind == CellKind::Lstm && random.below(3) == 0 {
        rnn = rnn.peephole();
    }
    if kind == CellKind::Lstm && random.below(3) == 0 {
        rnn = rnn.projection(1 + random.below(hidden as usize) as i64);
    }
    if rnn.dtype == DType::F32 && random.below(3) == 0 {
        rnn = rnn.tf32();
    }
    if random.below(2) == 0 {
        rnn = rnn.dropout(DropoutDescriptor::set(Real::new(0.4), 0).unwrap());
    }
    let batch = random.pick(&[1, 2, 3, 5]);
    let steps = random.pick(&[0, 1, 2, 5]);
    let mut lengths: Vec<i64> = (0..batch).map(|_| random.below(steps + 1) as i64).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let mut half = || random.below(2) == 0;
    let states = half();
    let others = states && kind.has_cell_state();
    let with = Optional {
        h_initial: states,
        states_initial: others,
        lengths: rnn.layout == RowLayout::Packed || half(),
        reset: half(),
        h_final: states,
        states_final: others,
        reserve: true,
        ..Optional::default()
    };
    if !with.lengths {
        lengths.fill(steps as i64);
    }
    (rnn, with, lengths)
}

/// The three passes of networks that no one thought of, on devices and by the reference.
#[test]
fn passes_of_random_networks_agree_with_the_reference() {
    let (first, count) = (number("KILN_NETWORKS_FROM", 0), number("KILN_NETWORKS", 16));
    for seed in first..first + count {
        if (seed - first) % 10 == 9 {
            eprintln!("{} of {count} networks", seed - first + 1);
        }
        let (rnn, with, lengths) = drawn(&mut Random(1000 + seed));
        let batch = lengths.len() as i64;
        let steps = lengths.first().copied().unwrap_or(0);
        let rows = match rnn.layout {
            RowLayout::Packed => lengths.iter().sum(),
            _ => steps * batch,
        };
        let training = rnn.training(Extent { batch, rows }, with);
        let training = training.unwrap_or_else(|error| panic!("{seed}: {rnn:?}: {error}"));
        let networks = [&training.forward, &training.data].into_iter().chain(&training.weights);
        for network in networks {
            let given: Values = network
                .places
                .iter()
                .filter(|place| network.graph.inputs().any(|tensor| tensor.uid == place.uid))
                .map(|place| {
                    let tensor = network.graph.tensor(place.uid).unwrap();
                    let own = match place.role {
                        Role::Lengths => lengths.iter().map(|length| *length as f64).collect(),
                        Role::Reset => harness::fill(tensor, seed, 1.0)
                            .into_iter()
                            .map(|value| f64::from(value > 0.7))
                            .collect(),
                        Role::DropoutSeeds => vec![3_000_000_019.0],
                        Role::DropoutPositions => vec![-5.0],
                        Role::Weights => harness::fill(tensor, seed, 0.5),
                        _ => harness::fill(tensor, seed + place.uid as u64, 1.0),
                    };
                    (place.uid, own)
                })
                .collect();
            for kiln in harness::dialects_by_turns(seed as usize) {
                let what = format!("{seed}: {rnn:?} of {lengths:?}");
                harness::check(kiln, &network.graph, None, &given, &what);
            }
        }
    }
}

/// Named results of all passes of a network on a device, from values of its inputs by name.
fn passes(rnn: &Rnn, extent: Extent, given: &Values) -> HashMap<String, Vec<f64>> {
    let with = Optional { h_initial: true, h_final: true, reserve: true, ..Optional::default() };
    let training = rnn.training(extent, with).unwrap();
    let kiln = harness::kiln();
    let mut state = training.initial_values(given.clone()).unwrap();
    for (number, graph) in training.graphs().into_iter().enumerate() {
        let plan = kiln.plan(graph).unwrap();
        let inputs = training.inputs(number, &state);
        let outputs = harness::run_plan(kiln, &plan, &inputs).unwrap();
        training.store(number, &outputs, &mut state);
    }
    let mut values = training.named_values(&state);
    let named = training.named_outputs().into_iter();
    named.map(|tensor| (tensor.name, values.remove(&tensor.uid).unwrap())).collect()
}

/// Gradients of the weights are added to what is there, in whatever pieces a cell's come: those of
/// a layer are those of its graphs.
#[test]
fn gradients_are_added_for_every_cell() {
    let kiln = harness::kiln();
    let (batch, steps) = (2, 3);
    let extent = Extent { batch, rows: steps * batch };
    for (at, kind) in CellKind::ALL.into_iter().enumerate() {
        let direction = if at % 2 == 0 { Direction::Forward } else { Direction::Both };
        let rnn = Rnn::new(kind, 3, 8).layers(2).direction(direction).dtype(DType::F64);
        let with =
            Optional { h_initial: true, h_final: true, reserve: true, ..Optional::default() };
        let training = rnn.training(extent, with).unwrap();
        let named = training.named_inputs().into_iter();
        let given: Values =
            named.map(|tensor| (tensor.uid, harness::fill(&tensor, at as u64, 0.5))).collect();
        let wanted = passes(&rnn, extent, &given);
        let state = training.initial_values(given).unwrap();
        let networks = [&training.forward, &training.data].into_iter().chain(&training.weights);
        let mut buffers: HashMap<Role, Buffer> = HashMap::new();
        for (network, role) in networks.flat_map(|of| of.roles().map(move |role| (of, role))) {
            let mut values = vec![0.5; (network.bytes(role) as usize).div_ceil(8)];
            for place in network.places.iter().filter(|place| place.role == role) {
                let tensor = network.graph.tensor(place.uid).unwrap();
                let known = state.get(&place.uid).into_iter().flatten();
                for (value, offset) in known.zip(tensor.offsets()) {
                    values[place.offset as usize + offset] = *value;
                }
            }
            let buffer = kiln.device().upload(&bytes(&values)).unwrap();
            buffers.entry(role).or_insert(buffer);
        }
        let mut built = kiln.rnn(&rnn, batch).unwrap();
        let space = built.temp_space(extent.rows, with).unwrap();
        let workspace = kiln.device().alloc(space.workspace_bytes).unwrap();
        let pack = RnnPack::new().with_workspace(&workspace);
        let pack = buffers.iter().fold(pack, |pack, (role, of)| pack.with(*role, of));
        let stream = kiln.stream();
        built.forward(&stream, steps, &pack).unwrap();
        built.backward_data(&stream, steps, &pack).unwrap();
        built.backward_weights(&stream, steps, &pack).unwrap();
        stream.synchronize().unwrap();
        let found = floats(&buffers[&Role::WeightGradients]);
        for (name, offset, dims) in weights(&rnn) {
            let own = &found[offset as usize..][..(dims[0] * dims[1]) as usize];
            let own: Vec<f64> = own.iter().map(|value| value - 0.5).collect();
            agree(&own, &wanted[&format!("d_{name}")], &format!("{kind:?}: d_{name}"));
        }
    }
}

/// Errors of 2048 steps do not add up: results are within some units in the last place of the same
/// passes in double precision, of the same values.
#[test]
fn gradients_of_long_sequences_do_not_drift() {
    let (steps, batch) = (2048, 2);
    let extent = Extent { batch, rows: steps * batch };
    let ulp = |bits: i32| 0.5_f64.powi(bits);
    for (rnn, types) in [
        (Rnn::lstm(4, 8), &[(DType::F32, ulp(23)), (DType::Bf16, ulp(7))][..]),
        (Rnn::gru(4, 8), &[(DType::F16, ulp(10))]),
    ] {
        let with =
            Optional { h_initial: true, h_final: true, reserve: true, ..Optional::default() };
        let inputs = rnn.training(extent, with).unwrap().named_inputs();
        let round = |tensor: &TensorDesc| {
            // Weights as torch begins with, and gradients that do not vanish.
            let span = if tensor.name.starts_with(['w', 'b']) { 0.35 } else { 1.0 };
            let values = harness::fill(tensor, 40 + tensor.uid as u64, span);
            values.into_iter().map(|value| DType::Bf16.round(DType::F16.round(value))).collect()
        };
        let given: Values = inputs.iter().map(|tensor| (tensor.uid, round(tensor))).collect();
        let exact = passes(&rnn.clone().dtype(DType::F64), extent, &given);
        for (dtype, ulp) in types.iter().copied() {
            let found = passes(&rnn.clone().dtype(dtype), extent, &given);
            for (name, exact) in &exact {
                let norm = |values: &mut dyn Iterator<Item = f64>| -> f64 {
                    values.map(|value| value * value).sum::<f64>().sqrt()
                };
                let apart = norm(&mut found[name].iter().zip(exact).map(|(a, b)| a - b));
                let error = apart / norm(&mut exact.iter().copied());
                assert!(error < 8.0 * ulp, "{dtype} {name}: {error}");
            }
        }
    }
}
