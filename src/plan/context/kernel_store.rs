//! The sources of kernels, in order: memory, packs, the disk cache, a remote store, the compiler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::{debug_span, warn};

use crate::cache::{DiskCache, Entry, Flight, Key, Pack, RemoteCache, Request, explain};
use crate::codegen::KernelSource;
use crate::compile::{Compiler, Image, Toolchain};
use crate::device::{Device, KernelName, Launchable};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::escaped;
use crate::plan::context::metrics::Counters;
use crate::plan::context::nvrtc::Nvrtc;
use crate::plan::context::report::Origin;
use crate::plan::context::span::Timed;

/// Finds or compiles the kernels of a device.
pub(in crate::plan) struct KernelStore {
    pub(in crate::plan) device: Device,
    /// Compile to PTX without assembling cubins.
    pub(in crate::plan) ptx_only: bool,
    /// Searched in this order before the disk cache.
    pub(in crate::plan) packs: Vec<Pack>,
    pub(in crate::plan) disk: Option<DiskCache>,
    pub(in crate::plan) remote: Option<RemoteCache>,
    /// Never compile.
    pub(in crate::plan) no_jit: bool,
    pub(in crate::plan) nvrtc: Nvrtc,
    /// Loaded kernels by the digest of their source.
    pub(in crate::plan) kernels: Flight<[u8; 32], Arc<Loaded>>,
    pub(in crate::plan) counters: Counters,
}

/// Which sources of kernels may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum Reach {
    /// Memory, packs and the disk cache.
    Built,
    /// All, including the compiler.
    Compiled,
}

/// A kernel loaded on the device.
#[derive(Debug)]
pub(in crate::plan) struct Loaded {
    pub(in crate::plan) key: Key,
    pub(in crate::plan) kernel: Arc<dyn Launchable>,
    pub(in crate::plan) image: Arc<Image>,
    pub(in crate::plan) origin: Origin,
    pub(in crate::plan) obtained_in: Duration,
}

impl KernelStore {
    /// Loads a kernel from the first tier that has it: packs, disk cache, remote store, compiler.
    ///
    /// # Errors
    /// `Compile` when it does not compile, `NoCompiler` when there is no NVRTC, `NotSupported` in
    /// strict mode when it would have to be compiled, `Driver` when the device rejects it.
    pub(in crate::plan) fn obtain(
        &self,
        source: &KernelSource,
        shared_bytes: u32,
    ) -> Result<Loaded> {
        let start = Instant::now();
        if let Some(found) = self.find(source, shared_bytes)? {
            return Ok(found);
        }
        if self.remote.is_some()
            && let Some(found) = self.fetched(source, shared_bytes)?
        {
            return Ok(found);
        }
        if let Some(refusal) = self.refusal(source) {
            return Err(refusal);
        }
        if self.no_jit {
            return Err(self.missing(&self.request(source)?));
        }
        // The key is computed anew from the loaded compiler: the toolchain in the request above may
        // be a recorded one that has been replaced since or is not installed.
        let request = self.request_of(source, &self.compiler()?.1);
        let key = Key::of(&request);
        loop {
            let (image, origin) = self.compiled(source, &request)?;
            match origin {
                Origin::Disk => {
                    let found = self.accept(source, key, image, origin, shared_bytes, start)?;
                    if let Some(found) = found {
                        return Ok(found);
                    }
                }
                _ => {
                    let kernel = self.load(key, &image, source, shared_bytes)?;
                    let (image, obtained_in) = (Arc::new(image), start.elapsed());
                    return Ok(Loaded { key, kernel, image, origin, obtained_in });
                }
            }
        }
    }

    /// The error of a source that a pack records as not compiling: whoever built the pack has tried
    /// it.
    pub(in crate::plan) fn refusal(&self, source: &KernelSource) -> Option<Error> {
        let entry = entry_in(&self.packs, source)?;
        let reason = escaped(entry.image.refusal()?);
        let stem = &source.stem;
        Some(Error::compile(format!("a pack says that {stem} does not compile: {reason}")))
    }

    /// Compiles a kernel that no tier has and stores it. Only one process compiles a kernel at a
    /// time; the others then read it from the disk cache.
    pub(in crate::plan) fn compiled(
        &self,
        source: &KernelSource,
        request: &Request,
    ) -> Result<(Image, Origin)> {
        let (compiler, toolchain) = self.compiler()?;
        if request.toolchain != *toolchain {
            let text = "NVRTC was replaced while the program ran: start it again";
            return Err(Error::no_compiler(text));
        }
        let key = Key::of(request);
        let _turn = self.disk.as_ref().and_then(|disk| disk.lock(key));
        if let Some(disk) = self.disk.as_ref().filter(|disk| disk.path_of(key).exists())
            && let Some(image) = disk.get(key)
        {
            return Ok((image, Origin::Disk));
        }
        let start = Instant::now();
        let image = compiler.compile_with(source, request.options.clone()).inspect_err(|_| {
            self.counters.compile_failures.add(1);
        })?;
        let compiled_in = start.elapsed();
        self.counters.compile_ns.add_ns(compiled_in);
        self.store(request, &image, compiled_in);
        Ok((image, Origin::Compiled))
    }

    /// Loads a kernel from packs or the disk cache. Returns `None` if it would have to be compiled.
    pub(in crate::plan) fn find(
        &self,
        source: &KernelSource,
        shared_bytes: u32,
    ) -> Result<Option<Loaded>> {
        let start = Instant::now();
        let span = search_span(source);
        let found = match self.packed(source, shared_bytes, start) {
            Some(found) => Some(found),
            None => self.cached(source, &self.request(source)?, shared_bytes, start)?,
        };
        span.tier(found.as_ref().map_or("none", |found| found.origin.name()));
        if let Some(found) = &found {
            span.key(found.key);
        }
        Ok(found)
    }

    /// Loads an image on the device.
    fn load(
        &self,
        key: Key,
        image: &Image,
        source: &KernelSource,
        shared_bytes: u32,
    ) -> Result<Arc<dyn Launchable>> {
        let start = Instant::now();
        let fields = debug_span!("load", key = %key, target = %source.arch, ns = Empty);
        let _span = Timed::new(fields);
        let name = KernelName { stem: &source.stem, entry: &source.entry };
        let kernel = self.device.load(image, name, shared_bytes)?;
        self.counters.load_ns.add_ns(start.elapsed());
        Ok(kernel)
    }

    /// The compilation request for a source on this device.
    fn request_of(&self, source: &KernelSource, toolchain: &Toolchain) -> Request {
        match self.ptx_only {
            true => Request::ptx(source, toolchain),
            false => Request::new(source, toolchain),
        }
    }

    fn request(&self, source: &KernelSource) -> Result<Request> {
        match (self.toolchain(), self.packs.first()) {
            (Ok(toolchain), _) => Ok(self.request_of(source, &toolchain)),
            // Without a toolchain only the packs' entries can be looked up.
            (Err(_), Some(pack)) if self.no_jit => Ok(Request::new(source, pack.toolchain())),
            (Err(error), _) => Err(error),
        }
    }

    fn packed(&self, source: &KernelSource, shared_bytes: u32, start: Instant) -> Option<Loaded> {
        for pack in self.packs.iter().filter(|pack| pack.arch() == source.arch) {
            let key = Key::of(&Request::new(source, pack.toolchain()));
            let loaded = pack.get(key).and_then(|entry| match entry {
                Some(entry) if entry.image.refusal().is_some() => Ok(None),
                Some(entry) => {
                    let kernel = self.load(key, &entry.image, source, shared_bytes)?;
                    Ok(Some((kernel, Arc::new(entry.image))))
                }
                None => Ok(None),
            });
            match loaded {
                Ok(Some((kernel, image))) => {
                    let obtained_in = start.elapsed();
                    return Some(Loaded { key, kernel, image, origin: Origin::Pack, obtained_in });
                }
                Ok(None) => {}
                Err(error) => warn!("{error}; the next tier is asked"),
            }
        }
        None
    }

    fn cached(
        &self,
        source: &KernelSource,
        request: &Request,
        shared_bytes: u32,
        start: Instant,
    ) -> Result<Option<Loaded>> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let assembled = Key::of(&Request::new(source, &request.toolchain));
        // An entry with a cubin also has the PTX.
        let key = match Key::of(request) {
            key if key != assembled && !disk.path_of(key).exists() => assembled,
            key => key,
        };
        let Some(image) = disk.get(key) else { return Ok(None) };
        self.accept(source, key, image, Origin::Disk, shared_bytes, start)
    }

    /// Loads a kernel from the remote store.
    fn fetched(&self, source: &KernelSource, shared_bytes: u32) -> Result<Option<Loaded>> {
        let start = Instant::now();
        let span = search_span(source);
        let key = Key::of(&self.request(source)?);
        span.key(key);
        let Some(image) = self.fetch(key) else {
            span.tier("none");
            return Ok(None);
        };
        span.tier(Origin::Remote.name());
        self.accept(source, key, image, Origin::Remote, shared_bytes, start)
    }

    /// Loads an image from a cache; an entry that the device rejects is removed.
    fn accept(
        &self,
        source: &KernelSource,
        key: Key,
        image: Image,
        origin: Origin,
        shared_bytes: u32,
        start: Instant,
    ) -> Result<Option<Loaded>> {
        match self.load(key, &image, source, shared_bytes) {
            Ok(kernel) => {
                if let Some(disk) = &self.disk {
                    disk.keep(key);
                }
                let image = Arc::new(image);
                Ok(Some(Loaded { key, kernel, image, origin, obtained_in: start.elapsed() }))
            }
            // The entry is bad and the kernel is compiled again. Any other error is the device's.
            Err(error) if error.kind() == ErrorKind::Compile => {
                match &self.disk {
                    Some(disk) => disk.reject(key, "device", &error.to_string()),
                    None => warn!("rejected entry {key}: {error}; it is rebuilt"),
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The image of a key from the remote store, which is then added to the disk cache.
    pub(in crate::plan) fn fetch(&self, key: Key) -> Option<Image> {
        let (entry, bytes) = self.remote.as_ref()?.get(key)?;
        if let Some(disk) = &self.disk {
            disk.put(key, &bytes);
        }
        Some(entry.image)
    }

    /// Stores a compiled image in the disk cache and the remote store.
    fn store(&self, request: &Request, image: &Image, compile: Duration) {
        let key = Key::of(request);
        let _span =
            Timed::new(debug_span!("store", key = %key, target = %request.arch, ns = Empty));
        let bytes = Entry::encode(request, image, compile);
        if let Some(disk) = &self.disk {
            disk.put(key, &bytes);
        }
        if let Some(remote) = &self.remote {
            remote.put(key, bytes);
        }
    }

    /// The error of a kernel that strict mode does not allow to be compiled.
    fn missing(&self, request: &Request) -> Error {
        let packed = self.packs.iter().flat_map(Pack::requests);
        let explanation =
            explain(request, packed.chain(self.disk.iter().flat_map(DiskCache::requests)));
        let Request { stem, arch, .. } = request;
        Error::not_supported(format!(
            "no-JIT mode: kernel {stem} for {arch} is in no pack and not in the cache\n  key {}\n  \
             {explanation}",
            explanation.key
        ))
    }

    /// The identity of the compiler, from NVRTC or from the cache.
    pub(in crate::plan) fn toolchain(&self) -> Result<Toolchain> {
        self.nvrtc.toolchain(self.disk.as_ref())
    }

    /// The compiler and its identity; it is loaded now if necessary.
    pub(in crate::plan) fn compiler(&self) -> Result<&(Compiler, Toolchain)> {
        self.nvrtc.compiler(self.disk.as_ref())
    }
}

/// The entry of a source in the first pack that has one; damaged entries are skipped.
pub(in crate::plan) fn entry_in(packs: &[Pack], source: &KernelSource) -> Option<Entry> {
    let own = packs.iter().filter(|pack| pack.arch() == source.arch);
    let mut entries = own.map(|pack| pack.get(Key::of(&Request::new(source, pack.toolchain()))));
    entries.find_map(|entry| entry.ok().flatten())
}

/// The span of a search in packs and caches.
fn search_span(source: &KernelSource) -> Timed {
    let target = &source.arch;
    Timed::new(debug_span!("find", key = Empty, target = %target, tier = Empty, ns = Empty))
}
