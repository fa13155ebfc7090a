//! A decoder's two attention layers over beams of candidates, step by step.
//!
//! ```text
//! cargo run --release --example attention_beams [STEPS]
//! ```
//! Each candidate attends to what it wrote so far (self-attention, one candidate to its own keys),
//! then to the sentence it translates (cross-attention, all candidates of a beam to the same keys).
//! Every step is one call with the step's window; at the end all steps are computed at once, which
//! must give the same. After the first step no kernel is compiled or looked up: steps and windows
//! are data.

use std::error::Error;

use kiln::attention::{
    AttentionDescriptor, AttentionSettings, AttentionSizes, QueryMap, SequenceDataDescriptor,
    SequenceDataSettings, SequenceExtents,
};
use kiln::device::{Buffer, Stream};
use kiln::layers::{AttentionForward, MultiHeadAttention};
use kiln::{Config, DType, Kiln};

const SENTENCES: i32 = 2;
const CANDIDATES: i32 = 4;
const HEADS: i32 = 4;
const SIZE: i32 = 64;
/// Vectors of each encoded sentence.
const SOURCES: [i32; SENTENCES as usize] = [7, 5];

/// A layer with its weights and workspace, and descriptors of queries and of keys.
struct Layer {
    layer: MultiHeadAttention,
    weights: Buffer,
    workspace: Buffer,
    queries: SequenceDataDescriptor,
    query_lengths: Buffer,
    keys: SequenceDataDescriptor,
    key_lengths: Buffer,
}

/// Numbers from -1 to 1 that look arbitrary.
fn noise(count: u64, seed: u64) -> Vec<u8> {
    let value = |at: u64| ((at + seed) * 7919 % 251) as f32 / 125.0 - 1.0;
    (0..count).flat_map(|at| value(at).to_ne_bytes()).collect()
}

fn floats(buffer: &Buffer) -> kiln::Result<Vec<f64>> {
    let bytes = buffer.to_vec()?;
    Ok(bytes.chunks_exact(4).map(|element| DType::F32.read(element)).collect())
}

impl Layer {
    fn new(
        kiln: &Kiln,
        query_map: QueryMap,
        queries: SequenceDataSettings,
        keys: SequenceDataSettings,
    ) -> kiln::Result<Layer> {
        let settings = AttentionSettings {
            query_map,
            proj_biases: true,
            qo_max_seq_length: queries.dims[0],
            kv_max_seq_length: keys.dims[0],
            max_beam_size: CANDIDATES,
            ..AttentionSettings::new(AttentionSizes {
                heads: HEADS,
                size: SIZE,
                batch: SENTENCES,
                steps: 1,
            })
        };
        let descriptor = AttentionDescriptor::set(settings)?;
        let bytes = descriptor.buffers(false)?;
        let device = kiln.device();
        let lengths = |data: &SequenceDataSettings| {
            let lengths: Vec<u8> = data.seq_lengths.iter().flat_map(|l| l.to_ne_bytes()).collect();
            device.upload(&lengths)
        };
        let small: Vec<u8> = noise(bytes.weight_bytes / 4, 3)
            .chunks_exact(4)
            .flat_map(|value| (DType::F32.read(value) as f32 / 8.0).to_ne_bytes())
            .collect();
        Ok(Layer {
            layer: kiln.multi_head_attention(&descriptor)?,
            weights: device.upload(&small)?,
            workspace: device.alloc(bytes.workspace_bytes)?,
            query_lengths: lengths(&queries)?,
            key_lengths: lengths(&keys)?,
            queries: SequenceDataDescriptor::set(queries)?,
            keys: SequenceDataDescriptor::set(keys)?,
        })
    }

    /// Queries attend to keys, which are their own values, and are added to what comes out. One
    /// step, or all where it is below 0; each attends to the keys of its window.
    fn forward(
        &mut self,
        stream: &Stream,
        step: i32,
        windows: &[i32],
        [queries, keys, out]: [&Buffer; 3],
    ) -> kiln::Result<()> {
        let call = AttentionForward {
            curr_idx: step,
            lo_win_idx: &vec![0; windows.len()],
            hi_win_idx: windows,
            seq_lengths_qo: (&self.query_lengths).into(),
            seq_lengths_kv: (&self.key_lengths).into(),
            q_desc: &self.queries,
            queries: queries.into(),
            residuals: Some(queries.into()),
            k_desc: &self.keys,
            keys: keys.into(),
            v_desc: &self.keys,
            values: keys.into(),
            o_desc: &self.queries,
            out: out.into(),
            weights: (&self.weights).into(),
            workspace: Some((&self.workspace).into()),
            reserve: None,
        };
        self.layer.forward(stream, &call)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let steps: i32 = std::env::args().nth(1).map_or(Ok(6), |steps| steps.parse())?;
    let kiln = Kiln::open(Config::default())?;
    let (device, stream) = (kiln.device(), kiln.stream());

    // Of the words so far, and of the sentences.
    let extents = SequenceExtents { batch: SENTENCES, beam: CANDIDATES, time: steps, vector: SIZE };
    let words = SequenceDataSettings::new(extents);
    let longest = SOURCES.into_iter().max().unwrap_or(0);
    let sources = SequenceDataSettings {
        seq_lengths: SOURCES.to_vec(),
        ..SequenceDataSettings::new(SequenceExtents { beam: 1, time: longest, ..extents })
    };
    let mut own = Layer::new(&kiln, QueryMap::OneToOne, words.clone(), words.clone())?;
    let mut cross = Layer::new(&kiln, QueryMap::AllToOne, words, sources)?;

    let count = (SENTENCES * CANDIDATES * steps * SIZE) as u64;
    let x = device.upload(&noise(count, 0))?;
    let source = device.upload(&noise((SENTENCES * longest * SIZE) as u64, 41))?;
    let [between, y] = [device.alloc(count * 4)?, device.alloc(count * 4)?];

    // A step sees those up to itself.
    let own_windows: Vec<i32> = (1..=steps).collect();
    let whole = vec![i32::MAX; steps as usize];
    for step in 0..steps {
        own.forward(&stream, step, &own_windows, [&x, &x, &between])?;
        cross.forward(&stream, step, &whole, [&between, &source, &y])?;
        stream.synchronize()?;
        let asked: u64 = kiln.metrics().kernels.values().sum();
        println!("step {step}: {asked} kernels asked for since the start");
    }
    let by_step = floats(&y)?;

    own.forward(&stream, -1, &own_windows, [&x, &x, &between])?;
    cross.forward(&stream, -1, &whole, [&between, &source, &y])?;
    stream.synchronize()?;
    let at_once = floats(&y)?;
    let apart = by_step.iter().zip(&at_once).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("{} outputs, step by step and at once: at most {apart:.1e} apart", at_once.len());
    // The greatest of numbers passes over those that are none.
    if apart > 1e-5 || at_once.iter().any(|value| !value.is_finite() || *value == 0.0) {
        return Err("step by step is not at once".into());
    }
    Ok(())
}
