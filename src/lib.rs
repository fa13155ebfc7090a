//! Kiln.

pub mod codegen;
pub mod dtype;
pub mod engine;
pub mod error;
pub mod expr;
pub mod graph;
pub mod reference;
pub mod target;
pub mod tensor;

pub use crate::dtype::DType;
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::tensor::TensorDesc;
