//! Random graphs that mix convolutions, resamplings, views, random numbers and signals with
//! pointwise operations, matmuls, reductions and norms, planned by each heuristic, sanitized,
//! against the reference.
//!
//! `make mixed-graphs` runs five hundred (`KILN_MIXED`) by all three heuristics and prints how far
//! it is; a failure prints the seed, and `make mixed-graphs MIXED=1 MIXED_FROM=seed` runs that
//! graph alone.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kiln::engine::Mode;
use kiln::expr::{self, Pointwise};
use kiln::graph::{
    Concatenate, Convolution, ConvolutionPass, MatmulMath, Op, Reduction, ReductionOp, Window,
};
use kiln::{DType, ErrorKind, OperationGraph};

use crate::harness;
use crate::random_graphs::number;
use crate::wild::{wild_graph, wild_values};
use crate::wild_menu::SMALL;

/// Graphs in the ordinary run of the tests, each by the heuristic whose turn it is.
const GRAPHS: u64 = 120;

/// Graphs between two lines about the progress.
const PROGRESS: u64 = 25;

const HEURISTICS: [Mode; 3] = [Mode::A, Mode::B, Mode::Fallback];

/// Whether an operation is one of convolutions, resamplings, views, random numbers and signals;
/// `None` where it is neither one of these nor one that they are mixed with.
fn is_recent(op: &Op) -> Option<bool> {
    match op {
        Op::Convolution(_)
        | Op::Resample(_)
        | Op::Rng(_)
        | Op::Signal(_)
        | Op::Slice(_)
        | Op::Transpose(_)
        | Op::Reshape(_)
        | Op::Concatenate(_) => Some(true),
        Op::Pointwise(_)
        | Op::Matmul(_)
        | Op::Reduction(_)
        | Op::NormForward(_)
        | Op::NormBackward(_)
        | Op::GenStats(_)
        | Op::BnBackwardWeights(_) => Some(false),
        _ => None,
    }
}

/// The graph of a seed, if it is one that mixes both.
fn mixed(seed: u64) -> Option<OperationGraph> {
    let graph = wild_graph(&SMALL, seed)?;
    let has = |kind: bool| graph.operations().iter().any(|of| is_recent(&of.op) == Some(kind));
    (has(true) && has(false)).then_some(graph)
}

/// Whether the graph is planned and gives the reference; `None` where it is refused.
fn check(graph: &OperationGraph, seed: u64, heuristic: Mode) -> Option<()> {
    let kiln = harness::simulated_by("sim", seed, heuristic).expect("it opens");
    let inputs = wild_values(graph, seed);
    let plan = match kiln.plan(graph) {
        Ok(plan) => plan,
        Err(error) => {
            assert_eq!(
                error.kind(),
                ErrorKind::NotSupported,
                "seed {seed}, heuristic {heuristic}: {error}\n{graph}"
            );
            println!("seed {seed} is refused by heuristic {heuristic}: {error}");
            return None;
        }
    };
    let actual = harness::run_plan(kiln, &plan, &inputs).unwrap_or_else(|error| {
        panic!("seed {seed}, heuristic {heuristic}: {error:?}\n{graph}");
    });
    harness::compare(graph, &inputs, &actual, &format!("seed {seed}, heuristic {heuristic}"));
    Some(())
}

/// Every n-th graph, so that several tests share the work.
fn check_all(shard: u64, shards: u64) {
    let (first, wanted) = (number("KILN_MIXED_FROM", 1), number("KILN_MIXED", 0));
    let (all, count) = (wanted > 0, if wanted > 0 { wanted } else { GRAPHS });
    let (mut checked, mut refused, mut failed) = (0, 0, Vec::new());
    let mut graphs_with: BTreeMap<&'static str, u64> = BTreeMap::new();
    let seeds = (first..).filter_map(|seed| Some((seed, mixed(seed)?)));
    let own = seeds.take(count as usize).skip(shard as usize).step_by(shards as usize);
    for (at, (seed, graph)) in own.enumerate() {
        let names: BTreeSet<_> = graph.operations().iter().map(|of| of.op.name()).collect();
        names.into_iter().for_each(|name| *graphs_with.entry(name).or_default() += 1);
        let turn = [HEURISTICS[at % HEURISTICS.len()]];
        for heuristic in if all { &HEURISTICS[..] } else { &turn } {
            match catch_unwind(AssertUnwindSafe(|| check(&graph, seed, *heuristic))) {
                Ok(Some(())) => checked += 1,
                Ok(None) => refused += 1,
                Err(_) => failed.push((seed, heuristic.name())),
            }
        }
        if (at as u64 + 1).is_multiple_of(PROGRESS) {
            println!(
                "shard {shard}: {checked} plans are right, {refused} refused, the last has \
                      seed {seed}; failed: {failed:?}"
            );
        }
    }
    println!(
        "shard {shard}: {checked} plans of mixed graphs are right, {refused} refused; graphs with \
         each operation: {graphs_with:?}"
    );
    assert!(failed.is_empty(), "seeds and heuristics that fail: {failed:?}");
    assert!(refused <= (checked + refused) / 20, "{refused} plans refused, {checked} right");
}

/// Runs a graph that one of these has found.
fn check_found(graph: OperationGraph) {
    for kiln in harness::dialects() {
        harness::check(kiln, &graph, None, &wild_values(&graph, 5), "found");
    }
}

/// A piece of a concatenation beside a convolution in groups has other channels than its result.
#[test]
fn a_piece_beside_groups_of_channels() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[1, 65, 1], DType::F32);
    let w = graph.input("w", &[1040, 1, 1], DType::Bf16);
    let window = Window { pre_paddings: vec![2], ..Window::unit(1) };
    let op = Convolution::new(ConvolutionPass::Forward, MatmulMath::F32, window);
    let y = graph.operation(Op::Convolution(op), &[x, w]).unwrap()[0];
    let piece = graph.input("piece", &[1, 7, 3], DType::F32);
    let all = graph.operation(Op::Concatenate(Concatenate::new(1, 2)), &[piece, y]).unwrap()[0];
    graph.output(all, "all", DType::F32);
    check_found(graph.build().unwrap());
}

/// A scalar that is computed, and what sums of columns are multiplied with.
#[test]
fn a_computed_scalar_beside_sums_of_columns() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[5, 7], DType::F32);
    let scalar = graph.input("scalar", &[1, 1], DType::F32);
    let mean = graph.reduction(Reduction::new(ReductionOp::Avg), x, &[5, 1]).unwrap();
    let centred = graph.pointwise(Pointwise::new(expr::Mode::Sub), &[x, mean]).unwrap();
    let sum = graph.reduction(Reduction::new(ReductionOp::Add), centred, &[1, 7]).unwrap();
    let negative = graph.pointwise(Pointwise::new(expr::Mode::Neg), &[scalar]).unwrap();
    let y = graph.pointwise(Pointwise::new(expr::Mode::Mul), &[sum, negative]).unwrap();
    graph.output(centred, "centred", DType::F32);
    graph.output(y, "y", DType::F32);
    check_found(graph.build().unwrap());
}

#[test]
fn mixed_graphs_give_the_reference_0() {
    check_all(0, 2);
}

#[test]
fn mixed_graphs_give_the_reference_1() {
    check_all(1, 2);
}
