//! ONNX's node tests of Loop, Scan and If as an outside check: `tests/data/onnx/loops.py` says how
//! they are converted, `tests/data/onnx/loops.json` which are left out and why.

use std::collections::BTreeMap;

use kiln::loops::Network;
use kiln::reference;
use serde::Deserialize;

use crate::harness;
use crate::looped;

#[derive(Deserialize)]
struct Index {
    cases: Vec<Case>,
    /// Names by reason.
    skipped: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
    /// Values by name.
    inputs: BTreeMap<String, Vec<f64>>,
    outputs: BTreeMap<String, Vec<f64>>,
}

fn index() -> Index {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/onnx/loops.json");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).expect("the index is well-formed")
}

/// Sums of small integers: every result is exact.
#[test]
fn networks_give_what_onnx_does() {
    let cases = index().cases;
    assert_eq!(cases.len(), 6);
    for Case { name, problem, inputs, outputs } in cases {
        let network = Network::from_json(&problem.to_string());
        let network = network.unwrap_or_else(|error| panic!("{name}: {error}"));
        let named: Vec<(&str, &[f64])> =
            inputs.iter().map(|(name, values)| (name.as_str(), &values[..])).collect();
        let values = looped::by_uid(&network, &named);
        let expected = reference::evaluate_network(&network, &values).unwrap();
        for kiln in harness::dialects() {
            let plan = kiln.build_loops(&network).unwrap();
            let actual = looped::run_plan(kiln, &plan, &values).unwrap();
            for tensor in network.outputs() {
                let wanted = &outputs[&tensor.name];
                assert_eq!(&expected[&tensor.uid].values, wanted, "{name}");
                assert_eq!(&actual[&tensor.uid], wanted, "{name}");
            }
        }
        assert_eq!(network.outputs().count(), outputs.len(), "{name}");
    }
}

/// What sequences of tensors make impossible, and shapes that are computed.
#[test]
fn what_is_left_out_has_a_reason() {
    let skipped = index().skipped;
    let counts: Vec<(&str, usize)> =
        skipped.iter().map(|(reason, names)| (reason.as_str(), names.len())).collect();
    let sequences = "sequences and optional values are no tensors";
    assert_eq!(counts, [(sequences, 10), ("shapes are not computed", 4)]);
}
