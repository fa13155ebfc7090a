//! A shallow parser of CUDA sources into top-level definitions, for linking.

use std::collections::BTreeSet;

/// Kind of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A kernel, or an unrecognised definition: always kept.
    Root,
    /// A `static_assert`: kept with the constants it checks, and movable like them.
    Check,
    /// A `constexpr` value.
    Constant,
    /// `using A = B`.
    Alias,
    /// A struct or an enum.
    Type,
    Function,
}

/// A top-level definition with the comment above it.
#[derive(Debug)]
pub(super) struct Item<'a> {
    /// Byte offset in the source.
    pub(super) start: usize,
    pub(super) text: &'a str,
    pub(super) kind: Kind,
    pub(super) names: Vec<&'a str>,
    /// Names between the item's own name and its body: parameter types or specialisation arguments.
    pub(super) parameters: BTreeSet<&'a str>,
    /// All identifiers in the item.
    pub(super) uses: BTreeSet<&'a str>,
    /// The members of a struct.
    body: Option<Body<'a>>,
}

/// What stands between the brackets of a struct.
#[derive(Debug)]
struct Body<'a> {
    opening: &'a str,
    members: Vec<Group<'a>>,
    closing: &'a str,
}

impl Item<'_> {
    /// Whether the item is a constant, an alias or a check of constants.
    pub(super) fn is_constant(&self) -> bool {
        matches!(self.kind, Kind::Check | Kind::Constant | Kind::Alias)
    }

    /// The members of a struct.
    pub(super) fn members(&self) -> impl Iterator<Item = &Item<'_>> {
        self.body.iter().flat_map(|body| &body.members).flat_map(Group::all)
    }

    /// Writes it, with the members that are chosen.
    fn write(&self, out: &mut String, chosen: impl Fn(&Item<'_>) -> bool + Copy) {
        let Some(Body { opening, members, closing }) = &self.body else {
            return out.push_str(self.text);
        };
        let mut within = String::new();
        members.iter().for_each(|group| group.write(&mut within, chosen));
        out.push_str(opening);
        out.push_str(within.trim_end());
        out.push('\n');
        out.push_str(closing);
    }
}

/// Consecutive items without blank lines between them, or a namespace.
#[derive(Debug, Default)]
pub(super) struct Group<'a> {
    /// Comment that applies to all items.
    comment: &'a str,
    pub(super) items: Vec<Item<'a>>,
    /// Opening line of a namespace.
    opening: &'a str,
    pub(super) inner: Option<Vec<Group<'a>>>,
}

impl<'a> Group<'a> {
    /// All items, including those of inner groups.
    pub(super) fn all(&self) -> Box<dyn Iterator<Item = &Item<'a>> + '_> {
        Box::new(self.items.iter().chain(self.inner.iter().flatten().flat_map(Group::all)))
    }

    /// The line that opens the namespace, if it is one.
    pub(super) fn opening(&self) -> &'a str {
        self.opening
    }

    /// The comment of a group without items.
    pub(super) fn head(&self) -> Option<&'a str> {
        (self.items.is_empty() && self.inner.is_none()).then_some(self.comment)
    }

    /// Writes the selected items.
    pub(super) fn write(&self, out: &mut String, chosen: impl Fn(&Item<'_>) -> bool + Copy) {
        let items: Vec<&Item<'_>> = self.items.iter().filter(|item| chosen(item)).collect();
        if !items.is_empty() {
            out.push_str(self.comment);
            items.iter().for_each(|item| item.write(out, chosen));
            out.push('\n');
        }
        let Some(inner) = &self.inner else { return };
        if inner.iter().flat_map(Group::all).any(chosen) {
            out.push_str(self.comment);
            out.push_str(self.opening);
            let mut within = String::new();
            inner.iter().for_each(|group| group.write(&mut within, chosen));
            out.push_str(within.trim_end());
            let name = self.opening.trim_start_matches("namespace").trim_end_matches(['{', '\n']);
            out.push_str(&format!("\n}}  // namespace {}\n\n", name.trim()));
        }
    }
}

/// Splits a source into groups; `None` on unbalanced brackets.
pub(super) fn groups(text: &str) -> Option<Vec<Group<'_>>> {
    groups_from(text, 0)
}

/// Splits `text`, which starts at byte offset `base` of the source.
fn groups_from(text: &str, base: usize) -> Option<Vec<Group<'_>>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut open: Option<Group<'_>> = None;
    // Start of a comment that no definition has followed yet.
    let mut said: Option<usize> = None;
    let mut at = 0;
    while at < text.len() {
        let line = &text[at..][..line_bytes(&text[at..])];
        let code = line.trim_start();
        if code.is_empty() {
            groups.extend(open.take().map(Group::finished));
            // The first comment of a source is its head.
            if let (0, Some(from), true) = (base, said, groups.is_empty()) {
                groups.push(Group { comment: &text[from..at], ..Group::default() });
                said = None;
            }
            at += line.len();
            continue;
        }
        if code.starts_with("//") {
            said.get_or_insert(at);
            at += line.len();
            continue;
        }
        let from = said.take().unwrap_or(at);
        let comment = &text[from..at];
        if code.starts_with("namespace") {
            groups.extend(open.take().map(Group::finished));
            let first = at + text[at..].find('{')? + 1;
            let first = first + line_bytes(&text[first..]);
            let last = at + declaration(&text[at..])?;
            let body = first + text[first..last].rfind('}')?;
            let inner = Some(groups_from(&text[first..body], base + first)?);
            let (items, opening) = (Vec::new(), &text[at..first]);
            groups.push(Group { comment, items, opening, inner });
            at = last;
            continue;
        }
        let end = match code.starts_with('#') {
            true => at + directive(&text[at..]),
            false => at + declaration(&text[at..])?,
        };
        let item = Item::new(base + at, &text[from..end], &text[at..end]);
        open.get_or_insert_default().items.push(item);
        at = end;
    }
    groups.extend(open.map(Group::finished));
    Some(groups)
}

/// Length of the first line in bytes, including the newline.
fn line_bytes(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}

/// Length of a directive in bytes, including continuation lines.
fn directive(text: &str) -> usize {
    let mut bytes = 0;
    for line in text.split_inclusive('\n') {
        bytes += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    bytes
}

/// Length of a definition in bytes, to the end of its last line; `None` on unbalanced brackets.
fn declaration(text: &str) -> Option<usize> {
    let mut depth = 0_i32;
    let mut tokens = Tokens { text, at: 0 }.peekable();
    while let Some((at, token)) = tokens.next() {
        match token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 && !matches!(tokens.peek(), Some((_, ";" | "," | ")"))) {
                    return Some(at + line_bytes(&text[at..]));
                }
            }
            ";" if depth == 0 => return Some(at + line_bytes(&text[at..])),
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// Tokenizer: words and single characters, without comments, string and character literals and
/// directives.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<(usize, &'a str)> {
        loop {
            let rest = &self.text[self.at..];
            let first = rest.chars().next()?;
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let bytes = match first {
                _ if rest.starts_with("//") || first == '#' => directive(rest),
                _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
                '"' | '\'' => quoted(rest, first),
                _ if first.is_whitespace() => first.len_utf8(),
                _ => {
                    let bytes = match is_word(first) {
                        true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                        false => first.len_utf8(),
                    };
                    self.at += bytes;
                    return Some((self.at - bytes, &rest[..bytes]));
                }
            };
            self.at += bytes;
        }
    }
}

/// Length of a string or character literal in bytes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

impl<'a> Group<'a> {
    /// A comment above the first of several items applies to the group, unless others have comments
    /// too.
    fn finished(mut self) -> Group<'a> {
        let has_comment = |item: &Item<'_>| item.text.trim_start().starts_with("//");
        if self.items.len() > 1 && !self.items[1..].iter().any(has_comment) {
            let first = &mut self.items[0];
            let code = first.text.lines().take_while(|line| line.trim_start().starts_with("//"));
            let bytes: usize = code.map(|line| line.len() + 1).sum();
            (self.comment, first.text) = first.text.split_at(bytes);
            if let Some(body) = &mut first.body {
                body.opening = &body.opening[bytes..];
            }
        }
        self
    }
}

/// Keywords with parentheses that are not the item's name.
const NO_NAMES: [&str; 5] = ["alignas", "__align__", "__launch_bounds__", "decltype", "sizeof"];

impl<'a> Item<'a> {
    /// Parses an item; `text` includes the comment above, `code` does not.
    fn new(start: usize, text: &'a str, code: &'a str) -> Item<'a> {
        let tokens: Vec<&str> = Tokens { text: code, at: 0 }.map(|(_, token)| token).collect();
        let is_name = |token: &&str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let directives = code.lines().filter_map(|line| line.trim_start().strip_prefix('#'));
        let named = directives.flat_map(|text| Tokens { text, at: 0 }.map(|(_, token)| token));
        let uses = tokens.iter().copied().chain(named).filter(is_name).collect();
        let (kind, name, parameters) = meaning(code, &tokens).unwrap_or((Kind::Root, "", &[]));
        let names = match kind {
            Kind::Root | Kind::Check => Vec::new(),
            Kind::Constant => constants(&tokens),
            Kind::Alias | Kind::Type | Kind::Function => vec![name],
        };
        let parameters = parameters.iter().copied().filter(is_name).collect();
        let mut item = Item { start, text, kind, names, parameters, uses, body: None };
        if kind == Kind::Type {
            item.open(code);
        }
        item
    }

    /// Takes the members of a struct of several lines apart.
    fn open(&mut self, code: &'a str) -> Option<()> {
        let comment = self.text.len() - code.len();
        let (brace, end) = (code.find('{')?, code.rfind('}')?);
        let first = brace + line_bytes(&code[brace..]);
        let last = code[..end].rfind('\n')? + 1;
        if first >= last || code[..brace].contains("enum") {
            return None;
        }
        let members = groups_from(&code[first..last], self.start + first)?;
        let head = code[..brace].replace(|c: char| !c.is_alphanumeric() && c != '_', " ");
        self.uses.retain(|name| head.split(' ').any(|word| word == *name));
        let (opening, closing) = (&self.text[..comment + first], &code[last..]);
        self.body = Some(Body { opening, members, closing });
        Some(())
    }
}

/// Classifies a definition: its kind, its name, and the tokens that distinguish it from others of
/// the same name; `None` if unrecognised.
fn meaning<'t, 'a>(code: &'a str, tokens: &'t [&'a str]) -> Option<(Kind, &'a str, &'t [&'a str])> {
    if let Some(rest) = code.trim_start().strip_prefix("#define ") {
        let name = rest.trim_start();
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        return Some((Kind::Function, &name[..end], &[]));
    }
    let mut tokens = tokens;
    if let ["template", "<", rest @ ..] = tokens {
        tokens = &rest[closing(rest)? + 1..];
    }
    let body = tokens.iter().position(|token| matches!(*token, "{" | "=" | ";"));
    let head = &tokens[..body?];
    if head.iter().any(|token| matches!(*token, "__global__" | "extern" | "operator" | "typedef")) {
        return None;
    }
    match head {
        ["static_assert", ..] => return Some((Kind::Check, "", &[])),
        ["using", "namespace", ..] => return None,
        ["using", name, ..] => return Some((Kind::Alias, name, &[])),
        ["struct" | "class" | "union" | "enum", rest @ ..] => {
            let mut rest = rest;
            loop {
                rest = match rest {
                    ["class", after @ ..] => after,
                    ["alignas" | "__align__", "(", after @ ..] => {
                        &after[after.iter().position(|token| *token == ")")? + 1..]
                    }
                    [name, arguments @ ..] => return Some((Kind::Type, name, arguments)),
                    [] => return None,
                }
            }
        }
        _ => {}
    }
    let is_name = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let names = |token: &str| is_name(token) && !NO_NAMES.contains(&token);
    let call = |at: &usize| head[*at] == "(" && *at > 0 && names(head[at - 1]);
    if let Some(at) = (0..head.len()).find(call) {
        return Some((Kind::Function, head[at - 1], &head[at..]));
    }
    head.contains(&"constexpr").then_some((Kind::Constant, "", &[]))
}

/// Names of the constants that a definition declares.
fn constants<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut names = Vec::new();
    let (mut depth, mut name) = (0, "");
    for token in tokens {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "=" if depth == 0 => names.push(name),
            token if depth == 0 => name = token,
            _ => {}
        }
    }
    names
}

/// Index of the bracket that closes the one before the tokens.
fn closing(tokens: &[&str]) -> Option<usize> {
    let (mut angles, mut others) = (1, 0);
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => others += 1,
            ")" | "]" | "}" => others -= 1,
            "<" if others == 0 => angles += 1,
            ">" if others == 0 => angles -= 1,
            _ => {}
        }
        if angles == 0 {
            return Some(at);
        }
    }
    None
}
