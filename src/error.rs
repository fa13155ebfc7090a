//! The error type of the crate.

use std::error::Error as StdError;
use std::fmt;

/// Result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who must act on an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed an invalid argument; the text names it, the rule and the values.
    BadParam,
    /// The request is valid but not supported; the text names the rule that refused it.
    NotSupported,
    /// A template or generated kernel failed to compile; the text has path, options and log.
    Compile,
    /// The CUDA driver, the simulated device or the operating system failed.
    Driver,
    /// A bug in Kiln.
    Internal,
}

impl ErrorKind {
    /// Status name of the C API (mcDNN `mcdnnStatus_t`).
    pub fn status(self) -> &'static str {
        match self {
            ErrorKind::BadParam => "MCDNN_STATUS_BAD_PARAM",
            ErrorKind::NotSupported => "MCDNN_STATUS_NOT_SUPPORTED",
            ErrorKind::Compile => "MCDNN_STATUS_RUNTIME_PREREQUISITE_MISSING",
            ErrorKind::Driver => "MCDNN_STATUS_EXECUTION_FAILED",
            ErrorKind::Internal => "MCDNN_STATUS_INTERNAL_ERROR",
        }
    }
}

/// An opaque error: a [kind](Error::kind), a text, and a chain of causes.
///
/// The text is lower case without a full stop: the attempt, then the values.
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error, for front-ends and tools built on the library.
    pub fn with(kind: ErrorKind, text: impl Into<String>) -> Self {
        Error(Box::new(Repr { kind, text: text.into(), source: None }))
    }

    pub(crate) fn bad_param(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::BadParam, text)
    }

    pub(crate) fn not_supported(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::NotSupported, text)
    }

    pub(crate) fn compile(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::Compile, text)
    }

    pub(crate) fn driver(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::Driver, text)
    }

    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::Internal, text)
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Prepends the attempt that failed.
    pub(crate) fn context(mut self, attempt: impl fmt::Display) -> Self {
        self.0.text = format!("{attempt}: {}", self.0.text);
        self
    }

    /// Returns who must act.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the C API's status name of this error.
    pub fn status(&self) -> &'static str {
        self.0.kind.status()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.text)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, "\n  caused by: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_and_causes_read_from_the_outside_in() {
        let cause = std::io::Error::other("disk on fire");
        let error = Error::driver("failed to read `x`").caused_by(cause).context("opening cache");
        assert_eq!(error.to_string(), "opening cache: failed to read `x`");
        assert_eq!(error.status(), "MCDNN_STATUS_EXECUTION_FAILED");
        assert!(format!("{error:?}").ends_with("caused by: disk on fire"));
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
