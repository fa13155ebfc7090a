//! Source lanes of `shfl`.

use crate::context::Context;
use crate::op::{MicroOp, Shuffle};
use crate::registers::LANES;
use crate::warp::Warp;

/// Source lane of each lane of a `shfl`, and whether it is in range: the clamp operand holds the
/// last lane in its low bits and the segment mask above.
pub(crate) fn sources(
    warp: &Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    mode: Shuffle,
) -> ([usize; LANES], u32) {
    let constants = &cx.program.constants;
    let lanes = *warp.registers.word(constants, op.b);
    let clamps = *warp.registers.word(constants, op.c);
    let mut out = std::array::from_fn(|lane| lane);
    let mut valid = 0_u32;
    for lane in 0..LANES {
        let (by, clamp) = (lanes[lane] & 31, clamps[lane] & 31);
        let segment = clamps[lane] >> 8 & 31;
        let own = lane as u32;
        let last = (own & segment) | (clamp & !segment);
        let first = own & segment;
        let (from, inside) = match mode {
            Shuffle::Up => (own.wrapping_sub(by), own as i32 - by as i32 >= last as i32),
            Shuffle::Down => (own + by, own + by <= last),
            Shuffle::Butterfly => (own ^ by, own ^ by <= last),
            Shuffle::Index => {
                let from = first | (by & !segment);
                (from, from <= last)
            }
        };
        if inside {
            out[lane] = from as usize & 31;
            valid |= 1 << lane;
        }
    }
    (out, valid)
}
