//! Template parameters and launches of `reduction` kernels.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::engine::access::ceil_div;
use crate::engine::dimensions::coordinates;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduce::{finished, op_name};
use crate::engine::reduction::context::{Context, Function, Span, Value};
use crate::engine::reduction::layout::Layouts;
use crate::engine::reduction::memory::Memory;
use crate::engine::reduction::phases::{Phase, Phases};
use crate::engine::reduction::schedule::Schedule;
use crate::engine::reduction::space::Space;
use crate::engine::reduction::step::Step;
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Arch;

/// Declaration of the run-time number of rows.
const ROWS: Option<&str> = Some("const long long COUNT");

/// Threads per block of the kernel that combines column sums: 32 columns, 16 warps.
const COLUMN_THREADS: u32 = 512;

/// The kernels of one lowering.
struct Rows<'a> {
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
    let phases = Phases::of(graph, space, schedule.kept);
    let rows = Rows { context: Context::new(graph, space, &phases, arch), schedule };
    if schedule.segments == 1 {
        let whole = rows.kernel(Span::whole(&phases));
        let sums = space.has_sums().then(|| rows.sums_kernel());
        let kernels = std::iter::once(whole).chain(sums).collect();
        let sums = rows.context.sums();
        return Lowering { kernels, scratch: sums.map(|sum| rows.sum_bytes(sum)).collect() };
    }
    let part_bytes = |step: &Step| {
        let bytes = step.op.math.dtype().bytes() as i64;
        (space.rows.count() * schedule.segments * bytes) as u64
    };
    Lowering {
        kernels: Span::split(&phases).into_iter().map(|span| rows.kernel(span)).collect(),
        scratch: rows.context.steps().map(part_bytes).collect(),
    }
}

impl Rows<'_> {
    /// Bytes of the partials of a column sum, of all blocks.
    fn sum_bytes(&self, sum: &Step) -> u64 {
        let Schedule { chunks, vector, .. } = *self.schedule;
        let bytes = sum.op.math.dtype().bytes() as i64;
        (self.schedule.slots(self.context.space) * chunks * vector * bytes) as u64
    }

    fn layouts(&self) -> Layouts<'_> {
        Layouts { graph: self.context.graph, space: self.context.space, schedule: self.schedule }
    }

    fn tensor(&self, at: usize) -> Json {
        self.layouts().tensor(at, &self.context.names[at])
    }

    fn kernel(&self, span: Span) -> KernelPlan {
        let memory = Memory::of(&self.context, span);
        let mut taken = self.context.identifiers.clone();
        let mut functions = Vec::new();
        let phases: Vec<Json> = (0..span.end)
            .map(|number| self.phase(span, number, &mut taken, &mut functions))
            .collect();
        let stores_rows = !span.to_parts;
        let last = match self.context.phases.last.outputs.is_empty() || !stores_rows {
            true => None,
            false => Some(self.function(
                "values_last",
                "Values of a row that are stored.",
                &self.context.phases.last,
                &mut taken,
            )),
        };
        let mut parameters = self.problem();
        let rows: Vec<usize> =
            if stores_rows { self.context.phases.row_outputs.clone() } else { Vec::new() };
        let row_outputs = rows.iter().map(|at| self.row_output(*at, last.as_ref()));
        let last_outputs = self.context.phases.last.outputs.iter();
        let last_call = last.as_ref().map(|last| {
            last.call(last_outputs.map(|at| format!("{}_value", self.context.names[*at])), 16)
        });
        let whole_grid = span.first < span.end;
        let joined = self.context.phases.phases[..span.end].iter().flat_map(Phase::in_turn);
        let joined = joined.filter(|steps| !steps.is_empty());
        let barrier = joined.count() == 1 && self.schedule.row_threads > 32;
        parameters["row_outputs"] = row_outputs.collect();
        parameters["last_function"] = json!(last.as_ref().map_or("", |last| &last.name));
        parameters["last_arguments"] = json!(last_call.unwrap_or_default());
        functions.extend(last);
        let calls: BTreeSet<&str> = functions.iter().flat_map(|of| &of.calls).copied().collect();
        parameters["functions"] = json!(calls);
        parameters["programs"] = functions.iter().map(|function| function.text.clone()).collect();
        parameters["phases"] = json!(phases);
        parameters["barrier"] = json!(barrier);
        parameters["whole_grid"] = json!(whole_grid);
        let sums = phases.iter().filter_map(|phase| phase["sums"].as_array()).flatten();
        parameters["sums"] = sums.cloned().collect();
        memory.describe(&self.context, &|at| self.tensor(at), ROWS, &mut parameters);
        self.plan(span, &memory, parameters)
    }

    /// The kernel that combines the partials of column sums.
    fn sums_kernel(&self) -> KernelPlan {
        let mut taken = self.context.identifiers.clone();
        let program = &self.context.phases.columns;
        let after =
            self.function("column", "What is made of the sums of a column.", program, &mut taken);
        let memory = Memory::of_columns(&self.context);
        let mut parameters = self.problem();
        let outputs = program.outputs.iter().zip(&after.types);
        parameters["outputs"] =
            outputs.map(|(at, ctype)| self.element_output(*at, ctype)).collect();
        let values = program.outputs.iter().map(|at| format!("{}_value", self.context.names[*at]));
        parameters["after_function"] = json!(after.name);
        parameters["after_arguments"] = json!(after.call(values, 12));
        parameters["functions"] = json!(after.calls);
        parameters["programs"] = json!([after.text]);
        let no_elements = Phase {
            row: program.clone(),
            elements: GraphProgram::of(self.context.graph, std::iter::empty(), &[]),
            steps: Vec::new(),
            sums: Vec::new(),
        };
        parameters["sums"] =
            self.context.sums().map(|sum| self.step(sum, &no_elements, None)).collect();
        parameters["slots"] = json!(self.schedule.slots(self.context.space));
        (parameters["threads"], parameters["row_threads"]) = (json!(COLUMN_THREADS), json!(32));
        memory.describe(&self.context, &|at| self.tensor(at), ROWS, &mut parameters);
        let padded = self.schedule.chunks * self.schedule.vector;
        let template = "reduction/sm75_reduction_sums.cu";
        let launch = LaunchPlan {
            grid: Grid::Fixed(ceil_div(padded, 32) as u32),
            threads: COLUMN_THREADS,
            shared_bytes: 0,
            cooperative: false,
            arguments: memory.arguments(self.context.graph),
            maps: Vec::new(),
            numbers: vec![self.context.space.rows.count()],
        };
        KernelPlan { spec: self.context.spec("sums", template, parameters), launch }
    }

    fn plan(&self, span: Span, memory: &Memory, parameters: Json) -> KernelPlan {
        let Schedule { threads, kept, .. } = *self.schedule;
        let (variant, template) = match kept {
            true => ("kept", "reduction/sm75_reduction_kept.cu"),
            false => ("read", "reduction/sm75_reduction_read.cu"),
        };
        let blocks = match span.first < span.end {
            true => self.schedule.blocks(self.context.space),
            false => self.context.space.rows.count(),
        };
        let launch = LaunchPlan {
            grid: self.schedule.grid(blocks),
            threads: threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: memory.arguments(self.context.graph),
            maps: Vec::new(),
            numbers: vec![self.context.space.rows.count()],
        };
        KernelPlan { spec: self.context.spec(variant, template, parameters), launch }
    }

    /// Parameters common to all kernels.
    fn problem(&self) -> Json {
        let Space { rows, columns, .. } = self.context.space;
        let Schedule { threads, row_threads, vector, items, chunks, segments, cluster, .. } =
            *self.schedule;
        let outer = &columns.extents[..columns.extents.len() - 1];
        let lines = self.context.phases.phases.iter().flat_map(|phase| self.context.listing(phase));
        let after = [&self.context.phases.last, &self.context.phases.columns];
        let last = after.map(|program| program.program.to_string()).concat();
        let steps = self.context.steps().chain(self.context.sums());
        let reductions: BTreeSet<&str> = steps.map(|step| op_name(step.op)).collect();
        json!({
            "listing": lines.chain(last.lines().map(str::to_owned)).collect::<Vec<_>>(),
            "reductions": reductions,
            "reduces_across": false,
            "spreads": self.context.spreads(),
            "index_type": self.index_type(),
            "threads": threads,
            "row_threads": row_threads,
            "vector": vector,
            "items": items,
            "whole_tiles": rows.count() % self.schedule.block_rows() == 0,
            "columns": columns.count(),
            "width": self.context.space.width(),
            "chunks": chunks,
            "segments": segments,
            "cluster": cluster,
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
        let rows = self.context.space.rows.count();
        let counted = rows.max(chunks.saturating_mul(vector)).max(rows.saturating_mul(segments));
        match counted.max(self.context.space.offset_max()) < 1 << 31 {
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
            let inputs = self.context.element_inputs(phase).into_iter();
            json["inputs"] = inputs.map(|at| self.tensor(at)).collect();
            if !phase.elements.outputs.is_empty() {
                let about = format!("Phase {number}, for one element.");
                let name = format!("elements{number}");
                let function = self.function(&name, &about, &phase.elements, taken);
                let outputs = phase.elements.outputs.iter().zip(&function.types);
                let described = outputs.map(|(at, ctype)| self.element_output(*at, ctype));
                let names = phase.elements.outputs.iter().map(|at| &self.context.names[*at]);
                let values = names.map(|name| format!("{name}_value[j]"));
                let indent = if self.schedule.kept { 20 } else { 24 };
                json["outputs"] = described.collect();
                json["element_function"] = json!(function.name);
                json["element_arguments"] = json!(function.call(values, indent));
                elements = Some(function);
            }
        }
        for (name, steps) in ["steps", "spreads"].into_iter().zip(phase.in_turn()) {
            let steps = steps.iter().map(|step| self.step(step, phase, elements.as_ref()));
            json[name] = steps.collect();
        }
        let sums = phase.sums.iter().map(|step| self.step(step, phase, elements.as_ref()));
        json["sums"] = sums.collect();
        functions.extend(elements);
        json
    }

    fn function(
        &self,
        name: &str,
        about: &str,
        program: &GraphProgram,
        taken: &mut Identifiers,
    ) -> Function {
        let argument = |source: &Source, register: &str| self.argument(source, register);
        self.context.function((name, about), program, taken, &argument)
    }

    /// C++ argument for a source.
    fn argument(&self, source: &Source, register: &str) -> String {
        let last = self.context.space.columns.extents.len() - 1;
        let at = match source {
            Source::Tensor(at) => *at,
            Source::Coordinate(axis) => {
                let row = axis.and_then(|axis| self.context.space.rows.axes[axis]);
                let column = axis.and_then(|axis| self.context.space.columns.axes[axis]);
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
        let (tensor, name) = (&self.context.graph.tensors[at], &self.context.names[at]);
        match (self.context.graph.is_written(at), self.context.space.is_row(at)) {
            _ if tensor.by_value => format!("{register}({name})"),
            (true, true) => self.variable(at),
            (true, false) if self.context.space.follows_sums(at) => name.clone(),
            (true, false) => format!("{name}_kept[item].get(j)"),
            (false, true) => format!("{name}_in.get(0)"),
            (false, false) if self.context.space.stride(at) == 0 => {
                format!("{name}_in[item].get(0)")
            }
            (false, false) => format!("{name}_in[item].get(j)"),
        }
    }

    fn step(&self, step: &Step, phase: &Phase, elements: Option<&Function>) -> Json {
        let (name, dtype) = (&self.context.names[step.result], step.op.math.dtype());
        let register = dtype.register();
        let argument = |source: &Source, register: &str| self.argument(source, register);
        let sum = self.context.space.follows_sums(step.result);
        let part = format!("{name}_part");
        let count = format!("{register}({})", if sum { "COUNT" } else { "COLUMNS" });
        json!({
            "name": name,
            "access": 16.min(self.schedule.vector * dtype.bytes() as i64),
            "op": op_name(step.op),
            "mean": step.around.map_or("", |mean| &self.context.names[mean]),
            "ctype": register,
            "term": self.context.term(step, phase, elements, &argument),
            "finish": finished(step.op.op, &part, &count).unwrap_or(part),
        })
    }

    /// The variable that holds a value of a row; a parameter has the name of an output itself.
    fn variable(&self, at: usize) -> String {
        let name = &self.context.names[at];
        if self.context.graph.tensors[at].is_virtual { name.clone() } else { format!("{name}_row") }
    }

    /// A value of a row that is computed for elements.
    fn value(&self, at: usize, ctype: &'static str) -> Value {
        let Context { graph, names, .. } = &self.context;
        Value::of(&graph.tensors[at], &names[at], self.variable(at), ctype)
    }

    fn element_output(&self, at: usize, value_type: &str) -> Json {
        let mut output = self.tensor(at);
        let tensor = &self.context.graph.tensors[at];
        output["value_type"] = json!(value_type);
        output["is_kept"] = json!(self.context.phases.kept.contains(&at));
        output["is_stored"] = json!(!tensor.is_virtual);
        output
    }

    fn row_output(&self, at: usize, last: Option<&Function>) -> Json {
        self.context.row_output(at, self.tensor(at), self.variable(at), last)
    }
}
