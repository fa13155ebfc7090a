//! The environment, as far as it may be believed.
//!
//! A program that runs with more rights than who started it (setuid, setgid, file capabilities)
//! must not let that one choose the code it loads or the files it writes: it sees no variables at
//! all, as with `secure_getenv`.

#![expect(unsafe_code, reason = "getauxval is a C function")]

use std::env;
use std::ffi::{OsString, c_ulong};

/// The entry of the auxiliary vector that the kernel sets for such a program.
const AT_SECURE: c_ulong = 23;

// SAFETY: the declaration is that of getauxval(3) in glibc and musl; it takes any number, reads
// only the auxiliary vector, and returns 0 for what is not there.
unsafe extern "C" {
    safe fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Whether the program has more rights than who started it.
pub fn is_privileged() -> bool {
    getauxval(AT_SECURE) != 0
}

/// An environment variable that is set and not empty; none in a program that [is
/// privileged](is_privileged).
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty() && !is_privileged())
}
