//! A persistent LSTM against its definition.

use crate::run::{device, dialects, download, launch, line, upload};
use half::f16;
use kiln_sim::{Kernel, Launch};

/// Sizes of a layer.
#[derive(Debug, Clone, Copy)]
struct Layer {
    width: usize,
    batch: usize,
    steps: usize,
}

/// A value, and how far a machine may be from it that rounds.
#[derive(Debug, Clone, Copy, Default)]
struct Near {
    value: f64,
    error: f64,
}

/// An operation in f32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;
/// expf and tanhf are within 2 units in the last place, the quotient of a sigmoid adds one.
const FUNCTION: f64 = 4.0 * UNIT;
const UNIT_F16: f64 = 1.0 / (1 << 11) as f64;

impl Near {
    fn sigmoid(self) -> Near {
        let value = 1.0 / (1.0 + (-self.value).exp());
        Near { value, error: self.error / 4.0 + FUNCTION }
    }

    fn tanh(self) -> Near {
        Near { value: self.value.tanh(), error: self.error + FUNCTION }
    }

    fn times(self, other: Near) -> Near {
        let value = self.value * other.value;
        let error = self.value.abs() * other.error
            + other.value.abs() * self.error
            + self.error * other.error;
        Near { value, error: error + value.abs() * UNIT }
    }

    fn plus(self, other: Near) -> Near {
        let value = self.value + other.value;
        Near { value, error: self.error + other.error + value.abs() * UNIT }
    }

    fn in_f16(self) -> Near {
        Near { error: self.error + (self.value.abs() + self.error) * UNIT_F16, ..self }
    }
}

/// Values between -1 and 1.
fn values(count: usize, salt: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + i / 5 * salt) % 251) as f64 / 125.0 - 1.0).collect()
}

/// What a layer is given: projections, weights and the first state.
struct Inputs {
    projected: Vec<f32>,
    weights: Vec<f16>,
    hidden: Vec<f16>,
}

impl Inputs {
    fn new(Layer { width, batch, steps }: Layer) -> Inputs {
        let projected = values(steps * batch * 4 * width, 3);
        let scale = 2.0 / width as f64;
        let weights = values(4 * width * width, 5).into_iter().map(|w| f16::from_f64(w * scale));
        Inputs {
            projected: projected.into_iter().map(|x| 2.0 * x as f32).collect(),
            weights: weights.collect(),
            hidden: values(batch * width, 7).into_iter().map(f16::from_f64).collect(),
        }
    }
}

/// Outputs by step, sequence and unit, and the cells that are left.
fn reference(layer: Layer, inputs: &Inputs) -> (Vec<Near>, Vec<Near>) {
    let Layer { width, batch, steps } = layer;
    let exact = |value: f64| Near { value, error: 0.0 };
    let mut hidden: Vec<Near> = inputs.hidden.iter().map(|h| exact(h.to_f64())).collect();
    let mut cells = vec![Near::default(); batch * width];
    let mut outputs = Vec::new();
    for step in 0..steps {
        let mut after = Vec::new();
        for sequence in 0..batch {
            let before = &hidden[sequence * width..][..width];
            for unit in 0..width {
                let gate = |gate: usize| {
                    let row = &inputs.weights[(gate * width + unit) * width..][..width];
                    let products = row.iter().zip(before);
                    let sum = products.fold(Near::default(), |sum, (weight, &state)| {
                        sum.plus(exact(weight.to_f64()).times(state))
                    });
                    let at = ((step * batch + sequence) * 4 + gate) * width + unit;
                    sum.plus(exact(inputs.projected[at].into()))
                };
                let cell = &mut cells[sequence * width + unit];
                let kept = gate(1).sigmoid().times(*cell);
                *cell = kept.plus(gate(0).sigmoid().times(gate(2).tanh()));
                after.push(gate(3).sigmoid().times(cell.tanh()));
            }
        }
        hidden = after.iter().map(|output| output.in_f16()).collect();
        outputs.extend(after);
    }
    (outputs, cells)
}

fn run(kernel: &Kernel, layer: Layer, inputs: &Inputs) -> (Vec<f32>, Vec<f32>) {
    let Layer { width, batch, steps } = layer;
    let device = device();
    let bits = |x: &[f16]| x.iter().map(|x| x.to_bits()).collect::<Vec<u16>>();
    let hidden = [bits(&inputs.hidden), vec![0; batch * width]].concat();
    let outputs = upload(&device, &vec![0_f32; steps * batch * width]);
    let cells = upload(&device, &vec![0_f32; batch * width]);
    let shared_bytes = 72 * (width as u32 + 8) * 2;
    let shape = Launch { cooperative: true, shared_bytes, ..line(width as u32 / 16, 128) };
    let arguments = [
        upload(&device, &inputs.projected),
        upload(&device, &bits(&inputs.weights)),
        upload(&device, &hidden),
        outputs,
        cells,
        upload(&device, &[0_u32]),
        width as u64,
        batch as u64,
        steps as u64,
    ];
    launch(&device, kernel, shape, &arguments);
    (download(&device, outputs, steps * batch * width), download(&device, cells, batch * width))
}

#[test]
fn lstm() {
    let sizes = [(16, 1, 1), (16, 8, 3), (32, 8, 2), (48, 3, 5), (80, 7, 4)];
    for (width, batch, steps) in sizes {
        let layer = Layer { width, batch, steps };
        let inputs = Inputs::new(layer);
        let (outputs, cells) = reference(layer, &inputs);
        for module in dialects("lstm") {
            let got = run(&module.kernel("lstm").unwrap(), layer, &inputs);
            for (want, got) in [(&outputs, got.0), (&cells, got.1)] {
                for (at, (want, got)) in want.iter().zip(got).enumerate() {
                    let distance = (f64::from(got) - want.value).abs();
                    assert!(distance <= want.error, "{layer:?} at {at}: {got}, not {want:?}");
                    assert!(want.error < 0.02, "{layer:?} at {at}: {want:?} says nothing");
                }
            }
        }
    }
}
