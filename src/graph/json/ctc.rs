//! JSON form of CTC losses: what `x` holds under the key `ctc_loss`, and the attributes.

use serde_json::{Value, json};

use super::fields::Fields;
use crate::error::Result;
use crate::expr::Math;
use crate::graph::{CtcInfinite, CtcInput, CtcLoss, Op};

pub(super) fn read(fields: &mut Fields) -> Result<Op> {
    let input = fields.choice(fields.kind, &CtcInput::ALL.map(|input| (input.name(), input)))?;
    let known = CtcInfinite::ALL.map(|infinite| (infinite.name(), infinite));
    let infinite = fields.choice_or("infinite", &known, CtcInfinite::default())?;
    let blank = fields.optional("blank", "a whole number", Value::as_i64)?.unwrap_or(0);
    let label_length_max = fields.number("label_length_max")?;
    let (gradient, math) = (fields.has("dx"), fields.math()?);
    Ok(Op::CtcLoss(CtcLoss { input, infinite, blank, label_length_max, gradient, math }))
}

/// The attributes by key; what is usual is left out.
pub(super) fn write(op: &CtcLoss) -> Vec<(&'static str, Value)> {
    let mut keys = vec![
        ("ctc_loss", json!(op.input.name())),
        ("label_length_max", json!(op.label_length_max)),
    ];
    if op.blank != 0 {
        keys.push(("blank", json!(op.blank)));
    }
    if op.infinite != CtcInfinite::default() {
        keys.push(("infinite", json!(op.infinite.name())));
    }
    if op.math == Math::F64 {
        keys.push(("math", json!("f64")));
    }
    keys
}
