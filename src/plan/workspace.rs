//! Layout of a workspace: buffers with disjoint lifetimes share memory.

use crate::progression::Progression;

/// Alignment in bytes of the workspace and of every buffer in it.
pub(crate) const ALIGNMENT: u64 = 256;

/// A buffer and its lifetime in launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(super) bytes: u64,
    /// The first launch that accesses it.
    pub(super) first: usize,
    /// The last launch that accesses it.
    pub(super) last: usize,
}

impl Lifetime {
    fn meets(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The size grows; the lifetime stays.
impl Progression for Lifetime {
    fn term(first: &Lifetime, second: &Lifetime, at: i64) -> Option<Lifetime> {
        let alike = (first.first, first.last) == (second.first, second.last);
        let bytes = alike.then(|| u64::term(&first.bytes, &second.bytes, at))??;
        Some(Lifetime { bytes, ..*first })
    }
}

/// What a workspace may hold: each of these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(super) each: Vec<Vec<Lifetime>>,
    /// Whether some are of plans that were chosen for the graph alone, not like that of another.
    is_alone: bool,
}

impl Contents {
    /// Size in bytes of a workspace that has room for each.
    pub(crate) fn bytes(&self) -> u64 {
        self.each.iter().map(|of| layout(of).1).max().unwrap_or(0)
    }

    /// Of plans that are like that of another graph.
    pub(super) fn like_another(each: Vec<Vec<Lifetime>>) -> Contents {
        Contents { each, is_alone: false }
    }

    /// These, or those.
    pub(crate) fn or(mut self, other: Contents) -> Contents {
        self.each.extend(other.each);
        Contents { is_alone: self.is_alone || other.is_alone, ..self }
    }

    /// These, or those of plans that were chosen for the graph alone.
    pub(super) fn or_alone(self, other: Contents) -> Contents {
        Contents { is_alone: true, ..self.or(other) }
    }

    /// Whether some are of plans that were chosen for the graph alone.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }
}

impl Progression for Contents {
    fn term(first: &Contents, second: &Contents, at: i64) -> Option<Contents> {
        let each = Vec::term(&first.each, &second.each, at)?;
        Some(Contents { each, is_alone: first.is_alone || second.is_alone })
    }
}

/// The offset of each buffer and the total size in bytes. Greedy by size: each buffer gets the
/// lowest offset that is free throughout its lifetime (Pisarchyk and Lee 2020).
pub(super) fn layout(pieces: &[Lifetime]) -> (Vec<u64>, u64) {
    let size = |piece: &Lifetime| piece.bytes.next_multiple_of(ALIGNMENT);
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(pieces[*at].bytes));
    let mut offsets = vec![0; pieces.len()];
    let mut placed: Vec<usize> = Vec::new();
    for at in order {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| pieces[**other].meets(&pieces[at]))
            .map(|other| (offsets[*other], offsets[*other] + size(&pieces[*other])))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if start >= offset + size(&pieces[at]) {
                break;
            }
            offset = offset.max(end);
        }
        offsets[at] = offset;
        placed.push(at);
    }
    let end = |at: &usize| offsets[*at] + size(&pieces[*at]);
    let bytes = placed.iter().map(end).max().unwrap_or(0);
    (offsets, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: u64, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    #[test]
    fn a_chain_needs_two_places() {
        let chain: Vec<Lifetime> = (0..10).map(|at| piece(1000, at, at + 1)).collect();
        assert_eq!(layout(&chain).1, 2048);
    }

    #[test]
    fn gaps_are_filled() {
        let pieces = [piece(512, 0, 3), piece(256, 0, 0), piece(256, 1, 3), piece(256, 2, 2)];
        let (offsets, bytes) = layout(&pieces);
        assert_eq!((offsets, bytes), (vec![0, 512, 512, 768], 1024));
        assert_eq!(layout(&[]), (vec![], 0));
    }

    #[test]
    fn what_lives_together_lies_apart() {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let pieces: Vec<Lifetime> = (0..12)
                .map(|_| {
                    let first = next(10) as usize;
                    piece(next(5000), first, first + next(4) as usize)
                })
                .collect();
            let (offsets, bytes) = layout(&pieces);
            for (a, first) in pieces.iter().enumerate() {
                assert!(offsets[a] % ALIGNMENT == 0 && offsets[a] + first.bytes <= bytes);
                for (b, second) in pieces.iter().enumerate().take(a) {
                    let apart = offsets[a] + first.bytes <= offsets[b]
                        || offsets[b] + second.bytes <= offsets[a];
                    assert!(apart || !first.meets(second) || first.bytes * second.bytes == 0);
                }
            }
            let sum: u64 = pieces.iter().map(|of| of.bytes.next_multiple_of(ALIGNMENT)).sum();
            assert!(bytes <= sum);
        }
    }
}
