//! Loops that are recurrent layers: an LSTM written layer by layer is the kernel of `Rnn::lstm`,
//! cells that no library has and scans are one kernel too, and what is none says why.

use kiln::engine::Mode as Chosen;
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Concatenate, Matmul, MatmulMath, Op, Slice, Transpose};
use kiln::loops::{LoopOutput, Network, TripLimit};
use kiln::rnn::{BiasMode, CellKind, Extent, Optional, Rnn};
use kiln::{DType, Kiln, TensorDesc};

use crate::harness::{self, Values};
use crate::looped::{self, Net};

/// Where the biases of a written layer are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bias {
    None,
    /// Added to the sum of both products.
    Behind,
    /// Added to each product.
    Each,
}

/// Sizes of a written layer.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    steps: i64,
    batch: i64,
    input: i64,
    hidden: i64,
    dtype: DType,
}

impl Net {
    fn product(&mut self, a: i64, b: i64, dtype: DType) -> i64 {
        let math = if dtype == DType::F64 { MatmulMath::F64 } else { MatmulMath::F32 };
        self.builder.graph().matmul(Matmul::new(math), a, b).unwrap()
    }

    /// A block of columns.
    fn block(&mut self, uid: i64, at: i64, width: i64) -> i64 {
        let dims = self.builder.graph().descriptor(uid).unwrap().dims.clone();
        let slice = Slice::along(&dims, dims.len() - 1, at * width, (at + 1) * width);
        self.builder.graph().operation(Op::Slice(slice), &[uid]).unwrap()[0]
    }

    /// The transpose of a matrix, as libraries store weights.
    fn turned_matrix(&mut self, uid: i64) -> i64 {
        let turned = Op::Transpose(Transpose { permutation: vec![1, 0] });
        self.builder.graph().operation(turned, &[uid]).unwrap()[0]
    }
}

/// The gates of a written layer, `x W' + h R'` with biases, as one tensor.
fn gates(net: &mut Net, sizes: Sizes, count: i64, bias: Bias, x: i64, h: i64) -> i64 {
    let Sizes { input, hidden, dtype, .. } = sizes;
    let w = net.input("w", &[count * hidden, input], dtype);
    let r = net.input("r", &[count * hidden, hidden], dtype);
    let [w, r] = [w, r].map(|uid| net.turned_matrix(uid));
    let [mut of_x, mut of_h] = [(x, w), (h, r)].map(|(a, b)| net.product(a, b, dtype));
    let biased = |net: &mut Net, name: &str, uid: i64| {
        let bias = net.input(name, &[1, count * hidden], dtype);
        net.op(Mode::Add, &[uid, bias])
    };
    if bias == Bias::Each {
        // Behind the hoisted product, and behind the recurrent one.
        of_h = biased(net, "r_bias", of_h);
        of_x = biased(net, "w_bias", of_x);
    }
    let sum = net.op(Mode::Add, &[of_x, of_h]);
    if bias == Bias::Behind { biased(net, "w_bias", sum) } else { sum }
}

/// An LSTM, layer by layer; in 16 bits its second state has 32.
fn lstm(sizes: Sizes, bias: Bias) -> Network {
    lstm_from(sizes, bias, false)
}

/// An LSTM that reads its input from the end, or from the front.
fn lstm_from(sizes: Sizes, bias: Bias, reverse: bool) -> Network {
    let Sizes { steps, batch, input, hidden, dtype } = sizes;
    let mut net = Net::default();
    let x = net.input("x", &[steps, batch, input], dtype);
    let n = net.count("n");
    let [h0, c0] = ["h0", "c0"].map(|name| net.input(name, &[batch, hidden], dtype));
    let of = net.counted("time", n);
    let row = net.iterator(of, x, 0, reverse);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let c0 = if dtype == wide { c0 } else { net.op(Mode::Identity, &[c0]) };
    let [h, c] = [h0, c0].map(|initial| net.recurrence(of, initial));
    let gates = gates(&mut net, sizes, 4, bias, row, h);
    let [i, f, g, o] = [0, 1, 2, 3].map(|at| net.block(gates, at, hidden));
    let [i, f, o] = [i, f, o].map(|gate| net.op(Mode::SigmoidFwd, &[gate]));
    let g = net.op(Mode::TanhFwd, &[g]);
    let kept = net.op(Mode::Mul, &[f, c]);
    // The other order of operands than in the library's cell.
    let added = net.op(Mode::Mul, &[g, i]);
    let next_c = net.op(Mode::Add, &[added, kept]);
    let shown = net.op(Mode::TanhFwd, &[next_c]);
    let next_h = net.op(Mode::Mul, &[o, shown]);
    for (uid, dtype) in [(next_c, wide), (next_h, dtype)] {
        net.builder.graph().name(uid, "", dtype);
    }
    net.next(h, next_h);
    net.next(c, next_c);
    let (all, last_h, last_c) = (net.stack(of, next_h, 0, steps), net.last(of, h), net.last(of, c));
    for (uid, name) in [(all, "all"), (last_h, "last_h")] {
        net.output(uid, name, dtype);
    }
    // The library would round it to 16 bits.
    if dtype == wide {
        net.output(last_c, "last_c", dtype);
    }
    net.build()
}

fn values(network: &Network, n: f64) -> Values {
    let spread = |(at, tensor): (usize, &kiln::TensorDesc)| {
        let values = match tensor.name.as_str() {
            "n" => vec![n],
            _ => harness::fill(tensor, at as u64 + 1, 0.5),
        };
        (tensor.uid, values)
    };
    network.inputs().enumerate().map(spread).collect()
}

/// Runs a network for several counts on both dialects; returns how its loops are run.
#[track_caller]
pub fn check(network: &Network, counts: &[f64]) -> String {
    let mut steps = String::new();
    for kiln in harness::dialects() {
        let plan = kiln.build_loops(network).unwrap_or_else(|error| panic!("{error}"));
        for n in counts {
            let inputs = values(network, *n);
            let expected = kiln::reference::evaluate_network(network, &inputs).unwrap();
            let actual = looped::run_plan(kiln, &plan, &inputs).unwrap();
            looped::compare(network, &expected, &actual, &format!("{n} trips"));
        }
        steps = plan.steps();
    }
    steps
}

/// Sources of the kernels that go through the steps.
fn recurrent(plans: &[kiln::ExecutionPlan]) -> Vec<String> {
    let kernels = plans.iter().flat_map(|plan| plan.kernels());
    let own = kernels.filter(|kernel| kernel.config().to_string().contains("rnn"));
    own.map(|kernel| kernel.source().text.clone()).collect()
}

/// The sources of an [`Rnn`] with the same operands.
fn library(kiln: &Kiln, rnn: &Rnn, sizes: Sizes) -> Vec<String> {
    let extent = Extent { batch: sizes.batch, rows: sizes.steps * sizes.batch };
    let with = Optional {
        h_initial: true,
        states_initial: true,
        lengths: true,
        h_final: true,
        states_final: sizes.dtype != DType::F16,
        ..Optional::default()
    };
    let network = rnn.network(extent, with).unwrap();
    recurrent(&[kiln.plan(&network.graph).unwrap()])
}

#[test]
fn a_written_lstm_is_the_kernel_of_the_library() {
    let sizes = Sizes { steps: 6, batch: 3, input: 24, hidden: 40, dtype: DType::F32 };
    let kinds = [
        (sizes, Bias::None, BiasMode::None),
        (sizes, Bias::Behind, BiasMode::SingleInput),
        (sizes, Bias::Each, BiasMode::SingleRecurrent),
        (Sizes { dtype: DType::F16, ..sizes }, Bias::None, BiasMode::None),
        (Sizes { dtype: DType::F64, ..sizes }, Bias::Behind, BiasMode::SingleInput),
    ];
    for (sizes, bias, mode) in kinds {
        let network = lstm(sizes, bias);
        let rnn = Rnn::lstm(sizes.input, sizes.hidden).bias(mode).dtype(sizes.dtype);
        for kiln in harness::dialects() {
            let plan = kiln.build_loops(&network).unwrap();
            let own = recurrent(plan.plans());
            assert!(!own.is_empty(), "{}", plan.steps());
            let theirs = library(kiln, &rnn, sizes);
            assert_eq!(own, theirs, "{bias:?} {}", sizes.dtype);
        }
        let steps = check(&network, &[0.0, 1.0, 5.0, 6.0]);
        assert!(steps.contains("loop time, count n: a recurrent layer"), "{steps}");
    }
}

/// The written layer is torch's: `tests/data/rnn/torch_cases.py` ran it. Of an input that lies the
/// other way round and is read from its end, which no recurrent layer is, it is a resident loop.
#[test]
fn a_written_lstm_is_torchs() {
    let sizes = Sizes { steps: 6, batch: 3, input: 5, hidden: 8, dtype: DType::F32 };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rnn/torch.safetensors");
    let torch = |name: &str, dims: &[i64]| {
        let tensor = TensorDesc::packed(1, format!("lstm/{name}"), dims, DType::F32);
        let read = kiln::plan::read_values(path.as_ref(), std::iter::once(&tensor));
        read.expect("the container has it").remove(&1).expect("one was asked for")
    };
    for (reverse, step) in [(false, "a recurrent layer"), (true, "a resident loop")] {
        let network = lstm_from(sizes, Bias::Each, reverse);
        let x = torch("input", &[6, 3, 5]);
        let turned = || x.chunks(3 * 5).rev().flatten().copied().collect();
        let inputs: Values = network
            .inputs()
            .map(|tensor| {
                let values = match tensor.name.as_str() {
                    "x" if reverse => turned(),
                    "x" => x.clone(),
                    "h0" => torch("h_0", &[1, 3, 8]),
                    "c0" => torch("c_0", &[1, 3, 8]),
                    "w" => torch("weight_ih_l0", &[32, 5]),
                    "r" => torch("weight_hh_l0", &[32, 8]),
                    "w_bias" => torch("bias_ih_l0", &[32]),
                    "r_bias" => torch("bias_hh_l0", &[32]),
                    _ => vec![6.0],
                };
                (tensor.uid, values)
            })
            .collect();
        let mut expected = kiln::reference::evaluate_network(&network, &inputs).unwrap();
        for tensor in network.outputs() {
            let own = expected.get_mut(&tensor.uid).unwrap();
            own.values = match tensor.name.as_str() {
                "all" => torch("output", &[6, 3, 8]),
                "last_h" => torch("h_n", &[1, 3, 8]),
                _ => torch("c_n", &[1, 3, 8]),
            };
            // Torch computes in f32 too, in an order of its own.
            own.bounds.iter_mut().for_each(|bound| *bound *= 2.0);
        }
        for (kiln, what) in everyone() {
            let plan = kiln.build_loops(&network).unwrap();
            assert!(plan.steps().contains(step), "{what}: {}", plan.steps());
            let actual = looped::run_plan(kiln, &plan, &inputs).unwrap();
            looped::compare(&network, &expected, &actual, &format!("torch, {what}"));
        }
    }
}

/// Every class of target, all heuristics, several orders of warps.
#[test]
fn written_layers_on_every_target() {
    let sizes = Sizes { steps: 5, batch: 3, input: 24, hidden: 40, dtype: DType::F32 };
    let networks =
        [DType::F32, DType::F16].map(|dtype| lstm(Sizes { dtype, ..sizes }, Bias::Behind));
    everywhere(&networks, 4.0, "a recurrent layer of the graph above");
}

/// Every class of target under all heuristics and several orders of warps, with what that is.
fn everyone() -> impl Iterator<Item = (&'static Kiln, String)> {
    let targets = ["t4", "a100", "l40s", "h200", "b200", "rtx5090"].into_iter().enumerate();
    targets.flat_map(|(seed, target)| {
        let heuristics = [Chosen::A, Chosen::B, Chosen::Fallback].into_iter().enumerate();
        heuristics.filter_map(move |(at, heuristic)| {
            let seed = (seed + at) as u64;
            let kiln = harness::simulated_by(target, seed, heuristic)?;
            Some((kiln, format!("{target}, heuristic {heuristic}, seed {seed}")))
        })
    })
}

/// Runs networks with this count on every class of target under all heuristics.
pub fn everywhere(networks: &[Network], n: f64, step: &str) {
    for (kiln, what) in everyone() {
        for network in networks {
            let plan = kiln.build_loops(network).unwrap_or_else(|error| panic!("{error}"));
            assert!(plan.steps().contains(step), "{what}: {}", plan.steps());
            let inputs = values(network, n);
            let expected = kiln::reference::evaluate_network(network, &inputs).unwrap();
            let actual = looped::run_plan(kiln, &plan, &inputs).unwrap();
            looped::compare(network, &expected, &actual, &what);
        }
    }
}

#[test]
fn layers_of_one_state_are_the_library_s() {
    let sizes = Sizes { steps: 5, batch: 2, input: 16, hidden: 24, dtype: DType::F32 };
    for (mode, kind) in [(Mode::TanhFwd, CellKind::Tanh), (Mode::SigmoidFwd, CellKind::Sigmoid)] {
        let mut net = Net::default();
        let x = net.f32("x", &[sizes.steps, sizes.batch, sizes.input]);
        let (n, h0) = (net.count("n"), net.f32("h0", &[sizes.batch, sizes.hidden]));
        let of = net.counted("time", n);
        let (row, h) = (net.iterator(of, x, 0, false), net.recurrence(of, h0));
        let sum = gates(&mut net, sizes, 1, Bias::None, row, h);
        let next = net.op(mode, &[sum]);
        net.next(h, next);
        let (all, last) = (net.stack(of, next, 0, sizes.steps), net.last(of, h));
        net.output(all, "all", DType::F32);
        net.output(last, "last", DType::F32);
        let network = net.build();
        let plan = harness::kiln().build_loops(&network).unwrap();
        let rnn = Rnn::new(kind, sizes.input, sizes.hidden).bias(BiasMode::None);
        let extent = Extent { batch: sizes.batch, rows: sizes.steps * sizes.batch };
        let with =
            Optional { h_initial: true, lengths: true, h_final: true, ..Optional::default() };
        let graph = rnn.network(extent, with).unwrap().graph;
        let own = harness::kiln().plan(&graph).unwrap();
        assert_eq!(recurrent(plan.plans()), recurrent(&[own]));
        check(&network, &[0.0, 1.0, 5.0]);
    }
}

/// A bias that something else reads as well is a parameter.
#[test]
fn a_bias_that_is_read_twice_is_a_parameter() {
    let sizes = Sizes { steps: 4, batch: 2, input: 16, hidden: 16, dtype: DType::F32 };
    for first in [true, false] {
        let mut net = Net::default();
        let (x, n, h0) = (net.f32("x", &[4, 2, 16]), net.count("n"), net.f32("h0", &[2, 16]));
        let bias = net.f32("bias", &[1, 16]);
        let of = net.counted("time", n);
        let (row, h) = (net.iterator(of, x, 0, false), net.recurrence(of, h0));
        let sum = gates(&mut net, sizes, 1, Bias::None, row, h);
        let scaled = if first { net.op(Mode::Mul, &[h, bias]) } else { h };
        let biased = net.op(Mode::Add, &[sum, bias]);
        let scaled = if first { scaled } else { net.op(Mode::Mul, &[h, bias]) };
        let both = net.op(Mode::Add, &[biased, scaled]);
        let next = net.op(Mode::TanhFwd, &[both]);
        net.next(h, next);
        let all = net.stack(of, next, 0, sizes.steps);
        net.output(all, "all", DType::F32);
        let steps = check(&net.build(), &[0.0, 1.0, 4.0]);
        assert!(steps.contains("loop time, count n: a recurrent layer"), "{steps}");
    }
}

/// A bias of some gates is none of what is read without it: two ways lead to the input.
#[test]
fn a_bias_is_of_what_is_read_with_it_alone() {
    let mut net = Net::default();
    let (x, n, h0) = (net.f32("x", &[4, 2, 32]), net.count("n"), net.f32("h0", &[2, 16]));
    let (bias, r) = (net.f32("bias", &[1, 32]), net.f32("r", &[16, 16]));
    let of = net.counted("time", n);
    let (row, h) = (net.iterator(of, x, 0, false), net.recurrence(of, h0));
    let graph = net.builder.graph();
    let [plain, other] = [0, 1].map(|_| graph.reshape(row, &[2, 32]).unwrap());
    let biased = net.op(Mode::Add, &[other, bias]);
    let (plain, biased) = (net.block(plain, 0, 16), net.block(biased, 1, 16));
    let product = net.product(h, r, DType::F32);
    let gated = net.op(Mode::Mul, &[plain, product]);
    let sum = net.op(Mode::Add, &[gated, biased]);
    let next = net.op(Mode::TanhFwd, &[sum]);
    net.next(h, next);
    let all = net.stack(of, next, 0, 4);
    net.output(all, "all", DType::F32);
    let steps = check(&net.build(), &[0.0, 1.0, 4.0]);
    assert!(steps.contains("loop time, count n: a recurrent layer"), "{steps}");
}

/// Further values that are handed out, along other axes, of iterators along other axes.
#[test]
fn a_cell_that_no_library_has_is_one_kernel() {
    // A minimal gated unit with a bias for each unit, peeping at a second state: two stages.
    let (steps, batch, hidden) = (7, 3, 24);
    for (axis, out) in [(0, 0), (1, 1), (1, 2)] {
        let mut net = Net::default();
        let dims = if axis == 0 { [steps, batch, hidden] } else { [batch, steps, hidden] };
        let (x, n) = (net.f32("x", &dims), net.count("n"));
        let gain = net.f32("gain", &[steps, batch, 1]);
        let [r, u] = ["r", "u"].map(|name| net.f32(name, &[hidden, hidden]));
        let [bias, peep] = ["bias", "peep"].map(|name| net.f32(name, &[1, hidden]));
        let slope = net.f32("slope", &[1, 1]);
        let [h0, m0] = ["h0", "m0"].map(|name| net.f32(name, &[batch, hidden]));
        let of = net.counted("unit", n);
        let (row, scale) = (net.iterator(of, x, axis, false), net.iterator(of, gain, 0, false));
        let [m, h] = [m0, h0].map(|initial| net.recurrence(of, initial));
        let product = net.product(h, r, DType::F32);
        let sum = net.op(Mode::Add, &[row, product]);
        let biased = net.op(Mode::Add, &[bias, sum]);
        let seen = net.op(Mode::Mul, &[m, peep]);
        let all = net.op(Mode::Sub, &[biased, seen]);
        let forget = net.op(Mode::SigmoidFwd, &[all]);
        let reset = net.op(Mode::Mul, &[forget, h]);
        let second = net.product(reset, u, DType::F32);
        let own = net.op(Mode::Mul, &[second, scale]);
        let sloped = net.op(Mode::Mul, &[row, slope]);
        let both = net.op(Mode::Add, &[own, sloped]);
        let candidate = net.op(Mode::TanhFwd, &[both]);
        let positive = net.compare(Mode::CmpGt, &[candidate, slope], "");
        let chosen = net.op(Mode::BinarySelect, &[candidate, forget, positive]);
        let next_m = net.op(Mode::Max, &[m, chosen]);
        net.next(h, chosen);
        net.next(m, next_m);
        let graph = net.builder.graph();
        let joined = Op::Concatenate(Concatenate::new(1, 2));
        let pair = graph.operation(joined, &[forget, m]).unwrap()[0];
        let outputs = [
            (net.stack(of, chosen, out, steps), "h"),
            (net.stack(of, pair, out, steps), "pair"),
            (net.last(of, m), "last_m"),
        ];
        for (uid, name) in outputs {
            net.output(uid, name, DType::F32);
        }
        let network = net.build();
        let steps = check(&network, &[0.0, 1.0, 6.0, 7.0]);
        assert!(steps.contains("loop unit, count n: a recurrent layer"), "{steps}");
    }
}

/// Tensors with gaps and values of the call are copied to where the layer reads them.
#[test]
fn operands_of_any_kind() {
    let (steps, batch, hidden) = (5, 3, 16);
    let mut net = Net::default();
    let spaced = |uid: i64, name: &str, dims: &[i64], gap: i64| {
        let mut tensor = TensorDesc::packed(uid, name, dims, DType::F32);
        tensor.strides.iter_mut().for_each(|stride| *stride *= gap);
        // Rows of a matrix are packed.
        tensor.strides[dims.len() - 1] = if name == "r" { 1 } else { gap };
        tensor
    };
    let graph = net.builder.graph();
    let [x, r, h0] = [
        ("x", 1, vec![steps, batch, hidden]),
        ("r", 2, vec![hidden, hidden]),
        ("h0", 3, vec![batch, hidden]),
    ]
    .map(|(name, uid, dims)| graph.tensor(spaced(uid, name, &dims, uid + 1)));
    let number = |uid: i64, name: &str, dtype: DType| TensorDesc {
        by_value: true,
        ..TensorDesc::packed(uid, name, &[1], dtype)
    };
    let n = graph.tensor(number(4, "n", DType::I32));
    let slope = graph.tensor(TensorDesc {
        dims: vec![1, 1],
        strides: vec![1, 1],
        ..number(5, "slope", DType::F32)
    });
    let of = net.counted("time", n);
    let (row, h) = (net.iterator(of, x, 0, false), net.recurrence(of, h0));
    let product = net.product(h, r, DType::F32);
    let sum = net.op(Mode::Add, &[row, product]);
    let sloped = net.op(Mode::Mul, &[sum, slope]);
    let next = net.op(Mode::TanhFwd, &[sloped]);
    net.next(h, next);
    let (all, last) = (net.stack(of, next, 0, steps), net.last(of, h));
    for (uid, name) in [(all, "all"), (last, "last")] {
        net.output(uid, name, DType::F32);
    }
    let network = net.build();
    let text = check(&network, &[0.0, 1.0, 4.0, 5.0]);
    assert!(text.contains("loop time, count n: a recurrent layer"), "{text}");
}

/// A layer in a loop is that loop's; one past the end is an error as in any other.
#[test]
fn layers_are_in_loops() {
    let (outer, steps, width) = (3, 4, 16);
    let mut net = Net::default();
    let (x, zero) = (net.f32("x", &[outer, steps, 2, width]), net.f32("zero", &[2, width]));
    let (m, n) = (net.count("m"), net.count("n"));
    let a = net.counted("outer", m);
    let page = net.iterator(a, x, 0, false);
    let carried = net.recurrence(a, zero);
    let b = net.counted("inner", n);
    let row = net.iterator(b, page, 0, false);
    let state = net.recurrence(b, carried);
    let sum = net.op(Mode::Add, &[state, row]);
    let next = net.op(Mode::TanhFwd, &[sum]);
    net.next(state, next);
    let last = net.last(b, state);
    net.next(carried, last);
    let all = net.stack(a, last, 0, outer);
    net.output(all, "all", DType::F32);
    let network = net.build();
    let fill =
        |name: &str| harness::fill(network.inputs().find(|of| of.name == name).unwrap(), 3, 0.5);
    let (x, zero) = (fill("x"), fill("zero"));
    for (m, n) in [(0.0, 4.0), (3.0, 0.0), (2.0, 3.0), (3.0, 4.0)] {
        looped::check(&network, &[("x", &x), ("zero", &zero), ("m", &[m]), ("n", &[n])], "all");
    }
    let named: looped::Named = &[("x", &x), ("zero", &zero), ("m", &[1.0]), ("n", &[5.0])];
    let text = "loop `inner`: element 4 of the iterator over `#5` is needed, its extent is 4";
    looped::fails(&network, named, text);
    let steps = harness::kiln().build_loops(&network).unwrap().steps();
    assert!(steps.contains("  loop inner, count n: a pointwise loop"), "{steps}");
    assert!(steps.contains("no recurrent layer: loop `inner` is inside of it"), "{steps}");
}

/// Why loops are no recurrent layers.
#[test]
fn what_is_no_layer_says_why() {
    type Change = fn(&mut Net, kiln::loops::Loop, [i64; 3]) -> i64;
    let cases: [(&str, Change); 7] = [
        ("its body has reduction", |net, _, [h, row, _]| {
            let most = kiln::graph::Reduction::new(kiln::graph::ReductionOp::Max);
            let most = net.builder.graph().reduction(most, row, &[3, 1]).unwrap();
            net.op(Mode::Add, &[h, most])
        }),
        ("the iterator over `x` goes from the end", |net, of, [h, _, x]| {
            let last = net.iterator(of, x, 0, true);
            net.op(Mode::Add, &[h, last])
        }),
        ("its body has gen_index", |net, _, [h, row, _]| {
            let index = Pointwise::new(Mode::GenIndex).axis(1);
            let index = net.builder.graph().pointwise(index, &[row]).unwrap();
            net.op(Mode::Add, &[h, index])
        }),
        ("`page` is the same in all trips and has 3 rows", |net, _, [h, row, _]| {
            let page = net.f32("page", &[3, 8]);
            let sum = net.op(Mode::Add, &[h, row]);
            net.op(Mode::Add, &[sum, page])
        }),
        ("its condition is known after each trip only", |net, of, [h, row, _]| {
            let [i, one] = ["i", "one"].map(|name| net.count(name));
            let left = net.recurrence(of, i);
            let more = net.compare(Mode::CmpGt, &[left, one], "more");
            net.builder.trip_limit(of, TripLimit::While, more);
            let next = net.op(Mode::Sub, &[left, one]);
            net.next(left, next);
            net.op(Mode::Add, &[h, row])
        }),
        ("`last` begins with the last trip", |net, of, [h, row, _]| {
            let sum = net.op(Mode::Add, &[h, row]);
            let last = LoopOutput::Reverse { axis: 0, length: 5 };
            let last = net.builder.loop_output(of, last, sum).unwrap();
            net.output(last, "last", DType::F32);
            sum
        }),
        ("an output has room for 6 trips, all have for 5", |net, of, [h, row, _]| {
            let sum = net.op(Mode::Add, &[h, row]);
            let all = net.stack(of, sum, 0, 6);
            net.output(all, "all", DType::F32);
            sum
        }),
    ];
    for (reason, change) in cases {
        let mut net = Net::default();
        let (x, n, zero) = (net.f32("x", &[5, 3, 8]), net.count("n"), net.f32("zero", &[3, 8]));
        let of = net.counted("time", n);
        let (row, h) = (net.iterator(of, x, 0, false), net.recurrence(of, zero));
        let r = net.f32("r", &[8, 8]);
        let product = net.product(h, r, DType::F32);
        let next = change(&mut net, of, [product, row, x]);
        net.next(h, next);
        let last = net.last(of, h);
        net.output(last, "h", DType::F32);
        let network = net.build();
        let plan = harness::kiln().build_loops(&network).unwrap();
        let wanted = format!("  no recurrent layer: {reason}");
        assert!(plan.steps().contains(&wanted), "{reason}:\n{}", plan.steps());
    }
}
