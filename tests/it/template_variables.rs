//! Every variable that an engine passes to a template is used by it: a typed struct per template
//! says what there is, rendering fails for what is missing, and this test for what is in excess.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kiln::DType;
use kiln::engine;
use kiln::graph::{MatmulMath, Recurrence};
use kiln::rnn::{CellKind, CellOptions};
use kiln::target::Target;
use serde_json::Value;

use crate::injection::graphs;
use crate::recurrence::{everything, graph as recurrent, layer};

/// Folders of the templates whose variables are structs.
const FOLDERS: [&str; 2] = ["rnn/", "pointwise/"];

const ENGINES: [&str; 7] = [
    "pointwise",
    "pointwise_general",
    "rnn_cta",
    "rnn_cluster",
    "rnn_grid",
    "rnn_stream",
    "rnn_step",
];

/// The words in the tags of a template and of what it includes.
fn words(template: &str, found: &mut BTreeSet<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let text = fs::read_to_string(root.join(format!("{template}.tera"))).unwrap();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let end = if rest[at..].starts_with("{{") { "}}" } else { "%}" };
        let (tag, behind) = rest[at..].split_once(end).unwrap();
        if let Some(included) = tag.split_once("include \"") {
            words(included.1.split_once('"').unwrap().0, found);
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        found.extend(tag.split(|c| !is_word(c)).map(str::to_owned));
        rest = behind;
    }
}

/// The names of all fields of an object and what is in it.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.keys().cloned());
            fields.values().for_each(|value| names(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn every_variable_is_used() {
    let mut passed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let options = CellOptions { projected: true, peephole: true, ..CellOptions::default() };
    let lstm = layer(CellKind::Lstm, options, MatmulMath::F32, [8, 64]);
    let lstm = Recurrence { with: everything(CellKind::Lstm), ..lstm };
    let lstm = recurrent(&lstm, 5, DType::F16);
    for target in ["t4", "h200"].map(|name| Target::named(name).unwrap()) {
        for graph in graphs().into_iter().map(|(graph, _)| graph).chain([lstm.clone()]) {
            for engine in ENGINES {
                let Ok(supported) = engine::supported(engine, graph.canonical(), &target) else {
                    continue;
                };
                let lowering = supported.lower(&supported.heuristic()).unwrap();
                let own = lowering.kernels.iter().map(|kernel| &kernel.spec);
                for spec in
                    own.filter(|spec| FOLDERS.iter().any(|of| spec.template.starts_with(of)))
                {
                    names(&spec.parameters, passed.entry(spec.template).or_default());
                }
            }
        }
    }
    let found: Vec<&str> = passed.keys().copied().collect();
    let all = [
        "pointwise/sm75_pointwise.cu",
        "pointwise/sm75_pointwise_general.cu",
        "rnn/sm75_rnn_cell.cu",
        "rnn/sm75_rnn_prepack_simt.cu",
        "rnn/sm75_rnn_simt.cu",
        "rnn/sm80_rnn_mma.cu",
        "rnn/sm80_rnn_prepack_mma.cu",
    ];
    assert_eq!(found, all);
    for (template, passed) in passed {
        let mut used = BTreeSet::new();
        words(template, &mut used);
        let unused: Vec<&String> = passed.difference(&used).collect();
        assert_eq!(unused, [""; 0], "{template}");
    }
}
