//! Lines of rendered sources within 100 columns, whatever names they hold.

/// Columns of a line, at most, where it can be broken.
const COLUMNS: usize = 100;

/// Breaks lines that are too long: a comment between words, code at a comma or an operator.
/// Directives stay, and what is quoted.
pub(super) fn wrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut continued = false;
    for line in text.lines() {
        // A directive goes on behind a backslash.
        let directive = continued || line.trim_start().starts_with('#');
        continued = directive && line.ends_with('\\');
        match directive {
            true => out.push_str(line),
            false => wrap_line(line, &mut out),
        }
        out.push('\n');
    }
    out
}

fn wrap_line(line: &str, out: &mut String) {
    let fits = |text: &str| text.chars().count() <= COLUMNS;
    if fits(line) {
        return out.push_str(line);
    }
    let margin = line.len() - line.trim_start().len();
    let (code, comment) = line.split_at(comment_of(line));
    if !code.trim().is_empty() {
        // A comment behind code goes above it.
        if !comment.is_empty() {
            wrap_line(&format!("{}{comment}", " ".repeat(margin)), out);
            out.push('\n');
        }
        return wrap(code.trim_end(), "", break_of, out);
    }
    let between_words = |line: &str| {
        let words = line.match_indices(' ').map(|(at, _)| at);
        let at = words.filter(|at| *at > margin + BULLET.len() && *at <= COLUMNS).max()?;
        Some((at, margin))
    };
    wrap(line, BULLET, between_words, out)
}

/// What a line of a comment begins with that goes on from another.
const BULLET: &str = "//   ";

/// Breaks a line where `place` says, in bytes, with the indentation of what comes behind.
fn wrap(line: &str, begin: &str, place: impl Fn(&str) -> Option<(usize, usize)>, out: &mut String) {
    let mut rest = line.to_owned();
    while rest.chars().count() > COLUMNS {
        let Some((at, indent)) = place(&rest) else { break };
        let (head, tail) = rest.split_at(at);
        out.push_str(head.trim_end());
        out.push('\n');
        rest = format!("{}{begin}{}", " ".repeat(indent), tail.trim_start());
    }
    out.push_str(&rest);
}

/// Where the comment of a line begins; its end where it has none.
fn comment_of(line: &str) -> usize {
    let mut quoted = false;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quoted => {
                chars.next();
            }
            '"' => quoted = !quoted,
            '/' if !quoted && line[at..].starts_with("//") => return at,
            _ => {}
        }
    }
    line.len()
}

/// Where to break code: behind the last comma of as few brackets as possible, else at an operator.
fn break_of(line: &str) -> Option<(usize, usize)> {
    // Columns behind the brackets that are open, innermost last.
    let mut open: Vec<usize> = Vec::new();
    let mut quoted = false;
    let mut best: Option<(usize, usize, usize)> = None;
    let mut operator: Option<usize> = None;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        if at >= COLUMNS {
            break;
        }
        match c {
            '\\' if quoted => {
                chars.next();
            }
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => open.push(at + 1),
            ')' | ']' | '}' => {
                open.pop();
            }
            ',' if best.is_none_or(|(_, _, depth)| open.len() <= depth) => {
                if let Some(column) = open.last() {
                    best = Some((at + 1, *column, open.len()));
                }
            }
            ' ' => {
                let operators = ["= ", "? ", ": ", "+ ", "* ", "&& ", "|| "];
                let here = operators.iter().find(|of| line[at + 1..].starts_with(**of));
                // The line goes on with an operator, but for an assignment.
                let place = here.map(|of| if *of == "= " { at + 2 } else { at });
                operator = place.filter(|at| *at < COLUMNS).or(operator);
            }
            _ => {}
        }
    }
    let margin = line.len() - line.trim_start().len();
    let comma = best.map(|(at, column, _)| (at, column));
    let place = comma.or(operator.map(|at| (at, margin + 4)));
    // What comes behind would not be shorter.
    place.filter(|(at, indent)| *at > *indent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays() {
        let text = "a;\n\n    b;\n";
        assert_eq!(wrapped(text), text);
    }

    #[test]
    fn a_comment_is_broken_between_words() {
        let words = ["word"; 30].join(" ");
        let text = wrapped(&format!("// {words}\n"));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.starts_with("// ") && line.len() <= 100), "{text}");
        assert_eq!(text.replace("\n//  ", "").trim_end(), format!("// {words}"));
    }

    #[test]
    fn code_is_broken_behind_a_comma_of_few_brackets() {
        let name = "n".repeat(30);
        let text = wrapped(&format!("    f(g({name}, {name}), {name}, {name});\n"));
        let expected = format!("    f(g({name}, {name}), {name},\n      {name});\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn code_without_a_comma_is_broken_at_an_operator() {
        let name = "n".repeat(60);
        let text = wrapped(&format!("const int {name} = {name};\n"));
        assert_eq!(text, format!("const int {name} =\n    {name};\n"));
    }

    #[test]
    fn a_comment_behind_code_goes_above_it() {
        let words = ["word"; 18].join(" ");
        let text = wrapped(&format!("    int a = \"//\";  // {words}\n"));
        assert_eq!(text, format!("    // {words}\n    int a = \"//\";\n"));
    }

    #[test]
    fn directives_and_texts_stay() {
        let long = "x".repeat(120);
        let directive = format!("#define A {long} \\\n    {long}, {long}\n");
        assert_eq!(wrapped(&directive), directive);
        let text = format!("asm(\"{long}, {long}\");\n");
        assert_eq!(wrapped(&text), text);
    }
}
