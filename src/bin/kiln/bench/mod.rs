//! `kiln bench`: what a forward pass costs on this device, host and launch apart.

mod attention;
mod rnn;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use kiln::device::Stream;
use kiln::{Error, ErrorKind};

const EXAMPLES: &str = "\
Examples:
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
    /// A recurrent network: building it, finding it again, running it
    Rnn(rnn::RnnArgs),
    /// Scaled dot product attention: building it, finding it again, running it
    Attention(attention::AttentionArgs),
}

pub fn bench(args: &BenchArgs) -> kiln::Result<ExitCode> {
    match &args.command {
        Command::Rnn(args) => rnn::rnn(args)?,
        Command::Attention(args) => attention::attention(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Times so many passes, after one that is not: medians of what a call takes on the host, and of
/// what it takes on the device.
fn medians(
    stream: &Stream,
    samples: usize,
    mut pass: impl FnMut() -> kiln::Result<()>,
) -> kiln::Result<[Duration; 2]> {
    if samples == 0 {
        return Err(Error::with(ErrorKind::BadParam, "--samples is 0"));
    }
    pass()?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..samples {
        let before = stream.record()?;
        let start = Instant::now();
        pass()?;
        times[0].push(start.elapsed());
        let elapsed_ms = stream.record()?.elapsed_ms(&before)?;
        times[1].push(Duration::from_secs_f64(elapsed_ms / 1e3));
    }
    Ok(times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    }))
}
