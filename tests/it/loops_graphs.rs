//! Networks with loops in CUDA graphs: a stream is captured once, and replays make as many trips
//! and take the branches that numbers on the device then say.

#![expect(unsafe_code, reason = "the stream that is captured is another library's")]

use std::collections::HashMap;

use cudarc::driver::{CudaContext, sys};
use kiln::device::Buffer;
use kiln::expr::Mode;
use kiln::layers::LoopsPlan;
use kiln::loops::{Network, TripLimit};
use kiln::{DType, ErrorKind, Kiln, TensorDesc, VariantPack, reference};

use crate::harness::{self, Layout, Values};
use crate::looped::{self, Net};
use crate::loops_random::network_of;

/// Rows of a tensor in an outer loop, whose inner loop halves a state until it is small; a branch
/// decides what is added; everything is stacked in both orders.
fn halving() -> Network {
    let mut net = Net::default();
    let (x, start) = (net.f32("x", &[3, 5, 4]), net.f32("start", &[3, 4]));
    let [n, zero, one, bound] = ["n", "zero", "one", "bound"].map(|name| net.count(name));
    let (half, small) = (net.f32("half", &[1, 1]), net.count("small"));
    let outer = net.counted("outer", n);
    let row = net.iterator(outer, x, 1, true);
    let (sum, at) = (net.recurrence(outer, start), net.recurrence(outer, zero));
    let inner = net.builder.add_loop("inner");
    net.builder.trips_max(inner, 9);
    let (state, turn) = (net.recurrence(inner, row), net.recurrence(inner, at));
    let goes = net.compare(Mode::CmpLt, &[turn, small], "goes");
    net.builder.trip_limit(inner, TripLimit::While, goes);
    let halved = net.op(Mode::Mul, &[state, half]);
    net.next(state, halved);
    let counted = net.op(Mode::Add, &[turn, one]);
    net.next(turn, counted);
    let last = net.last(inner, state);
    let early = net.compare(Mode::CmpLt, &[at, bound], "early");
    let (added, taken) = (net.op(Mode::Add, &[sum, last]), net.op(Mode::Sub, &[sum, last]));
    let next = net.builder.conditional(early, &[(added, taken)]).unwrap()[0];
    net.next(sum, next);
    let next_at = net.op(Mode::Add, &[at, one]);
    net.next(at, next_at);
    let outputs =
        [net.last(outer, sum), net.stack(outer, next, 1, 5), net.turned(outer, last, 2, 6)];
    for (output, name) in outputs.into_iter().zip(["sum", "all", "back"]) {
        net.output(output, name, DType::F32);
    }
    net.build().on_device()
}

/// A network with memory of its tensors.
struct Bound {
    plan: LoopsPlan,
    pack: VariantPack,
    buffers: HashMap<i64, (TensorDesc, Buffer)>,
    _workspace: Buffer,
}

impl Bound {
    fn of(kiln: &Kiln, plan: LoopsPlan, inputs: &Values) -> Bound {
        let (mut pack, mut buffers) = (VariantPack::new(), HashMap::new());
        for tensor in plan.network().inputs().chain(plan.network().outputs()) {
            let values = inputs.get(&tensor.uid).map_or(&[][..], Vec::as_slice);
            if tensor.by_value {
                pack.set_value(tensor.uid, values[0]);
                continue;
            }
            let buffer = kiln.device().upload(&Layout::of(tensor).encode(tensor, values)).unwrap();
            let start = buffer.address() + Layout::of(tensor).start() as u64;
            harness::place(&mut pack, tensor.uid, start, tensor.span_bytes().unwrap());
            buffers.insert(tensor.uid, (tensor.clone(), buffer));
        }
        let workspace = kiln.device().upload(&vec![0xff; plan.workspace_bytes() as usize]).unwrap();
        Bound { pack: pack.with_workspace(&workspace), plan, buffers, _workspace: workspace }
    }

    fn write(&self, inputs: &Values) {
        for (uid, values) in inputs {
            if let Some((tensor, buffer)) = self.buffers.get(uid) {
                buffer.write(0, &Layout::of(tensor).encode(tensor, values)).unwrap();
            }
        }
    }

    fn outputs(&self) -> Values {
        let written = self.plan.network().outputs().map(|tensor| {
            let bytes = self.buffers[&tensor.uid].1.to_vec().unwrap();
            (tensor.uid, Layout::of(tensor).decode(tensor, bytes))
        });
        written.collect()
    }
}

/// Captures a network once, and replays it for each of some inputs.
fn replay(kiln: &Kiln, network: &Network, plan: LoopsPlan, all: &[Values], what: &str) {
    let bound = Bound::of(kiln, plan, &all[0]);
    let others = CudaContext::new(0).unwrap().new_stream().unwrap();
    // SAFETY: `others` outlives it.
    let stream = unsafe { kiln.device().external_stream(others.cu_stream() as u64) };
    others.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    bound.plan.execute(&stream, &bound.pack).unwrap();
    let graph = others.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    for (at, inputs) in all.iter().enumerate() {
        bound.write(inputs);
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        let told = bound.plan.check_replay(&stream, &bound.pack);
        match reference::evaluate_network(network, inputs) {
            Ok(expected) => {
                told.unwrap();
                looped::compare(network, &expected, &bound.outputs(), &format!("{what}, {at}"));
            }
            // Of loops in others nothing is told.
            Err(error) => {
                if let Err(told) = told {
                    assert_eq!(told.kind(), ErrorKind::BadParam, "{error}");
                }
            }
        }
    }
}

fn has_graphs(kiln: &Kiln) -> bool {
    let has = kiln.device().kind() == "cuda";
    if !has {
        eprintln!("skipped: no CUDA graphs without a CUDA driver");
    }
    has
}

#[test]
fn replays_make_the_trips_that_numbers_say() {
    let kiln = harness::kiln();
    if !has_graphs(kiln) {
        return;
    }
    let network = halving();
    let (x, start) = (harness::fill(&network.tensors()[0], 1, 1.0), [0.25; 12]);
    let inputs = |n: f64, small: f64, bound: f64| {
        let x: Vec<f64> = x.iter().cycle().take(60).map(|of| of + bound / 8.0).collect();
        let scalars = [("n", n), ("zero", 0.0), ("one", 1.0), ("bound", bound), ("small", small)];
        let mut named: Vec<(&str, &[f64])> = vec![("x", &x), ("start", &start), ("half", &[0.5])];
        named.extend(scalars.iter().map(|(name, of)| (*name, std::slice::from_ref(of))));
        looped::by_uid(&network, &named)
    };
    let all = [
        inputs(3.0, 2.0, 1.0),
        inputs(0.0, 2.0, 1.0),
        inputs(5.0, 7.0, 3.0),
        inputs(-4.0, 0.0, 0.0),
        inputs(1.0, 9.0, 0.0),
    ];
    for plan in [kiln.build_loops(&network), kiln.build_launched_loops(&network)] {
        replay(kiln, &network, plan.unwrap(), &all, "halving");
    }
    // A loop that is longer than its output: memory is unharmed, and it is told.
    let plan = kiln.build_launched_loops(&network).unwrap();
    let bound = Bound::of(kiln, plan, &inputs(6.0, 0.0, 0.0));
    let stream = kiln.stream();
    let text = "loop `outer`: element 5 of the iterator over `x` is needed, its extent is 5";
    let error = bound.plan.execute(&stream, &bound.pack).unwrap_err();
    assert_eq!(error.to_string(), text);
    // What the inner loop needs of elements a replay does not say.
    let text = "loop `outer` makes 6 trips, `all` has a length of 5";
    let error = bound.plan.check_replay(&stream, &bound.pack).unwrap_err();
    assert_eq!(error.to_string(), text);
}

#[test]
fn so_they_do_on_the_simulated_driver() {
    harness::passes_on_simulated_driver("loops_graphs::replays_make_the_trips_that_numbers_say");
}

/// Random networks, captured with the numbers of one and replayed with those of others.
#[test]
fn replays_of_random_networks() {
    let kiln = harness::kiln();
    if !has_graphs(kiln) {
        return;
    }
    for seed in 1..=16 {
        let (network, inputs) = network_of(seed);
        let network = network.on_device();
        let with = |counts: [f64; 3]| {
            let mut inputs = inputs.clone();
            for (name, count) in ["n0", "n1", "n2"].into_iter().zip(counts) {
                if let Some(of) = network.inputs().find(|of| of.name == name) {
                    inputs.insert(of.uid, vec![count]);
                }
            }
            inputs
        };
        let all = [inputs.clone(), with([2.0, 1.0, 3.0]), with([0.0, 4.0, 1.0])];
        let plan = match seed % 2 {
            0 => kiln.build_loops(&network),
            _ => kiln.build_launched_loops(&network),
        };
        replay(kiln, &network, plan.unwrap(), &all, &format!("seed {seed}"));
    }
}

#[test]
fn replays_of_random_networks_on_the_simulated_driver() {
    harness::passes_on_simulated_driver("loops_graphs::replays_of_random_networks");
}

/// A network whose numbers the host needs says so when its stream is captured.
#[test]
fn what_the_host_needs_is_not_captured() {
    let kiln = harness::kiln();
    if !has_graphs(kiln) {
        return;
    }
    let mut net = Net::default();
    let (n, start) = (net.count("n"), net.f32("start", &[4]));
    let of = net.counted("loop", n);
    let state = net.recurrence(of, start);
    let next = net.op(Mode::Neg, &[state]);
    net.next(state, next);
    let last = net.last(of, state);
    net.output(last, "last", DType::F32);
    let network = net.build();
    let inputs = looped::by_uid(&network, &[("n", &[2.0]), ("start", &[1.0, 2.0, 3.0, 4.0])]);
    let bound = Bound::of(kiln, kiln.build_launched_loops(&network).unwrap(), &inputs);
    let others = CudaContext::new(0).unwrap().new_stream().unwrap();
    // SAFETY: `others` outlives it.
    let stream = unsafe { kiln.device().external_stream(others.cu_stream() as u64) };
    others.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let error = bound.plan.execute(&stream, &bound.pack).unwrap_err();
    drop(others.end_capture(sys::CUgraphInstantiate_flags(0)));
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(error.to_string().contains("the host needs `n`"), "{error}");
}

#[test]
fn so_it_says_on_the_simulated_driver() {
    harness::passes_on_simulated_driver("loops_graphs::what_the_host_needs_is_not_captured");
}
