//! Networks trained in parts of their steps.

use std::collections::BTreeMap;

use kiln::device::Buffer;
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::graph::{Direction, RowLayout};
use kiln::layers::{CheckpointedRnn, RnnPack};
use kiln::rnn::{CellKind, Extent, Optional, Rnn, Role, WeightSpace};
use kiln::{DType, ErrorKind, Kiln};

use crate::harness;
use crate::random_graphs::Random;
use crate::rnn_gradients::{
    BATCH, DATA, FORWARD, STEPS, WEIGHTS, are_of_torch, bytes, cases, floats, memory,
};

fn all_roles() -> Vec<Role> {
    let all = FORWARD.into_iter().chain(DATA).chain(WEIGHTS);
    all.filter(|role| *role != Role::Reserve).collect()
}

/// The gradients of torch's networks, whatever the parts.
#[test]
fn gradients_in_parts_are_those_of_torch() {
    let mut runs = 0;
    for (at, case) in cases().iter().enumerate() {
        let rnn = case.rnn();
        if rnn.direction == Direction::Both || rnn.layout != RowLayout::SequenceMajor {
            continue;
        }
        for every in [1, 2, 3, STEPS, 2 * STEPS] {
            for kiln in harness::dialects_by_turns(at + every as usize) {
                let of = memory(kiln, case, &rnn);
                let mut built = kiln.checkpointed_rnn(&rnn, BATCH, every).unwrap();
                let pack = of.pack(&all_roles());
                let space = built.temp_space(STEPS, pack.optional()).unwrap();
                let reserve = kiln.device().alloc(space.reserve_bytes).unwrap();
                let pack = pack.with(Role::Reserve, &reserve);
                let stream = kiln.stream();
                let what = |error| panic!("{} every {every}: {error}", case.name);
                match built.forward(&stream, STEPS, &pack) {
                    Err(error) if error.to_string().contains("not be aligned to 16") => {
                        assert!(every % 2 == 1 && every < STEPS, "{error}");
                        continue;
                    }
                    other => other.unwrap_or_else(what),
                }
                built.backward(&stream, STEPS, &pack).unwrap_or_else(what);
                stream.synchronize().unwrap();
                are_of_torch(case, &rnn, &of);
                runs += 1;
            }
        }
    }
    assert!(runs >= 10, "{runs}");
}

/// A network and its memory.
struct Session {
    network: CheckpointedRnn,
    steps: i64,
    pack: RnnPack,
    tensors: Vec<(Role, Buffer)>,
}

impl Session {
    fn new(kiln: &Kiln, rnn: &Rnn, steps: i64, every: i64) -> Session {
        let network = kiln.checkpointed_rnn(rnn, BATCH, every).unwrap();
        let mut random = Random(steps as u64 * 7 + every as u64);
        let mut drawn = |elements: i64| -> Vec<u8> {
            let values: Vec<f64> =
                (0..elements).map(|_| random.below(2001) as f64 / 1000.0 - 1.0).collect();
            bytes(&values)
        };
        let rows = steps * BATCH;
        let space = WeightSpace::new(rnn).unwrap().bytes() as i64 / 8;
        let states = rnn.layers * BATCH * rnn.hidden_size;
        let sizes = [
            (Role::Input, rows * rnn.input_size),
            (Role::Output, rows * rnn.output_size()),
            (Role::Weights, space),
            (Role::HInitial, states),
            (Role::OutputGradient, rows * rnn.output_size()),
            (Role::InputGradient, rows * rnn.input_size),
            (Role::HInitialGradient, states),
            (Role::WeightGradients, space),
        ];
        let device = kiln.device();
        let tensors: Vec<(Role, Buffer)> = sizes
            .into_iter()
            .map(|(role, elements)| {
                let own = match role {
                    Role::WeightGradients => bytes(&vec![0.0; elements as usize]),
                    _ => drawn(elements),
                };
                (role, device.upload(&own).unwrap())
            })
            .collect();
        let with = Optional { h_initial: true, ..Optional::default() };
        let space = network.temp_space(steps, with).unwrap();
        let [reserve, workspace] = [space.reserve_bytes, space.workspace_bytes.max(1)]
            .map(|bytes| device.alloc(bytes).unwrap());
        let pack = RnnPack::new().with(Role::Reserve, &reserve).with_workspace(&workspace);
        let add = |pack: RnnPack, (role, buffer): &(Role, Buffer)| pack.with(*role, buffer);
        let pack = tensors.iter().fold(pack, add);
        Session { network, steps, pack, tensors }
    }

    fn tensor(&self, role: Role) -> &Buffer {
        &self.tensors.iter().find(|(own, _)| *own == role).expect("it is there").1
    }

    fn values(&self, role: Role) -> Vec<f64> {
        floats(self.tensor(role))
    }

    fn forward(&mut self, kiln: &Kiln) -> Vec<f64> {
        if let Some(states) = self.network.network().dropout_states() {
            states.restore(&vec![17; states.positions().unwrap().len()]).unwrap();
        }
        self.network.forward(&kiln.stream(), self.steps, &self.pack).unwrap();
        self.values(Role::Output)
    }

    /// The sum of the outputs, weighted by their gradients.
    fn loss(&mut self, kiln: &Kiln) -> f64 {
        let gradient = self.values(Role::OutputGradient);
        self.forward(kiln).iter().zip(gradient).map(|(y, dy)| y * dy).sum()
    }
}

/// Networks with dropout: slopes of the forward pass in parts, with the same dropouts drawn, along
/// a direction that moves all of a tensor's elements.
#[test]
fn gradients_in_parts_with_dropout_are_slopes() {
    let kiln = harness::kiln();
    for (kind, steps, every) in
        [(CellKind::Lstm, 7, 4), (CellKind::Gru, 5, 2), (CellKind::Tanh, 6, 2)]
    {
        let dropout = DropoutDescriptor::set(Real::new(0.4), 99).unwrap();
        let rnn = Rnn::new(kind, 3, 5).layers(2).dtype(DType::F64).dropout(dropout);
        let mut session = Session::new(kiln, &rnn, steps, every);
        let y = session.forward(kiln);
        session.network.backward(&kiln.stream(), steps, &session.pack).unwrap();
        let bits = |values: &[f64]| values.iter().map(|of| of.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&session.values(Role::Output)), bits(&y), "{kind:?}: written again");
        for (role, gradient) in [
            (Role::Input, Role::InputGradient),
            (Role::HInitial, Role::HInitialGradient),
            (Role::Weights, Role::WeightGradients),
        ] {
            let (found, values) = (session.values(gradient), session.values(role));
            let mut noise = fastrand::Rng::with_seed(role as u64);
            let along: Vec<f64> = values.iter().map(|_| 2.0 * noise.f64() - 1.0).collect();
            let step = 1e-6;
            let [more, less] = [step, -step].map(|by| {
                let moved = values.iter().zip(&along).map(|(value, along)| value + by * along);
                session.tensor(role).write(0, &bytes(&moved.collect::<Vec<f64>>())).unwrap();
                session.loss(kiln)
            });
            session.tensor(role).write(0, &bytes(&values)).unwrap();
            let slope = (more - less) / (2.0 * step);
            let own: f64 = found.iter().zip(&along).map(|(found, along)| found * along).sum();
            let error = (slope - own).abs() / (1.0 + slope.abs());
            assert!(error < 1e-7, "{kind:?} {}: {own}, slope {slope}", role.name());
        }
    }
}

/// Lengths that end before, in and behind a part, and resets: as in one part.
#[test]
fn lengths_and_resets_in_parts_are_those_of_the_whole() {
    let kiln = harness::kiln();
    let (batch, steps) = (4, 7);
    for (kind, lengths, reset) in
        [(CellKind::Lstm, true, false), (CellKind::Gru, true, true), (CellKind::Tanh, false, true)]
    {
        let rnn = Rnn::new(kind, 4, 6).layers(2).dtype(DType::F64);
        let has_others = kind == CellKind::Lstm;
        let with = Optional {
            h_initial: true,
            states_initial: has_others,
            h_final: true,
            states_final: has_others,
            lengths,
            reset,
            reserve: true,
            ..Optional::default()
        };
        let extent = Extent { batch, rows: steps * batch };
        let training = rnn.training(extent, with).unwrap();
        let networks = || [&training.forward, &training.data].into_iter().chain(&training.weights);
        let memory = || {
            let mut random = Random(11);
            let mut buffers: BTreeMap<Role, Buffer> = BTreeMap::new();
            for network in networks() {
                for role in network.roles().filter(|role| *role != Role::Reserve) {
                    let dtype = network.tensor(role).0;
                    let value = |at: usize, random: &mut Random| match role {
                        Role::Lengths => [7.0, 3.0, 4.0, 0.0][at],
                        Role::Reset => f64::from(random.below(4) == 0),
                        Role::WeightGradients => 0.25,
                        _ => random.below(2001) as f64 / 1000.0 - 1.0,
                    };
                    let mut own = vec![0; network.bytes(role) as usize];
                    for (at, bytes) in own.chunks_exact_mut(dtype.bytes()).enumerate() {
                        dtype.write(value(at, &mut random), bytes);
                    }
                    buffers.entry(role).or_insert_with(|| kiln.device().upload(&own).unwrap());
                }
            }
            buffers
        };
        let packed = |buffers: &BTreeMap<Role, Buffer>, bytes: [u64; 2]| {
            let [reserve, workspace] = bytes.map(|of| kiln.device().alloc(of.max(1)).unwrap());
            let pack = RnnPack::new().with(Role::Reserve, &reserve).with_workspace(&workspace);
            buffers.iter().fold(pack, |pack, (role, buffer)| pack.with(*role, buffer))
        };
        let stream = kiln.stream();
        let (whole, parts) = (memory(), memory());
        let mut network = kiln.rnn(&rnn, batch).unwrap();
        let space = network.temp_space(extent.rows, with).unwrap();
        let pack = packed(&whole, [space.reserve_bytes, space.workspace_bytes]);
        network.forward(&stream, steps, &pack).unwrap();
        network.backward_data(&stream, steps, &pack).unwrap();
        network.backward_weights(&stream, steps, &pack).unwrap();
        let mut network = kiln.checkpointed_rnn(&rnn, batch, if reset { 4 } else { 2 }).unwrap();
        let space = network.temp_space(steps, with).unwrap();
        let pack = packed(&parts, [space.reserve_bytes, space.workspace_bytes]);
        network.forward(&stream, steps, &pack).unwrap();
        network.backward(&stream, steps, &pack).unwrap();
        stream.synchronize().unwrap();
        for role in whole.keys().filter(|role| role.is_output()) {
            let [whole, parts] = [&whole, &parts].map(|of| floats(&of[role]));
            for (at, (whole, part)) in whole.iter().zip(&parts).enumerate() {
                let error = (whole - part).abs();
                let what = format!("{kind:?} {}[{at}]: {part}, whole {whole}", role.name());
                assert!(error <= 1e-12 * (1.0 + whole.abs()), "{what}");
            }
        }
    }
}

/// A second backward pass adds the same gradients once more.
#[test]
fn a_backward_pass_can_be_repeated() {
    let kiln = harness::kiln();
    let dropout = DropoutDescriptor::set(Real::new(0.5), 7).unwrap();
    let rnn = Rnn::lstm(3, 4).layers(2).dtype(DType::F64).dropout(dropout);
    let mut session = Session::new(kiln, &rnn, 6, 2);
    session.forward(kiln);
    let mut seen = Vec::new();
    for _ in 0..2 {
        session.network.backward(&kiln.stream(), 6, &session.pack).unwrap();
        seen.push((session.values(Role::InputGradient), session.values(Role::WeightGradients)));
    }
    assert_eq!(seen[0].0, seen[1].0);
    for (once, twice) in seen[0].1.iter().zip(&seen[1].1) {
        assert!((twice - 2.0 * once).abs() < 1e-12 * (1.0 + once.abs()), "{once}, {twice}");
    }
}

/// What every step keeps against what `every` steps keep and the states between parts.
#[test]
fn parts_reserve_what_their_steps_keep() {
    let kiln = harness::kiln();
    let (steps, every) = (4096, 64);
    let rnn = Rnn::lstm(64, 128).dtype(DType::Bf16);
    let with = Optional { reserve: true, ..Optional::default() };
    let bytes = |steps: i64| {
        let whole = kiln.rnn(&rnn, BATCH).unwrap();
        whole.temp_space(steps * BATCH, with).unwrap().reserve_bytes
    };
    let parts = kiln.checkpointed_rnn(&rnn, BATCH, every).unwrap();
    let own = parts.temp_space(steps, with).unwrap().reserve_bytes;
    // Of h and c, a multiple of 256 bytes each.
    let states = (2 + 2) * 128 * BATCH as u64;
    let between = steps as u64 / every as u64 * states;
    let alone = bytes(every).next_multiple_of(256) + 2 * states + 256;
    assert_eq!(own, alone + between);
    assert!(20 * own < bytes(steps), "{own} of {}", bytes(steps));
}

#[test]
fn misuse_is_refused() {
    let kiln = harness::kiln();
    let rnn = Rnn::lstm(3, 4).dtype(DType::F64);
    let refused = |rnn: &Rnn, every: i64, kind: ErrorKind, rule: &str| {
        let error = kiln.checkpointed_rnn(rnn, BATCH, every).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(rule), "{error}");
    };
    refused(&rnn, 0, ErrorKind::BadParam, "parts of 0 steps");
    let both = rnn.clone().bidirectional();
    refused(&both, 2, ErrorKind::NotSupported, "a direction against time");
    let packed = rnn.clone().layout(RowLayout::Packed);
    refused(&packed, 2, ErrorKind::NotSupported, "rows of layout packed");

    let mut session = Session::new(kiln, &rnn, 6, 4);
    let stream = kiln.stream();
    let bad = |session: &mut Session, forward: bool, steps: i64, pack: &RnnPack, rule: &str| {
        let network = &mut session.network;
        let called = match forward {
            true => network.forward(&stream, steps, pack),
            false => network.backward(&stream, steps, pack),
        };
        let error = called.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadParam, "{error}");
        assert!(error.to_string().contains(rule), "{error}");
    };
    let pack = session.pack.clone();
    bad(&mut session, false, 6, &pack, "no reserve space has been through a forward pass");
    let without = RnnPack::new().with(Role::Input, session.tensor(Role::Input));
    bad(&mut session, true, 6, &without, "`reserve` is missing");
    let small = kiln.device().alloc(512).unwrap();
    bad(&mut session, true, 6, &pack.clone().with(Role::Reserve, &small), "`reserve` has 512");
    bad(&mut session, true, 9, &pack, "bytes, the network needs");
    let mut odd = Session::new(kiln, &rnn, 6, 3);
    let own = odd.pack.clone();
    bad(&mut odd, true, 6, &own, "3 steps of `input` have 216 bytes, the next part would not be");
    let history = pack.clone().with(Role::History, &small);
    bad(&mut session, true, 6, &history, "a history is not kept");
    session.forward(kiln);
    // Of as many parts, of other steps.
    bad(&mut session, false, 5, &pack, "the reserve space is of 18 vectors, not of 15 vectors");
}
