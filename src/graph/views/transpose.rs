//! Transposes: the dimensions in another order.

use std::fmt;

use crate::error::{Error, Result};
use crate::graph::views::{Moving, check_moved};
use crate::tensor::TensorDesc;

/// The dimensions of `x` in another order: dimension `i` of `y` is dimension `permutation[i]` of
/// `x`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// Each dimension of `x` once.
    pub permutation: Vec<usize>,
}

impl Moving for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        let (name, dims) = (&inputs[0].name, &inputs[0].dims);
        let mut sorted = self.permutation.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..dims.len()) {
            let (given, rank) = (&self.permutation, dims.len());
            return Err(Error::bad_param(format!(
                "transpose: {given:?} does not name each of the {rank} dimensions of `{name}` once"
            )));
        }
        Ok(Some(vec![self.permutation.iter().map(|axis| dims[*axis]).collect()]))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let dims = self.infer(inputs)?.expect("a transpose infers its result").remove(0);
        check_moved(self, inputs[0], outputs[0], &dims)
    }
}

impl fmt::Display for Transpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transpose{:?}", self.permutation)
    }
}
