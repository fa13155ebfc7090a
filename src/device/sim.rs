//! The simulated device: runs an image's PTX on `kiln-sim`. Calls are synchronous, but for launches
//! that may wait for others (`queues`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kiln_sim::{
    Accuracy, Checks, DeviceConfig, Interleave, Kernel, L2Promotion, Module, OutOfBoundsFill,
    Report, TensorType, Tiled,
};

use crate::compile::Image;
use crate::device::counts::{Counters, Finding};
use crate::device::driver::{Driver, KernelName, Launch, Launchable, MAP_WORDS, SimOptions};
use crate::device::queues::{LANE, Queues};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::{Im2col, Swizzle, TensorMap};
use crate::target::Target;

/// How long a launch may wait for another one, or for the host, before its clock leaps and all of
/// its waits end.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct SimDriver {
    target: Target,
    machine: Arc<Machine>,
    queues: Queues,
    events: Arc<Mutex<HashMap<u64, Event>>>,
    handles: AtomicU64,
}

/// An event, and when it was passed.
#[derive(Debug, Clone, Copy)]
struct Event {
    stream: u64,
    /// Its number among what is queued.
    queued: Option<u64>,
    passed: Option<Instant>,
}

struct Machine {
    device: kiln_sim::Device,
    options: SimOptions,
    /// Report of the last launch; findings if it failed.
    report: Mutex<Report>,
}

impl Machine {
    fn last_report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kiln-sim")
    }
}

impl SimDriver {
    pub(super) fn new(target: Target, options: SimOptions) -> Self {
        let config = DeviceConfig {
            shared_bytes_max: target.shared_block_bytes_max,
            sm_count: target.sm_count,
            seed: options.seed,
            patience: PATIENCE,
            ..DeviceConfig::default()
        };
        SimDriver {
            target,
            machine: Arc::new(Machine {
                device: kiln_sim::Device::new(config),
                options,
                report: Mutex::default(),
            }),
            queues: Queues::new(options.late, options.seed),
            events: Arc::default(),
            handles: AtomicU64::new(1),
        }
    }

    fn handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// When an event was passed, once it is.
    fn passed(&self, event: u64) -> Result<Instant> {
        let known = || events(&self.events).get(&event).copied();
        let queued = known().and_then(|of| Some((of.queued?, of.stream)));
        if let Some((number, stream)) = queued {
            self.queues.ended(number, stream)?;
        }
        let passed = known().and_then(|of| of.passed);
        passed.ok_or_else(|| Error::internal("an event outlived its record"))
    }
}

fn events(of: &Mutex<HashMap<u64, Event>>) -> MutexGuard<'_, HashMap<u64, Event>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(attempt: &str) -> impl FnOnce(kiln_sim::Error) -> Error {
    move |error| {
        let text = format!("failed to {attempt} on the simulated device: {error}");
        match error.kind() {
            kiln_sim::ErrorKind::OutOfMemory => Error::out_of_memory(text),
            _ => Error::driver(text),
        }
    }
}

impl Driver for SimDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        self.machine.device.alloc(bytes).map_err(failed("allocate memory"))
    }

    fn free(&self, address: u64) {
        self.queues.drain();
        self.machine.device.free(address).expect("buffers are freed once");
    }

    fn write(&self, address: u64, bytes: &[u8], stream: u64) -> Result<()> {
        self.queues.join(stream)?;
        self.machine.device.write(address, bytes).map_err(failed("write memory"))
    }

    fn read(&self, address: u64, bytes: &mut [u8], stream: u64) -> Result<()> {
        self.queues.join(stream)?;
        self.machine.device.read(address, bytes).map_err(failed("read memory"))
    }

    fn copy(&self, from: u64, to: u64, bytes: u64, stream: u64) -> Result<()> {
        let machine = self.machine.clone();
        let work = move || {
            let mut copied = vec![0; bytes as usize];
            machine.device.read(from, &mut copied).map_err(failed("read memory"))?;
            machine.device.write(to, &copied).map_err(failed("write memory"))
        };
        self.queues.run(stream, false, Box::new(work)).map(drop)
    }

    fn stream_create(&self) -> Result<u64> {
        Ok(self.handle())
    }

    fn lane_create(&self) -> Result<u64> {
        Ok(self.handle() | LANE)
    }

    fn stream_destroy(&self, _stream: u64) {}

    fn synchronize(&self, stream: u64) -> Result<()> {
        self.queues.synchronize(stream)
    }

    fn event_record(&self, stream: u64) -> Result<u64> {
        let event = self.mark_create()?;
        self.mark(event, stream)?;
        Ok(event)
    }

    fn mark_create(&self) -> Result<u64> {
        let event = self.handle();
        events(&self.events).insert(event, Event { stream: 0, queued: None, passed: None });
        Ok(event)
    }

    fn mark(&self, event: u64, stream: u64) -> Result<()> {
        let marked = Event { stream, queued: None, passed: None };
        events(&self.events).insert(event, marked);
        let all = self.events.clone();
        let pass = move || {
            if let Some(of) = events(&all).get_mut(&event) {
                of.passed = Some(Instant::now());
            }
            Ok(())
        };
        let queued = self.queues.run(stream, false, Box::new(pass))?;
        if let Some(of) = events(&self.events).get_mut(&event) {
            of.queued = queued;
        }
        Ok(())
    }

    fn wait(&self, stream: u64, event: u64) -> Result<()> {
        let queued = events(&self.events).get(&event).and_then(|of| of.queued);
        queued.map_or(Ok(()), |number| self.queues.wait(stream, number))
    }

    fn event_destroy(&self, event: u64) {
        events(&self.events).remove(&event);
    }

    fn event_elapsed_ms(&self, start: u64, end: u64) -> Result<f64> {
        let (start, end) = (self.passed(start)?, self.passed(end)?);
        Ok(end.saturating_duration_since(start).as_secs_f64() * 1e3)
    }

    fn counters(&self) -> Option<Counters> {
        self.queues.drain();
        self.machine.last_report().counters.as_deref().cloned()
    }

    fn findings(&self) -> Vec<Finding> {
        self.queues.drain();
        self.machine.last_report().findings.clone()
    }

    fn encode(&self, map: &TensorMap, address: u64) -> Result<[u64; MAP_WORDS]> {
        let data_type = match map.dtype {
            DType::F64 => TensorType::F64,
            DType::F32 => TensorType::F32,
            DType::F16 => TensorType::F16,
            DType::Bf16 => TensorType::Bf16,
            DType::I64 => TensorType::S64,
            DType::I32 => TensorType::S32,
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => TensorType::U8,
        };
        let swizzle = match map.swizzle {
            Swizzle::None => kiln_sim::Swizzle::None,
            Swizzle::B32 => kiln_sim::Swizzle::B32,
            Swizzle::B64 => kiln_sim::Swizzle::B64,
            Swizzle::B128 => kiln_sim::Swizzle::B128,
        };
        let tiled = Tiled {
            data_type,
            address,
            dims: &map.dims,
            strides: &map.strides,
            box_dims: &map.box_dims,
            element_strides: &map.element_strides(),
            interleave: Interleave::None,
            swizzle,
            l2_promotion: L2Promotion::B256,
            fill: OutOfBoundsFill::Zero,
        };
        let encoded = match &map.im2col {
            None => kiln_sim::TensorMap::encode_tiled(&tiled),
            Some(Im2col { lower_corner, upper_corner, .. }) => {
                kiln_sim::TensorMap::encode_im2col(&tiled, [lower_corner, upper_corner])
            }
        };
        Ok(encoded.map_err(failed("encode"))?.words())
    }

    fn load(
        &self,
        image: &Image,
        name: KernelName<'_>,
        _shared: u32,
    ) -> Result<Arc<dyn Launchable>> {
        let entry = name.entry;
        let accuracy = match self.machine.options.worst {
            true => Accuracy::Worst,
            false => Accuracy::Nearest,
        };
        let module = Module::load_with(&image.ptx, accuracy).map_err(|error| {
            Error::compile(format!("the simulated device rejected a kernel: {error}"))
        })?;
        let kernel = module
            .kernel(entry)
            .ok_or_else(|| Error::compile(format!("the PTX contains no kernel `{entry}`")))?;
        let waits = kernel.reads_at_system_scope();
        let waits_for_grids = kernel.waits_for_grids();
        let (machine, queues) = (self.machine.clone(), self.queues.clone());
        Ok(Arc::new(SimKernel { machine, queues, kernel, waits, waits_for_grids }))
    }
}

struct SimKernel {
    machine: Arc<Machine>,
    queues: Queues,
    kernel: Kernel,
    /// Whether it may wait for what another launch does.
    waits: bool,
    waits_for_grids: bool,
}

impl std::fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kernel.name())
    }
}

impl Launchable for SimKernel {
    fn waits_for_grids(&self) -> bool {
        self.waits_for_grids
    }

    fn launch(&self, launch: &Launch, arguments: &[u64], stream: u64) -> Result<()> {
        let parameters: Vec<u8> = arguments.iter().flat_map(|word| word.to_le_bytes()).collect();
        let SimOptions { sanitize, count, sample, .. } = self.machine.options;
        let launch = kiln_sim::Launch {
            grid: [launch.grid, 1, 1],
            block: [launch.threads, 1, 1],
            shared_bytes: launch.shared_bytes,
            cooperative: launch.cooperative,
            // Wherever it stands in this plan, it may stand behind another kernel elsewhere.
            programmatic: self.waits_for_grids,
            registers: launch.registers,
            // Kernels say how many blocks their clusters have, and the driver is asked for them.
            non_portable_cluster: true,
            checks: if sanitize { Checks::ALL } else { Checks::NONE },
            counters: count,
            clusters_max: sample.filter(|_| !launch.cooperative).map(u64::from),
            ..kiln_sim::Launch::default()
        };
        let (machine, kernel) = (self.machine.clone(), self.kernel.clone());
        let work = move || machine.run(&kernel, &launch, &parameters);
        self.queues.run(stream, self.waits, Box::new(work)).map(drop)
    }
}

impl Machine {
    /// Runs a launch to its end.
    fn run(&self, kernel: &Kernel, launch: &kiln_sim::Launch, parameters: &[u8]) -> Result<()> {
        let launched = self.device.launch(kernel, launch, parameters);
        let report = launched.map_err(|error| {
            let mut report = Report::default();
            report.findings = error.findings().to_vec();
            *self.last_report() = report;
            failed("run a kernel")(error)
        })?;
        let found = report.findings.first().map(|first| {
            let (count, name, seed) = (report.findings.len(), kernel.name(), self.options.seed);
            Error::driver(format!(
                "the sanitizer found {count} in kernel `{name}` with seed {seed}, first:\n{first}"
            ))
        });
        *self.last_report() = report;
        found.map_or(Ok(()), Err)
    }
}
