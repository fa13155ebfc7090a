//! Copies between tensors and slices of others at positions that the device knows: one kernel for
//! all copies of an operation, each of which has blocks of its own, so that none waits for another.

mod parameters;
mod problem;

use crate::engine::access::ceil_div;
use crate::engine::dynamic_slice::parameters::Parameters;
use crate::engine::dynamic_slice::problem::Problem;
use crate::engine::header::KernelNames;
use crate::engine::signature::arguments;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "dynamic_slice";

const THREADS: [i64; 3] = [128, 256, 512];

/// Threads that keep an SM's memory accesses in flight.
const THREADS_SM: i64 = 2048;

settings! { pub(super) struct Settings { threads } }

/// The engine `dynamic_slice`: every dynamic slice of tensors in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct DynamicSliceEngine;

impl Engine for DynamicSliceEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let slices = Slices { problem: Problem::of(graph, target.arch.capability)?, target };
        let best = slices.best();
        Ok(Box::new(Tuned::of(slices, [best])?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Slices<'a> {
    problem: Problem<'a>,
    target: &'a Target,
}

impl Slices<'_> {
    /// Blocks of all copies: as many of each as the largest has work for, and the GPU holds.
    fn blocks(&self, threads: i64) -> i64 {
        let copies = self.problem.copied().count() as i64;
        let most = i64::from(self.target.sm_count) * (THREADS_SM / threads);
        let of_each = ceil_div(self.problem.widest(), threads).min((most / copies.max(1)).max(1));
        copies * of_each
    }
}

impl Tunable<1> for Slices<'_> {
    const KNOBS: [&'static str; 1] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 1] {
        [Knob { name: "threads", about: "threads per block", values: THREADS.to_vec() }]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        Ok(settings)
    }

    fn best(&self) -> Settings {
        Settings { threads: THREADS[1] }
    }

    fn reasons(&self) -> Vec<String> {
        let (Settings { threads }, accesses) = (self.best(), self.problem.widest());
        vec![format!("threads={threads}: {accesses} accesses of the largest copy spread over SMs")]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![Settings { threads: settings.threads / 2 }]
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        let Settings { threads } = *settings;
        let (bytes, accesses) = (self.problem.bytes(), self.problem.accesses());
        vec![KernelWork {
            blocks: self.blocks(threads) as u64,
            threads: threads as u32,
            registers: 32,
            shared_bytes: 0,
            dram_bytes: bytes,
            l2_bytes: bytes,
            in_flight_bytes: (threads * 16) as f64,
            // The position, then the elements.
            round_trips: 2.0,
            lane_instructions: INSTRUCTIONS_ACCESS * accesses,
            f64_instructions: 0.0,
            tensor: None,
        }]
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let Slices { problem, target } = self;
        let dtype = problem.tensor(problem.copies[0].x).dtype;
        let names = KernelNames {
            stem: format!("sm75_dynamic_slice_{dtype}_{}", problem.copies.len()),
            template: "dynamic_slice/sm75_dynamic_slice.cu",
            entry: "dynamic_slice",
        };
        let spec = names.spec(target.arch, &Parameters::of(problem, settings.threads));
        let launch = LaunchPlan {
            grid: Grid::fixed(self.blocks(settings.threads) as u32),
            threads: settings.threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: arguments(problem.graph, problem.passed().iter()),
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        KernelPlan { spec, launch }.into()
    }
}

/// Coordinates, addresses, a load and a store.
const INSTRUCTIONS_ACCESS: f64 = 24.0;
