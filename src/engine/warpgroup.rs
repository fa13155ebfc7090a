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

/// A product of [`ROWS`] rows and `n` columns, 32 bytes deep.
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
}

impl WarpgroupProduct {
    /// What it is rendered with (`device/ptx/wgmma.cuh`).
    pub(super) fn parameters(&self) -> Json {
        let WarpgroupProduct { n, bytes, operands, integers, a_in_registers, depth_packed } = *self;
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
        let operand = |at: i64| format!("%{}", sums + at);
        let (a, b) = match a_in_registers {
            true => (format!("{{ {}}}", [0, 1, 2, 3].map(operand).join(", ")), 4),
            false => (operand(0), 1),
        };
        json!({
            "n": n,
            "shape": format!("m{ROWS}n{n}k{}", 32 / bytes),
            "a": operands[0],
            "b": operands[1],
            "sum": if integers { "s32" } else { "f32" },
            "sum_type": if integers { "int" } else { "float" },
            "constraint": if integers { "r" } else { "f" },
            "a_in_registers": a_in_registers,
            "fragments": n / 8,
            "lines": lines(sums, REGISTERS_LINE),
            "columns": lines(n / 8, REGISTERS_LINE / 4),
            "operands": format!("{a}, {}", operand(b)),
            "adds": sums + b + 1,
            "literals": literals,
        })
    }
}

/// Cycles of the tensor cores for 32 bytes of the depth of a tile: a product of 64 rows and n
/// columns takes n / 2.
pub(super) fn cycles([rows, columns]: [i64; 2]) -> f64 {
    (rows * columns) as f64 / (2 * ROWS) as f64
}
