//! Reshapes: the same elements in row-major order under other dimensions.

use std::fmt;

use crate::error::{Error, Result};
use crate::graph::views::{Moving, check_moved};
use crate::tensor::TensorDesc;

/// The elements of `x` in row-major order of their indices, whatever the strides, under the
/// dimensions of `y` (`MCDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reshape;

impl Moving for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(None)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let (x, y) = (inputs[0], outputs[0]);
        let ([given, wanted], count) = ([x, y].map(TensorDesc::elements), |of| match of {
            Some(elements) => format!("{elements}"),
            None => "more than 2^63".to_owned(),
        });
        if given != wanted || given.is_none() {
            let (from, to) = (&x.dims, &y.dims);
            return Err(Error::bad_param(format!(
                "reshape: `{}` {from:?} has {} elements, output `{}` {to:?} has {}",
                x.name,
                count(given),
                y.name,
                count(wanted)
            )));
        }
        check_moved(self, x, y, &y.dims)
    }
}

impl fmt::Display for Reshape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reshape")
    }
}
