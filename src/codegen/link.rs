//! Dead-code elimination on rendered sources, with the problem's constants moved to the front.
//!
//! Templates include whole files of the device library. Linking keeps the definitions that are
//! reachable by name from the kernels, and of `#if __CUDA_ARCH__ >= N` the branch of the target
//! architecture. An overload or specialisation is kept only if the types in its signature are.
//! Constants and aliases without further dependencies move to the front.

use std::collections::{BTreeMap, BTreeSet};

use crate::codegen::items::{Group, Item, Kind, groups};

/// Returns the part of a source that its kernels reach, or the source itself if it does not parse.
pub(super) fn linked(text: &str, capability: u16) -> String {
    let text = for_architecture(text, u32::from(capability) * 10);
    let Some(source) = groups(&text) else { return text };
    let kept = reached(&source);
    let first = constants(&source, &kept);
    let mut out = String::with_capacity(text.len());
    for comment in source.iter().filter_map(Group::head) {
        out.push_str(comment);
        out.push('\n');
    }
    for group in &source {
        group.write(&mut out, |item| first.contains(&item.start));
    }
    for group in &source {
        group.write(&mut out, |item| kept.contains(&item.start) && !first.contains(&item.start));
    }
    out
}

/// Resolves `#if __CUDA_ARCH__ >= N` for the architecture.
fn for_architecture(text: &str, arch: u32) -> String {
    let mut out = String::with_capacity(text.len());
    // For every open `#if`: whether it tests __CUDA_ARCH__, and whether its branch is taken.
    let mut open: Vec<(bool, bool)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let directive = line.trim();
        let holds = |open: &[(bool, bool)]| open.iter().all(|(_, holds)| *holds);
        let least = directive.strip_prefix("#if __CUDA_ARCH__ >= ").map(str::parse::<u32>);
        let ours = match (least, directive, open.last_mut()) {
            (Some(Ok(least)), _, _) => {
                open.push((true, arch >= least));
                true
            }
            (_, "#else", Some((true, holds))) => {
                *holds = !*holds;
                true
            }
            (_, "#endif", Some((ours, _))) => {
                let ours = *ours;
                open.pop();
                ours
            }
            (_, other, _) => {
                if other.starts_with("#if") {
                    open.push((false, true));
                }
                false
            }
        };
        if !ours && holds(&open) {
            out.push_str(line);
        }
    }
    out
}

/// Byte offsets of the items that the kernels reach.
fn reached(source: &[Group<'_>]) -> BTreeSet<usize> {
    let items: Vec<&Item<'_>> = source.iter().flat_map(Group::all).collect();
    let types: BTreeSet<&str> = items
        .iter()
        .filter(|item| matches!(item.kind, Kind::Type | Kind::Alias))
        .flat_map(|item| item.names.iter().copied())
        .collect();
    let mut reached = Reached { types, names: BTreeSet::new(), kept: BTreeSet::new() };
    let scopes = scopes(source);
    loop {
        let before = reached.kept.len();
        scopes.values().for_each(|items| reached.take(items));
        if reached.kept.len() == before {
            return reached.kept;
        }
    }
}

/// The items outside of namespaces, and those of each namespace: what has one name in several is
/// not overloaded.
fn scopes<'a>(source: &'a [Group<'a>]) -> BTreeMap<&'a str, Vec<&'a Item<'a>>> {
    let mut scopes: BTreeMap<&str, Vec<&Item<'_>>> = BTreeMap::new();
    for group in source {
        scopes.entry("").or_default().extend(&group.items);
        let inner = group.inner.iter().flatten().flat_map(Group::all);
        scopes.entry(group.opening()).or_default().extend(inner);
    }
    scopes
}

/// What the kernels reach, as far as it is known.
struct Reached<'a> {
    /// The types of the source.
    types: BTreeSet<&'a str>,
    names: BTreeSet<&'a str>,
    kept: BTreeSet<usize>,
}

impl<'a> Reached<'a> {
    /// Takes in those of a scope's items that are named by what is known. Of a struct's members
    /// data stay; functions and constants do where they are named.
    fn take(&mut self, items: &[&'a Item<'a>]) {
        let mut definitions: BTreeMap<&str, usize> = BTreeMap::new();
        for name in items.iter().flat_map(|item| &item.names) {
            *definitions.entry(name).or_default() += 1;
        }
        for item in items {
            let wanted = item.names.iter().any(|name| self.names.contains(name));
            let one_of_several = item.names.iter().any(|name| definitions[name] > 1);
            let is_for = |name: &&str| !self.types.contains(name) || self.names.contains(name);
            let fits = !one_of_several || item.parameters.iter().all(is_for);
            let keep = matches!(item.kind, Kind::Root | Kind::Check) || wanted && fits;
            if keep && self.kept.insert(item.start) {
                self.names.extend(&item.uses);
            }
            if self.kept.contains(&item.start) {
                let members: Vec<&Item<'_>> = item.members().collect();
                self.take(&members);
            }
        }
    }
}

/// The kept constants and aliases that depend only on each other, and the one-line types that they
/// name.
fn constants(source: &[Group<'_>], kept: &BTreeSet<usize>) -> BTreeSet<usize> {
    let items = || source.iter().flat_map(|group| &group.items);
    let kept = || items().filter(|item| kept.contains(&item.start));
    let mut defined: BTreeSet<&str> = items().flat_map(|item| item.names.clone()).collect();
    defined.extend(
        source.iter().flat_map(|group| &group.inner).flat_map(|inner| {
            inner.iter().flat_map(Group::all).flat_map(|item| item.names.clone())
        }),
    );
    let plain = |item: &&Item<'_>| item.kind == Kind::Type && !item.text.trim_end().contains('\n');
    let plain: BTreeSet<&str> = kept().filter(plain).flat_map(|item| item.names.clone()).collect();
    let mut first = BTreeSet::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for item in kept().filter(|item| item.is_constant()) {
        let own = |name: &&&str| item.names.contains(*name);
        let foreign = item.uses.iter().filter(|name| defined.contains(**name) && !own(name));
        if foreign.clone().all(|name| names.contains(name) || plain.contains(name)) {
            names.extend(item.names.iter().chain(foreign));
            first.insert(item.start);
        }
    }
    let named = |item: &&Item<'_>| item.names.iter().any(|name| names.contains(name));
    first.extend(
        kept()
            .filter(|item| plain.contains(item.names.first().unwrap_or(&"")))
            .filter(named)
            .map(|item| item.start),
    );
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "extern \"C\" __global__ void k(float* x) { BODY }\n";

    /// What linking keeps of definitions in front of a kernel with this body.
    fn left(definitions: &str, body: &str) -> String {
        let kernel = KERNEL.replace("BODY", body);
        let text = linked(&format!("// Head.\n\n{definitions}\n{kernel}"), 80);
        let text = text.strip_prefix("// Head.\n\n").expect("the head stays");
        text.replace(&kernel, "").trim_end().to_owned()
    }

    #[test]
    fn what_the_kernel_does_not_reach_goes() {
        let two = "// Both.\nint a() { return 1; }\nint b() { return a(); }\n";
        assert_eq!(left(two, "b();"), two.trim_end());
        assert_eq!(left(two, "a();"), "// Both.\nint a() { return 1; }");
        assert_eq!(left(two, "/* b() */"), "");
        let apart = "// One.\nint a() { return 1; }\n// Two.\nint b() { return 2; }\n";
        assert_eq!(left(apart, "b();"), "// Two.\nint b() { return 2; }");
        assert_eq!(left("struct S { int a() { return \"}\"; } };\n", "S s;").lines().count(), 1);
        assert_eq!(left("int a = 1;\n", ""), "int a = 1;", "what is not understood stays");
        assert_eq!(left("constexpr int N = 2;\n", "\n#pragma unroll N\n"), "constexpr int N = 2;");
        let space =
            "namespace op {\nint a() { return 1; }\nint b() { return 2; }\n}  // namespace op\n";
        let kept = "namespace op {\nint b() { return 2; }\n}  // namespace op";
        assert_eq!(left(space, "op::b();"), kept);
        assert_eq!(left(space, ""), "");
    }

    #[test]
    fn overloads_go_with_their_types() {
        let types = "struct f16 { int bits; };\nstruct bf16 { int bits; };\n";
        let wide = "float widen(float v) { return v; }\nfloat widen(f16 v) { return v; }\n";
        let wide = format!("{types}\n{wide}float widen(bf16 v) {{ return v; }}\n");
        let kept = "struct f16 { int bits; };\n\nfloat widen(float v) { return v; }\n\
                    float widen(f16 v) { return v; }";
        assert_eq!(left(&wide, "f16 v; widen(v);"), kept);
        let special = "template <class T> struct Narrow;\n\
                       template <> struct Narrow<f16> { int a = sizeof(f16); };\n";
        let special = format!("{types}\n{special}template <> struct Narrow<bf16> {{}};\n");
        let left = left(&special, "Narrow<f16> n;");
        assert!(left.contains("Narrow<f16>") && !left.contains("bf16"), "{left}");
    }

    #[test]
    fn members_go_as_functions_do() {
        let open = "struct S {\n    int data;\n    using T = int;\n";
        let used = "    // Twice.\n    static int a() { return b(); }\n    static int b();\n";
        let other = "    static int c() {\n        return 3;\n    }\n";
        let inner = "    struct U {\n        int more;\n    };\n";
        let text = format!("{open}\n{used}{other}\n{inner}}};\n");
        let kept = format!("struct S {{\n    int data;\n\n{used}}};");
        assert_eq!(left(&text, "S::a();"), kept);
        let kept = format!("struct S {{\n    int data;\n\n{inner}}};");
        assert_eq!(left(&text, "S::U();"), kept);
        let narrow = "struct f64 { int bits; };\ntemplate <class T> struct N;\n\n\
                      template <> struct N<int> {\n    static int from(float v) { return v; }\n    \
                      static int from(f64 v) { return v.bits; }\n};\n";
        let left = left(narrow, "N<int>::from(1.f);");
        assert!(left.contains("float") && !left.contains("f64"), "{left}");
    }

    #[test]
    fn constants_come_first() {
        let library = "struct f16 { int bits; };\n\nint a(f16 v) { return v.bits; }\n";
        let own = "using Stored = f16;\nconstexpr int N = 2, M = 2 * N;\n\
                   static_assert(M > N, \"{\");\nconstexpr int L = a(N);\n";
        let kept = "struct f16 { int bits; };\n\nusing Stored = f16;\n\
                    constexpr int N = 2, M = 2 * N;\nstatic_assert(M > N, \"{\");\n\n\
                    int a(f16 v) { return v.bits; }\n\nconstexpr int L = a(N);";
        assert_eq!(left(&format!("{library}\n{own}"), "Stored s; L + M;"), kept);
        let checked = "constexpr int N = 2;\nstatic_assert(N > 1, \"\");";
        assert_eq!(left(&format!("{checked}\n"), ""), checked, "what is checked is used");
    }

    #[test]
    fn one_architecture_is_left() {
        let text = "int a() {\n#if __CUDA_ARCH__ >= 800\n1;\n#else\n2;\n#endif\n}\n";
        assert_eq!(for_architecture(text, 800), "int a() {\n1;\n}\n");
        assert_eq!(for_architecture(text, 750), "int a() {\n2;\n}\n");
        let other = "#ifdef X\n1;\n#else\n2;\n#endif\n";
        assert_eq!(for_architecture(other, 800), other);
        let nested = "#if __CUDA_ARCH__ >= 900\n#if X\n1;\n#endif\n#else\n2;\n#endif\n";
        assert_eq!(for_architecture(nested, 800), "2;\n");
    }

    #[test]
    fn what_does_not_parse_stays() {
        for text in ["int a( {\n", "}\n", "int a() {\n", "template <", "\"", "int a() { '\n"] {
            assert_eq!(linked(text, 80), text);
        }
    }
}
