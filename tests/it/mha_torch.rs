//! Gradients of `torch.nn.MultiheadAttention`: `tests/data/mha/torch_gradients.py` ran it. Layers
//! are read from documents, as `kiln run` reads them.

use std::path::PathBuf;

use kiln::attention::AttentionCall;
use kiln::frontend::FrontEnd;
use kiln::{Kiln, TensorDesc, plan, reference};
use serde::Deserialize;

use crate::harness::{self, Values};
use crate::mha_vectors::TOLERANCE;

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
}

impl Case {
    /// Tensors of the case in the container, by uid.
    fn values(&self, tensors: &[TensorDesc]) -> Values {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/mha");
        let name = |tensor: &TensorDesc| format!("{}/{}", self.name, tensor.name);
        let named = tensors.iter().map(|of| TensorDesc { name: name(of), ..of.clone() });
        let named: Vec<TensorDesc> = named.collect();
        let values = plan::read_values(&path.join("torch.safetensors"), named.iter());
        values.expect("the container has the case's tensors")
    }

    /// Panics where the results of the layer's graphs, on a device or by the reference, are not
    /// torch's.
    fn check(&self, kiln: Option<&Kiln>) {
        let problem = AttentionCall::from_json(&self.problem.to_string()).expect("valid");
        let named = self.values(&problem.named_inputs());
        let mut state = problem.initial_values(named).expect("they fit");
        for (at, graph) in problem.graphs().into_iter().enumerate() {
            let inputs = problem.inputs(at, &state);
            let results = match kiln {
                Some(kiln) => harness::run(kiln, graph, None, &inputs).expect("it runs"),
                None => {
                    let expected = reference::evaluate(graph, &inputs).expect("inputs fit");
                    expected.into_iter().map(|(uid, expected)| (uid, expected.values)).collect()
                }
            };
            problem.store(at, &results, &mut state);
        }
        let (outputs, actual) = (problem.named_outputs(), problem.named_values(&state));
        let wanted = self.values(&outputs);
        for tensor in outputs {
            for (at, actual) in actual[&tensor.uid].iter().enumerate() {
                let wanted = wanted[&tensor.uid][at];
                assert!(
                    (actual - wanted).abs() <= TOLERANCE,
                    "{}: {tensor}: element {at} is {actual}, expected {wanted}",
                    self.name
                );
            }
        }
    }
}

#[test]
fn multihead_attention_has_the_gradients_of_torch() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../data/mha/torch.json")).expect("well-formed");
    assert_eq!(cases.len(), 6);
    for (at, case) in cases.iter().enumerate() {
        case.check(None);
        harness::dialects_by_turns(at).into_iter().for_each(|kiln| case.check(Some(kiln)));
    }
}
