//! Instructions.

use crate::control::Control;
use crate::opcode::{Opcode, Pipe};
use std::fmt;

/// Bytes of an instruction.
pub(crate) const BYTES: u32 = 16;

/// The predicate that is always true.
const TRUE: u8 = 7;

/// An instruction with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Offset in the kernel, in bytes.
    pub address: u32,
    /// Its 128 bits.
    pub word: u128,
    /// What it does.
    pub opcode: Opcode,
    /// When it issues.
    pub control: Control,
    /// Line of the PTX that it comes from.
    pub ptx_line: Option<u32>,
    /// Line of the CUDA source that it comes from.
    pub source_line: Option<u32>,
    architecture: u32,
}

/// Where execution goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jump {
    /// At an address; some warps go on behind the instruction if it is conditional.
    To {
        /// The address.
        target: u32,
        /// Whether there is a condition.
        conditional: bool,
    },
    /// In a function, which returns behind the instruction, or at a label: ptxas leaves loops so up
    /// to sm_89.
    Call {
        /// The address.
        target: u32,
        /// Whether there is a condition.
        conditional: bool,
    },
    /// Nowhere, or behind the instruction where the condition does not hold.
    Exit {
        /// Whether there is a condition.
        conditional: bool,
    },
    /// At an address that a register holds.
    Indirect,
}

/// Work of a tensor core: MMAs of 16 x 8 elements and 32 bytes along K, of one warp.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Their number.
    pub tiles: f64,
    /// Whether the warpgroup multiplies, with operands in shared memory.
    pub asynchronous: bool,
    /// Bytes of shared memory that all warps of the warpgroup read for it.
    pub shared_bytes: u32,
}

impl Instruction {
    pub(crate) fn new(address: u32, word: u128, architecture: u32) -> Instruction {
        Instruction {
            address,
            word,
            opcode: Opcode::of(word, architecture),
            control: Control::of(word),
            ptx_line: None,
            source_line: None,
            architecture,
        }
    }

    fn field(&self, at: u32, bits: u32) -> u32 {
        (self.word >> at) as u32 & ((1 << bits) - 1)
    }

    /// The mnemonic without modifiers.
    pub fn name(&self) -> &'static str {
        self.opcode.name
    }

    /// The predicate on which the instruction depends, and whether it must be false.
    pub fn guard(&self) -> Option<(u8, bool)> {
        let (predicate, negated) = (self.field(12, 3) as u8, self.field(15, 1) == 1);
        (predicate != TRUE || negated).then_some((predicate, negated))
    }

    /// Where execution goes on, if not behind the instruction.
    pub fn jump(&self) -> Option<Jump> {
        let conditional = self.guard().is_some();
        match self.name() {
            // Its low bits tell apart: plain, by a uniform predicate, where the warp diverged, and
            // where it must converge. The last two go where a warp's lanes take turns.
            "BRA" => match self.field(32, 2) {
                0 => {
                    let uniform = self.field(8, 4) == 0x5;
                    let conditional = conditional || uniform;
                    Some(Jump::To { target: self.target(), conditional })
                }
                1 => Some(Jump::To { target: self.target(), conditional: true }),
                _ => None,
            },
            "JMP" => Some(Jump::To { target: self.target(), conditional }),
            "CALL" => Some(Jump::Call { target: self.target(), conditional }),
            "EXIT" | "KILL" => Some(Jump::Exit { conditional }),
            "RET" => Some(Jump::Exit { conditional }),
            "BRX" | "BRXU" | "JMX" => Some(Jump::Indirect),
            _ => None,
        }
    }

    /// The target of a branch. Distances are in words of 4 bytes; since Hopper their low 8 bits are
    /// where a destination is otherwise.
    fn target(&self) -> u32 {
        let far = ((self.word << (128 - 82)) as i128 >> (128 - 48)) as i64;
        let words = match self.architecture {
            90.. => far * 256 + i64::from(self.field(16, 8)),
            _ => far,
        };
        (i64::from(self.address + BYTES) + words * 4) as u32
    }

    /// The bits that are an immediate operand, where there is one.
    pub(crate) fn immediate(&self) -> u32 {
        (self.word >> 32) as u32
    }

    /// Bytes that each lane loads or stores, for instructions of memory.
    pub fn bytes(&self) -> u32 {
        match self.name() {
            "LDSM" | "STSM" => 4 << self.field(72, 2),
            "SHFL" | "S2R" | "S2UR" | "LDC" | "LDCU" => 4,
            _ if self.field(0, 9) == 0x17e || self.field(0, 9) == 0x17f => 32,
            _ => match self.field(73, 3) {
                0 | 1 => 1,
                2 | 3 => 2,
                4 => 4,
                5 => 8,
                _ => 16,
            },
        }
    }

    /// The function of a `MUFU`.
    pub fn function(&self) -> Option<&'static str> {
        const FUNCTIONS: [&str; 10] =
            ["COS", "SIN", "EX2", "LG2", "RCP", "RSQ", "RCP64H", "RSQ64H", "SQRT", "TANH"];
        if self.name() != "MUFU" {
            return None;
        }
        FUNCTIONS.get(self.field(74, 4) as usize).copied()
    }

    /// The scope of a `MEMBAR`.
    pub fn scope(&self) -> Option<&'static str> {
        const SCOPES: [&str; 4] = ["CTA", "SM", "GPU", "SYS"];
        if self.name() != "MEMBAR" {
            return None;
        }
        SCOPES.get(self.field(76, 3) as usize).copied()
    }

    /// Whether the instruction waits for a barrier in shared memory: `SYNCS.PHASECHK`.
    pub fn waits_for_barrier(&self) -> bool {
        self.name() == "SYNCS" && self.field(0, 12) == 0x5a7
    }

    /// The work of an instruction of tensor cores.
    pub fn shape(&self) -> Option<Shape> {
        let tiles = match self.name() {
            // 16x8x16 has this bit, 16x8x8 has not; TF32 has elements twice as long.
            "HMMA" if self.field(75, 1) == 1 || self.field(83, 1) == 1 => 1.0,
            "HMMA" => 0.5,
            // `DMMA` has a rate of its own.
            "IMMA" | "QMMA" | "BMMA" | "OMMA" | "DMMA" => 1.0,
            "HGMMA" | "IGMMA" | "QGMMA" => return Some(self.warpgroup_shape()),
            _ => return None,
        };
        Some(Shape { tiles, asynchronous: false, shared_bytes: 0 })
    }

    /// A warp multiplies 16 rows by all columns; a column has 32 bytes along K.
    fn warpgroup_shape(&self) -> Shape {
        let columns = (self.field(53, 5) + 1) * 8;
        let from_shared = self.field(0, 12) & 0xe00 == 0x800;
        let rows = if from_shared { 64 } else { 0 };
        Shape {
            tiles: f64::from(columns) / 8.0,
            asynchronous: true,
            shared_bytes: (columns + rows) * 32,
        }
    }

    /// Whether the asynchronous MMAs up to this one are a group.
    pub fn ends_group(&self) -> bool {
        self.shape().is_some_and(|shape| shape.asynchronous) && self.field(84, 3) != TRUE.into()
    }

    /// The number of groups of asynchronous MMAs that may be outstanding, of a
    /// `WARPGROUP.DEPBAR.LE`.
    pub fn groups_left(&self) -> Option<u32> {
        // `ARRIVE` has no number of a barrier.
        let waits = self.name() == "WARPGROUP" && self.field(47, 1) == 1;
        waits.then(|| self.field(72, 6))
    }

    /// The scoreboard and the number of its releases that may be outstanding, of a `DEPBAR.LE`.
    pub fn outstanding(&self) -> Option<(u8, u32)> {
        (self.name() == "DEPBAR").then(|| (self.field(44, 3) as u8, self.field(38, 6)))
    }
}

impl fmt::Display for Instruction {
    /// The mnemonic with what matters for time, and the first registers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((predicate, negated)) = self.guard() {
            write!(f, "@{}P{predicate} ", if negated { "!" } else { "" })?;
        }
        f.write_str(self.name())?;
        if let Some(detail) = self.function().or(self.scope()) {
            write!(f, ".{detail}")?;
        }
        if let Some(shape) = self.shape().filter(|shape| shape.asynchronous) {
            write!(f, ".64x{}", shape.tiles * 8.0)?;
        }
        let wide = matches!(
            self.name(),
            "LDG" | "STG" | "LDS" | "STS" | "LDL" | "STL" | "LD" | "ST" | "LDGSTS"
        );
        if wide {
            write!(f, ".{}", self.bytes() * 8)?;
        }
        match self.jump() {
            Some(Jump::To { target, .. }) => return write!(f, " {target:#x}"),
            Some(_) => return Ok(()),
            None => {}
        }
        let registers = [16, 24, 32, 64].map(|at| self.field(at, 8));
        if matches!(
            self.opcode.pipe,
            Pipe::Fma | Pipe::Imad | Pipe::Alu | Pipe::Half | Pipe::Double | Pipe::Special
        ) {
            write!(f, " R{}, R{}", registers[0], registers[1])?;
        }
        Ok(())
    }
}
