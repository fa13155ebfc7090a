//! Random networks: loops in loops to a depth of three with all limits and outputs, conditionals in
//! them and around them, sanitized, against the interpreter of lazy sequences.
//!
//! `make random-loops` runs five hundred (`KILN_LOOPS`) and prints how far it is; a failure prints
//! the seed, and `make random-loops LOOPS=1 LOOPS_FROM=seed` runs that network alone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kiln::expr::Mode;
use kiln::graph::{Matmul, MatmulMath, Reduction, ReductionOp};
use kiln::loops::{Layer, Loop, LoopOutput, Network, TripLimit};
use kiln::{DType, Error, reference};

use crate::harness::{self, Values};
use crate::looped::{self, Net};
use crate::random_graphs::{Random, number};

/// Networks in the ordinary run of the tests.
const NETWORKS: u64 = 40;

/// Networks between two lines about the progress.
const PROGRESS: u64 = 25;

/// The deepest loop is in so many others.
const DEPTH_MAX: usize = 3;

/// What a layer may use: all that is known where it is.
#[derive(Clone, Default)]
struct Pool {
    /// Tensors of the network's shape.
    values: Vec<i64>,
    /// Tensors with an axis more, and which it is.
    stacks: Vec<(i64, usize)>,
    /// Counters: `i32`, never negative.
    counters: Vec<i64>,
}

struct Writer {
    net: Net,
    random: Random,
    dims: [i64; 2],
    dtype: DType,
    weights: i64,
    zero: i64,
    one: i64,
    /// Counts of the trips of loops.
    counts: Vec<i64>,
    loops: usize,
    names: usize,
}

impl Writer {
    /// One of some tensors, more often of those that are known last: so loops are in loops.
    fn pick(&mut self, of: &[i64]) -> i64 {
        const LAST: usize = 4;
        let first = if self.random.below(4) > 0 { of.len().saturating_sub(LAST) } else { 0 };
        of[first + self.random.below(of.len() - first)]
    }

    fn named(&mut self, uid: i64) -> i64 {
        self.names += 1;
        let (name, dtype) = (format!("v{}", self.names), self.dtype);
        self.net.named(uid, &name, dtype)
    }

    /// An operation on values, with a result that neither vanishes nor grows.
    fn operation(&mut self, pool: &Pool) -> i64 {
        let [a, b] = [0, 1].map(|_| self.pick(&pool.values));
        let uid = match self.random.below(8) {
            0 => {
                let math = if self.dtype == DType::F64 { MatmulMath::F64 } else { MatmulMath::F32 };
                let weights = self.weights;
                self.net.builder.graph().matmul(Matmul::new(math), a, weights).unwrap()
            }
            1 => self.net.op(Mode::Max, &[a, b]),
            2 => {
                let halved = self.net.op(Mode::Add, &[a, b]);
                self.net.op(Mode::TanhFwd, &[halved])
            }
            3 => self.net.op(Mode::Sub, &[a, b]),
            4 => self.net.op(Mode::SigmoidFwd, &[a]),
            5 => {
                let squashed = self.net.op(Mode::TanhFwd, &[a]);
                self.net.op(Mode::Mul, &[squashed, b])
            }
            6 => {
                let reduction = Reduction::new(ReductionOp::Max);
                let dims = [self.dims[0], 1];
                let most = self.net.builder.graph().reduction(reduction, a, &dims).unwrap();
                self.net.op(Mode::Sub, &[b, most])
            }
            _ => self.net.op(Mode::Neg, &[a]),
        };
        self.named(uid)
    }

    fn condition(&mut self, pool: &Pool) -> i64 {
        let counter = self.pick(&pool.counters);
        let other = self.random.below(self.counts.len());
        let other = self.counts[other];
        let mode = [Mode::CmpLt, Mode::CmpGe, Mode::CmpEq, Mode::CmpNeq][self.random.below(4)];
        self.names += 1;
        let name = format!("c{}", self.names);
        self.net.compare(mode, &[counter, other], &name)
    }

    /// Results of a conditional, whose branches have layers of their own.
    fn conditional(&mut self, depth: usize, pool: &Pool) -> Vec<i64> {
        let condition = self.condition(pool);
        let branch = |writer: &mut Writer| {
            let mut own = pool.clone();
            own.values.push(writer.operation(pool));
            if depth < DEPTH_MAX && writer.random.below(4) == 0 {
                own = writer.looped(depth, &own);
            }
            let last = *own.values.last().unwrap();
            (last, writer.pick(&own.values))
        };
        let (then, otherwise) = (branch(self), branch(self));
        let values = match self.random.below(3) {
            0 => vec![(then.0, otherwise.0), (then.1, otherwise.1)],
            1 => vec![(then.0, otherwise.1)],
            _ => vec![(then.0, otherwise.0)],
        };
        self.net.builder.conditional(condition, &values).unwrap()
    }

    /// Some layers, of which some may be loops.
    fn layers(&mut self, depth: usize, pool: &Pool, count: usize) -> Pool {
        let mut pool = pool.clone();
        for _ in 0..count {
            match self.random.below(8) {
                0..3 if depth < DEPTH_MAX => pool = self.looped(depth, &pool),
                3 => {
                    let results = self.conditional(depth, &pool);
                    pool.values.extend(results);
                }
                _ => {
                    let value = self.operation(&pool);
                    pool.values.push(value);
                }
            }
        }
        pool
    }

    /// A loop; returns what is known outside of it.
    fn looped(&mut self, depth: usize, outside: &Pool) -> Pool {
        self.loops += 1;
        let of = self.net.builder.add_loop(&format!("l{}", self.loops));
        let mut pool = outside.clone();
        let (zero, one) = (self.zero, self.one);
        let counter = self.net.recurrence(of, zero);
        let counted = self.net.op(Mode::Add, &[counter, one]);
        self.net.next(counter, counted);
        pool.counters.push(counter);
        self.limit(of, counter, outside);
        let mut states = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let initial = self.pick(&outside.values);
            states.push(self.net.recurrence(of, initial));
        }
        pool.values.extend(&states);
        for _ in 0..self.random.below(3) {
            let (x, axis) = outside.stacks[self.random.below(outside.stacks.len())];
            let reverse = self.random.below(2) == 0;
            let element = self.net.iterator(of, x, axis, reverse);
            pool.values.push(element);
        }
        let count = 1 + self.random.below(3);
        let inside = self.layers(depth + 1, &pool, count);
        let own = &inside.values[outside.values.len()..];
        for state in &states {
            let next = match self.random.below(8) {
                0 => self.pick(&inside.values),
                _ => self.pick(own),
            };
            self.net.next(*state, next);
        }
        let mut after = outside.clone();
        for _ in 0..1 + self.random.below(3) {
            let x = self.pick(own);
            let axis = self.random.below(3);
            // Now and then too short for some counts.
            let length = if self.random.below(12) == 0 { 2 } else { 5 };
            match self.random.below(3) {
                0 => {
                    let state = self.pick(&states);
                    after.values.push(self.net.last(of, state));
                }
                1 => {
                    let output = LoopOutput::Concatenate { axis, length };
                    let y = self.net.builder.loop_output(of, output, x).unwrap();
                    after.stacks.push((y, axis));
                }
                _ => {
                    let output = LoopOutput::Reverse { axis, length };
                    let y = self.net.builder.loop_output(of, output, x).unwrap();
                    after.stacks.push((y, axis));
                }
            }
        }
        if self.random.below(4) == 0 {
            after.counters.push(self.net.last(of, counter));
        }
        // Of a stack a value, so that layers behind the loop depend on it.
        if let Some((y, axis)) = after.stacks.get(outside.stacks.len()).copied() {
            let reduction = Reduction::new(ReductionOp::Max);
            let mut dims = self.dims.to_vec();
            dims.insert(axis, 1);
            let graph = self.net.builder.graph();
            let most = graph.reduction(reduction, y, &dims).unwrap();
            let value = graph.reshape(most, &self.dims).unwrap();
            let value = self.net.op(Mode::TanhFwd, &[value]);
            after.values.push(self.named(value));
        }
        after
    }

    fn limit(&mut self, of: Loop, counter: i64, outside: &Pool) {
        let limits = self.random.below(4);
        if limits != 1 {
            let counts: Vec<i64> = outside.counters.iter().chain(&self.counts).copied().collect();
            let count = self.pick(&counts);
            self.net.builder.trip_limit(of, TripLimit::Count, count);
        }
        if limits == 1 || limits == 2 {
            let counts = self.counts.clone();
            let bound = self.pick(&counts);
            self.names += 1;
            let name = format!("w{}", self.names);
            let below = self.net.compare(Mode::CmpLt, &[counter, bound], &name);
            self.net.builder.trip_limit(of, TripLimit::While, below);
        }
    }
}

/// The network of a seed and values of its inputs.
pub fn network_of(seed: u64) -> (Network, Values) {
    let mut random = Random(seed);
    let mut net = Net::default();
    let dims = [[1, 4], [3, 8], [2, 5]][random.below(3)];
    let dtype = [DType::F32, DType::F32, DType::F32, DType::F16, DType::F64][random.below(5)];
    let [zero, one] = ["zero", "one"].map(|name| net.count(name));
    let counts = ["n0", "n1", "n2"].map(|name| net.count(name)).to_vec();
    let weights = net.input("weights", &[dims[1], dims[1]], dtype);
    let mut pool = Pool { counters: vec![zero, counts[0]], ..Pool::default() };
    for name in ["a", "b"] {
        pool.values.push(net.input(name, &dims, dtype));
    }
    for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
        let mut dims = dims.to_vec();
        dims.insert(axis, [5, 4, 5, 2][random.below(4)]);
        pool.stacks.push((net.input(name, &dims, dtype), axis));
    }
    let (loops, names) = (0, 0);
    let mut writer = Writer { net, random, dims, dtype, weights, zero, one, counts, loops, names };
    let known = [pool.values.len(), pool.stacks.len()];
    let pool = writer.looped(0, &pool);
    let count = writer.random.below(4);
    let pool = writer.layers(0, &pool, count);
    let mut outputs = Vec::new();
    outputs.extend(pool.values.iter().skip(known[0]).rev().take(3).copied());
    outputs.extend(pool.stacks.iter().skip(known[1]).rev().take(2).map(|(uid, _)| *uid));
    outputs.sort_unstable();
    outputs.dedup();
    for (at, uid) in outputs.into_iter().enumerate() {
        let is_written = writer.net.builder.graph().descriptor(uid).unwrap().is_virtual;
        let own = if is_written { uid } else { writer.net.op(Mode::Identity, &[uid]) };
        writer.net.output(own, &format!("out{at}"), dtype);
    }
    let random = &mut writer.random;
    let trips = [0, 1, 2, 3, 4, 4, 3, 2].map(f64::from);
    let chosen = [0, 1, 2].map(|_| trips[random.below(trips.len())]);
    let network = writer.net.build();
    let value = |tensor: &kiln::TensorDesc| match tensor.name.as_str() {
        "zero" => vec![0.0],
        "one" => vec![1.0],
        "n0" | "n1" | "n2" => vec![chosen[tensor.name[1..].parse::<usize>().unwrap()]],
        _ => harness::fill(tensor, seed, 1.0),
    };
    let inputs = network.inputs().map(|tensor| (tensor.uid, value(tensor))).collect();
    (network, inputs)
}

/// What a network gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Given {
    Right,
    /// The interpreter and the device say that it needs what does not exist.
    Refused,
}

fn check(seed: u64) -> Given {
    let (network, inputs) = network_of(seed);
    let kiln = harness::simulated_by_turns("sim", seed).expect("it opens");
    // Every second one without a step of the ladder, half of them on the device.
    let network = if seed % 4 < 2 { network } else { network.on_device() };
    let plan = match seed % 2 {
        0 => kiln.build_loops(&network),
        _ => kiln.build_launched_loops(&network),
    };
    let plan = plan.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
    let expected = reference::evaluate_network(&network, &inputs);
    let actual = looped::run_plan(kiln, &plan, &inputs);
    let trouble = |of: &Error| of.kind() == kiln::ErrorKind::BadParam;
    match (expected, actual) {
        (Ok(expected), Ok(actual)) => {
            looped::compare(&network, &expected, &actual, &format!("seed {seed}"));
            Given::Right
        }
        (Err(expected), Err(actual)) if trouble(&expected) && trouble(&actual) => Given::Refused,
        (expected, actual) => {
            let (expected, actual) = (expected.map(drop), actual.map(drop));
            panic!("seed {seed}: the interpreter says {expected:?}, the device {actual:?}")
        }
    }
}

/// Every n-th network, so that several tests share the work.
fn check_all(shard: u64, shards: u64) {
    let (first, count) = (number("KILN_LOOPS_FROM", 1), number("KILN_LOOPS", NETWORKS));
    let mut given: BTreeMap<Given, u64> = BTreeMap::new();
    let (mut failed, mut at) = (Vec::new(), 0);
    for seed in (first..first + count).filter(|seed| seed % shards == shard) {
        match catch_unwind(AssertUnwindSafe(|| check(seed))) {
            Ok(result) => *given.entry(result).or_default() += 1,
            Err(_) => failed.push(seed),
        }
        at += 1;
        if at % PROGRESS == 0 {
            println!("shard {shard}: {given:?}, the last has seed {seed}; failed: {failed:?}");
        }
    }
    println!("shard {shard}: {given:?}");
    assert!(failed.is_empty(), "seeds that fail: {failed:?}");
    let (right, refused) = (given.get(&Given::Right), given.get(&Given::Refused));
    let (right, refused) = (right.copied().unwrap_or(0), refused.copied().unwrap_or(0));
    assert!(refused <= right, "{refused} need what does not exist, {right} are right");
}

#[test]
fn random_loops_give_what_lazy_sequences_do_0() {
    check_all(0, 2);
}

#[test]
fn random_loops_give_what_lazy_sequences_do_1() {
    check_all(1, 2);
}

/// The networks have what they are to test: nests of three, every limit and output, conditionals.
#[test]
fn random_loops_have_everything() {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 1..=NETWORKS {
        let (network, _) = network_of(seed);
        for layer in network.layers() {
            let what = match layer {
                Layer::TripLimit { limit, .. } => limit.name().to_owned(),
                Layer::LoopOutput { output, .. } => output.name().to_owned(),
                Layer::Iterator { axis, reverse, .. } => format!("iterator {axis} {reverse}"),
                Layer::Conditional { .. } => "conditional".to_owned(),
                Layer::Recurrence { .. } => "recurrence".to_owned(),
                Layer::Operation(of) => of.op.name().to_owned(),
            };
            *seen.entry(what).or_default() += 1;
        }
        let is_live = |of: &Loop| network.boundaries(*of).next().is_some();
        for of in network.loops().filter(is_live) {
            let depth = network.around(of).len();
            *seen.entry(format!("depth {depth}")).or_default() += 1;
        }
    }
    println!("{seen:?}");
    let wanted = ["depth 0", "depth 1", "depth 2", "conditional", "matmul", "reduction", "reshape"];
    let limits = ["count", "while", "last_value", "concatenate", "reverse", "iterator 1 true"];
    for what in wanted.iter().chain(&limits) {
        assert!(seen.get(*what).is_some_and(|count| *count >= 5), "{what}: {seen:?}");
    }
}
