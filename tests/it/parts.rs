//! How graphs are split: in bounded time, into what each runs, and as plans remember it.

use std::time::{Duration, Instant};

use kiln::engine::{self, Selection};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{
    Convolution, ConvolutionPass, Matmul, MatmulMath, NormBackward, NormMode, Op, Reduction,
    ReductionOp, Window,
};
use kiln::target::Target;
use kiln::{DType, OperationGraph, TensorDesc};

use crate::harness;

/// Heads of a separate attention: a product, a softmax and a product for each, of one input.
fn heads(count: usize) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4, 16], DType::F16);
    for head in 0..count {
        let w = graph.input(&format!("w{head}"), &[16, 16], DType::F16);
        let scores = graph.matmul(Matmul::default(), x, w).unwrap();
        let maximum = graph.reduction(Reduction::new(ReductionOp::Max), scores, &[4, 1]).unwrap();
        let less = graph.pointwise(Pointwise::new(Mode::Sub), &[scores, maximum]).unwrap();
        let weights = graph.pointwise(Pointwise::new(Mode::Exp), &[less]).unwrap();
        graph.name(weights, "", DType::F16);
        let v = graph.input(&format!("v{head}"), &[16, 8], DType::F16);
        let y = graph.matmul(Matmul::default(), weights, v).unwrap();
        graph.output(y, &format!("y{head}"), DType::F16);
    }
    graph.build().unwrap()
}

/// The longest that the split of a graph below may take, in a debug build beside other work.
const SPLIT_MAX: Duration = Duration::from_secs(60);

fn split(graph: &OperationGraph) -> usize {
    let target = Target::named("h200").unwrap();
    let started = Instant::now();
    let parts = engine::partition(graph, &target, &Selection::default()).unwrap();
    let took = started.elapsed();
    assert!(took < SPLIT_MAX, "{} operations took {took:?}", graph.operations().len());
    let operations: usize = parts.iter().map(|part| part.graph.operations().len()).sum();
    assert_eq!(operations, graph.operations().len());
    parts.len()
}

#[test]
fn many_heads_are_split_in_bounded_time() {
    let few = split(&heads(4)).div_ceil(4);
    assert!(split(&heads(256)) <= 256 * few);
}

/// A thousand readers of one tensor, and a chain as long.
#[test]
fn many_operations_are_split_in_bounded_time() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[64], DType::F32);
    let mut last = x;
    for at in 0..1000 {
        let y = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
        graph.output(y, &format!("y{at}"), DType::F32);
        last = graph.pointwise(Pointwise::new(Mode::Abs), &[last]).unwrap();
    }
    graph.output(last, "last", DType::F32);
    assert!(split(&graph.build().unwrap()) < 100);
}

/// The gradients of a norm of groups, of which no engine runs the whole, beside a product.
fn group_gradients(uid: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut input = |at: i64, name: &str, dims: &[i64]| {
        graph.tensor(TensorDesc::packed(uid - at, name, dims, DType::F32))
    };
    let x = input(0, "x", &[5, 65]);
    let operands = [
        input(1, "dy", &[5, 65]),
        input(2, "scale", &[1, 65]),
        input(3, "mean", &[5, 5]),
        input(4, "inv_variance", &[5, 5]),
    ];
    let w = input(5, "w", &[65, 5]);
    let op = NormBackward { bias: false, ..NormBackward::new(NormMode::Group(5)) };
    let [dy, scale, mean, inverse] = operands;
    let gradients = graph.operation(Op::NormBackward(op), &[x, dy, scale, mean, inverse]).unwrap();
    graph.output(gradients[1], "dscale", DType::F32);
    let y = graph.matmul(Matmul::default(), w, gradients[0]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

#[test]
fn what_one_operation_means_runs_beside_others() {
    for uid in [10, i64::MAX] {
        let graph = group_gradients(uid);
        let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 4, 1.0))).collect();
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &inputs, "group norm's gradients and a product");
            // A plan that is read again has the same parts.
            let plan = kiln.plan(&graph).unwrap();
            let read = kiln.plan_from_json(&plan.to_json()).unwrap();
            assert_eq!(format!("{plan:?}"), format!("{read:?}"));
            assert_eq!(plan.to_json(), read.to_json());
            let parts: Vec<_> = plan.parts().into_iter().cloned().collect();
            let cuts = engine::cuts(&graph, kiln.device().target(), &parts);
            let told = |text: &str| cuts.iter().any(|cut| cut.to_string().contains(text));
            assert!(told("norm_backward is run by itself as what it means"), "{cuts:?}");
            assert!(told("reduction: "), "between what the gradients mean: {cuts:?}");
            assert!(cuts.iter().all(|cut| cut.parts[0] < cut.parts[1]), "{cuts:?}");
            let actual = harness::run_plan(kiln, &read, &inputs).unwrap();
            harness::compare(&graph, &inputs, &actual, "a plan that was read");
        }
    }
}

/// Two convolutions, a ReLU in front and one between, channels last or first.
pub fn convolutions(extents: [i64; 3], last: bool) -> OperationGraph {
    convolutions_behind(extents, last, true)
}

/// The same, the one in front if it is wanted.
pub fn convolutions_behind([n, c, h]: [i64; 3], last: bool, relu_first: bool) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut lay = |uid: i64, name: &str, dims: [i64; 4]| {
        let [_, c, h, w] = dims;
        let packed = TensorDesc::packed(uid, name, &dims, DType::F16);
        let strides = if last { vec![c * h * w, 1, c * w, c] } else { packed.strides.clone() };
        graph.tensor(TensorDesc { strides, ..packed })
    };
    let image = [n, c, h, h];
    let [x, y] = [lay(1, "x", image), lay(2, "y", image)];
    let weights = [lay(3, "w0", [c, c, 3, 3]), lay(4, "w1", [c, c, 3, 3])];
    let window = Window { pre_paddings: vec![1; 2], post_paddings: vec![1; 2], ..Window::unit(2) };
    let op = Convolution::new(ConvolutionPass::Forward, MatmulMath::F32, window);
    let op = Op::Convolution(op);
    let relu = |graph: &mut kiln::graph::GraphBuilder, x: i64| {
        let y = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[x]).unwrap();
        graph.name(y, "", DType::F16);
        y
    };
    let first = if relu_first { relu(&mut graph, x) } else { x };
    let hidden = graph.operation(op.clone(), &[first, weights[0]]).unwrap()[0];
    graph.name(hidden, "", DType::F16);
    let hidden = relu(&mut graph, hidden);
    graph.operation_into(op, &[hidden, weights[1]], &[y]);
    graph.build().unwrap()
}

/// What parts pass to each other lies as the images do, so that each runs as it would alone.
#[test]
fn images_between_parts_lie_as_those_in_front() {
    let engines = |target: &str, last: bool| -> Vec<String> {
        let target = Target::named(target).unwrap();
        let graph = convolutions([64, 256, 14], last);
        let parts = engine::partition(&graph, &target, &Selection::default()).unwrap();
        for part in &parts {
            // But copies, which no tensor of the graph is.
            let own = part.graph.tensors().iter().filter(|of| graph.tensor(of.uid).is_ok());
            let images = own.filter(|of| of.dims[0] == 64);
            let strides = if last { [50176, 1, 3584, 256] } else { [50176, 196, 14, 1] };
            assert!(
                images.clone().all(|of| of.is_virtual || of.strides == strides),
                "{}",
                part.graph
            );
        }
        parts.into_iter().map(|part| part.config.engine.into_owned()).collect()
    };
    assert_eq!(engines("h200", true), ["pointwise", "gemm_wgmma", "gemm_wgmma"]);
    assert_eq!(engines("a100", true).last().unwrap(), "gemm_mma");
    engines("t4", false);
    for last in [true, false] {
        for kiln in harness::dialects() {
            let graph = convolutions([2, 16, 7], last);
            let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 3, 1.0))).collect();
            let plan = kiln.plan(&graph).unwrap();
            assert!(plan.parts().len() > 1);
            let results = harness::run_plan(kiln, &plan, &inputs).unwrap();
            harness::compare(&graph, &inputs, &results, "convolutions");
        }
    }
}
