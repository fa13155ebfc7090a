//! Gradients of graphs: against central differences in double precision, by conventions where
//! operations are not smooth, what is saved, and on every device.

use std::collections::HashMap;

use kiln::engine::{self, Selection};
use kiln::expr::{Math, Mode, ModeClass, Pointwise, Real};
use kiln::graph::{
    Concatenate, Convolution, ConvolutionPass, GenStats, GraphBuilder, Matmul, MatmulMath,
    NormForward, NormMode, Op, Phase, Reduction, ReductionOp, Resample, ResampleMode, ResamplePass,
    Sampling, Slice, Transpose, Vjp, Window,
};
use kiln::target::Target;
use kiln::{DType, ErrorKind, Kiln, OperationGraph, reference};
use serde::Deserialize;

use crate::harness::{self, Values};
use crate::views;

type Graph = OperationGraph;

/// Values of about 1 in size, away from 0, that differ from each other.
fn values(count: i64, seed: u64) -> Vec<f64> {
    let mut noise = fastrand::Rng::with_seed(seed);
    let value = |_| (0.3 + 1.2 * noise.f64()) * if noise.bool() { 1.0 } else { -1.0 };
    (0..count).map(value).collect()
}

pub fn filled(graph: &Graph, positive: bool) -> Values {
    let of = |tensor: &kiln::TensorDesc| {
        let count = tensor.elements().expect("small");
        let values = values(count, tensor.uid as u64);
        let sign = |value: f64| if positive { value.abs() } else { value };
        match tensor.name.as_str() {
            "epsilon" => (tensor.uid, vec![0.01; count as usize]),
            "t" => (tensor.uid, (0..count).map(|at| (at % 2) as f64).collect()),
            _ => (tensor.uid, values.into_iter().map(sign).collect()),
        }
    };
    graph.inputs().map(of).collect()
}

fn uids<'a>(of: impl Iterator<Item = &'a kiln::TensorDesc>) -> Vec<i64> {
    of.filter(|tensor| tensor.dtype.is_float() && tensor.name != "epsilon")
        .map(|tensor| tensor.uid)
        .collect()
}

pub fn all(graph: &Graph) -> Vjp {
    graph.vjp(&uids(graph.outputs()), &uids(graph.inputs())).unwrap()
}

/// The values of a backward graph's inputs: those of the forward one, and gradients of outputs.
pub fn backward_inputs(vjp: &Vjp, inputs: &Values, gradients: &Values) -> Values {
    let forward = reference::evaluate(&vjp.forward, inputs).unwrap();
    let value = |tensor: &kiln::TensorDesc| {
        let uid = tensor.uid;
        let own = gradients.get(&uid).cloned();
        (uid, own.unwrap_or_else(|| forward[&uid].values.clone()))
    };
    vjp.backward.inputs().map(value).collect()
}

/// Makes values such as tensors hold.
pub fn round<'a>(tensors: impl Iterator<Item = &'a kiln::TensorDesc>, values: &mut Values) {
    for tensor in tensors {
        let own = values.get_mut(&tensor.uid).unwrap();
        own.iter_mut().for_each(|value| *value = tensor.dtype.round(*value));
    }
}

pub fn gradients(vjp: &Vjp) -> Values {
    let given = vjp.output_gradients.iter().filter_map(|uid| vjp.backward.tensor(*uid).ok());
    given.map(|of| (of.uid, values(of.elements().unwrap(), 77 + of.uid as u64))).collect()
}

/// The gradients of a graph in double precision are the slopes of its outputs, weighted.
pub fn slopes(graph: &Graph, positive: bool) {
    slopes_at(graph, &filled(graph, positive), &uids(graph.outputs()), 2e-6);
}

/// As [`slopes`], of these inputs and outputs.
pub fn slopes_at(graph: &Graph, given: &Values, outputs: &[i64], bound: f64) {
    // The gradient of a gradient of ReLU by where it is taken is 0.
    let has_slope =
        |of: &&kiln::TensorDesc| !(of.name == "x" && graph.to_string().contains("relu_bwd"));
    let inputs = uids(graph.inputs().filter(has_slope));
    let vjp = graph.vjp(outputs, &inputs).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    let weights = gradients(&vjp);
    let found = backward_inputs(&vjp, given, &weights);
    let found = reference::evaluate(&vjp.backward, &found).unwrap();
    let weighted = |inputs: &Values| -> f64 {
        let values = reference::evaluate(graph, inputs).unwrap();
        let pairs = outputs.iter().zip(&vjp.output_gradients);
        pairs
            .flat_map(|(uid, gradient)| {
                values[uid].values.iter().zip(weights.get(gradient).into_iter().flatten())
            })
            .map(|(value, weight)| value * weight)
            .sum()
    };
    for (uid, gradient) in inputs.iter().zip(&vjp.input_gradients) {
        for at in 0..given[uid].len() {
            let step = 1e-5;
            let beside = |side: f64| {
                let mut moved = given.clone();
                moved.get_mut(uid).unwrap()[at] += side * step;
                weighted(&moved)
            };
            let slope = (beside(1.0) - beside(-1.0)) / (2.0 * step);
            let have = found[gradient].values[at];
            let error = (have - slope).abs();
            let name = &graph.tensor(*uid).unwrap().name;
            assert!(
                error <= bound * (1.0 + slope.abs()),
                "`{name}`[{at}]: {have}, the slope is {slope}\n{graph}\n{}",
                vjp.backward
            );
        }
    }
}

/// The backward graph of all gradients, run on a device.
pub fn on_device(kiln: &Kiln, graph: &Graph, given: &Values) {
    let vjp = all(graph);
    let found = backward_inputs(&vjp, given, &gradients(&vjp));
    harness::check(kiln, &vjp.backward, None, &found, &graph.to_string());
}

/// A graph of one result, in double precision.
fn built(build: impl FnOnce(&mut GraphBuilder) -> i64) -> Graph {
    let mut graph = OperationGraph::builder();
    let y = build(&mut graph);
    graph.output(y, "y", DType::F64);
    graph.build().unwrap()
}

pub fn f64s(mode: Mode) -> Pointwise {
    Pointwise::new(mode).math(Math::F64)
}

/// Modes whose results do not change with their operands, where they change at all.
fn is_flat(mode: Mode) -> bool {
    use Mode::*;
    matches!(
        mode,
        CmpEq | CmpNeq | CmpGt | CmpGe | CmpLt | CmpLe | LogicalAnd | LogicalOr | LogicalNot
    ) || matches!(mode, Ceil | Floor | GenIndex)
}

#[test]
fn every_mode_has_its_slope() {
    for mode in Mode::ALL.into_iter().filter(|mode| !is_flat(*mode)) {
        for [a, c] in [[1.0, 1.0], [0.75, -1.25], [-0.5_f64, 0.625]] {
            let op = f64s(mode).relu(-0.4, 0.9, 0.25).shape(1.5);
            let two = op.mode.class() != ModeClass::Unary;
            // Logarithms and roots of what is positive.
            let rooted = matches!(mode, Mode::Log | Mode::Sqrt | Mode::Rsqrt | Mode::Pow);
            let op = match (rooted, two) {
                (true, _) => op.alphas(a.abs(), if two { c } else { 1.0 }),
                (false, true) => op.alphas(a, c),
                (false, false) => op.alphas(a, 1.0),
            };
            for dims in [[2, 3], [1, 3], [2, 1]] {
                if mode == Mode::BinarySelect && dims != [2, 3] {
                    continue;
                }
                let graph = built(|graph| {
                    let x = graph.input("x", &[2, 3], DType::F64);
                    let mut operands = vec![x];
                    if two {
                        operands.push(graph.input("b", &dims, DType::F64));
                    }
                    if mode == Mode::BinarySelect {
                        operands.push(graph.input("t", &[2, 3], DType::Bool));
                    }
                    graph.pointwise(op, &operands).unwrap()
                });
                slopes(&graph, rooted);
            }
        }
    }
}

#[test]
fn reductions_have_their_slopes() {
    use ReductionOp::*;
    for op in [Add, Avg, Norm1, Norm2, Max, Min, Amax] {
        for to in [[2, 1, 4], [1, 3, 1], [1, 1, 1]] {
            let graph = built(|graph| {
                let x = graph.input("x", &[2, 3, 4], DType::F64);
                let square = graph.pointwise(f64s(Mode::Mul).alphas(0.5, 1.0), &[x, x]).unwrap();
                let sum = graph.pointwise(f64s(Mode::Add), &[x, square]).unwrap();
                graph.reduction(Reduction { op, math: Math::F64 }, sum, &to).unwrap()
            });
            slopes(&graph, false);
        }
    }
}

#[test]
fn products_have_their_slopes() {
    let matmul = Matmul::new(MatmulMath::F64);
    for [a, b] in [[[2, 3, 4], [2, 4, 5]], [[1, 3, 4], [2, 4, 5]], [[2, 3, 4], [1, 4, 5]]] {
        let graph = built(|graph| {
            let a = graph.input("a", &a, DType::F64);
            let b = graph.input("b", &b, DType::F64);
            let bias = graph.input("bias", &[1, 1, 5], DType::F64);
            let c = graph.matmul(matmul, a, b).unwrap();
            let c = graph.pointwise(f64s(Mode::Add), &[c, bias]).unwrap();
            graph.pointwise(f64s(Mode::GeluFwd), &[c]).unwrap()
        });
        slopes(&graph, false);
    }
}

#[test]
fn norms_have_their_slopes() {
    let modes = [NormMode::Layer, NormMode::Rms, NormMode::Instance, NormMode::Batch];
    for mode in modes.into_iter().chain([NormMode::Group(2)]) {
        for statistics in [false, true] {
            let op = NormForward {
                math: Math::F64,
                statistics,
                ..NormForward::new(mode, Phase::Training)
            };
            let graph = built(|graph| {
                let x = graph.input("x", &[2, 4, 3], DType::F64);
                let scale = match mode {
                    NormMode::Layer | NormMode::Rms => [1, 4, 3],
                    _ => [1, 4, 1],
                };
                let [scale, bias] =
                    ["scale", "bias"].map(|name| graph.input(name, &scale, DType::F64));
                let epsilon = graph.input("epsilon", &[1, 1, 1], DType::F64);
                let y = graph.operation(Op::NormForward(op), &[x, scale, bias, epsilon]).unwrap();
                for (at, uid) in y[1..].iter().enumerate() {
                    graph.output(*uid, &format!("s{at}"), DType::F64);
                }
                graph.pointwise(f64s(Mode::TanhFwd), &[y[0]]).unwrap()
            });
            let y = graph.tensor_named("y").unwrap().uid;
            let vjp = graph.vjp(&[y], &uids(graph.inputs())).unwrap();
            assert_eq!(vjp.input_gradients.len(), 3);
            if !statistics {
                slopes(&graph, false);
            }
        }
    }
    let stats = built(|graph| {
        let x = graph.input("x", &[2, 4, 3], DType::F64);
        let op = Op::GenStats(GenStats { math: Math::F64 });
        let sums = graph.operation(op, &[x]).unwrap();
        graph.pointwise(f64s(Mode::Mul), &sums).unwrap()
    });
    slopes(&stats, false);
}

#[test]
fn convolutions_have_their_slopes() {
    let window = Window {
        filter_strides: vec![2, 1],
        dilations: vec![1, 2],
        pre_paddings: vec![1, 0],
        post_paddings: vec![0, 2],
    };
    // Dimensions of the image, the filter and the response.
    let dims: [&[i64]; 3] = [&[2, 4, 5, 6], &[6, 2, 3, 2], &[2, 6, 2, 6]];
    for pass in ConvolutionPass::ALL {
        let own = Convolution {
            pass,
            math: MatmulMath::F64,
            mode: Default::default(),
            window: window.clone(),
            alpha: Real::new(0.75),
            beta: Real::new(-0.5),
        };
        let (operands, result) = match pass {
            ConvolutionPass::Forward => ([dims[0], dims[1]], dims[2]),
            ConvolutionPass::BackwardData => ([dims[1], dims[2]], dims[0]),
            ConvolutionPass::BackwardFilter => ([dims[0], dims[2]], dims[1]),
        };
        let graph = built(|graph| {
            let first = graph.input("first", operands[0], DType::F64);
            let second = graph.input("second", operands[1], DType::F64);
            let before = graph.input("before", result, DType::F64);
            let y = graph.input("plain", result, DType::F64);
            graph.name(y, "z", DType::F64);
            let op = Op::Convolution(own);
            graph.operation_into(op, &[first, second, before], &[y]);
            graph.pointwise(f64s(Mode::SigmoidFwd), &[y]).unwrap()
        });
        let y = graph.tensor_named("y").unwrap().uid;
        assert_eq!(graph.vjp(&[y], &uids(graph.inputs())).unwrap().input_gradients.len(), 3);
        slopes(&graph, false);
    }
}

#[test]
fn resamplings_have_their_slopes() {
    let [first, second]: [Vec<i64>; 2] = [vec![3, 2], vec![2, 1]];
    for mode in ResampleMode::ALL {
        for index in [false, true] {
            let fixed = match mode {
                ResampleMode::Nearest => vec![1, 1],
                ResampleMode::Bilinear => vec![2, 2],
                _ => first.clone(),
            };
            if index && mode != ResampleMode::MaxPool {
                continue;
            }
            let sampling = Sampling::of(&fixed).moved(&second, &[1, 0]);
            let own = Resample {
                math: Math::F64,
                index,
                alpha: Real::new(0.75),
                beta: Real::new(-0.5),
                ..Resample::new(ResamplePass::Forward, mode, sampling)
            };
            let graph = built(|graph| {
                let x = graph.input("x", &[2, 3, 5, 4], DType::F64);
                let x = graph.pointwise(f64s(Mode::Sin), &[x]).unwrap();
                let plain = Resample { alpha: Real::new(1.0), beta: Real::new(0.0), ..own.clone() };
                let like = graph.operation(Op::Resample(plain), &[x]).unwrap();
                let before = graph.pointwise(f64s(Mode::Exp), &[like[0]]).unwrap();
                let y = graph.operation(Op::Resample(own), &[x, before]).unwrap();
                for (at, uid) in [like, y.clone()].iter().filter_map(|of| of.get(1)).enumerate() {
                    graph.output(*uid, &format!("winners{at}"), DType::I32);
                }
                graph.pointwise(f64s(Mode::TanhFwd), &[y[0]]).unwrap()
            });
            slopes(&graph, false);
        }
    }
}

/// Slices that cover a tensor, overlap in it, leave gaps, and take turns; transposes, reshapes and
/// concatenations of what is computed.
#[test]
fn what_moves_has_its_slopes() {
    let square = |graph: &mut GraphBuilder, x: i64| {
        let square = graph.pointwise(f64s(Mode::Mul), &[x, x]).unwrap();
        graph.pointwise(f64s(Mode::Add).alphas(1.0, 0.5), &[x, square]).unwrap()
    };
    let slice = |begin: [i64; 2], end: [i64; 2], stride: [i64; 2]| {
        Op::Slice(Slice { begin: begin.into(), end: end.into(), stride: stride.into() })
    };
    let pairs = [
        [slice([0, 0], [3, 2], [1, 1]), slice([0, 2], [3, 4], [1, 1])],
        [slice([0, 0], [3, 2], [1, 1]), slice([0, 1], [3, 3], [1, 1])],
        [slice([0, 0], [3, 4], [1, 2]), slice([0, 1], [3, 4], [1, 2])],
        [slice([0, 1], [3, 4], [2, 1]), slice([1, 0], [3, 3], [1, 1])],
        [slice([0, 0], [1, 4], [1, 3]), slice([2, 1], [3, 3], [1, 1])],
    ];
    for [first, second] in pairs {
        let graph = built(|graph| {
            let x = graph.input("x", &[3, 4], DType::F64);
            let x = square(graph, x);
            let a = graph.operation(first.clone(), &[x]).unwrap()[0];
            let b = graph.operation(second.clone(), &[x]).unwrap()[0];
            let b = square(graph, b);
            graph.pointwise(f64s(Mode::Mul), &[a, b]).unwrap()
        });
        slopes(&graph, false);
    }
    let graph = built(|graph| {
        let x = graph.input("x", &[2, 6], DType::F64);
        let w = graph.input("w", &[3, 4], DType::F64);
        let x = square(graph, x);
        let x = graph.reshape(x, &[4, 3]).unwrap();
        let turned = Op::Transpose(Transpose { permutation: vec![1, 0] });
        let x = graph.operation(turned, &[x]).unwrap()[0];
        let both = graph.operation(Op::Concatenate(Concatenate::new(0, 2)), &[x, w]).unwrap()[0];
        square(graph, both)
    });
    slopes(&graph, false);
}

/// Gradients where operations are not smooth.
#[test]
fn conventions_hold() {
    let gradient = |mode: Mode, x: &[f64], b: &[f64]| -> [Vec<f64>; 2] {
        let count = x.len() as i64;
        let graph = built(|graph| {
            let mut operands = vec![graph.input("x", &[count], DType::F64)];
            if !b.is_empty() {
                operands.push(graph.input("b", &[count], DType::F64));
            }
            graph.pointwise(f64s(mode).relu(0.0, 6.0, 0.0), &operands).unwrap()
        });
        let vjp = all(&graph);
        let given = HashMap::from([(1, x.to_vec()), (2, b.to_vec())]);
        let ones = vjp.output_gradients.iter().map(|uid| (*uid, vec![1.0; x.len()])).collect();
        let inputs = backward_inputs(&vjp, &given, &ones);
        let found = reference::evaluate(&vjp.backward, &inputs).unwrap();
        let of = |at: usize| {
            let uid = vjp.input_gradients.get(at);
            uid.map_or(Vec::new(), |uid| found[uid].values.clone())
        };
        [of(0), of(1)]
    };
    assert_eq!(gradient(Mode::ReluFwd, &[-1.0, 0.0, 3.0, 6.0, 7.0], &[])[0], [0., 0., 1., 0., 0.]);
    assert_eq!(gradient(Mode::Abs, &[-2.0, 0.0, 2.0], &[])[0], [-1.0, 0.0, 1.0]);
    let [dx, db] = gradient(Mode::Max, &[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0]);
    assert_eq!((dx, db), (vec![0.0, 0.5, 1.0], vec![1.0, 0.5, 0.0]));
    let [dx, db] = gradient(Mode::Min, &[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0]);
    assert_eq!((dx, db), (vec![1.0, 0.5, 0.0], vec![0.0, 0.5, 1.0]));
    let [dx, db] = gradient(Mode::Pow, &[0.0, 0.0, 0.0], &[2.0, 1.0, 0.0]);
    assert_eq!((dx, db), (vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 0.0]));
    let maximum = built(|graph| {
        let x = graph.input("x", &[1, 4], DType::F64);
        graph.reduction(Reduction { op: ReductionOp::Max, math: Math::F64 }, x, &[1, 1]).unwrap()
    });
    let vjp = all(&maximum);
    let given = HashMap::from([(1, vec![3.0, 1.0, 3.0, 2.0])]);
    let one = HashMap::from([(vjp.output_gradients[0], vec![1.0])]);
    let inputs = backward_inputs(&vjp, &given, &one);
    let found = reference::evaluate(&vjp.backward, &inputs).unwrap();
    assert_eq!(found[&vjp.input_gradients[0]].values, [0.5, 0.0, 0.5, 0.0]);
}

/// A layer of a network, bf16 with f32 in between.
pub fn mlp() -> Graph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[1, 32, 64], DType::Bf16);
    let w = graph.input("w", &[1, 64, 128], DType::Bf16);
    let bias = graph.input("bias", &[1, 1, 128], DType::Bf16);
    let c = graph.matmul(Matmul::default(), x, w).unwrap();
    graph.name(c, "c", DType::Bf16);
    let biased = graph.pointwise(Pointwise::new(Mode::Add), &[c, bias]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[biased]).unwrap();
    graph.output(y, "y", DType::Bf16);
    graph.build().unwrap()
}

#[test]
fn what_is_cheaper_to_read_is_saved() {
    let vjp = all(&mlp());
    let saved: Vec<(&str, u64, bool)> = vjp
        .saved
        .iter()
        .map(|of| (&*vjp.forward.tensor(of.uid).unwrap().name, of.bytes, of.kept))
        .collect();
    // The sum in f32 is computed again from the product in bf16 and the bias.
    let expected = [
        ("x", 32 * 64 * 2, false),
        ("w", 64 * 128 * 2, false),
        ("bias", 128 * 2, false),
        ("c", 32 * 128 * 2, true),
    ];
    assert_eq!(saved, expected);
    assert!(vjp.forward.outputs().any(|tensor| tensor.name == "c"));
    // Of a chain of functions nothing is kept.
    let chain = {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[64, 64], DType::Bf16);
        let mut y = x;
        for mode in [Mode::TanhFwd, Mode::Exp, Mode::SigmoidFwd] {
            y = graph.pointwise(Pointwise::new(mode), &[y]).unwrap();
        }
        graph.output(y, "y", DType::Bf16);
        graph.build().unwrap()
    };
    let vjp = all(&chain);
    assert!(vjp.saved.iter().all(|of| !of.kept) && vjp.saved.len() == 1);
    assert_eq!(vjp.forward, chain);
}

#[test]
fn what_has_no_gradient_is_refused() {
    let graph = mlp();
    let [x, y] = ["x", "y"].map(|name| graph.tensor_named(name).unwrap().uid);
    let refused = |result: kiln::Result<Vjp>, kind: ErrorKind, words: &str| {
        let error = result.expect_err(words);
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, words));
    };
    let bad = ErrorKind::BadParam;
    refused(graph.vjp(&[], &[x]), bad, "vjp: no output is given");
    refused(graph.vjp(&[y], &[]), bad, "vjp: no input is given");
    refused(graph.vjp(&[x], &[x]), bad, "vjp: `x` is no output of the graph, or given twice");
    refused(graph.vjp(&[y], &[y]), bad, "vjp: `y` is no input of the graph, or given twice");
    refused(graph.vjp(&[y], &[x, x]), bad, "vjp: `x` is no input of the graph, or given twice");
    refused(graph.vjp(&[y], &[99]), bad, "no tensor of the graph has uid 99");
    let mut builder = OperationGraph::builder();
    let x = builder.input("x", &[4], DType::F32);
    let flat = builder.pointwise(Pointwise::new(Mode::Floor), &[x]).unwrap();
    builder.output(flat, "y", DType::F32);
    let graph = builder.build().unwrap();
    refused(graph.vjp(&[flat], &[x]), bad, "vjp: no output that is given depends on `x`");
    let mut builder = OperationGraph::builder();
    let x = builder.input("x", &[2, 4], DType::F32);
    let product = Reduction::new(ReductionOp::Mul);
    let y = builder.reduction(product, x, &[2, 1]).unwrap();
    builder.output(y, "y", DType::F32);
    let graph = builder.build().unwrap();
    let words = "vjp: reduction, which writes `y`, has no gradient as operations of a graph";
    refused(graph.vjp(&[y], &[x]), ErrorKind::NotSupported, words);
}

/// Backward graphs run, and rotary embeddings, gates and norms in few kernels.
#[test]
fn backward_graphs_run() {
    let graphs = [
        (mlp(), 3),
        (views::rope("rope_halves"), 1),
        (views::rope("rope_neighbours"), 1),
        (views::gated(64), 4),
    ];
    for (graph, parts_max) in graphs {
        let inputs = uids(graph.inputs().filter(|of| of.name != "cos" && of.name != "sin"));
        let vjp = graph.vjp(&uids(graph.outputs()), &inputs).unwrap();
        let target = Target::named("h200").unwrap();
        let parts = engine::partition(&vjp.backward, &target, &Selection::default()).unwrap();
        assert!(parts.len() <= parts_max, "{} parts: {}", parts.len(), vjp.backward);
        let given = filled(&graph, false);
        let weights = gradients(&vjp);
        let mut values = backward_inputs(&vjp, &given, &weights);
        round(vjp.backward.inputs(), &mut values);
        harness::check(harness::kiln(), &vjp.backward, None, &values, "backward");
    }
}

/// A graph that torch ran, with the inputs whose gradients it computed.
#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
    by: Vec<String>,
}

impl Case {
    /// Values of tensors in the container, by uid.
    fn values<'a>(&self, tensors: impl Iterator<Item = &'a kiln::TensorDesc>) -> Values {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/graphs/gradients.safetensors");
        let named = tensors.map(|tensor| {
            let name = format!("{}/{}", self.name, tensor.name);
            kiln::TensorDesc { name, ..tensor.clone() }
        });
        let named: Vec<kiln::TensorDesc> = named.collect();
        kiln::plan::read_values(path.as_ref(), named.iter()).expect("the container has them")
    }
}

/// What torch's autograd gives, in double precision, on the reference and on devices.
#[test]
fn gradients_are_those_of_torch() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../data/graphs/gradients.json")).expect("well-formed");
    assert_eq!(cases.len(), 37);
    for case in &cases {
        let graph = OperationGraph::from_json(&case.problem.to_string())
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let uid = |name: &str| graph.tensor_named(name).unwrap().uid;
        let by: Vec<i64> = case.by.iter().map(|name| uid(name)).collect();
        let vjp = graph.vjp(&[uid("y")], &by).unwrap_or_else(|error| panic!("{error}\n{graph}"));
        let inputs = case.values(graph.inputs());
        let wanted = case.values(vjp.backward.outputs());
        let given = vjp.backward.inputs().filter(|of| vjp.output_gradients.contains(&of.uid));
        let gradients = case.values(given);
        let ran = harness::run(harness::kiln(), &vjp.forward, None, &inputs).unwrap();
        let of = |tensor: &kiln::TensorDesc| {
            let uid = tensor.uid;
            let known = gradients.get(&uid).or(inputs.get(&uid)).or(ran.get(&uid));
            (uid, known.expect("one of them has it").clone())
        };
        let values: Values = vjp.backward.inputs().map(of).collect();
        let meant = reference::evaluate(&vjp.backward, &values).unwrap();
        let kiln = harness::kiln();
        let actual = harness::run(kiln, &vjp.backward, None, &values)
            .unwrap_or_else(|error| panic!("{}: {error:?}\n{}", case.name, vjp.backward));
        harness::compare_with(&meant, &vjp.backward, &values, &actual, &case.name);
        for tensor in vjp.backward.outputs() {
            for (at, torch) in wanted[&tensor.uid].iter().enumerate() {
                let own = meant[&tensor.uid].values[at];
                let error = (own - torch).abs();
                let (name, what) = (&case.name, &tensor.name);
                assert!(
                    error <= 1e-10 * (1.0 + torch.abs()),
                    "{name}: `{what}`[{at}]: {own}, torch {torch}\n{}",
                    vjp.backward
                );
            }
        }
    }
}
