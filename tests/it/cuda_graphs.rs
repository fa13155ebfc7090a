//! Plans that a CUDA graph captures and another library replays: what they compute, and what is
//! said of a kernel that faults in a replay.

#![expect(unsafe_code, reason = "the stream that is captured is another library's")]

use std::process::Command;

use cudarc::driver::{CudaContext, sys};
use kiln::device::Buffer;
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, Reduction, ReductionOp, Signal};
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::rnn::{Extent, Network, Optional, Rnn, Role};
use kiln::{DType, OperationGraph};

use crate::harness::{self, Layout, Values};

/// A GEMM, and a reduction of what it reads: two kernels.
pub fn graph() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[48, 40], DType::F32);
    let b = graph.input("b", &[40, 32], DType::F32);
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.output(c, "c", DType::F32);
    let most = graph.reduction(Reduction::new(ReductionOp::Max), a, &[48, 1]).unwrap();
    graph.output(most, "most", DType::F32);
    graph.build().unwrap()
}

fn inputs(graph: &OperationGraph, seed: u64) -> Values {
    graph.inputs().map(|of| (of.uid, harness::fill(of, seed, 1.0))).collect()
}

#[test]
fn a_replay_computes_what_inputs_hold_then() {
    let kiln = harness::kiln();
    if kiln.device().kind() != "cuda" {
        eprintln!("skipped: no CUDA graphs without a CUDA driver");
        return;
    }
    let graph = graph();
    let plan = kiln.plan(&graph).unwrap();
    let first = inputs(&graph, 3);
    let bound = harness::bind(kiln, &graph, &first).unwrap();
    let workspace = kiln.device().alloc(plan.workspace_bytes()).unwrap();
    let pack = bound.pack.clone().with_workspace(&workspace);
    let others = CudaContext::new(0).unwrap().new_stream().unwrap();
    others.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    // SAFETY: `others` outlives it.
    let stream = unsafe { kiln.device().external_stream(others.cu_stream() as u64) };
    plan.execute(&stream, &pack).unwrap();
    let replayed = others.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    for seed in [3, 8] {
        let inputs = inputs(&graph, seed);
        for tensor in graph.inputs() {
            let bytes = Layout::of(tensor).encode(tensor, &inputs[&tensor.uid]);
            bound.buffers[&tensor.uid].write(0, &bytes).unwrap();
        }
        let launched = replayed.launch();
        stream.synchronize().unwrap();
        launched.unwrap();
        let actual = bound.outputs(&graph).unwrap();
        harness::compare(&graph, &inputs, &actual, &format!("a replay, seed {seed}"));
    }
}

/// Memory of a role of a network in f32.
fn filled(network: &Network, role: Role) -> Buffer {
    let count = network.bytes(role) as usize / 4;
    let values = (0..count).flat_map(|at| ((at % 13) as f32 / 16.0 - 0.4).to_ne_bytes());
    harness::kiln().device().upload(&values.collect::<Vec<u8>>()).unwrap()
}

/// A pack with a workspace and these roles.
fn pack(network: &Network, built: &PersistentRnn, with: Optional, roles: &[Role]) -> RnnPack {
    let space = built.temp_space(network.extent.rows, with).unwrap();
    let workspace = harness::kiln().device().alloc(space.workspace_bytes).unwrap();
    let pack = RnnPack::new().with_workspace(&workspace);
    roles.iter().fold(pack, |pack, role| pack.with(*role, &filled(network, *role)))
}

/// Each replay of a step goes on from the state that the one before left in place.
#[test]
fn a_replay_updates_states_in_place() {
    let kiln = harness::kiln();
    if kiln.device().kind() != "cuda" {
        eprintln!("skipped: no CUDA graphs without a CUDA driver");
        return;
    }
    let rnn = Rnn::lstm(8, 16);
    let (steps, batch) = (2, 3);
    let mut built = kiln.build_rnn_dynamic(&rnn, batch).unwrap();
    let with = Optional {
        h_initial: true,
        h_final: true,
        states_initial: true,
        states_final: true,
        ..Optional::default()
    };
    let device = kiln.device();
    let network = rnn.network(Extent { batch, rows: steps * batch }, with).unwrap();
    let pack = pack(&network, &built, with, &[Role::Input, Role::Weights, Role::Output]);
    let states = [[Role::HInitial, Role::HFinal], [Role::StatesInitial, Role::StatesFinal]];
    let started = |pack: &RnnPack| {
        let buffers = states.map(|[first, _]| filled(&network, first));
        let both = std::iter::zip(states, &buffers);
        let pack = both.fold(pack.clone(), |pack, ([first, last], buffer)| {
            pack.with(first, buffer).with(last, buffer)
        });
        (pack, buffers)
    };
    let [(called, expected), (captured, replayed)] = [started(&pack), started(&pack)];
    let others = CudaContext::new(0).unwrap().new_stream().unwrap();
    // SAFETY: `others` outlives it.
    let stream = unsafe { device.external_stream(others.cu_stream() as u64) };
    for _ in 0..3 {
        built.forward(&stream, steps, &called).unwrap();
    }
    stream.synchronize().unwrap();
    others.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    built.forward(&stream, steps, &captured).unwrap();
    let graph = others.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    for _ in 0..3 {
        graph.launch().unwrap();
    }
    stream.synchronize().unwrap();
    for (replayed, expected) in std::iter::zip(&replayed, &expected) {
        assert_eq!(replayed.to_vec().unwrap(), expected.to_vec().unwrap());
    }
}

#[test]
fn so_it_does_on_the_simulated_driver() {
    harness::passes_on_simulated_driver("cuda_graphs::a_replay_updates_states_in_place");
}

/// A capture has the layers of a network side by side, and each replay computes the same.
#[test]
fn a_replay_runs_layers_side_by_side() {
    let kiln = harness::kiln();
    if kiln.device().kind() != "cuda" {
        eprintln!("skipped: no CUDA graphs without a CUDA driver");
        return;
    }
    let rnn = Rnn::lstm(8, 16).layers(3);
    let (steps, batch) = (56, 2);
    let with = Optional::default();
    let mut built = kiln.build_rnn_dynamic(&rnn, batch).unwrap();
    built.set_chunk_steps(Some(16));
    let device = kiln.device();
    let network = rnn.network(Extent { batch, rows: steps * batch }, with).unwrap();
    let pack = pack(&network, &built, with, &[Role::Input, Role::Weights]);
    let [called, replayed] = [0, 1].map(|_| filled(&network, Role::Output));
    let others = CudaContext::new(0).unwrap().new_stream().unwrap();
    // SAFETY: `others` outlives it.
    let stream = unsafe { device.external_stream(others.cu_stream() as u64) };
    assert_eq!(built.chunk_steps(steps, with).unwrap(), Some(16));
    others.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    built.forward(&stream, steps, &pack.clone().with(Role::Output, &replayed)).unwrap();
    let graph = others.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    // Lanes serve calls outside of the graph, too.
    built.forward(&stream, steps, &pack.clone().with(Role::Output, &called)).unwrap();
    stream.synchronize().unwrap();
    let expected = called.to_vec().unwrap();
    for _ in 0..2 {
        replayed.write(0, &vec![0; expected.len()]).unwrap();
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        assert!(replayed.to_vec().unwrap() == expected);
    }
    built.set_chunk_steps(Some(steps));
    built.forward(&stream, steps, &pack.with(Role::Output, &called)).unwrap();
    stream.synchronize().unwrap();
    assert!(called.to_vec().unwrap() == expected);
}

#[test]
fn so_it_does_with_layers_on_the_simulated_driver() {
    harness::passes_on_simulated_driver("cuda_graphs::a_replay_runs_layers_side_by_side");
}

/// A wait in a CUDA graph has the value and the flag of its capture, at every replay.
#[test]
fn a_replay_waits_for_a_signal() {
    let kiln = harness::kiln();
    if kiln.device().kind() != "cuda" {
        eprintln!("skipped: no CUDA graphs without a CUDA driver");
        return;
    }
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[300], DType::F32);
    let flag = graph.input("flag", &[1], DType::I32);
    let x = graph.signal(Signal::wait(5).timeout_ms(20), flag, x).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Abs), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let inputs = kiln::plan::random_values(&graph, 1).unwrap();
    let plan = kiln.plan(&graph).unwrap();
    let bound = harness::bind(kiln, &graph, &inputs).unwrap();
    let others = CudaContext::new(0).unwrap().new_stream().unwrap();
    others.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    // SAFETY: `others` outlives it.
    let stream = unsafe { kiln.device().external_stream(others.cu_stream() as u64) };
    plan.execute(&stream, &bound.pack).unwrap();
    let replayed = others.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    let own = graph.tensor_named("flag").unwrap();
    for flag in [5.0, 4.0, 5.0, -5.0] {
        bound.buffers[&own.uid].write(0, &Layout::of(own).encode(own, &[flag])).unwrap();
        replayed.launch().unwrap();
        let said = stream.synchronize().map_err(|error| error.to_string());
        let vain = format!(
            "wait for flag `flag` (uid {}) to be 5 ended after 20 ms: it is {flag}",
            own.uid
        );
        assert_eq!(said, if flag == 5.0 { Ok(()) } else { Err(vain) });
        let actual = bound.outputs(&graph).unwrap();
        harness::compare(&graph, &inputs, &actual, "a replay");
    }
}

#[test]
fn a_fault_in_a_replay_names_the_kernels_of_the_graph() {
    let Some(driver) = harness::simulated_driver() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cuda_graphs::a_replay_computes_what_inputs_hold_then"]);
    command.env("LD_PRELOAD", driver).env("CUDA_FORCE_PTX_JIT", "1").env("KILN_DEVICE", "cuda:0");
    let output = command.env("KILN_SIM_FAULT", "reduction").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // Of what Kiln launched itself, nothing was running.
    let said = "the device is lost: CUDA_ERROR_ILLEGAL_ADDRESS in a replay of the CUDA graph of ";
    let (_, kernels) = text.split_once(said).unwrap_or_else(|| panic!("{text}"));
    let line = kernels.lines().next().unwrap();
    let kernels: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    let [gemm, reduction] = kernels[..] else { panic!("{line}") };
    assert!(gemm.contains("gemm") && reduction.contains("reduction"), "{line}");
}
