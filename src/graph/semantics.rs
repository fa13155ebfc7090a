//! What every kind of operation answers about itself.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{MOVED, Math};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// The rules of one kind of operation, independent of how it is executed. Tensors are in the order
/// of the [slots](Semantics::slots); text is as of one operation in the listing of a graph.
pub(crate) trait Semantics: fmt::Display {
    /// Name in messages and problem files.
    fn name(&self) -> &'static str;

    /// Names of the operands and results, including the optional ones that the attributes enable.
    fn slots(&self) -> Slots;

    /// Type in which the operation computes.
    fn math(&self) -> DType;

    /// Type of intermediate results for operands of these types: the precision, unless the
    /// operation computes nothing.
    fn result_type(&self, _operands: &[DType]) -> DType {
        self.math()
    }

    /// Infers the dimensions of the results; `None` if the operands do not determine them.
    ///
    /// # Errors
    /// `BadParam` where the shapes of the operands are incompatible.
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>>;

    /// Checks the attributes and the compatibility of the tensors.
    ///
    /// # Errors
    /// `BadParam` naming the attribute or tensor that breaks a rule of the document;
    /// `NotSupported` where the document leaves the meaning open.
    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()>;

    /// Checks that the operation is defined in its precision for operands of these types: unless
    /// it says otherwise, for numbers that are not i64, and in floats.
    ///
    /// # Errors
    /// `NotSupported` for i64 operands, `BadParam` for the precision.
    fn check_types(&self, inputs: &[&TensorDesc]) -> Result<()> {
        check_operand_types(self.name(), inputs)?;
        check_float_math(self.name(), self.math())
    }

    /// Replaces the default precision by the one that follows from the operand types, and raises
    /// programs to f64 if the operation computes in f64.
    fn resolve(&mut self, operands: &[DType]);

    /// Normalises attributes so that equivalent operations compare equal.
    fn normalise(&mut self) {}
}

/// Checks that no operand is i64, which is moved, compared and selected, but not computed with.
///
/// # Errors
/// `NotSupported` naming the first i64 operand.
pub(super) fn check_operand_types(name: &str, inputs: &[&TensorDesc]) -> Result<()> {
    match inputs.iter().find(|tensor| tensor.dtype == DType::I64) {
        None => Ok(()),
        Some(TensorDesc { name: tensor, dtype, .. }) => {
            Err(Error::not_supported(format!("{name}: `{tensor}` is {dtype}, {MOVED}")))
        }
    }
}

/// Checks that an operation without integer arithmetic does not compute in i32.
///
/// # Errors
/// `BadParam` if it does.
pub(super) fn check_float_math(name: &str, math: DType) -> Result<()> {
    match math {
        DType::I32 => Err(Error::bad_param(format!("{name}: not defined for math i32"))),
        _ => Ok(()),
    }
}

/// Replaces the default precision by f32.
pub(super) fn resolve_to_f32(math: &mut Math) {
    if *math == Math::Default {
        *math = Math::F32;
    }
}
