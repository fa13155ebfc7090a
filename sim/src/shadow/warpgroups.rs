//! Registers of pending wgmma, and the wgmma that the warps of a warpgroup have issued.

use crate::warpgroup::WARPS;
use std::collections::VecDeque;

/// A register that is an operand or accumulator of wgmma.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProductRegister {
    /// The last write by an instruction, and the number of fences before it.
    pub written: Option<(u32, u32)>,
    /// The pending wgmma that reads it, and its group once committed.
    pub read_by: Option<(u32, Option<u32>)>,
}

/// Registers of a warp's wgmma.
#[derive(Debug, Default)]
pub(crate) struct ProductRegisters {
    pub list: Vec<ProductRegister>,
    /// Number of `wgmma.fence` executed.
    pub fences: u32,
}

/// A wgmma as issued by a warp: the op, and the matrix descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Issued {
    pub pc: u32,
    pub descriptors: [u64; 2],
}

/// The wgmma of a warpgroup that some of its warps have yet to issue, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Warpgroup {
    pending: VecDeque<(Issued, [bool; WARPS])>,
    /// Number of those that all warps issued, and of those that each did.
    complete: usize,
    issued: [usize; WARPS],
    exited: [bool; WARPS],
}

impl Warpgroup {
    /// A warp issues its next wgmma; returns what another issued in its place, and the warp.
    pub fn issue(&mut self, warp: usize, product: Issued) -> Option<(Issued, usize)> {
        let at = self.issued[warp] - self.complete;
        self.issued[warp] += 1;
        if at == self.pending.len() {
            self.pending.push_back((product, [false; WARPS]));
        }
        let (first, by) = &mut self.pending[at];
        by[warp] = true;
        let other = by.iter().position(|&issued| issued).filter(|_| *first != product);
        let found = other.map(|other| (*first, other));
        while self.pending.front().is_some_and(|(_, by)| *by == [true; WARPS]) {
            self.pending.pop_front();
            self.complete += 1;
        }
        found
    }

    /// A warp exits; returns the first wgmma that it did not issue, though another did.
    pub fn exit(&mut self, warp: usize) -> Option<(Issued, usize)> {
        self.exited[warp] = true;
        let (issued, by) = self.pending.get(self.issued[warp] - self.complete)?;
        Some((*issued, by.iter().position(|&issued| issued)?))
    }

    /// A warp that exited without the last wgmma that another issued.
    pub fn missing(&self, warp: usize) -> Option<usize> {
        let issued = self.issued[warp];
        (0..WARPS).find(|&other| self.exited[other] && self.issued[other] < issued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_issue_the_same_in_any_order() {
        let issued = |pc| Issued { pc, descriptors: [0, 1] };
        let mut group = Warpgroup::default();
        for warp in [2, 0, 3] {
            assert_eq!(group.issue(warp, issued(7)), None);
            assert_eq!(group.issue(warp, issued(8)), None);
        }
        assert_eq!(group.issue(1, issued(7)), None);
        assert_eq!(group.issue(1, issued(9)), Some((issued(8), 0)));
        assert!(group.pending.is_empty());
        assert_eq!(group.issue(1, issued(5)), None);
        assert_eq!(group.missing(1), None);
        assert_eq!(group.exit(0), Some((issued(5), 1)));
        assert_eq!(group.missing(1), Some(0));
    }
}
