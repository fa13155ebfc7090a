//! The words of an allocation: memory of its own, or memory of the process that a device maps.

#![expect(unsafe_code, reason = "words are shared with the host, which reads and writes them")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Alignment of memory that the host uses too: that of a page.
const PAGE: usize = 4096;

/// Atomic words, which read as a slice.
#[derive(Debug)]
pub(crate) struct Words {
    at: NonNull<AtomicU32>,
    count: usize,
    /// What was allocated for the words; `None` for memory of somebody else.
    owned: Option<(NonNull<u8>, Layout)>,
}

// SAFETY: a `Words` is a box or a borrowed slice of atomics, which any thread may use.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Words that the system zeroes on first touch; `None` if there is no memory for them.
    pub fn zeroed(count: usize) -> Option<Words> {
        let layout = Layout::array::<AtomicU32>(count.max(1)).ok()?;
        // SAFETY: the layout has at least one word.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Words { at: at.cast(), count, owned: Some((at, layout)) })
    }

    /// Zeroed words that begin a page. Asking the allocator for the alignment would touch them all.
    pub fn zeroed_pages(count: usize) -> Option<Words> {
        let layout = Layout::array::<AtomicU32>(count.checked_add(PAGE / 4)?).ok()?;
        // SAFETY: the layout has more than one word.
        let owned = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skipped = owned.align_offset(PAGE);
        // SAFETY: less than a page is skipped, and the layout has one more than the words take.
        let at = unsafe { owned.add(skipped) }.cast();
        Some(Words { at, count, owned: Some((owned, layout)) })
    }

    /// Words of somebody else.
    ///
    /// # Safety
    ///
    /// `at` is aligned to words, and so many words there stay valid while the value lives. Whoever
    /// else uses them meanwhile orders its accesses with those of kernels.
    pub unsafe fn mapped(at: NonNull<AtomicU32>, count: usize) -> Words {
        Words { at, count, owned: None }
    }

    /// Address of the first word in the process.
    pub fn address(&self) -> u64 {
        self.at.as_ptr().addr() as u64
    }
}

impl Deref for Words {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        // SAFETY: so many words are valid at `at`: zeroed by `zeroed`, or promised to `mapped`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if let Some((owned, layout)) = self.owned {
            // SAFETY: allocated with this layout, and nothing refers to it any more.
            unsafe { dealloc(owned.as_ptr(), layout) };
        }
    }
}
