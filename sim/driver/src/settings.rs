//! What the environment says of the simulated GPU, read once.

use std::ffi::c_int;
use std::sync::LazyLock;

use kiln_sim::{Accuracy, Checks, DeviceConfig};

use crate::gpu::Gpu;

/// The driver interface that is spoken: CUDA 13.0.
pub const VERSION: c_int = 13_000;

/// What becomes of what the checks find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFinding {
    /// The launch fails.
    Fail,
    /// It is printed, and the program goes on.
    Report,
}

/// What is told of calls on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Log {
    Nothing,
    /// Those of functions that are refused.
    Refused,
    Calls,
}

#[derive(Debug)]
pub struct Settings {
    pub gpu: &'static Gpu,
    pub checks: Checks,
    pub on_finding: OnFinding,
    pub seed: u64,
    pub accuracy: Accuracy,
    pub warp_instructions_max: Option<u64>,
    pub log: Log,
    /// The version that the driver says it has.
    pub version: c_int,
    /// Kernels that read an illegal address, and that never end, whatever they are: those whose
    /// name contains it.
    pub fault: Option<String>,
    pub hang: Option<String>,
    /// Most blocks that an SM is said to hold.
    pub resident: Option<u64>,
    /// Whether a launch waits for its kernel, and reports what happened in it.
    pub blocking: bool,
}

/// The settings, or what is wrong with them.
pub static SETTINGS: LazyLock<Result<Settings, String>> =
    LazyLock::new(|| Settings::read(|name| std::env::var(name).ok()));

impl Settings {
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let given = |name| variable(name).filter(|text| !text.is_empty());
        let number = |name| match given(name) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| format!("`{name}` is `{text}`, not a number")),
        };
        let gpu = match given("KILN_SIM_GPU") {
            None => Gpu::SIM,
            Some(name) => Gpu::named(&name).ok_or_else(|| {
                format!("`KILN_SIM_GPU` is `{name}`, not one of {}", Gpu::names().join(", "))
            })?,
        };
        let checks = given("KILN_SIM_CHECKS").map_or(Ok(Checks::ALL), |text| text.parse());
        let checks = checks.map_err(|why| format!("`KILN_SIM_CHECKS` has an {why}"))?;
        let accuracy =
            given("KILN_SIM_ACCURACY").map_or(Ok(Accuracy::Nearest), |text| text.parse());
        let accuracy = accuracy.map_err(|why| format!("`KILN_SIM_ACCURACY` has an {why}"))?;
        let on_finding = match given("KILN_SIM_ON_FINDING").as_deref() {
            None | Some("fail") => OnFinding::Fail,
            Some("report") => OnFinding::Report,
            Some(other) => {
                return Err(format!("`KILN_SIM_ON_FINDING` is `{other}`, not `fail` or `report`"));
            }
        };
        let log = match given("KILN_SIM_LOG").as_deref() {
            None | Some("nothing") => Log::Nothing,
            Some("refused") => Log::Refused,
            Some("calls") => Log::Calls,
            Some(other) => {
                return Err(format!(
                    "`KILN_SIM_LOG` is `{other}`, not `nothing`, `refused` or `calls`"
                ));
            }
        };
        let version = match given("KILN_SIM_CUDA") {
            None => VERSION,
            Some(text) => {
                let parts = text.split_once('.').map(|(a, b)| (a.parse(), b.parse()));
                let Some((Ok(major), Ok(minor))): Option<(Result<c_int, _>, Result<c_int, _>)> =
                    parts
                else {
                    return Err(format!("`KILN_SIM_CUDA` is `{text}`, not like 12.8"));
                };
                major * 1000 + minor * 10
            }
        };
        Ok(Settings {
            gpu,
            checks,
            on_finding,
            seed: number("KILN_SIM_SEED")?.unwrap_or_default(),
            accuracy,
            warp_instructions_max: number("KILN_SIM_WARP_INSTRUCTIONS_MAX")?,
            log,
            version,
            fault: given("KILN_SIM_FAULT"),
            hang: given("KILN_SIM_HANG"),
            resident: number("KILN_SIM_RESIDENT")?,
            blocking: given("CUDA_LAUNCH_BLOCKING").as_deref() == Some("1"),
        })
    }

    /// The device of these settings.
    pub fn device(&self) -> DeviceConfig {
        DeviceConfig {
            shared_bytes_max: self.gpu.shared_bytes_max,
            sm_count: self.gpu.sm_count,
            seed: self.seed,
            ..DeviceConfig::default()
        }
    }
}

/// Tells what is refused, if that is to be told.
pub fn tell(text: impl FnOnce() -> String) {
    if SETTINGS.as_ref().is_ok_and(|all| all.log >= Log::Refused) {
        eprintln!("kiln-sim-driver: {}", text());
    }
}
