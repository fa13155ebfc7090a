//! Trains the character-level LSTM of `examples/char_rnn` from torch's initial weights, by Kiln
//! alone: the network's three passes, a head with its cross-entropy and gradient as graphs, and
//! Adam as a pointwise graph that updates in place.
//!
//! ```text
//! cargo run --release --example char_rnn_train [EPOCHS] [loss.svg]
//! ```
//! `train.py` writes the initial weights and prints the loss that torch reaches.

#[path = "../training/mod.rs"]
mod training;

use std::collections::HashMap;

use kiln::device::{Buffer, Stream};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath, Op, Transpose};
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::rnn::{Optional, Rnn, Role};
use kiln::{Config, DType, Kiln, OperationGraph};
use safetensors::SafeTensors;
use training::{Adam, Bound, Result, cross_entropy, floats, one_hot, picture};

const INITIAL: &[u8] = include_bytes!("initial.safetensors");
const HIDDEN: i64 = 64;

/// What the head's graph is made of, by uid.
struct Head {
    graph: OperationGraph,
    h: i64,
    weight: i64,
    bias: i64,
    targets: i64,
    loss: i64,
}

/// The mean cross-entropy of `softmax(h W' + b)` and characters, one of `characters` per row.
fn head(rows: i64, characters: i64) -> kiln::Result<Head> {
    let mut graph = OperationGraph::builder();
    let h = graph.input("h", &[1, rows, HIDDEN], DType::F32);
    let weight = graph.input("weight", &[1, characters, HIDDEN], DType::F32);
    let bias = graph.input("bias", &[1, 1, characters], DType::F32);
    let targets = graph.input("targets", &[1, rows, characters], DType::F32);
    let turned = Op::Transpose(Transpose { permutation: vec![0, 2, 1] });
    let turned = graph.operation(turned, &[weight])?[0];
    let product = graph.matmul(Matmul::new(MatmulMath::F32), h, turned)?;
    let scores = graph.pointwise(Pointwise::new(Mode::Add), &[product, bias])?;
    let loss = cross_entropy(&mut graph, scores, targets)?;
    graph.output(loss, "loss", DType::F32);
    Ok(Head { graph: graph.build()?, h, weight, bias, targets, loss })
}

/// The network, its passes and its memory.
struct Network {
    built: PersistentRnn,
    steps: i64,
    pack: RnnPack,
    weights: Buffer,
    gradients: Buffer,
}

impl Network {
    fn new(
        kiln: &Kiln,
        weights: &[f64],
        x: &[f32],
        (y, dy): (&Buffer, &Buffer),
    ) -> Result<Network> {
        let device = kiln.device();
        let steps = (y.bytes() / (4 * HIDDEN as u64)) as i64;
        let rnn = Rnn::lstm(x.len() as i64 / steps, HIDDEN);
        let built = kiln.build_rnn_dynamic(&rnn, 1)?;
        let weights = device.upload(&rnn.encode(weights))?;
        let gradients = device.upload(&vec![0; weights.bytes() as usize])?;
        let x = device.upload(&floats(x))?;
        let dx = device.alloc(x.bytes())?;
        let with = Optional { reserve: true, ..Optional::default() };
        let space = built.temp_space(steps, with)?;
        let pack = RnnPack::new()
            .with(Role::Input, &x)
            .with(Role::Weights, &weights)
            .with(Role::Output, y)
            .with(Role::OutputGradient, dy)
            .with(Role::InputGradient, &dx)
            .with(Role::WeightGradients, &gradients)
            .with(Role::Reserve, &device.alloc(space.reserve_bytes)?)
            .with_workspace(&device.alloc(space.workspace_bytes.max(1))?);
        Ok(Network { built, steps, pack, weights, gradients })
    }
}

impl Network {
    fn forward(&mut self, stream: &Stream) -> kiln::Result<()> {
        self.built.forward(stream, self.steps, &self.pack)
    }

    fn backward(&mut self, stream: &Stream) -> kiln::Result<()> {
        let zeros = vec![0; self.gradients.bytes() as usize];
        self.gradients.write_on(stream, 0, &zeros)?;
        self.built.backward_data(stream, self.steps, &self.pack)?;
        self.built.backward_weights(stream, self.steps, &self.pack)
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let epochs: i32 = arguments.next().map_or(Ok(400), |count| count.parse())?;
    let file = SafeTensors::deserialize(INITIAL)?;
    let read = |name: &str| training::read(&file, name);
    let (text, alphabet) = training::text();
    let (rows, characters) = (text.len() as i64 - 1, alphabet.len() as i64);

    let kiln = Kiln::open(Config::default())?;
    let (device, stream) = (kiln.device(), kiln.stream());
    let of = head(rows, characters)?;
    let vjp = of.graph.vjp(&[of.loss], &[of.h, of.weight, of.bias])?;
    let mut memory = HashMap::new();
    for (uid, name) in [(of.weight, "head.weight"), (of.bias, "head.bias")] {
        let values = read(name).ok_or("the file has no head")?.values;
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        memory.insert(uid, device.upload(&floats(&values))?);
    }
    let targets = one_hot(&text[1..], &alphabet);
    memory.insert(of.targets, device.upload(&floats(&targets))?);
    memory.insert(vjp.output_gradients[0], device.upload(&floats(&[1.0]))?);
    let forward = Bound::new(&kiln, &vjp.forward, &mut memory, 0.0)?;
    let backward = Bound::new(&kiln, &vjp.backward, &mut memory, 0.0)?;
    let [dy, of_weight, of_bias] = [0, 1, 2].map(|at| vjp.input_gradients[at]);
    let rnn = Rnn::lstm(characters, HIDDEN);
    let x = one_hot(&text[..text.len() - 1], &alphabet);
    let initial = rnn.from_torch(read)?;
    let mut network = Network::new(&kiln, &initial, &x, (&memory[&of.h], &memory[&dy]))?;
    let mut adams = [
        Adam::new(&kiln, &network.weights, &network.gradients)?,
        Adam::new(&kiln, &memory[&of.weight], &memory[&of_weight])?,
        Adam::new(&kiln, &memory[&of.bias], &memory[&of_bias])?,
    ];
    let mut losses = Vec::new();
    for epoch in 1..=epochs {
        network.forward(&stream)?;
        forward.run(&stream)?;
        backward.run(&stream)?;
        network.backward(&stream)?;
        for adam in &mut adams {
            adam.step(&stream, epoch)?;
        }
        stream.synchronize()?;
        let bytes = memory[&of.loss].to_vec()?;
        let loss = DType::F32.read(&bytes);
        losses.push(loss);
        if epoch == 1 || epoch % 25 == 0 || epoch == epochs {
            println!("epoch {epoch:3}  loss {loss:.4}");
        }
    }
    if let Some(path) = arguments.next() {
        std::fs::write(&path, picture(&losses))?;
        println!("{path}: the loss of every epoch");
    }
    Ok(())
}
