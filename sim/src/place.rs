//! Where a kernel is: what errors and findings point at.

use std::fmt;

/// Where a kernel was when it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The kernel's name.
    pub kernel: String,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's index in its block.
    pub thread: [u32; 3],
    /// The line of the PTX text, from 1.
    pub line: u32,
    /// That line's text, with single blanks.
    pub text: String,
    /// The source file and line named by the last `.loc`.
    pub source: Option<(String, u32)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "kernel `{}`, block ({bx}, {by}, {bz}), ", self.kernel)?;
        write!(f, "thread ({tx}, {ty}, {tz}), ptx line {}: `{}`", self.line, self.text)?;
        match &self.source {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}
