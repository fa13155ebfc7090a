//! `malloc` and `free` of kernels.

use crate::aim::lanes_of;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::heap::NotFreed;
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::warp::Warp;

/// A block of memory for each lane, or 0 where there is no room.
pub(super) fn allocate(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, active: u32) {
    let slots = cx.list(op);
    let sizes = *warp.registers.wide(&cx.program.constants, slots[1]);
    let mut addresses = [0; LANES];
    if let Some((of, heap)) = cx.heap() {
        for lane in lanes_of(active) {
            let Some(at) = heap.alloc(sizes[lane]) else { continue };
            // What an earlier block wrote there does not count.
            of.written.set(at, sizes[lane], false);
            addresses[lane] = of.base + at;
        }
    }
    warp.registers.set_wide(slots[0], &addresses, active);
}

/// Frees the block of each lane; a null pointer is none.
pub(super) fn free(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<(), Failure> {
    let addresses = *warp.registers.wide(&cx.program.constants, cx.list(op)[0]);
    for lane in lanes_of(active).filter(|&lane| addresses[lane] != 0) {
        let address = addresses[lane];
        let freed = match cx.heap() {
            Some((of, heap)) if address >= of.base => heap.free(address - of.base),
            _ => Err(NotFreed::Unknown),
        };
        match freed {
            Ok(()) => {}
            Err(NotFreed::Already) => {
                return misuse(lane, format!("free of {address:#x}, which is freed already"));
            }
            Err(NotFreed::Unknown) => {
                let text = format!("free of {address:#x}: no block of the heap begins there");
                return misuse(lane, text);
            }
        }
    }
    Ok(())
}
