//! Resamplings: what is refused with which words, documents that say them, what a kernel reads, and
//! graphs for tests of all kernels.

use kiln::expr::Math;
use kiln::graph::{Fraction, Op, Resample, ResampleMode, ResamplePass, Sampling};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc, reference};
use serde_json::{Value, json};

use crate::cases::{File, Parameters};
use crate::harness::{self, Values};

pub fn graph(with: Value) -> OperationGraph {
    let with: Parameters = serde_json::from_value(with).unwrap();
    File::read("resample").graph("resample", &with)
}

/// Channels last, with the winners' index, behind an operand that is computed.
pub fn winners() -> OperationGraph {
    graph(json!({
        "mode": "maxpool", "dtype": "f16", "n": 2, "c": 6, "image": [7, 6], "window": [3, 3],
        "strides": [2, 2], "pre": [1, 1], "post": [1, 1], "padding": "negative_infinity",
        "index": "i8", "propagate_nan": true, "lay": "channels_last", "fused": "scale_bias_relu",
    }))
}

/// Columns, with what is left of windows at the edges of the image.
pub fn averages() -> OperationGraph {
    graph(json!({
        "mode": "avgpool_exclude_padding", "dtype": "bf16", "n": 2, "c": 3, "image": [6, 9],
        "window": [3, 2], "strides": [2, 1], "pre": [1, 1], "post": [1, 0], "fused": "rich",
    }))
}

/// Fractions of an element, with the edge of the image around it.
pub fn scaled() -> OperationGraph {
    graph(json!({
        "mode": "bilinear", "dtype": "f16", "n": 1, "c": 6, "image": [5, 4], "padding": "edge",
        "strides": ["1/2", "2/3"], "pre": ["1/4", "1/6"], "post": ["5/4", "7/6"],
        "lay": "channels_last",
    }))
}

/// The gradient of fractions of an element.
pub fn scaled_gradient() -> OperationGraph {
    graph(json!({
        "backward": true, "mode": "bilinear", "dtype": "f32", "n": 2, "c": 3, "image": [5, 6],
        "padding": "edge", "strides": ["1/2", "2/3"], "pre": ["1/4", "1/6"],
        "post": ["5/4", "7/6"],
    }))
}

/// The gradient of winners that are found again.
pub fn found_gradient() -> OperationGraph {
    graph(json!({
        "backward": true, "mode": "maxpool", "dtype": "bf16", "n": 2, "c": 5, "image": [7, 6],
        "window": [3, 2], "strides": [2, 1], "pre": [1, 1], "post": [1, 0],
        "lay": "channels_last",
    }))
}

/// The gradient of winners that are read, some of them in the edge around the image.
pub fn read_gradient() -> OperationGraph {
    graph(json!({
        "backward": true, "mode": "maxpool", "dtype": "f32", "n": 2, "c": 3, "image": [7, 6],
        "window": [3, 2], "strides": [2, 1], "pre": [1, 1], "post": [1, 0], "padding": "edge",
        "index": "i32",
    }))
}

/// Values of the operands; winners within a window of six taps, and a few that are not.
pub fn inputs(graph: &OperationGraph) -> Values {
    let values = |tensor: &TensorDesc| match tensor.name.as_str() {
        "winners" => {
            let count = tensor.elements().unwrap();
            (0..count).map(|at| ((at * 7919 + 3) % 8 - 1) as f64).collect()
        }
        _ => harness::fill(tensor, 5, 2.0),
    };
    graph.inputs().map(|tensor| (tensor.uid, values(tensor))).collect()
}

/// A problem of one resampling of a 2 x 3 x 5 x 6 image, with changes to its keys and to the
/// dimensions of its tensors.
fn problem(keys: &Value, tensors: &[(&str, &str, &[i64])]) -> String {
    let mut operation = json!({
        "resample_forward": "maxpool", "window_dims": [3, 2], "strides": [2, 2], "x": "x", "y": "y",
    });
    for (key, value) in keys.as_object().unwrap() {
        match value.is_null() {
            true => drop(operation.as_object_mut().unwrap().remove(key)),
            false => operation[key] = value.clone(),
        }
    }
    let mut all = vec![("x", "f32", &[2, 3, 5, 6][..]), ("y", "f32", &[2, 3, 2, 3][..])];
    for tensor in tensors {
        all.retain(|(name, ..)| name != &tensor.0);
        all.push(*tensor);
    }
    let used = |name: &str| operation.as_object().unwrap().values().any(|value| value == name);
    let tensors: Vec<Value> = all
        .into_iter()
        .filter(|(name, ..)| used(name))
        .map(|(name, dtype, dims)| json!({"name": name, "dtype": dtype, "dims": dims}))
        .collect();
    json!({"graph": {"tensors": tensors, "operations": [operation]}}).to_string()
}

#[track_caller]
fn refused_as(kind: ErrorKind, keys: Value, tensors: &[(&str, &str, &[i64])], words: &str) {
    let error = OperationGraph::from_json(&problem(&keys, tensors)).expect_err(words);
    assert_eq!((error.to_string().as_str(), error.kind()), (words, kind));
}

#[track_caller]
fn refused(keys: Value, tensors: &[(&str, &str, &[i64])], words: &str) {
    refused_as(ErrorKind::BadParam, keys, tensors, words);
}

#[track_caller]
fn unsupported(keys: Value, words: &str) {
    refused_as(ErrorKind::NotSupported, keys, &[], words);
}

#[test]
fn what_is_no_resampling_is_said_with_its_numbers() {
    OperationGraph::from_json(&problem(&json!({}), &[])).unwrap();
    refused(
        json!({}),
        &[("y", "f32", &[2, 3, 2, 2])],
        "resample_forward: `y` should be [2, 3, 2, 3]: `x` is [2, 3, 5, 6], `y` is [2, 3, 2, 2]",
    );
    refused(
        json!({"window_dims": [3], "strides": [2]}),
        &[],
        "resample_forward: `x` is [2, 3, 5, 6], expected 3 dimensions for 1 spatial ones",
    );
    refused(
        json!({"window_dims": [8, 2]}),
        &[],
        "resample_forward: windows of 8 do not fit into 5 elements with paddings of 0 and 0",
    );
    refused(
        json!({"index": "i"}),
        &[("i", "i8", &[2, 3, 2, 2])],
        "resample_forward: index `i` is [2, 3, 2, 2], `y` is [2, 3, 2, 3]",
    );
    refused(
        json!({"index": "i"}),
        &[("i", "f32", &[2, 3, 2, 3])],
        "resample_forward: index `i` is f32, expected i8, i32 or i64",
    );
    refused(
        json!({"index": "i", "window_dims": [5, 26], "post_paddings": [0, 24]}),
        &[("i", "i8", &[2, 3, 1, 3]), ("y", "f32", &[2, 3, 1, 3])],
        "resample_forward: index `i` is i8, offsets in a window of [5, 26] go to 129",
    );
    refused(
        json!({"beta": 1.0, "y_before": "b"}),
        &[("b", "f32", &[2, 3, 1, 3])],
        "resample_forward: `b` is [2, 3, 1, 3], what it is added to, `y`, is [2, 3, 2, 3]",
    );
    refused(
        json!({"padding_mode": "edge", "pre_paddings": [2, 0], "post_paddings": [1, 0]}),
        &[("x", "f32", &[2, 3, 0, 6]), ("y", "f32", &[2, 3, 1, 3])],
        "resample_forward: `x` is [2, 3, 0, 6], which has no edge",
    );
    let backward = json!({
        "resample_forward": null, "resample_backward": "maxpool", "y": null, "dy": "dy", "dx": "dx",
    });
    refused(
        backward.clone(),
        &[("dy", "f32", &[2, 3, 2, 3]), ("dx", "f32", &[2, 3, 5, 7]), ("x", "f32", &[2, 3, 5, 6])],
        "resample_backward: `x` is [2, 3, 5, 6], its gradient `dx` is [2, 3, 5, 7]",
    );
    refused(
        backward,
        &[("dy", "f32", &[2, 3, 2, 3]), ("dx", "f32", &[2, 3, 5, 8])],
        "resample_backward: `dy` should be [2, 3, 2, 4]: `dx` is [2, 3, 5, 8], `dy` is \
         [2, 3, 2, 3]",
    );
}

#[test]
fn attributes_are_checked() {
    refused(
        json!({"pre_paddings": [0, -1]}),
        &[],
        "resample_forward: pre_paddings is [0, -1], -1 is less than 0",
    );
    refused(
        json!({"window_dims": [0, 1]}),
        &[],
        "resample_forward: window_dims is [0, 1], 0 is not more than 0",
    );
    refused(
        json!({"strides": [1, "-1/2"]}),
        &[],
        "resample_forward: strides is [1, -1/2], -1/2 is not more than 0",
    );
    refused(
        json!({"strides": ["1/0", 1]}),
        &[],
        "resample_forward: key `strides` is [\"1/0\",1], expected a list of whole numbers and \
         fractions",
    );
    refused(json!({"window_dims": null}), &[], "resample_forward: key `window_dims` is missing");
    refused(
        json!({"alpha": -1e300}),
        &[],
        "resample_forward: alpha is -1e300, which is infinite in f32",
    );
    refused(json!({"gamma": 1}), &[], "resample_forward: unknown key `gamma`");
    refused(
        json!({"resample_forward": "avgpool"}),
        &[],
        "resample_forward: key `resample_forward` is `avgpool`, expected one of nearest, bilinear, \
         avgpool_include_padding, avgpool_exclude_padding, maxpool",
    );
    refused(
        json!({"padding_mode": "reflect"}),
        &[],
        "resample_forward: key `padding_mode` is `reflect`, expected one of zero, \
         negative_infinity, edge",
    );
    refused(
        json!({"math": "i32"}),
        &[],
        "resample_forward{maxpool, i32, window_dims=[3, 2], strides=[2, 2]}: `x` is f32, math i32 \
         accepts integers",
    );
    refused(
        json!({"math": "i32", "resample_forward": "avgpool_include_padding"}),
        &[("x", "i8", &[2, 3, 5, 6])],
        "resample_forward{avgpool_include_padding, i32, window_dims=[3, 2], strides=[2, 2]}: not \
         defined for math i32",
    );
    unsupported(json!({"strides": [2]}), "resample_forward: strides has 1 numbers, window_dims 2");
    unsupported(
        json!({"window_dims": [], "strides": []}),
        "resample_forward: 0 spatial dimensions, expected 1 to 6",
    );
    unsupported(
        json!({"resample_forward": "bilinear"}),
        "resample_forward: window_dims is [3, 2], the window of bilinear is 2",
    );
    unsupported(
        json!({"strides": ["3/2", 2]}),
        "resample_forward: strides is [3/2, 2], maxpool takes whole numbers",
    );
    unsupported(
        json!({"resample_forward": "nearest", "index": "y"}),
        "resample_forward: nearest has no index, which says what wins in maxpool",
    );
    unsupported(
        json!({"pre_paddings": [i64::MAX, 0]}),
        "resample_forward: 5 elements with paddings of 9223372036854775807 and 0, windows of 3 2 \
         apart: positions exceed 64 bits",
    );
}

#[test]
fn dimensions_follow_forward_alone() {
    let op = |pass| Resample::new(pass, ResampleMode::MaxPool, Sampling::of(&[2, 2]));
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[1, 4, 6, 7], DType::F32);
    let with_index = Resample { index: true, ..op(ResamplePass::Forward) };
    let results = graph.operation(Op::Resample(with_index), &[x]).unwrap();
    graph.output(results[0], "y", DType::F32);
    graph.output(results[1], "index", DType::I64);
    let built = graph.clone().build().unwrap();
    let dims = results.iter().map(|uid| built.tensor(*uid).unwrap().dims.clone());
    assert_eq!(dims.collect::<Vec<_>>(), [[1, 4, 3, 3], [1, 4, 3, 3]]);
    let error = graph.operation(Op::Resample(op(ResamplePass::Backward)), &[x, x]);
    let words = "resample_backward{maxpool, window_dims=[2, 2], strides=[2, 2]}: the dimensions of \
                 the result must be given";
    assert_eq!(error.expect_err("they are not determined").to_string(), words);
}

#[test]
fn documents_say_all_of_a_resampling() {
    let keys = json!({
        "resample_forward": "bilinear", "window_dims": [2, 2], "strides": ["4/6", 2],
        "pre_paddings": ["1/6", "-1/2"], "post_paddings": ["7/6", 0], "padding_mode": "edge",
        "math": "f64", "alpha": 0.5, "beta": -2.0, "y_before": "b",
    });
    let dims: [(&str, &str, &[i64]); 2] =
        [("y", "f32", &[2, 3, 7, 2]), ("b", "f32", &[2, 3, 7, 2])];
    let graph = OperationGraph::from_json(&problem(&keys, &dims)).unwrap();
    let text = graph.to_json();
    let again = OperationGraph::from_json(&text).unwrap();
    assert_eq!((&again, again.to_json()), (&graph, text));
    let shown = "resample_forward{bilinear, f64, window_dims=[2, 2], strides=[2/3, 2], \
                 pre_paddings=[1/6, -1/2], post_paddings=[7/6, 0], padding=edge, alpha=0.5, \
                 beta=-2}";
    assert_eq!(graph.operations()[0].op.to_string(), shown);
    let keys = json!({"index": "i", "propagate_nan": true, "padding_mode": "negative_infinity"});
    let dims: [(&str, &str, &[i64]); 1] = [("i", "i64", &[2, 3, 2, 3])];
    let graph = OperationGraph::from_json(&problem(&keys, &dims)).unwrap();
    let text = graph.to_json();
    assert_eq!(OperationGraph::from_json(&text).unwrap(), graph);
    assert!(text.contains("\"index\""), "{text}");
}

/// What a mode does not ask for does not tell its kernels apart.
#[test]
fn equal_resamplings_have_one_form() {
    let form = |op: Resample| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[1, 4, 6, 7], DType::F32);
        let y = graph.operation(Op::Resample(op), &[x]).unwrap()[0];
        graph.output(y, "y", DType::F32);
        graph.build().unwrap().digest()
    };
    let average = Resample::new(
        ResamplePass::Forward,
        ResampleMode::AveragePoolExcludePadding,
        Sampling::of(&[2, 2]),
    );
    let nan = kiln::expr::NanPropagation::Propagate;
    let padding = kiln::graph::PaddingMode::Edge;
    assert_eq!(form(average.clone()), form(Resample { nan, padding, ..average.clone() }));
    assert_eq!(form(average.clone()), form(Resample { math: Math::F32, ..average.clone() }));
    let greatest = Resample { mode: ResampleMode::MaxPool, ..average.clone() };
    assert_ne!(form(greatest.clone()), form(Resample { nan, ..greatest.clone() }));
    assert_ne!(form(greatest.clone()), form(Resample { padding, ..greatest }));
    let half = Fraction::new(2, 4).unwrap();
    assert_eq!(half, Fraction::new(1, 2).unwrap());
}

/// Windows that overlap read from memory once: 16 bytes an access, what neighbours share from L1.
/// A tap of a window is 8 channels of f16; stores are as wide.
#[test]
fn windows_read_what_they_must() {
    let (n, c, image) = (2, 64, 32_i64);
    for (window, stride, mode) in [(3, 2, "maxpool"), (2, 2, "avgpool_include_padding")] {
        let with = json!({
            "mode": mode, "dtype": "f16", "n": n, "c": c, "image": [image, image],
            "window": [window, window], "strides": [stride, stride], "lay": "channels_last",
        });
        let graph = graph(with);
        let config = "resample_direct{items=8, threads=128}".parse().unwrap();
        let counters = harness::count(&graph, Some(&config), &inputs(&graph));
        let outputs = n * c * (1 + (image - window) / stride).pow(2);
        let taps = outputs * window * window;
        // No tap is in the padding, none is read twice by a thread, and nothing else is read.
        assert_eq!(counters.total.global.bytes, 2 * (taps + outputs) as u64, "{mode}");
        // What the last windows do not reach stays where it is.
        let reached = window + (image - window) / stride * stride;
        let read = (2 * n * c * reached * reached) as u64;
        let (least, most) = (read, read + (2 * n * c * image * image) as u64 / 20);
        let dram = counters.dram_read_bytes;
        assert!((least..=most).contains(&dram), "{mode}: {dram}, not {least} to {most}");
        assert_eq!(harness::conflicts(&counters), 0, "{mode}");
    }
}

/// A layer of a network, which is only compiled.
pub fn layer(backward: bool, mode: &str, dtype: &str, lay: &str) -> OperationGraph {
    let (window, post) = if mode == "bilinear" { (2, 0) } else { (3, 1) };
    graph(json!({
        "backward": backward, "mode": mode, "dtype": dtype, "n": 32, "c": 64, "image": [112, 112],
        "window": [window, window], "strides": [2, 2], "pre": [post, post], "post": [post, post],
        "padding": "negative_infinity", "lay": lay,
    }))
}

/// The default settings of layers on every target.
#[test]
fn no_target_spills() {
    let mut graphs = vec![winners(), averages(), scaled(), scaled_gradient(), read_gradient()];
    for lay in ["channels_first", "channels_last"] {
        for mode in ["maxpool", "avgpool_exclude_padding", "bilinear"] {
            graphs.extend([false, true].map(|backward| layer(backward, mode, "f16", lay)));
        }
        graphs.push(layer(true, "maxpool", "f64", lay));
    }
    let targets = ["t4", "a100", "h100", "b200", "rtx5090"];
    let sources = harness::default_sources(&["resample_direct"], &targets, &graphs);
    harness::compile_without_spills(&harness::sampled(sources, 3));
}

/// Images of more elements than 32 bits count: kernels that are compiled and not run.
#[test]
fn large_images_have_offsets_of_64_bits() {
    for (backward, mode) in [(false, "maxpool"), (true, "avgpool_exclude_padding")] {
        for lay in ["channels_first", "channels_last"] {
            let large = graph(json!({
                "backward": backward, "mode": mode, "dtype": "f16", "n": 5000, "c": 64,
                "image": [112, 112], "window": [2, 2], "strides": [2, 2], "padding": "edge",
                "pre": [1, 0], "post": [1, 0], "lay": lay,
            }));
            let sources = harness::default_sources(&["resample_direct"], &["t4", "h100"], &[large]);
            let wide = |text: &str| text.contains("using coord_t = long long;");
            assert!(sources.iter().all(|(_, source)| wide(&source.text)), "{mode} {lay}");
            harness::assembled(&sources);
        }
    }
}

/// What `beta` scales may be the result's own memory: the thread that writes an element reads it.
#[test]
fn results_are_added_to_what_is_there() {
    for backward in [false, true] {
        for mode in ["maxpool", "avgpool_include_padding", "bilinear"] {
            let window = if mode == "bilinear" { json!(null) } else { json!([2, 2]) };
            let mut with = json!({
                "backward": backward, "mode": mode, "dtype": "f32", "n": 2, "c": 3,
                "image": [6, 7], "strides": [2, 1], "alpha": 0.5, "beta": 2.0,
            });
            if !window.is_null() {
                with["window"] = window;
            }
            harness::check_added_in_place(&graph(with), &["resample_direct"], 1);
        }
    }
}

/// A number of parts of an element as a number of elements.
type Rounding = fn(i64, i64) -> i64;

/// ONNX rounds positions to the nearest element in four ways: each is a padding, as positions are
/// multiples of one over the denominator of strides and paddings. Positions are counted in such.
#[test]
fn every_rounding_of_onnx_is_a_padding() {
    for (n, m) in (1..6_i64).flat_map(|n| (1..8_i64).map(move |m| (n, m))) {
        // Strides and what is in front, in so many parts of an element: half pixels, asymmetric,
        // aligned corners.
        let coordinates = [(2 * n, m - n, 2 * m), (2 * n, 0, 2 * m), (2 * n - 2, 0, 2 * m - 2)];
        for (stride, pre, parts) in coordinates {
            if stride == 0 || parts == 0 {
                continue;
            }
            let half = parts / 2;
            let roundings: [(i64, Rounding); 4] = [
                (pre + half, |x, parts| x.div_euclid(parts)),
                (pre - half + 1, |x, parts| -(-x).div_euclid(parts)),
                (pre, |x, parts| (2 * x + parts).div_euclid(2 * parts)),
                (pre + 1, |x, parts| -(-(2 * x - parts)).div_euclid(2 * parts)),
            ];
            for (moved, rounded) in roundings {
                let text = |number: i64| format!("{number}/{parts}");
                let post = (m - 1) * stride + parts - n * parts - moved;
                let graph = graph(json!({
                    "mode": "nearest", "dtype": "f32", "n": 1, "c": 1, "image": [n],
                    "padding": "edge", "strides": [text(stride)], "pre": [text(moved)],
                    "post": [text(post)],
                }));
                let (x, y) = (graph.inputs().next().unwrap(), graph.outputs().next().unwrap());
                let elements: Vec<f64> = (0..n).map(|at| at as f64).collect();
                let inputs = Values::from([(x.uid, elements)]);
                let actual = &reference::evaluate(&graph, &inputs).unwrap()[&y.uid].values;
                let nearest = |o: i64| rounded(o * stride - pre, parts).clamp(0, n - 1) as f64;
                let expected: Vec<f64> = (0..m).map(nearest).collect();
                assert_eq!(actual, &expected, "{n} to {m}: {graph}");
            }
        }
    }
}
