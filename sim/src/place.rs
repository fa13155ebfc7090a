//! Locations in a kernel, for errors and findings.

use std::fmt;

/// Location of a thread in a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the kernel.
    pub kernel: String,
    /// Index of the block in the grid.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// Text of that line, with whitespace collapsed.
    pub text: String,
    /// Source file and line of the last `.loc`.
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
