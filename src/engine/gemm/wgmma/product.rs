//! What is multiplied: the types of an instruction and how both operands lie.

use kiln_machine::Operands;

use crate::dtype::DType;
use crate::engine::TensorWork;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::wgmma::bulk::BulkOperand;
use crate::engine::warpgroup::{ROWS, WarpgroupProduct, cycles};
use crate::error::{Error, Result};
use crate::graph::MatmulMath;

/// The GEMM as `wgmma` takes it: operands as TMA loads them, and the instruction's types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Product {
    pub(super) a: BulkOperand,
    pub(super) b: BulkOperand,
    /// What the other product takes in place of B.
    pub(super) other: Option<BulkOperand>,
    /// Whether K is the packed dimension of A, of B.
    pub(super) depth_packed: [bool; 2],
    math: MatmulMath,
    /// The type of the operands in shared memory; integers may differ in their sign.
    pub(super) element: DType,
    /// The operands' types as the instruction names them.
    names: [&'static str; 2],
}

impl Product {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn of(problem: &Problem<'_>) -> Result<Product> {
        if problem.is_empty() || problem.k == 0 {
            return Err(Error::not_supported("a bulk copy takes at least one element"));
        }
        if problem.overrides[2].is_some() {
            return Err(Error::not_supported("bulk copies do not end at a batch's own K"));
        }
        let math = problem.matmul.math;
        let [type_a, type_b] =
            [&problem.a, &problem.b].map(|operand| problem.graph.tensors[operand.tensor].dtype);
        let both = |name| Ok([name; 2]);
        let integer = |dtype| if dtype == DType::I8 { "s8" } else { "u8" };
        let names = match (math, type_a, type_b) {
            (MatmulMath::F32 | MatmulMath::Tf32, DType::F16, DType::F16) => both("f16"),
            (MatmulMath::F32 | MatmulMath::Tf32, DType::Bf16, DType::Bf16) => both("bf16"),
            (MatmulMath::Tf32, DType::F32, DType::F32) => both("tf32"),
            (MatmulMath::I32, DType::I32, _) | (MatmulMath::I32, _, DType::I32) => {
                Err(Error::not_supported("no tensor core multiplies integers of 32 bits"))
            }
            (MatmulMath::I32, ..) => Ok([integer(type_a), integer(type_b)]),
            (math, a, b) => Err(Error::not_supported(format!(
                "a warpgroup has no product of {a} and {b} in math {}",
                math.name()
            ))),
        }?;
        for operand in [&problem.a, &problem.b] {
            let tensor = &problem.graph.tensors[operand.tensor];
            let (name, dtype) = (&tensor.name, tensor.dtype);
            if !operand.depth_packed && dtype.bytes() != 2 {
                return Err(Error::not_supported(format!(
                    "`{name}` is not packed along K, as products of {dtype} need it"
                )));
            }
        }
        let [a, b] = [&problem.a, &problem.b].map(|operand| BulkOperand::operand(problem, operand));
        let depth_packed = [problem.a.depth_packed, problem.b.depth_packed];
        let other = problem.twin.map(|twin| BulkOperand::operand_at(problem, &problem.b, twin.b));
        Ok(Product {
            a: a?,
            b: b?,
            other: other.transpose()?,
            depth_packed,
            math,
            element: type_a,
            names,
        })
    }

    /// Depth of a step: 128 bytes, as far as a swizzle reaches.
    pub(super) fn cta_k(&self) -> i64 {
        128 / self.element.bytes() as i64
    }

    /// Whether operands lose bits.
    pub(super) fn rounds(&self) -> bool {
        self.element == DType::F32
    }

    /// Products in tiles of this size.
    pub(super) fn work(&self, cta: [i64; 2]) -> TensorWork {
        let operands = match self.element.bytes() {
            1 => Operands::Int8,
            2 => Operands::Half,
            _ => Operands::Tf32,
        };
        TensorWork { operands, operations: 1.0, efficiency: efficiency(cta) }
    }

    /// The instruction for `n` columns.
    pub(super) fn instruction(&self, n: i64) -> WarpgroupProduct {
        WarpgroupProduct {
            n,
            bytes: self.element.bytes() as i64,
            operands: self.names,
            integers: self.math == MatmulMath::I32,
            a_in_registers: false,
            depth_packed: self.depth_packed,
            steps: 1,
        }
    }
}

/// How busy a tile's products keep the tensor cores. For 32 bytes of depth, bulk copies write that
/// of its rows and columns to shared memory, and each product of 64 rows reads that of its own rows
/// and of all columns, together at 128 bytes a cycle.
pub(super) fn efficiency([cta_m, cta_n]: [i64; 2]) -> f64 {
    let lines = cta_m + cta_n + cta_m / ROWS * (ROWS + cta_n);
    (cycles([cta_m, cta_n]) * 128.0 / (32 * lines) as f64).min(1.0)
}
