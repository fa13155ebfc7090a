//! LSTM of 8-bit integers as oneDNN 3.2 computes it (`tests/data/onednn/vectors.py`).
//!
//! The vectors are from a CPU with AVX2 alone, where that library has two habits of its own. Its
//! instruction adds pairs of products with saturation in 16 bits: sequences in which a pair exceeds
//! those are left out. And signed states are cut off at 0: so is that of the cell here.

use std::sync::Arc;

use kiln::DType;
use kiln::graph::{Direction, Quantization};
use kiln::onednn::{Arg, Tensor};
use kiln::reference::{self, Expected};
use kiln::rnn::{
    BiasMode, Extent, HostTensor, Network, OneDnnWeights, Optional, Rnn, RnnCell, Role, WeightKind,
    WeightRow,
};

use crate::harness::{self, Values};
use crate::onednn_cases::{Case, integer_cases};
use crate::rnn_own_cells::cut_off_lstm;

/// A case as a network of integers.
struct Integers(Case);

impl Integers {
    fn is_signed(&self) -> bool {
        self.0.integers() == DType::I8
    }

    fn quantization(&self) -> Quantization {
        Quantization::new(self.0.data_scale.expect("all have one"), self.0.data_shift as i64)
    }

    fn rnn(&self) -> Rnn {
        let direction = match self.0.direction.as_str() {
            "left2right" => Direction::Forward,
            "right2left" => Direction::Reverse,
            _ => Direction::Both,
        };
        let rnn = Rnn::lstm(self.0.input, self.0.hidden).direction(direction);
        let rnn = rnn.bias(BiasMode::SingleInput).quantised(self.0.integers(), self.quantization());
        match self.is_signed() {
            true => Rnn { cell: RnnCell::Own(Arc::new(cut_off_lstm())), ..rnn },
            false => rnn,
        }
    }

    fn network(&self) -> Network {
        let extent = Extent { batch: self.0.batch, rows: self.0.steps * self.0.batch };
        let with = Optional {
            h_initial: true,
            states_initial: true,
            h_final: true,
            states_final: true,
            ..Optional::default()
        };
        self.rnn().network(extent, with).unwrap_or_else(|error| panic!("{}: {error}", self.0.name))
    }

    /// The weights, which are f32 in the vectors: oneDNN quantises them by its factors.
    fn weights(&self) -> Vec<f64> {
        let Case { input, hidden, .. } = self.0;
        let directions = self.0.directions();
        let of = |name: &str, dims: &[i64]| {
            let dims = [&[1, directions], dims].concat();
            self.0.tensor(name, &dims).expect("oneDNN has it")
        };
        let weights = OneDnnWeights {
            layer: of("weights_layer", &[input, 4, hidden]),
            iter: of("weights_iter", &[hidden, 4, hidden]),
            bias: Some(of("bias", &[4, hidden])),
            ..OneDnnWeights::default()
        };
        let numbers = Rnn { quantization: None, ..self.rnn() }.dtype(DType::F32);
        let weights = numbers.from_onednn(&weights).expect("the weights fit");
        let count = if self.0.name.contains("channels") { 4 * hidden } else { 1 };
        let factors = self.0.tensor("weights_scales", &[count]).expect("oneDNN has it").values;
        let factor = |row: WeightRow<'_>| factors[row.row % factors.len()];
        self.rnn().quantise_weights(&weights, factor).expect("the factors are positive")
    }

    /// oneDNN's tensor of a role, where a number of `dst_layer` is the integer that stands for it.
    fn of_role(&self, role: Role) -> Option<HostTensor> {
        let tensor = match role {
            Role::Input => Tensor::SrcLayer,
            Role::HInitial => Tensor::SrcIter,
            Role::StatesInitial => Tensor::SrcIterC,
            Role::HFinal => Tensor::DstIter,
            Role::StatesFinal => Tensor::DstIterC,
            // Directions that are added up are not told apart.
            Role::Output if self.0.direction != "bidirectional_sum" => Tensor::DstLayer,
            _ => return None,
        };
        let mut values = self.0.of_arg(Arg::Of(tensor))?;
        if role == Role::Output && self.0.name.contains("_f32_") {
            let Quantization { scale, shift } = self.quantization();
            for value in &mut values {
                *value = (*value * scale.get() + shift as f64).round();
            }
        }
        Some(HostTensor::new(&self.0.dims(tensor)?, values))
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
        fits(WeightKind::Recurrent, &part(&initial, at * self.0.batch + b, self.0.hidden))
            && (0..self.0.steps).map(|step| step * self.0.batch + b).all(|row| {
                let h = part(y, row * self.0.directions() + at, self.0.hidden);
                fits(WeightKind::Input, &part(&src, row, self.0.input))
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
    let cases: Vec<Integers> = integer_cases().into_iter().map(Integers).collect();
    assert_eq!(cases.len(), 32);
    let (mut compared, mut all) = (0, 0);
    for (turn, case) in cases.iter().enumerate() {
        let (network, weights) = (case.network(), case.weights());
        let values = network.values_with(&weights, |role| {
            let (_, dims) = network.tensor(role);
            Some(HostTensor::new(&dims, case.of_role(role)?.values))
        });
        let values = values.unwrap_or_else(|error| panic!("{}: {error}", case.0.name));
        let expected = reference::evaluate(&network.graph, &values).expect("inputs fit");
        let run = |kiln| {
            let actual = harness::run(kiln, &network.graph, None, &values);
            actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.0.name))
        };
        let actual: Vec<Values> = harness::dialects_by_turns(turn).into_iter().map(run).collect();
        let place = |role| network.places.iter().find(|place| place.role == role).unwrap().uid;
        let y = &expected[&place(Role::Output)].values;
        let sequences =
            (0..case.0.directions()).flat_map(|at| (0..case.0.batch).map(move |b| [at, b]));
        for [at, b] in sequences {
            all += 1;
            if !case.is_exact(&network, &weights, y, [at, b]) {
                continue;
            }
            compared += 1;
            let row = |step: i64| (step * case.0.batch + b) * case.0.directions() + at;
            let steps: Vec<i64> = (0..case.0.steps).map(row).collect();
            let state = [at * case.0.batch + b];
            for (role, of) in [
                (Role::Output, &steps[..]),
                (Role::HFinal, &state[..]),
                (Role::StatesFinal, &state[..]),
            ] {
                let Some(theirs) = case.of_role(role) else { continue };
                let theirs = rows(&theirs.values, case.0.hidden, of);
                let Expected { values, bounds } = &expected[&place(role)];
                let [values, bounds] = [values, bounds].map(|all| rows(all, case.0.hidden, of));
                if role != Role::StatesFinal {
                    // No state is near where it rounds up: integers are equal.
                    assert_eq!(theirs, values, "{}: {role:?}", case.0.name);
                }
                let expected = Expected { values, bounds };
                let own = actual.iter().map(|own| rows(&own[&place(role)], case.0.hidden, of));
                for result in own.chain([theirs]) {
                    if let Some(worst) = expected.worst(&result) {
                        assert!(worst.ratio <= 1.0, "{}: {role:?}: {worst:?}", case.0.name);
                    }
                }
            }
        }
    }
    assert_eq!((compared, all), (87, 96), "sequences");
}
