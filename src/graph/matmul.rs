//! Products of matrices.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// What a product is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MatmulMath {
    /// Operands and sums in single precision.
    #[default]
    F32,
    /// Operands rounded to tf32 (11 bits of significand), sums in single precision.
    Tf32,
    /// Operands and sums in double precision.
    F64,
    /// Operands of 8 or 32 bits, products and sums in 32 bits, wrapping around.
    I32,
}

/// `C[.., m, n] = sum over k of A[.., m, k] * B[.., k, n]`
/// (`MCDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR`, section 8.2.2.16).
///
/// Dimensions before the last two are batches; one of extent 1 is broadcast. Operands are rounded
/// to the math precision, the sum is rounded once to the type of `C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// What is computed in.
    pub math: MatmulMath,
    /// Whether a tensor of integers gives the M, N, K that each batch has less than the tensors'.
    /// Elements of `C` beyond the overridden M and N are 0.
    pub overrides: [bool; 3],
    /// Products whose matrices lie no stride apart, 1 or more; next to batches only 1. No more than
    /// 1 is supported: the document says how many there are, not where they lie.
    pub irregular_batches: i64,
}

impl Default for Matmul {
    fn default() -> Matmul {
        Matmul::new(MatmulMath::default())
    }
}

impl MatmulMath {
    /// All of them.
    pub const ALL: [MatmulMath; 4] =
        [MatmulMath::F32, MatmulMath::Tf32, MatmulMath::F64, MatmulMath::I32];

    /// The type of the sums.
    pub fn dtype(self) -> DType {
        match self {
            MatmulMath::F32 | MatmulMath::Tf32 => DType::F32,
            MatmulMath::F64 => DType::F64,
            MatmulMath::I32 => DType::I32,
        }
    }

    /// The name in texts and problem files.
    pub fn name(self) -> &'static str {
        match self {
            MatmulMath::F32 => "f32",
            MatmulMath::Tf32 => "tf32",
            MatmulMath::F64 => "f64",
            MatmulMath::I32 => "i32",
        }
    }
}

const OVERRIDES: [&str; 3] = ["m_override", "n_override", "k_override"];

impl Matmul {
    /// A product in this precision.
    pub fn new(math: MatmulMath) -> Matmul {
        Matmul { math, overrides: [false; 3], irregular_batches: 1 }
    }

    pub(super) fn slots(&self) -> Slots {
        let mut slots = Slots::new(&["a", "b"], &["c"]);
        let given = OVERRIDES.iter().zip(self.overrides).filter(|(_, given)| *given);
        slots.inputs.extend(given.map(|(name, _)| *name));
        slots
    }

    /// The dimensions of `C`.
    pub(super) fn infer(&self, a: &TensorDesc, b: &TensorDesc) -> Result<Vec<i64>> {
        let fail = |rule: &str| {
            Err(Error::bad_param(format!(
                "matmul: {rule}: `{}` is {:?}, `{}` is {:?}",
                a.name, a.dims, b.name, b.dims
            )))
        };
        let rank = a.dims.len();
        if rank < 2 || b.dims.len() < 2 {
            return Err(Error::not_supported(format!(
                "matmul: matrices have at least 2 dimensions: `{}` is {:?}, `{}` is {:?}",
                a.name, a.dims, b.name, b.dims
            )));
        }
        if b.dims.len() != rank {
            return fail("operands differ in the number of dimensions");
        }
        if a.dims[rank - 1] != b.dims[rank - 2] {
            return fail("the columns of A are not the rows of B");
        }
        let mut dims = Vec::with_capacity(rank);
        for (a, b) in a.dims[..rank - 2].iter().zip(&b.dims[..rank - 2]) {
            match (*a, *b) {
                (a, b) if a == b || b == 1 => dims.push(a),
                (1, b) => dims.push(b),
                _ => return fail("batches can not be broadcast"),
            }
        }
        dims.extend([a.dims[rank - 2], b.dims[rank - 1]]);
        Ok(dims)
    }

    pub(super) fn check(&self, inputs: &[&TensorDesc], c: &TensorDesc) -> Result<()> {
        let (a, b) = (inputs[0], inputs[1]);
        let dims = self.infer(a, b)?;
        self.check_irregular([a, b, c])?;
        if dims != c.dims {
            return Err(Error::bad_param(format!(
                "matmul: output `{}` is {:?}, the operands give {dims:?}",
                c.name, c.dims
            )));
        }
        for tensor in [a, b, c] {
            let [outer, inner] = [2, 1].map(|back| {
                let axis = tensor.dims.len() - back;
                tensor.dims[axis] <= 1 || tensor.strides[axis] == 1
            });
            if !tensor.is_virtual && !tensor.is_empty() && !outer && !inner {
                return Err(Error::not_supported(format!(
                    "matmul: neither rows nor columns of `{}` are packed: dimensions {:?}, \
                     strides {:?}",
                    tensor.name, tensor.dims, tensor.strides
                )));
            }
        }
        for tensor in [a, b] {
            let integer = matches!(tensor.dtype, DType::I32 | DType::I8 | DType::U8);
            if self.math == MatmulMath::I32 && !integer {
                let (name, dtype) = (&tensor.name, tensor.dtype);
                let text = format!("matmul: `{name}` is {dtype}, math i32 takes i32, i8 and u8");
                return Err(Error::bad_param(text));
            }
        }
        self.check_overrides(&inputs[2..], &dims[..dims.len() - 2])
    }

    fn check_irregular(&self, tensors: [&TensorDesc; 3]) -> Result<()> {
        let count = self.irregular_batches;
        let batched = |of: &&TensorDesc| of.dims.iter().rev().skip(2).any(|extent| *extent != 1);
        match (count, tensors.into_iter().find(batched)) {
            (1, _) => Ok(()),
            (..=-1, _) => Err(Error::bad_param(format!(
                "matmul: the count of irregularly strided batches is {count}, less than 0"
            ))),
            (_, Some(TensorDesc { name, dims, .. })) => Err(Error::bad_param(format!(
                "matmul: {count} irregularly strided batches next to those of `{name}`: {dims:?}"
            ))),
            _ => Err(Error::not_supported(format!(
                "matmul: {count} irregularly strided batches: nothing says where each lies"
            ))),
        }
    }

    fn check_overrides(&self, tensors: &[&TensorDesc], batches: &[i64]) -> Result<()> {
        for tensor in tensors {
            let (own, rest) = tensor.dims.split_at(tensor.dims.len().saturating_sub(2));
            if tensor.dtype != DType::I32 || own != batches || rest != [1, 1] {
                return Err(Error::bad_param(format!(
                    "matmul: override `{}` is {}{:?}, expected i32 with a 1 for rows and columns",
                    tensor.name, tensor.dtype, tensor.dims
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Matmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.math {
            MatmulMath::F32 => f.write_str("matmul"),
            math => write!(f, "matmul[{}]", math.name()),
        }
    }
}
