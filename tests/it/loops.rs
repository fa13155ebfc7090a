//! Loops and conditionals as the document defines them: its examples, on the device and by the
//! interpreter.

use kiln::expr::Mode;
use kiln::graph::{Matmul, MatmulMath};
use kiln::loops::{LoopOutput, TripLimit};
use kiln::{DType, Kiln, reference};

use crate::harness;
use crate::looped::{self, Net, check};

const MATRIX: [f64; 6] = [2.0, 3.0, 5.0, 4.0, 6.0, 8.0];

/// The rows or columns of the document's matrix, each in a trip, stacked along an axis.
fn iterated(axis: usize, reverse: bool, stacked: usize, turned: bool) -> Vec<f64> {
    let mut net = Net::default();
    let t = net.f32("t", &[2, 3]);
    let n = net.count("n");
    let of = net.counted("loop", n);
    let x = net.iterator(of, t, axis, reverse);
    let trips = if axis == 0 { 2 } else { 3 };
    let y = match turned {
        false => net.stack(of, x, stacked, trips),
        true => net.turned(of, x, stacked, trips),
    };
    net.output(y, "y", DType::F32);
    check(&net.build(), &[("t", &MATRIX), ("n", &[trips as f64])], "y")
}

#[test]
fn iterators_give_rows_and_columns_forward_and_backward() {
    // "The first iteration gives {2, 3, 5} and the second {4, 6, 8}."
    assert_eq!(iterated(0, false, 0, false), MATRIX);
    assert_eq!(iterated(0, true, 0, false), [4.0, 6.0, 8.0, 2.0, 3.0, 5.0]);
    // With axis 1, each iteration gives a column.
    assert_eq!(iterated(1, false, 0, false), [2.0, 4.0, 3.0, 6.0, 5.0, 8.0]);
    assert_eq!(iterated(1, true, 0, false), [5.0, 8.0, 3.0, 6.0, 2.0, 4.0]);
}

#[test]
fn concatenations_invert_iterators() {
    for axis in [0, 1] {
        assert_eq!(iterated(axis, false, axis, false), MATRIX);
        assert_eq!(iterated(axis, true, axis, true), MATRIX);
    }
    // {a, b, c} and {d, e, f}: along axis 1 the output is a d, b e, c f; reversed d a, e b, f c.
    assert_eq!(iterated(0, false, 1, false), [2.0, 4.0, 3.0, 6.0, 5.0, 8.0]);
    assert_eq!(iterated(0, false, 1, true), [4.0, 2.0, 6.0, 3.0, 8.0, 5.0]);
}

/// `for (i = j; ..; i += k)`.
#[test]
fn the_counting_loop() {
    let mut net = Net::default();
    let [j, k, n] = ["j", "k", "n"].map(|name| net.count(name));
    let of = net.counted("counting", n);
    let i = net.recurrence(of, j);
    let next = net.op(Mode::Add, &[i, k]);
    net.next(i, next);
    let (last, all) = (net.last(of, i), net.stack(of, i, 0, 5));
    net.output(last, "last", DType::I32);
    net.output(all, "all", DType::I32);
    let network = net.build();
    for n in [-3.0, 0.0, 1.0, 2.0, 5.0] {
        let inputs: looped::Named = &[("j", &[7.0]), ("k", &[-3.0]), ("n", &[n])];
        let trips = f64::max(n, 0.0);
        assert_eq!(check(&network, inputs, "last"), [7.0 - 3.0 * trips]);
        let all: Vec<f64> = (0..5)
            .map(|at| if f64::from(at) < trips { 7.0 - 3.0 * f64::from(at) } else { 0.0 })
            .collect();
        assert_eq!(check(&network, inputs, "all"), all);
    }
    // Longer than what it is stacked in.
    let text = "loop `counting` makes 6 trips, `all` has a length of 5";
    looped::fails(&network, &[("j", &[7.0]), ("k", &[-3.0]), ("n", &[6.0])], text);
}

#[test]
fn trips_are_not_compiled_for() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[40, 24]), net.count("n"));
    let of = net.counted("sum", n);
    let zero = net.f32("zero", &[24]);
    let (row, sum) = (net.iterator(of, x, 0, false), net.recurrence(of, zero));
    let next = net.op(Mode::Add, &[sum, row]);
    net.next(sum, next);
    let (last, sums) = (net.last(of, sum), net.turned(of, next, 1, 40));
    net.output(last, "last", DType::F32);
    net.output(sums, "sums", DType::F32);
    let network = net.build();
    // One of its own: what other tests compile is not counted.
    let kiln = Kiln::open(harness::checked(None)).unwrap();
    let plan = kiln.build_loops(&network).unwrap();
    let before = kiln.metrics();
    let x: Vec<f64> = (0..40 * 24).map(|at| f64::from(at % 17) - 8.0).collect();
    for n in [0, 1, 2, 7, 39, 40] {
        let inputs =
            looped::by_uid(&network, &[("x", &x), ("zero", &[0.0; 24]), ("n", &[f64::from(n)])]);
        let expected = reference::evaluate_network(&network, &inputs).unwrap();
        let actual = looped::run_plan(&kiln, &plan, &inputs).unwrap();
        looped::compare(&network, &expected, &actual, &format!("{n} trips"));
    }
    let after = kiln.metrics();
    assert!(before.kernels.values().sum::<u64>() > 0, "{before:?}");
    assert_eq!((before.kernels, before.plan_hits), (after.kernels, after.plan_hits));
}

/// Newton's iteration for a root, until it changes no more, with the trips that it takes.
#[test]
fn while_loops_end_with_the_least_n_that_is_false() {
    let mut net = Net::default();
    let [a, start, eps] = ["a", "start", "eps"].map(|name| net.input(name, &[1], DType::F64));
    let [zero, one] = ["zero", "one"].map(|name| net.count(name));
    let of = net.builder.add_loop("newton");
    net.builder.trips_max(of, 30);
    let (x, trips) = (net.recurrence(of, start), net.recurrence(of, zero));
    let square = net.op(Mode::Mul, &[x, x]);
    let difference = net.op(Mode::Sub, &[square, a]);
    let distance = net.op(Mode::Abs, &[difference]);
    let far = net.compare(Mode::CmpGt, &[distance, eps], "far");
    net.builder.trip_limit(of, TripLimit::While, far);
    let twice = net.op(Mode::Add, &[x, x]);
    let step = net.op(Mode::Div, &[difference, twice]);
    let next = net.op(Mode::Sub, &[x, step]);
    net.next(x, next);
    let counted = net.op(Mode::Add, &[trips, one]);
    net.next(trips, counted);
    let (root, n) = (net.last(of, x), net.last(of, trips));
    let (path, back) = (net.stack(of, x, 0, 32), net.turned(of, x, 0, 32));
    net.output(root, "root", DType::F64);
    net.output(n, "n", DType::I32);
    net.output(path, "path", DType::F64);
    net.output(back, "back", DType::F64);
    let network = net.build();
    for (a, start, eps) in [(2.0, 1.0, 1e-9), (2.0, 1.0, 4.0), (1e6, 1.0, 1e-3), (81.0, 9.0, 1e-9)]
    {
        let mut expected = (start, 0.0);
        while f64::abs(expected.0 * expected.0 - a) > eps {
            expected =
                (expected.0 - (expected.0 * expected.0 - a) / (2.0 * expected.0), expected.1 + 1.0);
        }
        let inputs: looped::Named =
            &[("a", &[a]), ("start", &[start]), ("eps", &[eps]), ("zero", &[0.0]), ("one", &[1.0])];
        let trips = check(&network, inputs, "n");
        assert_eq!(trips, [expected.1]);
        let root = check(&network, inputs, "root")[0];
        assert!((root - expected.0).abs() < 1e-9, "{root}");
        let (path, back) = (check(&network, inputs, "path"), check(&network, inputs, "back"));
        let n = trips[0] as usize;
        let mut reversed = path[..n].to_vec();
        reversed.reverse();
        assert_eq!(back[..n], reversed);
        assert!(path[n..].iter().chain(&back[n..]).all(|value| *value == 0.0));
    }
    let text = "loop `newton`: its condition is still true after 30 trips";
    let inputs: looped::Named =
        &[("a", &[2.0]), ("start", &[1.0]), ("eps", &[-1.0]), ("zero", &[0.0]), ("one", &[1.0])];
    looped::fails(&network, inputs, text);
}

#[test]
fn of_two_limits_the_smaller_one_counts() {
    let mut net = Net::default();
    let [n, most, zero, one] = ["n", "most", "zero", "one"].map(|name| net.count(name));
    let of = net.counted("both", n);
    let i = net.recurrence(of, zero);
    let below = net.compare(Mode::CmpLt, &[i, most], "below");
    net.builder.trip_limit(of, TripLimit::While, below);
    let next = net.op(Mode::Add, &[i, one]);
    net.next(i, next);
    let last = net.last(of, i);
    net.output(last, "last", DType::I32);
    let network = net.build();
    for (n, most) in [(3, 5), (5, 3), (0, 4), (4, 0), (-1, 4), (20, 20), (20, 21), (21, 20)] {
        let inputs: looped::Named = &[
            ("n", &[f64::from(n)]),
            ("most", &[f64::from(most)]),
            ("zero", &[0.0]),
            ("one", &[1.0]),
        ];
        assert_eq!(check(&network, inputs, "last"), [f64::from(n.min(most).max(0))]);
    }
}

/// Products of triangles: the inner loop's trips and initial value are of the outer one.
#[test]
fn a_loop_that_uses_a_value_of_another_is_in_it() {
    let mut net = Net::default();
    let [rows, zero, one] = ["rows", "zero", "one"].map(|name| net.count(name));
    let x = net.f32("x", &[4, 6, 5]);
    let outer = net.counted("outer", rows);
    let row = net.recurrence(outer, zero);
    let next_row = net.op(Mode::Add, &[row, one]);
    net.next(row, next_row);
    let plane = net.iterator(outer, x, 0, false);
    let inner = net.counted("inner", next_row);
    let start = net.f32("start", &[5]);
    let line = net.iterator(inner, plane, 0, true);
    let sum = net.recurrence(inner, start);
    let next = net.op(Mode::Add, &[sum, line]);
    net.next(sum, next);
    let (last, all) = (net.last(inner, sum), net.stack(inner, next, 1, 5));
    let (lasts, alls) = (net.stack(outer, last, 0, 4), net.turned(outer, all, 2, 4));
    net.output(lasts, "lasts", DType::F32);
    net.output(alls, "alls", DType::F32);
    let network = net.build();
    let [outer, inner] = [0, 1].map(|at| network.loops().nth(at).unwrap());
    assert_eq!((network.around(outer), network.around(inner)), (&[][..], &[outer][..]));
    let x: Vec<f64> = (0..120).map(|at| f64::from(at % 23) / 4.0).collect();
    for rows in [0.0, 1.0, 3.0, 4.0] {
        let inputs: looped::Named = &[
            ("rows", &[rows]),
            ("zero", &[0.0]),
            ("one", &[1.0]),
            ("x", &x),
            ("start", &[1.0, 2.0, 3.0, 4.0, 5.0]),
        ];
        let lasts = check(&network, inputs, "lasts");
        check(&network, inputs, "alls");
        let mut expected = [0.0; 20];
        for row in 0..rows as usize {
            for column in 0..5 {
                let lines = (0..=row).map(|at| x[row * 30 + (5 - at) * 5 + column]);
                expected[row * 5 + column] = lines.sum::<f64>() + (column + 1) as f64;
            }
        }
        assert_eq!(lasts, expected);
    }
}

/// GEMMs with invariant weights, rows along every axis, several types.
#[test]
fn gemms_and_rows_of_every_float_type() {
    for (dtype, axis) in [(DType::F32, 0), (DType::F16, 1), (DType::Bf16, 2), (DType::F64, 0)] {
        let mut net = Net::default();
        let dims = match axis {
            0 => [5, 3, 8],
            1 => [3, 5, 8],
            _ => [3, 8, 5],
        };
        let (x, w) = (net.input("x", &dims, dtype), net.input("w", &[8, 8], dtype));
        let (h0, n) = (net.input("h0", &[3, 8], dtype), net.count("n"));
        let of = net.counted("time", n);
        let (row, h) = (net.iterator(of, x, axis, true), net.recurrence(of, h0));
        let math = if dtype == DType::F64 { MatmulMath::F64 } else { MatmulMath::F32 };
        let graph = net.builder.graph();
        let [input, state] = [row, h].map(|a| graph.matmul(Matmul::new(math), a, w).unwrap());
        let sum = net.op(Mode::Add, &[input, state]);
        let next = net.op(Mode::TanhFwd, &[sum]);
        net.named(next, "next", dtype);
        net.next(h, next);
        let (last, all) = (net.last(of, h), net.stack(of, next, axis, 6));
        net.output(last, "last", dtype);
        net.output(all, "all", dtype);
        let network = net.build();
        let x = harness::fill(network.inputs().find(|of| of.name == "x").unwrap(), 1, 1.0);
        let w = harness::fill(network.inputs().find(|of| of.name == "w").unwrap(), 2, 0.5);
        for n in [0.0, 1.0, 5.0] {
            let inputs: looped::Named = &[("x", &x), ("w", &w), ("h0", &[0.5; 24]), ("n", &[n])];
            check(&network, inputs, "last");
            check(&network, inputs, "all");
        }
    }
}

#[test]
fn conditionals_in_loops_and_loops_in_conditionals() {
    let mut net = Net::default();
    let [n, zero, one, half] = ["n", "zero", "one", "half"].map(|name| net.count(name));
    let (x, y0) = (net.f32("x", &[6, 4]), net.f32("y0", &[4]));
    let of = net.counted("steps", n);
    let (i, row, y) =
        (net.recurrence(of, zero), net.iterator(of, x, 0, false), net.recurrence(of, y0));
    let early = net.compare(Mode::CmpLt, &[i, half], "early");
    // In early steps a loop doubles the state i times, in late ones it is added to.
    let doubling = net.counted("doubling", i);
    let d = net.recurrence(doubling, y);
    let twice = net.op(Mode::Add, &[d, d]);
    net.next(d, twice);
    let doubled = net.last(doubling, d);
    let added = net.op(Mode::Add, &[y, row]);
    let next = net.builder.conditional(early, &[(doubled, added), (row, y)]).unwrap();
    net.next(y, next[0]);
    let next_i = net.op(Mode::Add, &[i, one]);
    net.next(i, next_i);
    let (last, all) = (net.last(of, y), net.stack(of, next[1], 1, 6));
    net.output(last, "last", DType::F32);
    net.output(all, "all", DType::F32);
    let network = net.build();
    let x: Vec<f64> = (0..24).map(|at| f64::from(at) / 8.0).collect();
    for n in [0, 1, 3, 6] {
        for half in [0, 2, 9] {
            let inputs: looped::Named = &[
                ("n", &[f64::from(n)]),
                ("zero", &[0.0]),
                ("one", &[1.0]),
                ("half", &[f64::from(half)]),
                ("x", &x),
                ("y0", &[1.0, -1.0, 0.5, 3.0]),
            ];
            let last = check(&network, inputs, "last");
            check(&network, inputs, "all");
            let mut expected = [1.0, -1.0, 0.5, 3.0];
            for step in 0..n {
                for (at, value) in expected.iter_mut().enumerate() {
                    *value = match step < half {
                        true => *value * f64::from(1 << step),
                        false => *value + x[step as usize * 4 + at],
                    };
                }
            }
            assert_eq!(last, expected);
        }
    }
}

/// Outputs that users want elsewhere, values that several want: everything is copied that must be.
#[test]
fn what_is_wanted_twice_is_copied() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3, 4]), net.count("n"));
    let a = net.counted("a", n);
    let start = net.f32("start", &[4]);
    let row = net.iterator(a, x, 0, false);
    // Shifts: a recurrence whose next value is an iterator, one whose next value is that one.
    let (first, second) = (net.recurrence(a, start), net.recurrence(a, start));
    net.next(first, row);
    net.next(second, first);
    let (one, two) = (net.last(a, first), net.last(a, second));
    let (rows, firsts) = (net.stack(a, row, 0, 4), net.stack(a, first, 1, 3));
    let seconds = net.builder.loop_output(a, LoopOutput::Reverse { axis: 0, length: 3 }, second);
    let outside = net.stack(a, start, 0, 3);
    for (uid, name) in [(one, "one"), (two, "two"), (rows, "rows"), (firsts, "firsts")] {
        net.output(uid, name, DType::F32);
    }
    net.output(seconds.unwrap(), "seconds", DType::F32);
    net.output(outside, "outside", DType::F32);
    let network = net.build();
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    for n in [0.0, 1.0, 2.0, 3.0] {
        let start = [9.0, 8.0, 7.0, 6.0];
        let inputs: looped::Named = &[("x", &x), ("n", &[n]), ("start", &start)];
        let two = check(&network, inputs, "two");
        let expected =
            if n >= 2.0 { x[(n as usize - 2) * 4..][..4].to_vec() } else { start.into() };
        assert_eq!(two, expected);
    }
}

/// What a loop iterates over is in memory, though all that reads it outside is the graph that
/// computes it.
#[test]
fn what_is_iterated_over_is_in_memory() {
    let mut net = Net::default();
    let (x, n, zero) = (net.f32("x", &[3, 4]), net.count("n"), net.f32("zero", &[3]));
    let twice = net.op(Mode::Add, &[x, x]);
    let square = net.op(Mode::Mul, &[twice, twice]);
    net.output(square, "square", DType::F32);
    let of = net.counted("sums", n);
    let column = net.iterator(of, twice, 1, false);
    let state = net.recurrence(of, zero);
    let next = net.op(Mode::Add, &[state, column]);
    net.next(state, next);
    let last = net.last(of, state);
    net.output(last, "last", DType::F32);
    let network = net.build();
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    for n in [0.0, 1.0, 4.0] {
        let inputs: looped::Named = &[("x", &x), ("n", &[n]), ("zero", &[0.0; 3])];
        check(&network, inputs, "square");
        let sum = |row: usize| x[row * 4..][..n as usize].iter().map(|of| 2.0 * of).sum::<f64>();
        assert_eq!(check(&network, inputs, "last"), [0, 1, 2].map(sum));
    }
}

/// GEMMs in branches whose results are stacked along an inner axis write rows, which are copied.
#[test]
fn gemms_of_branches_are_stacked_along_any_axis() {
    for axis in [0, 1, 2] {
        let mut net = Net::default();
        let (x, n) = (net.f32("x", &[5, 2, 3]), net.count("n"));
        let [v, w] = ["v", "w"].map(|name| net.f32(name, &[3, 4]));
        let first = net.input("first", &[1], DType::Bool);
        let of = net.counted("rows", n);
        let rows = net.iterator(of, x, 0, false);
        // Of a recurrence, so that they are not one GEMM before the loop.
        let start = net.f32("start", &[2, 3]);
        let state = net.recurrence(of, start);
        let next = net.op(Mode::Add, &[state, rows]);
        net.next(state, next);
        let [a, b] = [v, w].map(|of| net.builder.graph().matmul(Matmul::default(), next, of));
        let y = net.builder.conditional(first, &[(a.unwrap(), b.unwrap())]).unwrap()[0];
        let all = net.stack(of, y, axis, 5);
        net.output(all, "all", DType::F32);
        let network = net.build();
        let values = |from: i32, count: i32| -> Vec<f64> {
            (from..from + count).map(|at| f64::from(at % 7 - 3)).collect()
        };
        let (x, v, w) = (values(0, 30), values(1, 12), values(5, 12));
        for (n, first) in [(5.0, 0.0), (3.0, 1.0)] {
            let (n, first, start) = ([n], [first], [0.5; 6]);
            let inputs: looped::Named =
                &[("x", &x), ("n", &n), ("v", &v), ("w", &w), ("first", &first), ("start", &start)];
            check(&network, inputs, "all");
        }
    }
}

/// GEMMs of iterators and invariants are one before the loop, with what follows from them; in the
/// loop there is one GEMM less.
#[test]
fn gemms_of_iterators_are_hoisted() {
    for (axis, reverse) in [(0, false), (0, true), (1, false)] {
        let mut net = Net::default();
        let dims = if axis == 0 { [7, 3, 16] } else { [3, 7, 16] };
        let (x, n) = (net.f32("x", &dims), net.count("n"));
        let [w, u] = ["w", "u"].map(|name| net.f32(name, &[16, 16]));
        let (bias, h0) = (net.f32("bias", &[1, 16]), net.f32("h0", &[3, 16]));
        let of = net.counted("time", n);
        let (row, h) = (net.iterator(of, x, axis, reverse), net.recurrence(of, h0));
        let graph = net.builder.graph();
        let [input, state] = [(row, w), (h, u)]
            .map(|(a, b)| graph.matmul(Matmul::new(MatmulMath::F32), a, b).unwrap());
        let biased = net.op(Mode::Add, &[input, bias]);
        let sum = net.op(Mode::Add, &[biased, state]);
        let next = net.op(Mode::TanhFwd, &[sum]);
        net.next(h, next);
        let (last, all) = (net.last(of, h), net.stack(of, next, 1, 7));
        net.output(last, "last", DType::F32);
        net.output(all, "all", DType::F32);
        let network = net.build();
        let kiln = harness::kiln();
        let plan = kiln.build_loops(&network).unwrap();
        let launched = kiln.build_launched_loops(&network).unwrap();
        // A loop that is one operation has the other one.
        for (plan, count) in [(&plan, 1), (&launched, 2)] {
            let texts = plan.plans().iter().map(|of| of.graph().to_string());
            let own: Vec<String> = texts.filter(|of| of.contains("matmul(")).collect();
            assert_eq!(own.len(), count, "{own:?}");
            // The sum with the bias is computed with the GEMM of all trips.
            let all_trips = own.iter().find(|text| !text.contains("tanh_fwd")).unwrap();
            assert!(all_trips.contains("matmul(") && all_trips.contains("add("), "{all_trips}");
            assert_eq!(all_trips.contains("[21, 16]"), axis == 0, "{all_trips}");
        }
        let values = |name: &str, seed: u64| {
            harness::fill(network.inputs().find(|of| of.name == name).unwrap(), seed, 0.5)
        };
        let [x, w, u, bias, h0] =
            [("x", 1), ("w", 2), ("u", 3), ("bias", 4), ("h0", 5)].map(|(of, at)| values(of, at));
        for n in [0.0, 1.0, 4.0, 7.0] {
            let inputs: looped::Named =
                &[("x", &x), ("w", &w), ("u", &u), ("bias", &bias), ("h0", &h0), ("n", &[n])];
            check(&network, inputs, "last");
        }
        // Elements past the end are the loop's affair as before.
        let inputs: looped::Named =
            &[("x", &x), ("w", &w), ("u", &u), ("bias", &bias), ("h0", &h0), ("n", &[8.0])];
        let text = if axis == 0 { "length" } else { "extent" };
        let values = looped::by_uid(&network, inputs);
        let error = looped::run_plan(harness::kiln(), &plan, &values).unwrap_err().to_string();
        assert!(error.contains("is 7") || error.contains(text), "{error}");
    }
}

/// How a network is run says where its graphs are launched.
#[test]
fn steps_are_printed() {
    let mut net = Net::default();
    let [n, zero, one] = ["n", "zero", "one"].map(|name| net.count(name));
    let of = net.builder.add_loop("both");
    let i = net.recurrence(of, zero);
    let below = net.compare(Mode::CmpLt, &[i, n], "below");
    net.builder.trip_limit(of, TripLimit::While, below);
    let next = net.op(Mode::Add, &[i, one]);
    net.next(i, next);
    let last = net.last(of, i);
    net.output(last, "last", DType::I32);
    let network = net.build();
    let steps = harness::kiln().build_launched_loops(&network).unwrap().steps();
    let lines: Vec<&str> = steps.lines().map(|line| line.split('{').next().unwrap()).collect();
    let expected = [
        "graph 1: pointwise",
        "loop both, while below: launched by the host, trip by trip",
        "  no recurrent layer: not asked for",
        "  no pointwise loop: not asked for",
        "  no resident loop: not asked for",
        "  its condition is read after 1, 2, 4 and at most 8 trips",
        "  graph 2: pointwise",
        "  graph 3: pointwise",
        "graph 4: pointwise",
    ];
    assert_eq!(lines, expected, "{steps}");
}

/// What is hoisted out of an inner loop is of the outer one's trip, whose rows are the same in it.
#[test]
fn gemms_are_hoisted_out_of_each_loop() {
    let mut net = Net::default();
    let (x, z, w) = (net.f32("x", &[3, 2, 8]), net.f32("z", &[4, 8, 8]), net.f32("w", &[8, 8]));
    let [n, m] = ["n", "m"].map(|name| net.count(name));
    let h0 = net.f32("h0", &[2, 8]);
    let outer = net.counted("outer", n);
    let row = net.iterator(outer, x, 0, false);
    let math = Matmul::new(MatmulMath::F32);
    let projected = net.builder.graph().matmul(math, row, w).unwrap();
    let inner = net.counted("inner", m);
    let weights = net.iterator(inner, z, 0, true);
    // Rows of the outer loop with the inner one's weights, and of both once more.
    let graph = net.builder.graph();
    let first = graph.matmul(math, projected, weights).unwrap();
    let second = graph.matmul(math, first, w).unwrap();
    let h = net.recurrence(inner, h0);
    let sum = net.op(Mode::Add, &[h, second]);
    let next = net.op(Mode::TanhFwd, &[sum]);
    net.next(h, next);
    let last = net.last(inner, h);
    let all = net.stack(outer, last, 0, 3);
    net.output(all, "all", DType::F32);
    let network = net.build();
    let values = |name: &str, seed: u64| {
        harness::fill(network.inputs().find(|of| of.name == name).unwrap(), seed, 0.4)
    };
    let [x, z, w, h0] = [("x", 1), ("z", 2), ("w", 3), ("h0", 4)].map(|(of, at)| values(of, at));
    for (n, m) in [(0.0, 4.0), (3.0, 0.0), (3.0, 4.0), (2.0, 1.0)] {
        let inputs: looped::Named =
            &[("x", &x), ("z", &z), ("w", &w), ("h0", &h0), ("n", &[n]), ("m", &[m])];
        check(&network, inputs, "all");
    }
}

/// `examples/loops/causal_attention.json`: a query in each trip of the outer loop, in the inner one
/// as many keys as there are up to it.
#[test]
fn loops_in_each_other_are_causal_attention() {
    let text = include_str!("../../examples/loops/causal_attention.json");
    let network = kiln::loops::Network::from_json(text).unwrap();
    let (rows, width) = (12, 32);
    let values = |name: &str, seed: u64| {
        let tensor = network.inputs().find(|of| of.name == name).unwrap();
        harness::fill(tensor, seed, 0.75)
    };
    let (q, k, v) = (values("q", 1), values("k", 2), values("v", 3));
    let inputs: looped::Named = &[
        ("rows", &[f64::from(rows)]),
        ("zero", &[0.0]),
        ("one", &[1.0]),
        ("q", &q),
        ("k", &k),
        ("v", &v),
        ("lowest", &[-1e30]),
        ("nothing", &[0.0]),
        ("zeros", &[0.0; 32]),
    ];
    let o = check(&network, inputs, "o");
    let row = |of: &[f64], at: usize| of[at * width..(at + 1) * width].to_vec();
    for at in 0..rows as usize {
        let score = |key: usize| {
            let both = std::iter::zip(row(&q, at), row(&k, key));
            f64::exp(both.map(|(q, k)| q * k).sum::<f64>())
        };
        let total: f64 = (0..=at).map(score).sum();
        for column in 0..width {
            let sum: f64 = (0..=at).map(|key| score(key) * v[key * width + column]).sum();
            let (actual, expected) = (o[at * width + column], sum / total);
            assert!((actual - expected).abs() < 1e-5, "{at}, {column}: {actual}, {expected}");
        }
    }
}
