//! `kiln bench graph`, and what is measured of any graph.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use kiln::device::Buffer;
use kiln::graph::{Op, Operation};
use kiln::plan::{ExecutionPlan, VariantPack};
use kiln::{Kiln, OperationGraph};
use serde_json::json;

use super::{Cost, cost, noise};
use crate::DeviceArgs;
use crate::problem::{read_problem, shown};

const EXAMPLES: &str = "\
Examples:
  kiln bench graph examples/problems/swiglu.json --device cuda:0
  kiln bench graph examples/problems/softmax.json --device null    what the host pays for a call";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GraphArgs {
    /// The problem file
    problem: PathBuf,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// How a graph is measured.
#[derive(Args)]
pub struct MeasureArgs {
    /// Batches of passes that are timed
    #[arg(long, default_value_t = 20)]
    samples: usize,
    /// Print one JSON object instead of text
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

/// Multiplications and additions of a graph's products.
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
    /// Measures a graph that takes so many operations, and prints it.
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
        self.print(&kiln, &plan, [build, again], cost, operations);
        Ok(())
    }

    fn print(
        &self,
        kiln: &Kiln,
        plan: &ExecutionPlan,
        [build, again]: [Duration; 2],
        Cost { host, pass }: Cost,
        operations: f64,
    ) {
        let teraflops = operations / pass.as_secs_f64() / 1e12;
        let gigabytes = plan.graph().bytes_min() as f64 / pass.as_secs_f64() / 1e9;
        let parts: Vec<String> = plan.parts().iter().map(|part| part.config.to_string()).collect();
        let origin = plan.kernels()[0].report().origin.to_string();
        if self.json {
            let document = json!({
                "device": kiln.device().target().to_string(),
                "parts": parts,
                "origin": origin,
                "build_ms": build.as_secs_f64() * 1e3,
                "found_ms": again.as_secs_f64() * 1e3,
                "host_us": host.as_secs_f64() * 1e6,
                "pass_us": pass.as_secs_f64() * 1e6,
                "teraflops": teraflops,
                "gigabytes_per_second": gigabytes,
            });
            say!("{document:#}");
            return;
        }
        say!("device  {}", kiln.device().target());
        parts.iter().for_each(|part| say!("plan    {part}"));
        say!("build   {} ({origin}), again {}", shown(build), shown(again));
        say!("host    {} ns a call, median", host.as_nanos());
        // The null device takes no time.
        if pass.is_zero() {
            return;
        }
        let rate = format!("{gigabytes:.1} GB/s, each tensor moved once");
        let rate = match operations > 0.0 {
            true => format!("{teraflops:.3} TFLOP/s, {rate}"),
            false => rate,
        };
        say!("pass    {}, {rate}, median", shown(pass));
    }
}

/// Device memory for a plan's tensors.
fn bind(kiln: &Kiln, plan: &ExecutionPlan) -> kiln::Result<(VariantPack, Vec<Buffer>)> {
    let (mut pack, mut buffers) = (VariantPack::new(), Vec::new());
    for uid in plan.tensors() {
        let tensor = plan.graph().tensor(uid)?;
        if tensor.by_value {
            // Positive, as what is added to a variance must be.
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
