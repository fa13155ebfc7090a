//! Loops that are pointwise: scans, counters and iterations to convergence are one kernel, in any
//! type and order.

use kiln::expr::{Mode, Pointwise};
use kiln::loops::{Network, TripLimit};
use kiln::{DType, TensorDesc};

use crate::harness;
use crate::looped::{self, Net};
use crate::loops_cells::{check, everywhere};

/// Sums and logarithms of sums of exponentials along an axis, in any shape.
fn scans(dims: &[i64]) -> Network {
    let mut net = Net::default();
    let all: Vec<i64> = [9].into_iter().chain(dims.iter().copied()).collect();
    // A tensor of one dimension has elements of one.
    let all = if dims == [1] { vec![9] } else { all };
    let (x, n) = (net.f32("x", &all), net.count("n"));
    let [zero, least] = ["zero", "least"].map(|name| net.f32(name, dims));
    let of = net.counted("rows", n);
    let row = net.iterator(of, x, 0, false);
    // Sums, and the logarithm of sums of exponentials by the larger of two.
    let [sum, log] = [zero, least].map(|initial| net.recurrence(of, initial));
    let next = net.op(Mode::Add, &[sum, row]);
    let (most, fewest) = (net.op(Mode::Max, &[log, row]), net.op(Mode::Min, &[log, row]));
    let apart = net.op(Mode::Sub, &[fewest, most]);
    let small = net.op(Mode::Exp, &[apart]);
    let softplus = net.builder.graph().pointwise(Pointwise::new(Mode::SoftplusFwd), &[apart]);
    let logs = net.op(Mode::Add, &[most, softplus.unwrap()]);
    net.next(sum, next);
    net.next(log, logs);
    let outputs = [
        (net.stack(of, next, 0, 9), "sums"),
        (net.stack(of, logs, dims.len(), 9), "logs"),
        (net.stack(of, small, 0, 9), "small"),
        (net.last(of, sum), "sum"),
    ];
    for (uid, name) in outputs {
        net.output(uid, name, DType::F32);
    }
    net.build()
}

#[test]
fn scans_are_one_kernel() {
    for dims in [vec![1], vec![5], vec![70], vec![3, 8], vec![2, 3, 33]] {
        let network = scans(&dims);
        let steps = check(&network, &[0.0, 1.0, 8.0, 9.0]);
        assert!(steps.contains("loop rows, count n: a pointwise loop"), "{dims:?}: {steps}");
    }
}

/// Every class of target, all heuristics, several orders of warps.
#[test]
fn scans_on_every_target() {
    everywhere(&[scans(&[3, 70])], 7.0, "a pointwise loop of the graph above");
}

/// Iterations to convergence: their condition is computed where the states are.
#[test]
fn whiles_are_one_kernel() {
    // Newton's square root, with a count that may end it before.
    for (limited, most, tolerance) in [(false, 0.0, 1e-4), (true, 3.0, 1e-4), (true, 50.0, 1e-4)] {
        let mut net = Net::default();
        let [x, start, small, half] =
            ["x", "start", "small", "half"].map(|name| net.f32(name, &[1]));
        let of = net.builder.add_loop("newton");
        if limited {
            let n = net.count("n");
            net.builder.trip_limit(of, TripLimit::Count, n);
        }
        let root = net.recurrence(of, start);
        let quotient = net.op(Mode::Div, &[x, root]);
        let apart = net.op(Mode::Sub, &[root, quotient]);
        let size = net.op(Mode::Abs, &[apart]);
        let more = net.compare(Mode::CmpGt, &[size, small], "more");
        net.builder.trip_limit(of, TripLimit::While, more);
        let sum = net.op(Mode::Add, &[root, quotient]);
        let next = net.op(Mode::Mul, &[half, sum]);
        net.next(root, next);
        let (last, all) = (net.last(of, root), net.stack(of, root, 0, 12));
        net.output(last, "root", DType::F32);
        net.output(all, "all", DType::F32);
        let network = net.build();
        for value in [2.0, 2.0e4, 1.0] {
            let inputs: looped::Named = &[
                ("x", &[value]),
                ("start", &[1.0]),
                ("small", &[tolerance * f64::sqrt(value)]),
                ("half", &[0.5]),
                ("n", &[most]),
            ];
            let root = looped::check(&network, inputs, "root");
            if most != 3.0 {
                assert!((root[0] * root[0] / value - 1.0).abs() < 1e-3, "{root:?}");
            }
        }
        let steps = harness::kiln().build_loops(&network).unwrap().steps();
        assert!(steps.contains("a pointwise loop of the graph above"), "{steps}");
        assert!(!steps.contains("launched by the host"), "{steps}");
    }
}

/// The Mandelbrot set: escapes are counted for every point, from both ends of a counter.
#[test]
fn states_of_several_types_and_shapes() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        let mut net = Net::default();
        let (rows, columns, length) = (5, 7, 9);
        let re = net.input("re", &[1, columns], dtype);
        let im = net.input("im", &[rows, 1], dtype);
        let zero = net.input("zero", &[rows, columns], dtype);
        let (none, one) = (net.input("none", &[rows, columns], DType::I32), net.count("one"));
        let (i0, n) = (net.input("i0", &[1, 1], DType::I32), net.input("n", &[1, 1], DType::I32));
        let four = net.input("four", &[1, 1], dtype);
        let count = net.count("count");
        let of = net.counted("escape", count);
        let [a, b] = [zero, zero].map(|initial| net.recurrence(of, initial));
        let (k, i) = (net.recurrence(of, none), net.recurrence(of, i0));
        let more = net.compare(Mode::CmpLt, &[i, n], "more");
        net.builder.trip_limit(of, TripLimit::While, more);
        let [aa, bb, ab] = [(a, a), (b, b), (a, b)].map(|(x, y)| net.op(Mode::Mul, &[x, y]));
        let square = net.op(Mode::Add, &[aa, bb]);
        let inside = net.compare(Mode::CmpLe, &[square, four], "inside");
        let difference = net.op(Mode::Sub, &[aa, bb]);
        let next_a = net.op(Mode::Add, &[difference, re]);
        let twice = net.op(Mode::Add, &[ab, ab]);
        let next_b = net.op(Mode::Add, &[twice, im]);
        let graph = net.builder.graph();
        let unit = graph.reshape(one, &[1, 1]).unwrap();
        let more_k = net.op(Mode::Add, &[k, unit]);
        let select = |net: &mut Net, new, old| net.op(Mode::BinarySelect, &[new, old, inside]);
        let [next_a, next_b] = [(next_a, a), (next_b, b)].map(|(new, old)| {
            let next = select(&mut net, new, old);
            net.named(next, "", dtype)
        });
        let next_k = select(&mut net, more_k, k);
        let next_i = net.op(Mode::Add, &[i, unit]);
        for uid in [next_k, next_i] {
            net.named(uid, "", DType::I32);
        }
        for (state, next) in [(a, next_a), (b, next_b), (k, next_k), (i, next_i)] {
            net.next(state, next);
        }
        let outputs = [
            (net.last(of, k), "k", DType::I32),
            (net.last(of, i), "i", DType::I32),
            (net.stack(of, k, 2, length), "history", DType::I32),
            (net.stack(of, i, 0, length), "counted", DType::I32),
        ];
        for (uid, name, dtype) in outputs {
            net.output(uid, name, dtype);
        }
        let network = net.build();
        let axis = |count: i64| -> Vec<f64> {
            (0..count).map(|at| -1.5 + 2.0 * at as f64 / count as f64).collect()
        };
        let (re, im) = (axis(columns), axis(rows));
        let none = vec![0.0; (rows * columns) as usize];
        for (n, count) in [(0.0, 9.0), (4.0, 9.0), (9.0, 4.0), (9.0, 9.0), (3.0, 0.0)] {
            let inputs: looped::Named = &[
                ("re", &re),
                ("im", &im),
                ("zero", &none),
                ("none", &none),
                ("one", &[1.0]),
                ("i0", &[0.0]),
                ("n", &[n]),
                ("four", &[4.0]),
                ("count", &[count]),
            ];
            // Of points at the edge the types decide, which the interpreter rounds alike.
            let counted = looped::check(&network, inputs, "i");
            assert_eq!(counted, [n.min(count)]);
        }
        let steps = harness::kiln().build_loops(&network).unwrap().steps();
        assert!(steps.contains("a pointwise loop of the graph above"), "{steps}");
    }
}

/// Iterators and outputs from the end, of any axis, with gaps; past the end as in any loop.
#[test]
fn scans_from_the_end() {
    for (axis, reverse, turned) in [(0, true, false), (1, false, true), (2, true, true)] {
        let mut net = Net::default();
        let mut dims = vec![3, 4];
        dims.insert(axis, 6);
        let mut x = TensorDesc::packed(1, "x", &dims, DType::F32);
        x.strides.iter_mut().for_each(|stride| *stride *= 2);
        let x = net.builder.graph().tensor(x);
        let (n, zero) = (net.count("n"), net.f32("zero", &[3, 4]));
        let of = net.counted("scan", n);
        let (row, sum) = (net.iterator(of, x, axis, reverse), net.recurrence(of, zero));
        let next = net.op(Mode::Add, &[sum, row]);
        net.next(sum, next);
        let all = match turned {
            true => net.turned(of, next, axis, 5),
            false => net.stack(of, next, axis, 5),
        };
        let before = net.stack(of, sum, 1, 8);
        let last = net.last(of, sum);
        for (uid, name) in [(all, "all"), (before, "before"), (last, "last")] {
            net.output(uid, name, DType::F32);
        }
        let network = net.build();
        let steps = check(&network, &[-1.0, 0.0, 1.0, 4.0, 5.0]);
        assert!(steps.contains("loop scan, count n: a pointwise loop"), "{steps}");
        let x: Vec<f64> = (0..72).map(f64::from).collect();
        let inputs: looped::Named = &[("x", &x), ("zero", &[0.0; 12]), ("n", &[6.0])];
        looped::fails(&network, inputs, "loop `scan` makes 6 trips, `all` has a length of 5");
    }
}

/// A counter of one dimension beside rows of two; states of other extents are another loop's.
#[test]
fn states_of_several_ranks() {
    for extent in [3, 4] {
        let mut net = Net::default();
        let [zero, n, one] = ["zero", "n", "one"].map(|name| net.count(name));
        let (x, y) = (net.f32("x", &[2, 3]), net.f32("y", &[2, extent]));
        let of = net.builder.add_loop("ranks");
        let [i, a, b] = [zero, x, y].map(|initial| net.recurrence(of, initial));
        let more = net.compare(Mode::CmpLt, &[i, n], "more");
        net.builder.trip_limit(of, TripLimit::While, more);
        let next_i = net.op(Mode::Add, &[i, one]);
        let [next_a, next_b] = [a, b].map(|of| net.op(Mode::Add, &[of, of]));
        for (state, next) in [(i, next_i), (a, next_a), (b, next_b)] {
            net.next(state, next);
        }
        let outputs = [
            (net.last(of, i), "i", DType::I32),
            (net.last(of, a), "a", DType::F32),
            (net.stack(of, b, 0, 5), "b", DType::F32),
            (net.stack(of, i, 1, 5), "counted", DType::I32),
        ];
        for (uid, name, dtype) in outputs {
            net.output(uid, name, dtype);
        }
        let network = net.build();
        let ones = vec![1.0; 2 * extent as usize];
        for n in [0.0, 3.0, 5.0] {
            let inputs: looped::Named =
                &[("zero", &[0.0]), ("n", &[n]), ("one", &[1.0]), ("x", &[1.0; 6]), ("y", &ones)];
            assert_eq!(looped::check(&network, inputs, "i"), [n]);
        }
        let steps = harness::kiln().build_loops(&network).unwrap().steps();
        assert_eq!(steps.contains("a pointwise loop of the graph above"), extent == 3, "{steps}");
        let reason = "no pointwise loop: pointwise_loop{3 states, while}: extents 3 and 4 differ \
                      along axis 1";
        assert_eq!(steps.contains(reason), extent == 4, "{steps}");
    }
}

/// A condition that stays true ends after the loop's most trips, with an error.
#[test]
fn endless_loops_end() {
    let mut net = Net::default();
    let (yes, start) = (net.input("yes", &[1], DType::Bool), net.f32("start", &[3]));
    let of = net.builder.add_loop("endless");
    net.builder.trips_max(of, 5);
    let flag = net.recurrence(of, yes);
    net.builder.trip_limit(of, TripLimit::While, flag);
    net.next(flag, flag);
    let x = net.recurrence(of, start);
    let next = net.op(Mode::Add, &[x, x]);
    net.next(x, next);
    let last = net.last(of, x);
    net.output(last, "last", DType::F32);
    let network = net.build();
    let start: looped::Named = &[("yes", &[1.0]), ("start", &[1.0, 2.0, 3.0])];
    looped::fails(&network, start, "loop `endless`: its condition is still true after 5 trips");
    let start: looped::Named = &[("yes", &[0.0]), ("start", &[1.0, 2.0, 3.0])];
    assert_eq!(looped::check(&network, start, "last"), [1.0, 2.0, 3.0]);
    let steps = harness::kiln().build_loops(&network).unwrap().steps();
    assert!(steps.contains("a pointwise loop of the graph above"), "{steps}");
}
