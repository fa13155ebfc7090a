//! Environment variables, ignored in privileged programs.
//!
//! A program with more privileges than its caller (setuid, setgid, file capabilities) must not let
//! the caller choose the code it loads or the files it writes, so it sees no variables at all, as
//! with `secure_getenv`.

#![expect(unsafe_code, reason = "getauxval is a C function")]

use std::env;
use std::ffi::{OsString, c_ulong};

/// Auxiliary vector entry that the kernel sets for a privileged program.
const AT_SECURE: c_ulong = 23;

// SAFETY: the declaration matches getauxval(3) in glibc and musl, which accepts any number, reads
// only the auxiliary vector, and returns 0 for unknown entries.
unsafe extern "C" {
    safe fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Whether the program has more privileges than its caller.
pub fn is_privileged() -> bool {
    getauxval(AT_SECURE) != 0
}

/// A nonempty environment variable; always `None` in a [privileged](is_privileged) program.
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty() && !is_privileged())
}
