//! Options that several commands share.

use std::path::PathBuf;

use clap::Args;
use kiln::device::DeviceChoice;
use kiln::engine::{Mode, Notes};
use kiln::{Config, Kiln};

/// Options of every command that opens a device.
#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// The device: auto, sim, sim:TARGET, cuda, cuda:N or null
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceChoice>,
    /// Folder of the kernel cache; `off` keeps kernels in memory only
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// The NVRTC library or its folder
    #[arg(long, value_name = "PATH")]
    pub nvrtc: Option<PathBuf>,
    /// A folder of templates to use instead of the embedded ones
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
}

/// What the simulated device does besides running kernels.
#[derive(Args)]
pub struct WatchArgs {
    /// On the simulator: fail on races, reads of what nobody wrote, divided barriers
    #[arg(long)]
    pub sanitize: bool,
    /// On the simulator: count instructions and memory traffic
    #[arg(long)]
    pub counters: bool,
}

/// How settings are chosen.
#[derive(Args, Clone)]
pub struct SelectionArgs {
    /// The heuristic: a (rules), b (cost model) or fallback (what always runs)
    #[arg(long, value_name = "MODE")]
    pub heuristic: Option<Mode>,
    /// Leave out settings with one of these notes, such as tensor_core,nondeterministic
    #[arg(long, value_name = "NOTES")]
    pub without: Option<Notes>,
}

impl SelectionArgs {
    /// These over a command's own configuration.
    pub fn over(&self, config: Config) -> Config {
        Config { heuristic: self.heuristic, without: self.without.clone(), ..config }
    }
}

impl WatchArgs {
    pub fn config(&self) -> Config {
        Config {
            sanitize: self.sanitize.then_some(true),
            count: self.counters,
            ..Config::default()
        }
    }
}

impl DeviceArgs {
    pub fn open(&self) -> kiln::Result<Kiln> {
        self.open_with(Config::default())
    }

    /// Opens with the options of this struct over a command's own.
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
