//! Mapping a file into memory: the one place of the cache that needs `unsafe`.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps a whole file read-only.
pub(super) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is read through slices, which must not change while they are borrowed.
    // Packs are replaced by renaming, never written in place; whoever writes into one while it is
    // open can make a lookup fail its digest or fault, but every byte is checked before it is
    // used, and no reference into the mapping outlives a lookup.
    unsafe { Mmap::map(file) }
}
