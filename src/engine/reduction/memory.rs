//! Tensors and partials that one kernel of a reduction reads and writes.

use crate::engine::reduction::context::{Context, Span};
use crate::engine::reduction::phases::Phases;
use crate::engine::reduction::step::Step;
use crate::engine::signature::{Indent, Width, arguments, kernel_parameter, list};
use crate::graph::CanonicalGraph;
use crate::kernel::Argument;

/// The tensors and partial results that one kernel reads and writes.
pub(super) struct Memory {
    by_value: Vec<usize>,
    /// One element for all rows.
    pub(super) scalars: Vec<usize>,
    /// A value per row, for elements.
    pub(super) row_inputs: Vec<usize>,
    /// A value per row, to be stored.
    pub(super) last_inputs: Vec<usize>,
    /// One row of elements that all rows share.
    pub(super) shared: Vec<usize>,
    /// Elements of a row of their own.
    pub(super) streams: Vec<usize>,
    outputs: Vec<usize>,
    /// Positions of partial results.
    pub(super) partials: Vec<usize>,
}

impl Memory {
    pub(super) fn of(context: &Context<'_>, span: Span) -> Memory {
        let Context { graph, space, phases, .. } = context;
        let in_kernel = &phases.phases[..span.end];
        let with_elements = &in_kernel[span.first.min(span.end)..];
        let mut read: Vec<usize> = in_kernel.iter().flat_map(|p| Phases::reads(&p.row)).collect();
        for phase in with_elements {
            read.extend(Phases::reads(&phase.elements));
            read.extend(context.element_inputs(phase));
        }
        let stored_rows = !span.to_partials;
        let last = stored_rows.then(|| Phases::reads(&phases.last)).into_iter().flatten();
        let input = |at: &usize| !graph.tensors[*at].is_virtual && !graph.is_written(*at);
        let unique = |all: &mut dyn Iterator<Item = usize>| -> Vec<usize> {
            let mut found = Vec::new();
            all.filter(input).for_each(|at| {
                if !found.contains(&at) {
                    found.push(at)
                }
            });
            found
        };
        let (read, last) = (unique(&mut read.into_iter()), unique(&mut last.into_iter()));
        let both = unique(&mut read.iter().chain(&last).copied());
        let memory = |at: &usize| !graph.tensors[*at].by_value;
        let scalar = |at: &usize| memory(at) && space.is_row(*at) && space.is_shared(*at);
        let row = |at: &usize| memory(at) && space.is_row(*at) && !space.is_shared(*at);
        let pick = |from: &[usize], chosen: &dyn Fn(&usize) -> bool| -> Vec<usize> {
            from.iter().copied().filter(|at| chosen(at)).collect()
        };
        let elements = with_elements.iter().flat_map(|phase| &phase.elements.outputs).copied();
        let rows = stored_rows.then_some(&phases.row_outputs).into_iter().flatten().copied();
        let outputs = elements.filter(|at| !graph.tensors[*at].is_virtual).chain(rows);
        let before = |number: usize| number < span.first || span.to_partials;
        let steps = in_kernel.iter().enumerate();
        let partials = steps.flat_map(|(number, phase)| vec![before(number); phase.steps.len()]);
        let partials: Vec<bool> = partials.collect();
        Memory {
            by_value: pick(&both, &|at| !memory(at)),
            scalars: pick(&both, &scalar),
            row_inputs: pick(&read, &row),
            last_inputs: pick(&last, &|at| row(at) && !read.contains(at)),
            shared: pick(&read, &|at| !space.is_row(*at) && space.is_shared(*at)),
            streams: pick(&read, &|at| !space.is_row(*at) && !space.is_shared(*at)),
            outputs: outputs.collect(),
            partials: match space.has_sums() {
                true => (0..context.sums().count()).collect(),
                false => (0..partials.len()).filter(|at| partials[*at]).collect(),
            },
        }
    }

    /// The arguments of the kernel.
    pub(super) fn arguments(&self, graph: CanonicalGraph<'_>) -> Vec<Argument> {
        let scratch = self.partials.iter().map(|at| Argument::Scratch(*at));
        arguments(graph, self.passed().iter()).into_iter().chain(scratch).collect()
    }

    /// What the kernel reads and writes that combines the column sums of all blocks.
    pub(super) fn of_columns(context: &Context<'_>) -> Memory {
        let Context { graph, phases, .. } = context;
        let reads = Phases::reads(&phases.columns);
        let input = |at: &usize| !graph.tensors[*at].is_virtual && !graph.is_written(*at);
        let (by_value, scalars) = reads.filter(input).partition(|at| graph.tensors[*at].by_value);
        Memory {
            by_value,
            scalars,
            row_inputs: Vec::new(),
            last_inputs: Vec::new(),
            shared: Vec::new(),
            streams: Vec::new(),
            outputs: phases.columns.outputs.clone(),
            partials: (0..context.sums().count()).collect(),
        }
    }

    fn inputs(&self) -> Vec<usize> {
        let Memory { by_value, scalars, row_inputs, last_inputs, shared, streams, .. } = self;
        [&streams[..], shared, row_inputs, last_inputs, scalars, by_value].concat()
    }

    pub(super) fn passed(&self) -> Vec<usize> {
        [self.inputs(), self.outputs.clone()].concat()
    }

    /// Those of the tensors passed that are in memory.
    pub(super) fn in_memory(&self, graph: CanonicalGraph<'_>) -> Vec<usize> {
        self.passed().into_iter().filter(|at| !graph.tensors[*at].by_value).collect()
    }

    /// The declarations of kernel parameters, the last of which are `counts`.
    pub(super) fn kernel_parameters(&self, context: &Context<'_>, counts: &str) -> String {
        let steps: Vec<&Step> = match context.space.has_sums() {
            true => context.sums().collect(),
            false => context.steps().collect(),
        };
        let tensors = self.passed();
        let declared =
            tensors.iter().map(|at| kernel_parameter(context.graph, *at, &context.names[*at]));
        let partials = self.partials.iter().map(|partial| {
            let Step { op, result, .. } = steps[*partial];
            format!("{}* {}_partials", op.math.dtype().register(), context.names[*result])
        });
        let declared: Vec<String> = declared.chain(partials).chain([counts.to_owned()]).collect();
        list(&declared, Indent(4), Width(25))
    }
}
