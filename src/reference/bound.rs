//! Error bounds of pointwise operations, derived from the type, the published errors of the device
//! functions and the errors of the operands.

use crate::dtype::DType;
use crate::expr::{Activations, Math, Mode, ModeClass, Pointwise, Program, Real, Value};
use crate::reference::approx::{ANYTHING, Approx};

/// Error bound of a result whose operands are off by at most `errors`.
///
/// Operand errors are propagated by evaluating the operation at the corners of the box they span
/// and at extrema and discontinuities inside it (see [`deviation`]). The error of the operation
/// itself and, unless the result is exact, one rounding to the result type are added.
pub(super) fn propagated(
    op: &Pointwise,
    math: Math,
    values: &[f64],
    errors: &[f64],
    dtype: DType,
) -> f64 {
    let own = mode_error(op, math, values, op.eval(math, values));
    with_own(own, op, math, [values, errors], dtype)
}

/// As [`propagated`], for a quotient in `f32` by a value that many elements share: it may be a
/// product with the reciprocal, both rounded to half an ulp. Powers of two that scale both round
/// subnormal results alone.
pub(super) fn propagated_by_reciprocal(
    op: &Pointwise,
    values: &[f64],
    errors: &[f64],
    dtype: DType,
) -> f64 {
    let epsilon = DType::F32.epsilon();
    let relative = epsilon * (1.0 + epsilon);
    let own = op.eval(Math::F32, values).abs() * relative + DType::F32.smallest();
    let own = if own.is_finite() { own } else { 0.0 };
    with_own(own, op, Math::F32, [values, errors], dtype)
}

/// As [`propagated`], for an operation with intrinsic error `own`; operands are values and errors.
fn with_own(
    own: f64,
    op: &Pointwise,
    math: Math,
    [values, errors]: [&[f64]; 2],
    dtype: DType,
) -> f64 {
    let (exact, mut error) = (op.eval(math, values), own);
    if errors.iter().any(|error| *error != 0.0) {
        let operand = |(value, error): (&f64, &f64)| Approx { value: *value, error: *error };
        let operands: Vec<Approx> = values.iter().zip(errors).map(operand).collect();
        error += deviation(op, math, &operands, exact);
    }
    if error == 0.0 {
        return 0.0;
    }
    let result = Approx { value: exact, error };
    // Conditions are exact; other results are rounded to the math precision first.
    let is_rounded_once = dtype == math.dtype() || dtype == DType::Bool;
    let computed = if is_rounded_once { result } else { result.stored(math.dtype()) };
    computed.stored(dtype).error
}

/// Evaluates a program for one element, propagating error bounds.
pub(super) fn program(
    program: &Program,
    inputs: &[Approx],
    activations: Activations,
) -> Vec<Approx> {
    let mut results: Vec<Approx> = Vec::with_capacity(program.instructions().len());
    let read = |results: &[Approx], value: &Value| match value {
        Value::Input(at) => inputs[*at],
        Value::Result(at) => results[*at],
    };
    for line in program.instructions() {
        let operands: Vec<Approx> =
            line.operands.iter().map(|value| read(&results, value)).collect();
        let values: Vec<f64> = operands.iter().map(|operand| operand.value).collect();
        let errors: Vec<f64> = operands.iter().map(|operand| operand.error).collect();
        let math = program.compute(line);
        let exact = line.op.eval(math, &values);
        let value = line.dtype.round(math.dtype().round(exact));
        let approximate = approximate_error(activations, &line.op, values[0], exact)
            .filter(|_| math == Math::F32);
        // An implementation may compute the operation precisely nevertheless.
        let precise = mode_error(&line.op, math, &values, exact);
        let own = approximate.map_or(precise, |own| own.max(precise));
        let error = with_own(own, &line.op, math, [&values, &errors], line.dtype);
        results.push(Approx { value, error });
    }
    program.outputs().iter().map(|value| read(&results, value)).collect()
}

/// Maximum change of the result when operands vary within their errors; [`ANYTHING`] if only some
/// of the points yield NaN.
///
/// Extrema and discontinuities inside the box are evaluated besides its corners. Periodic modes
/// have too many: their change is bounded by that of the operands or by the range.
fn deviation(op: &Pointwise, math: Math, operands: &[Approx], at: f64) -> f64 {
    if let Some(deviation) = periodic_deviation(op, operands, at) {
        return deviation;
    }
    let points = |(slot, operand): (usize, &Approx)| {
        let within = |point: &f64| (point - operand.value).abs() <= operand.error;
        let mut points: Vec<f64> = operand.ends().collect();
        points.extend(turns(op, slot, operands).into_iter().filter(within));
        points
    };
    let points: Vec<Vec<f64>> = operands.iter().enumerate().map(points).collect();
    let mut deviation: f64 = 0.0;
    let mut corner = [0.0; 3];
    for number in 0..points.iter().map(Vec::len).product::<usize>() {
        let mut rest = number;
        for (slot, points) in points.iter().enumerate() {
            corner[slot] = points[rest % points.len()];
            rest /= points.len();
        }
        let corner = &corner[..points.len()];
        // A wrapped result may be any integer.
        if math == Math::I32 && i32::try_from(op.integer_result(corner)).is_err() {
            return f64::INFINITY;
        }
        let moved = op.eval(math, corner);
        if moved.is_nan() != at.is_nan() {
            return ANYTHING;
        }
        // Equal NaNs and infinities have distance 0.
        let same = moved == at || at.is_nan();
        deviation = deviation.max(if same { 0.0 } else { (moved - at).abs() });
    }
    deviation
}

/// Extrema and discontinuities of a mode along an operand. All modes have one at 0, which
/// [`Approx::ends`] covers.
fn turns(op: &Pointwise, slot: usize, operands: &[Approx]) -> Vec<f64> {
    // Where the scaled first operand has magnitude `at` in the activation's units.
    let around = |beta: Real, at: f64| {
        let at = at / (op.alpha1.get() * beta.get());
        vec![at, -at]
    };
    let unit = Real::from(1.0);
    match op.mode {
        // Equality: where the operands meet.
        Mode::CmpEq | Mode::CmpNeq => {
            let [this, other] = [slot, 1 - slot].map(|slot| match slot {
                0 => op.alpha1.get(),
                _ => op.alpha2.get(),
            });
            operands[1 - slot].ends().map(|end| other * end / this).collect()
        }
        _ if slot > 0 => Vec::new(),
        Mode::ReluFwd | Mode::ReluBwd => {
            let clips = [op.relu_lower_clip, op.relu_upper_clip];
            let beyond = |clip: Real| {
                let at = clip.get() / op.alpha1.get();
                [at * (1.0 - f64::EPSILON), at, at * (1.0 + f64::EPSILON)]
            };
            clips.into_iter().flat_map(beyond).collect()
        }
        // Minimum of x sigmoid(x); minimum and maximum of its slope.
        Mode::SwishFwd => around(op.swish_beta, 1.278_464_542_76),
        Mode::SwishBwd => around(op.swish_beta, 2.399_357_280_52),
        // The same for x Phi(x), whose second derivative is (2 - x^2) phi(x), and its
        // approximation.
        Mode::GeluFwd => around(unit, 0.751_791_524_69),
        Mode::GeluBwd => around(unit, std::f64::consts::SQRT_2),
        Mode::GeluApproxTanhFwd => around(unit, 0.752_461_422_07),
        Mode::GeluApproxTanhBwd => around(unit, 1.418_504_008_83),
        _ => Vec::new(),
    }
}

/// Deviation of modes with infinitely many extrema or discontinuities.
fn periodic_deviation(op: &Pointwise, operands: &[Approx], at: f64) -> Option<f64> {
    let scales = [op.alpha1.get(), op.alpha2.get()];
    let scaled = |slot: usize| {
        let (scale, Approx { value, error }) = (scales[slot], operands[slot]);
        Approx { value: scale * value, error: scale.abs() * error }
    };
    if !matches!(op.mode, Mode::Sin | Mode::Cos | Mode::Tan | Mode::Mod) || at.is_nan() {
        return None;
    }
    let x = scaled(0);
    // sin, cos, tan and fmod of an infinity are NaN.
    if !x.error.is_finite() {
        return Some(ANYTHING);
    }
    match op.mode {
        Mode::Sin | Mode::Cos => Some(x.error.min(1.0 + at.abs())),
        Mode::Tan => {
            use std::f64::consts::{FRAC_PI_2, PI};
            let branch = |x: f64| ((x + FRAC_PI_2) / PI).floor();
            let continuous = branch(x.value - x.error) == branch(x.value + x.error);
            if continuous { None } else { Some(f64::INFINITY) }
        }
        _ => {
            let b = scaled(1);
            if !b.error.is_finite() || b.value.abs() <= b.error {
                return Some(ANYTHING);
            }
            let quotients = x.ends().flat_map(|x| b.ends().map(move |b| (x / b).trunc()));
            let (least, most) = quotients
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), q| (a.min(q), b.max(q)));
            // Within one period the remainder is continuous; otherwise it may be any remainder.
            if least == most { None } else { Some(at.abs() + b.value.abs() + b.error) }
        }
    }
}

/// Absolute error of the operation itself on exact operands; [`ANYTHING`] where it may be NaN.
///
/// Errors of single functions are those of the CUDA C++ programming guide (section "mathematical
/// functions", maximum ulp error); composite functions are bounded term by term. With `f64` math
/// the reference has errors of the same size, so everything counts twice.
pub fn mode_error(op: &Pointwise, math: Math, values: &[f64], exact: f64) -> f64 {
    let epsilon = math.dtype().epsilon();
    let x = op.alpha1.get() * values[0];
    let dy = values.get(1).map_or(0.0, |dy| (op.alpha2.get() * dy).abs());
    let y = exact.abs();
    let scaled = op.alpha1.get() != 1.0 || op.alpha2.get() != 1.0;
    // In units of epsilon.
    let units = match op.mode {
        // The fused multiply-add is evaluated in f64, whose rounding precedes the final one.
        Mode::Add | Mode::Sub if scaled => y,
        Mode::Add | Mode::Sub | Mode::Mul | Mode::Div | Mode::Sqrt | Mode::Mod => 0.0,
        Mode::AddSquare => y,
        Mode::Exp | Mode::Log | Mode::Sin | Mode::Cos | Mode::Rsqrt | Mode::Erf => 2.0 * y,
        Mode::TanhFwd => 2.0 * y,
        Mode::Tan => 4.0 * y,
        Mode::Pow => 8.0 * y,
        Mode::SigmoidFwd => 4.0 * y,
        Mode::EluFwd if x < 0.0 => 3.0 * y,
        Mode::SoftplusFwd => y * (4.0 + argument(op.softplus_beta, x)),
        Mode::SwishFwd => y * (4.0 + argument(op.swish_beta, x)),
        // x P(X < x), where the probability is within 1.6 epsilon: the error stays relative to x.
        Mode::GeluFwd => 2.0 * x.abs() + 2.0 * y,
        Mode::GeluApproxTanhFwd => 3.0 * x.abs() + 2.0 * y,
        Mode::ReluFwd if op.relu_lower_clip_slope.get() != 0.0 => {
            2.0 * y + 2.0 * op.relu_lower_clip.get().abs()
        }
        Mode::ReluBwd => 0.0,
        Mode::TanhBwd => 6.0 * dy,
        Mode::SigmoidBwd => 4.0 * dy + 4.0 * y,
        Mode::EluBwd if x < 0.0 => 4.0 * y,
        Mode::SoftplusBwd => y * (4.0 + argument(op.softplus_beta, x)),
        Mode::SwishBwd => dy * (6.0 + 6.0 * (op.swish_beta.get() * x).abs()),
        Mode::GeluBwd => 8.0 * dy + 2.0 * y,
        Mode::GeluApproxTanhBwd => {
            let inner_slope = 0.8 * (1.0 + 0.1342 * x * x);
            dy * (4.0 + 4.0 * (x * inner_slope).abs()) + 2.0 * y
        }
        _ => 0.0,
    };
    // An infinite gradient times a slope that underflows or cancels in only one of the precisions
    // is NaN in that one and infinite in the other.
    let gradient = op.mode.class() == ModeClass::Backward && op.mode != Mode::ReluBwd;
    if gradient && dy.is_infinite() {
        return ANYTHING;
    }
    let smooth = units > 0.0 && op.mode.class() != ModeClass::Select && units.is_finite();
    let counted = if math == Math::F64 { 2.0 * units } else { units };
    // Subnormal factors have a fixed ulp, scaled by what they are multiplied with. Infinite factors
    // are excluded: a finite result is then a limit.
    let [x, dy] = [x.abs(), dy].map(|factor| if factor.is_finite() { factor } else { 0.0 });
    let factors = 2.0 + x + dy + x * dy;
    if smooth { counted * epsilon + factors * math.dtype().smallest() } else { 0.0 }
}

/// Absolute error of an activation that is not computed precisely.
///
/// PTX ISA: `ex2.approx` is within 2 ulp, `rcp.approx` within 1 ulp, and subnormals are flushed to
/// 0. `tanh x = 2 sigmoid(2 x) - 1`, whose only other rounding is the subtraction.
///
/// `tanh.approx` is within 2^-11 of its result, which has a rounding of its own. `sigmoid x = (1 +
/// tanh(x / 2)) / 2` has half of that and a rounding. A rounded argument is off by half an ulp, of
/// which the slope remains.
pub(super) fn approximate_error(
    activations: Activations,
    op: &Pointwise,
    x: f64,
    exact: f64,
) -> Option<f64> {
    let x = op.alpha1.get() * x;
    let hardware = 1.0 + 2.0_f64.powi(-11) / f64::from(f32::EPSILON);
    let units = match (activations, op.mode) {
        (Activations::Approximate, Mode::SigmoidFwd) => sigmoid_units(x, exact),
        (Activations::Approximate, Mode::TanhFwd) => {
            2.0 * sigmoid_units(2.0 * x, (1.0 + exact) / 2.0) + exact.abs()
        }
        (Activations::Fast, Mode::SigmoidFwd) => {
            let tanh = (2.0 * exact - 1.0).abs();
            0.5 * hardware * tanh + exact + exact * (1.0 - exact) * x.abs()
        }
        (Activations::Fast, Mode::TanhFwd) => {
            hardware * exact.abs() + (1.0 - exact * exact) * x.abs()
        }
        _ => return None,
    };
    let units = if units.is_nan() { 0.0 } else { units };
    Some(units * f64::from(f32::EPSILON) + 2.0 * f64::from(f32::MIN_POSITIVE))
}

/// Error of `y = 1 / (1 + e)` with `e = 2^(-x log2 e)`, in ulp. The exponent is off by 0.62 ulp (a
/// rounded product and a rounded factor), a relative error of 0.62 |x| in `e`, plus 2 ulp of
/// `ex2.approx`. The fraction `e / (1 + e) = 1 - y` of that reaches the result, plus half an ulp of
/// the addition and one of the reciprocal. The remaining half ulp covers second-order terms.
fn sigmoid_units(x: f64, y: f64) -> f64 {
    y * (2.0 + (1.0 - y) * (2.0 + 0.62 * x.abs()))
}

/// Error in ulp of an exponential due to its rounded argument `beta * x`: half an ulp of the
/// product.
fn argument(beta: Real, x: f64) -> f64 {
    if beta.get() == 1.0 { 0.0 } else { (beta.get() * x).abs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(op: Pointwise, values: &[f64], errors: &[f64], dtype: DType) -> f64 {
        propagated(&op, Math::F32, values, errors, dtype)
    }

    /// `f32` arithmetic with the maximum errors that PTX allows for `ex2.approx` and `rcp.approx`
    /// is within the bounds, and the bounds are reasonably tight.
    #[test]
    fn approximate_activations_are_off_by_no_more_than_their_bounds() {
        let ulps = |x: f32, units: i32| {
            if x == 0.0 || !x.is_finite() {
                x
            } else {
                f32::from_bits((x.to_bits() as i32 + units) as u32)
            }
        };
        let flushed = |x: f32| if x.is_subnormal() { 0.0 } else { x };
        let sigmoid = |x: f32, [e, r]: [i32; 2]| {
            let power = f64::from(x * -std::f32::consts::LOG2_E).exp2() as f32;
            flushed(ulps(1.0 / (1.0 + flushed(ulps(power, e))), r))
        };
        let tanh = |x: f32, off| 2.0_f32.mul_add(sigmoid(2.0 * x, off), -1.0);
        let mut worst = [0.0_f64; 2];
        for step in -9600..=9600 {
            let x = step as f32 / 100.0 + 0.003;
            for off in [[-2, -1], [-2, 1], [2, -1], [2, 1], [0, 0]] {
                let modes = [(Mode::SigmoidFwd, sigmoid(x, off)), (Mode::TanhFwd, tanh(x, off))];
                for (worst, (mode, got)) in worst.iter_mut().zip(modes) {
                    let op = Pointwise::new(mode);
                    let exact = op.eval(Math::F32, &[x.into()]);
                    let bound =
                        approximate_error(Activations::Approximate, &op, x.into(), exact).unwrap();
                    *worst = worst.max((f64::from(got) - exact).abs() / bound);
                }
            }
        }
        assert!(worst.iter().all(|ratio| (0.5..=1.0).contains(ratio)), "{worst:?}");
    }

    /// The same of `tanh.approx`, with the largest error that PTX allows.
    #[test]
    fn fast_activations_are_off_by_no_more_than_their_bounds() {
        let off = [-1.0, 0.0, 1.0].map(|off| off * 2.0_f64.powi(-11));
        let hardware =
            |x: f32, off: f64| (f64::from(x).tanh() * (1.0 + off)).clamp(-1.0, 1.0) as f32;
        let sigmoid = |x: f32, off| 0.5_f32.mul_add(hardware(x * 0.5, off), 0.5);
        let mut worst = [0.0_f64; 2];
        for (step, off) in (-9600..=9600).flat_map(|step| off.map(|off| (step, off))) {
            let x = step as f32 / 100.0 + 0.003;
            let modes = [(Mode::SigmoidFwd, sigmoid(x, off)), (Mode::TanhFwd, hardware(x, off))];
            for (worst, (mode, got)) in worst.iter_mut().zip(modes) {
                let op = Pointwise::new(mode);
                let exact = op.eval(Math::F32, &[x.into()]);
                let bound = approximate_error(Activations::Fast, &op, x.into(), exact).unwrap();
                *worst = worst.max((f64::from(got) - exact).abs() / bound);
            }
        }
        assert!(worst.iter().all(|ratio| (0.9..=1.0).contains(ratio)), "{worst:?}");
    }

    #[test]
    fn correctly_rounded_operations_of_exact_operands_have_no_slack() {
        assert_eq!(bound(Pointwise::new(Mode::Add), &[0.1, 0.2], &[0.0; 2], DType::Bf16), 0.0);
        assert!(bound(Pointwise::new(Mode::Exp), &[0.1], &[0.0], DType::F32) > 0.0);
    }

    #[test]
    fn a_result_computed_in_less_than_its_type_counts_the_rounding_of_both() {
        let add = Pointwise::new(Mode::Add);
        let bound = |math| propagated(&add, math, &[1.0, 0.1], &[0.0, 1e-8], DType::F64);
        let [single, double] = [Math::F32, Math::F64].map(bound);
        assert!(single >= f64::from(f32::EPSILON), "{single}");
        assert!((1e-8..1.001e-8).contains(&double), "{double}");
    }

    /// Results for all operands within their error are within the bound.
    #[test]
    fn what_turns_inside_the_error_box_is_allowed_for() {
        for mode in Mode::ALL {
            let binary = matches!(mode.class(), ModeClass::Binary | ModeClass::Backward);
            if matches!(mode, Mode::BinarySelect | Mode::GenIndex) {
                continue;
            }
            let op = Pointwise::new(mode);
            let ends = [(0.3, 2.9), (-3.0, 7.0), (1.0e6, 2.5), (-2.0, 1.5), (1.5, 0.25)];
            for (value, error) in ends {
                let values = [value, 1.75];
                let values = if binary { &values[..] } else { &values[..1] };
                let exact = op.eval(Math::F64, values);
                let bound =
                    propagated(&op, Math::F64, values, &[error, 0.0][..values.len()], DType::F64);
                for step in 0..=1000 {
                    let mut moved = values.to_vec();
                    moved[0] = value - error + 2.0 * error * f64::from(step) / 1000.0;
                    let got = op.eval(Math::F64, &moved);
                    let same = got == exact || (got.is_nan() && exact.is_nan());
                    let within = bound.is_nan() || same || (got - exact).abs() <= bound;
                    assert!(within, "{mode:?} of {moved:?}: {got}, {exact} within {bound}");
                }
            }
        }
    }

    #[test]
    fn a_jump_inside_the_error_box_is_allowed_for() {
        let floor = Pointwise::new(Mode::Floor);
        assert!(bound(floor, &[1.0], &[1e-6], DType::F32) >= 1.0);
        assert_eq!(bound(floor, &[1.5], &[1e-6], DType::F32), 0.0);
        let equal = Pointwise::new(Mode::CmpEq);
        assert!(bound(equal, &[1.0, 1.0], &[1e-6, 0.0], DType::Bool) >= 1.0);
        assert_eq!(bound(equal, &[1.0, 2.0], &[1e-6, 0.0], DType::Bool), 0.0);
    }
}
