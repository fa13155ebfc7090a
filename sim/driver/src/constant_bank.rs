//! Where a GPU has the parameters of a kernel: in the constant bank, behind what the driver keeps
//! there. They are aligned by their address in the bank, not by their offset among the parameters.

use kiln_sim::Kernel;

use crate::occupancy::gpu;

/// Where parameters begin on a GPU of this capability, as ptxas 13.0 places them
/// (`EIATTR_PARAM_CBANK`).
fn origin(capability: (u32, u32)) -> usize {
    match capability {
        (..=8, _) => 0x160,
        (9, _) => 0x210,
        _ => 0x380,
    }
}

/// The offset of each parameter from where they begin, and the bytes of all.
pub fn places(kernel: &Kernel) -> (Vec<usize>, usize) {
    let params = kernel.params().iter().map(|param| (param.bytes, param.align));
    placed(origin(gpu().capability), params)
}

fn placed(origin: usize, params: impl Iterator<Item = (usize, usize)>) -> (Vec<usize>, usize) {
    let mut at = origin;
    let offsets = params.map(|(bytes, align)| {
        let place = at.next_multiple_of(align);
        at = place + bytes;
        place - origin
    });
    (offsets.collect(), at - origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ptxas 13.0 makes of a pointer, 128 bytes aligned to 64, one byte, 128 bytes aligned to
    /// 128, and 16 aligned to 16 (`EIATTR_KPARAM_INFO`).
    #[test]
    fn parameters_are_placed_as_ptxas_does() {
        let params = [(8, 8), (128, 64), (1, 1), (128, 128), (16, 16)];
        let before_hopper = ([0, 0x20, 0xa0, 0x120, 0x1a0], 0x1b0);
        let since_blackwell = ([0, 0x40, 0xc0, 0x100, 0x180], 0x190);
        for (capability, (offsets, bytes)) in [
            ((7, 5), before_hopper),
            ((8, 0), before_hopper),
            ((8, 9), before_hopper),
            ((9, 0), ([0, 0x30, 0xb0, 0xf0, 0x170], 0x180)),
            ((10, 0), since_blackwell),
            ((12, 0), since_blackwell),
        ] {
            let found = placed(origin(capability), params.into_iter());
            assert_eq!(found, (offsets.to_vec(), bytes), "{capability:?}");
        }
    }
}
