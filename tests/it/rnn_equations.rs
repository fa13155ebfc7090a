//! The cells once more, each as the equations of its paper or document, one line for each, on plain
//! numbers. Nothing here knows [`kiln::graph::Cell`], which the reference interprets as the engines
//! compile it: a cell that is written down wrongly is wrong in both of those, and found here.

use std::collections::HashMap;

use kiln::frontend::FrontEnd;
use kiln::reference;
use kiln::rnn::Network;

use crate::harness::Values;

const BATCH: usize = 3;
const STEPS: usize = 5;
const INPUT: usize = 4;
const UNITS: usize = 6;

/// Both sides compute in f64: some hundred roundings of values below 4, at 1.1e-16 each.
const TOLERANCE: f64 = 1e-12;

type Vector = Vec<f64>;

/// A network's tensors by name: the state of one row at one step is computed from these.
struct Step<'a> {
    tensors: &'a HashMap<String, Vector>,
    x: &'a [f64],
    h: &'a [f64],
    c: &'a [f64],
    attention: f64,
}

fn sigmoid(v: f64) -> f64 {
    1.0 / (1.0 + (-v).exp())
}

/// `f(j)` of every unit.
fn units(f: impl Fn(usize) -> f64) -> Vector {
    (0..UNITS).map(f).collect()
}

impl Step<'_> {
    /// `(W v)_row + b_row`, with the rows of a gate behind those of the gates before it.
    fn affine(&self, matrix: &str, bias: &str, v: &[f64], row: usize) -> f64 {
        let weights = &self.tensors[matrix][row * v.len()..][..v.len()];
        let product: f64 = weights.iter().zip(v).map(|(w, v)| w * v).sum();
        product + self.tensors.get(bias).map_or(0.0, |bias| bias[row])
    }

    /// `W_g x + b_Wg` of unit j.
    fn w(&self, gate: usize, j: usize) -> f64 {
        self.affine("weight_ih_l0", "bias_ih_l0", self.x, gate * UNITS + j)
    }

    /// `R_g h + b_Rg` of unit j.
    fn r(&self, gate: usize, j: usize) -> f64 {
        self.r_of(self.h, gate, j)
    }

    fn r_of(&self, h: &[f64], gate: usize, j: usize) -> f64 {
        self.affine("weight_hh_l0", "bias_hh_l0", h, gate * UNITS + j)
    }

    /// A peephole's weight: those of i, f and o.
    fn p(&self, gate: usize, j: usize) -> f64 {
        self.tensors["parameters_l0"][gate * UNITS + j]
    }
}

/// `h' = f(W x + b_W + R h + b_R)` (Elman 1990).
fn plain(s: &Step<'_>, f: fn(f64) -> f64) -> [Vector; 2] {
    [units(|j| f(s.w(0, j) + s.r(0, j))), Vec::new()]
}

/// mcdnnRNNMode_t, LSTM (section 6.1.2.8); Hochreiter and Schmidhuber 1997.
fn lstm(s: &Step<'_>) -> [Vector; 2] {
    let i = units(|j| sigmoid(s.w(0, j) + s.r(0, j)));
    let f = units(|j| sigmoid(s.w(1, j) + s.r(1, j)));
    let g = units(|j| (s.w(2, j) + s.r(2, j)).tanh());
    let o = units(|j| sigmoid(s.w(3, j) + s.r(3, j)));
    let c = units(|j| f[j] * s.c[j] + i[j] * g[j]);
    let h = units(|j| o[j] * c[j].tanh());
    [h, c]
}

/// Gers and Schmidhuber 2000: i and f see the old state, o the new one.
fn lstm_peephole(s: &Step<'_>) -> [Vector; 2] {
    let i = units(|j| sigmoid(s.w(0, j) + s.r(0, j) + s.p(0, j) * s.c[j]));
    let f = units(|j| sigmoid(s.w(1, j) + s.r(1, j) + s.p(1, j) * s.c[j]));
    let g = units(|j| (s.w(2, j) + s.r(2, j)).tanh());
    let c = units(|j| f[j] * s.c[j] + i[j] * g[j]);
    let o = units(|j| sigmoid(s.w(3, j) + s.r(3, j) + s.p(2, j) * c[j]));
    let h = units(|j| o[j] * c[j].tanh());
    [h, c]
}

/// mcdnnRNNSetClip_v8: the state is limited where it is read.
fn lstm_clipped(s: &Step<'_>) -> [Vector; 2] {
    let clip = |v: f64| v.clamp(-0.25, 0.125);
    let i = units(|j| sigmoid(s.w(0, j) + s.r(0, j)));
    let f = units(|j| sigmoid(s.w(1, j) + s.r(1, j)));
    let g = units(|j| (s.w(2, j) + s.r(2, j)).tanh());
    let o = units(|j| sigmoid(s.w(3, j) + s.r(3, j)));
    let c = units(|j| f[j] * clip(s.c[j]) + i[j] * g[j]);
    let h = units(|j| o[j] * clip(c[j]).tanh());
    [h, c]
}

/// mcdnnRNNMode_t, GRU: the reset gate weighs the product.
fn gru(s: &Step<'_>) -> [Vector; 2] {
    let r = units(|j| sigmoid(s.w(0, j) + s.r(0, j)));
    let z = units(|j| sigmoid(s.w(1, j) + s.r(1, j)));
    let n = units(|j| (s.w(2, j) + r[j] * s.r(2, j)).tanh());
    [units(|j| (1.0 - z[j]) * n[j] + z[j] * s.h[j]), Vec::new()]
}

/// Cho et al. 2014: the reset gate weighs the state before the product.
fn gru_reset_before(s: &Step<'_>) -> [Vector; 2] {
    let r = units(|j| sigmoid(s.w(0, j) + s.r(0, j)));
    let z = units(|j| sigmoid(s.w(1, j) + s.r(1, j)));
    let reset = units(|j| r[j] * s.h[j]);
    let n = units(|j| (s.w(2, j) + s.r_of(&reset, 2, j)).tanh());
    [units(|j| (1.0 - z[j]) * n[j] + z[j] * s.h[j]), Vec::new()]
}

/// oneDNN's AUGRU (Zhou et al. 2019): `u' = (1 - a) u` in the GRU that resets before.
fn augru(s: &Step<'_>) -> [Vector; 2] {
    let r = units(|j| sigmoid(s.w(0, j) + s.r(0, j)));
    let z = units(|j| (1.0 - s.attention) * sigmoid(s.w(1, j) + s.r(1, j)));
    let reset = units(|j| r[j] * s.h[j]);
    let n = units(|j| (s.w(2, j) + s.r_of(&reset, 2, j)).tanh());
    [units(|j| (1.0 - z[j]) * n[j] + z[j] * s.h[j]), Vec::new()]
}

/// oneDNN's LBR-AUGRU: the same in the GRU whose reset gate weighs the product.
fn lbr_augru(s: &Step<'_>) -> [Vector; 2] {
    let r = units(|j| sigmoid(s.w(0, j) + s.r(0, j)));
    let z = units(|j| (1.0 - s.attention) * sigmoid(s.w(1, j) + s.r(1, j)));
    let n = units(|j| (s.w(2, j) + r[j] * s.r(2, j)).tanh());
    [units(|j| (1.0 - z[j]) * n[j] + z[j] * s.h[j]), Vec::new()]
}

/// The outputs of all steps and the last states of a network, by name.
fn network(
    tensors: &HashMap<String, Vector>,
    step: impl Fn(&Step<'_>) -> [Vector; 2],
) -> HashMap<&'static str, Vector> {
    let [mut output, mut h_n, mut c_n] = [vec![0.0; STEPS * BATCH * UNITS], vec![], vec![]];
    for b in 0..BATCH {
        let row = |name: &str| tensors.get(name).map_or(vec![], |t| t[b * UNITS..][..UNITS].into());
        let [mut h, mut c]: [Vector; 2] = [row("h_0"), row("c_0")];
        for t in 0..STEPS {
            let at = t * BATCH + b;
            let x = &tensors["input"][at * INPUT..][..INPUT];
            let attention = tensors.get("row_inputs").map_or(0.0, |given| given[at]);
            [h, c] = step(&Step { tensors, x, h: &h, c: &c, attention });
            output[at * UNITS..][..UNITS].copy_from_slice(&h);
        }
        h_n.extend(h);
        c_n.extend(c);
    }
    HashMap::from([("output", output), ("h_n", h_n), ("c_n", c_n)])
}

/// Holds the reference to the equations of a cell; `more` is further keys of the problem file.
fn check(cell: &str, more: &str, step: impl Fn(&Step<'_>) -> [Vector; 2]) {
    let state = if cell == "lstm" { r#", "c_0", "c_n""# } else { "" };
    let problem = format!(
        r#"{{"rnn": {{"cell": "{cell}", "input_size": {INPUT}, "hidden_size": {UNITS},
            "dtype": "f64", "batch": {BATCH}, "steps": {STEPS},
            "tensors": ["h_0", "h_n"{state}]{more}}}}}"#
    );
    let network_of = Network::from_json(&problem).unwrap_or_else(|error| panic!("{cell}: {error}"));
    let mut random = fastrand::Rng::with_seed(7);
    let mut named: Values = HashMap::new();
    let mut tensors = HashMap::new();
    for tensor in network_of.named_inputs() {
        let count = tensor.elements().unwrap() as usize;
        let values: Vector = (0..count).map(|_| random.f64() * 2.0 - 1.0).collect();
        named.insert(tensor.uid, values.clone());
        tensors.insert(tensor.name, values);
    }
    let values = reference::evaluate(
        &network_of.graph,
        &network_of.initial_values(named.clone()).expect("inputs fit the network"),
    );
    let values = values.unwrap().into_iter().map(|(uid, expected)| (uid, expected.values));
    let actual = network_of.named_values(&values.collect());
    let expected = network(&tensors, step);
    for tensor in network_of.named_outputs() {
        let pairs = actual[&tensor.uid].iter().zip(&expected[tensor.name.as_str()]);
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < TOLERANCE, "{cell}{more}: {} is off by {worst}", tensor.name);
        assert_eq!(actual[&tensor.uid].len(), expected[tensor.name.as_str()].len());
    }
}

#[test]
fn the_reference_is_the_equations() {
    check("relu", "", |s| plain(s, |v| v.max(0.0)));
    check("tanh", "", |s| plain(s, f64::tanh));
    check("sigmoid", "", |s| plain(s, sigmoid));
    check("lstm", "", lstm);
    check("lstm", r#", "peephole": true"#, lstm_peephole);
    let clip = r#", "cell_clip": {"min": -0.25, "max": 0.125, "point": "read"}"#;
    check("lstm", clip, lstm_clipped);
    check("gru", "", gru);
    check("gru_reset_before", "", gru_reset_before);
    check("augru", "", augru);
    check("lbr_augru", "", lbr_augru);
}

/// Equations of one cell do not pass for those of another.
#[test]
#[should_panic(expected = "gru: ")]
fn another_cell_is_found() {
    check("gru", "", gru_reset_before);
}
