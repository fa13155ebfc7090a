//! Matrix descriptors: locations of `wgmma` operands in shared memory.

use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::op::MicroOp;
use crate::registers::Slot;
use crate::tensor_map::Swizzle;
use crate::unit::WarpgroupMultiply;
use crate::warp::Warp;
use std::ops::Range;

/// Threads per warpgroup.
const THREADS: u32 = 128;
/// Bits of a descriptor that are reserved and must be zero.
const RESERVED: u64 = 0x3ff1_c000_c000_c000;

/// A matrix in shared memory: rows of A, or columns of B, by K.
#[derive(Debug, Clone, Copy)]
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
    fn decode(bits: u64, transposed: bool) -> Descriptor {
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
    pub fn chunks(self, groups: u64, chunks: u64) -> impl Iterator<Item = u64> {
        self.pieces(0..groups, chunks)
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

    /// Start addresses of the 16-byte chunks of some groups.
    fn pieces(self, groups: Range<u64>, chunks: u64) -> impl Iterator<Item = u64> {
        groups.flat_map(move |group| {
            (0..chunks)
                .flat_map(move |chunk| (0..8).map(move |index| self.address(group, index, chunk)))
        })
    }

    /// End of the highest chunk.
    fn end(self, groups: u64, chunks: u64) -> u64 {
        self.pieces(0..groups, chunks).map(|start| start + 16).max().unwrap_or_default()
    }
}

/// Checks that a wgmma has a full warpgroup, and returns its operands.
pub(crate) fn descriptors(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    product: WarpgroupMultiply,
    reads: &[Slot],
) -> Result<(Option<Descriptor>, Descriptor), Failure> {
    let threads: u32 = cx.launch.block.iter().product();
    if (warp.index / 4 + 1) * THREADS > threads {
        return misuse(0, format!("wgmma in warp {} of a block of {threads} threads", warp.index));
    }
    if !warp.products.fenced {
        return misuse(0, "wgmma.mma_async without a wgmma.fence before it");
    }
    let decode = |slot: Slot, transposed: bool, groups: u64| {
        let row = warp.registers.wide(&cx.program.constants, slot);
        if let Some(lane) = row.iter().position(|&bits| bits != row[0]) {
            return misuse(lane, "the lanes of a warp have different matrix descriptors");
        }
        if row[0] & RESERVED != 0 {
            return misuse(0, format!("the matrix descriptor {:#x} has reserved bits", row[0]));
        }
        let descriptor = Descriptor::decode(row[0], transposed);
        let (end, size) = (descriptor.end(groups, 2), u64::from(block.shared_bytes));
        if end > size {
            return misuse(
                0,
                format!(
                    "the matrix descriptor {:#x} reaches shared offset {end:#x} of {size} bytes",
                    row[0]
                ),
            );
        }
        Ok(descriptor)
    };
    let [in_a, in_b] = product.transposed;
    let b_at = if product.a_registers { 4 } else { 1 };
    let b = decode(reads[b_at], in_b, u64::from(product.n) / 8)?;
    let a = match product.a_registers {
        true => None,
        false => Some(decode(reads[0], in_a, 8)?),
    };
    Ok((a, b))
}

/// Start addresses of the 16-byte chunks that a warp's wgmma reads from shared memory; `None` if it
/// is about to fail.
pub(crate) fn product_pieces(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    product: WarpgroupMultiply,
) -> Option<Vec<u64>> {
    let (_, reads) = cx.list(op).split_at(product.registers());
    let (a, b) = descriptors(warp, block, cx, product, reads).ok()?;
    let first = u64::from(warp.index % 4) * 2;
    let rows = a.into_iter().flat_map(|a| a.pieces(first..first + 2, 2));
    Some(rows.chain(b.pieces(0..u64::from(product.n) / 8, 2)).collect())
}
