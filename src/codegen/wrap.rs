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

/// Where to break code: of the places within as few brackets as possible behind the last comma, at
/// the last operator, or at a blank behind a bracket.
fn break_of(line: &str) -> Option<(usize, usize)> {
    let margin = line.len() - line.trim_start().len();
    // A line that closes more than it opens goes on from others.
    let behind = if closes_more(line) { margin } else { margin + 4 };
    // Columns behind the brackets that are open, innermost last.
    let mut open: Vec<usize> = Vec::new();
    let mut quoted = false;
    let mut places = Vec::new();
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next().filter(|(at, _)| *at < COLUMNS) {
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
            ',' => {
                let column = open.last().copied().unwrap_or(behind);
                places.push((open.len(), 0, at + 1, column));
            }
            ' ' if at > margin => {
                let operators = ["= ", "? ", ": ", "+ ", "* ", "&& ", "|| "];
                match operators.iter().find(|of| line[at + 1..].starts_with(**of)) {
                    // The line goes on with an operator, but for an assignment.
                    Some(&"= ") if at + 2 > COLUMNS => {}
                    Some(&"= ") => places.push((open.len(), 1, at + 2, behind)),
                    Some(_) => places.push((open.len(), 1, at, behind)),
                    None if line[..at].ends_with(')') => {
                        places.push((open.len(), 2, at, behind));
                    }
                    None => {}
                }
            }
            _ => {}
        }
    }
    // What comes behind would not be shorter.
    places.retain(|(_, _, at, indent)| at > indent && !line[*at..].trim().is_empty());
    let (depth, kind, ..) = *places.iter().min()?;
    let best = places.iter().rfind(|(of, own, ..)| (*of, *own) == (depth, kind));
    best.map(|(_, _, at, indent)| (*at, *indent))
}

fn closes_more(line: &str) -> bool {
    let mut depth = 0;
    line.chars().any(|c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth < 0
    })
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
        let expected = format!("    f(g({name}, {name}),\n      {name}, {name});\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn code_is_broken_at_an_operator_of_fewer_brackets() {
        let name = "n".repeat(50);
        let text = wrapped(&format!("const int {name} = f({name}, 1);\n"));
        assert_eq!(text, format!("const int {name} =\n    f({name}, 1);\n"));
        let text = wrapped(&format!("    value = ({name} + 1) * {name};\n"));
        assert_eq!(text, format!("    value = ({name} + 1)\n        * {name};\n"));
    }

    #[test]
    fn parameters_go_on_where_they_begin() {
        let name = "n".repeat(40);
        let text = wrapped(&format!("      int {name}, int {name}, int {name}) {{\n"));
        assert_eq!(text, format!("      int {name}, int {name},\n      int {name}) {{\n"));
    }

    #[test]
    fn a_kernel_goes_below_its_bounds() {
        let bounds = "void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)";
        let name = "n".repeat(60);
        let text = wrapped(&format!("{bounds} {name}(int t) {{\n"));
        assert_eq!(text, format!("{bounds}\n    {name}(int t) {{\n"));
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
