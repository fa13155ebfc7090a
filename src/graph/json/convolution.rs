//! JSON form of convolutions: the precision under the key that names the pass, the window's
//! attributes by the document's names, each by default 1 or 0 in every spatial dimension.

use serde_json::{Value, json};

use super::fields::{Fields, write_factors};
use crate::error::Result;
use crate::graph::{Convolution, ConvolutionMode, ConvolutionPass, MatmulMath, Op, Window};

const MODES: [(&str, ConvolutionMode); 2] = [
    (ConvolutionMode::CrossCorrelation.name(), ConvolutionMode::CrossCorrelation),
    (ConvolutionMode::Convolution.name(), ConvolutionMode::Convolution),
];

pub(super) fn read(fields: &mut Fields, pass: ConvolutionPass) -> Result<Op> {
    let math = fields.choice(fields.kind, &MatmulMath::ALL.map(|math| (math.name(), math)))?;
    let mode = fields.choice_or("mode", &MODES, ConvolutionMode::default())?;
    let said = fields.optional("spatial_dims", "a whole number from 0", |value| {
        value.as_u64().and_then(|dims| usize::try_from(dims).ok())
    })?;
    let mut read = |key| {
        fields.optional(key, "a list of whole numbers", |value| {
            value.as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>()
        })
    };
    let given = [
        read("filter_strides")?,
        read("dilations")?,
        read("pre_paddings")?,
        read("post_paddings")?,
    ];
    let dims = said.or_else(|| given.iter().flatten().next().map(Vec::len));
    let Some(dims) = dims else {
        return fields.fail("key `spatial_dims` is missing, and so are the window's attributes");
    };
    if let Some(other) = given.iter().flatten().find(|values| values.len() != dims) {
        return fields.fail(format_args!("{other:?} for {dims} spatial dimensions"));
    }
    let unit = Window::unit(dims);
    let [filter_strides, dilations, pre_paddings, post_paddings] = given;
    let window = Window {
        filter_strides: filter_strides.unwrap_or(unit.filter_strides),
        dilations: dilations.unwrap_or(unit.dilations),
        pre_paddings: pre_paddings.unwrap_or(unit.pre_paddings),
        post_paddings: post_paddings.unwrap_or(unit.post_paddings),
    };
    let [alpha, beta] = fields.factors()?;
    Ok(Op::Convolution(Convolution { pass, math, mode, window, alpha, beta }))
}

/// The attributes by key; what is usual is left out.
pub(super) fn write(op: &Convolution) -> Vec<(&'static str, Value)> {
    let mut keys = vec![
        (op.pass.name(), json!(op.math.name())),
        ("spatial_dims", json!(op.window.spatial_dims())),
    ];
    if op.mode != ConvolutionMode::default() {
        keys.push(("mode", json!(op.mode.name())));
    }
    for (key, values, usual) in op.window.attributes() {
        if values.iter().any(|value| *value != usual) {
            keys.push((key, json!(values)));
        }
    }
    keys.extend(write_factors([op.alpha, op.beta]));
    keys
}
