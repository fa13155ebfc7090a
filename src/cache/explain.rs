//! Explanation of a miss: the differences from the nearest entry.

use std::fmt;

use crate::cache::key::{Key, Request};

/// A difference between a request and an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The source: the first differing line, counted from 1, and the number of differing lines.
    Source {
        /// Line number.
        line: usize,
        /// Number of differing lines.
        lines: usize,
        /// Line of the request.
        wanted: String,
        /// Line of the entry.
        found: String,
    },
    /// A compiler option; empty where one side lacks it.
    Option {
        /// Option of the request.
        wanted: String,
        /// Option of the entry.
        found: String,
    },
    /// The architecture or NVRTC build.
    Toolchain {
        /// Toolchain of the request.
        wanted: String,
        /// Toolchain of the entry.
        found: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Source { line, lines, wanted, found } => write!(
                f,
                "source differs in {lines} lines, first at line {line}:\n    wanted  {wanted}\n    \
                 found   {found}"
            ),
            Difference::Option { wanted, found } => {
                write!(f, "option differs: wanted `{wanted}`, found `{found}`")
            }
            Difference::Toolchain { wanted, found } => {
                write!(f, "compiled by another toolchain: wanted {wanted}, found {found}")
            }
        }
    }
}

/// The nearest entry and its differences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Key of the request.
    pub key: Key,
    /// Key and stem of the nearest entry; `None` in an empty cache.
    pub nearest: Option<(Key, String)>,
    /// Differences; empty for the entry itself.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((key, stem)) = &self.nearest else {
            return write!(f, "no other entry to compare with");
        };
        write!(f, "nearest entry {} ({stem}):", &key.to_hex()[..16])?;
        for difference in &self.differences {
            write!(f, "\n  {difference}")?;
        }
        Ok(())
    }
}

/// Compares a request with others, for example those of a cache or pack.
pub fn explain(request: &Request, others: impl IntoIterator<Item = Request>) -> Explanation {
    let key = Key::of(request);
    let nearest = others
        .into_iter()
        .map(|other| (Key::of(&other), other))
        .filter(|(other_key, _)| *other_key != key)
        .map(|(other_key, other)| {
            let differences = differences(request, &other);
            (distance(&differences, request, &other), other_key, other.stem, differences)
        })
        .min_by_key(|(distance, other_key, ..)| (*distance, *other_key));
    match nearest {
        Some((_, other_key, stem, differences)) => {
            Explanation { key, nearest: Some((other_key, stem)), differences }
        }
        None => Explanation { key, nearest: None, differences: Vec::new() },
    }
}

/// All differences between two requests.
fn differences(wanted: &Request, found: &Request) -> Vec<Difference> {
    let mut differences = Vec::new();
    if let Some(difference) = source_difference(&wanted.source, &found.source) {
        differences.push(difference);
    }
    for position in 0..wanted.options.len().max(found.options.len()) {
        let option = |options: &[String]| options.get(position).cloned().unwrap_or_default();
        let (wanted, found) = (option(&wanted.options), option(&found.options));
        if wanted != found {
            differences.push(Difference::Option { wanted, found });
        }
    }
    let (wanted, found) = (wanted.toolchain.to_string(), found.toolchain.to_string());
    if wanted != found {
        differences.push(Difference::Toolchain { wanted, found });
    }
    differences
}

fn source_difference(wanted: &str, found: &str) -> Option<Difference> {
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        (wanted.lines().collect(), found.lines().collect());
    let line_at = |lines: &[&str], at: usize| lines.get(at).copied().unwrap_or("").to_owned();
    let count = ours.len().max(theirs.len());
    let differing = (0..count).filter(|at| ours.get(*at) != theirs.get(*at));
    let lines = differing.clone().count();
    let first = differing.into_iter().next()?;
    Some(Difference::Source {
        line: first + 1,
        lines,
        wanted: line_at(&ours, first).trim().to_owned(),
        found: line_at(&theirs, first).trim().to_owned(),
    })
}

/// Distance between requests: another kernel is farther than another toolchain or option.
fn distance(differences: &[Difference], wanted: &Request, found: &Request) -> usize {
    let source: usize = differences
        .iter()
        .map(|difference| match difference {
            Difference::Source { lines, .. } => *lines,
            Difference::Option { .. } | Difference::Toolchain { .. } => 1,
        })
        .sum();
    source + if wanted.stem == found.stem { 0 } else { 10_000 }
}
