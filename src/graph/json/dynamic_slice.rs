//! JSON form of dynamic slices: the copies under the key `dynamic_slice`, each with its axis under
//! `read` or `write`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fields::Fields;
use super::keys::{is_false, present};
use crate::error::Result;
use crate::graph::{DynamicSlice, Op, SliceCopy};
use crate::tensor::TensorDesc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyJson {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    read: Option<i64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    size: Option<i64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    write: Option<i64>,
    #[serde(default, skip_serializing_if = "is_false")]
    reverse: bool,
}

pub(super) fn read(fields: &mut Fields, _tensors: &[TensorDesc]) -> Result<Op> {
    let json = fields.value(fields.kind).unwrap_or_default();
    let json: Vec<CopyJson> = match serde_json::from_value(json) {
        Ok(json) => json,
        Err(error) => return fields.fail(format_args!("malformed copies: {error}")),
    };
    let copies =
        json.into_iter().map(|CopyJson { read, size, write, reverse }| match (read, size, write) {
            (Some(axis), Some(size), None) => Ok(SliceCopy::Read { axis, size, reverse }),
            (None, None, Some(axis)) => Ok(SliceCopy::Write { axis, reverse }),
            _ => fields.fail("a copy has the keys `read` and `size`, or `write`"),
        });
    Ok(Op::DynamicSlice(DynamicSlice { copies: copies.collect::<Result<_>>()? }))
}

/// The attributes by key.
pub(super) fn write(op: &DynamicSlice) -> Vec<(&'static str, Value)> {
    let copy = |of: &SliceCopy| match *of {
        SliceCopy::Read { axis, size, reverse } => {
            CopyJson { read: Some(axis), size: Some(size), write: None, reverse }
        }
        SliceCopy::Write { axis, reverse } => {
            CopyJson { read: None, size: None, write: Some(axis), reverse }
        }
    };
    let copies: Vec<CopyJson> = op.copies.iter().map(copy).collect();
    vec![("dynamic_slice", json!(copies))]
}
