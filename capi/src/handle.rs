//! Handles: a device and a stream.

use std::collections::HashMap;
use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kiln::cache::Pack;
use kiln::device::{Device, DeviceChoice, Stream};
use kiln::{Config, Kiln};
use sharded_slab::Entry;

use crate::attention::{Layer, Said};
use crate::backend::Executed;
use crate::ctc::PlannedLoss;
use crate::declare::{Parameter, functions, of};
use crate::kept::Kept;
use crate::memory::Memory;
use crate::object::{Keys, Ref, object};
use crate::pointer::Out;
use crate::rnn::{Checked, Network};
use crate::status::{Failure, Outcome, Status, bad, fail};

/// A GPU as all handles of the process use it. It is closed with the last of them.
pub struct Gpu {
    /// What plans and launches.
    pub kiln: Kiln,
    /// Recurrent networks that have been built.
    pub networks: Kept<Network>,
    /// Attention layers that have been made.
    pub layers: Kept<Layer>,
    /// Memory that programs without CUDA have asked for.
    pub memory: Memory,
}

/// `mcdnnHandle_t`.
pub struct Handle {
    gpu: Arc<Gpu>,
    stream: AtomicU64,
    networks: Kept<Network>,
    calls: Kept<Checked>,
    layers: Kept<Layer>,
    said: Kept<Said>,
    losses: Kept<PlannedLoss>,
    executed: Mutex<Option<Executed>>,
}
object!(Handle: "mcdnnHandle_t", "handle", 2);

/// `cudaStream_t`: 0, 1 and 2 are the streams that CUDA gives these numbers.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct CudaStream(u64);

impl Parameter for CudaStream {
    fn declare(name: &str) -> String {
        of("cudaStream_t", name)
    }

    fn show(self) -> String {
        format!("{:#x}", self.0)
    }
}

impl Handle {
    /// The device.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The stream that calls are queued on.
    pub fn stream(&self) -> Stream {
        // SAFETY: the program gave it as a stream of the device, and keeps it.
        unsafe { self.gpu.kiln.device().external_stream(self.stream.load(Ordering::Relaxed)) }
    }

    /// Makes the stream of an earlier call the one that calls are queued on now.
    pub fn follow(&self, stream: &mut Stream) {
        if stream.handle() != self.stream.load(Ordering::Relaxed) {
            *stream = self.stream();
        }
    }

    /// Recurrent networks of this handle.
    pub fn networks(&self) -> &Kept<Network> {
        &self.networks
    }

    /// What calls of networks have shown of their descriptors.
    pub fn calls(&self) -> &Kept<Checked> {
        &self.calls
    }

    /// What calls of layers have shown of their descriptors.
    pub fn said(&self) -> &Kept<Said> {
        &self.said
    }

    /// CTC losses of this handle.
    pub fn losses(&self) -> &Kept<PlannedLoss> {
        &self.losses
    }

    /// What was executed last.
    pub fn executed(&self) -> MutexGuard<'_, Option<Executed>> {
        self.executed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attention layers of this handle.
    pub fn layers(&self) -> &Kept<Layer> {
        &self.layers
    }
}

impl Gpu {
    /// The device that `KILN_DEVICE` names, the GPU whose context is current on this thread, or the
    /// first one.
    fn open() -> Outcome<Arc<Gpu>> {
        static OPEN: Mutex<Option<HashMap<Option<u32>, Weak<Gpu>>>> = Mutex::new(None);
        let missing = |error: kiln::Error| Failure {
            status: Status::NOT_INITIALIZED,
            text: error.to_string(),
        };
        let index = match env::var_os("KILN_DEVICE").is_some_and(|name| !name.is_empty()) {
            true => None,
            false => Some(Device::cuda_current().map_err(missing)?.unwrap_or(0)),
        };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.get_or_insert_default();
        if let Some(gpu) = known.get(&index).and_then(Weak::upgrade) {
            return Ok(gpu);
        }
        let packs = PACKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let config = Config {
            // Otherwise, the environment says which.
            device: index.map(DeviceChoice::Cuda),
            packs: (!packs.is_empty()).then_some(packs),
            ..Config::default()
        };
        let kiln = Kiln::open(config).map_err(missing)?;
        let (networks, layers) = (Kept::default(), Kept::default());
        let gpu = Arc::new(Gpu { kiln, networks, layers, memory: Memory::default() });
        known.insert(index, Arc::downgrade(&gpu));
        Ok(gpu)
    }
}

/// Packs of kernels that the program has named, for devices that are opened from now on.
static PACKS: Mutex<Vec<Pack>> = Mutex::new(Vec::new());

/// Adds a pack of kernels.
pub fn add_pack(pack: Pack) {
    PACKS.lock().unwrap_or_else(PoisonError::into_inner).push(pack);
}

/// The handle of a number, as attributes hold it.
pub fn handle_of(number: i64) -> Outcome<Entry<'static, Handle, Keys>> {
    Ref::of(number).get("the handle")
}

functions! { FUNCTIONS:
    /// Makes a handle for the device that the environment variable KILN_DEVICE names, for the GPU
    /// whose context is current on this thread, or for the first one. Its calls are queued on the
    /// default stream until mcdnnSetStream gives it another.
    fn mcdnnCreate(handle: Out<Ref<Handle>>) {
        let handle = handle.required("handle")?;
        handle.put(Ref::new(Handle {
            gpu: Gpu::open()?,
            stream: AtomicU64::new(0),
            networks: Kept::default(),
            calls: Kept::default(),
            layers: Kept::default(),
            said: Kept::default(),
            losses: Kept::default(),
            executed: Mutex::default(),
        })?);
        Ok(())
    }

    /// Destroys a handle; NULL is none. Descriptors outlive it.
    fn mcdnnDestroy(handle: Ref<Handle>) {
        handle.destroy("handle")
    }

    /// Sets the stream that the calls of a handle are queued on. One of another device, or of a
    /// context that is not its device's primary one, is MAPPING_ERROR.
    fn mcdnnSetStream(handle: Ref<Handle>, streamId: CudaStream) {
        let handle = handle.get("handle")?;
        // SAFETY: the program gives a stream that is alive.
        let own = unsafe { handle.gpu.kiln.device().owns_stream(streamId.0) };
        match own {
            Ok(true) => handle.stream.store(streamId.0, Ordering::Relaxed),
            Ok(false) => {
                let text = "streamId is of another device or context than the handle";
                return fail(Status::MAPPING_ERROR, text);
            }
            Err(error) => return bad(format!("streamId: {error}")),
        }
        Ok(())
    }

    /// The stream that the calls of a handle are queued on.
    fn mcdnnGetStream(handle: Ref<Handle>, streamId: Out<CudaStream>) {
        let handle = handle.get("handle")?;
        let streamId = streamId.required("streamId")?;
        streamId.put(CudaStream(handle.stream.load(Ordering::Relaxed)));
        Ok(())
    }
}
