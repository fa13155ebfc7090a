//! Changes to the PTX of a kernel that make it wrong, told by the CUDA line they happen on, so that
//! they are the same in the text of either compiler.

use std::collections::HashMap;

/// What to make of an instruction.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// It is gone.
    Drop,
    /// One text of it for another.
    Swap(&'static str, &'static str),
    /// It, for another instruction.
    Instead(&'static str),
    /// The address in its n-th brackets, from 0, is off by some bytes.
    Shift(usize, i64),
    /// Its n-th operand, from 0, goes through an instruction with a constant: `add.u32`, 16.
    Operand(usize, &'static str, u32),
    /// Only the threads of a block below that number execute it.
    Only(u32),
}

/// Instructions of a kernel, and what to make of them.
#[derive(Debug, Clone, Copy)]
pub struct Edit {
    /// What they begin with, after their guard.
    pub opcode: &'static str,
    /// What stands on their CUDA line, or on one that it is called from.
    pub on: &'static str,
    /// Which of those places, from 1 in the order of the lines; 0 for all of them.
    pub nth: usize,
    pub change: Change,
}

/// A place in a CUDA file: file, line and column.
type Place = (u32, u32, u32);

/// Line numbers of the CUDA file: a line of the kernel, then of what it calls.
pub type Stack = Vec<usize>;

/// A kernel's PTX within a module's, and its CUDA text.
struct Text<'a> {
    source: Vec<&'a str>,
    /// The place that a function was inlined at, by the place in it.
    callers: HashMap<Place, Place>,
    at: Place,
}

impl Text<'_> {
    /// Follows a `.loc`.
    fn locate(&mut self, directive: &str) {
        let numbers = |text: &str| -> Option<Place> {
            let mut parts = text.split_whitespace().map(|part| part.trim_matches(','));
            let mut next = || parts.next()?.parse().ok();
            Some((next()?, next()?, next()?))
        };
        let Some(place) = numbers(directive) else { return };
        self.at = place;
        if let Some((_, caller)) = directive.split_once("inlined_at") {
            self.callers.extend(numbers(caller).map(|caller| (place, caller)));
        } else {
            self.callers.remove(&place);
        }
    }

    /// Where the text is.
    fn stack(&self) -> Stack {
        let next = |place: &Place| self.callers.get(place).copied();
        let places = std::iter::successors(Some(self.at), next);
        let own = places.filter(|&(file, _, _)| file == 1);
        let mut out: Stack = own.map(|(_, line, _)| line as usize).collect();
        out.reverse();
        out
    }

    fn has(&self, stack: &Stack, part: &str) -> bool {
        let line = |number: &usize| number.checked_sub(1).and_then(|at| self.source.get(at));
        stack.iter().filter_map(line).any(|line| line.contains(part))
    }
}

/// The guard, with a blank, and the instruction of a line.
fn split(line: &str) -> (&str, &str) {
    let line = line.trim();
    let guarded = line.starts_with('@').then(|| line.split_once(char::is_whitespace)).flatten();
    guarded.map_or(("", line), |(guard, rest)| (guard, rest.trim()))
}

/// The pieces of an instruction's operands, at the commas outside of brackets.
fn operands(text: &str) -> Vec<String> {
    let (mut depth, mut out) = (0, vec![String::new()]);
    for c in text.chars() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        match c {
            ',' if depth == 0 => out.push(String::new()),
            c => out.last_mut().unwrap().push(c),
        }
    }
    out.iter().map(|operand| operand.trim().to_string()).collect()
}

fn shifted(instruction: &str, nth: usize, bytes: i64) -> String {
    let (open, _) = instruction.match_indices('[').nth(nth).unwrap();
    let close = open + instruction[open..].find([']', ',']).unwrap();
    let (base, old) = match instruction[open + 1..close].split_once('+') {
        Some((base, old)) => (base, old.parse::<i64>().unwrap()),
        None => (&instruction[open + 1..close], 0),
    };
    format!("{}[{base}+{}{}", &instruction[..open], old + bytes, &instruction[close..])
}

/// How many lines a kernel has.
fn body(lines: &[&str]) -> usize {
    let mut depth = 0;
    let closes = |line: &&str| {
        let (opened, closed) = (line.matches('{').count(), line.matches('}').count());
        depth += opened;
        depth -= closed;
        closed > 0 && depth == 0
    };
    lines.iter().position(closes).unwrap()
}

impl Change {
    /// What becomes of a line.
    fn apply(self, line: &str) -> String {
        let (guard, instruction) = split(line);
        match self {
            Change::Drop => String::new(),
            Change::Instead(other) => format!("{guard} {other}"),
            Change::Swap(from, to) => {
                assert!(line.contains(from), "{line}");
                line.replace(from, to)
            }
            Change::Shift(nth, bytes) => format!("{guard} {}", shifted(instruction, nth, bytes)),
            Change::Only(threads) => {
                assert_eq!(guard, "", "{line}");
                format!(
                    "{{ .reg .pred only; .reg .u32 thread; mov.u32 thread, %tid.x; setp.lt.u32 \
                     only, thread, {threads}; @only {instruction} }}"
                )
            }
            Change::Operand(nth, opcode, by) => {
                let (name, rest) = instruction.split_once(char::is_whitespace).unwrap();
                let mut operands = operands(rest.trim_end_matches(';'));
                let old = std::mem::replace(&mut operands[nth], "changed".to_string());
                format!(
                    "{{ .reg .b32 changed; mov.b32 changed, {old}; {opcode} changed, changed, \
                     {by}; {guard} {name} {}; }}",
                    operands.join(", ")
                )
            }
        }
    }
}

impl Edit {
    fn fits(&self, line: &str) -> bool {
        let (_, instruction) = split(line);
        instruction.starts_with(self.opcode)
    }

    /// The module with a kernel changed, and where.
    ///
    /// # Errors
    ///
    /// If there are not so many places: those of the kernel that have such an instruction.
    pub fn apply(
        &self,
        ptx: &str,
        source: &str,
        kernel: &str,
    ) -> Result<(String, Vec<Stack>), Vec<Stack>> {
        let lines: Vec<&str> = ptx.lines().collect();
        let start = lines.iter().position(|line| line.contains(&format!(".entry {kernel}(")));
        let start = start.unwrap_or_else(|| panic!("no kernel `{kernel}`"));
        let end = start + body(&lines[start..]);
        let (callers, source) = (HashMap::new(), source.lines().collect());
        let mut text = Text { source, callers, at: (0, 0, 0) };
        let mut fitting = Vec::new();
        for (at, line) in lines[start..end].iter().enumerate() {
            if let Some(directive) = line.trim().strip_prefix(".loc") {
                text.locate(directive);
            } else if self.fits(line) {
                fitting.push((text.stack(), start + at));
            }
        }
        let mut places: Vec<Stack> = fitting.iter().map(|(stack, _)| stack.clone()).collect();
        places.sort_unstable();
        places.dedup();
        let named: Vec<Stack> =
            places.iter().filter(|stack| text.has(stack, self.on)).cloned().collect();
        let chosen = match self.nth {
            0 => named,
            nth => named.into_iter().skip(nth - 1).take(1).collect(),
        };
        if chosen.is_empty() {
            return Err(places);
        }
        let mut out: Vec<String> = lines.iter().map(ToString::to_string).collect();
        for (_, at) in fitting.iter().filter(|(stack, _)| chosen.contains(stack)) {
            out[*at] = self.change.apply(lines[*at]);
        }
        Ok((out.join("\n") + "\n", chosen))
    }
}
