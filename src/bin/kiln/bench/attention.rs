//! `kiln bench attention`.

use std::time::Instant;

use clap::Args;
use kiln::device::Buffer;
use kiln::graph::{Attention, Band, Diagonal, MatmulMath, Op};
use kiln::plan::{ExecutionPlan, VariantPack};
use kiln::{DType, Kiln, OperationGraph};
use serde_json::json;

use super::medians;
use crate::DeviceArgs;
use crate::problem::shown;

const EXAMPLES: &str = "\
Examples:
  kiln bench attention --heads 32 --kv-heads 8 --queries 4096 --depth 128 --causal --dtype bf16
  kiln bench attention --batch 32 --heads 32 --kv-heads 8 --queries 1 --keys 8192 --depth 128
  kiln bench attention --queries 1 --keys 256 --device null    what the host pays for a call";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AttentionArgs {
    /// Sequences
    #[arg(long, default_value_t = 1)]
    batch: i64,
    /// Heads of queries
    #[arg(long, default_value_t = 8)]
    heads: i64,
    /// Heads of keys and values; default: as many as of queries
    #[arg(long)]
    kv_heads: Option<i64>,
    /// Queries of a sequence
    #[arg(long, default_value_t = 128)]
    queries: i64,
    /// Keys of a sequence; default: as many as queries
    #[arg(long)]
    keys: Option<i64>,
    /// Elements of a query, a key and a value
    #[arg(long, default_value_t = 64)]
    depth: i64,
    /// Queries attend to keys up to their own, the last query to all
    #[arg(long)]
    causal: bool,
    /// The type: f64, f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    dtype: DType,
    /// Forward passes that are timed
    #[arg(long, default_value_t = 20)]
    samples: usize,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

impl AttentionArgs {
    fn keys(&self) -> i64 {
        self.keys.unwrap_or(self.queries)
    }

    fn graph(&self) -> kiln::Result<OperationGraph> {
        let math = if self.dtype == DType::F64 { MatmulMath::F64 } else { MatmulMath::F32 };
        let band = if self.causal { Band::causal(Diagonal::BottomRight) } else { Band::default() };
        let op = Attention { band, ..Attention::new(math) };
        let mut graph = OperationGraph::builder();
        let mut input = |name: &str, heads: i64, rows: i64| {
            graph.input(name, &[self.batch, heads, rows, self.depth], self.dtype)
        };
        let kv_heads = self.kv_heads.unwrap_or(self.heads);
        let q = input("q", self.heads, self.queries);
        let [k, v] = ["k", "v"].map(|name| input(name, kv_heads, self.keys()));
        let o = graph.operation(Op::Attention(op), &[q, k, v])?[0];
        graph.output(o, "o", self.dtype);
        graph.build()
    }

    /// Scores that take part.
    fn scores(&self) -> f64 {
        let (queries, keys) = (self.queries, self.keys());
        let attended = |query: i64| match self.causal {
            true => (keys - queries + query + 1).clamp(0, keys),
            false => keys,
        };
        let of_head: f64 = (0..queries).map(|query| attended(query) as f64).sum();
        of_head * (self.batch * self.heads) as f64
    }
}

/// Device memory for a plan's tensors; what they hold costs the same.
fn bind(kiln: &Kiln, plan: &ExecutionPlan) -> kiln::Result<(VariantPack, Vec<Buffer>)> {
    let (mut pack, mut buffers) = (VariantPack::new(), Vec::new());
    for uid in plan.tensors() {
        let bytes = plan.graph().tensor(uid)?.span_bytes()?;
        let buffer = kiln.device().upload(&vec![0; bytes as usize])?;
        pack = pack.with(uid, &buffer);
        buffers.push(buffer);
    }
    let workspace = kiln.device().alloc(plan.workspace_bytes())?;
    pack = pack.with_workspace(&workspace);
    buffers.push(workspace);
    Ok((pack, buffers))
}

pub fn attention(args: &AttentionArgs) -> kiln::Result<()> {
    let graph = args.graph()?;
    let kiln = args.device.open()?;
    let start = Instant::now();
    let plan = kiln.plan(&graph)?;
    let build = start.elapsed();
    let start = Instant::now();
    kiln.plan(&graph)?;
    let again = start.elapsed();
    let (pack, _buffers) = bind(&kiln, &plan)?;
    let stream = kiln.stream();
    let [host, pass] = medians(&stream, args.samples, || plan.execute(&stream, &pack))?;
    // Two products of every score, two operations each.
    let teraflops = 4.0 * args.scores() * args.depth as f64 / pass.as_secs_f64() / 1e12;
    let gigabytes = graph.bytes_min() as f64 / pass.as_secs_f64() / 1e9;
    let parts: Vec<String> = plan.parts().iter().map(|part| part.config.to_string()).collect();
    let origin = plan.kernels()[0].report().origin.to_string();
    match args.json {
        true => {
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
        }
        false => {
            say!("device  {}", kiln.device().target());
            parts.iter().for_each(|part| say!("plan    {part}"));
            say!("build   {} ({origin}), again {}", shown(build), shown(again));
            say!("host    {} ns a call, median", host.as_nanos());
            // The null device takes no time.
            if !pass.is_zero() {
                let pass = shown(pass);
                say!("pass    {pass}, {teraflops:.3} TFLOP/s, {gigabytes:.1} GB/s, median");
            }
        }
    }
    Ok(())
}
