//! Attentions as data: the parameters of `tests/cases/attention.toml`, which the README beside it
//! lists.

use std::sync::Arc;

use kiln::expr::{Mode, Pointwise, Program, Real};
use kiln::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath, Softcap,
};
use kiln::{DType, OperationGraph};
use serde::Deserialize;

use crate::attention::backward_cases;
use crate::attention::cases::{self, Storage};
use crate::harness::Values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionData {
    #[serde(default)]
    math: Math,
    /// Of `q`, `k`, `v` and `o`.
    types: AllOrEach<DType>,
    /// How they lie in memory.
    #[serde(default)]
    store: AllOrEach<Store>,
    /// Keys of a page, where there are pages.
    #[serde(default = "page")]
    page: i64,
    batch: i64,
    heads: i64,
    kv_heads: i64,
    queries: i64,
    keys: i64,
    depth: i64,
    /// As the depth where nothing is said.
    width: Option<i64>,
    scale: Option<f64>,
    softcap: Option<f64>,
    #[serde(default)]
    softcap_last: bool,
    #[serde(default)]
    diagonal: Corner,
    left: Option<i64>,
    right: Option<i64>,
    /// Optional operands and results, by the names of their slots.
    #[serde(default)]
    tensors: Vec<String>,
    dropout: Option<f64>,
    score: Option<Score>,
    /// Whether a query attends to keys of its own document alone.
    #[serde(default)]
    documents: bool,
    /// Which dimensions of the scores those operands have that may be broadcast.
    #[serde(default = "all_dimensions")]
    broadcast: [bool; 4],
    #[serde(default = "one")]
    seed: u64,
    /// Whether its gradients are computed, of `q`, `k` and `v` and of these operands: `bias`,
    /// `slopes`, `sinks`, `score_0`.
    gradients: Option<Vec<String>>,
    /// Rows of `k` and `v` that queries read, from one to before another, by the first dimension:
    /// all others are NaN and infinite.
    read: Option<Vec<[i64; 2]>>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
enum AllOrEach<T> {
    All(T),
    Each([T; 4]),
}

impl<T: Copy> AllOrEach<T> {
    fn each(self) -> [T; 4] {
        match self {
            AllOrEach::All(one) => [one; 4],
            AllOrEach::Each(each) => each,
        }
    }
}

impl<T: Default> Default for AllOrEach<T> {
    fn default() -> Self {
        AllOrEach::All(T::default())
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, default)]
struct Store {
    positions_first: bool,
    spacing: i64,
    gap: i64,
    /// In bytes; that of an element at least.
    alignment: usize,
}

impl Default for Store {
    fn default() -> Store {
        Store { positions_first: false, spacing: 1, gap: 0, alignment: 16 }
    }
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "snake_case")]
enum Math {
    #[default]
    F32,
    Tf32,
    F64,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "snake_case")]
enum Corner {
    #[default]
    TopLeft,
    BottomRight,
}

/// Programs over scores.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Score {
    TableOfDistances,
    Wave,
    Captured,
    Coordinates,
    Tanh,
    Sigmoid,
}

fn page() -> i64 {
    8
}

fn one() -> u64 {
    1
}

fn all_dimensions() -> [bool; 4] {
    [true; 4]
}

impl AttentionData {
    fn shape(&self) -> AttentionShape {
        let AttentionData { batch, heads, kv_heads, queries, keys, depth, width, .. } = *self;
        let width = width.unwrap_or(depth);
        AttentionShape { batches: batch, heads, kv_heads, queries, keys, depth, width }
    }

    fn operation(&self) -> Attention {
        let math = match self.math {
            Math::F32 => MatmulMath::F32,
            Math::Tf32 => MatmulMath::Tf32,
            Math::F64 => MatmulMath::F64,
        };
        let diagonal = match self.diagonal {
            Corner::TopLeft => Diagonal::TopLeft,
            Corner::BottomRight => Diagonal::BottomRight,
        };
        let (shape, dtype) = (self.shape(), math.dtype());
        let softcap = |cap| Softcap { cap: Real::new(cap), last: self.softcap_last };
        let score = |score| match score {
            Score::TableOfDistances => cases::score_program(&shape, dtype),
            Score::Wave => cases::wave_program(dtype),
            Score::Captured => cases::captured_program(dtype),
            Score::Coordinates => cases::place_program(&shape, dtype),
            Score::Tanh => of_score(Mode::TanhFwd, dtype),
            Score::Sigmoid => of_score(Mode::SigmoidFwd, dtype),
        };
        let mut op = Attention {
            math,
            scale: self.scale.map(Real::new),
            softcap: self.softcap.map(softcap),
            band: Band { diagonal, left: self.left, right: self.right },
            dropout: self.dropout.map(Real::new),
            score: self.score.map(score).map(Arc::new),
            keep: self.documents.then(|| Arc::new(cases::keep_program(dtype))),
            ..Attention::default()
        };
        for slot in &self.tensors {
            match slot.as_str() {
                "lse" => op.statistics = true,
                "key_begin" | "key_end" => op.intervals = true,
                "page_table" => op.paged = true,
                "query_offsets" => op.queries_max = Some(self.queries),
                "key_offsets" => op.keys_max = Some(self.keys),
                "query_lengths" => op.query_lengths = true,
                "key_lengths" => op.key_lengths = true,
                "dlse" => {}
                "descale_q" => op.descale_q = true,
                "descale_k" => op.descale_k = true,
                "descale_v" => op.descale_v = true,
                "bias" => op.bias = true,
                "slopes" => op.slopes = true,
                "mask" => op.mask = true,
                "sinks" => op.sinks = true,
                other => panic!("attention has no optional tensor `{other}`"),
            }
        }
        op
    }

    fn storage(&self) -> [Storage; 4] {
        let (types, store) = (self.types.each(), self.store.each());
        [0, 1, 2, 3].map(|at| {
            let Store { positions_first, spacing, gap, alignment } = store[at];
            let dtype = types[at];
            let alignment = alignment.max(dtype.bytes());
            Storage { dtype, positions_first, spacing, gap, alignment, page: self.page }
        })
    }

    /// The gradients, where they are computed.
    fn backward(&self) -> Option<AttentionBackward> {
        let gradients = self.gradients.as_ref()?;
        let mut op = AttentionBackward::new(self.operation());
        op.dlse = self.tensors.iter().any(|slot| slot == "dlse");
        for operand in gradients {
            match operand.as_str() {
                "bias" => op.dbias = true,
                "slopes" => op.dslopes = true,
                "sinks" => op.dsinks = true,
                "score_0" => op.dscore[0] = true,
                other => panic!("attention has no gradient of `{other}`"),
            }
        }
        Some(op)
    }

    pub fn graph(&self) -> OperationGraph {
        let (shape, storage) = (self.shape(), self.storage());
        match self.backward() {
            Some(op) => backward_cases::graph(&op, shape, storage, self.broadcast),
            None => cases::graph(self.operation(), shape, storage, self.broadcast),
        }
    }

    pub fn inputs(&self) -> Values {
        let (shape, storage, broadcast) = (self.shape(), self.storage(), self.broadcast);
        let mut case = match self.backward() {
            Some(op) => backward_cases::case_of(op, shape, storage, broadcast, self.seed),
            None => cases::case_of(self.operation(), shape, storage, broadcast, self.seed),
        };
        for slot in ["k", "v"] {
            let Some(read) = &self.read else { break };
            let tensor = case.graph.tensor_named(slot).expect("it is an operand");
            let [outer, heads, rows, elements] = tensor.dims[..] else { panic!("four dimensions") };
            assert_eq!(read.len() as i64, outer, "what is read of `{slot}`");
            let values = case.inputs.get_mut(&tensor.uid).expect("it is an input");
            for (at, value) in values.iter_mut().enumerate() {
                let row = at as i64 / elements;
                let [begin, end] = read[(row / rows / heads) as usize];
                if !(begin..end).contains(&(row % rows)) {
                    *value = if at % 3 == 0 { f64::INFINITY } else { f64::NAN };
                }
            }
        }
        case.inputs
    }
}

/// A program of one operation on the score.
fn of_score(mode: Mode, dtype: DType) -> Program {
    let mut program = Program::new();
    let score = program.input("score", dtype);
    let result = program.push("result", Pointwise::new(mode), &[score], dtype);
    program.output(result.expect("the line fits"));
    program
}
