//! Warming up: the kernels of a manifest, compiled in parallel before anyone asks for them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::info_span;

use crate::cache::{Key, Request};
use crate::codegen::KernelSource;
use crate::compile::{Image, at_once};
use crate::engine::{EngineConfig, Part};
use crate::error::{Error, Result};
use crate::plan::best::step_down;
use crate::plan::build::Kiln;
use crate::plan::manifest::{Instance, Manifest};
use crate::plan::report::Origin;
use crate::plan::span::Timed;
use crate::target::Target;

/// How far a warm-up is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmProgress<'a> {
    /// Kernels done, found or compiled.
    pub done: usize,
    /// Kernels known to be needed so far.
    pub total: usize,
    /// The kernel just done.
    pub stem: &'a str,
}

/// A problem of a manifest, or a part of one, with a kernel that serves it.
#[derive(Debug, Clone)]
pub struct Warmed {
    /// The problem.
    pub instance: Instance,
    /// The target it is for.
    pub target: Target,
    /// The engine and knobs.
    pub config: EngineConfig,
    /// What was asked of the compiler.
    pub request: Request,
    /// What came of it.
    pub image: Arc<Image>,
    /// Where it came from; `Memory` for a kernel another problem shares.
    pub origin: Origin,
}

/// What a warm-up did.
#[derive(Debug)]
pub struct WarmSummary {
    /// The kernels of every problem and target, and those of smaller settings where one turned out
    /// to spill.
    pub warmed: Vec<Warmed>,
    /// Problems that could not be served: name and target, and why.
    pub failed: Vec<(String, Error)>,
    /// How long it took.
    pub elapsed: Duration,
}

impl WarmSummary {
    /// Distinct kernels by where they came from.
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

/// What came of each key: an image, or an error that several problems may share.
pub(super) type Images = HashMap<Key, Result<Arc<Image>>>;

/// A kernel that is still to be found or compiled.
pub(super) struct Job {
    instance: Instance,
    target: Target,
    config: EngineConfig,
    source: KernelSource,
    request: Request,
    key: Key,
}

impl Kiln {
    /// Finds or compiles every kernel of a manifest and keeps it in the disk cache.
    ///
    /// `targets` overrides the manifest's; without either it is this device's. Compilations run in
    /// parallel; each kernel is stored when it is done, so an interrupted warm-up resumes. Kernels
    /// for this device are loaded too, so that the first call finds them in memory.
    ///
    /// # Errors
    /// `BadParam` for a bad manifest or target, `Compile` when something must be compiled and there
    /// is no NVRTC. A problem that fails by itself is listed in the summary.
    pub fn warm(
        &self,
        manifest: &Manifest,
        targets: &[Target],
        mut progress: impl FnMut(WarmProgress<'_>),
    ) -> Result<WarmSummary> {
        let start = Instant::now();
        let _span = Timed::new(info_span!("warm", ns = Empty));
        let mut summary =
            WarmSummary { warmed: Vec::new(), failed: Vec::new(), elapsed: Duration::ZERO };
        let mut jobs = Vec::new();
        for instance in manifest.instances()? {
            for target in &self.targets_of(&instance, manifest, targets)? {
                match self.jobs(&instance, target) {
                    Ok(more) => jobs.extend(more),
                    Err(error) => {
                        let name = format!("{} for {}", instance.name, target.arch);
                        summary.failed.push((name, error));
                    }
                }
            }
        }
        let mut images = HashMap::new();
        let mut done = 0;
        while !jobs.is_empty() {
            let total = done + jobs.iter().map(|job| job.key).collect::<HashSet<_>>().len();
            let mut step = |stem: &str| {
                done += 1;
                progress(WarmProgress { done, total, stem });
            };
            let origins = self.find_or_compile(&jobs, &mut images, &mut step)?;
            jobs = self.gather(jobs, &images, origins, &mut summary)?;
        }
        for warmed in &summary.warmed {
            if warmed.target == *self.device().target() && warmed.image.resources.spill_bytes == 0 {
                let Instance { graph, config, .. } = &warmed.instance;
                match config {
                    Some(config) => self.plan_with(graph, config)?,
                    None => self.plan(graph)?,
                };
            }
        }
        summary.elapsed = start.elapsed();
        Ok(summary)
    }

    /// The targets of a problem: those given, else its own, else the manifest's or the device's.
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

    /// The parts of a problem on a target, each as a problem with the settings that a plan takes;
    /// the whole where it names its own. Where one has been tuned, the heuristic's setting is there
    /// too: a program whose cache knows of no tuning takes that.
    pub(super) fn parts_of(
        &self,
        instance: &Instance,
        target: &Target,
    ) -> Result<Vec<(Instance, EngineConfig)>> {
        if let Some(config) = &instance.config {
            return Ok(vec![(instance.clone(), config.clone())]);
        }
        let parts = self.inner.parts(&instance.graph, target)?;
        let untuned = self.inner.untuned_parts(&instance.graph, target)?;
        let count = parts.len();
        let name = |number: usize| match count {
            1 => instance.name.clone(),
            _ => format!("{} (part {} of {count})", instance.name, number + 1),
        };
        let part = |(number, Part { graph, config }): (usize, Part)| {
            (Instance { name: name(number), graph, ..instance.clone() }, config)
        };
        let others = untuned.into_iter().enumerate();
        let others = others.filter(|(number, other)| other.config != parts[*number].config);
        let others: Vec<_> = others.collect();
        Ok(parts.into_iter().enumerate().chain(others).map(part).collect())
    }

    /// The kernels of a problem.
    fn jobs(&self, instance: &Instance, target: &Target) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for (part, config) in self.parts_of(instance, target)? {
            jobs.extend(self.jobs_of(&part, target, &config)?);
        }
        Ok(jobs)
    }

    /// The kernels of one setting.
    pub(super) fn jobs_of(
        &self,
        instance: &Instance,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Vec<Job>> {
        let toolchain = self.toolchain()?;
        let job = |source: KernelSource| {
            let request = Request::new(&source, &toolchain);
            let (instance, target, config) = (instance.clone(), target.clone(), config.clone());
            Job { instance, target, config, key: Key::of(&request), source, request }
        };
        let sources = self.sources_for(&instance.graph, target, config)?;
        Ok(sources.into_iter().map(job).collect())
    }

    /// Fills `images` with the result of every key; says where each new one came from.
    pub(super) fn find_or_compile(
        &self,
        jobs: &[Job],
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
            match kept.or_else(|| Some((self.inner.fetch(job.key)?, Origin::Remote))) {
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
        let work = |at: usize| self.inner.compiled(&missing[at].source, &missing[at].request);
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

    /// Moves finished jobs to the summary; returns the follow-ups of those that spill or fail.
    fn gather(
        &self,
        jobs: Vec<Job>,
        images: &Images,
        mut origins: HashMap<Key, Origin>,
        summary: &mut WarmSummary,
    ) -> Result<Vec<Job>> {
        let mut follow_ups: Vec<Job> = Vec::new();
        for job in jobs {
            let spills = |image: &Arc<Image>| image.resources.spill_bytes > 0;
            let image = images[&job.key].as_ref();
            let next = match (&job.instance.config, image) {
                // Who names a setting gets that one.
                (Some(_), _) => None,
                (None, Ok(image)) if spills(image) => job.part().smaller(&job.target)?,
                (None, Ok(_)) => None,
                (None, Err(_)) => self.inner.next_engine(&job.part(), &job.target)?,
            };
            if let Some(Part { config, .. }) = &next {
                // Of two kernels that spill or fail, one has asked already.
                let asked = |other: &Job| {
                    (&other.instance, &other.target, &other.config)
                        == (&job.instance, &job.target, config)
                };
                if !follow_ups.iter().any(asked) {
                    follow_ups.extend(self.jobs_of(&job.instance, &job.target, config)?);
                }
            }
            let Job { instance, target, config, request, key, .. } = job;
            match (image, next) {
                (Ok(image), _) => {
                    let (image, origin) = (image.clone(), origins.remove(&key));
                    let origin = origin.unwrap_or(Origin::Memory);
                    let warmed = Warmed { instance, target, config, request, image, origin };
                    summary.warmed.push(warmed);
                }
                (Err(error), Some(next)) => {
                    step_down(&config, &target.arch, &next.config, error);
                }
                (Err(error), None) => {
                    let name = format!("{} for {}", instance.name, target.arch);
                    summary.failed.push((name, error.clone()));
                }
            }
        }
        Ok(follow_ups)
    }
}

impl Job {
    fn part(&self) -> Part {
        Part { graph: self.instance.graph.clone(), config: self.config.clone() }
    }
}
