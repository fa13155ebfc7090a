//! The network of the example `char_rnn` written layer by layer, with loops: it reads the beginning
//! of a text and goes on with it, all on the device.
//!
//! ```text
//! cargo run --release --example char_rnn_loops [START] [CHARACTERS]
//! ```
//! The loop over the beginning is a recurrent layer: the kernel of `Rnn::lstm`. The other one
//! chooses a character in each trip, so its kernels are launched trip by trip. Neither is compiled
//! for a number of characters.

use std::error::Error;

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath, Op, Reduction, ReductionOp, Slice, Transpose};
use kiln::loops::{Loop, LoopOutput, Network, NetworkBuilder, TripLimit};
use kiln::plan::Values;
use kiln::{Config, DType, Kiln};
use safetensors::SafeTensors;

/// The weights and the alphabet.
pub const FILE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/examples/char_rnn/char_rnn.safetensors");

/// Characters of a beginning, and of what is written, at most.
const START_MAX: i64 = 64;
const WRITTEN_MAX: i64 = 512;

/// The weights, as tensors of the network.
struct Weights {
    w: i64,
    r: i64,
    bias: i64,
    head: i64,
    head_bias: i64,
    hidden: i64,
}

fn op(network: &mut NetworkBuilder, mode: Mode, inputs: &[i64]) -> kiln::Result<i64> {
    network.graph().pointwise(Pointwise::new(mode), inputs)
}

/// The product with a matrix whose rows are results.
fn product(network: &mut NetworkBuilder, x: i64, matrix: i64) -> kiln::Result<i64> {
    let turned = Op::Transpose(Transpose { permutation: vec![1, 0] });
    let turned = network.graph().operation(turned, &[matrix])?[0];
    network.graph().matmul(Matmul::new(MatmulMath::F32), x, turned)
}

impl Weights {
    /// The LSTM's state behind a character: its output in 16 bits, its cell in 32.
    fn step(
        &self,
        network: &mut NetworkBuilder,
        letter: i64,
        [h, c]: [i64; 2],
    ) -> kiln::Result<[i64; 2]> {
        let of_letter = product(network, letter, self.w)?;
        let of_state = product(network, h, self.r)?;
        let sum = op(network, Mode::Add, &[of_letter, of_state])?;
        let sum = op(network, Mode::Add, &[sum, self.bias])?;
        let mut gates = [0; 4];
        for (at, gate) in gates.iter_mut().enumerate() {
            let (first, width) = (at as i64 * self.hidden, self.hidden);
            let slice = Slice::along(&[1, 4 * width], 1, first, first + width);
            let part = network.graph().operation(Op::Slice(slice), &[sum])?[0];
            let mode = if at == 2 { Mode::TanhFwd } else { Mode::SigmoidFwd };
            *gate = op(network, mode, &[part])?;
        }
        let [input, forget, candidate, output] = gates;
        let kept = op(network, Mode::Mul, &[forget, c])?;
        let added = op(network, Mode::Mul, &[input, candidate])?;
        let c = op(network, Mode::Add, &[kept, added])?;
        let shown = op(network, Mode::TanhFwd, &[c])?;
        let h = op(network, Mode::Mul, &[output, shown])?;
        network.graph().name(h, "", DType::F16);
        Ok([h, c])
    }

    /// The character, as a row with a 1, that the state expects.
    fn choose(&self, network: &mut NetworkBuilder, h: i64) -> kiln::Result<i64> {
        let scores = product(network, h, self.head)?;
        let scores = op(network, Mode::Add, &[scores, self.head_bias])?;
        let best = network.graph().reduction(Reduction::new(ReductionOp::Max), scores, &[1, 1])?;
        let letter = op(network, Mode::CmpEq, &[scores, best])?;
        network.graph().name(letter, "", DType::F16);
        Ok(letter)
    }
}

/// Carries the LSTM's state through a loop.
fn states(network: &mut NetworkBuilder, of: Loop, initial: [i64; 2]) -> kiln::Result<[i64; 2]> {
    Ok([network.recurrence(of, initial[0])?, network.recurrence(of, initial[1])?])
}

/// The network: it reads the beginning of a text, and writes on.
pub fn writer(letters: i64, hidden: i64) -> kiln::Result<Network> {
    let mut network = Network::builder();
    let graph = network.graph();
    let mut input = |name: &str, dims: &[i64], dtype| graph.input(name, dims, dtype);
    let start = input("start", &[START_MAX, 1, letters], DType::F16);
    let [read, written] = ["read", "written"].map(|name| input(name, &[1], DType::I32));
    let zeros = [("h", DType::F16), ("c", DType::F32)];
    let zeros = zeros.map(|(name, dtype)| input(name, &[1, hidden], dtype));
    let weights = Weights {
        w: input("weight_ih_l0", &[4 * hidden, letters], DType::F16),
        r: input("weight_hh_l0", &[4 * hidden, hidden], DType::F16),
        bias: input("bias", &[1, 4 * hidden], DType::F32),
        head: input("head.weight", &[letters, hidden], DType::F16),
        head_bias: input("head.bias", &[1, letters], DType::F16),
        hidden,
    };

    let reading = network.add_loop("reading");
    network.trip_limit(reading, TripLimit::Count, read);
    let letter = network.iterator(reading, start, 0, false)?;
    let state = states(&mut network, reading, zeros)?;
    let next = weights.step(&mut network, letter, state)?;
    for (state, next) in state.into_iter().zip(next) {
        network.set_next(state, next)?;
    }
    let h = network.loop_output(reading, LoopOutput::LastValue, state[0])?;
    let c = network.loop_output(reading, LoopOutput::LastValue, state[1])?;
    let first = weights.choose(&mut network, h)?;

    let writing = network.add_loop("writing");
    network.trip_limit(writing, TripLimit::Count, written);
    let letter = network.recurrence(writing, first)?;
    let state = states(&mut network, writing, [h, c])?;
    let next = weights.step(&mut network, letter, state)?;
    let chosen = weights.choose(&mut network, next[0])?;
    network.set_next(letter, chosen)?;
    for (state, next) in state.into_iter().zip(next) {
        network.set_next(state, next)?;
    }
    let text = LoopOutput::Concatenate { axis: 0, length: WRITTEN_MAX };
    let text = network.loop_output(writing, text, letter)?;
    network.graph().output(text, "text", DType::F16);
    network.build()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let start = arguments.next().unwrap_or_else(|| "S".to_owned());
    let count: usize = arguments.next().map_or(Ok(170), |count| count.parse())?;

    let bytes = std::fs::read(FILE)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let read = |name: &str| -> Result<Vec<f64>, safetensors::SafeTensorError> {
        let elements = file.tensor(name)?.data().chunks_exact(2).map(|of| DType::F16.read(of));
        Ok(elements.collect())
    };
    let codes = file.tensor("alphabet")?.data().chunks_exact(4);
    let code = |bytes: &[u8]| DType::I32.read(bytes) as u32;
    let alphabet: Vec<char> = codes.filter_map(|bytes| char::from_u32(code(bytes))).collect();
    let hidden = file.tensor("head.weight")?.shape()[1];
    let letters: Vec<char> = start.chars().collect();
    let written = count.saturating_sub(letters.len());
    if letters.is_empty() || letters.len() as i64 > START_MAX || written as i64 > WRITTEN_MAX {
        return Err(format!("1 to {START_MAX} characters are read, {WRITTEN_MAX} written").into());
    }
    let mut rows = vec![0.0; START_MAX as usize * alphabet.len()];
    for (at, letter) in letters.iter().enumerate() {
        let known = alphabet.iter().position(|known| known == letter);
        let known = known.ok_or_else(|| format!("`{letter}` is not in the alphabet"))?;
        rows[at * alphabet.len() + known] = 1.0;
    }
    let [ih, hh] = [read("bias_ih_l0")?, read("bias_hh_l0")?];

    let kiln = Kiln::open(Config::default())?;
    let network = writer(alphabet.len() as i64, hidden as i64)?;
    let plan = kiln.build_loops(&network)?;
    eprint!("{}", plan.steps());
    let mut inputs = Values::new();
    for tensor in network.inputs() {
        let values = match tensor.name.as_str() {
            "start" => rows.clone(),
            "read" => vec![letters.len() as f64],
            "written" => vec![written as f64],
            "h" | "c" => vec![0.0; hidden],
            "bias" => ih.iter().zip(&hh).map(|(a, b)| a + b).collect(),
            name => read(name)?,
        };
        inputs.insert(tensor.uid, values);
    }
    let outputs = plan.trial(&kiln, &inputs)?;
    let text = outputs.into_values().next().unwrap_or_default();
    let chosen = text.chunks(alphabet.len()).take(written);
    let chosen = chosen.filter_map(|row| row.iter().position(|of| *of > 0.5));
    println!("{start}{}", chosen.map(|at| alphabet[at]).collect::<String>());
    Ok(())
}
