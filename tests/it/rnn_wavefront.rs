//! Passes in chunks of steps, of which layers run side by side: they compute the same bits as
//! layers one after the other, whatever the order of what nothing orders.

#![expect(unsafe_code, reason = "memory that is not aligned is given by address")]

use std::collections::BTreeMap;
use std::time::Duration;

use kiln::device::{Buffer, DeviceChoice};
use kiln::dropout::DropoutDescriptor;
use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{Direction, Quantization, RowLayout};
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::plan::{Background, DeviceMemory, Manifest};
use kiln::rnn::{BiasMode, CellKind, Extent, Optional, Rnn, Role};
use kiln::{Config, DType, ExecutionPlan, Kiln, OperationGraph, TensorDesc, VariantPack};

use crate::{golden, harness};

/// Layers one after the other.
const IN_TURN: Option<i64> = Some(i64::MAX);

/// Networks of more than one layer, with their optional tensors.
fn networks() -> Vec<(Rnn, Optional)> {
    let none = Optional::default();
    let states = Optional { h_initial: true, h_final: true, ..none };
    let all = Optional { states_initial: true, states_final: true, ..states };
    let integers = Quantization::new(64.0, 2);
    vec![
        (Rnn::lstm(16, 32).dtype(DType::F16).layers(3), all),
        (Rnn::lstm(16, 32).dtype(DType::F16).layers(2), Optional { lengths: true, ..none }),
        (Rnn::gru(5, 9).layers(2), Optional { lengths: true, ..states }),
        (
            Rnn::gru(32, 32).dtype(DType::Bf16).layers(2).skip_input(),
            Optional { reset: true, ..states },
        ),
        (Rnn::lstm(16, 32).dtype(DType::Bf16).projection(8).layers(4), all),
        (Rnn::new(CellKind::Tanh, 3, 5).dtype(DType::F64).layers(2), states),
        (Rnn::new(CellKind::Augru, 8, 16).layers(2), Optional { lengths: true, ..states }),
        (
            Rnn::lstm(32, 32).layers(2).bias(BiasMode::SingleInput).quantised(DType::U8, integers),
            all,
        ),
    ]
}

fn open(target: &str, late: bool, seed: u64) -> Kiln {
    let device = Some(DeviceChoice::Sim(target.to_owned()));
    let (sim_late, sim_seed) = (Some(late), Some(seed));
    Kiln::open(Config { sim_late, sim_seed, ..harness::checked(device) }).expect("it opens")
}

/// The tensors of a call, final states in the memory of initial ones if they are `in_place`.
struct Memory {
    pack: RnnPack,
    buffers: BTreeMap<Role, Buffer>,
    _workspace: Buffer,
}

impl Memory {
    fn of(
        kiln: &Kiln,
        built: &PersistentRnn,
        steps: i64,
        with: Optional,
        in_place: bool,
    ) -> Memory {
        let batch = built.mini_batch();
        let extent = Extent { batch, rows: steps * batch };
        let networks = match with.reserve {
            false => vec![built.rnn().network(extent, with).expect("valid")],
            true => {
                let training = built.rnn().training(extent, with).expect("valid");
                [training.forward, training.data].into_iter().chain(training.weights).collect()
            }
        };
        let (mut pack, mut buffers) = (RnnPack::new(), BTreeMap::new());
        let network_of =
            |role: &Role| networks.iter().find(|of| of.roles().any(|own| own == *role));
        for (role, network) in Role::ALL.iter().filter_map(|of| Some((*of, network_of(of)?))) {
            let initial = match role {
                Role::HFinal => Some(Role::HInitial),
                Role::StatesFinal => Some(Role::StatesInitial),
                Role::HInitialGradient => Some(Role::HFinalGradient),
                Role::StatesInitialGradient => Some(Role::StatesFinalGradient),
                _ => None,
            };
            if let Some(buffer) = initial.filter(|_| in_place).and_then(|of| buffers.get(&of)) {
                pack = pack.with(role, buffer);
                continue;
            }
            let (dtype, dims) = network.tensor(role);
            let tensor = TensorDesc::packed(1, role.name(), &dims, dtype);
            let span = match (dtype, role) {
                (DType::I8 | DType::U8, _) => 100.0,
                (_, Role::Weights | Role::WeightNumbers) => 0.3,
                _ => 1.0,
            };
            let mut bytes = vec![0; network.bytes(role) as usize];
            if !role.is_output() {
                let values = match role {
                    // Some end with a chunk or before one.
                    Role::Lengths => [steps - 1, 16, 0].repeat(batch as usize)[..batch as usize]
                        .iter()
                        .map(|length| *length as f64)
                        .collect(),
                    _ => harness::fill(&tensor, role as u64 + 3, span),
                };
                let elements = bytes.chunks_exact_mut(dtype.bytes());
                elements.zip(values).for_each(|(to, value)| dtype.write(value, to));
            }
            let buffer = kiln.device().upload(&bytes).expect("memory");
            pack = pack.with(role, &buffer);
            buffers.insert(role, buffer);
        }
        let space = built.temp_space(extent.rows, with).expect("supported");
        let workspace = kiln.device().alloc(space.workspace_bytes).expect("memory");
        Memory { pack: pack.with_workspace(&workspace), buffers, _workspace: workspace }
    }

    fn written(&self) -> BTreeMap<Role, Vec<u8>> {
        let states =
            [Role::HInitial, Role::StatesInitial, Role::HFinalGradient, Role::StatesFinalGradient];
        let written =
            self.buffers.iter().filter(|(role, _)| role.is_output() || states.contains(role));
        written.map(|(role, of)| (*role, of.to_vec().expect("it can be read"))).collect()
    }
}

/// The memory of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Room {
    /// As sizes say.
    Enough,
    /// Final states are in the memory of initial ones.
    InPlace,
    /// What the plan of all steps needs, in which chunks wait for pieces of it.
    Little,
}

/// What all passes of a network leave in memory, in chunks of so many steps.
fn passed(
    kiln: &Kiln,
    (rnn, with): &(Rnn, Optional),
    [steps, batch]: [i64; 2],
    chunk: Option<i64>,
    room: Room,
) -> BTreeMap<Role, Vec<u8>> {
    let mut built = kiln.rnn(rnn, batch).expect("valid");
    built.set_chunk_steps(chunk);
    let used = built.chunk_steps(steps, *with).expect("supported");
    assert_eq!(used.is_some(), chunk.is_some_and(|chunk| chunk < steps), "{rnn:?}");
    if with.reserve {
        let used = built.backward_chunk_steps(steps, *with).expect("supported");
        // A projected layer's gradients of weights are partly of its last step.
        let chunk = chunk.filter(|_| rnn.projection_size.is_none());
        assert_eq!(used.is_some(), chunk.is_some_and(|chunk| chunk < steps), "{rnn:?}");
    }
    let memory = Memory::of(kiln, &built, steps, *with, room == Room::InPlace);
    let mut pack = memory.pack.clone();
    if room == Room::Little {
        let least = built.prepare(steps, *with).expect("supported").workspace_bytes();
        pack = pack.with_workspace(&kiln.device().alloc(least).expect("memory"));
    }
    let stream = kiln.device().stream().expect("a stream");
    // The second call finds what the first one left.
    for _ in 0..2 {
        built.forward(&stream, steps, &pack).expect("runs");
        if with.reserve {
            built.backward_data(&stream, steps, &pack).expect("runs");
            built.backward_weights(&stream, steps, &pack).expect("runs");
        }
    }
    stream.synchronize().expect("runs");
    memory.written()
}

/// On targets with clusters and without, in orders drawn with so many seeds.
fn expect_equal_bits(networks: &[(Rnn, Optional)], calls: &[(i64, Room)], seeds: u64) {
    let targets = ["h200", "t4", "a100", "rtx5090", "b200"];
    for (at, network) in networks.iter().enumerate() {
        let target = targets[at % targets.len()];
        let batch = 1 + at as i64 % 3;
        for &(steps, room) in calls {
            let extent = [steps, batch];
            let expected = passed(&open(target, false, 0), network, extent, IN_TURN, room);
            let seeds = if harness::all_are_wanted() { 8 } else { seeds };
            for seed in 0..seeds {
                let kiln = open(target, true, seed + at as u64);
                let actual = passed(&kiln, network, extent, Some(16), room);
                let differ = |role: &&Role| actual[*role] != expected[*role];
                let differ: Vec<&Role> = expected.keys().filter(differ).collect();
                assert!(
                    differ.is_empty(),
                    "{differ:?}, {extent:?}, {room:?}, seed {seed}: {network:?}"
                );
            }
        }
    }
}

#[test]
fn chunks_change_no_bit() {
    let calls = [(33, Room::Enough), (64, Room::InPlace), (87, Room::Little)];
    expect_equal_bits(&networks(), &calls, 2);
}

/// Those of a forward pass in training, of what it keeps, and of all gradients.
#[test]
fn chunks_change_no_bit_of_gradients() {
    let training = |(rnn, with): (Rnn, Optional)| (rnn, Optional { reserve: true, ..with });
    let differentiable = networks().into_iter().filter(|(rnn, _)| rnn.quantization.is_none());
    let none = Optional::default();
    let all = Optional { h_initial: true, states_initial: true, h_final: true, ..none };
    // One dropout, whose positions are not aligned to 16 bytes, and more.
    let dropping = [
        (Rnn::gru(5, 9).layers(2), Optional { lengths: true, ..none }),
        (Rnn::lstm(16, 32).dtype(DType::F16).layers(4), all),
    ];
    let dropping = dropping.map(|(rnn, with)| (rnn.dropout(dropout()), with));
    let calls = [(34, Room::Enough), (64, Room::InPlace)];
    let networks: Vec<_> = differentiable.chain(dropping).map(training).collect();
    expect_equal_bits(&networks, &calls, 1);
}

/// What programs do not order is seen in other orders than that of their calls.
#[test]
fn late_streams_show_what_is_not_ordered() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[64], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).expect("valid");
    graph.output(y, "y", DType::F32);
    let graph = graph.build().expect("valid");
    let uid =
        |name: &str| graph.tensors().iter().find(|of| of.name == name).expect("it is there").uid;
    // y = -x, and z = -y on another stream: the latter before the former in some orders.
    let seen = |late: bool, seed: u64| {
        let kiln = open("sim", late, seed);
        let plan = kiln.plan(&graph).expect("supported");
        let buffers = [1.0f32, 2.0, 3.0]
            .map(|value| kiln.device().upload(&value.to_ne_bytes().repeat(64)).expect("memory"));
        let streams = [0, 1].map(|_| kiln.device().stream().expect("a stream"));
        for (stream, pair) in streams.iter().zip(buffers.windows(2)) {
            let pack = VariantPack::new().with(uid("x"), &pair[0]).with(uid("y"), &pair[1]);
            plan.execute(stream, &pack).expect("runs");
        }
        streams.iter().for_each(|stream| stream.synchronize().expect("runs"));
        let bytes = buffers[2].to_vec().expect("it can be read");
        f32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"))
    };
    assert_eq!(seen(false, 0), 1.0);
    let late: Vec<f32> = (0..8).map(|seed| seen(true, seed)).collect();
    assert!(late.contains(&1.0) && late.contains(&-2.0), "{late:?}");
}

fn dropout() -> DropoutDescriptor {
    DropoutDescriptor::set(Real::new(0.5), 1).expect("valid")
}

fn lstm(units: i64, layers: i64) -> Rnn {
    Rnn::lstm(units, units).dtype(DType::F16).layers(layers)
}

/// A network of many steps on a device that runs nothing.
fn described(target: &str, rnn: &Rnn, batch: i64, steps: i64) -> (PersistentRnn, String) {
    let device = Some(DeviceChoice::Null(target.to_owned()));
    let kiln = Kiln::open(Config { device, ..harness::config() }).expect("it opens");
    let (units, layers) = (rnn.hidden_size, rnn.layers);
    let order = match (rnn.direction, rnn.layout) {
        (Direction::Forward, RowLayout::SequenceMajor) => String::new(),
        (direction, layout) => format!(" {direction:?} {}", layout.name()),
    };
    let drops = if rnn.dropouts() > 0 { " with dropout" } else { "" };
    let what = format!("{target}: {layers} x {units}{order}{drops}, batch {batch}, {steps} steps");
    (kiln.rnn(rnn, batch).expect("valid"), what)
}

fn said(chunk: kiln::Result<Option<i64>>) -> String {
    let steps = chunk.expect("supported");
    steps.map_or("in turn".to_owned(), |steps| format!("chunks of {steps}"))
}

/// Where layers run one after the other: other networks, few steps, layers that fill the device.
#[test]
fn chunks_are_taken_where_they_pay() {
    let shown = [
        ("h200", lstm(512, 2), 8, 512),
        ("h200", lstm(512, 2), 32, 512),
        ("h200", lstm(512, 2), 128, 512),
        ("h200", lstm(512, 4), 8, 512),
        ("h200", lstm(256, 2), 8, 64),
        ("h200", lstm(256, 2), 8, 128),
        ("h200", lstm(256, 8), 8, 4096),
        ("h200", lstm(1024, 2), 8, 512),
        ("h200", lstm(512, 1), 8, 512),
        ("h200", lstm(512, 2).bidirectional(), 8, 512),
        ("h200", lstm(512, 2).direction(Direction::Reverse), 8, 512),
        ("h200", lstm(512, 2).layout(RowLayout::BatchMajor), 8, 512),
        ("a100", lstm(128, 2), 8, 512),
        ("t4", lstm(64, 4), 4, 512),
        ("b200", lstm(512, 3), 8, 1024),
        ("rtx5090", lstm(256, 2), 8, 512),
    ]
    .map(|(target, rnn, batch, steps)| {
        let (mut built, what) = described(target, &rnn, batch, steps);
        format!("{what}: {}", said(built.chunk_steps(steps, Optional::default())))
    });
    let trained = [
        ("h200", lstm(512, 2), 8, 512),
        ("h200", lstm(512, 4), 8, 512),
        ("h200", lstm(512, 2).dropout(dropout()), 8, 512),
        ("t4", lstm(64, 4), 4, 512),
        ("rtx5090", lstm(256, 2), 8, 512),
    ]
    .map(|(target, rnn, batch, steps)| {
        let (mut built, what) = described(target, &rnn, batch, steps);
        let with = Optional { reserve: true, ..Optional::default() };
        let forward = said(built.chunk_steps(steps, with));
        let backward = said(built.backward_chunk_steps(steps, with));
        format!("{what}, training: {forward}, backward {backward}")
    });
    golden::assert_golden("rnn_chunks", &[&shown[..], &trained[..]].concat().join("\n"));
}

/// A call that is refused has launched nothing, whatever it is that is wrong.
#[test]
fn refused_calls_launch_nothing() {
    let kiln = harness::kiln();
    let (rnn, with) = &networks()[0];
    let [steps, batch] = [64, 2];
    let mut built = kiln.rnn(rnn, batch).expect("valid");
    built.set_chunk_steps(Some(16));
    let memory = Memory::of(kiln, &built, steps, *with, false);
    let before = memory.written();
    for role in [Role::HFinal, Role::StatesFinal, Role::Output, Role::Input] {
        let buffer = &memory.buffers[&role];
        let larger = kiln.device().alloc(buffer.bytes() + 8).expect("memory");
        let memory_of = DeviceMemory { address: larger.address() + 8, bytes: buffer.bytes() };
        let mut pack = memory.pack.clone();
        // SAFETY: `larger` outlives the call.
        unsafe { pack.set_address(role, memory_of) };
        let error = built.forward(&kiln.stream(), steps, &pack).expect_err("it is misaligned");
        assert!(error.to_string().contains("is not aligned to 16 bytes"), "{error}");
    }
    assert!(memory.written() == before);
}

/// A prebuilt cache of a stacked network has the kernels of its chunks.
#[test]
fn what_is_warmed_runs_in_chunks() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let device = Some(DeviceChoice::Null("h200".to_owned()));
    let cache_dir = Some(folder.path().to_owned());
    let open = |no_jit: bool| {
        let config =
            Config { device: device.clone(), cache_dir: cache_dir.clone(), ..Config::default() };
        Kiln::open(Config { no_jit: Some(no_jit), ..config }).expect("it opens")
    };
    let problem = |more: &str| {
        let problem = r#"{"rnn": {"cell": "lstm", "input_size": 16, "hidden_size": 32, "layers": 2,
            "dtype": "f16", "batch": 4, "tensors": ["h_0", "c_0", "h_n", "c_n"]"#;
        format!("[[problem]]\ninline = '''{problem}, {more}}}}}'''\n")
    };
    let manifest = problem(r#""steps": 8"#) + &problem(r#""steps": 64, "backward": true"#);
    let manifest = Manifest::parse(&manifest, folder.path()).expect("valid");
    let summary = open(false).warm(&manifest, &[], |_| ()).expect("it compiles");
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    let rnn = Rnn::lstm(16, 32).layers(2).dtype(DType::F16);
    let mut built = open(true).build_rnn_dynamic(&rnn, 4).expect("its kernels are there");
    built.set_chunk_steps(Some(16));
    let with = Optional::default();
    assert_eq!(built.chunk_steps(64, with).expect("so they are"), Some(16));
    let with = Optional { reserve: true, ..with };
    assert_eq!(built.chunk_steps(64, with).expect("those of training, too"), Some(16));
    assert_eq!(built.backward_chunk_steps(64, with).expect("and of gradients"), Some(16));
}

/// A number of steps whose first call found generic kernels runs in chunks once those of chunks
/// have been compiled in the background.
#[test]
fn chunks_come_with_specialised_kernels() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let device = Some(DeviceChoice::Null("h200".to_owned()));
    let cache_dir = Some(folder.path().to_owned());
    let background = Some(Background::default());
    let config = Config { device, cache_dir, background, ..Config::default() };
    let chunks = |units: i64| {
        let kiln = Kiln::open(config.clone()).expect("it opens");
        let mut built = kiln.rnn(&lstm(units, 2), 4).expect("valid");
        built.set_chunk_steps(Some(16));
        let mut all = Vec::new();
        for with in [false, true].map(|reserve| Optional { reserve, ..Optional::default() }) {
            // The kernels of all steps, then those of chunks.
            for _ in 0..3 {
                built.chunk_steps(70, with).expect("supported");
                assert!(kiln.settle(Duration::from_secs(120)), "they are compiled");
            }
            all.push(built.chunk_steps(70, with).expect("supported"));
        }
        all
    };
    // The second one finds the generic kernels of the first.
    assert_eq!([chunks(32), chunks(64)], [[Some(16); 2]; 2]);
}

/// Chunks run as all steps do where layers have been tuned, though their graphs have not.
#[test]
fn tuned_layers_run_so_in_chunks() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let device = Some(DeviceChoice::Sim("h200".to_owned()));
    let cache_dir = Some(folder.path().to_owned());
    let config = Config { device, cache_dir, ..Config::default() };
    let open = || Kiln::open(config.clone()).expect("it opens");
    let (rnn, batch) = (Rnn::lstm(32, 64).layers(2).dtype(DType::F16), 8);
    let engines = |built: &mut PersistentRnn| {
        let plan = built.prepare(64, Optional::default()).expect("supported");
        plan.parts().iter().map(|part| part.config.to_string()).collect::<Vec<_>>()
    };
    let untuned = engines(&mut open().rnn(&rnn, batch).expect("valid"));
    let with = Optional {
        h_initial: true,
        states_initial: true,
        h_final: true,
        states_final: true,
        ..Optional::default()
    };
    let network = rnn.network(Extent { batch, rows: batch }, with).expect("valid");
    // Each of three is said to take half the time of the one before.
    let mut us = 100.0;
    let mut trial = |_: &ExecutionPlan| {
        us /= 2.0;
        Ok(us)
    };
    let training = Optional { reserve: true, ..with };
    let graphs = rnn.training(Extent { batch, rows: 64 * batch }, training).expect("it has some");
    for of in [&network, &graphs.forward, &graphs.data] {
        open().tune_by(&of.graph, 3, &mut trial, |_| ()).expect("supported");
    }
    let mut built = open().rnn(&rnn, batch).expect("valid");
    let tuned = engines(&mut built);
    assert_ne!(tuned, untuned);
    built.set_chunk_steps(Some(16));
    assert_eq!(built.chunk_steps(64, Optional::default()).expect("supported"), Some(16));
    assert_eq!(built.chunk_steps(64, training).expect("supported"), Some(16));
    assert_eq!(built.backward_chunk_steps(64, training).expect("supported"), Some(16));
}
