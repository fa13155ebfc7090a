//! Golden files: rendered sources, and which configuration the heuristic chooses. A difference is
//! reviewed as code; `make golden` rewrites them.

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use kiln::codegen::Templates;
use kiln::engine::{self};
use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, Direction, Matmul, MatmulMath,
    Quantization, Recurrence, Reduction, ReductionOp, RowLayout, Signal, Softcap,
};
use kiln::kernel::KernelPlan;
use kiln::rnn::{CellKind, CellOptions};
use kiln::target::Target;
use kiln::{DType, OperationGraph, TensorDesc};

use crate::attention::backward_cases;
use crate::attention::cases::{Storage, graph as attention, keep_program, score_program};
use crate::columns::{batch_norm, statistics};
use crate::convolution;
use crate::ctc;
use crate::dynamic_slice;
use crate::gemm::fusion::{bias_gelu, prologues, reduced_everywhere, weight_gradients};
use crate::pointwise;
use crate::pointwise_loop;
use crate::recurrence::{everything, graph as recurrent, layer};
use crate::recurrence_vjp::derivative;
use crate::reduction::{residual_rms, softmax};
use crate::resample;
use crate::resident_loop;
use crate::rng;
use crate::rows::{backward as layer_norm_backward, layer as layer_norm};
use crate::signal;
use crate::views;

pub fn assert_golden(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// `y = clip(gelu(x + bias) + residual)` in bf16.
pub fn chain(rows: i64, columns: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, columns], DType::Bf16);
    let bias = graph.input("model.layers.7.mlp.bias", &[1, columns], DType::Bf16);
    let residual = graph.input("residual", &[rows, columns], DType::Bf16);
    let biased = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    graph.name(biased, "biased", DType::F32);
    let hidden = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[biased]).unwrap();
    graph.name(hidden, "hidden", DType::Bf16);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[hidden, residual]).unwrap();
    let clip = Pointwise::new(Mode::ReluFwd).relu(-1.0, 6.0, 0.0);
    let y = graph.pointwise(clip, &[sum]).unwrap();
    graph.output(y, "y", DType::Bf16);
    graph.build().unwrap()
}

/// A channels-last operand, an index, a by-value scalar, a mask output, a tail.
fn strided() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = TensorDesc::packed(1, "x", &[2, 3, 35], DType::F16);
    let x = graph.tensor(TensorDesc { strides: vec![105, 1, 3], ..x });
    let scale = graph.scalar("scale", 3, DType::F32);
    let index = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(2), &[x]).unwrap();
    let scaled = graph.pointwise(Pointwise::new(Mode::Mul), &[x, scale]).unwrap();
    let over = graph.pointwise(Pointwise::new(Mode::CmpGt), &[scaled, index]).unwrap();
    graph.output(scaled, "scaled", DType::F32);
    graph.output(over, "over", DType::Bool);
    graph.build().unwrap()
}

/// The kernels of an engine at its own setting on an H200, with some knobs set.
fn kernels(engine: &str, graph: &OperationGraph, knobs: &[(&str, i64)]) -> Vec<String> {
    let target = Target::named("h200").unwrap();
    let supported = engine::supported(engine, graph.canonical(), &target).unwrap();
    let own = supported.heuristic();
    let config = knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value));
    let kernels = supported.lower(&config).unwrap().kernels;
    let text = |kernel: &KernelPlan| templates().render(&kernel.spec).unwrap().text;
    kernels.iter().map(text).collect()
}

/// The library's templates, or those of the folder that `KILN_TEMPLATES` names.
fn templates() -> &'static Templates {
    static FOLDER: OnceLock<Option<Templates>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = std::env::var("KILN_TEMPLATES").ok()?;
        Some(Templates::from_dir(Path::new(&folder)).unwrap())
    });
    folder.as_ref().unwrap_or(Templates::embedded())
}

/// The same as one text, at the engine's own setting.
fn sources(engine: &str, graph: &OperationGraph) -> String {
    kernels(engine, graph, &[]).join("\n")
}

/// `y = gelu(a b + bias)`, in bf16, B stored by columns; or without what follows, in f32.
fn linear([m, n, k]: [i64; 3], fused: bool) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[m, k], DType::Bf16);
    let b = TensorDesc::packed(2, "b", &[k, n], DType::Bf16);
    let b = graph.tensor(TensorDesc { strides: vec![1, k], ..b });
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    if !fused {
        graph.output(c, "c", DType::F32);
        return graph.build().unwrap();
    }
    let bias = graph.input("bias", &[1, n], DType::Bf16);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[c, bias]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[sum]).unwrap();
    graph.output(y, "y", DType::Bf16);
    graph.build().unwrap()
}

#[test]
fn golden_products_of_warpgroups() {
    assert_golden(
        "sm90_gemm_bf16_wgmma.cu",
        &sources("gemm_wgmma", &linear([4096, 4096, 4096], true)),
    );
    assert_golden(
        "sm90_gemm_f32_wgmma.cu",
        &sources("gemm_wgmma", &linear([1000, 520, 512], false)),
    );
}

#[test]
fn golden_sources() {
    let grid = |graph: &OperationGraph, grid: i64| {
        kernels("pointwise", graph, &[("grid", grid)]).remove(0)
    };
    assert_golden("sm75_pointwise_bf16_flat.cu", &grid(&chain(64, 768), 0));
    assert_golden("sm75_pointwise_bf16_rows.cu", &grid(&chain(64, 768), 1));
    assert_golden("sm75_pointwise_f32_strided.cu", &grid(&strided(), 0));
    assert_golden("sm75_pointwise_f32_general.cu", &sources("pointwise_general", &strided()));
    assert_golden("sm75_pointwise_bf16_rope.cu", &grid(&views::rope("rope_neighbours"), 0));
    let transposed = pointwise::transposed(DType::F16, [2, 20, 72]);
    let transposed = sources("pointwise_transposed", &transposed);
    assert_golden("sm75_pointwise_f16_transposed.cu", &transposed);
    let split = views::split_heads();
    assert_golden("sm75_pointwise_bf16_grouped.cu", &sources("pointwise_grouped", &split));
}

/// `y = x - mean(x)`, and the mean over the middle of three dimensions.
pub fn centred([batch, time, channels]: [i64; 3]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[batch, time, channels], DType::Bf16);
    let average = Reduction::new(ReductionOp::Avg);
    let mean = graph.reduction(average, x, &[batch, 1, channels]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Sub), &[x, mean]).unwrap();
    graph.output(mean, "mean", DType::F32);
    graph.output(y, "y", DType::Bf16);
    graph.build().unwrap()
}

#[test]
fn golden_reductions() {
    let rms = residual_rms([4096, 2048]);
    assert_golden("sm75_reduction_bf16_resident.cu", &sources("reduction", &rms));
    let softmax_of = |columns: i64| softmax(DType::F32, &[16, columns], false);
    assert_golden("sm75_reduction_f32_resident.cu", &sources("reduction", &softmax_of(1000)));
    let long = softmax_of(1 << 20);
    assert_golden("sm75_reduction_f32_streamed.cu", &sources("reduction", &long));
    let vocabulary = softmax_of(100_000);
    assert_golden("sm75_reduction_f32_cluster.cu", &sources("reduction", &vocabulary));
    let gradients = kernels("reduction", &layer_norm_backward(DType::Bf16, [4096, 8192]), &[]);
    assert_golden("sm75_reduction_bf16_staged.cu", &gradients[0]);
    let centred = sources("reduction_columns", &centred([512, 512, 768]));
    assert_golden("sm75_reduction_bf16_columns.cu", &centred);
}

/// Running means and sums of squared deviations, over blocks that share a row or a channel.
#[test]
fn golden_variances() {
    let long = sources("reduction", &layer_norm(DType::Bf16, [16, 1 << 20]));
    assert_golden("sm75_reduction_bf16_read_variance.cu", &long);
    let (batch_norm, _) = statistics(batch_norm(), DType::F16, [64, 256, 28, 28]);
    let channels = sources("reduction_columns", &batch_norm);
    assert_golden("sm75_reduction_f16_columns_variance.cu", &channels);
}

#[test]
fn golden_products() {
    let extents = [256, 512, 1024];
    let bare = kernels("gemm_mma", &bias_gelu(extents, DType::Bf16), &[("split_k", 1)]);
    assert_golden("sm80_gemm_bf16_mma.cu", &bare[0]);
    let computed = kernels("gemm_mma", &prologues(extents, DType::F16), &[("split_k", 1)]);
    assert_golden("sm80_gemm_f32_mma_prologues.cu", &computed[0]);
    let split = kernels("gemm_simt", &bias_gelu(extents, DType::F32), &[("split_k", 2)]);
    assert_golden("sm75_gemm_f32_simt.cu", &split[0]);
    assert_golden("sm75_gemm_f32_splitk_reduce.cu", &split[1]);
    let reductions = reduced_everywhere(extents, DType::Bf16);
    let reduced = kernels("gemm_mma", &reductions, &[("split_k", 1)]);
    assert_golden("sm80_gemm_bf16_mma_reduced.cu", &reduced[0]);
    assert_golden("sm75_gemm_f32_combine.cu", &reduced[3]);
    let split = kernels("gemm_mma", &reductions, &[("split_k", 4)]);
    assert_golden("sm75_gemm_bf16_splitk_reduce_reduced.cu", &split[1]);
    let sums = |engine: &str, lay: &str, split_k: i64| {
        let gradients = weight_gradients(extents, DType::F16, lay);
        kernels(engine, &gradients, &[("split_k", split_k)])
    };
    assert_golden("sm75_gemm_f16_simt_sums.cu", &sums("gemm_simt", "rows", 1)[0]);
    assert_golden("sm90_gemm_f16_wgmma_sums.cu", &sums("gemm_wgmma", "columns", 1)[0]);
    assert_golden("sm90_gemm_f16_wgmma_sums_of_b.cu", &sums("gemm_wgmma", "rows", 1)[0]);
    assert_golden("sm80_gemm_f16_mma_sums_of_b.cu", &sums("gemm_mma", "rows", 1)[0]);
    let split = sums("gemm_mma", "columns", 4);
    assert_golden("sm80_gemm_f16_mma_sums.cu", &split[0]);
    assert_golden("sm75_gemm_f32_combine_sums.cu", &split[2]);
}

#[test]
fn golden_convolutions() {
    let direct = |graph: &OperationGraph| kernels("convolution_direct", graph, &[("items", 2)]);
    let [grouped, strided] = [convolution::grouped(), convolution::strided()];
    assert_golden("sm75_convolution_f16_direct_forward.cu", &direct(&grouped)[0]);
    assert_golden("sm75_convolution_bf16_direct_backward_data.cu", &direct(&strided)[0]);
    for (name, graph) in
        [("f16", convolution::depthwise()), ("bf16", convolution::depthwise_gradient())]
    {
        let knobs = [("items", 2), ("rows", 4), ("strip", 2)];
        let source = &kernels("convolution_depthwise", &graph, &knobs)[0];
        assert_golden(&format!("sm75_convolution_{name}_depthwise.cu"), source);
    }
    let knobs = [("items", 2), ("rows", 4), ("strip", 2)];
    let spread = kernels("convolution_depthwise", &convolution::depthwise_spread(), &knobs);
    assert_golden("sm75_convolution_f16_depthwise_spread.cu", &spread[0]);
    let knobs = [("items", 2), ("rows", 4), ("split", 2), ("strip", 2)];
    let filter = kernels("convolution_depthwise_filter", &convolution::depthwise_filter(), &knobs);
    assert_golden("sm75_convolution_f16_depthwise_filter.cu", &filter[0]);
    assert_golden("sm75_convolution_f16_depthwise_combine.cu", &filter[1]);
    let norm = kernels("gemm_mma", &convolution::norm_gradient(), &[("split_k", 1)]);
    assert_golden("sm80_gemm_f16_mma_norm_gradient.cu", &norm[0]);
    assert_golden("sm75_gemm_f32_combine_norm_gradient.cu", &norm[1]);
    let windowed = convolution::windowed("forward", "bias_relu");
    let window = kernels("gemm_mma", &windowed, &[("split_k", 1)]);
    assert_golden("sm80_gemm_f16_mma_window.cu", &window[0]);
    for pass in ["forward", "backward_data", "backward_filter"] {
        let pixels = kernels("gemm_wgmma", &convolution::pixels(pass, 8), &[("split_k", 1)]);
        assert_golden(&format!("sm90_gemm_bf16_wgmma_pixels_{pass}.cu"), &pixels[0]);
    }
    let groups =
        kernels("gemm_wgmma", &convolution::grouped_pixels("backward_data"), &[("split_k", 1)]);
    assert_golden("sm90_gemm_bf16_wgmma_pixels_groups.cu", &groups[0]);
    let groups = kernels("gemm_mma", &convolution::batched("forward"), &[("split_k", 1)]);
    assert_golden("sm80_gemm_f16_mma_groups.cu", &groups[0]);
    let phases = kernels("gemm_mma", &convolution::phases("bias_relu"), &[("split_k", 1)]);
    assert_golden("sm80_gemm_f16_mma_phases.cu", &phases[0]);
    let scattered = kernels("gemm_mma", &convolution::scattered("forward"), &[("split_k", 1)]);
    assert_golden("sm80_gemm_f16_mma_scattered.cu", &scattered[0]);
}

#[test]
fn golden_random_numbers() {
    let dropout = kernels("pointwise", &rng::dropout(&[64, 768]), &[("grid", 0)]);
    assert_golden("sm75_pointwise_bf16_dropout.cu", &dropout[0]);
    let graph = rng::gemm_dropout([256, 512, 1024], DType::Bf16, false);
    let gemm = kernels("gemm_mma", &graph, &[("split_k", 1)]);
    assert_golden("sm80_gemm_bf16_mma_dropout.cu", &gemm[0]);
    let noise = kernels("reduction", &rng::noise(&[64, 256]), &[]);
    assert_golden("sm75_reduction_f32_noise.cu", &noise[0]);
    let convolution = kernels("gemm_mma", &rng::convolution(true, true), &[("split_k", 1)]);
    assert_golden("sm80_gemm_f16_mma_window_dropout.cu", &convolution[0]);
}

#[test]
fn golden_resident_loops() {
    for (name, graph, ctas) in [
        ("sm75_resident_loop_iteration.cu", resident_loop::iteration(), 1),
        ("sm75_resident_loop_relaxation.cu", resident_loop::relaxation(true), 16),
    ] {
        let knobs = [("cluster", 0), ("ctas", ctas), ("threads", 256)];
        let sources = kernels("resident_loop", &graph, &knobs);
        assert_golden(name, &sources[sources.len() - 1]);
    }
}

#[test]
fn golden_dynamic_slices() {
    for (name, graph) in [
        ("sm75_dynamic_slice_f16_turn.cu", dynamic_slice::turn()),
        ("sm75_dynamic_slice_bf16_decoding.cu", dynamic_slice::decoding()),
    ] {
        assert_golden(name, &kernels("dynamic_slice", &graph, &[("threads", 256)])[0]);
    }
}

#[test]
fn golden_pointwise_loops() {
    for (name, case, ahead) in [
        ("sm75_pointwise_loop_f32_scan.cu", pointwise_loop::scan(), 4),
        ("sm75_pointwise_loop_i32_while.cu", pointwise_loop::doubled(), 1),
    ] {
        let knobs = [("ahead", ahead), ("threads", 64)];
        assert_golden(name, &kernels("pointwise_loop", &case.graph(), &knobs)[0]);
    }
}

#[test]
fn golden_ctc_losses() {
    for (name, case, lattice) in [
        ("sm75_ctc_loss_f16_logits_workspace.cu", ctc::concatenated(), 1),
        ("sm75_ctc_loss_f32_probabilities_kept.cu", ctc::kept(), 0),
        ("sm75_ctc_loss_f64_log_probabilities_alone.cu", ctc::alone(), 0),
    ] {
        let knobs = [("lattice", lattice), ("threads", 128)];
        assert_golden(name, &kernels("ctc_loss", &case.graph(), &knobs)[0]);
    }
}

#[test]
fn golden_resamplings() {
    for (name, graph, items) in [
        ("sm75_resample_f16_direct_maxpool_forward.cu", resample::winners(), 2),
        ("sm75_resample_f16_direct_avgpool_forward.cu", resample::averages(), 4),
        ("sm75_resample_f16_direct_bilinear_forward.cu", resample::scaled(), 2),
        ("sm75_resample_f32_direct_bilinear_backward.cu", resample::scaled_gradient(), 2),
        ("sm75_resample_bf16_direct_maxpool_backward.cu", resample::found_gradient(), 4),
        ("sm75_resample_f32_direct_maxpool_backward_read.cu", resample::read_gradient(), 1),
    ] {
        assert_golden(name, &kernels("resample_direct", &graph, &[("items", items)])[0]);
    }
}

#[test]
fn golden_signals() {
    for (name, op) in [("set", Signal::set(1)), ("wait", Signal::wait(1))] {
        let graph = signal::passed(op.in_place(), DType::F16);
        assert_golden(&format!("sm75_signal_i32_{name}.cu"), &kernels("signal", &graph, &[])[0]);
    }
}

#[test]
fn golden_heuristics() {
    let mut table = String::new();
    for target in ["sim", "t4", "a100", "rtx4090", "h200", "b200"] {
        let target = Target::named(target).unwrap();
        writeln!(table, "{target}").unwrap();
        for [rows, columns] in [[1, 1], [64, 768], [37, 1001], [4096, 4096], [65536, 1024]] {
            let chosen =
                engine::choose(chain(rows, columns).canonical(), &target, &Default::default())
                    .unwrap();
            writeln!(table, "  chain {rows}x{columns}: {chosen}").unwrap();
        }
        let chosen = engine::choose(strided().canonical(), &target, &Default::default()).unwrap();
        writeln!(table, "  strided: {chosen}").unwrap();
        for [rows, columns] in
            [[1, 1], [65536, 64], [4096, 1000], [4096, 4096], [16, 16384], [8, 1 << 20]]
        {
            let graph = softmax(DType::Bf16, &[rows, columns], false);
            let chosen = engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
            writeln!(table, "  softmax {rows}x{columns}: {chosen}").unwrap();
            let graph = residual_rms([rows, columns]);
            let chosen = engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
            writeln!(table, "  rms {rows}x{columns}: {chosen}").unwrap();
        }
    }
    assert_golden("heuristics", &table);
}

#[test]
fn recurrent_layers() {
    let plain = CellOptions::default();
    let lstm = layer(CellKind::Lstm, plain, MatmulMath::F32, [8, 64]);
    let lstm = recurrent(&lstm, 16, DType::F16);
    assert_golden("sm80_rnn_f16_lstm_mma.cu", &sources("rnn_cta", &lstm));
    let quantization = Some(Quantization::new(63.0, 128));
    let integers = layer(CellKind::Lstm, plain, MatmulMath::F32, [8, 64]);
    let integers = recurrent(&Recurrence { quantization, ..integers }, 16, DType::U8);
    assert_golden("sm75_rnn_u8_lstm_mma.cu", &sources("rnn_cta", &integers));
    let options = CellOptions { projected: true, peephole: true, ..plain };
    let with = everything(CellKind::Lstm);
    let (layout, direction) = (RowLayout::Packed, Direction::Both);
    let full = layer(CellKind::Lstm, options, MatmulMath::F32, [8, 20]);
    let full = recurrent(&Recurrence { with, layout, direction, ..full }, 16, DType::F32);
    assert_golden("sm75_rnn_f32_lstm_simt.cu", &sources("rnn_cta", &full));
    let gru = layer(CellKind::GruResetBefore, plain, MatmulMath::F32, [8, 64]);
    let with = everything(CellKind::GruResetBefore);
    let gru = recurrent(&Recurrence { with, layout, direction, ..gru }, 16, DType::F16);
    let steps = kernels("rnn_step", &gru, &[]);
    let rest = steps.iter().find(|source| source.contains("_rest: ")).unwrap();
    assert_golden("sm75_rnn_cell_f16_gru_reset_before_rest.cu", rest);
    let own = derivative(&layer(CellKind::Lstm, plain, MatmulMath::F32, [8, 64]), DType::F16);
    let own = recurrent(&own, 16, DType::F16);
    assert_golden("sm80_rnn_f16_lstm_backward_mma.cu", &sources("rnn_cta", &own));
    let sums = kernels("rnn_cluster", &own, &[("exchange", 1), ("group_ctas", 4)]);
    assert_golden("sm80_rnn_f16_lstm_backward_mma_reduce_scatter.cu", &sums[0]);
    let gru = layer(CellKind::GruResetBefore, plain, MatmulMath::F32, [8, 20]);
    let own = derivative(&Recurrence { with, layout, direction, ..gru }, DType::F32);
    let own = recurrent(&own, 16, DType::F32);
    assert_golden("sm75_rnn_f32_gru_reset_before_backward_simt.cu", &sources("rnn_cta", &own));
    let steps = kernels("rnn_step", &own, &[]);
    let rest = steps.iter().find(|source| source.contains("_rest: ")).unwrap();
    assert_golden("sm75_rnn_cell_f32_gru_reset_before_backward_rest.cu", rest);
}

#[test]
fn golden_attention() {
    let shape = AttentionShape {
        batches: 2,
        heads: 32,
        kv_heads: 8,
        queries: 2048,
        keys: 2048,
        depth: 128,
        width: 128,
    };
    let storage = [Storage::packed(DType::Bf16); 4];
    let causal =
        Attention { band: Band::causal(Diagonal::BottomRight), ..Attention::new(MatmulMath::F32) };
    let of = |op: &Attention, shape| attention(op.clone(), shape, storage, [true; 4]);
    let plain = sources("attention_mma", &of(&causal, shape));
    assert_golden("sm80_attention_bf16_mma.cu", &plain);
    let hopper = sources("attention_wgmma", &of(&causal, shape));
    assert_golden("sm90_attention_bf16_wgmma.cu", &hopper);
    let fp8 = [DType::Bf16, DType::F8E4M3, DType::F8E4M3, DType::Bf16].map(Storage::packed);
    let fp8 = attention(causal.clone(), shape, fp8, [true; 4]);
    assert_golden("sm90_attention_bf16_wgmma_fp8.cu", &sources("attention_wgmma", &fp8));
    let full = Attention {
        softcap: Some(Softcap { cap: Real::new(30.0), last: false }),
        bias: true,
        slopes: true,
        sinks: true,
        key_lengths: true,
        dropout: Some(Real::new(0.1)),
        keep: Some(Arc::new(keep_program(DType::F32))),
        statistics: true,
        ..causal.clone()
    };
    let simt = sources("attention_simt", &of(&full, shape));
    assert_golden("sm75_attention_bf16_simt.cu", &simt);
    let fp8 = [DType::Bf16, DType::F8E4M3, DType::F8E4M3, DType::Bf16].map(Storage::packed);
    let long = Attention {
        score: Some(Arc::new(score_program(&shape, DType::F32))),
        descale_v: true,
        ..full
    };
    let long = sources("attention_mma", &attention(long, shape, fp8, [true; 4]));
    assert_golden("sm80_attention_bf16_mma_full.cu", &long);
    let pages = Attention { paged: true, key_lengths: true, ..Attention::new(MatmulMath::F32) };
    let one = AttentionShape { queries: 1, keys: 8000, ..shape };
    let one = sources("attention_decode", &of(&pages, one));
    assert_golden("sm80_attention_bf16_decode.cu", &one);
}

/// Gradients of the attention of a language model, and those of everything that there is.
#[test]
fn golden_attention_gradients() {
    let shape = AttentionShape {
        batches: 2,
        heads: 32,
        kv_heads: 8,
        queries: 2048,
        keys: 2048,
        depth: 128,
        width: 128,
    };
    let storage = [Storage::packed(DType::Bf16); 4];
    let causal =
        Attention { band: Band::causal(Diagonal::BottomRight), ..Attention::new(MatmulMath::F32) };
    let plain = AttentionBackward::new(causal.clone());
    let plain = backward_cases::graph(&plain, shape, storage, [true; 4]);
    assert_golden(
        "sm80_attention_backward_bf16_mma.cu",
        &sources("attention_backward_mma", &plain),
    );
    let own = [("cta_q", 128), ("dq", 0), ("step_k", 64)];
    assert_golden(
        "sm80_attention_backward_bf16_mma_own.cu",
        &kernels("attention_backward_mma", &plain, &own).join("\n"),
    );
    assert_golden(
        "sm80_attention_backward_bf16_mma_unordered.cu",
        &kernels("attention_backward_mma", &plain, &[("dq", 2)])[1],
    );
    assert_golden(
        "sm90_attention_backward_bf16_wgmma.cu",
        &kernels("attention_backward_wgmma", &plain, &[])[1],
    );
    let slopes = Attention { slopes: true, ..causal.clone() };
    let slopes = AttentionBackward { dslopes: true, ..AttentionBackward::new(slopes) };
    let slopes = backward_cases::graph(&slopes, shape, storage, [true; 4]);
    assert_golden(
        "sm75_attention_backward_bf16_dslopes.cu",
        &kernels("attention_backward_simt", &slopes, &[])[3..].join("\n"),
    );
    let full = Attention {
        softcap: Some(Softcap { cap: Real::new(30.0), last: false }),
        bias: true,
        sinks: true,
        key_lengths: true,
        dropout: Some(Real::new(0.1)),
        ..causal
    };
    let full = AttentionBackward { dbias: true, dsinks: true, ..AttentionBackward::new(full) };
    let broadcast = [false, true, true, true];
    let full = backward_cases::graph(&full, shape, storage, broadcast);
    assert_golden(
        "sm75_attention_backward_bf16_simt.cu",
        &sources("attention_backward_simt", &full),
    );
}
