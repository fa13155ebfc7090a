//! A multi-head attention layer learns to reverse sequences.
//!
//! ```text
//! cargo run --release --example attention_training [PASSES]
//! ```
//! Queries are positions, keys are positions and values are words: attention has to find the word
//! at the opposite end of each sequence, whatever its length. Each pass is a forward pass in
//! training, which drops some of the softmax, and both backward passes; gradients are set, and the
//! weights follow them on the host. At the end the layer runs without dropout.

use std::error::Error;
use std::f32::consts::PI;

use kiln::attention::{
    AttentionDescriptor, AttentionSettings, AttentionSizes, SequenceDataDescriptor,
    SequenceDataSettings, SequenceExtents,
};
use kiln::device::Buffer;
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::layers::{
    AttentionBackwardData, AttentionBackwardWeights, AttentionForward, WeightGradientMode,
};
use kiln::{Config, Kiln};

const SIZE: usize = 16;
const STEPS: usize = 8;
const LENGTHS: [usize; 3] = [8, 6, 7];
const RATE: f32 = 0.2;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn floats(buffer: &Buffer) -> kiln::Result<Vec<f32>> {
    let bytes = buffer.to_vec()?;
    Ok(bytes.as_chunks().0.iter().map(|element| f32::from_ne_bytes(*element)).collect())
}

/// Numbers from -1 to 1 that look arbitrary.
fn noise(at: usize) -> f32 {
    (at * 7919 % 251) as f32 / 125.0 - 1.0
}

/// Waves of several lengths, by which positions are told apart.
fn position(step: usize, element: usize) -> f32 {
    let angle = PI * (step * (element / 2 + 1)) as f32 / STEPS as f32;
    if element.is_multiple_of(2) { angle.cos() } else { angle.sin() }
}

/// Vectors of all sequences by sequence, step and element; 0 beyond the lengths.
fn vectors(value: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
    let mut all = vec![0.0; LENGTHS.len() * STEPS * SIZE];
    for (sequence, length) in LENGTHS.into_iter().enumerate() {
        for (step, element) in (0..length).flat_map(|step| (0..SIZE).map(move |e| (step, e))) {
            all[(sequence * STEPS + step) * SIZE + element] = value(sequence, step, element);
        }
    }
    all
}

fn main() -> Result<(), Box<dyn Error>> {
    let passes: usize = std::env::args().nth(1).map_or(Ok(400), |passes| passes.parse())?;
    let kiln = Kiln::open(Config::default())?;
    let (device, stream) = (kiln.device(), kiln.stream());
    let (batch, steps, size) = (LENGTHS.len() as i32, STEPS as i32, SIZE as i32);
    let settings = AttentionSettings {
        proj_biases: true,
        attn_dropout: DropoutDescriptor::set(Real::new(0.05), 1)?,
        ..AttentionSettings::new(AttentionSizes { heads: 2, size, batch, steps })
    };
    let descriptor = AttentionDescriptor::set(settings)?;
    let mut layer = kiln.multi_head_attention(&descriptor)?;
    let lengths: Vec<i32> = LENGTHS.iter().map(|length| *length as i32).collect();
    let desc = &SequenceDataDescriptor::set(SequenceDataSettings {
        seq_lengths: lengths.clone(),
        ..SequenceDataSettings::new(SequenceExtents { batch, beam: 1, time: steps, vector: size })
    })?;
    let lengths: Vec<u8> = lengths.iter().flat_map(|length| length.to_ne_bytes()).collect();
    let lengths = &device.upload(&lengths)?;

    let word = |sequence: usize, step: usize, element: usize| {
        noise((sequence * STEPS + step) * SIZE + element)
    };
    let wanted =
        vectors(|sequence, step, element| word(sequence, LENGTHS[sequence] - 1 - step, element));
    // A query holds the length as well: where its sequence ends depends on it.
    let opposite = |sequence: usize, step: usize, element: usize| {
        position(step, element) + position(LENGTHS[sequence], element) / 2.0
    };
    let queries = &device.upload(&bytes(&vectors(opposite)))?;
    let keys = &device.upload(&bytes(&vectors(|_, step, element| position(step, element))))?;
    let values = &device.upload(&bytes(&vectors(word)))?;
    let whole = vec![0; wanted.len() * 4];
    let (out, dout) = (&device.upload(&whole)?, &device.upload(&whole)?);
    let [dqueries, dkeys, dvalues] =
        [&device.upload(&whole)?, &device.upload(&whole)?, &device.upload(&whole)?];

    let training = descriptor.buffers(true)?;
    let count = training.weight_bytes as usize / 4;
    let mut parameters: Vec<f32> = (0..count).map(|at| noise(at + 1000) / 3.0).collect();
    let weights = &device.upload(&bytes(&parameters))?;
    let dweights = &device.alloc(training.weight_bytes)?;
    let reserve = &device.alloc(training.reserve_bytes)?;
    let inference = descriptor.buffers(false)?.workspace_bytes;
    let workspace = &device.alloc(training.workspace_bytes.max(inference))?;
    let forward = AttentionForward {
        curr_idx: -1,
        lo_win_idx: &[0; STEPS],
        hi_win_idx: &[i32::MAX; STEPS],
        seq_lengths_qo: lengths.into(),
        seq_lengths_kv: lengths.into(),
        q_desc: desc,
        queries: queries.into(),
        residuals: None,
        k_desc: desc,
        keys: keys.into(),
        v_desc: desc,
        values: values.into(),
        o_desc: desc,
        out: out.into(),
        weights: weights.into(),
        workspace: Some(workspace.into()),
        reserve: Some(reserve.into()),
    };
    let data = AttentionBackwardData {
        seq_lengths_qo: lengths.into(),
        seq_lengths_kv: lengths.into(),
        o_desc: desc,
        dout: dout.into(),
        q_desc: desc,
        dqueries: dqueries.into(),
        k_desc: desc,
        dkeys: dkeys.into(),
        v_desc: desc,
        dvalues: dvalues.into(),
        weights: weights.into(),
        workspace: Some(workspace.into()),
        reserve: reserve.into(),
    };
    let gradients = AttentionBackwardWeights {
        mode: WeightGradientMode::Set,
        seq_lengths_qo: lengths.into(),
        seq_lengths_kv: lengths.into(),
        q_desc: desc,
        queries: queries.into(),
        k_desc: desc,
        keys: keys.into(),
        v_desc: desc,
        values: values.into(),
        o_desc: desc,
        dweights: dweights.into(),
        workspace: Some(workspace.into()),
        reserve: reserve.into(),
    };

    // The mean of the squares of what is off, beside what the outputs are off by.
    let vectors_count = LENGTHS.iter().sum::<usize>() as f32;
    let inside = vectors(|_, _, _| 1.0);
    let off = || -> kiln::Result<(f32, Vec<f32>)> {
        let off: Vec<f32> = floats(out)?
            .iter()
            .zip(&wanted)
            .zip(&inside)
            .map(|((out, wanted), inside)| (out - wanted) * inside)
            .collect();
        let mean = off.iter().map(|off| off * off).sum::<f32>() / vectors_count / SIZE as f32;
        Ok((mean, off))
    };
    for pass in 0..passes {
        layer.forward(&stream, &forward)?;
        let (mean, off) = off()?;
        if pass.is_multiple_of(passes.div_ceil(5)) {
            println!("pass {pass:3}: {mean:.4}");
        }
        let gradient: Vec<f32> = off.iter().map(|off| off * 2.0 / vectors_count).collect();
        dout.write_on(&stream, 0, &bytes(&gradient))?;
        layer.backward_data(&stream, &data)?;
        layer.backward_weights(&stream, &gradients)?;
        for (parameter, gradient) in parameters.iter_mut().zip(floats(dweights)?) {
            *parameter -= RATE * gradient;
        }
        weights.write_on(&stream, 0, &bytes(&parameters))?;
    }
    layer.forward(&stream, &AttentionForward { reserve: None, ..forward })?;
    println!("without dropout: {:.4}", off()?.0);
    Ok(())
}
