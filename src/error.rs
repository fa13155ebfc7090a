//! The error type of the crate.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

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
    /// A template or generated kernel failed to compile; source, options and log of a kernel are in
    /// its [`CompileFailure`].
    Compile,
    /// There is no NVRTC, or none that can be used, and something must be compiled; the text names
    /// the places that were searched.
    NoCompiler,
    /// The GPU's architecture is one that Kiln has no kernels for; the text names it.
    ArchMismatch,
    /// The device has not as much free memory as was asked for.
    OutOfMemory,
    /// The CUDA driver or the simulated device failed.
    Driver,
    /// A kernel faulted or hung, and the GPU's context went with it: every later call of this
    /// process on the GPU fails like this one. The text names the driver's code and the kernels
    /// that were running.
    DeviceLost,
    /// The operating system, a remote store or a tool failed: a file cannot be written, the host
    /// is out of memory, no thread starts.
    Io,
    /// A bug in Kiln.
    Internal,
}

impl ErrorKind {
    /// Status name of the C API (mcDNN `mcdnnStatus_t`).
    pub fn status(self) -> &'static str {
        match self {
            ErrorKind::BadParam => "MCDNN_STATUS_BAD_PARAM",
            ErrorKind::NotSupported => "MCDNN_STATUS_NOT_SUPPORTED",
            ErrorKind::NoCompiler => "MCDNN_STATUS_RUNTIME_PREREQUISITE_MISSING",
            ErrorKind::ArchMismatch => "MCDNN_STATUS_ARCH_MISMATCH",
            ErrorKind::OutOfMemory => "MCDNN_STATUS_ALLOC_FAILED",
            ErrorKind::Driver | ErrorKind::DeviceLost | ErrorKind::Io => {
                "MCDNN_STATUS_EXECUTION_FAILED"
            }
            ErrorKind::Compile | ErrorKind::Internal => "MCDNN_STATUS_INTERNAL_ERROR",
        }
    }
}

/// An opaque error: a [kind](Error::kind), a text, and a chain of causes.
///
/// The text is lower case without a full stop: the attempt, then the values. Clones share their
/// causes.
#[derive(Clone)]
pub struct Error(Box<Repr>);

#[derive(Clone)]
struct Repr {
    kind: ErrorKind,
    text: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    compile_failure: Option<Arc<CompileFailure>>,
}

/// What NVRTC was given and what it said, of a kernel that does not compile
/// ([`Error::compile_failure`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CompileFailure {
    /// The file name that lines of the log refer to.
    pub name: String,
    /// The CUDA C++ text.
    pub source: String,
    /// The options, in order.
    pub options: Vec<String>,
    /// NVRTC's result, such as `NVRTC_ERROR_COMPILATION`.
    pub reason: String,
    /// NVRTC's log; empty where it failed without one.
    pub log: String,
}

impl CompileFailure {
    /// The first line of the log that reports an error; the reason where there is none.
    pub fn first_error(&self) -> &str {
        let reports = |line: &&str| line.contains("error") || line.contains("fatal");
        self.log.lines().find(reports).unwrap_or(&self.reason).trim()
    }
}

impl Error {
    /// Creates an error, for front-ends and tools built on the library.
    pub fn with(kind: ErrorKind, text: impl Into<String>) -> Self {
        Error(Box::new(Repr { kind, text: text.into(), source: None, compile_failure: None }))
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

    pub(crate) fn no_compiler(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::NoCompiler, text)
    }

    pub(crate) fn driver(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::Driver, text)
    }

    pub(crate) fn out_of_memory(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::OutOfMemory, text)
    }

    pub(crate) fn device_lost(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::DeviceLost, text)
    }

    /// The error of a kernel that NVRTC rejects.
    pub(crate) fn rejected(failure: CompileFailure) -> Self {
        let text = format!("failed to compile `{}`: {}", failure.name, failure.first_error());
        let mut error = Error::compile(text);
        error.0.compile_failure = Some(Arc::new(failure));
        error
    }

    pub(crate) fn io(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::Io, text)
    }

    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Error::with(ErrorKind::Internal, text)
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
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

    /// Source, options and log of the kernel that did not compile; `None` for any other error, of
    /// kind [`Compile`](ErrorKind::Compile) too.
    pub fn compile_failure(&self) -> Option<&CompileFailure> {
        self.0.compile_failure.as_deref()
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
    fn a_rejected_kernel_says_its_first_error_and_keeps_the_rest() {
        let log = "/kiln/k.cu(3): warning #177-D: unused\n\n/kiln/k.cu(9): error: no such luck\n\n\
                   1 error detected in the compilation of \"/kiln/k.cu\".\n";
        let failure = CompileFailure {
            name: "/kiln/k.cu".to_owned(),
            source: "text".to_owned(),
            options: vec!["--fmad=false".to_owned()],
            reason: "NVRTC_ERROR_COMPILATION".to_owned(),
            log: log.to_owned(),
        };
        let error = Error::rejected(failure.clone()).context("warming up");
        let text = "warming up: failed to compile `/kiln/k.cu`: /kiln/k.cu(9): error: no such luck";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.clone().compile_failure(), Some(&failure));
        let silent = CompileFailure { log: String::new(), ..failure };
        assert_eq!(silent.first_error(), "NVRTC_ERROR_COMPILATION");
        assert_eq!(Error::no_compiler("NVRTC not found").compile_failure(), None);
    }

    #[test]
    fn clones_share_their_causes() {
        let error = Error::io("failed to write `x`").caused_by(std::io::Error::other("full"));
        let same = error.clone();
        let address = |error: &Error| error.source().map(|cause| std::ptr::from_ref(cause).addr());
        assert!(address(&error).is_some() && address(&error) == address(&same));
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
