//! The simulated device: runs an image's PTX on `kiln-sim`. Calls are synchronous, so streams are
//! trivially in order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kiln_sim::{
    Accuracy, Checks, DeviceConfig, Interleave, Kernel, L2Promotion, Module, OutOfBoundsFill,
    Report, TensorType, Tiled,
};

use crate::compile::Image;
use crate::device::counts::{Counters, Finding};
use crate::device::driver::{Driver, KernelName, Launch, Launchable, MAP_WORDS, SimOptions};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::{Swizzle, TensorMap};
use crate::target::Target;

#[derive(Debug)]
pub(super) struct SimDriver {
    target: Target,
    machine: Arc<Machine>,
    events: Mutex<HashMap<u64, Instant>>,
    handles: AtomicU64,
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
            ..DeviceConfig::default()
        };
        SimDriver {
            target,
            machine: Arc::new(Machine {
                device: kiln_sim::Device::new(config),
                options,
                report: Mutex::default(),
            }),
            events: Mutex::default(),
            handles: AtomicU64::new(1),
        }
    }

    fn handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }
}

fn failed(attempt: &str) -> impl FnOnce(kiln_sim::Error) -> Error {
    move |error| Error::driver(format!("failed to {attempt} on the simulated device: {error}"))
}

impl Driver for SimDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        self.machine.device.alloc(bytes).map_err(failed("allocate memory"))
    }

    fn free(&self, address: u64) {
        self.machine.device.free(address).expect("buffers are freed once");
    }

    fn write(&self, address: u64, bytes: &[u8], _stream: u64) -> Result<()> {
        self.machine.device.write(address, bytes).map_err(failed("write memory"))
    }

    fn read(&self, address: u64, bytes: &mut [u8], _stream: u64) -> Result<()> {
        self.machine.device.read(address, bytes).map_err(failed("read memory"))
    }

    fn stream_create(&self) -> Result<u64> {
        Ok(self.handle())
    }

    fn stream_destroy(&self, _stream: u64) {}

    fn synchronize(&self, _stream: u64) -> Result<()> {
        Ok(())
    }

    fn event_record(&self, _stream: u64) -> Result<u64> {
        let event = self.handle();
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.insert(event, Instant::now());
        Ok(event)
    }

    fn event_destroy(&self, event: u64) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).remove(&event);
    }

    fn event_elapsed_ms(&self, start: u64, end: u64) -> Result<f64> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match (events.get(&start), events.get(&end)) {
            (Some(start), Some(end)) => {
                Ok(end.saturating_duration_since(*start).as_secs_f64() * 1e3)
            }
            _ => Err(Error::internal("an event outlived its record")),
        }
    }

    fn counters(&self) -> Option<Counters> {
        self.machine.last_report().counters.as_deref().cloned()
    }

    fn findings(&self) -> Vec<Finding> {
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
        let TensorMap { dims, strides, box_dims, .. } = map;
        let element_strides = &map.element_strides();
        let (interleave, l2_promotion) = (Interleave::None, L2Promotion::B256);
        let fill = OutOfBoundsFill::Zero;
        let encoded = match &map.im2col {
            None => kiln_sim::TensorMap::encode_tiled(&Tiled {
                data_type,
                address,
                dims,
                strides,
                box_dims,
                element_strides,
                interleave,
                swizzle,
                l2_promotion,
                fill,
            }),
            Some(im2col) => kiln_sim::TensorMap::encode_im2col(&kiln_sim::Im2col {
                data_type,
                address,
                dims,
                strides,
                lower_corner: &im2col.lower_corner,
                upper_corner: &im2col.upper_corner,
                channels: box_dims[0],
                pixels: box_dims[1],
                element_strides,
                interleave,
                swizzle,
                l2_promotion,
                fill,
            }),
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
        Ok(Arc::new(SimKernel { machine: self.machine.clone(), kernel }))
    }
}

struct SimKernel {
    machine: Arc<Machine>,
    kernel: Kernel,
}

impl std::fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kernel.name())
    }
}

impl Launchable for SimKernel {
    fn launch(&self, launch: &Launch, arguments: &[u64], _stream: u64) -> Result<()> {
        let parameters: Vec<u8> = arguments.iter().flat_map(|word| word.to_le_bytes()).collect();
        let SimOptions { sanitize, count, seed, sample, .. } = self.machine.options;
        let launch = kiln_sim::Launch {
            grid: [launch.grid, 1, 1],
            block: [launch.threads, 1, 1],
            shared_bytes: launch.shared_bytes,
            cooperative: launch.cooperative,
            registers: launch.registers,
            // Kernels say how many blocks their clusters have, and the driver is asked for them.
            non_portable_cluster: true,
            checks: if sanitize { Checks::ALL } else { Checks::NONE },
            counters: count,
            clusters_max: sample.filter(|_| !launch.cooperative).map(u64::from),
            ..kiln_sim::Launch::default()
        };
        let launched = self.machine.device.launch(&self.kernel, &launch, &parameters);
        let report = launched.map_err(|error| {
            let mut report = Report::default();
            report.findings = error.findings().to_vec();
            *self.machine.last_report() = report;
            failed("run a kernel")(error)
        })?;
        let found = report.findings.first().map(|first| {
            let (count, name) = (report.findings.len(), self.kernel.name());
            Error::driver(format!(
                "the sanitizer found {count} in kernel `{name}` with seed {seed}, first:\n{first}"
            ))
        });
        *self.machine.last_report() = report;
        found.map_or(Ok(()), Err)
    }
}
