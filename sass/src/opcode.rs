//! Opcodes: the low 12 bits of an instruction, of which the upper 3 say where its operands are.

use serde::Serialize;

/// The part of an SM that executes an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pipe {
    /// Multiply-adds of f32.
    Fma,
    /// Multiply-adds of integers, by half of the same lanes.
    Imad,
    /// Integers, logic, comparisons, selections, minima.
    Alu,
    /// Pairs of f16 or bf16.
    Half,
    /// f64.
    Double,
    /// Transcendental functions and conversions.
    Special,
    /// Matrices.
    Tensor,
    /// Loads, stores, atomics, shuffles.
    Memory,
    /// Values that are the same for a warp.
    Uniform,
    /// Copies by TMA.
    Copy,
    /// Barriers and fences.
    Sync,
    /// Branches.
    Branch,
}

impl Pipe {
    /// Every pipe.
    pub const ALL: [Pipe; 12] = [
        Pipe::Fma,
        Pipe::Imad,
        Pipe::Alu,
        Pipe::Half,
        Pipe::Double,
        Pipe::Special,
        Pipe::Tensor,
        Pipe::Memory,
        Pipe::Uniform,
        Pipe::Copy,
        Pipe::Sync,
        Pipe::Branch,
    ];

    /// Whether all four schedulers of an SM share it; else each has its own.
    pub fn is_shared(self) -> bool {
        matches!(self, Pipe::Memory | Pipe::Copy)
    }

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Pipe::Fma => "FMA",
            Pipe::Imad => "IMAD",
            Pipe::Alu => "ALU",
            Pipe::Half => "half",
            Pipe::Double => "double",
            Pipe::Special => "MUFU",
            Pipe::Tensor => "tensor",
            Pipe::Memory => "LSU",
            Pipe::Uniform => "uniform",
            Pipe::Copy => "TMA",
            Pipe::Sync => "sync",
            Pipe::Branch => "branch",
        }
    }
}

/// What an instruction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opcode {
    /// Its mnemonic without modifiers, as NVIDIA's disassembler prints it; `?` if unknown.
    pub name: &'static str,
    /// What executes it.
    pub pipe: Pipe,
}

const UNKNOWN: Opcode = Opcode { name: "?", pipe: Pipe::Alu };

/// Opcodes by their low 9 bits.
const OPCODES: &[(u16, &str, Pipe)] = {
    use Pipe::*;
    &[
        (0x001, "PMTRIG", Branch),
        (0x002, "MOV", Alu),
        (0x003, "P2R", Alu),
        (0x004, "R2P", Alu),
        (0x005, "CS2R", Alu),
        (0x006, "VOTE", Alu),
        (0x007, "SEL", Alu),
        (0x008, "FSEL", Alu),
        (0x009, "FMNMX", Alu),
        (0x00a, "FSET", Alu),
        (0x00b, "FSETP", Alu),
        (0x00c, "ISETP", Alu),
        (0x010, "IADD3", Alu),
        (0x011, "LEA", Alu),
        (0x012, "LOP3", Alu),
        (0x013, "IABS", Alu),
        (0x014, "VABSDIFF", Alu),
        (0x015, "VABSDIFF4", Alu),
        (0x016, "PRMT", Alu),
        (0x017, "IMNMX", Alu),
        (0x019, "SHF", Alu),
        (0x01a, "SGXT", Alu),
        (0x01b, "BMSK", Alu),
        (0x01c, "PLOP3", Alu),
        (0x01f, "PLOP3", Alu),
        (0x020, "FMUL", Fma),
        (0x021, "FADD", Fma),
        (0x023, "FFMA", Fma),
        (0x024, "IMAD", Imad),
        (0x025, "IMAD", Imad),
        (0x026, "IDP", Imad),
        (0x027, "IMAD", Imad),
        (0x028, "DMUL", Double),
        (0x029, "DADD", Double),
        (0x02a, "DSETP", Double),
        (0x02b, "DFMA", Double),
        (0x02d, "PREEXIT", Branch),
        (0x02e, "ACQBULK", Sync),
        (0x02f, "ELECT", Alu),
        (0x030, "HADD2", Half),
        (0x031, "HFMA2", Half),
        (0x032, "HMUL2", Half),
        (0x033, "HSET2", Half),
        (0x034, "HSETP2", Half),
        (0x035, "IADD", Alu),
        (0x036, "VIADD", Alu),
        (0x037, "IMMA", Tensor),
        (0x038, "I2I", Alu),
        (0x03a, "MOVM", Memory),
        (0x03b, "LDSM", Memory),
        (0x03c, "HMMA", Tensor),
        (0x03d, "BMMA", Tensor),
        (0x03e, "F2FP", Alu),
        (0x03f, "DMMA", Tensor),
        (0x040, "HMNMX2", Alu),
        (0x043, "F2IP", Alu),
        (0x044, "STSM", Memory),
        (0x045, "I2FP", Alu),
        (0x046, "VIADDMNMX", Alu),
        (0x048, "VIMNMX", Alu),
        (0x049, "FFMA2", Fma),
        (0x04a, "FMUL2", Fma),
        (0x04b, "FADD2", Fma),
        (0x04c, "UVIRTCOUNT", Sync),
        (0x076, "FMNMX3", Alu),
        (0x07a, "QMMA", Tensor),
        (0x07f, "OMMA", Tensor),
        (0x082, "UMOV", Uniform),
        (0x083, "UP2UR", Uniform),
        (0x084, "UR2UP", Uniform),
        (0x086, "VOTEU", Alu),
        (0x087, "USEL", Uniform),
        (0x08c, "UISETP", Uniform),
        (0x090, "UIADD3", Uniform),
        (0x091, "ULEA", Uniform),
        (0x092, "ULOP3", Uniform),
        (0x096, "UPRMT", Uniform),
        (0x097, "UIADD3", Uniform),
        (0x099, "USHF", Uniform),
        (0x09a, "USGXT", Uniform),
        (0x09c, "UPLOP3", Uniform),
        (0x0a4, "UIMAD", Uniform),
        (0x0a5, "UIMAD", Uniform),
        (0x0a6, "UIMAD", Uniform),
        (0x0b9, "ULDC", Uniform),
        (0x0bd, "UFLO", Uniform),
        (0x0bf, "UPOPC", Uniform),
        (0x0ca, "R2UR", Alu),
        (0x0cb, "CS2UR", Uniform),
        (0x0cc, "CREDUX", Alu),
        (0x100, "FLO", Special),
        (0x101, "BREV", Special),
        (0x102, "FCHK", Special),
        (0x104, "F2F", Special),
        (0x105, "F2I", Special),
        (0x106, "I2F", Special),
        (0x107, "FRND", Special),
        (0x108, "MUFU", Special),
        (0x109, "POPC", Special),
        (0x110, "F2F", Special),
        (0x111, "F2I", Special),
        (0x112, "I2F", Special),
        (0x113, "FRND", Special),
        (0x118, "NOP", Branch),
        (0x119, "S2R", Memory),
        (0x11a, "DEPBAR", Branch),
        (0x11b, "ENDCOLLECTIVE", Branch),
        (0x11c, "B2R", Sync),
        (0x11d, "BAR", Sync),
        (0x140, "CCTL", Sync),
        (0x141, "BSYNC", Branch),
        (0x142, "BREAK", Branch),
        (0x143, "CALL", Branch),
        (0x144, "CALL", Branch),
        (0x145, "BSSY", Branch),
        (0x146, "YIELD", Branch),
        (0x147, "BRA", Branch),
        (0x148, "WARPSYNC", Branch),
        (0x149, "BRX", Branch),
        (0x14a, "JMP", Branch),
        (0x14c, "JMX", Branch),
        (0x14d, "EXIT", Branch),
        (0x14e, "LEPC", Branch),
        (0x150, "RET", Branch),
        (0x152, "RPCMOV", Branch),
        (0x153, "RPCMOV", Branch),
        (0x155, "BMOV", Branch),
        (0x156, "BMOV", Branch),
        (0x158, "BRXU", Branch),
        (0x15b, "KILL", Branch),
        (0x15c, "BPT", Branch),
        (0x15d, "NANOSLEEP", Branch),
        (0x17e, "LDG", Memory),
        (0x17f, "STG", Memory),
        (0x180, "LD", Memory),
        (0x181, "LDG", Memory),
        (0x182, "LDC", Memory),
        (0x183, "LDL", Memory),
        (0x184, "LDS", Memory),
        (0x185, "ST", Memory),
        (0x186, "STG", Memory),
        (0x187, "STL", Memory),
        (0x188, "STS", Memory),
        (0x189, "SHFL", Memory),
        (0x18a, "ATOM", Memory),
        (0x18b, "ATOM", Memory),
        (0x18c, "ATOMS", Memory),
        (0x18d, "ATOMS", Memory),
        (0x18e, "REDG", Memory),
        (0x18f, "CCTL", Sync),
        (0x190, "CCTLL", Sync),
        (0x192, "MEMBAR", Sync),
        (0x1a1, "MATCH", Memory),
        (0x1a2, "ATOM", Memory),
        (0x1a3, "ATOMG", Memory),
        (0x1a6, "REDG", Memory),
        (0x1a7, "SYNCS", Sync),
        (0x1a8, "ATOMG", Memory),
        (0x1a9, "ATOMG", Memory),
        (0x1aa, "QSPC", Memory),
        (0x1ab, "ERRBAR", Sync),
        (0x1ac, "LDCU", Memory),
        (0x1ae, "LDGSTS", Memory),
        (0x1af, "LDGDEPBAR", Memory),
        (0x1b0, "ARRIVES", Sync),
        (0x1b1, "SYNCS", Sync),
        (0x1b2, "SYNCS", Sync),
        (0x1b4, "UTMALDG", Copy),
        (0x1b5, "UTMASTG", Copy),
        (0x1b6, "UTMAREDG", Copy),
        (0x1b7, "UTMACMDFLUSH", Copy),
        (0x1b8, "UTMAPF", Copy),
        (0x1b9, "UTMACCTL", Copy),
        (0x1ba, "UBLKCP", Copy),
        (0x1bb, "UBLKRED", Copy),
        (0x1bc, "UBLKPF", Copy),
        (0x1bd, "STAS", Memory),
        (0x1be, "REDAS", Memory),
        (0x1c2, "R2UR", Alu),
        (0x1c3, "S2UR", Memory),
        (0x1c4, "REDUX", Alu),
        (0x1c5, "WARPGROUP", Sync),
        (0x1c6, "FENCE", Sync),
        (0x1c7, "UCGABAR", Sync),
        (0x1c8, "USETMAXREG", Sync),
        (0x1e3, "UTCATOMSWS", Sync),
        (0x1e7, "UTCCP", Copy),
        (0x1e9, "UTCBAR", Sync),
        (0x1ea, "UTCMMA", Tensor),
        (0x1ed, "STTM", Memory),
        (0x1ee, "LDTM", Memory),
        (0x1f0, "HGMMA", Tensor),
        (0x1f1, "IGMMA", Tensor),
        (0x1f3, "QGMMA", Tensor),
    ]
};

impl Opcode {
    /// The opcode of an instruction for this architecture, such as 90.
    pub(crate) fn of(word: u128, architecture: u32) -> Opcode {
        let code = word as u16 & 0xfff;
        // Additions of integers took what was a second code of `HFMA2`.
        if code & 0x1ff == 0x035 && architecture < 100 {
            return Opcode { name: "HFMA2", pipe: Pipe::Half };
        }
        // So did minima of uniform values that of `FMUL2`.
        if code & 0x1ff == 0x04a && architecture >= 120 {
            return Opcode { name: "UVIMNMX", pipe: Pipe::Uniform };
        }
        let found = OPCODES.binary_search_by_key(&(code & 0x1ff), |&(code, ..)| code);
        found.map_or(UNKNOWN, |at| Opcode { name: OPCODES[at].1, pipe: OPCODES[at].2 })
    }

    /// Whether the table has it.
    pub fn is_known(self) -> bool {
        self != UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(OPCODES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
