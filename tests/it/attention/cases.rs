//! Attentions under test: an operation, the shapes of its operands, and values for them.

use kiln::expr::{Mode, Pointwise, Program};
use kiln::graph::{Attention, AttentionShape, Op};
use kiln::{DType, OperationGraph, TensorDesc, engine};

use crate::harness::{self, Values};

/// The engines of the family.
pub const ENGINES: [&str; 4] =
    ["attention_decode", "attention_mma", "attention_simt", "attention_wgmma"];

pub const SHAPE: AttentionShape = AttentionShape {
    batches: 2,
    heads: 4,
    kv_heads: 2,
    queries: 37,
    keys: 55,
    depth: 32,
    width: 32,
};

/// A graph of one attention and values for its inputs.
pub struct Case {
    pub graph: OperationGraph,
    pub inputs: Values,
}

/// How tensors lie in memory and what their elements are.
#[derive(Clone, Copy)]
pub struct Storage {
    pub dtype: DType,
    /// Whether positions lie outside of heads: [batch, position, head, element].
    pub positions_first: bool,
    /// Elements between neighbours of a row, at least 1.
    pub spacing: i64,
    /// Unused elements behind each row.
    pub gap: i64,
    pub alignment: usize,
    /// Keys of a page, where there are pages.
    pub page: i64,
}

impl Storage {
    /// Packed in the order of dimensions.
    pub fn packed(dtype: DType) -> Storage {
        Storage { dtype, positions_first: false, spacing: 1, gap: 0, alignment: 16, page: PAGE }
    }

    pub fn tensor(&self, name: &str, dims: &[i64]) -> TensorDesc {
        let [_, heads, positions, elements] = *dims else { panic!("four dimensions") };
        let row = elements * self.spacing + self.gap;
        let [heads, positions] = [heads, positions].map(|extent| extent.max(1));
        let strides = match self.positions_first {
            true => vec![row * heads * positions, row, row * heads, self.spacing],
            false => vec![row * heads * positions, row * positions, row, self.spacing],
        };
        let desc = TensorDesc::packed(0, name, dims, self.dtype);
        TensorDesc { strides, alignment: self.alignment, ..desc }
    }
}

/// Keys of a page where a case does not ask for others.
pub const PAGE: i64 = 5;

/// Dimensions that a broadcast operand has: of the scores, those that are not 1.
pub type Broadcast = [bool; 4];

/// A case of an operation; `broadcast` says which dimensions of the scores operands have.
pub fn case(op: Attention, shape: AttentionShape, storage: Storage, broadcast: Broadcast) -> Case {
    case_of(op, shape, [storage; 4], broadcast, 1)
}

/// The same with q, k, v and o stored apart, and another seed.
pub fn case_of(
    op: Attention,
    shape: AttentionShape,
    storage: [Storage; 4],
    broadcast: Broadcast,
    seed: u64,
) -> Case {
    let graph = graph(op, shape, storage, broadcast);
    let inputs = graph.inputs().map(|desc| (desc.uid, values(desc, &shape, seed))).collect();
    Case { graph, inputs }
}

/// The graph of a case; operands are named as their slots.
pub fn graph(
    op: Attention,
    shape: AttentionShape,
    storage: [Storage; 4],
    broadcast: Broadcast,
) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let slots = Op::Attention(op.clone()).slots();
    let mut uids = Vec::new();
    for (slot, uid) in slots.inputs.iter().zip(1..) {
        let desc = operand(&op, &shape, storage, broadcast, slot);
        uids.push(graph.tensor(TensorDesc { uid, name: (*slot).to_owned(), ..desc }));
    }
    let [outer, rows] = Places::of(&op, &shape, storage[1].page).q;
    let AttentionShape { heads, width, .. } = shape;
    let o = storage[3].tensor("o", &[outer, heads, rows, width]);
    let mut outputs = vec![graph.tensor(TensorDesc { uid: 100, ..o })];
    if op.statistics {
        let dims = [outer, heads, rows, 1];
        outputs.push(graph.tensor(TensorDesc::packed(101, "lse", &dims, DType::F32)));
    }
    graph.operation_into(Op::Attention(op), &uids, &outputs);
    graph.build().unwrap_or_else(|error| panic!("{error}"))
}

/// Where rows of queries and keys lie: the first dimension of their tensors, and the third.
struct Places {
    q: [i64; 2],
    k: [i64; 2],
}

impl Places {
    /// Sequences that lie one behind the other share what is 3 short of enough for all; half of
    /// the pages are no one's.
    fn of(op: &Attention, shape: &AttentionShape, page: i64) -> Places {
        let AttentionShape { batches, queries, keys, .. } = *shape;
        let ragged = |most: Option<i64>, extent: i64| match most {
            None => [batches, extent],
            Some(_) => [1, (batches * extent - 3).max(1)],
        };
        let k =
            if op.paged { [2 * batches * keys / page, page] } else { ragged(op.keys_max, keys) };
        Places { q: ragged(op.queries_max, queries), k }
    }
}

fn operand(
    op: &Attention,
    shape: &AttentionShape,
    [q, k, v, _]: [Storage; 4],
    broadcast: Broadcast,
    slot: &str,
) -> TensorDesc {
    let AttentionShape { batches, heads, kv_heads, queries, keys, depth, width } = *shape;
    let of = |dims: [i64; 4]| {
        let one = |at: usize| if broadcast[at] { dims[at] } else { 1 };
        [one(0), one(1), one(2), one(3)]
    };
    let packed = |dims: &[i64], dtype: DType| TensorDesc::packed(0, "", dims, dtype);
    let places = Places::of(op, shape, k.page);
    match slot {
        "q" => q.tensor("q", &[places.q[0], heads, places.q[1], depth]),
        "k" => k.tensor("k", &[places.k[0], kv_heads, places.k[1], depth]),
        "v" => v.tensor("v", &[places.k[0], kv_heads, places.k[1], width]),
        "key_begin" | "key_end" => packed(&of(shape.rows()), DType::I32),
        "bias" => packed(&of(shape.scores()), if q.dtype.is_f8() { DType::F16 } else { q.dtype }),
        "mask" => packed(&of(shape.scores()), DType::Bool),
        "page_table" => packed(&[batches, 1, 1, keys / k.page], DType::I32),
        "query_offsets" | "key_offsets" => packed(&[batches + 1, 1, 1, 1], DType::I32),
        "descale_q" => packed(&[batches, heads, 1, 1], DType::F32),
        "descale_k" | "descale_v" => packed(&[batches, kv_heads, 1, 1], DType::F32),
        "slopes" | "sinks" => packed(&[1, heads, 1, 1], DType::F32),
        "query_lengths" | "key_lengths" => packed(&[batches, 1, 1, 1], DType::I32),
        "seed" | "offset" => packed(&[1; 4], DType::I32),
        "score_0" => packed(&of(shape.scores()), DType::F16),
        "keep_0" => packed(&[batches, 1, queries, 1], DType::I32),
        "keep_1" => packed(&[batches, 1, 1, keys], DType::I32),
        slot => panic!("{op}: no shape for {slot}"),
    }
}

/// Values that exercise the slot that a tensor is named after: lengths within and beyond their
/// range, some empty intervals.
fn values(desc: &TensorDesc, shape: &AttentionShape, seed: u64) -> Vec<f64> {
    let slot = desc.name.as_str();
    let count = desc.elements().unwrap() as u64;
    let number = |at: u64, below: i64| ((at * 7919 + seed * 104_729) % 251) as i64 % below.max(1);
    let each = |of: &dyn Fn(u64) -> f64| (0..count).map(of).collect();
    match slot {
        "key_begin" => each(&|at| ((number(at, shape.keys + 4) - 2) / 2) as f64),
        "key_end" => each(&|at| (shape.keys + 2 - number(at + 3, shape.keys / 2 + 3)) as f64),
        "page_table" => each(&|at| (at as i64 * 7 % (2 * count as i64) - number(at, 2)) as f64),
        "query_offsets" => each(&|at| (at as i64 * (shape.queries - number(at, 3))) as f64),
        "key_offsets" => each(&|at| (at as i64 * (shape.keys - 2 + number(at, 4))) as f64),
        "mask" => each(&|at| f64::from(number(at, 5) != 0)),
        "slopes" => each(&|at| 0.5_f64.powi(at as i32 + 1)),
        "query_lengths" => each(&|at| (shape.queries - number(at, shape.queries / 2 + 1)) as f64),
        "key_lengths" => each(&|at| (shape.keys + 1 - number(at + 1, shape.keys + 2)) as f64),
        "seed" => vec![seed as f64 * 1234.0 - 77.0],
        "offset" => vec![seed as f64 - 3.0],
        "keep_0" | "keep_1" => each(&|at| number(at / 5, 3) as f64),
        "descale_q" => each(&|at| 0.75 + number(at + 1, 3) as f64 / 2.0),
        "descale_k" => each(&|at| 0.5 + number(at, 3) as f64),
        "descale_v" => each(&|at| 1.5 - number(at, 3) as f64),
        "sinks" => harness::fill(desc, seed + 5, 1.5),
        _ => {
            harness::fill(desc, seed + slot.len() as u64 * 17 + u64::from(slot.as_bytes()[0]), 1.0)
        }
    }
}

/// `score + 0.25 * tensor * sin(key - query)`, with a captured tensor; computed in f32, whatever
/// the type of scores is.
pub fn score_program(shape: &AttentionShape, dtype: DType) -> Program {
    let mut program = Program::new();
    let score = program.input("score", dtype);
    let table = program.input("table", DType::F16);
    let query = program.index("query", 2, shape.queries);
    let key = program.index("key", 3, shape.keys);
    let mut push = |name, op, operands: &[_]| program.push(name, op, operands, dtype).unwrap();
    let distance = push("distance", Pointwise::new(Mode::Sub), &[key, query]);
    let wave = push("wave", Pointwise::new(Mode::Sin), &[distance]);
    let term = push("term", Pointwise::new(Mode::Mul).alphas(0.25, 1.0), &[wave, table]);
    let sum = push("sum", Pointwise::new(Mode::Add), &[score, term]);
    program.output(sum);
    program
}

/// `score + cos(score)`, a long program that reads nothing else.
pub fn wave_program(dtype: DType) -> Program {
    let mut program = Program::new();
    let score = program.input("score", dtype);
    let mut push = |name, mode, operands: &[_]| {
        program.push(name, Pointwise::new(mode), operands, dtype).unwrap()
    };
    let wave = push("wave", Mode::Cos, &[score]);
    let sum = push("sum", Mode::Add, &[score, wave]);
    program.output(sum);
    program
}

/// The captured tensor by itself: a program without an operation.
pub fn captured_program(dtype: DType) -> Program {
    let mut program = Program::new();
    program.input("score", dtype);
    let table = program.input("table", DType::F16);
    program.output(table);
    program
}

/// `score + batch * query / 32 - head * key / 64`: where a score stands.
pub fn place_program(shape: &AttentionShape, dtype: DType) -> Program {
    let mut program = Program::new();
    let score = program.input("score", dtype);
    let batch = program.index("batch", 0, shape.batches);
    let head = program.index("head", 1, shape.heads);
    let query = program.index("query", 2, shape.queries);
    let key = program.index("key", 3, shape.keys);
    let mut push = |name, op, operands: &[_]| program.push(name, op, operands, dtype).unwrap();
    let of_batch = Pointwise::new(Mode::Mul).alphas(0.03125, 1.0);
    let of_batch = push("of_batch", of_batch, &[batch, query]);
    let of_head = push("of_head", Pointwise::new(Mode::Mul).alphas(0.015625, 1.0), &[head, key]);
    let place = push("place", Pointwise::new(Mode::Sub), &[of_batch, of_head]);
    let sum = push("sum", Pointwise::new(Mode::Add), &[score, place]);
    program.output(sum);
    program
}

/// Keys of the document of the query, by captured numbers of documents.
pub fn keep_program(dtype: DType) -> Program {
    let mut program = Program::new();
    program.input("score", dtype);
    let own = program.input("own", DType::I32);
    let other = program.input("other", DType::I32);
    let same = Pointwise::new(Mode::CmpEq);
    let same = program.push("same", same, &[own, other], dtype).unwrap();
    program.output(same);
    program
}

/// Runs a case on every engine that takes it, at its heuristic setting, and gives their names.
#[track_caller]
pub fn check(case: &Case, what: &str) -> Vec<&'static str> {
    check_on(&ENGINES, case, what)
}

/// The same on these engines.
#[track_caller]
pub fn check_on(engines: &[&'static str], case: &Case, what: &str) -> Vec<&'static str> {
    let mut ran = Vec::new();
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        for &name in engines {
            let Ok(supported) = engine::supported(name, case.graph.canonical(), target) else {
                continue;
            };
            let config = supported.heuristic();
            let what = format!("{what}: {config} on {}", target.name);
            harness::check(kiln, &case.graph, Some(&config), &case.inputs, &what);
            ran.push(name);
        }
    }
    assert!(!ran.is_empty(), "{what}: no engine takes {}", case.graph);
    ran
}
