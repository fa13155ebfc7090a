//! Recurrent networks through C: torch's outputs and gradients, which are those that the Rust
//! interface is held to.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln::graph::{Direction, RowLayout};
use kiln::rnn::{BiasMode, CellKind, HostTensor, Rnn, WeightKind, WeightSpace};
use kiln::{DType, TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{compile, scratch, succeed};

const BATCH: i64 = 3;
const STEPS: i64 = 4;

#[derive(Deserialize)]
struct Case {
    name: String,
    cell: String,
    input_size: i64,
    hidden_size: i64,
    layers: i64,
    both: bool,
    bias: bool,
    layout: String,
    projection_size: i64,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/rnn")
}

impl Case {
    fn rnn(&self) -> Rnn {
        let kind = CellKind::ALL.into_iter().find(|kind| kind.name() == self.cell).unwrap();
        let direction = if self.both { Direction::Both } else { Direction::Forward };
        let bias = if self.bias { BiasMode::Double } else { BiasMode::None };
        let rnn = Rnn::new(kind, self.input_size, self.hidden_size).layers(self.layers);
        let rnn = rnn.direction(direction).bias(bias).dtype(DType::F64);
        match self.projection_size {
            0 => rnn,
            size => rnn.projection(size),
        }
    }

    fn projected(&self) -> i64 {
        if self.projection_size == 0 { self.hidden_size } else { self.projection_size }
    }

    /// A tensor of the container, if it is there.
    fn values(&self, name: &str, dims: &[i64]) -> Option<Vec<f64>> {
        let dtype = if name == "lengths" { DType::I32 } else { DType::F64 };
        let tensor = TensorDesc::packed(1, format!("{}/{name}", self.name), dims, dtype);
        let file = data().join("gradients.safetensors");
        plan::read_values(&file, std::iter::once(&tensor)).ok()?.remove(&1)
    }

    fn lengths(&self) -> Vec<i64> {
        match self.values("lengths", &[BATCH]) {
            Some(lengths) => lengths.into_iter().map(|length| length as i64).collect(),
            None => vec![STEPS; BATCH as usize],
        }
    }

    /// The weight space from torch's parameters, or from their gradients.
    fn weights(&self, prefix: &str) -> Vec<f64> {
        let rnn = self.rnn();
        let space = WeightSpace::new(&rnn).unwrap();
        let mut shapes = HashMap::new();
        for layer in 0..space.pseudo_layers() {
            for kind in WeightKind::ALL {
                let Some(block) = space.block(layer, kind) else { continue };
                let vector = matches!(kind, WeightKind::InputBias | WeightKind::RecurrentBias);
                let dims = if vector { vec![block.rows] } else { vec![block.rows, block.columns] };
                shapes.insert(rnn.torch_name(layer, kind), dims);
            }
        }
        rnn.from_torch(|name| {
            let dims = shapes.get(name)?;
            Some(HostTensor::new(dims, self.values(&format!("{prefix}{name}"), dims)?))
        })
        .unwrap()
    }
}

fn write(folder: &Path, name: &str, values: &[f64]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(folder.join(name), bytes).unwrap();
}

fn expect(case: &Case, folder: &Path, name: &str, wanted: &[f64]) {
    let bytes = fs::read(folder.join(name)).unwrap();
    let values: Vec<f64> =
        bytes.as_chunks::<8>().0.iter().map(|of| f64::from_le_bytes(*of)).collect();
    assert_eq!(values.len(), wanted.len(), "{}: {name}", case.name);
    for (at, (value, wanted)) in values.iter().zip(wanted).enumerate() {
        // Sums of a few dozen products in f64, in another order than torch's.
        let off = (value - wanted).abs();
        let bound = 1e-12 * (1.0 + wanted.abs());
        assert!(off <= bound, "{}: {name}[{at}] is {value}, torch has {wanted}", case.name);
    }
}

#[test]
fn torch_gradients() {
    let program = compile("rnn");
    let cases: Vec<Case> =
        serde_json::from_str(&fs::read_to_string(data().join("gradients.json")).unwrap()).unwrap();
    let mut checked = 0;
    for case in &cases {
        let cell = ["relu", "tanh", "lstm", "gru"].iter().position(|of| *of == case.cell);
        // The documents have neither oneDNN's cells nor projections of others.
        let Some(cell) = cell else { continue };
        let folder = scratch(&format!("recurrent/{}", case.name));
        let directions = if case.both { 2 } else { 1 };
        let layouts = [RowLayout::SequenceMajor, RowLayout::Packed, RowLayout::BatchMajor];
        let layout = layouts.iter().position(|of| of.name() == case.layout).unwrap();
        let lengths = case.lengths();
        let packed = layouts[layout] == RowLayout::Packed;
        let rows = if packed { lengths.iter().sum() } else { BATCH * STEPS };
        let (input, width) = (case.input_size, case.projected() * directions);
        let vectors = |size: i64| match layouts[layout] {
            RowLayout::Packed => vec![rows, size],
            RowLayout::BatchMajor => vec![BATCH, STEPS, size],
            RowLayout::SequenceMajor => vec![STEPS, BATCH, size],
        };
        let states = case.layers * directions;
        let h = vec![states, BATCH, case.projected()];
        let c = vec![states, BATCH, case.hidden_size];
        let zero = |dims: &[i64]| vec![0.0; dims.iter().product::<i64>() as usize];
        let x = vectors(input);
        let inputs = [
            ("x", "input", &x),
            ("hx", "h_0", &h),
            ("cx", "c_0", &c),
            ("dy", "d_output", &vectors(width)),
            ("dhy", "d_h_n", &h),
            ("dcy", "d_c_n", &c),
        ];
        for (file, name, dims) in inputs {
            write(&folder, file, &case.values(name, dims).unwrap_or_else(|| zero(dims)));
        }
        write(&folder, "weights", &case.weights(""));
        let mut arguments: Vec<String> = vec![folder.display().to_string()];
        let numbers = [
            1,
            cell as i64,
            case.layers,
            directions - 1,
            input,
            case.hidden_size,
            case.projected(),
            BATCH,
            STEPS,
            layout as i64,
            1,
            if case.bias { 2 } else { 0 },
        ];
        arguments.extend(numbers.iter().chain(&lengths).map(|number| number.to_string()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        succeed(&program, &arguments);
        let outputs = [
            ("y", "output", &vectors(width)),
            ("hy", "h_n", &h),
            ("cy", "c_n", &c),
            ("dx", "d_input", &x),
            ("dhx", "d_h_0", &h),
            ("dcx", "d_c_0", &c),
        ];
        for (file, name, dims) in outputs {
            if let Some(wanted) = case.values(name, dims.as_slice()) {
                expect(case, &folder, file, &wanted);
                checked += 1;
            }
        }
        expect(case, &folder, "dweights", &case.weights("d_"));
    }
    assert!(checked > 20, "{checked} tensors were there to compare with");
}
