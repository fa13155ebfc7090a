//! `kiln bench`: cost of a forward pass on this device, with host overhead and device time apart.

mod attention;
mod graph;
mod measure;
mod rnn;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::progress;

const EXAMPLES: &str = "\
Examples:
  kiln bench graph examples/problems/swiglu.json --device cuda:0
  kiln bench rnn --cell lstm --hidden 512 --batch 8 --steps 512 --dtype f16
  kiln bench attention --heads 32 --kv-heads 8 --queries 4096 --depth 128 --causal
  kiln bench attention --queries 1 --keys 256 --device null    host overhead of a call

On the simulator times are those of the simulation; see `kiln run --counters` for counts.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Benchmark a problem file: build, rebuild and run its plan
    Graph(graph::GraphArgs),
    /// Benchmark a recurrent network
    Rnn(rnn::RnnArgs),
    /// Benchmark scaled dot-product attention
    Attention(attention::AttentionArgs),
}

pub fn bench(args: &BenchArgs) -> kiln::Result<ExitCode> {
    progress::doing("building and timing");
    match &args.command {
        Command::Graph(args) => graph::graph(args)?,
        Command::Rnn(args) => rnn::rnn(args)?,
        Command::Attention(args) => attention::attention(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
