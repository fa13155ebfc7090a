//! What the templates read of tensors, reductions and phases.

use std::collections::BTreeSet;

use serde::Serialize;

/// Where a tensor's elements are stored.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Layout {
    pub(super) name: String,
    pub(super) text: String,
    /// Whether it has one element per row.
    pub(super) is_row: bool,
    pub(super) access_bytes: i64,
    /// Along a vector.
    pub(super) stride: i64,
    /// Along the other dimensions of a row's or a value's coordinates.
    pub(super) strides: Vec<i64>,
    /// Along the dimensions that are stepped along.
    pub(super) steps: Vec<i64>,
    pub(super) offset: String,
}

/// How a vector of a tensor is loaded.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Load {
    pub(super) name: String,
    pub(super) ctype: &'static str,
    /// Elements of the fragment.
    pub(super) fragment: &'static str,
    pub(super) load: String,
    pub(super) load_stride: String,
}

/// How a vector of a tensor is stored.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Store {
    pub(super) name: String,
    pub(super) ctype: &'static str,
    pub(super) store: String,
    pub(super) store_stride: String,
    /// The condition under which it is stored; empty for always.
    pub(super) guard: String,
}

/// An element that a phase computes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ElementOutput {
    #[serde(flatten)]
    pub(super) store: Store,
    pub(super) value_type: &'static str,
    pub(super) is_stored: bool,
    /// Whether later phases read it from registers, of kernels whose rows are resident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) is_resident: Option<bool>,
}

/// A value that is stored once per row.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RowOutput {
    #[serde(flatten)]
    pub(super) store: Store,
    /// Whether the last function computes it; otherwise it is a value of a phase.
    pub(super) is_last: bool,
    pub(super) value_type: &'static str,
    pub(super) value: String,
}

/// A value of a row that a phase needs: `variable` is it before it is rounded to its type.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RowValue {
    pub(super) name: String,
    pub(super) variable: String,
    pub(super) value_type: &'static str,
    pub(super) register: &'static str,
    /// The rounded variable; empty where it is exact.
    pub(super) rounding: String,
}

/// A program as a function.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FunctionText {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) parameters: String,
    pub(super) lines: Vec<String>,
}

/// A reduction.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StepText {
    pub(super) name: String,
    /// Operator of `device/ops/reduce.cuh`.
    pub(super) op: &'static str,
    pub(super) ctype: &'static str,
    /// The next value.
    pub(super) term: String,
    /// The result of all values.
    pub(super) finish: String,
}

/// A variance, in the phase of its mean.
#[derive(Debug, Clone, Serialize)]
pub(super) struct VarianceText {
    #[serde(flatten)]
    pub(super) step: StepText,
    pub(super) mean: String,
}

impl VarianceText {
    /// The means whose sums come with these variances: none where partials of both are stored.
    pub(super) fn means(variances: &[VarianceText], from_partials: bool) -> Vec<String> {
        let means = variances.iter().filter(|_| !from_partials).map(|of| of.mean.clone());
        means.collect()
    }
}

/// What every kernel's phases have.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PhaseText<P> {
    pub(super) values: Vec<RowValue>,
    pub(super) row_function: String,
    pub(super) row_arguments: String,
    pub(super) element_function: String,
    pub(super) element_arguments: String,
    pub(super) outputs: Vec<ElementOutput>,
    pub(super) steps: Vec<StepText>,
    #[serde(flatten)]
    pub(super) own: P,
}

/// A phase of a kernel that reads elements again in each.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StreamedPhase {
    pub(super) inputs: Vec<Load>,
    pub(super) variances: Vec<VarianceText>,
    /// The means whose sums come with variances of elements.
    pub(super) means: Vec<String>,
    /// Whether its results are those of partials that an earlier kernel has stored.
    pub(super) from_partials: bool,
    /// Whether it stores partials for the next kernel.
    pub(super) to_partials: bool,
}

/// The values that are stored once per row.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RowOutputs {
    pub(super) row_outputs: Vec<RowOutput>,
    /// What the last function reads besides, and its call; empty where there is none.
    pub(super) last_inputs: Vec<Load>,
    pub(super) last_function: String,
    pub(super) last_arguments: String,
}

/// What every template reads (`reduction/problem.cuh`).
#[derive(Serialize)]
pub(super) struct Problem {
    /// The operations, one per line.
    pub(super) listing: Vec<String>,
    pub(super) kernel_parameters: String,
    pub(super) tensors: Vec<Layout>,
    /// Tensors with one element for all rows.
    pub(super) scalars: Vec<Load>,
    /// The functions of the kernel, and those of `device/ops/pointwise.cuh` that they call.
    pub(super) programs: Vec<FunctionText>,
    pub(super) functions: BTreeSet<&'static str>,
    /// Operators of `device/ops/reduce.cuh`.
    pub(super) reductions: BTreeSet<&'static str>,
    pub(super) reduces_across: bool,
    /// Whether variances are reduced in the phases of their means.
    pub(super) has_variances: bool,
    pub(super) index_type: &'static str,
    pub(super) threads: i64,
    /// Threads of a block per row.
    pub(super) row_threads: i64,
    pub(super) vector: i64,
    pub(super) items: i64,
    /// Whether no block is short of a row.
    pub(super) whole_tiles: bool,
    pub(super) columns: i64,
    pub(super) width: i64,
    pub(super) chunks: i64,
    pub(super) segments: i64,
    pub(super) segment_chunks: i64,
    pub(super) cluster: i64,
    pub(super) row_extents: Vec<i64>,
    pub(super) row_divisions: Vec<String>,
    pub(super) column_extents: Vec<i64>,
    pub(super) column_divisions: Vec<String>,
}

/// What both templates of rows read.
#[derive(Serialize)]
pub(super) struct RowKernel<P> {
    #[serde(flatten)]
    pub(super) problem: Problem,
    pub(super) phases: Vec<PhaseText<P>>,
    /// Tensors with a value per row.
    pub(super) row_inputs: Vec<Load>,
    #[serde(flatten)]
    pub(super) outputs: RowOutputs,
    /// Whether partials in shared memory are overwritten by those of the next row.
    pub(super) barrier: bool,
    /// Whether the grid covers all elements, else rows alone.
    pub(super) whole_grid: bool,
}

/// Rows that stay in registers.
#[derive(Serialize)]
pub(super) struct ResidentKernel {
    #[serde(flatten)]
    pub(super) rows: RowKernel<ResidentPhase>,
    /// Tensors with one row for all rows, and with elements of each.
    pub(super) shared: Vec<Load>,
    pub(super) streams: Vec<Load>,
    /// Rows in shared memory; 0 where registers hold the row.
    pub(super) stages: i64,
    /// What is there of the tensors, instead.
    pub(super) staged: Vec<Staged>,
    /// Whether all rows share one of these.
    pub(super) stages_shared: bool,
    /// Whether what registers hold of a row is loaded while the row before is reduced.
    pub(super) prefetch: bool,
    pub(super) sums: Vec<ColumnSum>,
}

/// A tensor that shared memory holds.
#[derive(Serialize)]
pub(super) struct Staged {
    #[serde(flatten)]
    pub(super) load: Load,
    /// Whether all rows share it.
    pub(super) shared: bool,
}

#[derive(Serialize)]
pub(super) struct ResidentPhase {
    /// What it reads from shared memory.
    pub(super) staged: Vec<Staged>,
    pub(super) sums: Vec<ColumnTerm>,
}

/// A sum of columns over the rows of a block.
#[derive(Serialize)]
pub(super) struct ColumnSum {
    pub(super) name: String,
    pub(super) op: &'static str,
    pub(super) ctype: &'static str,
    /// Bytes per access to its partials.
    pub(super) access: i64,
}

/// What a phase adds to a sum of columns.
#[derive(Serialize)]
pub(super) struct ColumnTerm {
    pub(super) name: String,
    pub(super) op: &'static str,
    pub(super) term: String,
}

/// The kernel that combines the column sums of all blocks.
#[derive(Serialize)]
pub(super) struct CombineKernel {
    #[serde(flatten)]
    pub(super) problem: Problem,
    /// Partials of each column, and columns of a block.
    pub(super) slots: i64,
    pub(super) block_columns: i64,
    pub(super) sums: Vec<CombinedSum>,
    pub(super) outputs: Vec<ColumnOutput>,
    /// What is computed from the sums of a column.
    pub(super) after_function: String,
    pub(super) after_arguments: String,
}

#[derive(Serialize)]
pub(super) struct CombinedSum {
    pub(super) name: String,
    pub(super) op: &'static str,
    pub(super) ctype: &'static str,
    /// The result of all values.
    pub(super) finish: String,
}

/// A value that is stored once per column.
#[derive(Serialize)]
pub(super) struct ColumnOutput {
    pub(super) name: String,
    pub(super) ctype: &'static str,
    pub(super) value_type: &'static str,
}
