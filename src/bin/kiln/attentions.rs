//! `kiln demo --attention`: attention variants common to all libraries, and combinations that none
//! fuses.

use kiln::expr::Real;
use kiln::graph::{Attention, Band, Diagonal, MatmulMath, Op, Softcap};
use kiln::{DType, OperationGraph};

/// Attention problems by name.
pub fn attentions() -> kiln::Result<Vec<(String, OperationGraph)>> {
    let plain = Attention::new(MatmulMath::F32);
    let causal = Attention { band: Band::causal(Diagonal::BottomRight), ..plain.clone() };
    let window = Band { left: Some(32), ..causal.band };
    let cap = Softcap { cap: Real::new(30.0), last: false };
    let sinks = Attention { band: window, sinks: true, softcap: Some(cap), ..plain.clone() };
    let slopes = Attention { slopes: true, dropout: Some(Real::new(0.1)), ..sinks.clone() };
    let pages = Attention { paged: true, key_lengths: true, ..plain.clone() };
    let cases = [
        ("full", plain, 96, DType::Bf16),
        ("causal, grouped", causal.clone(), 96, DType::Bf16),
        ("causal, f32", causal, 40, DType::F32),
        ("window, sinks, cap", sinks, 96, DType::F16),
        ("the same, ALiBi, dropout", slopes, 96, DType::F16),
        ("one query, pages", pages, 1, DType::F16),
    ];
    let graph = |(name, op, queries, dtype): (&str, Attention, i64, DType)| {
        Ok((name.to_owned(), attention(op, queries, dtype)?))
    };
    cases.into_iter().map(graph).collect()
}

/// Eight query heads on two KV heads of 128 keys.
fn attention(op: Attention, queries: i64, dtype: DType) -> kiln::Result<OperationGraph> {
    let op = Op::Attention(op);
    let mut graph = OperationGraph::builder();
    let slots = op.slots();
    let paged = slots.inputs.contains(&"page_table");
    let mut input = |slot: &&'static str| match *slot {
        "q" => graph.input(slot, &[1, 8, queries, 64], dtype),
        "k" | "v" if paged => graph.input(slot, &[12, 2, 16, 64], dtype),
        "k" | "v" => graph.input(slot, &[1, 2, 128, 64], dtype),
        "page_table" => graph.input(slot, &[1, 1, 1, 8], DType::I32),
        "slopes" | "sinks" => graph.input(slot, &[1, 8, 1, 1], DType::F32),
        _ => graph.input(slot, &[1; 4], DType::I32),
    };
    let inputs: Vec<i64> = slots.inputs.iter().map(&mut input).collect();
    let o = graph.operation(op, &inputs)?[0];
    graph.output(o, "o", dtype);
    graph.build()
}
