//! Storage of a pack: a file or memory.
//!
//! Files are read, not memory-mapped: verified data is a private copy that nobody can change, and
//! truncation of an open file is an error instead of a fault.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Read-only bytes.
#[derive(Debug)]
pub(super) enum Storage {
    File(File),
    Memory(Cow<'static, [u8]>),
}

impl Storage {
    /// Current size in bytes.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn len(&self) -> io::Result<u64> {
        match self {
            Storage::File(file) => Ok(file.metadata()?.len()),
            Storage::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Reads `length` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when there are fewer; nothing is allocated in that case.
    pub(super) fn read(&self, offset: u64, length: u64) -> io::Result<Cow<'_, [u8]>> {
        let len = self.len()?;
        if offset.checked_add(length).is_none_or(|end| end > len) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is truncated"));
        }
        match self {
            Storage::File(file) => {
                let mut bytes = vec![0; length as usize];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes.into())
            }
            Storage::Memory(bytes) => Ok(bytes[offset as usize..(offset + length) as usize].into()),
        }
    }
}
