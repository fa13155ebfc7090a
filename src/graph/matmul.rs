//! Matrix multiplication.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::semantics::{Semantics, check_operand_types};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// Precision of a matrix multiplication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MatmulMath {
    /// Operands and accumulators in f32.
    #[default]
    F32,
    /// Operands rounded to tf32 (11 significant bits), accumulators in f32.
    Tf32,
    /// Operands and accumulators in f64.
    F64,
    /// 8- or 32-bit integer operands, 32-bit accumulators that wrap around.
    I32,
}

/// `C[.., m, n] = sum over k of A[.., m, k] * B[.., k, n]`
/// (`MCDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR`, section 8.2.2.16).
///
/// Leading dimensions are batch dimensions; an extent of 1 is broadcast. Operands are rounded to
/// the math precision, the result is rounded once to the type of `C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// Precision of the computation.
    pub math: MatmulMath,
    /// Whether an integer tensor per batch overrides the extents M, N and K with smaller values.
    /// Elements of `C` beyond the overridden M and N are 0.
    pub overrides: [bool; 3],
    /// Number of irregularly strided batches, at least 1, and 1 beside regular batch dimensions.
    /// Values above 1 are not supported: the document does not say where each batch is stored.
    pub irregular_batches: i64,
}

impl Default for Matmul {
    fn default() -> Matmul {
        Matmul::new(MatmulMath::default())
    }
}

impl MatmulMath {
    /// All precisions.
    pub const ALL: [MatmulMath; 4] =
        [MatmulMath::F32, MatmulMath::Tf32, MatmulMath::F64, MatmulMath::I32];

    /// Type of the accumulators.
    pub fn dtype(self) -> DType {
        match self {
            MatmulMath::F32 | MatmulMath::Tf32 => DType::F32,
            MatmulMath::F64 => DType::F64,
            MatmulMath::I32 => DType::I32,
        }
    }

    /// Name in messages and problem files.
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
    /// Returns a matrix multiplication in this precision.
    pub fn new(math: MatmulMath) -> Matmul {
        Matmul { math, overrides: [false; 3], irregular_batches: 1 }
    }

    /// Infers the dimensions of `C`.
    fn dims_of_c(&self, a: &TensorDesc, b: &TensorDesc) -> Result<Vec<i64>> {
        let fail = |rule: &str| {
            Err(Error::bad_param(format!(
                "matmul: {rule}: `{}` is {:?}, `{}` is {:?}",
                a.name, a.dims, b.name, b.dims
            )))
        };
        let rank = a.dims.len();
        if rank < 2 || b.dims.len() < 2 {
            return Err(Error::not_supported(format!(
                "matmul: expected at least 2 dimensions: `{}` is {:?}, `{}` is {:?}",
                a.name, a.dims, b.name, b.dims
            )));
        }
        if b.dims.len() != rank {
            return fail("operands differ in rank");
        }
        if a.dims[rank - 1] != b.dims[rank - 2] {
            return fail("the K extents of A and B differ");
        }
        let mut dims = Vec::with_capacity(rank);
        for (a, b) in a.dims[..rank - 2].iter().zip(&b.dims[..rank - 2]) {
            match (*a, *b) {
                (a, b) if a == b || b == 1 => dims.push(a),
                (1, b) => dims.push(b),
                _ => return fail("batch extents cannot be broadcast"),
            }
        }
        dims.extend([a.dims[rank - 2], b.dims[rank - 1]]);
        Ok(dims)
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

impl Semantics for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn slots(&self) -> Slots {
        let mut slots = Slots::new(&["a", "b"], &["c"]);
        let given = OVERRIDES.iter().zip(self.overrides).filter(|(_, given)| *given);
        slots.inputs.extend(given.map(|(name, _)| *name));
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(Some(vec![self.dims_of_c(inputs[0], inputs[1])?]))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let [a, b, c] = [inputs[0], inputs[1], outputs[0]];
        let dims = self.dims_of_c(a, b)?;
        self.check_irregular([a, b, c])?;
        if dims != c.dims {
            return Err(Error::bad_param(format!(
                "matmul: output `{}` is {:?}, expected {dims:?}",
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
                let text = format!("matmul: `{name}` is {dtype}, math i32 accepts i32, i8 and u8");
                return Err(Error::bad_param(text));
            }
        }
        self.check_overrides(&inputs[2..], &dims[..dims.len() - 2])
    }

    fn check_types(&self, inputs: &[&TensorDesc]) -> Result<()> {
        check_operand_types(self.name(), inputs)
    }

    fn resolve(&mut self, _operands: &[DType]) {}
}

impl fmt::Display for Matmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.math {
            MatmulMath::F32 => f.write_str("matmul"),
            math => write!(f, "matmul[{}]", math.name()),
        }
    }
}
