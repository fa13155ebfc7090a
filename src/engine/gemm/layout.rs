//! Tensors as templates see them: where elements are stored, and how vectors are loaded and stored
//! (`gemm/layout.cuh`).

use serde::Serialize;

use crate::engine::access::access_bytes;
use crate::engine::dimensions::coordinates;
use crate::engine::gemm::axes::{Counted, Term, View, offset, runs, stride};
use crate::engine::gemm::context::Context;
use crate::engine::gemm::fusion::Fusion;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::window::Window;
use crate::engine::position::Neighbours;
use crate::engine::signature::ctype;
use crate::tensor::TensorDesc;

/// Where a tensor's elements are stored.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Layout {
    name: String,
    text: String,
    /// 0 of what is not accessed by vectors.
    access_bytes: i64,
    strides: Vec<Stride>,
    /// Whether elements are where a window's rows and K meet.
    placed: bool,
    offset: String,
}

/// A named stride.
#[derive(Debug, Clone, Serialize)]
struct Stride {
    name: String,
    value: i64,
}

/// How a vector of a tensor is loaded.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Load {
    name: String,
    ctype: &'static str,
    /// Elements of the fragment.
    fragment: &'static str,
    load: String,
    load_stride: String,
    /// How many elements are inside the matrix.
    pub(super) load_valid: &'static str,
}

/// How a vector of a tensor is stored.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Store {
    name: String,
    ctype: &'static str,
    store: String,
    store_stride: String,
    /// Batch coordinates of a TMA store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<String>,
}

/// How vectors of the tensors of a prologue or an epilogue are moved.
pub(super) struct Matrix<'a> {
    pub(super) fusion: &'a Fusion,
    /// Where rows and columns meet, if not where their steps lead.
    pub(super) window: Option<&'a Window>,
    /// Rows and columns.
    pub(super) extents: [i64; 2],
    /// Along columns, else along rows.
    pub(super) along_columns: bool,
    /// Elements moved at once.
    pub(super) vector: i64,
    /// Whether they are striped over lanes.
    pub(super) striped: bool,
    /// Whether they are found one by one.
    pub(super) scattered: bool,
    /// Whether its rows are those of C.
    pub(super) is_m: bool,
    /// Whether columns are K.
    pub(super) is_k: bool,
}

impl Matrix<'_> {
    /// The column of element `j` of a vector.
    pub(super) fn column_of_j(&self) -> &'static str {
        if self.striped { "column + j * STRIPE" } else { "column + j" }
    }
}

impl Context<'_> {
    pub(super) fn view(&self, at: usize, of: &Matrix<'_>) -> View {
        of.fusion.axes.view(&self.problem.graph.tensors[at])
    }

    /// The position of element `j` of a vector of a row in random numbers.
    pub(super) fn position(&self, at: usize, of: &Matrix<'_>) -> String {
        let name = &self.names[at];
        let View { batches, row, column } = self.view(at, of);
        if of.window.is_some() || of.striped || self.apart(at, of).is_some() {
            let column = of.column_of_j();
            return format!("op::position({name}_layout::at(batch, row, {column}))");
        }
        let neighbours = Neighbours {
            first: &format!("{name}_layout::at(batch, row, column)"),
            count: of.vector,
            step: column,
            step_name: &format!("{name}_layout::COLUMN"),
            others: &[batches, vec![row]].concat(),
        };
        neighbours.position()
    }

    /// Whether a vector has one element for all, as it is broadcast.
    pub(super) fn is_broadcast(&self, at: usize, of: &Matrix<'_>) -> bool {
        inner(&self.view(at, of), of.along_columns) == 0
    }

    pub(super) fn layout(&self, at: usize, of: &Matrix<'_>) -> Layout {
        let Matrix { extents, along_columns, vector, .. } = *of;
        let view = self.view(at, of);
        if let Some(window) = of.window {
            let along = (!of.scattered).then(|| (inner(&view, along_columns), vector));
            return self.placed(at, window, &view, along);
        }
        if let Some(apart) = self.apart(at, of) {
            return apart;
        }
        let Problem { m, k, .. } = *self.problem;
        let rows = Counted { count: m, stride: view.row, name: "batch.M" };
        let columns = Counted { count: k, stride: view.column, name: "batch.K" };
        let rows = (of.is_m && self.tiling.dynamic_m).then_some(rows);
        let columns = (of.is_k && self.tiling.dynamic_k).then_some(columns);
        let counted: Vec<Counted> = rows.into_iter().chain(columns).collect();
        let terms = view.terms(["row", "column"], &counted);
        let stride = |term: &Term| Stride { name: term.constant.clone(), value: term.stride };
        Layout {
            name: self.names[at].clone(),
            text: self.text(at),
            access_bytes: match of.striped {
                true => 0,
                false => access_of(self.problem, at, &view, extents, along_columns, vector),
            },
            strides: terms.iter().filter(|term| term.stride > 1).map(stride).collect(),
            placed: false,
            offset: offset(&terms, |term| term.constant.clone()),
        }
    }

    /// Where elements are that rows or columns of several dimensions do not step over evenly, as
    /// positions in random numbers may be.
    fn apart(&self, at: usize, of: &Matrix<'_>) -> Option<Layout> {
        let (tensor, c) = (&self.problem.graph.tensors[at], self.problem.c);
        let extents = &self.problem.graph.tensors[c].dims;
        let [rows, columns] =
            [&of.fusion.axes.rows, &of.fusion.axes.columns].map(|axes| runs(tensor, axes, extents));
        if !tensor.is_virtual || [&rows, &columns].iter().all(|runs| runs.len() <= 1) {
            return None;
        }
        let (mut strides, mut terms) = (Vec::new(), Vec::new());
        for (runs, names) in
            [(rows, ["row", "ROWS", "ROW"]), (columns, ["column", "COLUMNS", "COLUMN"])]
        {
            let [index, extent, step] = names;
            let coordinates = coordinates(runs.len(), index, extent);
            for (number, (run, coordinate)) in runs.iter().zip(coordinates).enumerate() {
                let named =
                    |name: &str, value: i64| Stride { name: format!("{name}{number}"), value };
                strides.extend((number > 0).then(|| named(extent, run.extent)));
                strides.extend((run.stride > 1).then(|| named(step, run.stride)));
                match run.stride {
                    0 => {}
                    1 => terms.push(coordinate),
                    _ => terms.push(format!("{coordinate} * {step}{number}")),
                }
            }
        }
        Some(Layout {
            name: self.names[at].clone(),
            text: self.text(at),
            access_bytes: 0,
            strides,
            placed: false,
            offset: terms.join(" + "),
        })
    }

    /// Where the elements of a tensor are that is read through a window; `along` says how far
    /// neighbours of a vector are apart and how many there are, where they are moved at once.
    fn placed(&self, at: usize, window: &Window, view: &View, along: Option<(i64, i64)>) -> Layout {
        let tensor = &self.problem.graph.tensors[at];
        let mut strides = Vec::new();
        let mut terms = Vec::new();
        let mut add = |coordinate: String, name: String, stride: i64| match stride {
            0 => {}
            1 => terms.push(coordinate),
            _ => {
                terms.push(format!("{coordinate} * {name}"));
                strides.push(Stride { name, value: stride });
            }
        };
        for (number, stride) in view.batches.iter().enumerate() {
            add(format!("batch.i{number}"), format!("BATCH{number}"), *stride);
        }
        let moving = (0..tensor.dims.len()).filter(|axis| window.moves(*axis));
        let moving: Vec<usize> = moving.filter(|axis| stride(tensor, *axis) != 0).collect();
        for axis in &moving {
            add(format!("index_t(p.d{axis})"), format!("D{axis}"), stride(tensor, *axis));
        }
        Layout {
            name: self.names[at].clone(),
            text: self.text(at),
            access_bytes: match along.filter(|_| !tensor.is_virtual) {
                Some((step, vector)) => placed_access(tensor, step, vector),
                None => 0,
            },
            strides,
            placed: !moving.is_empty(),
            offset: if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") },
        }
    }

    pub(super) fn load(&self, at: usize, of: &Matrix<'_>, valid: [&'static str; 2]) -> Load {
        let [verb, stride] = self.access("load", at, of);
        let broadcast = of.scattered || self.is_broadcast(at, of);
        Load {
            name: self.names[at].clone(),
            ctype: ctype(self.problem.graph.tensors[at].dtype),
            fragment: if broadcast { "1" } else { "VECTOR" },
            load: verb,
            load_stride: stride,
            load_valid: valid[usize::from(broadcast)],
        }
    }

    pub(super) fn store(&self, at: usize, of: &Matrix<'_>) -> Store {
        let [verb, stride] = self.access("store", at, of);
        Store {
            name: self.names[at].clone(),
            ctype: ctype(self.problem.graph.tensors[at].dtype),
            store: verb,
            store_stride: stride,
            batch: None,
        }
    }

    /// The function that moves a vector, and the argument for a stride that is not 1.
    fn access(&self, verb: &str, at: usize, of: &Matrix<'_>) -> [String; 2] {
        let name = &self.names[at];
        let ctype = ctype(self.problem.graph.tensors[at].dtype);
        match inner(&self.view(at, of), of.along_columns) {
            0 => [format!("{verb}<int(sizeof({ctype}))>"), String::new()],
            1 if of.striped => [format!("{verb}_strided"), "STRIPE, ".to_owned()],
            1 => [format!("{verb}<{name}_layout::ACCESS>"), String::new()],
            _ if of.striped => {
                [format!("{verb}_strided"), format!("STRIPE * {name}_layout::COLUMN, ")]
            }
            _ => {
                let constant = if of.along_columns { "COLUMN" } else { "ROW" };
                [format!("{verb}_strided"), format!("{name}_layout::{constant}, ")]
            }
        }
    }
}

/// Bytes of one access to a tensor that is read through a window.
pub(super) fn placed_access(tensor: &TensorDesc, step: i64, vector: i64) -> i64 {
    let strides: Vec<i64> = (0..tensor.dims.len()).map(|axis| stride(tensor, axis)).collect();
    let others: Vec<i64> = strides.into_iter().filter(|stride| *stride > 1).collect();
    let extents = vec![2; others.len()];
    match step {
        1 => access_bytes(tensor, &others, &extents, vector),
        _ => tensor.dtype.bytes() as i64,
    }
}

/// Bytes of one access to a tensor, for `vector` elements along columns or rows; 0 for one that is
/// not stored.
pub(super) fn access_of(
    problem: &Problem<'_>,
    at: usize,
    view: &View,
    extents: [i64; 2],
    along_columns: bool,
    vector: i64,
) -> i64 {
    let tensor = &problem.graph.tensors[at];
    let (outer_stride, outer_extent) = match along_columns {
        true => (view.row, extents[0]),
        false => (view.column, extents[1]),
    };
    let strides: Vec<i64> = view.batches.iter().copied().chain([outer_stride]).collect();
    let extents: Vec<i64> = problem.batches.iter().copied().chain([outer_extent]).collect();
    match inner(view, along_columns) {
        _ if tensor.is_virtual => 0,
        1 => access_bytes(tensor, &strides, &extents, vector),
        _ => tensor.dtype.bytes() as i64,
    }
}

/// The stride along a vector.
fn inner(view: &View, along_columns: bool) -> i64 {
    if along_columns { view.column } else { view.row }
}
