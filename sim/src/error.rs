//! What can go wrong, and where.
//!
//! An [`Error`] says what was attempted, with the values; when a kernel was running it also
//! carries a [`Place`]: the kernel, the block and thread, the PTX line and its text, and the CUDA
//! source line when the module was compiled with `-lineinfo`.

use crate::finding::Finding;
use crate::place::Place;
use std::fmt;

/// The result of a fallible call.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Who erred, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not PTX, or names something that is not declared.
    Parse,
    /// The text is PTX, of a form that the machine does not run.
    Unsupported,
    /// A kernel touched memory outside every allocation, or outside its shared or local window.
    OutOfBounds,
    /// A kernel touched memory at an address that is not a multiple of the access size.
    Misaligned,
    /// A kernel touched an allocation that was freed.
    UseAfterFree,
    /// A kernel executed `trap`, or called a failed assertion.
    Trap,
    /// The threads of a warp or block wait for each other at different places.
    DivergentBarrier,
    /// Every thread that is left waits or polls, and nothing they wait for can happen.
    Deadlock,
    /// A launch executed as many instructions as it was allowed and has not ended.
    InstructionLimit,
    /// A kernel used a barrier, a descriptor or a copy against its rules.
    Misuse,
    /// The grid, block, shared memory or parameter block does not fit the kernel or the device.
    BadLaunch,
    /// The device's memory budget is spent.
    OutOfMemory,
    /// The host named an address range that no live allocation holds.
    UnknownAddress,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    line: Option<u32>,
    place: Option<Place>,
    findings: Vec<Finding>,
}

impl Error {
    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The line of the PTX text, from 1, for errors that have one.
    pub fn line(&self) -> Option<u32> {
        self.inner.place.as_ref().map(|place| place.line).or(self.inner.line)
    }

    /// Where the kernel was, for errors raised by a running kernel.
    pub fn place(&self) -> Option<&Place> {
        self.inner.place.as_ref()
    }

    /// What the launch's checks had found when the kernel failed.
    pub fn findings(&self) -> &[Finding] {
        &self.inner.findings
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let inner =
            Inner { kind, message: message.into(), line: None, place: None, findings: Vec::new() };
        Error { inner: Box::new(inner) }
    }

    pub(crate) fn at_line(kind: ErrorKind, line: u32, message: impl Into<String>) -> Error {
        let inner = Inner {
            kind,
            message: message.into(),
            line: Some(line),
            place: None,
            findings: Vec::new(),
        };
        Error { inner: Box::new(inner) }
    }

    pub(crate) fn with_findings(mut self, findings: Vec<Finding>) -> Error {
        self.inner.findings = findings;
        self
    }

    pub(crate) fn with_place(mut self, place: Place) -> Error {
        self.inner.place = Some(place);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.inner.place, self.inner.line) {
            (Some(place), _) => write!(f, "{}; {place}", self.inner.message),
            (None, Some(line)) => write!(f, "ptx line {line}: {}", self.inner.message),
            (None, None) => f.write_str(&self.inner.message),
        }
    }
}

impl std::error::Error for Error {}
