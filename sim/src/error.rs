//! Errors and their locations.
//!
//! An [`Error`] names the attempt with its values. An error of a running kernel also has a
//! [`Place`]: kernel, block and thread, PTX line and text, and the CUDA source line if the module
//! was compiled with `-lineinfo`.

use crate::finding::Finding;
use crate::place::Place;
use std::fmt;

/// Result of a fallible call.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not valid PTX, or refers to an undeclared name.
    Parse,
    /// The PTX uses a feature that the machine does not implement.
    Unsupported,
    /// A kernel accessed memory outside every allocation, or outside its shared or local window.
    OutOfBounds,
    /// A kernel accessed memory at an address that is not a multiple of the access size.
    Misaligned,
    /// A kernel accessed a freed allocation.
    UseAfterFree,
    /// A kernel executed `trap` or failed an assertion.
    Trap,
    /// Threads of a warp or block wait for each other at different places.
    DivergentBarrier,
    /// All remaining threads wait or poll for something that cannot happen.
    Deadlock,
    /// A launch reached its instruction limit.
    InstructionLimit,
    /// A kernel violated the rules of a barrier, descriptor or copy.
    Misuse,
    /// Grid, block, shared memory or parameters are invalid for the kernel or the device.
    BadLaunch,
    /// The device's memory budget is exceeded.
    OutOfMemory,
    /// No live allocation contains an address range passed by the host.
    UnknownAddress,
}

/// An error of a call.
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
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Line of the PTX text, from 1, if known.
    pub fn line(&self) -> Option<u32> {
        self.inner.place.as_ref().map(|place| place.line).or(self.inner.line)
    }

    /// Location in the kernel, for errors of a running kernel.
    pub fn place(&self) -> Option<&Place> {
        self.inner.place.as_ref()
    }

    /// Sanitizer findings up to the error.
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
