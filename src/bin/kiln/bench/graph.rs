//! `kiln bench graph`, and measurements of arbitrary graphs.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use kiln::device::Buffer;
use kiln::graph::{Op, Operation};
use kiln::plan::{ExecutionPlan, VariantPack};
use kiln::{Kiln, OperationGraph};
use serde_json::json;

use super::measure::{Measured, cost, noise};
use crate::options::DeviceArgs;
use crate::problem::read_problem;

const EXAMPLES: &str = "\
Examples:
  kiln bench graph examples/problems/swiglu.json --device cuda:0
  kiln bench graph examples/problems/softmax.json --device null    host overhead of a call";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GraphArgs {
    /// The problem file
    problem: PathBuf,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// Measurement options.
#[derive(Args)]
pub struct MeasureArgs {
    /// Number of timed batches
    #[arg(long, default_value_t = 20)]
    samples: usize,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn graph(args: &GraphArgs) -> kiln::Result<()> {
    let problem = read_problem(&args.problem)?;
    let graph = problem.only_graph()?;
    args.measure.run(graph, products(graph)?)
}

/// Floating-point operations of a graph's GEMMs.
fn products(graph: &OperationGraph) -> kiln::Result<f64> {
    let of = |operation: &Operation| {
        let (Op::Matmul(_), [a, ..], [c]) =
            (&operation.op, &operation.inputs[..], &operation.outputs[..])
        else {
            return Ok(0.0);
        };
        let depth = graph.tensor(*a)?.dims.last().copied().unwrap_or(1);
        Ok(2.0 * depth as f64 * graph.tensor(*c)?.elements().unwrap_or(0) as f64)
    };
    graph.operations().iter().map(of).sum()
}

impl MeasureArgs {
    /// Measures a graph with this number of operations, and prints the result.
    pub fn run(&self, graph: &OperationGraph, operations: f64) -> kiln::Result<()> {
        let kiln = self.device.open()?;
        let start = Instant::now();
        let plan = kiln.plan(graph)?;
        let build = start.elapsed();
        let start = Instant::now();
        kiln.plan(graph)?;
        let again = start.elapsed();
        let (pack, _buffers) = bind(&kiln, &plan)?;
        let stream = kiln.stream();
        let cost = cost(&stream, self.samples, || plan.execute(&stream, &pack))?;
        let teraflops = operations / cost.pass.as_secs_f64() / 1e12;
        let gigabytes = graph.bytes_min() as f64 / cost.pass.as_secs_f64() / 1e9;
        let parts: Vec<String> = plan.parts().iter().map(|part| part.config.to_string()).collect();
        let own = json!({
            "parts": parts,
            "teraflops": teraflops,
            "gigabytes_per_second": gigabytes,
        });
        let made_of = parts.iter().map(|part| format!("plan    {part}")).collect();
        let rate = format!("{gigabytes:.1} GB/s, each tensor moved once");
        let rate = match operations > 0.0 {
            true => format!("{teraflops:.3} TFLOP/s, {rate}"),
            false => rate,
        };
        let origin = plan.kernels()[0].report().origin;
        Measured { kiln: &kiln, origin, build, again, cost }.print(self.json, own, made_of, &rate);
        Ok(())
    }
}

/// Allocates device memory for a plan's tensors.
fn bind(kiln: &Kiln, plan: &ExecutionPlan) -> kiln::Result<(VariantPack, Vec<Buffer>)> {
    let (mut pack, mut buffers) = (VariantPack::new(), Vec::new());
    for uid in plan.tensors() {
        let tensor = plan.graph().tensor(uid)?;
        if tensor.by_value {
            // Positive, since it may be a variance or epsilon.
            pack = pack.with_value(uid, tensor.dtype.round(1e-3));
            continue;
        }
        let buffer = kiln.device().upload(&noise(tensor.dtype, tensor.span_bytes()?))?;
        pack = pack.with(uid, &buffer);
        buffers.push(buffer);
    }
    let workspace = kiln.device().alloc(plan.workspace_bytes())?;
    pack = pack.with_workspace(&workspace);
    buffers.push(workspace);
    Ok((pack, buffers))
}
