//! What Kiln itself costs on the host: executing, finding and building plans, and the simulator.
//!
//! `cargo bench --bench host`. Kernels are compiled once, by a child process, into a temporary
//! cache folder: a process that has NVRTC loaded can not show what a disk hit costs without it.
//! Nothing before the `jit` group loads it, and the `disk_hit` group checks that.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use kiln::attention::{
    AttentionDescriptor, AttentionSettings, AttentionSizes, SequenceAxis, SequenceDataDescriptor,
    SequenceDataSettings, SequenceExtents,
};
use kiln::device::{Buffer, DeviceChoice};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, NormForward, NormMode, Op, Phase, Recurrence, Reduction, ReductionOp};
use kiln::layers::{AttentionForward, RnnPack};
use kiln::loops::{LoopOutput, Network, TripLimit};
use kiln::plan::Origin;
use kiln::rnn::{CellKind, CellOptions, Extent, MathType, Optional, Rnn};
use kiln::target::Target;
use kiln::{Config, DType, ExecutionPlan, Kiln, OperationGraph, VariantPack, engine};

/// The argument that makes this binary fill a cache folder and end.
const FILL_CACHE: &str = "fill-cache";

/// `y = clip(gelu(x + bias) + residual)` in bf16: four tensors, 8 MiB of traffic per 1 M elements.
fn demo_chain(rows: i64, columns: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, columns], DType::Bf16);
    let bias = graph.input("bias", &[1, columns], DType::Bf16);
    let residual = graph.input("residual", &[rows, columns], DType::Bf16);
    let mut step = |op, inputs: &[i64]| graph.pointwise(op, inputs).expect("the chain is valid");
    let biased = step(Pointwise::new(Mode::Add), &[x, bias]);
    let activated = step(Pointwise::new(Mode::GeluFwd), &[biased]);
    let sum = step(Pointwise::new(Mode::Add), &[activated, residual]);
    let y = step(Pointwise::new(Mode::ReluFwd).relu(-1.0, 6.0, 0.0), &[sum]);
    graph.output(y, "y", DType::Bf16);
    graph.build().expect("the chain is valid")
}

/// The sum of all but one of `tensors` tensors, which is the output.
fn sum_of(tensors: usize) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut sum = graph.input("x0", &[256, 256], DType::Bf16);
    for index in 1..tensors - 1 {
        let x = graph.input(&format!("x{index}"), &[256, 256], DType::Bf16);
        let added = graph.pointwise(Pointwise::new(Mode::Add), &[sum, x]);
        sum = added.expect("the sum is valid");
    }
    graph.output(sum, "y", DType::Bf16);
    graph.build().expect("the sum is valid")
}

fn graphs() -> [(&'static str, OperationGraph); 2] {
    [("4_tensors", demo_chain(1024, 1024)), ("20_tensors", sum_of(20))]
}

fn open(device: DeviceChoice, cache: &Path) -> Kiln {
    let config =
        Config { device: Some(device), cache_dir: Some(cache.to_owned()), ..Config::default() };
    Kiln::open(config).expect("the device opens")
}

fn null() -> DeviceChoice {
    DeviceChoice::Null("sim".to_owned())
}

fn sim() -> DeviceChoice {
    DeviceChoice::Sim("sim".to_owned())
}

/// A pack with memory for every tensor, filled with values around 1, and that memory.
fn bind(kiln: &Kiln, plan: &ExecutionPlan) -> (VariantPack, Vec<Buffer>) {
    let (mut pack, mut buffers) = (VariantPack::new(), Vec::new());
    for uid in plan.tensors() {
        let tensor = plan.graph().tensor(uid).expect("a tensor of the plan");
        let size = tensor.dtype.bytes();
        let mut bytes = vec![0; tensor.span_bytes().expect("tensors are small") as usize];
        for (index, element) in bytes.chunks_exact_mut(size).enumerate() {
            tensor.dtype.write((index * 7919 % 251) as f64 / 50.0 - 2.5, element);
        }
        let buffer = kiln.device().upload(&bytes).expect("there is memory");
        pack = pack.with(uid, &buffer);
        buffers.push(buffer);
    }
    (pack, buffers)
}

fn is_nvrtc_loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("libnvrtc.so"))
}

/// Launching a ready plan on a device that does nothing. Target: 150 ns.
fn execute(c: &mut Criterion, cache: &Path) {
    let mut group = c.benchmark_group("execute");
    let kiln = open(null(), cache);
    let stream = kiln.stream();
    for (name, graph) in graphs() {
        let plan = kiln.plan(&graph).expect("the graph is supported");
        let (pack, _buffers) = bind(&kiln, &plan);
        group.bench_function(name, |b| b.iter(|| plan.execute(&stream, black_box(&pack))));
    }
}

/// The network whose calls are timed, and its optional tensors.
fn network() -> (Rnn, Optional) {
    let rnn = Rnn::lstm(64, 64).dtype(DType::F16);
    let states = Optional {
        h_initial: true,
        states_initial: true,
        h_final: true,
        states_final: true,
        ..Optional::default()
    };
    (rnn, states)
}

/// A forward pass that was seen before, two kernels, on a device that does nothing. Target: 1 us.
/// Sizes for another number of steps: 20 us. Building the network on a fresh `Kiln` with a filled
/// cache folder: 2 ms.
fn rnn_forward(c: &mut Criterion, cache: &Path) {
    let mut group = c.benchmark_group("rnn");
    let kiln = open(null(), cache);
    let (rnn, states) = network();
    let mut built = kiln.build_rnn_dynamic(&rnn, 8).expect("the network is supported");
    let workspace = built.prepare(16, states).expect("it is supported").workspace_bytes();
    let extent = Extent { batch: 8, rows: 8 * 16 };
    let network = rnn.network(extent, states).expect("the network is valid");
    let (mut pack, mut buffers) = (RnnPack::new(), Vec::new());
    for role in network.roles() {
        let buffer = kiln.device().alloc(network.bytes(role)).expect("there is memory");
        pack = pack.with(role, &buffer);
        buffers.push(buffer);
    }
    let workspace = kiln.device().alloc(workspace).expect("there is memory");
    let (pack, stream) = (pack.with_workspace(&workspace), kiln.stream());
    group.bench_function("forward", |b| b.iter(|| built.forward(&stream, 16, black_box(&pack))));
    let mut steps = 1000;
    group.bench_function("forward_of_new_steps", |b| {
        b.iter(|| {
            steps += 1;
            built.prepare(steps, states).map(drop)
        })
    });
    group.bench_function("sizes_of_new_steps", |b| {
        b.iter(|| {
            steps += 1;
            built.temp_space(8 * steps, states)
        })
    });
    group.bench_function("sizes", |b| {
        b.iter(|| kiln.rnn_temp_space(black_box(&rnn), extent, states))
    });
    group.bench_function("build_from_disk", |b| {
        let build = |kiln: &mut Kiln| {
            let mut built = kiln.build_rnn_dynamic(&rnn, 8)?;
            built.prepare(16, states).map(drop)
        };
        b.iter_batched_ref(|| open(null(), cache), build, BatchSize::PerIteration)
    });
}

/// The attention layer whose call is timed, that of `make bench-c`, and its sequences.
fn attention_layer() -> (AttentionDescriptor, SequenceDataDescriptor) {
    let sizes = AttentionSizes { heads: 4, size: 256, batch: 2, steps: 64 };
    let settings = AttentionSettings {
        data_type: DType::F16,
        math_type: MathType::TensorOp,
        ..AttentionSettings::new(sizes)
    };
    let extents = SequenceExtents { batch: 2, beam: 1, time: 64, vector: 256 };
    use SequenceAxis::{Batch, Beam, Time, Vector};
    let sequences = SequenceDataSettings {
        data_type: DType::F16,
        axes: vec![Batch, Time, Beam, Vector],
        ..SequenceDataSettings::new(extents)
    };
    let layer = AttentionDescriptor::set(settings).expect("the layer is valid");
    (layer, SequenceDataDescriptor::set(sequences).expect("the sequences are valid"))
}

/// A forward pass of that layer.
fn attention_call(kiln: &Kiln) -> impl FnMut() -> kiln::Result<()> + use<> {
    let (layer, sequences) = attention_layer();
    let mut built = kiln.multi_head_attention(&layer).expect("the layer is supported");
    let sizes = layer.buffers(false).expect("they are small");
    let alloc = |bytes: u64| kiln.device().alloc(bytes).expect("there is memory");
    let [q, k, v, out] = [(); 4].map(|()| alloc(2 * 2 * 64 * 256));
    let (weights, workspace) = (alloc(sizes.weight_bytes), alloc(sizes.workspace_bytes));
    let (lengths, stream, low, high) = (alloc(8), kiln.stream(), [0; 64], [64; 64]);
    move || {
        built.forward(
            &stream,
            &AttentionForward {
                curr_idx: -1,
                lo_win_idx: black_box(&low),
                hi_win_idx: &high,
                seq_lengths_qo: (&lengths).into(),
                seq_lengths_kv: (&lengths).into(),
                q_desc: &sequences,
                queries: (&q).into(),
                residuals: None,
                k_desc: &sequences,
                keys: (&k).into(),
                v_desc: &sequences,
                values: (&v).into(),
                o_desc: &sequences,
                out: (&out).into(),
                weights: (&weights).into(),
                workspace: Some((&workspace).into()),
                reserve: None,
            },
        )
    }
}

/// A forward pass of an attention layer that was seen before, on a device that does nothing.
fn attention_forward(c: &mut Criterion, cache: &Path) {
    let mut call = attention_call(&open(null(), cache));
    c.bench_function("attention_layer/forward", |b| b.iter(&mut call));
}

/// A loop that the host launches: a product of a state and a matrix in each trip.
fn product_loop() -> Network {
    let mut network = Network::builder();
    let graph = network.graph();
    let n = graph.scalar("n", 1, DType::I32);
    let [start, w] = ["start", "w"].map(|name| graph.input(name, &[2048, 2048], DType::Bf16));
    let of = network.add_loop("trips");
    network.trip_limit(of, TripLimit::Count, n);
    let state = network.recurrence(of, start).expect("the loop is valid");
    let graph = network.graph();
    let next = graph.matmul(Matmul::default(), state, w).expect("the product is valid");
    graph.name(next, "next", DType::Bf16);
    network.set_next(state, next).expect("the types agree");
    let last = network.loop_output(of, LoopOutput::LastValue, state).expect("the loop is valid");
    network.graph().output(last, "last", DType::Bf16);
    network.build().expect("the loop is valid")
}

/// A thousand trips of a loop, each a launch, on a device that does nothing. Target: 1 ms, which is
/// a twentieth of what a trip of 20 us takes.
fn launched_loop(c: &mut Criterion, cache: &Path) {
    let kiln = open(null(), cache);
    let network = product_loop();
    let plan = kiln.build_launched_loops(&network).expect("the loop is supported");
    let (mut pack, mut buffers) = (VariantPack::new(), Vec::new());
    for tensor in network.inputs().chain(network.outputs()) {
        if tensor.by_value {
            pack.set_value(tensor.uid, 1000.0);
            continue;
        }
        let bytes = tensor.span_bytes().expect("tensors are small");
        let buffer = kiln.device().alloc(bytes).expect("there is memory");
        pack = pack.with(tensor.uid, &buffer);
        buffers.push(buffer);
    }
    let workspace = kiln.device().alloc(plan.workspace_bytes()).expect("there is memory");
    let (pack, stream) = (pack.with_workspace(&workspace), kiln.stream());
    c.bench_function("loops/1000_trips", |b| b.iter(|| plan.execute(&stream, black_box(&pack))));
}

/// The three passes of training for a number of steps that was not seen before, on a device that
/// does nothing, and the sizes of their memory.
fn rnn_training(c: &mut Criterion, cache: &Path) {
    let mut group = c.benchmark_group("rnn_training");
    let kiln = open(null(), cache);
    let (rnn, states) = network();
    let with = Optional { reserve: true, ..states };
    let (batch, most) = (8, 1 << 11);
    let mut built = kiln.rnn(&rnn, batch).expect("the network is supported");
    let extent = Extent { batch, rows: batch * most };
    let training = rnn.training(extent, with).expect("the network is valid");
    let (mut pack, mut buffers) = (RnnPack::new(), Vec::new());
    let networks = [&training.forward, &training.data].into_iter().chain(&training.weights);
    for (network, role) in networks.flat_map(|of| of.roles().map(move |role| (of, role))) {
        let buffer = kiln.device().alloc(network.bytes(role)).expect("there is memory");
        pack = pack.with(role, &buffer);
        buffers.push(buffer);
    }
    let workspace = built.temp_space(batch * most, with).expect("it is supported").workspace_bytes;
    let workspace = kiln.device().alloc(2 * workspace).expect("there is memory");
    let (pack, stream) = (pack.with_workspace(&workspace), kiln.stream());
    // From one power of two to the next, kernels are the same.
    let mut numbers = (most / 2..most).cycle();
    group.bench_function("passes_of_new_steps", |b| {
        b.iter(|| {
            let steps = numbers.next().expect("it goes on");
            built.forward(&stream, steps, &pack)?;
            built.backward_data(&stream, steps, &pack)?;
            built.backward_weights(&stream, steps, &pack)
        })
    });
    group.bench_function("sizes_of_new_steps", |b| {
        b.iter(|| built.temp_space(batch * numbers.next().expect("it goes on"), with))
    });
    group
        .bench_function("sizes", |b| b.iter(|| kiln.rnn_temp_space(black_box(&rnn), extent, with)));
}

/// A plan this `Kiln` has built before. Target: 2 us.
fn memory_hit(c: &mut Criterion, cache: &Path) {
    let mut group = c.benchmark_group("memory_hit");
    let kiln = open(null(), cache);
    for (name, graph) in graphs() {
        kiln.plan(&graph).expect("the graph is supported");
        group.bench_function(name, |b| b.iter(|| kiln.plan(black_box(&graph))));
    }
}

/// From a fresh `Kiln` and a filled cache folder to a kernel on the device. Target: 1 ms.
fn disk_hit(c: &mut Criterion, cache: &Path) {
    let mut group = c.benchmark_group("disk_hit");
    let graph = demo_chain(1024, 1024);
    for (name, device) in [("null", null()), ("sim", sim())] {
        let plan = open(device.clone(), cache).plan(&graph).expect("the cache is filled");
        assert_eq!(plan.kernels()[0].report().origin, Origin::Disk);
        group.bench_function(name, |b| {
            let fresh = || open(device.clone(), cache);
            b.iter_batched_ref(fresh, |kiln| kiln.plan(&graph), BatchSize::PerIteration)
        });
        group.bench_function(format!("{name}_with_open"), |b| {
            b.iter_with_large_drop(|| {
                let kiln = open(device.clone(), cache);
                (kiln.plan(&graph), kiln)
            })
        });
    }
    assert!(!is_nvrtc_loaded(), "a disk hit loaded NVRTC");
}

/// From a graph to CUDA C++ text. Target: 200 us.
fn render(c: &mut Criterion, cache: &Path) {
    let kiln = open(null(), cache);
    let graph = demo_chain(1024, 1024);
    let config = engine::choose(graph.canonical(), kiln.device().target(), &Default::default())
        .expect("supported");
    c.bench_function("render/demo_chain", |b| b.iter(|| kiln.sources(black_box(&graph), &config)));
}

/// Five layers of ten operations: norm, two products with biases and GELU, residual, softmax.
fn layers() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let (rows, columns) = (512, 1024);
    let mut x = graph.input("x", &[rows, columns], DType::Bf16);
    let epsilon = graph.scalar("epsilon", 2, DType::F32);
    for layer in 0..5 {
        let mut input =
            |name: &str, dims: &[i64]| graph.input(&format!("{name}{layer}"), dims, DType::Bf16);
        let scale = input("scale", &[1, columns]);
        let (up, up_bias) = (input("up", &[columns, columns]), input("up_bias", &[1, columns]));
        let (down, down_bias) =
            (input("down", &[columns, columns]), input("down_bias", &[1, columns]));
        let norm = NormForward { bias: false, ..NormForward::new(NormMode::Rms, Phase::Inference) };
        let mut step = |op: Op, inputs: &[i64]| {
            let result = graph.operation(op, inputs).expect("the layer is valid")[0];
            graph.name(result, "", DType::Bf16);
            result
        };
        let pointwise = |mode: Mode| Op::Pointwise(Pointwise::new(mode));
        let normed = step(Op::NormForward(norm), &[x, scale, epsilon]);
        let wide = step(Op::Matmul(Matmul::default()), &[normed, up]);
        let biased = step(pointwise(Mode::Add), &[wide, up_bias]);
        let hidden = step(pointwise(Mode::GeluFwd), &[biased]);
        let narrow = step(Op::Matmul(Matmul::default()), &[hidden, down]);
        let biased = step(pointwise(Mode::Add), &[narrow, down_bias]);
        let sum = step(pointwise(Mode::Add), &[biased, x]);
        let max = Reduction::new(ReductionOp::Max);
        let max = graph.reduction(max, sum, &[rows, 1]).expect("the layer is valid");
        let mut step = |mode: Mode, inputs: &[i64]| {
            graph.pointwise(Pointwise::new(mode), inputs).expect("the layer is valid")
        };
        let shifted = step(Mode::Sub, &[sum, max]);
        x = step(Mode::Exp, &[shifted]);
    }
    graph.output(x, "y", DType::Bf16);
    graph.build().expect("the layers are valid")
}

/// Choosing settings, by rules (target: 20 us) and by the cost model (target: 2 ms), and splitting
/// a graph of 50 operations (target: 5 ms).
fn heuristics(c: &mut Criterion, _cache: &Path) {
    let mut group = c.benchmark_group("heuristics");
    let target = Target::named("h200").expect("known");
    let mut product = OperationGraph::builder();
    let a = product.input("a", &[4096, 4096], DType::Bf16);
    let b = product.input("b", &[4096, 4096], DType::Bf16);
    let c = product.matmul(Matmul::default(), a, b).expect("valid");
    product.output(c, "c", DType::Bf16);
    let mut row = OperationGraph::builder();
    let x = row.input("x", &[4096, 4096], DType::Bf16);
    let scale = row.input("scale", &[1, 4096], DType::Bf16);
    let epsilon = row.scalar("epsilon", 2, DType::F32);
    let norm = NormForward { bias: false, ..NormForward::new(NormMode::Rms, Phase::Inference) };
    let normed = row.operation(Op::NormForward(norm), &[x, scale, epsilon]).expect("valid")[0];
    row.output(normed, "y", DType::Bf16);
    let (batch, steps, units) = (8, 64, 512);
    let mut layer = OperationGraph::builder();
    let x = layer.input("x", &[1, steps * batch, 4 * units], DType::F32);
    let r = layer.input("r", &[1, 4 * units, units], DType::F16);
    let lstm = Recurrence::new(CellKind::Lstm.cell(&CellOptions::default()), batch, units);
    let h = layer.operation(Op::Recurrence(lstm), &[x, r]).expect("valid")[0];
    layer.output(h, "y", DType::F16);
    let graphs = [
        ("chain", demo_chain(4096, 4096)),
        ("product", product.build().expect("valid")),
        ("norm", row.build().expect("valid")),
        ("recurrence", layer.build().expect("valid")),
    ];
    for (name, graph) in &graphs {
        for mode in [engine::Mode::A, engine::Mode::B] {
            let selection = engine::Selection { mode, ..engine::Selection::default() };
            group.bench_function(format!("{mode}/{name}"), |b| {
                b.iter(|| engine::choices(black_box(graph).canonical(), &target, &selection))
            });
        }
    }
    let (graph, selection) = (layers(), engine::Selection::default());
    assert_eq!(graph.operations().len(), 50);
    group.bench_function("partition/50_operations", |b| {
        b.iter(|| engine::partition(black_box(&graph), &target, &selection))
    });
}

/// The demo chain on the simulated device, 1 M elements. Target: 50 ms.
fn simulate(c: &mut Criterion, cache: &Path) {
    let mut group = c.benchmark_group("simulate");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    let kiln = open(sim(), cache);
    let stream = kiln.stream();
    let plan = kiln.plan(&demo_chain(1024, 1024)).expect("the graph is supported");
    let (pack, _buffers) = bind(&kiln, &plan);
    group.bench_function("demo_chain_1M", |b| {
        b.iter(|| plan.execute(&stream, &pack).and_then(|()| stream.synchronize()))
    });
}

/// CUDA C++ text to a cubin with NVRTC loaded. Target: 100 ms.
fn jit(c: &mut Criterion, cache: &Path) {
    let mut group = c.benchmark_group("jit");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    let kiln = open(null(), cache);
    let graph = demo_chain(1024, 1024);
    let config = engine::choose(graph.canonical(), kiln.device().target(), &Default::default())
        .expect("supported");
    let source = &kiln.sources(&graph, &config).expect("the graph is supported")[0];
    kiln.compile(source).expect("NVRTC is there and the chain compiles");
    group.bench_function("demo_chain", |b| b.iter(|| kiln.compile(black_box(source))));
}

/// The null and the simulated device have one architecture: what one fills serves the other.
fn fill_cache(cache: &Path) {
    let kiln = open(null(), cache);
    for (name, graph) in graphs() {
        kiln.plan(&graph).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    let (rnn, states) = network();
    let mut built = kiln.build_rnn_dynamic(&rnn, 8).expect("the network is supported");
    built.prepare(16, states).expect("its kernels compile");
    kiln.build_launched_loops(&product_loop()).expect("its kernels compile");
    attention_call(&kiln)().expect("its kernels compile");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, folder] = &arguments[..]
        && command == FILL_CACHE
    {
        return fill_cache(Path::new(folder));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path();
    let this = std::env::current_exe().expect("a running program has a path");
    let filled = Command::new(this).arg(FILL_CACHE).arg(cache).status();
    assert!(filled.is_ok_and(|status| status.success()), "the cache could not be filled");
    let mut criterion = Criterion::default().configure_from_args();
    for bench in [
        execute,
        rnn_forward,
        rnn_training,
        attention_forward,
        launched_loop,
        memory_hit,
        disk_hit,
        heuristics,
        render,
        simulate,
        jit,
    ] {
        bench(&mut criterion, cache);
    }
    criterion.final_summary();
}
