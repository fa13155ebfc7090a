//! The engine `pointwise_grouped`: pointwise operations of several shapes in one launch.
//!
//! Operations that pass values to each other have one shape; each such group is run by blocks of
//! its own, as the engine `pointwise` runs it. So the operands of a concatenation are copied, and
//! queries, keys and values cut from one tensor, in one launch.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{GRID_MAX, PARAMETERS_MAX};
use crate::engine::decompose::Decomposed;
use crate::engine::header::KernelNames;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::parameters::{Context, Group, Text, inputs_of};
use crate::engine::pointwise::schedule::{Schedule, Settings as OwnSettings};
use crate::engine::pointwise::work::{self, Demand};
use crate::engine::pointwise::{Elements, check_pointwise};
use crate::engine::program::GraphProgram;
use crate::engine::signature::{Indent, Width, list, names_with_positions};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::{Error, Result};
use crate::expr::Identifiers;
use crate::graph::{CanonicalGraph, Operation};
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;
use crate::tensor::TensorDesc;

const NAME: &str = "pointwise_grouped";

/// The most groups of a launch: a block looks for its own.
const GROUPS_MAX: usize = 64;

/// The engine `pointwise_grouped`: pointwise operations of several shapes in one launch.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct GroupedEngine;

impl Engine for GroupedEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let grouped = Grouped::of(graph, target)?;
        let best = grouped.best();
        Ok(Box::new(Tuned::of(grouped, [best])?))
    }

    fn adds_in_place(&self, is_whole: bool) -> bool {
        is_whole
    }
}

settings! { pub(super) struct Settings { items, threads, vector } }

/// Operations that pass values to each other, with their tensors.
#[derive(Debug, Clone)]
struct Component {
    tensors: Vec<TensorDesc>,
    operations: Vec<Operation>,
    /// The position of each tensor in the graph.
    positions: Vec<i64>,
    uids: Vec<i64>,
    offsets: Vec<i64>,
}

impl Component {
    fn graph(&self) -> CanonicalGraph<'_> {
        let Component { tensors, operations, uids, offsets, .. } = self;
        CanonicalGraph { tensors, operations, uids, offsets }
    }
}

/// Operations of a graph by what connects them: what one writes and another reads.
fn components(graph: CanonicalGraph<'_>) -> Vec<Component> {
    let mut labels: Vec<usize> = (0..graph.operations.len()).collect();
    let mut writers: Vec<Option<usize>> = vec![None; graph.tensors.len()];
    for (at, operation) in graph.operations.iter().enumerate() {
        for writer in operation.inputs.iter().filter_map(|uid| writers[*uid as usize]) {
            let (old, new) = (labels[writer], labels[at]);
            labels.iter_mut().filter(|label| **label == old).for_each(|label| *label = new);
        }
        operation.outputs.iter().for_each(|uid| writers[*uid as usize] = Some(at));
    }
    let mut known: Vec<usize> = Vec::new();
    for label in &labels {
        if !known.contains(label) {
            known.push(*label);
        }
    }
    known.into_iter().map(|label| component(graph, &labels, label)).collect()
}

/// The operations of this label.
fn component(graph: CanonicalGraph<'_>, labels: &[usize], label: usize) -> Component {
    let own = graph.operations.iter().zip(labels).filter(|(_, of)| **of == label);
    let own: Vec<&Operation> = own.map(|(operation, _)| operation).collect();
    let touched: BTreeSet<i64> =
        own.iter().flat_map(|of| of.inputs.iter().chain(&of.outputs).copied()).collect();
    let positions: Vec<i64> = touched.into_iter().collect();
    let renamed = |uids: &[i64]| -> Vec<i64> {
        uids.iter().map(|uid| positions.partition_point(|at| at < uid) as i64).collect()
    };
    let tensor = |(at, uid): (usize, &i64)| TensorDesc {
        uid: at as i64,
        ..graph.tensors[*uid as usize].clone()
    };
    Component {
        tensors: positions.iter().enumerate().map(tensor).collect(),
        operations: own
            .iter()
            .map(|of| Operation {
                op: of.op.clone(),
                inputs: renamed(&of.inputs),
                outputs: renamed(&of.outputs),
            })
            .collect(),
        uids: positions
            .iter()
            .map(|at| graph.uids.get(*at as usize).copied().unwrap_or(-1))
            .collect(),
        offsets: positions.iter().map(|uid| graph.offset(*uid as usize)).collect(),
        positions,
    }
}

/// A graph as this engine runs it.
#[derive(Debug)]
struct Grouped<'a> {
    components: Vec<Component>,
    target: &'a Target,
}

impl<'a> Grouped<'a> {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn of(graph: CanonicalGraph<'a>, target: &'a Target) -> Result<Grouped<'a>> {
        let decomposed = Decomposed::of(graph)?;
        check_pointwise(decomposed.graph(), target)?;
        if Domain::of(decomposed.graph()).is_ok() {
            return Err(Error::not_supported("all tensors broadcast to one shape"));
        }
        let components = components(decomposed.graph());
        let refuse = |rule: String| Err(Error::not_supported(rule));
        match components.len() {
            1 => return refuse("all operations pass values to each other".to_owned()),
            count if count > GROUPS_MAX => {
                return refuse(format!("{count} groups of operations, a launch has {GROUPS_MAX}"));
            }
            _ => {}
        }
        let grouped = Grouped { components, target };
        let mut passed = 0;
        for elements in grouped.elements() {
            let elements = elements?;
            let program = GraphProgram::whole(elements.graph());
            // A group has two numbers, of its rows and of its blocks.
            passed += inputs_of(&program).len() + program.outputs.len() + 2;
        }
        match passed > PARAMETERS_MAX {
            true => refuse(format!("{passed} parameters, a kernel has {PARAMETERS_MAX}")),
            false => Ok(grouped),
        }
    }

    fn elements(&self) -> impl Iterator<Item = Result<Elements<'_>>> {
        self.components.iter().map(|of| Elements::of(of.graph(), self.target))
    }

    /// The groups, and what the engine `pointwise` would choose for each.
    fn decisions(&self) -> Vec<(Elements<'_>, OwnSettings)> {
        let elements = self.elements().map(|of| of.expect("the engine supports the graph"));
        let decided = elements.map(|of| {
            let settings = of.decision().settings();
            (of, settings)
        });
        decided.collect()
    }
}

/// A group with its schedule.
struct Scheduled<'a> {
    elements: Elements<'a>,
    schedule: Schedule,
    blocks: u32,
}

impl Grouped<'_> {
    /// Each group with what it takes of these settings.
    ///
    /// # Errors
    /// Where a group cannot, or all need more blocks than a grid has.
    fn scheduled(&self, settings: Settings) -> Result<Vec<Scheduled<'_>>, String> {
        let Settings { items, threads, vector } = settings;
        let mut blocks_all = 0;
        let mut scheduled = Vec::new();
        for (elements, own) in self.decisions() {
            let (items, vector) = (own.items.min(items), own.vector.min(vector));
            let settings = OwnSettings { grid: 0, items, threads, vector };
            let schedule = Schedule::new(elements.graph(), &elements.domain, settings)?;
            let Grid::Fixed(blocks) = schedule.grid else { unreachable!("one pass has so many") };
            let blocks = blocks.count();
            blocks_all += i64::from(blocks);
            scheduled.push(Scheduled { elements, schedule, blocks });
        }
        match blocks_all > GRID_MAX {
            true => Err(format!("needs {blocks_all} blocks, more than a grid has")),
            false => Ok(scheduled),
        }
    }
}

impl Tunable<3> for Grouped<'_> {
    const KNOBS: [&'static str; 3] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 3] {
        let knob = |name, about, values: &[i64]| Knob { name, about, values: values.to_vec() };
        [
            knob("items", "the most chunks per thread of a group", &[1, 2, 4, 8]),
            knob("threads", "threads per block", &[64, 128, 256, 512, 1024]),
            knob("vector", "the most elements per chunk of a group", &[1, 2, 4, 8, 16]),
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        self.scheduled(settings).map(|_| settings)
    }

    fn best(&self) -> Settings {
        let decisions = self.decisions();
        let most = |of: fn(&OwnSettings) -> i64| {
            decisions.iter().map(|(_, own)| of(own)).max().expect("two groups at least")
        };
        Settings {
            items: most(|own| own.items),
            threads: most(|own| own.threads),
            vector: most(|own| own.vector),
        }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { items, threads, vector } = self.best();
        vec![
            format!("items={items}: the most that a group takes by itself"),
            format!("threads={threads}: of the group with the most chunks"),
            format!("vector={vector}: the widest of a group"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { items, vector, .. } = settings;
        vec![Settings { items: items / 2, ..settings }, Settings { vector: vector / 2, ..settings }]
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        let scheduled = self.scheduled(*settings).expect("the settings are legal");
        let own = scheduled.iter().map(|Scheduled { elements, schedule, .. }| {
            let (graph, domain) = (elements.graph(), &elements.domain);
            work::of(graph, domain, &Demand::of(graph, domain), schedule)
        });
        own.reduce(KernelWork::beside).into_iter().collect()
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let scheduled = self.scheduled(*settings).expect("the settings are legal");
        let mut identifiers = Identifiers::new();
        let mut variables = Variables {
            functions: BTreeSet::new(),
            groups: Vec::new(),
            threads: settings.threads,
            kernel_parameters: String::new(),
        };
        let (mut parameters, mut arguments, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let mut blocks_all = 0;
        for (at, (group, component)) in scheduled.iter().zip(&self.components).enumerate() {
            let Scheduled { elements, schedule, blocks } = group;
            let graph = elements.graph();
            let program = GraphProgram::whole(graph);
            let names = names_with_positions(graph, &mut identifiers);
            let context = Context::new((graph, &elements.domain, schedule), &program, names);
            let text = context.text(&program, identifiers.clone(), "block");
            let name = format!("group{at}");
            let argument = |tensor: &usize| {
                let position = component.positions[*tensor];
                match graph.tensors[*tensor].by_value {
                    true => Argument::Value(position, graph.tensors[*tensor].dtype),
                    false => Argument::Address(position),
                }
            };
            arguments.extend(context.passed().map(argument));
            numbers.extend([context.count(), i64::from(*blocks)]);
            blocks_all += blocks;
            let Text { group, listing, functions, passed } = text;
            variables.functions.extend(functions);
            let count = format!("{name}_count");
            let given = passed.iter().map(|(name, _)| name.clone()).chain([count.clone()]);
            let given = list(&given.collect::<Vec<_>>(), Indent(12), Width(60));
            let own = passed.iter().map(|(_, parameter)| parameter.clone());
            let own = own.chain(["const long long COUNT".to_owned()]).collect::<Vec<_>>();
            variables.groups.push(NamedGroup {
                name: name.clone(),
                listing,
                parameters: list(&own, Indent(4), Width(40)),
                arguments: given,
                group,
            });
            parameters.extend(passed.into_iter().map(|(_, parameter)| parameter));
        }
        for group in &variables.groups {
            let name = &group.name;
            parameters.push(format!("const long long {name}_count"));
            parameters.push(format!("const long long {name}_blocks"));
        }
        variables.kernel_parameters = list(&parameters, Indent(4), Width(0));
        let first = &scheduled[0].elements;
        let dtype = first.graph().tensors[GraphProgram::whole(first.graph()).outputs[0]].dtype;
        let names = KernelNames {
            stem: format!("sm75_pointwise_{dtype}_grouped"),
            template: "pointwise/sm75_pointwise_grouped.cu",
            entry: "pointwise",
        };
        let spec = names.spec(self.target.arch, &variables);
        let launch = LaunchPlan {
            grid: Grid::fixed(blocks_all),
            threads: settings.threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments,
            maps: Vec::new(),
            numbers,
        };
        Lowering::from(KernelPlan { spec, launch })
    }
}

/// Variables of `pointwise/sm75_pointwise_grouped.cu`.
#[derive(Serialize)]
struct Variables {
    functions: BTreeSet<&'static str>,
    threads: i64,
    groups: Vec<NamedGroup>,
    kernel_parameters: String,
}

/// A group with what is said of it in the kernel.
#[derive(Serialize)]
struct NamedGroup {
    name: String,
    /// The program, for the header comment.
    listing: Vec<String>,
    /// Of the function that runs it, and what the kernel passes.
    parameters: String,
    arguments: String,
    #[serde(flatten)]
    group: Group,
}
