//! Two streams that hand tensors to each other, ordered by flags in device memory alone.
//!
//! ```text
//! cargo run --release --example signals [ROUNDS]
//! ```
//! In each round one stream doubles a tensor and sets a flag, the other waits for it, subtracts 1
//! and sets a flag in turn. The host launches everything at once and waits at the end; on
//! two devices that access each other's memory the same graphs would do the same.

use std::error::Error;

use kiln::device::Buffer;
use kiln::expr::{Mode, Pointwise};
use kiln::graph::Signal;
use kiln::{Config, DType, ExecutionPlan, Kiln, OperationGraph, VariantPack};

const COUNT: i64 = 4096;

/// `to = mode(from, number)`, once `own` is `turn`; then `other` is set to `next`.
fn step(mode: Mode, turn: i64, next: i64) -> kiln::Result<OperationGraph> {
    let mut graph = OperationGraph::builder();
    let from = graph.input("from", &[COUNT], DType::F32);
    let own = graph.input("own", &[1], DType::I32);
    let other = graph.input("other", &[1], DType::I32);
    let number = graph.scalar("number", 1, DType::F32);
    let arrived = graph.signal(Signal::wait(turn), own, from)?;
    let result = graph.pointwise(Pointwise::new(mode), &[arrived, number])?;
    let to = graph.signal(Signal::set(next), other, result)?;
    graph.output(to, "to", DType::F32);
    graph.build()
}

/// The plan of a step and the memory that it runs on: tensors and flags, its own first.
fn planned(
    kiln: &Kiln,
    graph: &OperationGraph,
    number: f64,
    [from, to, own, other]: [&Buffer; 4],
) -> kiln::Result<(ExecutionPlan, VariantPack)> {
    let uid = |name: &str| graph.tensor_named(name).map(|tensor| tensor.uid);
    let pack = VariantPack::new().with(uid("from")?, from).with(uid("to")?, to);
    let pack = pack.with(uid("own")?, own).with(uid("other")?, other);
    Ok((kiln.plan(graph)?, pack.with_value(uid("number")?, number)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: i64 = std::env::args().nth(1).map_or(Ok(8), |text| text.parse())?;
    let kiln = Kiln::open(Config::default())?;
    let start: Vec<u8> = (0..COUNT).flat_map(|_| 1.5_f32.to_le_bytes()).collect();
    let [a, b] = [kiln.device().upload(&start)?, kiln.device().upload(&start)?];
    let [ours, theirs] = [kiln.device().upload(&[0; 4])?, kiln.device().upload(&[0; 4])?];
    let (mut doubled, mut subtracted) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let graph = step(Mode::Mul, round, round + 1)?;
        doubled.push(planned(&kiln, &graph, 2.0, [&a, &b, &ours, &theirs])?);
        let graph = step(Mode::Sub, round + 1, round + 1)?;
        subtracted.push(planned(&kiln, &graph, 1.0, [&b, &a, &theirs, &ours])?);
    }
    // Not the default stream, which waits for the others.
    let [first, second] = [kiln.device().stream()?, kiln.device().stream()?];
    for (plan, pack) in &subtracted {
        plan.execute(&second, pack)?;
    }
    for (plan, pack) in &doubled {
        plan.execute(&first, pack)?;
    }
    first.synchronize()?;
    second.synchronize()?;
    let bytes = a.to_vec()?;
    let value = DType::F32.read(&bytes);
    let expected = 1.0 + 0.5 * 2.0_f64.powi(rounds as i32);
    println!("{}: after {rounds} rounds {value}, expected {expected}", kiln.device().target());
    if value == expected { Ok(()) } else { Err("the rounds went wrong".into()) }
}
