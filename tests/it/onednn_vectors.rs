//! Every cell of oneDNN's RNN primitive as oneDNN computes it, forward and backward in f32:
//! `tests/data/onednn/vectors.py` ran its CPU library.

use std::collections::HashMap;

use kiln::graph::Direction;
use kiln::reference::{self, Expected};
use kiln::rnn::{
    BiasMode, CellKind, Extent, HostTensor, Join, Network, OneDnnWeights, Optional, Rnn, Role,
    Stacking, WeightKind, WeightSpace,
};
use kiln::{DType, TensorDesc};

use crate::harness::{self, Values};
use crate::onednn_cases::{Case, cases, joined};

impl Case {
    fn is_lstm(&self) -> bool {
        self.cell.starts_with("lstm")
    }

    /// Whether the reset gate acts behind the product, with a bias of its own.
    fn is_linear_before_reset(&self) -> bool {
        self.cell.starts_with("lbr_")
    }

    fn rnn(&self) -> Rnn {
        let kind = match self.cell.as_str() {
            "relu" => CellKind::Relu,
            "tanh" => CellKind::Tanh,
            "sigmoid" => CellKind::Sigmoid,
            "gru" => CellKind::GruResetBefore,
            "lbr_gru" => CellKind::Gru,
            "augru" => CellKind::Augru,
            "lbr_augru" => CellKind::LbrAugru,
            _ => CellKind::Lstm,
        };
        let direction = match self.direction.as_str() {
            "left2right" => Direction::Forward,
            "right2left" => Direction::Reverse,
            _ => Direction::Both,
        };
        let join = match self.direction.as_str() {
            "bidirectional_sum" => Join::Sum,
            _ => Join::Concat,
        };
        let bias = match self.is_linear_before_reset() {
            true => BiasMode::Double,
            false => BiasMode::SingleInput,
        };
        let rnn = Rnn::new(kind, self.input, self.hidden).layers(self.layers);
        let rnn = rnn.direction(direction).join(join).stacking(Stacking::Separate);
        let rnn = rnn.bias(bias).dtype(DType::F32);
        let rnn = if self.cell.contains("peephole") { rnn.peephole() } else { rnn };
        if self.cell.contains("projection") { rnn.projection(self.state) } else { rnn }
    }

    fn network(&self) -> Network {
        let with = Optional {
            h_initial: true,
            states_initial: self.is_lstm(),
            h_final: true,
            states_final: self.is_lstm(),
            ..Optional::default()
        };
        let extent = Extent { batch: self.batch, rows: self.steps * self.batch };
        self.rnn().network(extent, with).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// oneDNN's tensor of a role, or of its gradient, with oneDNN's dimensions.
    fn of_role(&self, role: Role) -> Option<HostTensor> {
        let Case { layers, hidden, state, steps, batch, .. } = *self;
        let states = |size: i64| vec![layers, self.directions(), batch, size];
        let (name, dims) = match role {
            Role::Input => ("src_layer", vec![steps, batch, self.input]),
            Role::HInitial => ("src_iter", states(state)),
            Role::StatesInitial => ("src_iter_c", states(hidden)),
            Role::RowInputs => ("attention", vec![steps, batch, 1]),
            Role::Output => ("dst_layer", vec![steps, batch, self.width()]),
            Role::HFinal => ("dst_iter", states(state)),
            Role::StatesFinal => ("dst_iter_c", states(hidden)),
            Role::OutputGradient => ("diff_dst_layer", vec![steps, batch, self.width()]),
            Role::HFinalGradient => ("diff_dst_iter", states(state)),
            Role::StatesFinalGradient => ("diff_dst_iter_c", states(hidden)),
            Role::InputGradient => ("diff_src_layer", vec![steps, batch, self.input]),
            Role::HInitialGradient => ("diff_src_iter", states(state)),
            Role::StatesInitialGradient => ("diff_src_iter_c", states(hidden)),
            Role::RowInputsGradient => ("diff_attention", vec![steps, batch, 1]),
            _ => return None,
        };
        self.tensor(name, &dims)
    }

    /// The weight space from oneDNN's weights, or from their gradients.
    fn weights(&self, prefix: &str) -> Vec<f64> {
        let Case { layers, input, hidden, state, .. } = *self;
        let directions = self.directions();
        let gates = self.rnn().build_cell().gates.len() as i64;
        let biases = if self.is_linear_before_reset() { gates + 1 } else { gates };
        let of = |name: &str, dims: &[i64]| {
            self.tensor(&format!("{prefix}{name}"), &[&[layers, directions], dims].concat())
        };
        let weights = OneDnnWeights {
            layer: of("weights_layer", &[input, gates, hidden]).expect("every cell has it"),
            iter: of("weights_iter", &[state, gates, hidden]).expect("every cell has it"),
            bias: of("bias", &[biases, hidden]),
            peephole: of("weights_peephole", &[3, hidden]),
            projection: of("weights_projection", &[hidden, state]),
        };
        self.rnn().from_onednn(&weights).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The weight space of gradients. Both biases of a gate that does not reset have one gradient,
    /// which oneDNN gives once.
    fn weight_gradients(&self) -> Vec<f64> {
        let mut gradients = self.weights("diff_");
        let space = WeightSpace::new(&self.rnn()).expect("a valid network");
        for pseudo_layer in 0..space.pseudo_layers() {
            let [input, recurrent] = [WeightKind::InputBias, WeightKind::RecurrentBias]
                .map(|kind| space.block(pseudo_layer, kind).map(|block| block.offset as usize));
            if let (Some(input), Some(recurrent)) = (input, recurrent) {
                let outer = 2 * self.hidden as usize;
                gradients.copy_within(input..input + outer, recurrent);
            }
        }
        gradients
    }

    /// Panics where a result is further from oneDNN's than an f32 implementation may be from what
    /// is meant.
    fn compare(&self, what: &str, values: &[f64], expected: &Expected) {
        if let Some(worst) = expected.worst(values) {
            assert!(worst.ratio <= 1.0, "{}: {what}: {worst:?}", self.name);
        }
    }
}

/// The elements of a caller's tensor that a graph's tensor is.
fn piece(tensor: &TensorDesc, offset: i64, whole: &[f64]) -> Vec<f64> {
    tensor.offsets().map(|at| whole[offset as usize + at]).collect()
}

/// Each of oneDNN's cells and directions, with one and with two layers: as many as it has.
#[test]
fn forward_passes_are_those_of_onednn() {
    let cases = cases();
    assert_eq!(cases.len(), 74);
    for (at, case) in cases.iter().enumerate() {
        let network = case.network();
        let values = network.values_with(&case.weights(""), |role| {
            let (_, dims) = network.tensor(role);
            Some(HostTensor::new(&dims, case.of_role(role)?.values))
        });
        let values = values.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let expected = reference::evaluate(&network.graph, &values).expect("inputs fit");
        let run = |kiln| {
            let actual = harness::run(kiln, &network.graph, None, &values);
            actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.name))
        };
        let actual: Vec<Values> = harness::dialects_by_turns(at).into_iter().map(run).collect();
        for place in network.places.iter().filter(|place| place.role.is_output()) {
            let tensor = network.graph.tensor(place.uid).unwrap();
            let whole = case.of_role(place.role).expect("oneDNN has the result");
            let own = piece(tensor, place.offset, &whole.values);
            let expected = &expected[&place.uid];
            case.compare(&format!("oneDNN's {}", place.role.name()), &own, expected);
            for actual in &actual {
                case.compare(place.role.name(), &actual[&place.uid], expected);
            }
        }
    }
}

/// Gradients of everything that oneDNN gives gradients of. Those of AUGRU by oneDNN 3.2 are left
/// out: they are not the derivatives of its own forward pass, as central differences show.
#[test]
fn gradients_are_those_of_onednn() {
    let cases = cases();
    let differs = |case: &&Case| case.cell.ends_with("augru");
    assert_eq!(cases.iter().filter(differs).count(), 2);
    for case in cases.iter().filter(|case| !differs(case)) {
        let network = case.network();
        let is_float = |tensor: &&TensorDesc| tensor.dtype.is_float();
        let uids = |tensors: Vec<&TensorDesc>| -> Vec<i64> {
            tensors.iter().map(|tensor| tensor.uid).collect()
        };
        let outputs = uids(network.graph.outputs().filter(is_float).collect());
        let inputs = uids(network.graph.inputs().filter(is_float).collect());
        let vjp = network.graph.vjp(&outputs, &inputs).expect("every cell has gradients");
        let places: HashMap<i64, _> = network.places.iter().map(|of| (of.uid, *of)).collect();
        let mut values = network
            .values_with(&case.weights(""), |role| {
                let (_, dims) = network.tensor(role);
                Some(HostTensor::new(&dims, case.of_role(role)?.values))
            })
            .expect("oneDNN has all tensors");
        for (uid, gradient) in outputs.iter().zip(&vjp.output_gradients) {
            let place = places[uid];
            let role = place.role.gradient().expect("an output has a gradient");
            let whole = case.of_role(role).expect("oneDNN has the gradient");
            let tensor = network.graph.tensor(*uid).unwrap();
            values.insert(*gradient, piece(tensor, place.offset, &whole.values));
        }
        let both = joined(&vjp.forward, &vjp.backward);
        let expected = reference::evaluate(&both, &values).expect("inputs fit");
        let weights = case.weight_gradients();
        for (uid, gradient) in inputs.iter().zip(&vjp.input_gradients) {
            let place = places[uid];
            let tensor = network.graph.tensor(*uid).unwrap();
            let role = place.role.gradient().expect("an input has a gradient");
            let whole = match role {
                Role::WeightGradients => weights.clone(),
                _ => case.of_role(role).expect("oneDNN has the gradient").values,
            };
            let own = piece(tensor, place.offset, &whole);
            case.compare(
                &format!("{} of `{}`", role.name(), tensor.name),
                &own,
                &expected[gradient],
            );
        }
    }
}
