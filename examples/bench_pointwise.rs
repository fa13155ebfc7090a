//! Times the demo chain `y = clip(gelu(x + bias) + residual, -1, 6)` in bf16 on one device.
//!
//! ```text
//! bench_pointwise DEVICE ROWS COLUMNS [SAMPLES]
//! ```
//! A sample is a batch of launches between two events; its time is divided by the batch. Launches
//! rotate through sets of tensors that together exceed the L2 cache several times, so that every
//! launch reads memory. Prints one JSON object. `benches/gpu/pointwise.py` follows the same rules
//! for its peers.

use std::process::ExitCode;

use kiln::device::{Buffer, Stream};
use kiln::expr::{Mode, Pointwise};
use kiln::{Config, DType, ExecutionPlan, Kiln, OperationGraph, TensorDesc, VariantPack};
use serde_json::json;

/// Batches that are not counted: clocks rise, caches and page tables fill.
const WARM_UP: usize = 3;

/// All sets together are at least this many times the L2 cache.
const L2_MULTIPLE: u64 = 4;

/// A batch moves about this much: over 500 us on the fastest memory there is, long against the
/// microsecond that events resolve.
const BATCH_BYTES: u64 = 4 << 30;

type AnyError = Box<dyn std::error::Error>;

struct Arguments {
    device: String,
    rows: i64,
    columns: i64,
    samples: usize,
}

fn arguments() -> Result<Arguments, AnyError> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [device, rows, columns, rest @ ..] = &given[..] else {
        return Err("expected DEVICE ROWS COLUMNS [SAMPLES]".into());
    };
    let samples = match rest {
        [] => 50,
        [samples] => samples.parse()?,
        _ => return Err("expected DEVICE ROWS COLUMNS [SAMPLES]".into()),
    };
    if samples == 0 {
        return Err("SAMPLES is 0".into());
    }
    Ok(Arguments {
        device: device.clone(),
        rows: rows.parse()?,
        columns: columns.parse()?,
        samples,
    })
}

fn demo_chain(rows: i64, columns: i64) -> kiln::Result<OperationGraph> {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, columns], DType::Bf16);
    let bias = graph.input("bias", &[1, columns], DType::Bf16);
    let residual = graph.input("residual", &[rows, columns], DType::Bf16);
    let biased = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias])?;
    let activated = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[biased])?;
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[activated, residual])?;
    let clip = Pointwise::new(Mode::ReluFwd).relu(-1.0, 6.0, 0.0);
    let y = graph.pointwise(clip, &[sum])?;
    graph.output(y, "y", DType::Bf16);
    graph.build()
}

/// A megabyte of values in [-2.5, 2.5] that do not repeat soon: power, and with it the clock,
/// depends on the data.
fn noise() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for element in bytes.chunks_exact_mut(DType::Bf16.bytes()) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        DType::Bf16.write((state >> 40) as f64 / f64::from(1 << 24) * 5.0 - 2.5, element);
    }
    bytes
}

fn filled(kiln: &Kiln, tensor: &TensorDesc, noise: &[u8]) -> kiln::Result<Buffer> {
    let bytes = tensor.span_bytes()?;
    let buffer = kiln.device().alloc(bytes)?;
    for start in (0..bytes).step_by(noise.len()) {
        let count = (bytes - start).min(noise.len() as u64) as usize;
        buffer.write(start, &noise[..count])?;
    }
    Ok(buffer)
}

/// A pack over memory of its own; the memory comes with it.
fn bind(
    kiln: &Kiln,
    plan: &ExecutionPlan,
    noise: &[u8],
) -> kiln::Result<(VariantPack, Vec<Buffer>)> {
    let (mut pack, mut buffers) = (VariantPack::new(), Vec::new());
    for uid in plan.tensors() {
        let buffer = filled(kiln, plan.graph().tensor(uid)?, noise)?;
        pack = pack.with(uid, &buffer);
        buffers.push(buffer);
    }
    Ok((pack, buffers))
}

/// Milliseconds per launch of one batch.
fn batch_ms(
    plan: &ExecutionPlan,
    stream: &Stream,
    packs: &mut impl Iterator<Item = VariantPack>,
    launches: usize,
) -> kiln::Result<f64> {
    let packs: Vec<VariantPack> = packs.take(launches).collect();
    let start = stream.record()?;
    for pack in &packs {
        plan.execute(stream, pack)?;
    }
    let end = stream.record()?;
    Ok(end.elapsed_ms(&start)? / launches as f64)
}

fn run(arguments: &Arguments) -> Result<serde_json::Value, AnyError> {
    let device = Some(arguments.device.parse()?);
    let kiln = Kiln::open(Config { device, ..Config::default() })?;
    let graph = demo_chain(arguments.rows, arguments.columns)?;
    let plan = kiln.plan(&graph)?;
    let (stream, bytes) = (kiln.stream(), graph.bytes_min());
    let l2_bytes = kiln.device().target().l2_bytes;
    let sets = (L2_MULTIPLE * l2_bytes).div_ceil(bytes.max(1)).clamp(2, 64) as usize;
    let batch = (BATCH_BYTES / bytes.max(1)).clamp(4, 256) as usize;
    let noise = noise();
    let bound = (0..sets).map(|_| bind(&kiln, &plan, &noise)).collect::<kiln::Result<Vec<_>>>()?;
    let mut packs = bound.iter().map(|(pack, _)| pack.clone()).cycle();
    for _ in 0..WARM_UP {
        batch_ms(&plan, &stream, &mut packs, batch)?;
    }
    let mut times = Vec::with_capacity(arguments.samples);
    for _ in 0..arguments.samples {
        times.push(batch_ms(&plan, &stream, &mut packs, batch)?);
    }
    times.sort_by(f64::total_cmp);
    let (median_ms, min_ms) = (times[times.len() / 2], times[0]);
    let kernel = &plan.kernels()[0];
    let (report, launch) = (kernel.report(), kernel.launch());
    Ok(json!({
        "device": kiln.device().target().name,
        "kind": kiln.device().kind(),
        "rows": arguments.rows,
        "columns": arguments.columns,
        "bytes": bytes,
        "median_ms": median_ms,
        "min_ms": min_ms,
        "gb_per_s": bytes as f64 / median_ms / 1e6,
        "samples": arguments.samples,
        "batch": batch,
        "sets": sets,
        "config": kernel.config().to_string(),
        "grid": launch.grid,
        "threads": launch.threads,
        "registers": report.resources.registers,
        "spill_bytes": report.resources.spill_bytes,
        "stem": report.stem,
        "origin": report.origin.to_string(),
    }))
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| run(&arguments)) {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_pointwise: {error}");
            ExitCode::FAILURE
        }
    }
}
