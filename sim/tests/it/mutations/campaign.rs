//! Plants each bug, and looks whether it is found.

use super::edit::{Change, Edit, Stack};
use crate::cases::{CASES, Case};
use crate::run::{golden, packed, seeded, text, translations};
use kiln_sim::{Checks, Error, ErrorKind, Finding, FindingKind, Kernel, Launch, Module, Report};
use std::fmt::Write;

/// Orders of warps that are tried until one shows the bug.
const SEEDS: u64 = 20;

/// What is made wrong.
#[derive(Debug, Clone, Copy)]
pub enum Bug {
    /// Of the kernel.
    Text(Edit),
    /// An argument's allocation was freed.
    Freed(usize),
    /// The launch gives so many bytes of shared memory.
    Shared(u32),
}

/// What must be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Finding(FindingKind),
    Error(ErrorKind),
}

/// A planted bug.
pub struct Mutation {
    /// The kernel of a [`Case`].
    pub of: &'static str,
    pub bug: Bug,
    pub class: Class,
    /// What stands in a CUDA statement that is named, or the file's name if it is another.
    pub at: &'static str,
}

/// A bug in a kernel, the class that must tell of it, and a text of a CUDA statement that it names.
pub const fn plant(of: &'static str, bug: Bug, class: Class, at: &'static str) -> Mutation {
    Mutation { of, bug, class, at }
}

/// At the n-th CUDA line that has such an instruction, or at all of them for 0.
pub const fn nth(opcode: &'static str, nth: usize, change: Change) -> Bug {
    Bug::Text(Edit { opcode, on: "", nth, change })
}

/// At the first CUDA line that has such an instruction and this text.
pub const fn on(opcode: &'static str, on: &'static str, change: Change) -> Bug {
    Bug::Text(Edit { opcode, on, nth: 1, change })
}

/// What a class is called, and the CUDA lines that are named with it.
struct Found {
    class: Class,
    lines: Vec<(String, u32)>,
    title: String,
}

impl Found {
    fn finding(finding: &Finding) -> Found {
        let lines = finding.sites.iter().filter_map(|site| site.place.source.clone());
        let title = finding.to_string().lines().next().unwrap().to_string();
        Found { class: Class::Finding(finding.kind), lines: lines.collect(), title }
    }

    fn error(error: &Error) -> Found {
        let lines = error.place().and_then(|place| place.source.clone());
        let title = error.to_string().split("; kernel").next().unwrap().to_string();
        Found { class: Class::Error(error.kind()), lines: lines.into_iter().collect(), title }
    }

    fn all(result: Result<Report, Error>) -> Vec<Found> {
        match result {
            Ok(report) => report.findings.iter().map(Found::finding).collect(),
            Err(error) => {
                let findings = error.findings().iter().map(Found::finding);
                findings.chain([Found::error(&error)]).collect()
            }
        }
    }
}

/// The statement that a line is part of, without its line breaks.
fn statement(source: &str, line: usize) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let begins = |at: usize| {
        let before = at.checked_sub(1).map_or("", |before| lines[before].trim());
        let ended = before.is_empty() || before.ends_with([';', '{', '}']);
        ended || before.starts_with("//") || !lines[at].starts_with(' ')
    };
    let first = (0..line).rev().find(|&at| begins(at)).unwrap_or_default();
    let end = (line..lines.len()).find(|&at| begins(at)).unwrap_or(lines.len());
    lines[first..end].iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

impl Mutation {
    fn run(&self, kernel: &Kernel, seed: u64) -> Vec<Found> {
        let device = seeded(seed);
        let Case(_, call) = CASES.iter().find(|Case(name, _)| *name == self.of).unwrap();
        let (mut shape, arguments) = call(&device);
        match self.bug {
            Bug::Text(_) => {}
            Bug::Freed(argument) => {
                let address = arguments[argument][..].try_into().unwrap();
                device.free(u64::from_le_bytes(address)).unwrap();
            }
            Bug::Shared(bytes) => shape.shared_bytes = bytes,
        }
        let shape = Launch { checks: Checks::ALL, ..shape };
        Found::all(device.launch(kernel, &shape, &packed(kernel, &arguments)))
    }

    /// Whether this is what must be said.
    fn fits(&self, found: &Found, file: &str, source: &str) -> bool {
        let named = |(name, line): &(String, u32)| match name == file {
            true => statement(source, *line as usize).contains(self.at),
            false => name == self.at,
        };
        found.class == self.class && found.lines.iter().any(named)
    }

    /// Adds to the report what is planted and what is found; whether it is.
    fn report(&self, out: &mut String) -> bool {
        let (stem, name) = self.of.split_once('/').unwrap();
        let file = format!("{stem}.cu");
        let source = text(&format!("cuda/{file}"));
        let mut all = true;
        for (at, (target, ptx)) in translations(stem).into_iter().enumerate() {
            let edited = match self.bug {
                Bug::Text(edit) => edit.apply(&ptx, &source, name),
                _ => Ok((ptx, Vec::new())),
            };
            let (ptx, places) = match edited {
                Ok(edited) => edited,
                Err(lines) => {
                    all = false;
                    writeln!(out, "{} {target}: {:?} fits none of {lines:?}", self.of, self.bug)
                        .unwrap();
                    continue;
                }
            };
            if at == 0 {
                writeln!(out, "{}: {}", self.of, self.bug.title(&source, &places)).unwrap();
            }
            let module =
                Module::load(&ptx).unwrap_or_else(|e| panic!("{} {:?} {e}", self.of, self.bug));
            let kernel = module.kernel(name).unwrap();
            let mut seen = Vec::new();
            let found = (0..SEEDS).find_map(|seed| {
                seen = self.run(&kernel, seed);
                let found = seen.iter().find(|found| self.fits(found, &file, &source));
                found.map(|found| (seed, found.line()))
            });
            match found {
                Some((seed, line)) => writeln!(out, "    {target}, seed {seed}: {line}").unwrap(),
                None => {
                    all = false;
                    writeln!(out, "    {target}: NOT FOUND, but").unwrap();
                    seen.iter().for_each(|seen| writeln!(out, "        {}", seen.line()).unwrap());
                }
            }
        }
        all
    }
}

impl Found {
    fn line(&self) -> String {
        let places: Vec<String> =
            self.lines.iter().map(|(file, line)| format!("{file}:{line}")).collect();
        format!("{} ({})", self.title, places.join(", "))
    }
}

impl Bug {
    /// What is planted, in words.
    fn title(&self, source: &str, places: &[Stack]) -> String {
        let Edit { opcode, change, .. } = match self {
            Bug::Text(edit) => edit,
            Bug::Freed(argument) => return format!("argument {argument} is freed"),
            Bug::Shared(bytes) => return format!("{bytes} bytes of shared memory"),
        };
        let what = match change {
            Change::Drop => format!("no {opcode}"),
            Change::Swap(from, to) => format!("{opcode} with `{to}` for `{from}`"),
            Change::Instead(other) => format!("`{other}` for {opcode}"),
            Change::Shift(_, bytes) => format!("{opcode} {bytes:+} bytes"),
            Change::Operand(operand, by, amount) => {
                format!("{opcode} after {by} {amount} on operand {operand}")
            }
            Change::Only(threads) => format!("{opcode} by threads below {threads} only"),
        };
        let place = |stack: &Stack| {
            let numbers: Vec<String> = stack.iter().map(ToString::to_string).collect();
            let inner = stack.last().map(|&line| statement(source, line)).unwrap_or_default();
            format!("line {}: `{inner}`", numbers.join(" > "))
        };
        let places: Vec<String> = places.iter().map(place).collect();
        format!("{what}\n    at {}", places.join("\n    at "))
    }
}

/// The classes that the campaign must plant.
const CLASSES: [Class; 18] = [
    Class::Finding(FindingKind::UninitialisedRegister),
    Class::Finding(FindingKind::UninitialisedShared),
    Class::Finding(FindingKind::UninitialisedGlobal),
    Class::Finding(FindingKind::UninitialisedLocal),
    Class::Finding(FindingKind::SharedRace),
    Class::Finding(FindingKind::GlobalRace),
    Class::Finding(FindingKind::WarpRace),
    Class::Finding(FindingKind::MissingProxyFence),
    Class::Finding(FindingKind::UnfinishedProduct),
    Class::Finding(FindingKind::DivergentBarrier),
    Class::Finding(FindingKind::BarrierMismatch),
    Class::Finding(FindingKind::LeakedCopy),
    Class::Error(ErrorKind::OutOfBounds),
    Class::Error(ErrorKind::Misaligned),
    Class::Error(ErrorKind::UseAfterFree),
    Class::Error(ErrorKind::DivergentBarrier),
    Class::Error(ErrorKind::Deadlock),
    Class::Error(ErrorKind::Misuse),
];

#[test]
fn every_planted_bug_is_found() {
    let lists = [super::memory::MUTATIONS, super::ordering::MUTATIONS, super::waiting::MUTATIONS];
    let mutations = || lists.into_iter().flatten();
    let (mut out, mut missed) = (String::new(), String::new());
    for mutation in mutations() {
        let mut report = String::new();
        if !mutation.report(&mut report) {
            missed += &report;
        }
        out += &report;
    }
    assert!(missed.is_empty(), "\n{missed}");
    for class in CLASSES {
        assert!(mutations().any(|mutation| mutation.class == class), "no mutation of {class:?}");
    }
    golden("reports/mutations.txt", &out);
}
