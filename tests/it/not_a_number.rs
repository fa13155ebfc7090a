//! NaN and infinities: what the reference admits, and that kernels give what it says.

use kiln::expr::{Math, Mode, Pointwise};
use kiln::graph::{Reduction, ReductionOp};
use kiln::reference::{self, ANYTHING, Expected};
use kiln::{DType, OperationGraph};

use crate::harness::{self, Values};

const POISONS: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

#[test]
fn an_infinite_bound_admits_numbers_only() {
    let ratio = |value: f64, bound: f64, actual: f64| {
        let expected = Expected { values: vec![value], bounds: vec![bound] };
        expected.worst(&[actual]).map(|worst| worst.ratio)
    };
    for bound in [0.0, 1.0, f64::INFINITY] {
        assert_eq!(ratio(1.0, bound, f64::NAN), Some(f64::INFINITY), "{bound}");
        assert_eq!(ratio(f64::NAN, bound, 1.0), Some(f64::INFINITY), "{bound}");
        assert_eq!(ratio(f64::NAN, bound, f64::NAN), None, "{bound}");
    }
    assert_eq!(ratio(1.0, f64::INFINITY, 7e30), Some(0.0));
    assert_eq!(ratio(1.0, f64::INFINITY, f64::NEG_INFINITY), Some(0.0));
    assert_eq!(ratio(f64::INFINITY, f64::INFINITY, 1.0), Some(0.0));
    assert_eq!(ratio(1.0, 3.0, f64::INFINITY), Some(f64::INFINITY));
    assert_eq!(ratio(1.0, ANYTHING, f64::NAN), Some(0.0));
    assert_eq!(ratio(f64::NAN, ANYTHING, 1.0), Some(0.0));
}

/// Rows of which one element is not a number, or infinite, and the same graph for all of them.
fn rows(columns: i64) -> Values {
    let poisoned = |poison: f64| {
        let at = columns as usize / 2;
        let value = move |column: usize| {
            let value = (column * 37 % 101) as f64 / 50.0 - 1.0;
            if column == at { poison } else { value }
        };
        (0..columns as usize).map(value)
    };
    let values = POISONS.into_iter().chain([0.5]).flat_map(poisoned);
    Values::from([(1, values.collect())])
}

fn check(graph: &OperationGraph, inputs: &Values, what: &str) {
    let expected = reference::evaluate(graph, inputs).unwrap();
    for tensor in graph.outputs() {
        let Expected { values, bounds } = &expected[&tensor.uid];
        assert!(!bounds.iter().any(|bound| bound.is_nan()), "{what}: {bounds:?}");
        // The last row is finite, and no bound of it is infinite.
        let last = values.len() / 4 * 3;
        let finite = |of: &[f64]| of[last..].iter().all(|value| value.is_finite());
        assert!(finite(values) && finite(bounds), "{what}: {values:?} {bounds:?}");
    }
    for kiln in harness::dialects() {
        harness::check(kiln, graph, None, inputs, what);
    }
}

#[test]
fn reductions_of_what_is_not_finite() {
    for columns in [5, 1000] {
        for op in ReductionOp::ALL {
            let mut graph = OperationGraph::builder();
            let x = graph.input("x", &[4, columns], DType::F32);
            // A long product of small values is 0 in one order, which an infinity makes NaN.
            if columns > 5 && matches!(op, ReductionOp::Mul | ReductionOp::MulNoZeros) {
                continue;
            }
            let reduction = Reduction { op, math: Math::F32 };
            let y = graph.reduction(reduction, x, &[4, 1]).unwrap();
            graph.output(y, "y", DType::F32);
            check(&graph.build().unwrap(), &rows(columns), &format!("{op:?} {columns}"));
        }
    }
}

#[test]
fn softmax_of_what_is_not_finite() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4, 1000], DType::F32);
    let reduction = |op| Reduction { op, math: Math::F32 };
    let most = graph.reduction(reduction(ReductionOp::Max), x, &[4, 1]).unwrap();
    let shifted = graph.pointwise(Pointwise::new(Mode::Sub), &[x, most]).unwrap();
    let exponential = graph.pointwise(Pointwise::new(Mode::Exp), &[shifted]).unwrap();
    let sum = graph.reduction(reduction(ReductionOp::Add), exponential, &[4, 1]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Div), &[exponential, sum]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    check(&graph, &rows(1000), "softmax");
    // NaN and infinities spoil their rows, minus infinity takes no part.
    let inputs = rows(1000);
    let actual = harness::run(harness::kiln(), &graph, None, &inputs).unwrap();
    let row = |row: usize| &actual[&graph.outputs().next().unwrap().uid][row * 1000..][..1000];
    assert!([0, 1].into_iter().all(|at| row(at).iter().all(|value| value.is_nan())));
    assert_eq!(row(2)[500], 0.0);
}
