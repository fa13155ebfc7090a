//! CTC losses through C, with labels in host and in device memory: torch's losses and gradients.

use std::fs;
use std::path::{Path, PathBuf};

use kiln::plan::{self, Problem};
use kiln::{TensorDesc, reference};
use serde::Deserialize;
use serde_json::Value;

use crate::harness::{compile, scratch, succeed};

/// What gradients hold before a call.
const BEFORE: f32 = 0.5;

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: Value,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/graphs")
}

fn write<const N: usize>(folder: &Path, name: &str, values: impl Iterator<Item = [u8; N]>) {
    let bytes: Vec<u8> = values.flatten().collect();
    fs::write(folder.join(name), bytes).unwrap();
}

fn floats(folder: &Path, name: &str) -> Vec<f64> {
    let bytes = fs::read(folder.join(name)).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|of| f32::from_le_bytes(*of).into()).collect()
}

/// Compares with torch's, from which both may be off as far as an implementation may be.
fn expect(what: &str, own: &[f64], torch: &[f64], bounds: &[f64]) {
    assert_eq!(own.len(), torch.len(), "{what}");
    for (at, ((own, torch), bound)) in own.iter().zip(torch).zip(bounds).enumerate() {
        let bound = 2.0 * bound + f64::from(f32::EPSILON) * torch.abs();
        let same = own == torch || (own - torch).abs() <= bound;
        assert!(same, "{what}: {own} at {at}, torch has {torch} +- {bound}");
    }
}

#[test]
fn torch_losses() {
    let program = compile("ctc");
    let text = fs::read_to_string(data().join("ctc.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    let mut checked = 0;
    for Case { name, problem } in &cases {
        let operation = &problem["graph"]["operations"][0];
        let normalization = match operation["ctc_loss"].as_str() {
            Some("probabilities") => "0",
            Some("logits") => "1",
            _ => continue,
        };
        // Blank is 0 in C, and what is no number is given by the descriptor.
        let other =
            ["blank", "infinite", "math"].into_iter().any(|key| operation.get(key).is_some());
        if other {
            continue;
        }
        let problem = Problem::from_json(&problem.to_string()).unwrap();
        let graph = problem.only_graph().unwrap();
        let named =
            |of: &TensorDesc| TensorDesc { name: format!("{name}/{}", of.name), ..of.clone() };
        let all: Vec<TensorDesc> = graph.inputs().chain(graph.outputs()).map(named).collect();
        let values = plan::read_values(&data().join("ctc.safetensors"), all.iter()).unwrap();
        let of = |slot: &str| &values[&graph.tensor_named(slot).unwrap().uid];
        let dims = &graph.tensor_named("x").unwrap().dims;
        let (rows, row) = (of("labels").len() / dims[1] as usize, of("label_lengths"));
        let concatenated = graph.tensor_named("labels").unwrap().dims.len() == 1;
        let labels: Vec<f64> = match concatenated {
            true => of("labels").clone(),
            false => {
                let own = of("labels").chunks(rows.max(1)).zip(row);
                own.flat_map(|(row, length)| &row[..*length as usize]).copied().collect()
            }
        };
        let folder = scratch(&format!("ctc/{name}"));
        let integer = |value: &f64| (*value as i32).to_le_bytes();
        write(&folder, "labels", labels.iter().map(integer));
        for lengths in ["label_lengths", "input_lengths"] {
            write(&folder, lengths, of(lengths).iter().map(integer));
        }
        write(&folder, "x", of("x").iter().map(|value| (*value as f32).to_le_bytes()));
        write(&folder, "before", of("x").iter().map(|_| BEFORE.to_le_bytes()));
        let bounds = reference::evaluate(graph, &values).unwrap();
        let bounds = |slot: &str| &bounds[&graph.tensor_named(slot).unwrap().uid].bounds;
        for (propagate, infinite, held) in [("0", 0.0, 0.0), ("1", f64::INFINITY, BEFORE.into())] {
            let numbers = dims.iter().map(i64::to_string).chain([labels.len().to_string()]);
            let mut arguments = vec![folder.display().to_string()];
            arguments
                .extend([normalization, propagate].map(str::to_owned).into_iter().chain(numbers));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            succeed(&program, &arguments);
            let losses =
                of("loss").iter().map(|loss| if loss.is_finite() { *loss } else { infinite });
            let losses: Vec<f64> = losses.collect();
            // The whole of a gradient is as before, steps beyond the input too.
            let [batch, classes] = [dims[1], dims[2]].map(|of| of as usize);
            let gradient = |(at, dx): (usize, &f64)| {
                let loss = of("loss")[at / classes % batch];
                if loss.is_finite() { *dx } else { held }
            };
            let gradients: Vec<f64> = of("dx").iter().enumerate().map(gradient).collect();
            let what = format!("{name}, propagate {propagate}");
            for costs in ["host_costs", "alone_costs", "device_costs"] {
                expect(
                    &format!("{what}: {costs}"),
                    &floats(&folder, costs),
                    &losses,
                    bounds("loss"),
                );
            }
            for file in ["host_gradients", "device_gradients"] {
                expect(
                    &format!("{what}: {file}"),
                    &floats(&folder, file),
                    &gradients,
                    bounds("dx"),
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} losses");
}
