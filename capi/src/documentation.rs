//! The table of functions in `docs/c.md`.

use crate::chapters::{KILN, MCDNN};

/// The line behind which the table is.
const MARK: &str = "<!-- functions: made by `make golden` -->\n";

/// The document with the table that belongs there.
pub fn document(text: &str) -> String {
    let before = text.split(MARK).next().unwrap_or_default();
    let mut out = format!("{before}{MARK}");
    for chapter in MCDNN.iter().chain(KILN) {
        out += &format!("\n### {}\n\n| Function | |\n|---|---|\n", chapter.title);
        for function in chapter.functions() {
            let text = function.documentation.iter().map(|line| line.trim());
            let text = text.collect::<Vec<_>>().join(" ");
            out += &format!("| `{}` | {text} |\n", function.name);
        }
    }
    out
}
