//! The engine `convolution_depthwise_filter`: gradients of filters of groups of one channel, by
//! threads that walk along rows with all taps.

use crate::engine::access::{ACCESS_BYTES_MAX, ceil_div, stored_bytes, volume};
use crate::engine::convolution::depthwise_filter_parameters::{Combine, Parameters};
use crate::engine::convolution::depthwise_filter_schedule::{
    COMBINE_THREADS, Extents, Schedule, Settings,
};
use crate::engine::convolution::parameters::ROLES;
use crate::engine::convolution::problem::Problem;
use crate::engine::convolution::walk::{GAIN_MIN, Walk};
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::decompose::Decomposed;
use crate::engine::header::KernelNames;
use crate::engine::items::{distinct, launch};
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, ConvolutionPass, MatmulMath};
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "convolution_depthwise_filter";

/// Threads that hide each other's latency, and those of [`REGISTERS_BUSY`] that an SM has at a
/// time.
const THREADS_SM: i64 = 512;

/// The most registers that are expected of a thread of which an SM has enough.
const REGISTERS_BUSY: i64 = 128;

/// The most partials of a sum by the heuristic.
const SPLIT_MAX: i64 = 256;

/// The engine `convolution_depthwise_filter`.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct DepthwiseFilterEngine;

impl Engine for DepthwiseFilterEngine {
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
        if problem.op.pass != ConvolutionPass::BackwardFilter {
            return Err(Error::not_supported("no gradient of a filter".to_owned()));
        }
        let extents = Extents::of(&problem, Walk::of(&problem)?);
        let filter = DepthwiseFilter { decomposed, target, extents };
        let best = filter.best();
        Ok(Box::new(Tuned::of(filter, [best])?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct DepthwiseFilter<'a> {
    decomposed: Decomposed<'a>,
    target: &'a Target,
    extents: Extents,
}

impl DepthwiseFilter<'_> {
    fn problem(&self) -> Problem<'_> {
        let graph = self.decomposed.graph();
        let problem = Problem::of(graph, self.target.arch.capability);
        problem.expect("the engine supports the graph").planar()
    }

    /// The least partials that give every SM its threads, if there are strips for them.
    fn with_split(&self, settings: Settings) -> Settings {
        let wanted = THREADS_SM * i64::from(self.target.sm_count);
        let strips = self.extents.strips(settings);
        let with = |split: i64| Settings { split, ..settings };
        let enough = |split: &i64| {
            let Ok(schedule) = self.extents.schedule(with(*split)) else { return false };
            let busy = schedule.blocks() * split * settings.threads >= wanted;
            busy || *split >= SPLIT_MAX || 2 * schedule.ranks() > strips
        };
        let mut all = (0..).map(|power| 1 << power).take_while(|split| *split <= SPLIT_MAX);
        with(all.find(enough).unwrap_or(1))
    }
}

impl Tunable<5> for DepthwiseFilter<'_> {
    const KNOBS: [&'static str; 5] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 5] {
        let knob = |name, about, values: &[i64]| Knob { name, about, values: values.to_vec() };
        [
            knob("items", "neighbouring groups that a thread computes", &[1, 2, 4, 8]),
            knob("rows", "rows of the response along which a thread walks", &[1, 4, 8, 16, 32]),
            knob(
                "split",
                "CTAs that share the strips of a tap",
                &[1, 2, 4, 8, 16, 32, 64, 128, 256],
            ),
            knob("strip", "neighbouring columns that a thread has", &[1, 2, 4, 8]),
            knob("threads", "threads per CTA", &[128, 256]),
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        self.extents.schedule(settings)
    }

    fn best(&self) -> Settings {
        let Extents { walk, groups, channels_last, image_bytes, .. } = self.extents;
        let [height, width] = walk.result;
        let wanted = THREADS_SM * i64::from(self.target.sm_count);
        let most = if channels_last { (ACCESS_BYTES_MAX / image_bytes).min(groups) } else { 1 };
        let all = [8, 4, 2, 1].into_iter().filter(|items| *items == 1 || *items <= most);
        let all = all.flat_map(|items| [4, 2, 1].map(|strip| (items, strip)));
        let all = all.flat_map(|(items, strip)| {
            [32, 16, 8, 4].map(|rows| {
                let with = |threads: i64| Settings { items, rows, split: 1, strip, threads };
                let lanes = |of: Settings| self.extents.schedule(of).ok().map(|of| of.lanes);
                // Of more warps a CTA leaves fewer partials, if their sums fit shared memory.
                if lanes(with(256)) < lanes(with(128)) { with(128) } else { with(256) }
            })
        });
        let all: Vec<Settings> = all
            .filter(|of| of.strip < 2 * width && (of.rows < 2 * height || of.rows == 4))
            .filter(|of| self.extents.schedule(*of).is_ok())
            .collect();
        // An SM has enough threads of these; of a large filter, of those of the fewest registers.
        let needed = |of: &Settings| self.extents.registers(*of);
        let most = all.iter().map(needed).min().unwrap_or(0).max(REGISTERS_BUSY);
        let light: Vec<Settings> = all.into_iter().filter(|of| needed(of) <= most).collect();
        let threads = |of: &Settings| {
            let chunks = self.extents.schedule(*of).map_or(0, |schedule| schedule.chunks);
            volume(&[chunks, self.extents.strips(*of)])
        };
        let busy = light.iter().find(|of| threads(of) >= wanted);
        let one = Settings { items: 1, rows: 1, split: 1, strip: 1, threads: 128 };
        // Of too little work for the device, that of the most threads.
        let spread = light.iter().max_by_key(|of| threads(of));
        self.with_split(busy.or(spread).copied().unwrap_or(one))
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { items, rows, split, strip, threads } = self.best();
        vec![
            format!(
                "items={items}: up to an access of 16 bytes, if every SM has {THREADS_SM} threads"
            ),
            format!("rows={rows}: the most that leave them; a row is read once"),
            format!("split={split}: CTAs for every SM, as long as their threads have strips"),
            format!(
                "strip={strip}: columns that share what they read, with {REGISTERS_BUSY} registers"
            ),
            format!("threads={threads}: whole warps that share what they read in L1, and partials"),
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

    fn notes(&self, settings: Settings) -> Notes {
        let workspace = (settings.split > 1).then_some(BehaviorNote::Workspace);
        let behavior = std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace);
        Notes { behavior: behavior.collect(), ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        let problem = self.problem();
        let Schedule { settings, chunks, .. } = *schedule;
        let Settings { items, rows, split, strip, threads } = settings;
        let Extents { walk, sum_bytes, image_bytes, .. } = &self.extents;
        let taps = volume(&walk.taps);
        let strips = volume(&[chunks, self.extents.strips(settings)]) as f64;
        let steps = (rows + walk.ages() - 1) as f64;
        // What a thread reads of the image for a strip, and of the response.
        let image = steps * (walk.strides[0] * walk.span(strip)) as f64;
        let read = strips * (image + (rows * strip) as f64);
        let dram_bytes = stored_bytes(problem.graph);
        let partial_bytes = volume(&[chunks, items, taps, sum_bytes * split]) as f64;
        let written = if split > 1 { partial_bytes } else { 0.0 };
        let multiply_adds = strips * (volume(&[rows, strip, items]) * taps) as f64;
        let operations = problem.graph.operations.len() as f64 * INSTRUCTIONS_OPERATION;
        let finish = operations * volume(&[chunks, items, taps]) as f64;
        // Those of a warp are combined in 5 steps of a shuffle and an addition at most.
        let ctas = schedule.blocks() * split;
        let combined = 10.0 * volume(&[ctas, threads, items, taps]) as f64;
        let double = problem.op.math == MatmulMath::F64;
        let rounds = ceil_div(self.extents.strips(settings), schedule.ranks()) as f64;
        // An address and a check of its bounds, and the conversion of each element.
        let lanes = read * (4.0 + items as f64) + combined;
        let first = KernelWork {
            blocks: ctas as u64,
            threads: threads as u32,
            registers: schedule.registers as u32,
            shared_bytes: schedule.shared_bytes as u32,
            dram_bytes: dram_bytes + written,
            // Half of what neighbours share lies in L1.
            l2_bytes: dram_bytes.max(read * (items * image_bytes) as f64 / 2.0) + written,
            in_flight_bytes: (threads * walk.span(strip) * items * image_bytes) as f64,
            round_trips: rounds * steps,
            lane_instructions: lanes + if double { 0.0 } else { multiply_adds },
            f64_instructions: if double { multiply_adds } else { 0.0 },
            tensor: None,
        };
        let slices = ceil_div(split, schedule.parts());
        let second = KernelWork {
            blocks: ceil_div(chunks * taps * schedule.parts(), COMBINE_THREADS) as u64,
            threads: COMBINE_THREADS as u32,
            registers: 48,
            shared_bytes: 0,
            dram_bytes: partial_bytes,
            l2_bytes: partial_bytes,
            in_flight_bytes: (COMBINE_THREADS * items * sum_bytes * slices.min(8)) as f64,
            round_trips: ceil_div(slices, 8) as f64,
            lane_instructions: volume(&[chunks, items, taps, split]) as f64 + finish,
            f64_instructions: 0.0,
            tensor: None,
        };
        if split > 1 {
            vec![first, second]
        } else {
            vec![KernelWork { lane_instructions: first.lane_instructions + finish, ..first }]
        }
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let problem = self.problem();
        let graph = problem.graph;
        let output = problem.epilogue.program.outputs[0];
        let pass = ROLES[problem.op.pass as usize].1;
        let Settings { items, split, threads, .. } = schedule.settings;
        let names = |form: &str, template| KernelNames {
            stem: format!("sm75_convolution_{}_depthwise_{form}", graph.tensors[output].dtype),
            template,
            entry: "convolution",
        };
        let template = "convolution/sm75_convolution_depthwise_filter.cu";
        let names_first = names(pass, template);
        let operands = distinct(problem.operands.iter().flat_map(|operand| operand.inputs()));
        let passed = if split > 1 { operands } else { problem.passed() };
        let parameters = Parameters::of(&problem, schedule, &passed);
        let spec = names_first.spec(self.target.arch, &parameters);
        let blocks = schedule.blocks() * split;
        let first = launch(graph, blocks * threads, threads, &passed);
        let mut first = LaunchPlan { grid: Grid::fixed(blocks as u32), ..first };
        if split == 1 {
            return Lowering::from(KernelPlan { spec, launch: first });
        }
        first.arguments.push(Argument::Scratch(0));
        let template = "convolution/sm75_convolution_depthwise_combine.cu";
        let behind = distinct(
            problem.epilogue.followers().chain(problem.epilogue.program.outputs.iter().copied()),
        );
        let combine = Combine::of(&problem, schedule, &behind);
        let taps = volume(&self.extents.walk.taps);
        let threads = volume(&[schedule.chunks, taps, schedule.parts()]);
        let mut second = launch(graph, threads, COMBINE_THREADS, &behind);
        second.arguments.push(Argument::Scratch(0));
        let second = KernelPlan {
            spec: names("combine", template).spec(self.target.arch, &combine),
            launch: second,
        };
        let bytes = volume(&[split, taps, schedule.chunks, items, self.extents.sum_bytes]);
        let kernels = vec![KernelPlan { spec, launch: first }, second];
        Lowering { kernels, scratch: vec![bytes as u64] }
    }
}
