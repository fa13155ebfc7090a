//! `kiln bench`: what a forward pass costs on this device, host and launch apart.

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
  kiln bench attention --queries 1 --keys 256 --device null    what the host pays for a call

On the simulator times are those of the simulation: counts are in `kiln run --counters`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A problem file: building its plan, finding it again, running it
    Graph(graph::GraphArgs),
    /// A recurrent network: building it, finding it again, running it
    Rnn(rnn::RnnArgs),
    /// Scaled dot product attention: building it, finding it again, running it
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
