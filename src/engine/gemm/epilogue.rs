//! The epilogue and its reductions (`gemm/epilogue.cuh`).

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::gemm::axes::{View, coordinate};
use crate::engine::gemm::context::Context;
use crate::engine::gemm::epilogue_reduction::{EpilogueReduction, Kept};
use crate::engine::gemm::lane_columns::LaneColumns;
use crate::engine::gemm::layout::{Layout, Load, Matrix, Store};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::window::{Window, WindowParameters};
use crate::engine::program::Source;
use crate::engine::reduce::op_name;
use crate::engine::signature::{Indent, Width, ctype, list};
use crate::expr::Value as ProgramValue;

#[derive(Debug, Clone, Serialize)]
pub(super) struct EpilogueParameters {
    /// Columns that a lane passes through it at once, and whether they are striped.
    vector: i64,
    striped: bool,
    /// Whether it stores from registers, else by TMA.
    stores: bool,
    /// Whether a window says where its rows and columns are, and which.
    placed: bool,
    /// Whether elements are loaded and stored one by one.
    scattered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<WindowParameters>,
    tensors: Vec<Layout>,
    loaded: Vec<Load>,
    loads_valid: bool,
    /// Whether rows, and columns, differ in what is loaded: none outside of C may be. TMA stores
    /// leave those out.
    #[serde(skip)]
    reads: [bool; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    reads_rows: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reads_columns: Option<bool>,
    /// Whether a function of its own loads what is the same for all rows.
    loads_apart: bool,
    outputs: Vec<Store>,
    values: Vec<Value>,
    reductions: Vec<ReductionParameters>,
    chain_parameters: String,
    chain_arguments: String,
    lines: Vec<String>,
    has_tail: bool,
    masked: bool,
    /// Rows and columns that are not masked.
    rows: String,
    columns: String,
    #[serde(skip)]
    pub(super) functions: BTreeSet<&'static str>,
}

/// A value that the program computes.
#[derive(Debug, Clone, Serialize)]
struct Value {
    name: String,
    ctype: &'static str,
}

/// An epilogue reduction.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ReductionParameters {
    name: String,
    op: &'static str,
    ctype: &'static str,
    /// `rows`, `columns` or `neither`.
    kept: &'static str,
    /// The next value.
    term: String,
    /// Subscript of a partial, one per column.
    place: &'static str,
}

impl EpilogueParameters {
    /// The epilogue with outputs stored by TMA, at these batch coordinates.
    pub(super) fn stored_by_tma(mut self, batches: impl Iterator<Item = String>) -> Self {
        self.stores = false;
        let [rows, columns] = self.reads;
        (self.reads_rows, self.reads_columns) = (Some(rows), Some(columns));
        self.tensors.truncate(self.tensors.len() - self.outputs.len());
        for (output, batch) in self.outputs.iter_mut().zip(batches) {
            output.batch = Some(batch);
        }
        self
    }
}

impl Context<'_> {
    /// How tensors of the epilogue are accessed.
    pub(super) fn epilogue_matrix(&self, columns: LaneColumns) -> Matrix<'_> {
        let Problem { epilogue, m, n, .. } = self.problem;
        Matrix {
            fusion: epilogue,
            window: self.problem.result.as_ref(),
            extents: [*m, *n],
            along_columns: true,
            vector: columns.count,
            striped: columns.striped,
            scattered: self.problem.scatters,
            is_m: true,
            is_k: false,
        }
    }

    /// The epilogue of a lane's columns.
    pub(super) fn epilogue(&self, columns: LaneColumns) -> EpilogueParameters {
        let LaneColumns { count: vector, striped } = columns;
        let Problem { graph, epilogue, m, n, overrides, .. } = self.problem;
        let matrix = self.epilogue_matrix(columns);
        let emitted = self.emit(epilogue, &|source, register| match source {
            Source::Tensor(at) if self.problem.is_gemm(*at) => self.gemm_result(*at),
            Source::Tensor(at) if graph.tensors[*at].by_value => {
                format!("{register}(t.{})", self.names[*at])
            }
            Source::Tensor(at) if matrix.scattered => format!("{}_in[j].get(0)", self.names[*at]),
            Source::Tensor(at) => {
                let element = if self.is_broadcast(*at, &matrix) { "0" } else { "j" };
                format!("{}_in.get({element})", self.names[*at])
            }
            Source::Position(at) => self.position(*at, &matrix),
            Source::Coordinate(axis) => {
                let at = axis.and_then(|axis| epilogue.axes.coordinate(axis));
                format!("{register}({})", coordinate(at, ["row", matrix.column_of_j()]))
            }
        });
        let is_loaded = |at: &usize| !self.problem.is_gemm(*at) && !graph.tensors[*at].by_value;
        let inputs: Vec<usize> = epilogue.inputs().filter(is_loaded).collect();
        let load = |at: &usize| self.load(*at, &matrix, ["valid", "1"]);
        let loaded: Vec<Load> = inputs.iter().map(load).collect();
        let mut arguments = emitted.arguments;
        arguments.extend(emitted.outputs.iter().map(|name| format!("{name}_value[j]")));
        let types = emitted.text.outputs.iter().map(|output| output.ctype);
        let values: Vec<(&String, &'static str)> = emitted.outputs.iter().zip(types).collect();
        let stored = || self.problem.outputs();
        let positions: Vec<usize> = epilogue.program.positions().collect();
        let read = inputs.iter().chain(&positions).copied();
        let tensors = read.chain(stored());
        let reductions = &self.problem.reductions[self.problem.epilogue_reductions()];
        let reductions = reductions.iter().map(|of| {
            let tensors = &epilogue.program.outputs;
            let at = tensors.iter().position(|at| *at == of.operand);
            let (value, value_type) = values[at.expect("what is reduced is an output")];
            ReductionParameters {
                name: self.names[of.result].clone(),
                op: op_name(of.op),
                ctype: ctype(of.op.math.dtype()),
                kept: of.kept.name(),
                term: self.term(of, value, value_type),
                place: if of.kept == Kept::Columns { "[j]" } else { "" },
            }
        });
        let limit = |slot: usize, function: &str, extent: &str| match overrides[slot] {
            Some(_) => format!("{function}(t, batch)"),
            None => extent.to_owned(),
        };
        // What has one row, as C has, may be where the result is: only its own threads may read it.
        let reads = |extent: i64, step: fn(&View) -> i64| {
            let differs = |at: &usize| {
                matrix.window.is_some() || extent == 1 || step(&self.view(*at, &matrix)) != 0
            };
            inputs.iter().any(differs)
        };
        let reads = [reads(*m, |view| view.row), reads(*n, |view| view.column)];
        EpilogueParameters {
            vector,
            striped,
            stores: true,
            placed: self.problem.result.is_some(),
            scattered: matrix.scattered,
            window: self.problem.result.as_ref().map(Window::of_result),
            tensors: tensors.map(|at| self.layout(at, &matrix)).collect(),
            loads_valid: !matrix.scattered
                && loaded.iter().any(|tensor| tensor.load_valid == "valid"),
            loaded,
            reads,
            reads_rows: None,
            reads_columns: None,
            loads_apart: !inputs.is_empty() && !reads[0] && !matrix.scattered,
            outputs: stored().map(|at| self.store(at, &matrix)).collect(),
            reductions: reductions.collect(),
            values: values
                .iter()
                .map(|(name, ctype)| Value { name: (*name).clone(), ctype })
                .collect(),
            chain_parameters: emitted.parameters,
            chain_arguments: list(&arguments, Indent(18), Width(78)),
            lines: emitted.text.lines,
            functions: emitted.text.functions,
            has_tail: striped || n % vector != 0,
            masked: overrides[0].is_some() || overrides[1].is_some(),
            rows: limit(0, "rows_of", self.rows()),
            columns: limit(1, "columns_of", "N"),
        }
    }

    /// The next value of a reduction: of its operand's type, in its own precision.
    fn term(&self, of: &EpilogueReduction, value: &str, value_type: &str) -> String {
        let dtype = self.problem.graph.tensors[of.operand].dtype;
        let (own, value) = (of.op.math.dtype().register(), format!("{value}_value[j]"));
        let exact = matches!(dtype, DType::F32 | DType::F64) && dtype.register() == value_type;
        let (rounded, register) = match exact {
            true => (value, value_type),
            false => (format!("widen(Narrow<{}>::from({value}))", ctype(dtype)), dtype.register()),
        };
        if register == own { rounded } else { format!("{own}({rounded})") }
    }

    /// An element of a GEMM's result as the epilogue reads it: rounded to its type, unless it is
    /// only stored.
    fn gemm_result(&self, at: usize) -> String {
        let Problem { graph, epilogue, c, .. } = self.problem;
        let (sum, dtype) = (if at == *c { "sum" } else { "other" }, graph.tensors[at].dtype);
        let program = &epilogue.program;
        let input = program.sources.iter().position(|source| *source == Source::Tensor(at));
        let read = input.is_some_and(|input| {
            let value = ProgramValue::Input(input);
            program.program.instructions().iter().any(|line| line.operands.contains(&value))
        });
        let same_register = dtype.register() == self.accumulator().register();
        match dtype == self.accumulator() || (!read && same_register) {
            true => sum.to_owned(),
            false => format!("widen(Narrow<{}>::from({sum}))", ctype(dtype)),
        }
    }
}
