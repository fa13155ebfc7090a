//! Writes text character by character with an LSTM: each character it chooses is its next input,
//! one step at a time, and its state stays on the device.
//!
//! ```text
//! cargo run --release --example char_rnn [START] [CHARACTERS]
//! ```
//! `train.py` writes the network, which knows the first lines of a sonnet by heart.

use std::error::Error;

use kiln::layers::RnnPack;
use kiln::rnn::{HostTensor, Rnn, Role};
use kiln::{Config, DType, Kiln};
use safetensors::SafeTensors;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/char_rnn/char_rnn.safetensors");
const DTYPE: DType = DType::F16;

/// The layer behind the network: a number per character.
struct Head {
    weights: HostTensor,
    bias: HostTensor,
}

impl Head {
    /// The character with the greatest number.
    fn choose(&self, h: &[f64]) -> usize {
        let rows = self.weights.values.chunks_exact(h.len()).zip(&self.bias.values);
        let scores = rows.map(|(row, bias)| {
            let products = row.iter().zip(h).map(|(weight, h)| weight * h);
            products.sum::<f64>() + bias
        });
        let best = scores.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
        best.map_or(0, |(at, _)| at)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let start = arguments.next().unwrap_or_else(|| "S".to_owned());
    let count: usize = arguments.next().map_or(Ok(170), |count| count.parse())?;

    let bytes = std::fs::read(FILE)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let read = |name: &str| {
        let view = file.tensor(name).ok()?;
        let dims: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
        let elements = view.data().chunks_exact(DTYPE.bytes()).map(|element| DTYPE.read(element));
        Some(HostTensor::new(&dims, elements.collect()))
    };
    let codes = file.tensor("alphabet")?.data().chunks_exact(4);
    let code = |bytes: &[u8]| DType::I32.read(bytes) as u32;
    let alphabet: Vec<char> = codes.filter_map(|bytes| char::from_u32(code(bytes))).collect();
    let head = Head {
        weights: read("head.weight").ok_or("the file has no head")?,
        bias: read("head.bias").ok_or("the file has no head")?,
    };
    let (input, hidden) = (alphabet.len(), head.weights.dims[1] as usize);

    let kiln = Kiln::open(Config::default())?;
    let (device, stream) = (kiln.device(), kiln.stream());
    let rnn = Rnn::lstm(input as i64, hidden as i64).dtype(DTYPE);
    let mut built = kiln.build_rnn_dynamic(&rnn, 1)?;
    let size = DTYPE.bytes();
    let x = device.alloc((input * size) as u64)?;
    let y = device.alloc((hidden * size) as u64)?;
    let weights = device.upload(&rnn.encode(&rnn.from_torch(read)?))?;
    // Two sets of states, read and written in turns.
    let zeros = vec![0; hidden * size];
    let states = || -> kiln::Result<_> { Ok([device.upload(&zeros)?, device.upload(&zeros)?]) };
    let (h, c) = (states()?, states()?);
    let pack = RnnPack::new().with(Role::Input, &x).with(Role::Weights, &weights);
    let pack = pack.with(Role::Output, &y);
    let packs = [0, 1].map(|turn| {
        pack.clone()
            .with(Role::HInitial, &h[turn])
            .with(Role::StatesInitial, &c[turn])
            .with(Role::HFinal, &h[1 - turn])
            .with(Role::StatesFinal, &c[1 - turn])
    });
    let workspace = device.alloc(built.prepare(1, packs[0].optional())?.workspace_bytes())?;
    let packs = packs.map(|pack| pack.with_workspace(&workspace));

    let mut text: Vec<char> = start.chars().collect();
    let mut at = 0;
    while text.len() < count {
        let character = text[at];
        let position = alphabet.iter().position(|known| *known == character);
        let position = position.ok_or_else(|| format!("`{character}` is not in the alphabet"))?;
        let mut one_hot = vec![0; input * size];
        DTYPE.write(1.0, &mut one_hot[position * size..]);
        x.write(0, &one_hot)?;
        built.forward(&stream, 1, &packs[at % 2])?;
        stream.synchronize()?;
        at += 1;
        if at == text.len() {
            let h: Vec<f64> =
                y.to_vec()?.chunks_exact(size).map(|element| DTYPE.read(element)).collect();
            text.push(alphabet[head.choose(&h)]);
        }
    }
    println!("{}", text.into_iter().collect::<String>());
    Ok(())
}
