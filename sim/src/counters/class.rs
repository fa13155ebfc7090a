//! Instruction classes by opcode.

use crate::types::Type;
use std::fmt;

macro_rules! classes {
    ($($(#[$meta:meta])* $class:ident = $name:literal,)*) => {
        /// Class of an instruction: the part of an SM that it occupies.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[non_exhaustive]
        pub enum InstructionClass {
            $($(#[$meta])* $class,)*
        }

        impl InstructionClass {
            /// Every class, in table order.
            pub const ALL: [InstructionClass; [$($name),*].len()] = [$($class),*];

            /// Name in tables.
            pub fn name(self) -> &'static str {
                match self {
                    $($class => $name,)*
                }
            }
        }
    };
}

classes! {
    /// Integer arithmetic and logic, moves, selections and address arithmetic.
    #[default]
    Integer = "integer",
    /// Single precision.
    F32 = "f32",
    /// Double precision.
    F64 = "f64",
    /// Half precision and bfloat16.
    Half = "half",
    /// Conversions between types.
    Conversion = "conversion",
    /// Reciprocals, square roots, exponentials, trigonometric functions.
    SpecialFunction = "special function",
    /// Loads from global memory.
    LoadGlobal = "load global",
    /// Loads from shared memory.
    LoadShared = "load shared",
    /// Loads from local memory.
    LoadLocal = "load local",
    /// Loads of parameters and constants.
    LoadParam = "load param",
    /// Loads through a generic address.
    LoadGeneric = "load generic",
    /// Stores to global memory.
    StoreGlobal = "store global",
    /// Stores to shared memory.
    StoreShared = "store shared",
    /// Stores to local memory and parameters.
    StoreLocal = "store local",
    /// Stores through a generic address.
    StoreGeneric = "store generic",
    /// Atomics and reductions.
    Atomic = "atomic",
    /// Block and warp barriers, fences, waits.
    Barrier = "barrier",
    /// Shuffles and other exchanges between lanes.
    Exchange = "exchange",
    /// Branches, calls and exits.
    Control = "control",
    /// MMA, and matrix loads from shared memory.
    Tensor = "tensor",
    /// Asynchronous copies.
    Copy = "copy",
}

use InstructionClass::*;

/// Classes with their opcodes. Arithmetic opcodes are classified by type if that is floating-point.
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
    /// Class of an opcode with its modifiers.
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
}

/// Class by operand type, the last type among the modifiers.
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
