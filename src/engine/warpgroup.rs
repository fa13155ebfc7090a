//! The instruction that multiplies matrices on the tensor cores of Hopper (`wgmma.mma_async`), as
//! templates render it.

use serde_json::{Value as Json, json};

use crate::error::{Error, Result};
use crate::target::Arch;

/// The one architecture that has it.
const ARCH: Arch = Arch { capability: 90, specific: true };

/// # Errors
/// `NotSupported` for any other architecture.
pub(super) fn expect(arch: Arch) -> Result<()> {
    match arch == ARCH {
        true => Ok(()),
        false => Err(Error::not_supported(format!("{arch} is not {ARCH}"))),
    }
}

/// Threads of a warpgroup.
pub(super) const WARPGROUP: i64 = 128;

/// Rows of a product.
pub(super) const ROWS: i64 = 64;

/// Registers in one line of the source.
const REGISTERS_LINE: i64 = 16;

/// Bytes of the depth of one instruction.
const DEPTH_BYTES: i64 = 32;

/// A product of [`ROWS`] rows and `n` columns, 32 bytes deep for each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WarpgroupProduct {
    /// A multiple of 8 up to 256.
    pub(super) n: i64,
    /// Bytes of an element of both operands.
    pub(super) bytes: i64,
    /// Their types as the instruction names them.
    pub(super) operands: [&'static str; 2],
    /// Whether sums are 32-bit integers, or else f32.
    pub(super) integers: bool,
    /// Whether threads have A in their registers, 16 rows each warp.
    pub(super) a_in_registers: bool,
    /// Whether the depth is the packed dimension of A in shared memory, of B.
    pub(super) depth_packed: [bool; 2],
    /// Instructions of a statement. What the compiler does for a statement grows with its sums, of
    /// which instructions that follow each other have the same.
    pub(super) steps: i64,
}

impl WarpgroupProduct {
    /// What it is rendered with (`device/ptx/wgmma.cuh`).
    pub(super) fn parameters(&self) -> Json {
        let WarpgroupProduct { n, bytes, operands, integers, a_in_registers, depth_packed, steps } =
            *self;
        let sums = ROWS * n / WARPGROUP;
        let transposed = depth_packed.map(|packed| i32::from(!packed));
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
        // Operands of the statement: sums, A, B, whether to add, and how far every step but the
        // first is from it, of A and of B.
        let operand = |at: i64| format!("%{}", sums + at);
        let b = if a_in_registers { 4 * steps } else { 1 };
        let adds = operand(b + 1);
        // Matrices in shared memory: their names in the statement, their types, where they begin.
        let begin_a = (!a_in_registers).then(|| ("a", "A", operand(0)));
        let moving: Vec<_> = begin_a.into_iter().chain([("b", "B", operand(b))]).collect();
        let of_steps = (1..steps).flat_map(|step| {
            let depth = step * DEPTH_BYTES / bytes;
            moving.iter().map(move |(_, of, _)| format!("{of}::offset(0, {depth})"))
        });
        let constants: Vec<String> = of_steps.collect();
        let step = |step: i64| {
            let registers = || [0, 1, 2, 3].map(|at| operand(4 * step + at)).join(", ");
            let of_a = a_in_registers.then(|| format!("{{ {}}}", registers()));
            let matrices = moving.iter().map(|(name, _, begin)| match step {
                0 => begin.clone(),
                _ => (*name).to_owned(),
            });
            let taken: Vec<String> = of_a.into_iter().chain(matrices).collect();
            let distances = (b + 2 + (step - 1) * moving.len() as i64..).map(operand);
            let moved = moving.iter().zip(distances).filter(|_| step > 0);
            let moves = moved.map(|((name, _, begin), distance)| {
                format!("add.s64 {name}, {begin}, {distance};")
            });
            let all = (step == 1).then(|| format!("setp.eq.b32 adds, {adds}, {adds};"));
            json!({"moves": moves.chain(all).collect::<Vec<_>>(), "operands": taken.join(", ")})
        };
        let steps: Vec<Json> = (0..steps).map(step).collect();
        json!({
            "n": n,
            "shape": format!("m{ROWS}n{n}k{}", DEPTH_BYTES / bytes),
            "a": operands[0],
            "b": operands[1],
            "sum": if integers { "s32" } else { "f32" },
            "sum_type": if integers { "int" } else { "float" },
            "constraint": if integers { "r" } else { "f" },
            "a_in_registers": a_in_registers,
            "fragments": n / 8,
            "lines": lines(sums, REGISTERS_LINE),
            "columns": lines(n / 8, REGISTERS_LINE / 4),
            "steps": steps,
            "constants": constants,
            "adds": adds,
            "literals": literals,
        })
    }
}

/// Cycles of the tensor cores for 32 bytes of the depth of a tile: a product of 64 rows and n
/// columns takes n / 2.
pub(super) fn cycles([rows, columns]: [i64; 2]) -> f64 {
    (rows * columns) as f64 / (2 * ROWS) as f64
}
