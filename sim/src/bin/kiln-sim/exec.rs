//! `kiln-sim exec`: runs a program with the simulator's `libcuda.so` in front of the real one.

use crate::job::Result;
use clap::Args;
use kiln_sim::{Accuracy, Checks};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

pub const EXAMPLES: &str = r#"Examples:

  kiln-sim exec -- python script.py
  kiln-sim exec --gpu a100 --checks shared,global --seed 3 -- python -m pytest tests
  kiln-sim exec --strict --warp-instructions-max 1000000 -- ./program

The program finds `libcuda.so.1` as it does on a machine with a GPU, and needs no change: what it
loads with numba, cupy's RawKernel, cuda-python or the driver API itself runs on the simulated
device, if it is PTX. Machine code does not run: let NVRTC compile for `compute_XY`, and the driver
link. What the checks find is told on standard error; the exit status is the program's.

GPUs: sim (the default: 4 SMs, sm_90), t4, a100, rtx4090, l40s, h100, h200, b200, rtx5090, or an
architecture: sm_75, sm_80, sm_89, sm_90, sm_100, sm_120.

Exit status: the program's, or 2 if it could not be run."#;

/// File name of the driver as cargo builds it.
const LIBRARY: &str = "libkiln_sim_driver.so";
/// Names by which programs ask for the driver.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// Runs a program on the simulated GPU.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Exec {
    /// GPU that the device passes for, by name or architecture.
    #[arg(long, default_value = "sim")]
    gpu: String,
    /// Sanitizer checks: `all`, `none`, or a list of `uninitialised,shared,global,barriers`.
    #[arg(long, default_value = "all", value_parser = known::<Checks>)]
    checks: String,
    /// Seed of the warp scheduling order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Approximate functions and tensor cores: rounded to `nearest`, or with their largest known
    /// errors, `worst`.
    #[arg(long, default_value = "nearest", value_parser = known::<Accuracy>)]
    accuracy: String,
    /// Fail a launch in which the checks find something; otherwise the program goes on.
    #[arg(long)]
    strict: bool,
    /// Maximum number of warp instructions of a launch.
    #[arg(long, value_name = "COUNT")]
    warp_instructions_max: Option<u64>,
    /// Tell calls of the driver on standard error: `nothing`, those that are `refused`, or all
    /// `calls`.
    #[arg(long, default_value = "nothing", value_parser = ["nothing", "refused", "calls"])]
    log: String,
    /// The driver: `libkiln_sim_driver.so`. By default the one beside this command.
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

/// Checks that exist, as text.
fn known<T: FromStr<Err = String>>(text: &str) -> Result<String> {
    text.parse::<T>().map(|_| text.to_owned())
}

/// Becomes the program; returns why that was not possible.
pub fn run(exec: &Exec) -> String {
    match prepare(exec) {
        Err(error) => error,
        Ok(mut command) => {
            let error = replace(&mut command);
            format!("failed to run `{}`: {error}", exec.program[0])
        }
    }
}

#[cfg(unix)]
fn replace(command: &mut Command) -> std::io::Error {
    std::os::unix::process::CommandExt::exec(command)
}

#[cfg(not(unix))]
fn replace(_command: &mut Command) -> std::io::Error {
    std::io::ErrorKind::Unsupported.into()
}

fn prepare(exec: &Exec) -> Result<Command> {
    let folder = folder(&library(exec.driver.as_deref())?)?;
    let (program, arguments) = exec.program.split_first().ok_or("no program to run")?;
    let mut paths = vec![folder];
    paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    let paths = std::env::join_paths(paths).map_err(|e| format!("failed to set a path: {e}"))?;
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", paths);
    command.env("KILN_SIM_GPU", &exec.gpu).env("KILN_SIM_CHECKS", &exec.checks);
    command.env("KILN_SIM_SEED", exec.seed.to_string()).env("KILN_SIM_ACCURACY", &exec.accuracy);
    command.env("KILN_SIM_ON_FINDING", if exec.strict { "fail" } else { "report" });
    command.env("KILN_SIM_LOG", &exec.log);
    match exec.warp_instructions_max {
        Some(most) => command.env("KILN_SIM_WARP_INSTRUCTIONS_MAX", most.to_string()),
        None => command.env_remove("KILN_SIM_WARP_INSTRUCTIONS_MAX"),
    };
    Ok(command)
}

/// The driver's file: the given one, or one beside this command.
fn library(given: Option<&Path>) -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|e| format!("failed to find this command: {e}"))?;
    let beside = own.with_file_name(LIBRARY);
    let path = given.unwrap_or(&beside);
    std::fs::canonicalize(path).map_err(|error| {
        let shown = path.display();
        let build = "build it with `cargo build -p kiln-sim-driver` (`--release` if this command \
                     was), or give its file with `--driver`";
        format!("failed to find the driver `{shown}`: {error}; {build}")
    })
}

/// A folder beside the driver where it has the names that programs ask for.
fn folder(library: &Path) -> Result<PathBuf> {
    let folder = library.with_file_name("kiln-sim-driver");
    for name in NAMES {
        let link = folder.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        let made = std::fs::create_dir_all(&folder).and_then(|()| {
            // A link that two commands make at once is one of the two, which are the same.
            let own = folder.join(format!("{name}.{}", std::process::id()));
            symlink(library, &own)?;
            std::fs::rename(&own, &link)
        });
        made.map_err(|e| format!("failed to link `{}`: {e}", link.display()))?;
    }
    Ok(folder)
}

#[cfg(unix)]
fn symlink(library: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(library, link)
}

#[cfg(not(unix))]
fn symlink(_library: &Path, _link: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
