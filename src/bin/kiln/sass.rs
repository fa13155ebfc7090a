//! `kiln sass`: the machine code of kernels, and how long it takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kiln::engine::{EngineConfig, Machine};
use kiln::plan::Problem;
use kiln::{Config, Error, ErrorKind};
use kiln_sass::{Code, Cubin, Estimate, LoopEstimate};
use serde_json::{Value, json};

use crate::options::{DeviceArgs, machine};
use crate::plan;
use crate::problem;
use crate::progress;
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln sass attention.json --device sim:h200
  kiln sass mlp.json --device sim:a100 --machine A100 --json
  kiln sass dumps/sm90_gemm_bf16_wgmma-3b06bef4dc0ba51d/kernel.cubin --listing
  kiln sass mlp.json --device sim:h200 --config 'gemm_wgmma{...}'
  kiln sass mlp.plan.json --device sim:h200

A problem is run on the simulated device, which counts how often each line is executed. Loops of a
cubin alone are assumed to repeat 16 times: walks and findings say something, totals do not.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SassArgs {
    /// Problem files or saved plans (JSON), or cubins
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// GPU of the estimate instead of the device's: A100, H100, H200, L40S, ...
    #[arg(long, value_name = "NAME", value_parser = machine)]
    machine: Option<Machine>,
    /// Engine and knobs, overriding the heuristic
    #[arg(long, value_name = "CONFIG")]
    config: Option<EngineConfig>,
    /// Simulate only so many blocks of a grid, or clusters of blocks: enough where they do alike
    #[arg(long, value_name = "COUNT")]
    sample: Option<u32>,
    /// Also list every instruction: its clock in a walk through its loop, clocks to stall,
    /// scoreboards
    #[arg(long)]
    listing: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// A kernel with its estimate.
struct Estimated {
    file: PathBuf,
    kernel: String,
    /// Engine and knobs.
    config: Option<String>,
    code: Code,
    estimate: Estimate,
    counted: bool,
}

pub fn sass(args: &SassArgs) -> kiln::Result<ExitCode> {
    let mut all = Vec::new();
    for file in &args.files {
        match file.extension().is_some_and(|extension| extension == "cubin") {
            true => all.extend(of_cubin(args, file)?),
            false => all.extend(of_problem(args, file)?),
        }
    }
    match args.json {
        true => say_json(&Value::Array(all.iter().map(json).collect())),
        false => all.iter().for_each(|each| print(each, args.listing)),
    }
    Ok(ExitCode::SUCCESS)
}

fn of_cubin(args: &SassArgs, file: &Path) -> kiln::Result<Vec<Estimated>> {
    let shown = file.display();
    let bytes = fs::read(file).map_err(|error| {
        Error::with(ErrorKind::Io, format!("failed to read `{shown}`: {error}"))
    })?;
    let cubin = Cubin::parse(&bytes)
        .map_err(|error| Error::with(ErrorKind::BadParam, format!("`{shown}`: {error}")))?;
    if cubin.codes.is_empty() {
        return Err(Error::with(ErrorKind::BadParam, format!("`{shown}` contains no kernel")));
    }
    let machine = args.machine.clone().unwrap_or(Machine::H100);
    let estimated = |code: Code| Estimated {
        file: file.to_owned(),
        kernel: code.name.clone(),
        config: None,
        estimate: Estimate::uncounted(&code, &machine),
        code,
        counted: false,
    };
    Ok(cubin.codes.into_iter().map(estimated).collect())
}

fn of_problem(args: &SassArgs, file: &Path) -> kiln::Result<Vec<Estimated>> {
    let text = problem::read(file)?;
    let saved = plan::is_plan(&text, args.config.as_ref())?;
    let problem = if saved { Problem::of_plan(&text) } else { Problem::from_json(&text) };
    let problem = problem::in_file(file, problem)?;
    let config = Config { count: true, sample: args.sample, ..Config::default() };
    let kiln = args.device.open_with(config)?;
    let target = kiln.device().target();
    let machine = args.machine.clone().unwrap_or_else(|| kiln::engine::machine_of(target));
    let values = problem.random_values(1)?;
    let mut all = Vec::new();
    for (number, graph) in problem.graphs().into_iter().enumerate() {
        progress::doing(format!("planning {}", file.display()));
        let plan = match &args.config {
            _ if saved => problem::in_file(file, kiln.plan_from_json(&text))?,
            Some(config) => kiln.plan_with(graph, config)?,
            None => kiln.plan(graph)?,
        };
        progress::doing(format!("counting {}", file.display()));
        // What an earlier graph would compute is zeros.
        let counters = kiln.count(&plan, &problem.inputs(number, &values))?;
        for (kernel, counters) in plan.kernels().iter().zip(&counters) {
            let Some(counters) = counters else { continue };
            let (code, estimate) = kernel.clocks(target, &machine, counters)?;
            let config = Some(kernel.config().to_string());
            let (file, kernel) = (file.to_owned(), kernel.identifier());
            all.push(Estimated { file, kernel, config, code, estimate, counted: true });
        }
    }
    Ok(all)
}

fn json(each: &Estimated) -> Value {
    json!({
        "file": each.file,
        "kernel": each.kernel,
        "config": each.config,
        "architecture": each.code.architecture,
        "registers": each.code.registers,
        "instructions": each.code.instructions.len(),
        "counted": each.counted,
        "estimate": each.estimate,
    })
}

/// What is known of a kernel's machine code, line by line.
pub fn report(code: &Code, estimate: &Estimate, counted: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "sm_{}, {} instructions, {} registers",
        code.architecture,
        code.instructions.len(),
        code.registers
    )];
    if counted {
        let bound = estimate.bounds.first().map(|first| first.bound.to_string());
        lines.push(format!(
            "{:.2} us on {}: {:.0} clocks, bound by {}",
            estimate.us,
            estimate.machine,
            estimate.clocks,
            bound.unwrap_or_default()
        ));
        let bounds = estimate.bounds.iter().filter(|of| of.clocks > estimate.clocks / 100.0);
        let shown: Vec<String> =
            bounds.map(|of| format!("{} {:.0}", of.bound, of.clocks)).collect();
        lines.push(format!("clocks: {}", shown.join(", ")));
        lines.push(format!(
            "{} blocks on an SM, {} rounds, a warp's way {:.0} clocks, {:.0} instructions",
            estimate.resident_blocks, estimate.rounds, estimate.path, estimate.mix.instructions
        ));
    }
    let loops = estimate.loops.iter().filter(|of| !counted || of.share >= 0.01);
    lines.extend(loops.flat_map(|of| loop_lines(of, counted)));
    lines.extend(estimate.findings.iter().map(|finding| {
        let line = finding.line.map_or(String::new(), |line| format!(", line {line}"));
        format!("finding at {:#x}{line}: {}", finding.address, finding.text)
    }));
    lines
}

fn print(each: &Estimated, listing: bool) {
    let Estimated { kernel, code, estimate, counted, .. } = each;
    say!("{kernel}");
    for line in report(code, estimate, *counted) {
        say!("  {line}");
    }
    if listing {
        for instruction in &code.instructions {
            let control = instruction.control;
            let scoreboard = |of: Option<u8>| of.map_or("-".to_owned(), |of| of.to_string());
            let waits: String = (0..6)
                .map(|at| if control.wait >> at & 1 != 0 { char::from(b'0' + at) } else { '-' })
                .collect();
            let clock = issue_clock(estimate, instruction.address);
            say!(
                "  {:05x} {:>6} {:>2}{} w{} r{} {waits} {instruction}",
                instruction.address,
                clock.map_or(String::new(), |clock| format!("{clock:.0}")),
                control.stall,
                if control.yields { 'y' } else { ' ' },
                scoreboard(control.write),
                scoreboard(control.read),
            );
        }
    }
}

/// The clock at which an instruction issues in a warp's walk through the innermost loop around it
/// that repeats; of those that do not, the outermost.
fn issue_clock(estimate: &Estimate, address: u32) -> Option<f64> {
    let around = || estimate.loops.iter().filter(|of| of.issues.contains_key(&address));
    let repeats = around().filter(|of| !of.waits && of.trips >= 1.5).max_by_key(|of| of.depth);
    repeats.or_else(|| around().min_by_key(|of| of.depth))?.issues.get(&address).copied()
}

fn loop_lines(of: &LoopEstimate, counted: bool) -> [String; 2] {
    let indent = "  ".repeat(of.depth);
    let lines = of.lines.map_or(String::new(), |(low, high)| match low == high {
        true => format!(" line {low}"),
        false => format!(" lines {low}-{high}"),
    });
    let (start, end) = of.addresses;
    let times = match (counted, of.waits) {
        (_, true) => ", waits".to_owned(),
        (true, _) => format!(", {:.1} times, {:.0} % of instructions", of.trips, of.share * 100.0),
        (false, _) => String::new(),
    };
    let header = format!("{indent}loop {start:#x}-{end:#x}{lines}{times}");
    let mut pipes: Vec<_> = of.mix.pipes.iter().filter(|(_, of)| of.0 >= 0.5).collect();
    pipes.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    let pipes: Vec<String> = pipes
        .iter()
        .map(|(name, (count, busy))| format!("{name} {count:.0} ({busy:.0})"))
        .collect();
    let body = format!(
        "{indent}  a warp: {:.0} clocks, {:.0} instructions: {}",
        of.walk,
        of.mix.instructions,
        pipes.join(", ")
    );
    [header, body]
}
