//! `kiln demo`: from a graph to a checked result.

use std::process::ExitCode;

use clap::Args;
use kiln::expr::{Mode, Pointwise};
use kiln::plan::Problem;
use kiln::{DType, Kiln, OperationGraph};
use serde_json::{Value, json};

use crate::options::DeviceArgs;
use crate::problem::{self, Check, check_json, check_text, shown};
use crate::terminal::say_json;
use crate::{attentions, networks, progress};

const EXAMPLES: &str = "\
Examples:
  kiln demo
  kiln demo --rnn
  kiln demo --train
  kiln demo --attention
  kiln demo --device sim:rtx4090
  kiln demo --device cuda:0 --json";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Demonstrate recurrent networks instead of a pointwise chain
    #[arg(long)]
    rnn: bool,
    /// Demonstrate the passes of training of recurrent networks: all gradients are checked
    #[arg(long, conflicts_with_all = ["rnn", "attention"])]
    train: bool,
    /// Demonstrate attention instead of a pointwise chain
    #[arg(long, conflicts_with = "rnn")]
    attention: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Shapes that exercise different kernels: packed rows, a tail, one column, more rows than blocks.
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

pub fn demo(args: &DemoArgs) -> kiln::Result<ExitCode> {
    let kiln = args.device.open()?;
    let (passed, rows) = match (args.rnn, args.train, args.attention) {
        (true, ..) => networks::demo(&kiln, args.json)?,
        (_, true, _) => networks::train(&kiln, args.json)?,
        (.., true) => graphs(&kiln, attentions::attentions()?, args.json)?,
        _ => graphs(&kiln, chains()?, args.json)?,
    };
    if args.json {
        let device = kiln.device().target().to_string();
        say_json(&json!({"device": device, "passed": passed, "rows": rows}));
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

/// The chain in all shapes.
fn chains() -> kiln::Result<Vec<(String, OperationGraph)>> {
    let of = |[rows, columns]: [i64; 2]| Ok((format!("{rows}x{columns}"), chain(rows, columns)?));
    SHAPES.into_iter().map(of).collect()
}

/// Runs graphs by name; returns whether all results were correct, and the measurements.
fn graphs(
    kiln: &Kiln,
    problems: Vec<(String, OperationGraph)>,
    as_json: bool,
) -> kiln::Result<(bool, Vec<Value>)> {
    let mut rows = Vec::new();
    let mut passed = true;
    if !as_json {
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
        progress::doing(format!("running {name}"));
        let inputs = Problem::new(graph.clone()).random_values(1)?;
        let plan = kiln.plan(&graph)?;
        let ran = kiln.trial(&plan, &inputs)?;
        let checks = problem::check(&graph, &inputs, &ran)?;
        passed &= checks.iter().all(Check::passed);
        let kernel = &plan.kernels()[0];
        let report = kernel.report();
        if as_json {
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
    Ok((passed, rows))
}
