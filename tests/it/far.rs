//! Tensors that reach beyond 2^31 elements: small ones whose outermost elements are far apart run
//! on every engine and give the reference, large ones are planned by every heuristic and compile
//! for every class of target.

use std::sync::{Mutex, PoisonError};

use kiln::codegen::KernelSource;
use kiln::device::Buffer;
use kiln::engine::{self, Mode, Part};
use kiln::expr::Pointwise;
use kiln::graph::{Concatenate, Op, Rng, Slice, Transpose};
use kiln::{Config, DType, Kiln, OperationGraph, TensorDesc, VariantPack, expr};
use serde_json::json;

use crate::convolution;
use crate::convolution_data;
use crate::harness::{self, Values};
use crate::resample;

/// Elements that a tensor reaches over at least.
const REACH: i64 = (1 << 31) + 1;

/// Bytes that a tensor has at most: the device has 8 GiB.
const BYTES_MAX: u64 = 7 << 30;

/// Elements that are neighbours of their alignment still.
const STEP: i64 = 64;

/// One target of every class: sm_75, 80, 89, 90a, 100a, 120.
const TARGETS: [&str; 6] = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];

/// The graph with each of the tensors that it stores in turn as far apart along the outermost
/// dimension, as memory for all at once would be more than the device has; those of bytes that are
/// more than its memory are left out.
fn far(graph: &OperationGraph) -> Vec<OperationGraph> {
    let apart = |tensor: &TensorDesc| {
        let stored = !tensor.is_virtual && !tensor.by_value;
        let outermost = tensor.dims.iter().position(|dim| *dim > 1)?;
        let least = REACH / (tensor.dims[outermost] - 1) + 1;
        let mut strides = tensor.strides.clone();
        strides[outermost] = (least / STEP + 1) * STEP;
        let tensor = TensorDesc { strides, ..tensor.clone() };
        (stored && tensor.span_bytes().unwrap() < BYTES_MAX).then_some(tensor)
    };
    let graphs = graph.tensors().iter().filter_map(apart).map(|apart| {
        let tensors = graph.tensors().iter();
        let tensors =
            tensors.map(|own| if own.uid == apart.uid { apart.clone() } else { own.clone() });
        OperationGraph::new(tensors.collect(), graph.operations().to_vec()).unwrap()
    });
    let graphs: Vec<OperationGraph> = graphs.collect();
    assert!(!graphs.is_empty(), "{graph}");
    graphs
}

/// A buffer that has a tensor's elements, and was written nowhere else.
fn sparse(kiln: &Kiln, tensor: &TensorDesc, values: Option<&Vec<f64>>) -> Buffer {
    let buffer = kiln.device().alloc(tensor.span_bytes().unwrap()).unwrap();
    let bytes = tensor.dtype.bytes();
    let mut element = vec![0; bytes];
    for (value, at) in values.into_iter().flatten().zip(tensor.offsets()) {
        tensor.dtype.write(*value, &mut element);
        buffer.write((at * bytes) as u64, &element).unwrap();
    }
    buffer
}

/// Runs a graph on every one of these engines that takes it, which these do at least; one test at a
/// time, for the sake of the device's memory.
fn check_engines(
    graph: &OperationGraph,
    inputs: &Values,
    engines: &[&'static str],
    least: &[&str],
) {
    static MEMORY: Mutex<()> = Mutex::new(());
    let _only = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let kiln = harness::kiln();
    let mut ran = Vec::new();
    for name in engines {
        let target = kiln.device().target();
        let Ok(supported) = engine::supported(name, graph.canonical(), target) else { continue };
        let plan = kiln.plan_with(graph, &supported.heuristic()).unwrap();
        let tensors = graph.inputs().chain(graph.outputs());
        let buffers: Vec<(&TensorDesc, Buffer)> = tensors
            .filter(|tensor| !tensor.by_value)
            .map(|tensor| (tensor, sparse(kiln, tensor, inputs.get(&tensor.uid))))
            .collect();
        let mut pack = VariantPack::new();
        for (tensor, buffer) in &buffers {
            pack = pack.with(tensor.uid, buffer);
        }
        for tensor in graph.inputs().filter(|tensor| tensor.by_value) {
            pack.set_value(tensor.uid, inputs[&tensor.uid][0]);
        }
        let workspace = kiln.device().alloc(plan.workspace_bytes()).unwrap();
        let stream = kiln.stream();
        plan.execute(&stream, &pack.with_workspace(&workspace)).unwrap();
        stream.synchronize().unwrap();
        let read = |(tensor, buffer): &(&TensorDesc, Buffer)| {
            let bytes = tensor.dtype.bytes();
            let mut element = vec![0; bytes];
            let values = tensor.offsets().map(|at| {
                buffer.read((at * bytes) as u64, &mut element).unwrap();
                tensor.dtype.read(&element)
            });
            (tensor.uid, values.collect())
        };
        let outputs = buffers.iter().filter(|(tensor, _)| graph.outputs().any(|of| of == *tensor));
        let actual: Values = outputs.map(read).collect();
        harness::compare(graph, inputs, &actual, name);
        ran.push(*name);
    }
    assert!(least.iter().all(|name| ran.contains(name)), "{ran:?} of {engines:?} ran {graph}");
}

const CONVOLUTIONS: [&str; 5] =
    ["convolution_direct", "convolution_depthwise", "gemm_simt", "gemm_mma", "gemm_wgmma"];

#[test]
fn convolutions_reach_far() {
    for pass in ["forward", "backward_data", "backward_filter"] {
        let graphs = [
            convolution::windowed(pass, "nothing"),
            convolution::scattered(pass),
            convolution::batched(pass),
        ];
        for graph in graphs {
            for graph in harness::sampled(far(&graph), 3) {
                let inputs = convolution_data::values(&graph);
                let least = ["convolution_direct", "gemm_simt", "gemm_mma"];
                check_engines(&graph, &inputs, &CONVOLUTIONS, &least);
            }
        }
        // The image, the filter or the response; TMA does not store rows that are not even.
        for graph in harness::sampled(far(&convolution::pixels(pass, 7)), 3) {
            let inputs = convolution_data::values(&graph);
            let stored = graph.outputs().next().unwrap();
            let packed = TensorDesc::packed(0, "", &stored.dims, stored.dtype);
            let is_far = stored.span_bytes().unwrap() > 2 * packed.span_bytes().unwrap();
            let least = if is_far { "gemm_mma" } else { "gemm_wgmma" };
            check_engines(&graph, &inputs, &["gemm_mma", "gemm_wgmma"], &[least]);
        }
    }
    for (graph, least) in [
        (convolution::depthwise(), "convolution_depthwise"),
        (convolution::depthwise_gradient(), "convolution_depthwise"),
        (convolution::phases("bias_relu"), "gemm_mma"),
        (convolution::norm_gradient(), "gemm_mma"),
    ] {
        for graph in harness::sampled(far(&graph), 3) {
            let inputs = convolution_data::values(&graph);
            check_engines(&graph, &inputs, &CONVOLUTIONS, &[least]);
        }
    }
}

/// The graph with f16 for f32.
fn of_f16(graph: &OperationGraph) -> OperationGraph {
    let narrow = |tensor: &TensorDesc| match tensor.dtype {
        DType::F32 => TensorDesc { dtype: DType::F16, ..tensor.clone() },
        _ => tensor.clone(),
    };
    let tensors = graph.tensors().iter().map(narrow).collect();
    OperationGraph::new(tensors, graph.operations().to_vec()).unwrap()
}

#[test]
fn resamplings_reach_far() {
    for graph in [
        resample::winners(),
        resample::averages(),
        resample::scaled(),
        resample::found_gradient(),
        of_f16(&resample::scaled_gradient()),
        of_f16(&resample::read_gradient()),
    ] {
        for graph in far(&graph) {
            check_engines(
                &graph,
                &resample::inputs(&graph),
                &["resample_direct"],
                &["resample_direct"],
            );
        }
    }
}

/// `y`, an operation of inputs of these dimensions.
fn one(op: Op, inputs: &[&[i64]], dtype: DType) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let named = |(at, dims): (usize, &&[i64])| graph.input(&format!("x{at}"), dims, dtype);
    let inputs: Vec<i64> = inputs.iter().enumerate().map(named).collect();
    let y = graph.operation(op, &inputs).unwrap()[0];
    graph.output(y, "y", dtype);
    graph.build().unwrap()
}

/// A slice, a concatenation and a transpose of these dimensions.
fn moves([outer, inner]: [i64; 2], dtype: DType) -> [OperationGraph; 3] {
    let slice = Slice { begin: vec![0, 1], stride: vec![1, 2], end: vec![outer, inner] };
    let dims: &[i64] = &[outer, inner];
    [
        one(Op::Slice(slice), &[dims], dtype),
        one(Op::Concatenate(Concatenate::new(1, 2)), &[dims, dims], dtype),
        one(Op::Transpose(Transpose { permutation: vec![1, 0] }), &[dims], dtype),
    ]
}

/// Random numbers, alone and where elements are kept by them.
fn random(dims: &[i64], dtype: DType) -> [OperationGraph; 2] {
    [Rng::normal(0.0, 1.0), Rng::bernoulli(0.75)].map(|op| {
        let mut graph = OperationGraph::builder();
        let offset = graph.scalar("offset", dims.len(), DType::I64);
        let mut y = graph.rng(op, &[offset], dims).unwrap();
        if op == Rng::bernoulli(0.75) {
            let x = graph.input("x", dims, dtype);
            y = graph.pointwise(Pointwise::new(expr::Mode::Mul), &[x, y]).unwrap();
        }
        graph.output(y, "y", dtype);
        graph.build().unwrap()
    })
}

#[test]
fn views_and_random_numbers_reach_far() {
    let moved = moves([3, 40], DType::F16);
    for graph in moved.iter().chain(&random(&[3, 40], DType::F16)).flat_map(far) {
        let inputs: Values = graph
            .inputs()
            .map(|tensor| match tensor.by_value {
                true => (tensor.uid, vec![4_294_967_299.0]),
                false => (tensor.uid, harness::fill(tensor, 5, 2.0)),
            })
            .collect();
        check_engines(&graph, &inputs, &["pointwise", "pointwise_general"], &[]);
    }
}

/// Convolutions of large tensors, in groups of so many channels.
fn large_convolutions([groups, c]: [i64; 2], lay: &str) -> Vec<OperationGraph> {
    let of = |pass| {
        convolution::graph(json!({
            "pass": pass, "dtype": "bf16", "n": 40, "groups": groups, "c": c, "k": c,
            "image": [1024, 1024], "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": lay,
        }))
    };
    ["forward", "backward_data", "backward_filter"].map(of).to_vec()
}

/// Large tensors of convolutions, resamplings, views and random numbers.
fn large() -> Vec<OperationGraph> {
    let mut all = large_convolutions([1, 64], "channels_last");
    all.extend(large_convolutions([64, 1], "channels_last").into_iter().take(2));
    let image = [1024, 1024];
    all.push(convolution::graph(json!({
        "pass": "backward_data", "dtype": "f16", "n": 40, "c": 64, "k": 64, "image": image,
        "filter": [3, 3], "strides": [2, 2], "pre": [1, 1], "post": [1, 1],
        "lay": "channels_last",
    })));
    for mode in ["maxpool", "avgpool_exclude_padding", "bilinear"] {
        for backward in [false, true] {
            let mut with = json!({
                "backward": backward, "mode": mode, "dtype": "f16", "n": 40, "c": 64,
                "image": image, "window": [2, 2], "strides": [1, 1], "lay": "channels_last",
            });
            if mode == "bilinear" {
                with.as_object_mut().unwrap().remove("window");
            }
            all.push(resample::graph(with));
        }
    }
    all.extend(moves([1 << 16, (1 << 15) + 8], DType::F16));
    all.extend(random(&[(1 << 16) + 1, 1 << 15], DType::F32));
    all
}

/// What a plan by this heuristic for this target has of a graph, whose offsets have 64 bits, but
/// for tiles that TMA finds by coordinates of 32: the bytes of registers that its kernels spill.
fn spilled(name: &str, mode: Mode, graph: &OperationGraph) -> u32 {
    let device = Some(format!("null:{name}").parse().unwrap());
    let config = Config { device, heuristic: Some(mode), ..harness::config() };
    let kiln = Kiln::open(config).unwrap();
    let plan = kiln.plan(graph).unwrap_or_else(|error| panic!("{name} by {mode}: {error}"));
    let is_large = |part: &&Part| {
        part.graph.tensors().iter().any(|of| of.elements().is_some_and(|count| count >= 1 << 31))
    };
    // A filter is copied by itself.
    for part in plan.parts().into_iter().filter(is_large) {
        for KernelSource { text, .. } in kiln.sources(&part.graph, &part.config).unwrap() {
            let wide = ["index_t = long long", "index_t = unsigned long long", "tma_load"];
            assert!(wide.iter().any(|wide| text.contains(wide)), "{name} by {mode}:\n{text}");
        }
    }
    plan.kernels().iter().map(|kernel| kernel.report().resources.spill_bytes).sum()
}

/// Targets and heuristics with graphs, every so many of them.
fn plans(graphs: &[OperationGraph], step: usize) -> Vec<(&'static str, Mode, &OperationGraph)> {
    let modes = [Mode::A, Mode::B, Mode::Fallback];
    let by =
        |graph| modes.map(|mode| TARGETS.map(|name| (name, mode, graph))).into_iter().flatten();
    harness::sampled(graphs.iter().flat_map(by).collect(), step)
}

#[test]
fn more_than_2_to_the_31_elements_compile_without_spills() {
    for (name, mode, graph) in plans(&large(), 11) {
        assert_eq!(spilled(name, mode, graph), 0, "{name} by {mode}: {graph}");
    }
}

/// Elements that GEMMs find one by one, with where each is in 64 bits, leave too few registers on
/// some targets: of channels in front of pixels 60 bytes are spilled on sm_90a, of gradients of
/// filters of one channel 12.
#[test]
fn more_than_2_to_the_31_elements_that_are_found_one_by_one_compile() {
    let mut graphs = large_convolutions([1, 64], "channels_first");
    graphs.extend(large_convolutions([64, 1], "channels_last").pop());
    for (name, mode, graph) in plans(&graphs, 7) {
        spilled(name, mode, graph);
    }
}
