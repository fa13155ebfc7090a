//! The page that lists what runs: `docs/ptx.md`.

use crate::run::text;
use kiln_sim::{ErrorKind, Module};
use std::collections::BTreeSet;
use std::path::Path;

/// A row: instruction, what becomes of it, and the last column.
type Row = (String, String, String);

fn rows() -> Vec<Row> {
    let page = text("../docs/ptx.md");
    let cells = |line: &str| -> Option<Row> {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let [name, state, rest, ..] = cells[..] else { return None };
        Some((name.trim_matches('`').to_string(), state.to_string(), rest.to_string()))
    };
    page.lines().filter_map(cells).collect()
}

/// The error of a kernel with this instruction, on line 6.
fn refusal(instruction: &str) -> String {
    let head = ".version 9.0\n.target sm_100a\n.address_size 64\n.entry k()\n{\n";
    let error = Module::load(&format!("{head}{instruction};\n}}\n")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{instruction}: {error}");
    error.to_string()
}

#[test]
fn every_instruction_that_runs_has_files() {
    let folder = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx").join(name);
    let rows = rows();
    assert!(rows.len() > 120, "{} rows", rows.len());
    for (name, state, rest) in &rows {
        match state.as_str() {
            "runs" => assert!(folder(name).is_dir(), "`{name}` has no files"),
            "refused" => {
                let want = format!("ptx line 6: `{name}.b32` is not supported: {rest}");
                assert_eq!(refusal(&format!("{name}.b32")), want);
            }
            other => panic!("`{name}` {other}"),
        }
    }
    let names: BTreeSet<&str> = rows.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "an instruction twice");
    for entry in std::fs::read_dir(folder("")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let listed = names.contains(name.as_str()) || name == "expect" || entry.path().is_file();
        assert!(listed, "`{name}` is not in docs/ptx.md");
    }
}

#[test]
fn forms_are_refused_by_name() {
    for (_, state, rest) in rows() {
        let forms = rest.split('`').skip(1).step_by(2);
        for form in forms.filter(|_| state == "runs") {
            let text = refusal(form);
            assert!(text.starts_with(&format!("ptx line 6: `{form}` ")), "{text}");
            // It is not for its operands, which are missing here.
            assert!(!text.contains("operands instead"), "{text}");
        }
    }
}
