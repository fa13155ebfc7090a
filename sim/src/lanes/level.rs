//! Multiversioning: code over lanes is compiled for each instruction-set level, and the best
//! supported one is called. `v3` is x86-64-v3, with vectors of eight words; everything else is the
//! baseline.

/// Whether the processor supports `v3`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_v3() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2")
        && has!("fma")
        && has!("f16c")
        && has!("bmi1")
        && has!("bmi2")
        && has!("lzcnt")
        && has!("popcnt")
}

/// Whether the processor supports `v3`.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has_v3() -> bool {
    false
}

/// Declares a function that is compiled for each level, including what it inlines; the first
/// expression is the result of [`has_v3`].
macro_rules! leveled {
    ($has_v3:expr => $(#[$doc:meta])* $vis:vis fn $name:ident $(<const $n:ident: $n_ty:ty>)?
        ($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(unsafe_code, reason = "only the processor says which instructions it has")]
        $vis fn $name $(<const $n: $n_ty>)? ($($arg: $ty),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            if $has_v3 {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(unused_variables, reason = "some only say which level there is")]
                fn v3 $(<const $n: $n_ty>)? ($($arg: $ty),*) $(-> $out)? $body
                // SAFETY: the processor supports these instructions.
                return unsafe { v3 $(::<$n>)? ($($arg),*) };
            }
            $body
        }
    };
}
pub(crate) use leveled;
