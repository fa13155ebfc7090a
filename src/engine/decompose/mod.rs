//! A graph in the vocabulary of engines: pointwise operations, reductions and products.
//!
//! Normalisations and statistics become what they mean (`crate::graph` has the formulas), with
//! virtual intermediates in the precision that is computed in. A reduction reads a tensor in memory
//! or an intermediate of that precision, and writes such an intermediate; a copy of it is rounded
//! to another type or stored. A pooling of whole images is a reduction.
//!
//! Tensors of the graph keep their positions, so arguments can name them; intermediates follow.

mod calculus;
mod dots;
mod groups;
mod named;
mod norm;
mod patches;
mod rng;
mod scaling;
mod shapes;
mod statistics;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::engine::decompose::calculus::Calculus;
use crate::engine::decompose::named::Named;
use crate::engine::decompose::scaling::Scaled;
use crate::engine::decompose::shapes::Shapes;
use crate::error::Result;
use crate::expr::Math;
use crate::graph::{CanonicalGraph, Op, Operation, OperationGraph};
use crate::tensor::TensorDesc;

/// An decomposed graph; borrowed where there is nothing to decompose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Decomposed<'a> {
    pub(super) tensors: Cow<'a, [TensorDesc]>,
    pub(super) operations: Cow<'a, [Operation]>,
    /// The uids of the graph's own tensors, in the order of the canonical graph.
    uids: &'a [i64],
    offsets: &'a [i64],
}

impl<'a> Decomposed<'a> {
    /// The decomposed form of a graph.
    ///
    /// # Errors
    /// `NotSupported` when the channels of some tensor cannot be distinguished by group, tensors
    /// differ in the number of dimensions, or the seed or offset of random numbers is computed.
    pub(super) fn of(graph: CanonicalGraph<'a>) -> Result<Decomposed<'a>> {
        rng::check(graph)?;
        let plain = |of: &Operation| match &of.op {
            Op::Pointwise(_) | Op::Matmul(_) | Op::Signal(_) => true,
            Op::Attention(_) | Op::AttentionBackward(_) | Op::CtcLoss(_) => true,
            Op::PointwiseLoop(_) | Op::ResidentLoop(_) | Op::DynamicSlice(_) => true,
            Op::Convolution(op) => op.is_unscaled(),
            Op::Rng(op) => rng::is_plain(graph, op, of),
            Op::Resample(op) => {
                let image = &graph.tensors[of.inputs[0] as usize];
                op.is_unscaled() && op.as_reduction(image).is_none()
            }
            _ => false,
        };
        if graph.operations.iter().all(plain) {
            let (tensors, operations) = (graph.tensors.into(), graph.operations.into());
            let CanonicalGraph { uids, offsets, .. } = graph;
            return Ok(Decomposed { tensors, operations, uids, offsets });
        }
        let Shapes { tensors, channel_axes } = shapes::unified(graph)?;
        let mut calculus = Calculus::new(tensors);
        for operation in graph.operations {
            let named = Named { slots: operation.op.slots(), operation };
            calculus.math = Math::of(operation.op.math());
            match &operation.op {
                Op::Pointwise(op) => calculus.keep(shapes::pointwise(op, channel_axes)?, operation),
                Op::Matmul(_)
                | Op::Recurrence(_)
                | Op::Attention(_)
                | Op::AttentionBackward(_)
                | Op::CtcLoss(_)
                | Op::PointwiseLoop(_)
                | Op::ResidentLoop(_)
                | Op::DynamicSlice(_)
                | Op::Signal(_) => {
                    calculus.keep(operation.op.clone(), operation);
                }
                Op::Convolution(op) => Scaled::of(op).write(&mut calculus, operation),
                Op::Resample(op) => {
                    let image = &graph.tensors[operation.inputs[0] as usize];
                    if let Some(reduction) = op.as_reduction(image) {
                        calculus.reduction(&reduction, operation);
                        continue;
                    }
                    let (own, factors) = (Op::Resample(op.unscaled()), [op.alpha, op.beta]);
                    Scaled { op: own, factors }.write(&mut calculus, operation);
                }
                Op::Reduction(op) => calculus.reduction(op, operation),
                Op::Rng(op) => rng::numbers(&mut calculus, op, operation),
                Op::NormForward(op) => {
                    norm::forward(&mut calculus, op, channel_axes, &named);
                }
                Op::NormBackward(op) => {
                    norm::backward(&mut calculus, op, channel_axes, &named);
                }
                Op::GenStats(_) => statistics::generate(&mut calculus, &named),
                Op::BnFinalize(op) => statistics::finalize(&mut calculus, op, &named),
                Op::BnBackwardWeights(_) => statistics::backward_weights(&mut calculus, &named),
                Op::Slice(_) | Op::Transpose(_) | Op::Reshape(_) | Op::Concatenate(_) => {
                    calculus.keep(operation.op.clone(), operation);
                }
            }
        }
        let (tensors, operations) = (calculus.tensors.into(), calculus.operations.into());
        let CanonicalGraph { uids, offsets, .. } = graph;
        Ok(Decomposed { tensors, operations, uids, offsets })
    }

    /// The graph with random numbers as they are drawn, factors of convolutions as an operation
    /// behind them, statistics as reductions and what is made of them, and all else as it is.
    ///
    /// # Errors
    /// As [`Decomposed::of`], where there are random numbers, factors or statistics.
    pub(super) fn drawn(graph: CanonicalGraph<'a>) -> Result<Decomposed<'a>> {
        let plain = |of: &Operation| match &of.op {
            Op::Rng(_) | Op::GenStats(_) | Op::BnFinalize(_) | Op::BnBackwardWeights(_) => false,
            Op::Convolution(op) => op.is_unscaled(),
            _ => true,
        };
        let (mut tensors, mut operations) = (graph.tensors.into(), graph.operations.into());
        if !graph.operations.iter().all(plain) {
            rng::check(graph)?;
            let mut calculus = Calculus::new(shapes::unified(graph)?.tensors);
            for operation in graph.operations {
                let named = Named { slots: operation.op.slots(), operation };
                calculus.math = Math::of(operation.op.math());
                match &operation.op {
                    Op::Rng(op) => rng::numbers(&mut calculus, op, operation),
                    Op::Convolution(op) => Scaled::of(op).write(&mut calculus, operation),
                    Op::GenStats(_) => statistics::sums(&mut calculus, &named),
                    Op::BnFinalize(op) => statistics::finalize(&mut calculus, op, &named),
                    Op::BnBackwardWeights(_) => {
                        statistics::backward_weights(&mut calculus, &named);
                    }
                    op => calculus.keep(op.clone(), operation),
                }
            }
            (tensors, operations) = (calculus.tensors.into(), calculus.operations.into());
        }
        let CanonicalGraph { uids, offsets, .. } = graph;
        Ok(Decomposed { tensors, operations, uids, offsets })
    }

    /// The decomposed graph.
    pub(super) fn graph(&self) -> CanonicalGraph<'_> {
        let Decomposed { tensors, operations, uids, offsets } = self;
        CanonicalGraph { tensors, operations, uids, offsets }
    }
}

/// The decomposed form of a graph as a graph of its own: its tensors keep uids and names, but may
/// be seen with other dimensions; intermediates have new uids.
///
/// # Errors
/// As [`Decomposed::of`].
pub(crate) fn primitives(graph: &OperationGraph) -> Result<OperationGraph> {
    primitives_beside(graph, &BTreeSet::new())
}

/// The decomposed form as [`primitives`] gives it, with intermediates that have none of these uids.
///
/// # Errors
/// As [`Decomposed::of`].
pub(crate) fn primitives_beside(
    graph: &OperationGraph,
    taken: &BTreeSet<i64>,
) -> Result<OperationGraph> {
    // What moves elements stays an operation: tensors keep memory of their own.
    let with_moves = graph.moves().then(|| graph.with_moves());
    let canonical = with_moves.as_ref().map_or_else(|| graph.canonical(), |of| of.view());
    let decomposed = Decomposed::of(canonical)?;
    let is_free = |uid: &i64| !taken.contains(uid) && graph.tensor(*uid).is_err();
    let last = graph.tensors().iter().map(|tensor| tensor.uid).chain(taken.last().copied()).max();
    // Behind the last one, as long as there are such numbers.
    let behind = last.and_then(|last| last.checked_add(1)).map(|first| first..=i64::MAX);
    let free = behind.into_iter().flatten().chain(1..).filter(is_free);
    let own = canonical.uids.iter().copied();
    let uids: Vec<i64> = own.chain(free).take(decomposed.tensors.len()).collect();
    let uid_of = |at: i64| uids[at as usize];
    let renamed = |uids: &[i64]| uids.iter().map(|at| uid_of(*at)).collect();
    let operation = |Operation { op, inputs, outputs }: &Operation| Operation {
        op: op.clone(),
        inputs: renamed(inputs),
        outputs: renamed(outputs),
    };
    let operations: Vec<Operation> = decomposed.operations.iter().map(operation).collect();
    let tensor = |tensor: &TensorDesc| {
        let uid = uid_of(tensor.uid);
        let name = graph.tensor(uid).map_or(String::new(), |own| own.name.clone());
        TensorDesc { uid, name, ..tensor.clone() }
    };
    // What is given may make another operand needless.
    let used = |tensor: &TensorDesc| {
        operations
            .iter()
            .any(|of| of.inputs.iter().chain(&of.outputs).any(|uid| *uid == tensor.uid))
    };
    let tensors = decomposed.tensors.iter().map(tensor).filter(used).collect();
    OperationGraph::new(tensors, operations)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::dtype::DType;
    use crate::graph::{
        BnBackwardWeights, BnFinalize, GenStats, NormBackward, NormForward, NormMode, Phase,
        Reduction, ReductionOp,
    };
    use crate::reference;

    const DATA: [i64; 4] = [3, 6, 2, 5];

    /// An operation on tensors of known dimensions, in double precision.
    fn graph(op: Op, dims: impl Fn(&str) -> Vec<i64>) -> OperationGraph {
        let mut graph = OperationGraph::builder();
        let slots = op.slots();
        let input = |slot: &&'static str| graph.input(slot, &dims(slot), DType::F64);
        let inputs: Vec<i64> = slots.inputs.iter().map(input).collect();
        let outputs: Vec<i64> = match op {
            Op::Reduction(reduction) => {
                vec![graph.reduction(reduction, inputs[0], &dims("y")).expect("valid")]
            }
            _ => graph.operation(op, &inputs).expect("valid"),
        };
        for (slot, uid) in slots.outputs.iter().zip(outputs) {
            graph.output(uid, &format!("out_{slot}"), DType::F64);
        }
        graph.build().expect("valid")
    }

    /// The decomposed graph means the same to the reference.
    fn check(graph: &OperationGraph) {
        let canonical = graph.canonical();
        let decomposed = Decomposed::of(canonical).expect("supported");
        let plain =
            |operation: &Operation| matches!(operation.op, Op::Pointwise(_) | Op::Reduction(_));
        assert!(decomposed.operations.iter().all(plain));
        let value = |seed: i64, at: i64| 0.1 + ((seed * 31 + at * 7919) % 251) as f64 / 100.0;
        let values = |tensor: &TensorDesc, seed: i64| -> Vec<f64> {
            (0..tensor.elements().expect("small")).map(|at| value(seed, at)).collect()
        };
        let whole = graph.inputs().map(|tensor| (tensor.uid, values(tensor, tensor.uid)));
        let whole = reference::evaluate(graph, &whole.collect()).expect("valid");
        let parts = primitives(graph).expect("valid");
        let inputs = parts.inputs().map(|tensor| (tensor.uid, values(tensor, tensor.uid)));
        let inputs: HashMap<i64, Vec<f64>> = inputs.collect();
        let parts_values = reference::evaluate(&parts, &inputs).expect("valid");
        for output in parts.outputs() {
            let (have, want) = (&parts_values[&output.uid], &whole[&output.uid]);
            for (have, want) in have.values.iter().zip(&want.values) {
                let error = (have - want).abs() / (1.0 + want.abs());
                assert!(error < 1e-12, "{}: {have}, not {want}\n{graph}{parts}", output.name);
            }
        }
    }

    fn norm_dims(mode: NormMode, slot: &str) -> Vec<i64> {
        let channels = match mode {
            NormMode::Layer | NormMode::Rms => vec![1, 6, 2, 5],
            _ => vec![1, 6, 1, 1],
        };
        match slot {
            "x" | "dy" => DATA.to_vec(),
            "mean" | "inv_variance" => match mode {
                NormMode::Layer | NormMode::Rms => vec![3, 1, 1, 1],
                NormMode::Instance => vec![3, 6, 1, 1],
                NormMode::Batch => vec![1, 6, 1, 1],
                NormMode::Group(groups) => vec![3, groups, 1, 1],
            },
            "epsilon" | "exp_avg_factor" => vec![1],
            _ => channels,
        }
    }

    #[test]
    fn norms_mean_what_they_did() {
        let modes = [NormMode::Layer, NormMode::Rms, NormMode::Instance, NormMode::Batch];
        let groups = [1, 2, 6].map(NormMode::Group);
        for mode in modes.into_iter().chain(groups) {
            let batch = mode == NormMode::Batch;
            let training = NormForward {
                math: Math::F64,
                statistics: true,
                running: batch,
                ..NormForward::new(mode, Phase::Training)
            };
            let inference = NormForward { phase: Phase::Inference, running: false, ..training };
            let plain = NormForward { bias: false, statistics: false, running: false, ..training };
            for op in [training, inference, plain] {
                check(&graph(Op::NormForward(op), |slot| norm_dims(mode, slot)));
            }
            for statistics in [true, false] {
                let op = NormBackward { math: Math::F64, statistics, ..NormBackward::new(mode) };
                check(&graph(Op::NormBackward(op), |slot| norm_dims(mode, slot)));
            }
        }
    }

    #[test]
    fn statistics_mean_what_they_did() {
        let dims = |slot: &str| match slot {
            "x" | "dy" => DATA.to_vec(),
            "epsilon" | "exp_avg_factor" | "accum_count" => vec![1],
            _ => vec![1, 6, 1, 1],
        };
        let math = Math::F64;
        for op in [
            Op::GenStats(GenStats { math }),
            Op::BnBackwardWeights(BnBackwardWeights { math }),
            Op::BnFinalize(BnFinalize { math, running: true, phase: Phase::Training }),
            Op::BnFinalize(BnFinalize { math, running: false, phase: Phase::Inference }),
        ] {
            check(&graph(op, dims));
        }
    }

    #[test]
    fn reductions_of_one_value_are_pointwise() {
        for op in ReductionOp::ALL {
            let op = Op::Reduction(Reduction { op, math: Math::F64 });
            let graph = graph(op, |_| vec![3, 1]);
            check(&graph);
            let decomposed = Decomposed::of(graph.canonical()).expect("supported");
            assert!(
                decomposed.operations.iter().all(|operation| operation.as_pointwise().is_some())
            );
        }
    }
}
