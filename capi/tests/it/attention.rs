//! Multi-head attention through C: outputs and gradients of torch.

use std::fs;
use std::path::{Path, PathBuf};

use kiln::attention::{AttentionCall, AttentionRole, AttentionWeightKind, AttentionWeights};
use kiln::frontend::FrontEnd;
use kiln::plan::Values;
use kiln::{TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{compile, scratch, succeed};

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
}

/// The integers of a problem that the program is told.
#[derive(Deserialize)]
struct Layer {
    heads: i64,
    q_size: i64,
    k_size: i64,
    v_size: i64,
    biases: bool,
    batch: i64,
    queries: i64,
    keys: i64,
    layout: Vec<String>,
}

/// A sum of a few dozen terms in f64, in another order than torch's.
const TOLERANCE: f64 = 1e-12;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/mha")
}

impl Case {
    fn values(&self, tensors: &[TensorDesc]) -> Values {
        let name = |tensor: &TensorDesc| format!("{}/{}", self.name, tensor.name);
        let named = tensors.iter().map(|of| TensorDesc { name: name(of), ..of.clone() });
        let named: Vec<TensorDesc> = named.collect();
        let values = plan::read_values(&data().join("torch.safetensors"), named.iter());
        values.expect("the container has the case's tensors")
    }
}

fn read(folder: &Path, name: &str) -> Vec<f64> {
    let bytes = fs::read(folder.join(name)).unwrap();
    bytes.as_chunks::<8>().0.iter().map(|of| f64::from_le_bytes(*of)).collect()
}

#[test]
fn torch_gradients() {
    let program = compile("attention");
    let text = fs::read_to_string(data().join("torch.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    for case in &cases {
        let folder = scratch(&format!("attention/{}", case.name));
        let problem = AttentionCall::from_json(&case.problem.to_string()).unwrap();
        let state = problem.initial_values(case.values(&problem.named_inputs())).unwrap();
        let files = [
            ("q", AttentionRole::Queries),
            ("k", AttentionRole::Keys),
            ("v", AttentionRole::Values),
            ("weights", AttentionRole::Weights),
            ("dout", AttentionRole::OutputGradient),
        ];
        for (file, role) in files {
            let values = &state[&(role as i64)];
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            fs::write(folder.join(file), bytes).unwrap();
        }
        let integers = [
            ("q_lengths", AttentionRole::QueryLengths),
            ("k_lengths", AttentionRole::KeyLengths),
            ("low", AttentionRole::LowWindow),
            ("high", AttentionRole::HighWindow),
        ];
        for (file, role) in integers {
            let values = &state[&(role as i64)];
            let bytes = values.iter().flat_map(|value| (*value as i32).to_le_bytes());
            fs::write(folder.join(file), bytes.collect::<Vec<u8>>()).unwrap();
        }
        let layer: Layer = serde_json::from_value(case.problem["mha"].clone()).unwrap();
        let axis = |name: &String| ["time", "batch", "beam"].iter().position(|of| of == name);
        let mut numbers = vec![
            i64::from(layer.biases),
            layer.heads,
            layer.q_size,
            layer.k_size,
            layer.v_size,
            layer.batch,
            layer.queries,
            layer.keys,
        ];
        numbers.extend(layer.layout.iter().map(|name| axis(name).unwrap() as i64));
        let mut arguments = vec![folder.display().to_string()];
        arguments.extend(numbers.iter().map(|number| number.to_string()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        succeed(&program, &arguments);

        let outputs = problem.named_outputs();
        let wanted = case.values(&outputs);
        let layout = AttentionWeights::new(&problem.layer.descriptor).unwrap();
        let gradients = read(&folder, "dweights");
        for tensor in &outputs {
            let own: Vec<f64> = match tensor.name.as_str() {
                "output" => read(&folder, "out"),
                "query_gradients" => read(&folder, "dq"),
                "key_gradients" => read(&folder, "dk"),
                "value_gradients" => read(&folder, "dv"),
                name => {
                    let of = |kind: &AttentionWeightKind| format!("{}_gradient", kind.name());
                    let kind = AttentionWeightKind::ALL.into_iter().find(|kind| of(kind) == name);
                    let slice = layout.get(kind.unwrap(), u64::MAX).unwrap().unwrap();
                    let slots = TensorDesc { strides: slice.strides.to_vec(), ..tensor.clone() };
                    slots.offsets().map(|at| gradients[slice.offset as usize + at]).collect()
                }
            };
            let wanted = &wanted[&tensor.uid];
            assert_eq!(own.len(), wanted.len(), "{}: {}", case.name, tensor.name);
            for (at, (own, wanted)) in own.iter().zip(wanted).enumerate() {
                let (case, name) = (&case.name, &tensor.name);
                assert!(
                    (own - wanted).abs() <= TOLERANCE,
                    "{case}: {name}[{at}] is {own}, torch has {wanted}"
                );
            }
        }
    }
}
