//! What the simulated device counts and finds. A build without it (cargo feature `sim`) counts
//! nothing: its types have no values.

#[cfg(feature = "sim")]
pub use kiln_sim::{Bound, Counters, Estimate, Finding, InstructionClass};

#[cfg(not(feature = "sim"))]
mod none {
    use std::fmt;

    /// What a launch executed; no device of a build without the cargo feature `sim` counts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Counters {}

    impl fmt::Display for Counters {
        fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match *self {}
        }
    }

    /// What the sanitizer found; a build without the cargo feature `sim` has none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Finding {}

    impl fmt::Display for Finding {
        fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match *self {}
        }
    }
}

#[cfg(not(feature = "sim"))]
pub use none::{Counters, Finding};
