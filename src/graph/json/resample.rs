//! JSON form of resamplings: the mode under the key that names the pass, the attributes by the
//! document's names. A fraction is a whole number or a text, `"3/2"`.

use serde_json::{Value, json};

use super::fields::{Fields, write_factors};
use crate::dtype::DType;
use crate::error::Result;
use crate::expr::NanPropagation;
use crate::graph::find::find;
use crate::graph::{
    Fraction, Op, Operation, PaddingMode, Resample, ResampleMode, ResamplePass, Sampling,
};
use crate::tensor::TensorDesc;

pub(super) fn read(fields: &mut Fields, pass: ResamplePass) -> Result<Op> {
    let mode = fields.choice(fields.kind, &ResampleMode::ALL.map(|mode| (mode.name(), mode)))?;
    let paddings = PaddingMode::ALL.map(|padding| (padding.name(), padding));
    let padding = fields.choice_or("padding_mode", &paddings, PaddingMode::default())?;
    let propagates = fields.optional("propagate_nan", "true or false", Value::as_bool)?;
    let nan = match propagates {
        Some(true) => NanPropagation::Propagate,
        _ => NanPropagation::NotPropagate,
    };
    let mut read = |key| {
        fields.optional(key, "a list of whole numbers and fractions", |value| {
            value.as_array()?.iter().map(fraction).collect::<Option<Vec<Fraction>>>()
        })
    };
    let given =
        [read("window_dims")?, read("strides")?, read("pre_paddings")?, read("post_paddings")?];
    let [Some(window_dims), strides, pre_paddings, post_paddings] = given else {
        return fields.fail("key `window_dims` is missing");
    };
    let all = |number| vec![Fraction::from(number); window_dims.len()];
    let sampling = Sampling {
        strides: strides.unwrap_or_else(|| all(1)),
        pre_paddings: pre_paddings.unwrap_or_else(|| all(0)),
        post_paddings: post_paddings.unwrap_or_else(|| all(0)),
        window_dims,
    };
    let [alpha, beta] = fields.factors()?;
    let (math, index) = (fields.math()?, fields.has("index"));
    Ok(Op::Resample(Resample { pass, mode, padding, math, nan, sampling, index, alpha, beta }))
}

fn fraction(value: &Value) -> Option<Fraction> {
    match value.as_str().map(|text| text.split_once('/')) {
        None => value.as_i64().map(Fraction::from),
        Some(parts) => {
            let (above, below) = parts?;
            Fraction::new(above.parse().ok()?, below.parse().ok()?).ok()
        }
    }
}

/// The attributes by key; what is usual is left out.
pub(super) fn write(
    op: &Resample,
    operation: &Operation,
    tensors: &[TensorDesc],
) -> Vec<(&'static str, Value)> {
    let mut keys = vec![(op.pass.name(), json!(op.mode.name()))];
    let first = find(tensors, operation.inputs[0]).map_or(DType::F32, |of| of.dtype);
    if op.math != op.usual_math(first) {
        keys.extend(op.math.name().map(|name| ("math", json!(name))));
    }
    let usual = [0, 1, 0, 0].map(Fraction::from);
    for ((key, values, _), usual) in op.sampling.attributes().into_iter().zip(usual) {
        if values.iter().any(|value| *value != usual) {
            let written = |value: &Fraction| match value.is_whole() {
                true => json!(value.numerator()),
                false => json!(value.to_string()),
            };
            keys.push((key, values.iter().map(written).collect()));
        }
    }
    if op.padding != PaddingMode::default() {
        keys.push(("padding_mode", json!(op.padding.name())));
    }
    if op.nan == NanPropagation::Propagate {
        keys.push(("propagate_nan", json!(true)));
    }
    keys.extend(write_factors([op.alpha, op.beta]));
    keys
}
