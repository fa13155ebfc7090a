//! Operands of `gemm_mma`: types of the instruction, and how they are loaded into shared memory.

use kiln_machine::Operands;

use crate::dtype::DType;
use crate::engine::access::{VECTOR_BYTES, ceil_div};
use crate::engine::gemm::layout::{access_of, placed_access};
use crate::engine::gemm::operand::OperandTile;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::instruction::AMPERE;
use crate::error::{Error, Result};
use crate::graph::MatmulMath;
use crate::target::Arch;

/// Rows and elements of K that a thread transposes at once.
const SQUARE: i64 = 4;

/// Size of a register, and of the least access of `cp.async`, in bytes.
const WORD_BYTES: i64 = 4;
const COPY_BYTES_MIN: i64 = 4;

/// Operand types of the MMA.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MmaTypes {
    /// Element types of A and B in shared memory.
    pub(super) elements: [DType; 2],
    /// Operand types as named by the instruction.
    pub(super) names: [&'static str; 2],
    /// Whether operands are rounded on the way to the MMA.
    pub(super) rounds: bool,
    /// Whether an operand is transposed on the way to shared memory.
    pub(super) transposes: bool,
    /// Whether `cp.async` copies what need not pass through registers.
    copies: bool,
}

impl MmaTypes {
    /// # Errors
    /// `NotSupported` for types without an MMA of sufficient precision.
    pub(super) fn of(problem: &Problem<'_>, arch: Arch) -> Result<MmaTypes> {
        let types = [&problem.a, &problem.b].map(|of| problem.graph.tensors[of.tensor].dtype);
        let all = |fits: &dyn Fn(DType) -> bool| types.iter().all(|dtype| fits(*dtype));
        let (elements, names, rounds) = match problem.matmul.math {
            MatmulMath::I32 if types.contains(&DType::I32) => {
                return Err(Error::not_supported("no tensor core multiplies integers of 32 bits"));
            }
            MatmulMath::I32 => {
                let names = types.map(|dtype| if dtype == DType::I8 { "s8" } else { "u8" });
                (types, names, false)
            }
            MatmulMath::F64 => {
                return Err(Error::not_supported("tensor cores are not used for f64"));
            }
            _ if all(&|dtype| dtype.fits_in(DType::F16)) => ([DType::F16; 2], ["f16"; 2], false),
            _ if all(&|dtype| dtype.fits_in(DType::Bf16)) => ([DType::Bf16; 2], ["bf16"; 2], false),
            // The 11 bits of tf32 hold those of f16, its 8 bits of exponent those of bf16.
            _ if all(&|dtype| dtype.bytes() <= 2) => ([DType::F32; 2], ["tf32"; 2], false),
            MatmulMath::Tf32 => ([DType::F32; 2], ["tf32"; 2], true),
            MatmulMath::F32 => {
                let [a, b] = types;
                return Err(Error::not_supported(format!(
                    "no tensor core multiplies {a} by {b} with the precision of f32"
                )));
            }
        };
        let copies = arch.capability >= AMPERE;
        if !copies && ["bf16", "tf32"].contains(&names[0]) {
            let text = format!("the tensor cores of {arch} multiply no {}", names[0]);
            return Err(Error::not_supported(text));
        }
        let operands = [&problem.a, &problem.b].into_iter().zip(elements);
        let transposes = operands.into_iter().any(|(of, element)| transposes(problem, of, element));
        let types = MmaTypes { elements, names, rounds, transposes, copies };
        if problem.dual.is_some() && types.tile(problem, false).staged {
            let (name, element) = (&problem.graph.tensors[problem.b.tensor].name, elements[1]);
            return Err(Error::not_supported(format!(
                "`{name}` cannot be copied as {element}, as operands of a dual GEMM are"
            )));
        }
        Ok(types)
    }

    pub(super) fn element_bytes(&self) -> i64 {
        self.elements[0].bytes() as i64
    }

    /// Values of `cta_k`: 64 or 128 bytes.
    pub(super) fn k_steps(&self) -> [i64; 2] {
        [64, 128].map(|bytes| bytes / self.element_bytes())
    }

    /// K of one MMA: 32 bytes.
    pub(super) fn mma_k(&self) -> i64 {
        32 / self.element_bytes()
    }

    /// Operand type for the cost model.
    pub(super) fn operands(&self) -> Operands {
        match self.element_bytes() {
            1 => Operands::Int8,
            2 => Operands::Half,
            _ => Operands::Tf32,
        }
    }

    /// Whether elements of an operand pass through registers.
    pub(super) fn is_staged(&self, problem: &Problem<'_>) -> bool {
        [true, false].into_iter().any(|is_a| self.tile(problem, is_a).staged)
    }

    /// Whether elements of an operand are found one by one through a window.
    pub(super) fn is_scattered(&self, problem: &Problem<'_>) -> bool {
        [true, false].into_iter().any(|is_a| self.tile(problem, is_a).scattered)
    }

    /// How A or B is loaded into shared memory.
    pub(super) fn tile(&self, problem: &Problem<'_>, is_a: bool) -> OperandTile {
        let (of, element) = match is_a {
            true => (&problem.a, self.elements[0]),
            false => (&problem.b, self.elements[1]),
        };
        let tensor = &problem.graph.tensors[of.tensor];
        let transposed = transposes(problem, of, element);
        let vector = if transposed { SQUARE } else { 16 / element.bytes() as i64 };
        let view = of.prologue.axes.view(tensor);
        let packed = if of.k_major { view.column } else { view.row } == 1;
        // Bytes of an access to a tensor, and how many more there are than of the widest.
        let accesses = |at: usize| {
            let tensor = &problem.graph.tensors[at];
            let view = of.prologue.axes.view(tensor);
            let step = if of.k_major { view.column } else { view.row };
            let access = match of.window {
                Some(_) => placed_access(tensor, step, vector),
                None => access_of(problem, at, &view, [of.extent, problem.k], of.k_major, vector),
            };
            let bytes = vector * tensor.dtype.bytes() as i64;
            let more = if step == 0 { 0 } else { bytes / access - ceil_div(bytes, VECTOR_BYTES) };
            (access, more)
        };
        let tensors = &problem.graph.tensors;
        let is_stored = |at: &usize| !tensors[*at].is_virtual && !tensors[*at].by_value;
        let stored = of.prologue.inputs().filter(is_stored);
        let most = stored.map(accesses).max_by_key(|(_, more)| *more);
        let (access, more) = most.unwrap_or((VECTOR_BYTES, 0));
        let scattered = of.is_scattered(problem, vector);
        let moved = of.is_plain() && !tensor.by_value && tensor.dtype == element;
        let whole = !scattered && !transposed && packed && access >= COPY_BYTES_MIN;
        let copied = self.copies && moved && whole;
        let layout = match transposed {
            true => "Swizzled<Element, ROWS, CTA_K, true>",
            false => "Swizzled<Element, ROWS, CTA_K, K_MAJOR>",
        };
        let staged = !copied;
        let joined = access < WORD_BYTES && more > 0;
        OperandTile {
            dtype: element,
            layout,
            vector,
            staged,
            transposed,
            scattered,
            moved,
            more,
            joined,
        }
    }
}

/// Whether an operand must be transposed on the way: `ldmatrix` cannot transpose single bytes.
fn transposes(problem: &Problem<'_>, of: &Operand, element: DType) -> bool {
    element.bytes() == 1 && !of.k_major && !of.is_scattered(problem, SQUARE)
}
