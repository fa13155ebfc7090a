//! Runs a torch LSTM from its safetensors file and compares it with what torch gave.
//!
//! ```text
//! cargo run --release --example torch_lstm
//! ```
//! `make.py` writes the file. `examples/torch_lstm/problem.json` is the same network as a problem
//! file: `kiln run` takes it with `--inputs examples/torch_lstm/lstm.safetensors`.

use kiln::layers::RnnPack;
use kiln::rnn::{HostTensor, Rnn, Role, WeightSpace};
use kiln::{Config, DType, Kiln};
use safetensors::SafeTensors;

type AnyError = Box<dyn std::error::Error>;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/torch_lstm/lstm.safetensors");
const STEPS: i64 = 10;
const BATCH: i64 = 4;

fn main() -> Result<(), AnyError> {
    let bytes = std::fs::read(FILE)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let read = |name: &str| {
        let view = file.tensor(name).ok()?;
        let dims: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
        let elements = view.data().chunks_exact(4).map(|element| DType::F32.read(element));
        Some(HostTensor::new(&dims, elements.collect()))
    };
    let raw = |name: &str| file.tensor(name).map(|view| view.data());

    let rnn = Rnn::lstm(8, 16).layers(2).bidirectional();
    let weights = rnn.encode(&rnn.from_torch(read)?);
    assert_eq!(weights.len() as u64, WeightSpace::new(&rnn)?.bytes());

    let kiln = Kiln::open(Config::default())?;
    println!("device  {}", kiln.device().target());
    let mut built = kiln.build_rnn_dynamic(&rnn, BATCH)?;
    let upload = |bytes: &[u8]| kiln.device().upload(bytes);
    let inputs = [
        (Role::Input, upload(raw("input")?)?),
        (Role::Weights, upload(&weights)?),
        (Role::HInitial, upload(raw("h_0")?)?),
        (Role::StatesInitial, upload(raw("c_0")?)?),
    ];
    let mut outputs = Vec::new();
    for role in [Role::Output, Role::HFinal, Role::StatesFinal] {
        let expected = raw(role.name())?;
        outputs.push((role, kiln.device().alloc(expected.len() as u64)?, expected));
    }
    let mut pack = RnnPack::new();
    for (role, buffer) in &inputs {
        pack = pack.with(*role, buffer);
    }
    for (role, buffer, _) in &outputs {
        pack = pack.with(*role, buffer);
    }
    let workspace =
        kiln.device().alloc(built.prepare(STEPS, pack.optional())?.workspace_bytes())?;
    built.forward(&kiln.stream(), STEPS, &pack.with_workspace(&workspace))?;
    kiln.stream().synchronize()?;

    for (role, buffer, expected) in &outputs {
        let actual = buffer.to_vec()?;
        let pairs = actual.chunks_exact(4).zip(expected.chunks_exact(4));
        let off = pairs.map(|(a, b)| (DType::F32.read(a) - DType::F32.read(b)).abs());
        let worst = off.fold(0.0, f64::max);
        println!("{:7} {} values, at most {worst:.1e} from torch's", role.name(), actual.len() / 4);
        // Both round in f32 at every of 20 steps; states stay below 4.
        assert!(worst < 1e-5, "{} is not what torch gave", role.name());
    }
    Ok(())
}
