//! Dropout between the layers of a network in training: which elements are dropped, that gradients
//! are of the same, and how the state moves on.

use kiln::device::Buffer;
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::graph::{Direction, Rng, RowLayout};
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::rnn::{Optional, Rnn, Role, WeightKind, WeightSpace};
use kiln::{DType, Kiln, OperationGraph, TensorDesc};

use crate::harness::{self, Values};

const STEPS: i64 = 3;
const BATCH: i64 = 2;
const INPUT: i64 = 4;
const HIDDEN: i64 = 5;
const ROWS: i64 = STEPS * BATCH;
const SEED: i64 = -77;

fn dropout(probability: f64) -> DropoutDescriptor {
    DropoutDescriptor::set(Real::new(probability), SEED).unwrap()
}

fn network(layers: i64, input: i64) -> Rnn {
    Rnn::gru(input, HIDDEN).layers(layers).direction(Direction::Both).dtype(DType::F64)
}

fn numbers(count: i64, seed: u64) -> Vec<f64> {
    harness::fill(&TensorDesc::packed(0, "", &[count], DType::F64), seed, 1.0)
}

/// A network on a device with the memory of its passes.
struct Trained {
    built: PersistentRnn,
    kiln: &'static Kiln,
    pack: RnnPack,
    y: Buffer,
    dx: Buffer,
    dw: Buffer,
}

fn upload(kiln: &Kiln, values: &[f64]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    kiln.device().upload(&bytes).unwrap()
}

fn read(buffer: &Buffer) -> Vec<f64> {
    let bytes = buffer.to_vec().unwrap();
    bytes.chunks_exact(8).map(|of| f64::from_le_bytes(of.try_into().unwrap())).collect()
}

impl Trained {
    fn new(kiln: &'static Kiln, rnn: &Rnn, x: &[f64], weights: &[f64], training: bool) -> Trained {
        let built = kiln.build_rnn_dynamic(rnn, BATCH).unwrap();
        let y = upload(kiln, &vec![0.0; (ROWS * rnn.output_size()) as usize]);
        let dy = upload(kiln, &numbers(ROWS * rnn.output_size(), 3));
        let dx = upload(kiln, &vec![0.0; x.len()]);
        let dw = upload(kiln, &vec![0.0; weights.len()]);
        let with = Optional { reserve: training, ..Optional::default() };
        let space = built.temp_space(ROWS, with).unwrap();
        let [workspace, reserve] = [space.workspace_bytes, space.reserve_bytes]
            .map(|bytes| kiln.device().alloc(bytes.max(1)).unwrap());
        let mut pack = RnnPack::new()
            .with(Role::Input, &upload(kiln, x))
            .with(Role::Weights, &upload(kiln, weights))
            .with(Role::Output, &y)
            .with_workspace(&workspace);
        if training {
            pack = pack
                .with(Role::Reserve, &reserve)
                .with(Role::OutputGradient, &dy)
                .with(Role::InputGradient, &dx)
                .with(Role::WeightGradients, &dw);
        }
        Trained { built, kiln, pack, y, dx, dw }
    }

    fn forward(&mut self) -> Vec<f64> {
        let stream = self.kiln.stream();
        self.built.forward(&stream, STEPS, &self.pack).unwrap();
        stream.synchronize().unwrap();
        read(&self.y)
    }

    fn backward(&mut self) -> [Vec<f64>; 2] {
        self.dw.write(0, &vec![0; self.dw.bytes() as usize]).unwrap();
        let stream = self.kiln.stream();
        self.built.backward_data(&stream, STEPS, &self.pack).unwrap();
        self.built.backward_weights(&stream, STEPS, &self.pack).unwrap();
        stream.synchronize().unwrap();
        [read(&self.dx), read(&self.dw)]
    }

    fn positions(&self) -> Vec<i32> {
        self.built.dropout_states().unwrap().positions().unwrap()
    }
}

fn weights(rnn: &Rnn) -> Vec<f64> {
    numbers(WeightSpace::new(rnn).unwrap().elements(), 9)
}

/// The weights of one layer of a network, which begin with this pseudo-layer.
fn weights_of(rnn: &Rnn, weights: &[f64], first: usize, layer: &Rnn) -> Vec<f64> {
    let [all, space] = [rnn, layer].map(|of| WeightSpace::new(of).unwrap());
    let mut own = vec![0.0; space.elements() as usize];
    for at in 0..space.pseudo_layers() {
        for kind in WeightKind::ALL {
            let Some(to) = space.block(at, kind) else { continue };
            let from = all.block(first + at, kind).unwrap().offset as usize;
            let count = (to.rows * to.columns) as usize;
            own[to.offset as usize..][..count].copy_from_slice(&weights[from..][..count]);
        }
    }
    own
}

/// What an `rng` of the same seed and offset keeps of vectors.
fn kept(kiln: &Kiln, offset: i64, probability: f64, dims: &[i64]) -> Vec<f64> {
    let mut graph = OperationGraph::builder();
    let at = graph.scalar("offset", dims.len(), DType::I64);
    let op = Rng::bernoulli(1.0 - probability).seed(Some(SEED));
    let keep = graph.rng(op, &[at], dims).unwrap();
    graph.output(keep, "keep", DType::F64);
    let graph = graph.build().unwrap();
    let plan = kiln.plan(&graph).unwrap();
    let uid = graph.outputs().next().unwrap().uid;
    let given = Values::from([(at, vec![offset as f64])]);
    harness::run_plan(kiln, &plan, &given).unwrap().remove(&uid).unwrap()
}

/// A layer, a dropout and a layer behind it, one by one.
#[test]
fn training_drops_what_an_rng_drops() {
    let kiln = harness::kiln();
    let (x, rnn) = (numbers(ROWS * INPUT, 1), network(2, INPUT).dropout(dropout(0.3)));
    let all = weights(&rnn);
    let mut both = Trained::new(kiln, &rnn, &x, &all, true);
    let first = network(1, INPUT);
    let own = weights_of(&rnn, &all, 0, &first);
    let y = Trained::new(kiln, &first, &x, &own, false).forward();
    let keep = kept(kiln, 0, 0.3, &[ROWS, 2 * HIDDEN]);
    let dropped: Vec<f64> = y.iter().zip(&keep).map(|(y, keep)| y * keep / 0.7).collect();
    assert!(keep.contains(&0.0) && keep.contains(&1.0), "{keep:?}");
    let second = network(1, 2 * HIDDEN);
    let own = weights_of(&rnn, &all, 2, &second);
    let wanted = Trained::new(kiln, &second, &dropped, &own, false).forward();
    for (found, wanted) in both.forward().iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-14, "{found}, expected {wanted}");
    }
}

#[test]
fn inference_drops_nothing() {
    let kiln = harness::kiln();
    let (x, plain) = (numbers(ROWS * INPUT, 1), network(2, INPUT));
    let all = weights(&plain);
    let wanted = Trained::new(kiln, &plain, &x, &all, false).forward();
    let rnn = plain.dropout(dropout(0.5));
    assert_eq!(Trained::new(kiln, &rnn, &x, &all, false).forward(), wanted);
}

/// Each pass draws other numbers, the state can be set back, and gradients are those of the
/// elements that their own forward pass kept.
#[test]
fn gradients_are_slopes_of_the_same_draws() {
    let kiln = harness::kiln();
    let (x, rnn) = (numbers(ROWS * INPUT, 1), network(3, INPUT).dropout(dropout(0.4)));
    let all = weights(&rnn);
    let mut of = Trained::new(kiln, &rnn, &x, &all, true);
    assert_eq!(of.positions(), [0, 1]);
    let first = of.forward();
    assert_eq!(of.positions(), [2, 3]);
    let found = of.backward();
    assert_eq!(of.positions(), [2, 3], "backward passes draw what was kept");
    assert_ne!(of.forward(), first);
    let restore = |of: &Trained| of.built.dropout_states().unwrap().restore(&[0, 1]).unwrap();
    restore(&of);
    assert_eq!(of.forward(), first);
    let dy = numbers(ROWS * rnn.output_size(), 3);
    let mut loss = |role: Role, values: &[f64]| {
        let own = of.pack.clone();
        of.pack = own.clone().with(role, &upload(kiln, values));
        restore(&of);
        let y = of.forward();
        of.pack = own;
        y.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
    };
    for (role, values, gradient) in [(Role::Input, &x, &found[0]), (Role::Weights, &all, &found[1])]
    {
        let direction = numbers(values.len() as i64, 31);
        let along = |step: f64| -> Vec<f64> {
            values.iter().zip(&direction).map(|(value, of)| value + step * of).collect()
        };
        let slope = (loss(role, &along(1e-5)) - loss(role, &along(-1e-5))) / 2e-5;
        let wanted: f64 = gradient.iter().zip(&direction).map(|(a, b)| a * b).sum();
        assert!((slope - wanted).abs() < 1e-8 * (1.0 + slope.abs()), "{slope}, found {wanted}");
    }
}

/// Batches in front of steps: the same elements are dropped.
#[test]
fn what_is_dropped_does_not_depend_on_the_order_of_vectors() {
    let kiln = harness::kiln();
    let (x, rnn) = (numbers(ROWS * INPUT, 1), network(2, INPUT).dropout(dropout(0.4)));
    let all = weights(&rnn);
    let turned = |of: &[f64]| -> Vec<f64> {
        let size = of.len() / ROWS as usize;
        let rows: Vec<&[f64]> = of.chunks(size).collect();
        let order = (0..BATCH).flat_map(|b| (0..STEPS).map(move |step| step * BATCH + b));
        order.flat_map(|row| rows[row as usize].to_vec()).collect()
    };
    let mut by_steps = Trained::new(kiln, &rnn, &x, &all, true);
    let other = rnn.layout(RowLayout::BatchMajor);
    let mut by_batches = Trained::new(kiln, &other, &turned(&x), &all, true);
    let (wanted, found) = (turned(&by_steps.forward()), by_batches.forward());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-14, "{found}, expected {wanted}");
    }
}
