//! Generation of C++ identifiers from tensor names: readable, unique and never reserved.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

/// Words that a generated identifier must not shadow: C++ keywords, the device functions that
/// programs call, and names used by the templates. Generated identifiers are lower case, unlike
/// constants, types and CUDA's built-in variables, so these need no entry.
const RESERVED: &str = "\
    alignas alignof and and_eq asm at auto begin bf16 bitand bitor block_combine bool bool8 break \
    c case catch ceil chain char char16_t char32_t char8_t chunk chunk_at class co_await co_return \
    co_yield column columns combine_threads compl concept const const_cast consteval constexpr \
    constinit continue cos count decltype default delete do double dynamic_cast else end enum erf \
    exp explicit export extents extern f16 f64 fabs false first float floor fma fmax fmax_nan fmin \
    fmin_nan fmod for friend goto greater i i32 i64 i8 if index_t inline int is_first item j \
    kept_at lane last lesser line live load load_strided log long main max memcpy min mutable \
    namespace new noexcept not not_eq nullptr offset op operator or or_eq other outer p point \
    pointwise pow private protected public r read reduce reduced_at reduction register \
    reinterpret_cast requires return row row_at rows rsqrt s16 s8 segment short signed sin sizeof \
    slot sqrt static static_assert static_cast step store store_strided struct switch tan tanh \
    template this thread thread_local thread_x thread_y throw tile to_odd true try typedef typeid \
    typename u16 u32 u64 u8 union unsigned using valid virtual void volatile warp wchar_t while \
    whole widen written xor xor_eq";

/// Suffixes the templates append to a tensor's identifier.
const SUFFIXES: &[&str] = &[
    "",
    "_in",
    "_out",
    "_value",
    "_layout",
    "_strides",
    "_kept",
    "_row",
    "_terms",
    "_partial",
    "_partials",
    "_places",
    "_offset",
    "_from",
    "_values",
    "_warps",
    "_block",
    "_welford",
    "_own",
    "_share",
    "_count",
    "_next",
    "_staged",
];

/// [`RESERVED`].
static WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| RESERVED.split_ascii_whitespace().collect());

/// What two identifiers may differ by at their ends where each with some suffix is the same word.
static DIFFERENCES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let pairs = SUFFIXES.iter().flat_map(|long| SUFFIXES.iter().map(move |short| (long, short)));
    pairs.filter_map(|(long, short)| long.strip_suffix(short)).collect()
});

/// Identifiers in use in a kernel; each is reserved with every suffix.
#[derive(Debug, Clone, Default)]
pub struct Identifiers {
    taken: HashSet<String>,
    /// Next counter for a base that is in use.
    next: HashMap<String, usize>,
}

impl Identifiers {
    /// Returns an empty set of identifiers.
    pub fn new() -> Self {
        Identifiers::default()
    }

    /// Returns a set in which `words`, which the kernel's own text uses, are reserved.
    pub fn reserving(words: &[impl AsRef<str>]) -> Self {
        let taken = words.iter().map(|word| word.as_ref().to_owned()).collect();
        Identifiers { taken, ..Identifiers::default() }
    }

    /// Derives the base identifier of a tensor name: the last component of a dotted or slashed path
    /// in lower case, with characters that C++ does not allow replaced. `layers.3.bias` and
    /// `layers.4.bias` both yield `bias`, so the layers of a model share kernels.
    pub fn base(name: &str) -> String {
        let last = name.rsplit(['.', '/', ':']).find(|part| !part.is_empty()).unwrap_or("");
        let mut base: String = last
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
            .collect::<String>()
            .trim_matches('_')
            .to_owned();
        // C++ reserves double underscores.
        while base.contains("__") {
            base = base.replace("__", "_");
        }
        if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) {
            base.insert(0, 't');
        }
        base.truncate(40);
        base
    }

    /// Returns an unused identifier for a tensor name.
    pub fn fresh(&mut self, name: &str) -> String {
        let base = Identifiers::base(name);
        let mut number = self.next.get(&base).copied().unwrap_or(1);
        let candidates = std::iter::from_fn(|| {
            number += 1;
            Some(if number == 2 { base.clone() } else { format!("{base}{}", number - 1) })
        });
        let mut candidates = candidates;
        let free = |candidate: &String| self.is_free(candidate);
        let found = candidates.find(free).expect("some number is free");
        self.next.insert(base, number);
        self.taken.insert(found.clone());
        found
    }

    /// Whether a candidate is neither reserved nor in use, with any suffix.
    fn is_free(&self, candidate: &str) -> bool {
        let with = |suffix: &str| format!("{candidate}{suffix}");
        !SUFFIXES.iter().any(|suffix| WORDS.contains(with(suffix).as_str()))
            && !DIFFERENCES.iter().any(|difference| {
                let shorter = candidate.strip_suffix(difference);
                shorter.is_some_and(|shorter| self.taken.contains(shorter))
                    || self.taken.contains(&with(difference))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        let mut names = Identifiers::new();
        assert_eq!(names.fresh("layers.3.bias"), "bias");
        assert_eq!(names.fresh("layers/4/bias"), "bias2");
        assert_eq!(names.fresh("float"), "float2");
        assert_eq!(names.fresh("3 x 3"), "t3_x_3");
        assert_eq!(names.fresh("größe"), "gr_e");
        assert_eq!(names.fresh("THREADS"), "threads");
        assert_eq!(names.fresh("重み"), "t");
        assert_eq!(names.fresh("x"), "x");
        assert_eq!(names.fresh("x_in"), "x_in2");
    }
}
