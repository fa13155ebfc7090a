//! What no output needs: it is no error that it does not exist, and what is not needed is not run.

use kiln::expr::Mode;
use kiln::loops::TripLimit;
use kiln::{DType, reference};

use crate::harness;
use crate::looped::{self, Named, Net, check, fails};

/// The elements that a recurrence takes from an iterator over three rows: its last value needs
/// those of all trips, what is stacked of it not that of the last one.
#[test]
fn an_iterator_may_end_before_its_loop() {
    let build = |last: bool| {
        let mut net = Net::default();
        let (x, x0, n) = (net.f32("x", &[3, 2]), net.f32("x0", &[2]), net.count("n"));
        let of = net.counted("rows", n);
        let (row, h) = (net.iterator(of, x, 0, false), net.recurrence(of, x0));
        let sum = net.op(Mode::Add, &[h, row]);
        net.next(h, sum);
        let y = if last { net.last(of, h) } else { net.stack(of, h, 0, 8) };
        net.output(y, "y", DType::F32);
        net.build()
    };
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let inputs = |n: f64| [("x", x.to_vec()), ("x0", vec![0.5, 0.25]), ("n", vec![n])];
    let run = |last: bool, n: f64| {
        let inputs = inputs(n);
        let named: Vec<(&str, &[f64])> = inputs.iter().map(|(of, it)| (*of, &it[..])).collect();
        check(&build(last), &named, "y")
    };
    let text = "loop `rows`: element 3 of the iterator over `x` is needed, its extent is 3";
    let refused = |last: bool, n: f64| {
        let inputs = inputs(n);
        let named: Vec<(&str, &[f64])> = inputs.iter().map(|(of, it)| (*of, &it[..])).collect();
        fails(&build(last), &named, text);
    };
    assert_eq!(run(true, 3.0), [9.5, 12.25]);
    refused(true, 4.0);
    assert_eq!(run(false, 4.0)[..8], [0.5, 0.25, 1.5, 2.25, 4.5, 6.25, 9.5, 12.25]);
    refused(false, 5.0);
}

/// A value that comes out trips later is needed that many trips less.
#[test]
fn what_is_delayed_is_needed_later() {
    let mut net = Net::default();
    let (x, x0, n) = (net.f32("x", &[3, 2]), net.f32("x0", &[2]), net.count("n"));
    let of = net.counted("delay", n);
    let row = net.iterator(of, x, 0, true);
    let stages = [0, 1, 2].map(|_| net.recurrence(of, x0));
    net.next(stages[0], row);
    net.next(stages[1], stages[0]);
    net.next(stages[2], stages[1]);
    let last = net.last(of, stages[2]);
    net.output(last, "y", DType::F32);
    let network = net.build();
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let inputs = |n: f64| [("x", x.to_vec()), ("x0", vec![7.0, 8.0]), ("n", vec![n])];
    let expected = [[7.0, 8.0], [7.0, 8.0], [7.0, 8.0], [5.0, 6.0], [3.0, 4.0], [1.0, 2.0]];
    for (n, expected) in (0..).zip(expected) {
        let inputs = inputs(f64::from(n));
        let named: Vec<(&str, &[f64])> = inputs.iter().map(|(of, it)| (*of, &it[..])).collect();
        assert_eq!(check(&network, &named, "y"), expected, "{n}");
    }
    let inputs = inputs(6.0);
    let named: Vec<(&str, &[f64])> = inputs.iter().map(|(of, it)| (*of, &it[..])).collect();
    let text = "loop `delay`: element 3 of the iterator over `x` is needed, its extent is 3";
    fails(&network, &named, text);
}

/// The branch that is not taken is not run: its iterator may be at its end, its loop endless.
#[test]
fn branches_that_are_not_taken_are_not_evaluated() {
    let mut net = Net::default();
    let [n, zero, one, extent] = ["n", "zero", "one", "extent"].map(|name| net.count(name));
    let (x, pad) = (net.f32("x", &[3, 2]), net.f32("pad", &[2]));
    let of = net.counted("padded", n);
    let i = net.recurrence(of, zero);
    let next = net.op(Mode::Add, &[i, one]);
    net.next(i, next);
    let inside = net.compare(Mode::CmpLt, &[i, extent], "inside");
    let row = net.iterator(of, x, 0, false);
    let twice = net.op(Mode::Add, &[row, row]);
    // An endless loop, in the trips without a row.
    let truth = net.input("truth", &[1], DType::Bool);
    let endless = net.builder.add_loop("endless");
    net.builder.trips_max(endless, 5);
    net.builder.trip_limit(endless, TripLimit::While, truth);
    let p = net.recurrence(endless, pad);
    let sum = net.op(Mode::Add, &[p, row]);
    net.next(p, sum);
    let stuck = net.last(endless, p);
    let both = net.op(Mode::Add, &[twice, stuck]);
    let y = net.builder.conditional(inside, &[(twice, pad)]).unwrap()[0];
    let rows = net.stack(of, y, 0, 6);
    net.output(rows, "rows", DType::F32);
    let never = net.compare(Mode::CmpLt, &[one, zero], "never");
    let z = net.builder.conditional(never, &[(both, twice)]).unwrap()[0];
    let zs = net.stack(of, z, 0, 6);
    net.output(zs, "zs", DType::F32);
    let network = net.build();
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut inputs: Vec<(&str, &[f64])> = vec![
        ("zero", &[0.0]),
        ("one", &[1.0]),
        ("extent", &[3.0]),
        ("x", &x),
        ("pad", &[-1.0, -2.0]),
        ("truth", &[1.0]),
        ("n", &[3.0]),
    ];
    assert_eq!(check(&network, &inputs, "zs")[..6], [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    // Of `zs` the rows past the end are needed, of `rows` they are not.
    inputs[6] = ("n", &[5.0]);
    let text = "loop `padded`: element 3 of the iterator over `x` is needed, its extent is 3";
    fails(&network, &inputs, text);
}

#[test]
fn padding_by_a_condition() {
    let mut net = Net::default();
    let [n, zero, one, extent] = ["n", "zero", "one", "extent"].map(|name| net.count(name));
    let (x, pad) = (net.f32("x", &[2, 3]), net.f32("pad", &[2]));
    let of = net.counted("padded", n);
    let i = net.recurrence(of, zero);
    let next = net.op(Mode::Add, &[i, one]);
    net.next(i, next);
    let inside = net.compare(Mode::CmpLt, &[i, extent], "inside");
    let column = net.iterator(of, x, 1, false);
    let y = net.builder.conditional(inside, &[(column, pad)]).unwrap()[0];
    let rows = net.stack(of, y, 1, 6);
    net.output(rows, "rows", DType::F32);
    let network = net.build();
    let inputs: Named = &[
        ("zero", &[0.0]),
        ("one", &[1.0]),
        ("extent", &[3.0]),
        ("x", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ("pad", &[-1.0, -2.0]),
        ("n", &[5.0]),
    ];
    let rows = check(&network, inputs, "rows");
    assert_eq!(rows, [1.0, 2.0, 3.0, -1.0, -1.0, 0.0, 4.0, 5.0, 6.0, -2.0, -2.0, 0.0]);
}

/// Trips that are made before the condition is known change nothing that is seen.
#[test]
fn trips_past_the_end_do_nothing() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[9, 3]), net.count("last"));
    let [zero, one] = ["zero", "one"].map(|name| net.count(name));
    let start = net.f32("start", &[3]);
    let of = net.builder.add_loop("rows");
    let (i, h, row) =
        (net.recurrence(of, zero), net.recurrence(of, start), net.iterator(of, x, 0, false));
    let below = net.compare(Mode::CmpLt, &[i, n], "below");
    net.builder.trip_limit(of, TripLimit::While, below);
    let next = net.op(Mode::Add, &[i, one]);
    net.next(i, next);
    let sum = net.op(Mode::Add, &[h, row]);
    net.next(h, sum);
    let (last, before, all) = (net.last(of, h), net.stack(of, h, 0, 9), net.turned(of, sum, 1, 9));
    net.output(last, "y", DType::F32);
    net.output(before, "before", DType::F32);
    net.output(all, "all", DType::F32);
    let network = net.build();
    let x: Vec<f64> = (0..27).map(f64::from).collect();
    for n in 0..=9 {
        let inputs: Named = &[
            ("x", &x),
            ("last", &[f64::from(n)]),
            ("zero", &[0.0]),
            ("one", &[1.0]),
            ("start", &[0.5, 1.5, 2.5]),
        ];
        check(&network, inputs, "y");
    }
}

/// A tensor that nothing is in: no trip is possible, none is needed.
#[test]
fn iterators_over_nothing() {
    let mut net = Net::default();
    let (x, x0, n) = (net.f32("x", &[0, 2]), net.f32("x0", &[2]), net.count("n"));
    let of = net.counted("rows", n);
    let (row, h) = (net.iterator(of, x, 0, false), net.recurrence(of, x0));
    let sum = net.op(Mode::Add, &[h, row]);
    net.next(h, sum);
    let (last, all) = (net.last(of, h), net.stack(of, h, 0, 1));
    net.output(last, "y", DType::F32);
    net.output(all, "all", DType::F32);
    let network = net.build();
    let inputs: Named = &[("x", &[]), ("x0", &[1.0, 2.0]), ("n", &[0.0])];
    assert_eq!(check(&network, inputs, "y"), [1.0, 2.0]);
    let text = "loop `rows`: element 0 of the iterator over `x` is needed, its extent is 0";
    fails(&network, &[("x", &[]), ("x0", &[1.0, 2.0]), ("n", &[1.0])], text);
}

/// A loop without outputs, and layers that only it needs, are removed; nothing asks for its limit.
#[test]
fn loops_without_outputs_are_removed() {
    let mut net = Net::default();
    let (x, unused) = (net.f32("x", &[2]), net.f32("unused", &[2]));
    let of = net.builder.add_loop("idle");
    let h = net.recurrence(of, unused);
    let next = net.op(Mode::Add, &[h, x]);
    net.next(h, next);
    let y = net.op(Mode::Add, &[x, x]);
    net.output(y, "y", DType::F32);
    let network = net.build();
    assert_eq!(network.layers().len(), 1);
    assert_eq!(network.inputs().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["x"]);
    assert_eq!(check(&network, &[("x", &[1.0, 2.0])], "y"), [2.0, 4.0]);
}

/// What is the same in all trips is computed once, what only one branch needs in that branch.
#[test]
fn invariants_are_computed_once() {
    let mut net = Net::default();
    let (x, w, n) = (net.f32("x", &[4]), net.f32("w", &[4]), net.count("n"));
    let of = net.counted("loop", n);
    let h = net.recurrence(of, x);
    let scale = net.op(Mode::Exp, &[w]);
    let next = net.op(Mode::Mul, &[h, scale]);
    net.next(h, next);
    let last = net.last(of, h);
    net.output(last, "y", DType::F32);
    let network = net.build();
    let exp = network.writer(scale).unwrap();
    assert_eq!(network.nest(exp.outputs()[0]), []);
    let plan = harness::kiln().build_launched_loops(&network).unwrap();
    // The exponential and the copy of the initial value, a trip, the copy to the output.
    let text: Vec<String> = plan.plans().iter().map(|of| of.graph().to_string()).collect();
    let with = |what: &str| text.iter().filter(|text| text.contains(what)).count();
    assert_eq!((with("exp("), with("mul(")), (1, 1), "{text:?}");
    assert!(text.iter().all(|text| !(text.contains("exp(") && text.contains("mul("))));
    check(&network, &[("x", &[1.0; 4]), ("w", &[0.1; 4]), ("n", &[9.0])], "y");
    let expected = reference::evaluate_network(
        &network,
        &looped::by_uid(&network, &[("x", &[1.0; 4]), ("w", &[0.0; 4]), ("n", &[9.0])]),
    );
    let y = network.outputs().next().unwrap().uid;
    assert_eq!(expected.unwrap()[&y].values, [1.0; 4]);
}
