//! `kiln bench rnn`.

use std::time::Instant;

use clap::Args;
use kiln::device::Buffer;
use kiln::layers::RnnPack;
use kiln::rnn::{CellKind, Extent, Network, Optional, Rnn, Role};
use kiln::{DType, Kiln};
use serde_json::json;

use super::measure::{Measured, cost, noise};
use crate::options::DeviceArgs;

const EXAMPLES: &str = "\
Examples:
  kiln bench rnn --cell lstm --hidden 512 --batch 8 --steps 512 --dtype f16
  kiln bench rnn --cell gru --hidden 256 --layers 2 --bidirectional --device cuda:0 --json
  kiln bench rnn --hidden 512 --layers 4 --steps 512 --chunk-steps 512    layers in turn
  kiln bench rnn --hidden 64 --steps 16 --device null      host overhead of a call";

/// Looks up a predefined cell by its name in problem files.
fn cell_named(text: &str) -> Result<CellKind, String> {
    let found = CellKind::ALL.into_iter().find(|kind| kind.name() == text);
    let names = CellKind::ALL.map(CellKind::name).join(", ");
    found.ok_or_else(|| format!("expected one of {names}"))
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RnnArgs {
    /// Cell
    #[arg(long, value_parser = cell_named, default_value = "lstm")]
    cell: CellKind,
    /// Hidden size
    #[arg(long, default_value_t = 64)]
    hidden: i64,
    /// Input size; default: the hidden size
    #[arg(long)]
    input: Option<i64>,
    /// Batch size
    #[arg(long, default_value_t = 8)]
    batch: i64,
    /// Steps per sequence
    #[arg(long, default_value_t = 16)]
    steps: i64,
    /// Number of layers
    #[arg(long, default_value_t = 1)]
    layers: i64,
    /// Bidirectional
    #[arg(long)]
    bidirectional: bool,
    /// Steps of a chunk, of which layers run side by side; as many as there are: layers run one
    /// after the other. Default: by the cost model
    #[arg(long, value_name = "STEPS")]
    chunk_steps: Option<i64>,
    /// Type of the tensors: f64, f32, f16 or bf16
    #[arg(long, default_value = "f16")]
    dtype: DType,
    /// Number of timed batches
    #[arg(long, default_value_t = 20)]
    samples: usize,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

impl RnnArgs {
    fn rnn(&self) -> Rnn {
        let rnn = Rnn::new(self.cell, self.input.unwrap_or(self.hidden), self.hidden);
        let rnn = rnn.layers(self.layers).dtype(self.dtype);
        if self.bidirectional { rnn.bidirectional() } else { rnn }
    }
}

/// Allocates device memory for a network's tensors.
fn bind(kiln: &Kiln, network: &Network) -> kiln::Result<(RnnPack, Vec<Buffer>)> {
    let (mut pack, mut buffers) = (RnnPack::new(), Vec::new());
    for role in network.roles() {
        let buffer = kiln.device().upload(&noise(network.rnn.dtype, network.bytes(role)))?;
        pack = pack.with(role, &buffer);
        buffers.push(buffer);
    }
    Ok((pack, buffers))
}

pub fn rnn(args: &RnnArgs) -> kiln::Result<()> {
    let kiln = args.device.open()?;
    let rnn = args.rnn();
    let start = Instant::now();
    let mut built = kiln.build_rnn_dynamic(&rnn, args.batch)?;
    built.set_chunk_steps(args.chunk_steps);
    built.prepare(args.steps, Optional::default())?;
    let build = start.elapsed();
    let start = Instant::now();
    kiln.build_rnn_dynamic(&rnn, args.batch)?.prepare(args.steps, Optional::default())?;
    let again = start.elapsed();
    let extent = Extent { batch: args.batch, rows: args.batch * args.steps };
    let network = rnn.network(extent, Optional::default())?;
    let (pack, _buffers) = bind(&kiln, &network)?;
    let workspace = built.temp_space(extent.rows, Optional::default())?.workspace_bytes;
    let workspace = kiln.device().alloc(workspace)?;
    let pack = pack.with_workspace(&workspace);
    let stream = kiln.stream();
    let forward = || built.forward(&stream, args.steps, &pack);
    let cost = cost(&stream, args.samples, forward)?;
    // Multiply-adds of the input and recurrent GEMMs, two operations each.
    let weights = network.bytes(Role::Weights) / args.dtype.bytes() as u64;
    let operations = 2 * weights * (args.batch * args.steps) as u64;
    let teraflops = operations as f64 / cost.pass.as_secs_f64() / 1e12;
    let step = cost.pass.as_secs_f64() * 1e6 / args.steps as f64;
    let chunk_steps = built.chunk_steps(args.steps, Optional::default())?;
    let plan = built.prepare(args.steps, Optional::default())?;
    let kernels: Vec<&str> =
        plan.kernels().iter().map(|kernel| kernel.report().stem.as_str()).collect();
    let parts: Vec<String> = plan.parts().iter().map(|part| part.config.to_string()).collect();
    let own = json!({
        "kernels": kernels,
        "parts": parts,
        "chunk_steps": chunk_steps,
        "step_us": step,
        "teraflops": teraflops,
    });
    let chunks =
        chunk_steps.map(|steps| format!("layers side by side, in chunks of {steps} steps"));
    let made_of = [format!("kernels {}", kernels.join(", "))].into_iter().chain(chunks).collect();
    let rate = format!("{step:.2} us a step, {teraflops:.3} TFLOP/s");
    let origin = plan.kernels()[0].report().origin;
    Measured { kiln: &kiln, origin, build, again, cost }.print(args.json, own, made_of, &rate);
    Ok(())
}
