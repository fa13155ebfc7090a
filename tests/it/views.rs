//! Operations that move elements: what is refused with which words, how few kernels they cost, and
//! operands in place.

use kiln::engine::{self, Selection};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Concatenate, Op, Slice, Transpose};
use kiln::target::Target;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};
use serde_json::{Value, json};

use crate::cases::{File, Parameters};
use crate::harness::{self, kiln, place};

fn graph(name: &str, with: Value) -> OperationGraph {
    let with: Parameters = serde_json::from_value(with).unwrap();
    File::read("views").graph(name, &with)
}

/// Rotary embeddings, of halves of heads or of neighbours.
pub fn rope(of: &str) -> OperationGraph {
    graph(of, json!({"t": "bf16", "b": 2, "s": 16, "h": 4, "d": 64, "half": 32, "lay": "rows"}))
}

/// Queries, keys and values cut from one tensor, of fewer heads of keys.
pub fn split_heads() -> OperationGraph {
    graph(
        "split_heads",
        json!({
            "t": "bf16", "b": 2, "s": 16, "h": 6, "kv": 2, "d": 32, "q": 192, "k": 64, "qk": 256,
            "all": 320,
        }),
    )
}

/// Gates of a product.
pub fn gated(m: i64) -> OperationGraph {
    let with = json!({"t": "bf16", "m": m, "k": 256, "n": 128, "nn": 256, "lay": "columns"});
    graph("gated", with)
}

/// A cache with room for more rows, and rows behind those that it has.
fn append(in_place: bool) -> OperationGraph {
    let mut with = json!({"t": "bf16", "b": 2, "m": 7, "n": 2, "mn": 9, "d": 16});
    with["strides"] = json!("none");
    if in_place {
        (with["strides"], with["in_place"]) = (json!([144, 16, 1]), json!(0));
    }
    graph("append", with)
}

fn one(operation: Value, x: &[i64], y: &[i64]) -> String {
    let tensor = |name: &str, dims: &[i64]| json!({"name": name, "dtype": "f32", "dims": dims});
    let tensors = vec![tensor("x", x), tensor("y", y)];
    json!({"graph": {"tensors": tensors, "operations": [operation]}}).to_string()
}

#[track_caller]
fn refused(operation: Value, x: &[i64], y: &[i64], words: &str) {
    let error = OperationGraph::from_json(&one(operation, x, y)).expect_err(words);
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, words));
}

fn slice(begin: Value, end: Value, stride: Value) -> Value {
    json!({"slice": begin, "end": end, "stride": stride, "x": "x", "y": "y"})
}

#[test]
fn slices_outside_of_a_tensor_are_refused() {
    let (x, y) = ([4, 6], [2, 3]);
    let whole = slice(json!([1, 0]), json!([3, 6]), json!([1, 2]));
    OperationGraph::from_json(&one(whole.clone(), &x, &y)).unwrap();
    refused(whole, &x, &[2, 2], "slice[1:3, 0:6:2]: output `y` is [2, 2], expected [2, 3]");
    refused(
        slice(json!([1, 0]), json!([5, 6]), json!([1, 2])),
        &x,
        &y,
        "slice[1:5, 0:6:2]: [1, 5) along axis 0 is not within the extent 4 of `x`",
    );
    refused(
        slice(json!([-1, 0]), json!([2, 6]), json!([1, 1])),
        &x,
        &y,
        "slice[-1:2, 0:6]: [-1, 2) along axis 0 is not within the extent 4 of `x`",
    );
    refused(
        slice(json!([3, 0]), json!([2, 6]), json!([1, 1])),
        &x,
        &y,
        "slice[3:2, 0:6]: [3, 2) along axis 0 is not within the extent 4 of `x`",
    );
    refused(
        slice(json!([0, 0]), json!([2, 6]), json!([1, 0])),
        &x,
        &y,
        "slice[0:2, 0:6:0]: stride 0 along axis 1 is not positive",
    );
    refused(
        slice(json!([0]), json!([2, 6]), json!([1, 1])),
        &x,
        &y,
        "slice[0:2]: begin has 1 values, `x` has 2 dimensions",
    );
    refused(
        json!({"slice": "0", "x": "x", "y": "y"}),
        &x,
        &y,
        "slice: key `slice` is \"0\", expected a list of whole numbers",
    );
}

#[test]
fn other_elements_are_refused() {
    let transpose = |axes: Value| json!({"transpose": axes, "x": "x", "y": "y"});
    OperationGraph::from_json(&one(transpose(json!([1, 0])), &[4, 6], &[6, 4])).unwrap();
    for axes in [json!([0, 0]), json!([0, 2]), json!([0]), json!([0, 1, 2])] {
        let words = format!("transpose: {axes} does not name each of the 2 dimensions of `x` once");
        refused(transpose(axes), &[4, 6], &[6, 4], &words.replace(',', ", "));
    }
    refused(
        transpose(json!([1, 0])),
        &[4, 6],
        &[4, 6],
        "transpose[1, 0]: output `y` is [4, 6], expected [6, 4]",
    );
    let reshape = json!({"reshape": [5, 5], "x": "x", "y": "y"});
    refused(
        reshape.clone(),
        &[4, 6],
        &[5, 5],
        "reshape: `x` [4, 6] has 24 elements, output `y` [5, 5] has 25",
    );
    refused(reshape, &[4, 6], &[24], "reshape: output `y` is [24], expected [5, 5]");
}

/// A concatenation of tensors with these dimensions and strides.
fn concatenated(op: Concatenate, operands: &[(&[i64], DType)], y: &[i64]) -> kiln::Result<()> {
    let mut graph = OperationGraph::builder();
    let named = operands.iter().enumerate();
    let inputs: Vec<i64> =
        named.map(|(at, (dims, dtype))| graph.input(&format!("x{at}"), dims, *dtype)).collect();
    let output = graph.input("y", y, DType::F32);
    graph.operation_into(Op::Concatenate(op), &inputs, &[output]);
    graph.build().map(drop)
}

#[test]
fn concatenations_of_what_does_not_fit_are_refused() {
    let f32 = DType::F32;
    let [a, b]: [(&[i64], DType); 2] = [(&[2, 3], f32), (&[2, 4], f32)];
    concatenated(Concatenate::new(1, 2), &[a, b], &[2, 7]).unwrap();
    let refused = |op, operands: &[(&[i64], DType)], y: &[i64], words: &str| {
        let error = concatenated(op, operands, y).expect_err(words);
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, words));
    };
    refused(
        Concatenate::new(0, 2),
        &[a, b],
        &[4, 3],
        "concatenate[axis 0]: `x0` is [2, 3], `x1` is [2, 4]: they may differ along axis 0 alone",
    );
    refused(
        Concatenate::new(1, 2),
        &[a, b],
        &[2, 8],
        "concatenate[axis 1]: output `y` is [2, 8], expected [2, 7]",
    );
    refused(
        Concatenate::new(2, 2),
        &[a, b],
        &[2, 7],
        "concatenate[axis 2]: axis 2 is not in [0, 1]",
    );
    refused(
        Concatenate::new(-1, 2),
        &[a, b],
        &[2, 7],
        "concatenate[axis -1]: axis -1 is not in [0, 1]",
    );
    refused(
        Concatenate::new(1, 2).in_place(2),
        &[a, b],
        &[2, 7],
        "concatenate[axis 1, 2 in place]: operand 2 in place is not in [0, 1]",
    );
    refused(
        Concatenate::new(1, 2),
        &[a, (&[2, 4], DType::F16)],
        &[2, 7],
        "concatenate[axis 1]: `x1` is f16, `x0` is f32",
    );
    refused(
        Concatenate::new(1, 2).in_place(0),
        &[a, b],
        &[2, 7],
        "concatenate[axis 1, 0 in place]: `x0`, which is in place, has stride 3 along axis 0, \
         output `y` has 7",
    );
    refused(
        Concatenate::new(0, 0),
        &[],
        &[2, 7],
        "concatenate[axis 0]: 0 operands, expected 1 to 64",
    );
}

#[test]
fn what_is_in_place_has_memory_of_its_own() {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[2, 3], DType::F32);
    let b = graph.input("b", &[1, 3], DType::F32);
    let negative = graph.pointwise(Pointwise::new(Mode::Neg), &[a]).unwrap();
    let op = Op::Concatenate(Concatenate::new(0, 2).in_place(0));
    let y = graph.operation(op, &[negative, b]).unwrap()[0];
    graph.output(y, "y", DType::F32);
    let mut written = graph.clone();
    let error = graph.build().unwrap_err().to_string();
    let words = "concatenate[axis 0, 0 in place]: ``, which is in place, has no memory";
    assert_eq!(error, words);
    written.output(negative, "n", DType::F32);
    let error = written.build().unwrap_err().to_string();
    let words = "concatenate[axis 0, 0 in place]: `n`, which is in place, is written by an \
                 operation: where it is virtual, it is written to its place";
    assert_eq!(error, words);
}

#[test]
fn documents_say_what_moves() {
    let graphs = [rope("rope_halves"), rope("rope_neighbours"), split_heads(), append(true)];
    for graph in graphs.iter().chain([&append(false), &gated(64)]) {
        let again = OperationGraph::from_json(&graph.to_json()).unwrap();
        assert_eq!(again, *graph, "{}", graph.to_json());
        assert_eq!(again.to_json(), graph.to_json());
        assert!(graph.canonical().operations.iter().all(|of| !of.op.moves()), "{graph}");
    }
}

#[test]
fn equal_slices_share_kernels() {
    let build = |end: i64, name: &str| {
        let mut graph = OperationGraph::builder();
        let x = graph.input(name, &[4, 6], DType::F32);
        let slice = Slice { begin: vec![0, 1], end: vec![4, end], stride: vec![1, 2] };
        let half = graph.operation(Op::Slice(slice), &[x]).unwrap()[0];
        let y = graph.pointwise(Pointwise::new(Mode::Neg), &[half]).unwrap();
        graph.output(y, "y", DType::F32);
        graph.build().unwrap()
    };
    assert_eq!(build(5, "x").form_digest(), build(4, "x").form_digest());
    assert_ne!(build(5, "x").form_digest(), build(6, "x").form_digest());
    // The plan knows its tensors by name.
    assert_ne!(build(5, "x").digest(), build(5, "z").digest());
}

/// Each is one kernel, on every class of target.
#[test]
fn what_moves_costs_no_kernel() {
    let graphs = [
        (rope("rope_halves"), "pointwise"),
        (rope("rope_neighbours"), "pointwise"),
        (split_heads(), "pointwise_grouped"),
        (append(true), "pointwise"),
        (gated(64), "gemm"),
    ];
    for target in ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"] {
        let target = Target::named(target).unwrap();
        for (graph, engine) in &graphs {
            let parts = engine::partition(graph, &target, &Selection::default()).unwrap();
            let engines: Vec<&str> = parts.iter().map(|part| &*part.config.engine).collect();
            // A dual GEMM needs tensor cores that multiply bf16.
            if target.arch.capability == 75 && *engine == "gemm" {
                assert_eq!(engines, ["gemm_simt", "pointwise"]);
                continue;
            }
            assert!(engines.len() == 1 && engines[0].starts_with(engine), "{engines:?}: {graph}");
        }
    }
}

#[test]
fn an_operand_in_place_lies_there() {
    let (kiln, graph) = (kiln(), append(true));
    let plan = kiln.plan(&graph).unwrap();
    let inputs: harness::Values =
        graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 3, 4.0))).collect();
    let bound = harness::bind(kiln, &graph, &inputs).unwrap();
    let actual = harness::run_bound(kiln, &plan, &bound).unwrap();
    harness::compare(&graph, &inputs, &actual, "in place");
    let [cache, all] = ["cache", "all"].map(|name| graph.tensor_named(name).unwrap());
    let mut moved = harness::bind(kiln, &graph, &inputs).unwrap();
    let elsewhere = kiln.device().upload(&[0; 1024]).unwrap();
    place(&mut moved.pack, cache.uid, elsewhere.address(), 1024);
    let error = harness::run_bound(kiln, &plan, &moved).unwrap_err().to_string();
    let words = "tensor `cache` (uid 1) is in place in `all`: its address is 0x";
    assert!(error.starts_with(words), "{error}");
    assert!(!all.may_overlap());
}

/// A tensor may be overwritten by its own rotary embedding: each thread reads its pair first.
#[test]
fn pairs_are_rotated_in_place() {
    for of in ["rope_halves", "rope_neighbours"] {
        let (kiln, graph) = (kiln(), rope(of));
        let plan = kiln.plan(&graph).unwrap();
        let inputs: harness::Values =
            graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 5, 2.0))).collect();
        let [x, y] = ["x", "y"].map(|name| graph.tensor_named(name).unwrap().clone());
        let mut bound = harness::bind(kiln, &graph, &inputs).unwrap();
        let buffer = bound.buffers[&x.uid].clone();
        bound.read_from(&y, &x);
        bound.buffers.insert(y.uid, buffer);
        let actual = harness::run_bound(kiln, &plan, &bound).unwrap();
        harness::compare(&graph, &inputs, &actual, of);
    }
}

/// Elements that another thread reads must not be overwritten.
#[test]
fn a_transpose_is_not_done_in_place() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[16, 16], DType::F32);
    let turn = Op::Transpose(Transpose { permutation: vec![1, 0] });
    let turned = graph.operation(turn, &[x]).unwrap()[0];
    let y = graph.tensor(TensorDesc::packed(9, "y", &[16, 16], DType::F32));
    graph.pointwise_into(Pointwise::new(Mode::Neg), &[turned], y);
    let graph = graph.build().unwrap();
    let kiln = kiln();
    let plan = kiln.plan(&graph).unwrap();
    let [x, y] = [x, y].map(|uid| graph.tensor(uid).unwrap().clone());
    let inputs = harness::Values::from([(x.uid, harness::fill(&x, 1, 1.0))]);
    let mut bound = harness::bind(kiln, &graph, &inputs).unwrap();
    bound.read_from(&y, &x);
    let error = harness::run_bound(kiln, &plan, &bound).unwrap_err().to_string();
    let words = "tensor `y` (uid 9) is written but its memory overlaps that of `x`";
    assert_eq!(error, words);
}
