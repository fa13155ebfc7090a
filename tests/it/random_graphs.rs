//! Random graphs of pointwise operations, products and reductions, through whatever plan is
//! chosen, against the reference.
//!
//! `make random-graphs` runs a thousand (`KILN_GRAPHS`) and prints how far it is; a failure prints
//! the seed, and `make random-graphs GRAPHS=1 GRAPHS_FROM=seed` runs that graph alone.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, Op, Reduction, ReductionOp};
use kiln::{DType, ErrorKind, OperationGraph};

use crate::harness::{self, Values};
use crate::wild::{wild_graph, wild_values};
use crate::wild_menu::SMALL;

/// Graphs in the ordinary run of the tests.
const GRAPHS: u64 = 40;

/// Graphs between two lines about the progress.
const PROGRESS: u64 = 50;

/// A splitmix64 generator: any seed will do.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A tensor that may be read.
#[derive(Clone, Copy)]
struct Value {
    uid: i64,
    dims: [i64; 3],
    /// Whether an operation has written it.
    written: bool,
    read: bool,
}

const EXTENTS: [i64; 8] = [1, 2, 3, 8, 16, 17, 33, 64];
const UNARY: [Mode; 7] = [
    Mode::ReluFwd,
    Mode::TanhFwd,
    Mode::SigmoidFwd,
    Mode::GeluFwd,
    Mode::Neg,
    Mode::Abs,
    Mode::Identity,
];
const BINARY: [Mode; 5] = [Mode::Add, Mode::Sub, Mode::Mul, Mode::Max, Mode::Min];
const REDUCTIONS: [ReductionOp; 5] =
    [ReductionOp::Add, ReductionOp::Max, ReductionOp::Min, ReductionOp::Avg, ReductionOp::Amax];
const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// The graph of a seed: one to twelve operations on tensors of three dimensions.
fn graph_of(seed: u64) -> OperationGraph {
    let mut random = Random(seed);
    let mut graph = OperationGraph::builder();
    let dims = [random.pick(&EXTENTS[..3]), random.pick(&EXTENTS), random.pick(&EXTENTS)];
    let dtype = random.pick(&TYPES);
    let uid = graph.input("x", &dims, dtype);
    let mut values = vec![Value { uid, dims, written: false, read: false }];
    for step in 0..1 + random.below(12) {
        let x = random.below(values.len());
        let dims = values[x].dims;
        values[x].read = true;
        let x = values[x].uid;
        let (uid, dims) = match random.below(10) {
            0..=2 => {
                let op = Pointwise::new(random.pick(&UNARY));
                (graph.pointwise(op, &[x]).unwrap(), dims)
            }
            3..=5 => {
                // Another value that lies alike, or an input, broadcast along some dimensions.
                let alike: Vec<usize> =
                    (0..values.len()).filter(|at| values[*at].dims == dims).collect();
                let b = if random.below(2) == 0 {
                    let at = random.pick(&alike);
                    values[at].read = true;
                    values[at].uid
                } else {
                    let shape = dims.map(|dim| if random.below(3) == 0 { 1 } else { dim });
                    let dtype = random.pick(&TYPES);
                    graph.input(&format!("b{step}"), &shape, dtype)
                };
                let op = Pointwise::new(random.pick(&BINARY));
                (graph.pointwise(op, &[x, b]).unwrap(), dims)
            }
            6 | 7 => {
                let shape = dims.map(|dim| if random.below(2) == 0 { 1 } else { dim });
                let op = Reduction::new(random.pick(&REDUCTIONS));
                (graph.reduction(op, x, &shape).unwrap(), shape)
            }
            _ => {
                let columns = random.pick(&EXTENTS);
                let batch = if random.below(2) == 0 { 1 } else { dims[0] };
                let shape = [batch, dims[2], columns];
                let w = graph.input(&format!("w{step}"), &shape, random.pick(&TYPES));
                let op = Op::Matmul(Matmul::default());
                (graph.operation(op, &[x, w]).unwrap()[0], [dims[0], dims[1], columns])
            }
        };
        if random.below(4) == 0 {
            graph.name(uid, &format!("v{step}"), random.pick(&TYPES));
        }
        values.push(Value { uid, dims, written: true, read: false });
    }
    for (at, value) in values.iter().enumerate().filter(|(_, value)| value.written) {
        if !value.read || random.below(5) == 0 {
            graph.output(value.uid, &format!("y{at}"), random.pick(&TYPES));
        }
    }
    graph.build().unwrap()
}

pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Every n-th graph, so that several tests share the work.
fn check(shard: u64, shards: u64) {
    let (first, count) = (number("KILN_GRAPHS_FROM", 1), number("KILN_GRAPHS", GRAPHS));
    let (mut parts, mut checked) = ([0_usize; 13], 0);
    for seed in (first..first + count).filter(|seed| (seed - first) % shards == shard) {
        let graph = graph_of(seed);
        let inputs: Values =
            graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, seed, 1.0))).collect();
        let kiln = harness::simulated_by_turns("sim", seed / shards).expect("it opens");
        let plan = kiln.plan(&graph).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let actual = harness::run_plan(kiln, &plan, &inputs).unwrap();
        harness::compare(&graph, &inputs, &actual, &format!("seed {seed}"));
        parts[plan.parts().len().min(12)] += 1;
        checked += 1;
        if checked % PROGRESS == 0 {
            println!("shard {shard}: {checked} graphs, the last has seed {seed}");
        }
    }
    println!("shard {shard}: {checked} graphs are right; plans of 0, 1, .. parts: {parts:?}");
}

#[test]
fn random_graphs_give_the_reference_0() {
    check(0, 4);
}

#[test]
fn random_graphs_give_the_reference_1() {
    check(1, 4);
}

#[test]
fn random_graphs_give_the_reference_2() {
    check(2, 4);
}

#[test]
fn random_graphs_give_the_reference_3() {
    check(3, 4);
}

/// Graphs of any operation and shape, empty tensors among them.
fn check_wild(shard: u64, shards: u64) {
    let (first, count) = (number("KILN_GRAPHS_FROM", 1), number("KILN_GRAPHS", GRAPHS));
    let (mut checked, mut refused) = (0, 0);
    for seed in (first..first + count).filter(|seed| (seed - first) % shards == shard) {
        let Some(graph) = wild_graph(&SMALL, seed) else { continue };
        let kiln = harness::simulated_by_turns("sim", seed / shards).expect("it opens");
        let inputs = wild_values(&graph, seed);
        match kiln.plan(&graph) {
            Ok(plan) => {
                let actual = harness::run_plan(kiln, &plan, &inputs).unwrap_or_else(|error| {
                    panic!("seed {seed}: {error:?}\n{graph}");
                });
                harness::compare(&graph, &inputs, &actual, &format!("seed {seed}"));
                checked += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotSupported, "seed {seed}: {error}\n{graph}");
                println!("seed {seed} is refused: {error}");
                refused += 1;
            }
        }
        if (checked + refused) % PROGRESS == 0 {
            println!("shard {shard}: {checked} graphs, the last has seed {seed}");
        }
    }
    println!("shard {shard}: {checked} wild graphs are right, {refused} refused");
    assert!(refused <= (checked + refused) / 20, "{refused} graphs refused, {checked} right");
}

#[test]
fn wild_graphs_give_the_reference_0() {
    check_wild(0, 2);
}

#[test]
fn wild_graphs_give_the_reference_1() {
    check_wild(1, 2);
}

/// What random graphs have found: a reduction of what another one gives is a kernel of its own.
#[test]
fn a_reduction_of_a_reduction() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[2, 8, 1], DType::F16);
    let maximum = graph.reduction(Reduction::new(ReductionOp::Max), x, &[1, 8, 1]).unwrap();
    let sum = graph.reduction(Reduction::new(ReductionOp::Add), maximum, &[1, 1, 1]).unwrap();
    graph.output(sum, "y", DType::F32);
    let graph = graph.build().unwrap();
    let inputs: Values =
        graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 3, 1.0))).collect();
    for kiln in harness::dialects() {
        assert_eq!(kiln.plan(&graph).unwrap().parts().len(), 2);
        harness::check(kiln, &graph, None, &inputs, "two reductions");
    }
}
