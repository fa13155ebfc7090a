//! The tiles that the heuristic of `gemm_mma` compares.

use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::Candidate;

/// Candidate block and warp tiles with the estimated fraction of peak: a warp tile of 64 x 64 reads
/// 16 bytes of shared memory per 512 multiply-adds of 16-bit types, one of 32 x 32 per 256.
const CANDIDATES: [Candidate; 8] = [
    ([128, 256, 64, 64], 1.0),
    ([128, 128, 64, 64], 0.95),
    ([128, 64, 64, 32], 0.8),
    ([64, 128, 32, 64], 0.8),
    ([64, 64, 32, 32], 0.65),
    ([32, 64, 16, 32], 0.45),
    ([16, 128, 16, 32], 0.35),
    ([16, 64, 16, 32], 0.3),
];

/// Tiles for dual GEMMs, rated as [`CANDIDATES`] are; columns are those of each GEMM.
const DUAL_CANDIDATES: [Candidate; 6] = [
    ([128, 128, 64, 32], 1.0),
    ([128, 64, 64, 32], 0.95),
    ([64, 64, 32, 32], 0.8),
    ([64, 32, 32, 32], 0.65),
    ([16, 128, 16, 32], 0.45),
    ([16, 64, 16, 32], 0.4),
];

/// Tiles where elements are found one by one through a window, by twice as many threads as others
/// have: fewer elements of each leave registers for more warps.
const GATHERED_CANDIDATES: [Candidate; 6] = [
    ([128, 128, 64, 32], 0.85),
    ([128, 64, 32, 32], 0.75),
    ([64, 128, 32, 32], 0.75),
    ([64, 64, 32, 32], 0.65),
    ([32, 64, 16, 32], 0.45),
    ([16, 64, 16, 32], 0.3),
];

/// Candidate tiles.
pub(super) fn candidates(
    problem: &Problem<'_>,
    is_gathered: bool,
) -> impl Iterator<Item = Candidate> + use<> {
    let all: &[Candidate] = match is_gathered {
        true => &GATHERED_CANDIDATES,
        false if problem.dual.is_some() => &DUAL_CANDIDATES,
        false => &CANDIDATES,
    };
    all.iter().copied()
}
