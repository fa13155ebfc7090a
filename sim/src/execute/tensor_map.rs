//! `tensormap.replace` and `tensormap.cp_fenceproxy`.

use crate::access::Window;
use crate::aim::{Attempt, Place, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::op::MicroOp;
use crate::tensor_map::replace;
use crate::unit::MapField;
use crate::warp::Warp;

const BYTES: usize = 128;
/// Alignment of a tensor map in global and in shared memory.
const ALIGN: u64 = 64;
const ALIGN_SHARED: u64 = 128;

fn located<'a>(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'a>,
    window: Window,
    lane: usize,
    address: u64,
) -> Result<Place<'a>, Failure> {
    let attempt = Attempt { verb: "tensormap", bytes: BYTES as u64 };
    let place = resolve(warp, block, cx, window, lane, address, attempt)?;
    let align = match place {
        Place::Shared(_) => ALIGN_SHARED,
        Place::Global(..) => ALIGN,
        _ => return misuse(lane, format!("tensor map at {address:#x}, in another window")),
    };
    match address.is_multiple_of(align) {
        true => Ok(place),
        false => Err(attempt.misaligned(lane, address, align)),
    }
}

fn read(block: &BlockState, place: Place<'_>) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    match place {
        Place::Global(allocation, at) => allocation.read(at, &mut bytes),
        Place::Shared(at) => {
            let words = &block.shared[at as usize / 4..];
            for (part, word) in bytes.chunks_exact_mut(4).zip(words) {
                part.copy_from_slice(&word.to_le_bytes());
            }
        }
        _ => {}
    }
    bytes
}

pub(super) fn change(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    (field, window): (MapField, Window),
    active: u32,
) -> Result<(), Failure> {
    let addresses = *warp.registers.wide(&cx.program.constants, cx.list(op)[0]);
    let values = *warp.registers.wide(&cx.program.constants, cx.list(op)[1]);
    for lane in lanes_of(active) {
        let place = located(warp, block, cx, window, lane, addresses[lane])?;
        let mut bytes = read(block, place);
        if let Err(why) = replace(&mut bytes, field, op.imm as usize, values[lane]) {
            return misuse(lane, format!("tensormap.replace: {why}"));
        }
        match place {
            Place::Global(allocation, at) => allocation.write(at, &bytes),
            Place::Shared(at) => {
                let words = &mut block.shared[at as usize / 4..];
                for (part, word) in bytes.as_chunks().0.iter().zip(words) {
                    *word = u32::from_le_bytes(*part);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Copies a tensor map from shared to global memory; the lanes have the same addresses.
pub(super) fn copy(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<(), Failure> {
    let to = *warp.registers.wide(&cx.program.constants, cx.list(op)[0]);
    let from = *warp.registers.wide(&cx.program.constants, cx.list(op)[1]);
    if let Some(lane) = lanes_of(active).find(|&lane| (to[lane], from[lane]) != (to[0], from[0])) {
        return misuse(lane, "the lanes of a warp copy different tensor maps");
    }
    let source = located(warp, block, cx, Window::Shared, 0, from[0])?;
    let bytes = read(block, source);
    if let Place::Global(allocation, at) = located(warp, block, cx, Window::Global, 0, to[0])? {
        allocation.write(at, &bytes);
        block.progressed = true;
    }
    Ok(())
}
