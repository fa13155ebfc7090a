//! Pointwise loops: one kernel, in which a thread carries the states of an element from trip to
//! trip in registers.
//!
//! What is iterated is read once and what is stacked written once; neighbours are read by
//! neighbouring threads. Of a loop that only counts, the elements of several trips are read before
//! the first of them is used. States with fewer elements than others are computed by every thread
//! that reads them, and written by one.

mod parameters;
mod problem;

use crate::engine::access::{GRID_MAX, ceil_div, stored_bytes};
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::header::KernelNames;
use crate::engine::pointwise_loop::parameters::Parameters;
use crate::engine::pointwise_loop::problem::Problem;
use crate::engine::signature::arguments;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "pointwise_loop";

const THREADS: [i64; 4] = [64, 128, 256, 512];

/// Trips whose elements are in flight together.
const AHEAD: [i64; 3] = [1, 4, 8];

/// Trips that a loop is taken to make where no tensor says how many.
const TRIPS_USUAL: i64 = 64;

settings! { pub(super) struct Settings { ahead, threads } }

/// The engine `pointwise_loop`: every pointwise loop of tensors with elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct PointwiseLoopEngine;

impl Engine for PointwiseLoopEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let problem = Problem::of(graph, target.arch.capability)?;
        let own = Loop { problem, target };
        let best = own.best();
        Ok(Box::new(Tuned::of(own, [best])?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Loop<'a> {
    problem: Problem<'a>,
    target: &'a Target,
}

impl Loop<'_> {
    /// Values of the knob `ahead`: one where nothing is iterated, or a condition must be known.
    fn ahead(&self) -> &'static [i64] {
        let op = self.problem.op;
        if op.frame.condition || op.frame.iterated.is_empty() { &AHEAD[..1] } else { &AHEAD }
    }
}

impl Tunable<2> for Loop<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let ahead = "trips whose elements are read before the first of them is used";
        [
            Knob { name: "ahead", about: ahead, values: self.ahead().to_vec() },
            Knob { name: "threads", about: "threads per block", values: THREADS.to_vec() },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        let blocks = ceil_div(self.problem.elements, settings.threads);
        match blocks > GRID_MAX {
            true => Err(format!("needs {blocks} blocks, more than a grid has")),
            false => Ok(settings),
        }
    }

    /// Small blocks until every SM has one, and as many trips ahead as there is memory traffic to
    /// hide.
    fn best(&self) -> Settings {
        let spread = |threads: &i64| {
            ceil_div(self.problem.elements, *threads) >= i64::from(self.target.sm_count)
        };
        let threads = THREADS[..3].iter().rev().copied().find(spread).unwrap_or(THREADS[0]);
        let ahead = self.ahead();
        Settings { ahead: ahead[ahead.len() / 2], threads }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { ahead, threads } = self.best();
        let (elements, sms) = (self.problem.elements, self.target.sm_count);
        let op = self.problem.op;
        let why = match (op.frame.condition, op.frame.iterated.is_empty()) {
            (true, _) => "its condition is computed in each trip",
            (_, true) => "nothing is iterated",
            _ => "reads of several trips are in flight",
        };
        vec![
            format!("ahead={ahead}: {why}"),
            format!("threads={threads}: {elements} elements on {sms} SMs"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![
            Settings { ahead: settings.ahead / 2, ..settings },
            Settings { threads: settings.threads / 2, ..settings },
        ]
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        let Problem { op, graph, elements, .. } = &self.problem;
        let trips = self.problem.tensors.trips(self.problem.graph).unwrap_or(TRIPS_USUAL) as f64;
        let lines = op.program.instructions().len() as f64 + 4.0;
        let instructions = INSTRUCTIONS_OPERATION * lines * trips * *elements as f64;
        let bytes = stored_bytes(*graph);
        let values =
            op.frame.states + op.frame.captured + op.frame.iterated.len() * settings.ahead as usize;
        let is_double = self.problem.is_double();
        vec![KernelWork {
            blocks: ceil_div(*elements, settings.threads) as u64,
            threads: settings.threads as u32,
            registers: (24 + values + op.program.instructions().len().min(32)) as u32,
            shared_bytes: 0,
            dram_bytes: bytes,
            l2_bytes: bytes,
            in_flight_bytes: (settings.threads * 4 * settings.ahead) as f64,
            round_trips: 2.0 + trips / settings.ahead as f64,
            lane_instructions: instructions,
            f64_instructions: if is_double { instructions } else { 0.0 },
            tensor: None,
        }]
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let Loop { problem, target } = self;
        let dtype = problem.op.program.inputs()[0].dtype();
        let names = KernelNames {
            stem: format!("sm75_pointwise_loop_{dtype}"),
            template: "pointwise/sm75_pointwise_loop.cu",
            entry: "pointwise_loop",
        };
        let spec = names.spec(target.arch, &Parameters::of(problem, *settings));
        let launch = LaunchPlan {
            grid: Grid::fixed(ceil_div(problem.elements, settings.threads) as u32),
            threads: settings.threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: arguments(problem.graph, problem.tensors.passed().iter()),
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        Lowering::from(KernelPlan { spec, launch })
    }
}
