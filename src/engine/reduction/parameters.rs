//! The variables of the reduction templates: kernel plans from a schedule.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::access::ceil_div;
use crate::engine::dimensions::coordinates;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduction::layout::Layouts;
use crate::engine::reduction::memory::Memory;
use crate::engine::reduction::phases::{Phase, Phases, Step};
use crate::engine::reduction::schedule::Schedule;
use crate::engine::reduction::space::Space;
use crate::engine::signature::{Indent, Width, arguments, ctype as storage_type, list, names};
use crate::engine::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::expr::Identifiers;
use crate::graph::{CanonicalGraph, ReductionOp};
use crate::target::Arch;

/// Threads of a block that joins sums of columns: 32 columns, a warp for each of 16 parts.
const COLUMN_THREADS: u32 = 512;

/// What every kernel of a lowering is made from.
pub(super) struct Context<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) space: &'a Space,
    schedule: &'a Schedule,
    pub(super) phases: &'a Phases,
    arch: Arch,
    identifiers: Identifiers,
    /// Of each tensor that has one outside of a program; else empty.
    pub(super) names: Vec<String>,
}

/// The phases of one kernel: those before `first` are joined from the parts in scratch memory.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// The phases from here on read elements.
    pub(super) first: usize,
    /// Behind the last phase.
    pub(super) end: usize,
    /// Whether the last phase leaves parts to the next kernel.
    pub(super) to_parts: bool,
}

/// The kernels of a graph.
pub(super) fn lowering(
    graph: CanonicalGraph<'_>,
    space: &Space,
    schedule: &Schedule,
    arch: Arch,
) -> Lowering {
    let phases = Phases::of(graph, space, schedule.kept);
    let mut identifiers = Identifiers::new();
    let names = all_names(graph, &phases, &mut identifiers);
    let context = Context { graph, space, schedule, phases: &phases, arch, identifiers, names };
    let count = phases.phases.len();
    if schedule.segments == 1 {
        let whole = context.kernel(Span { first: 0, end: count, to_parts: false });
        let sums = space.has_sums().then(|| context.column_kernel());
        let kernels = std::iter::once(whole).chain(sums).collect();
        return Lowering {
            kernels,
            scratch: context.sums().map(|sum| context.sum_bytes(sum)).collect(),
        };
    }
    let reduces = |number: usize| !phases.phases[number].steps.is_empty();
    let span = |number| Span { first: number, end: number + 1, to_parts: reduces(number) };
    let mut spans: Vec<Span> = (0..count).map(span).collect();
    if reduces(count - 1) {
        spans.push(Span { first: count, end: count, to_parts: false });
    }
    let part_bytes = |step: &Step| {
        let bytes = step.op.math.dtype().bytes() as i64;
        (space.rows.count() * schedule.segments * bytes) as u64
    };
    Lowering {
        kernels: spans.into_iter().map(|span| context.kernel(span)).collect(),
        scratch: context.steps().map(part_bytes).collect(),
    }
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
struct Function {
    text: Json,
    name: String,
    /// C++ types of the outputs.
    types: Vec<&'static str>,
    /// What is passed for the inputs.
    inputs: Vec<String>,
    library: BTreeSet<&'static str>,
}

/// A value of a row: `variable` holds it before it is rounded to its type, `name` after that.
struct Value {
    name: String,
    variable: String,
    ctype: &'static str,
    dtype: DType,
    /// Whether it needs no rounding.
    exact: bool,
}

impl Value {
    fn json(&self) -> Json {
        let Value { name, variable, ctype, dtype, exact } = self;
        let storage = storage_type(*dtype);
        let rounding = match exact {
            true => String::new(),
            false => format!("widen(Narrow<{storage}>::from({variable}))"),
        };
        json!({
            "name": name,
            "variable": variable,
            "value_type": ctype,
            "register": dtype.register(),
            "rounding": rounding,
        })
    }
}

impl Function {
    fn call(&self, outputs: impl Iterator<Item = String>, indent: usize) -> String {
        let arguments: Vec<String> = self.inputs.iter().cloned().chain(outputs).collect();
        list(&arguments, Indent(indent), Width(60))
    }
}

impl Context<'_> {
    /// The reductions of all phases.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.phases.phases.iter().flat_map(|phase| &phase.steps)
    }

    /// The sums of columns of all phases.
    pub(super) fn sums(&self) -> impl Iterator<Item = &Step> {
        self.phases.phases.iter().flat_map(|phase| &phase.sums)
    }

    /// Bytes of the parts that all blocks leave of a sum of columns.
    fn sum_bytes(&self, sum: &Step) -> u64 {
        let Schedule { chunks, vector, .. } = *self.schedule;
        let bytes = sum.op.math.dtype().bytes() as i64;
        (self.schedule.slots(self.space) * chunks * vector * bytes) as u64
    }

    fn layouts(&self) -> Layouts<'_> {
        Layouts { graph: self.graph, space: self.space, schedule: self.schedule }
    }

    fn tensor(&self, at: usize) -> Json {
        self.layouts().tensor(at, &self.names[at])
    }

    pub(super) fn tensors(&self, chosen: impl IntoIterator<Item = usize>) -> Vec<Json> {
        chosen.into_iter().map(|at| self.tensor(at)).collect()
    }

    fn kernel(&self, span: Span) -> KernelPlan {
        let memory = Memory::of(self, span);
        let mut taken = self.identifiers.clone();
        let mut functions = Vec::new();
        let phases: Vec<Json> = (0..span.end)
            .map(|number| self.phase(span, number, &mut taken, &mut functions))
            .collect();
        let stores_rows = !span.to_parts;
        let last = match self.phases.last.outputs.is_empty() || !stores_rows {
            true => None,
            false => Some(self.function(
                "values_last",
                "Values of a row that are stored.",
                &self.phases.last,
                &mut taken,
            )),
        };
        let mut parameters = self.problem();
        let rows: Vec<usize> =
            if stores_rows { self.phases.row_outputs.clone() } else { Vec::new() };
        let row_outputs = rows.iter().map(|at| self.row_output(*at, last.as_ref()));
        let last_outputs = self.phases.last.outputs.iter();
        let last_call = last
            .as_ref()
            .map(|last| last.call(last_outputs.map(|at| format!("{}_value", self.names[*at])), 16));
        let whole_grid = span.first < span.end;
        let joined = self.phases.phases[..span.end].iter().filter(|of| !of.steps.is_empty());
        let barrier = joined.count() == 1 && self.schedule.row_threads > 32;
        parameters["row_outputs"] = row_outputs.collect();
        parameters["last_function"] = json!(last.as_ref().map_or("", |last| &last.name));
        parameters["last_arguments"] = json!(last_call.unwrap_or_default());
        functions.extend(last);
        let library: BTreeSet<&str> = functions.iter().flat_map(|f| &f.library).copied().collect();
        parameters["functions"] = json!(library);
        parameters["programs"] = functions.iter().map(|function| function.text.clone()).collect();
        parameters["phases"] = json!(phases);
        parameters["barrier"] = json!(barrier);
        parameters["whole_grid"] = json!(whole_grid);
        let sums = phases.iter().filter_map(|phase| phase["sums"].as_array()).flatten();
        parameters["sums"] = sums.cloned().collect();
        memory.describe(self, &mut parameters);
        self.plan(span, &memory, parameters)
    }

    /// The kernel that joins what the blocks left of sums of columns.
    fn column_kernel(&self) -> KernelPlan {
        let mut taken = self.identifiers.clone();
        let program = &self.phases.columns;
        let after =
            self.function("column", "What is made of the sums of a column.", program, &mut taken);
        let memory = Memory::of_columns(self);
        let mut parameters = self.problem();
        let outputs = program.outputs.iter().zip(&after.types);
        parameters["outputs"] =
            outputs.map(|(at, ctype)| self.element_output(*at, ctype)).collect();
        let values = program.outputs.iter().map(|at| format!("{}_value", self.names[*at]));
        parameters["after_function"] = json!(after.name);
        parameters["after_arguments"] = json!(after.call(values, 12));
        parameters["functions"] = json!(after.library);
        parameters["programs"] = json!([after.text]);
        let no_elements = Phase {
            row: program.clone(),
            elements: GraphProgram::of(self.graph, std::iter::empty(), &[]),
            steps: Vec::new(),
            sums: Vec::new(),
        };
        parameters["sums"] = self.sums().map(|sum| self.step(sum, &no_elements, None)).collect();
        parameters["slots"] = json!(self.schedule.slots(self.space));
        (parameters["threads"], parameters["row_threads"]) = (json!(COLUMN_THREADS), json!(32));
        memory.describe(self, &mut parameters);
        let padded = self.schedule.chunks * self.schedule.vector;
        let template = "reduction/sm75_reduction_columns.cu";
        let launch = LaunchPlan {
            grid: Grid::Fixed(ceil_div(padded, 32) as u32),
            threads: COLUMN_THREADS,
            shared_bytes: 0,
            cooperative: false,
            arguments: self.arguments(&memory),
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        KernelPlan { spec: self.spec("columns", template, parameters), launch }
    }

    fn plan(&self, span: Span, memory: &Memory, parameters: Json) -> KernelPlan {
        let Schedule { threads, kept, .. } = *self.schedule;
        let (variant, template) = match kept {
            true => ("kept", "reduction/sm75_reduction_kept.cu"),
            false => ("read", "reduction/sm75_reduction_read.cu"),
        };
        let blocks = match span.first < span.end {
            true => self.schedule.blocks(self.space),
            false => self.space.rows.count(),
        };
        let launch = LaunchPlan {
            grid: self.schedule.grid(blocks),
            threads: threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: self.arguments(memory),
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        KernelPlan { spec: self.spec(variant, template, parameters), launch }
    }

    fn arguments(&self, memory: &Memory) -> Vec<Argument> {
        let scratch = memory.parts.iter().map(|part| Argument::Scratch(*part));
        arguments(self.graph, memory.passed().iter()).into_iter().chain(scratch).collect()
    }

    fn spec(&self, variant: &str, template: &'static str, mut parameters: Json) -> KernelSpec {
        let outputs = self.graph.operations.iter().map(|operation| operation.outputs[0] as usize);
        let mut stored = outputs.filter(|at| !self.graph.tensors[*at].is_virtual);
        let dtype = self.graph.tensors[stored.next().expect("a graph has an output")].dtype;
        let stem = format!("sm75_reduction_{dtype}_{variant}");
        parameters["stem"] = json!(stem);
        parameters["entry"] = json!("reduction");
        parameters["arch"] = json!(self.arch.to_string());
        KernelSpec { stem, template, entry: "reduction", arch: self.arch, parameters }
    }

    /// The variables that all kernels share.
    fn problem(&self) -> Json {
        let Space { rows, columns, .. } = self.space;
        let Schedule { threads, row_threads, vector, items, chunks, segments, .. } = *self.schedule;
        let outer = &columns.extents[..columns.extents.len() - 1];
        let lines = self.phases.phases.iter().flat_map(|phase| self.listing(phase));
        let after = [&self.phases.last, &self.phases.columns];
        let last = after.map(|program| program.program.to_string()).concat();
        let steps = self.steps().chain(self.sums());
        let reductions: BTreeSet<&str> = steps.map(|step| op_name(step.op.op)).collect();
        json!({
            "listing": lines.chain(last.lines().map(str::to_owned)).collect::<Vec<_>>(),
            "reductions": reductions,
            "index_type": self.index_type(),
            "threads": threads,
            "row_threads": row_threads,
            "vector": vector,
            "items": items,
            "rows": rows.count(),
            "columns": columns.count(),
            "width": self.space.width(),
            "chunks": chunks,
            "segments": segments,
            "segment_chunks": self.schedule.segment_chunks(),
            "row_extents": rows.extents,
            "row_divisions": coordinates(rows.extents.len(), "at", "EXTENT"),
            "column_extents": outer,
            "column_divisions": coordinates(outer.len(), "line", "INNER"),
        })
    }

    /// 32-bit offsets where everything a kernel counts stays below 2^31: the last block may step
    /// one tile past the end without wrapping.
    fn index_type(&self) -> &'static str {
        let Schedule { chunks, vector, segments, .. } = *self.schedule;
        let rows = self.space.rows.count();
        let counted = rows.max(chunks.saturating_mul(vector)).max(rows.saturating_mul(segments));
        match counted.max(self.space.offset_max()) < 1 << 31 {
            true => "unsigned",
            false => "long long",
        }
    }

    /// A phase in words.
    fn listing(&self, phase: &Phase) -> Vec<String> {
        let program = |program: &GraphProgram| program.program.to_string();
        let (row, elements) = (program(&phase.row), program(&phase.elements));
        let step = |step: &Step| {
            let name = |at: usize| &self.graph.tensors[at].name;
            let dtype = step.op.math.dtype();
            format!("{}: {dtype} = {}({})", name(step.result), step.op, name(step.operand))
        };
        let lines = row.lines().chain(elements.lines()).map(str::to_owned);
        lines.chain(phase.steps.iter().chain(&phase.sums).map(step)).collect()
    }

    /// A phase of a kernel; the functions it calls are added to the others.
    fn phase(
        &self,
        span: Span,
        number: usize,
        taken: &mut Identifiers,
        functions: &mut Vec<Function>,
    ) -> Json {
        let phase = &self.phases.phases[number];
        let from_parts = number < span.first;
        let mut json = json!({
            "values": [],
            "row_function": "",
            "element_function": "",
            "outputs": [],
            "inputs": [],
            "from_parts": from_parts,
            "to_parts": span.to_parts && number + 1 == span.end,
        });
        if !phase.row.outputs.is_empty() {
            let about = format!("Values of a row for phase {number}.");
            let values = self.function(&format!("values{number}"), &about, &phase.row, taken);
            let outputs = phase.row.outputs.iter().zip(&values.types);
            let described: Vec<Value> = outputs.map(|(at, ctype)| self.value(*at, ctype)).collect();
            let variables = described.iter().map(|value| value.variable.clone());
            json["row_function"] = json!(values.name);
            json["row_arguments"] = json!(values.call(variables, 12));
            json["values"] = described.iter().map(Value::json).collect();
            functions.push(values);
        }
        let mut elements = None;
        if !from_parts {
            json["inputs"] = self.tensors(self.element_inputs(phase)).into();
            if !phase.elements.outputs.is_empty() {
                let about = format!("Phase {number}, for one element.");
                let name = format!("elements{number}");
                let function = self.function(&name, &about, &phase.elements, taken);
                let outputs = phase.elements.outputs.iter().zip(&function.types);
                let described = outputs.map(|(at, ctype)| self.element_output(*at, ctype));
                let names = phase.elements.outputs.iter().map(|at| &self.names[*at]);
                let values = names.map(|name| format!("{name}_value[j]"));
                let indent = if self.schedule.kept { 20 } else { 24 };
                json["outputs"] = described.collect();
                json["element_function"] = json!(function.name);
                json["element_arguments"] = json!(function.call(values, indent));
                elements = Some(function);
            }
        }
        let steps = phase.steps.iter().map(|step| self.step(step, phase, elements.as_ref()));
        json["steps"] = steps.collect();
        let sums = phase.sums.iter().map(|step| self.step(step, phase, elements.as_ref()));
        json["sums"] = sums.collect();
        functions.extend(elements);
        json
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

    /// A program as a function.
    fn function(
        &self,
        name: &str,
        about: &str,
        program: &GraphProgram,
        taken: &mut Identifiers,
    ) -> Function {
        let name = taken.fresh(name);
        let mut locals = taken.clone();
        let input = |source: &Source| match source {
            Source::Tensor(at) => self.names[*at].clone(),
            Source::Coordinate(_) => locals.fresh("index"),
        };
        let inputs: Vec<String> = program.sources.iter().map(input).collect();
        let outputs: Vec<String> =
            program.outputs.iter().map(|at| self.names[*at].clone()).collect();
        let emitted = program.program.emit(&inputs, &outputs, &mut locals);
        let read = (0..inputs.len()).filter(|input| program.reads(*input));
        let (mut declared, mut passed) = (Vec::new(), Vec::new());
        for input in read {
            let register = emitted.input_types[input];
            declared.push(format!("const {register} {}", inputs[input]));
            passed.push(self.argument(&program.sources[input], register));
        }
        for (name, output) in outputs.iter().zip(&emitted.outputs) {
            declared.push(format!("{}& {name}", output.ctype));
        }
        let text = json!({
            "name": name,
            "about": about,
            "parameters": list(&declared, Indent(4), Width(60)),
            "lines": emitted.lines,
        });
        let types = emitted.outputs.iter().map(|output| output.ctype).collect();
        Function { text, name, types, inputs: passed, library: emitted.functions }
    }

    /// What is passed to a function.
    fn argument(&self, source: &Source, register: &str) -> String {
        let last = self.space.columns.extents.len() - 1;
        let at = match source {
            Source::Tensor(at) => *at,
            Source::Coordinate(axis) => {
                let row = axis.and_then(|axis| self.space.rows.axes[axis]);
                let column = axis.and_then(|axis| self.space.columns.axes[axis]);
                return match (row, column) {
                    (Some(dimension), _) => format!("{register}(r.i{dimension})"),
                    (_, Some(dimension)) if dimension == last => {
                        format!("{register}(c.column + j)")
                    }
                    (_, Some(dimension)) => format!("{register}(c.k{dimension})"),
                    _ => format!("{register}(0)"),
                };
            }
        };
        let (tensor, name) = (&self.graph.tensors[at], &self.names[at]);
        match (self.graph.is_written(at), self.space.is_row(at)) {
            _ if tensor.by_value => format!("{register}({name})"),
            (true, true) => self.variable(at),
            (true, false) if self.space.follows_sums(at) => name.clone(),
            (true, false) => format!("{name}_kept[item].get(j)"),
            (false, true) => format!("{name}_in.get(0)"),
            (false, false) if self.space.stride(at) == 0 => format!("{name}_in[item].get(0)"),
            (false, false) => format!("{name}_in[item].get(j)"),
        }
    }

    fn step(&self, step: &Step, phase: &Phase, elements: Option<&Function>) -> Json {
        let (name, dtype) = (&self.names[step.result], step.op.math.dtype());
        let register = dtype.register();
        let slot = phase.elements.outputs.iter().position(|at| *at == step.operand);
        let (value, value_type) = match slot.zip(elements) {
            Some((slot, elements)) => {
                (format!("{}_value[j]", self.names[step.operand]), elements.types[slot])
            }
            None => {
                let operand = self.graph.tensors[step.operand].dtype.register();
                (self.argument(&Source::Tensor(step.operand), register), operand)
            }
        };
        let term = if value_type == register { value } else { format!("{register}({value})") };
        let finish = match step.op.op {
            ReductionOp::Avg => {
                let count = if self.space.follows_sums(step.result) { "ROWS" } else { "COLUMNS" };
                format!("{name}_part / {register}({count})")
            }
            ReductionOp::Norm2 => format!("sqrt({name}_part)"),
            _ => format!("{name}_part"),
        };
        json!({
            "name": name,
            "access": 16.min(self.schedule.vector * step.op.math.dtype().bytes() as i64),
            "op": op_name(step.op.op),
            "ctype": register,
            "term": term,
            "finish": finish,
        })
    }

    /// The variable that holds a value of a row; a parameter has the name of an output itself.
    fn variable(&self, at: usize) -> String {
        let name = &self.names[at];
        if self.graph.tensors[at].is_virtual { name.clone() } else { format!("{name}_row") }
    }

    /// A value of a row that is computed for elements.
    fn value(&self, at: usize, ctype: &'static str) -> Value {
        let (name, dtype) = (self.variable(at), self.graph.tensors[at].dtype);
        let exact = matches!(dtype, DType::F32 | DType::F64) && dtype.register() == ctype;
        let variable = if exact { name.clone() } else { format!("{}_value", self.names[at]) };
        Value { name, variable, ctype, dtype, exact }
    }

    fn element_output(&self, at: usize, value_type: &str) -> Json {
        let mut output = self.tensor(at);
        let tensor = &self.graph.tensors[at];
        output["value_type"] = json!(value_type);
        output["is_kept"] = json!(self.phases.kept.contains(&at));
        output["is_stored"] = json!(!tensor.is_virtual);
        output
    }

    fn row_output(&self, at: usize, last: Option<&Function>) -> Json {
        let mut output = self.tensor(at);
        let name = &self.names[at];
        let slot = self.phases.last.outputs.iter().position(|output| *output == at);
        output["is_last"] = json!(slot.is_some());
        output["value_type"] = json!(slot.zip(last).map_or("", |(slot, last)| last.types[slot]));
        let value = if slot.is_some() { format!("{name}_value") } else { self.variable(at) };
        output["value"] = json!(value);
        output
    }
}

/// The structure of `device/ops/reduce.cuh` that a reduction takes its steps with.
fn op_name(op: ReductionOp) -> &'static str {
    match op {
        ReductionOp::Add | ReductionOp::Avg => "Add",
        ReductionOp::Mul => "Mul",
        ReductionOp::Min => "Min",
        ReductionOp::Max => "Max",
        ReductionOp::Amax => "Amax",
        ReductionOp::Norm1 => "Norm1",
        ReductionOp::Norm2 => "Norm2",
        ReductionOp::MulNoZeros => "MulNoZeros",
    }
}
