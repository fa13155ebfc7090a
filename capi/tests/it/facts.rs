//! Facts of the interface, as rows of `tests/cases`: what each call answers.

use std::fmt::Write;
use std::fs;

use crate::harness::{compile_text, own, succeed};

struct Row<'a> {
    line: usize,
    status: &'a str,
    call: &'a str,
    holds: &'a str,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let rows = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    rows.map(|(line, row)| {
        let mut parts = row.splitn(3, " | ");
        let mut part = || parts.next().unwrap_or_default().trim().trim_end_matches('|').trim();
        Row { line, status: part(), call: part(), holds: part() }
    })
    .collect()
}

/// Runs the rows of a file, for which a header of the same name makes objects.
fn check(name: &str) {
    let text = fs::read_to_string(own().join(format!("tests/cases/{name}.txt"))).unwrap();
    let rows = rows(&text);
    let mut program = format!("#include \"{name}.h\"\n#include \"mcdnn_kiln.h\"\n\n");
    program += "static char text[256];\n\nint main(void)\n{\n";
    program += "    if (mcdnnCreate(&h) != 0) {\n        return 1;\n    }\n";
    for Row { line, call, holds, .. } in &rows {
        let holds = if holds.is_empty() { "1" } else { holds };
        write!(
            program,
            "    make();\n    mcdnnGetLastErrorString(text, sizeof(text));\n    {{\n        \
             mcdnnStatus_t status = (mcdnnStatus_t)({call});\n        \
             mcdnnGetLastErrorString(text, sizeof(text));\n        int held = {holds};\n        \
             printf(\"{line} %s %d %s\\n\", mcdnnGetErrorString(status), held, text);\n    }}\n    \
             drop();\n"
        )
        .unwrap();
    }
    program += "    return mcdnnDestroy(h);\n}\n";
    let output = succeed(&compile_text(name, &program), &[]);
    let answers: Vec<&str> = output.lines().collect();
    assert_eq!(answers.len(), rows.len(), "{output}");
    let mut wrong = String::new();
    for (row, answer) in rows.iter().zip(answers) {
        let expected = format!("{} MCDNN_STATUS_{} 1", row.line, row.status);
        if !answer.starts_with(&expected) {
            writeln!(wrong, "{} | {} | {}\n    {answer}", row.status, row.call, row.holds).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{wrong}", wrong.lines().count() / 2);
}

#[test]
fn descriptors_and_sizes() {
    check("facts");
}

#[test]
fn the_backend() {
    check("backend");
}

#[test]
fn primitives_of_onednn() {
    check("onednn");
}
