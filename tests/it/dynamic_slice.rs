//! Slices at positions that the device knows: their document, what is refused, targets and orders
//! of warps, and against XLA's own words for what positions mean. Cases of every kind are in
//! `tests/cases/dynamic_slice.toml`.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{DynamicSlice, Op, Operation, SliceCopy};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc, reference};

use crate::harness::{self, Values};
use crate::resident_loop::values;

/// The step of a decoder: the row of a token is read, keys are appended at a position, and the
/// position is kept.
pub fn decoding() -> OperationGraph {
    let text = include_str!("../../examples/problems/kv_append_at.json");
    OperationGraph::from_json(text).unwrap()
}

/// What is done between two trips of a loop: an element is fetched from the end, two are stored, in
/// both orders, a state and the number of trips are carried on.
pub fn turn() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let [next, made] = ["next", "made"].map(|name| graph.input(name, &[1], DType::I32));
    let x = graph.input("x", &[4, 9, 40], DType::F16);
    let tensors: [(&str, &[i64]); 8] = [
        ("row", &[4, 1, 33]),
        ("all_before", &[4, 6, 33]),
        ("all", &[4, 6, 33]),
        ("last", &[1, 4, 33]),
        ("back_before", &[6, 4, 33]),
        ("back", &[6, 4, 33]),
        ("h", &[4, 33]),
        ("h_now", &[4, 33]),
    ];
    let [row, all_before, all, last, back_before, back, h, h_now] =
        tensors.map(|(name, dims)| graph.input(name, dims, DType::F32));
    let element = graph.input("element", &[4, 1, 40], DType::F16);
    let trip = graph.input("trip", &[1], DType::I32);
    let op = DynamicSlice {
        copies: vec![
            SliceCopy::Read { axis: 1, size: 1, reverse: true },
            SliceCopy::Write { axis: 1, reverse: false },
            SliceCopy::Write { axis: 0, reverse: true },
            SliceCopy::Read { axis: 0, size: 4, reverse: false },
            SliceCopy::Read { axis: 0, size: 1, reverse: false },
        ],
    };
    let inputs = [next, x, made, row, all_before, made, last, back_before, next, h, next, next];
    graph.operation_into(Op::DynamicSlice(op), &inputs, &[element, all, back, h_now, trip]);
    graph.build().unwrap()
}

fn run_one(copy: SliceCopy, dims: &[i64], position: f64, x: &[f64]) -> Vec<f64> {
    let mut graph = OperationGraph::builder();
    let p = graph.input("p", &[1], DType::I32);
    let op = Op::DynamicSlice(DynamicSlice { copies: vec![copy] });
    let (inputs, y) = match copy {
        SliceCopy::Read { .. } => {
            let operand = graph.input("x", dims, DType::F32);
            let y = graph.operation(op, &[p, operand]).unwrap()[0];
            graph.output(y, "y", DType::F32);
            (vec![(operand, x.to_vec())], y)
        }
        SliceCopy::Write { .. } => {
            let slice = graph.input("slice", &[2], DType::F32);
            let before = graph.input("before", dims, DType::F32);
            let y = graph.input("y", dims, DType::F32);
            graph.operation_into(op, &[p, slice, before], &[y]);
            (vec![(slice, vec![10.0, 11.0]), (before, x.to_vec())], y)
        }
    };
    let graph = graph.build().unwrap();
    let inputs: Values = inputs.into_iter().chain([(p, vec![position])]).collect();
    let actual = harness::run(harness::kiln(), &graph, None, &inputs).unwrap();
    assert_eq!(reference::evaluate(&graph, &inputs).unwrap()[&y].values, actual[&y]);
    actual[&y].clone()
}

/// "Start indices are clamped: if an index together with the size would be out of bounds, the
/// slice is moved so that it is inside" (XLA, `DynamicSlice`); its example of a slice of one
/// dimension: of {0, 1, 2, 3, 4}, from 2 on, of size 2, is {2, 3}. `DynamicUpdateSlice` of {5, 6}
/// there gives {0, 1, 5, 6, 4}; out of bounds nothing is written here.
#[test]
fn positions_as_in_xla() {
    let x = [0.0, 1.0, 2.0, 3.0, 4.0];
    let read = |position, reverse| {
        run_one(SliceCopy::Read { axis: 0, size: 2, reverse }, &[5], position, &x)
    };
    for (position, expected) in [
        (2.0, [2.0, 3.0]),
        (3.0, [3.0, 4.0]),
        (4.0, [3.0, 4.0]),
        (99.0, [3.0, 4.0]),
        (-1.0, [0.0, 1.0]),
    ] {
        assert_eq!(read(position, false), expected);
    }
    for (position, expected) in
        [(0.0, [3.0, 4.0]), (3.0, [0.0, 1.0]), (4.0, [0.0, 1.0]), (-2.0, [3.0, 4.0])]
    {
        assert_eq!(read(position, true), expected);
    }
    let write =
        |position, reverse| run_one(SliceCopy::Write { axis: 0, reverse }, &[5], position, &x);
    assert_eq!(write(2.0, false), [0.0, 1.0, 10.0, 11.0, 4.0]);
    assert_eq!(write(2.0, true), [0.0, 10.0, 11.0, 3.0, 4.0]);
    for position in [-1.0, 4.0, 2_147_483_647.0, -2_147_483_648.0] {
        assert_eq!(write(position, false), x);
        assert_eq!(write(position, true), x);
    }
}

#[test]
fn documents_say_all_of_it() {
    let graph = decoding();
    assert_eq!(OperationGraph::from_json(&graph.to_json()).unwrap(), graph);
    let listed = graph.to_string();
    let text = "dynamic_slice[read 1 of axis 0, write axis 2, write axis 2](";
    assert!(listed.contains(text), "{listed}");
}

#[test]
fn what_is_no_slice_is_refused() {
    type Change = fn(&mut DynamicSlice, &mut [TensorDesc]);
    let read = |axis, size| SliceCopy::Read { axis, size, reverse: false };
    let cases: [(&str, Change); 13] = [
        ("axis 3 of `x` is not in [0, 2]", |op, _| {
            op.copies[0] = SliceCopy::Read { axis: 3, size: 1, reverse: false };
        }),
        ("axis -1 of `y1` is not in [0, 1]", |op, _| {
            op.copies[1] = SliceCopy::Write { axis: -1, reverse: true };
        }),
        ("size 5 of `x` is not in [0, 4]", |op, _| {
            op.copies[0] = SliceCopy::Read { axis: 0, size: 5, reverse: false };
        }),
        ("size -1 of `x` is not in [0, 4]", |op, _| {
            op.copies[0] = SliceCopy::Read { axis: 0, size: -1, reverse: false };
        }),
        ("position `p` is f32, expected i32", |_, tensors| tensors[0].dtype = DType::F32),
        ("position `p` is [2], expected one element", |_, tensors| {
            tensors[0] = TensorDesc::packed(0, "p", &[2], DType::I32);
        }),
        ("output `y0` is [2, 3, 6], expected [2, 3, 5]", |_, tensors| {
            tensors[2] = TensorDesc::packed(2, "y0", &[2, 3, 6], DType::F32);
        }),
        ("output `y0` is f16, expected f32 as of `x`", |_, tensors| tensors[2].dtype = DType::F16),
        ("`row` is [2, 4], no slice along axis 1 of `y1`, which is [2, 3]", |_, tensors| {
            tensors[3] = TensorDesc::packed(3, "row", &[2, 4], DType::I8);
        }),
        ("`row` is [1, 1], no slice along axis 1 of `y1`, which is [2, 3]", |_, tensors| {
            tensors[3] = TensorDesc::packed(3, "row", &[1, 1], DType::I8);
        }),
        ("output `y1` is i8, expected u8 as of `before`", |_, tensors| {
            tensors[4].dtype = DType::U8;
        }),
        ("`before` and `y1` must be in the same memory, with the same strides", |_, tensors| {
            tensors[4].strides = vec![1, 2]
        }),
        ("dynamic_slice: 0 copies, expected 1 to 64", |op, _| op.copies.clear()),
    ];
    for (text, change) in cases {
        let mut tensors = [
            TensorDesc::packed(0, "p", &[1], DType::I32),
            TensorDesc::packed(1, "x", &[4, 3, 5], DType::F32),
            TensorDesc::packed(2, "y0", &[2, 3, 5], DType::F32),
            TensorDesc::packed(3, "row", &[2, 1], DType::I8),
            TensorDesc::packed(4, "before", &[2, 3], DType::I8),
            TensorDesc::packed(5, "y1", &[2, 3], DType::I8),
        ];
        let write = SliceCopy::Write { axis: 1, reverse: false };
        let mut op = DynamicSlice { copies: vec![read(0, 2), write] };
        change(&mut op, &mut tensors);
        let (inputs, outputs) = match op.copies.len() {
            0 => (vec![], vec![]),
            _ => (vec![0, 1, 0, 3, 4], vec![2, 5]),
        };
        let operation = Operation { op: Op::DynamicSlice(op), inputs, outputs };
        let error = OperationGraph::new(tensors.to_vec(), vec![operation]).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::BadParam, "{error}");
        assert!(error.to_string().ends_with(text), "{error}");
    }
}

/// What a slice overwrites nobody else may read, since nothing says when.
#[test]
fn what_is_overwritten_is_read_nowhere_else() {
    let mut graph = OperationGraph::builder();
    let p = graph.input("p", &[1], DType::I32);
    let row = graph.input("row", &[1, 4], DType::F32);
    let [before, y] = ["before", "y"].map(|name| graph.input(name, &[3, 4], DType::F32));
    let op = DynamicSlice { copies: vec![SliceCopy::Write { axis: 0, reverse: false }] };
    graph.operation_into(Op::DynamicSlice(op), &[p, row, before], &[y]);
    let most = graph.pointwise(Pointwise::new(Mode::Max), &[before, row]).unwrap();
    graph.output(most, "most", DType::F32);
    let error = graph.build().unwrap_err().to_string();
    let text = "`before`, which a slice is written to, is read elsewhere in the graph";
    assert!(error.ends_with(text), "{error}");
}

/// Two tensors that the pack has apart are no place and what is written to it.
#[test]
fn what_is_written_is_in_place() {
    let (kiln, graph) = (harness::kiln(), decoding());
    let plan = kiln.plan(&graph).unwrap();
    let bound = harness::bind(kiln, &graph, &values(&graph, &[("position", 3.0)])).unwrap();
    let before = graph.tensor_named("keys_before").unwrap();
    let apart = kiln.device().alloc(before.span_bytes().unwrap()).unwrap();
    let pack = bound.pack.clone().with(before.uid, &apart);
    let error = plan.execute(&kiln.stream(), &pack).unwrap_err().to_string();
    assert!(error.contains("`keys_before`") && error.contains("`keys`"), "{error}");
}

/// What no class of target, heuristic and order of warps changes.
#[test]
fn every_class_of_target() {
    use kiln::engine::Mode::{A, B, Fallback};
    for (at, target) in ["t4", "a100", "l40s", "h200", "b200", "rtx5090"].iter().enumerate() {
        for (turn, heuristic) in [A, B, Fallback].into_iter().enumerate() {
            let seed = (at + turn) as u64;
            let Some(kiln) = harness::simulated_by(target, seed, heuristic) else { continue };
            let graph = decoding();
            for position in [0.0, 6.0, 99.0, 100.0, -1.0] {
                let inputs = values(&graph, &[("position", position), ("token", position)]);
                let what = format!("{target}, heuristic {heuristic}, seed {seed}, {position}");
                harness::check(kiln, &graph, None, &inputs, &what);
            }
        }
    }
}
