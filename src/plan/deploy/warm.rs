//! Warm-up: compiling the kernels of a manifest in parallel, before they are needed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::info_span;

use crate::cache::{Key, Request};
use crate::codegen::KernelSource;
use crate::compile::{Image, at_once};
use crate::documents::Planned;
use crate::engine::Part;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::OperationGraph;
use crate::plan::build::Kiln;
use crate::plan::context::report::Origin;
use crate::plan::context::span::Timed;
use crate::plan::context::step_down::{Attempt, StepDown};
use crate::plan::deploy::manifest::{Instance, Manifest, graph_name};
use crate::target::Target;

/// Progress of a warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmProgress<'a> {
    /// Number of kernels found or compiled.
    pub done: usize,
    /// Number of kernels known to be needed.
    pub total: usize,
    /// Stem of the last kernel.
    pub stem: &'a str,
}

/// A kernel for a problem of a manifest, or for a part of one.
#[derive(Debug, Clone)]
pub struct Warmed {
    /// Name of the problem or the part.
    pub name: String,
    /// The target.
    pub target: Target,
    /// The graph that the kernel is for, and its configuration.
    pub part: Part,
    /// The compilation request.
    pub request: Request,
    /// The compiled image.
    pub image: Arc<Image>,
    /// Its origin; `Memory` if another problem has the same kernel.
    pub origin: Origin,
}

/// Result of a warm-up.
#[derive(Debug, Default)]
pub struct WarmSummary {
    /// The kernels of every problem and target, including those of fallback configurations after
    /// one that spills.
    pub warmed: Vec<Warmed>,
    /// Kernels that do not compile. If another engine supports the problem, its kernels are in
    /// `warmed`. The log of each image has the compiler's message.
    pub refused: Vec<Warmed>,
    /// Problems that could not be served: name and target, and the error.
    pub failed: Vec<(String, Error)>,
    /// Duration of the warm-up.
    pub elapsed: Duration,
}

impl WarmSummary {
    /// Numbers of distinct kernels by origin.
    pub fn kernels(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for warmed in self.warmed.iter().filter(|warmed| warmed.origin != Origin::Memory) {
            let name = match warmed.origin {
                Origin::Disk => "found",
                Origin::Remote => "fetched",
                _ => "compiled",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

/// Images or errors by key; several problems may share one.
pub(in crate::plan) type Images = HashMap<Key, Result<Arc<Image>>>;

/// A kernel to find or compile.
pub(in crate::plan) struct Job {
    source: KernelSource,
    request: Request,
    key: Key,
}

/// A part of a problem and its fallback sequence.
struct Wanted {
    /// The part's name.
    name: String,
    target: Target,
    way: StepDown,
    /// The kernels of the current configuration.
    jobs: Vec<Job>,
}

impl Wanted {
    fn shown(&self) -> String {
        format!("{} for {}", self.name, self.target.arch)
    }
}

impl Kiln {
    /// Finds or compiles every kernel of a manifest and stores it in the disk cache.
    ///
    /// `targets` overrides the manifest's targets; without either, the target is this device.
    /// Compilations run in parallel, and each kernel is stored as soon as it is compiled, so that
    /// an interrupted warm-up can resume. Kernels for this device are loaded as well, so that the
    /// first call finds them in memory.
    ///
    /// # Errors
    /// `BadParam` for an invalid manifest or target, `NoCompiler` when a kernel must be compiled
    /// and there is no NVRTC. A problem that cannot be served is listed in the summary instead.
    pub fn warm(
        &self,
        manifest: &Manifest,
        targets: &[Target],
        mut progress: impl FnMut(WarmProgress<'_>),
    ) -> Result<WarmSummary> {
        let start = Instant::now();
        let _span = Timed::new(info_span!("warm", ns = Empty));
        let mut summary = WarmSummary::default();
        let (mut wanted, mut own) = (Vec::new(), Vec::new());
        for instance in manifest.instances()? {
            for target in &self.targets_of(&instance, manifest, targets)? {
                match self.wanted(&instance, target) {
                    Ok(more) => wanted.extend(more),
                    Err(error) => {
                        let name = format!("{} for {}", instance.name, target.arch);
                        summary.failed.push((name, error));
                        continue;
                    }
                }
                if target == self.device().target() {
                    own.push(instance.clone());
                }
            }
        }
        let (mut images, mut done) = (HashMap::new(), 0);
        while !wanted.is_empty() {
            let jobs: Vec<&Job> = wanted.iter().flat_map(|of| &of.jobs).collect();
            let known: HashSet<Key> = jobs.iter().map(|job| job.key).collect();
            let total = done + known.iter().filter(|key| !images.contains_key(*key)).count();
            let mut step = |stem: &str| {
                done += 1;
                progress(WarmProgress { done, total, stem });
            };
            let origins = self.find_or_compile(&jobs, &mut images, &mut step)?;
            wanted = self.gather(wanted, &images, origins, &mut summary);
        }
        for instance in own {
            match self.load(&instance).map_err(|error| (error.kind(), error)) {
                // Kernels that do not compile or that spill are in the summary.
                Ok(_) | Err((ErrorKind::Compile | ErrorKind::NotSupported, _)) => {}
                Err((_, error)) => return Err(error),
            }
        }
        summary.elapsed = start.elapsed();
        Ok(summary)
    }

    /// The targets of a problem: those given, restricted to its own; without any given, its own,
    /// else the manifest's, else the device.
    fn targets_of(
        &self,
        instance: &Instance,
        manifest: &Manifest,
        given: &[Target],
    ) -> Result<Vec<Target>> {
        let own = instance.own_targets()?;
        Ok(match (given, own.as_slice(), manifest.targets.as_slice()) {
            ([], [], []) => vec![self.device().target().clone()],
            ([], [], names) => {
                names.iter().map(|name| Manifest::target(name)).collect::<Result<_>>()?
            }
            ([], _, _) => own,
            (given, [], _) => given.to_vec(),
            (given, own, _) => given.iter().filter(|it| own.contains(it)).cloned().collect(),
        })
    }

    /// Plans a problem on this device.
    fn load(&self, Instance { planned, config, .. }: &Instance) -> Result<()> {
        if let (Planned::Graph(graph), Some(config)) = (planned, config) {
            return self.plan_with(graph, config).map(drop);
        }
        planned.served(|graph| self.plan(graph)).map(drop)
    }

    /// The parts of a problem on a target, each with its name and the configuration that a plan
    /// tries first; a problem with a given configuration is a single part.
    pub(in crate::plan) fn parts_of(
        &self,
        instance: &Instance,
        target: &Target,
    ) -> Result<Vec<(String, StepDown)>> {
        let Instance { name, planned, config, .. } = instance;
        if let (Planned::Graph(graph), Some(config)) = (planned, config) {
            let part = Part { graph: graph.clone(), config: config.clone() };
            return Ok(vec![(name.clone(), StepDown::asked_for(part))]);
        }
        let graphs = planned.served(|graph| self.parts_of_graph(graph, target))?;
        let (mut parts, count) = (Vec::new(), graphs.len());
        for (number, own) in graphs.into_iter().enumerate() {
            let name = graph_name(name, number, count);
            parts.extend(own.into_iter().map(|(part, way)| (format!("{name}{part}"), way)));
        }
        Ok(parts)
    }

    /// The parts of a graph, each with what its name ends in. If there are tuning records, the
    /// heuristic's parts are included too, for programs without these records.
    fn parts_of_graph(
        &self,
        graph: &OperationGraph,
        target: &Target,
    ) -> Result<Vec<(String, StepDown)>> {
        let tuned = self.inner.parts(graph, target)?;
        let mut untuned = self.inner.untuned_parts(graph, target)?;
        let counts = [tuned.len(), untuned.len()];
        untuned.retain(|part| !tuned.contains(part));
        let name = |number: usize, count: usize| match count {
            1 => String::new(),
            _ => format!(" (part {} of {count})", number + 1),
        };
        let mut parts = Vec::new();
        for (own, count) in [tuned, untuned].into_iter().zip(counts) {
            let own = own.into_iter().enumerate();
            parts.extend(own.map(|(number, part)| (name(number, count), StepDown::from(part))));
        }
        Ok(parts)
    }

    /// The parts of a problem with the kernels of their first configurations.
    fn wanted(&self, instance: &Instance, target: &Target) -> Result<Vec<Wanted>> {
        let wanted = |(name, way): (String, StepDown)| {
            let (jobs, target) = (self.jobs_of(way.part(), target)?, target.clone());
            Ok(Wanted { name, target, way, jobs })
        };
        self.parts_of(instance, target)?.into_iter().map(wanted).collect()
    }

    /// The kernels of a part's configuration.
    pub(in crate::plan) fn jobs_of(&self, part: &Part, target: &Target) -> Result<Vec<Job>> {
        let toolchain = self.toolchain()?;
        let job = |source: KernelSource| {
            let request = Request::new(&source, &toolchain);
            Job { key: Key::of(&request), source, request }
        };
        let sources = self.inner.sources(&part.graph, target, &part.config)?;
        Ok(sources.into_iter().map(job).collect())
    }

    /// Adds the images of all jobs to `images` and returns the origins of the new ones.
    pub(in crate::plan) fn find_or_compile(
        &self,
        jobs: &[&Job],
        images: &mut Images,
        step: &mut dyn FnMut(&str),
    ) -> Result<HashMap<Key, Origin>> {
        let mut origins = HashMap::new();
        let mut missing: Vec<&Job> = Vec::new();
        for job in jobs {
            if images.contains_key(&job.key) || missing.iter().any(|other| other.key == job.key) {
                continue;
            }
            let kept = self.disk_cache().and_then(|disk| disk.get(job.key));
            let kept = kept.map(|image| (image, Origin::Disk));
            match kept.or_else(|| Some((self.inner.store.fetch(job.key)?, Origin::Remote))) {
                Some((image, origin)) => {
                    origins.insert(job.key, origin);
                    images.insert(job.key, Ok(Arc::new(image)));
                    step(&job.source.stem);
                }
                None => missing.push(job),
            }
        }
        if missing.is_empty() {
            return Ok(origins);
        }
        self.compiler()?;
        let work = |at: usize| self.inner.store.compiled(&missing[at].source, &missing[at].request);
        let results = at_once(missing.len(), work, |at, result| {
            if let Ok((_, Origin::Compiled)) = result {
                self.counters().kernel(Origin::Compiled);
            }
            step(&missing[at].source.stem);
        });
        for (job, result) in missing.into_iter().zip(results) {
            let origin = result.as_ref().map_or(Origin::Compiled, |(_, origin)| *origin);
            origins.insert(job.key, origin);
            images.insert(job.key, result.map(|(image, _)| Arc::new(image)));
        }
        Ok(origins)
    }

    /// Moves the kernels that were tried to the summary and returns the parts that have a fallback
    /// configuration to try.
    fn gather(
        &self,
        wanted: Vec<Wanted>,
        images: &Images,
        mut origins: HashMap<Key, Origin>,
        summary: &mut WarmSummary,
    ) -> Vec<Wanted> {
        let mut again = Vec::new();
        for mut of in wanted {
            let mut attempt = Attempt::Built { spills: false };
            for Job { request, key, .. } in std::mem::take(&mut of.jobs) {
                let (name, target) = (of.name.clone(), of.target.clone());
                let part = of.way.part().clone();
                let origin = origins.remove(&key).unwrap_or(Origin::Memory);
                let warmed = |image| Warmed { name, target, part, request, image, origin };
                match &images[&key] {
                    Ok(image) => {
                        if let Attempt::Built { spills } = &mut attempt {
                            *spills |= image.resources.spill_bytes > 0;
                        }
                        summary.warmed.push(warmed(image.clone()));
                    }
                    Err(error) => {
                        attempt = Attempt::Refused(error.clone());
                        let image = Arc::new(Image::refused(error.to_string()));
                        summary.refused.push(warmed(image));
                    }
                }
            }
            let jobs = match of.way.next(attempt, &self.inner, &of.target) {
                Ok(true) => self.jobs_of(of.way.part(), &of.target),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            match jobs {
                Ok(jobs) => again.push(Wanted { jobs, ..of }),
                Err(error) => summary.failed.push((of.shown(), error)),
            }
        }
        again
    }
}
