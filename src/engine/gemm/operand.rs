//! Operands that pass through registers or `cp.async` into shared memory (`gemm/operand.cuh`).

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::gemm::axes::coordinate;
use crate::engine::gemm::context::Context;
use crate::engine::gemm::layout::{Layout, Load, Matrix};
use crate::engine::gemm::problem::Operand;
use crate::engine::gemm::walk::Walk;
use crate::engine::gemm::window::WindowParameters;
use crate::engine::program::Source;
use crate::engine::signature::{Indent, Width, ctype, list};

/// What an element that is found through a window and loaded alone takes, in instructions: 9 of its
/// own, of which the load, and reads of where it is, keep the memory pipe busy for longer. By
/// estimates of 3 channels under 3 x 3, 7 x 7 and 16 x 16 taps, f16 on A100 and H200.
const INSTRUCTIONS_FOUND: f64 = 20.0;

/// Instructions of an element of less than a word that is loaded alone and joined with others.
const INSTRUCTIONS_JOINED: f64 = 7.0;

/// Instructions of a byte that is transposed, and of an asynchronous copy: 379 of 32 copies of 4
/// bytes, tf32 on A100.
const INSTRUCTIONS_TRANSPOSED: f64 = 1.5;
const INSTRUCTIONS_COPY: f64 = 12.0;

/// How an operand comes into shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct OperandTile {
    /// The type of the elements in shared memory.
    pub(super) dtype: DType,
    /// C++ type of the tile.
    pub(super) layout: &'static str,
    /// Elements that a thread moves at once.
    pub(super) vector: i64,
    /// Whether they pass through registers, else `cp.async` copies them as they are.
    pub(super) staged: bool,
    /// Whether bytes are transposed on the way.
    pub(super) transposed: bool,
    /// Whether elements are loaded one by one.
    pub(super) scattered: bool,
    /// Whether vectors that pass through registers are stored as they are loaded.
    pub(super) moved: bool,
    /// Accesses for a vector beyond those of 16 bytes, and whether words are joined of several.
    pub(super) more: i64,
    pub(super) joined: bool,
}

impl OperandTile {
    /// Instructions that load an element, beside those of accesses of 16 bytes.
    pub(super) fn loading(&self) -> f64 {
        match self {
            _ if self.scattered => INSTRUCTIONS_FOUND,
            _ if self.joined => INSTRUCTIONS_JOINED,
            _ if self.transposed => INSTRUCTIONS_TRANSPOSED,
            _ => INSTRUCTIONS_COPY * self.more as f64 / self.vector as f64,
        }
    }

    /// The most bytes of shared memory that say where elements of K are found, in this step and in
    /// the next (`gemm/find.cuh`).
    pub(super) fn found_bytes(&self, of: &Operand, cta_k: i64) -> i64 {
        // Where it is in each tensor, and along up to three dimensions, in 64 bits.
        let each = 8 * (of.prologue.inputs().count() as i64 + 3);
        if self.scattered { 2 * (cta_k + cta_k / self.vector) * each } else { 0 }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct OperandParameters {
    title: String,
    /// `A` or `B`.
    #[serde(rename = "type")]
    name: &'static str,
    element: &'static str,
    cta_rows: &'static str,
    extent: &'static str,
    /// Where the rows of a batch end, if not where those of all do.
    row_end: Option<String>,
    /// Whether what is valid depends on the batch.
    takes_batch: bool,
    k_major: bool,
    vector: i64,
    tile: &'static str,
    pub(super) transposed: bool,
    pub(super) staged: bool,
    /// Whether its elements are loaded one by one, and lanes go along the rows to do so.
    pub(super) scattered: bool,
    pub(super) strips: bool,
    /// Whether rows of two Bs alternate in the tile.
    dual: bool,
    /// Where its rows and K meet.
    window: Option<WindowParameters>,
    /// How it is walked through along K, if a thread need not find each element anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) walk: Option<Walk>,
    tensors: Vec<Layout>,
    #[serde(flatten)]
    copied: Option<Copied>,
    #[serde(flatten)]
    prologue: Option<Prologue>,
}

/// An operand that `cp.async` copies.
#[derive(Debug, Clone, Serialize)]
struct Copied {
    tensor: String,
    /// B of the second GEMM.
    other: Option<String>,
}

/// An operand that is computed in registers.
#[derive(Debug, Clone, Serialize)]
struct Prologue {
    /// The tensor whose elements are stored as they are loaded.
    moved: Option<String>,
    loaded: Vec<Load>,
    has_coordinates: bool,
    chain_parameters: String,
    chain_arguments: String,
    lines: Vec<String>,
    result: String,
    result_type: &'static str,
    value_type: &'static str,
    #[serde(skip)]
    functions: BTreeSet<&'static str>,
}

impl OperandParameters {
    /// Functions of `device/ops` that the prologue calls.
    pub(super) fn functions(&self) -> BTreeSet<&'static str> {
        self.prologue.as_ref().map(|of| of.functions.clone()).unwrap_or_default()
    }
}

impl Context<'_> {
    pub(super) fn operand(&self, of: &Operand, tile: OperandTile, is_a: bool) -> OperandParameters {
        let OperandTile { dtype, layout, vector, staged, transposed, scattered, .. } = tile;
        // Vectors of elements that are loaded one by one lie along K whatever lies in memory.
        let k_major = of.k_major || scattered;
        let matrix = Matrix {
            fusion: &of.prologue,
            window: of.window.as_ref(),
            extents: [of.extent, self.problem.k],
            along_columns: k_major,
            vector,
            striped: false,
            scattered,
            is_m: is_a,
            is_k: true,
        };
        let name = if is_a { "A" } else { "B" };
        let text = self.text(of.tensor);
        let dual = self.problem.dual.filter(|_| !is_a);
        let columns = if dual.is_some() { "2 * CTA_N" } else { "CTA_N" };
        let copied = || Copied {
            tensor: self.names[of.tensor].clone(),
            other: dual.map(|dual| self.names[dual.b].clone()),
        };
        let stored = self.stored(of);
        let walk = of.window.as_ref().filter(|_| !staged).and_then(|window| {
            let tensor = (&self.problem.graph.tensors[of.tensor], &*self.names[of.tensor]);
            Walk::of(window, tensor, of.k_major, [self.tiling.cta_k, vector])
        });
        let apart = walk.is_some() || scattered;
        let window = of.window.as_ref().map(|window| window.parameters(apart));
        let row_end = match is_a {
            true if self.tiling.dynamic_m => Some("batch.M".to_owned()),
            true => self.phase_rows(),
            false => None,
        };
        let placed = stored.iter().copied().chain(of.prologue.program.positions());
        OperandParameters {
            title: format!("{name}: {text}, and its path into shared memory."),
            name,
            element: ctype(dtype),
            cta_rows: if is_a { "CTA_M" } else { columns },
            extent: if is_a { "M" } else { "N" },
            takes_batch: row_end.is_some() || window.as_ref().is_some_and(|of| of.takes_batch),
            row_end,
            k_major,
            vector,
            tile: layout,
            transposed,
            staged,
            scattered,
            strips: scattered && !of.k_major,
            dual: dual.is_some(),
            walk,
            window,
            tensors: placed.map(|at| self.layout(at, &matrix)).collect(),
            copied: (!staged).then(copied),
            prologue: staged.then(|| self.prologue(of, tile, &matrix, &stored)),
        }
    }

    /// The tensors in memory that an operand is computed from.
    fn stored(&self, of: &Operand) -> Vec<usize> {
        let tensors = &self.problem.graph.tensors;
        of.prologue.inputs().filter(|at| !tensors[*at].by_value).collect()
    }

    fn prologue(
        &self,
        of: &Operand,
        tile: OperandTile,
        matrix: &Matrix<'_>,
        stored: &[usize],
    ) -> Prologue {
        let graph = self.problem.graph.graph();
        let emitted = self.emit(&of.prologue, &|source, register| match source {
            Source::Tensor(at) if graph.tensors[*at].by_value => {
                format!("{register}(t.{})", self.names[*at])
            }
            Source::Tensor(at) if matrix.scattered => {
                format!("{}_in[i][j].get(0)", self.names[*at])
            }
            Source::Tensor(at) => {
                let element = if self.is_broadcast(*at, matrix) { "0" } else { "j" };
                format!("{}_in[i].get({element})", self.names[*at])
            }
            Source::Position(at) => {
                format!("op::position({}_layout::at(batch, at_row, at_k))", self.names[*at])
            }
            Source::Coordinate(axis) => {
                let at = axis.and_then(|axis| of.prologue.axes.coordinate(axis));
                format!("{register}({})", coordinate(at, ["at_row", "at_k"]))
            }
        });
        let dtype = graph.tensors[of.tensor].dtype;
        let result_type = emitted.text.outputs[0].ctype;
        // The store to the tile rounds to its type.
        let (result, value_type) = match of.is_plain() || dtype == tile.dtype {
            true => ("value".to_owned(), result_type),
            false => (format!("widen(Narrow<{}>::from(value))", ctype(dtype)), dtype.register()),
        };
        let moved = tile.moved && (tile.scattered || !self.is_broadcast(of.tensor, matrix));
        let mut arguments = emitted.arguments;
        arguments.push("value".to_owned());
        let counted =
            |source: &Source| matches!(source, Source::Coordinate(Some(_)) | Source::Position(_));
        let valid = ["valid[i]", "valid[i] > 0"];
        Prologue {
            moved: moved.then(|| self.names[of.tensor].clone()),
            loaded: stored.iter().map(|at| self.load(*at, matrix, valid)).collect(),
            has_coordinates: of.prologue.program.sources.iter().any(counted),
            chain_parameters: emitted.parameters,
            chain_arguments: list(&arguments, Indent(25), Width(70)),
            lines: emitted.text.lines,
            result,
            result_type,
            value_type,
            functions: emitted.text.functions,
        }
    }
}
