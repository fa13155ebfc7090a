//! Matrix descriptors: locations of the operands of `wgmma` and `tcgen05` in shared memory.

use crate::tensor_map::Swizzle;
use std::ops::Range;

/// A matrix in shared memory: rows of A, or columns of B, by K.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    start: u64,
    /// Byte strides between core matrices in the leading and the other dimension.
    leading: u64,
    stride: u64,
    /// Offset of the swizzle pattern in rows of 128 bytes.
    base: u64,
    swizzle: Swizzle,
    /// Whether the matrix is MN-major instead of K-major.
    pub transposed: bool,
}

impl Descriptor {
    /// Decodes a descriptor of `wgmma`.
    pub fn decode(bits: u64, transposed: bool) -> Descriptor {
        let field = |low: u32| (bits >> low & 0x3fff) << 4;
        let swizzles = [Swizzle::None, Swizzle::B128, Swizzle::B64, Swizzle::B32];
        Descriptor {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base: bits >> 49 & 7,
            swizzle: swizzles[(bits >> 62) as usize],
            transposed,
        }
    }

    /// Decodes a descriptor of `tcgen05`.
    pub fn decode_tensor(bits: u64, transposed: bool) -> Result<Descriptor, String> {
        let refused = |what: &str| Err(format!("the matrix descriptor {bits:#x} has {what}"));
        let swizzle = match bits >> 61 {
            0 => Swizzle::None,
            2 => Swizzle::B128,
            4 => Swizzle::B64,
            6 => Swizzle::B32,
            _ => return refused("a swizzle that is not supported"),
        };
        if bits >> 46 & 7 != 1 || bits >> 53 & 0xff != 0 {
            return refused("other bits where constants belong");
        }
        if bits >> 52 & 1 != 0 {
            return refused("an absolute stride, which is not supported");
        }
        let field = |low: u32| (bits >> low & 0x3fff) << 4;
        let (start, leading, stride) = (field(0), field(16), field(32));
        Ok(Descriptor { start, leading, stride, base: bits >> 49 & 7, swizzle, transposed })
    }

    /// Start addresses of the 16-byte chunks of a matrix of this many rows and chunks of K.
    pub fn chunks(self, groups: u64, chunks: u64) -> Vec<u64> {
        let mut out = Vec::new();
        self.add_pieces(0..groups, chunks, &mut out);
        out
    }

    /// Address of 16 bytes of the eight rows of group `group`: chunk `chunk` along K of row `index`
    /// or, if MN-major, the eight rows of K index `8 chunk + index`.
    #[inline(always)]
    pub fn address(&self, group: u64, index: u64, chunk: u64) -> u64 {
        let place = match (self.swizzle.row_bytes(), self.transposed) {
            (None, false) => index * 16 + group * self.stride + chunk * self.leading,
            (Some(row), false) => index * row + group * self.stride + chunk * 16,
            (None, true) => index * 16 + group * self.stride + chunk * self.leading,
            (Some(row), true) => {
                let across = row / 16;
                let (block, inner) = (group / across, group % across);
                index * row + inner * 16 + block * self.leading + chunk * self.stride
            }
        };
        let address = self.start + place;
        let pattern = address.wrapping_sub(self.base << 7);
        address ^ (self.swizzle.apply(pattern) ^ pattern)
    }

    /// Adds the start addresses of the 16-byte chunks of some groups.
    pub fn add_pieces(self, groups: Range<u64>, chunks: u64, out: &mut Vec<u64>) {
        for group in groups {
            for chunk in 0..chunks {
                out.extend((0..8).map(|index| self.address(group, index, chunk)));
            }
        }
    }

    /// End of the highest chunk.
    pub fn end(self, groups: u64, chunks: u64) -> u64 {
        self.chunks(groups, chunks).into_iter().map(|start| start + 16).max().unwrap_or_default()
    }

    /// Whether the highest chunk ends within so many bytes.
    pub fn fits(self, groups: u64, chunks: u64, bytes: u64) -> bool {
        let (last_group, last_chunk) = (groups - 1, chunks - 1);
        let highest = match (self.swizzle.row_bytes(), self.transposed) {
            (None, _) => 7 * 16 + last_group * self.stride + last_chunk * self.leading,
            (Some(row), false) => 7 * row + last_group * self.stride + last_chunk * 16,
            (Some(row), true) => {
                let block = last_group / (row / 16);
                7 * row + (row - 16) + block * self.leading + last_chunk * self.stride
            }
        };
        // Swizzling changes bits of an address below 128. Near the end it matters which.
        ((self.start + highest) | 127) < bytes || self.end(groups, chunks) <= bytes
    }
}
