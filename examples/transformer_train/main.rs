//! Trains a transformer block from torch's initial weights, by Kiln alone: the block and its
//! cross-entropy are one graph, its gradient is a graph, and Adam a pointwise graph that updates in
//! place.
//!
//! ```text
//! cargo run --release --example transformer_train [EPOCHS] [loss.svg]
//! ```
//! `train.py` writes the initial weights and prints the loss that torch reaches.

#[path = "../training/mod.rs"]
mod training;

use std::collections::HashMap;

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{
    Attention, Band, Diagonal, GraphBuilder, Matmul, MatmulMath, NormForward, NormMode, Op, Phase,
    Slice, Transpose,
};
use kiln::{Config, DType, Kiln, OperationGraph};
use safetensors::SafeTensors;
use training::{Adam, Bound, Result, cross_entropy, floats, one_hot, picture};

const INITIAL: &[u8] = include_bytes!("initial.safetensors");
const WIDTH: i64 = 32;
const HEADS: i64 = 4;
/// Of layer norms, the only values of the graphs that are not in memory.
const EPSILON: f64 = 1e-5;

/// A block in the making, pre-norm as GPT-2 has it, of `rows` characters of an alphabet.
struct Block {
    graph: GraphBuilder,
    rows: i64,
    /// The parameters by torch's names.
    parameters: Vec<(String, i64)>,
}

impl Block {
    fn parameter(&mut self, name: &str, dims: &[i64]) -> i64 {
        let uid = self.graph.input(name, dims, DType::F32);
        self.parameters.push((name.to_owned(), uid));
        uid
    }

    fn pointwise(&mut self, mode: Mode, inputs: &[i64]) -> kiln::Result<i64> {
        self.graph.pointwise(Pointwise::new(mode), inputs)
    }

    fn transpose(&mut self, x: i64, permutation: &[usize]) -> kiln::Result<i64> {
        let transpose = Transpose { permutation: permutation.to_vec() };
        Ok(self.graph.operation(Op::Transpose(transpose), &[x])?[0])
    }

    fn matmul(&mut self, a: i64, b: i64) -> kiln::Result<i64> {
        self.graph.matmul(Matmul::new(MatmulMath::F32), a, b)
    }

    /// `x W^T + b`.
    fn linear(&mut self, name: &str, x: i64, [inputs, outputs]: [i64; 2]) -> kiln::Result<i64> {
        let weight = self.parameter(&format!("{name}.weight"), &[1, outputs, inputs]);
        let bias = self.parameter(&format!("{name}.bias"), &[1, 1, outputs]);
        let turned = self.transpose(weight, &[0, 2, 1])?;
        let product = self.matmul(x, turned)?;
        self.pointwise(Mode::Add, &[product, bias])
    }

    fn norm(&mut self, name: &str, x: i64) -> kiln::Result<i64> {
        let scale = self.parameter(&format!("{name}.weight"), &[1, 1, WIDTH]);
        let bias = self.parameter(&format!("{name}.bias"), &[1, 1, WIDTH]);
        let epsilon = self.graph.scalar(&format!("{name}.epsilon"), 3, DType::F32);
        let op = NormForward { bias: true, ..NormForward::new(NormMode::Layer, Phase::Training) };
        Ok(self.graph.operation(Op::NormForward(op), &[x, scale, bias, epsilon])?[0])
    }

    /// A third of the columns, head by head.
    fn heads(&mut self, qkv: i64, third: i64) -> kiln::Result<i64> {
        let dims = [1, self.rows, 3 * WIDTH];
        let slice = Slice::along(&dims, 2, third * WIDTH, (third + 1) * WIDTH);
        let own = self.graph.operation(Op::Slice(slice), &[qkv])?[0];
        let own = self.graph.reshape(own, &[1, self.rows, HEADS, WIDTH / HEADS])?;
        self.transpose(own, &[0, 2, 1, 3])
    }

    fn attention(&mut self, x: i64) -> kiln::Result<i64> {
        let qkv = self.linear("qkv", x, [WIDTH, 3 * WIDTH])?;
        let qkv = [self.heads(qkv, 0)?, self.heads(qkv, 1)?, self.heads(qkv, 2)?];
        let band = Band::causal(Diagonal::TopLeft);
        let attention = Attention { band, ..Attention::new(MatmulMath::F32) };
        let o = self.graph.operation(Op::Attention(attention), &qkv)?[0];
        let o = self.transpose(o, &[0, 2, 1, 3])?;
        let o = self.graph.reshape(o, &[1, self.rows, WIDTH])?;
        self.linear("out", o, [WIDTH, WIDTH])
    }

    /// A number for each character of the alphabet and row of one-hot characters.
    fn scores(&mut self, characters: i64, count: i64) -> kiln::Result<i64> {
        let embedding = self.parameter("embedding.weight", &[1, count, WIDTH]);
        let positions = self.parameter("positions", &[1, self.rows, WIDTH]);
        let x = self.matmul(characters, embedding)?;
        let x = self.pointwise(Mode::Add, &[x, positions])?;
        let normed = self.norm("norm1", x)?;
        let attended = self.attention(normed)?;
        let x = self.pointwise(Mode::Add, &[x, attended])?;
        let normed = self.norm("norm2", x)?;
        let up = self.linear("up", normed, [WIDTH, 4 * WIDTH])?;
        let up = self.pointwise(Mode::GeluFwd, &[up])?;
        let down = self.linear("down", up, [4 * WIDTH, WIDTH])?;
        let x = self.pointwise(Mode::Add, &[x, down])?;
        let normed = self.norm("norm3", x)?;
        self.linear("head", normed, [WIDTH, count])
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let epochs: i32 = arguments.next().map_or(Ok(100), |count| count.parse())?;
    let (text, alphabet) = training::text();
    let (rows, count) = (text.len() as i64 - 1, alphabet.len() as i64);
    let mut block = Block { graph: OperationGraph::builder(), rows, parameters: Vec::new() };
    let characters = block.graph.input("characters", &[1, rows, count], DType::F32);
    let targets = block.graph.input("targets", &[1, rows, count], DType::F32);
    let scores = block.scores(characters, count)?;
    let loss = cross_entropy(&mut block.graph, scores, targets)?;
    block.graph.output(loss, "loss", DType::F32);
    let Block { graph, parameters, .. } = block;
    let inputs: Vec<i64> = parameters.iter().map(|(_, uid)| *uid).collect();
    let vjp = graph.build()?.vjp(&[loss], &inputs)?;

    let kiln = Kiln::open(Config::default())?;
    let (device, stream) = (kiln.device(), kiln.stream());
    let file = SafeTensors::deserialize(INITIAL)?;
    let mut memory = HashMap::new();
    for (name, uid) in &parameters {
        let values = training::read(&file, name).ok_or("the file lacks a parameter")?.values;
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        memory.insert(*uid, device.upload(&floats(&values))?);
    }
    let rows = text.len() - 1;
    for (uid, of) in [(characters, &text[..rows]), (targets, &text[1..])] {
        memory.insert(uid, device.upload(&floats(&one_hot(of, &alphabet)))?);
    }
    memory.insert(vjp.output_gradients[0], device.upload(&floats(&[1.0]))?);
    let forward = Bound::new(&kiln, &vjp.forward, &mut memory, EPSILON)?;
    let backward = Bound::new(&kiln, &vjp.backward, &mut memory, EPSILON)?;
    let mut adams = Vec::new();
    for (uid, gradient) in inputs.iter().zip(&vjp.input_gradients) {
        adams.push(Adam::new(&kiln, &memory[uid], &memory[gradient])?);
    }
    let mut losses = Vec::new();
    for epoch in 1..=epochs {
        forward.run(&stream)?;
        backward.run(&stream)?;
        for adam in &mut adams {
            adam.step(&stream, epoch)?;
        }
        stream.synchronize()?;
        let loss = DType::F32.read(&memory[&loss].to_vec()?);
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
