//! Networks built for a batch: forward passes on the device against the reference.

#![expect(unsafe_code, reason = "states that overlap are given by address")]

use std::collections::HashMap;
use std::path::Path;

use kiln::cache::Pack;
use kiln::device::{Buffer, DeviceChoice};
use kiln::expr::Real;
use kiln::graph::{Direction, Quantization, RowLayout};
use kiln::layers::{ForwardMode, PersistentRnn, RnnForward, RnnPack};
use kiln::plan::{DeviceMemory, Manifest, Memory, Origin, Problem};
use kiln::rnn::{
    CellKind, Extent, Network, Optional, Rnn, RnnDataDescriptor, RnnDataSettings, RnnDescriptor,
    RnnSettings, Role,
};
use kiln::target::Target;
use kiln::{Config, DType, Error, ErrorKind, Kiln, reference};

use crate::allocations;
use crate::harness::{self, Values};

/// The caller's tensors of a network on a device.
struct Bound {
    network: Network,
    values: Values,
    buffers: HashMap<Role, Buffer>,
    pack: RnnPack,
}

/// Plausible values for a network's inputs, uploaded whole; outputs are poisoned.
fn bind(kiln: &Kiln, rnn: &Rnn, extent: Extent, with: Optional) -> Bound {
    let network = rnn.network(extent, with).expect("valid");
    let problem = Problem::new(network.clone());
    let values = problem.random_values(7).expect("there is memory");
    let (mut buffers, mut pack) = (HashMap::new(), RnnPack::new());
    for role in network.roles() {
        let (dtype, size) = (network.tensor(role).0, network.tensor(role).0.bytes());
        let mut bytes = vec![0xff; network.bytes(role) as usize];
        for place in network.places.iter().filter(|place| place.role == role) {
            let tensor = network.graph.tensor(place.uid).expect("a place is of the graph");
            let known = values.get(&place.uid).into_iter().flatten();
            for (value, at) in known.zip(tensor.offsets()) {
                dtype.write(*value, &mut bytes[(place.offset as usize + at) * size..]);
            }
        }
        let buffer = kiln.device().upload(&bytes).expect("there is memory");
        pack = pack.with(role, &buffer);
        buffers.insert(role, buffer);
    }
    Bound { network, values, buffers, pack }
}

impl Bound {
    /// Panics unless every output is within its bound.
    fn check(&self, what: &str) {
        let Network { graph, places, .. } = &self.network;
        let expected = reference::evaluate(graph, &self.values).expect("values fit the graph");
        for place in places.iter().filter(|place| place.role.is_output()) {
            let tensor = graph.tensor(place.uid).expect("a place is of the graph");
            let bytes = self.buffers[&place.role].to_vec().expect("it can be read");
            let size = tensor.dtype.bytes();
            let read = |at| tensor.dtype.read(&bytes[(place.offset as usize + at) * size..]);
            let actual: Vec<f64> = tensor.offsets().map(read).collect();
            if let Some(worst) = expected[&place.uid].worst(&actual) {
                assert!(worst.ratio <= 1.0, "{what}: {tensor}: {worst:?}\n{graph}");
            }
        }
    }

    fn forward(&mut self, kiln: &Kiln, built: &mut PersistentRnn, steps: i64) -> kiln::Result<()> {
        let bytes = built.prepare(steps, self.pack.optional())?.workspace_bytes();
        let workspace = kiln.device().upload(&vec![0xff; bytes as usize])?;
        self.pack = self.pack.clone().with_workspace(&workspace);
        built.forward(&kiln.stream(), steps, &self.pack)?;
        kiln.stream().synchronize()?;
        Ok(())
    }
}

#[test]
fn networks_run_on_the_device_as_the_reference_says() {
    let all = Optional {
        h_initial: true,
        lengths: true,
        reset: true,
        h_final: true,
        ..Optional::default()
    };
    let lstm_all = Optional { states_initial: true, states_final: true, history: true, ..all };
    let (plain, shifted) = (Optional::default(), Quantization::new(63.0, 128));
    let lstm = Rnn::lstm(12, 16).layers(2).bidirectional().peephole();
    let cases = [
        ("lstm", Rnn::lstm(12, 16), plain),
        ("lstm, all tensors", Rnn::lstm(12, 16).layers(2).bidirectional(), lstm_all),
        ("gru", Rnn::gru(8, 24).layers(2).dtype(DType::F16), all),
        ("gru, reset before", Rnn::new(CellKind::GruResetBefore, 8, 16).dtype(DType::Bf16), all),
        ("tanh, skip", Rnn::new(CellKind::Tanh, 16, 16).skip_input(), all),
        (
            "lstm, separate stacks, summed",
            Rnn::lstm(8, 8)
                .layers(2)
                .bidirectional()
                .stacking(kiln::rnn::Stacking::Separate)
                .join(kiln::rnn::Join::Sum),
            lstm_all,
        ),
        (
            "augru, batch-major, reverse",
            {
                let augru = Rnn::new(CellKind::Augru, 8, 8).layout(RowLayout::BatchMajor);
                augru.direction(Direction::Reverse).fill(-2.0)
            },
            all,
        ),
        ("lstm, peephole", Rnn::lstm(8, 16).peephole(), lstm_all),
        ("lstm, projection", Rnn::lstm(8, 16).projection(8), lstm_all),
        ("lstm, peephole, projection", Rnn::lstm(8, 16).peephole().projection(8), lstm_all),
        ("lstm, f64", Rnn::lstm(5, 7).dtype(DType::F64), lstm_all),
        ("lstm, u8", Rnn::lstm(12, 16).layers(2).quantised(DType::U8, shifted), plain),
        ("lstm, i8", lstm.quantised(DType::I8, Quantization::new(60.0, 0)), lstm_all),
        ("gru, u8", Rnn::gru(20, 40).quantised(DType::U8, shifted).fill(-1.0), all),
    ];
    let kiln = harness::kiln();
    for (what, rnn, with) in cases {
        let mut built =
            kiln.build_rnn_dynamic(&rnn, 3).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        for steps in [4, 1, 0, 4] {
            let extent = Extent { batch: 3, rows: 3 * steps };
            let mut bound = bind(kiln, &rnn, extent, with);
            let ran = bound.forward(kiln, &mut built, steps);
            ran.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            bound.check(&format!("{what}, {steps} steps"));
        }
    }
}

/// Weights are packed, so that matrices and biases begin at any element: what is not aligned is
/// read element by element.
#[test]
fn weights_of_any_size_are_read_where_they_lie() {
    let kinds = [CellKind::Relu, CellKind::Tanh, CellKind::Lstm, CellKind::Gru];
    let mut all = Vec::new();
    for (kind, dtype) in kinds
        .iter()
        .flat_map(|kind| [DType::F16, DType::F32, DType::F64].map(|dtype| (*kind, dtype)))
    {
        for (hidden, input) in (1..10).flat_map(|hidden| (1..10).map(move |input| (hidden, input)))
        {
            all.push(Rnn::new(kind, input, hidden).dtype(dtype));
        }
    }
    assert_eq!(all.len(), 4 * 3 * 81);
    let with = Optional { h_initial: true, h_final: true, ..Optional::default() };
    for (at, rnn) in harness::sampled(all, 73).into_iter().enumerate() {
        // A second layer and direction, whose weights begin behind odd numbers of elements.
        let rnn = if at % 2 == 1 { rnn.layers(2).bidirectional() } else { rnn };
        for kiln in harness::dialects_by_turns(at) {
            let what = format!("{rnn:?}");
            let mut built = kiln.build_rnn_dynamic(&rnn, 3).expect("supported");
            let mut bound = bind(kiln, &rnn, Extent { batch: 3, rows: 6 }, with);
            bound.forward(kiln, &mut built, 2).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            bound.check(&what);
        }
    }
}

/// Final states may be where initial ones are: the same bits, also where a block has ended before
/// another begins, as with one step.
#[test]
fn states_are_updated_in_place() {
    let with = Optional { h_initial: true, h_final: true, lengths: true, ..Optional::default() };
    let lstm = Optional { states_initial: true, states_final: true, ..with };
    let pairs = [(Role::HInitial, Role::HFinal), (Role::StatesInitial, Role::StatesFinal)];
    let cases = [
        (Rnn::lstm(8, 40).layers(2).bidirectional().dtype(DType::F16), lstm),
        (Rnn::lstm(8, 16).projection(8), lstm),
        (Rnn::gru(8, 300), with),
        (Rnn::new(CellKind::Tanh, 5, 7).dtype(DType::F64), with),
    ];
    for (at, (rnn, with)) in cases.into_iter().enumerate() {
        for kiln in harness::dialects_by_turns(at) {
            let mut built = kiln.build_rnn_dynamic(&rnn, 3).expect("supported");
            for steps in [1, 3] {
                let what = format!("{rnn:?}, {steps} steps");
                let rows = 3 * steps;
                let space = built.temp_space(rows, with).expect("supported").workspace_bytes;
                let workspace = kiln.device().upload(&vec![0xff; space as usize]).expect("memory");
                let bound = bind(kiln, &rnn, Extent { batch: 3, rows }, with);
                let run = |built: &mut PersistentRnn, pack: &RnnPack| {
                    let ran = built.forward(&kiln.stream(), steps, pack);
                    ran.and_then(|()| kiln.stream().synchronize()).expect(&what);
                };
                run(&mut built, &bound.pack.clone().with_workspace(&workspace));
                bound.check(&what);
                let bytes = |role: Role| bound.buffers[&role].to_vec().expect("it can be read");
                let apart = pairs.map(|(_, last)| with_role(&bound, last).then(|| bytes(last)));
                let output = bytes(Role::Output);
                let both = pairs.into_iter().filter(|(first, _)| with_role(&bound, *first));
                let pack = both.fold(bound.pack.clone(), |pack, (first, last)| {
                    pack.with(last, &bound.buffers[&first])
                });
                run(&mut built, &pack.clone().with_workspace(&workspace));
                assert_eq!(bytes(Role::Output), output, "{what}");
                let first = |(first, _)| with_role(&bound, first).then(|| bytes(first));
                assert_eq!(pairs.map(first), apart, "{what}");
                // What is overwritten is kept in the workspace.
                let error = built.forward(&kiln.stream(), steps, &pack).expect_err("none is given");
                let text = "rnn forward: the workspace has 0 bytes, the network needs ";
                assert!(error.to_string().starts_with(text), "{error}");
            }
        }
    }
}

fn with_role(bound: &Bound, role: Role) -> bool {
    bound.buffers.contains_key(&role)
}

#[test]
fn states_that_overlap_in_part_are_refused() {
    let kiln = harness::kiln();
    let with = Optional { h_initial: true, h_final: true, ..Optional::default() };
    let rnn = Rnn::gru(8, 16).layers(2);
    let mut built = kiln.build_rnn_dynamic(&rnn, 3).expect("supported");
    let mut bound = bind(kiln, &rnn, Extent { batch: 3, rows: 6 }, with);
    let of_layer = 3 * 16 * 4;
    let both = kiln.device().upload(&vec![0; 3 * of_layer as usize]).expect("there is memory");
    bound.pack = bound.pack.with(Role::HInitial, &both);
    let memory = DeviceMemory { address: both.address() + of_layer, bytes: 2 * of_layer };
    // SAFETY: the buffer outlives the call.
    unsafe { bound.pack.set_address(Role::HFinal, memory) };
    let error = bound.forward(kiln, &mut built, 2).expect_err("a layer overwrites another's");
    assert_eq!(error.kind(), ErrorKind::BadParam);
    let text = error.to_string();
    assert!(text.contains("`h_n_l0`") && text.contains("`h_0_l1`"), "{text}");
}

/// A descriptor's arguments on a device, and its network.
struct Described {
    descriptor: RnnDescriptor,
    x: RnnDataDescriptor,
    y: RnnDataDescriptor,
    bound: Bound,
}

fn described(kiln: &Kiln, settings: RnnSettings, with: Optional) -> Described {
    let descriptor = RnnDescriptor::set(settings).expect("valid");
    let rnn = descriptor.rnn();
    let data = |vector_size: i64| {
        let settings = RnnDataSettings {
            data_type: settings.data_type,
            layout: RowLayout::SequenceMajor,
            max_seq_length: 4,
            batch_size: 3,
            vector_size: vector_size as i32,
            seq_lengths: vec![3, 0, 4],
            padding_fill: Some(Real::new(0.5)),
        };
        RnnDataDescriptor::set(settings).expect("valid")
    };
    let (x, y) = (data(rnn.input_size), data(rnn.output_size()));
    let rnn = descriptor.network(&x, &y).expect("they go together");
    let bound = bind(kiln, &rnn, x.extent(), with);
    Described { descriptor, x, y, bound }
}

impl Described {
    fn call(&self, mode: ForwardMode) -> RnnForward<'_> {
        let buffer = |role| self.bound.buffers.get(&role).map(Memory::from);
        let rnn = &self.bound.network.rnn;
        let count = rnn.layers * rnn.directions();
        RnnForward {
            descriptor: &self.descriptor,
            mode,
            lengths: (&self.bound.buffers[&Role::Lengths]).into(),
            x_desc: &self.x,
            x: (&self.bound.buffers[&Role::Input]).into(),
            y_desc: &self.y,
            y: (&self.bound.buffers[&Role::Output]).into(),
            h_dims: [count, 3, rnn.state_size()],
            hx: buffer(Role::HInitial),
            hy: buffer(Role::HFinal),
            c_dims: [count, 3, rnn.hidden_size],
            cx: buffer(Role::StatesInitial),
            cy: buffer(Role::StatesFinal),
            weight_space: (&self.bound.buffers[&Role::Weights]).into(),
            workspace: None,
            reserve: buffer(Role::Reserve),
        }
    }
}

#[test]
fn the_documented_call_checks_its_descriptors_and_runs() {
    let kiln = harness::kiln();
    let settings = RnnSettings {
        num_layers: 2,
        dir_mode: Direction::Both,
        ..RnnSettings::new(CellKind::Lstm, 6, 8)
    };
    let with = Optional {
        h_initial: true,
        states_initial: true,
        lengths: true,
        h_final: true,
        states_final: true,
        reserve: true,
        ..Optional::default()
    };
    let described = described(kiln, settings, with);
    let rnn = &described.bound.network.rnn;
    let mut built = kiln.build_rnn_dynamic(rnn, 3).expect("supported");
    let mode = ForwardMode::Training;
    let sizes = built.temp_space_sizes(mode, &described.x).expect("supported");
    // Of 12 vectors in both layers and directions: h, c and four gates of 8 units, the outputs of
    // the first layer, and for the weights the gradients of all gates.
    assert_eq!(sizes.reserve_bytes, 12 * (4 * 6 * 8 + 16 + 4 * 4 * 8) * 4);
    let inference = built.temp_space_sizes(ForwardMode::Inference, &described.x).expect("so too");
    assert_eq!(inference.reserve_bytes, 0);
    let workspace = kiln.device().alloc(sizes.workspace_bytes).expect("there is memory");
    let call = RnnForward { workspace: Some((&workspace).into()), ..described.call(mode) };
    built.rnn_forward(&kiln.stream(), &call).expect("it runs");
    kiln.stream().synchronize().expect("it ran");
    described.bound.check("the documented call");
    let needed = built.prepare(4, with).expect("it is planned").workspace_bytes();

    let mut refused = |call: RnnForward<'_>| {
        let error: Error = built.rnn_forward(&kiln.stream(), &call).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadParam);
        error.to_string()
    };
    let text = "rnn forward: h has dimensions [4, 3, 9], expected [4, 3, 8]";
    assert_eq!(refused(RnnForward { h_dims: [4, 3, 9], ..call }), text);
    let text = "rnn forward: c has dimensions [2, 3, 8], expected [4, 3, 8]";
    assert_eq!(refused(RnnForward { c_dims: [2, 3, 8], ..call }), text);
    let small = kiln.device().alloc(16).expect("there is memory");
    let of_weights = described.bound.network.space.bytes();
    let text = format!("rnn forward: `weights` has 16 bytes, the network needs {of_weights}");
    assert_eq!(refused(RnnForward { weight_space: (&small).into(), ..call }), text);
    let text = "rnn forward: `lengths` has 8 bytes, the network needs 12";
    let lengths = kiln.device().alloc(8).expect("there is memory");
    assert_eq!(refused(RnnForward { lengths: (&lengths).into(), ..call }), text);
    let text = "rnn forward: `reserve` has 16 bytes, the network needs 16128";
    assert_eq!(refused(RnnForward { reserve: Some((&small).into()), ..call }), text);
    let text = "rnn forward: training needs a reserve space, there is none";
    assert_eq!(refused(RnnForward { reserve: None, ..call }), text);
    let text =
        format!("variant pack: the plan needs a workspace of {needed} bytes, the pack has none");
    assert_eq!(refused(RnnForward { workspace: None, ..call }), text);
    let text = "rnn forward: vectors of y have 6 elements, expected 16";
    assert_eq!(refused(RnnForward { y_desc: &described.x, ..call }), text);
}

/// What fits its own descriptors and is not what was built: another network, another batch, a
/// state that the cell has not.
#[test]
fn calls_of_another_network_are_refused() {
    let kiln = harness::kiln();
    let settings = RnnSettings::new(CellKind::Gru, 6, 8);
    let with = Optional { lengths: true, h_initial: true, ..Optional::default() };
    let described = described(kiln, settings, with);
    let rnn = &described.bound.network.rnn;
    let mode = ForwardMode::Inference;
    let stream = kiln.stream();
    let mut built = kiln.build_rnn_dynamic(rnn, 3).expect("supported");
    let needed = built.temp_space_sizes(mode, &described.x).expect("supported").workspace_bytes;
    assert!(needed > 16, "{needed}");
    let workspace = kiln.device().alloc(needed).expect("there is memory");
    let small = kiln.device().alloc(16).expect("there is memory");
    let call = RnnForward { workspace: Some((&workspace).into()), ..described.call(mode) };
    let refused = |built: &mut PersistentRnn, call: RnnForward<'_>| {
        let error = built.rnn_forward(&stream, &call).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadParam, "{error}");
        error.to_string()
    };
    let text = refused(&mut built, RnnForward { workspace: Some((&small).into()), ..call });
    let rule = "variant pack: the workspace has 16 bytes, the plan needs ";
    assert!(text.starts_with(rule), "{text}");

    let other = RnnSettings { bias_mode: kiln::rnn::BiasMode::None, ..settings };
    let other = RnnDescriptor::set(other).expect("valid");
    let text = "rnn forward: the descriptors are not those that the network was built from";
    assert_eq!(refused(&mut built, RnnForward { descriptor: &other, ..call }), text);

    let mut of_two = kiln.build_rnn_dynamic(rnn, 2).expect("supported");
    let text = "rnn forward: 3 sequences, the network was built for 2";
    assert_eq!(refused(&mut of_two, call), text);
    let error = of_two.temp_space_sizes(mode, &described.x).expect_err("another batch");
    let text = "rnn temp space: 3 sequences of layout sequence_major, the network was built for 2 \
                of sequence_major";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, text));
    let batch_major = rnn.clone().layout(RowLayout::BatchMajor);
    let batch_major = kiln.build_rnn_dynamic(&batch_major, 3).expect("supported");
    let error = batch_major.temp_space_sizes(mode, &described.x).expect_err("another layout");
    let text = "rnn temp space: 3 sequences of layout sequence_major, the network was built for 3 \
                of batch_major";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, text));
    // The cell state of another cell than LSTM is not read, nor written.
    let state = Some((&small).into());
    let states = RnnForward { cx: state, cy: state, c_dims: [7, 7, 7], ..call };
    built.rnn_forward(&stream, &states).expect("what was built runs");
    stream.synchronize().expect("it ran");
    described.bound.check("a call with a cell state that the cell has not");
}

#[test]
fn packs_that_do_not_fit_are_refused() {
    let kiln = harness::kiln();
    let rnn = Rnn::gru(4, 8);
    let mut built = kiln.build_rnn_dynamic(&rnn, 2).expect("supported");
    let bound = bind(kiln, &rnn, Extent { batch: 2, rows: 6 }, Optional::default());
    let stream = kiln.stream();
    let text = |result: kiln::Result<()>| result.expect_err("refused").to_string();
    let missing = RnnPack::new().with(Role::Input, &bound.buffers[&Role::Input]);
    let error = built.forward(&stream, 3, &missing);
    assert_eq!(text(error), "rnn forward: `weights` is missing");
    let error = built.forward(&stream, 4, &bound.pack);
    assert_eq!(text(error), "rnn forward: `input` has 96 bytes, the network needs 128");
    let more = bound.pack.clone().with(Role::UnitInputs, &bound.buffers[&Role::Input]);
    let error = built.forward(&stream, 3, &more);
    assert_eq!(text(error), "rnn forward: the network has no `unit_inputs`");
    let states = bound.pack.clone().with(Role::StatesFinal, &bound.buffers[&Role::Input]);
    let error = built.forward(&stream, 3, &states);
    assert_eq!(text(error), "recurrence[gru]: the cell has no state besides its output");
    let error = built.forward_packed(&stream, 6, &bound.pack);
    let packed = "rnn forward: packed vectors of a network of layout sequence_major";
    assert_eq!(text(error), packed);
    let error = built.forward(&stream, i64::MAX, &bound.pack);
    assert_eq!(text(error), format!("rnn forward: {} steps of 2 sequences", i64::MAX));
    let error = built.forward(&stream, -1, &bound.pack);
    assert_eq!(text(error), "rnn: -2 vectors of a batch of 2");
}

#[test]
fn a_forward_pass_that_was_seen_before_allocates_nothing() {
    let kiln = allocations::null();
    let rnn = Rnn::lstm(8, 16).layers(2).bidirectional();
    let with = Optional { h_initial: true, states_initial: true, ..Optional::default() };
    let mut built = kiln.build_rnn_dynamic(&rnn, 2).expect("supported");
    let mut bound = bind(&kiln, &rnn, Extent { batch: 2, rows: 6 }, with);
    bound.forward(&kiln, &mut built, 3).expect("it is planned");
    let workspace = built.prepare(3, with).expect("it is planned").workspace_bytes();
    let workspace = kiln.device().alloc(workspace).expect("there is memory");
    let pack = bound.pack.clone().with_workspace(&workspace);
    let stream = kiln.stream();
    let (result, count) = allocations::allocations_of(|| built.forward(&stream, 3, &pack));
    result.expect("it is a hit");
    assert_eq!(count, 0);
}

#[test]
fn another_number_of_steps_compiles_nothing() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache_dir = Some(folder.path().to_owned());
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    let kiln = Kiln::open(Config { device, cache_dir, ..Config::default() }).expect("it opens");
    let rnn = Rnn::lstm(16, 32).layers(2).dtype(DType::F16);
    let mut built = kiln.build_rnn_dynamic(&rnn, 4).expect("supported");
    let origins = |built: &mut PersistentRnn, steps| -> Vec<Origin> {
        let plan = built.prepare(steps, Optional::default()).expect("it is planned");
        plan.kernels().iter().map(|kernel| kernel.report().origin).collect()
    };
    for steps in [64, 96, 65] {
        let found = origins(&mut built, steps);
        assert!(!found.contains(&Origin::Compiled), "{steps}: {found:?}");
    }
}

/// What `cache/rnn.toml` lists is what a program with a built network asks for.
#[test]
fn a_pack_of_the_manifest_serves_built_networks() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cache/rnn.toml");
    let mut manifest = Manifest::read(Path::new(path)).expect("it is well-formed");
    for problem in &mut manifest.problems {
        for (name, values) in &mut problem.vary {
            match name.as_str() {
                "hidden" => *values = vec![16.into()],
                "batch" => *values = vec![2.into()],
                _ => values.truncate(1),
            }
        }
    }
    let open = |packs, no_jit| {
        let device = Some(DeviceChoice::Sim("sim".to_owned()));
        let packs = Some(packs);
        let no_disk_cache = no_jit == Some(true);
        Kiln::open(Config { device, packs, no_jit, no_disk_cache, ..harness::config() })
            .expect("the simulator opens")
    };
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("rnn.kilnpack");
    let builder = open(Vec::new(), None);
    builder.build_pack(&manifest, &Target::sim(), (0, 1), &file, |_| {}).expect("it is built");
    let pack = Pack::open(&file).expect("it was built");
    let coverage = builder.covers(std::slice::from_ref(&pack), &manifest, &Target::sim());
    assert_eq!(coverage.expect("it can be told").missing, []);

    let strict = open(vec![pack], Some(true));
    let rnn = Rnn::lstm(16, 16).dtype(DType::Bf16);
    let mut built = strict.build_rnn_dynamic(&rnn, 2).expect("supported");
    let states = Optional {
        h_initial: true,
        states_initial: true,
        h_final: true,
        states_final: true,
        ..Optional::default()
    };
    let plan = built.prepare(1, states).expect("the pack has its kernels");
    assert!(plan.kernels().iter().all(|kernel| kernel.report().origin == Origin::Pack));
    let resets = Optional { reset: true, ..Optional::default() };
    let error = built.prepare(1, resets).expect_err("not in the manifest");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().starts_with("no-JIT mode: kernel "), "{error}");
}

/// Errors of single steps do not add up over 2048 of them: the bound is the reference's, which
/// follows what steps of the same sequence lose.
#[test]
fn long_sequences_do_not_drift() {
    let kiln = harness::kiln();
    let (steps, batch) = (2048, 2);
    for dtype in [DType::F32, DType::F16] {
        for rnn in [Rnn::lstm(4, 8).dtype(dtype), Rnn::gru(4, 8).dtype(dtype)] {
            let with = Optional { h_final: true, ..Optional::default() };
            let mut built = kiln.build_rnn_dynamic(&rnn, batch).expect("supported");
            let mut bound = bind(kiln, &rnn, Extent { batch, rows: steps * batch }, with);
            bound.forward(kiln, &mut built, steps).expect("it runs");
            bound.check(&format!("{} steps of {dtype}", steps));
        }
    }
}

#[test]
fn packed_networks_are_asked_for_vectors() {
    let kiln = harness::kiln();
    let rnn = Rnn::lstm(6, 8).layers(2).bidirectional().layout(RowLayout::Packed);
    let with = Optional { lengths: true, h_final: true, history: true, ..Optional::default() };
    let mut built = kiln.build_rnn_dynamic(&rnn, 3).expect("supported");
    for rows in [7, 2, 7] {
        let bound = bind(kiln, &rnn, Extent { batch: 3, rows }, with);
        let bytes = built.prepare_packed(rows, with).expect("supported").workspace_bytes();
        let workspace = kiln.device().alloc(bytes).expect("there is memory");
        let pack = bound.pack.clone().with_workspace(&workspace);
        built.forward_packed(&kiln.stream(), rows, &pack).expect("it runs");
        kiln.stream().synchronize().expect("it ran");
        bound.check(&format!("{rows} packed vectors"));
    }
    let stream = kiln.stream();
    let error = built.forward(&stream, 2, &RnnPack::new()).expect_err("it is packed");
    let text = "rnn forward: a packed network is asked for a number of vectors, not of steps";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, text));
    let without = Optional { lengths: false, ..with };
    let error = built.prepare_packed(7, without).expect_err("lengths are missing");
    assert_eq!(error.to_string(), "recurrence[lstm, both, packed]: packed rows require lengths");
}
