//! The engine `convolution_depthwise`: groups of one channel, by threads that walk along rows.

use crate::engine::access::{ACCESS_BYTES_MAX, ceil_div, stored_bytes, volume};
use crate::engine::convolution::depthwise_parameters::Parameters;
use crate::engine::convolution::parameters::ROLES;
use crate::engine::convolution::problem::Problem;
use crate::engine::convolution::walk::{GAIN_MIN, Walk, of_few_registers};
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::decompose::Decomposed;
use crate::engine::header::KernelNames;
use crate::engine::items::{Item, blocks, launch};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, ConvolutionPass, MatmulMath};
use crate::kernel::{KernelPlan, Lowering};
use crate::target::Target;

const NAME: &str = "convolution_depthwise";

/// Threads that hide each other's latency, and those of [`REGISTERS_BUSY`] that an SM has at a
/// time: six blocks of 128.
const THREADS_SM: i64 = 768;

/// The most registers that are expected of a thread of which an SM has enough.
const REGISTERS_BUSY: i64 = 88;

/// Registers of a thread besides those of its filter, sums and elements: ptxas takes 14 to 28.
const REGISTERS_OWN: i64 = 24;

/// The most registers that a setting is expected to take, below which nothing spills.
const REGISTERS_MAX: i64 = 200;

/// The engine `convolution_depthwise`.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct DepthwiseEngine;

impl Engine for DepthwiseEngine {
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
        let problem = Problem::of(decomposed.graph(), target.arch.capability)?.planar();
        if problem.op.pass == ConvolutionPass::BackwardFilter {
            return Err(Error::not_supported("the gradient of a filter".to_owned()));
        }
        Walk::of(&problem)?;
        let depthwise = Depthwise { decomposed, target };
        let best = depthwise.best();
        Ok(Box::new(Tuned::of(depthwise, [best])?))
    }
}

settings! { pub(super) struct Settings { items, rows, strip, threads } }

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Depthwise<'a> {
    decomposed: Decomposed<'a>,
    target: &'a Target,
}

impl Depthwise<'_> {
    fn problem(&self) -> Problem<'_> {
        let graph = self.decomposed.graph();
        let problem = Problem::of(graph, self.target.arch.capability);
        problem.expect("the engine supports the graph").planar()
    }

    /// Threads that have work.
    fn points(&self, problem: &Problem<'_>, settings: Settings) -> i64 {
        let axes = settings.strips(&walk_of(problem), &problem.epilogue.axes);
        volume(&blocks(&axes, problem.item(), settings.items))
    }

    /// The most neighbouring channels of an access.
    fn items_max(&self, problem: &Problem<'_>) -> i64 {
        let graph = problem.graph;
        let output = problem.epilogue.program.outputs[0];
        let bytes = graph.tensors[output].dtype.bytes() as i64;
        let strides = problem.epilogue.strides(graph, output);
        let (along, channels) = match problem.item() {
            Item::Group => (strides.map_or(0, |of| of.group), problem.shape.groups),
            _ => (strides.map_or(0, |of| of.inner), problem.epilogue.axes.inner),
        };
        if along == 1 { (ACCESS_BYTES_MAX / bytes).min(channels) } else { 1 }
    }
}

fn walk_of(problem: &Problem<'_>) -> Walk {
    Walk::of(problem).expect("the engine supports the graph")
}

/// Registers that a thread is expected to take.
fn registers(problem: &Problem<'_>, walk: &Walk, settings: Settings) -> i64 {
    let words = if problem.op.math == MatmulMath::F64 { 2 } else { 1 };
    let Settings { items, strip, .. } = settings;
    let elements =
        volume(&[walk.summed, walk.taps[0], walk.taps[1]]).saturating_add(walk.sums(strip));
    REGISTERS_OWN.saturating_add(elements.saturating_add(1).saturating_mul(words * items))
}

impl Tunable<4> for Depthwise<'_> {
    const KNOBS: [&'static str; 4] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 4] {
        let knob = |name, about, values: &[i64]| Knob { name, about, values: values.to_vec() };
        [
            knob("items", "neighbouring channels that a thread computes", &[1, 2, 4, 8]),
            knob("rows", "rows of the response or image that a thread walks", &[1, 4, 8, 16, 32]),
            knob("strip", "neighbouring columns of these that a thread has", &[1, 2, 4, 8]),
            knob("threads", "threads per block", &[128, 256]),
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        let problem = self.problem();
        match registers(&problem, &walk_of(&problem), settings) {
            0..=REGISTERS_MAX => Ok(settings),
            needed => Err(format!("needs {needed} registers, a thread has {REGISTERS_MAX}")),
        }
    }

    fn best(&self) -> Settings {
        let problem = self.problem();
        let wanted = THREADS_SM * i64::from(self.target.sm_count);
        let walk = walk_of(&problem);
        let [height, width] = walk.walked();
        let needed = |of: &Settings| registers(&problem, &walk, *of);
        let most = self.items_max(&problem);
        let all = [8, 4, 2, 1].into_iter().filter(|items| *items <= most);
        let all = all.flat_map(|items| [4, 2, 1].map(|strip| (items, strip)));
        let all: Vec<Settings> = all
            .flat_map(|(items, strip)| {
                [32, 16, 8, 4].map(|rows| Settings { items, rows, strip, threads: 128 })
            })
            .filter(|of| of.strip < 2 * width && (of.rows < 2 * height || of.rows == 4))
            .filter(|of| needed(of) <= REGISTERS_MAX)
            .collect();
        let light = of_few_registers(all, needed, REGISTERS_BUSY);
        let points = |of: &Settings| self.points(&problem, *of);
        // Steps of all waves of threads that follow each other on an SM.
        let steps = |of: &Settings| ceil_div(points(of), wanted) * (of.rows + walk.ages() - 1);
        let busy = light.iter().find(|of| points(of) >= wanted).and_then(|first| {
            let alike = |of: &&Settings| (of.items, of.strip) == (first.items, first.strip);
            light.iter().filter(alike).filter(|of| points(of) >= wanted).min_by_key(|of| steps(of))
        });
        // Of too little work for the device, that of the most threads.
        let spread = light.iter().max_by_key(|of| points(of));
        let one = Settings { items: 1, rows: 1, strip: 1, threads: 128 };
        busy.or(spread).copied().unwrap_or(one)
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { items, rows, strip, threads } = self.best();
        vec![
            format!(
                "items={items}: up to an access of 16 bytes, if every SM has {THREADS_SM} threads"
            ),
            format!("rows={rows}: the fewest steps of those that leave them; a row is read once"),
            format!(
                "strip={strip}: columns that share what they read, with {REGISTERS_BUSY} registers"
            ),
            format!("threads={threads}: whole warps that share what they read in L1"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![
            Settings { strip: settings.strip / 2, ..settings },
            Settings { items: settings.items / 2, ..settings },
        ]
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        let problem = self.problem();
        let walk = walk_of(&problem);
        let Settings { items, rows, strip, threads } = *settings;
        let points = self.points(&problem, *settings);
        let dram_bytes = stored_bytes(problem.graph);
        let steps = rows + walk.ages() - 1;
        // What a thread reads: its rows, as wide as its strip and the taps around it.
        let read = volume(&[points, steps, walk.rows_step(), walk.span(strip), walk.summed]) as f64;
        let source = &problem.graph.tensors[problem.operands[walk.source].tensor];
        let width = source.dtype.bytes() as f64;
        let taps = volume(&[walk.summed, walk.taps[0], walk.taps[1]]);
        let multiply_adds = volume(&[points, steps, strip, items, taps]) as f64;
        let operations = problem.graph.operations.len() as f64 * INSTRUCTIONS_OPERATION;
        let elements = volume(&problem.graph.tensors[problem.epilogue.tensor].dims) as f64;
        let double = problem.op.math == MatmulMath::F64;
        let arithmetic = multiply_adds + operations * elements;
        vec![KernelWork {
            blocks: ceil_div(points, threads) as u64,
            threads: threads as u32,
            registers: registers(&problem, &walk, *settings) as u32,
            shared_bytes: 0,
            dram_bytes,
            // Half of what neighbours share lies in L1.
            l2_bytes: dram_bytes.max(read * items as f64 * width / 2.0),
            in_flight_bytes: (threads * walk.span(strip) * items) as f64 * width,
            round_trips: steps as f64,
            // An address and a check of its bounds, and the conversion of each element.
            lane_instructions: read * (4.0 + items as f64) + if double { 0.0 } else { arithmetic },
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
            stem: format!("sm75_convolution_{}_depthwise_{pass}", graph.tensors[output].dtype),
            template: match walk_of(&problem).spread {
                true => "convolution/sm75_convolution_depthwise_spread.cu",
                false => "convolution/sm75_convolution_depthwise.cu",
            },
            entry: "convolution",
        };
        let points = self.points(&problem, *settings);
        let registers = registers(&problem, &walk_of(&problem), *settings);
        let parameters = Parameters::of(&problem, *settings, registers);
        let spec = names.spec(self.target.arch, &parameters);
        let launch = launch(graph, points, settings.threads, &problem.passed());
        Lowering::from(KernelPlan { spec, launch })
    }
}
