//! `kiln demo --rnn`: builds, runs and checks recurrent networks of several kinds.

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

/// Runs the networks; returns whether all results were correct, and the measurements.
pub fn demo(kiln: &Kiln, as_json: bool) -> kiln::Result<(bool, Vec<Value>)> {
    let (mut rows, mut passed) = (Vec::new(), true);
    if !as_json {
        say!("device  {} [{}]", kiln.device().target(), kiln.device().kind());
        say!("{STEPS} steps of {BATCH} sequences\n");
        say!("{:58} {:>9}  {:>8}  check", "network", "build", "run");
    }
    for (name, rnn, with) in networks() {
        progress::doing(format!("running {name}"));
        let rows_given = BATCH * if rnn.layout == RowLayout::Packed { STEPS / 2 } else { STEPS };
        let extent = Extent { batch: BATCH, rows: rows_given };
        let network = rnn.network(extent, with)?;
        let graph = network.graph.clone();
        let inputs = Problem::new(network).random_values(1)?;
        let start = std::time::Instant::now();
        let plan = kiln.plan(&graph)?;
        let built = start.elapsed();
        let ran = kiln.trial(&plan, &inputs)?;
        let checks = problem::check(&graph, &inputs, &ran)?;
        passed &= checks.iter().all(Check::passed);
        if as_json {
            rows.push(json!({
                "network": name,
                "kernels": kernels(&plan),
                "build_ms": built.as_secs_f64() * 1e3,
                "run_ms": ran.elapsed.as_secs_f64() * 1e3,
                "checks": checks.iter().map(check_json).collect::<Vec<Value>>(),
            }));
            continue;
        }
        say!("{name:58} {:>9}  {:>8}  {}", shown(built), shown(ran.elapsed), summary(&checks));
        say!("  {}", kernels(&plan).join(", "));
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
