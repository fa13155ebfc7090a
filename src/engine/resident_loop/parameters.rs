//! What the templates of resident loops read, and the launches.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::header::KernelNames;
use crate::engine::resident_loop::Settings;
use crate::engine::resident_loop::barrier::Barrier;
use crate::engine::resident_loop::layout::{Constant, Constants, is_packed, located, offset};
use crate::engine::resident_loop::problem::Problem;
use crate::engine::resident_loop::stage::{Stage, Values};
use crate::engine::signature::{Indent, Width, arguments, ctype, kernel_parameter, list};
use crate::expr::{Identifiers, Program};
use crate::graph::LoopStage;
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Arch;

/// Names of the kernel's own variables and functions.
const OWN_WORDS: [&str; 20] = [
    "all", "apart", "arrivals", "at", "barrier", "element", "first", "lane", "made", "max", "meet",
    "min", "most", "place", "places", "put", "reduce", "step", "trip", "values",
];

/// Variables of `resident_loop/sm75_resident_loop.cu`.
#[derive(Debug, Serialize)]
struct Parameters {
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    reductions: BTreeSet<&'static str>,
    reduces_across: bool,
    barrier: &'static str,
    ctas: i64,
    threads: i64,
    count: Option<String>,
    trips_max: Option<i64>,
    trips_made: Option<String>,
    layouts: Vec<Layout>,
    states: Vec<State>,
    iterated: Vec<Iterated>,
    results: Vec<Result>,
    stacked: Vec<Stacked>,
    stages: Vec<Stage>,
    levels: Vec<Level>,
    last: Vec<Last>,
    kernel_parameters: String,
}

/// Where the elements of a tensor are that are not behind each other.
#[derive(Debug, Serialize)]
struct Layout {
    name: String,
    text: String,
    constants: Vec<Constant>,
    offset: String,
}

/// A state: what it is first, and what later trips read.
#[derive(Debug, Serialize)]
struct State {
    name: String,
    ctype: &'static str,
    initial: String,
    next: String,
    /// The number of the next value.
    value: usize,
}

#[derive(Debug, Serialize)]
struct Iterated {
    name: String,
    ctype: &'static str,
    tensor: String,
    trips: i64,
    stride: i64,
    reverse: bool,
}

/// A result of a stage in the workspace.
#[derive(Debug, Serialize)]
struct Result {
    name: String,
    value: usize,
    ctype: &'static str,
    offset: i64,
    apart: Option<i64>,
}

/// Where the values of a trip are stacked.
#[derive(Debug, Serialize)]
struct Stacked {
    name: String,
    ctype: &'static str,
    tensor: String,
    trips: i64,
    stride: i64,
    elements: i64,
    offset: String,
    reverse: bool,
}

/// The stages of a level, and the condition that is known behind it.
#[derive(Debug, Serialize)]
struct Level {
    stages: Vec<usize>,
    condition: Option<String>,
}

#[derive(Debug, Serialize)]
struct Last {
    state: String,
    ctype: &'static str,
    tensor: String,
    elements: i64,
    offset: String,
}

/// Variables of `resident_loop/sm75_resident_loop_clear.cu`: none of its own.
#[derive(Debug, Serialize)]
struct ClearParameters {}

/// The loop, behind a kernel that sets its counter to 0 if it has one.
pub(super) fn lowering(
    problem: &Problem<'_>,
    settings: Settings,
    barrier: Barrier,
    arch: Arch,
) -> Lowering {
    let names = KernelNames {
        stem: "sm75_resident_loop".to_owned(),
        template: "resident_loop/sm75_resident_loop.cu",
        entry: "resident_loop",
    };
    let with_counter = barrier == Barrier::Counter;
    let mut given = arguments(problem.graph, problem.tensors.passed().iter());
    given.push(Argument::Scratch(0));
    given.extend(with_counter.then_some(Argument::Scratch(1)));
    let launch = |blocks: i64, threads: i64, arguments: Vec<Argument>| LaunchPlan {
        grid: Grid::fixed(blocks as u32),
        threads: threads as u32,
        shared_bytes: 0,
        cooperative: false,
        arguments,
        maps: Vec::new(),
        numbers: Vec::new(),
    };
    let own = launch(settings.ctas, settings.threads, given);
    let own = KernelPlan {
        spec: names.spec(arch, &Parameters::of(problem, settings, barrier)),
        launch: LaunchPlan { cooperative: with_counter, ..own },
    };
    let mut lowering = Lowering::from(own);
    lowering.scratch.push(problem.bytes as u64);
    if with_counter {
        let names = KernelNames {
            stem: "sm75_resident_loop_clear".to_owned(),
            template: "resident_loop/sm75_resident_loop_clear.cu",
            entry: "resident_loop_clear",
        };
        let spec = names.spec(arch, &ClearParameters {});
        let launch = launch(1, 32, vec![Argument::Scratch(1)]);
        lowering.kernels.insert(0, KernelPlan { spec, launch });
        lowering.scratch.push(size_of::<u32>() as u64);
    }
    lowering
}

impl Parameters {
    fn of(problem: &Problem<'_>, settings: Settings, barrier: Barrier) -> Parameters {
        let Problem { graph, op, .. } = problem;
        let frame = &op.frame;
        let mut identifiers = Identifiers::reserving(&OWN_WORDS);
        let mut names = vec![String::new(); graph.tensors.len()];
        for at in problem.tensors.passed() {
            names[at] = identifiers.fresh(&graph.tensors[at].name);
        }
        let operands = problem.tensors.operands();
        let mut values = Values::of(problem, &names, &mut identifiers);
        let stages: Vec<Stage> = (0..op.stages.len())
            .map(|at| Stage::of(problem, at, &mut values, &identifiers))
            .collect();
        let states = (0..frame.states).map(|state| State {
            name: values.names[state].clone(),
            ctype: ctype(problem.values[state].dtype),
            initial: names[operands[state]].clone(),
            next: values.names[op.yields[state]].clone(),
            value: op.yields[state],
        });
        let iterated = frame.iterated.iter().enumerate().map(|(at, reverse)| {
            let value = frame.states + at;
            let desc = problem.tensor(operands[value]);
            Iterated {
                name: values.names[value].clone(),
                ctype: ctype(desc.dtype),
                tensor: names[operands[value]].clone(),
                trips: desc.dims[0],
                stride: desc.strides[0],
                reverse: *reverse,
            }
        });
        let results = (0..problem.values.len()).filter_map(|value| {
            let kept = problem.kept[value]?;
            Some(Result {
                name: values.names[value].clone(),
                value,
                ctype: ctype(problem.values[value].dtype),
                offset: kept.offset,
                apart: kept.apart,
            })
        });
        let stacked = problem.tensors.stacked().into_iter().enumerate().map(|(at, tensor)| {
            let desc = problem.tensor(tensor);
            Stacked {
                name: values.stacked[at].clone(),
                ctype: ctype(desc.dtype),
                tensor: names[tensor].clone(),
                trips: desc.dims[0],
                stride: desc.strides[0],
                elements: desc.dims[1..].iter().product(),
                offset: located(desc, 1, &names[tensor], "at"),
                reverse: frame.stacked[at],
            }
        });
        let last = problem.tensors.last().into_iter().map(|(state, tensor)| Last {
            state: values.names[state].clone(),
            ctype: ctype(problem.values[state].dtype),
            tensor: names[tensor].clone(),
            elements: problem.values[state].elements,
            offset: located(problem.tensor(tensor), 0, &names[tensor], "at"),
        });
        let levels = problem.levels.stages.iter().enumerate().map(|(at, stages)| Level {
            stages: stages.clone(),
            condition: problem
                .levels
                .condition
                .filter(|level| *level == at)
                .map(|_| values.names[op.yields[frame.yielded() - 1]].clone()),
        });
        let mut layouts: Vec<Layout> = Vec::new();
        let leading_of = |at: usize| {
            let operand = operands.iter().position(|own| *own == at);
            let stacked = problem.tensors.stacked().contains(&at);
            operand.map_or(usize::from(stacked), |operand| frame.leading(operand))
        };
        for at in problem.tensors.passed() {
            let (desc, leading) = (problem.tensor(at), leading_of(at));
            if !desc.by_value && !is_packed(desc, leading) {
                let (name, text) = (names[at].clone(), desc.to_string());
                let mut constants = Constants::default();
                let offset = offset(desc, leading, &mut constants);
                layouts.push(Layout { name, text, constants: constants.finish(), offset });
            }
        }
        let mut kernel_parameters: Vec<String> = problem
            .tensors
            .passed()
            .into_iter()
            .map(|at| kernel_parameter(*graph, at, &names[at]))
            .collect();
        kernel_parameters.push("unsigned char* values".to_owned());
        if barrier == Barrier::Counter {
            kernel_parameters.push("unsigned* arrivals".to_owned());
        }
        let listed = |stage: &LoopStage| {
            let folds = stage.folds.iter().map(|fold| {
                format!("  {} over {:?} of {}", fold.op.name(), fold.extents, one_line(&fold.term))
            });
            let own = format!("stage {:?}: {}", stage.extents, one_line(&stage.program));
            std::iter::once(own).chain(folds).collect::<Vec<String>>()
        };
        Parameters {
            listing: [op.to_string()]
                .into_iter()
                .chain(op.stages.iter().flat_map(listed))
                .collect(),
            functions: values.functions,
            reductions: values.reductions,
            reduces_across: false,
            barrier: barrier.name(),
            ctas: settings.ctas,
            threads: settings.threads,
            count: problem.tensors.count().map(|at| match problem.tensor(at).by_value {
                true => names[at].clone(),
                false => format!("{}[0]", names[at]),
            }),
            trips_max: frame.condition.then_some(frame.trips_max),
            trips_made: problem.tensors.trips_made().map(|at| names[at].clone()),
            layouts,
            states: states.collect(),
            iterated: iterated.collect(),
            results: results.collect(),
            stacked: stacked.collect(),
            stages,
            levels: levels.collect(),
            last: last.collect(),
            kernel_parameters: list(&kernel_parameters, Indent(4), Width(0)),
        }
    }
}

fn one_line(program: &Program) -> String {
    program.to_string().lines().collect::<Vec<&str>>().join("; ")
}
