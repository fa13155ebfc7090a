//! The engine `convolution_direct`: each element of the result by one thread.

use crate::engine::access::{ceil_div, stored_bytes, volume};
use crate::engine::convolution::parameters::{Parameters, ROLES};
use crate::engine::convolution::problem::Problem;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::decompose::Decomposed;
use crate::engine::header::KernelNames;
use crate::engine::items::{Item, blocks, launch};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::{CanonicalGraph, ConvolutionPass, MatmulMath};
use crate::kernel::{KernelPlan, Lowering};
use crate::target::Target;

const NAME: &str = "convolution_direct";

/// Threads that hide each other's latency: four blocks of 256 on every SM.
const THREADS_SM: i64 = 1024;

/// The engine `convolution_direct`: every convolution, each element by one thread.
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

impl Tunable<2> for Direct<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let items = "neighbouring channels that a thread computes";
        [
            Knob { name: "items", about: items, values: vec![1, 2, 4, 8] },
            Knob { name: "threads", about: "threads per block", values: vec![128, 256] },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        Ok(settings)
    }

    fn best(&self) -> Settings {
        let problem = self.problem();
        let axes = &problem.epilogue.axes;
        let channels = if axes.inner == 1 { axes.groups } else { axes.inner };
        let wanted = THREADS_SM * i64::from(self.target.sm_count);
        let pays = |items: &i64| *items <= channels && points(&problem, *items) >= wanted;
        let double = problem.op.math == MatmulMath::F64;
        let most = if double { 2 } else { 4 };
        let items = [8, 4, 2].into_iter().find(|items| *items <= most && pays(items)).unwrap_or(1);
        Settings { items, threads: 256 }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { items, threads } = self.best();
        vec![
            format!("items={items}: the most that leave every SM {THREADS_SM} threads"),
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
        let multiply_adds = problem.multiply_adds();
        let apart = problem.item() == Item::Group;
        // A load of each operand, one of them shared by all items unless these are groups.
        let loads = multiply_adds * if apart { 2.0 } else { 1.0 + 1.0 / items as f64 };
        // Its address and conversion; groups of one channel have a tap's coordinates for each,
        // too: 125 instructions for 9 taps of f16, 1 and 4 items (MobileNet-v2's layers).
        let load = if apart { 5.0 } else { 2.0 };
        // A gradient of an image asks all taps, of which those meet that are a stride apart.
        let asked = match problem.op.pass {
            ConvolutionPass::BackwardData => volume(&problem.window.filter_strides) as f64,
            _ => 1.0,
        };
        let operations = problem.graph.operations.len() as f64 * INSTRUCTIONS_OPERATION;
        let elements = volume(&problem.graph.tensors[problem.epilogue.tensor].dims) as f64;
        let double = problem.op.math == MatmulMath::F64;
        let arithmetic = multiply_adds + operations * elements;
        vec![KernelWork {
            blocks: ceil_div(points, threads) as u64,
            threads: threads as u32,
            registers: 40 + 4 * items as u32,
            shared_bytes: 0,
            dram_bytes,
            // Half of the loads are of what a neighbour or the last iteration read.
            l2_bytes: dram_bytes.max(loads),
            in_flight_bytes: (threads * (items + 1) * 4) as f64,
            round_trips: 1.0,
            lane_instructions: load * loads * asked + if double { 0.0 } else { arithmetic },
            f64_instructions: if double { arithmetic } else { 0.0 },
            tensor: None,
        }]
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let problem = self.problem();
        let graph = problem.graph;
        let output = problem.epilogue.program.outputs[0];
        let pass = ROLES[problem.op.pass as usize].1;
        let names = KernelNames {
            stem: format!("sm75_convolution_{}_direct_{pass}", graph.tensors[output].dtype),
            template: "convolution/sm75_convolution_direct.cu",
            entry: "convolution",
        };
        let points = points(&problem, settings.items);
        let spec = names.spec(self.target.arch, &Parameters::of(&problem, *settings));
        let launch = launch(graph, points, settings.threads, &problem.passed());
        Lowering::from(KernelPlan { spec, launch })
    }
}
