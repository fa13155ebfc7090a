//! The generic pointwise engine: one kernel for every shape and all strides of a graph's
//! operations. Extents and strides are parameters of the launch, so the kernel reads and writes
//! one element at a time and divides to find it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{PARAMETERS_MAX, volume};
use crate::engine::header::KernelNames;
use crate::engine::pointwise::Elements;
use crate::engine::pointwise::work::Demand;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::{
    Indent, Width, arguments, ctype, kernel_parameter, list, names_with_positions,
};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "pointwise_general";

const THREADS: u32 = 256;

/// The engine `pointwise_general`: one kernel for every shape and all strides.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct GeneralEngine;

impl Engine for GeneralEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let general = General::of(Elements::of(graph, target)?);
        let best = general.best();
        Ok(Box::new(Tuned::of(general, [best])?))
    }

    fn serves_any_shape(&self) -> bool {
        true
    }

    fn elementwise(&self) -> bool {
        true
    }

    fn adds_in_place(&self, is_whole: bool) -> bool {
        is_whole
    }
}

settings! { struct Settings { index, rank } }

/// The knobs with these values of `index` and `rank`.
fn knobs(index: &[i64], rank: &[i64]) -> [Knob; 2] {
    let knob = |name, about, values: &[i64]| Knob { name, about, values: values.to_vec() };
    [
        knob("index", "bits of an element's offset", index),
        knob("rank", "dimensions that are distinguished", rank),
    ]
}

/// Values of the knobs, where a shape needs no more than the least.
const INDEX: [i64; 2] = [32, 64];
const RANK: [i64; 2] = [4, 8];

/// Settings with the numbers of the launch, which fit the parameters of a kernel.
struct Schedule {
    settings: Settings,
    /// Extents, the strides of each tensor in memory and of random numbers, two numbers per index:
    /// as the kernel's parameters have them.
    numbers: Vec<i64>,
}

/// A graph with everything that its kernel and its launch are made from.
#[derive(Debug, Clone)]
struct General<'a> {
    elements: Elements<'a>,
    program: GraphProgram,
    /// Tensors that are read.
    inputs: Vec<usize>,
    /// The dimension of each index that is read; `None` is always 0.
    axes: Vec<Option<usize>>,
    /// The random numbers that are read.
    positions: Vec<usize>,
}

impl Tunable<2> for General<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let domain = &self.elements.domain;
        // Past the last element by a whole grid, 32 bits still do not wrap.
        let narrow = self.volume().max(domain.offset_max()) < 1 << 31;
        let from = |values: &'static [i64], least: bool| &values[usize::from(!least)..];
        knobs(from(&INDEX, narrow), from(&RANK, domain.extents.len() <= RANK[0] as usize))
    }

    /// All values: the source does not depend on the shape.
    fn listed_knobs(&self) -> Vec<Knob> {
        knobs(&INDEX, &RANK).into()
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        let numbers = self.numbers(settings.rank as usize);
        let needed = self.passed().count() + numbers.len();
        match needed <= PARAMETERS_MAX {
            true => Ok(Schedule { settings, numbers }),
            false => Err(format!(
                "needs {needed} parameters for tensors, extents and strides, a kernel has \
                 {PARAMETERS_MAX}"
            )),
        }
    }

    fn best(&self) -> Settings {
        let [index, rank] = self.all_knobs().map(|knob| knob.values[0]);
        Settings { index, rank }
    }

    fn reasons(&self) -> Vec<String> {
        let reason = |knob: Knob| {
            let least = if knob.values.len() > 1 { "the least" } else { "all" };
            format!("{}={}: {least} that the shape needs", knob.name, knob.values[0])
        };
        self.all_knobs().map(reason).into()
    }

    fn smaller(&self, _settings: Settings) -> Vec<Settings> {
        Vec::new()
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, _schedule: &Schedule) -> Vec<KernelWork> {
        let demand = Demand::of(self.elements.graph(), &self.elements.domain);
        // A thread divides once for each dimension to find one element.
        let grid = grid(self.volume());
        vec![demand.work(&grid, THREADS.into(), 40, 1, demand.streamed_bytes)]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let graph = self.elements.graph();
        let dtype = graph.tensors[self.program.outputs[0]].dtype;
        let names = KernelNames {
            stem: format!("sm75_pointwise_{dtype}_general"),
            template: "pointwise/sm75_pointwise_general.cu",
            entry: "pointwise",
        };
        let spec = names.spec(self.elements.target.arch, &self.variables(schedule.settings));
        let launch = LaunchPlan {
            grid: grid(self.volume()),
            threads: THREADS,
            shared_bytes: 0,
            cooperative: false,
            arguments: arguments(graph, self.passed()),
            maps: Vec::new(),
            numbers: schedule.numbers.clone(),
        };
        Lowering::from(KernelPlan { spec, launch })
    }
}

/// As many blocks as are resident, but none without elements.
fn grid(elements: i64) -> Grid {
    match u64::div_ceil(elements as u64, u64::from(THREADS)) {
        0 => Grid::fixed(0),
        blocks => Grid::Resident {
            blocks_max: (blocks.min(i32::MAX as u64) as u32).into(),
            multiple_of: 1,
        },
    }
}

/// Variables of `pointwise/sm75_pointwise_general.cu`.
#[derive(Serialize)]
struct Variables {
    /// The program, for the header comment.
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    index_type: &'static str,
    threads: u32,
    rank: i64,
    has_axis: bool,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    /// Statements of the program.
    lines: Vec<String>,
    chain_parameters: String,
    chain_arguments: String,
    kernel_parameters: String,
}

/// A tensor that is read from memory.
#[derive(Serialize)]
struct Input {
    name: String,
    ctype: &'static str,
}

/// A tensor that is written.
#[derive(Serialize)]
struct Output {
    name: String,
    ctype: &'static str,
    /// Type of the value before it is rounded.
    value_type: &'static str,
}

impl<'a> General<'a> {
    fn of(elements: Elements<'a>) -> General<'a> {
        let program = GraphProgram::whole(elements.graph());
        let (mut inputs, mut axes) = (Vec::new(), Vec::new());
        for (input, source) in program.sources.iter().enumerate() {
            match source {
                _ if !program.reads(input) => {}
                Source::Tensor(at) => inputs.push(*at),
                Source::Coordinate(axis) => {
                    axes.push(axis.and_then(|axis| elements.domain.axes[axis]));
                }
                Source::Position(_) => {}
            }
        }
        let positions = program.positions().collect();
        General { elements, program, inputs, axes, positions }
    }

    /// Number of elements of the domain.
    fn volume(&self) -> i64 {
        volume(&self.elements.domain.extents)
    }

    fn passed(&self) -> impl Iterator<Item = &usize> {
        self.inputs.iter().chain(&self.program.outputs)
    }

    fn is_by_value(&self, tensor: usize) -> bool {
        self.elements.graph().tensors[tensor].by_value
    }

    fn in_memory(&self) -> impl Iterator<Item = &usize> {
        self.passed().filter(|at| !self.is_by_value(**at))
    }

    /// What has strides: the tensors in memory, then random numbers.
    fn strided(&self) -> impl Iterator<Item = &usize> {
        self.in_memory().chain(&self.positions)
    }

    fn numbers(&self, rank: usize) -> Vec<i64> {
        let domain = &self.elements.domain;
        let padded = |values: &[i64], padding: i64| {
            let mut all = vec![padding; rank.saturating_sub(values.len())];
            all.extend(values);
            all
        };
        let mut numbers = padded(&domain.extents, 1);
        numbers.extend(self.strided().flat_map(|at| padded(&domain.strides[*at], 0)));
        numbers.extend(self.axes.iter().flat_map(|dimension| match dimension {
            Some(at) => [volume(&domain.extents[at + 1..]), domain.extents[*at]],
            None => [1, 1],
        }));
        numbers
    }

    fn variables(&self, settings: Settings) -> Variables {
        let (graph, program) = (self.elements.graph(), &self.program);
        let mut identifiers = Identifiers::new();
        let names = names_with_positions(graph, &mut identifiers);
        let input_names: Vec<String> = program
            .sources
            .iter()
            .map(|source| match source {
                Source::Tensor(at) | Source::Position(at) => names[*at].clone(),
                Source::Coordinate(_) => identifiers.fresh("index"),
            })
            .collect();
        let output_names: Vec<String> =
            program.outputs.iter().map(|at| names[*at].clone()).collect();
        let emitted = program.program.emit(&input_names, &output_names, &mut identifiers);
        let (mut chain_parameters, mut chain_arguments) = (Vec::new(), Vec::new());
        let mut axes = Vec::new();
        for input in (0..input_names.len()).filter(|input| program.reads(*input)) {
            let (name, register) = (&input_names[input], emitted.input_types[input]);
            chain_parameters.push(format!("const {register} {name}"));
            chain_arguments.push(match program.sources[input] {
                Source::Tensor(at) if self.is_by_value(at) => format!("{register}({name})"),
                Source::Tensor(_) => format!("{name}_in.get(0)"),
                Source::Coordinate(_) => {
                    axes.push(format!("const Axis {name}"));
                    format!("{register}({name}.of(at))")
                }
                Source::Position(at) => format!("op::position(offset(p, {}_strides))", names[at]),
            });
        }
        for (name, output) in output_names.iter().zip(&emitted.outputs) {
            chain_parameters.push(format!("{}& {name}", output.ctype));
            chain_arguments.push(format!("{name}_value"));
        }
        let of = |at: usize| (names[at].clone(), ctype(graph.tensors[at].dtype));
        let loaded = self.inputs.iter().filter(|at| !self.is_by_value(**at));
        let input = |at: &usize| {
            let (name, ctype) = of(*at);
            Input { name, ctype }
        };
        let stored = std::iter::zip(&program.outputs, &emitted.outputs).map(|(at, output)| {
            let (name, ctype) = of(*at);
            Output { name, ctype, value_type: output.ctype }
        });
        Variables {
            listing: program.program.to_string().lines().map(str::to_owned).collect(),
            functions: emitted.functions,
            index_type: if settings.index == 32 { "unsigned" } else { "long long" },
            threads: THREADS,
            rank: settings.rank,
            has_axis: !axes.is_empty(),
            inputs: loaded.map(input).collect(),
            outputs: stored.collect(),
            lines: emitted.lines,
            chain_parameters: list(&chain_parameters, Indent(4), Width(60)),
            chain_arguments: list(&chain_arguments, Indent(12), Width(85)),
            kernel_parameters: list(&self.kernel_parameters(&names, axes), Indent(4), Width(0)),
        }
    }

    fn kernel_parameters(&self, names: &[String], axes: Vec<String>) -> Vec<String> {
        let graph = self.elements.graph();
        let passed = self.passed().map(|at| kernel_parameter(graph, *at, &names[*at]));
        let strides = self.strided().map(|at| format!("const Numbers {}_strides", names[*at]));
        let extents = std::iter::once("const Numbers extents".to_owned());
        passed.chain(extents).chain(strides).chain(axes).collect()
    }
}
