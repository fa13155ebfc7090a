//! Runs a kernel of a PTX file on the simulated device as specified by a job file, and prints
//! results, sanitizer findings and costs.

mod job;
mod tensor;

use clap::{Parser, Subcommand};
use job::{Job, Placed, Result, read_text};
use kiln_sim::exec::{self, Exec};
use kiln_sim::{
    Accuracy, Checks, Counters, Device, DeviceConfig, Estimate, Finding, Launch, Machine, Module,
    Resources, Site,
};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLE: &str = r#"Example:

  nvcc -ptx -lineinfo rotate.cu && kiln-sim rotate.ptx rotate.json

where rotate.json is

  {
    "kernel": "rotate",
    "grid": [1, 1, 1],
    "block": [64, 1, 1],
    "arguments": [
      { "dtype": "u32", "count": 64, "fill": "index" },
      { "dtype": "u32", "count": 64, "print": 8 },
      { "dtype": "i32", "value": 3 }
    ]
  }

An argument with a `count` is a buffer, one with a `value` a scalar. `fill` is a number, "index",
"random" or { "file": PATH }; a buffer without it counts as never written. `print` says how many
elements to show afterwards, `save` where to write all of them. A job may also have `shared_bytes`,
`cooperative`, `programmatic` (whether it may begin before the launch before it has ended),
`cluster` (blocks, like `grid`), `registers` (of a thread, for the estimate) and `bytes_min`.

`buffers` lists further buffers, which arguments refer to by index:

    { "tensor": 0, "dims": [256, 128], "box": [64, 32], "swizzle": 128 }

is a tensor map of buffer 0, the contiguous dimension first, which may also have `strides` (bytes
of all dimensions but the first; else packed), `steps` (element strides) and `nan` (outside the
tensor); { "addresses": [0, 1] } is a buffer of addresses.

Exit status: 0 if all is well, 1 if the kernel failed or the checks found anything, 2 if the job
could not be run."#;

const EXEC_EXAMPLES: &str = "\
Examples:

  kiln-sim exec -- python script.py
  kiln-sim exec --gpu a100 --checks shared,global --seed 3 -- python -m pytest tests
  kiln-sim exec --strict --warp-instructions-max 1000000 -- ./program

";

/// Runs a CUDA kernel without a GPU, and checks it.
#[derive(Debug, Parser)]
#[command(name = "kiln-sim", version, after_long_help = EXAMPLE)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    #[command(flatten)]
    job: Option<JobArguments>,
}

/// What else the command does.
#[derive(Debug, Subcommand)]
enum Task {
    /// Runs a program on the simulated GPU.
    #[command(after_long_help = format!("{EXEC_EXAMPLES}{}", exec::ABOUT))]
    Exec(Exec),
}

/// A kernel and how to run it.
#[derive(Debug, clap::Args)]
struct JobArguments {
    /// PTX file, from `nvcc -ptx -lineinfo` or NVRTC.
    #[arg(required = true)]
    ptx: PathBuf,
    /// Job file in JSON.
    #[arg(required = true)]
    job: PathBuf,
    /// Sanitizer checks: `all`, `none`, or a list of `uninitialised,shared,global,barriers`; and
    /// kinds of findings to leave out, such as `all,-leaked-asynchronous-copy`.
    #[arg(long, default_value = "all")]
    checks: Checks,
    /// Count instructions and memory traffic.
    #[arg(long)]
    counters: bool,
    /// Estimate the time on a GPU: A100, H100, H200, L40S, RTX4090 or B200. Implies --counters.
    #[arg(long, value_parser = machine)]
    machine: Option<Machine>,
    /// Maximum number of warp instructions.
    #[arg(long, value_name = "COUNT")]
    warp_instructions_max: Option<u64>,
    /// Seed of the warp scheduling order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Approximate functions and tensor cores: rounded to `nearest`, or with their largest known
    /// errors, `worst`.
    #[arg(long, default_value = "nearest")]
    accuracy: Accuracy,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

fn machine(text: &str) -> Result<Machine> {
    Machine::named(text).ok_or_else(|| format!("unknown machine `{text}`"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match (&arguments.command, &arguments.job) {
        (Some(Task::Exec(exec)), _) => Err(exec::run(exec)),
        (None, Some(job)) => run(job),
        (None, None) => Err("no job to run".to_owned()),
    };
    match ran {
        Ok(clean) => ExitCode::from(u8::from(!clean)),
        Err(error) => {
            eprintln!("kiln-sim: {error}");
            ExitCode::from(2)
        }
    }
}

/// Outcome of a run.
struct Outcome {
    buffers: Vec<(usize, Vec<String>)>,
    findings: Vec<Finding>,
    failure: Option<String>,
    counters: Option<Box<Counters>>,
    estimate: Option<Estimate>,
}

/// Runs the job; returns whether there are no errors or findings.
fn run(arguments: &JobArguments) -> Result<bool> {
    let job = Job::load(&arguments.job)?;
    let module = Module::load_with(&read_text(&arguments.ptx)?, arguments.accuracy);
    let module = module.map_err(|error| error.to_string())?;
    let names: Vec<&str> = module.kernels().collect();
    let name = match (&job.kernel, &names[..]) {
        (Some(name), _) => name,
        (None, [only]) => *only,
        (None, _) => return Err(format!("the job must name a kernel: {}", names.join(", "))),
    };
    let kernel = module
        .kernel(name)
        .ok_or_else(|| format!("the module has no kernel `{name}`; it has {}", names.join(", ")))?;
    let device = Device::new(DeviceConfig { seed: arguments.seed, ..DeviceConfig::default() });
    let (placed, block) = job.place(&device, &kernel)?;
    let launch = Launch {
        grid: job.grid,
        block: job.block,
        shared_bytes: job.shared_bytes,
        cooperative: job.cooperative,
        programmatic: job.programmatic,
        cluster: job.cluster,
        non_portable_cluster: true,
        checks: arguments.checks,
        counters: arguments.counters || arguments.machine.is_some(),
        bytes_min: job.bytes_min,
        warp_instructions_max: arguments.warp_instructions_max,
        ..Launch::default()
    };
    let mut outcome = match device.launch(&kernel, &launch, &block) {
        Ok(report) => Outcome {
            buffers: Vec::new(),
            findings: report.findings,
            failure: None,
            counters: report.counters,
            estimate: None,
        },
        Err(error) if error.kind() == kiln_sim::ErrorKind::BadLaunch => {
            return Err(error.to_string());
        }
        Err(error) => Outcome {
            buffers: Vec::new(),
            findings: error.findings().to_vec(),
            failure: Some(error.to_string()),
            counters: None,
            estimate: None,
        },
    };
    if let (Some(machine), Some(counters)) = (&arguments.machine, &outcome.counters) {
        let blocks = job.grid.iter().map(|&n| u64::from(n)).product();
        let shared_bytes = kernel.shared_bytes() + job.shared_bytes;
        let resources = Resources { registers: job.registers, shared_bytes };
        let threads = job.block.iter().product();
        outcome.estimate = Some(Estimate::of(counters, machine, blocks, threads, resources));
    }
    if outcome.failure.is_none() {
        outcome.buffers = results(&device, &placed)?;
    }
    let text = match arguments.json {
        true => format!("{:#}\n", outcome.json()),
        false => outcome.text(&placed),
    };
    // A closed pipe means that the reader has seen enough.
    if let Err(error) = std::io::stdout().write_all(text.as_bytes())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(format!("failed to print: {error}"));
    }
    Ok(outcome.findings.is_empty() && outcome.failure.is_none())
}

/// Returns the buffers to print, and saves those to save.
fn results(device: &Device, placed: &[Placed<'_>]) -> Result<Vec<(usize, Vec<String>)>> {
    let mut out = Vec::new();
    for buffer in placed {
        buffer.save(device)?;
        if buffer.buffer.print > 0 {
            out.push((buffer.index, buffer.shown(device)?));
        }
    }
    Ok(out)
}

impl Outcome {
    fn text(&self, placed: &[Placed<'_>]) -> String {
        let mut out = String::new();
        for (index, values) in &self.buffers {
            let Some(of) = placed.iter().find(|b| b.index == *index) else { continue };
            let rest = if (values.len() as u64) < of.buffer.count { " .." } else { "" };
            out += &format!("{}: {}{rest}\n", of.name, values.join(" "));
        }
        if let Some(failure) = &self.failure {
            out += &format!("failed: {failure}\n");
        }
        for finding in &self.findings {
            out += &format!("{finding}\n");
        }
        match self.findings.len() {
            0 => out += "no findings\n",
            1 => out += "1 finding\n",
            count => out += &format!("{count} findings\n"),
        }
        self.counters.iter().for_each(|counters| out += &format!("\n{counters}"));
        self.estimate.iter().for_each(|estimate| out += &format!("\n{estimate}"));
        out
    }

    fn json(&self) -> Value {
        let buffers = self
            .buffers
            .iter()
            .map(|(index, values)| json!({ "argument": index, "values": values }));
        let estimate = self.estimate.as_ref().map(|estimate| {
            let bounds = estimate.bounds.iter().map(|bound| {
                let part = bound.part.to_string();
                json!({ "part": part, "us": bound.us, "share": bound.share })
            });
            json!({
                "machine": estimate.machine,
                "blocks": estimate.occupancy.blocks,
                "warps": estimate.occupancy.warps,
                "occupancy": estimate.occupancy.share,
                "bounds": bounds.collect::<Vec<_>>(),
            })
        });
        json!({
            "buffers": buffers.collect::<Vec<_>>(),
            "failure": self.failure,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "counters": self.counters.as_deref().map(counts),
            "estimate": estimate,
        })
    }
}

fn finding(finding: &Finding) -> Value {
    let site = |Site { what, place, .. }: &Site| {
        json!({
            "what": what,
            "kernel": place.kernel,
            "block": place.block,
            "thread": place.thread,
            "ptx_line": place.line,
            "ptx": place.text,
            "source": place.source.as_ref().map(|(file, line)| format!("{file}:{line}")),
        })
    };
    json!({
        "kind": finding.kind.to_string(),
        "subject": finding.subject,
        "sites": finding.sites.iter().map(site).collect::<Vec<_>>(),
        "remedy": finding.remedy,
        "count": finding.count,
    })
}

fn counts(counters: &Counters) -> Value {
    let total = &counters.total;
    let classes = counters.classes.iter().map(|of| {
        let counts = json!({ "warps": of.warp_instructions, "lanes": of.lane_instructions });
        (of.class.to_string(), counts)
    });
    let shared = |of: &kiln_sim::SharedCount| {
        json!({
            "requests": of.requests, "wavefronts": of.wavefronts, "conflicts": of.conflicts,
            "paired": of.paired,
        })
    };
    json!({
        "warp_instructions": total.warp_instructions,
        "lane_instructions": total.lane_instructions,
        "diverged": total.diverged,
        "classes": classes.collect::<serde_json::Map<_, _>>(),
        "global": {
            "requests": total.global.requests,
            "bytes": total.global.bytes,
            "sectors": total.global.sectors,
            "lines": total.global.lines,
        },
        "shared_loads": shared(&total.shared_loads),
        "shared_stores": shared(&total.shared_stores),
        "dram_read_bytes": counters.dram_read_bytes,
        "dram_written_bytes": counters.dram_written_bytes,
        "bytes_min": counters.bytes_min,
    })
}
