//! Which lines of a source make the compiler read files: of a text that somebody else wrote, its
//! log would show what is in them, and `__has_include` whether they exist.
//!
//! No kernel that Kiln writes has such a line, and NVRTC brings no headers of its own, so all of
//! them are refused. The text is not parsed: whatever looks like one is taken for one, except in
//! what is a comment for certain, where names of tensors stand.

/// What begins the name of a directive that reads a file.
const READING: [&str; 3] = ["include", "import", "embed"];

/// Operators that ask whether a file exists, or may be put together into one.
const ASKING: [&str; 4] = ["__has_include", "__has_embed", "##", "%:%:"];

/// The first line that may read a file, by its number, and what it does so with.
pub(crate) fn reads_file(source: &str) -> Option<(usize, String)> {
    let lines = spliced(source);
    // Other standards replace trigraphs, other compilers join these lines.
    for (number, line) in &lines {
        let trigraph = ["??=", "??/"].into_iter().find(|trigraph| line.contains(trigraph));
        if let Some(found) = trigraph.or(line.trim_end().ends_with('\\').then_some("\\")) {
            return Some((*number, found.to_owned()));
        }
    }
    let is_raw = source.contains("R\"");
    let mut text = String::new();
    let mut starts = Vec::new();
    for (number, line) in &lines {
        starts.push((text.len(), *number));
        text += without_comment(line, is_raw);
        text.push('\n');
    }
    let asking = ASKING.iter().filter_map(|word| Some((text.find(word)?, (*word).to_owned())));
    let marks = text.match_indices('#').chain(text.match_indices("%:"));
    let reading = marks.filter_map(|(at, mark)| {
        let name = directive(&text[at + mark.len()..]);
        let reads = READING.iter().any(|word| name.starts_with(word));
        reads.then(|| (at, format!("{mark}{name}")))
    });
    let (at, found) = asking.chain(reading).min()?;
    let line = starts.partition_point(|(start, _)| *start <= at);
    Some((starts[line - 1].1, found))
}

/// A line without the comment at its end. What may be inside of a string or of a comment that began
/// above, and end it, stays.
fn without_comment(line: &str, is_raw: bool) -> &str {
    let Some((before, comment)) = line.split_once("//") else { return line };
    let opens = before.contains(['"', '\'']) || before.contains("/*");
    match opens || comment.contains("*/") || (is_raw && comment.contains('"')) {
        true => line,
        false => before,
    }
}

/// The lines as the compiler joins them, by the number of their first.
fn spliced(source: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut joined = false;
    for (number, line) in (1..).zip(source.lines()) {
        let (line, joins) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, last)) if joined => last.push_str(line),
            _ => lines.push((number, line.to_owned())),
        }
        joined = joins;
    }
    lines
}

/// The name of the directive that a `#` begins: blanks and comments may come before it.
fn directive(rest: &str) -> &str {
    let mut rest = rest;
    loop {
        rest =
            rest.trim_start_matches(|c: char| c != '\n' && (c.is_whitespace() || c.is_control()));
        let Some(comment) = rest.strip_prefix("/*") else { break };
        rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_reads_a_file_is_found() {
        for (source, line, found) in [
            ("#include \"/etc/passwd\"", 1, "#include"),
            ("int a;\n  #\t include </etc/passwd>", 2, "#include"),
            ("#include_next \"x\"", 1, "#include_next"),
            ("#import \"x\"", 1, "#import"),
            ("char a[] = {\n#embed \"x\" limit(3)\n};", 2, "#embed"),
            ("%:include \"x\"", 1, "%:include"),
            ("%\\\n:include \"x\"", 1, "%:include"),
            ("??=include \"x\"", 1, "??="),
            ("#inc??/\nlude \"x\"", 1, "??/"),
            ("\n#inc\\\nlu\\\nde \"x\"", 2, "#include"),
            ("#inc\\\r\nlude \"x\"", 1, "#include"),
            ("#inc\\ \nlude \"x\"", 1, "\\"),
            ("#\\\n\\\n include \"x\"", 1, "#include"),
            ("#\rinclude \"x\"", 1, "#include"),
            ("\u{c}#\u{b}include \"x\"", 1, "#include"),
            ("#/**//* a\n b */ include \"x\"", 1, "#include"),
            ("/* */ #include \"x\"", 1, "#include"),
            ("/*\n// */ #include \"x\"", 2, "#include"),
            ("R\"(\n// )\" ; int a;\n#include \"x\"", 3, "#include"),
            ("#define F \"x\"\n#include F", 2, "#include"),
            ("#if __has_include(\"x\")", 1, "__has_include"),
            ("#if __has_\\\ninclude_next(\"x\")", 1, "__has_include"),
            ("#define H __has_include", 1, "__has_include"),
            ("#if __has_embed(\"x\")", 1, "__has_embed"),
            ("#define C(a, b) a##b\n#if C(__has_, include)(\"x\")", 1, "##"),
            ("#define C(a, b) a%:%:b", 1, "%:%:"),
            ("#define C R\"(\n// )\" a##b", 2, "##"),
            ("const char a[] = \"//\"; /* \"\n*/ #include \"x\"", 2, "#include"),
            ("char a = '\"'; /* // */\n/* // */ #include \"x\"", 2, "#include"),
            ("// what \\\n#include \"x\"\n#include \"y\"", 3, "#include"),
        ] {
            assert_eq!(reads_file(source), Some((line, found.to_owned())), "{source:?}");
        }
    }

    #[test]
    fn what_kernels_are_made_of_reads_none() {
        for source in [
            "",
            "#pragma unroll\nfor (;;) {}",
            "#if __CUDA_ARCH__ >= 800\n#else\n#endif",
            "#define SUM(of) \\\n  \"+f\"(of)\nint includes = 1; // # of rows",
            "// input x<U+000A>#include \"/etc/passwd\"<U+000A>//: f32[4]\n  // a##b __has_include",
            "const float* x;  // x#include: f32[4]",
            "int a = x ? 1 : 0; // what?<U+003F>/",
        ] {
            assert_eq!(reads_file(source), None, "{source:?}");
        }
    }
}
