//! Kernels to plant bugs in: for each template, a graph with values and the knobs that choose the
//! form of it.

use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath, Signal,
};
use kiln::{DType, OperationGraph, TensorDesc};

use super::form::{Form, Knobs, Task, form};
use super::recurrences::recurrences;
use crate::attention::backward_cases;
use crate::attention::cases::{self as attention, Storage};
use crate::columns::{batch_norm, statistics};
use crate::convolution;
use crate::convolution_data;
use crate::ctc;
use crate::dynamic_slice;
use crate::gemm::cases::{self as gemm, Case, Lay};
use crate::gemm::fusion::{bias_gelu, prologues, reduced_everywhere, weight_gradients};
use crate::golden::{centred, chain};
use crate::norm;
use crate::pointwise;
use crate::pointwise_loop;
use crate::reduction::{residual_rms, softmax};
use crate::resample;
use crate::resident_loop;
use crate::rng;
use crate::rows::{backward, layer, long};
use crate::signal;
use crate::views;

/// Small tiles of `gemm_wgmma` of pixels.
const PIXELS: Knobs =
    &[("cluster", 1), ("cta_m", 64), ("cta_n", 64), ("split_k", 1), ("stages", 3)];

/// Tiles of few rows and columns.
const NARROW: Knobs =
    &[("cta_m", 32), ("cta_n", 32), ("warp_m", 16), ("warp_n", 32), ("split_k", 1)];

/// Two columns of tiles, each of two rows and columns of warps.
const SUMS: Knobs = &[("cta_m", 64), ("cta_n", 64), ("warp_m", 32), ("warp_n", 32), ("split_k", 2)];

/// Two columns of tiles of two warpgroups.
const SUMS_WGMMA: Knobs = &[("cta_m", 128), ("cta_n", 64), ("ping_pong", 0), ("split_k", 2)];

/// A tile of two warpgroups, each of which has a share of its columns.
const SUMS_WGMMA_OF_B: Knobs =
    &[("cta_m", 128), ("cta_n", 128), ("ping_pong", 0), ("split_k", 2), ("stages", 4)];

/// Noise: what is periodic may add up to nothing where a part is left out.
fn filled(graph: OperationGraph) -> Task {
    let fill = |of: &TensorDesc| {
        if of.name == "epsilon" {
            return vec![1e-3];
        }
        let mut noise = fastrand::Rng::with_seed(of.uid as u64);
        let count = of.elements().expect("tensors under test are small");
        (0..count).map(|_| of.dtype.round(2.0 * noise.f64() - 0.9)).collect()
    };
    let inputs = graph.inputs().map(|of| (of.uid, fill(of))).collect();
    (graph, inputs)
}

fn product(types: [DType; 3], extents: [i64; 3], lays: [Lay; 3]) -> Task {
    let graph = Case::new(MatmulMath::F32, types, extents).lays(lays).graph();
    let inputs = gemm::inputs(&graph);
    (graph, inputs)
}

/// Attention of sequences with lengths, of keys and values of a type; values behind a length are
/// no numbers.
fn lengths(
    op: Attention,
    kv: DType,
    [heads, kv_heads]: [i64; 2],
    [queries, keys]: [i64; 2],
) -> Task {
    let op = Attention { key_lengths: true, ..op };
    let (batches, depth, width) = (2, 64, 64);
    let shape = AttentionShape { batches, heads, kv_heads, queries, keys, depth, width };
    let packed = |dtype| Storage { page: 8, ..Storage::packed(dtype) };
    let storage = [DType::Bf16, kv, kv, DType::F32].map(packed);
    let paged = op.paged;
    let mut case = attention::case_of(op, shape, storage, [true; 4], 3);
    if paged {
        return (case.graph, case.inputs);
    }
    let of = |name: &str| case.graph.inputs().find(|of| of.name == name).unwrap().uid;
    let (v, lengths) = (of("v"), case.inputs[&of("key_lengths")].clone());
    for (at, value) in case.inputs.get_mut(&v).unwrap().iter_mut().enumerate() {
        let row = at as i64 / width;
        if (row % keys) as f64 >= lengths[(row / keys / kv_heads) as usize] {
            *value = f64::NAN;
        }
    }
    (case.graph, case.inputs)
}

fn causal(kv: DType, extents: [i64; 2]) -> Task {
    let band = Band::causal(Diagonal::BottomRight);
    lengths(Attention { band, ..Attention::new(MatmulMath::F32) }, kv, [2, 1], extents)
}

/// Causal attention of so many heads and queries that blocks take turns at tiles.
fn turns(heads: i64, queries: i64) -> Task {
    let op = Attention { band: Band::causal(Diagonal::TopLeft), ..Attention::new(MatmulMath::F32) };
    let [depth, width] = [16; 2];
    let (kv_heads, keys) = (heads, queries);
    let shape = AttentionShape { batches: 1, heads, kv_heads, queries, keys, depth, width };
    let case = attention::case(op, shape, Storage::packed(DType::Bf16), [true; 4]);
    (case.graph, case.inputs)
}

/// Attention of sequences one behind the other, the second of which is empty.
fn ragged(heads: i64, queries: i64) -> Task {
    let (queries_max, keys_max) = (Some(queries), Some(queries));
    let op = Attention { queries_max, keys_max, ..Attention::new(MatmulMath::F32) };
    let (kv_heads, keys, [depth, width]) = (heads, queries, [16; 2]);
    let shape = AttentionShape { batches: 4, heads, kv_heads, queries, keys, depth, width };
    let mut case = attention::case(op, shape, Storage::packed(DType::Bf16), [true; 4]);
    let offsets =
        [0, queries - 70, queries - 70, 2 * queries - 70, 2 * queries].map(|at| at as f64);
    for tensor in case.graph.inputs().filter(|tensor| tensor.name.ends_with("_offsets")) {
        case.inputs.insert(tensor.uid, offsets.to_vec());
    }
    (case.graph, case.inputs)
}

/// Gradients of slopes, whose partials blocks have.
fn slopes_gradient() -> Task {
    let op = Attention { slopes: true, ..Attention::new(MatmulMath::F32) };
    let op = AttentionBackward { dslopes: true, ..AttentionBackward::new(op) };
    let (batches, heads, kv_heads, queries, keys) = (3, 2, 1, 50, 40);
    let shape = AttentionShape { batches, heads, kv_heads, queries, keys, depth: 16, width: 16 };
    let case = backward_cases::case(op, shape, DType::F32);
    (case.graph, case.inputs)
}

/// Gradients of causal attention of sequences with lengths; what lies behind a length is no number.
fn gradients(dtype: DType, extents: [i64; 2]) -> Task {
    let band = Band::causal(Diagonal::BottomRight);
    let op = Attention {
        band,
        query_lengths: true,
        key_lengths: true,
        bias: true,
        ..Attention::new(MatmulMath::F32)
    };
    let op = AttentionBackward { dbias: true, dlse: true, ..AttentionBackward::new(op) };
    let [queries, keys] = extents;
    let (batches, heads, kv_heads, depth, width) = (2, 4, 2, 64, 64);
    let shape = AttentionShape { batches, heads, kv_heads, queries, keys, depth, width };
    let storage = [Storage::packed(dtype); 4];
    let broadcast = [false, true, true, true];
    let mut case = backward_cases::case_of(op, shape, storage, broadcast, 3);
    let of = |name: &str| case.graph.tensor_named(name).unwrap().uid;
    for (slot, lengths, rows, heads) in [
        ("k", "key_lengths", keys, kv_heads),
        ("v", "key_lengths", keys, kv_heads),
        ("q", "query_lengths", queries, heads),
        ("do", "query_lengths", queries, heads),
    ] {
        let lengths = case.inputs[&of(lengths)].clone();
        let values = case.inputs.get_mut(&of(slot)).unwrap();
        for (at, value) in values.iter_mut().enumerate() {
            let row = at as i64 / depth;
            if (row % rows) as f64 >= lengths[(row / rows / heads) as usize] {
                *value = f64::NAN;
            }
        }
    }
    (case.graph, case.inputs)
}

/// Pointwise operations and reductions.
fn rows() -> Vec<Form> {
    use DType::{Bf16, F16, F32};
    vec![
        form(
            "pointwise_flat",
            "pointwise",
            filled(chain(5, 200)),
            &[("grid", 0), ("items", 2), ("threads", 64)],
        ),
        form("pointwise_rows", "pointwise", filled(chain(5, 200)), &[("grid", 1)]),
        form(
            "pointwise_strided",
            "pointwise",
            filled(pointwise::strided()),
            &[("grid", 0), ("items", 1), ("threads", 128)],
        ),
        form("pointwise_general", "pointwise_general", filled(pointwise::strided()), &[]),
        form("pointwise_grouped", "pointwise_grouped", filled(views::split_heads()), &[]),
        form(
            "pointwise_transposed",
            "pointwise_transposed",
            filled(pointwise::transposed(F16, [3, 20, 70])),
            &[("lanes", 2), ("threads", 64)],
        ),
        form(
            "reduction",
            "reduction",
            filled(softmax(F32, &[6, 1000], false)),
            &[("threads", 128), ("threads_row", 64)],
        ),
        form("reduction_norm", "reduction", filled(layer(Bf16, [5, 200])), &[]),
        form("reduction_rms", "reduction", filled(residual_rms([5, 200])), &[]),
        form(
            "reduction_streamed",
            "reduction",
            filled(softmax(F32, &[2, 40_003], false)),
            &[("cluster", 1), ("split", 1)],
        ),
        form(
            "reduction_variance",
            "reduction",
            filled(layer(F32, [1, 150_001])),
            &[("cluster", 1), ("split", 1)],
        ),
        form("reduction_split", "reduction", filled(long()), &[("cluster", 1), ("split", 2)]),
        form("reduction_cluster", "reduction", filled(long()), &[("cluster", 2), ("split", 1)]),
        form(
            "reduction_ahead",
            "reduction",
            filled(norm::rms_gradients([6, 8192])),
            &[("cluster", 2), ("items", 2), ("stages", 0), ("threads", 256), ("threads_row", 256)],
        ),
        form(
            "reduction_staged",
            "reduction",
            filled(backward(DType::Bf16, [40, 2056])),
            &[("items", 4), ("stages", 3), ("threads", 128), ("threads_row", 128)],
        ),
        form(
            "reduction_staged_rows",
            "reduction",
            filled(backward(DType::Bf16, [29, 520])),
            &[("items", 4), ("stages", 2), ("threads", 128), ("threads_row", 32)],
        ),
        form(
            "columns",
            "reduction_columns",
            filled(centred([2, 90, 72])),
            &[("split", 1), ("threads_y", 16)],
        ),
        form("columns_split", "reduction_columns", filled(centred([2, 90, 72])), &[("split", 2)]),
        form(
            "columns_variance",
            "reduction_columns",
            statistics(batch_norm(), F16, [4, 24, 5, 6]),
            &[("split", 1), ("threads_y", 8)],
        ),
    ]
}

/// Random numbers in kernels of each family.
fn random() -> Vec<Form> {
    let drawn = |graph: OperationGraph| {
        let inputs = rng::values(&graph);
        (graph, inputs)
    };
    let gemm = rng::gemm_dropout([70, 72, 96], DType::Bf16, true);
    vec![
        form("dropout", "pointwise", drawn(rng::dropout(&[33, 70])), &[("grid", 0)]),
        form("noise", "reduction", drawn(rng::noise(&[6, 200])), &[]),
        form("gemm_dropout", "gemm_mma", drawn(gemm), &[("split_k", 1)]),
        form("window_dropout", "gemm_mma", drawn(rng::convolution(true, true)), NARROW),
    ]
}

fn products() -> Vec<Form> {
    use DType::{Bf16, F16, F32};
    const SMALL: Knobs = &[
        ("cta_k", 32),
        ("cta_m", 64),
        ("cta_n", 64),
        ("split_k", 1),
        ("stages", 3),
        ("warp_m", 32),
        ("warp_n", 32),
    ];
    let lays = [Lay::Rows, Lay::Columns, Lay::Rows];
    let copied = product([Bf16, Bf16, F32], [70, 72, 200], lays);
    let turing = product([F16, F16, F32], [70, 72, 100], lays);
    let staged = product([F16, Bf16, F32], [70, 72, 100], [Lay::OddRows, Lay::Rows, Lay::Rows]);
    let bulk = product([Bf16, Bf16, F32], [200, 136, 320], lays);
    let single = product([F32; 3], [70, 72, 100], [Lay::Rows; 3]);
    let split = product([F32; 3], [40, 36, 100], [Lay::Rows; 3]);
    let from = |graph: OperationGraph| {
        let inputs = gemm::inputs(&graph);
        (graph, inputs)
    };
    let resampled = |graph: OperationGraph| {
        let inputs = resample::inputs(&graph);
        (graph, inputs)
    };
    let norm_gradient = convolution::norm_gradient();
    let [sums, sums_of_b] =
        ["columns", "rows"].map(|lay| from(weight_gradients([72, 136, 200], F16, lay)));
    let wide = product([Bf16, Bf16, F32], [300, 136, 320], lays);
    let by_rows = product([Bf16, Bf16, F32], [200, 136, 192], [Lay::Rows; 3]);
    let grouped_pixels = from(convolution::grouped_pixels("backward_data"));
    vec![
        form("gemm_simt", "gemm_simt", single, &[("split_k", 1)]),
        form("gemm_split", "gemm_simt", split, &[("split_k", 2)]),
        form("gemm_mma", "gemm_mma", copied, SMALL),
        form("gemm_staged", "gemm_mma", staged, &[("split_k", 1), ("stages", 2)]),
        form("gemm_turing", "gemm_mma", turing, &[("split_k", 1), ("stages", 2)]).on("sim:t4"),
        form("gemm_prologues", "gemm_mma", from(prologues([70, 72, 104], F16)), SMALL),
        form(
            "gemm_reduced",
            "gemm_mma",
            from(reduced_everywhere([70, 72, 96], Bf16)),
            &[("split_k", 1), ("warp_n", 32)],
        ),
        form("gemm_sums_simt", "gemm_simt", sums_of_b.clone(), &[("split_k", 2)]),
        form("gemm_sums_mma", "gemm_mma", sums.clone(), SUMS),
        form("gemm_sums_wgmma", "gemm_wgmma", sums, SUMS_WGMMA),
        form("gemm_sums_of_b_mma", "gemm_mma", sums_of_b.clone(), SUMS),
        form("gemm_sums_of_b_wgmma", "gemm_wgmma", sums_of_b, SUMS_WGMMA_OF_B),
        form(
            "gemm_norm_gradient",
            "gemm_mma",
            (norm_gradient.clone(), convolution_data::values(&norm_gradient)),
            NARROW,
        ),
        form("convolution", "convolution_direct", from(convolution::grouped()), &[("items", 2)]),
        form(
            "convolution_depthwise",
            "convolution_depthwise",
            from(convolution::depthwise()),
            &[("items", 4), ("rows", 4), ("strip", 2)],
        ),
        form(
            "convolution_spread",
            "convolution_depthwise",
            from(convolution::depthwise_spread()),
            &[("items", 2), ("rows", 4), ("strip", 2)],
        ),
        form(
            "convolution_depthwise_filter",
            "convolution_depthwise_filter",
            from(convolution::depthwise_filter()),
            &[("items", 2), ("rows", 4), ("split", 2), ("strip", 2)],
        ),
        form("convolution_data", "convolution_direct", from(convolution::strided()), &[]),
        form("convolution_filter", "convolution_direct", from(convolution::filter()), &[]),
        form("resample", "resample_direct", resampled(resample::winners()), &[("items", 2)]),
        form(
            "resample_columns",
            "resample_direct",
            resampled(resample::averages()),
            &[("items", 4)],
        ),
        form("resample_scaled", "resample_direct", resampled(resample::scaled()), &[("items", 2)]),
        form("resample_data", "resample_direct", resampled(resample::scaled_gradient()), &[]),
        form("resample_found", "resample_direct", resampled(resample::found_gradient()), &[]),
        form("resample_read", "resample_direct", resampled(resample::read_gradient()), &[]),
        form(
            "gemm_window",
            "gemm_mma",
            from(convolution::windowed("forward", "bias_relu")),
            NARROW,
        ),
        form("gemm_pixels", "gemm_wgmma", from(convolution::pixels("forward", 7)), PIXELS),
        form("gemm_grouped_pixels", "gemm_wgmma", grouped_pixels, PIXELS),
        form(
            "gemm_filter_pixels",
            "gemm_wgmma",
            from(convolution::pixels("backward_filter", 7)),
            &[("cluster", 2), ("cta_m", 64), ("cta_n", 128), ("split_k", 1), ("stages", 3)],
        ),
        form("gemm_image_pixels", "gemm_wgmma", from(convolution::images()), PIXELS),
        form("gemm_patches", "gemm_wgmma", from(convolution::patches()), PIXELS),
        form("gemm_filled", "gemm_mma", from(convolution::vectors()), NARROW),
        form(
            "gemm_striped",
            "gemm_mma",
            from(reduced_everywhere([70, 75, 96], Bf16)),
            &[("split_k", 1), ("warp_n", 32)],
        ),
        form("gemm_groups", "gemm_mma", from(convolution::batched("forward")), NARROW),
        form(
            "gemm_phases",
            "gemm_mma",
            from(convolution::phases("bias_relu")),
            &[
                ("cta_k", 32),
                ("cta_m", 16),
                ("cta_n", 32),
                ("warp_m", 16),
                ("warp_n", 32),
                ("split_k", 1),
            ],
        ),
        form(
            "gemm_scattered",
            "gemm_mma",
            from(convolution::scattered("forward")),
            &[("cta_m", 16), ("cta_n", 64), ("warp_m", 16), ("warp_n", 32), ("split_k", 1)],
        ),
        form("gemm_wgmma", "gemm_wgmma", bulk, &[("cta_m", 128), ("cta_n", 64), ("stages", 3)]),
        form(
            "gemm_cluster",
            "gemm_wgmma",
            wide,
            &[("cluster", 2), ("cta_m", 128), ("cta_n", 64), ("stages", 3)],
        ),
        form(
            "gemm_cluster_rows",
            "gemm_wgmma",
            by_rows,
            &[("cluster", 2), ("cta_m", 64), ("cta_n", 128), ("stages", 3)],
        ),
        form(
            "gemm_tma_store",
            "gemm_wgmma",
            from(bias_gelu([900, 264, 192], Bf16)),
            &[("cta_m", 128), ("cta_n", 128), ("ping_pong", 1), ("stages", 3)],
        ),
    ]
}

fn attentions() -> Vec<Form> {
    use DType::{Bf16, F8E4M3};
    let band = Band::causal(Diagonal::BottomRight);
    let band = Attention { band, ..Attention::new(MatmulMath::F32) };
    let paged = Attention { paged: true, ..Attention::new(MatmulMath::F32) };
    vec![
        form("attention_simt", "attention_simt", lengths(band, Bf16, [4, 2], [150, 140]), &[]),
        form(
            "attention_mma",
            "attention_mma",
            causal(Bf16, [50, 70]),
            &[("cta_k", 16), ("cta_q", 64), ("hold_q", 0), ("warp_q", 16)],
        ),
        form(
            "attention_decode",
            "attention_decode",
            causal(F8E4M3, [30, 200]),
            &[("cluster", 2), ("cta_k", 16), ("cta_q", 64), ("split", 2)],
        ),
        form(
            "attention_split",
            "attention_decode",
            causal(Bf16, [3, 200]),
            &[("cluster", 1), ("cta_k", 16), ("split", 4)],
        ),
        form(
            "attention_paged",
            "attention_decode",
            lengths(paged, Bf16, [2, 1], [2, 96]),
            &[("cta_k", 16)],
        ),
        form(
            "attention_wgmma",
            "attention_wgmma",
            causal(Bf16, [300, 208]),
            &[("cta_k", 32), ("cta_q", 128), ("stages", 3)],
        ),
        form(
            "attention_paired",
            "attention_wgmma",
            turns(66, 250),
            &[("cta_k", 64), ("cta_q", 64), ("stages", 2)],
        ),
        form(
            "attention_ragged",
            "attention_wgmma",
            ragged(20, 200),
            &[("cta_k", 64), ("cta_q", 64), ("stages", 2)],
        ),
        form(
            "attention_fp8",
            "attention_wgmma",
            causal(F8E4M3, [150, 208]),
            &[("cta_k", 32), ("cta_q", 128), ("stages", 2)],
        ),
        form(
            "attention_backward_simt",
            "attention_backward_simt",
            gradients(DType::F32, [50, 45]),
            &[("cta_k", 16), ("cta_q", 16)],
        ),
        form(
            "attention_backward_mma",
            "attention_backward_mma",
            gradients(Bf16, [50, 70]),
            &[("cta_k", 32), ("cta_q", 32), ("dq", 0), ("step_k", 16), ("step_q", 16)],
        ),
        form(
            "attention_backward_slopes",
            "attention_backward_simt",
            slopes_gradient(),
            &[("cta_k", 16), ("cta_q", 16)],
        ),
        form(
            "attention_backward_ordered",
            "attention_backward_mma",
            gradients(Bf16, [50, 70]),
            &[("cta_k", 32), ("cta_q", 0), ("dq", 1), ("step_k", 0), ("step_q", 16)],
        ),
        form(
            "attention_backward_unordered",
            "attention_backward_mma",
            gradients(Bf16, [50, 70]),
            &[("cta_k", 32), ("cta_q", 0), ("dq", 2), ("step_k", 0), ("step_q", 16)],
        ),
        form(
            "attention_backward_wgmma",
            "attention_backward_wgmma",
            gradients(Bf16, [300, 200]),
            &[("dq", 1)],
        ),
    ]
}

/// CTC losses: all of them are read from the front, gradients from the end too.
fn losses() -> Vec<Form> {
    let of = |case: ctc::Case| (case.graph(), case.values());
    let shared = &[("lattice", 0), ("threads", 128)];
    vec![
        form(
            "ctc_concatenated",
            "ctc_loss",
            of(ctc::concatenated()),
            &[("lattice", 1), ("threads", 128)],
        ),
        form("ctc_kept", "ctc_loss", of(ctc::kept()), shared),
        form("ctc_alone", "ctc_loss", of(ctc::alone()), shared),
    ]
}

/// Pointwise loops that end within an unrolled part, and at a condition; resident ones of a block,
/// of a cluster and of a cooperative launch.
fn loops() -> Vec<Form> {
    let scan = pointwise_loop::scan();
    let scan = (scan.graph(), scan.values(&[("n", 6.0)]));
    let doubled = pointwise_loop::doubled();
    let numbers = [("start", 0.0), ("n", 4.0), ("one", 1.0)];
    let doubled = (doubled.graph(), doubled.values(&numbers));
    let iteration = resident_loop::iteration();
    let values = resident_loop::values(&iteration, &[("steps", 5.0)]);
    let iteration = || (iteration.clone(), values.clone());
    let relaxation = resident_loop::relaxation(true);
    let values = resident_loop::values(&relaxation, &resident_loop::numbers(-14.0, 9.0, 1e-3));
    vec![
        form("loop_scan", "pointwise_loop", scan, &[("ahead", 4), ("threads", 64)]),
        form("loop_while", "pointwise_loop", doubled, &[("ahead", 1), ("threads", 64)]),
        form(
            "loop_block",
            "resident_loop",
            iteration(),
            &[("cluster", 0), ("ctas", 1), ("threads", 128)],
        ),
        form(
            "loop_cluster",
            "resident_loop",
            iteration(),
            &[("cluster", 1), ("ctas", 4), ("threads", 128)],
        ),
        form(
            "loop_counter",
            "resident_loop",
            (relaxation, values),
            &[("cluster", 0), ("ctas", 4), ("threads", 128)],
        ),
    ]
}

/// Between two trips, and a step of a decoder.
fn slices() -> Vec<Form> {
    let turn = dynamic_slice::turn();
    let turned = resident_loop::values(&turn, &[("next", 3.0), ("made", 2.0)]);
    let ended = resident_loop::values(&turn, &[("next", 9.0), ("made", 6.0)]);
    let turn = |values| (dynamic_slice::turn(), values);
    vec![
        form("slices_turn", "dynamic_slice", turn(turned), &[("threads", 128)]),
        form("slices_end", "dynamic_slice", turn(ended), &[("threads", 128)]),
    ]
}

/// Signals that pass on what they copy; the flag of a wait has its value.
fn signals() -> Vec<Form> {
    let of = |op: Signal| {
        let graph = signal::passed(op, DType::F32);
        let inputs = kiln::plan::random_values(&graph, 3).unwrap();
        (graph, inputs)
    };
    vec![
        form("signal_set", "signal", of(Signal::set(5)), &[]),
        form("signal_wait", "signal", of(Signal::wait(5).timeout_ms(20)), &[]),
    ]
}

pub fn forms() -> Vec<Form> {
    let rows = rows().into_iter().chain(random()).chain(losses()).chain(loops()).chain(slices());
    let rows = rows.chain(signals());
    rows.chain(products()).chain(attentions()).chain(recurrences()).collect()
}
