//! Template parameters and launches of `reduction` kernels.

use serde::Serialize;

use crate::engine::access::{ceil_div, drawn};
use crate::engine::dimensions::coordinates;
use crate::engine::position::Neighbours;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduce::{finished, op_name};
use crate::engine::reduction::context::{Context, Function, Span, Value};
use crate::engine::reduction::layout::Layouts;
use crate::engine::reduction::memory::Memory;
use crate::engine::reduction::phases::{Phase, Phases, Residence};
use crate::engine::reduction::schedule::Schedule;
use crate::engine::reduction::space::Space;
use crate::engine::reduction::step::Step;
use crate::engine::reduction::template::{
    ColumnOutput, ColumnSum, ColumnTerm, CombineKernel, CombinedSum, ElementOutput, Layout, Load,
    PhaseText, Problem, ResidentKernel, ResidentPhase, RowKernel, RowOutputs, Staged, StepText,
    StreamedPhase, VarianceText,
};
use crate::engine::signature::ctype;
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Arch;

/// Declaration of the run-time number of rows.
const ROWS: &str = "const long long COUNT";

/// Threads per block of the kernel that combines column sums.
const COLUMN_THREADS: u32 = 512;

/// Blocks up to which each has fewer columns than 32, a sector or two: as many as fill SMs.
const COLUMN_BLOCKS: i64 = 256;

/// Partials of a column up to which threads would have few each.
const FEW_PARTIALS: i64 = 256;

/// Columns of a block.
fn columns_combined(columns: i64, partials: i64) -> i64 {
    let fit = |width: &i64| ceil_div(columns, *width) <= COLUMN_BLOCKS;
    [8, 16].into_iter().find(fit).filter(|_| partials > FEW_PARTIALS).unwrap_or(32)
}

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
    let phases = Phases::of(graph, space, schedule.residence);
    let rows = Rows { context: Context::new(graph, space, &phases, arch), schedule };
    if schedule.segments == 1 {
        let whole = rows.kernel(Span::whole(&phases));
        let sums = space.has_sums().then(|| rows.combine_kernel());
        let kernels = std::iter::once(whole).chain(sums).collect();
        let sums = rows.context.sums();
        return Lowering { kernels, scratch: sums.map(|sum| rows.sum_bytes(sum)).collect() };
    }
    let partial_bytes = |step: &Step| {
        let bytes = step.op.math.dtype().bytes() as i64;
        (space.rows.count() * schedule.segments * bytes) as u64
    };
    Lowering {
        kernels: Span::split(&phases).into_iter().map(|span| rows.kernel(span)).collect(),
        scratch: rows.context.steps().map(partial_bytes).collect(),
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

    fn layout(&self, at: usize) -> Layout {
        self.layouts().layout(at, &self.context.names[at])
    }

    fn loads(&self, tensors: &[usize]) -> Vec<Load> {
        tensors.iter().map(|at| self.layouts().load(*at, &self.context.names[*at])).collect()
    }

    /// Those tensors as shared memory holds them; none where it does not.
    fn staged(&self, tensors: &[usize]) -> Vec<Staged> {
        let loads = match self.schedule.residence {
            Residence::Shared => self.loads(tensors),
            Residence::Registers | Residence::Memory => Vec::new(),
        };
        let shared = tensors.iter().map(|at| self.context.space.is_shared(*at));
        loads.into_iter().zip(shared).map(|(load, shared)| Staged { load, shared }).collect()
    }

    fn kernel(&self, span: Span) -> KernelPlan {
        let memory = Memory::of(&self.context, span);
        let mut taken = self.context.identifiers.clone();
        let mut functions = Vec::new();
        let phases = &self.context.phases.phases[..span.end];
        if self.schedule.residence != Residence::Memory {
            let is_staged = self.schedule.residence == Residence::Shared;
            let in_registers = |tensors: &[usize]| match is_staged {
                true => Vec::new(),
                false => self.loads(tensors),
            };
            let own = |phase: &Phase, _: usize, elements: Option<&Function>| ResidentPhase {
                staged: self.staged(&self.context.element_inputs(phase)),
                sums: phase.sums.iter().map(|sum| self.column_term(sum, phase, elements)).collect(),
            };
            let texts = self.phases(span, &mut taken, &mut functions, &own);
            let parameters = ResidentKernel {
                rows: self.row_kernel(span, &memory, texts, taken, functions),
                shared: in_registers(&memory.shared),
                streams: in_registers(&memory.streams),
                stages: self.schedule.stages,
                stages_shared: is_staged && !memory.shared.is_empty(),
                staged: self.staged(&[&memory.shared[..], &memory.streams].concat()),
                prefetch: match is_staged {
                    true => !memory.row_inputs.is_empty(),
                    false => self.schedule.prefetch && !memory.streams.is_empty(),
                },
                sums: phases
                    .iter()
                    .flat_map(|phase| &phase.sums)
                    .map(|of| self.column_sum(of))
                    .collect(),
            };
            return self.plan(span, &memory, &parameters);
        }
        let own = |phase: &Phase, number: usize, elements: Option<&Function>| {
            let from_partials = number < span.first;
            let inputs = match from_partials {
                true => Vec::new(),
                false => self.loads(&self.context.element_inputs(phase)),
            };
            let [_, variances] = phase.in_turn();
            let variance = |step: &Step| {
                let mean = step.around.expect("a variance has a mean");
                let mean = self.context.names[mean].clone();
                VarianceText { step: self.step(step, phase, elements), mean }
            };
            let variances: Vec<VarianceText> = variances.into_iter().map(variance).collect();
            StreamedPhase {
                inputs,
                means: VarianceText::means(&variances, from_partials),
                variances,
                from_partials,
                to_partials: span.to_partials && number + 1 == span.end,
            }
        };
        let texts = self.phases(span, &mut taken, &mut functions, &own);
        let parameters = self.row_kernel(span, &memory, texts, taken, functions);
        self.plan(span, &memory, &parameters)
    }

    /// What both templates of rows read.
    fn row_kernel<P>(
        &self,
        span: Span,
        memory: &Memory,
        phases: Vec<PhaseText<P>>,
        mut taken: Identifiers,
        mut functions: Vec<Function>,
    ) -> RowKernel<P> {
        let Context { phases: all, names, .. } = &self.context;
        let stores_rows = !span.to_partials;
        let last = (stores_rows && !all.last.outputs.is_empty()).then(|| {
            self.function("values_last", "Values of a row that are stored.", &all.last, &mut taken)
        });
        let last_outputs = all.last.outputs.iter().map(|at| format!("{}_value", names[*at]));
        let last_arguments = last.as_ref().map(|last| last.call(last_outputs, 16));
        let rows = stores_rows.then_some(&all.row_outputs).into_iter().flatten();
        let row_output = |at: &usize| {
            let store = self.layouts().store(*at, &names[*at]);
            self.context.row_output(*at, store, self.variable(*at), last.as_ref())
        };
        let row_outputs = rows.map(row_output).collect();
        let last_function = last.as_ref().map(|last| last.text.name.clone()).unwrap_or_default();
        let reduced = all.phases[..span.end].iter().flat_map(Phase::in_turn);
        let barrier = reduced.filter(|steps| !steps.is_empty()).count() == 1
            && self.schedule.row_threads > 32;
        functions.extend(last);
        RowKernel {
            problem: self.problem(memory, functions),
            phases,
            row_inputs: self.loads(&memory.row_inputs),
            outputs: RowOutputs {
                row_outputs,
                last_inputs: self.loads(&memory.last_inputs),
                last_function,
                last_arguments: last_arguments.unwrap_or_default(),
            },
            barrier,
            whole_grid: span.first < span.end,
        }
    }

    /// The kernel that combines the partials of column sums.
    fn combine_kernel(&self) -> KernelPlan {
        let mut taken = self.context.identifiers.clone();
        let program = &self.context.phases.columns;
        let after =
            self.function("column", "Values of a column from its sums.", program, &mut taken);
        let memory = Memory::of_columns(&self.context);
        let Context { graph, names, .. } = &self.context;
        let output = |(at, value_type): (&usize, &&'static str)| ColumnOutput {
            name: names[*at].clone(),
            ctype: ctype(graph.tensors[*at].dtype),
            value_type,
        };
        let outputs = program.outputs.iter().zip(&after.types).map(output).collect();
        let values = program.outputs.iter().map(|at| format!("{}_value", names[*at]));
        let (after_function, after_arguments) = (after.text.name.clone(), after.call(values, 12));
        let mut problem = self.problem(&memory, vec![after]);
        (problem.threads, problem.row_threads) = (COLUMN_THREADS.into(), 32);
        let padded = self.schedule.chunks * self.schedule.vector;
        let slots = self.schedule.slots(self.context.space);
        let block_columns = columns_combined(padded, slots);
        let parameters = CombineKernel {
            problem,
            slots,
            block_columns,
            sums: self.context.sums().map(|sum| self.combined_sum(sum)).collect(),
            outputs,
            after_function,
            after_arguments,
        };
        let template = "reduction/sm75_reduction_combine.cu";
        let launch = LaunchPlan {
            grid: Grid::fixed(ceil_div(padded, block_columns) as u32),
            threads: COLUMN_THREADS,
            shared_bytes: 0,
            cooperative: false,
            arguments: memory.arguments(self.context.graph),
            maps: Vec::new(),
            numbers: vec![self.context.space.rows.count()],
        };
        KernelPlan { spec: self.context.spec("combine", template, &parameters), launch }
    }

    fn plan(&self, span: Span, memory: &Memory, parameters: &impl Serialize) -> KernelPlan {
        let Schedule { threads, residence, shared_bytes, .. } = *self.schedule;
        let (variant, template) = match residence {
            Residence::Registers => ("resident", "reduction/sm75_reduction_resident.cu"),
            Residence::Shared => ("staged", "reduction/sm75_reduction_resident.cu"),
            Residence::Memory => ("streamed", "reduction/sm75_reduction_streamed.cu"),
        };
        let blocks = match span.first < span.end {
            true => self.schedule.blocks(self.context.space),
            false => self.context.space.rows.count(),
        };
        let launch = LaunchPlan {
            grid: self.schedule.grid(blocks),
            threads: threads as u32,
            shared_bytes: shared_bytes as u32,
            cooperative: false,
            arguments: memory.arguments(self.context.graph),
            maps: Vec::new(),
            numbers: vec![self.context.space.rows.count()],
        };
        KernelPlan { spec: self.context.spec(variant, template, parameters), launch }
    }

    /// Parameters common to all kernels, of one with these functions.
    fn problem(&self, memory: &Memory, functions: Vec<Function>) -> Problem {
        let Space { rows, columns, .. } = self.context.space;
        let Schedule { threads, row_threads, vector, items, chunks, segments, cluster, .. } =
            *self.schedule;
        let outer = &columns.extents[..columns.extents.len() - 1];
        let lines = self.context.phases.phases.iter().flat_map(|phase| self.context.listing(phase));
        let after = [&self.context.phases.last, &self.context.phases.columns];
        let last = after.map(|program| program.program.to_string()).concat();
        let steps = self.context.steps().chain(self.context.sums());
        let graph = self.context.graph;
        let stored = memory.in_memory(graph).into_iter();
        let positions =
            drawn(graph).map(|at| self.layouts().layout(at, &self.context.positions[at]));
        Problem {
            listing: lines.chain(last.lines().map(str::to_owned)).collect(),
            kernel_parameters: memory.kernel_parameters(&self.context, ROWS),
            tensors: stored.map(|at| self.layout(at)).chain(positions).collect(),
            scalars: self.loads(&memory.scalars),
            functions: functions.iter().flat_map(|of| &of.calls).copied().collect(),
            programs: functions.into_iter().map(|of| of.text).collect(),
            reductions: steps.map(|step| op_name(step.op)).collect(),
            reduces_across: false,
            has_variances: self.context.has_variances(),
            index_type: self.index_type(),
            threads,
            row_threads,
            vector,
            items,
            whole_tiles: rows.count() % self.schedule.block_rows() == 0,
            columns: columns.count(),
            width: self.context.space.width(),
            chunks,
            segments,
            cluster,
            segment_chunks: self.schedule.segment_chunks(),
            row_divisions: coordinates(rows.extents.len(), "at", "EXTENT"),
            row_extents: rows.extents.clone(),
            column_divisions: coordinates(outer.len(), "line", "INNER"),
            column_extents: outer.to_vec(),
        }
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

    /// The phases of a kernel, each with what is its `own`; the functions they call are added to
    /// the others.
    fn phases<P>(
        &self,
        span: Span,
        taken: &mut Identifiers,
        functions: &mut Vec<Function>,
        own: &dyn Fn(&Phase, usize, Option<&Function>) -> P,
    ) -> Vec<PhaseText<P>> {
        let numbers = 0..span.end;
        numbers.map(|number| self.phase(span, number, taken, functions, own)).collect()
    }

    fn phase<P>(
        &self,
        span: Span,
        number: usize,
        taken: &mut Identifiers,
        functions: &mut Vec<Function>,
        own: &dyn Fn(&Phase, usize, Option<&Function>) -> P,
    ) -> PhaseText<P> {
        let phase = &self.context.phases.phases[number];
        let (mut values, mut row_call) = (Vec::new(), [String::new(), String::new()]);
        if !phase.row.outputs.is_empty() {
            let about = format!("Values of a row for phase {number}.");
            let function = self.function(&format!("values{number}"), &about, &phase.row, taken);
            let outputs = phase.row.outputs.iter().zip(&function.types);
            values = outputs.map(|(at, ctype)| self.value(*at, ctype).text()).collect();
            let variables = values.iter().map(|value| value.variable.clone());
            row_call = [function.text.name.clone(), function.call(variables, 12)];
            functions.push(function);
        }
        let (mut outputs, mut element_call) = (Vec::new(), [String::new(), String::new()]);
        let mut elements = None;
        if number >= span.first && !phase.elements.outputs.is_empty() {
            let about = format!("Phase {number}, for one element.");
            let name = format!("elements{number}");
            let function = self.function(&name, &about, &phase.elements, taken);
            let types = phase.elements.outputs.iter().zip(&function.types);
            outputs = types.map(|(at, ctype)| self.element_output(*at, ctype)).collect();
            let names = phase.elements.outputs.iter().map(|at| &self.context.names[*at]);
            let values = names.map(|name| format!("{name}_value[j]"));
            let indent = if self.schedule.residence == Residence::Memory { 24 } else { 20 };
            element_call = [function.text.name.clone(), function.call(values, indent)];
            elements = Some(function);
        }
        let [steps, _] = phase.in_turn();
        let step = |step: &Step| self.step(step, phase, elements.as_ref());
        let ([row_function, row_arguments], [element_function, element_arguments]) =
            (row_call, element_call);
        let text = PhaseText {
            values,
            row_function,
            row_arguments,
            element_function,
            element_arguments,
            outputs,
            steps: steps.into_iter().map(step).collect(),
            own: own(phase, number, elements.as_ref()),
        };
        functions.extend(elements);
        text
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
            Source::Position(at) => return self.position(*at),
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
            (true, false) => format!("{name}_row[item].get(j)"),
            (false, true) => format!("{name}_in.get(0)"),
            (false, false) if self.context.space.stride(at) == 0 => {
                format!("{name}_in[item].get(0)")
            }
            _ if self.schedule.residence == Residence::Shared => format!("{name}_in.get(j)"),
            (false, false) => format!("{name}_in[item].get(j)"),
        }
    }

    /// C++ argument for the position in random numbers.
    fn position(&self, at: usize) -> String {
        let (space, name) = (self.context.space, &self.context.positions[at]);
        let point = if space.is_row(at) { "r" } else { "r, c" };
        let neighbours = Neighbours {
            first: &format!("{name}_layout::at({point})"),
            count: self.schedule.vector,
            step: space.stride(at),
            step_name: &format!("{name}_layout::STRIDE"),
            others: &space.outer(at).0,
        };
        neighbours.position()
    }

    fn step(&self, step: &Step, phase: &Phase, elements: Option<&Function>) -> StepText {
        let name = &self.context.names[step.result];
        StepText {
            name: name.clone(),
            op: op_name(step.op),
            ctype: step.op.math.dtype().register(),
            term: self.term(step, phase, elements),
            finish: finish(step, name, "COLUMNS"),
        }
    }

    fn column_sum(&self, step: &Step) -> ColumnSum {
        let dtype = step.op.math.dtype();
        ColumnSum {
            name: self.context.names[step.result].clone(),
            op: op_name(step.op),
            ctype: dtype.register(),
            access: 16.min(self.schedule.vector * dtype.bytes() as i64),
        }
    }

    fn column_term(&self, step: &Step, phase: &Phase, elements: Option<&Function>) -> ColumnTerm {
        ColumnTerm {
            name: self.context.names[step.result].clone(),
            op: op_name(step.op),
            term: self.term(step, phase, elements),
        }
    }

    fn combined_sum(&self, step: &Step) -> CombinedSum {
        let name = &self.context.names[step.result];
        CombinedSum {
            name: name.clone(),
            op: op_name(step.op),
            ctype: step.op.math.dtype().register(),
            finish: finish(step, name, "COUNT"),
        }
    }

    fn term(&self, step: &Step, phase: &Phase, elements: Option<&Function>) -> String {
        let argument = |source: &Source, register: &str| self.argument(source, register);
        self.context.term(step, phase, elements, &argument)
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

    fn element_output(&self, at: usize, value_type: &'static str) -> ElementOutput {
        let resident = &self.context.phases.resident;
        ElementOutput {
            store: self.layouts().store(at, &self.context.names[at]),
            value_type,
            is_stored: !self.context.graph.tensors[at].is_virtual,
            is_resident: (self.schedule.residence != Residence::Memory)
                .then(|| resident.contains(&at)),
        }
    }
}

/// The result of all values of a reduction, of which there are `count`.
fn finish(step: &Step, name: &str, count: &str) -> String {
    let partial = format!("{name}_partial");
    let count = format!("{}({count})", step.op.math.dtype().register());
    finished(step.op.op, &partial, &count).unwrap_or(partial)
}
