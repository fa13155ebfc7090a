//! Operands of `wgmma` in shared memory, as its descriptors give them.

use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::matrix_descriptor::Descriptor;
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::unit::WarpgroupMultiply;
use crate::warp::Warp;
use crate::warpgroup::WARPS;
use std::ops::Range;

/// Threads per warpgroup.
const THREADS: u32 = (WARPS * LANES) as u32;
/// Bits of a descriptor that are reserved and must be zero.
const RESERVED: u64 = 0x3ff1_c000_c000_c000;

/// Checks that a wgmma has a full warpgroup, and returns its operands.
pub(crate) fn descriptors(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    product: WarpgroupMultiply,
    reads: &[Slot],
) -> Result<(Option<Descriptor>, Descriptor), Failure> {
    let threads: u32 = cx.launch.block.iter().product();
    if (warp.index / WARPS as u32 + 1) * THREADS > threads {
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
        let size = u64::from(block.shared_bytes);
        if !descriptor.fits(groups, 2, size) {
            let end = descriptor.end(groups, 2);
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

/// What a warp's wgmma reads of matrices in shared memory: the groups of eight rows of each; `None`
/// if it is about to fail.
pub(crate) fn product_operands(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    product: WarpgroupMultiply,
) -> Option<Vec<(Descriptor, Range<u64>)>> {
    let (_, reads) = cx.list(op).split_at(product.registers());
    let (a, b) = descriptors(warp, block, cx, product, reads).ok()?;
    let first = u64::from(warp.index % 4) * 2;
    let rows = a.map(|a| (a, first..first + 2));
    Some(rows.into_iter().chain([(b, 0..u64::from(product.n) / 8)]).collect())
}
