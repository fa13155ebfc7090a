//! Transposes: the dimensions in another order.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::graph::views::check_moved;
use crate::tensor::TensorDesc;

/// The dimensions of `x` in another order: dimension `i` of `y` is dimension `permutation[i]` of
/// `x`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// Each dimension of `x` once.
    pub permutation: Vec<usize>,
}

impl Semantics for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn slots(&self) -> Slots {
        Slots::new(&["x"], &["y"])
    }

    fn math(&self) -> DType {
        DType::F32
    }

    fn result_type(&self, operands: &[DType]) -> DType {
        operands[0]
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

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {}
}

impl fmt::Display for Transpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transpose{:?}", self.permutation)
    }
}
