//! Building plans: through every stage once, then from memory.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use dashmap::DashMap;
use tracing::field::Empty;
use tracing::{debug, debug_span, info, warn};

use crate::cache::{DiskCache, Flight, RemoteCache};
use crate::codegen::{KernelSource, Templates};
use crate::compile::{Compiler, Image, Located, Resources, Toolchain};
use crate::device::{Device, Launch, Stream};
use crate::engine::{self, Argument, EngineConfig, Grid, KernelPlan, LaunchPlan};
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::background::Workers;
use crate::plan::capture::Capture;
use crate::plan::config::{Config, Resolved};
use crate::plan::execute::{Binding, ExecutionPlan, PlanInner, PlannedKernel};
use crate::plan::metrics::Counters;
use crate::plan::overrides::{OverrideUse, Overrides};
use crate::plan::record::Recorder;
use crate::plan::report::{BuildReport, Origin};
use crate::plan::span::Timed;
use crate::plan::tiers::{Loaded, Tiers};
use crate::plan::upgrade::{Tier, Upgrade};
use crate::target::Target;
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// A device with its compiler and caches. Clones share everything; any thread may use it.
#[derive(Clone)]
pub struct Kiln {
    pub(super) inner: Arc<Tiers>,
    /// Those that compile in the background; they end with the last clone.
    pub(super) workers: Option<Arc<Workers>>,
}

impl Kiln {
    /// Opens a device and the caches.
    ///
    /// NVRTC is not looked for until something must be compiled. A cache folder that can not be
    /// used is a warning.
    ///
    /// # Errors
    /// `BadParam` for a setting that makes no sense, `Driver` when the device can not be opened,
    /// `Compile` when a template folder does not parse.
    pub fn open(config: Config) -> Result<Kiln> {
        let resolved = config.resolve()?;
        let device = Device::open(&resolved.device, resolved.sim)?;
        Kiln::on(device, resolved)
    }

    /// Opens the caches for a device.
    pub(super) fn on(device: Device, resolved: Resolved) -> Result<Kiln> {
        let templates = match &resolved.templates {
            Some(folder) => Templates::from_dir(folder)?,
            None => Templates::embedded().clone(),
        };
        info!("opened {} as {}", device.target(), device.kind());
        let record = resolved.record.as_deref();
        let recorder = record.map(|path| Recorder::open(path, device.target())).transpose()?;
        let inner = Arc::new(Tiers {
            device,
            templates,
            search: resolved.search,
            packs: resolved.packs,
            no_jit: resolved.no_jit,
            recorder,
            dump: resolved.dump,
            overrides: resolved.overrides.as_deref().map(Overrides::open).transpose()?,
            located: OnceLock::new(),
            toolchain: OnceLock::new(),
            compiler: OnceLock::new(),
            loading: Mutex::new(()),
            disk: resolved
                .cache_dir
                .as_deref()
                .and_then(|folder| DiskCache::open(folder, resolved.cache_bytes)),
            remote: resolved.remote.as_ref().map(RemoteCache::open).transpose()?,
            kernels: Flight::default(),
            plans: DashMap::new(),
            counters: Counters::default(),
        });
        // What may not be compiled at all is not compiled in the background either.
        let background = resolved.background.filter(|_| !resolved.no_jit);
        let workers = background.map(|background| Workers::start(&inner, background));
        Ok(Kiln { inner, workers: workers.transpose()?.map(Arc::new) })
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The device's default stream.
    pub fn stream(&self) -> Stream {
        self.inner.device.default_stream()
    }

    /// The disk cache, if there is one.
    pub fn disk_cache(&self) -> Option<&DiskCache> {
        self.inner.disk.as_ref()
    }

    /// The remote store, if there is one.
    pub fn remote_cache(&self) -> Option<&RemoteCache> {
        self.inner.remote.as_ref()
    }

    /// A plan with the engine and knobs expected to run best; built once per graph.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason, `Compile` when there is no NVRTC or a kernel
    /// does not compile, `Driver` when the device refuses it.
    pub fn plan(&self, graph: &OperationGraph) -> Result<ExecutionPlan> {
        if let Some(plan) = self.inner.plans.get(&graph.digest()) {
            self.inner.counters.plan_hits.add(1);
            return Ok(plan.clone());
        }
        let target = self.inner.device.target();
        let chosen = engine::choose(graph.canonical(), target)?;
        let family = chosen.engine.as_str();
        let span = plan_span(family, target);
        self.inner.record(graph, None);
        let plan = match &self.workers {
            Some(workers) => workers.plan(&self.inner, graph, &chosen)?,
            None => self.inner.plan_of(graph, self.inner.compiled_best(graph, &chosen)?, None),
        };
        // Of two threads that planned the same graph, one keeps its plan.
        let plan = self.inner.plans.entry(graph.digest()).or_insert(plan).clone();
        plan.start_upgrade();
        self.inner.dump(&plan);
        span.key(plan.report().key);
        span.tier(match plan.tier() {
            Tier::Special => plan.report().origin.name(),
            _ => "general",
        });
        Ok(plan)
    }

    /// A plan with this engine and these knobs.
    ///
    /// # Errors
    /// As [`Kiln::plan`]; `BadParam` for an unknown engine or knob or a value out of range,
    /// `NotSupported` when the setting spills registers.
    pub fn plan_with(
        &self,
        graph: &OperationGraph,
        config: &EngineConfig,
    ) -> Result<ExecutionPlan> {
        let span = plan_span(&config.engine, self.inner.device.target());
        self.inner.record(graph, Some(config));
        let planned = self.inner.planned(graph, config, Reach::Compiled)?;
        let planned = planned.expect("nothing is out of the compiler's reach");
        match planned.spill_bytes() {
            0 => {
                let plan = self.inner.plan_of(graph, planned, None);
                self.inner.dump(&plan);
                span.key(plan.report().key);
                span.tier(plan.report().origin.name());
                Ok(plan)
            }
            bytes => Err(Error::not_supported(format!(
                "{config} spills {bytes} bytes of registers per thread on {}",
                self.inner.device.target().arch
            ))),
        }
    }

    /// What each override has replaced so far; those without a kernel replaced nothing.
    pub fn overrides(&self) -> Vec<OverrideUse> {
        self.inner.overrides.as_ref().map_or_else(Vec::new, Overrides::uses)
    }

    /// The source a configuration gives for a graph, without compiling it.
    ///
    /// # Errors
    /// As [`Kiln::plan_with`].
    pub fn source(&self, graph: &OperationGraph, config: &EngineConfig) -> Result<KernelSource> {
        self.source_for(graph, self.inner.device.target(), config)
    }

    /// The source for another target than the device's.
    pub(super) fn source_for(
        &self,
        graph: &OperationGraph,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<KernelSource> {
        let engine = engine::engine_named(&config.engine)?;
        let lowering = engine.lower(graph.canonical(), target, config)?;
        self.inner.templates.render(&lowering.kernels[0].spec)
    }

    /// What compiles, or compiled, the kernels of this Kiln.
    ///
    /// # Errors
    /// `Compile` when there is no NVRTC and the cache remembers none.
    pub fn toolchain(&self) -> Result<Toolchain> {
        self.inner.toolchain()
    }

    /// Compiles a source with the NVRTC this Kiln uses, past all caches.
    ///
    /// # Errors
    /// `Compile` when there is no NVRTC or the source does not compile.
    pub fn compile(&self, source: &KernelSource) -> Result<Image> {
        self.compiler()?.compile(source)
    }

    /// The compiler, loaded now if it has not been.
    ///
    /// # Errors
    /// `Compile` when there is no NVRTC.
    pub fn compiler(&self) -> Result<&Compiler> {
        self.inner.compiler().map(|(compiler, _)| compiler)
    }

    pub(super) fn compiler_and_toolchain(&self) -> Result<&(Compiler, Toolchain)> {
        self.inner.compiler()
    }

    /// Where NVRTC was found; it is not loaded for that.
    ///
    /// # Errors
    /// `Compile` that lists every place looked at.
    pub fn nvrtc(&self) -> Result<Located> {
        self.inner.located().cloned()
    }
}

/// The span of a plan that is made.
fn plan_span(family: &str, target: &Target) -> Timed {
    let arch = &target.arch;
    Timed::new(debug_span!(
        "plan",
        family,
        target = %arch,
        key = Empty,
        tier = Empty,
        ns = Empty
    ))
}

/// How far a kernel may be fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Memory, packs, the disk cache.
    Built,
    /// The compiler too.
    Compiled,
}

impl Tiers {
    /// A kernel with these knobs, on the device; `None` when it would have to be compiled and
    /// `reach` forbids that.
    fn planned(
        &self,
        graph: &OperationGraph,
        config: &EngineConfig,
        reach: Reach,
    ) -> Result<Option<PlannedKernel>> {
        let kernel = self.lower(graph, config)?;
        let start = Instant::now();
        let mut source = {
            let target = &self.device.target().arch;
            let fields =
                debug_span!("render", family = config.engine, target = %target, ns = Empty);
            let _span = Timed::new(fields);
            self.templates.render(&kernel.spec)?
        };
        let render = start.elapsed();
        self.counters.render_ns.add_ns(render);
        let edit = self.overriding(&source);
        if let Some(edit) = edit.filter(|edit| !edit.is_ptx) {
            source.text.clone_from(&edit.text);
        }
        let mut origin = Origin::Memory;
        let shared_bytes = kernel.launch.shared_bytes;
        let start = Instant::now();
        let mut keep = |loaded: Loaded| {
            origin = loaded.origin;
            Arc::new(loaded)
        };
        let digest = source.digest();
        let loaded = match reach {
            Reach::Built => self
                .kernels
                .get_or_find(&digest, || Ok(self.find(&source, shared_bytes)?.map(&mut keep)))?,
            Reach::Compiled => Some(
                self.kernels
                    .get_or_build(&digest, || self.obtain(&source, shared_bytes).map(&mut keep))?,
            ),
        };
        let Some(mut loaded) = loaded else { return Ok(None) };
        let obtain = match origin {
            Origin::Memory => start.elapsed(),
            _ => loaded.obtained_in,
        };
        self.counters.kernel(origin);
        if let Some(edit) = edit.filter(|edit| edit.is_ptx) {
            loaded = self.with_ptx(&loaded, &source, shared_bytes, edit)?;
        }
        let (key, resources) = (loaded.key, loaded.image.resources);
        debug!("{origin} {} {key:?} in {obtain:?}", source.stem);
        let (stem, overridden) = (source.stem.clone(), edit.map(|edit| edit.path.clone()));
        let report = BuildReport { key, stem, origin, render, obtain, resources, overridden };
        self.assemble(graph, config, kernel, source, &loaded, report).map(Some)
    }

    /// The kernel expected to run best: of the chosen setting, or of a smaller one where the
    /// assembler had to spill registers. The heuristic estimates them, the assembler knows.
    pub(super) fn best(
        &self,
        graph: &OperationGraph,
        chosen: &EngineConfig,
        reach: Reach,
    ) -> Result<Option<PlannedKernel>> {
        let target = self.device.target();
        let engine = engine::engine_named(&chosen.engine)?;
        let mut planned = self.planned(graph, chosen, reach)?;
        while let Some(kernel) = planned.as_ref().filter(|kernel| kernel.spill_bytes() > 0)
            && let Some(smaller) = engine.smaller(graph.canonical(), target, &kernel.config)
        {
            planned = self.planned(graph, &smaller, reach)?;
        }
        Ok(planned)
    }

    /// As [`Tiers::best`], compiled now if it must be.
    pub(super) fn compiled_best(
        &self,
        graph: &OperationGraph,
        chosen: &EngineConfig,
    ) -> Result<PlannedKernel> {
        let best = self.best(graph, chosen, Reach::Compiled)?;
        Ok(best.expect("nothing is out of the compiler's reach"))
    }

    /// A plan that runs this kernel.
    pub(super) fn plan_of(
        &self,
        graph: &OperationGraph,
        first: PlannedKernel,
        upgrade: Option<Upgrade>,
    ) -> ExecutionPlan {
        let (device, owner) = (self.device.clone(), self.device.owner());
        let inner = PlanInner { graph: graph.clone(), device, owner, first, upgrade };
        ExecutionPlan { inner: Arc::new(inner) }
    }

    fn record(&self, graph: &OperationGraph, config: Option<&EngineConfig>) {
        if let Some(recorder) = &self.recorder {
            recorder.note(graph, config);
        }
    }

    /// Dumps the plan's kernel where dumps are wanted.
    pub(super) fn dump(&self, plan: &ExecutionPlan) {
        let kernel = plan.kernel();
        let Some(dumping) = self.dump.as_ref().filter(|dumping| dumping.wants(&kernel.report))
        else {
            return;
        };
        // A dump is for people: it never fails a call.
        let folder = match plan.dump(&dumping.folder) {
            Ok(folder) => folder,
            Err(error) => return warn!("{error}"),
        };
        if let Some(bytes_max) = dumping.tensor_bytes_max {
            kernel.capture.get_or_init(|| Capture::new(folder, bytes_max));
        }
    }

    fn lower(&self, graph: &OperationGraph, config: &EngineConfig) -> Result<KernelPlan> {
        let target = self.device.target();
        let lowering =
            engine::engine_named(&config.engine)?.lower(graph.canonical(), target, config)?;
        Ok(lowering.kernels.into_iter().next().expect("one kernel"))
    }

    fn assemble(
        &self,
        graph: &OperationGraph,
        config: &EngineConfig,
        kernel: KernelPlan,
        source: KernelSource,
        loaded: &Loaded,
        report: BuildReport,
    ) -> Result<PlannedKernel> {
        let KernelPlan { spec, launch } = kernel;
        let canonical = graph.canonical();
        let whole = |tensor: &TensorDesc| {
            let axes = 0..tensor.dims.len();
            let largest = |axis: usize| canonical.tensors.iter().map(|t| t.dims[axis]).max();
            axes.into_iter().all(|axis| largest(axis) == Some(tensor.dims[axis]))
        };
        let alike = |a: &TensorDesc, b: &TensorDesc| {
            (&a.dims, &a.strides, a.dtype) == (&b.dims, &b.strides, b.dtype)
        };
        let class = |tensor: &TensorDesc| {
            let first = canonical.tensors.iter().position(|other| alike(tensor, other));
            if whole(tensor) { first.map_or(0, |at| at as u32 + 1) } else { 0 }
        };
        let binding = |at: usize| {
            let tensor = &canonical.tensors[at];
            Ok(Binding {
                written: canonical.is_written(at),
                class: class(tensor),
                uid: canonical.uids[at],
                by_value: tensor.by_value.then_some(tensor.dtype),
                bytes: tensor.span_bytes()?,
                misalignment_mask: tensor.alignment.min(ALIGNMENT_MAX) as u64 - 1,
            })
        };
        let passed: Vec<usize> = launch
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Address(at) | Argument::Value(at, _) => *at as usize,
                Argument::Scratch(_) => unreachable!("no engine uses it"),
            })
            .collect();
        let untouched = (0..canonical.tensors.len())
            .filter(|at| !canonical.tensors[*at].is_virtual && !passed.contains(at));
        let bindings =
            passed.iter().copied().chain(untouched).map(binding).collect::<Result<Vec<_>>>()?;
        Ok(PlannedKernel {
            config: config.clone(),
            report,
            kernel: loaded.kernel.clone(),
            launch: Launch {
                grid: self.grid(&launch, loaded.image.resources),
                threads: launch.threads,
                shared_bytes: launch.shared_bytes,
                cooperative: launch.cooperative,
            },
            spec,
            source,
            image: loaded.image.clone(),
            bindings,
            parameters: passed.len(),
            numbers: launch.numbers.iter().map(|number| *number as u64).collect(),
            capture: OnceLock::new(),
        })
    }

    /// The number of blocks, from what the kernel occupies.
    fn grid(&self, launch: &LaunchPlan, resources: Resources) -> u32 {
        let (blocks_max, multiple_of) = match launch.grid {
            Grid::Fixed(blocks) => return blocks,
            Grid::Resident { blocks_max, multiple_of } => (blocks_max, multiple_of),
        };
        let target = self.device.target();
        let registers = resources.registers.max(16).next_multiple_of(8) * launch.threads;
        let shared = resources.shared_bytes + launch.shared_bytes;
        let by_threads = target.threads_sm_max / launch.threads;
        let by_registers = target.registers_sm / registers;
        let by_shared = target.shared_sm_bytes.checked_div(shared).unwrap_or(u32::MAX);
        let resident = by_threads.min(by_registers).min(by_shared).max(1) * target.sm_count;
        let whole = (resident / multiple_of).max(1) * multiple_of;
        whole.min(blocks_max)
    }
}

impl fmt::Debug for Kiln {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kiln on {}", self.inner.device.target())
    }
}
