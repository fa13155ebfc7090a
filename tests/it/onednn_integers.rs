//! LSTM of 8-bit integers as oneDNN 3.2 computes it (`tests/data/onednn/vectors.py`).
//!
//! The vectors are from a CPU with AVX2 alone, where that library has two habits of its own. Its
//! instruction adds pairs of products with saturation in 16 bits: sequences in which a pair exceeds
//! those are left out. And signed states are cut off at 0: so is that of the cell here.

use std::path::PathBuf;
use std::sync::Arc;

use kiln::graph::{Direction, Quantization};
use kiln::reference::{self, Expected};
use kiln::rnn::{
    BiasMode, Extent, HostTensor, Network, OneDnnWeights, Optional, Rnn, RnnCell, Role, WeightKind,
    WeightRow,
};
use kiln::{DType, TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{self, Values};
use crate::rnn_own_cells::cut_off_lstm;

#[derive(Deserialize)]
struct Case {
    name: String,
    direction: String,
    input: i64,
    hidden: i64,
    steps: i64,
    batch: i64,
    data_scale: Option<f64>,
    #[serde(default)]
    data_shift: i64,
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../data/onednn/rnn.json")).expect("well-formed");
    cases.into_iter().filter(|case| case.data_scale.is_some()).collect()
}

impl Case {
    fn is_signed(&self) -> bool {
        self.name.starts_with("int8_i8")
    }

    fn directions(&self) -> i64 {
        if self.direction.starts_with("bidirectional") { 2 } else { 1 }
    }

    fn quantization(&self) -> Quantization {
        Quantization::new(self.data_scale.expect("all have one"), self.data_shift)
    }

    fn rnn(&self) -> Rnn {
        let direction = match self.direction.as_str() {
            "left2right" => Direction::Forward,
            "right2left" => Direction::Reverse,
            _ => Direction::Both,
        };
        let dtype = if self.is_signed() { DType::I8 } else { DType::U8 };
        let rnn = Rnn::lstm(self.input, self.hidden).direction(direction);
        let rnn = rnn.bias(BiasMode::SingleInput).quantised(dtype, self.quantization());
        match self.is_signed() {
            true => Rnn { cell: RnnCell::Own(Arc::new(cut_off_lstm())), ..rnn },
            false => rnn,
        }
    }

    fn network(&self) -> Network {
        let extent = Extent { batch: self.batch, rows: self.steps * self.batch };
        let with = Optional {
            h_initial: true,
            states_initial: true,
            h_final: true,
            states_final: true,
            ..Optional::default()
        };
        self.rnn().network(extent, with).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn tensor(&self, name: &str, dims: &[i64], dtype: DType) -> HostTensor {
        let path = "tests/data/onednn/rnn.safetensors";
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
        let tensor = TensorDesc::packed(1, format!("{}/{name}", self.name), dims, dtype);
        let values = plan::read_values(&path, std::iter::once(&tensor)).expect("oneDNN has it");
        HostTensor::new(dims, values[&1].clone())
    }

    /// The weights, which are f32 in the vectors: oneDNN quantises them by its factors.
    fn weights(&self) -> Vec<f64> {
        let Case { input, hidden, .. } = *self;
        let directions = self.directions();
        let of = |name: &str, dims: &[i64]| {
            self.tensor(name, &[&[1, directions], dims].concat(), DType::F32)
        };
        let weights = OneDnnWeights {
            layer: of("weights_layer", &[input, 4, hidden]),
            iter: of("weights_iter", &[hidden, 4, hidden]),
            bias: Some(of("bias", &[4, hidden])),
            ..OneDnnWeights::default()
        };
        let numbers = Rnn { quantization: None, ..self.rnn() }.dtype(DType::F32);
        let weights = numbers.from_onednn(&weights).expect("the weights fit");
        let count = if self.name.contains("channels") { 4 * hidden } else { 1 };
        let factors = self.tensor("weights_scales", &[count], DType::F32).values;
        let factor = |row: WeightRow<'_>| factors[row.row % factors.len()];
        self.rnn().quantise_weights(&weights, factor).expect("the factors are positive")
    }

    /// oneDNN's tensor of a role, where a number of `dst_layer` is the integer that stands for it.
    fn of_role(&self, role: Role) -> Option<HostTensor> {
        let Case { input, hidden, steps, batch, .. } = *self;
        let states = [1, self.directions(), batch, hidden];
        let integers = self.rnn().dtype;
        Some(match role {
            Role::Input => self.tensor("src_layer", &[steps, batch, input], integers),
            Role::HInitial => self.tensor("src_iter", &states, integers),
            Role::StatesInitial => self.tensor("src_iter_c", &states, DType::F32),
            Role::HFinal => self.tensor("dst_iter", &states, integers),
            Role::StatesFinal => self.tensor("dst_iter_c", &states, DType::F32),
            // Directions that are added up are not told apart.
            Role::Output if self.direction == "bidirectional_sum" => return None,
            Role::Output => {
                let dims = [steps, batch, self.directions() * hidden];
                if !self.name.contains("_f32_") {
                    return Some(self.tensor("dst_layer", &dims, integers));
                }
                let Quantization { scale, shift } = self.quantization();
                let mut numbers = self.tensor("dst_layer", &dims, DType::F32);
                for value in &mut numbers.values {
                    *value = (*value * scale.get() + shift as f64).round();
                }
                numbers
            }
            _ => return None,
        })
    }

    /// Whether pairs of products of a sequence stay within 16 bits, where `y` are its states.
    fn is_exact(&self, network: &Network, weights: &[f64], y: &[f64], [at, b]: [i64; 2]) -> bool {
        let offset = if self.is_signed() { 128.0 } else { 0.0 };
        let fits = |kind: WeightKind, values: &[f64]| {
            let block = network.space.block(at as usize, kind).expect("it has the matrix");
            let count = (block.rows * block.columns) as usize;
            let matrix = &weights[block.offset as usize..][..count];
            matrix.chunks(block.columns as usize).all(|row| {
                let products: Vec<f64> =
                    row.iter().zip(values).map(|(weight, of)| weight * (of + offset)).collect();
                let pairs = products.chunks(2);
                pairs.map(|pair| pair.iter().sum::<f64>().abs()).all(|sum| sum <= 32767.0)
            })
        };
        let part = |of: &[f64], row: i64, width: i64| {
            of[(row * width) as usize..][..width as usize].to_vec()
        };
        let src = self.of_role(Role::Input).expect("it is there").values;
        let initial = self.of_role(Role::HInitial).expect("it is there").values;
        fits(WeightKind::Recurrent, &part(&initial, at * self.batch + b, self.hidden))
            && (0..self.steps).map(|step| step * self.batch + b).all(|row| {
                let h = part(y, row * self.directions() + at, self.hidden);
                fits(WeightKind::Input, &part(&src, row, self.input))
                    && fits(WeightKind::Recurrent, &h)
            })
    }
}

/// Elements of these rows, of `width` each.
fn rows(of: &[f64], width: i64, rows: &[i64]) -> Vec<f64> {
    let row = |row: &i64| &of[(row * width) as usize..][..width as usize];
    rows.iter().flat_map(row).copied().collect()
}

#[test]
fn integers_are_those_of_onednn() {
    let cases = cases();
    assert_eq!(cases.len(), 32);
    let (mut compared, mut all) = (0, 0);
    for (turn, case) in cases.iter().enumerate() {
        let (network, weights) = (case.network(), case.weights());
        let values = network.values_with(&weights, |role| {
            let (_, dims) = network.tensor(role);
            Some(HostTensor::new(&dims, case.of_role(role)?.values))
        });
        let values = values.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let expected = reference::evaluate(&network.graph, &values).expect("inputs fit");
        let run = |kiln| {
            let actual = harness::run(kiln, &network.graph, None, &values);
            actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.name))
        };
        let actual: Vec<Values> = harness::dialects_by_turns(turn).into_iter().map(run).collect();
        let place = |role| network.places.iter().find(|place| place.role == role).unwrap().uid;
        let y = &expected[&place(Role::Output)].values;
        let sequences = (0..case.directions()).flat_map(|at| (0..case.batch).map(move |b| [at, b]));
        for [at, b] in sequences {
            all += 1;
            if !case.is_exact(&network, &weights, y, [at, b]) {
                continue;
            }
            compared += 1;
            let row = |step: i64| (step * case.batch + b) * case.directions() + at;
            let steps: Vec<i64> = (0..case.steps).map(row).collect();
            let state = [at * case.batch + b];
            for (role, of) in [
                (Role::Output, &steps[..]),
                (Role::HFinal, &state[..]),
                (Role::StatesFinal, &state[..]),
            ] {
                let Some(theirs) = case.of_role(role) else { continue };
                let theirs = rows(&theirs.values, case.hidden, of);
                let Expected { values, bounds } = &expected[&place(role)];
                let [values, bounds] = [values, bounds].map(|all| rows(all, case.hidden, of));
                if role != Role::StatesFinal {
                    // No state is near where it rounds up: integers are equal.
                    assert_eq!(theirs, values, "{}: {role:?}", case.name);
                }
                let expected = Expected { values, bounds };
                let own = actual.iter().map(|own| rows(&own[&place(role)], case.hidden, of));
                for result in own.chain([theirs]) {
                    if let Some(worst) = expected.worst(&result) {
                        assert!(worst.ratio <= 1.0, "{}: {role:?}: {worst:?}", case.name);
                    }
                }
            }
        }
    }
    assert_eq!((compared, all), (87, 96), "sequences");
}
