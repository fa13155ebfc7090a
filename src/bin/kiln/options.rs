//! Options shared by several commands.

use std::path::PathBuf;

use clap::Args;
use kiln::device::DeviceChoice;
use kiln::engine::{Machine, Mode, Notes};
use kiln::{Config, Kiln};

/// Options of every command that opens a device.
#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// Device: auto, sim, sim:TARGET, cuda, cuda:N or null
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceChoice>,
    /// Folder of the kernel cache; `off` keeps kernels in memory only
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// NVRTC library or its folder
    #[arg(long, value_name = "PATH")]
    pub nvrtc: Option<PathBuf>,
    /// Template folder, overriding the embedded templates
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
}

/// Options of the simulated device.
#[derive(Args)]
pub struct WatchArgs {
    /// Simulator: fail on data races, uninitialised reads and divergent barriers
    #[arg(long)]
    pub sanitize: bool,
    /// Simulator: order of warps and of asynchronous copies
    #[arg(long, value_name = "SEED")]
    pub sim_seed: Option<u64>,
    /// Simulator: the largest known errors of approximate functions and tensor cores
    #[arg(long)]
    pub sim_worst: bool,
    /// Simulator: count instructions and memory traffic
    #[arg(long)]
    pub counters: bool,
}

/// Options of heuristics.
#[derive(Args, Clone)]
pub struct SelectionArgs {
    /// Heuristic: a (rules), b (cost model) or fallback (most general configuration)
    #[arg(long, value_name = "MODE")]
    pub heuristic: Option<Mode>,
    /// Exclude configurations with any of these notes, such as tensor_core,nondeterministic
    #[arg(long, value_name = "NOTES")]
    pub without: Option<Notes>,
}

impl SelectionArgs {
    /// Applies these options to a command's configuration.
    pub fn over(&self, config: Config) -> Config {
        Config { heuristic: self.heuristic, without: self.without.clone(), ..config }
    }
}

impl WatchArgs {
    pub fn config(&self) -> Config {
        Config {
            sanitize: self.sanitize.then_some(true),
            sim_seed: self.sim_seed,
            sim_worst: self.sim_worst.then_some(true),
            count: self.counters,
            ..Config::default()
        }
    }
}

impl DeviceArgs {
    pub fn open(&self) -> kiln::Result<Kiln> {
        self.open_with(Config::default())
    }

    /// Opens Kiln with these options applied to a command's configuration.
    pub fn open_with(&self, config: Config) -> kiln::Result<Kiln> {
        let off = self.cache_dir.as_ref().is_some_and(|folder| folder.as_os_str() == "off");
        Kiln::open(Config {
            device: self.device.clone(),
            cache_dir: self.cache_dir.clone(),
            no_disk_cache: off,
            nvrtc: self.nvrtc.clone(),
            templates: self.templates.clone(),
            ..config
        })
    }
}

/// A GPU of the table, for `--machine`.
pub fn machine(name: &str) -> Result<Machine, String> {
    Machine::named(name).ok_or_else(|| {
        format!("expected one of {}", Machine::ALL.map(|machine| machine.name).join(", "))
    })
}
