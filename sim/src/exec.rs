//! Running a program with the simulator's `libcuda.so.1` and `libcudart.so` in front of the real
//! ones: the subcommand `exec` of `kiln-sim` and of `kiln`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use clap::Args;

use crate::{Accuracy, Checks};

/// Result with a message.
type Result<T> = std::result::Result<T, String>;

/// What the subcommand does, for its help.
pub const ABOUT: &str = "\
The program finds `libcuda.so.1`, `libcudart.so.12` and `libcudart.so.13` as it does on a machine
with a GPU, and needs no change: what it loads with numba, cuda-python or the driver API, and what
nvcc has compiled into it, runs on the simulated device, if it is PTX. Machine code does not run:
let NVRTC and nvcc compile for `compute_XY`, and the driver link; a program must be linked with the
shared runtime library (`nvcc -cudart shared`). What the checks find is told on standard error; the
exit status is the program's, or 2 if it could not be run.

GPUs: sim (the default: 4 SMs, sm_90), t4, a100, rtx4090, l40s, h100, h200, b200, rtx5090, or an
architecture: sm_75, sm_80, sm_89, sm_90, sm_100, sm_120.";

/// File name of the driver as cargo builds it.
const DRIVER: &str = "libkiln_sim_driver.so";

/// Libraries beside the driver, with the names by which programs ask for them.
const LIBRARIES: [(&str, &[&str]); 3] = [
    (DRIVER, &["libcuda.so.1", "libcuda.so"]),
    ("libkiln_sim_runtime.so", &["libcudart.so.12", "libcudart.so.13"]),
    ("libmcdnn.so", &["libmcdnn.so.8"]),
];

/// What a program contains that NVIDIA's runtime library is linked into.
const STATIC_RUNTIME: &[u8] = b"/cudart.shm.";

/// Runs a program on the simulated GPU.
#[derive(Debug, Args)]
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
    let folder = folder(&driver(exec.driver.as_deref())?)?;
    let (program, arguments) = exec.program.split_first().ok_or("no program to run")?;
    if has_static_runtime(program) {
        return Err(format!(
            "failed to run `{program}`: NVIDIA's runtime library is linked into it, which runs on \
             NVIDIA's driver only; link it with `nvcc -cudart shared`"
        ));
    }
    let mut paths = vec![folder];
    paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    let paths = std::env::join_paths(paths).map_err(|e| format!("failed to set a path: {e}"))?;
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", paths);
    command.env("KILN_SIM_GPU", &exec.gpu).env("KILN_SIM_CHECKS", &exec.checks);
    command.env("KILN_SIM_SEED", exec.seed.to_string()).env("KILN_SIM_ACCURACY", &exec.accuracy);
    command.env("KILN_SIM_ON_FINDING", if exec.strict { "fail" } else { "report" });
    command.env("KILN_SIM_LOG", &exec.log).env("CUDA_FORCE_PTX_JIT", "1");
    match exec.warp_instructions_max {
        Some(most) => command.env("KILN_SIM_WARP_INSTRUCTIONS_MAX", most.to_string()),
        None => command.env_remove("KILN_SIM_WARP_INSTRUCTIONS_MAX"),
    };
    Ok(command)
}

/// The driver's file: the given one, or one beside this command.
fn driver(given: Option<&Path>) -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|e| format!("failed to find this command: {e}"))?;
    let beside = own.with_file_name(DRIVER);
    let path = given.unwrap_or(&beside);
    std::fs::canonicalize(path).map_err(|error| {
        let shown = path.display();
        let build = "build it with `cargo build -p kiln-sim-driver` (`--release` if this command \
                     was), or give its file with `--driver`";
        format!("failed to find the driver `{shown}`: {error}; {build}")
    })
}

/// The file that a program's name stands for, as a shell finds it.
fn found(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether the runtime library is in a program itself; not in what that loads, which nothing says
/// before it is loaded.
fn has_static_runtime(program: &str) -> bool {
    let file = found(program).and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    let mut rest = &file[..];
    while let Some(at) = rest.iter().position(|byte| *byte == STATIC_RUNTIME[0]) {
        rest = &rest[at..];
        if rest.starts_with(STATIC_RUNTIME) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// A folder beside the driver where it, and what lies beside it, has the names that programs ask
/// for.
fn folder(driver: &Path) -> Result<PathBuf> {
    let folder = driver.with_file_name("kiln-sim-driver");
    for (file, names) in LIBRARIES {
        let library = if file == DRIVER { driver.to_owned() } else { driver.with_file_name(file) };
        for name in names.iter().filter(|_| library.exists()) {
            link(&library, &folder.join(name))
                .map_err(|e| format!("failed to link `{}`: {e}", folder.join(name).display()))?;
        }
    }
    Ok(folder)
}

/// Makes a link to a library, unless there is one.
fn link(library: &Path, link: &Path) -> std::io::Result<()> {
    if std::fs::read_link(link).is_ok_and(|target| target == library) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // A link that two commands make at once is one of the two, which are the same.
    let mut own = link.as_os_str().to_owned();
    own.push(format!(".{}", std::process::id()));
    symlink(library, Path::new(&own))?;
    std::fs::rename(&own, link)
}

#[cfg(unix)]
fn symlink(library: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(library, link)
}

#[cfg(not(unix))]
fn symlink(_library: &Path, _link: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
