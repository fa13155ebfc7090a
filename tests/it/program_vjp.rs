//! Derivatives of programs: against central differences for every mode and torch's autograd, and
//! what is kept of them.

use std::collections::{BTreeMap, BTreeSet};

use kiln::DType;
use kiln::expr::{Math, Mode, ModeClass, Pointwise, Program, Value};
use serde::Deserialize;

/// A program of one operation in double precision, with scales.
fn single(op: Pointwise) -> Program {
    let mut program = Program::new();
    let inputs: Vec<Value> =
        (0..op.mode.arity()).map(|at| program.input(format!("x{at}"), DType::F64)).collect();
    let y = program.push("y", op.math(Math::F64), &inputs, DType::F64).unwrap();
    program.output(y);
    program
}

/// The gradients of `of` at a point are the slopes of the outputs, weighted.
fn check(program: &Program, of: &[usize], point: &[f64], what: &str) {
    let weights: Vec<f64> = (0..program.outputs().len()).map(|at| 0.7 - 0.4 * at as f64).collect();
    let whole = |point: &[f64]| -> f64 {
        program.eval(point).iter().zip(&weights).map(|(y, weight)| y * weight).sum()
    };
    let given: Vec<f64> = point.iter().chain(&weights).copied().collect();
    let found = program.vjp(of).unwrap().eval(&given);
    for (at, found) in of.iter().zip(&found) {
        let step = 1e-6;
        let [below, above] = [-step, step].map(|step| {
            let mut moved = point.to_vec();
            moved[*at] += step;
            whole(&moved)
        });
        let slope = (above - below) / (2.0 * step);
        let bound = 1e-8 * (1.0 + slope.abs());
        assert!((found - slope).abs() < bound, "{what} by {at} at {point:?}: {found}, not {slope}");
    }
}

#[test]
fn gradients_of_every_mode_are_slopes() {
    let mut checked = 0;
    for mode in Mode::ALL {
        // The second derivatives of ReLU are 0 by convention, and a position has none.
        if matches!(mode, Mode::GenIndex | Mode::ReluBwd) {
            continue;
        }
        let smooth = !mode.name().starts_with("cmp") && !mode.name().starts_with("logical");
        for (a, b) in [(1.0, 1.0), (0.8, 1.3)] {
            let b = if mode.arity() == 1 { 1.0 } else { b };
            let program = single(Pointwise::new(mode).alphas(a, b));
            let select = mode.class() == ModeClass::Select;
            let of: Vec<usize> = (0..if select { 2 } else { mode.arity() }).collect();
            for point in [[0.63, 1.37, 1.0], [1.9, 0.41, 0.0]] {
                let point = &point[..mode.arity()];
                check(&program, &of, point, mode.name());
                let signed = matches!(mode, Mode::Log | Mode::Sqrt | Mode::Rsqrt | Mode::Pow);
                if !signed {
                    let negative: Vec<f64> = point.iter().map(|x| -x).collect();
                    check(&program, &of, &negative, mode.name());
                }
            }
            checked += usize::from(smooth);
        }
    }
    assert_eq!(checked, 2 * 38);
}

/// A program with shared values, several outputs, an output that is an input, and a cast.
#[test]
fn gradients_add_up_over_all_uses() {
    let mut program = Program::new();
    let [x, w, unused] = ["x", "w", "unused"].map(|name| program.input(name, DType::F64));
    let op = |mode| Pointwise::new(mode).math(Math::F64);
    let f64 = DType::F64;
    let product = program.push("product", op(Mode::Mul), &[x, w], f64).unwrap();
    let tanh = program.push("tanh", op(Mode::TanhFwd), &[product], f64).unwrap();
    let square = program.push("square", op(Mode::Mul), &[tanh, tanh], f64).unwrap();
    let sum = program.push("sum", op(Mode::Add), &[square, x], f64).unwrap();
    let dead = program.push("dead", op(Mode::Exp), &[unused], f64).unwrap();
    assert_eq!(dead, Value::Result(4));
    for output in [sum, tanh, x] {
        program.output(output);
    }
    check(&program, &[0, 1, 2], &[0.4, -1.2, 3.0], "shared");
    let vjp = program.vjp(&[2, 0]).unwrap();
    assert_eq!(vjp.inputs().len(), 6);
    assert_eq!(vjp.eval(&[0.4, -1.2, 3.0, 0.5, 0.25, 2.0])[0], 0.0);
    let names: Vec<&str> = vjp.instructions().iter().map(|line| line.name.as_str()).collect();
    assert!(!names.contains(&"dead") && !names.contains(&"sum"), "{vjp}");
}

/// A value that is rounded has the gradient of the value.
#[test]
fn casts_pass_gradients_unrounded() {
    let mut program = Program::new();
    let x = program.input("x", DType::F32);
    let half = program.push("half", Pointwise::new(Mode::Identity), &[x], DType::F16).unwrap();
    program.output(half);
    let vjp = program.vjp(&[0]).unwrap();
    assert_eq!(vjp.eval(&[1.0, 0.100_000_001_490_116_12]), [0.100_000_001_490_116_12]);
    assert_eq!(vjp.inputs()[1].dtype(), DType::F32);
}

#[test]
fn a_gradient_by_nothing_is_refused() {
    let mut program = single(Pointwise::new(Mode::Exp));
    let error = program.vjp(&[1]).unwrap_err();
    assert_eq!(error.to_string(), "vjp: input 1 of 1");
    program = Program::new();
    let error = program.vjp(&[]).unwrap_err();
    assert_eq!(error.to_string(), "vjp: the program has no output");
}

/// A gradient of torch.
#[derive(Deserialize)]
struct OfTorch {
    mode: String,
    with: BTreeMap<String, f64>,
    x: Vec<f64>,
    dy: f64,
    gradients: Vec<Number>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Other(String),
}

/// Every mode that torch has, edges among its points (`tests/data/expr/torch_modes.py`).
#[test]
fn gradients_of_modes_are_those_of_torch() {
    let rows: Vec<OfTorch> =
        serde_json::from_str(include_str!("../data/expr/modes.json")).expect("well-formed");
    let mut modes = BTreeSet::new();
    for OfTorch { mode, with, x, dy, gradients } in &rows {
        modes.insert(mode);
        let op = Pointwise::new(mode.parse().expect("a known mode"));
        let of = |name: &str, default: f64| with.get(name).copied().unwrap_or(default);
        let mut op = op.relu(of("lower", 0.0), of("upper", f64::INFINITY), of("slope", 0.0));
        if let Some(shape) = with.get("shape") {
            op = op.shape(*shape);
        }
        let all: Vec<usize> = (0..x.len()).collect();
        let given: Vec<f64> = x.iter().chain([dy]).copied().collect();
        let found = single(op).vjp(&all).unwrap().eval(&given);
        for (found, wanted) in found.iter().zip(gradients) {
            let wanted = match wanted {
                Number::Finite(value) => *value,
                Number::Other(text) => text.parse().expect("a number"),
            };
            let near = (found - wanted).abs() <= 1e-13 * (1.0 + wanted.abs());
            assert!(near || *found == wanted, "{mode} {with:?} at {x:?}: {found}, torch: {wanted}");
        }
    }
    assert_eq!(modes.len(), 36);
}
