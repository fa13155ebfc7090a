//! What multiplies and adds, as templates render it: an expression of one lane, `mma.sync` and
//! Hopper's `wgmma.mma_async`.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::graph::MatmulMath;
use crate::target::Arch;

/// The one architecture with `wgmma`.
const WGMMA_ARCH: Arch = Arch { capability: 90, specific: true };

/// The first compute capability with `cp.async`, MMAs of 32 bytes of K, and of bf16 and tf32.
pub(super) const AMPERE: u16 = 80;

/// The least architecture that has the instructions of [`MmaInstruction::on`], in a kernel's name.
pub(super) fn mma_sm(arch: Arch) -> &'static str {
    if arch.capability < AMPERE { "sm75" } else { "sm80" }
}

/// Checks that an architecture has `wgmma`.
///
/// # Errors
/// `NotSupported` for any other architecture.
pub(super) fn expect_wgmma(arch: Arch) -> Result<()> {
    match arch == WGMMA_ARCH {
        true => Ok(()),
        false => Err(Error::not_supported(format!("{arch} is not {WGMMA_ARCH}"))),
    }
}

/// C++ expression of `sum` plus `x` times `y`.
pub(super) fn multiply_add(math: MatmulMath) -> &'static str {
    match math {
        // Unsigned: integer accumulators wrap around.
        MatmulMath::I32 => "int(unsigned(x) * unsigned(y) + unsigned(sum))",
        _ => "fma(x, y, sum)",
    }
}

/// Threads of a warpgroup.
pub(super) const WARPGROUP: i64 = 128;

/// M of a `wgmma`.
pub(super) const WGMMA_M: i64 = 64;

/// Registers in one line of the source, and groups of 4.
const REGISTERS_LINE: i64 = 12;
const GROUPS_LINE: i64 = 4;

/// Bytes of K of one instruction.
const K_BYTES: i64 = 32;

/// An `mma.sync` of 16 rows and 8 columns (`device/ptx/mma.cuh`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct MmaInstruction {
    shape: String,
    /// Types of the operands as the instruction names them.
    a: &'static str,
    b: &'static str,
    #[serde(flatten)]
    accumulator: Accumulator,
}

/// The type of accumulators: in the instruction's name, in C++, and in constraints of `asm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Accumulator {
    sum: &'static str,
    sum_type: &'static str,
    constraint: &'static str,
}

impl Accumulator {
    const F32: Accumulator = Accumulator { sum: "f32", sum_type: "float", constraint: "f" };
    const S32: Accumulator = Accumulator { sum: "s32", sum_type: "int", constraint: "r" };

    /// That of operands of a type as an instruction names it.
    fn of(operand: &str) -> Accumulator {
        if ["s8", "u8"].contains(&operand) { Accumulator::S32 } else { Accumulator::F32 }
    }
}

impl MmaInstruction {
    /// The instruction for operands of these types, of which 32 bytes are `k` elements.
    pub(super) fn new(k: i64, [a, b]: [&'static str; 2]) -> MmaInstruction {
        MmaInstruction { shape: format!("m16n8k{k}"), a, b, accumulator: Accumulator::of(a) }
    }

    /// The instruction that an architecture has: those before sm_80 have half of that of f16, and
    /// a quarter of that of 8-bit integers.
    pub(super) fn on(self, arch: Arch) -> MmaInstruction {
        let shape = match self.shape.as_str() {
            "m16n8k16" if arch.capability < AMPERE => "m16n8k8".to_owned(),
            "m16n8k32" if arch.capability < AMPERE => "m8n8k16".to_owned(),
            _ => self.shape,
        };
        MmaInstruction { shape, ..self }
    }
}

/// A `wgmma` of [`WGMMA_M`] rows and `n` columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WgmmaInstruction {
    /// A multiple of 8 up to 256.
    pub(super) n: i64,
    /// Bytes of an element of both operands.
    pub(super) bytes: i64,
    /// Types of the operands as the instruction names them.
    pub(super) operands: [&'static str; 2],
    /// Whether threads have A in their registers, 16 rows each warp.
    pub(super) a_in_registers: bool,
    /// Whether A and B in shared memory are K-major.
    pub(super) k_major: [bool; 2],
    /// K steps, one instruction each, in one `asm` statement: compile time grows with accumulators
    /// per statement, which all of its instructions share.
    pub(super) steps: i64,
}

/// A [`WgmmaInstruction`] as `device/ptx/wgmma.cuh` reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct WgmmaParameters {
    /// The function's name.
    name: &'static str,
    n: i64,
    shape: String,
    a: &'static str,
    b: &'static str,
    #[serde(flatten)]
    accumulator: Accumulator,
    a_in_registers: bool,
    /// Groups of 8 columns.
    fragments: i64,
    /// Operand numbers of accumulators, by line.
    lines: Vec<Vec<i64>>,
    /// Groups of columns, by line.
    columns: Vec<Vec<i64>>,
    steps: Vec<Step>,
    /// Descriptor offsets of the steps but the first.
    constants: Vec<String>,
    /// Operand that says whether to add to the accumulators.
    adds: String,
    /// Scales and transpositions.
    literals: String,
}

/// One instruction of a statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Step {
    /// Instructions that compute its descriptors.
    moves: Vec<String>,
    operands: String,
}

impl WgmmaParameters {
    /// The same under a name of its own, where another has the same accumulators and operands.
    pub(super) fn named(self, name: &'static str) -> WgmmaParameters {
        WgmmaParameters { name, ..self }
    }
}

impl WgmmaInstruction {
    pub(super) fn parameters(&self) -> WgmmaParameters {
        let WgmmaInstruction { n, bytes, operands, a_in_registers, k_major, steps } = *self;
        let accumulators = WGMMA_M * n / WARPGROUP;
        let transposed = k_major.map(|k_major| i32::from(!k_major));
        let literals = match (bytes, a_in_registers) {
            (2, false) => format!(", 1, 1, {}, {}", transposed[0], transposed[1]),
            (2, true) => format!(", 1, 1, {}", transposed[1]),
            (4, _) => ", 1, 1".to_owned(),
            _ => String::new(),
        };
        let lines = |count: i64, each: i64| -> Vec<Vec<i64>> {
            let firsts = (0..count).step_by(each as usize);
            firsts.map(|first| (first..count.min(first + each)).collect()).collect()
        };
        // Operands of the statement: accumulators, A, B, whether to add, and how far every step
        // but the first is from it, of A and of B.
        let operand = |at: i64| format!("%{}", accumulators + at);
        let b = if a_in_registers { 4 * steps } else { 1 };
        let adds = operand(b + 1);
        // Matrices in shared memory: their names in the statement, their types, their first
        // descriptors.
        let first_a = (!a_in_registers).then(|| ("a", "A", operand(0)));
        let shared: Vec<_> = first_a.into_iter().chain([("b", "B", operand(b))]).collect();
        let offsets = (1..steps).flat_map(|step| {
            let k = step * K_BYTES / bytes;
            shared.iter().map(move |(_, of, _)| format!("{of}::offset(0, {k})"))
        });
        let constants: Vec<String> = offsets.collect();
        let step = |step: i64| {
            let registers = || [0, 1, 2, 3].map(|at| operand(4 * step + at)).join(", ");
            let a = a_in_registers.then(|| format!("{{ {}}}", registers()));
            let descriptors = shared.iter().map(|(name, _, first)| match step {
                0 => first.clone(),
                _ => (*name).to_owned(),
            });
            let operands: Vec<String> = a.into_iter().chain(descriptors).collect();
            let offsets = (b + 2 + (step - 1) * shared.len() as i64..).map(operand);
            let moved = shared.iter().zip(offsets).filter(|_| step > 0);
            let moves = moved
                .map(|((name, _, first), offset)| format!("add.s64 {name}, {first}, {offset};"));
            let all = (step == 1).then(|| format!("setp.eq.b32 adds, {adds}, {adds};"));
            Step { moves: moves.chain(all).collect(), operands: operands.join(", ") }
        };
        WgmmaParameters {
            name: "wgmma",
            n,
            shape: format!("m{WGMMA_M}n{n}k{}", K_BYTES / bytes),
            a: operands[0],
            b: operands[1],
            accumulator: Accumulator::of(operands[0]),
            a_in_registers,
            fragments: n / 8,
            lines: lines(accumulators, REGISTERS_LINE),
            columns: lines(n / 8, GROUPS_LINE),
            steps: (0..steps).map(step).collect(),
            constants,
            adds,
            literals,
        }
    }
}

/// The word of ones of a floating-point type, as instructions name it.
pub(super) fn ones(operand: &str) -> &'static str {
    match operand {
        "f16" => "0x3c003c00",
        "bf16" => "0x3f803f80",
        _ => "0x3f800000",
    }
}

/// Cycles of the tensor cores for 32 bytes of K of a tile: a `wgmma` of n columns takes n / 2.
pub(super) fn cycles([rows, columns]: [i64; 2]) -> f64 {
    (rows * columns) as f64 / (2 * WGMMA_M) as f64
}
