//! Gradients of graphs with attention: against central differences, and what is kept for them.

use kiln::engine::{self, Selection};
use kiln::expr::Mode;
use kiln::graph::{Attention, Band, Diagonal, MatmulMath, Op};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::harness;
use crate::vjp::{backward_inputs, f64s, filled, gradients, slopes};

#[test]
fn attentions_have_their_slopes() {
    let plain = Attention::new(MatmulMath::F64);
    let causal = Attention { band: Band::causal(Diagonal::BottomRight), ..plain.clone() };
    for (op, slots) in [
        (plain.clone(), vec![]),
        (causal.clone(), vec![]),
        (Attention { bias: true, ..causal.clone() }, vec![("bias", [1, 4, 1, 5])]),
        (
            Attention { slopes: true, sinks: true, statistics: true, ..plain },
            vec![("slopes", [1, 4, 1, 1]), ("sinks", [1, 4, 1, 1])],
        ),
    ] {
        let statistics = op.statistics;
        let mut graph = OperationGraph::builder();
        let q = graph.input("q", &[1, 4, 3, 3], DType::F64);
        let q = graph.pointwise(f64s(Mode::TanhFwd), &[q]).unwrap();
        let k = graph.input("k", &[1, 2, 5, 3], DType::F64);
        let v = graph.input("v", &[1, 2, 5, 2], DType::F64);
        let others = slots.iter().map(|(name, dims)| graph.input(name, dims, DType::F64));
        let inputs: Vec<i64> = [q, k, v].into_iter().chain(others).collect();
        let results = graph.operation(Op::Attention(op), &inputs).unwrap();
        let y = graph.pointwise(f64s(Mode::TanhFwd), &[results[0]]).unwrap();
        graph.output(y, "y", DType::F64);
        if statistics {
            graph.output(results[1], "lse", DType::F64);
        }
        slopes(&graph.build().unwrap(), false);
    }
}

/// The log-sum-exp is kept for the gradients, and attention and its gradients are a kernel each
/// (with delta, of dQ, and of dK and dV).
#[test]
fn attention_keeps_its_log_sum_exp() {
    let mut graph = OperationGraph::builder();
    let [q, k, v] = ["q", "k", "v"].map(|name| graph.input(name, &[1, 2, 64, 64], DType::Bf16));
    let op = Attention::new(MatmulMath::F32);
    let o = graph.operation(Op::Attention(op), &[q, k, v]).unwrap()[0];
    graph.output(o, "o", DType::Bf16);
    let graph = graph.build().unwrap();
    let vjp = graph.vjp(&[o], &[q, k, v]).unwrap();
    let lse = vjp.forward.tensor_named("lse").unwrap().uid;
    let kept: Vec<i64> = vjp.saved.iter().filter(|of| of.kept).map(|of| of.uid).collect();
    assert_eq!(kept, [lse]);
    let target = Target::named("h200").unwrap();
    for graph in [&vjp.forward, &vjp.backward] {
        let parts = engine::partition(graph, &target, &Selection::default()).unwrap();
        assert_eq!(parts.len(), 1, "{graph}");
    }
    let given = filled(&graph, false);
    let weights = gradients(&vjp);
    let mut values = backward_inputs(&vjp, &given, &weights);
    for tensor in vjp.backward.inputs() {
        let own = values.get_mut(&tensor.uid).unwrap();
        own.iter_mut().for_each(|value| *value = tensor.dtype.round(*value));
    }
    harness::check(harness::kiln(), &vjp.backward, None, &values, "backward");
}
