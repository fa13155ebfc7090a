//! Which columns of a row a lane of a warp passes through the epilogue.

use crate::dtype::DType;
use crate::engine::gemm::layout::access_of;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::epilogue_vector;

/// The columns of a row that a lane passes through the epilogue at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LaneColumns {
    pub(super) count: i64,
    /// Whether they are striped: neighbouring columns are of neighbouring lanes.
    pub(super) striped: bool,
}

impl LaneColumns {
    pub(super) fn blocked(count: i64) -> LaneColumns {
        LaneColumns { count, striped: false }
    }

    /// Those of warps that stage so many columns of a row: 16 bytes of the widest type, striped
    /// where that would be stored in accesses of a quarter, each of which touches every sector.
    pub(super) fn staged(problem: &Problem<'_>, accumulator: DType, warp_n: i64) -> LaneColumns {
        let count = epilogue_vector(problem, accumulator);
        let extents = [problem.m, problem.n];
        let is_narrow = |at: usize| {
            let tensor = &problem.graph.tensors[at];
            let view = problem.epilogue.axes.view(tensor);
            let access = access_of(problem, at, &view, extents, true, count);
            view.column == 1 && access * 4 <= count * tensor.dtype.bytes() as i64
        };
        match problem.result.is_none() && problem.outputs().any(is_narrow) {
            true => LaneColumns { count: count.min(warp_n / STRIPE_MIN), striped: true },
            false => LaneColumns::blocked(count),
        }
    }
}

/// The fewest lanes of a row over which columns are striped; what they load of four staged rows is
/// free of bank conflicts.
const STRIPE_MIN: i64 = 8;
