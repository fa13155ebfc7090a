//! The command line tool. It uses the public API only.

/// Prints a line to standard output, without anything that steers a terminal.
macro_rules! say {
    ($($argument:tt)*) => { $crate::terminal::say_line(format_args!($($argument)*)) };
}

mod attentions;
mod bench;
mod cache;
mod counts;
mod demo;
mod difference;
mod doctor;
mod dump;
mod engines;
mod networks;
mod options;
mod pack;
mod page;
mod plan;
mod problem;
mod progress;
mod replay;
mod run;
mod terminal;
mod tune;
mod warm;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use kiln::compile::variable;
use kiln::plan::VARIABLES;
use kiln::{Error, ErrorKind};
use page::Recorder;
use terminal::{TraceFile, compiler_log, complain};
use tracing::Level;
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::fmt::format::{FmtSpan, debug_fn};
use tracing_subscriber::prelude::*;

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  it ran, and what it looked at is not right: a result differs from the reference (run --check,
     demo, replay), a kernel of a manifest failed (warm), a pack or cache entry is damaged or does
     not cover what it should (pack, cache verify), something is missing (doctor)
  2  bad arguments, or a file that can not be read or is malformed
  3  not supported: no engine can run the problem
  4  no NVRTC, or a kernel did not compile
  5  the device or the operating system failed, or Kiln did";

/// The variables that the command line reads beside the library's.
const OWN_VARIABLES: [(&str, &str); 3] = [
    ("KILN_LOG", "a filter of log messages, such as kiln=debug"),
    ("RUST_LOG", "the same, where KILN_LOG is not set"),
    ("KILN_TRACE", "stands in for --trace"),
];

/// What stands below the options: exit codes, and every variable.
fn after_help() -> String {
    let library = VARIABLES.iter().map(|of| (of.name, of.values));
    let mut text = format!(
        "{EXIT_CODES}\n\nEnvironment: an option wins over its variable, a setuid program sees none"
    );
    for (name, values) in library.chain(OWN_VARIABLES) {
        text += &format!("\n  {name:22} {}", values.replace('`', ""));
    }
    text
}

/// CUDA kernels specialised at run time, on a GPU or on a simulated device.
#[derive(Parser)]
#[command(version, after_help = after_help(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Write the spans of the run to a file that chrome://tracing and Perfetto read
    #[arg(long, value_name = "FILE", global = true)]
    trace: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Build, run and check a chain of pointwise operations, recurrent networks or attention
    Demo(demo::DemoArgs),
    /// Run a problem file on tensors from a safetensors file
    Run(run::RunArgs),
    /// Write everything about a problem's kernel to a folder: source, PTX, cubin, launch
    Dump(dump::DumpArgs),
    /// Run a dumped kernel again, or an edited one instead, and compare results and counts
    Replay(replay::ReplayArgs),
    /// Show which engines can run a problem, with knobs, and why the others can not
    Engines(engines::EnginesArgs),
    /// Time a problem file, a recurrent network or attention: building, the host's part, a pass
    Bench(bench::BenchArgs),
    /// Measure the settings of a problem and keep the best for later plans
    Tune(tune::TuneArgs),
    /// Plans as files: how a problem is split, every engine and knob
    Plan(plan::PlanArgs),
    /// Compile the kernels of a manifest ahead of the first call
    Warm(warm::WarmArgs),
    /// Prebuilt kernels in one file: build, prove coverage, verify, merge
    Pack(pack::PackArgs),
    /// Look after the disk cache: what it holds, whether it is sound, why a lookup missed
    Cache(cache::CacheArgs),
    /// Show what was found on this machine, with a fix for everything that is missing
    Doctor(doctor::DoctorArgs),
    /// Print what completes commands and options in a shell
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

const COMPLETIONS: &str = "\
Examples:
  kiln completions bash > ~/.local/share/bash-completion/completions/kiln
  kiln completions zsh > ~/.zfunc/_kiln
  kiln completions fish > ~/.config/fish/completions/kiln.fish";

/// Messages go to standard error, all that Kiln does to the recorder, spans to a trace file if one
/// is wanted: as long as the result lives.
fn listen(trace: Option<&TraceFile>, recorder: Option<Recorder>) -> Option<FlushGuard> {
    let filter = variable("KILN_LOG").or_else(|| variable("RUST_LOG"));
    let filter = filter.and_then(|text| text.into_string().ok());
    let filter = EnvFilter::new(filter.as_deref().unwrap_or("warn"));
    let messages = tracing_subscriber::fmt::layer()
        .fmt_fields(debug_fn(terminal::field).delimited(" "))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_span_events(FmtSpan::CLOSE);
    let layer = |file: &TraceFile| {
        ChromeLayerBuilder::new().writer(file.clone()).include_args(true).build()
    };
    let (spans, guard) = trace.map(layer).unzip();
    let spans = spans.map(|layer| layer.with_filter(EnvFilter::new("kiln=trace")));
    let own = Targets::new().with_target("kiln", Level::DEBUG);
    let recorded = recorder.map(|recorder| recorder.with_filter(own));
    let registry = tracing_subscriber::registry().with(messages.with_filter(filter));
    registry.with(spans).with(recorded).init();
    guard
}

fn main() -> ExitCode {
    let Cli { command, trace } = match Cli::try_parse() {
        Ok(cli) => cli,
        // It repeats arguments, which may be names of files that somebody else has chosen.
        Err(error) if error.use_stderr() => {
            complain(error.to_string().trim_end());
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    let trace = trace.or_else(|| variable("KILN_TRACE").map(PathBuf::from));
    let trace = trace.filter(|path| !path.as_os_str().is_empty());
    let recorder = Recorder::start();
    let records = matches!(&command, Command::Dump(args) if args.records());
    let result = traced(trace.as_deref(), records, &recorder, command);
    progress::done();
    match result {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("kiln: {error}"));
            if let Some(log) = compiler_log(&error) {
                complain(&log);
            }
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                complain(&format!("  caused by: {error}"));
                cause = error.source();
            }
            exit_code(&error)
        }
    }
}

/// Runs a command with its spans in a file, if one is wanted. A trace that could not be written is
/// an error of a command that had none.
fn traced(
    trace: Option<&Path>,
    records: bool,
    recorder: &Recorder,
    command: Command,
) -> kiln::Result<ExitCode> {
    let file = trace.map(TraceFile::create).transpose()?;
    // The file is whole once the guard is gone.
    let guard = listen(file.as_ref(), records.then(|| recorder.clone()));
    let result = run(command, recorder);
    drop(guard);
    let code = result?;
    if let (Some(file), Some(path)) = (&file, trace) {
        file.finish(path)?;
    }
    Ok(code)
}

fn run(command: Command, recorder: &Recorder) -> kiln::Result<ExitCode> {
    // What comes before a command's first step counts as silence, too.
    progress::doing("starting");
    match command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => run::run(&args),
        Command::Dump(args) => dump::dump(&args, recorder),
        Command::Replay(args) => replay::replay(&args),
        Command::Engines(args) => engines::engines(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Warm(args) => warm::warm(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Cache(args) => cache::cache(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kiln", &mut script);
            say!("{}", String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn exit_code(error: &Error) -> ExitCode {
    ExitCode::from(match error.kind() {
        ErrorKind::BadParam => 2,
        ErrorKind::NotSupported => 3,
        ErrorKind::Compile => 4,
        _ => 5,
    })
}
