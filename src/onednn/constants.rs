//! Numbers that a primitive's own memory begins with.

use crate::dtype::DType;
use crate::onednn::step::{ALIGNMENT, Home};
use crate::tensor::TensorDesc;

/// All of them, as bytes.
#[derive(Debug, Default)]
pub(super) struct Constants(Vec<u8>);

/// Some of them, as a tensor of f32.
#[derive(Debug, Clone)]
pub(super) struct Constant {
    dims: Vec<i64>,
    pub(super) home: Home,
}

impl Constants {
    /// Adds numbers, as many as the extents have.
    pub(super) fn add(&mut self, numbers: &[f64], dims: &[i64]) -> Constant {
        let start = self.0.len();
        let bytes = numbers.iter().flat_map(|number| (*number as f32).to_le_bytes());
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT as usize), 0);
        Constant { dims: dims.to_vec(), home: Home::Scratch(start as u64) }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Constant {
    /// The tensor, with extents of 1 in front of its own.
    pub(super) fn tensor(&self, uid: i64, name: &str, rank: usize) -> TensorDesc {
        let missing = vec![1; rank - self.dims.len()];
        TensorDesc::packed(uid, name, &[missing, self.dims.clone()].concat(), DType::F32)
    }
}
