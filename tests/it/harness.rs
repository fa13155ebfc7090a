//! Runs graphs on the device under test and compares with the reference.
//!
//! Every buffer is poisoned before its elements are written, and every byte of an output that is
//! not an element must still be poison afterwards: a stray store fails the test that made it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kiln::cache::{Entry, Key, Request};
use kiln::codegen::{KernelSource, Templates};
use kiln::compile::{Image, compile_all};
use kiln::device::{Buffer, Counters, DeviceChoice};
use kiln::engine::{self, EngineConfig, Mode, Supported};
use kiln::graph::InPlace;
use kiln::plan::{DeviceMemory, ExecutionPlan};
use kiln::reference::{self, Expected};
use kiln::target::Target;
use kiln::{Config, Kiln, OperationGraph, Result, TensorDesc, VariantPack};

/// Byte that fills everything no element covers: a NaN in every floating-point type.
const POISON: u8 = 0xff;

/// Poisoned bytes before and behind every tensor.
const GUARD_BYTES: usize = 256;

/// Values by uid, in row-major order.
pub type Values = HashMap<i64, Vec<f64>>;

/// More than all tests write: none finds that another's kernel took the place of its own.
const CACHE_BYTES: u64 = 8 << 30;

/// Compiled kernels survive between runs of the tests: keys cover all that could make them stale.
fn cache_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels")
}

/// What a test opens that shares the compiled kernels.
pub fn config() -> Config {
    tell_launches();
    let (cache_dir, cache_bytes) = (Some(cache_dir()), Some(CACHE_BYTES));
    Config { cache_dir, cache_bytes, ..Config::default() }
}

/// Writes the name of every kernel to standard error before it is launched on a GPU, if that is
/// wanted (`KILN_TEST_LAUNCHES=1`): a kernel that hangs is the last one.
fn tell_launches() {
    static TOLD: OnceLock<()> = OnceLock::new();
    TOLD.get_or_init(|| {
        if std::env::var("KILN_TEST_LAUNCHES").is_ok_and(|told| told == "1") {
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter("kiln::device=trace")
                .with_ansi(false)
                .without_time()
                .with_writer(std::io::stderr);
            subscriber.init();
        }
    });
}

/// The same for the command line.
pub fn environment() -> [(&'static str, OsString); 2] {
    let bytes = CACHE_BYTES.to_string().into();
    [("KILN_CACHE_DIR", cache_dir().into()), ("KILN_CACHE_BYTES", bytes)]
}

/// Every test on the simulator runs sanitized, and PTX is all that it needs.
pub fn checked(device: Option<DeviceChoice>) -> Config {
    Config { device, sanitize: Some(true), ptx_only: Some(true), ..config() }
}

/// The device under test: `KILN_DEVICE`, or what `auto` finds.
pub fn kiln() -> &'static Kiln {
    static KILN: OnceLock<Kiln> = OnceLock::new();
    KILN.get_or_init(|| Kiln::open(checked(None)).expect("the device under test opens"))
}

/// Devices for both PTX dialects (up to sm_90a, from sm_100): on a GPU, just the GPU.
pub fn dialects() -> Vec<&'static Kiln> {
    ["sim", "sim120"].into_iter().filter_map(simulated).collect()
}

/// The dialect whose turn it is, or both where all tests are wanted (`KILN_TEST_ALL=1`).
pub fn dialects_by_turns(at: usize) -> Vec<&'static Kiln> {
    let mut dialects = dialects();
    if !all_are_wanted() {
        dialects = vec![dialects[at % dialects.len()]];
    }
    dialects
}

/// The device under test and the oldest architecture, whose kernels convert bf16 by hand.
pub fn oldest() -> Vec<&'static Kiln> {
    ["sim", "t4"].into_iter().filter_map(simulated).collect()
}

/// Orders of warps that tests run in by turns.
const SEEDS: u64 = 4;

/// The simulator of a target, opened once; where a GPU is under test, it in the place of `sim`,
/// and no other.
pub fn simulated(target: &str) -> Option<&'static Kiln> {
    simulated_by_turns(target, 0)
}

/// The same, whose warps run in the order whose turn it is.
pub fn simulated_by_turns(target: &str, at: u64) -> Option<&'static Kiln> {
    simulated_by(target, at, Mode::default())
}

/// The same, which plans by a heuristic.
pub fn simulated_by(target: &str, at: u64, heuristic: Mode) -> Option<&'static Kiln> {
    type Others = BTreeMap<(String, u64, &'static str), &'static Kiln>;
    static OTHERS: Mutex<Others> = Mutex::new(BTreeMap::new());
    let seed = at % SEEDS;
    if kiln().device().kind() != "sim" {
        return (target == "sim").then(kiln);
    } else if (target, seed, heuristic) == ("sim", 0, Mode::default()) {
        return Some(kiln());
    }
    let mut others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    let open = || {
        let device = Some(DeviceChoice::Sim(target.to_owned()));
        let (sim_seed, heuristic) = ((seed != 0).then_some(seed), Some(heuristic));
        let config = Config { sim_seed, heuristic, ..checked(device) };
        &*Box::leak(Box::new(Kiln::open(config).expect("the simulator opens")))
    };
    let key = (target.to_owned(), seed, heuristic.name());
    Some(*others.entry(key).or_insert_with(open))
}

/// A simulator that counts, for one test at a time: it keeps the counts of its last launch only.
pub fn counting() -> MutexGuard<'static, Kiln> {
    static KILN: OnceLock<Mutex<Kiln>> = OnceLock::new();
    let kiln = KILN.get_or_init(|| {
        let device = Some(DeviceChoice::Sim("sim".to_owned()));
        let config = Config { device, count: true, ptx_only: Some(true), ..config() };
        Mutex::new(Kiln::open(config).expect("the simulator opens"))
    });
    kiln.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counts of the last kernel of a graph at the given or the heuristic setting.
pub fn count(graph: &OperationGraph, config: Option<&EngineConfig>, inputs: &Values) -> Counters {
    let kiln = counting();
    run(&kiln, graph, config, inputs).unwrap_or_else(|error| panic!("{error:?}\n{graph}"));
    kiln.device().counters().expect("the device counts")
}

/// The counts of each kernel of a graph at the given setting, in order.
pub fn count_each(graph: &OperationGraph, config: &EngineConfig, inputs: &Values) -> Vec<Counters> {
    let kiln = counting();
    let plan = kiln.plan_with(graph, config).unwrap_or_else(|error| panic!("{error:?}\n{graph}"));
    let counts = kiln.count(&plan, inputs).unwrap_or_else(|error| panic!("{error:?}\n{graph}"));
    counts.into_iter().map(|of| of.expect("the device counts")).collect()
}

/// Lanes that waited for a bank of shared memory.
pub fn conflicts(counters: &Counters) -> u64 {
    counters.total.shared_loads.conflicts + counters.total.shared_stores.conflicts
}

/// The sources of a setting's kernels, by what they are.
pub fn sources(
    what: &str,
    supported: &dyn Supported,
    config: &EngineConfig,
) -> Vec<(String, KernelSource)> {
    let kernels = supported.lower(config).unwrap().kernels.into_iter();
    let source = |spec| Templates::embedded().render(&spec).unwrap();
    kernels.map(|kernel| (format!("{what}: {config}"), source(kernel.spec))).collect()
}

/// The sources of the default settings with which these engines run these graphs on these targets,
/// each once. Some engine takes every graph on every target.
pub fn default_sources(
    engines: &[&str],
    targets: &[&str],
    graphs: &[OperationGraph],
) -> Vec<(String, KernelSource)> {
    let (mut seen, mut all) = (HashSet::new(), Vec::new());
    for name in targets {
        let target = Target::named(name).unwrap();
        for graph in graphs {
            let before = all.len();
            for engine in engines {
                if let Ok(own) = engine::supported(engine, graph.canonical(), &target) {
                    all.extend(sources(&graph.to_string(), &*own, &own.heuristic()));
                }
            }
            assert!(all.len() > before, "{engines:?} on {name}: {graph}");
        }
    }
    all.retain(|(_, source)| seen.insert(source.digest()));
    all
}

/// Whether tests that run a sample shall run all of it.
pub fn all_are_wanted() -> bool {
    std::env::var("KILN_TEST_ALL").is_ok_and(|all| all == "1")
}

/// Every so many of them, or all where they are wanted (`KILN_TEST_ALL=1`).
pub fn sampled<T>(all: Vec<T>, step: usize) -> Vec<T> {
    let step = if all_are_wanted() { 1 } else { step };
    all.into_iter().step_by(step).collect()
}

/// The cubins of sources, of any architecture, from the cache or compiled at once.
#[track_caller]
pub fn assembled(sources: &[(String, KernelSource)]) -> Vec<Image> {
    let toolchain = kiln().toolchain().unwrap();
    let disk = kiln().disk_cache().expect("tests keep their kernels");
    let requests: Vec<_> =
        sources.iter().map(|(_, source)| Request::new(source, &toolchain)).collect();
    let is_whole = |image: &Image| !image.cubin.is_empty();
    let mut images: Vec<Option<Image>> =
        requests.iter().map(|request| disk.get(Key::of(request)).filter(is_whole)).collect();
    let missing: Vec<usize> = (0..sources.len()).filter(|at| images[*at].is_none()).collect();
    if !missing.is_empty() {
        let texts: Vec<_> = missing.iter().map(|at| sources[*at].1.clone()).collect();
        let compiled = compile_all(kiln().compiler().unwrap(), &texts, |_, _| {});
        for (at, image) in std::iter::zip(missing, compiled) {
            let (what, source) = &sources[at];
            let image = image.unwrap_or_else(|error| {
                panic!("{what} for {}: {error:?}\n{}", source.arch, source.text)
            });
            let request = &requests[at];
            disk.put(Key::of(request), &Entry::encode(request, &image, Duration::ZERO));
            images[at] = Some(image);
        }
    }
    images.into_iter().map(|image| image.expect("each was found or compiled")).collect()
}

/// The cubins of a setting's kernels for the device under test.
#[track_caller]
pub fn assembled_for(graph: &OperationGraph, config: &EngineConfig) -> Vec<Image> {
    let sources = kiln().sources(graph, config).unwrap_or_else(|error| panic!("{error:?}"));
    let named = |source: KernelSource| (format!("{config}"), source);
    assembled(&sources.into_iter().map(named).collect::<Vec<_>>())
}

/// Compiles sources: none leaves a register to memory, the assembler lets products run on, and the
/// compiler warns of nothing.
#[track_caller]
pub fn compile_without_spills(sources: &[(String, KernelSource)]) -> Vec<Image> {
    assert!(!sources.is_empty());
    let mut spilled = Vec::new();
    let compiled = std::iter::zip(sources, assembled(sources)).map(|((what, source), image)| {
        let what = format!("{what} for {}", source.arch);
        assert!(!image.log.contains("are serialized"), "{what}: {}", image.log);
        // A variable that nothing reads, above all (#177).
        assert!(!image.log.contains("warning"), "{what}: {}\n{}", image.log, source.text);
        if image.resources.spill_bytes > 0 {
            spilled.push(format!("{what}: {:?}", image.resources));
        }
        image
    });
    let images = compiled.collect();
    assert!(spilled.is_empty(), "{}", spilled.join("\n"));
    images
}

/// The bytes of one tensor with guards, its elements set and everything else poisoned. An offset
/// of one element from a 256-byte boundary stands in for the least alignment a tensor declares.
pub struct Layout {
    start: usize,
    bytes: usize,
}

impl Layout {
    pub fn of(tensor: &TensorDesc) -> Layout {
        let slack = if tensor.alignment < GUARD_BYTES { tensor.alignment } else { 0 };
        let start = GUARD_BYTES + slack;
        let span = tensor.span_bytes().expect("tensors under test are small") as usize;
        Layout { start, bytes: start + span + GUARD_BYTES }
    }

    /// Where the first element is.
    pub fn start(&self) -> usize {
        self.start
    }

    pub fn encode(&self, tensor: &TensorDesc, values: &[f64]) -> Vec<u8> {
        let mut bytes = vec![POISON; self.bytes];
        for (value, offset) in values.iter().zip(tensor.offsets()) {
            let at = self.start + offset * tensor.dtype.bytes();
            tensor.dtype.write(*value, &mut bytes[at..]);
        }
        bytes
    }

    /// The elements; panics where a byte outside of them has changed.
    pub fn decode(&self, tensor: &TensorDesc, mut bytes: Vec<u8>) -> Vec<f64> {
        let size = tensor.dtype.bytes();
        let mut values = Vec::new();
        for offset in tensor.offsets() {
            let at = self.start + offset * size;
            values.push(tensor.dtype.read(&bytes[at..]));
            bytes[at..at + size].fill(POISON);
        }
        let stray = bytes.iter().position(|byte| *byte != POISON);
        assert_eq!(stray, None, "{tensor}: a byte outside its elements was written");
        values
    }
}

/// A plan's inputs and outputs on its device.
pub struct Bound {
    /// Without a workspace.
    pub pack: VariantPack,
    /// Kept alive for the pack.
    pub buffers: HashMap<i64, Buffer>,
}

impl Bound {
    /// Reads an input from where another one lies.
    pub fn read_from(&mut self, tensor: &TensorDesc, other: &TensorDesc) {
        let at = self.buffers[&other.uid].address() + Layout::of(other).start as u64;
        place(&mut self.pack, tensor.uid, at, tensor.span_bytes().expect("spans are small"));
    }

    /// What the outputs hold now.
    pub fn outputs(&self, graph: &OperationGraph) -> Result<Values> {
        let read = |tensor: &TensorDesc| {
            let bytes = self.buffers[&tensor.uid].to_vec()?;
            Ok((tensor.uid, Layout::of(tensor).decode(tensor, bytes)))
        };
        graph.outputs().map(read).collect()
    }
}

/// Places a tensor at an address.
#[expect(unsafe_code, reason = "tests know where their buffers are")]
pub fn place(pack: &mut VariantPack, uid: i64, address: u64, bytes: u64) {
    // SAFETY: a test keeps its buffers until its executions have run.
    unsafe { pack.set_address(uid, DeviceMemory { address, bytes }) }
}

/// Uploads inputs and allocates outputs.
pub fn bind(kiln: &Kiln, graph: &OperationGraph, inputs: &Values) -> Result<Bound> {
    let mut bound = Bound { pack: VariantPack::new(), buffers: HashMap::new() };
    let in_place: Vec<InPlace> = graph.in_place().collect();
    for tensor in graph.inputs().chain(graph.outputs()) {
        let values = inputs.get(&tensor.uid).map_or(&[][..], Vec::as_slice);
        if tensor.by_value {
            bound.pack.set_value(tensor.uid, values[0]);
            continue;
        }
        if in_place.iter().any(|piece| piece.uid == tensor.uid) {
            continue;
        }
        let layout = Layout::of(tensor);
        let mut bytes = layout.encode(tensor, values);
        for piece in in_place.iter().filter(|piece| piece.within == tensor.uid) {
            let (within, values) = (graph.tensor(piece.uid)?, &inputs[&piece.uid]);
            for (value, element) in values.iter().zip(within.offsets()) {
                let at = layout.start + piece.offset_bytes as usize;
                within.dtype.write(*value, &mut bytes[at + element * within.dtype.bytes()..]);
            }
        }
        let buffer = kiln.device().upload(&bytes)?;
        let start = buffer.address() + layout.start as u64;
        place(&mut bound.pack, tensor.uid, start, tensor.span_bytes()?);
        for piece in in_place.iter().filter(|piece| piece.within == tensor.uid) {
            let bytes = graph.tensor(piece.uid)?.span_bytes()?;
            place(&mut bound.pack, piece.uid, start + piece.offset_bytes, bytes);
        }
        bound.buffers.insert(tensor.uid, buffer);
    }
    Ok(bound)
}

/// Executes a plan and reads its outputs.
pub fn run_plan(kiln: &Kiln, plan: &ExecutionPlan, inputs: &Values) -> Result<Values> {
    run_bound(kiln, plan, &bind(kiln, plan.graph(), inputs)?)
}

/// Executes a plan on what is bound and reads its outputs.
pub fn run_bound(kiln: &Kiln, plan: &ExecutionPlan, bound: &Bound) -> Result<Values> {
    let graph = plan.graph();
    let stream = kiln.stream();
    let workspace = kiln.device().upload(&vec![POISON; plan.workspace_bytes() as usize])?;
    plan.execute(&stream, &bound.pack.clone().with_workspace(&workspace))?;
    stream.synchronize()?;
    bound.outputs(graph)
}

/// Runs a graph whose result is added to `before`, in the memory of that tensor, on each of these
/// engines that takes it, with splits too; so many must.
pub fn check_added_in_place(graph: &OperationGraph, engines: &[&str], least: usize) {
    let kiln = kiln();
    let tensor = |name: &str| graph.tensors().iter().find(|of| of.name.ends_with(name)).unwrap();
    let before = tensor("before");
    let result = graph.outputs().find(|of| of.dims == before.dims).unwrap();
    let inputs = graph.inputs().map(|of| (of.uid, fill(of, 5, 2.0))).collect();
    let expected = reference::evaluate(graph, &inputs).unwrap();
    let mut ran = 0;
    for name in engines {
        let target = kiln.device().target();
        let Ok(supported) = engine::supported(name, graph.canonical(), target) else { continue };
        let best = supported.heuristic();
        let split = ["split", "split_k"].into_iter().find(|knob| best.knob(knob).is_ok());
        let with = |knob| [1, 2].map(|of| best.clone().with(knob, of));
        let splits = split.into_iter().flat_map(with);
        let configs: Vec<EngineConfig> = [best.clone()].into_iter().chain(splits).collect();
        for config in configs.iter().filter(|config| supported.lower(config).is_ok()) {
            let plan = kiln.plan_with(graph, config).unwrap();
            let mut bound = bind(kiln, graph, &inputs).unwrap();
            let buffer = bound.buffers[&before.uid].clone();
            bound.read_from(result, before);
            bound.buffers.insert(result.uid, buffer);
            let actual = run_bound(kiln, &plan, &bound).unwrap_or_else(|e| panic!("{config}: {e}"));
            compare_with(&expected, graph, &inputs, &actual, &config.to_string());
        }
        ran += 1;
    }
    assert!(ran >= least, "{ran} of {engines:?}: {graph}");
}

/// Runs a graph at the given or the heuristic setting.
pub fn run(
    kiln: &Kiln,
    graph: &OperationGraph,
    config: Option<&EngineConfig>,
    inputs: &Values,
) -> Result<Values> {
    let plan = match config {
        Some(config) => kiln.plan_with(graph, config)?,
        None => kiln.plan(graph)?,
    };
    run_plan(kiln, &plan, inputs)
}

/// Panics unless every output is within the bound the reference derives.
pub fn compare(graph: &OperationGraph, inputs: &Values, actual: &Values, what: &str) {
    let expected = reference::evaluate(graph, inputs).expect("inputs fit the graph");
    compare_with(&expected, graph, inputs, actual, what);
}

/// The same with what the reference gave before.
pub fn compare_with(
    expected: &HashMap<i64, Expected>,
    graph: &OperationGraph,
    inputs: &Values,
    actual: &Values,
    what: &str,
) {
    for tensor in graph.outputs() {
        let worst = expected[&tensor.uid].worst(&actual[&tensor.uid]);
        if let Some(worst) = worst.filter(|worst| worst.ratio > 1.0) {
            let at = |values: &Vec<f64>| values.get(worst.index).copied();
            let inputs: Vec<_> = graph
                .inputs()
                .map(|input| (&input.name, inputs.get(&input.uid).and_then(at)))
                .collect();
            panic!("{what}: output {tensor}: {worst:?}\ninputs at that index: {inputs:?}\n{graph}");
        }
    }
}

/// Runs a graph and compares it with the reference.
pub fn check(
    kiln: &Kiln,
    graph: &OperationGraph,
    config: Option<&EngineConfig>,
    inputs: &Values,
    what: &str,
) {
    let actual = run(kiln, graph, config, inputs)
        .unwrap_or_else(|error| panic!("{what}: {error:?}\n{graph}"));
    compare(graph, inputs, &actual, what);
}

/// `values` of `tests/data/hashed.py`.
pub fn hashed(tensor: &TensorDesc, scale: f64) -> Vec<f64> {
    let seed = tensor
        .name
        .bytes()
        .fold(0x811c_9dc5u32, |seed, byte| (seed ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let value = |at: i64| {
        let mut mixed = (at as u32).wrapping_mul(0x9e37_79b1) ^ seed;
        for (shift, factor) in [(16, 0x85eb_ca6b), (13, 0xc2b2_ae35)] {
            mixed = (mixed ^ mixed >> shift).wrapping_mul(factor);
        }
        mixed ^= mixed >> 16;
        (f64::from(mixed % 255) - 127.0) / 128.0 * scale
    };
    (0..tensor.dims.iter().product()).map(value).collect()
}

/// Deterministic values with a prime period, in [-span, span], rounded to what storage holds.
pub fn fill(tensor: &TensorDesc, seed: u64, span: f64) -> Vec<f64> {
    let count = tensor.elements().expect("tensors under test are small") as u64;
    let value = |index: u64| ((index + seed) * 7919 % 251) as f64 / 125.0 - 1.0;
    (0..count).map(|index| tensor.dtype.round(span * value(index))).collect()
}

/// The simulated driver, which `make test` builds beside these tests; what uses it runs on
/// `cuda:0`.
pub fn simulated_driver() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap().with_file_name("libkiln_sim_driver.so");
    if !own.is_file() {
        eprintln!(
            "skipped: no simulated driver, `cargo build -p kiln-sim-driver --tests` makes it"
        );
        return None;
    }
    Some(own)
}

/// Runs a test (`module::name`) on `cuda:0` of the simulated driver, where there is one.
#[track_caller]
pub fn passes_on_simulated_driver(test: &str) {
    let Some(driver) = simulated_driver() else { return };
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env("LD_PRELOAD", driver);
    let output = command.env("CUDA_FORCE_PTX_JIT", "1").env("KILN_DEVICE", "cuda:0").output();
    let output = output.unwrap();
    let [text, errors] = [&output.stdout, &output.stderr].map(|of| String::from_utf8_lossy(of));
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

/// Runs a test (`module::name`) in processes of its own, one for each task in turn. The task where
/// this is one of them; `None` in the process that has run them all.
#[track_caller]
pub fn in_own_processes(test: &str, tasks: &[&str]) -> Option<String> {
    const CHILD: &str = "KILN_TEST_CHILD";
    if let Ok(task) = std::env::var(CHILD) {
        return Some(task);
    }
    for task in tasks {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, task)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        println!("{text}");
        assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
    }
    None
}
