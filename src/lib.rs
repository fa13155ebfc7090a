//! Kiln.

pub mod cache;
pub mod codegen;
pub mod compile;
pub mod device;
pub mod dtype;
pub mod engine;
pub mod error;
pub mod expr;
pub mod graph;
pub mod plan;
pub mod reference;
pub mod target;
pub mod tensor;

pub use crate::dtype::DType;
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::graph::OperationGraph;
pub use crate::plan::{Config, ExecutionPlan, Kiln, VariantPack};
pub use crate::tensor::TensorDesc;
