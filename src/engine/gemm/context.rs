//! A problem with the names of its tensors, and the parameters that all templates share.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::dimensions::coordinates;
use crate::engine::gemm::axes::offset;
use crate::engine::gemm::epilogue_reduction::{EpilogueReduction, Kept, Reduced};
use crate::engine::gemm::fusion::Fusion;
use crate::engine::gemm::partials::Partials;
use crate::engine::gemm::phases::{Phases, Table};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::{Tiling, partial_columns};
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduce::op_name;
use crate::engine::signature::{
    Indent, Width, ctype, kernel_parameter, list, names_with_positions,
};
use crate::expr::{EmittedProgram, Identifiers};

/// A problem with the names of its tensors.
pub(super) struct Context<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) tiling: Tiling,
    pub(super) names: Vec<String>,
    identifiers: Identifiers,
    /// The name of the split-K partials.
    partials: String,
}

/// What every template reads (`gemm/problem.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProblemParameters {
    /// Operations, one per line.
    listing: Vec<String>,
    /// Functions of `device/ops/pointwise.cuh` that the kernel calls.
    functions: BTreeSet<&'static str>,
    /// Operators of `device/ops/reduce.cuh`.
    reductions: BTreeSet<&'static str>,
    reduces_across: bool,
    index_type: &'static str,
    /// M and K, unless they are counted at run time: kernels of all of them have one description.
    m: Option<i64>,
    dynamic_k: bool,
    dynamic_m: bool,
    /// Whether a batch's position is known by what is counted at run time.
    counts_batch: bool,
    n: i64,
    k: Option<i64>,
    batches: Vec<i64>,
    batch_count: i64,
    /// Expressions for the coordinates of a batch.
    divisions: Vec<String>,
    /// Numbers of each phase.
    phases: Vec<Table>,
    /// Kernel parameters.
    tensors: Vec<Member>,
    limits: Vec<Limit>,
}

/// A member of the struct of kernel parameters.
#[derive(Debug, Clone, Serialize)]
struct Member {
    declaration: String,
    /// The comment behind it.
    text: String,
}

/// An extent that a batch's element of a tensor makes less than the tensors'.
#[derive(Debug, Clone, Serialize)]
struct Limit {
    name: String,
    /// `M`, `N` or `K`.
    dimension: &'static str,
    function: String,
    value: String,
    extent: &'static str,
}

/// What the kernels with accumulators read: the GEMM and the split-K reduction.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AccumulatorParameters {
    /// Their type.
    sum: &'static str,
    split_k: i64,
    /// Whether there are two GEMMs of one A.
    dual: bool,
    /// Rows as the kernel knows them, and where those of a batch end.
    rows: &'static str,
    row_end: String,
    /// The name of the split-K partials, and the columns of a row of them.
    partials: String,
    partial_columns: i64,
}

/// What templates read of sums of an operand (`gemm/operand_sums.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct OperandSums {
    /// `A` or `B`.
    of: &'static str,
    /// The operand's rows: M of A, N of B.
    rows: &'static str,
    names: Vec<String>,
}

/// A fused program as text, with what feeds it.
pub(super) struct Emitted {
    pub(super) text: EmittedProgram,
    /// The program's outputs in the text.
    pub(super) outputs: Vec<String>,
    pub(super) parameters: String,
    pub(super) arguments: Vec<String>,
}

impl ProblemParameters {
    /// The same with these tables of phases alone.
    pub(super) fn with_phases(self, phases: Vec<Table>) -> ProblemParameters {
        ProblemParameters { phases, ..self }
    }

    /// The same, of a kernel that combines the partials of these.
    pub(super) fn reducing(self, combined: &[EpilogueReduction]) -> ProblemParameters {
        let reductions = combined.iter().map(|of| op_name(of.op)).collect();
        ProblemParameters { reductions, ..self }
    }
}

impl<'a> Context<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, tiling: Tiling) -> Context<'a> {
        let mut identifiers = Identifiers::new();
        let mut names = names_with_positions(problem.graph.graph(), &mut identifiers);
        for reduction in &problem.reductions {
            if names[reduction.result].is_empty() {
                let name = &problem.graph.tensors[reduction.result].name;
                names[reduction.result] = identifiers.fresh(name);
            }
        }
        let partials = identifiers.fresh("partials");
        Context { problem, tiling, names, identifiers, partials }
    }

    /// The type of the accumulators.
    pub(super) fn accumulator(&self) -> DType {
        self.problem.matmul.math.dtype()
    }

    /// The parameters that all templates share, of a kernel that computes the operations of
    /// `listing` with these functions; `passed` are the tensors passed to it, before `partials`.
    pub(super) fn problem_parameters(
        &self,
        passed: &[usize],
        partials: Partials,
        listing: Vec<String>,
        functions: BTreeSet<&'static str>,
    ) -> ProblemParameters {
        let Problem { graph, m, n, k, batches, .. } = self.problem;
        let member = |at: &usize| Member {
            declaration: kernel_parameter(graph.graph(), *at, &self.names[*at]),
            text: self.text(*at),
        };
        let mut tensors: Vec<Member> = passed.iter().map(member).collect();
        if partials.accumulators {
            let declaration = format!("{}* {}", ctype(self.accumulator()), self.partials);
            tensors.push(Member { declaration, text: "split-K partials".to_owned() });
        }
        let reductions = &self.problem.reductions[partials.reductions];
        for EpilogueReduction { op, result, .. } in reductions {
            let name = &self.names[*result];
            let declaration = format!("{}* {name}_partials", ctype(op.math.dtype()));
            tensors.push(Member { declaration, text: format!("partials of `{name}`") });
        }
        let of_epilogue = || reductions.iter().filter(|of| of.reduced == Reduced::Epilogue);
        ProblemParameters {
            listing,
            functions,
            reductions: of_epilogue().map(|of| op_name(of.op)).collect(),
            reduces_across: of_epilogue().any(|of| of.kept == Kept::Columns),
            index_type: self.tiling.index_type(self.problem),
            m: (!self.tiling.dynamic_m).then_some(*m),
            dynamic_k: self.tiling.dynamic_k,
            dynamic_m: self.tiling.dynamic_m,
            counts_batch: self.tiling.dynamic_m || self.tiling.dynamic_k && !batches.is_empty(),
            n: *n,
            k: (!self.tiling.dynamic_k).then_some(*k),
            batches: batches.clone(),
            batch_count: self.problem.batch_count(),
            divisions: coordinates(batches.len(), "at", "EXTENT"),
            phases: self.problem.phases.as_ref().map(Phases::tables).unwrap_or_default(),
            tensors,
            limits: self.limits(passed),
        }
    }

    /// The extents that tensors passed to a kernel limit.
    fn limits(&self, passed: &[usize]) -> Vec<Limit> {
        let graph = self.problem.graph.graph();
        let functions = ["rows", "columns", "k"].into_iter().zip(["M", "N", "K"]);
        let limits = functions.zip(self.problem.overrides);
        let limit = |((function, dimension), at): ((&str, &'static str), Option<usize>)| {
            let at = at.filter(|at| passed.contains(at))?;
            let view = self.problem.epilogue.axes.view(&graph.tensors[at]);
            let offset = offset(&view.terms(["0", "0"], &[]), |term| term.stride.to_string());
            let name = self.names[at].clone();
            let value = match graph.tensors[at].by_value {
                true => format!("int(t.{name})"),
                false => format!("t.{name}[{offset}]"),
            };
            let extent = if dimension == "M" { self.rows() } else { dimension };
            Some(Limit { name, dimension, function: format!("{function}_of"), value, extent })
        };
        limits.filter_map(limit).collect()
    }

    pub(super) fn accumulator_parameters(&self) -> AccumulatorParameters {
        AccumulatorParameters {
            sum: ctype(self.accumulator()),
            split_k: self.tiling.split_k,
            dual: self.problem.dual.is_some(),
            rows: self.rows(),
            row_end: self.phase_rows().unwrap_or_else(|| self.rows().to_owned()),
            partials: self.partials.clone(),
            partial_columns: partial_columns(self.problem),
        }
    }

    /// The sums of an operand, if there are any.
    pub(super) fn operand_sums(&self) -> Option<OperandSums> {
        let sums = &self.problem.reductions[self.problem.operand_sums()];
        let (of, rows) = match self.problem.summed()? {
            Reduced::B => ("B", "N"),
            Reduced::A | Reduced::Epilogue if self.tiling.dynamic_m => ("A", "index_t(t.M)"),
            Reduced::A | Reduced::Epilogue => ("A", "M"),
        };
        let names = sums.iter().map(|of| self.names[of.result].clone()).collect();
        Some(OperandSums { of, rows, names })
    }

    /// The number of rows as kernels know it.
    pub(super) fn rows(&self) -> &'static str {
        if self.tiling.dynamic_m { "batch.M" } else { "M" }
    }

    /// Where the rows of a phase end, where phases differ.
    pub(super) fn phase_rows(&self) -> Option<String> {
        self.problem.phases.as_ref().and_then(Phases::rows_end)
    }

    /// Where the K of a batch ends, if not where that of the problem does.
    pub(super) fn k_limit(&self) -> Option<String> {
        let own = self.problem.overrides[2].map(|_| "k_of(t, batch)".to_owned());
        own.or_else(|| self.problem.phases.as_ref().and_then(Phases::k_end))
    }

    /// A tensor in words; its dimensions only where the kernel is specialised for them.
    pub(super) fn text(&self, at: usize) -> String {
        let tensor = &self.problem.graph.tensors[at];
        match self.tiling.dynamic_k || self.tiling.dynamic_m {
            true => format!("{}: {}", tensor.name, tensor.dtype),
            false => tensor.to_string(),
        }
    }

    /// The operations, one per line.
    pub(super) fn listing(&self) -> Vec<String> {
        let Problem { graph, a, b, c, dual, .. } = self.problem;
        let text = |fusion: &Fusion| fusion.program.program.to_string();
        let operation = graph.operations.iter().find(|operation| operation.outputs == [*c as i64]);
        let op = &operation.expect("the GEMM is of the graph").op;
        let gemm = |[a, b]: [usize; 2], c: usize| {
            let [x, y] = [a, b].map(|operand| &graph.tensors[operand].name);
            format!("{}: {} = {op}({x}, {y})\n", self.shown(c), graph.tensors[c].dtype)
        };
        let first = gemm([a.tensor, b.tensor], *c);
        let second = dual.map(|dual| gemm([a.tensor, dual.b], dual.c)).unwrap_or_default();
        let operands = [a.tensor, b.tensor].into_iter().chain(dual.map(|dual| dual.b));
        let shapes: String = operands.map(|at| format!("{}\n", self.text(at))).collect();
        let text = [shapes, text(&a.prologue), text(&b.prologue), first, second].concat();
        let sums = &self.problem.reductions[self.problem.operand_sums()];
        let sums = sums.iter().map(|of| self.reduction_listing(of));
        text.lines().map(str::to_owned).chain(sums).chain(self.epilogue_listing()).collect()
    }

    /// A tensor's name, or a name for an unnamed GEMM result.
    fn shown(&self, at: usize) -> String {
        match self.problem.graph.tensors[at].name.as_str() {
            "" if at == self.problem.c => "product".to_owned(),
            "" => "product2".to_owned(),
            name => name.to_owned(),
        }
    }

    /// The epilogue, one operation per line.
    pub(super) fn epilogue_listing(&self) -> Vec<String> {
        let GraphProgram { program, sources, .. } = &self.problem.epilogue.program;
        let mut program = program.clone();
        for (input, source) in sources.iter().enumerate() {
            if let Source::Tensor(at) = source {
                program = program.renamed(input, &self.shown(*at));
            }
        }
        let text = program.to_string();
        let reductions = &self.problem.reductions[self.problem.epilogue_reductions()];
        let reductions = reductions.iter().map(|of| self.reduction_listing(of));
        text.lines().map(str::to_owned).chain(reductions).collect()
    }

    /// An epilogue reduction in words.
    pub(super) fn reduction_listing(&self, of: &EpilogueReduction) -> String {
        let EpilogueReduction { op, operand, result, .. } = of;
        let [operand, result] = [operand, result].map(|at| &self.problem.graph.tensors[*at]);
        format!("{}: {} = {op}({})", result.name, result.dtype, operand.name)
    }

    /// A fused program as text; `argument` is what a source passes in a register type.
    pub(super) fn emit(
        &self,
        fusion: &Fusion,
        argument: &dyn Fn(&Source, &str) -> String,
    ) -> Emitted {
        let graph = self.problem.graph.graph();
        let mut identifiers = self.identifiers.clone();
        let program = &fusion.program;
        let mut name = |source: &Source| match source {
            Source::Tensor(at) if self.problem.is_gemm(*at) => identifiers.fresh("product"),
            Source::Tensor(at) | Source::Position(at) => self.names[*at].clone(),
            Source::Coordinate(_) => identifiers.fresh("index"),
        };
        let inputs: Vec<String> = program.sources.iter().map(&mut name).collect();
        let output = |at: &usize| match graph.is_written(*at) && !graph.tensors[*at].is_virtual {
            true => self.names[*at].clone(),
            false => identifiers.fresh("result"),
        };
        let outputs: Vec<String> = program.outputs.iter().map(output).collect();
        let text = program.program.emit(&inputs, &outputs, &mut identifiers);
        let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
        for input in (0..inputs.len()).filter(|input| program.reads(*input)) {
            let register = text.input_types[input];
            parameters.push(format!("const {register} {}", inputs[input]));
            arguments.push(argument(&program.sources[input], register));
        }
        let results = outputs.iter().zip(&text.outputs);
        parameters.extend(results.map(|(name, output)| format!("{}& {name}", output.ctype)));
        let parameters = list(&parameters, Indent(8), Width(56));
        Emitted { text, outputs, parameters, arguments }
    }
}
