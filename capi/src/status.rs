//! Statuses, and the failures that become one.

use std::cell::RefCell;
use std::fmt;

use kiln::Error;

use crate::declare::enumeration;

enumeration! {
    /// What a function answers.
    mcdnnStatus_t Status "MCDNN_STATUS_" {
        SUCCESS = 0,
        NOT_INITIALIZED = 1,
        ALLOC_FAILED = 2,
        BAD_PARAM = 3,
        INTERNAL_ERROR = 4,
        INVALID_VALUE = 5,
        ARCH_MISMATCH = 6,
        MAPPING_ERROR = 7,
        EXECUTION_FAILED = 8,
        NOT_SUPPORTED = 9,
        LICENSE_ERROR = 10,
        RUNTIME_PREREQUISITE_MISSING = 11,
        RUNTIME_IN_PROGRESS = 12,
        RUNTIME_FP_OVERFLOW = 13,
        VERSION_MISMATCH = 14,
    }
}

/// Why a function did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the function answers.
    pub status: Status,
    /// The rule, with the values.
    pub text: String,
}

/// What the body of a function gives.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A failure with a status.
pub fn fail<T>(status: Status, text: impl Into<String>) -> Outcome<T> {
    Err(Failure { status, text: text.into() })
}

/// An argument is invalid.
pub fn bad<T>(text: impl Into<String>) -> Outcome<T> {
    fail(Status::BAD_PARAM, text)
}

/// The request is valid, but nothing does it.
pub fn refuse<T>(text: impl Into<String>) -> Outcome<T> {
    fail(Status::NOT_SUPPORTED, text)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let name = error.kind().status();
        let named =
            |(value, _): &&(&str, _)| name.strip_prefix(Status::TABLE.prefix) == Some(value);
        let number = Status::TABLE.values.iter().find(named).map(|(_, number)| *number);
        let status = number.map_or(Status::INTERNAL_ERROR, Status);
        Failure { status, text: error.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the text of this thread's last failure.
pub fn keep(text: String) {
    // A thread that ends has nobody left to ask.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// The text of this thread's last failure, which is then forgotten.
pub fn take() -> String {
    LAST.try_with(|last| std::mem::take(&mut *last.borrow_mut())).unwrap_or_default()
}
