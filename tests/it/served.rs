//! Shapes that served and trained models ask for: what the rules of heuristic A choose is near the
//! best legal setting by the cost model, on a GPU of each class.

use std::fmt::Write;

use kiln::engine::{self, CostModel, Mode as Heuristic, Selection};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{MatmulMath, NormMode, Recurrence, RecurrenceSlots, ReductionOp};
use kiln::rnn::{CellKind, CellOptions};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::recurrence::{graph as recurrence, layer};
use crate::reduction::{residual_rms, softmax};
use crate::winners::{all_of, built, dequantised, norm, norm_backward, product, reduced, swiglu};

/// How much longer than the best legal setting the rules' may take by the model.
const FACTOR_MAX: f64 = 1.3;

const TARGETS: [&str; 5] = ["t4", "a100", "rtx4090", "h200", "b200"];

struct Shape {
    name: String,
    graph: OperationGraph,
}

fn shape(name: String, graph: OperationGraph) -> Shape {
    Shape { name, graph }
}

/// A linear layer with what follows it in a model.
fn linear(rows: i64, [n, k]: [i64; 2], after: &str) -> Shape {
    let graph = built(|graph| {
        let c = product(graph, MatmulMath::F32, &[rows, k], &[k, n]);
        let mut with = |mode, dims: [i64; 2], name: &str| {
            let other = graph.input(name, &dims, DType::Bf16);
            graph.pointwise(Pointwise::new(mode), &[c, other]).unwrap()
        };
        match after {
            "bias" => with(Mode::Add, [1, n], "bias"),
            "residual" => with(Mode::Add, [rows, n], "residual"),
            "gelu" => {
                let sum = with(Mode::Add, [1, n], "bias");
                graph.pointwise(Pointwise::new(Mode::GeluApproxTanhFwd), &[sum]).unwrap()
            }
            _ => c,
        }
    });
    shape(format!("linear {rows}x{n}x{k} {after}"), graph)
}

/// Projections of transformers: columns and depth, and what follows.
const LINEAR: [([i64; 2], &str); 12] = [
    ([6144, 4096], ""),          // Llama 3 8B, queries, keys and values
    ([4096, 14336], "residual"), // the same, down
    ([10240, 8192], ""),         // Llama 3 70B, queries, keys and values
    ([1280, 8192], ""),          // the same, one of eight GPUs
    ([8192, 3584], "residual"),  // the same, down
    ([4608, 3584], "bias"),      // Qwen 2.5 7B, queries, keys and values
    ([9216, 3072], ""),          // Phi 3 mini
    ([3072, 768], "gelu"),       // GPT 2, up
    ([768, 3072], "residual"),   // the same, down
    ([4096, 1024], "gelu"),      // BERT large, up
    ([1280, 1280], "bias"),      // Whisper large
    ([2048, 7168], ""),          // DeepSeek V3, an expert's gate
];

/// Rows that decode, speculate, prefill a chunk, and prefill or train.
const ROWS: [i64; 5] = [1, 16, 128, 2048, 8192];

fn linears() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (extents, after) in LINEAR {
        shapes.extend(ROWS.map(|rows| linear(rows, extents, after)));
    }
    for [rows, n, k] in [[1, 128_256, 4096], [32, 151_936, 3584], [8, 50_257, 768]] {
        shapes.push(linear(rows, [n, k], ""));
    }
    for extents in [[1, 14336, 4096], [64, 11008, 4096], [4096, 14336, 4096], [2048, 2048, 7168]] {
        shapes.push(shape(format!("swiglu {extents:?}"), swiglu(extents)));
    }
    for extents in [[1, 4096, 4096], [16, 14336, 4096], [2048, 4096, 4096]] {
        shapes.push(shape(format!("int8 weights {extents:?}"), dequantised(extents)));
    }
    for (math, extents) in [
        (MatmulMath::Tf32, [4096, 4096, 1024]),
        (MatmulMath::Tf32, [256, 1000, 2048]),
        (MatmulMath::I32, [2048, 4096, 4096]),
        (MatmulMath::I32, [64, 4096, 4096]),
        (MatmulMath::F64, [1024, 1024, 1024]),
    ] {
        let [m, n, k] = extents;
        let graph = built(|graph| product(graph, math, &[m, k], &[k, n]));
        shapes.push(shape(format!("{math:?} {extents:?}"), graph));
    }
    // Gradients of weights: a deep sum; scores of many heads: small products.
    for (batch, [m, n, k]) in [(1, [4096, 4096, 8192]), (1, [768, 3072, 16384]), (384, [512; 3])] {
        let graph = built(|graph| product(graph, MatmulMath::F32, &[batch, m, k], &[batch, k, n]));
        shapes.push(shape(format!("batch {batch} {m}x{n}x{k}"), graph));
    }
    shapes
}

fn norms() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for columns in [2048, 3584, 4096, 5120, 8192, 16384] {
        for rows in [1, 64, 4096] {
            let name = format!("residual rms {rows}x{columns}");
            shapes.push(shape(name, residual_rms([rows, columns])));
        }
    }
    for (rows, columns) in [(512, 768), (8192, 1024), (1500, 1280), (4096, 4096)] {
        let (data, parameters) = ([rows, columns], [1, columns]);
        let all = |op| all_of(op, &data, &parameters, false);
        let size = format!("{rows}x{columns}");
        shapes.push(shape(format!("layer norm {size}"), all(norm(NormMode::Layer))));
        let backward = all(norm_backward(NormMode::Layer));
        shapes.push(shape(format!("layer norm backward {size}"), backward));
        let backward = all(norm_backward(NormMode::Rms));
        shapes.push(shape(format!("rms norm backward {size}"), backward));
    }
    for (channels, side) in [(64, 112), (256, 56), (512, 28), (1024, 14), (2048, 7)] {
        let (data, parameters) = ([32, channels, side, side], [1, channels, 1, 1]);
        for last in [false, true] {
            let name = format!("batch norm {channels}x{side}x{side} channels last {last}");
            let graph = all_of(norm(NormMode::Batch), &data, &parameters, last);
            shapes.push(shape(name, graph));
        }
    }
    for (channels, side) in [(320, 64), (640, 32), (1280, 16)] {
        let (data, parameters) = ([2, channels, side, side], [1, channels, 1, 1]);
        let graph = all_of(norm(NormMode::Group(32)), &data, &parameters, false);
        shapes.push(shape(format!("group norm {channels}x{side}x{side}"), graph));
    }
    for (rows, columns) in [(1, 128_256), (64, 151_936), (4096, 50_257), (12288, 1500)] {
        let name = format!("softmax {rows}x{columns}");
        shapes.push(shape(name, softmax(DType::F32, &[rows, columns], false)));
    }
    for (dims, to) in [([8192, 4096], [1, 4096]), ([1, 1 << 22], [1, 1]), ([256, 12544], [256, 1])]
    {
        let name = format!("sum {dims:?} to {to:?}");
        shapes.push(shape(name, reduced(ReductionOp::Add, &dims, &to)));
    }
    shapes
}

fn networks() -> Vec<Shape> {
    let mut shapes = Vec::new();
    let with = RecurrenceSlots { h_initial: true, h_final: true, ..Default::default() };
    for kind in [CellKind::Lstm, CellKind::Gru] {
        for (units, batch) in [
            (128, 1),
            (256, 16),
            (512, 1),
            (512, 64),
            (768, 32),
            (1024, 8),
            (1024, 128),
            (2048, 16),
        ] {
            let plain = layer(kind, CellOptions::default(), MatmulMath::F32, [batch, units]);
            let op = Recurrence { with, ..plain };
            let name = format!("{kind:?} {batch}x{units}");
            shapes.push(shape(name, recurrence(&op, 100, DType::F16)));
        }
    }
    shapes
}

/// By how much the chosen settings of all parts of a graph are behind the best, by the model.
fn factor(graph: &OperationGraph, target: &Target, about: &mut String) -> f64 {
    let by_model = Selection { mode: Heuristic::B, ..Selection::default() };
    let model = CostModel::of(target);
    let mut worst: f64 = 1.0;
    for part in engine::partition(graph, target, &Selection::default()).unwrap() {
        let best =
            engine::choices(part.graph.canonical(), target, &by_model).unwrap().swap_remove(0);
        let work = part.supported(target).unwrap().work_of()(&part.config);
        let own_us = model.predicted_us(&work.unwrap_or_else(|| panic!("{}", part.config)));
        let best_us = best.predicted_us.unwrap();
        if own_us / best_us > worst {
            worst = own_us / best_us;
            about.clear();
            write!(about, "{own_us:.1} us {}, {best_us:.1} us {}", part.config, best.config)
                .unwrap();
        }
    }
    worst
}

fn rules_are_near_the_best(shapes: &[Shape]) {
    let mut far = Vec::new();
    for target in TARGETS {
        let target = Target::named(target).unwrap();
        for Shape { name, graph } in shapes {
            let mut about = String::new();
            let factor = factor(graph, &target, &mut about);
            if factor > FACTOR_MAX {
                far.push(format!("{factor:.2} {name} on {}: {about}", target.name));
            }
        }
    }
    far.sort_by(|a, b| b.cmp(a));
    let all = shapes.len() * TARGETS.len();
    assert!(far.is_empty(), "{} of {all}:\n{}", far.len(), far.join("\n"));
}

#[test]
fn linear_layers_are_near_the_best() {
    rules_are_near_the_best(&linears());
}

#[test]
fn norms_and_reductions_are_near_the_best() {
    rules_are_near_the_best(&norms());
}

#[test]
fn recurrent_layers_are_near_the_best() {
    rules_are_near_the_best(&networks());
}
