//! What convolutions cost, counted, against the products of matrices of the same extents.

use kiln::device::Counters;
use kiln::graph::Matmul;
use kiln::{DType, OperationGraph, TensorDesc};
use serde_json::json;

use crate::convolution;
use crate::harness::{self, Values, conflicts, fill};

fn count(graph: &OperationGraph, config: &str) -> Counters {
    let tensors = graph.inputs();
    let inputs: Values = tensors.map(|tensor| (tensor.uid, fill(tensor, 7, 1.0))).collect();
    harness::count(graph, Some(&config.parse().unwrap()), &inputs)
}

/// A product of extents M, N and K, of A and B with these strides of a row and along K.
fn product([m, n, k]: [i64; 3], [a, b]: [[i64; 2]; 2]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut operand = |uid, name, dims: [i64; 2], strides: [i64; 2]| {
        let packed = TensorDesc::packed(uid, name, &dims, DType::Bf16);
        graph.tensor(TensorDesc { strides: strides.to_vec(), ..packed })
    };
    let a = operand(1, "a", [m, k], a);
    let b = operand(2, "b", [k, n], [b[1], b[0]]);
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.output(c, "c", DType::Bf16);
    graph.build().unwrap()
}

/// Tiles of pixels cost what those of matrices do: the same MMAs, 10 % more instructions at most,
/// and every byte of the operands read once from memory.
#[test]
fn pixels_cost_what_matrices_do() {
    let [pixels, channels, taps] = [2 * 16 * 16, 64, 9];
    let k = taps * channels;
    let forward = ([pixels, channels, k], [[k, 1], [k, 1]]);
    let passes = [
        ("forward", forward),
        ("backward_data", ([pixels, channels, k], [[k, 1], [1, channels]])),
        ("backward_filter", ([channels, k, pixels], [[1, channels], [1, k]])),
    ];
    for (pass, (extents, strides)) in passes {
        let rows = if pass == "backward_filter" { 64 } else { 128 };
        for (cluster, cta_n) in [(1, 64), (2, 64)] {
            let config = format!(
                "gemm_wgmma{{cluster={cluster}, cta_m={}, cta_n={cta_n}, dynamic_k=0, \
                 dynamic_m=0, group=1, \
                 ping_pong=0, raster=0, split_k=1, stages=4}}",
                rows / cluster.min(rows / 64)
            );
            let [own, matrix] = [convolution::pixels(pass, 16), product(extents, strides)]
                .map(|graph| count(&graph, &config));
            let [tiles, whole] = [&own, &matrix].map(|counters| counters.products[0].multiply_adds);
            assert_eq!(tiles, whole, "{pass} {config}");
            let [taken, least] = [&own, &matrix].map(|counters| counters.total.warp_instructions);
            assert!(taken <= least + least / 10, "{pass} {config}: {taken} instead of {least}");
            assert_eq!(conflicts(&own), 0, "{pass} {config}");
            let bytes = |tensor: &TensorDesc| 2 * tensor.elements().unwrap() as u64;
            let read: u64 = convolution::pixels(pass, 16).inputs().map(bytes).sum();
            // Tensors may begin within a sector.
            let beyond = own.dram_read_bytes - read;
            assert!(beyond <= 2 * 32, "{pass} {config}: {beyond} bytes more than {read}");
        }
    }
}

/// The gradient of a filter reads each element of the response once, and of the image what its
/// strips and the taps around them cover: 38 rows of 48 columns, two of them at the edges in the
/// place of padding. An output, 9 multiply-adds, takes a third of what `convolution_direct` does;
/// partials are read once.
#[test]
fn depthwise_filters_read_what_they_must() {
    let graph = convolution::graph(json!({
        "pass": "backward_filter", "dtype": "f16", "n": 2, "groups": 32, "c": 1, "k": 1,
        "image": [32, 32], "filter": [3, 3], "pre": [1, 1], "post": [1, 1],
        "lay": "channels_last",
    }));
    let (groups, taps, outputs) = (32, 9, 2 * 32 * 32 * 32_u64);
    let (image, response, result) = (2 * 2 * groups * 38 * 48, 2 * outputs, 2 * groups * taps);
    let own = |split: u64| {
        let knobs = format!("{{items=4, rows=8, split={split}, strip=4, threads=128}}");
        count(&graph, &format!("convolution_depthwise_filter{knobs}"))
    };
    let per_output = |counters: &Counters| counters.total.lane_instructions as f64 / outputs as f64;
    let whole = own(1);
    assert_eq!(whole.total.global.bytes, image + response + result);
    assert_eq!(conflicts(&whole), 0);
    let direct = count(&graph, "convolution_direct{items=4, threads=256}");
    let [taken, direct] = [&whole, &direct].map(per_output);
    assert!(taken < 32.0 && direct > 100.0, "{taken:.1} and {direct:.1} instructions an output");
    let combine = own(4);
    assert_eq!(combine.total.global.bytes, 4 * 4 * groups * taps + result);
}

/// The gradient of a strided image reads each element of the response once, and once more what is
/// next to a strip: of 8 rows, two strips have one more in front of them, and the last row is in a
/// third. Strips of two columns read three, 27 in all, some at the edges in the place of padding.
/// `convolution_direct` reads 9 taps and as many elements.
#[test]
fn spread_gradients_read_what_they_must() {
    let graph = convolution::graph(json!({
        "pass": "backward_data", "dtype": "f16", "n": 1, "groups": 32, "c": 1, "k": 1,
        "image": [32, 32], "filter": [3, 3], "strides": [2, 2], "pre": [1, 1], "post": [1, 1],
        "lay": "channels_last",
    }));
    let outputs = 32 * 32 * 32_u64;
    let own = count(&graph, "convolution_depthwise{items=4, rows=8, strip=2, threads=128}");
    let (response, threads) = (2 * 32 * 18 * 27, 3 * 9 * 8);
    assert_eq!(own.total.global.bytes, response + 2 * outputs + threads * 2 * 4 * 9);
    let direct = count(&graph, "convolution_direct{items=4, threads=256}");
    let per_output = |counters: &Counters| counters.total.lane_instructions as f64 / outputs as f64;
    let [own, direct] = [&own, &direct].map(per_output);
    assert!(own < 20.0 && direct > 50.0, "{own:.1} and {direct:.1} instructions for an output");
}
