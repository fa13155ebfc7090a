//! What all kernels of a lowering share: the graph in phases, identifiers, programs.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::header::KernelNames;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduction::phases::{Phase, Phases};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::step::Step;
use crate::engine::reduction::template::{FunctionText, RowOutput, RowValue, Store};
use crate::engine::signature::{Indent, Width, ctype as storage_type, list, names, position_names};
use crate::expr::{Emission, Identifiers};
use crate::graph::CanonicalGraph;
use crate::kernel::KernelSpec;
use crate::target::Arch;
use crate::tensor::TensorDesc;

/// Words that the templates use beside what tensors are called.
const OWN_WORDS: [&str; 7] =
    ["copy_row", "first_row", "load_next", "memory", "next", "row_step", "stage"];

/// The phases of one kernel; results of phases before `first` are combined from partials in
/// scratch.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// First phase that reads elements.
    pub(super) first: usize,
    /// One past the last phase.
    pub(super) end: usize,
    /// Whether the last phase writes partials for the next kernel.
    pub(super) to_partials: bool,
}

impl Span {
    /// All phases in one kernel.
    pub(super) fn whole(phases: &Phases) -> Span {
        Span { first: 0, end: phases.phases.len(), to_partials: false }
    }

    /// A kernel for each phase, and one for what depends on the last reductions.
    pub(super) fn split(phases: &Phases) -> Vec<Span> {
        let count = phases.phases.len();
        let reduces = |number: usize| !phases.phases[number].steps.is_empty();
        let span = |number| Span { first: number, end: number + 1, to_partials: reduces(number) };
        let last = Span { first: count, end: count, to_partials: false };
        (0..count).map(span).chain(reduces(count - 1).then_some(last)).collect()
    }
}

/// A graph in phases with identifiers for values that outlive a program.
pub(super) struct Context<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) space: &'a Space,
    pub(super) phases: &'a Phases,
    pub(super) arch: Arch,
    pub(super) identifiers: Identifiers,
    /// The identifier of each tensor that has one outside of a program; empty for the others.
    pub(super) names: Vec<String>,
    /// The identifier of where the positions in random numbers are.
    pub(super) positions: Vec<String>,
}

/// Identifiers of the tensors in memory, then of the intermediates that leave a program.
fn all_names(
    graph: CanonicalGraph<'_>,
    phases: &Phases,
    identifiers: &mut Identifiers,
) -> Vec<String> {
    let mut names = names(graph, identifiers);
    for phase in &phases.phases {
        let results = phase.steps.iter().map(|step| &step.result);
        let sums = phase.sums.iter().map(|sum| &sum.result);
        let outputs = phase.row.outputs.iter().chain(&phase.elements.outputs);
        for at in outputs.chain(results).chain(sums) {
            if names[*at].is_empty() {
                names[*at] = identifiers.fresh(&graph.tensors[*at].name);
            }
        }
    }
    names
}

/// A function of a kernel and a call of it.
pub(super) struct Function {
    pub(super) text: FunctionText,
    /// C++ types of the outputs.
    pub(super) types: Vec<&'static str>,
    /// C++ arguments for the inputs.
    inputs: Vec<String>,
    /// Functions of `device/ops` that it calls.
    pub(super) calls: BTreeSet<&'static str>,
}

/// A value of a row: `variable` holds it before it is rounded to its type, `name` after that.
pub(super) struct Value {
    pub(super) name: String,
    pub(super) variable: String,
    ctype: &'static str,
    dtype: DType,
    /// Whether it needs no rounding.
    exact: bool,
}

impl Value {
    /// The value of a tensor that a program computes as a `ctype`.
    pub(super) fn of(tensor: &TensorDesc, own: &str, name: String, ctype: &'static str) -> Value {
        let dtype = tensor.dtype;
        let exact = matches!(dtype, DType::F32 | DType::F64) && dtype.register() == ctype;
        let variable = if exact { name.clone() } else { format!("{own}_value") };
        Value { name, variable, ctype, dtype, exact }
    }

    pub(super) fn text(&self) -> RowValue {
        let Value { name, variable, ctype, dtype, exact } = self;
        let storage = storage_type(*dtype);
        let rounding = match exact {
            true => String::new(),
            false => format!("widen(Narrow<{storage}>::from({variable}))"),
        };
        RowValue {
            name: name.clone(),
            variable: variable.clone(),
            value_type: ctype,
            register: dtype.register(),
            rounding,
        }
    }
}

impl Function {
    /// The arguments of a call.
    pub(super) fn call(&self, outputs: impl Iterator<Item = String>, indent: usize) -> String {
        let arguments: Vec<String> = self.inputs.iter().cloned().chain(outputs).collect();
        list(&arguments, Indent(indent), Width(60))
    }
}

impl<'a> Context<'a> {
    pub(super) fn new(
        graph: CanonicalGraph<'a>,
        space: &'a Space,
        phases: &'a Phases,
        arch: Arch,
    ) -> Context<'a> {
        let mut identifiers = Identifiers::reserving(&OWN_WORDS);
        let names = all_names(graph, phases, &mut identifiers);
        let positions = position_names(graph, &mut identifiers);
        Context { graph, space, phases, arch, identifiers, names, positions }
    }

    /// The reductions of all phases.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.phases.phases.iter().flat_map(|phase| &phase.steps)
    }

    /// The sums of columns of all phases.
    pub(super) fn sums(&self) -> impl Iterator<Item = &Step> {
        self.phases.phases.iter().flat_map(|phase| &phase.sums)
    }

    /// Whether a variance is reduced in the phase of its mean.
    pub(super) fn has_variances(&self) -> bool {
        self.steps().any(|step| step.around.is_some())
    }

    /// A kernel of a template with these parameters.
    pub(super) fn spec(
        &self,
        variant: &str,
        template: &'static str,
        parameters: &impl Serialize,
    ) -> KernelSpec {
        let outputs = self.graph.operations.iter().map(|operation| operation.outputs[0] as usize);
        let mut stored = outputs.filter(|at| !self.graph.tensors[*at].is_virtual);
        let dtype = self.graph.tensors[stored.next().expect("a graph has an output")].dtype;
        let stem = format!("sm75_reduction_{dtype}_{variant}");
        KernelNames { stem, template, entry: "reduction" }.spec(self.arch, parameters)
    }

    /// A phase in words.
    pub(super) fn listing(&self, phase: &Phase) -> Vec<String> {
        let program = |program: &GraphProgram| program.program.to_string();
        let (row, elements) = (program(&phase.row), program(&phase.elements));
        let step = |step: &Step| {
            let name = |at: usize| &self.graph.tensors[at].name;
            let dtype = step.op.math.dtype();
            let operand = name(step.operand);
            let operand = match step.around {
                Some(mean) => format!("({operand} - {})^2", name(mean)),
                None => operand.clone(),
            };
            format!("{}: {dtype} = {}({operand})", name(step.result), step.op)
        };
        let lines = row.lines().chain(elements.lines()).map(str::to_owned);
        lines.chain(phase.steps.iter().chain(&phase.sums).map(step)).collect()
    }

    /// The next operand of a reduction, in its precision: a result of the phase's elements, or what
    /// `argument` says of its operand.
    pub(super) fn term(
        &self,
        step: &Step,
        phase: &Phase,
        elements: Option<&Function>,
        argument: &dyn Fn(&Source, &str) -> String,
    ) -> String {
        let register = step.op.math.dtype().register();
        let slot = phase.elements.outputs.iter().position(|at| *at == step.operand);
        let (value, value_type) = match slot.zip(elements) {
            Some((slot, elements)) => {
                (format!("{}_value[j]", self.names[step.operand]), elements.types[slot])
            }
            None => {
                let operand = self.graph.tensors[step.operand].dtype.register();
                (argument(&Source::Tensor(step.operand), register), operand)
            }
        };
        if value_type == register { value } else { format!("{register}({value})") }
    }

    /// The tensors in memory whose elements a phase reads.
    pub(super) fn element_inputs(&self, phase: &Phase) -> Vec<usize> {
        let steps = phase.steps.iter().chain(&phase.sums);
        let operands = steps.map(|step| step.operand);
        let mut inputs: Vec<usize> = Vec::new();
        for at in Phases::reads(&phase.elements).chain(operands) {
            let tensor = &self.graph.tensors[at];
            let in_memory = !tensor.is_virtual && !self.graph.is_written(at);
            if in_memory && !self.space.is_row(at) && !inputs.contains(&at) {
                inputs.push(at);
            }
        }
        inputs
    }

    /// A value that is stored, computed last or held by a variable before.
    pub(super) fn row_output(
        &self,
        at: usize,
        store: Store,
        variable: String,
        last: Option<&Function>,
    ) -> RowOutput {
        let slot = self.phases.last.outputs.iter().position(|output| *output == at);
        let name = &self.names[at];
        RowOutput {
            store,
            is_last: slot.is_some(),
            value_type: slot.zip(last).map_or("", |(slot, last)| last.types[slot]),
            value: if slot.is_some() { format!("{name}_value") } else { variable },
        }
    }

    /// Which inputs of a program of elements are values of a row of several.
    fn shared(&self, program: &GraphProgram) -> Vec<bool> {
        let Context { space, .. } = self;
        let is_element = |at: &usize| !space.is_row(*at) && !space.follows_sums(*at);
        let is_row = |source: &Source| matches!(source, Source::Tensor(at) if space.is_row(*at));
        let elements = program.outputs.iter().all(is_element);
        program.sources.iter().map(|source| elements && is_row(source)).collect()
    }

    /// A program as a function; `argument` is what a source passes in a register type.
    pub(super) fn function(
        &self,
        (name, about): (&str, &str),
        program: &GraphProgram,
        taken: &mut Identifiers,
        argument: &dyn Fn(&Source, &str) -> String,
    ) -> Function {
        let name = taken.fresh(name);
        let mut locals = taken.clone();
        let input = |source: &Source| match source {
            Source::Tensor(at) => self.names[*at].clone(),
            Source::Position(at) => self.positions[*at].clone(),
            Source::Coordinate(_) => locals.fresh("index"),
        };
        let inputs: Vec<String> = program.sources.iter().map(input).collect();
        let outputs: Vec<String> =
            program.outputs.iter().map(|at| self.names[*at].clone()).collect();
        let shared = self.shared(program);
        let emission = Emission { shared: &shared, ..Emission::default() };
        let emitted = program.program.emit_with(&inputs, &outputs, &mut locals, emission);
        let read = (0..inputs.len()).filter(|input| program.reads(*input));
        let (mut declared, mut passed) = (Vec::new(), Vec::new());
        for input in read {
            let register = emitted.input_types[input];
            declared.push(format!("const {register} {}", inputs[input]));
            passed.push(argument(&program.sources[input], register));
        }
        for (name, output) in outputs.iter().zip(&emitted.outputs) {
            declared.push(format!("{}& {name}", output.ctype));
        }
        let text = FunctionText {
            name,
            about: about.to_owned(),
            parameters: list(&declared, Indent(4), Width(60)),
            lines: emitted.lines,
        };
        let types = emitted.outputs.iter().map(|output| output.ctype).collect();
        Function { text, types, inputs: passed, calls: emitted.functions }
    }
}
