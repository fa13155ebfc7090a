//! Normalisations, their gradients and statistics against the reference.

use kiln::expr::Math;
use kiln::graph::{
    BnBackwardWeights, BnFinalize, GenStats, NormBackward, NormForward, NormMode, Op, Phase,
};
use kiln::{DType, OperationGraph, TensorDesc, reference};

use crate::harness::{self, Values};

const MODES: [NormMode; 6] = [
    NormMode::Layer,
    NormMode::Rms,
    NormMode::Instance,
    NormMode::Batch,
    NormMode::Group(2),
    NormMode::Group(6),
];

/// The dimensions of the tensor in a slot, for data of these dimensions.
pub fn dims(mode: NormMode, data: &[i64], slot: &str) -> Vec<i64> {
    let layer = matches!(mode, NormMode::Layer | NormMode::Rms);
    let channels = |axis: usize| if axis == 1 { data[1] } else { 1 };
    let along = |keep: &dyn Fn(usize) -> bool| -> Vec<i64> {
        (0..data.len()).map(|axis| if keep(axis) { data[axis] } else { 1 }).collect()
    };
    match slot {
        "x" | "dy" => data.to_vec(),
        "epsilon" | "exp_avg_factor" | "accum_count" => vec![1; data.len()],
        "mean" | "inv_variance" => match mode {
            NormMode::Layer | NormMode::Rms => along(&|axis| axis == 0),
            NormMode::Batch => along(&|axis| axis == 1),
            NormMode::Group(groups) => {
                let mut dims = along(&|axis| axis == 0);
                dims[1] = groups;
                dims
            }
            _ => along(&|axis| axis <= 1),
        },
        _ if layer => along(&|axis| axis > 0),
        _ => (0..data.len()).map(channels).collect(),
    }
}

/// A graph of one operation: data in `dtype`, all else in single precision or that of `f64` data.
pub fn graph(op: Op, dtype: DType, dims: impl Fn(&str) -> Vec<i64>) -> (OperationGraph, Values) {
    let mut graph = OperationGraph::builder();
    let slots = op.slots();
    let parameter = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let of = |slot: &str| if ["x", "dy", "y", "dx"].contains(&slot) { dtype } else { parameter };
    let mut values = Values::new();
    let mut inputs = Vec::new();
    for (at, slot) in slots.inputs.iter().enumerate() {
        let uid = at as i64 + 1;
        let scalar = ["epsilon", "exp_avg_factor", "accum_count"].contains(slot);
        let tensor = TensorDesc::packed(uid, *slot, &dims(slot), of(slot));
        let fill = match *slot {
            "epsilon" => vec![1e-3],
            "exp_avg_factor" => vec![0.25],
            "accum_count" => vec![30.0],
            "x" | "dy" | "mean" | "bias" => harness::fill(&tensor, at as u64, 2.0),
            // Sums of squares and variances.
            _ => harness::fill(&tensor, at as u64, 1.0).into_iter().map(|v| v + 40.0).collect(),
        };
        let tensor = TensorDesc { by_value: scalar, ..tensor };
        inputs.push(graph.tensor(tensor));
        values.insert(uid, fill);
    }
    let outputs = graph.operation(op, &inputs).expect("valid");
    for (slot, uid) in slots.outputs.iter().zip(outputs) {
        graph.output(uid, &format!("out_{slot}"), of(slot));
    }
    (graph.build().expect("valid"), values)
}

/// What takes statistics is pointwise.
#[test]
fn norms_with_given_statistics_run() {
    for mode in MODES {
        let op = NormForward { statistics: true, ..NormForward::new(mode, Phase::Inference) };
        for dtype in [DType::F64, DType::F32, DType::Bf16] {
            let (graph, values) =
                graph(Op::NormForward(op), dtype, |slot| dims(mode, &[3, 6, 5, 7], slot));
            for kiln in harness::dialects() {
                harness::check(kiln, &graph, None, &values, &format!("{op} {dtype}"));
            }
        }
    }
}

/// Parts do not hand elements on: those of an instance norm move every tensor once, those of a
/// group norm read `x` and `dy` again, no intermediate is as large.
#[test]
fn gradients_of_instance_and_group_norms() {
    for (mode, again) in [(NormMode::Instance, false), (NormMode::Group(2), true)] {
        for statistics in [true, false] {
            let data = [4, 8, 24, 32];
            let op = NormBackward { statistics, ..NormBackward::new(mode) };
            let of = |slot: &str| dims(mode, &data, slot);
            let (graph, values) = graph(Op::NormBackward(op), DType::Bf16, of);
            for kiln in harness::dialects() {
                harness::check(kiln, &graph, None, &values, &format!("{op} {data:?}"));
            }
            let kiln = harness::counting();
            let plan = kiln.plan(&graph).unwrap();
            let trial = kiln.trial(&plan, &values).unwrap();
            let moved: u64 = trial.counters.iter().flatten().map(|of| of.dram_bytes()).sum();
            let elements = data.iter().product::<i64>() as u64;
            let least = graph.bytes_min() + if again { 2 * 2 * elements } else { 0 };
            assert!(moved as f64 <= 1.05 * least as f64, "{op}: {moved} bytes, not {least}");
        }
    }
}

/// The gradients of an RMS norm's data and scale.
pub fn rms_gradients(data: [i64; 2]) -> OperationGraph {
    let op = NormBackward { statistics: true, ..NormBackward::new(NormMode::Rms) };
    graph(Op::NormBackward(op), DType::Bf16, |slot| dims(NormMode::Rms, &data, slot)).0
}

/// Diverged sums give diverged statistics: a variance is clamped to 0 only where it is a number.
#[test]
fn finalized_statistics_of_what_is_not_finite_are_nan() {
    let op = BnFinalize { running: true, ..BnFinalize::new(Phase::Training) };
    let (graph, values) =
        graph(Op::BnFinalize(op), DType::F32, |slot| dims(NormMode::Batch, &[3, 6, 5], slot));
    let slots = Op::BnFinalize(op).slots();
    for poisoned in ["sum", "sq_sum"] {
        let at = slots.inputs.iter().position(|slot| *slot == poisoned).unwrap() as i64 + 1;
        let mut values = values.clone();
        let own = values.get_mut(&at).unwrap();
        (own[1], own[3]) = (f64::NAN, f64::INFINITY);
        if poisoned == "sum" {
            own[4] = 1e30;
        }
        let expected = reference::evaluate(&graph, &values).unwrap();
        for kiln in harness::dialects() {
            let actual = harness::run(kiln, &graph, None, &values).unwrap();
            harness::compare(&graph, &values, &actual, poisoned);
            for tensor in graph.outputs().filter(|of| of.name != "out_updated_running_mean") {
                let (own, expected) = (&actual[&tensor.uid], &expected[&tensor.uid]);
                let mean = tensor.name == "out_saved_mean";
                let nan = |at: usize| own[at].is_nan() && expected.values[at].is_nan();
                assert!(mean || nan(1), "{poisoned}: {tensor}: {own:?} {expected:?}");
                // An infinite mean has no variance; an infinite mean square has an infinite one.
                let infinite = poisoned == "sum" && !mean;
                assert!(!infinite || nan(3), "{poisoned}: {tensor}: {own:?} {expected:?}");
                assert!(!infinite || own[4].is_nan(), "{poisoned}: {tensor}: {own:?}");
                // Whether a finite mean's square overflows depends on the order of operations.
                let open = |(at, bound): (usize, &f64)| bound.is_nan() && !(infinite && at == 4);
                assert!(!expected.bounds.iter().enumerate().any(open), "{expected:?}");
                assert!(own[0].is_finite() && own[2].is_finite(), "{tensor}: {own:?}");
            }
        }
    }
}

/// A value that is not finite reaches what the reference says, and nothing else.
#[test]
fn norms_of_what_is_not_finite() {
    let batch = NormForward {
        running: true,
        statistics: true,
        ..NormForward::new(NormMode::Batch, Phase::Training)
    };
    let forward = |mode| Op::NormForward(NormForward::new(mode, Phase::Inference));
    let backward = |mode| Op::NormBackward(NormBackward::new(mode));
    let math = Math::F32;
    let cases = [
        (forward(NormMode::Layer), NormMode::Layer),
        (forward(NormMode::Rms), NormMode::Rms),
        (forward(NormMode::Group(2)), NormMode::Group(2)),
        (Op::NormForward(batch), NormMode::Batch),
        (backward(NormMode::Layer), NormMode::Layer),
        (backward(NormMode::Batch), NormMode::Batch),
        (Op::GenStats(GenStats { math }), NormMode::Batch),
        (Op::BnBackwardWeights(BnBackwardWeights { math }), NormMode::Batch),
    ];
    for (op, mode) in cases {
        let (graph, values) = graph(op.clone(), DType::F32, |slot| dims(mode, &[4, 6, 5], slot));
        for poison in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut values = values.clone();
            values.get_mut(&1).unwrap()[37] = poison;
            let expected = reference::evaluate(&graph, &values).unwrap();
            // Nothing hides behind a bound, and elements of other groups are what they were.
            let open = |of: &reference::Expected| of.bounds.iter().any(|bound| bound.is_nan());
            assert!(!graph.outputs().any(|of| open(&expected[&of.uid])), "{op:?} {poison}");
            harness::check(harness::kiln(), &graph, None, &values, &format!("{op:?} {poison}"));
        }
    }
}
