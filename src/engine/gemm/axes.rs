//! The axes of tensors as batches, rows and columns of matrices, and offsets in C++.

use crate::tensor::TensorDesc;

/// The axes of tensors that make up the batches, rows and columns of a matrix. The last axis of a
/// list is the innermost; axes of extent 1 are left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Axes {
    pub(super) batches: Vec<Vec<usize>>,
    pub(super) rows: Vec<usize>,
    pub(super) columns: Vec<usize>,
}

/// Elements between neighbours of a tensor, 0 where it is broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub(super) batches: Vec<i64>,
    pub(super) row: i64,
    pub(super) column: i64,
}

/// A coordinate of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Coordinate {
    Batch(usize),
    Row,
    Column,
}

impl Axes {
    pub(super) fn view(&self, tensor: &TensorDesc) -> View {
        let stride = |axes: &Vec<usize>| axes.last().map_or(0, |axis| stride(tensor, *axis));
        let batches = self.batches.iter().map(stride).collect();
        View { batches, row: stride(&self.rows), column: stride(&self.columns) }
    }

    /// The coordinate that counts along an axis; `None` where the axis has extent 1.
    pub(super) fn coordinate(&self, axis: usize) -> Option<Coordinate> {
        let batch = self.batches.iter().position(|axes| axes.contains(&axis));
        match (batch, self.rows.contains(&axis), self.columns.contains(&axis)) {
            (Some(batch), _, _) => Some(Coordinate::Batch(batch)),
            (_, true, _) => Some(Coordinate::Row),
            (_, _, true) => Some(Coordinate::Column),
            _ => None,
        }
    }
}

pub(super) fn stride(tensor: &TensorDesc, axis: usize) -> i64 {
    if tensor.dims[axis] == 1 { 0 } else { tensor.strides[axis] }
}

/// A dimension, or several that a tensor steps over as over one.
pub(super) struct Run {
    pub(super) extent: i64,
    pub(super) stride: i64,
}

/// The dimensions that axes of these extents are to a tensor, the innermost last.
pub(super) fn runs(tensor: &TensorDesc, axes: &[usize], extents: &[i64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for axis in axes {
        let (extent, stride) = (extents[*axis], stride(tensor, *axis));
        match runs.last_mut().filter(|outer| outer.stride == stride.saturating_mul(extent)) {
            Some(outer) => *outer = Run { extent: outer.extent.saturating_mul(extent), stride },
            None => runs.push(Run { extent, stride }),
        }
    }
    runs
}

/// A coordinate times a stride, in an offset.
pub(super) struct Term {
    coordinate: String,
    pub(super) stride: i64,
    /// The name of the stride.
    pub(super) constant: String,
}

/// A dimension that is counted at run time.
pub(super) struct Counted {
    pub(super) count: i64,
    /// That of a tensor along it.
    pub(super) stride: i64,
    /// What counts it.
    pub(super) name: &'static str,
}

impl View {
    /// The outermost first. Where a batch is as many rows or columns as are counted at run time,
    /// its stride is that of one.
    pub(super) fn terms(&self, [row, column]: [&str; 2], counted: &[Counted]) -> Vec<Term> {
        let batch = |(at, stride): (usize, &i64)| {
            let is_many = |of: &&Counted| of.count > 0 && of.stride != 0 && stride % of.count == 0;
            let (coordinate, stride) = match counted.iter().find(is_many) {
                Some(of) => (format!("batch.i{at} * {}", of.name), stride / of.count),
                None => (format!("batch.i{at}"), *stride),
            };
            Term { coordinate, stride, constant: format!("BATCH{at}") }
        };
        let inner = |coordinate: &str, stride: i64, constant: &str| Term {
            coordinate: coordinate.to_owned(),
            stride,
            constant: constant.to_owned(),
        };
        let matrix = [inner(row, self.row, "ROW"), inner(column, self.column, "COLUMN")];
        self.batches.iter().enumerate().map(batch).chain(matrix).collect()
    }
}

/// The C++ expression of a coordinate.
pub(super) fn coordinate(at: Option<Coordinate>, [row, column]: [&str; 2]) -> String {
    match at {
        None => "0".to_owned(),
        Some(Coordinate::Batch(batch)) => format!("batch.i{batch}"),
        Some(Coordinate::Row) => row.to_owned(),
        Some(Coordinate::Column) => column.to_owned(),
    }
}

/// The sum of coordinates times strides, which `factor` writes.
pub(super) fn offset(terms: &[Term], factor: impl Fn(&Term) -> String) -> String {
    let text = |term: &Term| match term.stride {
        1 => term.coordinate.clone(),
        _ => format!("{} * {}", term.coordinate, factor(term)),
    };
    let terms: Vec<String> = terms.iter().filter(|term| term.stride != 0).map(text).collect();
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}
