//! `kiln bench rnn`.

use std::time::{Duration, Instant};

use clap::Args;
use kiln::device::Stream;
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::rnn::{CellKind, Extent, Network, Optional, Rnn, Role};
use kiln::{DType, ExecutionPlan, Kiln};
use serde_json::{Value, json};

use super::measure::{Measured, cost, noise};
use crate::options::DeviceArgs;
use crate::problem::shown;

const EXAMPLES: &str = "\
Examples:
  kiln bench rnn --cell lstm --hidden 512 --batch 8 --steps 512 --dtype f16
  kiln bench rnn --cell gru --hidden 256 --layers 2 --bidirectional --device cuda:0 --json
  kiln bench rnn --hidden 512 --layers 4 --steps 512 --chunk-steps 512    layers in turn
  kiln bench rnn --hidden 512 --layers 2 --steps 512 --training --dropout 0.1
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
    /// Training: a forward pass, and the gradients of the input and of the weights
    #[arg(long)]
    training: bool,
    /// Probability of dropping an element between layers, in training
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.0, requires = "training")]
    dropout: f64,
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
    fn rnn(&self) -> kiln::Result<Rnn> {
        let rnn = Rnn::new(self.cell, self.input.unwrap_or(self.hidden), self.hidden);
        let dropout = DropoutDescriptor::set(Real::new(self.dropout), 0)?;
        let rnn = rnn.layers(self.layers).dtype(self.dtype).dropout(dropout);
        Ok(if self.bidirectional { rnn.bidirectional() } else { rnn })
    }

    fn optional(&self) -> Optional {
        Optional { reserve: self.training, ..Optional::default() }
    }

    /// A network whose passes are planned, and their plans in the order in which they run.
    fn built(&self, kiln: &Kiln, rnn: &Rnn) -> kiln::Result<(PersistentRnn, Vec<ExecutionPlan>)> {
        let mut built = kiln.rnn(rnn, self.batch)?;
        built.set_chunk_steps(self.chunk_steps);
        let mut plans = vec![built.prepare(self.steps, self.optional())?.clone()];
        if self.training {
            plans.extend(built.prepare_backward(self.steps, self.optional())?.concat());
        }
        Ok((built, plans))
    }

    /// What runs in chunks of how many steps.
    fn chunks(&self, built: &mut PersistentRnn) -> kiln::Result<Vec<(&'static str, i64)>> {
        let mut chunks = Vec::new();
        if let Some(steps) = built.chunk_steps(self.steps, self.optional())? {
            chunks.push(("chunk_steps", steps));
        }
        if self.training
            && let Some(steps) = built.backward_chunk_steps(self.steps, self.optional())?
        {
            chunks.push(("backward_chunk_steps", steps));
        }
        Ok(chunks)
    }
}

/// A pack of device memory for all tensors of networks.
fn bind(kiln: &Kiln, networks: &[Network]) -> kiln::Result<RnnPack> {
    let mut pack = RnnPack::new();
    for (network, role) in networks.iter().flat_map(|of| of.roles().map(move |role| (of, role))) {
        let buffer = kiln.device().upload(&noise(network.rnn.dtype, network.bytes(role)))?;
        pack = pack.with(role, &buffer);
    }
    Ok(pack)
}

/// A part of a pass in training.
type Phase = (&'static str, fn(&mut PersistentRnn, &Stream, i64, &RnnPack) -> kiln::Result<()>);

/// Those of a pass in training, in order.
const PHASES: [Phase; 3] = [
    ("forward", PersistentRnn::forward),
    ("gradients of the data", PersistentRnn::backward_data),
    ("gradients of the weights", PersistentRnn::backward_weights),
];

pub fn rnn(args: &RnnArgs) -> kiln::Result<()> {
    let kiln = args.device.open()?;
    let rnn = args.rnn()?;
    let start = Instant::now();
    let (mut built, plans) = args.built(&kiln, &rnn)?;
    let build = start.elapsed();
    let start = Instant::now();
    args.built(&kiln, &rnn)?;
    let again = start.elapsed();
    let (extent, with) =
        (Extent { batch: args.batch, rows: args.batch * args.steps }, args.optional());
    let networks = match args.training {
        false => vec![rnn.network(extent, with)?],
        true => {
            let training = rnn.training(extent, with)?;
            [training.forward, training.data].into_iter().chain(training.weights).collect()
        }
    };
    let pack = bind(&kiln, &networks)?;
    let workspace = built.temp_space(extent.rows, with)?.workspace_bytes;
    let pack = pack.with_workspace(&kiln.device().alloc(workspace)?);
    let stream = kiln.stream();
    let phases = if args.training { &PHASES[..] } else { &PHASES[..1] };
    let cost_of = |built: &mut PersistentRnn, phases: &[Phase]| {
        cost(&stream, args.samples, || {
            phases.iter().try_for_each(|(_, run)| run(built, &stream, args.steps, &pack))
        })
    };
    let cost = cost_of(&mut built, phases)?;
    // Each alone, on what the pass has left.
    let alone: Vec<Duration> = match args.training {
        true => {
            let each =
                phases.iter().map(|of| Ok(cost_of(&mut built, std::slice::from_ref(of))?.pass));
            each.collect::<kiln::Result<_>>()?
        }
        false => Vec::new(),
    };
    // Multiply-adds of the input and recurrent GEMMs, two operations each; as many again for the
    // gradients of their operands each.
    let weights = networks[0].bytes(Role::Weights) / args.dtype.bytes() as u64;
    let operations = 2 * weights * (args.batch * args.steps) as u64 * phases.len() as u64;
    let teraflops = operations as f64 / cost.pass.as_secs_f64() / 1e12;
    let step = cost.pass.as_secs_f64() * 1e6 / args.steps as f64;
    let kernels = plans.iter().flat_map(ExecutionPlan::kernels);
    let kernels: Vec<&str> = kernels.map(|kernel| kernel.report().stem.as_str()).collect();
    let parts = plans.iter().flat_map(ExecutionPlan::parts);
    let parts: Vec<String> = parts.map(|part| part.config.to_string()).collect();
    let mut own = json!({
        "kernels": kernels,
        "parts": parts,
        "chunk_steps": Value::Null,
        "step_us": step,
        "teraflops": teraflops,
    });
    let mut made_of = vec![format!("kernels {}", kernels.join(", "))];
    for (name, steps) in args.chunks(&mut built)? {
        own[name] = json!(steps);
        let of = if name == "chunk_steps" { "" } else { " of the gradients" };
        made_of.push(format!("layers side by side, in chunks{of} of {steps} steps"));
    }
    let mut rate = format!("{step:.2} us a step, {teraflops:.3} TFLOP/s");
    if !alone.is_empty() {
        let us = phases
            .iter()
            .zip(&alone)
            .map(|((name, _), of)| (name.replace(' ', "_") + "_us", json!(of.as_secs_f64() * 1e6)));
        own["alone"] = Value::Object(us.collect());
        let each =
            phases.iter().zip(&alone).map(|((name, _), of)| format!("{name} {}", shown(*of)));
        rate = format!("{rate}: {}", each.collect::<Vec<_>>().join(", "));
    }
    let origin = plans[0].kernels()[0].report().origin;
    Measured { kiln: &kiln, origin, build, again, cost }.print(args.json, own, made_of, &rate);
    Ok(())
}
