//! Kiln on `cuda:0`, where the driver is this crate: the path that a GPU takes, without one.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the interface of the CUDA driver")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cudarc::driver::{result, sys};
use kiln::device::{Buffer, DeviceChoice, Stream};
use kiln::expr::{Mode, Pointwise};
use kiln::plan::{Background, ExecutionPlan, Problem, Tier, Values, random_values};
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph, TensorDesc, VariantPack, reference};

fn driver() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    test.with_file_name("libkiln_sim_driver.so")
}

/// Kiln on the GPU, for one test at a time: a capture forbids what other threads would do. What
/// looks for `libcuda.so` finds the library that is loaded.
fn gpu() -> MutexGuard<'static, Kiln> {
    static KILN: OnceLock<(libloading::Library, Mutex<Kiln>)> = OnceLock::new();
    let (_, kiln) = KILN.get_or_init(|| {
        // SAFETY: the first thing that any test here does, and the only write of the environment.
        unsafe { std::env::set_var("CUDA_FORCE_PTX_JIT", "1") };
        // SAFETY: the library runs nothing when it is loaded.
        let library = unsafe { libloading::Library::new(driver()) }.expect("the driver loads");
        let cache_dir = Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels"));
        let config = Config { device: Some(DeviceChoice::Cuda(0)), cache_dir, ..Config::default() };
        (library, Mutex::new(Kiln::open(config).expect("the GPU opens")))
    });
    // Kiln leaves a thread's context as it finds it; what the tests do themselves wants one.
    let device = result::device::get(0).unwrap();
    // SAFETY: the device is there, and its context is retained for as long as the process lasts.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device).unwrap()) }.unwrap();
    kiln.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compare(graph: &OperationGraph, inputs: &Values, actual: &Values, what: &str) {
    let expected = reference::evaluate(graph, inputs).expect("inputs fit");
    for tensor in graph.outputs() {
        let worst = expected[&tensor.uid].worst(&actual[&tensor.uid]);
        assert!(
            worst.as_ref().is_none_or(|worst| worst.ratio <= 1.0),
            "{what}: {tensor} {worst:?}"
        );
    }
}

fn problem(name: &str) -> Problem {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/problems");
    let text = std::fs::read_to_string(folder.join(name).with_extension("json")).unwrap();
    Problem::from_json(&text).unwrap()
}

#[test]
fn the_gpu_is_described() {
    let kiln = gpu();
    let device = kiln.device();
    assert_eq!((device.kind(), device.target().arch.to_string().as_str()), ("cuda", "sm_90a"));
    assert_eq!(device.target().name, "Kiln simulated GPU");
    let sizes = kiln::target::Target::sim();
    assert_eq!(
        *device.target(),
        kiln::target::Target { name: device.target().name.clone(), ..sizes }
    );
    let config = Config { device: Some(DeviceChoice::Cuda(1)), ..Config::default() };
    let error = Kiln::open(config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadParam);
    assert_eq!(error.to_string(), "no GPU 1: the driver has 1");
}

/// Every kind of kernel there is: with tensor maps, clusters, grids that are resident at once, more
/// shared memory than a kernel has without asking, scratch, and values as parameters.
#[test]
fn problems_give_what_the_reference_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/problems");
    let (kiln, mut seen) = (gpu(), 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let problem = problem(name);
        let mut values = problem.random_values(1).unwrap();
        for (at, graph) in problem.graphs().into_iter().enumerate() {
            let inputs = problem.inputs(at, &values);
            let plan = kiln.plan(graph).unwrap();
            let trial = kiln.trial(&plan, &inputs).unwrap();
            compare(graph, &inputs, &trial.outputs, name);
            assert!(trial.elapsed.as_nanos() > 0);
            problem.store(at, &trial.outputs, &mut values);
        }
        seen += 1;
    }
    assert!(seen >= 14, "{seen} problems");
}

/// Clusters, and grids that are resident at once.
#[test]
fn launches_of_every_kind_arrive() {
    let (kiln, problem) = (gpu(), problem("rnn_lstm"));
    let whole = kiln.plan(problem.only_graph().unwrap()).unwrap();
    let part = whole.parts().into_iter().find(|part| part.config.engine.starts_with("rnn_"));
    let graph = &part.expect("the recurrence is a part").graph;
    let values = random_values(graph, 2).unwrap();
    let target = kiln.device().target();
    for engine in ["rnn_cta", "rnn_cluster", "rnn_grid"] {
        let supported = kiln::engine::supported(engine, graph.canonical(), target).unwrap();
        let plan = kiln.plan_with(graph, &supported.heuristic()).unwrap();
        let trial = kiln.trial(&plan, &values).unwrap();
        compare(graph, &values, &trial.outputs, engine);
    }
}

/// A plan with its tensors on the device, at addresses that stay.
struct Bound {
    plan: ExecutionPlan,
    pack: VariantPack,
    buffers: HashMap<i64, Buffer>,
    _workspace: Buffer,
}

impl Bound {
    fn new(kiln: &Kiln, plan: ExecutionPlan) -> Bound {
        let graph = plan.graph();
        let alloc = |tensor: &TensorDesc| {
            let buffer = kiln.device().alloc(tensor.span_bytes().unwrap()).unwrap();
            (tensor.uid, buffer)
        };
        let buffers: HashMap<i64, Buffer> =
            graph.inputs().chain(graph.outputs()).map(alloc).collect();
        let workspace = kiln.device().alloc(plan.workspace_bytes()).unwrap();
        let pack = buffers.iter().fold(VariantPack::new(), |pack, (uid, of)| pack.with(*uid, of));
        Bound { pack: pack.with_workspace(&workspace), plan, buffers, _workspace: workspace }
    }

    fn write(&self, values: &Values) {
        for tensor in self.plan.graph().inputs() {
            let mut bytes = vec![0; tensor.span_bytes().unwrap() as usize];
            for (value, offset) in values[&tensor.uid].iter().zip(tensor.offsets()) {
                tensor.dtype.write(*value, &mut bytes[offset * tensor.dtype.bytes()..]);
            }
            self.buffers[&tensor.uid].write(0, &bytes).unwrap();
        }
    }

    fn read(&self) -> Values {
        let read = |tensor: &TensorDesc| {
            let bytes = self.buffers[&tensor.uid].to_vec().unwrap();
            let value = |at: usize| tensor.dtype.read(&bytes[at * tensor.dtype.bytes()..]);
            (tensor.uid, tensor.offsets().map(value).collect())
        };
        self.plan.graph().outputs().map(read).collect()
    }
}

/// A CUDA graph of what a stream was given meanwhile.
struct Replay {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

impl Replay {
    fn capture(stream: &Stream, meanwhile: impl FnOnce()) -> Replay {
        let stream = stream.handle() as sys::CUstream;
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream is alive, the results are valid for writes.
        unsafe {
            sys::cuStreamBeginCapture_v2(stream, mode).result().unwrap();
            meanwhile();
            sys::cuStreamEndCapture(stream, &mut graph).result().unwrap();
            sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0).result().unwrap();
        }
        Replay { graph, exec }
    }

    fn launch(&self, stream: &Stream) {
        // SAFETY: graph and stream are alive.
        unsafe { sys::cuGraphLaunch(self.exec, stream.handle() as _) }.result().unwrap();
        stream.synchronize().unwrap();
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        // SAFETY: made by `capture`, destroyed once.
        unsafe {
            sys::cuGraphExecDestroy(self.exec).result().unwrap();
            sys::cuGraphDestroy(self.graph).result().unwrap();
        }
    }
}

/// A plan is launched into a stream that another library has made and destroys.
#[test]
fn plans_run_in_the_streams_of_others() {
    let (kiln, problem) = (gpu(), problem("swiglu"));
    let bound = Bound::new(&kiln, kiln.plan(problem.only_graph().unwrap()).unwrap());
    let mut theirs: sys::CUstream = ptr::null_mut();
    // SAFETY: the result is valid for writes.
    unsafe { sys::cuStreamCreate(&mut theirs, 0) }.result().unwrap();
    // SAFETY: the stream lives until it is destroyed below.
    let stream = unsafe { kiln.device().external_stream(theirs as u64) };
    let values = problem.random_values(5).unwrap();
    bound.write(&values);
    bound.plan.execute(&stream, &bound.pack).unwrap();
    // Dropping the handle on it destroys nothing.
    drop(stream);
    // SAFETY: the stream is alive, and destroyed once.
    unsafe {
        sys::cuStreamSynchronize(theirs).result().unwrap();
        sys::cuStreamDestroy_v2(theirs).result().unwrap();
    }
    compare(bound.plan.graph(), &values, &bound.read(), "in another's stream");
}

/// A plan is captured into a CUDA graph, which gives new results for new inputs in the same places.
#[test]
fn plans_are_replayed_in_a_graph() {
    let (kiln, problem) = (gpu(), problem("swiglu"));
    let bound = Bound::new(&kiln, kiln.plan(problem.only_graph().unwrap()).unwrap());
    let stream = kiln.device().stream().unwrap();
    let replay = Replay::capture(&stream, || bound.plan.execute(&stream, &bound.pack).unwrap());
    for seed in [3, 4] {
        let values = problem.random_values(seed).unwrap();
        bound.write(&values);
        replay.launch(&stream);
        compare(bound.plan.graph(), &values, &bound.read(), "replayed");
    }
}

/// A kernel that another thread compiles and loads while a stream is captured does not disturb the
/// capture, and what was captured stays loaded.
#[test]
fn captures_go_on_while_kernels_are_loaded() {
    let graph = |rows: i64, columns: i64| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[rows, columns], DType::F32);
        let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[x]).unwrap();
        graph.output(y, "y", DType::F32);
        graph.build().unwrap()
    };
    let _gpu = gpu();
    let folder = tempfile::tempdir().unwrap();
    let kiln = Kiln::open(Config {
        device: Some(DeviceChoice::Cuda(0)),
        cache_dir: Some(folder.path().to_owned()),
        background: Some(Background::default()),
        ..Config::default()
    })
    .unwrap();
    // The first shape compiles the general kernel too.
    kiln.plan(&graph(3, 40)).unwrap();
    let long = Duration::from_secs(60);
    assert!(kiln.settle(long));
    let graph = graph(5, 333);
    let bound = Bound::new(&kiln, kiln.plan(&graph).unwrap());
    let stream = kiln.device().stream().unwrap();
    let replay = Replay::capture(&stream, || {
        bound.plan.execute(&stream, &bound.pack).unwrap();
        assert_eq!(bound.plan.kernels()[0].config().engine, "pointwise_general");
        assert_eq!(bound.plan.settle(long).unwrap(), Tier::Special);
    });
    let values = random_values(&graph, 5).unwrap();
    bound.write(&values);
    replay.launch(&stream);
    compare(&graph, &values, &bound.read(), "captured before");
}
