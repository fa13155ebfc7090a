//! Which engine wins, with which knobs, for 66 named problems and for gradients, on three GPUs
//! each: golden files. A difference is reviewed as code; `make golden` rewrites them.

use std::fmt::Write;

use kiln::engine::{self, Selection};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{
    Attention, AttentionShape, Band, Diagonal, GenStats, GraphBuilder, Matmul, MatmulMath,
    NormBackward, NormForward, NormMode, Op, Phase, Reduction, ReductionOp,
};
use kiln::plan::Problem;
use kiln::target::Target;
use kiln::{DType, OperationGraph, TensorDesc};

use crate::attention::cases::{Storage, graph as attention_graph};
use crate::columns::channels_last;
use crate::convolution;
use crate::golden::{assert_golden, chain};
use crate::reduction::{residual_rms, softmax};
use crate::resample;

pub fn built(build: impl FnOnce(&mut GraphBuilder) -> i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let y = build(&mut graph);
    graph.output(y, "y", DType::Bf16);
    graph.build().unwrap()
}

/// The product of two inputs of these dimensions.
pub fn product(graph: &mut GraphBuilder, math: MatmulMath, a: &[i64], b: &[i64]) -> i64 {
    let dtype = match math {
        MatmulMath::F32 => DType::Bf16,
        MatmulMath::Tf32 => DType::F32,
        MatmulMath::F64 => DType::F64,
        _ => DType::I8,
    };
    let (a, b) = (graph.input("a", a, dtype), graph.input("b", b, dtype));
    graph.matmul(Matmul::new(math), a, b).unwrap()
}

fn square(math: MatmulMath, size: i64) -> OperationGraph {
    gemm(math, [size, size, size])
}

fn gemm(math: MatmulMath, [m, n, k]: [i64; 3]) -> OperationGraph {
    built(|graph| product(graph, math, &[m, k], &[k, n]))
}

fn with_bias_and_gelu([m, n, k]: [i64; 3]) -> OperationGraph {
    built(|graph| {
        let c = product(graph, MatmulMath::F32, &[m, k], &[k, n]);
        let bias = graph.input("bias", &[1, n], DType::Bf16);
        let sum = graph.pointwise(Pointwise::new(Mode::Add), &[c, bias]).unwrap();
        graph.pointwise(Pointwise::new(Mode::GeluFwd), &[sum]).unwrap()
    })
}

/// Two products of one matrix, one of them the gate of the other.
pub fn swiglu([m, n, k]: [i64; 3]) -> OperationGraph {
    built(|graph| {
        let gate = product(graph, MatmulMath::F32, &[m, k], &[k, n]);
        let (x, up) = (1, graph.input("up", &[k, n], DType::Bf16));
        let up = graph.matmul(Matmul::default(), x, up).unwrap();
        let gate = graph.pointwise(Pointwise::new(Mode::SwishFwd), &[gate]).unwrap();
        graph.pointwise(Pointwise::new(Mode::Mul), &[gate, up]).unwrap()
    })
}

/// Weights of eight bits, widened and scaled on their way into the product.
pub fn dequantised([m, n, k]: [i64; 3]) -> OperationGraph {
    built(|graph| {
        let a = graph.input("a", &[m, k], DType::F16);
        let b = graph.input("b", &[k, n], DType::I8);
        let scale = graph.input("scale", &[1, n], DType::F32);
        let b = graph.pointwise(Pointwise::new(Mode::Mul), &[b, scale]).unwrap();
        graph.name(b, "weights", DType::F16);
        graph.matmul(Matmul::default(), a, b).unwrap()
    })
}

/// f16 by bf16.
fn mixed([m, n, k]: [i64; 3]) -> OperationGraph {
    built(|graph| {
        let (a, b) =
            (graph.input("a", &[m, k], DType::F16), graph.input("b", &[k, n], DType::Bf16));
        graph.matmul(Matmul::default(), a, b).unwrap()
    })
}

/// Scores, softmax and values of heads, as operations.
fn attention([heads, length, depth]: [i64; 3]) -> OperationGraph {
    built(|graph| {
        let scores =
            product(graph, MatmulMath::F32, &[heads, length, depth], &[heads, depth, length]);
        let row = [heads, length, 1];
        let max = graph.reduction(Reduction::new(ReductionOp::Max), scores, &row).unwrap();
        let shifted = graph.pointwise(Pointwise::new(Mode::Sub), &[scores, max]).unwrap();
        let exp = graph.pointwise(Pointwise::new(Mode::Exp), &[shifted]).unwrap();
        let sum = graph.reduction(Reduction::new(ReductionOp::Add), exp, &row).unwrap();
        let weights = graph.pointwise(Pointwise::new(Mode::Div), &[exp, sum]).unwrap();
        graph.name(weights, "weights", DType::Bf16);
        let v = graph.input("v", &[heads, length, depth], DType::Bf16);
        graph.matmul(Matmul::default(), weights, v).unwrap()
    })
}

/// Attention of 32 heads that share keys and values of 8, causal from the end.
fn sdpa(with: Attention, extents: [i64; 3]) -> OperationGraph {
    sdpa_of(with, extents, DType::Bf16)
}

/// FP8 keys and values.
fn sdpa_fp8(with: Attention, extents: [i64; 3]) -> OperationGraph {
    sdpa_stored(with, extents, [DType::Bf16, DType::F8E4M3, DType::F8E4M3, DType::Bf16])
}

fn sdpa_of(with: Attention, extents: [i64; 3], dtype: DType) -> OperationGraph {
    sdpa_stored(with, extents, [dtype; 4])
}

fn sdpa_stored(
    with: Attention,
    [queries, keys, elements]: [i64; 3],
    types: [DType; 4],
) -> OperationGraph {
    let shape = AttentionShape {
        batches: 2,
        heads: 32,
        kv_heads: 8,
        queries,
        keys,
        depth: elements,
        width: elements,
    };
    let op = Attention { band: Band::causal(Diagonal::BottomRight), ..with };
    attention_graph(op, shape, types.map(Storage::packed), [true; 4])
}

pub fn reduced(op: ReductionOp, dims: &[i64], to: &[i64]) -> OperationGraph {
    built(|graph| {
        let x = graph.input("x", dims, DType::Bf16);
        graph.reduction(Reduction::new(op), x, to).unwrap()
    })
}

/// All results of an operation, packed or with channels last: data in bf16, everything else in f32.
pub fn all_of(
    op: Op,
    data: &[i64],
    parameters: &[i64],
    with_channels_last: bool,
) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut inputs = Vec::new();
    for (uid, slot) in (1..).zip(op.slots().inputs) {
        let rank = data.len();
        let (dims, dtype) = match slot {
            "x" | "dy" => (data.to_vec(), DType::Bf16),
            "epsilon" => (vec![1; rank], DType::F32),
            "mean" | "inv_variance" => {
                let left = |(x, own): (&i64, &i64)| if *own == 1 { *x } else { 1 };
                (data.iter().zip(parameters).map(left).collect(), DType::F32)
            }
            _ => (parameters.to_vec(), DType::F32),
        };
        inputs.push(graph.tensor(TensorDesc::packed(uid, slot, &dims, dtype)));
    }
    let outputs = op.slots().outputs;
    let results = graph.operation(op, &inputs).unwrap();
    for (slot, uid) in outputs.iter().zip(results) {
        let data = matches!(*slot, "y" | "dx");
        graph.output(uid, &format!("out_{slot}"), if data { DType::Bf16 } else { DType::F32 });
    }
    let graph = graph.build().unwrap();
    if with_channels_last { channels_last(&graph) } else { graph }
}

pub fn norm(mode: NormMode) -> Op {
    let phase = Phase::Training;
    let bias = mode.centred();
    Op::NormForward(NormForward { bias, statistics: true, ..NormForward::new(mode, phase) })
}

pub fn norm_backward(mode: NormMode) -> Op {
    Op::NormBackward(NormBackward { bias: mode.centred(), ..NormBackward::new(mode) })
}

/// Transposing one of two operands.
fn transposed_sum() -> OperationGraph {
    built(|graph| {
        let a = graph.input("a", &[4096, 4096], DType::Bf16);
        let b = TensorDesc::packed(50, "b", &[4096, 4096], DType::Bf16);
        let b = graph.tensor(TensorDesc { strides: vec![1, 4096], ..b });
        graph.pointwise(Pointwise::new(Mode::Add), &[a, b]).unwrap()
    })
}

fn problems() -> Vec<(&'static str, OperationGraph)> {
    let (f32, tf32) = (MatmulMath::F32, MatmulMath::Tf32);
    let (nchw, channels) = ([32, 256, 28, 28], [1, 256, 1, 1]);
    let (tokens, features) = ([8192, 4096], [1, 4096]);
    let plain = Attention::new(f32);
    let (three, strided) = ([1, 256, 256, 14, 3, 1], [1, 128, 128, 56, 3, 2]);
    vec![
        ("chain_one_element", chain(1, 1)),
        ("chain_small", chain(64, 768)),
        ("chain_odd", chain(37, 1001)),
        ("chain_large", chain(65536, 1024)),
        ("sum_transposed", transposed_sum()),
        ("reduce_all", reduced(ReductionOp::Add, &[16384, 1024], &[1, 1])),
        ("reduce_rows", reduced(ReductionOp::Max, &[16384, 1024], &[16384, 1])),
        ("reduce_columns", reduced(ReductionOp::Add, &[16384, 1024], &[1, 1024])),
        ("reduce_middle", reduced(ReductionOp::Avg, &[64, 512, 768], &[64, 1, 768])),
        ("softmax_64", softmax(DType::Bf16, &[65536, 64], false)),
        ("softmax_1000", softmax(DType::F32, &[4096, 1000], false)),
        ("softmax_32k", softmax(DType::Bf16, &[2048, 32000], false)),
        ("log_softmax_128k", softmax(DType::F32, &[512, 128_000], true)),
        ("residual_rms_2048", residual_rms([8192, 2048])),
        ("residual_rms_8192", residual_rms([4096, 8192])),
        ("layer_norm", all_of(norm(NormMode::Layer), &tokens, &features, false)),
        ("layer_norm_backward", all_of(norm_backward(NormMode::Layer), &tokens, &features, false)),
        ("rms_norm_backward", all_of(norm_backward(NormMode::Rms), &tokens, &features, false)),
        ("batch_norm", all_of(norm(NormMode::Batch), &nchw, &channels, false)),
        ("batch_norm_channels_last", all_of(norm(NormMode::Batch), &nchw, &channels, true)),
        ("group_norm", all_of(norm(NormMode::Group(32)), &nchw, &channels, false)),
        ("gen_stats", all_of(Op::GenStats(GenStats::default()), &nchw, &channels, false)),
        (
            "gen_stats_channels_last",
            all_of(Op::GenStats(GenStats::default()), &nchw, &channels, true),
        ),
        ("max_pool", resample::layer(false, "maxpool", "bf16", "channels_last")),
        ("max_pool_gradient", resample::layer(true, "maxpool", "bf16", "channels_last")),
        (
            "mean_pool_columns",
            resample::layer(false, "avgpool_exclude_padding", "f16", "channels_first"),
        ),
        ("conv_3x3", convolution::layer("forward", three)),
        ("conv_3x3_data", convolution::layer("backward_data", three)),
        ("conv_3x3_filter", convolution::layer("backward_filter", three)),
        ("conv_norm_gradient", convolution::fused_layer("backward_data", three, "norm_gradient")),
        ("conv_statistics", convolution::fused_layer("forward", three, "finalised_statistics")),
        ("conv_strided", convolution::layer("forward", strided)),
        ("conv_strided_data", convolution::layer("backward_data", strided)),
        ("conv_1x1", convolution::layer("forward", [1, 256, 64, 56, 1, 1])),
        ("conv_colours", convolution::layer("forward", [1, 3, 64, 224, 7, 2])),
        ("conv_grouped", convolution::layer("forward", [32, 4, 4, 56, 3, 1])),
        ("conv_depthwise", convolution::layer("forward", [144, 1, 1, 56, 3, 1])),
        ("conv_depthwise_filter", convolution::layer("backward_filter", [144, 1, 1, 56, 3, 1])),
        ("conv_depthwise_spread", convolution::layer("backward_data", [144, 1, 1, 56, 3, 2])),
        ("conv_depthwise_doubled", convolution::layer("backward_data", [72, 1, 2, 28, 3, 1])),
        ("conv_grouped_pixels", convolution::layer("forward", [4, 64, 64, 28, 3, 1])),
        ("gemm_128", square(f32, 128)),
        ("gemm_1024", square(f32, 1024)),
        ("gemm_4096", square(f32, 4096)),
        ("gemm_8192", square(f32, 8192)),
        ("gemm_odd", gemm(f32, [1000, 1003, 1001])),
        ("gemm_tf32", square(tf32, 4096)),
        ("gemm_f64", square(MatmulMath::F64, 2048)),
        ("gemm_i8", square(MatmulMath::I32, 4096)),
        ("gemm_one_row", gemm(f32, [1, 4096, 4096])),
        ("gemm_16_rows", gemm(f32, [16, 4096, 4096])),
        ("gemm_deep", gemm(f32, [256, 256, 65536])),
        ("gemm_dequantised", dequantised([512, 4096, 4096])),
        ("gemm_mixed", mixed([2048, 4096, 4096])),
        ("linear_gelu", with_bias_and_gelu([4096, 16384, 4096])),
        ("linear_gelu_small", with_bias_and_gelu([64, 768, 768])),
        ("swiglu", swiglu([4096, 11008, 4096])),
        ("attention_heads", attention([64, 1024, 128])),
        ("sdpa_64", sdpa(plain.clone(), [4096, 4096, 64])),
        ("sdpa_128", sdpa(plain.clone(), [4096, 4096, 128])),
        ("sdpa_256", sdpa(plain.clone(), [2048, 2048, 256])),
        ("sdpa_bias", sdpa(Attention { bias: true, ..plain.clone() }, [2048, 2048, 128])),
        ("sdpa_tf32", sdpa_of(Attention::new(tf32), [2048, 2048, 128], DType::F32)),
        ("sdpa_fp8", sdpa_fp8(plain.clone(), [2048, 2048, 128])),
        ("sdpa_decode", sdpa(plain, [1, 8192, 128])),
        ("bmm_small", { built(|graph| product(graph, f32, &[512, 64, 64], &[512, 64, 64])) }),
    ]
}

/// The engines of named graphs on each of these GPUs, a line for each part.
fn table(targets: &[&str], problems: &[(String, Vec<OperationGraph>)]) -> String {
    let mut table = String::new();
    for target in targets {
        let target = Target::named(target).unwrap();
        writeln!(table, "{target}").unwrap();
        for (name, graphs) in problems {
            let parts = graphs.iter().flat_map(|graph| {
                engine::partition(graph, &target, &Selection::default())
                    .unwrap_or_else(|error| panic!("{name}: {error}"))
            });
            for (number, part) in parts.enumerate() {
                let name = if number == 0 { name } else { "" };
                writeln!(table, "  {name:24} {}", part.config).unwrap();
            }
        }
    }
    table
}

#[test]
fn winners() {
    let problems: Vec<_> =
        problems().into_iter().map(|(name, graph)| (name.to_owned(), vec![graph])).collect();
    assert_eq!(problems.len(), 66);
    assert_golden("winners", &table(&["a100", "rtx4090", "h200"], &problems));
}

/// Gradients of attention, and all passes of networks in training.
#[test]
fn winners_of_gradients() {
    let rows: serde_json::Value =
        serde_json::from_str(include_str!("../data/gradients.json")).unwrap();
    let rows = rows.as_array().expect("there are rows");
    let problems: Vec<_> = rows
        .iter()
        .map(|row| {
            let name = row["name"].as_str().expect("it has a name");
            let problem = Problem::from_json(&row["problem"].to_string()).expect(name);
            (name.to_owned(), problem.graphs().into_iter().cloned().collect())
        })
        .collect();
    assert_golden("winners_gradients", &table(&["t4", "a100", "h200"], &problems));
}
