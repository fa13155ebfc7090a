//! `kiln demo`: the whole way from a graph to a checked result, shown.

use std::process::ExitCode;

use clap::Args;
use kiln::expr::{Mode, Pointwise, Real};
use kiln::graph::{Attention, Band, Diagonal, MatmulMath, Op, Softcap};
use kiln::{DType, OperationGraph, plan};
use serde_json::{Value, json};

use crate::DeviceArgs;
use crate::problem::{self, Check, check_json, check_text, shown};

const EXAMPLES: &str = "\
Examples:
  kiln demo
  kiln demo --attention
  kiln demo --device sim:rtx4090
  kiln demo --device cuda:0 --json";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Show attention instead of a pointwise chain
    #[arg(long)]
    attention: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Shapes that take different kernels: packed rows, a tail, one column, more rows than blocks.
const SHAPES: [[i64; 2]; 4] = [[64, 768], [37, 1001], [4096, 1], [2048, 256]];

/// `y = clip(gelu(x + bias) + residual, -1, 6)` in bf16.
fn chain(rows: i64, columns: i64) -> kiln::Result<OperationGraph> {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, columns], DType::Bf16);
    let bias = graph.input("bias", &[1, columns], DType::Bf16);
    let residual = graph.input("residual", &[rows, columns], DType::Bf16);
    let biased = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias])?;
    graph.name(biased, "biased", DType::F32);
    let hidden = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[biased])?;
    graph.name(hidden, "hidden", DType::F32);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[hidden, residual])?;
    graph.name(sum, "sum", DType::F32);
    let clip = Pointwise::new(Mode::ReluFwd).relu(-1.0, 6.0, 0.0);
    let y = graph.pointwise(clip, &[sum])?;
    graph.output(y, "y", DType::Bf16);
    graph.build()
}

/// Attentions that no library offers in one kernel, and those that all do.
fn attentions() -> kiln::Result<Vec<(String, OperationGraph)>> {
    let plain = Attention::new(MatmulMath::F32);
    let causal = Attention { band: Band::causal(Diagonal::BottomRight), ..plain.clone() };
    let window = Band { left: Some(32), ..causal.band };
    let cap = Softcap { cap: Real::new(30.0), last: false };
    let sinks = Attention { band: window, sinks: true, softcap: Some(cap), ..plain.clone() };
    let slopes = Attention { slopes: true, dropout: Some(Real::new(0.1)), ..sinks.clone() };
    let pages = Attention { paged: true, key_lengths: true, ..plain.clone() };
    let cases = [
        ("full", plain, 96, DType::Bf16),
        ("causal, grouped", causal.clone(), 96, DType::Bf16),
        ("causal, f32", causal, 40, DType::F32),
        ("window, sinks, cap", sinks, 96, DType::F16),
        ("the same, ALiBi, dropout", slopes, 96, DType::F16),
        ("one query, pages", pages, 1, DType::F16),
    ];
    let graph = |(name, op, queries, dtype): (&str, Attention, i64, DType)| {
        Ok((name.to_owned(), attention(op, queries, dtype)?))
    };
    cases.into_iter().map(graph).collect()
}

/// Eight heads of queries on two of 128 keys.
fn attention(op: Attention, queries: i64, dtype: DType) -> kiln::Result<OperationGraph> {
    let op = Op::Attention(op);
    let mut graph = OperationGraph::builder();
    let slots = op.slots();
    let paged = slots.inputs.contains(&"page_table");
    let mut input = |slot: &&'static str| match *slot {
        "q" => graph.input(slot, &[1, 8, queries, 64], dtype),
        "k" | "v" if paged => graph.input(slot, &[12, 2, 16, 64], dtype),
        "k" | "v" => graph.input(slot, &[1, 2, 128, 64], dtype),
        "page_table" => graph.input(slot, &[1, 1, 1, 8], DType::I32),
        "slopes" | "sinks" => graph.input(slot, &[1, 8, 1, 1], DType::F32),
        _ => graph.input(slot, &[1; 4], DType::I32),
    };
    let inputs: Vec<i64> = slots.inputs.iter().map(&mut input).collect();
    let o = graph.operation(op, &inputs)?[0];
    graph.output(o, "o", dtype);
    graph.build()
}

fn chains() -> kiln::Result<Vec<(String, OperationGraph)>> {
    SHAPES
        .map(|[rows, columns]| Ok((format!("{rows}x{columns}"), chain(rows, columns)?)))
        .into_iter()
        .collect()
}

pub fn demo(args: &DemoArgs) -> kiln::Result<ExitCode> {
    let kiln = args.device.open()?;
    let problems = if args.attention { attentions()? } else { chains()? };
    let mut rows = Vec::new();
    let mut passed = true;
    if !args.json {
        say!("device  {} [{}]\n", kiln.device().target(), kiln.device().kind());
        say!("{}", problems[0].1.to_string().trim_end());
        say!(
            "\n{:24}  {:58}  {:>21}  {:>4}  {:>8}  check",
            "problem",
            "engine and knobs",
            "kernel",
            "regs",
            "run"
        );
    }
    for (name, graph) in problems {
        let mut inputs = plan::random_values(&graph, 1)?;
        for tensor in graph.inputs() {
            // Some of the keys, and pages in an order of their own.
            match tensor.name.as_str() {
                "key_lengths" => inputs.insert(tensor.uid, vec![123.0]),
                "page_table" => {
                    inputs.insert(tensor.uid, (0..8).map(|at| f64::from(at * 5 % 12)).collect())
                }
                _ => None,
            };
        }
        let plan = kiln.plan(&graph)?;
        let ran = kiln.trial(&plan, &inputs)?;
        let checks = problem::check(&graph, &inputs, &ran)?;
        passed &= checks.iter().all(Check::passed);
        let kernel = &plan.kernels()[0];
        let report = kernel.report();
        if args.json {
            rows.push(json!({
                "problem": name,
                "config": kernel.config().to_string(),
                "kernel": report.stem,
                "origin": report.origin.to_string(),
                "obtain_ms": report.obtain.as_secs_f64() * 1e3,
                "registers": report.resources.registers,
                "run_ms": ran.elapsed.as_secs_f64() * 1e3,
                "bytes_min": graph.bytes_min(),
                "checks": checks.iter().map(check_json).collect::<Vec<Value>>(),
            }));
        } else {
            say!(
                "{:24}  {:58}  {:>21}  {:>4}  {:>8}  {}",
                name,
                kernel.config().to_string(),
                format!("{} {}", report.origin, shown(report.obtain)),
                report.resources.registers,
                shown(ran.elapsed),
                checks.iter().map(check_text).collect::<Vec<_>>().join("; "),
            );
        }
    }
    if args.json {
        let device = kiln.device().target().to_string();
        say!("{:#}", json!({"device": device, "passed": passed, "rows": rows}));
    } else {
        let verdict =
            if passed { "every result is within the reference's bound" } else { "FAILED" };
        say!("\n{verdict}");
        if let Some(cache) = kiln.disk_cache() {
            let folder = cache.folder().display();
            say!("kernels are kept in {folder}: a second run finds them there");
        }
    }
    Ok(ExitCode::from(u8::from(!passed)))
}
