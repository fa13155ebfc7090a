//! Convolutions: what is refused with which words, documents that say them, and graphs for tests of
//! all kernels.

use kiln::device::Counters;
use kiln::graph::{Convolution, ConvolutionPass, MatmulMath, Op, Window};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};
use serde_json::{Value, json};

use crate::cases::{File, Parameters};
use crate::harness::{self, Values};

pub fn graph(with: Value) -> OperationGraph {
    let with: Parameters = serde_json::from_value(with).unwrap();
    File::read("convolution").graph("convolution", &with)
}

/// Two groups; both operands are computed, and an index is added to the result.
pub fn grouped() -> OperationGraph {
    graph(json!({
        "pass": "forward", "dtype": "f16", "n": 2, "groups": 2, "c": 3, "k": 5, "image": [6, 5],
        "filter": [3, 2], "strides": [1, 2], "pre": [1, 1], "post": [2, 0], "fused": "rich",
    }))
}

/// The gradient of a strided image, channels last.
pub fn strided() -> OperationGraph {
    graph(json!({
        "pass": "backward_data", "dtype": "bf16", "n": 2, "c": 6, "k": 7, "image": [8, 8],
        "filter": [3, 2], "strides": [2, 3], "dilations": [1, 2], "pre": [0, 1], "post": [0, 1],
        "lay": "channels_last",
    }))
}

/// The gradient of a reversed filter along one dimension.
pub fn filter() -> OperationGraph {
    graph(json!({
        "pass": "backward_filter", "dtype": "f32", "n": 3, "c": 5, "k": 4, "image": [9],
        "filter": [4], "strides": [2], "pre": [2], "post": [1], "reversed": true,
    }))
}

/// Groups of one channel, strided; the operands are computed, and an index is added to the result.
pub fn depthwise() -> OperationGraph {
    graph(json!({
        "pass": "forward", "dtype": "f16", "n": 2, "groups": 12, "c": 1, "k": 1, "image": [9, 8],
        "filter": [3, 3], "strides": [2, 1], "pre": [1, 1], "post": [1, 1], "lay": "channels_last",
        "fused": "rich",
    }))
}

/// The gradient of an image of groups of one channel.
pub fn depthwise_gradient() -> OperationGraph {
    graph(json!({
        "pass": "backward_data", "dtype": "bf16", "n": 2, "groups": 10, "c": 1, "k": 1,
        "image": [9, 8], "filter": [3, 2], "dilations": [1, 2], "pre": [1, 1], "post": [2, 0],
        "lay": "channels_last",
    }))
}

/// The same of a strided image, with two channels of the response in each group.
pub fn depthwise_spread() -> OperationGraph {
    graph(json!({
        "pass": "backward_data", "dtype": "f16", "n": 2, "groups": 10, "c": 1, "k": 2,
        "image": [9, 8], "filter": [3, 3], "strides": [2, 3], "pre": [1, 1], "post": [1, 0],
        "lay": "channels_last", "fused": "rich",
    }))
}

/// The gradient of a filter of groups of one channel, with what is behind it.
pub fn depthwise_filter() -> OperationGraph {
    depthwise_filter_with("bias_relu")
}

/// The same with other operations in front of it and behind it.
pub fn depthwise_filter_with(fused: &str) -> OperationGraph {
    graph(json!({
        "pass": "backward_filter", "dtype": "f16", "n": 2, "groups": 10, "c": 1, "k": 2,
        "image": [9, 8], "filter": [3, 2], "strides": [2, 1], "dilations": [1, 2], "pre": [1, 1],
        "post": [1, 0], "lay": "channels_last", "fused": fused,
    }))
}

/// Channels last in whole vectors, which GEMMs read through a window.
pub fn windowed(pass: &str, fused: &str) -> OperationGraph {
    graph(json!({
        "pass": pass, "dtype": "f16", "n": 2, "c": 16, "k": 24, "image": [7, 6], "filter": [3, 3],
        "pre": [1, 1], "post": [1, 1], "lay": "channels_last", "fused": fused,
    }))
}

/// Channels last in whole lines of 128 bytes, which TMA copies as pixels of square images.
pub fn pixels(pass: &str, image: i64) -> OperationGraph {
    graph(json!({
        "pass": pass, "dtype": "bf16", "n": 2, "c": 64, "k": 64, "image": [image, image],
        "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": "channels_last",
    }))
}

/// Groups of such channels beside each other, which are batches.
pub fn grouped_pixels(pass: &str) -> OperationGraph {
    graph(json!({
        "pass": pass, "dtype": "bf16", "n": 2, "groups": 2, "c": 64, "k": 64, "image": [8, 7],
        "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": "channels_last",
    }))
}

/// Images as batches: results whose pixels lie beside each other, an odd number of them, of
/// operands with channels last.
pub fn images() -> OperationGraph {
    graph(json!({
        "pass": "forward", "dtype": "f16", "n": 3, "c": 64, "k": 72, "image": [7, 9],
        "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": "result_first",
        "fused": "bias_relu",
    }))
}

/// Patches of images of three channels, which do not overlap.
pub fn patches() -> OperationGraph {
    graph(json!({
        "pass": "forward", "dtype": "f16", "n": 8, "c": 3, "k": 64, "image": [41, 48],
        "filter": [9, 16], "strides": [9, 16], "lay": "channels_last",
    }))
}

/// Channels that end within a vector, under several taps.
pub fn vectors() -> OperationGraph {
    graph(json!({
        "pass": "forward", "dtype": "f16", "n": 2, "c": 13, "k": 24, "image": [7, 6],
        "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": "vectors",
    }))
}

/// A layer of 32 images of bf16, channels last: groups, channels of one of the image and of the
/// response, a square image, a square filter with half of it as padding, and strides.
pub fn layer(pass: &str, extents: [i64; 6]) -> OperationGraph {
    fused_layer(pass, extents, "nothing")
}

/// The same with what is fused in front of it and behind it.
pub fn fused_layer(
    pass: &str,
    [groups, c, k, image, filter, stride]: [i64; 6],
    fused: &str,
) -> OperationGraph {
    let pad = filter / 2;
    graph(json!({
        "pass": pass, "dtype": "bf16", "n": 32, "groups": groups, "c": c, "k": k,
        "image": [image, image], "filter": [filter, filter], "strides": [stride, stride],
        "pre": [pad, pad], "post": [pad, pad], "lay": "channels_last", "fused": fused,
    }))
}

/// The gradient of a strided image behind a ReLU and a batch norm, with sums of that one's
/// parameters; phases have 60 rows, or 48.
pub fn norm_gradient() -> OperationGraph {
    graph(json!({
        "pass": "backward_data", "dtype": "bf16", "n": 3, "c": 24, "k": 16, "image": [9, 8],
        "filter": [3, 3], "strides": [2, 2], "pre": [1, 1], "post": [1, 1],
        "lay": "channels_last", "fused": "norm_gradient",
    }))
}

/// Two groups behind each other, channels last, which are batches of a GEMM.
pub fn batched(pass: &str) -> OperationGraph {
    graph(json!({
        "pass": pass, "dtype": "f16", "n": 2, "groups": 2, "c": 16, "k": 8, "image": [7, 6],
        "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": "channels_last",
        "fused": "bias_relu",
    }))
}

/// The gradient of a strided image, channels last in whole vectors: four phases with four, two,
/// two and one taps.
pub fn phases(fused: &str) -> OperationGraph {
    graph(json!({
        "pass": "backward_data", "dtype": "f16", "n": 2, "c": 16, "k": 24, "image": [7, 6],
        "filter": [3, 3], "strides": [2, 2], "pre": [1, 1], "post": [1, 1],
        "lay": "channels_last", "fused": fused,
    }))
}

/// Channels in front of pixels, and an odd number of them: elements are loaded and stored one by
/// one, in three steps of 32.
pub fn scattered(pass: &str) -> OperationGraph {
    graph(json!({
        "pass": pass, "dtype": "f16", "n": 2, "c": 13, "k": 10, "image": [6, 5], "filter": [3, 2],
        "strides": [1, 2], "pre": [1, 1], "post": [1, 1], "fused": "bias_relu",
    }))
}

/// The gradient of a filter whose image is its response too: tiles of rows are those of the
/// operand, not of its tensor.
#[test]
fn one_tensor_is_image_and_response() {
    let (n, c, image) = (2, 64, 7);
    let mut graph = OperationGraph::builder();
    let x = TensorDesc::packed(1, "x", &[n, c, image, image], DType::Bf16);
    let dw = TensorDesc::packed(2, "dw", &[c, c, 3, 3], DType::Bf16);
    let last = |extent: i64| vec![extent * extent * c, 1, extent * c, c];
    let x = graph.tensor(TensorDesc { strides: last(image), ..x });
    let dw = graph.tensor(TensorDesc { strides: last(3), ..dw });
    let window = Window { pre_paddings: vec![1; 2], post_paddings: vec![1; 2], ..Window::unit(2) };
    let op = Convolution::new(ConvolutionPass::BackwardFilter, MatmulMath::F32, window);
    graph.operation_into(Op::Convolution(op), &[x, x], &[dw]);
    let graph = graph.build().unwrap();
    let inputs: Values =
        graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 5, 2.0))).collect();
    let Some(kiln) = harness::simulated("h100") else { return };
    let config = "gemm_wgmma{cluster=1, cta_m=64, cta_n=128, dynamic_k=0, dynamic_m=0, \
                  group=1, \
                  ping_pong=0, raster=0, split_k=1, stages=3}";
    harness::check(kiln, &graph, Some(&config.parse().unwrap()), &inputs, "one tensor");
}

/// Nothing is multiplied with the zeros between the elements of a strided gradient: a phase has
/// the tiles of its own rows, and the K steps of its own taps.
#[test]
fn phases_multiply_what_their_taps_meet() {
    let config = "gemm_mma{cta_k=32, cta_m=32, cta_n=32, dynamic_k=0, dynamic_m=0, \
                  group=8, raster=0, \
                  split_k=1, stages=3, warp_m=16, warp_n=32}";
    let (n, c, k) = (2, 40, 24);
    for (image, filter, strides, dilations, pre) in [
        ([7_i64, 6], [3_i64, 3], [2_i64, 2], [1_i64, 1], [1_i64, 1]),
        ([8, 9], [3, 2], [2, 3], [1, 1], [0, 1]),
        ([9, 8], [1, 1], [2, 2], [1, 1], [0, 0]),
        ([9, 9], [3, 3], [2, 2], [2, 3], [2, 3]),
    ] {
        let graph = graph(json!({
            "pass": "backward_data", "dtype": "f16", "n": n, "c": c, "k": k, "image": image,
            "filter": filter, "strides": strides, "dilations": dilations, "pre": pre, "post": pre,
            "lay": "channels_last",
        }));
        let inputs = graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 5, 2.0)));
        let config = config.parse().unwrap();
        let counters = harness::count(&graph, Some(&config), &inputs.collect());
        let tiles = |extent: i64| (extent + 31) / 32 * 32;
        let mut expected = 0;
        for phase in (0..strides[0]).flat_map(|h| (0..strides[1]).map(move |w| [h, w])) {
            let of = |at: usize| {
                let rows = (phase[at]..image[at]).step_by(strides[at] as usize).count() as i64;
                let meets = |tap: &i64| {
                    (phase[at] + pre[at] - tap * dilations[at]).rem_euclid(strides[at]) == 0
                };
                [rows, (0..filter[at]).filter(meets).count() as i64]
            };
            let [[rows, taps], [rows_inner, taps_inner]] = [of(0), of(1)];
            expected += tiles(n * rows * rows_inner) * tiles(c) * tiles(taps * taps_inner * k);
        }
        let found: u64 = counters.products.iter().map(|of| of.multiply_adds).sum();
        assert_eq!(found, expected as u64, "{image:?} {filter:?} {strides:?}");
    }
}

/// A problem of one convolution over a 2 x 6 x 5 x 5 image, with changes to its keys and to the
/// dimensions of its tensors.
fn problem(keys: &Value, dims: &[(&str, &[i64])]) -> String {
    let mut operation = json!({
        "convolution_forward": "f32", "spatial_dims": 2, "x": "x", "w": "w", "y": "y",
    });
    for (key, value) in keys.as_object().unwrap() {
        operation[key] = value.clone();
    }
    let own = |name: &str, usual: &[i64]| {
        let changed = dims.iter().find(|(changed, _)| *changed == name);
        changed.map_or(usual, |(_, dims)| dims).to_vec()
    };
    let mut tensors = vec![
        json!({"name": "x", "dtype": "f32", "dims": own("x", &[2, 6, 5, 5])}),
        json!({"name": "w", "dtype": "f32", "dims": own("w", &[4, 6, 3, 3])}),
        json!({"name": "y", "dtype": "f32", "dims": own("y", &[2, 4, 3, 3])}),
    ];
    if dims.iter().any(|(name, _)| *name == "y_before") {
        tensors.push(json!({"name": "y_before", "dtype": "f32", "dims": own("y_before", &[])}));
    }
    json!({"graph": {"tensors": tensors, "operations": [operation]}}).to_string()
}

#[track_caller]
fn refused(keys: Value, dims: &[(&str, &[i64])], words: &str) {
    let error = OperationGraph::from_json(&problem(&keys, dims)).expect_err(words);
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, words));
}

#[test]
fn what_is_no_convolution_is_said_with_its_numbers() {
    OperationGraph::from_json(&problem(&json!({}), &[])).unwrap();
    refused(
        json!({}),
        &[("y", &[2, 4, 3, 2])],
        "convolution_forward: the response should be [2, 4, 3, 3]: `x` is [2, 6, 5, 5], `w` is \
         [4, 6, 3, 3], `y` is [2, 4, 3, 2]",
    );
    refused(
        json!({"dilations": [1, 3]}),
        &[],
        "convolution_forward: 3 taps 3 apart do not fit into 5 elements with paddings of 0 and 0: \
         `x` is [2, 6, 5, 5], `w` is [4, 6, 3, 3], `y` is [2, 4, 3, 3]",
    );
    refused(
        json!({}),
        &[("w", &[4, 6, 0, 3])],
        "convolution_forward: 0 taps 1 apart do not fit into 5 elements with paddings of 0 and 0: \
         `x` is [2, 6, 5, 5], `w` is [4, 6, 0, 3], `y` is [2, 4, 3, 3]",
    );
    refused(
        json!({}),
        &[("w", &[4, 4, 3, 3])],
        "convolution_forward: 6 channels of the image are no groups of 4: `x` is [2, 6, 5, 5], `w` \
         is [4, 4, 3, 3], `y` is [2, 4, 3, 3]",
    );
    refused(
        json!({}),
        &[("w", &[4, 2, 3, 3])],
        "convolution_forward: 4 channels of the response do not divide into 3 groups: `x` is \
         [2, 6, 5, 5], `w` is [4, 2, 3, 3], `y` is [2, 4, 3, 3]",
    );
    refused(
        json!({}),
        &[("w", &[4, 6, 3])],
        "convolution_forward: tensors differ in rank: `x` is [2, 6, 5, 5], `w` is [4, 6, 3], `y` \
         is [2, 4, 3, 3]",
    );
    refused(
        json!({"spatial_dims": 3}),
        &[],
        "convolution_forward: expected 5 or 6 dimensions for 3 spatial ones: `x` is [2, 6, 5, 5], \
         `w` is [4, 6, 3, 3], `y` is [2, 4, 3, 3]",
    );
    refused(
        json!({"spatial_dims": 1}),
        &[("x", &[2, 6, 5, 5]), ("w", &[6, 4, 2, 3]), ("y", &[2, 6, 4, 3])],
        "convolution_forward: the image has 6 groups of 5 channels, the filter 6 of 2: `x` is \
         [2, 6, 5, 5], `w` is [6, 4, 2, 3], `y` is [2, 6, 4, 3]",
    );
    refused(
        json!({"beta": 1.0, "y_before": "y_before"}),
        &[("y_before", &[2, 4, 1, 3])],
        "convolution_forward: `y_before` is [2, 4, 1, 3], what it is added to, `y`, is \
         [2, 4, 3, 3]",
    );
}

#[test]
fn attributes_are_checked() {
    refused(
        json!({"pre_paddings": [0, -1]}),
        &[],
        "convolution_forward: pre_paddings is [0, -1], -1 is less than 0",
    );
    refused(
        json!({"filter_strides": [0, 1]}),
        &[],
        "convolution_forward: filter_strides is [0, 1], 0 is less than 1",
    );
    refused(json!({"dilations": [1]}), &[], "convolution_forward: [1] for 2 spatial dimensions");
    refused(
        json!({"dilations": [1, 1.5]}),
        &[],
        "convolution_forward: key `dilations` is [1,1.5], expected a list of whole numbers",
    );
    refused(
        json!({"mode": "correlation"}),
        &[],
        "convolution_forward: key `mode` is `correlation`, expected one of cross_correlation, \
         convolution",
    );
    refused(json!({"gamma": 1}), &[], "convolution_forward: unknown key `gamma`");
    refused(
        json!({"filter_strides": [i64::MAX, 1], "pre_paddings": [i64::MAX, 0]}),
        &[],
        "convolution_forward: 3 taps 1 apart do not fit into 5 elements with paddings of \
         9223372036854775807 and 0: `x` is [2, 6, 5, 5], `w` is [4, 6, 3, 3], `y` is [2, 4, 3, 3]",
    );
}

#[test]
fn dimensions_of_gradients_are_given() {
    let mut graph = OperationGraph::builder();
    let w = graph.input("w", &[4, 3, 3, 3], DType::F32);
    let dy = graph.input("dy", &[1, 4, 5, 5], DType::F32);
    let window = Window { filter_strides: vec![2, 2], ..Window::unit(2) };
    let op = Convolution::new(ConvolutionPass::BackwardData, MatmulMath::F32, window);
    let error = graph.operation(Op::Convolution(op), &[w, dy]).expect_err("it is not determined");
    let words = "convolution_backward_data{filter_strides=[2, 2]}: the dimensions of the result \
                 must be given";
    assert_eq!(error.to_string(), words);
}

#[test]
fn documents_say_all_of_a_convolution() {
    let keys = json!({
        "mode": "convolution", "filter_strides": [2, 1], "dilations": [1, 2],
        "pre_paddings": [3, 0], "post_paddings": [0, 4], "alpha": 0.5, "beta": -2.0,
        "y_before": "y_before",
    });
    let dims: [(&str, &[i64]); 2] = [("y", &[2, 4, 3, 5]), ("y_before", &[2, 4, 3, 5])];
    let graph = OperationGraph::from_json(&problem(&keys, &dims)).unwrap();
    let text = graph.to_json();
    let again = OperationGraph::from_json(&text).unwrap();
    assert_eq!((&again, again.to_json()), (&graph, text));
    let shown = "convolution_forward{filter_strides=[2, 1], dilations=[1, 2], pre_paddings=[3, 0], \
                 post_paddings=[0, 4], reversed, alpha=0.5, beta=-2}";
    assert_eq!(graph.operations()[0].op.to_string(), shown);
}

/// What `beta` scales may be the result's own memory: the thread that writes an element reads it.
#[test]
fn results_are_added_to_what_is_there() {
    let engines = [
        "convolution_depthwise",
        "convolution_depthwise_filter",
        "convolution_direct",
        "gemm_simt",
        "gemm_mma",
        "gemm_wgmma",
    ];
    for pass in ["forward", "backward_data", "backward_filter"] {
        let of = |[groups, c, k]: [i64; 3], strides: [i64; 2], dtype: &str| {
            graph(json!({
                "pass": pass, "dtype": dtype, "n": 2, "groups": groups, "c": c, "k": k,
                "image": [7, 6], "filter": [3, 3], "strides": strides, "pre": [1, 1],
                "post": [1, 1], "lay": "channels_last", "alpha": 0.5, "beta": 2.0,
            }))
        };
        harness::check_added_in_place(&of([6, 1, 2], [2, 1], "f16"), &engines, 2);
        harness::check_added_in_place(&of([1, 64, 64], [1, 1], "bf16"), &engines, 3);
        harness::check_added_in_place(&of([1, 16, 24], [2, 2], "f16"), &engines, 3);
    }
}

/// A thread reads each element of its rows and columns once, what is next to them, its filter, and
/// stores its results: 38 rows (four strips of 8 rows and one more at either end, but for the
/// padding) of 46 columns, 9 taps a thread; no tap meets a padded element.
#[test]
fn depthwise_convolutions_read_what_they_must() {
    let graph = graph(json!({
        "pass": "forward", "dtype": "f16", "n": 1, "groups": 32, "c": 1, "k": 1, "image": [32, 32],
        "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": "channels_last",
    }));
    let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 3, 1.0))).collect();
    let count = |config: &str| harness::count(&graph, Some(&config.parse().unwrap()), &inputs);
    let own = count("convolution_depthwise{items=4, rows=8, strip=4, threads=128}");
    let (image, outputs, threads) = (2 * 32 * 38 * 46, 32 * 32 * 32_u64, 8 * 4 * 8);
    assert_eq!(own.total.global.bytes, image + 2 * outputs + threads * 2 * 4 * 9);
    let direct = count("convolution_direct{items=4, threads=256}");
    let per_output = |counters: &Counters| counters.total.lane_instructions as f64 / outputs as f64;
    let [own, direct] = [&own, &direct].map(per_output);
    assert!(own < 36.0 && direct > 90.0, "{own:.1} and {direct:.1} instructions for an output");
}
