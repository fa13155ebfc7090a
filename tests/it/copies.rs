//! Products behind copies of their operands: convolutions of channels first, matrices whose lines
//! begin anywhere, bytes and tf32 that do not lie along K, where the cost model says that this
//! takes less time, with the results that the reference bounds.

use std::collections::BTreeSet;

use kiln::device::DeviceChoice;
use kiln::engine::{self, Mode, Part, Selection};
use kiln::target::Target;
use kiln::{Config, ErrorKind, Kiln, OperationGraph};
use serde_json::{Value, json};

use crate::harness::Values;
use crate::parts::convolutions_behind;
use crate::{convolution, golden, harness};

const TARGETS: [&str; 6] = ["t4", "a100", "l40s", "h200", "b200", "rtx5090"];
const PASSES: [&str; 3] = ["forward", "backward_data", "backward_filter"];

/// A layer: channels of image and response, extent, filter, stride.
fn layer(pass: &str, dtype: &str, n: i64, of: [i64; 5], fused: &str) -> OperationGraph {
    let [c, k, extent, filter, stride] = of;
    let (dtype, math) = if dtype == "tf32" { ("f32", "tf32") } else { (dtype, "f32") };
    convolution::graph(json!({
        "pass": pass, "dtype": dtype, "math": math, "n": n, "c": c, "k": k,
        "image": [extent, extent], "filter": [filter, filter], "strides": [stride, stride],
        "pre": [filter / 2, filter / 2], "post": [filter / 2, filter / 2],
        "lay": "channels_first", "fused": fused,
    }))
}

fn parts(graph: &OperationGraph, target: &str, selection: &Selection) -> Vec<Part> {
    let target = Target::named(target).expect("known");
    engine::partition(graph, &target, selection).expect("supported")
}

fn engines(parts: &[Part]) -> Vec<&str> {
    parts.iter().map(|part| part.config.engine.as_ref()).collect()
}

/// The layers of ResNet-50, and which of their operands are copied.
#[test]
fn operands_are_copied_where_that_pays() {
    let mut lines = Vec::new();
    for of in [
        [64, 64, 56, 3, 1],
        [64, 256, 56, 1, 1],
        [128, 128, 56, 3, 2],
        [256, 256, 14, 3, 1],
        [512, 512, 7, 3, 1],
    ] {
        for (dtype, n) in [("f16", 32), ("f16", 1), ("f32", 32), ("tf32", 32)] {
            for pass in PASSES {
                let graph = layer(pass, dtype, n, of, "nothing");
                for target in TARGETS {
                    let parts = parts(&graph, target, &Selection::default());
                    let copied = parts.iter().flat_map(|part| part.graph.outputs());
                    let copied = copied.filter(|of| graph.tensor(of.uid).is_err());
                    let names: Vec<&str> = copied.map(|of| of.name.as_str()).collect();
                    let last = parts.last().expect("there is one").config.engine.clone();
                    let names = names.join(", ");
                    lines.push(format!("{of:?} {dtype} {n} {pass} {target}: {last} of {names}"));
                }
            }
        }
    }
    golden::assert_golden("copies", &lines.join("\n"));
}

/// A product of matrices `[.., m, k]` and `[.., k, n]`, each along its last dimension or along the
/// one before it.
struct Matrices {
    dtypes: [&'static str; 2],
    math: &'static str,
    batches: Vec<i64>,
    extents: [i64; 3],
    transposed: [bool; 2],
}

impl Matrices {
    fn dims(&self) -> [Vec<i64>; 2] {
        let [m, n, k] = self.extents;
        [[m, k], [k, n]].map(|of| [&self.batches[..], &of].concat())
    }

    /// The dimension of an operand along which elements lie.
    fn inner(&self, operand: usize) -> usize {
        self.batches.len() + usize::from(!self.transposed[operand])
    }

    /// Strides of packed matrices, whose lines begin at multiples of so many elements.
    fn strides(&self, operand: usize, inner: usize, whole: i64) -> Vec<i64> {
        let dims = &self.dims()[operand];
        let rank = dims.len();
        let outer = 2 * rank - 3 - inner;
        let mut strides = vec![1; rank];
        strides[outer] = (dims[inner] + whole - 1) / whole * whole;
        let mut stride = strides[outer] * dims[outer];
        for axis in (0..rank - 2).rev() {
            strides[axis] = stride;
            stride *= dims[axis];
        }
        strides
    }

    /// How the copy of an operand lies, and its name.
    fn copy(&self, operand: usize) -> (Vec<i64>, String) {
        let bytes = match self.dtypes[0] {
            "i8" | "u8" => 1,
            "f32" => 4,
            _ => 2,
        };
        let rank = self.batches.len() + 2;
        let along_k = bytes == 1 || self.math == "tf32";
        let inner = if along_k { rank - 1 - operand } else { self.inner(operand) };
        let along = if inner == rank - 1 { "rows" } else { "columns" };
        (self.strides(operand, inner, 16 / bytes), format!("{}_by_{along}", ["a", "b"][operand]))
    }

    fn graph(&self) -> OperationGraph {
        self.with([false; 2])
    }

    /// The product of operands some of which are copies.
    fn with(&self, copies: [bool; 2]) -> OperationGraph {
        let Matrices { dtypes: [from, to], math, .. } = self;
        let [m, n, _] = self.extents;
        let mut tensors: Vec<Value> = (0..2)
            .map(|at| {
                let dims = &self.dims()[at];
                let (strides, name) = match copies[at] {
                    true => self.copy(at),
                    false => (self.strides(at, self.inner(at), 1), ["a", "b"][at].to_owned()),
                };
                json!({ "name": name, "dtype": from, "dims": dims, "strides": strides })
            })
            .collect();
        let names = [0, 1].map(|at| tensors[at]["name"].clone());
        let dims = [&self.batches[..], &[m, n]].concat();
        tensors.push(json!({ "name": "c", "dtype": to, "dims": dims }));
        let operation = json!({ "matmul": math, "a": names[0], "b": names[1], "c": "c" });
        graph(&json!({ "tensors": tensors, "operations": [operation] }))
    }

    /// The graph that copies an operand.
    fn copying(&self, operand: usize) -> OperationGraph {
        let (strides, name) = self.copy(operand);
        let (dtype, dims) = (self.dtypes[0], &self.dims()[operand]);
        let own = self.strides(operand, self.inner(operand), 1);
        graph(&json!({
            "tensors": [
                { "name": "x", "dtype": dtype, "dims": dims, "strides": own },
                { "name": name, "dtype": dtype, "dims": dims, "strides": strides },
            ],
            "operations": [{ "pointwise": "identity", "inputs": ["x"], "output": name }],
        }))
    }
}

fn graph(graph: &Value) -> OperationGraph {
    OperationGraph::from_json(&json!({ "graph": graph }).to_string()).expect("it is legal")
}

/// Products whose operands lie badly, and which of them are copied.
#[test]
fn matrices_are_copied_where_that_pays() {
    let mut lines = Vec::new();
    let halves = (["bf16", "bf16"], "f32");
    for ((dtypes, math), extents) in [
        (halves, [4097, 4099, 515]),
        (halves, [2048, 768, 50257]),
        (halves, [50257, 768, 2048]),
        (halves, [256, 257, 259]),
        (halves, [4096, 4098, 4098]),
        (halves, [4096, 4096, 4096]),
        ((["f32", "f32"], "tf32"), [4097, 4099, 515]),
        ((["f32", "f32"], "tf32"), [2048, 2048, 2048]),
        ((["f32", "f32"], "tf32"), [512, 512, 512]),
        ((["f32", "f32"], "f32"), [4097, 4099, 515]),
        ((["i8", "i32"], "i32"), [2048, 4096, 4096]),
        ((["i8", "i32"], "i32"), [2048, 4096, 4097]),
    ] {
        for transposed in [[false, false], [false, true], [true, false]] {
            let of = Matrices { dtypes, math, batches: vec![], extents, transposed };
            let graph = of.graph();
            for target in TARGETS.into_iter().filter(|of| *of != "t4" || dtypes != halves.0) {
                let parts = parts(&graph, target, &Selection::default());
                let copied = parts.iter().flat_map(|part| part.graph.outputs());
                let copied = copied.filter(|of| graph.tensor(of.uid).is_err());
                let names: Vec<&str> = copied.map(|of| of.name.as_str()).collect();
                let last = parts.last().expect("there is one").config.engine.clone();
                let (from, names) = (dtypes[0], names.join(", "));
                lines.push(format!(
                    "{extents:?} {transposed:?} {from} as {math} {target}: {last} of {names}"
                ));
            }
        }
    }
    golden::assert_golden("copies_of_matrices", &lines.join("\n"));
}

/// Each operand and both, in every type, on every class of target, from saved plans.
#[test]
fn products_of_copies_are_those_of_the_graph() {
    let mut turn = 0;
    for (at, target) in TARGETS.into_iter().enumerate() {
        for (dtypes, math) in [
            (["f16", "f16"], "f32"),
            (["bf16", "f32"], "f32"),
            (["f32", "f32"], "tf32"),
            (["f32", "f32"], "f32"),
            (["i8", "i32"], "i32"),
            (["u8", "i32"], "i32"),
        ] {
            let is_bf16 = dtypes[0] == "bf16" || math == "tf32";
            turn += 1;
            let all = [[65, 67, 69], [1, 35, 131], [130, 33, 17], [33, 1, 65], [132, 96, 72]];
            let extents = all[turn % all.len()];
            let batches = [vec![], vec![3], vec![2, 3]][turn % 3].clone();
            let transposed = [turn % 2 == 0, (turn + at) / 2 % 2 == 0];
            let of = Matrices { dtypes, math, batches, extents, transposed };
            let Some(kiln) = harness::simulated_by_turns(target, turn as u64) else { continue };
            if target != "t4" || !is_bf16 {
                results_of_copies(kiln, &of);
            }
        }
    }
}

/// Results of plans in which operands are copied, as far as there is a copy of them.
fn results_of_copies(kiln: &Kiln, of: &Matrices) {
    let target = kiln.device().target();
    let graph = of.graph();
    let chosen = |graph: &OperationGraph| {
        let config = engine::choose(graph.canonical(), target, &Selection::default());
        config.expect("supported").to_string()
    };
    let plan = kiln.plan(&graph).expect("supported");
    for copies in [[true, false], [false, true], [true, true]] {
        let operands = (0..2).filter(|at| copies[*at]);
        let parts = operands
            .clone()
            .map(|at| json!({ "config": chosen(&of.copying(at)), "writes": [of.copy(at).1] }));
        let own = json!({ "config": chosen(&of.with(copies)), "writes": ["c"] });
        let mut document: Value = serde_json::from_str(&plan.to_json()).expect("it is JSON");
        let named = |at: usize| ["a", "b"][at];
        document["copies"] = operands.clone().map(|at| json!(["c", named(at)])).collect();
        document["parts"] = parts.chain([own]).collect();
        let what = format!("{target}: copies {copies:?} of {graph}");
        let copied = match kiln.plan_from_json(&document.to_string()) {
            Ok(copied) => copied,
            Err(error) => {
                // One line, or lines that begin where they should.
                let lies = |at: usize| of.strides(at, of.inner(at), 1) == of.copy(at).0;
                assert_eq!(error.kind(), ErrorKind::BadParam, "{what}: {error}");
                assert!(
                    operands.clone().any(|at| lies(at) || of.dims()[at].contains(&1)),
                    "{what}"
                );
                continue;
            }
        };
        assert_eq!(copied.parts().len(), 1 + operands.count(), "{what}");
        let inputs = inputs(&graph);
        let results = harness::run_plan(kiln, &copied, &inputs).expect("runs");
        harness::compare(&graph, &inputs, &results, &what);
    }
}

/// Where nothing may be in memory between kernels, or the least demanding settings are asked for,
/// there are none.
#[test]
fn nothing_is_copied_where_nothing_may_be() {
    let graph = layer("forward", "f16", 32, [64, 64, 56, 3, 1], "bias_relu");
    let copied = ["pointwise_transposed", "pointwise_transposed", "gemm_wgmma"];
    assert_eq!(engines(&parts(&graph, "h200", &Selection::default())), copied);
    let selection = Selection { mode: Mode::B, ..Selection::default() };
    assert_eq!(engines(&parts(&graph, "h200", &selection)).len(), 3);
    let without = "workspace".parse().expect("known");
    let selection = Selection { without, ..Selection::default() };
    assert_eq!(engines(&parts(&graph, "h200", &selection)), ["gemm_mma"]);
    let selection = Selection { mode: Mode::Fallback, ..Selection::default() };
    assert_eq!(engines(&parts(&graph, "h200", &selection)).len(), 1);
}

fn inputs(graph: &OperationGraph) -> Values {
    graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 7, 1.0))).collect()
}

/// A plan of a convolution in one part as one whose convolution reads copies of these operands.
pub fn with_copies(document: &str, operands: &[&str], copy: &str) -> Value {
    let mut document: Value = serde_json::from_str(document).expect("it is JSON");
    let part = document["parts"][0].clone();
    let first = part["writes"][0].clone();
    document["copies"] = operands.iter().map(|operand| json!([first, operand])).collect();
    let copy =
        |operand: &&str| json!({ "config": copy, "writes": [format!("{operand}_channels_last")] });
    document["parts"] = operands.iter().map(copy).chain([part]).collect();
    document
}

/// All passes, with what is fused, on every class of target, from saved plans.
#[test]
fn results_are_those_of_the_graph() {
    for (at, (pass, fused, operands)) in [
        ("forward", "bias_relu", ["x", "w"]),
        ("backward_data", "nothing", ["dy", "w"]),
        ("backward_filter", "nothing", ["dy", "x"]),
    ]
    .into_iter()
    .enumerate()
    {
        for (turn, target) in TARGETS.into_iter().enumerate() {
            let Some(kiln) = harness::simulated_by_turns(target, (at + turn) as u64) else {
                continue;
            };
            let dtype = if target == "t4" { "f16" } else { ["f16", "bf16", "f32"][turn % 3] };
            let graph = layer(pass, dtype, 2, [16, 24, 9, 3, 1], fused);
            let plan = kiln.plan(&graph).expect("supported");
            assert_eq!(plan.parts().len(), 1, "so small a convolution reads no copies");
            for operands in [&operands[..], &operands[..1], &operands[1..]] {
                let copy = "pointwise_transposed{lanes=2, threads=64}";
                let document = with_copies(&plan.to_json(), operands, copy).to_string();
                let copied = kiln.plan_from_json(&document).expect("it is legal");
                assert_eq!(copied.parts().len(), 1 + operands.len());
                let again: Value = serde_json::from_str(&copied.to_json()).unwrap();
                assert_eq!(again["copies"].as_array().map(Vec::len), Some(operands.len()));
                let inputs = inputs(&graph);
                let results = harness::run_plan(kiln, &copied, &inputs).expect("runs");
                let what = format!("{target}: {pass}, copies of {operands:?}");
                harness::compare(&graph, &inputs, &results, &what);
            }
        }
    }
}

/// Gradients of images in tf32 read filters whose responses lie side by side: on every class of
/// target that has tf32, by the engine that is best then and by the one without, from saved plans.
#[test]
fn gradients_in_tf32_read_filters_along_responses() {
    let copy = "pointwise_transposed{lanes=2, threads=64}";
    let mut engines = BTreeSet::new();
    for (turn, target) in TARGETS.into_iter().filter(|of| *of != "t4").enumerate() {
        let Some(kiln) = harness::simulated_by_turns(target, turn as u64) else { continue };
        for (groups, stride, lay) in [
            (1, 1, "channels_last"),
            (1, 1, "channels_first"),
            (2, 1, "channels_last"),
            (1, 2, "channels_last"),
        ] {
            let graph = convolution::graph(json!({
                "pass": "backward_data", "dtype": "f32", "math": "tf32", "n": 2, "groups": groups,
                "c": 32, "k": 32, "image": [9, 8], "filter": [3, 3], "strides": [stride, stride],
                "pre": [1, 1], "post": [1, 1], "lay": lay,
            }));
            let mut tensors = graph.tensors().to_vec();
            let w = tensors.iter_mut().find(|of| of.name == "w").expect("it has a filter");
            let k = w.dims[0];
            w.strides = vec![1, 9 * k, 3 * k, k];
            let laid = OperationGraph::new(tensors, graph.operations().to_vec()).expect("legal");
            let target = kiln.device().target();
            let best = engine::choose(laid.canonical(), target, &Selection::default()).unwrap();
            engines.insert(best.engine.clone());
            let plan = kiln.plan(&graph).expect("supported");
            assert_eq!(plan.parts().len(), 1, "so small a convolution reads no copies");
            let mut document = with_copies(&plan.to_json(), &["w"], copy);
            document["parts"][0]["writes"] = json!(["w_responses_last"]);
            let own = document["parts"][1]["config"].as_str().expect("text").to_owned();
            for config in [own, best.to_string()] {
                document["parts"][1]["config"] = json!(config);
                let copied = kiln.plan_from_json(&document.to_string()).expect("it is legal");
                assert_eq!(copied.parts().len(), 2);
                let again: Value = serde_json::from_str(&copied.to_json()).unwrap();
                assert_eq!(again["copies"], document["copies"]);
                let inputs = inputs(&graph);
                let results = harness::run_plan(kiln, &copied, &inputs).expect("runs");
                harness::compare(&graph, &inputs, &results, &format!("{target}, {lay}: {config}"));
            }
        }
    }
    assert!(engines.contains("gemm_wgmma") || harness::kiln().device().kind() != "sim");
}

/// A product and what is added to it.
fn biased([m, n, k]: [i64; 3], dtype: &str) -> OperationGraph {
    let (math, wide) = if dtype == "i8" { ("i32", "i32") } else { ("f32", "f32") };
    graph(&json!({
        "tensors": [
            { "name": "a", "dtype": dtype, "dims": [m, k] },
            { "name": "b", "dtype": dtype, "dims": [k, n] },
            { "name": "product", "dtype": wide, "dims": [m, n], "virtual": true },
            { "name": "bias", "dtype": wide, "dims": [1, n] },
            { "name": "y", "dtype": wide, "dims": [m, n] },
        ],
        "operations": [
            { "matmul": math, "a": "a", "b": "b", "c": "product" },
            { "pointwise": "add", "inputs": ["product", "bias"], "output": "y" },
        ],
    }))
}

/// What parts pass to each other lies as both have it, whatever is copied; plans are read as they
/// were written, whatever operations they are of.
#[test]
fn parts_around_copies_agree() {
    let device = Some(DeviceChoice::Null("h200".to_owned()));
    let kiln = Kiln::open(Config { device, ..harness::config() }).expect("it opens");
    let with = |more: Value| {
        let mut with = json!({
            "pass": "forward", "dtype": "f16", "n": 32, "c": 64, "k": 64, "image": [56, 56],
            "filter": [3, 3], "pre": [1, 1], "post": [1, 1], "lay": "channels_first",
        });
        with.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        convolution::graph(with)
    };
    let mut copied = 0;
    for graph in [
        convolutions_behind([32, 256, 14], false, false),
        convolutions_behind([32, 256, 14], false, true),
        with(json!({ "beta": 1.0 })),
        with(json!({ "alpha": 0.5 })),
        with(json!({ "fused": "statistics" })),
        with(json!({ "pass": "backward_data", "beta": 0.5 })),
        biased([2048, 768, 50257], "bf16"),
        biased([2048, 4096, 4096], "i8"),
    ] {
        let plan = kiln.plan(&graph).expect("supported");
        let parts: Vec<Part> = plan.parts().into_iter().cloned().collect();
        let document = plan.to_json();
        copied += usize::from(document.contains("\"copies\""));
        let again = kiln.plan_from_json(&document).expect("it is its own");
        assert_eq!(again.to_json(), document);
        let read: Vec<Part> = again.parts().into_iter().cloned().collect();
        assert_eq!(read, parts);
        engine::cuts(&graph, kiln.device().target(), &parts);
        for written in parts.iter().flat_map(|part| part.graph.outputs()) {
            let elsewhere = parts.iter().flat_map(|part| part.graph.inputs());
            for read in elsewhere.filter(|of| of.uid == written.uid) {
                assert_eq!(read.strides, written.strides, "{graph}");
            }
        }
        // What a result is added to is none of the operands.
        let copies = serde_json::from_str::<Value>(&document).unwrap()["copies"].clone();
        let copies = copies.as_array().into_iter().flatten();
        let names: Vec<&str> = copies.map(|of| of[1].as_str().unwrap()).collect();
        assert!(names.iter().all(|name| !name.contains("before")), "{names:?}");
    }
    assert!(copied >= 6, "{copied}");
}

/// Documents that name what cannot be copied are refused, with what it is.
#[test]
fn copies_that_there_are_not_are_refused() {
    let Some(kiln) = harness::simulated("h200") else { return };
    let graph = layer("forward", "f16", 32, [64, 64, 56, 3, 1], "bias_relu");
    let document: Value =
        serde_json::from_str(&kiln.plan(&graph).expect("fits").to_json()).unwrap();
    let copies = document["copies"].as_array().expect("there are some").clone();
    assert_eq!(copies.len(), 2);
    let (convolution, operand) = (copies[0][0].clone(), copies[0][1].clone());
    for (copies, text) in [
        (json!([[convolution, "nobody"]]), "no tensor of the problem is called `nobody`"),
        (json!([["nobody", operand]]), "no operation of the problem writes `nobody`"),
        (json!([[operand, operand]]), "no operation of the problem writes"),
        (json!([[convolution, convolution]]), "has no copy for a product"),
        (json!([]), "no operation of the problem writes"),
        (json!([copies[0]]), "no operation of the problem writes"),
        (json!([copies[0], copies[0], copies[1], copies[1], copies[0]]), ""),
    ] {
        let mut changed = document.clone();
        changed["copies"] = copies;
        match kiln.plan_from_json(&changed.to_string()) {
            Ok(plan) => assert_eq!((text, plan.parts().len()), ("", 3)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::BadParam, "{error}");
                assert!(!text.is_empty() && error.to_string().contains(text), "{error}");
            }
        }
    }
    // Channels last, or a single one.
    let last = convolution::graph(json!({
        "pass": "forward", "dtype": "f16", "n": 2, "c": 8, "k": 8, "image": [9, 9],
        "filter": [3, 3], "lay": "channels_last",
    }));
    let mut document: Value = serde_json::from_str(&kiln.plan(&last).unwrap().to_json()).unwrap();
    let [x, y] = [last.inputs().next(), last.outputs().next()].map(|of| of.unwrap().name.clone());
    document["copies"] = json!([[y, x]]);
    let error = kiln.plan_from_json(&document.to_string()).expect_err("there is no copy");
    assert!(error.to_string().contains("there is no copy of it"), "{error}");
}
