//! Mutations of PTX that keep most of it well formed: lines come, go and change places; opcodes,
//! modifiers, operands and numbers are exchanged. What bytes alone would do, libFuzzer does.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Numbers at the edges of types, fields and windows.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "15",
    "16",
    "31",
    "32",
    "33",
    "63",
    "64",
    "127",
    "128",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }
}

/// Whether a text looks like one instruction, without its semicolon.
fn is_instruction(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.contains('.')
        && word.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " \t_%[]{}(),.:+-|!<>=".contains(c))
}

/// Every instruction in the tests, those in the text of a test among them.
fn pool() -> &'static [String] {
    static POOL: OnceLock<Vec<String>> = OnceLock::new();
    POOL.get_or_init(|| {
        let mut out = Vec::new();
        let mut folders = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests"))];
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = path.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|name| name == "ptx" || name == "rs") {
                    let text = std::fs::read_to_string(path).unwrap_or_default();
                    let pieces = text.split([';', '"', '\n']).map(str::trim);
                    out.extend(pieces.filter(|piece| is_instruction(piece)).map(str::to_string));
                }
            }
        }
        out.sort();
        out.dedup();
        out
    })
}

/// Lines in whose registers a mutation looks for others.
const REGISTER_LINES: usize = 24;

/// The parts of a text that are names, with their leading `%`, or numbers.
fn words(text: &str) -> Vec<std::ops::Range<usize>> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'%' | b'$');
    let mut out: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in text.bytes().enumerate().filter(|&(_, byte)| inside(byte)) {
        match out.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => out.push(at..at + 1),
        }
    }
    out
}

/// The word of a register, without its number.
fn prefix(word: &str) -> &str {
    word.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn is_register(word: &str) -> bool {
    word.starts_with('%') && word.len() > prefix(word).len()
}

/// An instruction whose registers are exchanged for some that `text` has.
fn adopted(instruction: &str, registers: &[&str], random: &mut Random) -> String {
    let mut out = instruction.to_string();
    for range in words(instruction).into_iter().rev() {
        let word = &instruction[range.clone()];
        if is_register(word) {
            let like: Vec<&str> =
                registers.iter().copied().filter(|have| prefix(have) == prefix(word)).collect();
            let from = if like.is_empty() { registers } else { &like };
            if let Some(register) = random.pick(from) {
                out.replace_range(range, register);
            }
        }
    }
    out + ";"
}

/// Where a line's opcode is, behind its guard.
fn opcode(line: &str) -> std::ops::Range<usize> {
    let word = |from: usize| {
        let start = from + line[from..].find(|c: char| !c.is_whitespace()).unwrap_or(0);
        start..line[start..].find(char::is_whitespace).map_or(line.len(), |at| start + at)
    };
    let first = word(0);
    if line[first.clone()].starts_with('@') { word(first.end) } else { first }
}

/// The dot-separated parts of an opcode.
fn modifiers(line: &str) -> Vec<std::ops::Range<usize>> {
    let opcode = opcode(line);
    let mut out = Vec::new();
    let mut from = opcode.start;
    for (at, _) in line[opcode.clone()].match_indices('.') {
        out.push(from..opcode.start + at);
        from = opcode.start + at + 1;
    }
    out.push(from..opcode.end);
    out
}

/// Changes one line in place.
fn change(line: &mut String, registers: &[&str], random: &mut Random) {
    let other = pool().get(random.below(pool().len())).cloned().unwrap_or_default();
    let (parts, end) = (modifiers(line), opcode(line).end);
    let operands: Vec<_> = words(line).into_iter().filter(|range| range.start >= end).collect();
    match random.below(9) {
        // A modifier for one of another instruction.
        0 => {
            let theirs = modifiers(&other);
            let (to, from) = (&parts[random.below(parts.len())], random.below(theirs.len()));
            line.replace_range(to.clone(), &other[theirs[from].clone()]);
        }
        // A modifier less, or twice.
        1 => {
            let at = parts[random.below(parts.len())].clone();
            let text = match random.below(2) {
                0 => String::new(),
                _ => format!("{0}.{0}", &line[at.clone()]),
            };
            line.replace_range(at, &text);
        }
        // An operand for a register of its kind, for any, or for a number.
        at @ 2..=7 if !operands.is_empty() => {
            let range = operands[random.below(operands.len())].clone();
            let word = &line[range.clone()];
            let like: Vec<&str> =
                registers.iter().copied().filter(|have| prefix(have) == prefix(word)).collect();
            let text = match at {
                2..=4 if is_register(word) => random.pick(&like).unwrap_or("0"),
                5 => random.pick(registers).unwrap_or("0"),
                _ => NUMBERS[random.below(NUMBERS.len())],
            };
            line.replace_range(range, text);
        }
        // An operand less, or twice.
        _ => {
            let mut operands: Vec<&str> = line.trim_end_matches(';').split(',').collect();
            let at = random.below(operands.len());
            match random.below(2) {
                0 => drop(operands.remove(at)),
                _ => operands.insert(at, operands[at]),
            }
            *line = operands.join(",") + ";";
        }
    }
}

/// One mutation of `data[..size]`, which may grow to `size_max`; the new size.
pub fn mutate(data: &mut [u8], size: usize, size_max: usize, seed: u32) -> usize {
    let mut random = Random(u64::from(seed) << 1 | 1);
    random.below(1);
    let Ok(text) = std::str::from_utf8(&data[..size]) else {
        return libfuzzer_sys::fuzzer_mutate(data, size, size_max);
    };
    if random.below(8) == 0 || text.is_empty() {
        return libfuzzer_sys::fuzzer_mutate(data, size, size_max);
    }
    let mut lines: Vec<Cow<str>> = text.lines().map(Cow::Borrowed).collect();
    let mut registers: Vec<&str> = Vec::new();
    let all: Vec<&str> = text.lines().collect();
    for _ in 0..REGISTER_LINES {
        let line = all[random.below(all.len())];
        let of_line = words(line).into_iter().map(|range| &line[range]);
        registers.extend(of_line.filter(|&word| is_register(word)));
    }
    for _ in 0..1 + random.below(3) {
        let (at, other) = (random.below(lines.len()), random.below(lines.len()));
        match random.below(9) {
            0 if lines.len() > 1 => drop(lines.remove(at)),
            1 => lines.insert(other, lines[at].clone()),
            2 => lines.swap(at, other),
            3 | 4 => {
                let pick = random.below(pool().len());
                if let Some(instruction) = pool().get(pick) {
                    lines.insert(at, adopted(instruction, &registers, &mut random).into());
                }
            }
            _ if !lines.is_empty() => change(lines[at].to_mut(), &registers, &mut random),
            _ => {}
        }
    }
    let text = lines.join("\n");
    let kept = text.len().min(size_max);
    data[..kept].copy_from_slice(&text.as_bytes()[..kept]);
    kept
}
