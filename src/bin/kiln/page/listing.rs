//! Source and PTX listings with counts per line, linked to each other.

use std::collections::HashMap;

use kiln::device::Counters;
use serde::Serialize;

/// A line of a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Line number in its file, from 1.
    pub number: u32,
    /// Code and trailing comment.
    pub code: String,
    pub comment: String,
    /// Source line from which a PTX line was compiled.
    pub source: Option<u32>,
    /// Warp instructions, if counted and nonzero.
    pub warps: Option<u64>,
    /// Instructions as a percentage of the maximum over all lines.
    pub heat: u32,
}

impl Line {
    fn new(number: u32, text: &str, warps: Option<u64>) -> Line {
        let comment = text.find("//").unwrap_or(text.len());
        let (code, comment) = (text[..comment].to_owned(), text[comment..].to_owned());
        Line { number, code, comment, source: None, warps, heat: 0 }
    }
}

/// Source listing with counts.
pub fn source(text: &str, counters: Option<&Counters>) -> Vec<Line> {
    let counted = counters.iter().flat_map(|counters| &counters.sources);
    let warps: HashMap<u32, u64> =
        counted.map(|of| (of.line, of.count.warp_instructions)).collect();
    let lines = (1..).zip(text.lines());
    heated(lines.map(|(at, text)| Line::new(at, text, warps.get(&at).copied())).collect())
}

/// PTX listing without line and debug directives.
pub fn ptx(text: &str, counters: Option<&Counters>) -> Vec<Line> {
    let counted = counters.iter().flat_map(|counters| &counters.lines);
    let warps: HashMap<u32, u64> =
        counted.map(|of| (of.line, of.count.warp_instructions)).collect();
    let mut lines = Vec::new();
    let mut source = None;
    for (number, text) in (1..).zip(text.trim_end_matches('\0').lines()) {
        let directive = text.trim_start();
        if let Some(rest) = directive.strip_prefix(".loc") {
            source = rest
                .split_whitespace()
                .nth(1)
                .and_then(|line| line.parse().ok())
                .filter(|line| *line > 0);
        } else if directive.starts_with(".section") || directive.starts_with(".file") {
            // Debug sections extend to the end.
            break;
        } else {
            let mut line = Line::new(number, text, warps.get(&number).copied());
            line.source = source.filter(|_| line.code.trim_end().ends_with(';'));
            lines.push(line);
        }
    }
    heated(lines)
}

fn heated(mut lines: Vec<Line>) -> Vec<Line> {
    let most = lines.iter().filter_map(|line| line.warps).max().unwrap_or(0).max(1);
    for line in &mut lines {
        line.warps = line.warps.filter(|warps| *warps > 0);
        line.heat = (line.warps.unwrap_or(0) * 100).div_ceil(most) as u32;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_lines_know_their_source() {
        let text = "// head\n.entry k() {\n.loc 1 7 3\nadd.s32 a, b, c; // why\n$L:\n.loc 1 9 1, \
                    function_name $x, inlined_at 1 2 3\nret;\n}\n.file 1 \"k.cu\"\n.section {}\n";
        let lines = ptx(text, None);
        let shown: Vec<_> = lines.iter().map(|l| (l.number, l.code.as_str(), l.source)).collect();
        let expected = [
            (1, "", None),
            (2, ".entry k() {", None),
            (4, "add.s32 a, b, c; ", Some(7)),
            (5, "$L:", None),
            (7, "ret;", Some(9)),
            (8, "}", None),
        ];
        assert_eq!(shown, expected);
        assert_eq!(lines[2].comment, "// why");
    }
}
