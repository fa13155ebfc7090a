//! A launch: what the caller describes, checked, and run at once or kept in a graph.

use std::io::Write;

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::{Checks, Device, ErrorKind, Finding, Kernel, Launch};

use crate::constant_bank::places;
use crate::outcome::{Outcome, explain};
use crate::pointer::{Host, In};
use crate::settings::{OnFinding, SETTINGS};

/// Dynamic shared memory, in bytes, that a kernel has without asking.
pub const SHARED_BYTES_DEFAULT: u32 = 48 << 10;

/// A function of a loaded module, or a kernel of a library.
#[derive(Clone)]
pub struct Function {
    pub module: u64,
    pub kernel: Kernel,
    /// Dynamic shared memory, in bytes, that a launch may have.
    pub shared_bytes_max: u32,
    /// Attributes that were set and change nothing, by number.
    pub hints: Vec<(u32, i32)>,
    pub max_registers: Option<u32>,
}

/// A kernel with its shape and parameters.
#[derive(Clone)]
pub struct Work {
    kernel: Kernel,
    launch: Launch,
    parameters: Vec<u8>,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: u64,
    pub attributes: In<Attribute>,
    pub attribute_count: u32,
}

impl Config {
    /// A launch without attributes.
    pub fn of(grid: [u32; 3], block: [u32; 3], shared_bytes: u32, stream: u64) -> Config {
        let attributes = In::null();
        Config { grid, block, shared_bytes, stream, attributes, attribute_count: 0 }
    }

    /// The shape of clusters that the launch asks for.
    pub fn cluster(&self) -> Outcome<Option<[u32; 3]>> {
        let all = self.attributes.all(self.attribute_count as usize)?;
        let found = all.iter().find(|attribute| attribute.id == CLUSTER_DIMENSION);
        Ok(found.map(|attribute| [attribute.value[0], attribute.value[1], attribute.value[2]]))
    }
}

/// `CUlaunchAttribute`: a number and up to 64 bytes, here as words.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

/// Attributes of launches (`CUlaunchAttributeID`).
const COOPERATIVE: u32 = 2;
const CLUSTER_DIMENSION: u32 = 4;
const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;
/// Those that order launches among each other, or hint: launches run one after another.
const WITHOUT_EFFECT: [u32; 9] = [0, 1, 3, 5, 8, 9, 10, 14, 16];

/// Markers of the list `extra` of a launch (`cuda.h`).
const PARAM_BUFFER_POINTER: u64 = 1;
const PARAM_BUFFER_SIZE: u64 = 2;

impl Work {
    pub fn read(
        function: &Function,
        config: &Config,
        values: In<Host>,
        extra: In<Host>,
    ) -> Outcome<Work> {
        let kernel = function.kernel.clone();
        let settings = SETTINGS.as_ref().ok();
        let mut launch = Launch {
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            non_portable_cluster: function.has_wide_clusters(),
            checks: settings.map_or(Checks::ALL, |all| all.checks),
            warp_instructions_max: settings.and_then(|all| all.warp_instructions_max),
            ..Launch::default()
        };
        if launch.shared_bytes > function.shared_bytes_max {
            eprintln!(
                "kiln-sim-driver: `{}` is launched with {} bytes of dynamic shared memory, {} were \
                 asked for",
                kernel.name(),
                launch.shared_bytes,
                function.shared_bytes_max
            );
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for attribute in config.attributes.all(config.attribute_count as usize)? {
            match attribute.id {
                COOPERATIVE => launch.cooperative = attribute.value[0] != 0,
                PROGRAMMATIC_STREAM_SERIALIZATION => {
                    launch.programmatic = attribute.value[0] != 0;
                }
                CLUSTER_DIMENSION => {
                    let [x, y, z, ..] = attribute.value;
                    launch.cluster = [x, y, z];
                }
                id if WITHOUT_EFFECT.contains(&id) => {}
                _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
            }
        }
        let parameters = parameters(&kernel, values, extra)?;
        Ok(Work { kernel, launch, parameters })
    }

    /// The same, with all blocks there at once.
    pub fn cooperative(mut self) -> Work {
        self.launch.cooperative = true;
        self
    }

    /// Runs the kernel to its end. A shape that does not fit is the caller's fault, what happens
    /// inside the kernel the device's.
    pub fn run(&self, device: &Device) -> Outcome {
        self.planted()?;
        match device.launch(&self.kernel, &self.launch, &self.parameters) {
            Ok(report) => {
                print(&report.printed);
                self.found(&report.findings)
            }
            Err(error) => {
                let _told = self.found(error.findings());
                Err(explain(self.code(&error), &error))
            }
        }
    }

    /// The fault that the environment asks of this kernel.
    fn planted(&self) -> Outcome {
        let Ok(settings) = SETTINGS.as_ref() else { return Ok(()) };
        let name = self.kernel.name();
        let is_in = |part: &Option<String>| part.as_ref().is_some_and(|part| name.contains(part));
        if is_in(&settings.hang) {
            eprintln!("kiln-sim-driver: `{name}` hangs, as KILN_SIM_HANG asks");
            loop {
                std::thread::park();
            }
        }
        if is_in(&settings.fault) {
            eprintln!("kiln-sim-driver: `{name}` faults, as KILN_SIM_FAULT asks");
            return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        Ok(())
    }

    /// Tells what the checks found.
    fn found(&self, findings: &[Finding]) -> Outcome {
        for finding in findings {
            eprintln!("kiln-sim-driver: `{}`: {finding}", self.kernel.name());
        }
        let on_finding = SETTINGS.as_ref().map_or(OnFinding::Fail, |all| all.on_finding);
        match (findings, on_finding) {
            ([], _) | (_, OnFinding::Report) => Ok(()),
            (_, OnFinding::Fail) => Err(CUDA_ERROR_LAUNCH_FAILED),
        }
    }

    fn code(&self, error: &kiln_sim::Error) -> CUresult {
        match error.kind() {
            ErrorKind::BadLaunch if self.launch.cooperative && self.fits_alone() => {
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
            }
            ErrorKind::BadLaunch => CUDA_ERROR_INVALID_VALUE,
            ErrorKind::OutOfBounds | ErrorKind::UseAfterFree => CUDA_ERROR_ILLEGAL_ADDRESS,
            ErrorKind::Misaligned => CUDA_ERROR_MISALIGNED_ADDRESS,
            ErrorKind::Trap if error.to_string().contains("assert") => CUDA_ERROR_ASSERT,
            ErrorKind::Trap => CUDA_ERROR_LAUNCH_FAILED,
            ErrorKind::Deadlock | ErrorKind::InstructionLimit => CUDA_ERROR_LAUNCH_TIMEOUT,
            ErrorKind::OutOfMemory => CUDA_ERROR_OUT_OF_MEMORY,
            _ => CUDA_ERROR_ILLEGAL_INSTRUCTION,
        }
    }

    /// Whether the launch would be one if its blocks need not be there at once.
    fn fits_alone(&self) -> bool {
        let launch = Launch { cooperative: false, ..self.launch };
        launch.grid.iter().all(|&n| n > 0)
            && launch.block.iter().fold(1, |all, &n| u32::saturating_mul(all, n)) <= 1024
    }
}

/// What kernels print goes to where the program's own output goes. There is nobody to tell if it
/// cannot be written.
fn print(text: &str) {
    if !text.is_empty() {
        let mut out = std::io::stdout().lock();
        let _written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// The parameter block, from a pointer to each parameter or from a buffer that is a copy of the
/// constant bank.
fn parameters(kernel: &Kernel, values: In<Host>, extra: In<Host>) -> Outcome<Vec<u8>> {
    let mut block = vec![0u8; kernel.param_bytes()];
    if !values.is_null() {
        let values = values.all(kernel.params().len())?;
        for (param, value) in kernel.params().iter().zip(values) {
            let value = value.read(param.bytes as u64)?;
            block[param.offset..][..param.bytes].copy_from_slice(&value);
        }
        return Ok(block);
    }
    let (mut buffer, mut bytes) = (Host::of(0), 0);
    let mut at = 0;
    while !extra.is_null() {
        let pair = |index| extra.at(index).get();
        let marker: u64 = pair(at)?.address();
        match marker {
            0 => break,
            PARAM_BUFFER_POINTER => buffer = pair(at + 1)?,
            PARAM_BUFFER_SIZE => {
                let size = pair(at + 1)?.read(size_of::<usize>() as u64)?;
                bytes = u64::from_le_bytes(size.try_into().map_err(|_| CUDA_ERROR_INVALID_VALUE)?);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        at += 2;
    }
    let (places, takes) = places(kernel);
    let takes = takes as u64;
    // A buffer may be padded to the alignment of what the caller made it of.
    if bytes < takes || bytes > takes.next_multiple_of(16) {
        let name = kernel.name();
        eprintln!("kiln-sim-driver: {bytes} bytes of parameters for `{name}`, it takes {takes}");
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let given = buffer.read(takes)?;
    for (param, place) in kernel.params().iter().zip(places) {
        block[param.offset..][..param.bytes].copy_from_slice(&given[place..][..param.bytes]);
    }
    Ok(block)
}
