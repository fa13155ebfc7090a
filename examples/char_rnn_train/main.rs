//! Trains the character-level LSTM of `examples/char_rnn` from torch's initial weights, by Kiln
//! alone: the network's three passes, a head with its cross-entropy and gradient as graphs, and
//! Adam as a pointwise graph that updates in place.
//!
//! ```text
//! cargo run --release --example char_rnn_train [EPOCHS] [loss.svg]
//! ```
//! `train.py` writes the initial weights and prints the loss that torch reaches.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::fmt::Write as _;

use kiln::device::{Buffer, Stream};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{GraphBuilder, Matmul, MatmulMath, Op, Reduction, ReductionOp, Transpose};
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::rnn::{HostTensor, Optional, Rnn, Role};
use kiln::{Config, DType, ExecutionPlan, Kiln, OperationGraph, VariantPack};
use safetensors::SafeTensors;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const INITIAL: &[u8] = include_bytes!("initial.safetensors");
const TEXT: &str = include_str!("sonnet.txt");
const HIDDEN: i64 = 64;
const RATE: f64 = 0.01;

/// A plan with memory for all that its graph reads and writes; tensors of one uid share it.
struct Bound {
    plan: ExecutionPlan,
    pack: VariantPack,
}

impl Bound {
    fn new(
        kiln: &Kiln,
        graph: &OperationGraph,
        memory: &mut HashMap<i64, Buffer>,
    ) -> Result<Bound> {
        let plan = kiln.plan(graph)?;
        let mut pack = VariantPack::new();
        for tensor in graph.inputs().chain(graph.outputs()).filter(|tensor| !tensor.by_value) {
            let own = match memory.entry(tensor.uid) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let zeros = vec![0; tensor.span_bytes()? as usize];
                    place.insert(kiln.device().upload(&zeros)?)
                }
            };
            pack = pack.with(tensor.uid, own);
        }
        let workspace = kiln.device().alloc(plan.workspace_bytes().max(1))?;
        Ok(Bound { plan, pack: pack.with_workspace(&workspace) })
    }

    fn run(&self, stream: &Stream) -> kiln::Result<()> {
        self.plan.execute(stream, &self.pack)
    }
}

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
    let row = |graph: &mut GraphBuilder, op, x| {
        graph.reduction(Reduction { op, math: Default::default() }, x, &[1, rows, 1])
    };
    let largest = row(&mut graph, ReductionOp::Max, scores)?;
    let apart = graph.pointwise(Pointwise::new(Mode::Sub), &[scores, largest])?;
    let exp = graph.pointwise(Pointwise::new(Mode::Exp), &[apart])?;
    let sum = row(&mut graph, ReductionOp::Add, exp)?;
    let log = graph.pointwise(Pointwise::new(Mode::Log), &[sum])?;
    let chosen = graph.pointwise(Pointwise::new(Mode::Mul), &[apart, targets])?;
    let chosen = row(&mut graph, ReductionOp::Add, chosen)?;
    let missed = graph.pointwise(Pointwise::new(Mode::Sub), &[log, chosen])?;
    let mean = Reduction { op: ReductionOp::Avg, math: Default::default() };
    let loss = graph.reduction(mean, missed, &[1, 1, 1])?;
    graph.output(loss, "loss", DType::F32);
    Ok(Head { graph: graph.build()?, h, weight, bias, targets, loss })
}

/// Adam (Kingma and Ba 2014) for a vector of parameters, in place.
struct Adam {
    plan: ExecutionPlan,
    pack: VariantPack,
    /// Uids of the corrections of both moments.
    corrections: [i64; 2],
}

const BETAS: [f64; 2] = [0.9, 0.999];

impl Adam {
    fn new(kiln: &Kiln, weights: &Buffer, gradients: &Buffer) -> Result<Adam> {
        let count = (weights.bytes() / 4) as i64;
        let mut graph = OperationGraph::builder();
        let dims = [1, 1, count];
        let [w, g, m, v] = ["w", "g", "m", "v"].map(|name| graph.input(name, &dims, DType::F32));
        let corrections = ["first", "second"].map(|name| graph.scalar(name, 3, DType::F32));
        let [first, second] = BETAS;
        let op = |mode, a, b| Pointwise::new(mode).alphas(a, b);
        let next_m = graph.pointwise(op(Mode::Add, first, 1.0 - first), &[m, g])?;
        let next_v =
            graph.pointwise(op(Mode::AddSquare, second, (1.0 - second).sqrt()), &[v, g])?;
        let mean = graph.pointwise(op(Mode::Mul, 1.0, 1.0), &[next_m, corrections[0]])?;
        let square = graph.pointwise(op(Mode::Mul, 1.0, 1.0), &[next_v, corrections[1]])?;
        let root = graph.pointwise(op(Mode::Sqrt, 1.0, 1.0), &[square])?;
        let epsilon = graph.scalar("epsilon", 3, DType::F32);
        let root = graph.pointwise(op(Mode::Add, 1.0, 1.0), &[root, epsilon])?;
        let step = graph.pointwise(op(Mode::Div, 1.0, 1.0), &[mean, root])?;
        let next_w = graph.pointwise(op(Mode::Sub, 1.0, RATE), &[w, step])?;
        for (uid, name) in [(next_m, "next_m"), (next_v, "next_v"), (next_w, "next_w")] {
            graph.output(uid, name, DType::F32);
        }
        let plan = kiln.plan(&graph.build()?)?;
        let zeros = vec![0; weights.bytes() as usize];
        let moments = [kiln.device().upload(&zeros)?, kiln.device().upload(&zeros)?];
        let pack = VariantPack::new()
            .with(w, weights)
            .with(next_w, weights)
            .with(g, gradients)
            .with(m, &moments[0])
            .with(next_m, &moments[0])
            .with(v, &moments[1])
            .with(next_v, &moments[1])
            .with_value(epsilon, 1e-8)
            .with_value(corrections[0], 1.0)
            .with_value(corrections[1], 1.0);
        Ok(Adam { plan, pack, corrections })
    }

    fn step(&mut self, stream: &Stream, epoch: i32) -> kiln::Result<()> {
        for (uid, beta) in self.corrections.iter().zip(BETAS) {
            self.pack.set_value(*uid, 1.0 / (1.0 - beta.powi(epoch)));
        }
        self.plan.execute(stream, &self.pack)
    }
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

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A row of zeros with a one for each character.
fn one_hot(characters: &[char], alphabet: &[char]) -> Vec<f32> {
    let element = |of: char, known: char| if known == of { 1.0 } else { 0.0 };
    let row = |of: &char| alphabet.iter().map(|known| element(*of, *known)).collect::<Vec<f32>>();
    characters.iter().flat_map(row).collect()
}

/// The losses of all epochs as a picture, on a logarithmic axis.
fn picture(losses: &[f64]) -> String {
    let (width, height, left) = (640.0, 360.0, 60.0);
    let (top, bottom) = (10_f64.log10(), 1e-3_f64.log10());
    let x = |at: usize| left + (width - left - 10.0) * at as f64 / losses.len().max(2) as f64;
    let y = |loss: f64| 10.0 + (height - 40.0) * (top - loss.log10()) / (top - bottom);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    for loss in [10.0, 1.0, 0.1, 0.01, 0.001] {
        let at = y(loss);
        _ = writeln!(
            svg,
            "<text x=\"5\" y=\"{:.0}\">{loss}</text>\
             <path d=\"M{left} {at:.1}H{width}\" stroke=\"#ddd\"/>",
            at + 4.0
        );
    }
    let points: Vec<String> = losses
        .iter()
        .enumerate()
        .map(|(at, loss)| format!("{:.1},{:.1}", x(at), y(loss.clamp(1e-3, 10.0))))
        .collect();
    let points = points.join(" ");
    _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"#1f77b4\"/>");
    let (at, count) = (height - 8.0, losses.len());
    _ = writeln!(svg, "<text x=\"{left}\" y=\"{at}\">cross-entropy by epoch, {count}</text></svg>");
    svg
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let epochs: i32 = arguments.next().map_or(Ok(400), |count| count.parse())?;
    let file = SafeTensors::deserialize(INITIAL)?;
    let read = |name: &str| {
        let view = file.tensor(name).ok()?;
        let dims: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
        let values = view.data().chunks_exact(4).map(|element| DType::F32.read(element));
        Some(HostTensor::new(&dims, values.collect()))
    };
    let text: Vec<char> = TEXT.chars().collect();
    let mut alphabet = text.clone();
    alphabet.sort_unstable();
    alphabet.dedup();
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
    let forward = Bound::new(&kiln, &vjp.forward, &mut memory)?;
    let backward = Bound::new(&kiln, &vjp.backward, &mut memory)?;
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
