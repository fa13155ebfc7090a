//! Attention of a language model: a prompt at once, then a query at a time over pages of keys, with
//! one plan for all lengths. `cargo run --release --example attention`
//!
//! Every step is compared with the row of causal attention over all tokens that it must be.

use std::collections::HashMap;

use kiln::graph::{Attention, Band, Diagonal, MatmulMath, Op};
use kiln::{Config, DType, Kiln, OperationGraph, reference};

const HEADS: i64 = 8;
const KV_HEADS: i64 = 2;
const DEPTH: i64 = 64;
const PROMPT: i64 = 50;
const TOKENS: i64 = 60;
const PAGE: i64 = 16;
const PAGES: i64 = 6;

/// Values of tensors by uid, in row-major order.
type Values = HashMap<i64, Vec<f64>>;

/// A graph of one attention of inputs of these names, dimensions and types.
fn graph(op: Attention, inputs: &[(&str, [i64; 4], DType)]) -> kiln::Result<OperationGraph> {
    let mut graph = OperationGraph::builder();
    let uids: Vec<i64> =
        inputs.iter().map(|(name, dims, dtype)| graph.input(name, dims, *dtype)).collect();
    let o = graph.operation(Op::Attention(op), &uids)?[0];
    graph.output(o, "o", DType::F16);
    graph.build()
}

fn prompt(tokens: i64) -> kiln::Result<OperationGraph> {
    let op = Attention { band: Band::causal(Diagonal::TopLeft), ..Attention::new(MatmulMath::F32) };
    let dims = |heads: i64| [1, heads, tokens, DEPTH];
    let of = |name, heads| (name, dims(heads), DType::F16);
    graph(op, &[of("q", HEADS), of("k", KV_HEADS), of("v", KV_HEADS)])
}

fn step() -> kiln::Result<OperationGraph> {
    let op = Attention { paged: true, key_lengths: true, ..Attention::new(MatmulMath::F32) };
    let pages = [PAGES, KV_HEADS, PAGE, DEPTH];
    graph(
        op,
        &[
            ("q", [1, HEADS, 1, DEPTH], DType::F16),
            ("k", pages, DType::F16),
            ("v", pages, DType::F16),
            ("page_table", [1, 1, 1, PAGES], DType::I32),
            ("lengths", [1; 4], DType::I32),
        ],
    )
}

/// Rows of a [1, heads, rows, DEPTH] tensor, from a row on, of each head.
fn rows(values: &[f64], heads: i64, first: i64, count: i64) -> Vec<f64> {
    let all = values.len() as i64 / (heads * DEPTH);
    let of_head = |head: i64| {
        let begin = ((head * all + first) * DEPTH) as usize;
        &values[begin..begin + (count * DEPTH) as usize]
    };
    (0..heads).flat_map(of_head).copied().collect()
}

/// The largest difference, and whether all are within the bounds.
fn compared(actual: &[f64], expected: &[f64], bounds: &[f64]) -> (f64, bool) {
    let differences = actual.iter().zip(expected).map(|(a, b)| (a - b).abs());
    let within = differences.clone().zip(bounds).all(|(difference, bound)| difference <= *bound);
    (differences.fold(0.0, f64::max), within)
}

fn main() -> kiln::Result<()> {
    let kiln = Kiln::open(Config::default())?;
    println!("device {}", kiln.device().target());
    let whole = prompt(TOKENS)?;
    let values = kiln::plan::random_values(&whole, 7)?;
    let truth = reference::evaluate(&whole, &values)?;
    let uid = |graph: &OperationGraph, name: &str| graph.tensor_named(name).map(|of| of.uid);
    let [q, k, v, o] = ["q", "k", "v", "o"].map(|name| uid(&whole, name).expect("it is there"));
    let truth = &truth[&o];
    let mut passed = true;

    let graph = prompt(PROMPT)?;
    let heads = [(q, HEADS), (k, KV_HEADS), (v, KV_HEADS)];
    let inputs: Values =
        heads.iter().map(|(of, heads)| (*of, rows(&values[of], *heads, 0, PROMPT))).collect();
    let plan = kiln.plan(&graph)?;
    let ran = kiln.trial(&plan, &inputs)?;
    let of = |list: &[f64], first, count| rows(list, HEADS, first, count);
    let (off, within) =
        compared(&ran.outputs[&o], &of(&truth.values, 0, PROMPT), &of(&truth.bounds, 0, PROMPT));
    passed &= within;
    println!("prompt of {PROMPT}: {} off by {off:.1e}", plan.kernels()[0].config());

    // Pages in an order of their own; the plan is the same for every length.
    let graph = step()?;
    let plan = kiln.plan(&graph)?;
    let table: Vec<f64> = (0..PAGES).map(|page| ((page * 5 + 2) % PAGES) as f64).collect();
    for token in PROMPT..TOKENS {
        let paged = |from: &[f64]| {
            let mut pages = vec![0.0; (PAGES * KV_HEADS * PAGE * DEPTH) as usize];
            for (key, head) in (0..=token).flat_map(|key| (0..KV_HEADS).map(move |h| (key, h))) {
                let page = table[(key / PAGE) as usize] as i64;
                let to = (((page * KV_HEADS + head) * PAGE + key % PAGE) * DEPTH) as usize;
                let at = ((head * TOKENS + key) * DEPTH) as usize;
                pages[to..to + DEPTH as usize].copy_from_slice(&from[at..at + DEPTH as usize]);
            }
            pages
        };
        let inputs: Values = [
            ("q", rows(&values[&q], HEADS, token, 1)),
            ("k", paged(&values[&k])),
            ("v", paged(&values[&v])),
            ("page_table", table.clone()),
            ("lengths", vec![(token + 1) as f64]),
        ]
        .into_iter()
        .map(|(name, values)| Ok((uid(&graph, name)?, values)))
        .collect::<kiln::Result<_>>()?;
        let ran = kiln.trial(&plan, &inputs)?;
        let (off, within) = compared(
            &ran.outputs[&uid(&graph, "o")?],
            &of(&truth.values, token, 1),
            &of(&truth.bounds, token, 1),
        );
        passed &= within;
        println!("token {token}: {} off by {off:.1e}", plan.kernels()[0].config());
    }
    assert!(passed, "a result is beyond its bound");
    println!("every result is within the reference's bound");
    Ok(())
}
