//! A graph around one product of matrices, or two of the same A, as extents, strides and programs,
//! whatever kernel is made of it: `epilogue(prologue_a(A) x prologue_b(B))`.

use std::collections::BTreeSet;

use crate::engine::access::{PARAMETERS_MAX, volume};
use crate::engine::gemm::axes::{Axes, stride};
use crate::engine::gemm::exits::{Exit, reductions};
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::refuse_i64;
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Matmul, Op, Operation, Reduction};

/// Minimum compute capability of the templates.
const CAPABILITY_MIN: u16 = 75;

/// What is computed element by element of a matrix, and how its tensors lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) axes: Axes,
    pub(super) program: GraphProgram,
    /// What its elements are reduced to.
    pub(super) reduced: Vec<usize>,
}

/// An operand of the product, as a matrix of `extent` rows and K columns: B is transposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Operand {
    /// The tensor that the product reads; virtual where the program computes it.
    pub(super) tensor: usize,
    /// Rows: M of A, N of B.
    pub(super) extent: i64,
    /// The program that gives the tensor.
    pub(super) part: Part,
    /// Whether K is the dimension whose elements lie side by side; else the rows are.
    pub(super) depth_packed: bool,
}

/// A second product of A, by a matrix that lies as B does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Twin {
    /// In place of B.
    pub(super) b: usize,
    /// The product.
    pub(super) c: usize,
}

/// The graph. Where the outputs' columns lie side by side (not their rows) everything is
/// transposed, `C' = B' x A'`, so that kernels always write rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Problem<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    pub(super) matmul: Matmul,
    /// Extents of the batch dimensions that are left after collapsing.
    pub(super) batches: Vec<i64>,
    pub(super) m: i64,
    pub(super) n: i64,
    pub(super) k: i64,
    pub(super) a: Operand,
    pub(super) b: Operand,
    /// The product.
    pub(super) c: usize,
    /// The other product.
    pub(super) twin: Option<Twin>,
    /// The epilogue; its outputs are what is stored, then what is only reduced.
    pub(super) epilogue: Part,
    /// Reductions of the epilogue.
    pub(super) exits: Vec<Exit>,
    /// The tensors that give each batch's own M, N and K.
    pub(super) overrides: [Option<usize>; 3],
}

impl Part {
    /// The tensors the program reads from memory or by value.
    pub(super) fn inputs(&self) -> impl Iterator<Item = usize> {
        let read = |(input, source): (usize, &Source)| match source {
            Source::Tensor(at) if self.program.reads(input) => Some(*at),
            _ => None,
        };
        self.program.sources.iter().enumerate().filter_map(read)
    }

    fn counts(&self, axis: usize) -> bool {
        self.program.sources.contains(&Source::Coordinate(Some(axis)))
    }
}

impl Operand {
    /// Whether the operand is a tensor in memory that nothing is computed from.
    pub(super) fn is_plain(&self) -> bool {
        self.part.program.program.instructions().is_empty()
    }
}

impl<'a> Problem<'a> {
    /// The type of the first output, in names of kernels.
    pub(super) fn output_name(&self) -> &'static str {
        let output = self.outputs().chain(self.exits.iter().map(|exit| exit.result)).next();
        let output = output.expect("a graph stores something");
        self.graph.tensors[output].dtype.name()
    }

    /// The problem of a graph.
    ///
    /// # Errors
    /// `NotSupported` with the rule that the graph breaks.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        if capability < CAPABILITY_MIN {
            let text = format!("sm_{capability} is older than sm_{CAPABILITY_MIN}");
            return Err(Error::not_supported(text));
        }
        refuse_i64(graph)?;
        let (operation, matmul, other) = products(graph)?;
        let [at_a, at_b] = [0, 1].map(|slot| operation.inputs[slot] as usize);
        let c = operation.outputs[0] as usize;
        let parts = [ancestors(graph, &[at_a]), ancestors(graph, &[at_b])];
        let twin = other.map(|other| twin_of(graph, operation, other, &parts[1])).transpose()?;
        let exits = reductions(graph, c)?;
        let stored = (0..graph.tensors.len()).filter(|at| {
            let is_result = exits.iter().any(|(_, [_, result])| result == at);
            graph.is_written(*at) && !graph.tensors[*at].is_virtual && !is_result
        });
        let reduced = exits.iter().map(|(_, [operand, _])| *operand);
        let results = unique(stored.chain(reduced));
        check_results(graph, &parts, &results, c)?;
        let followers = ancestors(graph, &results);
        let program = |operations: &BTreeSet<usize>, outputs: &[usize]| {
            let operations = operations.iter().map(|index| &graph.operations[*index]);
            GraphProgram::of(graph, operations, outputs)
        };
        let programs = [program(&parts[0], &[at_a]), program(&parts[1], &[at_b])];
        let epilogue = program(&followers, &results);
        let mut given = operation.inputs[2..].iter().map(|uid| *uid as usize);
        let overrides = matmul.overrides.map(|is_given| is_given.then(|| given.next()).flatten());
        let layout =
            Layout { graph, tensors: [at_a, at_b, c], twin, programs, epilogue, exits, overrides };
        let problem = layout.problem(matmul)?;
        let needed = problem.passed().len() + problem.exits.len() + 2;
        if needed > PARAMETERS_MAX {
            return Err(Error::not_supported(format!(
                "{needed} parameters exceed the {PARAMETERS_MAX} of a kernel"
            )));
        }
        Ok(problem)
    }

    /// Products of A.
    pub(super) fn products(&self) -> i64 {
        if self.twin.is_some() { 2 } else { 1 }
    }

    /// Whether a tensor is a product.
    pub(super) fn is_product(&self, at: usize) -> bool {
        at == self.c || self.twin.is_some_and(|twin| at == twin.c)
    }

    /// All batches.
    pub(super) fn batch_count(&self) -> i64 {
        volume(&self.batches)
    }

    /// Whether there is nothing to store.
    pub(super) fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch_count() == 0
    }

    /// The tensors a kernel takes that computes everything: each once, inputs first.
    pub(super) fn passed(&self) -> Vec<usize> {
        let inputs = [&self.a.part, &self.b.part].into_iter().flat_map(Part::inputs);
        let inputs = inputs.chain(self.twin.map(|twin| twin.b));
        let followers = self.epilogue.inputs().filter(|at| !self.is_product(*at));
        let overrides = self.overrides.iter().flatten().copied();
        unique(inputs.chain(followers).chain(overrides).chain(self.outputs()))
    }

    /// The tensors a kernel takes that leaves the product to another.
    pub(super) fn passed_to_product(&self) -> Vec<usize> {
        let inputs = [&self.a.part, &self.b.part].into_iter().flat_map(Part::inputs);
        unique(inputs.chain(self.overrides[2]))
    }

    /// The tensors a kernel takes that is given the product.
    pub(super) fn passed_to_epilogue(&self) -> Vec<usize> {
        let followers = self.epilogue.inputs().filter(|at| !self.is_product(*at));
        let overrides = self.overrides[..2].iter().flatten().copied();
        unique(followers.chain(overrides).chain(self.outputs()))
    }

    /// What is stored element by element.
    pub(super) fn outputs(&self) -> impl Iterator<Item = usize> {
        let stored = |at: &usize| !self.graph.tensors[*at].is_virtual;
        self.epilogue.program.outputs.iter().copied().filter(stored)
    }

    /// The largest element offset that a kernel computes whose tiles reach up to `overhang` beyond
    /// each matrix.
    pub(super) fn offset_max(&self, overhang: i64) -> i64 {
        let reach = |axes: &Axes, at: usize, extents: [i64; 2]| {
            let view = axes.view(&self.graph.tensors[at]);
            let matrix = [(view.row, extents[0]), (view.column, extents[1])];
            let inner = matrix.map(|(stride, extent)| stride.saturating_mul(extent + overhang));
            let batches = view.batches.iter().zip(&self.batches);
            let outer = batches.map(|(stride, extent)| stride.saturating_mul(*extent));
            inner.into_iter().chain(outer).fold(0, i64::saturating_add)
        };
        let operands = [&self.a, &self.b].into_iter().flat_map(|operand| {
            let extents = [operand.extent, self.k];
            operand.part.inputs().map(move |at| reach(&operand.part.axes, at, extents))
        });
        let followers = self.epilogue.inputs().filter(|at| !self.is_product(*at));
        let followers = followers.chain(self.outputs());
        let followers = followers.map(|at| reach(&self.epilogue.axes, at, [self.m, self.n]));
        operands.chain(followers).max().unwrap_or(0)
    }
}

/// The one product of the graph, all else of which is pointwise or a reduction; or two of one A.
fn products(graph: CanonicalGraph<'_>) -> Result<(&Operation, Matmul, Option<&Operation>)> {
    let mut found = Vec::new();
    for operation in graph.operations {
        match &operation.op {
            Op::Pointwise(_) | Op::Reduction(_) => {}
            Op::Matmul(op) => found.push((operation, *op)),
            op => {
                return Err(Error::not_supported(format!(
                    "{op} is neither a product of matrices nor pointwise nor a reduction"
                )));
            }
        }
    }
    match found[..] {
        [] => Err(Error::not_supported("the graph has no product of matrices")),
        [(operation, op)] => Ok((operation, op, None)),
        [(first, op), (second, other)] if first.inputs[0] == second.inputs[0] && op == other => {
            Ok((first, op, Some(second)))
        }
        _ => Err(Error::not_supported("the graph has more than one product")),
    }
}

/// The second of two products, which share A; `computed` are the operations that B comes of.
fn twin_of(
    graph: CanonicalGraph<'_>,
    first: &Operation,
    second: &Operation,
    computed: &BTreeSet<usize>,
) -> Result<Twin> {
    let [b, other] = [first, second].map(|of| &graph.tensors[of.inputs[1] as usize]);
    let [name, other_name] = [&b.name, &other.name];
    let alike = b.dims == other.dims && b.strides == other.strides && b.dtype == other.dtype;
    if !computed.is_empty() || graph.is_written(second.inputs[1] as usize) {
        return Err(Error::not_supported(format!(
            "`{name}` or `{other_name}` is computed, of two products both are loaded as they are"
        )));
    }
    if !alike || b.by_value || other.by_value || b.alignment != other.alignment {
        let text =
            format!("`{name}` and `{other_name}` lie differently, which are multiplied at once");
        return Err(Error::not_supported(text));
    }
    if first.inputs.len() > 2 {
        return Err(Error::not_supported("each of two products has extents of its own"));
    }
    Ok(Twin { b: second.inputs[1] as usize, c: second.outputs[0] as usize })
}

/// The pointwise operations that these tensors come of, as far back as the product.
fn ancestors(graph: CanonicalGraph<'_>, tensors: &[usize]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<i64> = tensors.iter().map(|at| *at as i64).collect();
    while let Some(uid) = pending.pop() {
        let writes = |operation: &Operation| operation.outputs.contains(&uid);
        let Some(index) = graph.operations.iter().position(writes) else { continue };
        let operation = &graph.operations[index];
        if operation.as_pointwise().is_some() && found.insert(index) {
            pending.extend(&operation.inputs);
        }
    }
    found
}

/// What is stored or reduced has the product's dimensions and comes after it.
fn check_results(
    graph: CanonicalGraph<'_>,
    operands: &[BTreeSet<usize>; 2],
    results: &[usize],
    c: usize,
) -> Result<()> {
    for at in results {
        let (tensor, product) = (&graph.tensors[*at], &graph.tensors[c]);
        let (name, dims) = (&tensor.name, &tensor.dims);
        let writes = |index: &usize| graph.operations[*index].outputs.contains(&tensor.uid);
        if operands.iter().flatten().any(writes) {
            return Err(Error::not_supported(format!(
                "`{name}` is a result and an operand of the product is computed from it"
            )));
        }
        if *dims != product.dims {
            let expected = &product.dims;
            return Err(Error::not_supported(format!(
                "`{name}` is {dims:?}, the product is {expected:?}"
            )));
        }
    }
    Ok(())
}

fn unique(tensors: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    tensors.filter(|at| seen.insert(*at)).collect()
}

/// The parts of a graph before their axes are collapsed.
struct Layout<'a> {
    graph: CanonicalGraph<'a>,
    /// A, B and C.
    tensors: [usize; 3],
    twin: Option<Twin>,
    programs: [GraphProgram; 2],
    epilogue: GraphProgram,
    exits: Vec<(Reduction, [usize; 2])>,
    overrides: [Option<usize>; 3],
}

impl<'a> Layout<'a> {
    fn problem(self, matmul: Matmul) -> Result<Problem<'a>> {
        let Layout { graph, tensors, twin, programs, epilogue, exits, mut overrides } = self;
        let dims = |at: usize| graph.tensors[at].dims.as_slice();
        let rank = dims(tensors[2]).len();
        let (row, column) = (rank - 2, rank - 1);
        let axes = |axis: usize, at: usize| match dims(at)[axis] {
            1 => Vec::new(),
            _ => vec![axis],
        };
        let depth = [axes(column, tensors[0]), axes(row, tensors[1])];
        let free = [axes(row, tensors[0]), axes(column, tensors[1])];
        let [program_a, program_b] = programs;
        let part = |program, rows: &Vec<usize>, columns: &Vec<usize>| {
            let (rows, columns) = (rows.clone(), columns.clone());
            let axes = Axes { batches: Vec::new(), rows, columns };
            Part { axes, program, reduced: Vec::new() }
        };
        let mut a = part(program_a, &free[0], &depth[0]);
        let mut b = part(program_b, &free[1], &depth[1]);
        let mut epilogue = part(epilogue, &free[0], &free[1]);
        epilogue.reduced = exits.iter().map(|(_, [_, result])| *result).collect();
        let mut at = [tensors[0], tensors[1]];
        let (mut m, mut n) = (dims(tensors[2])[row], dims(tensors[2])[column]);
        if writes_columns(graph, &epilogue) {
            if twin.is_some() {
                let text = "columns of results lie side by side, rows are written of two products";
                return Err(Error::not_supported(text));
            }
            std::mem::swap(&mut a, &mut b);
            std::mem::swap(&mut m, &mut n);
            at.swap(0, 1);
            overrides.swap(0, 1);
            let Axes { rows, columns, .. } = &mut epilogue.axes;
            std::mem::swap(rows, columns);
        }
        let k = dims(tensors[0])[column];
        let mut collapse = Collapse { graph, dims: dims(tensors[2]), parts: [a, b, epilogue], m };
        collapse.batches(overrides);
        if overrides == [None; 3] {
            collapse.batches_into_rows();
        }
        let Collapse { parts: [a, b, epilogue], m, .. } = collapse;
        let exits = exits.iter().map(|exit| Exit::new(graph, *exit, &epilogue.axes));
        let extent = |axes: &Vec<usize>| axes.iter().map(|axis| dims(tensors[2])[*axis]).product();
        let batches: Vec<i64> = epilogue.axes.batches.iter().map(extent).collect();
        let extents = batches.iter().chain([&m, &n, &k]);
        let volume = extents
            .map(|extent| i128::from((*extent).max(1)))
            .try_fold(1_i128, |product, extent| product.checked_mul(extent));
        if volume.is_none_or(|volume| volume > 1 << 62) {
            return Err(Error::not_supported("the product has more than 2^62 multiplications"));
        }
        let operand = |tensor: usize, extent: i64, part: Part| {
            let depth_packed = depth_packed(graph, &part);
            Operand { tensor, extent, part, depth_packed }
        };
        Ok(Problem {
            graph,
            matmul,
            batches,
            m,
            n,
            k,
            a: operand(at[0], m, a),
            b: operand(at[1], n, b),
            c: tensors[2],
            twin,
            exits: exits.collect::<Result<_>>()?,
            epilogue,
            overrides,
        })
    }
}

/// Whether the largest output has its columns side by side, not its rows.
fn writes_columns(graph: CanonicalGraph<'_>, epilogue: &Part) -> bool {
    let outputs = epilogue.program.outputs.iter().filter(|at| !graph.tensors[**at].is_virtual);
    let largest = outputs.max_by_key(|at| graph.tensors[**at].dtype.bytes());
    largest.is_some_and(|at| {
        let view = epilogue.axes.view(&graph.tensors[*at]);
        view.row == 1 && view.column > 1
    })
}

/// Whether the inputs of an operand lie along K: as the one does that moves the most bytes.
fn depth_packed(graph: CanonicalGraph<'_>, part: &Part) -> bool {
    let bytes = |at: &usize| {
        let tensor = &graph.tensors[*at];
        tensor.elements().unwrap_or(i64::MAX).saturating_mul(tensor.dtype.bytes() as i64)
    };
    let in_memory = part.inputs().filter(|at| !graph.tensors[*at].by_value);
    in_memory.max_by_key(bytes).is_none_or(|at| {
        let view = part.axes.view(&graph.tensors[at]);
        view.column == 1 || view.row != 1
    })
}

/// Makes few dimensions of many.
struct Collapse<'a> {
    graph: CanonicalGraph<'a>,
    dims: &'a [i64],
    parts: [Part; 3],
    m: i64,
}

impl Collapse<'_> {
    /// The strides of every tensor in memory along two axes.
    fn strides(&self, part: &Part, axes: [usize; 2]) -> Vec<[i64; 2]> {
        let stored = |at: &usize| {
            let tensor = &self.graph.tensors[*at];
            !tensor.is_virtual && !tensor.by_value
        };
        let tensors = part.inputs().chain(part.program.outputs.iter().copied());
        let tensors = tensors.chain(part.reduced.iter().copied()).filter(stored);
        tensors.map(|at| axes.map(|axis| stride(&self.graph.tensors[at], axis))).collect()
    }

    fn counts(&self, axis: usize) -> bool {
        self.parts.iter().any(|part| part.counts(axis))
    }

    /// Joins batch dimensions that every tensor steps through as one.
    fn batches(&mut self, overrides: [Option<usize>; 3]) {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        for axis in (0..self.dims.len() - 2).filter(|axis| self.dims[*axis] != 1) {
            let joins = batches.last().and_then(|axes| axes.last()).is_some_and(|last| {
                let axes = [*last, axis];
                let own = overrides.iter().flatten();
                let own = own.map(|at| axes.map(|axis| stride(&self.graph.tensors[*at], axis)));
                let mut all =
                    self.parts.iter().flat_map(|part| self.strides(part, axes)).chain(own);
                !axes.iter().any(|axis| self.counts(*axis))
                    && all.all(|[outer, inner]| outer == inner * self.dims[axis])
            });
            match batches.last_mut().filter(|_| joins) {
                Some(axes) => axes.push(axis),
                None => batches.push(vec![axis]),
            }
        }
        for part in &mut self.parts {
            part.axes.batches.clone_from(&batches);
        }
    }

    /// Makes rows of the innermost batches where B is the same for all of them.
    fn batches_into_rows(&mut self) {
        while let Some(axes) = self.parts[0].axes.batches.last().cloned() {
            let last = *axes.last().expect("a batch dimension has an axis");
            let row = self.parts[0].axes.rows.first().copied();
            let counted = axes.iter().copied().chain(row).any(|axis| self.counts(axis));
            let [a, b, epilogue] = &self.parts;
            let shared = self.strides(b, [last; 2]).iter().all(|[stride, _]| *stride == 0);
            let joins = row.is_none()
                || [a, epilogue].into_iter().all(|part| {
                    let innermost = *part.axes.rows.last().expect("A has rows");
                    let mut pairs = self.strides(part, [last, innermost]).into_iter();
                    pairs.all(|[outer, inner]| outer == inner * self.m)
                });
            if counted || !shared || !joins {
                break;
            }
            self.m *= axes.iter().map(|axis| self.dims[*axis]).product::<i64>();
            for part in &mut self.parts {
                part.axes.batches.pop();
            }
            for part in [0, 2] {
                let rows = &mut self.parts[part].axes.rows;
                *rows = axes.iter().copied().chain(rows.iter().copied()).collect();
            }
        }
    }
}
