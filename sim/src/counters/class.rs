//! The class of an instruction, by its opcode: one table, which new opcodes join.

use crate::types::Type;
use std::fmt;

/// What part of a multiprocessor an instruction keeps busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum InstructionClass {
    /// Integer and logic, moves, selections and address arithmetic.
    #[default]
    Integer,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Half precision and bfloat16.
    Half,
    /// Conversions between types.
    Conversion,
    /// Reciprocals, roots, exponentials, trigonometry.
    SpecialFunction,
    /// Loads from global memory.
    LoadGlobal,
    /// Loads from shared memory.
    LoadShared,
    /// Loads from local memory.
    LoadLocal,
    /// Loads of parameters and constants.
    LoadParam,
    /// Loads through a generic address.
    LoadGeneric,
    /// Stores to global memory.
    StoreGlobal,
    /// Stores to shared memory.
    StoreShared,
    /// Stores to local memory and parameters.
    StoreLocal,
    /// Stores through a generic address.
    StoreGeneric,
    /// Read-modify-writes.
    Atomic,
    /// Block and warp barriers, fences, waits.
    Barrier,
    /// Exchanges between lanes.
    Exchange,
    /// Branches, calls and exits.
    Control,
    /// Matrix products, and what feeds them from shared memory.
    Tensor,
    /// Asynchronous copies.
    Copy,
}

use InstructionClass::*;

/// Class, opcodes. An arithmetic opcode is classed by its type instead where it is a float.
const TABLE: [(InstructionClass, &[&str]); 9] = [
    (Conversion, &["cvt"]),
    (SpecialFunction, &["rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"]),
    (Atomic, &["atom", "red", "multimem"]),
    (Barrier, &["bar", "barrier", "fence", "membar", "nanosleep", "mbarrier", "griddepcontrol"]),
    (Exchange, &["shfl", "vote", "match", "redux", "activemask", "elect"]),
    (Control, &["bra", "brx", "call", "ret", "exit", "trap", "brkpt", "setmaxnreg"]),
    (Tensor, &["mma", "wgmma", "tcgen05", "wmma", "ldmatrix", "stmatrix", "movmatrix"]),
    (Copy, &["cp"]),
    (Integer, &["mov", "selp", "cvta", "isspacep", "mapa", "prmt", "lop3"]),
];

impl InstructionClass {
    /// Every class, in the order of tables.
    pub const ALL: [InstructionClass; 21] = [
        Integer,
        F32,
        F64,
        Half,
        Conversion,
        SpecialFunction,
        LoadGlobal,
        LoadShared,
        LoadLocal,
        LoadParam,
        LoadGeneric,
        StoreGlobal,
        StoreShared,
        StoreLocal,
        StoreGeneric,
        Atomic,
        Barrier,
        Exchange,
        Control,
        Tensor,
        Copy,
    ];

    /// The class of an opcode with its modifiers.
    pub(crate) fn of(opcode: &str, modifiers: &[String]) -> InstructionClass {
        let has = |name: &str| modifiers.iter().any(|modifier| modifier == name);
        let shared = modifiers.iter().any(|modifier| modifier.starts_with("shared"));
        match opcode {
            "ld" | "ldu" => match () {
                () if has("global") => LoadGlobal,
                () if shared => LoadShared,
                () if has("local") => LoadLocal,
                () if has("const") || modifiers.iter().any(|m| m.starts_with("param")) => LoadParam,
                () => LoadGeneric,
            },
            "st" => match () {
                () if has("global") => StoreGlobal,
                () if shared => StoreShared,
                () if has("local") || modifiers.iter().any(|m| m.starts_with("param")) => {
                    StoreLocal
                }
                () => StoreGeneric,
            },
            _ => {
                let row = TABLE.iter().find(|(_, names)| names.contains(&opcode));
                row.map_or_else(|| by_type(modifiers), |&(class, _)| class)
            }
        }
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Integer => "integer",
            F32 => "f32",
            F64 => "f64",
            Half => "half",
            Conversion => "conversion",
            SpecialFunction => "special function",
            LoadGlobal => "load global",
            LoadShared => "load shared",
            LoadLocal => "load local",
            LoadParam => "load param",
            LoadGeneric => "load generic",
            StoreGlobal => "store global",
            StoreShared => "store shared",
            StoreLocal => "store local",
            StoreGeneric => "store generic",
            Atomic => "atomic",
            Barrier => "barrier",
            Exchange => "exchange",
            Control => "control",
            Tensor => "tensor",
            Copy => "copy",
        }
    }
}

/// By the type of the operands, which is the last that the modifiers name.
fn by_type(modifiers: &[String]) -> InstructionClass {
    match modifiers.iter().rev().find_map(|modifier| Type::from_name(modifier)) {
        Some(Type::F32) => F32,
        Some(Type::F64) => F64,
        Some(Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2) => Half,
        _ => Integer,
    }
}

impl fmt::Display for InstructionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
