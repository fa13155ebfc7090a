//! Graphs around one product, put together from a description.

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{GraphBuilder, Matmul, MatmulMath, Op};
use kiln::{DType, Kiln, OperationGraph, TensorDesc};

use crate::harness::{self, Values};

/// How a matrix lies in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lay {
    Rows,
    Columns,
    /// Rows with a gap behind each that leaves them aligned to one element.
    OddRows,
    /// Packed rows at the least alignment of the type.
    Misaligned,
}

/// A bare product.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub math: MatmulMath,
    pub types: [DType; 3],
    /// M, N, K.
    pub extents: [i64; 3],
    pub lays: [Lay; 3],
    /// Of every tensor but those that are misaligned.
    pub alignment: usize,
    /// Batches of A, of B.
    pub batches: [&'static [i64]; 2],
}

impl Case {
    pub fn new(math: MatmulMath, types: [DType; 3], extents: [i64; 3]) -> Case {
        Case { math, types, extents, lays: [Lay::Rows; 3], alignment: 16, batches: [&[], &[]] }
    }

    pub fn lays(self, lays: [Lay; 3]) -> Case {
        Case { lays, ..self }
    }

    pub fn graph(&self) -> OperationGraph {
        let [m, n, k] = self.extents;
        let batches = |slot: usize| match slot {
            2 => std::iter::zip(self.batches[0], self.batches[1]).map(|(a, b)| *a.max(b)).collect(),
            slot => self.batches[slot].to_vec(),
        };
        let mut graph = OperationGraph::builder();
        let shapes = [[m, k], [k, n], [m, n]];
        let mut place = |slot: usize, name: &str| {
            let dims = [batches(slot), shapes[slot].to_vec()].concat();
            let uid = slot as i64 + 1;
            let tensor = placed(uid, name, &dims, self.types[slot], self.lays[slot]);
            let alignment = match self.lays[slot] {
                Lay::Misaligned => self.types[slot].bytes(),
                _ => self.alignment,
            };
            graph.tensor(TensorDesc { alignment, ..tensor })
        };
        let [a, b, c] = [place(0, "a"), place(1, "b"), place(2, "c")];
        graph.operation_into(Op::Matmul(Matmul::new(self.math)), &[a, b], &[c]);
        graph.build().unwrap_or_else(|error| panic!("{self:?}: {error:?}"))
    }
}

/// A tensor whose last two dimensions lie as given.
fn placed(uid: i64, name: &str, dims: &[i64], dtype: DType, lay: Lay) -> TensorDesc {
    let rank = dims.len();
    let [rows, columns] = [dims[rank - 2].max(1), dims[rank - 1].max(1)];
    let mut tensor = TensorDesc::packed(uid, name, dims, dtype);
    let (row, column, matrix) = match lay {
        Lay::Rows | Lay::Misaligned => (columns, 1, rows * columns),
        Lay::Columns => (1, rows, rows * columns),
        Lay::OddRows => ((columns + 2) | 1, 1, rows * ((columns + 2) | 1)),
    };
    let mut outer = matrix;
    for axis in (0..rank - 2).rev() {
        tensor.strides[axis] = outer;
        outer *= dims[axis].max(1);
    }
    tensor.strides[rank - 2] = row;
    tensor.strides[rank - 1] = column;
    tensor
}

/// Values of about 1, or of the whole range of small integers.
pub fn inputs(graph: &OperationGraph) -> Values {
    let fill = |tensor: &TensorDesc| {
        let span = if tensor.dtype.is_float() { 1.0 } else { 130.0 };
        (tensor.uid, harness::fill(tensor, 5 + tensor.uid as u64, span))
    };
    graph.inputs().map(fill).collect()
}

/// The engine's settings for a graph on a device.
pub fn heuristic(kiln: &Kiln, graph: &OperationGraph, engine: &str) -> EngineConfig {
    let target = kiln.device().target();
    engine::supported(engine, graph.canonical(), target)
        .unwrap_or_else(|error| panic!("{engine}: {error}\n{graph}"))
        .heuristic()
}

/// Runs a case at an engine's own setting and compares it with the reference.
pub fn check(kiln: &Kiln, graph: &OperationGraph, engine: &str, what: &str) {
    let config = heuristic(kiln, graph, engine);
    let arch = kiln.device().target().arch;
    harness::check(kiln, graph, Some(&config), &inputs(graph), &format!("{arch} {config} {what}"));
}

/// A product of a graph under construction, with these operands' types.
pub struct Fusion {
    pub graph: GraphBuilder,
    pub a: i64,
    pub b: i64,
}

impl Fusion {
    pub fn new(a: (&[i64], DType), b: (&[i64], DType)) -> Fusion {
        let mut graph = OperationGraph::builder();
        let (a, b) = (graph.input("a", a.0, a.1), graph.input("b", b.0, b.1));
        Fusion { graph, a, b }
    }

    /// A virtual result of a type.
    pub fn apply(&mut self, op: Pointwise, inputs: &[i64], dtype: DType) -> i64 {
        let uid = self.graph.pointwise(op, inputs).unwrap();
        let name = format!("{}{uid}", op.mode);
        self.graph.name(uid, &name, dtype);
        uid
    }

    pub fn unary(&mut self, mode: Mode, input: i64, dtype: DType) -> i64 {
        self.apply(Pointwise::new(mode), &[input], dtype)
    }

    pub fn binary(&mut self, mode: Mode, inputs: [i64; 2], dtype: DType) -> i64 {
        self.apply(Pointwise::new(mode), &inputs, dtype)
    }

    /// The product of two values, rounded to a type.
    pub fn product(&mut self, a: i64, b: i64, math: MatmulMath, dtype: DType) -> i64 {
        let c = self.graph.matmul(Matmul::new(math), a, b).unwrap();
        self.graph.name(c, "c", dtype);
        c
    }

    pub fn output(&mut self, uid: i64, name: &str, dtype: DType) {
        self.graph.output(uid, name, dtype);
    }

    pub fn build(self) -> OperationGraph {
        self.graph.build().unwrap()
    }
}
