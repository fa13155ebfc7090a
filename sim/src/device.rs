//! The simulated device: memory and launches.

#![expect(unsafe_code, reason = "kernels may use memory of the process")]

use crate::admission;
use crate::ast::Space;
use crate::config::DeviceConfig;
use crate::context::{Context, thread_rows};
use crate::error::{Error, ErrorKind, Result};
use crate::heap::HEAP_BYTES;
use crate::lanes::has_v3;
use crate::launch::{Launch, Report};
use crate::memory::Memory;
use crate::module::{Kernel, Loaded, Module};
use crate::words::Words;
use crate::workers;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Workspace of a grid: its size and the word of its barrier, as `cooperative_groups.h` uses them.
const WORKSPACE_BYTES: u64 = 8;

/// A simulated device with global memory; may be shared between threads.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    memory: Memory,
    /// The heap of kernels.
    heap: Mutex<HeapPlace>,
    /// Variables of each loaded module, by module id.
    variables: Mutex<HashMap<u64, Resident>>,
}

/// Size of the heap, and its address once a kernel has allocated.
#[derive(Debug)]
struct HeapPlace {
    bytes: u64,
    address: Option<u64>,
}

/// A module's variables on a device.
#[derive(Debug)]
struct Resident {
    module: Weak<Loaded>,
    addresses: Arc<[u64]>,
}

impl Device {
    /// Creates a device with empty memory.
    pub fn new(mut config: DeviceConfig) -> Device {
        (config.sm_count, config.workers) = (config.sm_count.max(1), config.workers.max(1));
        let memory = Memory::new(config.memory_bytes);
        let heap = Mutex::new(HeapPlace { bytes: HEAP_BYTES, address: None });
        Device { config, memory, heap, variables: Mutex::default() }
    }

    /// The configuration of the device.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Allocates memory at an address that is a multiple of 256. The bytes are zero but considered
    /// uninitialised. Allocations are separated by guard space, so that out-of-bounds accesses are
    /// detected, and addresses are never reused.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the memory budget is exceeded.
    pub fn alloc(&self, bytes: u64) -> Result<u64> {
        self.memory.alloc(bytes)
    }

    /// Allocates memory of the host that kernels may use: its address is a pointer in the process
    /// as well. The bytes are zero and count as written; the memory budget does not cover them.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the host has no memory.
    pub fn alloc_host(&self, bytes: u64) -> Result<u64> {
        self.memory.alloc_host(bytes)
    }

    /// Lets kernels use memory of the process, until [`Device::free`] of the address it returns:
    /// the pointer itself unless it is too low for an address of global memory.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](crate::ErrorKind::UnknownAddress) if an allocation is there already, or
    /// `start` is not a multiple of 4.
    ///
    /// # Safety
    ///
    /// So many bytes at `start`, rounded up to a multiple of 4, stay valid for reads and writes
    /// until they are freed here, and the host uses none of them while a kernel does that neither
    /// orders its accesses with the host's nor is of another thread.
    pub unsafe fn map_host(&self, start: NonNull<u8>, bytes: u64) -> Result<u64> {
        let words = start.cast::<AtomicU32>();
        if !words.is_aligned() {
            let text = format!("failed to map memory at {start:p}: it is not aligned to 4 bytes");
            return Err(Error::new(ErrorKind::UnknownAddress, text));
        }
        // SAFETY: the caller's promise covers as many whole words.
        let words = unsafe { Words::mapped(words, bytes.div_ceil(4) as usize) };
        self.memory.map(words, bytes)
    }

    /// The allocation that contains an address: its start and its size.
    pub fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        let table = self.memory.snapshot();
        let found = table.find(address, 1).and_then(|index| table.get(index));
        found.filter(|found| found.heap.is_none()).map(|found| (found.base, found.bytes))
    }

    /// Bytes of the memory budget that are allocated.
    pub fn used_bytes(&self) -> u64 {
        self.memory.used()
    }

    /// Address and size of a module's variable in global or constant memory, by its (mangled)
    /// name. A managed one (`.attribute(.managed)`) is memory of the host, at the same address.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the module's variables do not fit.
    pub fn variable(&self, module: &Module, name: &str) -> Result<Option<(u64, u64)>> {
        let mut all = module.inner.ast.variables.iter();
        let found = all.position(|variable| {
            let in_memory = matches!(variable.space, Space::Global | Space::Const);
            in_memory && variable.name == name
        });
        let Some(index) = found else { return Ok(None) };
        let addresses = self.module_variables(&module.inner)?;
        Ok(Some((addresses[index], module.inner.ast.variables[index].bytes.into())))
    }

    /// Most bytes that kernels have allocated by `malloc` at a time, 8 MiB unless it is set.
    pub fn heap_bytes(&self) -> u64 {
        self.heap().bytes
    }

    /// Sets it, before the first launch of a kernel that allocates.
    ///
    /// # Errors
    ///
    /// [`BadLaunch`](crate::ErrorKind::BadLaunch) after such a launch.
    pub fn set_heap_bytes(&self, bytes: u64) -> Result<()> {
        let mut heap = self.heap();
        if heap.address.is_some() && heap.bytes != bytes {
            let text = format!("failed to give the heap {bytes} bytes: a kernel has used it");
            return Err(Error::new(ErrorKind::BadLaunch, text));
        }
        heap.bytes = bytes;
        Ok(())
    }

    fn heap(&self) -> MutexGuard<'_, HeapPlace> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the heap, which is allocated at the first launch that needs it.
    fn heap_address(&self) -> Result<u64> {
        let mut heap = self.heap();
        let address = match heap.address {
            Some(address) => address,
            None => self.memory.alloc_heap(heap.bytes)?,
        };
        heap.address = Some(address);
        Ok(address)
    }

    /// Frees an allocation.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](crate::ErrorKind::UnknownAddress) if no live allocation starts at
    /// `address`.
    pub fn free(&self, address: u64) -> Result<()> {
        self.memory.free(address)
    }

    /// Copies to the device.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](crate::ErrorKind::UnknownAddress) unless one allocation contains the
    /// range.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let count = bytes.len() as u64;
        self.memory.with_range("write", address, count, |allocation, offset| {
            allocation.write(offset, bytes);
        })
    }

    /// Copies from the device.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](crate::ErrorKind::UnknownAddress) unless one allocation contains the
    /// range.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<()> {
        let count = out.len() as u64;
        self.memory.with_range("read", address, count, |allocation, offset| {
            allocation.read(offset, out);
        })
    }

    /// Copies on the device. What was not written at the source counts as not written at the
    /// target.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](crate::ErrorKind::UnknownAddress) unless one allocation contains each
    /// range.
    pub fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        const CHUNK: u64 = 1 << 16;
        // Nothing is copied unless all is.
        self.memory.with_range("read", from, bytes, |_, _| ())?;
        self.memory.with_range("write", to, bytes, |_, _| ())?;
        for at in (0..bytes.max(1)).step_by(CHUNK as usize) {
            let count = (bytes - at).min(CHUNK);
            let mut data = vec![0; count as usize];
            let mut unwritten = Vec::new();
            self.memory.with_range("read", from + at, count, |allocation, offset| {
                allocation.read(offset, &mut data);
                if !allocation.written.all(offset, count) {
                    unwritten
                        .extend((0..count).filter(|at| !allocation.written.all(offset + at, 1)));
                }
            })?;
            self.memory.with_range("write", to + at, count, |allocation, offset| {
                allocation.write(offset, &data);
                unwritten.iter().for_each(|at| allocation.written.set(offset + at, 1, false));
            })?;
        }
        Ok(())
    }

    /// Fills a range with a byte.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](crate::ErrorKind::UnknownAddress) unless one allocation contains the
    /// range.
    pub fn fill(&self, address: u64, byte: u8, bytes: u64) -> Result<()> {
        const CHUNK: usize = 4096;
        let chunk = [byte; CHUNK];
        self.memory.with_range("fill", address, bytes, |allocation, offset| {
            let mut at = 0;
            while at < bytes {
                let count = (bytes - at).min(CHUNK as u64);
                allocation.write(offset + at, &chunk[..count as usize]);
                at += count;
            }
        })
    }

    /// Runs a kernel to completion. `params` is the parameter block in the layout of the `.param`
    /// space: each parameter of [`Kernel::params`] at its offset.
    ///
    /// # Errors
    ///
    /// [`BadLaunch`](crate::ErrorKind::BadLaunch) if the shape or the parameters are invalid, and
    /// any error of the kernel; memory then holds what it wrote until it was stopped.
    pub fn launch(&self, kernel: &Kernel, launch: &Launch, params: &[u8]) -> Result<Report> {
        admission::check(kernel, launch, params, &self.config)?;
        let variables = self.module_variables(&kernel.module)?;
        let mut words = Vec::with_capacity(params.len().div_ceil(4));
        for chunk in params.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..chunk.len()].copy_from_slice(chunk);
            words.push(u32::from_le_bytes(bytes));
        }
        if !launch.checks.uninitialised {
            self.memory.assume_written();
        }
        let workspace = match launch.cooperative && kernel.entry().program.has_grid_barriers() {
            true => self.alloc(WORKSPACE_BYTES)?,
            false => 0,
        };
        if workspace != 0 {
            self.write(workspace, &[0; WORKSPACE_BYTES as usize])?;
        }
        let heap = match kernel.entry().program.has_heap() {
            true => Some(self.heap_address()?),
            false => None,
        };
        let table = self.memory.snapshot();
        let context = Context {
            kernel,
            program: &kernel.entry().program,
            launch,
            memory: &self.memory,
            table: &table,
            params: &words,
            param_bytes: params.len() as u64,
            variables: &variables,
            workspace,
            heap: heap.and_then(|address| table.find(address, 1)),
            threads: thread_rows(launch.block),
            cluster: launch.cluster_of(kernel),
            explicit_cluster: kernel.cluster().is_some() || launch.cluster != [0; 3],
            sm_count: self.config.sm_count,
            seed: self.config.seed,
            has_v3: has_v3(),
            executed: AtomicU64::new(0),
        };
        // Whoever runs blocks knows of memory what this thread knows, and back: kernels that wait
        // for each other order what is on either side of them.
        fence(SeqCst);
        let report = workers::run(&context, &self.config);
        fence(SeqCst);
        if workspace != 0 {
            self.free(workspace)?;
        }
        report
    }

    /// Addresses of a module's variables, which are allocated at its first launch.
    fn module_variables(&self, module: &Arc<Loaded>) -> Result<Arc<[u64]>> {
        let mut known = self.variables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resident) = known.get(&module.id) {
            return Ok(resident.addresses.clone());
        }
        let dead: Vec<u64> = known
            .iter()
            .filter(|(_, resident)| resident.module.strong_count() == 0)
            .map(|(&id, _)| id)
            .collect();
        for resident in dead.iter().filter_map(|id| known.remove(id)) {
            for &address in resident.addresses.iter().filter(|&&address| address != 0) {
                self.memory.free(address)?;
            }
        }
        let addresses: Arc<[u64]> = self.place_variables(module)?.into();
        let resident = Resident { module: Arc::downgrade(module), addresses: addresses.clone() };
        known.insert(module.id, resident);
        Ok(addresses)
    }

    fn place_variables(&self, module: &Loaded) -> Result<Vec<u64>> {
        let mut addresses = Vec::new();
        for variable in &module.ast.variables {
            let in_memory = matches!(variable.space, Space::Global | Space::Const);
            addresses.push(match in_memory {
                true if variable.managed => self.alloc_host(variable.bytes.into())?,
                true => self.alloc(variable.bytes.into())?,
                false => 0,
            });
        }
        let placed = module.ast.variables.iter().zip(&addresses);
        for (variable, &address) in placed.filter(|(_, address)| **address != 0) {
            // Uninitialised variables are zero.
            let mut bytes = variable.init.clone();
            bytes.resize(variable.bytes as usize, 0);
            for relocation in &variable.relocations {
                let mut all = module.ast.variables.iter();
                let index = all.position(|other| other.name == relocation.symbol);
                let symbol = match index {
                    Some(index) => Some(addresses[index]),
                    None => module.ast.function_address(&relocation.symbol),
                };
                let symbol = symbol.expect("the parser knew every symbol");
                let value = symbol.wrapping_add(relocation.add as u64);
                let at = relocation.offset as usize;
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            self.write(address, &bytes)?;
        }
        Ok(addresses)
    }
}
