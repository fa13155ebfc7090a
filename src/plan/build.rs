//! [`Kiln`], and how it builds plans: every stage once per graph, then from memory.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use tracing::field::Empty;
use tracing::{debug, debug_span, info, warn};

use crate::cache::{DiskCache, Flight, RemoteCache};
use crate::codegen::{KernelSource, Templates};
use crate::compile::{Compiler, Image, Located, Resources, Search, Toolchain};
use crate::device::{Device, Launch, Stream};
use crate::engine::BehaviorNote::RuntimeCompilation;
use crate::engine::{self, EngineConfig, Notes, Part, Selection};
use crate::error::{Error, Result};
use crate::graph::{GraphDigest, OperationGraph};
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::plan::background::Workers;
use crate::plan::context::config::Config;
use crate::plan::context::kernel_store::{KernelStore, Loaded, Reach};
use crate::plan::context::metrics::{Counters, Metrics};
use crate::plan::context::nvrtc::Nvrtc;
use crate::plan::context::planner::Planner;
use crate::plan::context::report::{BuildReport, Origin};
use crate::plan::context::resolved::Resolved;
use crate::plan::context::span::Timed;
use crate::plan::deploy::recorder::Recorder;
use crate::plan::dump::overrides::{OverrideUse, Overrides};
use crate::plan::execute::{ExecutionPlan, PlanInner};
use crate::plan::recipe::{BuiltKernel, BuiltPart, Capture, Obtained, PlannedKernel, Recipe};
use crate::plan::upgrade::{Tier, Upgrade};
use crate::target::{Arch, Target};

/// How many of a part's most recent kernels are compared with the next one. A recurrent layer
/// repeats the same few kernels at every step.
const REPEATED_MAX: usize = 16;

/// A device with its compiler and caches. Clones share everything; any thread may use it.
#[derive(Clone)]
pub struct Kiln {
    pub(super) inner: Arc<Planner>,
    /// Plans by the digest of their graph.
    pub(super) plans: Arc<DashMap<GraphDigest, ExecutionPlan>>,
    /// The background threads; the last clone that is dropped stops them.
    pub(super) workers: Option<Arc<Workers>>,
}

impl Kiln {
    /// Opens a device and the caches.
    ///
    /// NVRTC is located when something must be compiled, not now. A cache folder that cannot be
    /// used is a warning.
    ///
    /// # Errors
    /// `BadParam` for an invalid field or variable, `Driver` when the device cannot be opened,
    /// `ArchMismatch` when it is older than Turing, `Compile` when a template folder does not
    /// parse.
    pub fn open(config: Config) -> Result<Kiln> {
        let resolved = config.resolve()?;
        let device = Device::open(&resolved.device, resolved.sim)?;
        Kiln::on(device, resolved)
    }

    /// As [`Kiln::open`], for an open device.
    pub(super) fn on(device: Device, resolved: Resolved) -> Result<Kiln> {
        let templates = match &resolved.templates {
            Some(folder) => Templates::from_dir(folder)?,
            None => Templates::embedded().clone(),
        };
        info!("opened {} as {}", device.target(), device.kind());
        let record = resolved.record.as_deref();
        let recorder = record.map(|path| Recorder::open(path, device.target())).transpose()?;
        let disk = resolved.cache_dir.as_deref();
        // The null device runs nothing, so PTX is all that it needs too.
        let ptx_only = resolved.ptx_only && device.kind() != "cuda";
        let search = Search { driver: device.cuda_version(), ..resolved.search };
        let store = KernelStore {
            device,
            ptx_only,
            packs: resolved.packs,
            disk: disk.and_then(|folder| DiskCache::open(folder, resolved.cache_bytes)),
            remote: resolved.remote.as_ref().map(RemoteCache::open).transpose()?,
            no_jit: resolved.no_jit,
            nvrtc: Nvrtc::by(search),
            kernels: Flight::default(),
            counters: Counters::default(),
        };
        let inner = Arc::new(Planner {
            store,
            templates,
            selection: resolved.selection,
            steps_down: resolved.templates.is_none() && resolved.overrides.is_none(),
            allow_spills: resolved.allow_spills,
            overlap_launches: resolved.overlap_launches,
            trust: resolved.trust,
            signed_only: resolved.signed_only,
            overrides: resolved.overrides.as_deref().map(Overrides::open).transpose()?,
            recorder,
            dump: resolved.dump,
        });
        // Strict mode excludes background compilation too.
        let background = resolved.background.filter(|_| !resolved.no_jit);
        let workers = background.map(|background| Workers::start(&inner, background));
        let workers = workers.transpose()?.map(Arc::new);
        Ok(Kiln { inner, plans: Arc::default(), workers })
    }

    /// Whether kernels come from caches and packs alone.
    pub(crate) fn compiles_nothing(&self) -> bool {
        let without = &self.inner.selection.without;
        self.inner.store.no_jit || without.behavior.contains(&RuntimeCompilation)
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.inner.store.counters
    }

    /// A snapshot of the counters of this Kiln and its clones. Executions are not counted: they
    /// only launch.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            background: self.workers.as_ref().map(|it| it.metrics()).unwrap_or_default(),
            cache: self.disk_cache().map(|disk| disk.counts()),
            remote: self.remote_cache().map(|store| store.counts()),
            ..self.counters().snapshot()
        }
    }

    /// Waits until all queued background compilations are done. Returns `false` on timeout.
    /// Deferred plans are not waited for: see [`ExecutionPlan::settle`].
    pub fn settle(&self, timeout: Duration) -> bool {
        self.workers.as_ref().is_none_or(|workers| workers.settle(timeout))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.store.device
    }

    /// The device's default stream.
    pub fn stream(&self) -> Stream {
        self.inner.store.device.default_stream()
    }

    /// How configurations are chosen if none has been tuned.
    pub fn selection(&self) -> &Selection {
        &self.inner.selection
    }

    /// The disk cache, if there is one.
    pub fn disk_cache(&self) -> Option<&DiskCache> {
        self.inner.store.disk.as_ref()
    }

    /// The remote store, if there is one.
    pub fn remote_cache(&self) -> Option<&RemoteCache> {
        self.inner.store.remote.as_ref()
    }

    /// Plans a graph with the configuration expected to be fastest. A graph is planned once; later
    /// calls return the same plan.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason, `NoCompiler` when there is no NVRTC, `Compile`
    /// when a kernel does not compile, `Driver` when the device rejects it.
    pub fn plan(&self, graph: &OperationGraph) -> Result<ExecutionPlan> {
        if let Some(plan) = self.plans.get(&graph.digest()) {
            self.inner.store.counters.plan_hits.add(1);
            return Ok(plan.clone());
        }
        // If two threads plan the same graph, both get the plan of the first.
        let plan = self.planned(graph)?;
        let plan = self.plans.entry(graph.digest()).or_insert(plan).clone();
        plan.start_upgrade();
        Ok(plan)
    }

    /// As [`Kiln::plan`], every time anew: the plan is not kept, for one of many graphs that differ
    /// in a number.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(crate) fn plan_anew(&self, graph: &OperationGraph) -> Result<ExecutionPlan> {
        let plan = self.planned(graph)?;
        plan.start_upgrade();
        Ok(plan)
    }

    fn planned(&self, graph: &OperationGraph) -> Result<ExecutionPlan> {
        let target = self.inner.store.device.target();
        let parts = self.inner.parts(graph, target)?;
        let span = plan_span(parts.iter(), target);
        self.inner.record(graph, None);
        let plan = match &self.workers {
            _ if self.inner.selection.without.behavior.contains(&RuntimeCompilation) => {
                self.inner.plan_of(graph, self.inner.found(graph, parts)?, None)?
            }
            Some(workers) => workers.plan(&self.inner, graph, parts)?,
            None => self.inner.plan_of(graph, self.inner.compiled_best(parts)?, None)?,
        };
        self.inner.dump(plan.kernels());
        self.inner.tell_choices(plan.kernels(), false);
        plan.describe(&span);
        Ok(plan)
    }

    /// Plans a graph as a single part with this configuration.
    ///
    /// # Errors
    /// As [`Kiln::plan`]; `BadParam` for an unknown engine or knob or a value out of range,
    /// `NotSupported` when the configuration spills registers and [`Config::allow_spills`] is off.
    pub fn plan_with(
        &self,
        graph: &OperationGraph,
        config: &EngineConfig,
    ) -> Result<ExecutionPlan> {
        self.inner.record(graph, Some(config));
        self.plan_parts(graph, vec![Part { graph: graph.clone(), config: config.clone() }])
    }

    /// Plans a graph with these parts, in execution order.
    pub(super) fn plan_parts(
        &self,
        graph: &OperationGraph,
        parts: Vec<Part>,
    ) -> Result<ExecutionPlan> {
        self.plan_parts_sharing(graph, parts, &[])
    }

    /// As [`Kiln::plan_parts`], with these kernels where a part has them.
    pub(super) fn plan_parts_sharing(
        &self,
        graph: &OperationGraph,
        parts: Vec<Part>,
        known: &[PlannedKernel],
    ) -> Result<ExecutionPlan> {
        let span = plan_span(parts.iter(), self.inner.store.device.target());
        let mut built = Vec::new();
        for part in parts {
            let part = self.inner.built_sharing(Arc::new(part), Reach::Compiled, known)?;
            let part = part.expect("nothing is out of the compiler's reach");
            let bytes = part.spill_bytes();
            if bytes > 0 {
                let config = &part.part.config;
                let arch = self.inner.store.device.target().arch;
                let text =
                    format!("{config} spills {bytes} bytes of registers per thread on {arch}");
                match self.inner.allow_spills {
                    true => warn!("{text}"),
                    false => return Err(Error::not_supported(text)),
                }
            }
            built.push(part);
        }
        self.inner.plan_as_told(graph, built, &span)
    }

    /// The overrides and the kernels that each has replaced so far.
    pub fn overrides(&self) -> Vec<OverrideUse> {
        self.inner.overrides.as_ref().map_or_else(Vec::new, Overrides::uses)
    }

    /// The notes on a configuration for a graph; `runtime_compilation` only if its kernels are in
    /// no cache or pack.
    ///
    /// # Errors
    /// As [`Kiln::plan_with`]. Nothing is compiled.
    pub fn notes(&self, graph: &OperationGraph, config: &EngineConfig) -> Result<Notes> {
        self.inner.notes(Part { graph: graph.clone(), config: config.clone() })
    }

    /// Renders the kernel sources of a configuration for a graph, without compiling them.
    ///
    /// # Errors
    /// As [`Kiln::plan_with`].
    pub fn sources(
        &self,
        graph: &OperationGraph,
        config: &EngineConfig,
    ) -> Result<Vec<KernelSource>> {
        self.inner.sources(graph, self.inner.store.device.target(), config)
    }

    /// The identity of the compiler, from NVRTC or from the cache.
    ///
    /// # Errors
    /// `NoCompiler` when there is no NVRTC and the cache has no record of one.
    pub fn toolchain(&self) -> Result<Toolchain> {
        self.inner.store.toolchain()
    }

    /// Compiles a source with this Kiln's NVRTC, bypassing all caches.
    ///
    /// # Errors
    /// `NoCompiler` when there is no NVRTC, `Compile` when the source does not compile.
    pub fn compile(&self, source: &KernelSource) -> Result<Image> {
        self.compiler()?.compile(source)
    }

    /// The compiler, which is loaded now if necessary.
    ///
    /// # Errors
    /// `NoCompiler` when there is no NVRTC.
    pub fn compiler(&self) -> Result<&Compiler> {
        self.inner.store.compiler().map(|(compiler, _)| compiler)
    }

    pub(super) fn compiler_and_toolchain(&self) -> Result<&(Compiler, Toolchain)> {
        self.inner.store.compiler()
    }

    /// The location of NVRTC, which is not loaded.
    ///
    /// # Errors
    /// `NoCompiler` that lists every location searched.
    pub fn nvrtc(&self) -> Result<Located> {
        self.inner.store.nvrtc.located().cloned()
    }
}

/// The span of planning. Its family is the parts' engines, joined by `+`.
pub(super) fn plan_span<'a>(parts: impl Iterator<Item = &'a Part>, target: &Target) -> Timed {
    let arch = &target.arch;
    let family: Vec<&str> = parts.map(|part| &*part.config.engine).collect();
    let family = family.join("+");
    Timed::new(debug_span!(
        "plan",
        family,
        target = %arch,
        key = Empty,
        tier = Empty,
        ns = Empty
    ))
}

impl Planner {
    /// Renders the kernel sources of a configuration for a graph on any target.
    pub(super) fn sources(
        &self,
        graph: &OperationGraph,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Vec<KernelSource>> {
        let supported = engine::supported(&config.engine, graph.canonical(), target)?;
        let kernels = supported.lower(config)?.kernels;
        kernels.iter().map(|kernel| self.templates.render(&kernel.spec)).collect()
    }

    /// The kernels of a part, loaded on the device. `None` if one of them would have to be compiled
    /// and `reach` excludes that.
    pub(super) fn built(&self, part: Arc<Part>, reach: Reach) -> Result<Option<BuiltPart>> {
        self.built_sharing(part, reach, &[])
    }

    /// As [`Planner::built`], with these kernels where the part has them.
    fn built_sharing(
        &self,
        part: Arc<Part>,
        reach: Reach,
        known: &[PlannedKernel],
    ) -> Result<Option<BuiltPart>> {
        let config = &part.config;
        let Lowering { kernels, scratch } =
            part.supported(self.store.device.target())?.lower(config)?;
        let mut built: Vec<BuiltKernel> = Vec::new();
        for plan in kernels {
            let mut latest = built.iter().rev().take(REPEATED_MAX).map(Obtained::of_built);
            let mut known = known.iter().map(Obtained::of_planned);
            let is_same = |known: &Obtained<'_>| *known.spec == plan.spec;
            if let Some(known) = latest.find(is_same).or_else(|| known.find(is_same)) {
                let again = self.again(&known, plan.launch);
                built.push(again);
                continue;
            }
            match self.kernel(&config.engine, plan, reach)? {
                Some(kernel) => built.push(kernel),
                None => return Ok(None),
            }
        }
        Ok(Some(BuiltPart { part, kernels: built, scratch }))
    }

    /// A kernel that is there, with another launch: a recurrent layer repeats its kernels at every
    /// step.
    pub(super) fn again(&self, known: &Obtained<'_>, launch: LaunchPlan) -> BuiltKernel {
        self.store.counters.kernel(Origin::Memory);
        let report = BuildReport {
            origin: Origin::Memory,
            render: Duration::ZERO,
            obtain: Duration::ZERO,
            ..known.report.clone()
        };
        let (source, image, kernel) =
            (known.source.clone(), known.image.clone(), known.kernel.clone());
        // One description of the kernel for all plans that have it.
        let plan = KernelPlan { spec: known.spec.clone(), launch };
        let launch = self.launch(&plan.launch, report.resources);
        BuiltKernel { plan, source, image, report, kernel, launch }
    }

    /// As [`Planner::built`], for one kernel.
    fn kernel(&self, family: &str, plan: KernelPlan, reach: Reach) -> Result<Option<BuiltKernel>> {
        let start = Instant::now();
        let mut source = {
            let target = &self.store.device.target().arch;
            let fields = debug_span!("render", family, target = %target, ns = Empty);
            let _span = Timed::new(fields);
            self.templates.render(&plan.spec)?
        };
        let render = start.elapsed();
        self.store.counters.render_ns.add_ns(render);
        let edit = self.overriding(&source);
        if let Some(edit) = edit.filter(|edit| !edit.is_ptx) {
            source.text.clone_from(&edit.text);
        }
        let mut origin = Origin::Memory;
        let shared_bytes = plan.launch.shared_bytes;
        let start = Instant::now();
        let mut keep = |loaded: Loaded| {
            origin = loaded.origin;
            Arc::new(loaded)
        };
        let digest = source.digest();
        let loaded = match reach {
            Reach::Built => self.store.kernels.get_or_find(&digest, || {
                Ok(self.store.find(&source, shared_bytes)?.map(&mut keep))
            })?,
            Reach::Compiled => Some(self.store.kernels.get_or_build(&digest, || {
                self.store.obtain(&source, shared_bytes).map(&mut keep)
            })?),
        };
        let Some(mut loaded) = loaded else { return Ok(None) };
        let obtain = match origin {
            Origin::Memory => start.elapsed(),
            _ => loaded.obtained_in,
        };
        self.store.counters.kernel(origin);
        if let Some(edit) = edit.filter(|edit| edit.is_ptx) {
            loaded = self.with_ptx(&loaded, &source, shared_bytes, edit)?;
        }
        let (key, resources) = (loaded.key, loaded.image.resources);
        debug!("{origin} {} {key:?} in {obtain:?}", source.stem);
        let (stem, overridden) = (source.stem.clone(), edit.map(|edit| edit.path.clone()));
        let report = BuildReport { key, stem, origin, render, obtain, resources, overridden };
        let launch = self.launch(&plan.launch, resources);
        let (kernel, image, source) =
            (loaded.kernel.clone(), loaded.image.clone(), Arc::new(source));
        Ok(Some(BuiltKernel { plan, source, image, report, kernel, launch }))
    }

    /// The notes on a part's configuration, including where its kernels come from.
    fn notes(&self, part: Part) -> Result<Notes> {
        let notes = part.supported(self.store.device.target())?.notes(&part.config);
        Ok(match self.built(Arc::new(part), Reach::Built)? {
            Some(_) => notes.of_settings(),
            None => notes,
        })
    }

    /// The plan of these parts, with an upgrade if some of them run generic kernels.
    pub(super) fn plan_of(
        &self,
        graph: &OperationGraph,
        parts: Vec<BuiltPart>,
        upgrade: Option<Arc<Upgrade>>,
    ) -> Result<ExecutionPlan> {
        let (device, owner) = (self.store.device.clone(), self.store.device.owner());
        let first = Recipe::new(graph, parts, &device)?;
        let inner = PlanInner { graph: graph.clone(), device, owner, first, upgrade };
        Ok(ExecutionPlan { inner: Arc::new(inner) })
    }

    /// [`Planner::plan_of`] parts whose configurations were told.
    pub(super) fn plan_as_told(
        &self,
        graph: &OperationGraph,
        parts: Vec<BuiltPart>,
        span: &Timed,
    ) -> Result<ExecutionPlan> {
        let plan = self.plan_of(graph, parts, None)?;
        self.dump(plan.kernels());
        self.tell_choices(plan.kernels(), true);
        plan.describe(span);
        Ok(plan)
    }

    fn record(&self, graph: &OperationGraph, config: Option<&EngineConfig>) {
        if let Some(recorder) = &self.recorder {
            recorder.note(graph, config);
        }
    }

    /// Dumps a plan's kernels if dumps are configured.
    pub(super) fn dump(&self, kernels: &[PlannedKernel]) {
        let Some(dumping) = &self.dump else { return };
        for kernel in kernels.iter().filter(|kernel| dumping.wants(&kernel.report)) {
            // A failed dump is a warning and never fails the call.
            let folder = match kernel.dump(&self.store.device, &dumping.folder) {
                Ok(folder) => folder,
                Err(error) => return warn!("{error}"),
            };
            if let Some(bytes_max) = dumping.tensor_bytes_max {
                kernel.capture.get_or_init(|| Capture::new(folder, bytes_max));
            }
        }
    }

    fn launch(&self, plan: &LaunchPlan, resources: Resources) -> Launch {
        let LaunchPlan { threads, shared_bytes, cooperative, .. } = *plan;
        let (grid, registers) = (self.grid(plan, resources), resources.registers);
        // A cooperative launch needs the room of the one before it.
        let programmatic = self.overlap_launches && !cooperative;
        Launch { grid, threads, shared_bytes, cooperative, programmatic, registers }
    }

    /// The grid size: given, or as many blocks as fit the SMs with the kernel's resources.
    fn grid(&self, launch: &LaunchPlan, resources: Resources) -> u32 {
        let (blocks_max, multiple_of) = match launch.grid {
            Grid::Fixed(blocks) => return blocks.count(),
            Grid::Resident { blocks_max, multiple_of } => (blocks_max.count(), multiple_of),
        };
        let target = self.store.device.target();
        // Unknown without a cubin: assume the maximum per thread.
        let registers = match resources.registers {
            0 if self.store.ptx_only => Arch::REGISTERS_THREAD_MAX,
            registers => registers.max(16),
        };
        let registers = registers.next_multiple_of(8) * launch.threads;
        let shared = resources.shared_bytes + launch.shared_bytes;
        let by_threads = target.threads_sm_max / launch.threads;
        let by_registers = target.registers_sm / registers;
        let by_shared = target.shared_sm_bytes.checked_div(shared).unwrap_or(u32::MAX);
        let resident = by_threads.min(by_registers).min(by_shared).max(1) * target.sm_count;
        let whole = (resident / multiple_of).max(1) * multiple_of;
        whole.min(blocks_max)
    }
}

impl ExecutionPlan {
    /// Records the key and the origin of the plan's first kernel in its span.
    fn describe(&self, span: &Timed) {
        let report = self.kernels()[0].report();
        span.key(report.key);
        span.tier(match self.tier() {
            Tier::Special => report.origin.name(),
            _ => "general",
        });
    }
}

impl fmt::Debug for Kiln {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kiln on {}", self.inner.store.device.target())
    }
}
