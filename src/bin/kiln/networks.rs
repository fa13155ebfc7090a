//! `kiln demo --rnn` and `--train`: builds, runs and checks recurrent networks of several kinds.

use std::time::{Duration, Instant};

use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::graph::{Direction, RowLayout};
use kiln::plan::{ExecutionPlan, Problem};
use kiln::rnn::{CellKind, Extent, Optional, Rnn};
use kiln::{DType, Kiln};
use serde_json::{Value, json};

use crate::problem::{self, Check, check_json, check_text, shown};
use crate::progress;

/// Networks that exercise different features: stacks, directions, types, ragged batches, cell state
/// history, projection.
fn networks() -> Vec<(&'static str, Rnn, Optional)> {
    let nothing = Optional::default();
    let states = Optional { h_initial: true, h_final: true, ..nothing };
    let cell_states = Optional { states_initial: true, states_final: true, ..states };
    vec![
        ("lstm bf16, 64", Rnn::lstm(64, 64).dtype(DType::Bf16), cell_states),
        (
            "lstm f16, 2 layers, both directions, ragged",
            Rnn::lstm(32, 64).dtype(DType::F16).layers(2).bidirectional(),
            Optional { lengths: true, ..cell_states },
        ),
        (
            "lstm f32, peepholes, projection, every step's cell state",
            Rnn::lstm(24, 48).peephole().projection(16),
            Optional { history: true, ..cell_states },
        ),
        ("gru bf16, batch-major, reverse", gru_reverse(), states),
        (
            "gru, reset before the product, f16",
            Rnn::new(CellKind::GruResetBefore, 32, 64).dtype(DType::F16),
            states,
        ),
        (
            "augru f32, packed",
            Rnn::new(CellKind::Augru, 16, 32).layout(RowLayout::Packed),
            Optional { lengths: true, ..nothing },
        ),
        (
            "tanh f64, states reset on the way",
            Rnn::new(CellKind::Tanh, 16, 24).dtype(DType::F64),
            Optional { reset: true, ..states },
        ),
    ]
}

fn gru_reverse() -> Rnn {
    let gru = Rnn::gru(48, 64).dtype(DType::Bf16).layout(RowLayout::BatchMajor);
    gru.direction(Direction::Reverse)
}

const BATCH: i64 = 8;
const STEPS: i64 = 12;

/// Networks whose three passes of training are run: dropout between layers, lengths, a projection,
/// further states, two GEMMs of a step.
fn trained() -> kiln::Result<Vec<(&'static str, Rnn, Optional)>> {
    let states = Optional { h_initial: true, h_final: true, ..Optional::default() };
    let cell_states = Optional { states_initial: true, states_final: true, ..states };
    let dropped = DropoutDescriptor::set(Real::new(0.2), 1)?;
    Ok(vec![
        ("lstm bf16, 64", Rnn::lstm(64, 64).dtype(DType::Bf16), cell_states),
        (
            "lstm f16, 2 layers with dropout, both directions, ragged",
            Rnn::lstm(32, 48).dtype(DType::F16).layers(2).bidirectional().dropout(dropped),
            Optional { lengths: true, ..cell_states },
        ),
        ("lstm f32, peepholes, projection", Rnn::lstm(24, 48).peephole().projection(16), states),
        ("gru bf16, batch-major, reverse", gru_reverse(), states),
        (
            "gru f64, reset before the product",
            Rnn::new(CellKind::GruResetBefore, 16, 24).dtype(DType::F64),
            states,
        ),
    ])
}

fn extent(rnn: &Rnn) -> Extent {
    let steps = if rnn.layout == RowLayout::Packed { STEPS / 2 } else { STEPS };
    Extent { batch: BATCH, rows: BATCH * steps }
}

/// Runs the networks; returns whether all results were correct, and the measurements.
pub fn demo(kiln: &Kiln, as_json: bool) -> kiln::Result<(bool, Vec<Value>)> {
    let problem = |(name, rnn, with): (&'static str, Rnn, Optional)| {
        Ok(Demonstrated {
            name,
            problem: Problem::new(rnn.network(extent(&rnn), with)?),
            note: None,
        })
    };
    let problems: kiln::Result<Vec<Demonstrated>> = networks().into_iter().map(problem).collect();
    run(kiln, problems?, as_json)
}

/// Runs the passes of training of networks, as [`demo`] their inference.
pub fn train(kiln: &Kiln, as_json: bool) -> kiln::Result<(bool, Vec<Value>)> {
    let problem = |(name, rnn, with): (&'static str, Rnn, Optional)| {
        let training = rnn.training(extent(&rnn), Optional { reserve: true, ..with })?;
        let bytes = training.row_bytes * BATCH as u64;
        let note = Some(format!("keeps {bytes} bytes a step for the gradients"));
        Ok(Demonstrated { name, problem: Problem::new(training), note })
    };
    let problems: kiln::Result<Vec<Demonstrated>> = trained()?.into_iter().map(problem).collect();
    run(kiln, problems?, as_json)
}

/// A network that is run.
struct Demonstrated {
    name: &'static str,
    problem: Problem,
    note: Option<String>,
}

fn run(
    kiln: &Kiln,
    problems: Vec<Demonstrated>,
    as_json: bool,
) -> kiln::Result<(bool, Vec<Value>)> {
    let (mut rows, mut passed) = (Vec::new(), true);
    if !as_json {
        say!("device  {} [{}]", kiln.device().target(), kiln.device().kind());
        say!("{STEPS} steps of {BATCH} sequences\n");
        say!("{:58} {:>9}  {:>8}  check", "network", "build", "run");
    }
    for Demonstrated { name, problem, note } in problems {
        progress::doing(format!("running {name}"));
        let mut values = problem.random_values(1)?;
        let (mut built, mut elapsed) = (Duration::ZERO, Duration::ZERO);
        let (mut checks, mut stems) = (Vec::new(), Vec::new());
        for (number, graph) in problem.graphs().into_iter().enumerate() {
            let inputs = problem.inputs(number, &values);
            let start = Instant::now();
            let plan = kiln.plan(graph)?;
            built += start.elapsed();
            let ran = kiln.trial(&plan, &inputs)?;
            elapsed += ran.elapsed;
            checks.extend(problem::check(graph, &inputs, &ran)?);
            stems.extend(kernels(&plan));
            problem.store(number, &ran.outputs, &mut values);
        }
        passed &= checks.iter().all(Check::passed);
        if as_json {
            rows.push(json!({
                "network": name,
                "note": note,
                "kernels": stems,
                "build_ms": built.as_secs_f64() * 1e3,
                "run_ms": elapsed.as_secs_f64() * 1e3,
                "checks": checks.iter().map(check_json).collect::<Vec<Value>>(),
            }));
            continue;
        }
        say!("{name:58} {:>9}  {:>8}  {}", shown(built), shown(elapsed), summary(&checks));
        match note {
            Some(note) => say!("  {note}; {} kernels", stems.len()),
            None => say!("  {}", stems.join(", ")),
        }
    }
    Ok((passed, rows))
}

/// Summary of all outputs: the worst error, or the failed checks.
fn summary(checks: &[Check]) -> String {
    let failed: Vec<String> =
        checks.iter().filter(|check| !check.passed()).map(check_text).collect();
    let worst = checks.iter().map(|check| check.ratio).fold(0.0, f64::max);
    match failed.is_empty() {
        true => format!("ok, worst error {worst:.2} of its bound"),
        false => failed.join("; "),
    }
}

fn kernels(plan: &ExecutionPlan) -> Vec<String> {
    plan.kernels().iter().map(|kernel| kernel.report().stem.clone()).collect()
}
