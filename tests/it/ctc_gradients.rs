//! Gradients of graphs with CTC losses: against central differences, what they cost, and which have
//! none. `vjp.rs` holds them to torch's.

use kiln::engine::{self, Selection};
use kiln::expr::{Math, Mode, Pointwise};
use kiln::graph::{
    CtcInfinite, CtcInput, CtcLoss, GraphBuilder, Matmul, MatmulMath, Op, Reduction, ReductionOp,
};
use kiln::target::Target;
use kiln::{DType, ErrorKind, OperationGraph};

use crate::harness::{self, Values};
use crate::vjp::{backward_inputs, f64s, gradients, slopes_at};

/// Steps, sequences, classes.
const DIMS: [i64; 3] = [7, 4, 5];

/// Labels with repeats of four sequences, their lengths, and the sequences'; with `all`, one has
/// too few steps for its labels.
fn labels(graph: &OperationGraph, all: bool) -> Values {
    let short = if all { 2.0 } else { 6.0 };
    let values = [
        ("labels", vec![1.0, 2.0, 3.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0, 4.0, 1.0, 4.0]),
        ("label_lengths", vec![3.0, 2.0, 0.0, 3.0]),
        ("input_lengths", vec![7.0, short, 3.0, 5.0]),
    ];
    let uid = |name: &str| graph.tensor_named(name).unwrap().uid;
    values.map(|(name, values)| (uid(name), values)).into()
}

/// Numbers of about 1 for every floating-point input.
fn filled(graph: &OperationGraph, all: bool) -> Values {
    let mut values = crate::vjp::filled(graph, false);
    values.extend(labels(graph, all));
    values
}

/// A loss of logits in a precision.
fn loss(graph: &mut GraphBuilder, op: CtcLoss, x: i64) -> Vec<i64> {
    let labels = graph.input("labels", &[DIMS[1], 3], DType::I32);
    let [lengths, steps] =
        ["label_lengths", "input_lengths"].map(|name| graph.input(name, &[DIMS[1]], DType::I32));
    graph.operation(Op::CtcLoss(op), &[x, labels, lengths, steps]).unwrap()
}

/// The mean of weighted losses of logits that are products.
fn mean(op: CtcLoss, dtype: DType, math: MatmulMath) -> OperationGraph {
    let [steps, sequences, classes] = DIMS;
    let mut graph = OperationGraph::builder();
    let h = graph.input("h", &[1, steps * sequences, 3], dtype);
    let w = graph.input("w", &[1, 3, classes], dtype);
    let weights = graph.input("weights", &[sequences], dtype);
    let logits = graph.matmul(Matmul::new(math), h, w).unwrap();
    let logits = graph.reshape(logits, &DIMS).unwrap();
    let own = op.math;
    let losses = loss(&mut graph, op, logits);
    let weighted = Pointwise::new(Mode::Mul).math(own);
    let losses = graph.pointwise(weighted, &[losses[0], weights]).unwrap();
    let average = Reduction { op: ReductionOp::Avg, math: own };
    let mean = graph.reduction(average, losses, &[1]).unwrap();
    graph.output(mean, "mean", own.dtype());
    graph.build().unwrap()
}

fn f64_loss(infinite: CtcInfinite, gradient: bool) -> CtcLoss {
    CtcLoss { math: Math::F64, infinite, gradient, ..CtcLoss::new(3) }
}

#[test]
fn losses_have_their_slopes() {
    for gradient in [false, true] {
        for blank in [0, 4] {
            let op = CtcLoss { blank, ..f64_loss(CtcInfinite::Propagate, gradient) };
            let mut graph = OperationGraph::builder();
            let x = graph.input("x", &DIMS, DType::F64);
            let x = graph.pointwise(f64s(Mode::TanhFwd), &[x]).unwrap();
            let results = loss(&mut graph, op, x);
            for (uid, name) in results.iter().zip(["loss", "dx"]) {
                graph.output(*uid, name, DType::F64);
            }
            let graph = graph.build().unwrap();
            let mut given = filled(&graph, false);
            if blank == 4 {
                let own = given.get_mut(&graph.tensor_named("labels").unwrap().uid).unwrap();
                own.iter_mut().for_each(|label| *label = if *label == 4.0 { 0.0 } else { *label });
            }
            slopes_at(&graph, &given, &[results[0]], 2e-6);
        }
    }
    let graph = mean(f64_loss(CtcInfinite::Zero, false), DType::F64, MatmulMath::F64);
    let mean = graph.tensor_named("mean").unwrap().uid;
    slopes_at(&graph, &filled(&graph, true), &[mean], 2e-6);
}

/// The gradient is computed with the loss, in one launch, and multiplied in another.
#[test]
fn a_gradient_costs_a_product() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &DIMS, DType::F16);
    let losses = loss(&mut graph, CtcLoss { gradient: false, ..CtcLoss::new(3) }, x);
    graph.output(losses[0], "loss", DType::F32);
    let graph = graph.build().unwrap();
    let vjp = graph.vjp(&[losses[0]], &[x]).unwrap();
    let kept: Vec<String> = vjp
        .saved
        .iter()
        .filter(|of| of.kept)
        .map(|of| vjp.forward.tensor(of.uid).unwrap().to_string())
        .collect();
    assert_eq!(kept, ["d_loss_x: f32[7, 4, 5]"]);
    let target = Target::named("h200").unwrap();
    for (graph, engine) in [(&vjp.forward, "ctc_loss"), (&vjp.backward, "pointwise")] {
        let parts = engine::partition(graph, &target, &Selection::default()).unwrap();
        let [part] = &parts[..] else { panic!("{graph}") };
        assert_eq!(part.config.engine, engine);
    }
    // What the loss computes already is read where it is.
    let own = OperationGraph::from_json(include_str!("../../examples/problems/ctc_loss.json"));
    let own = own.unwrap();
    let uid = |name: &str| own.tensor_named(name).unwrap().uid;
    let vjp = own.vjp(&[uid("loss")], &[uid("logits")]).unwrap();
    assert_eq!(vjp.forward, own);
    assert!(vjp.saved.iter().all(|of| !of.kept && of.uid == uid("dlogits")), "{:?}", vjp.saved);
}

#[test]
fn backward_graphs_run() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let op = CtcLoss { infinite: CtcInfinite::Zero, gradient: false, ..CtcLoss::new(3) };
        let graph = mean(op, dtype, MatmulMath::F32);
        let uid = |name: &str| graph.tensor_named(name).unwrap().uid;
        let vjp = graph.vjp(&[uid("mean")], &["h", "w", "weights"].map(uid)).unwrap();
        let mut given = filled(&graph, true);
        let rounded = |graph: &OperationGraph, values: &mut Values| {
            for tensor in graph.inputs() {
                let own = values.get_mut(&tensor.uid).unwrap();
                own.iter_mut().for_each(|value| *value = tensor.dtype.round(*value));
            }
        };
        rounded(&vjp.forward, &mut given);
        let mut values = backward_inputs(&vjp, &given, &gradients(&vjp));
        rounded(&vjp.backward, &mut values);
        for kiln in harness::dialects() {
            harness::check(kiln, &vjp.forward, None, &given, "forward");
            harness::check(kiln, &vjp.backward, None, &values, "backward");
        }
    }
}

/// Where `dx` is not the derivative by `x` there is none.
#[test]
fn other_losses_have_no_gradient() {
    let refused = |op: CtcLoss, of: usize| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &DIMS, DType::F32);
        let mut inputs = vec![x, graph.input("labels", &[DIMS[1], 3], DType::I32)];
        let lengths = ["label_lengths", "input_lengths"];
        inputs.extend(lengths.map(|name| graph.input(name, &[DIMS[1]], DType::I32)));
        if op.gradient && op.infinite == CtcInfinite::Keep {
            inputs.push(graph.input("before", &DIMS, DType::F32));
        }
        let results = graph.operation(Op::CtcLoss(op), &inputs).unwrap();
        for (uid, name) in results.iter().zip(["loss", "dx"]) {
            graph.output(*uid, name, DType::F32);
        }
        let error = graph.build().unwrap().vjp(&[results[of]], &[x]).unwrap_err();
        let words = "vjp: ctc_loss, which writes `loss`, has no gradient as operations of a graph";
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NotSupported, words));
    };
    for input in [CtcInput::Probabilities, CtcInput::LogProbabilities] {
        refused(CtcLoss { input, ..CtcLoss::new(3) }, 0);
    }
    refused(CtcLoss { infinite: CtcInfinite::Keep, ..CtcLoss::new(3) }, 0);
    // A gradient of the gradient.
    refused(CtcLoss::new(3), 1);
}
