//! The ops of the units beside the lanes: matrices, asynchronous copies, barriers in memory,
//! clusters. Their operands are all in the list: what they write, then what they read.

use crate::format::Format;
use crate::op::Window;

/// What a unit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Writes a word for each matrix; reads the address.
    LoadMatrix(MatrixMove),
    /// Reads the address, then a word for each matrix.
    StoreMatrix(MatrixMove),
    /// Writes the transpose of the 8x8 matrix of 16-bit elements that it reads.
    TransposeMatrix,
    /// Writes D; reads A, B and C.
    Multiply(Multiply),
}

/// 8x8 matrices of 16-bit elements, between shared memory and registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatrixMove {
    pub count: u8,
    pub transposed: bool,
    pub window: Window,
    pub wide_address: bool,
}

/// A product of an m x k and a k x 8 matrix, added to an m x 8 matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Multiply {
    pub m: u8,
    pub k: u8,
    pub a: Format,
    pub b: Format,
    /// The format of C and D.
    pub sum: Format,
    /// Whether an integer sum stops at its bounds.
    pub saturate: bool,
}

impl Multiply {
    /// Registers of A, B and C, 64 bits wide for f64.
    pub fn registers(self) -> [usize; 3] {
        let lane_bits = if self.a == Format::F64 { 64 * 32 } else { 32 * 32 };
        let (m, k) = (usize::from(self.m), usize::from(self.k));
        let count = |elements: usize, format: Format| elements * format.bits() / lane_bits;
        [count(m * k, self.a), count(k * 8, self.b), count(m * 8, self.sum)]
    }
}
