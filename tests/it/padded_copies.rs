//! Convolutions of images of few channels behind copies with padding: pixels with room for more
//! channels, in rows that have their padding, so that taps of a row are read as channels. Layers as
//! small as these would not read them: plans say so.

use kiln::device::DeviceChoice;
use kiln::engine::{self, Part, Selection};
use kiln::graph::{ConvolutionPass, Op, Window};
use kiln::target::Target;
use kiln::{Config, Kiln, OperationGraph, TensorDesc};
use serde_json::{Value, json};

use crate::harness::Values;
use crate::{convolution, harness};

const TARGETS: [&str; 6] = ["t4", "a100", "l40s", "h200", "b200", "rtx5090"];

/// A plan whose convolution reads such copies.
pub struct Padded {
    pub engine: String,
    pub document: Value,
}

/// Plans of a graph with one convolution on such copies, one for each engine that runs it; none
/// where there are no such copies. What copies look like is said here once more, by itself.
pub fn padded(kiln: &Kiln, graph: &OperationGraph) -> Vec<Padded> {
    let is_convolution = |of: &&kiln::graph::Operation| matches!(of.op, Op::Convolution(_));
    let own = graph.operations().iter().find(is_convolution).expect("there is one");
    let Op::Convolution(op) = &own.op else { return vec![] };
    let tensor = |uid: i64| graph.tensor(uid).expect("it is the graph's").clone();
    let [x, second, result] = [own.inputs[0], own.inputs[1], own.outputs[0]].map(tensor);
    let is_forward = op.pass == ConvolutionPass::Forward;
    let [w, y] = if is_forward { [second, result] } else { [result, second] };
    if op.pass == ConvolutionPass::BackwardData || x.dims[1] != w.dims[1] {
        return vec![];
    }
    let last = x.dims.len() - 1;
    let window = &op.window;
    let (stride, whole) = (window.filter_strides[last - 2], 16 / x.dtype.bytes() as i64);
    let up = |number: i64, of: i64| (number + of - 1) / of * of;
    let mut rooms = x.dims[1]..=whole.min(4 * x.dims[1]);
    let room = rooms.find(|of| stride * of % whole == 0);
    let is_few = x.dims[1] < whole && whole > 2 && window.dilations[last - 2] == 1;
    let Some(room) = room.filter(|_| is_few) else { return vec![] };
    let fills = |taps: &i64| is_forward || taps * room % whole == 0;
    let taps = (w.dims[last]..).find(fills).expect("eight do");
    let columns = (y.dims[last] - 1) * stride + taps;
    let with = |of: &TensorDesc, extent: i64| {
        let mut own = TensorDesc { alignment: 256, ..of.clone() };
        (own.dims[1], own.dims[last]) = (room, extent);
        (own.strides[1], own.strides[last]) = (1, room);
        let mut step = up(extent * room, whole);
        for axis in (2..last).rev().chain([0]) {
            own.strides[axis] = step;
            step *= own.dims[axis];
        }
        own
    };
    let (image, filter) = (with(&x, columns), with(&w, taps));
    let is_padded = window.pre_paddings[last - 2] > 0 || columns > x.dims[last];
    if room == x.dims[1] && !is_padded {
        return vec![];
    }
    let mut alike = op.clone();
    let Window { pre_paddings, post_paddings, .. } = &mut alike.window;
    (pre_paddings[last - 2], post_paddings[last - 2]) = (0, 0);
    let named = |of: &TensorDesc| match of.uid {
        uid if uid == image.uid => image.clone(),
        uid if uid == filter.uid => filter.clone(),
        _ => of.clone(),
    };
    let tensors = graph.tensors().iter().map(named).collect();
    let mut operations = graph.operations().to_vec();
    let at = operations.iter().position(|of| of == own).expect("it is one of them");
    operations[at].op = Op::Convolution(alike);
    let product = OperationGraph::new(tensors, operations).expect("it is a convolution");
    let target = kiln.device().target();
    let mut engines: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for choice in engine::choices(product.canonical(), target, &Selection::default())
        .expect("some engine runs it")
    {
        if engines.contains(&choice.config.engine.to_string()) {
            continue;
        }
        engines.push(choice.config.engine.to_string());
        let mut document: Value =
            serde_json::from_str(&kiln.plan(graph).expect("supported").to_json()).unwrap();
        let seen = |of: &TensorDesc, how: &str| format!("{}_{how}_{at}", of.name);
        let copy = |of: &TensorDesc| {
            let writes = ["planes", "padded"].map(|how| seen(of, how));
            json!({ "config": "resample_direct{items=1, threads=128}", "writes": writes })
        };
        let config = choice.config.to_string();
        let parts = if is_forward {
            let wide = [&x, &w].map(|of| json!(seen(of, "wide")));
            let writes = [&wide[..], &plan_writes(&document)].concat();
            vec![copy(&x), copy(&w), json!({ "config": config, "writes": writes })]
        } else {
            let cut = "pointwise_general{index=32, rank=8}";
            vec![
                copy(&x),
                json!({ "config": config, "writes": [seen(&x, "wide"), seen(&w, "whole")] }),
                json!({ "config": cut, "writes": [w.name] }),
            ]
        };
        document.as_object_mut().expect("it is one").remove("copies");
        document["padded_copies"] = json!([if is_forward { &y.name } else { &w.name }]);
        document["parts"] = json!(parts);
        all.push(Padded { engine: choice.config.engine.to_string(), document });
    }
    all
}

/// What the parts of a plan write.
fn plan_writes(document: &Value) -> Vec<Value> {
    let parts = document["parts"].as_array().expect("it has parts");
    let own = parts.iter().flat_map(|part| part["writes"].as_array().expect("each writes"));
    own.cloned().collect()
}

/// A layer: images, channels of them and of the response, extents, filter, strides, paddings.
fn layer(
    pass: &str,
    dtype: &str,
    [n, c, k]: [i64; 3],
    of: [[i64; 2]; 4],
    more: Value,
) -> OperationGraph {
    let [image, filter, strides, paddings] = of;
    let mut own = json!({
        "pass": pass, "dtype": dtype, "n": n, "c": c, "k": k, "image": image, "filter": filter,
        "strides": strides, "pre": paddings, "post": paddings,
    });
    own.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    convolution::graph(own)
}

fn parts(graph: &OperationGraph, target: &str) -> Vec<Part> {
    let target = Target::named(target).expect("known");
    engine::partition(graph, &target, &Selection::default()).expect("supported")
}

/// Values, of the image some that are no numbers: neighbours of what reads them stay numbers.
fn inputs(graph: &OperationGraph, are_numbers: bool) -> Values {
    let mut all: Values =
        graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 7, 1.0))).collect();
    let image =
        all.get_mut(&graph.tensor_named("x").expect("it has one").uid).expect("it is an input");
    if !are_numbers {
        let count = image.len();
        (image[count / 3], image[count - 2]) = (f64::INFINITY, f64::NAN);
    }
    all
}

/// Strides, taps that fill vectors and that do not, paddings, channels, types, lays, what is fused,
/// both passes, on every engine of every class of target.
#[test]
fn convolutions_of_padded_copies_are_those_of_the_graph() {
    let layers = [
        ([2, 3, 8], [[13, 15], [7, 7], [2, 2], [3, 3]]),
        ([1, 3, 12], [[9, 10], [3, 3], [1, 1], [1, 1]]),
        ([2, 1, 9], [[12, 11], [5, 5], [1, 2], [2, 2]]),
        ([3, 3, 16], [[9, 14], [4, 4], [4, 4], [0, 0]]),
        ([1, 3, 24], [[29, 30], [14, 14], [14, 14], [0, 0]]),
        ([2, 2, 5], [[8, 17], [1, 6], [3, 5], [0, 4]]),
        ([1, 5, 33], [[6, 9], [2, 1], [1, 2], [1, 0]]),
    ];
    let mut ran = 0;
    for (at, (sizes, of)) in layers.into_iter().enumerate() {
        for (turn, target) in TARGETS.into_iter().enumerate() {
            let seed = (at + turn) as u64;
            if seed % 2 == 1 && !harness::all_are_wanted() {
                continue;
            }
            let Some(kiln) = harness::simulated_by_turns(target, seed) else { continue };
            let dtype =
                if target == "t4" { "f16" } else { ["f16", "bf16", "f32"][seed as usize % 3] };
            let lay = ["channels_first", "channels_last"][(at + turn / 2) % 2];
            let fused = ["nothing", "bias_relu"][(at / 2 + turn) % 2];
            for (pass, fused) in [("forward", fused), ("backward_filter", "nothing")] {
                let graph = layer(pass, dtype, sizes, of, json!({ "lay": lay, "fused": fused }));
                for Padded { engine, document } in padded(kiln, &graph) {
                    let what = format!("{target}: {engine}: {pass} {dtype} {lay} {sizes:?} {of:?}");
                    let plan = kiln.plan_from_json(&document.to_string());
                    let plan = plan.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(plan.parts().len(), 3, "{what}");
                    let again: Value = serde_json::from_str(&plan.to_json()).unwrap();
                    assert_eq!(again["padded_copies"], document["padded_copies"], "{what}");
                    let inputs = inputs(&graph, (at + turn / 2) % 3 != 0);
                    let results = harness::run_plan(kiln, &plan, &inputs).expect("runs");
                    harness::compare(&graph, &inputs, &results, &what);
                    ran += 1;
                }
            }
        }
    }
    assert!(ran == 0 || ran > 60, "{ran}");
}

/// Plans are read as they were written: of two layers whose names are alike, of one whose image
/// others read, of copies of either kind.
#[test]
fn plans_of_padded_copies_are_read_as_they_were_written() {
    let device = Some(DeviceChoice::Null("h200".to_owned()));
    let kiln = Kiln::open(Config { device, ..harness::config() }).expect("it opens");
    let stem = |x: &str, y: &str| {
        let window = json!({
            "filter_strides": [2, 2], "pre_paddings": [3, 3], "post_paddings": [3, 3],
        });
        let mut own = json!({ "convolution_forward": "f32", "x": x, "w": "w", "y": y });
        own.as_object_mut().unwrap().extend(window.as_object().unwrap().clone());
        own
    };
    let tensor = |name: &str, dims: [i64; 4]| json!({ "name": name, "dtype": "f16", "dims": dims });
    let image = [32, 3, 224, 224];
    let response = [32, 64, 112, 112];
    let mut padded = 0;
    for images in [["a", "a"], ["a", "a_padded_0"]] {
        let mut tensors = vec![tensor("w", [64, 3, 7, 7])];
        tensors.extend(
            images[..1 + usize::from(images[0] != images[1])].iter().map(|of| tensor(of, image)),
        );
        let results = ["a_padded_1", "a_wide_0"];
        tensors.extend(results.map(|name| tensor(name, response)));
        let operations = [0, 1].map(|at| stem(images[at], results[at]));
        let problem = json!({ "graph": { "tensors": tensors, "operations": operations } });
        let graph = OperationGraph::from_json(&problem.to_string()).expect("it is legal");
        let plan = kiln.plan(&graph).expect("supported");
        let document = plan.to_json();
        let again = kiln.plan_from_json(&document).expect("it is its own");
        assert_eq!(again.to_json(), document);
        let read: Value = serde_json::from_str(&document).unwrap();
        padded += read["padded_copies"].as_array().map_or(0, Vec::len);
    }
    assert_eq!(padded, 4);
    // Both kinds at once, or of what has none.
    let graph =
        layer("forward", "f16", [32, 3, 64], [[224, 224], [7, 7], [2, 2], [3, 3]], json!({}));
    let document: Value = serde_json::from_str(&kiln.plan(&graph).unwrap().to_json()).unwrap();
    for (copies, padded, text) in [
        (json!([["y", "x"]]), json!(["y"]), "is of a product that reads a padded copy"),
        (json!([]), json!(["y", "y"]), ""),
        (json!([["y", "x"], ["y", "w"]]), json!([]), "no operation of the problem writes"),
        (json!([]), json!(["x"]), "no operation of the problem writes `x`"),
    ] {
        let mut changed = document.clone();
        (changed["copies"], changed["padded_copies"]) = (copies, padded);
        match kiln.plan_from_json(&changed.to_string()) {
            Ok(plan) => assert_eq!((text, plan.parts().len()), ("", 3)),
            Err(error) => {
                assert!(!text.is_empty() && error.to_string().contains(text), "{error}");
            }
        }
    }
}

/// Filters of more taps than numbers go to are planned at once.
#[test]
fn huge_filters_are_planned() {
    let target = Target::named("h200").expect("known");
    for (dtype, taps) in [("f16", 1 << 60), ("i8", (1 << 61) - 1), ("f32", 1 << 59)] {
        let tensor = |name: &str, last: i64| {
            let dims = [1, 1, 1, last];
            json!({ "name": name, "dtype": dtype, "dims": dims })
        };
        let graph = json!({
            "tensors": [tensor("x", 4), tensor("dw", taps), tensor("dy", 5)],
            "operations": [{
                "convolution_backward_filter": "f32", "x": "x", "dy": "dy", "dw": "dw",
                "filter_strides": [1, 1], "pre_paddings": [0, taps], "post_paddings": [0, 0],
            }],
        });
        let graph = OperationGraph::from_json(&json!({ "graph": graph }).to_string());
        let graph = graph.expect("it is legal");
        let parts = engine::partition(&graph, &target, &Selection::default());
        assert!(parts.is_ok_and(|parts| parts.len() == 1), "{dtype} {taps}");
    }
}

/// The first layers of networks, and what they read.
#[test]
fn first_layers_read_padded_copies_where_that_pays() {
    let mut lines = Vec::new();
    for (name, sizes, of) in [
        ("resnet", [32, 3, 64], [[224, 224], [7, 7], [2, 2], [3, 3]]),
        ("vgg", [32, 3, 64], [[224, 224], [3, 3], [1, 1], [1, 1]]),
        ("mobilenet", [32, 3, 32], [[224, 224], [3, 3], [2, 2], [1, 1]]),
        ("convnext", [32, 3, 96], [[224, 224], [4, 4], [4, 4], [0, 0]]),
        ("vit-14", [32, 3, 1024], [[224, 224], [14, 14], [14, 14], [0, 0]]),
        ("latents", [4, 4, 320], [[64, 64], [3, 3], [1, 1], [1, 1]]),
        ("digits", [32, 1, 32], [[28, 28], [5, 5], [1, 1], [0, 0]]),
    ] {
        for lay in ["channels_first", "channels_last"] {
            for pass in ["forward", "backward_filter"] {
                for target in TARGETS {
                    let graph = layer(pass, "f16", sizes, of, json!({ "lay": lay }));
                    let parts = parts(&graph, target);
                    let written = parts.iter().flat_map(|part| part.graph.outputs());
                    let made = written.filter(|of| graph.tensor(of.uid).is_err());
                    let made: Vec<&str> = made.map(|of| of.name.as_str()).collect();
                    let products = parts.iter().map(|part| part.config.engine.as_ref());
                    let product = products.clone().find(|of| of.starts_with("gemm"));
                    let product = product.or(products.clone().next_back()).expect("there is one");
                    let made = made.join(", ");
                    lines.push(format!("{name} {lay} {pass} {target}: {product} of {made}"));
                }
            }
        }
    }
    crate::golden::assert_golden("copies_of_images", &lines.join("\n"));
}
