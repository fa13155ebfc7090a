//! The MMA: operand types and layouts.

use kiln_machine::Operands;

use crate::dtype::DType;
use crate::engine::TensorWork;
use crate::engine::gemm::epilogue_reduction::Reduced;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::wgmma::tma::TmaOperand;
use crate::engine::gemm::wgmma::window::Depth;
use crate::engine::instruction::{WGMMA_M, WgmmaInstruction, cycles, ones};
use crate::engine::tma::line_elements;
use crate::error::{Error, Result};
use crate::graph::MatmulMath;

/// The GEMM as `wgmma` takes it: operands as TMA loads them, and the instruction's types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WgmmaOperands {
    pub(super) a: TmaOperand,
    pub(super) b: TmaOperand,
    /// B of the second GEMM of a dual GEMM.
    pub(super) other: Option<TmaOperand>,
    /// Whether A and B are K-major.
    pub(super) k_major: [bool; 2],
    /// K of a convolution.
    depth: Option<Depth>,
    /// Element type in shared memory; integers may differ in signedness.
    pub(super) element: DType,
    /// Operand types as named by the instruction.
    names: [&'static str; 2],
}

impl WgmmaOperands {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn of(problem: &Problem<'_>) -> Result<WgmmaOperands> {
        if problem.is_empty() || problem.k == 0 {
            return Err(Error::not_supported("a TMA copy takes at least one element"));
        }
        if problem.overrides[2].is_some() {
            return Err(Error::not_supported("TMA copies do not end at a batch's own K"));
        }
        if problem.phases.is_some() {
            return Err(Error::not_supported("tiles of phases have rows and K of their own"));
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
                "wgmma does not multiply {a} by {b} in math {}",
                math.name()
            ))),
        }?;
        for operand in [&problem.a, &problem.b] {
            let tensor = &problem.graph.tensors[operand.tensor];
            let (name, dtype) = (&tensor.name, tensor.dtype);
            if !operand.k_major && dtype.bytes() != 2 {
                return Err(Error::not_supported(format!(
                    "`{name}` is not K-major, as wgmma needs {dtype}"
                )));
            }
        }
        let depth = Depth::of(problem, line_elements(type_a));
        let operand = |of| TmaOperand::operand(problem, of, depth.as_ref());
        let [a, b] = [&problem.a, &problem.b].map(operand);
        let k_major = [problem.a.k_major, problem.b.k_major];
        let other = problem.dual.map(|dual| TmaOperand::operand_at(problem, &problem.b, dual.b));
        Ok(WgmmaOperands {
            a: a?,
            b: b?,
            other: other.transpose()?,
            k_major,
            depth,
            element: type_a,
            names,
        })
    }

    /// K per stage: 128 bytes, one swizzle atom.
    pub(super) fn cta_k(&self) -> i64 {
        line_elements(self.element)
    }

    /// K in whole channels of taps, if a convolution has them.
    pub(super) fn k(&self) -> Option<i64> {
        self.depth.as_ref().map(Depth::k)
    }

    /// Whether operands are rounded (tf32).
    pub(super) fn rounds(&self) -> bool {
        self.element == DType::F32
    }

    /// Work per operation of a tile of this size.
    pub(super) fn work(&self, cta: [i64; 2]) -> TensorWork {
        let operands = match self.element.bytes() {
            1 => Operands::Int8,
            2 => Operands::Half,
            _ => Operands::Tf32,
        };
        TensorWork { operands, operations: 1.0, efficiency: efficiency(cta), block_clocks: 0.0 }
    }

    /// The instruction with N = `n`.
    pub(super) fn instruction(&self, n: i64) -> WgmmaInstruction {
        WgmmaInstruction {
            n,
            bytes: self.element.bytes() as i64,
            operands: self.names,
            a_in_registers: false,
            k_major: self.k_major,
            steps: 1,
        }
    }

    /// The instruction that adds up rows of an operand, its A: 8 columns of ones are its B.
    pub(super) fn summing(&self, summed: Reduced) -> WgmmaInstruction {
        let [a, b] = self.k_major;
        let k_major = [if summed == Reduced::B { b } else { a }, true];
        WgmmaInstruction { k_major, ..self.instruction(8) }
    }

    /// A word of ones.
    pub(super) fn ones(&self) -> &'static str {
        ones(self.names[0])
    }
}

/// Fraction of tensor core peak, limited by shared memory: per 32 bytes of K, TMA writes the tile's
/// rows and columns, and each m64 MMA reads its own rows and all columns, at 128 bytes per cycle.
pub(super) fn efficiency([cta_m, cta_n]: [i64; 2]) -> f64 {
    let lines = cta_m + cta_n + cta_m / WGMMA_M * (WGMMA_M + cta_n);
    (cycles([cta_m, cta_n]) * 128.0 / (32 * lines) as f64).min(1.0)
}
