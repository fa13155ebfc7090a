//! Tuning of the configurations of a graph's parts.
//!
//! On a GPU configurations are timed; on the simulator their time is estimated from machine code
//! and counters. The best configuration of each part is recorded in a JSON file in the cache
//! folder, by the part's canonical form, the GPU and Kiln's version. Later plans use it, except
//! that records of counters are used on the simulator only.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::device::Stream;
use crate::engine::{Choice, LAUNCH_US, Mode, Part, Selection, choices, machine_of, partition};
use crate::error::{Error, ErrorKind, Result};
use crate::frontend::{Values, random_values};
use crate::graph::{GraphDigest, OperationGraph};
use crate::plan::build::Kiln;
use crate::plan::deploy::warm::Job;
use crate::plan::execute::ExecutionPlan;
use crate::plan::problem::trial::estimated_us;
use crate::plan::recipe::PlannedKernel;
use crate::plan::tuning::winners::{Measurement, SettingRecord, Tried};
use crate::plan::variant_pack::VariantPack;

/// Number of timed launches.
const TIMED: usize = 21;
const WARM_UP: usize = 5;

/// Seed of the random inputs.
const SEED: u64 = 1;

/// Result of tuning a part of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The part with the best configuration.
    pub part: Part,
    /// Its time in microseconds.
    pub us: f64,
    /// Time of the heuristic's configuration, in microseconds, if it could be measured.
    pub heuristic_us: Option<f64>,
    /// All configurations tried, fastest first.
    pub tried: Vec<Tried>,
    /// The record's file, if there is a cache folder.
    pub path: Option<PathBuf>,
}

/// Progress of tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuneProgress<'a> {
    /// Number of configurations measured and kernels compiled.
    pub done: usize,
    /// Number of configurations to measure and kernels to compile.
    pub total: usize,
    /// The last configuration or kernel.
    pub what: &'a str,
}

/// Measures plans on random inputs, which those of one graph share.
#[derive(Debug)]
pub struct Trials<'a> {
    kiln: &'a Kiln,
    /// The graph that was measured last, by its digest, and its inputs.
    inputs: Option<(GraphDigest, Values)>,
}

impl<'a> Trials<'a> {
    /// Trials on a device.
    pub fn new(kiln: &'a Kiln) -> Trials<'a> {
        Trials { kiln, inputs: None }
    }

    /// The time of a plan in microseconds: the median of several launches on a GPU, on the
    /// simulator what its machine code and the counters of a launch say.
    ///
    /// # Errors
    /// As [`ExecutionPlan::execute`]; `BadParam` on a device that neither times nor counts;
    /// `NotSupported` for kernels that spill, where they are not timed.
    pub fn measure(&mut self, plan: &ExecutionPlan) -> Result<f64> {
        let (kiln, graph) = (self.kiln, plan.graph());
        let known = self.inputs.take().filter(|(of, _)| *of == graph.digest());
        let (_, inputs) = self.inputs.insert(match known {
            Some(known) => known,
            None => (graph.digest(), random_values(graph, SEED)?),
        });
        let device = kiln.device();
        if device.kind() == "cuda" {
            return kiln.timed(plan, inputs);
        }
        let spilled = |kernel: &&PlannedKernel| kernel.report().resources.spill_bytes > 0;
        if let Some(kernel) = plan.kernels().iter().find(spilled) {
            let (config, bytes) = (kernel.config(), kernel.report().resources.spill_bytes);
            return Err(Error::not_supported(format!(
                "{config} spills {bytes} bytes of registers per thread, which counts do not show"
            )));
        }
        let machine = machine_of(device.target());
        let counters = kiln.trial(plan, inputs)?.counters;
        let launched = plan.kernels().iter().filter(|kernel| kernel.launch().grid > 0).count();
        // Counters do not include the gaps between kernels.
        let mut us = LAUNCH_US * launched.saturating_sub(1) as f64;
        for (kernel, counters) in plan.kernels().iter().zip(&counters) {
            if kernel.launch().grid == 0 {
                continue;
            }
            let counters = counters.as_ref().ok_or_else(|| {
                Error::bad_param("tuning needs a GPU, or a simulated device that counts")
            })?;
            us += estimated_us(kernel, counters, device.target(), &machine);
        }
        Ok(us)
    }
}

impl Kiln {
    /// Measures up to `settings_max` configurations of each part of a graph, those with the
    /// shortest predicted times, and records the best.
    ///
    /// # Errors
    /// As [`Kiln::plan`]; `BadParam` on a device that neither times nor counts: the null device,
    /// or the simulator without [`Config::count`](crate::plan::Config::count); `DeviceLost` when a
    /// kernel faults on a GPU, after which nothing can be measured.
    pub fn tune(
        &self,
        graph: &OperationGraph,
        settings_max: usize,
        progress: impl FnMut(TuneProgress<'_>),
    ) -> Result<Vec<Tuned>> {
        let mut trials = Trials::new(self);
        self.tune_by(graph, settings_max, |plan| trials.measure(plan), progress)
    }

    /// As [`Kiln::tune`], by trials made elsewhere, such as in a process that may be lost with its
    /// device: `trial` gives the time of a plan in microseconds.
    ///
    /// # Errors
    /// As [`Kiln::plan`]; `DeviceLost` when a trial returns it. What else a trial returns is noted
    /// with the configuration ([`Tried::refused`]).
    pub fn tune_by(
        &self,
        graph: &OperationGraph,
        settings_max: usize,
        mut trial: impl FnMut(&ExecutionPlan) -> Result<f64>,
        mut progress: impl FnMut(TuneProgress<'_>),
    ) -> Result<Vec<Tuned>> {
        let target = self.device().target();
        let rules = Selection { mode: Mode::A, ..self.inner.selection.clone() };
        let parts = partition(graph, target, &rules)?;
        let tuned = parts
            .into_iter()
            .map(|part| self.tune_part(part, settings_max, &mut trial, &mut progress))
            .collect::<Result<Vec<_>>>()?;
        // The next plan of this graph uses the record.
        self.plans.remove(&graph.digest());
        Ok(tuned)
    }

    fn tune_part(
        &self,
        part: Part,
        settings_max: usize,
        trial: &mut dyn FnMut(&ExecutionPlan) -> Result<f64>,
        progress: &mut dyn FnMut(TuneProgress<'_>),
    ) -> Result<Tuned> {
        let target = self.device().target();
        let model = Selection { mode: Mode::B, ..self.inner.selection.clone() };
        let mut wanted = choices(part.graph.canonical(), target, &model)?;
        let own = wanted.iter().position(|choice| choice.config == part.config);
        let own = own.map(|at| wanted.remove(at));
        wanted.truncate(settings_max.saturating_sub(1));
        wanted.insert(
            0,
            own.unwrap_or_else(|| Choice { config: part.config.clone(), predicted_us: None }),
        );
        self.compile_all_of(&part, &wanted, progress)?;
        let total = wanted.len();
        let mut tried = Vec::new();
        let mut heuristic_us = None;
        for (done, Choice { config, predicted_us, .. }) in wanted.iter().enumerate() {
            let own = Part { graph: part.graph.clone(), config: config.clone() };
            let plan = self.plan_parts(&part.graph, vec![own]);
            let measured = plan.and_then(|plan| trial(&plan));
            if done == 0 {
                heuristic_us = measured.as_ref().ok().copied();
            }
            let (us, refused) = match measured {
                Ok(us) => (Some(us), None),
                // What comes after it could not be measured, and no result is the best of all.
                Err(error) if error.kind() == ErrorKind::DeviceLost => {
                    return Err(error.context(format_args!("measuring {config}")));
                }
                Err(error) => (None, Some(error.to_string())),
            };
            let (config, predicted_us) = (config.to_string(), *predicted_us);
            progress(TuneProgress { done: done + 1, total, what: &config });
            tried.push(Tried { config, predicted_us, us, refused });
        }
        let us = |of: &Tried| of.us.unwrap_or(f64::INFINITY);
        // A stable sort: among equals the heuristic's comes first.
        tried.sort_by(|a, b| us(a).total_cmp(&us(b)));
        let best = &tried[0];
        let Some(us) = best.us else {
            let refused = best.refused.clone().unwrap_or_default();
            return Err(Error::not_supported(format!(
                "no configuration could be measured: {refused}"
            )));
        };
        let part = Part { config: best.config.parse()?, ..part };
        let mut tuned = Tuned { part, us, heuristic_us, tried, path: None };
        tuned.path = self.keep(&tuned);
        Ok(tuned)
    }

    /// Compiles the kernels of all configurations in parallel into the disk cache. Without one,
    /// each is compiled when it is measured.
    fn compile_all_of(
        &self,
        part: &Part,
        wanted: &[Choice],
        progress: &mut dyn FnMut(TuneProgress<'_>),
    ) -> Result<()> {
        if self.disk_cache().is_none() {
            return Ok(());
        }
        let mut jobs = Vec::new();
        for Choice { config, .. } in wanted {
            let part = Part { graph: part.graph.clone(), config: config.clone() };
            // A configuration that cannot be lowered is refused when it is measured.
            jobs.extend(self.jobs_of(&part, self.device().target()).unwrap_or_default());
        }
        let jobs: Vec<&Job> = jobs.iter().collect();
        let (mut done, total) = (0, jobs.len());
        self.find_or_compile(&jobs, &mut HashMap::new(), &mut |stem| {
            done += 1;
            progress(TuneProgress { done, total, what: stem });
        })?;
        Ok(())
    }

    /// The median time of [`TIMED`] launches on a GPU, in microseconds.
    fn timed(&self, plan: &ExecutionPlan, inputs: &Values) -> Result<f64> {
        let (pack, _buffers) = self.bound(plan, inputs)?;
        let stream = self.stream();
        let once = |stream: &Stream, pack: &VariantPack| {
            let start = stream.record()?;
            plan.execute(stream, pack)?;
            Ok(Duration::from_secs_f64(stream.record()?.elapsed_ms(&start)? / 1e3))
        };
        for _ in 0..WARM_UP {
            once(&stream, &pack)?;
        }
        let mut times =
            (0..TIMED).map(|_| once(&stream, &pack)).collect::<Result<Vec<Duration>>>()?;
        times.sort();
        Ok(times[TIMED / 2].as_secs_f64() * 1e6)
    }

    /// Records a result in the cache folder; a failure is a warning.
    fn keep(&self, tuned: &Tuned) -> Option<PathBuf> {
        let target = self.device().target();
        let graph = tuned.part.graph.to_json();
        let record = SettingRecord {
            measurement: Measurement::of(self.device(), target, tuned.us, tuned.heuristic_us),
            config: tuned.part.config.to_string(),
            tried: tuned.tried.clone(),
            problem: serde_json::from_str(&graph).expect("a graph's JSON is valid"),
        };
        record.keep(self.disk_cache()?, &tuned.part.graph)
    }
}
