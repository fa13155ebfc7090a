//! Template parameters and launches of `reduction_columns` kernels.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::engine::dimensions::coordinates;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduce::{finished, op_name};
use crate::engine::reduction::columns::layout;
use crate::engine::reduction::columns::schedule::Schedule;
use crate::engine::reduction::context::{Context, Function, Span, Value};
use crate::engine::reduction::memory::Memory;
use crate::engine::reduction::phases::{Phase, Phases};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::step::Step;
use crate::expr::Identifiers;
use crate::graph::{CanonicalGraph, ReductionOp};
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Arch;

/// The parameters that count, of values and of what becomes one of them, at run time.
const COUNTS: Option<&str> = Some("const long long COUNT, const long long REDUCED_COUNT");

/// The kernels of one lowering.
struct Columns<'a> {
    context: Context<'a>,
    schedule: &'a Schedule,
}

/// The kernels of a graph.
pub(super) fn lowering(
    graph: CanonicalGraph<'_>,
    space: &Space,
    schedule: &Schedule,
    arch: Arch,
) -> Lowering {
    let phases = Phases::of(graph, space, false);
    let columns = Columns { context: Context::new(graph, space, &phases, arch), schedule };
    if schedule.segments == 1 {
        return Lowering::from(columns.kernel(Span::whole(&phases)));
    }
    let part_bytes = |step: &Step| {
        let bytes = step.op.math.dtype().bytes() as i64;
        (schedule.chunks * schedule.vector * schedule.segments * bytes) as u64
    };
    Lowering {
        kernels: Span::split(&phases).into_iter().map(|span| columns.kernel(span)).collect(),
        scratch: columns.context.steps().map(part_bytes).collect(),
    }
}

impl Columns<'_> {
    fn kernel(&self, span: Span) -> KernelPlan {
        let Context { phases, identifiers, names, .. } = &self.context;
        let memory = Memory::of(&self.context, span);
        let mut taken = identifiers.clone();
        let mut functions = Vec::new();
        let described: Vec<Json> = (0..span.end)
            .map(|number| self.phase(span, number, &mut taken, &mut functions))
            .collect();
        let stores_values = !span.to_parts;
        let last = (stores_values && !phases.last.outputs.is_empty()).then(|| {
            let about = ("values_last", "Values that are stored.");
            self.function(about, &phases.last, &mut taken)
        });
        let last_outputs = phases.last.outputs.iter().map(|at| format!("{}_value[j]", names[*at]));
        let last_call = last.as_ref().map(|last| last.call(last_outputs, 16));
        let mut parameters = self.problem(span);
        let rows = stores_values.then_some(&phases.row_outputs).into_iter().flatten();
        let row_outputs = rows.map(|at| self.row_output(*at, last.as_ref()));
        parameters["row_outputs"] = row_outputs.collect();
        parameters["last_function"] = json!(last.as_ref().map_or("", |last| &last.name));
        parameters["last_arguments"] = json!(last_call.unwrap_or_default());
        functions.extend(last);
        let calls: BTreeSet<&str> = functions.iter().flat_map(|of| &of.calls).copied().collect();
        parameters["functions"] = json!(calls);
        parameters["programs"] = functions.iter().map(|function| function.text.clone()).collect();
        // Of a kernel that only combines partials, few count the elements of a value.
        let merges = |phase: &Json| {
            phase["from_parts"] == true
                && phase["spreads"].as_array().is_some_and(|of| !of.is_empty())
        };
        let counts_segment = span.first < span.end || described.iter().any(merges);
        parameters["counts_segment"] = json!(counts_segment);
        parameters["counts_reduced"] =
            json!(counts_segment || json!(described).to_string().contains("(REDUCED)"));
        parameters["phases"] = json!(described);
        memory.describe(&self.context, &|at| self.tensor(at), COUNTS, &mut parameters);
        let segments = if span.first < span.end { self.schedule.segments } else { 1 };
        let launch = LaunchPlan {
            grid: Grid::Fixed((self.schedule.tiles() * segments) as u32),
            threads: self.schedule.threads() as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: memory.arguments(self.context.graph),
            maps: Vec::new(),
            numbers: vec![self.schedule.chunks, self.context.space.columns.count()],
        };
        let template = "reduction/sm75_reduction_columns.cu";
        KernelPlan { spec: self.context.spec("columns", template, parameters), launch }
    }

    /// The variables that follow from the schedule and the space.
    fn problem(&self, span: Span) -> Json {
        let Context { space, phases, .. } = &self.context;
        let Space { rows, columns, .. } = space;
        let Schedule { vector, items, threads_x, threads_y, chunks, segments, .. } = *self.schedule;
        let lines = phases.phases.iter().flat_map(|phase| self.context.listing(phase));
        let last = phases.last.program.to_string();
        let steps = || phases.phases[..span.end].iter().flat_map(|phase| &phase.steps);
        let reductions: BTreeSet<&str> = steps().map(|step| op_name(step.op)).collect();
        let joined: BTreeSet<&str> = steps().map(|step| step.op.math.dtype().register()).collect();
        let is_split = segments > 1;
        json!({
            "listing": lines.chain(last.lines().map(str::to_owned)).collect::<Vec<_>>(),
            "reductions": reductions,
            "reduces_across": false,
            "spreads": self.context.spreads(),
            "joined": if threads_y > 1 { joined } else { BTreeSet::new() },
            "index_type": self.index_type(),
            "threads_x": threads_x,
            "threads_y": threads_y,
            "vector": vector,
            "items": items,
            "width": rows.width(),
            "whole_tiles": chunks % threads_x == 0,
            "segments": segments,
            "begin": if is_split { "begin + thread_y" } else { "thread_y" },
            "end": if is_split { "end" } else { "REDUCED" },
            "whole_grid": span.first < span.end,
            "kept_extents": rows.outer(),
            "kept_divisions": coordinates(rows.outer().len(), "line", "EXTENT"),
            "reduced_extents": columns.extents,
            "reduced_divisions": coordinates(columns.extents.len(), "at", "INNER"),
        })
    }

    /// 32-bit offsets where everything a kernel counts stays below 2^31: the last block may step
    /// one tile past the end without wrapping.
    fn index_type(&self) -> &'static str {
        let Schedule { chunks, vector, segments, .. } = *self.schedule;
        let space = self.context.space;
        let parts = chunks.saturating_mul(vector).saturating_mul(segments);
        match parts.max(space.columns.count()).max(space.offset_max()) < 1 << 31 {
            true => "unsigned",
            false => "long long",
        }
    }

    /// A phase of a kernel; the functions it calls are added to the others.
    fn phase(
        &self,
        span: Span,
        number: usize,
        taken: &mut Identifiers,
        functions: &mut Vec<Function>,
    ) -> Json {
        let phase = &self.context.phases.phases[number];
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
            let (name, about) = (format!("values{number}"), format!("Values for phase {number}."));
            let values = self.function((&name, &about), &phase.row, taken);
            let outputs = phase.row.outputs.iter().zip(&values.types);
            let described: Vec<Value> = outputs.map(|(at, ctype)| self.value(*at, ctype)).collect();
            let variables = described.iter().map(|value| match value.variable == value.name {
                true => format!("{}[j]", value.name),
                false => value.variable.clone(),
            });
            json["row_function"] = json!(values.name);
            json["row_arguments"] = json!(values.call(variables, 12));
            json["values"] = described.iter().map(Value::json).collect();
            functions.push(values);
        }
        let elements =
            (!from_parts).then(|| self.elements(phase, number, taken, &mut json)).flatten();
        for (name, steps) in ["steps", "spreads"].into_iter().zip(phase.in_turn()) {
            let steps = steps.iter().map(|step| self.step(step, phase, elements.as_ref()));
            json[name] = steps.collect();
        }
        let finishes = |step: &Step| matches!(step.op.op, ReductionOp::Avg | ReductionOp::Norm2);
        json["finishes"] = json!(phase.steps.iter().any(finishes));
        functions.extend(elements);
        json
    }

    /// What a phase does with elements; the function, if any of them is computed.
    fn elements(
        &self,
        phase: &Phase,
        number: usize,
        taken: &mut Identifiers,
        json: &mut Json,
    ) -> Option<Function> {
        let Context { graph, names, .. } = &self.context;
        let inputs = self.context.element_inputs(phase).into_iter();
        json["inputs"] = inputs.map(|at| self.tensor(at)).collect();
        let outputs = &phase.elements.outputs;
        let stores = outputs.iter().any(|at| !graph.tensors[*at].is_virtual);
        json["uses_reduced"] = json!(stores);
        if outputs.is_empty() {
            return None;
        }
        let about = format!("Phase {number}, for one element.");
        let function =
            self.function((&format!("elements{number}"), &about), &phase.elements, taken);
        let described = outputs.iter().zip(&function.types).map(|(at, ctype)| {
            let mut output = self.tensor(*at);
            output["value_type"] = json!(ctype);
            output["is_stored"] = json!(!graph.tensors[*at].is_virtual);
            output
        });
        let values = outputs.iter().map(|at| format!("{}_value[j]", names[*at]));
        let arguments = function.call(values, 20);
        json["outputs"] = described.collect();
        json["uses_reduced"] = json!(stores || arguments.contains("(r.k"));
        json["element_function"] = json!(function.name);
        json["element_arguments"] = json!(arguments);
        Some(function)
    }

    fn function(
        &self,
        about: (&str, &str),
        program: &GraphProgram,
        taken: &mut Identifiers,
    ) -> Function {
        let argument = |source: &Source, register: &str| self.argument(source, register);
        self.context.function(about, program, taken, &argument)
    }

    /// C++ argument for a source.
    fn argument(&self, source: &Source, register: &str) -> String {
        let Context { graph, space, names, .. } = &self.context;
        let at = match source {
            Source::Tensor(at) => *at,
            Source::Coordinate(axis) => {
                let kept = axis.and_then(|axis| space.rows.axes[axis]);
                let reduced = axis.and_then(|axis| space.columns.axes[axis]);
                return match (kept, reduced) {
                    (Some(dimension), _) if dimension == space.rows.outer().len() => {
                        format!("{register}(c.column + j)")
                    }
                    (Some(dimension), _) => format!("{register}(c.i{dimension})"),
                    (_, Some(dimension)) => format!("{register}(r.k{dimension})"),
                    _ => format!("{register}(0)"),
                };
            }
        };
        let name = &names[at];
        let element = if space.rows.stride(at) == 0 { "0" } else { "j" };
        match (graph.is_written(at), space.is_row(at)) {
            _ if graph.tensors[at].by_value => format!("{register}({name})"),
            (true, _) => format!("{}[j]", self.variable(at)),
            (false, true) => format!("{name}_in.get({element})"),
            (false, false) => format!("{name}_in[item].get({element})"),
        }
    }

    fn step(&self, step: &Step, phase: &Phase, elements: Option<&Function>) -> Json {
        let (name, dtype) = (&self.context.names[step.result], step.op.math.dtype());
        let register = dtype.register();
        let argument = |source: &Source, register: &str| self.argument(source, register);
        let finish = finished(step.op.op, &format!("{name}[j]"), &format!("{register}(REDUCED)"));
        json!({
            "name": name,
            "op": op_name(step.op),
            "mean": step.around.map_or("", |mean| &self.context.names[mean]),
            "ctype": register,
            "term": self.context.term(step, phase, elements, &argument),
            "finish": finish.unwrap_or_default(),
        })
    }

    fn tensor(&self, at: usize) -> Json {
        let Context { graph, space, names, .. } = &self.context;
        layout::tensor(*graph, space, at, &names[at], self.schedule.vector)
    }

    /// The variable that holds values; a parameter has the name of an output itself.
    fn variable(&self, at: usize) -> String {
        let name = &self.context.names[at];
        match self.context.graph.tensors[at].is_virtual {
            true => name.clone(),
            false => format!("{name}_kept"),
        }
    }

    /// Values that are computed for elements.
    fn value(&self, at: usize, ctype: &'static str) -> Value {
        let Context { graph, names, .. } = &self.context;
        Value::of(&graph.tensors[at], &names[at], self.variable(at), ctype)
    }

    fn row_output(&self, at: usize, last: Option<&Function>) -> Json {
        self.context.row_output(at, self.tensor(at), self.variable(at), last)
    }
}
