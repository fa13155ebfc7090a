//! Cells that no library ships, written as lines of programs.

use kiln::expr::{Lines, Mode, Pointwise, Real};
use kiln::graph::{Cell, LayerNormStatistics, RecurrentGemm, Stage};
use kiln::{DType, Result};

/// All of them, by the name of their problem file.
pub fn all() -> Result<Vec<Cell>> {
    Ok(vec![layer_norm_lstm()?, zoneout_lstm()?, minimal_gated_unit()?, independent()?])
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn op(mode: Mode) -> Pointwise {
    Pointwise::new(mode)
}

fn gemm(operand: &str, gates: &[&str]) -> Option<RecurrentGemm> {
    Some(RecurrentGemm::new(operand, gates))
}

fn statistics(name: &str, of: &[&str]) -> LayerNormStatistics {
    LayerNormStatistics { name: name.to_owned(), of: owned(of), epsilon: Real::new(1e-5) }
}

/// `name = (value - mean) inverse_deviation gain`.
fn normalised(lines: &mut Lines, name: &str, value: &str, of: &str, gain: &str) -> Result<()> {
    let [apart, unit] = [format!("{name}_apart"), format!("{name}_unit")];
    lines.line(&apart, op(Mode::Sub), &[value, &format!("{of}_mean")])?;
    lines.line(&unit, op(Mode::Mul), &[&apart, &format!("{of}_inv")])?;
    lines.line(name, op(Mode::Mul), &[&unit, gain])
}

/// LSTM whose sums and cell state are normalised over the units of a row (Ba et al. 2016):
/// gains are the parameters `gain_x`, `gain_r` and `gain_c`.
pub fn layer_norm_lstm() -> Result<Cell> {
    let gates = ["i", "f", "g", "o"];
    let mut sums = Lines::new(DType::F32);
    for gate in gates {
        let [x, r, sum] = ["x", "r", "sum"].map(|of| format!("n{of}_{gate}"));
        normalised(&mut sums, &x, &format!("x_{gate}"), "mx", "gain_x")?;
        normalised(&mut sums, &r, &format!("r_{gate}"), "mr", "gain_r")?;
        sums.line(&sum, op(Mode::Add), &[&x, &r])?;
        let mode = if gate == "g" { Mode::TanhFwd } else { Mode::SigmoidFwd };
        sums.line(gate, op(mode), &[&sum])?;
    }
    sums.line("kept", op(Mode::Mul), &["f", "c"])?;
    sums.line("added", op(Mode::Mul), &["i", "g"])?;
    sums.line("next_c", op(Mode::Add), &["kept", "added"])?;
    let mut shown = Lines::new(DType::F32);
    normalised(&mut shown, "nc", "next_c", "mc", "gain_c")?;
    shown.line("shown", op(Mode::TanhFwd), &["nc"])?;
    shown.line("next_h", op(Mode::Mul), &["o", "shown"])?;
    let recurrent = gates.map(|gate| format!("r_{gate}"));
    let input = gates.map(|gate| format!("x_{gate}"));
    let names = |of: &[String; 4]| of.to_vec();
    Ok(Cell {
        name: "layer_norm_lstm".to_owned(),
        gates: owned(&gates),
        states: owned(&["h", "c"]),
        parameters: owned(&["gain_x", "gain_r", "gain_c"]),
        row_inputs: Vec::new(),
        unit_inputs: Vec::new(),
        stages: vec![
            Stage {
                gemm: gemm("h", &gates),
                statistics: vec![
                    LayerNormStatistics { of: names(&input), ..statistics("mx", &[]) },
                    LayerNormStatistics { of: names(&recurrent), ..statistics("mr", &[]) },
                ],
                program: sums.finish(&["o", "next_c"])?,
            },
            Stage {
                gemm: None,
                statistics: vec![statistics("mc", &["next_c"])],
                program: shown.finish(&["next_h"])?,
            },
        ],
        projected: false,
    })
}

/// LSTM that keeps old values of some units (Krueger et al. 2017): `zone_h` and `zone_c` are unit
/// inputs, 1 where the old value stays and 0 where not, or probabilities for inference.
pub fn zoneout_lstm() -> Result<Cell> {
    let gates = ["i", "f", "g", "o"];
    let mut lines = Lines::new(DType::F32);
    for gate in gates {
        let [sum, x, r] = [format!("sum_{gate}"), format!("x_{gate}"), format!("r_{gate}")];
        lines.line(&sum, op(Mode::Add), &[&x, &r])?;
        let mode = if gate == "g" { Mode::TanhFwd } else { Mode::SigmoidFwd };
        lines.line(gate, op(mode), &[&sum])?;
    }
    lines.line("kept", op(Mode::Mul), &["f", "c"])?;
    lines.line("added", op(Mode::Mul), &["i", "g"])?;
    lines.line("new_c", op(Mode::Add), &["kept", "added"])?;
    lines.line("shown", op(Mode::TanhFwd), &["new_c"])?;
    lines.line("new_h", op(Mode::Mul), &["o", "shown"])?;
    for state in ["c", "h"] {
        let [apart, back] = [format!("apart_{state}"), format!("back_{state}")];
        let [new, zone] = [format!("new_{state}"), format!("zone_{state}")];
        lines.line(&apart, op(Mode::Sub), &[state, &new])?;
        lines.line(&back, op(Mode::Mul), &[&zone, &apart])?;
        lines.line(&format!("next_{state}"), op(Mode::Add), &[&new, &back])?;
    }
    Ok(Cell {
        name: "zoneout_lstm".to_owned(),
        gates: owned(&gates),
        states: owned(&["h", "c"]),
        parameters: Vec::new(),
        row_inputs: Vec::new(),
        unit_inputs: owned(&["zone_h", "zone_c"]),
        stages: vec![Stage {
            gemm: gemm("h", &gates),
            statistics: Vec::new(),
            program: lines.finish(&["next_h", "next_c"])?,
        }],
        projected: false,
    })
}

/// The minimal gated unit (Zhou et al. 2016): one gate, `f`, resets and updates.
pub fn minimal_gated_unit() -> Result<Cell> {
    let mut first = Lines::new(DType::F32);
    first.line("sum", op(Mode::Add), &["x_f", "r_f"])?;
    first.line("f", op(Mode::SigmoidFwd), &["sum"])?;
    first.line("forgotten", op(Mode::Mul), &["f", "h"])?;
    let mut second = Lines::new(DType::F32);
    second.line("sum_n", op(Mode::Add), &["x_n", "r_n"])?;
    second.line("n", op(Mode::TanhFwd), &["sum_n"])?;
    second.line("apart", op(Mode::Sub), &["n", "h"])?;
    second.line("added", op(Mode::Mul), &["f", "apart"])?;
    second.line("next_h", op(Mode::Add), &["h", "added"])?;
    let stage = |operand, gate, program| Stage {
        gemm: gemm(operand, &[gate]),
        statistics: Vec::new(),
        program,
    };
    Ok(Cell {
        name: "mgu".to_owned(),
        gates: owned(&["f", "n"]),
        states: owned(&["h"]),
        parameters: Vec::new(),
        row_inputs: Vec::new(),
        unit_inputs: Vec::new(),
        stages: vec![
            stage("h", "f", first.finish(&["f", "forgotten"])?),
            stage("forgotten", "n", second.finish(&["next_h"])?),
        ],
        projected: false,
    })
}

/// IndRNN (Li et al. 2018): every unit sees only itself, through the parameter `u`.
pub fn independent() -> Result<Cell> {
    let mut lines = Lines::new(DType::F32);
    lines.line("own", op(Mode::Mul), &["u", "h"])?;
    lines.line("sum", op(Mode::Add), &["x_h", "own"])?;
    lines.line("next_h", op(Mode::ReluFwd), &["sum"])?;
    Ok(Cell {
        name: "indrnn".to_owned(),
        gates: owned(&["h"]),
        states: owned(&["h"]),
        parameters: owned(&["u"]),
        row_inputs: Vec::new(),
        unit_inputs: Vec::new(),
        stages: vec![Stage {
            gemm: None,
            statistics: Vec::new(),
            program: lines.finish(&["next_h"])?,
        }],
        projected: false,
    })
}
