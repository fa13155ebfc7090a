//! Weights in oneDNN's layouts: the same numbers, in another order and shape.

use std::collections::HashMap;

use kiln::rnn::{
    BiasMode, CellKind, HostTensor, OneDnnWeights, Rnn, Stacking, WeightKind, WeightSpace,
};

/// A network with an own number in every element of its parameters.
struct Numbered {
    rnn: Rnn,
    /// Which of the cell's gates stands where in oneDNN.
    order: &'static [usize],
    space: WeightSpace,
    given: HashMap<String, HostTensor>,
}

impl Numbered {
    fn new(rnn: Rnn, order: &'static [usize]) -> Numbered {
        let space = WeightSpace::new(&rnn).expect("valid");
        let (hidden, mut given, mut next) = (rnn.hidden_size as usize, HashMap::new(), 1.0);
        for pseudo_layer in 0..space.pseudo_layers() {
            for kind in WeightKind::ALL {
                let Some(block) = space.block(pseudo_layer, kind) else { continue };
                // oneDNN has no recurrent bias but that of the candidate.
                let absent = |at: usize| kind == WeightKind::RecurrentBias && at < 2 * hidden;
                let element = |at: usize| if absent(at) { 0.0 } else { next + at as f64 };
                let count = (block.rows * block.columns) as usize;
                let values: Vec<f64> = (0..count).map(element).collect();
                let vector = matches!(kind, WeightKind::InputBias | WeightKind::RecurrentBias);
                let dims = [block.rows, block.columns];
                let dims = if vector { &dims[..1] } else { &dims[..] };
                next += count as f64;
                given.insert(rnn.torch_name(pseudo_layer, kind), HostTensor::new(dims, values));
            }
        }
        Numbered { rnn, order, space, given }
    }

    fn of(&self, pseudo_layer: usize, kind: WeightKind) -> &[f64] {
        &self.given[&self.rnn.torch_name(pseudo_layer, kind)].values
    }

    /// A tensor `[layers, directions, ..]` of what `values` gives for each pseudo-layer.
    fn tensor(&self, dims: &[i64], values: impl Fn(usize) -> Vec<f64>) -> HostTensor {
        let outer = [self.rnn.layers, self.rnn.directions()];
        let all = (0..self.space.pseudo_layers()).flat_map(values);
        HostTensor::new(&[&outer[..], dims].concat(), all.collect())
    }

    /// `[layers, directions, input, gates, hidden]`.
    fn matrices(&self, kind: WeightKind, columns: i64) -> HostTensor {
        let hidden = self.rnn.hidden_size as usize;
        let dims = [columns, self.order.len() as i64, self.rnn.hidden_size];
        let columns = columns as usize;
        self.tensor(&dims, |at| {
            let own = self.of(at, kind);
            let gate = |column: usize, gate: usize| {
                (0..hidden).map(move |unit| own[(gate * hidden + unit) * columns + column])
            };
            let column = |column| self.order.iter().flat_map(move |at| gate(column, *at));
            (0..columns).flat_map(column).collect()
        })
    }

    fn bias(&self) -> Option<HostTensor> {
        let hidden = self.rnn.hidden_size as usize;
        let inner = self.rnn.bias == BiasMode::Double;
        let gates = (self.order.len() + usize::from(inner)) as i64;
        let values = |at: usize| {
            let own = self.of(at, WeightKind::InputBias);
            let gates = self.order.iter().map(|gate| &own[gate * hidden..(gate + 1) * hidden]);
            let mut values = gates.collect::<Vec<_>>().concat();
            if inner {
                values.extend(&self.of(at, WeightKind::RecurrentBias)[2 * hidden..]);
            }
            values
        };
        let dims = [gates, self.rnn.hidden_size];
        (self.rnn.bias != BiasMode::None).then(|| self.tensor(&dims, values))
    }

    fn weights(&self) -> OneDnnWeights {
        let (hidden, state) = (self.rnn.hidden_size, self.rnn.state_size());
        let peepholes = |at| self.of(at, WeightKind::Parameters).to_vec();
        let peephole = self.space.block(0, WeightKind::Parameters);
        let projection = |at| {
            let own = self.of(at, WeightKind::Projection);
            let (rows, columns) = (state as usize, hidden as usize);
            (0..own.len()).map(|at| own[at % rows * columns + at / rows]).collect()
        };
        OneDnnWeights {
            layer: self.matrices(WeightKind::Input, self.rnn.input_size),
            iter: self.matrices(WeightKind::Recurrent, state),
            bias: self.bias(),
            peephole: peephole.map(|_| self.tensor(&[3, hidden], peepholes)),
            projection: self
                .rnn
                .projection_size
                .map(|state| self.tensor(&[hidden, state], projection)),
        }
    }
}

#[test]
fn weights_of_onednn_become_the_same_space() {
    let (lstm, gru): (&[usize], &[usize]) = (&[0, 1, 2, 3], &[1, 0, 2]);
    let cells = [
        (Rnn::lstm(3, 3).peephole(), lstm, BiasMode::SingleInput),
        (Rnn::lstm(3, 5).projection(3), lstm, BiasMode::SingleInput),
        (Rnn::new(CellKind::Tanh, 3, 3), &[0][..], BiasMode::None),
        (Rnn::new(CellKind::GruResetBefore, 3, 3), gru, BiasMode::SingleInput),
        (Rnn::new(CellKind::LbrAugru, 3, 3), gru, BiasMode::Double),
    ];
    for (rnn, order, bias) in cells {
        let rnn = rnn.layers(2).bidirectional().stacking(Stacking::Separate).bias(bias);
        let numbered = Numbered::new(rnn, order);
        let expected = numbered.rnn.from_torch(|name| numbered.given.get(name).cloned());
        let actual = numbered.rnn.from_onednn(&numbered.weights());
        assert_eq!(actual.expect("they fit"), expected.expect("all are there"));
    }
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let rnn = Rnn::lstm(3, 3).bias(BiasMode::SingleInput);
    let numbered = Numbered::new(rnn, &[0, 1, 2, 3]);
    let weights = numbered.weights();
    let refused = |rnn: &Rnn, weights: &OneDnnWeights| {
        rnn.from_onednn(weights).expect_err("refused").to_string()
    };
    let rnn = &numbered.rnn;
    let without = OneDnnWeights { bias: None, ..weights.clone() };
    assert_eq!(refused(rnn, &without), "weights `bias` are missing");
    let with = OneDnnWeights { peephole: weights.bias.clone(), ..weights.clone() };
    assert_eq!(refused(rnn, &with), "the network has no weights `weights_peephole`");
    let swapped = OneDnnWeights { iter: HostTensor::default(), ..weights.clone() };
    let text = "`weights_iter` is [] with 0 values, expected [1, 1, 3, 4, 3]";
    assert_eq!(refused(rnn, &swapped), text);
    let stacked = Rnn::lstm(3, 3).layers(2).bidirectional();
    let text = "oneDNN weights of layers of different input sizes";
    assert_eq!(refused(&stacked, &weights), text);
}
