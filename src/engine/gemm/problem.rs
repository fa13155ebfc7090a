//! A graph around one GEMM, or two of one A (a dual GEMM), as extents, strides and programs, for
//! every engine: `epilogue(prologue_a(A) x prologue_b(B))`.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::engine::access::{PARAMETERS_MAX, ceil_div, span_elements, volume};
use crate::engine::decompose::Decomposed;
use crate::engine::gemm::axes::Axes;
use crate::engine::gemm::collapse::Collapse;
use crate::engine::gemm::epilogue_reduction::{
    EpilogueReduction, Reduced, Reductions, reductions_of,
};
use crate::engine::gemm::finish::{self, finish_of};
use crate::engine::gemm::fusion::Fusion;
use crate::engine::gemm::operand_sum::Summed;
use crate::engine::gemm::phases::Phases;
use crate::engine::gemm::window::Window;
use crate::engine::program::{GraphProgram, ancestors, check_results};
use crate::engine::signature::{refuse_i64, refuse_older};
use crate::error::{Error, Result};
use crate::expr::Pointwise;
use crate::graph::{CanonicalGraph, Matmul, Op, Operation};

/// Epilogue reductions whose partials one kernel combines: 8 bytes of each for each of its threads
/// are in shared memory.
const COMBINED_MAX: usize = 8;

/// Minimum compute capability of the templates.
const CAPABILITY_MIN: u16 = 75;

/// An operand of the GEMM, as a matrix of `extent` rows and K columns: B is transposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Operand {
    /// The tensor that the GEMM reads; virtual where the prologue computes it.
    pub(super) tensor: usize,
    /// Rows: M of A, N of B.
    pub(super) extent: i64,
    /// Computes the tensor.
    pub(super) prologue: Fusion,
    /// Whether K is contiguous; else the rows are.
    pub(super) k_major: bool,
    /// Where a row and an element of K meet, if not where their steps lead.
    pub(super) window: Option<Window>,
}

/// A second GEMM of A, by a matrix with the layout of B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DualGemm {
    /// Its B.
    pub(super) b: usize,
    /// Its C.
    pub(super) c: usize,
}

/// The graph. Where columns of the outputs are contiguous, not rows, everything is transposed,
/// `C' = B' x A'`, so that kernels always write rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Problem<'a> {
    pub(super) graph: Decomposed<'a>,
    pub(super) matmul: Matmul,
    /// Extents of the batch dimensions that are left after collapsing.
    pub(super) batches: Vec<i64>,
    pub(super) m: i64,
    pub(super) n: i64,
    pub(super) k: i64,
    pub(super) a: Operand,
    pub(super) b: Operand,
    /// The result of the GEMM.
    pub(super) c: usize,
    /// The second GEMM.
    pub(super) dual: Option<DualGemm>,
    /// The epilogue; its outputs are what is stored, then what is only reduced.
    pub(super) epilogue: Fusion,
    /// Reductions of the epilogue, then sums of one operand.
    pub(super) reductions: Vec<EpilogueReduction>,
    /// What is computed of their results.
    pub(super) finish: Fusion,
    /// Where rows and columns of the epilogue's tensors are, if not where their steps lead.
    pub(super) result: Option<Window>,
    /// Whether the epilogue's elements are loaded and stored one by one.
    pub(super) scatters: bool,
    /// Batches with rows and K of their own.
    pub(super) phases: Option<Phases>,
    /// The tensors that give each batch's own M, N and K.
    pub(super) overrides: [Option<usize>; 3],
}

impl Operand {
    /// Whether the operand is a tensor in memory that nothing is computed from.
    pub(super) fn is_plain(&self) -> bool {
        self.prologue.program.program.instructions().is_empty()
    }

    /// Whether elements are loaded one by one, as a vector of this size would reach from one tap,
    /// or one image, into another, or is not contiguous.
    pub(super) fn is_scattered(&self, problem: &Problem<'_>, vector: i64) -> bool {
        let Some(window) = &self.window else { return false };
        let tensors = &problem.graph.tensors;
        // They are known to lie as vectors.
        debug_assert!(!window.is_filled() || window.holds(vector, true), "zeros fill no vectors");
        let steps = |at: &usize| {
            let view = self.prologue.axes.view(&tensors[*at]);
            let step = if self.k_major { view.column } else { view.row };
            !tensors[*at].by_value && step > 1
        };
        let Axes { rows, columns, .. } = &self.prologue.axes;
        let alone = if self.k_major { columns } else { rows };
        alone.is_empty()
            || self.prologue.inputs().any(|at| steps(&at))
            || !window.holds(vector, self.k_major)
    }
}

impl<'a> Problem<'a> {
    /// Whether an operand is read through a window.
    pub(super) fn is_windowed(&self) -> bool {
        self.a.window.is_some() || self.b.window.is_some()
    }

    /// The type of the first output, in names of kernels.
    pub(super) fn output_name(&self) -> &'static str {
        let output =
            self.outputs().chain(self.reductions.iter().map(|reduction| reduction.result)).next();
        let output = output.expect("a graph stores something");
        self.graph.tensors[output].dtype.name()
    }

    /// The problem of a graph.
    ///
    /// # Errors
    /// `NotSupported` with the rule that the graph breaks.
    pub(super) fn of(graph: CanonicalGraph<'a>, capability: u16) -> Result<Problem<'a>> {
        Problem::of_vectors(graph, capability, None)
    }

    /// As [`Problem::of`], of an engine that copies vectors of so many bytes: those that the
    /// channels of a tap end within are filled with zeros.
    ///
    /// # Errors
    /// As [`Problem::of`].
    pub(super) fn of_vectors(
        graph: CanonicalGraph<'a>,
        capability: u16,
        vector_bytes: Option<i64>,
    ) -> Result<Problem<'a>> {
        refuse_older(capability, CAPABILITY_MIN)?;
        refuse_i64(graph)?;
        let decomposed = Decomposed::drawn(graph)?.grouped()?.patched();
        let graph = decomposed.graph();
        let (operation, matmul, other) = gemms(graph)?;
        let [at_a, at_b] = [0, 1].map(|slot| widened_from(graph, operation.inputs[slot] as usize));
        let c = operation.outputs[0] as usize;
        let prologues = [ancestors(graph, &[at_a]), ancestors(graph, &[at_b])];
        let dual =
            other.map(|other| dual_of(graph, operation, other, &prologues[1])).transpose()?;
        let [reductions, sums] = reductions_of(graph, [at_a, at_b], c)?;
        let all: Reductions = reductions.iter().chain(&sums).copied().collect();
        let finish = finish_of(graph, c, &all)?;
        let stored = (0..graph.tensors.len()).filter(|at| {
            let is_result = all.iter().any(|(_, [_, result])| result == at);
            let is_result = is_result || finish.outputs.contains(at);
            graph.is_written(*at) && !graph.tensors[*at].is_virtual && !is_result
        });
        let reduced = reductions.iter().map(|(_, [operand, _])| *operand);
        let results = unique(stored.chain(reduced));
        check_results(graph, &prologues, &results, (c, "GEMM"))?;
        let followers = ancestors(graph, &results);
        let program = |operations: &BTreeSet<usize>, outputs: &[usize]| {
            let operations = operations.iter().map(|index| &graph.operations[*index]);
            GraphProgram::of(graph, operations, outputs)
        };
        let programs = [program(&prologues[0], &[at_a]), program(&prologues[1], &[at_b])];
        let epilogue = program(&followers, &results);
        let mut given = operation.inputs[2..].iter().map(|uid| *uid as usize);
        let overrides = matmul.overrides.map(|is_given| is_given.then(|| given.next()).flatten());
        let layout = Layout {
            decomposed: &decomposed,
            graph,
            tensors: [at_a, at_b, c],
            dual,
            programs,
            epilogue,
            reductions,
            sums,
            finish,
            overrides,
        };
        let problem = match &operation.op {
            Op::Convolution(op) => layout.convolution(op, capability, vector_bytes)?,
            _ => layout.problem(matmul)?,
        };
        problem.check_finish()?;
        let combined = finish::tensors(&problem.finish.program).count() + problem.reductions.len();
        let needed = problem.passed().len().max(combined) + problem.reductions.len() + 2;
        if needed > PARAMETERS_MAX {
            return Err(Error::not_supported(format!(
                "{needed} parameters exceed the {PARAMETERS_MAX} of a kernel"
            )));
        }
        Ok(problem)
    }

    /// Checks that one kernel combines all partials where something is computed of the results.
    fn check_finish(&self) -> Result<()> {
        let groups = self.combined().len();
        if !self.finish.program.outputs.is_empty() && groups != 1 {
            return Err(Error::not_supported(format!(
                "results of epilogue reductions are read, {groups} kernels combine their partials"
            )));
        }
        Ok(())
    }

    /// The epilogue reductions that one kernel each combines the partials of: neighbours that keep
    /// the same dimensions.
    pub(super) fn combined(&self) -> Vec<Range<usize>> {
        let alike = |a: &EpilogueReduction, b: &EpilogueReduction| {
            (a.kept, a.keeps_batches, a.reduced) == (b.kept, b.keeps_batches, b.reduced)
        };
        let mut first = 0;
        let groups = self.reductions.chunk_by(alike).flat_map(|of| of.chunks(COMBINED_MAX));
        let range = |of: &[EpilogueReduction]| {
            first += of.len();
            first - of.len()..first
        };
        groups.map(range).collect()
    }

    /// Which reductions are the epilogue's.
    pub(super) fn epilogue_reductions(&self) -> Range<usize> {
        0..self.reductions.iter().filter(|of| of.reduced == Reduced::Epilogue).count()
    }

    /// Which reductions are sums of an operand.
    pub(super) fn operand_sums(&self) -> Range<usize> {
        self.epilogue_reductions().end..self.reductions.len()
    }

    /// The operand that is added up, if one is.
    pub(super) fn summed(&self) -> Option<Reduced> {
        self.reductions.last().map(|of| of.reduced).filter(|reduced| *reduced != Reduced::Epilogue)
    }

    /// Whether it is a convolution, whose rows are of several dimensions.
    pub(super) fn is_convolution(&self) -> bool {
        let writes = |operation: &&Operation| operation.outputs == [self.c as i64];
        let operation = self.graph.operations.iter().find(writes);
        operation.is_some_and(|operation| matches!(operation.op, Op::Convolution(_)))
    }

    /// GEMMs of A.
    pub(super) fn gemm_count(&self) -> i64 {
        if self.dual.is_some() { 2 } else { 1 }
    }

    /// Whether a tensor is a GEMM's result.
    pub(super) fn is_gemm(&self, at: usize) -> bool {
        at == self.c || self.dual.is_some_and(|dual| at == dual.c)
    }

    /// All batches.
    pub(super) fn batch_count(&self) -> i64 {
        volume(&self.batches)
    }

    /// Elements of the GEMM's result.
    pub(super) fn element_count(&self) -> f64 {
        let rows = match &self.phases {
            Some(phases) => {
                let others = self.batch_count() as f64 / phases.count() as f64;
                phases.rows.iter().map(|rows| *rows as f64).sum::<f64>() * others
            }
            None => self.m as f64 * self.batch_count() as f64,
        };
        rows * self.n as f64
    }

    /// Tiles with so many rows and columns of all batches, and the K steps of so many elements that
    /// they take.
    pub(super) fn tiles_and_steps(&self, [cta_m, cta_n, cta_k]: [i64; 3]) -> [f64; 2] {
        let columns = ceil_div(self.n, cta_n) as f64;
        let of = |rows: i64, k: i64| {
            let tiles = ceil_div(rows, cta_m) as f64 * columns;
            [tiles, tiles * ceil_div(k, cta_k) as f64]
        };
        let batches = self.batch_count() as f64;
        let (each, times) = match &self.phases {
            Some(phases) => {
                let each = phases.rows.iter().zip(&phases.ks).map(|(rows, k)| of(*rows, *k));
                let sum = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a + c, b + d];
                (each.fold([0.0; 2], sum), batches / phases.count() as f64)
            }
            None => (of(self.m, self.k), batches),
        };
        each.map(|count| count * times)
    }

    /// Whether there is nothing to store.
    pub(super) fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch_count() == 0
    }

    /// The tensors passed to a kernel that computes everything: each once, inputs first.
    pub(super) fn passed(&self) -> Vec<usize> {
        let inputs = [&self.a.prologue, &self.b.prologue].into_iter().flat_map(Fusion::inputs);
        let inputs = inputs.chain(self.dual.map(|dual| dual.b));
        let followers = self.epilogue.inputs().filter(|at| !self.is_gemm(*at));
        let overrides = self.overrides.iter().flatten().copied();
        unique(inputs.chain(followers).chain(overrides).chain(self.outputs()))
    }

    /// The tensors passed to a GEMM kernel that stores split-K partials.
    pub(super) fn passed_to_gemm(&self) -> Vec<usize> {
        let inputs = [&self.a.prologue, &self.b.prologue].into_iter().flat_map(Fusion::inputs);
        unique(inputs.chain(self.overrides[2]))
    }

    /// The tensors passed to a kernel that reads accumulators.
    pub(super) fn passed_to_epilogue(&self) -> Vec<usize> {
        let followers = self.epilogue.inputs().filter(|at| !self.is_gemm(*at));
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
        let span = |at: usize| span_elements(&self.graph.tensors[at]);
        let windows = [&self.a, &self.b].into_iter().filter_map(|operand| {
            let spans = operand.prologue.inputs().map(span).max().unwrap_or(0);
            operand.window.as_ref().map(|window| spans.max(window.reach_max()))
        });
        let even = [&self.a, &self.b].into_iter().filter(|operand| operand.window.is_none());
        let operands = even.flat_map(|operand| {
            let extents = [operand.extent, self.k];
            operand.prologue.placed().map(move |at| reach(&operand.prologue.axes, at, extents))
        });
        let followers = self.epilogue.placed().filter(|at| !self.is_gemm(*at));
        let followers = followers.chain(self.outputs());
        let followers = followers.map(|at| match &self.result {
            Some(window) => span(at).max(window.reach_max()),
            None => reach(&self.epilogue.axes, at, [self.m, self.n]),
        });
        let positions = self.epilogue.program.positions().map(span);
        let finish = finish::tensors(&self.finish.program);
        let combined = self.reductions.iter().map(|of| of.result).chain(finish).map(span);
        let all = operands.chain(followers).chain(windows).chain(positions).chain(combined);
        all.max().unwrap_or(0)
    }
}

/// The one GEMM of the graph, all else of which is pointwise or a reduction; or two of one A.
fn gemms(graph: CanonicalGraph<'_>) -> Result<(&Operation, Matmul, Option<&Operation>)> {
    let mut found = Vec::new();
    for operation in graph.operations {
        match &operation.op {
            Op::Pointwise(_) | Op::Rng(_) | Op::Reduction(_) => {}
            Op::Matmul(op) => found.push((operation, *op)),
            Op::Convolution(op) => found.push((operation, Matmul::new(op.math))),
            op => {
                return Err(Error::not_supported(format!(
                    "{op} is neither a GEMM nor pointwise nor a reduction"
                )));
            }
        }
    }
    match found[..] {
        [] => Err(Error::not_supported("the graph has no GEMM")),
        [(operation, op)] => Ok((operation, op, None)),
        [(first, op), (second, other)]
            if first.inputs[0] == second.inputs[0]
                && op == other
                && [first, second].iter().all(|of| matches!(of.op, Op::Matmul(_))) =>
        {
            Ok((first, op, Some(second)))
        }
        _ => Err(Error::not_supported("the graph has more than one GEMM")),
    }
}

/// What an operand's elements are read from: where they are only those of another tensor in a wider
/// type, that one, which is as exact and moves fewer bytes.
fn widened_from(graph: CanonicalGraph<'_>, at: usize) -> usize {
    let writes = |operation: &&Operation| operation.outputs.contains(&(at as i64));
    let writer = graph.operations.iter().find(writes);
    let copied = writer.filter(|own| own.as_pointwise().is_some_and(Pointwise::is_copy));
    let Some(from) = copied.map(|own| own.inputs[0] as usize) else { return at };
    let [own, other] = [at, from].map(|at| &graph.tensors[at]);
    let is_same = own.dims == other.dims && own.is_virtual && !other.by_value;
    let widens = [own, other].iter().all(|of| of.dtype.is_float());
    match is_same && widens && other.dtype.fits_in(own.dtype) {
        true => widened_from(graph, from),
        false => at,
    }
}

/// The second GEMM of a dual GEMM; `computed` are the operations that B is computed by.
fn dual_of(
    graph: CanonicalGraph<'_>,
    first: &Operation,
    second: &Operation,
    computed: &BTreeSet<usize>,
) -> Result<DualGemm> {
    let [b, other] = [first, second].map(|of| &graph.tensors[of.inputs[1] as usize]);
    let [name, other_name] = [&b.name, &other.name];
    let alike = b.dims == other.dims && b.strides == other.strides && b.dtype == other.dtype;
    if !computed.is_empty() || graph.is_written(second.inputs[1] as usize) {
        return Err(Error::not_supported(format!(
            "`{name}` or `{other_name}` is computed, a dual GEMM loads both as they are"
        )));
    }
    if !alike || b.by_value || other.by_value || b.alignment != other.alignment {
        let text =
            format!("`{name}` and `{other_name}` have different layouts, a dual GEMM needs one");
        return Err(Error::not_supported(text));
    }
    if first.inputs.len() > 2 {
        return Err(Error::not_supported("each GEMM of a dual GEMM has extents of its own"));
    }
    Ok(DualGemm { b: second.inputs[1] as usize, c: second.outputs[0] as usize })
}

fn unique(tensors: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    tensors.filter(|at| seen.insert(*at)).collect()
}

/// The GEMM and its fusions before their axes are collapsed.
pub(super) struct Layout<'g, 'a> {
    pub(super) decomposed: &'g Decomposed<'a>,
    pub(super) graph: CanonicalGraph<'g>,
    /// A, B and C.
    pub(super) tensors: [usize; 3],
    dual: Option<DualGemm>,
    pub(super) programs: [GraphProgram; 2],
    pub(super) epilogue: GraphProgram,
    pub(super) reductions: Reductions,
    /// Reductions of operands.
    pub(super) sums: Reductions,
    pub(super) finish: GraphProgram,
    overrides: [Option<usize>; 3],
}

impl<'a> Layout<'_, 'a> {
    /// What elements are reduced to, and what is read and stored beside.
    pub(super) fn reduced(&self) -> Vec<usize> {
        let all = self.reductions.iter().chain(&self.sums);
        let results = all.map(|(_, [_, result])| *result);
        unique(results.chain(finish::tensors(&self.finish)))
    }

    fn problem(self, matmul: Matmul) -> Result<Problem<'a>> {
        let reduced = self.reduced();
        let Layout { graph, tensors, dual, programs, epilogue, reductions, .. } = self;
        let (sums, finish) = (self.sums, self.finish);
        if !sums.is_empty() && (dual.is_some() || self.overrides != [None; 3]) {
            let text =
                "an operand of two GEMMs, or of batches with extents of their own, is reduced";
            return Err(Error::not_supported(text));
        }
        let mut overrides = self.overrides;
        let dims = |at: usize| graph.tensors[at].dims.as_slice();
        let rank = dims(tensors[2]).len();
        let (row, column) = (rank - 2, rank - 1);
        let axes = |axis: usize, at: usize| match dims(at)[axis] {
            1 => Vec::new(),
            _ => vec![axis],
        };
        let k_axes = [axes(column, tensors[0]), axes(row, tensors[1])];
        let free = [axes(row, tensors[0]), axes(column, tensors[1])];
        let [program_a, program_b] = programs;
        let fusion = |program, rows: &Vec<usize>, columns: &Vec<usize>| {
            let (rows, columns) = (rows.clone(), columns.clone());
            let axes = Axes { batches: Vec::new(), rows, columns };
            Fusion { axes, program, reduced: Vec::new() }
        };
        let mut a = fusion(program_a, &free[0], &k_axes[0]);
        let mut b = fusion(program_b, &free[1], &k_axes[1]);
        let mut epilogue = fusion(epilogue, &free[0], &free[1]);
        epilogue.reduced = reduced;
        let (mut at, mut k_axis) = ([tensors[0], tensors[1]], [column, row]);
        let (mut m, mut n) = (dims(tensors[2])[row], dims(tensors[2])[column]);
        if writes_columns(graph, &epilogue) {
            if dual.is_some() {
                let text = "columns of results are contiguous, a dual GEMM writes rows";
                return Err(Error::not_supported(text));
            }
            std::mem::swap(&mut a, &mut b);
            std::mem::swap(&mut m, &mut n);
            at.swap(0, 1);
            k_axis.swap(0, 1);
            overrides.swap(0, 1);
            let Axes { rows, columns, .. } = &mut epilogue.axes;
            std::mem::swap(rows, columns);
        }
        let k = dims(tensors[0])[column];
        let mut collapse = Collapse { graph, dims: dims(tensors[2]), fusions: [a, b, epilogue], m };
        collapse.batches(overrides);
        if overrides == [None; 3] {
            collapse.batches_into_rows();
        }
        let Collapse { fusions: [a, b, epilogue], m, .. } = collapse;
        let reductions = reductions
            .iter()
            .map(|reduction| EpilogueReduction::new(graph, *reduction, &epilogue.axes, false));
        let summed = |side: usize, reduced: Reduced| Summed {
            reduced,
            tensor: at[side],
            k_axis: k_axis[side],
        };
        let operands = [summed(0, Reduced::A), summed(1, Reduced::B)];
        let product = (matmul, &dims(tensors[2])[..rank - 2]);
        let sums = sums.iter().map(|sum| Summed::sum(operands, graph, product, *sum));
        let sums: Vec<EpilogueReduction> = sums.collect::<Result<_>>()?;
        if sums.iter().any(|of| of.reduced != sums[0].reduced) {
            return Err(Error::not_supported("both operands are reduced"));
        }
        let reductions = reductions.chain(sums.into_iter().map(Ok));
        let extent = |axes: &Vec<usize>| axes.iter().map(|axis| dims(tensors[2])[*axis]).product();
        let batches: Vec<i64> = epilogue.axes.batches.iter().map(extent).collect();
        check_multiplications(batches.iter().copied().chain([m, n, k]))?;
        let operand = |tensor: usize, extent: i64, prologue: Fusion| {
            let k_major = k_major(graph, &prologue);
            Operand { tensor, extent, prologue, k_major, window: None }
        };
        Ok(Problem {
            graph: self.decomposed.clone(),
            matmul,
            batches,
            m,
            n,
            k,
            a: operand(at[0], m, a),
            b: operand(at[1], n, b),
            c: tensors[2],
            dual,
            reductions: reductions.collect::<Result<_>>()?,
            finish: Fusion { axes: epilogue.axes.clone(), program: finish, reduced: Vec::new() },
            epilogue,
            result: None,
            scatters: false,
            phases: None,
            overrides,
        })
    }
}

/// Checks that a GEMM of these extents has no more multiplications than can be counted.
///
/// # Errors
/// `NotSupported` where it has more than 2^62.
pub(super) fn check_multiplications(extents: impl IntoIterator<Item = i64>) -> Result<()> {
    let volume = extents
        .into_iter()
        .map(|extent| i128::from(extent.max(1)))
        .try_fold(1_i128, |product, extent| product.checked_mul(extent));
    match volume.is_some_and(|volume| volume <= 1 << 62) {
        true => Ok(()),
        false => Err(Error::not_supported("the GEMM has more than 2^62 multiplications")),
    }
}

/// Whether columns of the largest output are contiguous, not rows.
pub(super) fn writes_columns(graph: CanonicalGraph<'_>, epilogue: &Fusion) -> bool {
    let outputs = epilogue.program.outputs.iter().filter(|at| !graph.tensors[**at].is_virtual);
    let largest = outputs.max_by_key(|at| graph.tensors[**at].dtype.bytes());
    largest.is_some_and(|at| {
        let view = epilogue.axes.view(&graph.tensors[*at]);
        view.row == 1 && view.column > 1
    })
}

/// Whether an operand is K-major: as the input is that moves the most bytes.
pub(super) fn k_major(graph: CanonicalGraph<'_>, prologue: &Fusion) -> bool {
    let bytes = |at: &usize| {
        let tensor = &graph.tensors[*at];
        tensor.elements().unwrap_or(i64::MAX).saturating_mul(tensor.dtype.bytes() as i64)
    };
    let in_memory = prologue.inputs().filter(|at| !graph.tensors[*at].by_value);
    in_memory.max_by_key(bytes).is_none_or(|at| {
        let view = prologue.axes.view(&graph.tensors[at]);
        view.column == 1 || view.row != 1
    })
}
