//! The command line tool, which uses only the public API.

/// Prints a line to standard output with terminal control characters escaped.
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
mod exec;
mod looped;
mod measure;
mod networks;
mod options;
mod pack;
mod page;
mod plan;
mod problem;
mod progress;
mod replay;
mod run;
mod sass;
mod terminal;
mod tune;
mod vjp;
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
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::fmt::format::{FmtSpan, debug_fn};
use tracing_subscriber::prelude::*;

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  a check failed: a result differs from the reference (run --check, demo, replay), a kernel of
     a manifest failed (warm), a pack or cache entry is damaged or missing (pack, cache verify),
     a component is missing (doctor)
  2  bad arguments, or a file that cannot be read or is malformed
  3  not supported: no engine supports the problem
  4  no NVRTC, or a kernel failed to compile
  5  an error of the device or the operating system, or a bug in Kiln
  6  the device is lost: a kernel faulted or hung; another process may use the GPU again";

/// Variables that the command line reads in addition to the library's.
const OWN_VARIABLES: [(&str, &str); 3] = [
    ("KILN_LOG", "a filter of log messages, such as debug or kiln=debug,opendal=info"),
    ("RUST_LOG", "the same, where KILN_LOG is not set"),
    ("KILN_TRACE", "stands in for --trace"),
];

/// Text below the options: exit codes and every environment variable.
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

/// Run-time specialised CUDA kernels on a GPU or a simulated device.
#[derive(Parser)]
#[command(version, after_help = after_help(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Write tracing spans to a file for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE", global = true)]
    trace: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Build, run and check sample pointwise chains, recurrent networks or attention
    Demo(demo::DemoArgs),
    /// Run a problem file on tensors from a safetensors file
    Run(run::RunArgs),
    /// Write the kernels of problems to folders: source, PTX, cubin, launch
    Dump(dump::DumpArgs),
    /// Rerun a dumped kernel, or an edited version, and compare results and counters
    Replay(replay::ReplayArgs),
    /// List the machine code of kernels and estimate how long it takes on a GPU
    Sass(sass::SassArgs),
    /// Show which engines can run a problem, with knobs, and why the others cannot
    Engines(engines::EnginesArgs),
    /// Write the gradients of a problem's graph as a problem, and show what is saved for them
    Vjp(vjp::VjpArgs),
    /// Benchmark a problem file, a recurrent network or attention: build, host overhead, device
    /// time
    Bench(bench::BenchArgs),
    /// Measure configurations of a problem and store the best for later plans
    Tune(tune::TuneArgs),
    /// Time plans for `kiln tune`
    #[command(hide = true)]
    Measure(measure::MeasureArgs),
    /// Save and load plans: partition, engines and knobs of a problem
    Plan(plan::PlanArgs),
    /// Compile the kernels of a manifest ahead of the first call
    Warm(warm::WarmArgs),
    /// Build, verify, merge and sign packs of prebuilt kernels
    Pack(pack::PackArgs),
    /// Inspect and maintain the disk cache
    Cache(cache::CacheArgs),
    /// Diagnose the installation and suggest fixes
    Doctor(doctor::DoctorArgs),
    /// Run a program of others on the simulated device, in the place of a GPU
    #[command(after_help = exec::help())]
    Exec(kiln_sim::exec::Exec),
    /// Print shell completions
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// Shell
        shell: Shell,
    },
}

const COMPLETIONS: &str = "\
Examples:
  kiln completions bash > ~/.local/share/bash-completion/completions/kiln
  kiln completions zsh > ~/.zfunc/_kiln
  kiln completions fish > ~/.config/fish/completions/kiln.fish";

/// Installs subscribers: messages to standard error, all events to the recorder, spans to an
/// optional trace file. Active as long as the result lives.
fn listen(trace: Option<&TraceFile>, recorder: Option<Recorder>) -> Option<FlushGuard> {
    let filter = variable("KILN_LOG").or_else(|| variable("RUST_LOG"));
    let filter = filter.and_then(|text| text.into_string().ok());
    let filter = EnvFilter::new(filter.as_deref().map_or("warn".to_owned(), of_own_crates));
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

/// A log filter whose level without a target is that of Kiln's crates: what libraries log at debug
/// may hold credentials of a remote cache.
fn of_own_crates(filter: &str) -> String {
    match filter.parse::<LevelFilter>() {
        Ok(level) => format!("{},kiln={level}", level.min(LevelFilter::WARN)),
        Err(_) => filter.to_owned(),
    }
}

fn main() -> ExitCode {
    let Cli { command, trace } = match Cli::try_parse() {
        Ok(cli) => cli,
        // The message repeats arguments, which may be file names of foreign origin.
        Err(error) if error.use_stderr() => {
            complain(error.to_string().trim_end());
            return ExitCode::from(2);
        }
        Err(help) => return said_help(&help),
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

/// Prints help or the version.
fn said_help(help: &clap::Error) -> ExitCode {
    match help.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(&format!("kiln: failed to write to standard output: {error}"));
            ExitCode::from(5)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Runs a command with an optional trace file. Failure to write the trace is an error if the
/// command succeeded.
fn traced(
    trace: Option<&Path>,
    records: bool,
    recorder: &Recorder,
    command: Command,
) -> kiln::Result<ExitCode> {
    let file = trace.map(TraceFile::create).transpose()?;
    // The trace is complete once the guard is dropped.
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
    // Time before a command's first step counts as silence too.
    progress::doing("starting");
    match command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => run::run(&args),
        Command::Dump(args) => dump::dump(&args, recorder),
        Command::Sass(args) => sass::sass(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Engines(args) => engines::engines(&args),
        Command::Vjp(args) => vjp::vjp(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Measure(args) => measure::measure(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Warm(args) => warm::warm(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Cache(args) => cache::cache(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Exec(args) => exec::exec(&args),
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
        ErrorKind::NotSupported | ErrorKind::ArchMismatch => 3,
        ErrorKind::Compile | ErrorKind::NoCompiler => 4,
        ErrorKind::DeviceLost => 6,
        _ => 5,
    })
}
