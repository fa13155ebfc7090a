//! Networks that are refused, each with its exact error.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Operation, Signal};
use kiln::loops::{Layer, LoopDescriptor, LoopOutput, Network, TripLimit};
use kiln::{DType, ErrorKind, TensorDesc, VariantPack};

use crate::harness;
use crate::looped::Net;

#[track_caller]
fn refused(net: Net, text: &str) {
    let error = net.builder.build().expect_err("the network is refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, text));
}

#[test]
fn loops_that_use_values_of_each_other() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let (a, b) = (net.counted("a", n), net.counted("b", n));
    let (in_a, in_b) = (net.recurrence(a, x), net.recurrence(b, x));
    let both = net.op(Mode::Add, &[in_a, in_b]);
    net.next(in_a, both);
    net.next(in_b, both);
    let (last_a, last_b) = (net.last(a, in_a), net.last(b, in_b));
    net.output(last_a, "last_a", DType::F32);
    net.output(last_b, "last_b", DType::F32);
    refused(net, "loops `a` and `b` do not nest cleanly: each uses values of the other");
}

#[test]
fn a_value_of_two_loops_side_by_side() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let (a, b, c) = (net.counted("a", n), net.counted("b", n), net.counted("c", n));
    let (in_a, in_b, in_c) = (net.recurrence(a, x), net.recurrence(b, x), net.recurrence(c, x));
    net.next(in_a, x);
    net.next(in_b, x);
    let all = net.op(Mode::Add, &[in_a, in_b]);
    let all = net.op(Mode::Add, &[all, in_c]);
    net.next(in_c, all);
    let last = net.last(c, in_c);
    net.output(last, "last", DType::F32);
    refused(
        net,
        "loops `a` and `b` do not nest cleanly: loop `c` uses values of both, and neither is in \
         the other",
    );
}

#[test]
fn a_value_used_outside_of_its_loop() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let a = net.counted("a", n);
    let h = net.recurrence(a, x);
    net.next(h, x);
    let last = net.last(a, h);
    let sum = net.op(Mode::Add, &[h, last]);
    net.output(sum, "sum", DType::F32);
    refused(net, "`sum` is a value of loop `a` and is used outside of it: expected a loop output");
}

#[test]
fn values_from_inside_that_must_be_from_outside() {
    let start = || {
        let mut net = Net::default();
        let (x, n) = (net.f32("x", &[3]), net.count("n"));
        let a = net.builder.add_loop("a");
        let h = net.recurrence(a, x);
        net.named(h, "h", DType::F32);
        net.next(h, x);
        let last = net.last(a, h);
        net.output(last, "last", DType::F32);
        (net, a, h, n)
    };
    let (mut net, a, h, n) = start();
    net.builder.trip_limit(a, TripLimit::Count, n);
    let g = net.recurrence(a, h);
    net.named(g, "g", DType::F32);
    net.next(g, h);
    let last = net.last(a, g);
    net.output(last, "other", DType::F32);
    refused(
        net,
        "loop `a`: the initial value of recurrence `g`, `h`, is a value of the loop: expected one \
         from outside",
    );
    let (mut net, a, h, n) = start();
    net.builder.trip_limit(a, TripLimit::Count, n);
    let row = net.iterator(a, h, 0, false);
    let rows = net.stack(a, row, 0, 3);
    net.output(rows, "rows", DType::F32);
    refused(
        net,
        "loop `a`: the tensor of an iterator, `h`, is a value of the loop: expected one from \
         outside",
    );
    let (mut net, a, _, n) = start();
    let i = net.recurrence(a, n);
    net.named(i, "i", DType::I32);
    net.next(i, n);
    net.builder.trip_limit(a, TripLimit::Count, i);
    refused(net, "loop `a`: the count, `i`, is a value of the loop: expected one from outside");
}

#[test]
fn last_values_are_of_recurrences() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[4, 3]), net.count("n"));
    let a = net.counted("a", n);
    let row = net.iterator(a, x, 0, false);
    net.named(row, "row", DType::F32);
    let last = net.last(a, row);
    net.output(last, "last", DType::F32);
    refused(net, "last_value of `row` in loop `a`: `row` is no recurrence of the loop");
    // Nor of one of another loop.
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[4]), net.count("n"));
    let (a, b) = (net.counted("a", n), net.counted("b", n));
    let h = net.recurrence(a, x);
    net.named(h, "h", DType::F32);
    net.next(h, x);
    let last = net.last(b, h);
    net.output(last, "last", DType::F32);
    refused(net, "last_value of `h` in loop `b`: `h` is no recurrence of the loop");
}

#[test]
fn limits_that_are_missing_or_given_twice() {
    let start = || {
        let mut net = Net::default();
        let (x, n, t) = (net.f32("x", &[3]), net.count("n"), net.input("t", &[1], DType::Bool));
        let a = net.builder.add_loop("a");
        let h = net.recurrence(a, x);
        net.next(h, x);
        let last = net.last(a, h);
        net.output(last, "last", DType::F32);
        (net, a, [x, n, t])
    };
    let (net, ..) = start();
    refused(net, "loop `a` has no trip limit, expected a count or a while");
    for (kind, at, text) in [
        (TripLimit::Count, 1, "loop `a` has two count limits, `n` and `n`"),
        (TripLimit::While, 2, "loop `a` has two while limits, `t` and `t`"),
    ] {
        let (mut net, a, uids) = start();
        net.builder.trip_limit(a, kind, uids[at]);
        net.builder.trip_limit(a, kind, uids[at]);
        refused(net, &format!("{text}: expected one of a kind at most"));
    }
    for (kind, at, text) in [
        (
            TripLimit::Count,
            0,
            "count limit of loop `a`: `x` is f32[3], expected i32 with one element",
        ),
        (
            TripLimit::Count,
            2,
            "count limit of loop `a`: `t` is bool[1], expected i32 with one element",
        ),
        (
            TripLimit::While,
            1,
            "while limit of loop `a`: `n` is i32[1], expected bool with one element",
        ),
    ] {
        let (mut net, a, uids) = start();
        net.builder.trip_limit(a, kind, uids[at]);
        refused(net, text);
    }
}

#[test]
fn recurrences_whose_values_differ() {
    for (dims, dtype, text) in [
        (&[4][..], DType::F32, "the next value `y` is f32[4], the initial value `x` f32[3]"),
        (&[3], DType::F16, "the next value `y` is f16[3], the initial value `x` f32[3]"),
        (&[1, 3], DType::F32, "the next value `y` is f32[1, 3], the initial value `x` f32[3]"),
    ] {
        let mut net = Net::default();
        let (x, y, n) = (net.f32("x", &[3]), net.input("y", dims, dtype), net.count("n"));
        let a = net.counted("a", n);
        let h = net.recurrence(a, x);
        net.named(h, "h", DType::F32);
        net.next(h, y);
        let last = net.last(a, h);
        net.output(last, "last", DType::F32);
        refused(net, &format!("recurrence `h` of loop `a`: {text}"));
    }
}

#[test]
fn next_values_that_are_missing_or_set_twice() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let a = net.counted("a", n);
    let h = net.recurrence(a, x);
    net.next(h, x);
    let text = |result: kiln::Result<()>| result.unwrap_err().to_string();
    assert_eq!(text(net.builder.set_next(h, x)), "next value of #3: it has a next value already");
    assert_eq!(text(net.builder.set_next(x, h)), "next value of #1: it is no recurrence");
    let g = net.recurrence(a, x);
    net.named(g, "g", DType::F32);
    refused(net, "recurrence `g` of loop `a` has no next value");
}

#[test]
fn back_edges_outside_of_recurrences() {
    // Operations that need each other.
    let hidden = |uid, name: &str| TensorDesc {
        is_virtual: true,
        ..TensorDesc::packed(uid, name, &[3], DType::F32)
    };
    let add = |inputs: &[i64], output| {
        let op = Pointwise::new(Mode::Add);
        Layer::Operation(Operation::pointwise(op, inputs, output))
    };
    let tensors = vec![
        TensorDesc::packed(1, "x", &[3], DType::F32),
        hidden(2, "a"),
        hidden(3, "b"),
        TensorDesc::packed(4, "y", &[3], DType::F32),
    ];
    let layers = vec![add(&[1, 3], 2), add(&[1, 2], 3), add(&[2, 3], 4)];
    let error = Network::new(tensors, layers, Vec::new()).unwrap_err().to_string();
    let rule = "only the next value of a recurrence may be computed from it";
    assert_eq!(error, format!("the network has a cycle: `a` -> `b` -> `a`: {rule}"));
    // A loop whose next value needs what the loop gives.
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let a = net.counted("a", n);
    let h = net.recurrence(a, x);
    let last = net.last(a, h);
    let twice = net.op(Mode::Add, &[last, last]);
    net.named(twice, "twice", DType::F32);
    net.next(h, twice);
    net.output(last, "last", DType::F32);
    refused(net, &format!("the network has a cycle: `twice` -> loop `a` -> `twice`: {rule}"));
    // Two loops, each of which needs what the other gives.
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let (a, b) = (net.counted("a", n), net.counted("b", n));
    let (in_a, in_b) = (net.recurrence(a, x), net.recurrence(b, x));
    let (last_a, last_b) = (net.last(a, in_a), net.last(b, in_b));
    net.next(in_a, last_b);
    net.next(in_b, last_a);
    net.output(last_a, "last_a", DType::F32);
    refused(net, &format!("the network has a cycle: loop `a` -> loop `b` -> loop `a`: {rule}"));
}

#[test]
fn shapes_of_boundaries() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[4, 3]), net.count("n"));
    let a = net.counted("a", n);
    let text = |result: kiln::Result<i64>| result.unwrap_err().to_string();
    assert_eq!(
        text(net.builder.iterator(a, x, 2, false)),
        "iterator over `x`: axis 2 is not in [0, 1]"
    );
    let stacked = |axis, length| LoopOutput::Concatenate { axis, length };
    assert_eq!(
        text(net.builder.loop_output(a, stacked(3, 1), x)),
        "concatenate of `x`: axis 3 is not in [0, 2]"
    );
    assert_eq!(
        text(net.builder.loop_output(a, LoopOutput::Reverse { axis: 0, length: -1 }, x)),
        "reverse of `x`: length -1 is negative"
    );
    let deep = net.f32("deep", &[1; 8]);
    assert_eq!(
        text(net.builder.loop_output(a, stacked(0, 1), deep)),
        "concatenate of `deep`: has 8 dimensions already"
    );
    assert_eq!(
        text(net.builder.iterator(a, 99, 0, false)),
        "iterator: no tensor of the network has uid 99"
    );
}

#[test]
fn conditionals_whose_branches_differ() {
    for (dims, dtype, text) in [
        (&[3][..], DType::F16, "`b` of `else` is f16[3], `a` of `then` f32[3]"),
        (&[4], DType::F32, "`b` of `else` is f32[4], `a` of `then` f32[3]"),
    ] {
        let mut net = Net::default();
        let (a, b) = (net.f32("a", &[3]), net.input("b", dims, dtype));
        let c = net.input("c", &[1], DType::Bool);
        let y = net.builder.conditional(c, &[(a, b)]).unwrap()[0];
        net.output(y, "y", DType::F32);
        refused(net, &format!("conditional on `c`: {text}"));
    }
    let mut net = Net::default();
    let (a, c) = (net.f32("a", &[3]), net.input("c", &[2], DType::Bool));
    let y = net.builder.conditional(c, &[(a, a)]).unwrap()[0];
    net.output(y, "y", DType::F32);
    refused(net, "condition of a conditional: `c` is bool[2], expected bool with one element");
}

#[test]
fn names_and_outputs() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let (a, _) = (net.counted("a", n), net.counted("a", n));
    let h = net.recurrence(a, x);
    net.next(h, x);
    let last = net.last(a, h);
    net.output(last, "last", DType::F32);
    refused(net, "two loops are named `a`");
    let mut net = Net::default();
    let x = net.f32("x", &[3]);
    net.op(Mode::Add, &[x, x]);
    refused(net, "the network has no output");
    let loops = vec![LoopDescriptor { name: "a".to_owned(), trips_max: -1 }];
    let tensors = vec![TensorDesc::packed(1, "x", &[3], DType::F32)];
    let error = Network::new(tensors, Vec::new(), loops).unwrap_err().to_string();
    assert_eq!(error, "loop `a`: the bound of -1 trips is negative");
}

#[test]
fn signals_have_no_place() {
    let mut net = Net::default();
    let (x, flag) = (net.f32("x", &[3]), net.count("flag"));
    let twice = net.op(Mode::Add, &[x, x]);
    let y = net.builder.graph().signal(Signal::wait(1), flag, twice).unwrap();
    net.output(y, "y", DType::F32);
    let error = net.builder.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = "a network has no memory of its tensors that another could see";
    assert!(error.to_string().ends_with(text), "{error}");
}

#[test]
fn packs_that_do_not_fit() {
    let mut net = Net::default();
    let (x, n) = (net.f32("x", &[3]), net.count("n"));
    let a = net.counted("a", n);
    let h = net.recurrence(a, x);
    let next = net.op(Mode::Add, &[h, x]);
    net.next(h, next);
    let last = net.last(a, h);
    net.output(last, "last", DType::F32);
    let network = net.build();
    let kiln = harness::kiln();
    let plan = kiln.build_launched_loops(&network).unwrap();
    let buffer = |bytes: u64| kiln.device().alloc(bytes).unwrap();
    let upload = |bytes: &[u8]| kiln.device().upload(bytes).unwrap();
    let (x, n, last) = (upload(&[0; 12]), upload(&1i32.to_le_bytes()), buffer(12));
    let uid = |name: &str| network.tensors().iter().find(|of| of.name == name).unwrap().uid;
    let workspace = buffer(plan.workspace_bytes());
    let pack = VariantPack::new().with(uid("x"), &x).with(uid("n"), &n);
    let full = pack.clone().with(uid("last"), &last).with_workspace(&workspace);
    let run = |pack: &VariantPack| plan.execute(&kiln.stream(), pack);
    run(&full).unwrap();
    let text = |pack: VariantPack| run(&pack).unwrap_err().to_string();
    let needed = plan.workspace_bytes();
    let out = uid("last");
    assert_eq!(text(pack.clone()), format!("variant pack: tensor `last` (uid {out}) is missing"));
    assert_eq!(
        text(full.clone().with(out, &buffer(8))),
        format!("variant pack: tensor `last` (uid {out}) has 8 bytes, the tensor spans 12")
    );
    assert_eq!(
        text(full.clone().with(99, &last)),
        "variant pack: the network has no input or output with uid 99"
    );
    assert_eq!(
        text(full.clone().with(out, &x)),
        "variant pack: tensor `last` overlaps tensor `x`, and one is written"
    );
    assert_eq!(
        text(pack.with(out, &last)),
        format!("variant pack: the workspace has 0 bytes, the network needs {needed}")
    );
    assert_eq!(
        text(full.with_value(out, 1.0)),
        format!("variant pack: tensor `last` (uid {out}) is in memory but the pack holds a value")
    );
}

/// A network with every kind of layer.
fn everything() -> Net {
    let mut net = Net::default();
    let [n, zero, one] = ["n", "zero", "one"].map(|name| net.count(name));
    let (x, h0) = (net.f32("x", &[4, 2, 3]), net.f32("h0", &[3]));
    let outer = net.builder.add_loop("outer");
    net.builder.trips_max(outer, 100);
    let i = net.recurrence(outer, zero);
    net.named(i, "i", DType::I32);
    let more = net.compare(Mode::CmpLt, &[i, n], "more");
    net.builder.trip_limit(outer, TripLimit::While, more);
    net.builder.trip_limit(outer, TripLimit::Count, n);
    let next_i = net.op(Mode::Add, &[i, one]);
    net.named(next_i, "next_i", DType::I32);
    net.next(i, next_i);
    let plane = net.iterator(outer, x, 0, true);
    net.named(plane, "plane", DType::F32);
    let inner = net.counted("inner", one);
    let (row, h) = (net.iterator(inner, plane, 0, false), net.recurrence(inner, h0));
    net.named(row, "row", DType::F32);
    net.named(h, "h", DType::F32);
    let sum = net.op(Mode::Add, &[h, row]);
    net.named(sum, "sum", DType::F32);
    net.next(h, sum);
    let last = net.last(inner, h);
    net.named(last, "last", DType::F32);
    let y = net.builder.conditional(more, &[(last, h0)]).unwrap()[0];
    net.named(y, "y", DType::F32);
    let (all, back) = (net.stack(outer, y, 0, 4), net.turned(outer, y, 1, 4));
    net.output(all, "all", DType::F32);
    net.output(back, "back", DType::F32);
    net
}

#[test]
fn networks_as_text() {
    let text = "\
input  n: i32[1]
input  zero: i32[1]
input  one: i32[1]
input  x: f32[4, 2, 3]
input  h0: f32[3]
       loop outer, count n, while more
         i: i32[1] = <zero, next_i.0, next_i.1, ..>
         plane: f32[2, 3] = <x[-1], x[-2], ..> along axis 0
         more: bool[1] = <cmp_lt{i32}(i, n)>
         next_i: i32[1] = <add{i32}(i, one)>
         loop inner, count one
           h: f32[3] = <h0, sum.0, sum.1, ..>
           row: f32[3] = <plane[0], plane[1], ..> along axis 0
           sum: f32[3] = <<add(h, row)>>
         last: f32[3] = h.n
         y: f32[3] = more ? last : h0
output all: f32[4, 3] = [y.0, .., y.(n-1)] along axis 0
output back: f32[3, 4] = [y.(n-1), .., y.0] along axis 1
";
    assert_eq!(everything().build().to_string(), text);
}

#[test]
fn documents_are_read_as_they_are_written() {
    let network = everything().build();
    let document = network.to_json();
    assert_eq!(Network::from_json(&document).unwrap(), network);
    let change = |from: &str, to: &str| {
        assert!(document.contains(from), "{from}: {document}");
        Network::from_json(&document.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert_eq!(
        change("\"name\": \"inner\"", "\"name\": \"other\""),
        "no loop of the network is named `inner`"
    );
    assert_eq!(
        change("\"initial\": \"h0\"", "\"initial\": \"h\\n0\""),
        "no tensor of the network is named `h\n0`"
    );
    let text = change("\"layer\": \"iterator\"", "\"layer\": \"iterato\"");
    assert!(text.starts_with("malformed problem: unknown variant `iterato`"), "{text}");
    let text = change("\"reverse\": true", "\"backward\": true");
    assert!(text.starts_with("malformed problem: unknown field `backward`"), "{text}");
    let text = change("\"output\": \"reverse\"", "\"output\": \"last_value\"");
    assert_eq!(text, "malformed problem: `back`: a last value has no axis or length");
}
