//! Comparison operators by name and type.

use super::float::flushed;
use crate::half::{Bf16, F16};
use crate::lanes::{self, handler};
use crate::op::Handler;
use crate::types::Type;

/// Every comparison operator.
pub(super) const RELATIONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

macro_rules! by_relation {
    ($ty:ty, $relation:expr, $make:ident $(, $flush:expr)?) => {
        match $relation {
            "eq" => Some($make::<lanes::Equal<$ty>>($($flush)?)),
            "ne" => Some($make::<lanes::NotEqual<$ty>>($($flush)?)),
            "lt" | "lo" => Some($make::<lanes::Less<$ty>>($($flush)?)),
            "le" | "ls" => Some($make::<lanes::LessEqual<$ty>>($($flush)?)),
            "gt" | "hi" => Some($make::<lanes::Greater<$ty>>($($flush)?)),
            "ge" | "hs" => Some($make::<lanes::GreaterEqual<$ty>>($($flush)?)),
            _ => None,
        }
    };
}

macro_rules! by_float_relation {
    ($ty:ty, $relation:expr, $make:ident $(, $flush:expr)?) => {
        match $relation {
            "equ" => Some($make::<lanes::EqualUnordered<$ty>>($($flush)?)),
            "neu" => Some($make::<lanes::NotEqualUnordered<$ty>>($($flush)?)),
            "ltu" => Some($make::<lanes::LessUnordered<$ty>>($($flush)?)),
            "leu" => Some($make::<lanes::LessEqualUnordered<$ty>>($($flush)?)),
            "gtu" => Some($make::<lanes::GreaterUnordered<$ty>>($($flush)?)),
            "geu" => Some($make::<lanes::GreaterEqualUnordered<$ty>>($($flush)?)),
            "num" => Some($make::<lanes::BothNumbers<$ty>>($($flush)?)),
            "nan" => Some($make::<lanes::EitherNan<$ty>>($($flush)?)),
            other => by_relation!($ty, other, $make $(, $flush)?),
        }
    };
}

/// Comparison for a type; `lo`, `ls`, `hi` and `hs` are unsigned.
pub(super) fn comparison(relation: &str, ty: Type, flush: bool) -> Option<Handler> {
    let unsigned = matches!(relation, "lo" | "ls" | "hi" | "hs");
    if flush && !matches!(ty, Type::F32 | Type::F16) || unsigned && ty.signed() {
        return None;
    }
    match ty {
        Type::U16 | Type::B16 => by_relation!(u16, relation, handler),
        Type::S16 => by_relation!(i16, relation, handler),
        Type::U32 | Type::B32 => by_relation!(u32, relation, handler),
        Type::S32 => by_relation!(i32, relation, handler),
        Type::U64 | Type::B64 => by_relation!(u64, relation, handler),
        Type::S64 => by_relation!(i64, relation, handler),
        _ if unsigned => None,
        Type::F32 => by_float_relation!(f32, relation, flushed, flush),
        Type::F64 => by_float_relation!(f64, relation, handler),
        Type::F16 => by_float_relation!(F16, relation, flushed, flush),
        Type::Bf16 => by_float_relation!(Bf16, relation, handler),
        _ => None,
    }
}

/// Value of `set` for a true comparison of 16-bit elements.
pub(super) fn truth(result: Type) -> Option<i64> {
    match result {
        Type::F16 | Type::F16x2 => Some(0x3c00),
        Type::Bf16 | Type::Bf16x2 => Some(0x3f80),
        Type::U16 | Type::S16 => Some(0xffff),
        _ => None,
    }
}
