//! Template parameters and launches of `reduction_columns` kernels.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::drawn;
use crate::engine::dimensions::coordinates;
use crate::engine::position::Neighbours;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduce::{finished, op_name};
use crate::engine::reduction::columns::layout;
use crate::engine::reduction::columns::schedule::Schedule;
use crate::engine::reduction::context::{Context, Function, Span, Value};
use crate::engine::reduction::memory::Memory;
use crate::engine::reduction::phases::{Phase, Phases, Residence};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::step::Step;
use crate::engine::reduction::template::{
    ElementOutput, FunctionText, Layout, Load, PhaseText, RowOutput, RowOutputs, StepText,
    StreamedPhase, VarianceText,
};
use crate::expr::Identifiers;
use crate::graph::{CanonicalGraph, ReductionOp};
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Arch;

/// The parameters that count, of values and of what becomes one of them, at run time.
const COUNTS: &str = "const long long COUNT, const long long REDUCED_COUNT";

#[derive(Serialize)]
struct Parameters {
    /// The operations, one per line.
    listing: Vec<String>,
    kernel_parameters: String,
    tensors: Vec<Layout>,
    /// Tensors with one element for all values, and with one for each.
    scalars: Vec<Load>,
    row_inputs: Vec<Load>,
    /// The functions of the kernel, and those of `device/ops/pointwise.cuh` that they call.
    programs: Vec<FunctionText>,
    functions: BTreeSet<&'static str>,
    /// Operators of `device/ops/reduce.cuh`.
    reductions: BTreeSet<&'static str>,
    reduces_across: bool,
    /// Whether variances are reduced in the phases of their means.
    has_variances: bool,
    /// Types of the partials that are combined in shared memory.
    combined: BTreeSet<&'static str>,
    index_type: &'static str,
    /// Threads along the kept and along the reduced dimensions.
    threads_x: i64,
    threads_y: i64,
    vector: i64,
    items: i64,
    width: i64,
    /// Whether no thread is short of a vector.
    whole_tiles: bool,
    /// Blocks that share a value.
    segments: i64,
    /// Bounds of a thread's elements.
    begin: &'static str,
    end: &'static str,
    /// Whether the grid covers all elements, else values alone.
    whole_grid: bool,
    /// Whether elements of a value, and of a segment, are counted.
    counts_reduced: bool,
    counts_segment: bool,
    kept_extents: Vec<i64>,
    kept_divisions: Vec<String>,
    reduced_extents: Vec<i64>,
    reduced_divisions: Vec<String>,
    phases: Vec<PhaseText<ColumnPhase>>,
    #[serde(flatten)]
    outputs: RowOutputs,
}

#[derive(Serialize)]
struct ColumnPhase {
    #[serde(flatten)]
    streamed: StreamedPhase,
    /// Whether coordinates along the reduced dimensions are needed behind the loads.
    uses_reduced: bool,
    /// Whether a result is not that of its partials alone.
    finishes: bool,
}

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
    let phases = Phases::of(graph, space, Residence::Memory);
    let columns = Columns { context: Context::new(graph, space, &phases, arch), schedule };
    if schedule.segments == 1 {
        return Lowering::from(columns.kernel(Span::whole(&phases)));
    }
    let partial_bytes = |step: &Step| {
        let bytes = step.op.math.dtype().bytes() as i64;
        (schedule.chunks * schedule.vector * schedule.segments * bytes) as u64
    };
    Lowering {
        kernels: Span::split(&phases).into_iter().map(|span| columns.kernel(span)).collect(),
        scratch: columns.context.steps().map(partial_bytes).collect(),
    }
}

impl Columns<'_> {
    fn kernel(&self, span: Span) -> KernelPlan {
        let Context { phases: all, identifiers, names, .. } = &self.context;
        let memory = Memory::of(&self.context, span);
        let mut taken = identifiers.clone();
        let mut functions = Vec::new();
        let phases: Vec<PhaseText<ColumnPhase>> = (0..span.end)
            .map(|number| self.phase(span, number, &mut taken, &mut functions))
            .collect();
        let stores_values = !span.to_partials;
        let last = (stores_values && !all.last.outputs.is_empty()).then(|| {
            let about = ("values_last", "Values that are stored.");
            self.function(about, &all.last, &mut taken)
        });
        let last_outputs = all.last.outputs.iter().map(|at| format!("{}_value[j]", names[*at]));
        let last_arguments = last.as_ref().map(|last| last.call(last_outputs, 16));
        let rows = stores_values.then_some(&all.row_outputs).into_iter().flatten();
        let row_outputs = rows.map(|at| self.row_output(*at, last.as_ref())).collect();
        let last_function = last.as_ref().map(|last| last.text.name.clone()).unwrap_or_default();
        functions.extend(last);
        let outputs = RowOutputs {
            row_outputs,
            last_inputs: self.loads(&memory.last_inputs),
            last_function,
            last_arguments: last_arguments.unwrap_or_default(),
        };
        let segments = if span.first < span.end { self.schedule.segments } else { 1 };
        let launch = LaunchPlan {
            grid: Grid::fixed((self.schedule.tiles() * segments) as u32),
            threads: self.schedule.threads() as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: memory.arguments(self.context.graph),
            maps: Vec::new(),
            numbers: vec![self.schedule.chunks, self.context.space.columns.count()],
        };
        let template = "reduction/sm75_reduction_columns.cu";
        let parameters = self.parameters(span, &memory, phases, outputs, functions);
        KernelPlan { spec: self.context.spec("columns", template, &parameters), launch }
    }

    fn parameters(
        &self,
        span: Span,
        memory: &Memory,
        phases: Vec<PhaseText<ColumnPhase>>,
        outputs: RowOutputs,
        functions: Vec<Function>,
    ) -> Parameters {
        let Context { graph, space, phases: all, .. } = &self.context;
        let Space { rows, columns, .. } = space;
        let Schedule { vector, items, threads_x, threads_y, chunks, segments, .. } = *self.schedule;
        let lines = all.phases.iter().flat_map(|phase| self.context.listing(phase));
        let last = all.last.program.to_string();
        let steps = || all.phases[..span.end].iter().flat_map(|phase| &phase.steps);
        let combined = steps().filter(|_| threads_y > 1);
        let is_split = segments > 1;
        let stored = memory.in_memory(*graph).into_iter();
        let positions = drawn(*graph)
            .map(|at| layout::layout(*graph, space, at, &self.context.positions[at], vector));
        // Of a kernel that only combines partials, few count the elements of a value.
        let merges = |phase: &PhaseText<ColumnPhase>| {
            let StreamedPhase { from_partials, variances, .. } = &phase.own.streamed;
            *from_partials && !variances.is_empty()
        };
        let counts_segment = span.first < span.end || phases.iter().any(merges);
        let counts = |phase: &PhaseText<ColumnPhase>| {
            let variances = phase.own.streamed.variances.iter().map(|of| &of.step);
            phase.steps.iter().chain(variances).any(|step| step.finish.contains("(REDUCED)"))
        };
        Parameters {
            listing: lines.chain(last.lines().map(str::to_owned)).collect(),
            kernel_parameters: memory.kernel_parameters(&self.context, COUNTS),
            tensors: stored.map(|at| self.layout(at)).chain(positions).collect(),
            scalars: self.loads(&memory.scalars),
            row_inputs: self.loads(&memory.row_inputs),
            functions: functions.iter().flat_map(|of| &of.calls).copied().collect(),
            programs: functions.into_iter().map(|of| of.text).collect(),
            reductions: steps().map(|step| op_name(step.op)).collect(),
            reduces_across: false,
            has_variances: self.context.has_variances(),
            combined: combined.map(|step| step.op.math.dtype().register()).collect(),
            index_type: self.index_type(),
            threads_x,
            threads_y,
            vector,
            items,
            width: rows.width(),
            whole_tiles: chunks % threads_x == 0,
            segments,
            begin: if is_split { "begin + thread_y" } else { "thread_y" },
            end: if is_split { "end" } else { "REDUCED" },
            whole_grid: span.first < span.end,
            counts_reduced: counts_segment || phases.iter().any(counts),
            counts_segment,
            kept_extents: rows.outer().to_vec(),
            kept_divisions: coordinates(rows.outer().len(), "line", "EXTENT"),
            reduced_divisions: coordinates(columns.extents.len(), "at", "INNER"),
            reduced_extents: columns.extents.clone(),
            phases,
            outputs,
        }
    }

    /// 32-bit offsets where everything a kernel counts stays below 2^31: the last block may step
    /// one tile past the end without wrapping.
    fn index_type(&self) -> &'static str {
        let Schedule { chunks, vector, segments, .. } = *self.schedule;
        let space = self.context.space;
        let partials = chunks.saturating_mul(vector).saturating_mul(segments);
        match partials.max(space.columns.count()).max(space.offset_max()) < 1 << 31 {
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
    ) -> PhaseText<ColumnPhase> {
        let Context { names, phases, .. } = &self.context;
        let phase = &phases.phases[number];
        let from_partials = number < span.first;
        let (mut values, mut row_call) = (Vec::new(), [String::new(), String::new()]);
        if !phase.row.outputs.is_empty() {
            let (name, about) = (format!("values{number}"), format!("Values for phase {number}."));
            let function = self.function((&name, &about), &phase.row, taken);
            let outputs = phase.row.outputs.iter().zip(&function.types);
            values = outputs.map(|(at, ctype)| self.value(*at, ctype).text()).collect();
            let variables = values.iter().map(|value| match value.variable == value.name {
                true => format!("{}[j]", value.name),
                false => value.variable.clone(),
            });
            row_call = [function.text.name.clone(), function.call(variables, 12)];
            functions.push(function);
        }
        let (mut outputs, mut element_call) = (Vec::new(), [String::new(), String::new()]);
        let mut elements = None;
        if !from_partials && !phase.elements.outputs.is_empty() {
            let about = format!("Phase {number}, for one element.");
            let name = format!("elements{number}");
            let function = self.function((&name, &about), &phase.elements, taken);
            let types = phase.elements.outputs.iter().zip(&function.types);
            outputs = types.map(|(at, ctype)| self.element_output(*at, ctype)).collect();
            let arguments =
                phase.elements.outputs.iter().map(|at| format!("{}_value[j]", names[*at]));
            element_call = [function.text.name.clone(), function.call(arguments, 20)];
            elements = Some(function);
        }
        let [steps, variances] = phase.in_turn();
        let step = |step: &Step| self.step(step, phase, elements.as_ref());
        let variance = |of: &Step| {
            let mean = names[of.around.expect("a variance has a mean")].clone();
            VarianceText { step: step(of), mean }
        };
        let inputs = match from_partials {
            true => Vec::new(),
            false => self.loads(&self.context.element_inputs(phase)),
        };
        let finishes = |step: &Step| matches!(step.op.op, ReductionOp::Avg | ReductionOp::Norm2);
        let stores = outputs.iter().any(|output| output.is_stored);
        let uses_reduced =
            stores || ["(r.k", "(c, r)"].iter().any(|of| element_call[1].contains(of));
        let ([row_function, row_arguments], [element_function, element_arguments]) =
            (row_call, element_call);
        let variances: Vec<VarianceText> = variances.into_iter().map(variance).collect();
        let own = ColumnPhase {
            streamed: StreamedPhase {
                inputs,
                means: VarianceText::means(&variances, from_partials),
                variances,
                from_partials,
                to_partials: span.to_partials && number + 1 == span.end,
            },
            uses_reduced,
            finishes: phase.steps.iter().any(finishes),
        };
        let text = PhaseText {
            values,
            row_function,
            row_arguments,
            element_function,
            element_arguments,
            outputs,
            steps: steps.into_iter().map(step).collect(),
            own,
        };
        functions.extend(elements);
        text
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
            Source::Position(at) => return self.position(*at),
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

    /// C++ argument for the position in random numbers.
    fn position(&self, at: usize) -> String {
        let Context { space, positions, .. } = &self.context;
        let (name, point) = (&positions[at], if space.is_row(at) { "c" } else { "c, r" });
        let neighbours = Neighbours {
            first: &format!("{name}_layout::at({point})"),
            count: self.schedule.vector,
            step: space.rows.stride(at),
            step_name: &format!("{name}_layout::STRIDE"),
            others: &layout::outer(space, at).0,
        };
        neighbours.position()
    }

    fn step(&self, step: &Step, phase: &Phase, elements: Option<&Function>) -> StepText {
        let (name, register) = (&self.context.names[step.result], step.op.math.dtype().register());
        let argument = |source: &Source, register: &str| self.argument(source, register);
        let finish = finished(step.op.op, &format!("{name}[j]"), &format!("{register}(REDUCED)"));
        StepText {
            name: name.clone(),
            op: op_name(step.op),
            ctype: register,
            term: self.context.term(step, phase, elements, &argument),
            finish: finish.unwrap_or_default(),
        }
    }

    fn layout(&self, at: usize) -> Layout {
        let Context { graph, space, names, .. } = &self.context;
        layout::layout(*graph, space, at, &names[at], self.schedule.vector)
    }

    fn loads(&self, tensors: &[usize]) -> Vec<Load> {
        let Context { graph, space, names, .. } = &self.context;
        tensors.iter().map(|at| layout::load(*graph, space, *at, &names[*at])).collect()
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

    fn element_output(&self, at: usize, value_type: &'static str) -> ElementOutput {
        let Context { graph, space, names, .. } = &self.context;
        ElementOutput {
            store: layout::store(*graph, space, at, &names[at]),
            value_type,
            is_stored: !graph.tensors[at].is_virtual,
            is_resident: None,
        }
    }

    fn row_output(&self, at: usize, last: Option<&Function>) -> RowOutput {
        let Context { graph, space, names, .. } = &self.context;
        let store = layout::store(*graph, space, at, &names[at]);
        self.context.row_output(at, store, self.variable(at), last)
    }
}
