//! JSON form of random numbers: the distribution under the key `rng`, its parameters by the
//! document's names, and the seed, a number or a tensor; a subsequence is a tensor.

use serde_json::{Value, json};

use super::fields::Fields;
use crate::error::Result;
use crate::expr::{Distribution, Math, Real};
use crate::graph::{Op, Rng};

pub(super) fn read(fields: &mut Fields) -> Result<Op> {
    let names = ["bernoulli", "uniform", "normal"];
    let number = fields.choice(fields.kind, &[0, 1, 2].map(|number| (names[number], number)))?;
    let mut real = |key: &str| match fields.optional(key, "a number", Value::as_f64)? {
        Some(value) => Ok(Real::new(value)),
        None => fields.fail(format_args!("key `{key}` is missing")),
    };
    let distribution = match number {
        0 => Distribution::Bernoulli { probability: real("probability")? },
        1 => Distribution::Uniform { minimum: real("minimum")?, maximum: real("maximum")? },
        _ => Distribution::Normal { mean: real("mean")?, deviation: real("standard_deviation")? },
    };
    let seed = match fields.peek("seed") {
        Some(_) => None,
        None => {
            let expected = "a whole number of 64 bits or a tensor";
            Some(fields.optional("seed", expected, Value::as_i64)?.unwrap_or(0))
        }
    };
    let subsequence = fields.has("subsequence");
    Ok(Op::Rng(Rng { distribution, seed, subsequence, math: fields.math()? }))
}

/// The attributes by key; what is usual is left out.
pub(super) fn write(op: &Rng) -> Vec<(&'static str, Value)> {
    let mut keys = vec![("rng", json!(op.distribution.name()))];
    let parameters = op.distribution.parameters().into_iter();
    keys.extend(parameters.map(|(key, value)| (key, json!(value.get()))));
    if let Some(seed) = op.seed.filter(|seed| *seed != 0) {
        keys.push(("seed", json!(seed)));
    }
    if op.math == Math::F64 {
        keys.push(("math", json!("f64")));
    }
    keys
}
