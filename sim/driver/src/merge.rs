//! Several PTX modules as one: what linking them means where nothing is assembled.
//!
//! Definitions of a name that several modules know meet each other as they stand. Names that a
//! module keeps for itself are told apart by the number of the module, and of a weak definition
//! the first is kept.

use std::collections::{HashMap, HashSet};

use crate::capability::capability;

/// A top-level item of a module.
struct Item<'a> {
    text: &'a str,
    /// What it declares or defines, if anything.
    name: Option<&'a str>,
    scope: Scope,
    defines: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Of the module alone.
    Local,
    Visible,
    Weak,
    /// Declared here, defined elsewhere.
    Extern,
}

/// Directives that end with their line.
const LINES: [&str; 4] = [".version", ".target", ".address_size", ".file"];

/// Length of a comment, a text or another character at the start.
fn step(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').map_or(text.len(), |end| end + 1);
    }
    if text.starts_with("/*") {
        return text.find("*/").map_or(text.len(), |end| end + 2);
    }
    if let Some(rest) = text.strip_prefix('"') {
        return rest.find('"').map_or(text.len(), |end| end + 2);
    }
    text.chars().next().map_or(1, char::len_utf8)
}

/// Splits a module into items.
fn items(text: &str) -> Vec<Item<'_>> {
    let (mut all, mut start, mut at, mut depth) = (Vec::new(), 0, 0, 0_usize);
    while at < text.len() {
        let rest = &text[at..];
        let begins = text[start..at].trim().is_empty();
        if begins && rest.starts_with("//") || rest.starts_with("/*") {
            at += step(rest);
            if begins {
                start = at;
            }
            continue;
        }
        if begins && LINES.iter().any(|directive| rest.starts_with(directive)) {
            let end = rest.find('\n').map_or(text.len(), |end| at + end + 1);
            all.push(item(text[at..end].trim()));
            (start, at) = (end, end);
            continue;
        }
        let next = at + step(rest);
        let ends = match rest.as_bytes()[0] {
            b'{' => {
                depth += 1;
                false
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                // Of values in braces a semicolon follows.
                depth == 0 && !text[start..at].split('{').next().unwrap_or("").contains('=')
            }
            b';' => depth == 0,
            _ => false,
        };
        if ends {
            all.push(item(text[start..next].trim()));
            start = next;
        }
        at = next;
    }
    all
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// What an item is by its head: what stands before its body or values.
fn item(text: &str) -> Item<'_> {
    let function = [".func", ".entry"].iter().find_map(|of| Some(text.find(of)? + of.len()));
    let head = &text[..text.find(['{', '=', ';']).unwrap_or(text.len())];
    let function = function.filter(|&at| at <= head.len());
    let variable = [".global", ".const", ".shared"].iter().any(|of| head.contains(of));
    let (name, defines) = match function {
        Some(at) => (function_name(&text[at..]), text.ends_with('}')),
        None if variable => {
            let before = head.split('[').next().unwrap_or("").trim_end();
            (before.rsplit(|c| !word(c)).next(), !head.contains(".extern"))
        }
        None => (None, false),
    };
    let before = name.and_then(|name| head.find(name)).map_or("", |at| &head[..at]);
    let scope = match () {
        () if before.contains(".extern") => Scope::Extern,
        () if before.contains(".visible") => Scope::Visible,
        () if before.contains(".weak") || before.contains(".common") => Scope::Weak,
        () => Scope::Local,
    };
    Item { text, name: name.filter(|name| !name.is_empty()), scope, defines }
}

/// The name of a function from what follows `.func`: results in parentheses may come first.
fn function_name(text: &str) -> Option<&str> {
    let mut rest = text.trim_start();
    while let Some(attribute) = rest.strip_prefix('.') {
        rest = attribute.trim_start_matches(word).trim_start();
    }
    if let Some(results) = rest.strip_prefix('(') {
        rest = results[results.find(')')? + 1..].trim_start();
    }
    let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// The results of a function, in their parentheses. Callers may have been told of one that the
/// definition does not give, which a linker of machine code does not see: it is a register that
/// nobody wrote, and here a parameter.
fn results(text: &str) -> Option<&str> {
    let rest = text[text.find(".func")? + ".func".len()..].trim_start();
    rest.starts_with('(').then(|| rest.split_inclusive(')').next())?
}

/// Replaces whole words, and numbers of source files.
fn renamed(text: &str, names: &HashMap<&str, String>, files: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut number) = (text, false);
    while !rest.is_empty() {
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        if end == 0 {
            let count = step(rest);
            let (skipped, after) = rest.split_at(count);
            out += skipped;
            number &= skipped.trim().is_empty();
            rest = after;
            continue;
        }
        let (found, after) = rest.split_at(end);
        match (names.get(found), found.parse::<usize>()) {
            (Some(name), _) => out += name,
            (None, Ok(file)) if number && files > 0 => out += &(file + files).to_string(),
            _ => out += found,
        }
        number = matches!(found, "loc" | "file" | "inlined_at");
        rest = after;
    }
    out
}

/// Source files that a module may have before those of the next are numbered.
const FILES: usize = 10_000;

/// Links modules.
pub fn merge(texts: &[String]) -> String {
    if let [only] = texts {
        return only.clone();
    }
    let modules: Vec<Vec<Item<'_>>> = texts.iter().map(|text| items(text)).collect();
    let mut known: HashMap<&str, HashSet<usize>> = HashMap::new();
    for (number, module) in modules.iter().enumerate() {
        for name in module.iter().filter_map(|item| item.name) {
            known.entry(name).or_default().insert(number);
        }
    }
    let all = || modules.iter().flatten();
    let visible: HashSet<&str> = all()
        .filter(|item| item.defines && item.scope == Scope::Visible)
        .filter_map(|item| item.name)
        .collect();
    let declared: HashMap<&str, &str> = all()
        .filter(|item| item.scope == Scope::Extern)
        .filter_map(|item| Some((item.name?, results(item.text)?)))
        .collect();
    let (mut defined, mut out) = (HashSet::new(), header(&modules));
    for (number, module) in modules.iter().enumerate() {
        let mine = module.iter().filter(|item| item.scope == Scope::Local);
        let names: HashMap<&str, String> = mine
            .filter_map(|item| item.name)
            .filter(|name| known[name].len() > 1)
            .map(|name| (name, format!("{name}_of_{number}")))
            .collect();
        for item in module {
            if LINES[..3].iter().any(|directive| item.text.starts_with(directive)) {
                continue;
            }
            if let (Some(name), Scope::Weak, true) = (item.name, item.scope, item.defines) {
                let first = !visible.contains(name) && defined.insert(name);
                if !first {
                    continue;
                }
            }
            let text = renamed(item.text, &names, number * FILES);
            let given = item.name.filter(|_| item.defines && results(item.text).is_none());
            out += &match given.and_then(|name| declared.get(name)) {
                Some(results) => text.replacen(".func", &format!(".func {results}"), 1),
                None => text,
            };
            out += "\n\n";
        }
    }
    out
}

/// The highest version and target of all modules.
fn header(modules: &[Vec<Item<'_>>]) -> String {
    let after = |directive: &'static str| {
        modules.iter().flatten().filter_map(move |item| item.text.strip_prefix(directive))
    };
    let number = |text: &&str| text.trim().parse::<f64>().unwrap_or_default();
    let version = after(".version").max_by(|a, b| number(a).total_cmp(&number(b)));
    let target = after(".target").max_by_key(|text| capability(text));
    let (version, target) = (version.unwrap_or(" 8.0"), target.unwrap_or(" sm_75"));
    format!(".version{version}\n.target{target}\n.address_size 64\n\n")
}
