//! Tensors (section 8.2.2.30).

use std::sync::Arc;

use kiln::dtype::DType;
use kiln::tensor::{ALIGNMENT_MAX, TensorDesc};

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::product::Product;
use crate::status::{Outcome, bad, refuse};
use crate::values::DataType;

/// The type of elements that Kiln has for one.
pub fn dtype(number: i64) -> Outcome<DType> {
    Ok(match DataType(number as i32) {
        DataType::FLOAT => DType::F32,
        DataType::DOUBLE => DType::F64,
        DataType::HALF => DType::F16,
        DataType::BFLOAT16 => DType::Bf16,
        DataType::INT8 => DType::I8,
        DataType::UINT8 => DType::U8,
        DataType::INT32 => DType::I32,
        DataType::INT64 => DType::I64,
        DataType::BOOLEAN => DType::Bool,
        DataType::FP8_E4M3 => DType::F8E4M3,
        DataType::FP8_E5M2 => DType::F8E5M2,
        DataType::FAST_FLOAT_FOR_FP8 => {
            return bad("elements of a tensor are no MCDNN_DATA_FAST_FLOAT_FOR_FP8");
        }
        other => return refuse(format!("a tensor of {}", DataType::TABLE.shown(other.0))),
    })
}

/// Checks a tensor.
pub fn finalize(node: &Node) -> Outcome<Product> {
    let dtype = dtype(node.integer(N::TENSOR_DATA_TYPE))?;
    let (dims, strides) = (node.integers(N::TENSOR_DIMENSIONS), node.integers(N::TENSOR_STRIDES));
    if dims.len() != strides.len() {
        return bad(format!("{} dimensions and {} strides", dims.len(), strides.len()));
    }
    for (what, all) in [("dimension", &dims), ("stride", &strides)] {
        if let Some(at) = all.iter().position(|of| *of < 1) {
            return bad(format!("{what} {at} is {}, expected at least 1", all[at]));
        }
    }
    let alignment = node.integer(N::TENSOR_BYTE_ALIGNMENT);
    let bytes = dtype.bytes() as i64;
    if alignment < 1 || alignment % bytes != 0 {
        return bad(format!("the alignment is {alignment}, expected a multiple of {bytes}"));
    }
    let count = node.integer(N::TENSOR_VECTOR_COUNT);
    match (dtype, count) {
        (_, 1) => {}
        (DType::I8, 4 | 32) => return refuse(format!("{count} elements to a vector")),
        _ => return refuse(format!("{count} elements of {dtype} to a vector")),
    }
    if node.integer(N::TENSOR_REORDERING_MODE) != 0 {
        return refuse("elements of a tensor are reordered");
    }
    let uid = node.integer(N::TENSOR_UNIQUE_ID);
    // What is aligned to 12 bytes is to 4.
    let alignment = (1 << alignment.trailing_zeros()).min(ALIGNMENT_MAX);
    Ok(Product::Tensor(Arc::new(TensorDesc {
        uid,
        name: format!("t{uid}").replace('-', "m"),
        dims,
        strides,
        dtype,
        alignment,
        is_virtual: node.integer(N::TENSOR_IS_VIRTUAL) != 0,
        by_value: node.integer(N::TENSOR_IS_BY_VALUE) != 0,
    })))
}

impl Node {
    /// The tensors of an attribute.
    pub fn tensors(&self, name: N) -> Outcome<Vec<Arc<TensorDesc>>> {
        let tensors =
            self.nodes(name).into_iter().map(|node| match node.product(&name.shown())? {
                Product::Tensor(tensor) => Ok(tensor),
                _ => bad(format!("{} is no tensor", name.shown())),
            });
        tensors.collect()
    }

    /// The tensor of an attribute, if there is one.
    pub fn optional_tensor(&self, name: N) -> Outcome<Option<Arc<TensorDesc>>> {
        Ok(self.tensors(name)?.into_iter().next())
    }

    /// The tensor of an attribute.
    pub fn tensor(&self, name: N) -> Outcome<Arc<TensorDesc>> {
        match self.optional_tensor(name)? {
            Some(tensor) => Ok(tensor),
            None => bad(format!("{} is not set", name.shown())),
        }
    }
}
