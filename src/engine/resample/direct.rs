//! The engine `resample_direct`: each element of the result by one thread.

use crate::dtype::DType;
use crate::engine::access::{ceil_div, stored_bytes, volume};
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::decompose::Decomposed;
use crate::engine::header::KernelNames;
use crate::engine::items::{Item, blocks, launch};
use crate::engine::resample::parameters::Parameters;
use crate::engine::resample::problem::Problem;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::{CanonicalGraph, ResamplePass};
use crate::kernel::{KernelPlan, Lowering};
use crate::target::Target;

const NAME: &str = "resample_direct";

/// Threads that hide each other's latency: four blocks of 256 on every SM.
const THREADS_SM: i64 = 1024;

/// Bytes of the widest access.
const ACCESS_BYTES: i64 = 16;

/// The engine `resample_direct`: every resampling, each element by one thread.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct DirectEngine;

impl Engine for DirectEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn adds_in_place(&self, _is_whole: bool) -> bool {
        true
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let decomposed = Decomposed::of(graph)?;
        Problem::of(decomposed.graph(), target.arch.capability)?;
        let direct = Direct { decomposed, target };
        let best = direct.best();
        Ok(Box::new(Tuned::of(direct, [best])?))
    }
}

settings! { pub(super) struct Settings { items, threads } }

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Direct<'a> {
    decomposed: Decomposed<'a>,
    target: &'a Target,
}

impl Direct<'_> {
    fn problem(&self) -> Problem<'_> {
        let graph = self.decomposed.graph();
        Problem::of(graph, self.target.arch.capability).expect("the engine supports the graph")
    }
}

/// Elements of the result, those that a thread computes counted once.
fn points(problem: &Problem<'_>, items: i64) -> i64 {
    volume(&blocks(&problem.epilogue.axes, problem.item(), items))
}

/// Bytes of a tensor that is accessed the most widely.
fn bytes(problem: &Problem<'_>, at: usize) -> i64 {
    problem.graph.tensors[at].dtype.bytes() as i64
}

impl Tunable<2> for Direct<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let items = "neighbouring channels or columns that a thread computes";
        [
            Knob { name: "items", about: items, values: vec![1, 2, 4, 8, 16] },
            Knob { name: "threads", about: "threads per block", values: vec![128, 256] },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        Ok(settings)
    }

    fn best(&self) -> Settings {
        let problem = self.problem();
        let extent = match problem.item() {
            Item::Spatial(at) => problem.epilogue.axes.spatial[at],
            _ => problem.epilogue.axes.inner,
        };
        let wanted = THREADS_SM * i64::from(self.target.sm_count);
        let read = problem.operands.iter().flat_map(|fusion| fusion.inputs());
        let stored = problem.epilogue.program.outputs.iter().copied();
        let widest = read.chain(stored).map(|at| bytes(&problem, at)).max().unwrap_or(1);
        // Quotients of 64 bits are calls, around which registers of more items are spilled.
        let most = if problem.reach() < 1 << 31 { ACCESS_BYTES } else { ACCESS_BYTES / 4 };
        let pays = |items: &i64| {
            *items <= extent && *items * widest <= most && points(&problem, *items) >= wanted
        };
        let items = [8, 4, 2].into_iter().find(pays).unwrap_or(1);
        Settings { items, threads: 256 }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { items, threads } = self.best();
        vec![
            format!("items={items}: an access of 16 bytes, if every SM has {THREADS_SM} threads"),
            format!("threads={threads}: whole warps that share what they read in L1"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![Settings { items: settings.items / 2, ..settings }]
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        let problem = self.problem();
        let Settings { items, threads } = *settings;
        let points = points(&problem, items);
        let dram_bytes = stored_bytes(problem.graph);
        let taps = problem.taps();
        let operations = problem.graph.operations.len() as f64 * INSTRUCTIONS_OPERATION;
        let elements = volume(&problem.graph.tensors[problem.epilogue.tensor].dims) as f64;
        let double = problem.op.math.dtype() == DType::F64;
        // A comparison or an addition, and the conversion of the element that is read.
        let arithmetic = 2.0 * taps + operations * elements;
        let width = problem.graph.tensors[problem.operands[0].tensor].dtype.bytes() as f64;
        let loads = taps / if matches!(problem.item(), Item::Inner) { items as f64 } else { 1.0 };
        vec![KernelWork {
            blocks: ceil_div(points, threads) as u64,
            threads: threads as u32,
            registers: 32 + 6 * items as u32,
            shared_bytes: 0,
            dram_bytes,
            // Half of what windows read lies in L1, where a neighbour read it.
            l2_bytes: dram_bytes.max(taps * width / 2.0),
            in_flight_bytes: (threads * items * 4) as f64,
            round_trips: 1.0,
            // A load has its address and the check of its bounds along each dimension.
            lane_instructions: (2.0 + 2.0 * problem.lines.len() as f64) * loads
                + if double { 0.0 } else { arithmetic },
            f64_instructions: if double { arithmetic } else { 0.0 },
            tensor: None,
        }]
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let problem = self.problem();
        let graph = problem.graph;
        let output = problem.epilogue.program.outputs[0];
        let (dtype, mode) = (graph.tensors[output].dtype, problem.op.mode.name());
        let pass = match problem.op.pass {
            ResamplePass::Forward => "forward",
            ResamplePass::Backward => "backward",
        };
        let names = KernelNames {
            stem: format!("sm75_resample_{dtype}_direct_{mode}_{pass}"),
            template: "resample/sm75_resample_direct.cu",
            entry: "resample",
        };
        let points = points(&problem, settings.items);
        let spec = names.spec(self.target.arch, &Parameters::of(&problem, *settings));
        let launch = launch(graph, points, settings.threads, &problem.passed());
        Lowering::from(KernelPlan { spec, launch })
    }
}
