//! Things that a GPU or a handle keeps, of which the one used last is at hand.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kiln::Kiln;
use kiln::device::Buffer;

use crate::status::Outcome;

/// How many things of a kind are kept.
pub const KEPT: usize = 64;

/// Bytes of what the interface gives the address of only: nothing ends before what a descriptor
/// asks for.
pub const UNKNOWN: u64 = i64::MAX as u64;

/// Plans want workspaces aligned to so many bytes.
const ALIGNMENT: u64 = 256;
/// Programs align them to so many (section 6.2.1.15).
const GIVEN_ALIGNMENT: u64 = 16;

/// Bytes of a workspace of which so many can be used, wherever it begins.
pub fn workspace_bytes(used: u64) -> u64 {
    if used == 0 { 0 } else { used + ALIGNMENT - GIVEN_ALIGNMENT }
}

/// What of a workspace can be used: address and bytes.
pub fn aligned(address: u64, bytes: u64) -> Option<(u64, u64)> {
    let start = address.checked_next_multiple_of(ALIGNMENT)?;
    let bytes = bytes.checked_sub(start - address)?;
    (address != 0 && bytes > 0).then_some((start, bytes))
}

/// Things of a kind: those of a GPU, or a handle's clones of them, which no other handle waits for.
pub struct Kept<T>(Mutex<Vec<T>>);

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Mutex::default())
    }
}

impl<T> Kept<T> {
    /// Uses a thing, which is found or made.
    pub fn with<R>(
        &self,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Outcome<T>,
        of: impl FnOnce(&mut T) -> Outcome<R>,
    ) -> Outcome<R> {
        of(use_last(&mut self.all(), is, make)?)
    }

    /// All of them, the one used last at the end.
    pub fn all(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thing that is meant, found or made, at the end of all.
pub fn use_last<T>(
    all: &mut Vec<T>,
    is: impl Fn(&T) -> bool,
    make: impl FnOnce() -> Outcome<T>,
) -> Outcome<&mut T> {
    if all.last().is_none_or(|last| !is(last)) {
        let at = match all.iter().position(is) {
            Some(at) => at,
            None => {
                all.push(make()?);
                all.len() - 1
            }
        };
        all[at..].rotate_left(1);
        let over = all.len().saturating_sub(KEPT);
        all.drain(..over);
    }
    Ok(all.last_mut().expect("it is there"))
}

/// Lengths of sequences in device memory, for calls that are given none there.
#[derive(Clone, Default)]
pub struct Lengths(Vec<(Vec<i32>, Buffer)>);

impl Lengths {
    /// The address of lengths: the given one, or, where it is 0, that of memory of the library's
    /// own, which is filled once.
    pub fn address(&mut self, kiln: &Kiln, given: u64, lengths: &[i32]) -> Outcome<u64> {
        if given != 0 {
            return Ok(given);
        }
        let upload = || {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| length.to_ne_bytes()).collect();
            Ok((lengths.to_vec(), kiln.device().upload(&bytes)?))
        };
        let (_, buffer) = use_last(&mut self.0, |(known, _)| known == lengths, upload)?;
        Ok(buffer.address())
    }
}
