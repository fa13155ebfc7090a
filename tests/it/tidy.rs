//! Checks the shape of the source itself: layering, sizes, and the rules that neither the compiler
//! nor clippy sees.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules in pipeline order. A module may import only modules that stand before it.
const ORDER: &[&str] = &[
    "escape",
    "error",
    "dtype",
    "lattice",
    "progression",
    "tensor",
    "target",
    "kernel",
    "expr",
    "dropout",
    "graph",
    "frontend",
    "rnn",
    "attention",
    "loops",
    "onednn",
    "documents",
    "reference",
    "engine",
    "codegen",
    "compile",
    "cache",
    "device",
    "plan",
    "layers",
    "capi",
    "bin",
];
/// Modules that `plan` knows through `frontend` alone.
const FRONT_ENDS: &[&str] = &["rnn", "attention", "loops", "onednn"];
const LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;
/// Text that has no place in a finished source.
const MARKERS: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("#[ig", "nore"), concat!("todo", "!(")];

#[test]
fn tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut problems = Vec::new();
    let folders = [
        "src",
        "machine/src",
        "sass/src",
        "sass/tests",
        "sim/src",
        "sim/tests",
        "sim/benches",
        "sim/driver",
        "sim/runtime",
        "capi/src",
        "capi/tests/it",
        "capi/tests/c",
        "tests/it",
        "tests/torture",
        "fuzz/src",
        "fuzz/targets",
        "templates",
        "benches",
        "examples",
    ];
    for path in folders.iter().flat_map(|dir| files(&root.join(dir))) {
        let text = fs::read_to_string(&path).expect("source files are UTF-8");
        let path = path.strip_prefix(root).expect("walked from root");
        check_file(path, &text, &mut problems);
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn check_file(path: &Path, text: &str, problems: &mut Vec<String>) {
    let shown = path.display();
    let mut report = |line: usize, what: &str| problems.push(format!("{shown}:{line}: {what}"));
    let count = text.lines().count();
    if count > LINES_MAX {
        report(count, "more than 600 lines: split by concept");
    }
    let rust = path.extension().is_some_and(|ext| ext == "rs");
    if rust && !text.starts_with("//!") {
        report(1, "a module opens with a `//!` line saying what it is for");
    }
    let template = path.extension().is_some_and(|ext| ext == "tera");
    let module = module_of(path);
    let rank = module.as_ref().map(|name| ORDER.iter().position(|known| known == name));
    if rank == Some(None) {
        report(1, "module has no place in ORDER (tests/it/tidy.rs)");
    }
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        // Template tags and the lines they share are as long as the names they hold.
        if line.chars().count() > COLUMNS_MAX && !(template && line.contains("{%")) {
            let placeholders = template && line.contains("{{");
            if !placeholders {
                report(number, "wider than 100 columns");
            }
        }
        if MARKERS.iter().any(|marker| line.contains(marker))
            && path.file_name() != Some("tidy.rs".as_ref())
        {
            report(number, "a marker of unfinished work");
        }
        let code = line.split("//").next().unwrap_or("");
        if template && code.contains("asm") && !path.starts_with("templates/device/ptx") {
            report(number, "inline PTX belongs in templates/device/ptx");
        }
        let Some(Some(rank)) = rank else { continue };
        for target in code.split("crate::").skip(1) {
            let name =
                target.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            if ORDER[rank] == "plan" && FRONT_ENDS.contains(&name) {
                report(number, "plan may not import a front-end");
            }
            match ORDER.iter().position(|known| *known == name) {
                Some(other) if other <= rank => {}
                Some(_) => report(number, &format!("{} may not import {name}", ORDER[rank])),
                None if ["capi", "bin"].contains(&ORDER[rank]) => {}
                None => report(number, "write `crate::module::item`, one module per `use`"),
            }
        }
    }
}

/// The top-level module a source file belongs to; `None` outside `src` and for `lib.rs`.
fn module_of(path: &Path) -> Option<String> {
    let first = path.strip_prefix("src").ok()?.components().next()?;
    let name = Path::new(first.as_os_str()).file_stem()?.to_str()?.to_owned();
    (name != "lib").then_some(name)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("readable directory").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs" || ext == "tera") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn tidy_catches_what_it_claims() {
    let cases = [
        ("src/graph/op.rs", "//! Ops.\nuse crate::engine::Knob;\n", 1),
        ("src/engine/gemm.rs", "//! Gemm.\nuse crate::graph::Op;\n", 0),
        ("src/graph/op.rs", "//! Ops.\nuse crate::{engine::Knob, error::Error};\n", 1),
        ("src/graph/op.rs", "//! Ops.\nuse crate::Plan;\n", 1),
        ("src/plan/rnn.rs", "//! Plans.\nuse crate::rnn::Rnn;\n", 1),
        ("src/layers/rnn.rs", "//! Plans.\nuse crate::rnn::Rnn;\n", 0),
        ("src/capi/plan.rs", "//! Plans.\nuse crate::Plan;\n", 0),
        ("src/misc.rs", "//! Misc.\n", 1),
        ("src/plan.rs", "fn f() {}\n", 1),
        ("templates/device/tile/a.cuh.tera", "asm(\"bar.sync 0;\");\n", 1),
        ("templates/device/ptx/a.cuh.tera", "asm(\"bar.sync 0;\");\n", 0),
    ];
    for (path, text, expected) in cases {
        let mut problems = Vec::new();
        check_file(Path::new(path), text, &mut problems);
        assert_eq!(problems.len(), expected, "{path}: {problems:#?}");
    }
}
