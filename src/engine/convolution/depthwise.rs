//! The engine `convolution_depthwise`: groups of one channel, by threads that walk along rows.

use crate::engine::access::{ACCESS_BYTES_MAX, ceil_div, stored_bytes, volume};
use crate::engine::convolution::depthwise_parameters::Parameters;
use crate::engine::convolution::parameters::ROLES;
use crate::engine::convolution::problem::Problem;
use crate::engine::convolution::walk::{GAIN_MIN, Walk};
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::decompose::Decomposed;
use crate::engine::header::KernelNames;
use crate::engine::items::{Item, WIDE_FROM, blocks, launch};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, CostModel, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, ConvolutionPass, MatmulMath};
use crate::kernel::{KernelPlan, Lowering};
use crate::target::Target;

const NAME: &str = "convolution_depthwise";

/// Registers of a thread besides those of its filter, sums and elements: ptxas takes 14 to 28.
const REGISTERS_OWN: i64 = 24;

/// The most registers that a setting is expected to take, below which nothing spills.
const REGISTERS_MAX: i64 = 200;

/// What offsets of 64 bits take more.
const REGISTERS_WIDE: i64 = 16;

/// The most that the rules choose: what is fused, and addresses of 64 bits, take more.
const REGISTERS_CHOSEN: i64 = 152;

/// The fewest rows that a thread walks along, if it is not the only setting.
const ROWS_MIN: i64 = 4;

/// Instructions of a thread at a step, beside its multiplications and the sums that it moves on: an
/// access, an item and what all share, of each column that is read and of each result; and clocks
/// that it waits, alone. From the machine code of 880 settings of 12 layers for sm_90, which these
/// tell the order of: what they choose takes 1.03 times as long as the best, at most 1.21 times.
const READ: [f64; 3] = [3.0, 6.0, 4.0];
const STORED: [f64; 3] = [2.0, 3.0, 6.0];
const STEP: f64 = 4.0;
const CLOCKS_INSTRUCTION: f64 = 0.65;
const CLOCKS_STEP: f64 = 260.0;

/// Warps of an SM that issue at a time.
const SCHEDULERS: f64 = 4.0;

/// The most channels of a thread that are not beside each other.
const ITEMS_APART_MAX: i64 = 4;

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

    /// The most channels of a thread, and whether they are beside each other.
    fn items_max(&self, problem: &Problem<'_>) -> (i64, bool) {
        let graph = problem.graph;
        let output = problem.epilogue.program.outputs[0];
        let bytes = graph.tensors[output].dtype.bytes() as i64;
        let strides = problem.epilogue.strides(graph, output);
        let (along, channels) = match problem.item() {
            Item::Group => (strides.map_or(0, |of| of.group), problem.shape.groups),
            _ => (strides.map_or(0, |of| of.inner), problem.epilogue.axes.inner),
        };
        let most = if along == 1 { ACCESS_BYTES_MAX / bytes } else { ITEMS_APART_MAX };
        (most.min(channels), along == 1)
    }

    /// Instructions of a thread at a step.
    fn step_instructions(&self, problem: &Problem<'_>, walk: &Walk, of: Settings) -> f64 {
        let (items, (_, beside)) = (of.items as f64, self.items_max(problem));
        let accesses = if beside { 1.0 } else { items };
        let each = |[access, item, own]: [f64; 3]| access * accesses + item * items + own;
        let count = |extents: &[i64]| volume(extents) as f64;
        let read = count(&[walk.span(of.strip), walk.rows_step(), walk.summed]);
        let taps = count(&[walk.summed, walk.taps[0], walk.taps[1]]);
        let sums = walk.sums(of.strip) as f64;
        let results = sums / walk.ages() as f64;
        let multiplied = taps * of.strip as f64 * items;
        multiplied + read * each(READ) + results * each(STORED) + sums * items + STEP
    }

    /// Steps of a thread at which it reads.
    fn steps(&self, walk: &Walk, of: Settings) -> f64 {
        walk.rows_read(of.rows) / walk.rows_step() as f64
    }

    /// Clocks that a setting takes: of what the warps of an SM issue, or memory, beside what one of
    /// them waits.
    fn clocks(
        &self,
        model: &CostModel,
        (problem, walk): (&Problem<'_>, &Walk),
        of: Settings,
    ) -> f64 {
        let blocks = ceil_div(self.points(problem, of), of.threads) as f64;
        let sms = f64::from(self.target.sm_count);
        let resident = model.resident(of.threads, registers(problem, walk, of), 0);
        let instructions = self.step_instructions(problem, walk, of);
        let warps = (blocks / sms).ceil() * (of.threads / 32) as f64;
        let issued = warps * self.steps(walk, of) * instructions / SCHEDULERS;
        let steps = (of.rows + walk.ages() - 1) as f64;
        let waits = CLOCKS_INSTRUCTION * instructions + CLOCKS_STEP;
        let waited = (blocks / (resident * sms)).ceil() * steps * waits;
        issued.max(model.clocks_of(stored_bytes(problem.graph))).hypot(waited)
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
    let own = match problem.offset_max() >= WIDE_FROM {
        true => REGISTERS_OWN + REGISTERS_WIDE,
        false => REGISTERS_OWN,
    };
    own.saturating_add(elements.saturating_add(1).saturating_mul(words * items))
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
            knob(
                "rows",
                "rows of the response or image that a thread walks",
                &[1, 4, 7, 8, 14, 16, 28, 32],
            ),
            knob("strip", "neighbouring columns of these that a thread has", &[1, 2, 4, 7, 8]),
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
        let walk = walk_of(&problem);
        let [height, width] = walk.walked();
        let (most, _) = self.items_max(&problem);
        let [items, rows, strip, _] = self.all_knobs().map(|knob| knob.values);
        let all = items.into_iter().filter(|of| *of <= most).flat_map(|items| {
            let rows = rows.iter().filter(|of| **of >= ROWS_MIN);
            let strips = |rows: &i64| {
                let rows = *rows;
                strip.iter().map(move |strip| Settings { items, rows, strip: *strip, threads: 128 })
            };
            rows.flat_map(strips).collect::<Vec<_>>()
        });
        let legal = all
            .filter(|of| of.strip < 2 * width && (of.rows < 2 * height || of.rows == ROWS_MIN))
            .filter(|of| registers(&problem, &walk, *of) <= REGISTERS_CHOSEN);
        let model = CostModel::of(self.target);
        let clocks = |of: Settings| (self.clocks(&model, (&problem, &walk), of), of);
        let least = legal.map(clocks).min_by(|(a, _), (b, _)| a.total_cmp(b));
        least.map_or(Settings { items: 1, rows: 1, strip: 1, threads: 128 }, |(_, of)| of)
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { items, rows, strip, threads } = self.best();
        let ages = walk_of(&self.problem()).ages();
        vec![
            format!("items={items}: channels that share an address, in the fewest clocks"),
            format!(
                "rows={rows}: in the fewest clocks; each is read once, {ages} - 1 of them twice"
            ),
            format!("strip={strip}: columns that share what they read, in the fewest clocks"),
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
        let instructions = self.step_instructions(&problem, &walk, *settings);
        // What a thread reads: its rows, as wide as its strip and the taps around it.
        let read = volume(&[points, steps, walk.rows_step(), walk.span(strip), walk.summed]) as f64;
        let source = &problem.graph.tensors[problem.operands[walk.source].tensor];
        let width = source.dtype.bytes() as f64;
        let operations = problem.graph.operations.len() as f64 * INSTRUCTIONS_OPERATION;
        let elements = volume(&problem.graph.tensors[problem.epilogue.tensor].dims) as f64;
        let double = problem.op.math == MatmulMath::F64;
        let steps_read = points as f64 * self.steps(&walk, *settings);
        let taps = volume(&[walk.summed, walk.taps[0], walk.taps[1], strip, items]) as f64;
        let beside = steps_read * (instructions - taps);
        let arithmetic = steps_read * taps + operations * elements;
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
            lane_instructions: beside + if double { 0.0 } else { arithmetic },
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
