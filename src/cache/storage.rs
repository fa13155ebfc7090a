//! What a pack is read from: a file, or memory that holds all of it.
//!
//! A file is read and not mapped: what has been checked is a copy that nobody else can change, and
//! a file that is cut short while it is open is an error, where a mapping would fault.

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
    /// How many bytes there are now.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn len(&self) -> io::Result<u64> {
        match self {
            Storage::File(file) => Ok(file.metadata()?.len()),
            Storage::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// `length` bytes from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when there are fewer; no memory is taken for what is not there.
    pub(super) fn read(&self, offset: u64, length: u64) -> io::Result<Cow<'_, [u8]>> {
        let len = self.len()?;
        if offset.checked_add(length).is_none_or(|end| end > len) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut short"));
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
