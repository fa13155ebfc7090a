//! MMA work: multiply-adds per warp instruction, by operand type.

use crate::format::Format;
use kiln_machine::Operands;

/// MMA counts of an operand type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ProductCount {
    /// Operand type.
    pub operands: Operands,
    /// Instructions, counted once per warp.
    pub warp_instructions: u64,
    /// Multiply-adds.
    pub multiply_adds: u64,
}

/// The kind of operands of this format; none has products of it where the result is `None`.
fn operands(format: Format) -> Option<Operands> {
    Some(match format {
        Format::F16 | Format::Bf16 => Operands::Half,
        Format::Tf32 => Operands::Tf32,
        Format::F64 => Operands::F64,
        // Narrower elements count like those of 8 bits.
        Format::E4m3 | Format::E5m2 | Format::E3m2 | Format::E2m3 => Operands::F8,
        Format::E2m1 | Format::E2m1Byte => Operands::F8,
        Format::S8 | Format::U8 => Operands::Int8,
        Format::S4 | Format::U4 => Operands::Int4,
        Format::F32 | Format::S32 => return None,
    })
}

/// Warps per warpgroup.
const WARPGROUP_WARPS: u64 = 4;

/// Operand type and multiply-adds per warp of an MMA instruction; `None` for other instructions.
/// The second format among the modifiers is that of the operands.
pub(crate) fn product(opcode: &str, modifiers: &[String]) -> Option<(Operands, u64)> {
    let warps = match opcode {
        "mma" => 1,
        "wgmma" => WARPGROUP_WARPS,
        _ => return None,
    };
    let [m, n, k] = modifiers.iter().find_map(|modifier| Format::shape(modifier))?;
    let operand = modifiers.iter().filter_map(|modifier| Format::from_name(modifier)).nth(1)?;
    // Zeros that are not stored are not multiplied.
    let sparse = modifiers.iter().any(|modifier| modifier.starts_with("sp"));
    let parts = if sparse { 2 * warps } else { warps };
    Some((operands(operand)?, u64::from(m * n * k) / parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplications_of_names() {
        let of = |opcode: &str, modifiers: &str| {
            let modifiers: Vec<String> = modifiers.split('.').map(str::to_string).collect();
            product(opcode, &modifiers)
        };
        let mma = "sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
        assert_eq!(of("mma", mma), Some((Operands::Half, 16 * 8 * 16)));
        let mma = "sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32";
        assert_eq!(of("mma", mma), Some((Operands::Int8, 16 * 8 * 32)));
        let mma = "sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32";
        assert_eq!(of("mma", mma), Some((Operands::Half, 16 * 8 * 16)));
        let wgmma = "mma_async.sync.aligned.m64n128k8.f32.tf32.tf32";
        assert_eq!(of("wgmma", wgmma), Some((Operands::Tf32, 64 * 128 * 8 / 4)));
        assert_eq!(of("wgmma", "commit_group.sync.aligned"), None);
        assert_eq!(of("ldmatrix", "sync.aligned.m8n8.x4.shared.b16"), None);
    }
}
