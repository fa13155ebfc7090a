//! Cells of users that are unlike those of the documents: GEMMs in later stages only, names
//! that the kernels have too, programs of another precision than their network's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kiln::engine;
use kiln::expr::{Lines, Math, Mode, Pointwise};
use kiln::graph::{Cell, MatmulMath, Recurrence, RecurrenceSlots, RecurrentGemm, Stage};
use kiln::plan::Problem;
use kiln::{DType, ErrorKind};

use crate::harness;
use crate::recurrence;

fn stage(gemm: Option<(&str, &str)>, lines: &[(&str, Mode, &[&str])], out: &[&str]) -> Stage {
    let mut program = Lines::new(DType::F32);
    for (name, mode, operands) in lines {
        program.line(name, Pointwise::new(*mode), operands).expect("the line fits");
    }
    let gemm = gemm.map(|(operand, gate)| RecurrentGemm::new(operand, &[gate]));
    let program = program.finish(out).expect("lines define the outputs");
    Stage { gemm, statistics: Vec::new(), program }
}

fn cell(name: &str, gates: &[&str], stages: Vec<Stage>) -> Cell {
    Cell {
        name: name.to_owned(),
        gates: gates.iter().map(|gate| (*gate).to_owned()).collect(),
        states: vec!["h".to_owned()],
        parameters: Vec::new(),
        row_inputs: Vec::new(),
        unit_inputs: Vec::new(),
        stages,
        projected: false,
    }
}

/// A cell whose state is its input, whatever its GEMM gives.
pub fn copies_input() -> Cell {
    let lines: &[(&str, Mode, &[&str])] = &[("next_h", Mode::Identity, &["x_h"])];
    cell("copies_input", &["h"], vec![stage(Some(("h", "h")), lines, &["next_h"])])
}

/// An LSTM whose state is cut off at 0.
pub fn cut_off_lstm() -> Cell {
    let lines: &[(&str, Mode, &[&str])] = &[
        ("i_sum", Mode::Add, &["x_i", "r_i"]),
        ("f_sum", Mode::Add, &["x_f", "r_f"]),
        ("g_sum", Mode::Add, &["x_g", "r_g"]),
        ("o_sum", Mode::Add, &["x_o", "r_o"]),
        ("i", Mode::SigmoidFwd, &["i_sum"]),
        ("f", Mode::SigmoidFwd, &["f_sum"]),
        ("g", Mode::TanhFwd, &["g_sum"]),
        ("o", Mode::SigmoidFwd, &["o_sum"]),
        ("kept", Mode::Mul, &["f", "c"]),
        ("new", Mode::Mul, &["i", "g"]),
        ("next_c", Mode::Add, &["kept", "new"]),
        ("c_tanh", Mode::TanhFwd, &["next_c"]),
        ("out", Mode::Mul, &["o", "c_tanh"]),
        ("next_h", Mode::ReluFwd, &["out"]),
    ];
    let gates = ["i", "f", "g", "o"];
    let stage = Stage {
        gemm: Some(RecurrentGemm::new("h", &gates)),
        ..stage(None, lines, &["next_h", "next_c"])
    };
    let states = ["h", "c"].map(str::to_owned).to_vec();
    Cell { states, ..cell("cut_off_lstm", &gates, vec![stage]) }
}

/// Cells whose GEMMs begin in a later stage, one of them with that of its projection alone.
pub fn later_gemms() -> [Cell; 3] {
    let reset: &[(&str, Mode, &[&str])] =
        &[("r", Mode::SigmoidFwd, &["x_r"]), ("kept", Mode::Mul, &["r", "h"])];
    let new: &[(&str, Mode, &[&str])] =
        &[("s", Mode::Add, &["x_n", "r_n"]), ("next_h", Mode::TanhFwd, &["s"])];
    let two = cell(
        "reset_first",
        &["r", "n"],
        vec![stage(None, reset, &["kept"]), stage(Some(("kept", "n")), new, &["next_h"])],
    );
    let sum: &[(&str, Mode, &[&str])] = &[("kept2", Mode::TanhFwd, &["kept"])];
    let three = cell(
        "reset_twice",
        &["r", "n"],
        vec![
            stage(None, reset, &["kept"]),
            stage(None, sum, &["kept2"]),
            stage(Some(("kept2", "n")), new, &["next_h"]),
        ],
    );
    let mut projected = cell(
        "only_projected",
        &["n"],
        vec![stage(None, &[("next_h", Mode::TanhFwd, &["x_n"])], &["next_h"])],
    );
    projected.projected = true;
    [two, three, projected]
}

/// Every lower-case word of the templates that render recurrent layers.
fn words_of_templates() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let mut words = BTreeSet::new();
    for place in ["rnn", "device", "device/ops", "device/ptx", "device/tile"] {
        for file in fs::read_dir(folder.join(place)).expect("the folder is there") {
            let path = file.expect("it can be listed").path();
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(path).expect("it is text");
            let code = text.lines().map(|line| line.split("//").next().unwrap_or(""));
            let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            words.extend(code.flat_map(|line| line.split(word)).map(str::to_owned));
        }
    }
    let fits = |word: &String| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && !word.contains(|c: char| c.is_ascii_uppercase())
    };
    words.into_iter().filter(fits).collect()
}

/// Whatever word of the kernels a line, a state, a parameter or an input of a cell is named, its
/// kernels compile.
#[test]
fn names_of_cells_are_apart_from_the_kernels() {
    let words = words_of_templates();
    assert!(
        words.len() > 100
            && ["active", "reset", "unit"]
                .iter()
                .all(|known| { words.iter().any(|word| word == known) })
    );
    // A line of every name, and an input of every kind of some.
    let mut lines: Vec<(&str, Mode, Vec<&str>)> = Vec::new();
    let mut last = "x_unit";
    for word in &words {
        lines.push((word, Mode::Add, vec![last, "x_unit"]));
        last = word;
    }
    let taken = ["runs", "reset", "unit", "own", "b", "row", "given", "from", "of"];
    let named = |kind: &str| taken.map(|name| format!("{name}.{kind}/{name}")).to_vec();
    let (rows, units, parameters) = (named("row"), named("unit"), named("parameter"));
    let mut summed = last.to_owned();
    let mut sums: Vec<(String, Vec<String>)> = Vec::new();
    for (at, name) in rows.iter().chain(&units).chain(&parameters).enumerate() {
        let sum = format!("sum{at}");
        sums.push((sum.clone(), vec![summed, name.clone()]));
        summed = sum;
    }
    for (name, operands) in &sums {
        lines.push((name, Mode::Add, operands.iter().map(String::as_str).collect()));
    }
    lines.push(("next_reset", Mode::TanhFwd, vec![&summed]));
    let lines: Vec<(&str, Mode, &[&str])> =
        lines.iter().map(|(name, mode, operands)| (*name, *mode, &operands[..])).collect();
    let cell = Cell {
        states: vec!["reset".to_owned()],
        row_inputs: rows,
        unit_inputs: units,
        parameters,
        ..cell("runs", &["unit"], vec![stage(Some(("reset", "runs")), &lines, &["next_reset"])])
    };
    let with = RecurrenceSlots { reset: true, ..Default::default() };
    let op = Recurrence { with, ..Recurrence::new(cell, 3, 8) };
    let (graph, kiln) = (recurrence::graph(&op, 3, DType::F32), harness::kiln());
    for name in ["rnn_cta", "rnn_step"] {
        let own = engine::supported(name, graph.canonical(), kiln.device().target());
        let own = own.expect("it runs any cell");
        harness::assembled(&harness::sources(name, &*own, &own.heuristic()));
    }
}

#[test]
fn cells_without_gates_are_refused() {
    let text = r#"{"rnn": {"input_size": 4, "hidden_size": 8, "dtype": "f32", "batch": 2,
        "steps": 3, "cell": {"name": "c", "gates": [], "states": ["h"], "stages": [{
        "program": [{"pointwise": "tanh_fwd", "inputs": ["h"], "output": "next_h"}],
        "outputs": ["next_h"]}]}}}"#;
    let error = Problem::from_json(text).expect_err("it has no gate");
    assert_eq!(error.kind(), ErrorKind::BadParam);
    assert_eq!(error.to_string(), "cell c: expected at least one gate");
}

/// A network's type says what its cells compute in, whatever a line says.
#[test]
fn cells_of_networks_in_f64_compute_in_f64() {
    let lines: &[(&str, Mode, &[&str])] =
        &[("s", Mode::Mul, &["x_h", "h"]), ("next_h", Mode::Exp, &["s"])];
    let cell = cell("exps", &["h"], vec![stage(None, lines, &["next_h"])]);
    let with = RecurrenceSlots { h_initial: true, ..Default::default() };
    let op = Recurrence { math: MatmulMath::F64, with, ..Recurrence::new(cell, 2, 5) };
    let graph = {
        // In f64 throughout: `x` of a layer in tests is narrower.
        let mut tensors = recurrence::graph(&op, 1, DType::F64).tensors().to_vec();
        tensors.iter_mut().for_each(|tensor| tensor.dtype = DType::F64);
        let operations = recurrence::graph(&op, 1, DType::F64).operations().to_vec();
        kiln::OperationGraph::new(tensors, operations).expect("it is valid")
    };
    let values = recurrence::values(&graph, &op, 1);
    let [x, h] = ["x", "h_initial"].map(|name| graph.tensor_named(name).expect("it is there").uid);
    let expected: Vec<f64> =
        values[&x].iter().zip(&values[&h]).map(|(x, h)| (x * h).exp()).collect();
    let y = graph.outputs().next().expect("it has a result").uid;
    let kiln = harness::kiln();
    for name in ["rnn_cta", "rnn_step"] {
        let own = engine::supported(name, graph.canonical(), kiln.device().target());
        let config = own.expect("it runs any layer").heuristic();
        let actual = harness::run(kiln, &graph, Some(&config), &values).expect("it runs");
        for (actual, expected) in actual[&y].iter().zip(&expected) {
            // Two functions of f64, each within 2 ulp.
            let apart = (actual - expected).abs();
            assert!(apart <= 4.0 * f64::EPSILON * expected.abs(), "{name}: {actual} {expected}");
        }
    }
    let lines = graph.operations()[0].clone();
    let kiln::graph::Op::Recurrence(op) = lines.op else { panic!("it is a layer") };
    let program = &op.cell.stages[0].program;
    assert!(program.instructions().iter().all(|line| line.op.math == Math::F64));
}
