//! Rasterization: which output tiles run concurrently, and what they read.

use crate::engine::Knob;
use crate::engine::access::ceil_div;
use crate::engine::gemm::problem::Problem;
use crate::engine::tile_order::grouped;

/// Rows (or columns) of tiles per group: a square of concurrent tiles loads the fewest rows of A
/// and columns of B.
const GROUP: i64 = 8;

/// The order of tiles: group by group, each walked along its longer side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rasterization {
    /// Rows or columns of tiles per group.
    pub(super) group: i64,
    /// Whether a group consists of columns of tiles, walked row by row; otherwise of rows.
    pub(super) columns: bool,
}

impl Rasterization {
    /// The order in which concurrent tiles, one per SM, read the fewest bytes.
    pub(super) fn of(problem: &Problem<'_>, tile: [i64; 2], sm_count: i64) -> Rasterization {
        let rows = Rasterization { group: GROUP, columns: false };
        let columns = Rasterization { group: GROUP, columns: true };
        let read = |rasterization: Rasterization| rasterization.wave_bytes(problem, tile, sm_count);
        if read(columns) < read(rows) { columns } else { rows }
    }

    /// The order for these knob values.
    pub(super) fn from_knobs(group: i64, raster: i64) -> Rasterization {
        Rasterization { group, columns: raster == 1 }
    }

    /// Value of the knob `raster`.
    pub(super) fn raster(self) -> i64 {
        i64::from(self.columns)
    }

    /// The row and column of a tile in the order of kernels (`gemm/rasterize.cuh`).
    pub(super) fn tile(self, [rows, columns]: [i64; 2], at: i64) -> [i64; 2] {
        let [lines, places] = if self.columns { [columns, rows] } else { [rows, columns] };
        let [line, place] = grouped(self.group, [lines, places], at);
        if self.columns { [place, line] } else { [line, place] }
    }

    /// Rows and columns of tiles covered by the first `tiles` tiles.
    fn touched(self, [rows, columns]: [i64; 2], tiles: i64) -> [i64; 2] {
        let [lines, places] = if self.columns { [columns, rows] } else { [rows, columns] };
        let tiles = tiles.min(lines.saturating_mul(places));
        let whole = tiles / self.group.saturating_mul(places).max(1);
        let rest = tiles - whole * self.group * places;
        let group = self.group.min(lines - whole * self.group);
        let touched = [
            (whole * self.group + rest.min(group)).min(lines),
            match whole {
                0 => ceil_div(rest, group.max(1)),
                _ => places,
            },
        ];
        if self.columns { [touched[1], touched[0]] } else { touched }
    }

    /// Bytes of one K step that a wave of `tiles` tiles reads; shared operands count once.
    pub(super) fn wave_bytes(
        self,
        problem: &Problem<'_>,
        [cta_m, cta_n]: [i64; 2],
        tiles: i64,
    ) -> i64 {
        let of_matrix = [ceil_div(problem.m, cta_m), ceil_div(problem.n, cta_n)];
        let [rows, columns] = self.touched(of_matrix, tiles);
        let bytes = |at: usize| problem.graph.tensors[at].dtype.bytes() as i64;
        rows * cta_m * bytes(problem.a.tensor)
            + columns * cta_n * problem.gemm_count() * bytes(problem.b.tensor)
    }

    /// Reasons for the knobs `group` and `raster`.
    pub(super) fn reasons(self) -> [String; 2] {
        let raster = self.raster();
        let read = match self.columns {
            true => "groups of tile columns read fewer bytes than groups of rows",
            false => "groups of tile rows read no more bytes than groups of columns",
        };
        [
            "group=8: concurrent blocks share rows of A and columns of B in L2".to_owned(),
            format!("raster={raster}: {read}"),
        ]
    }
}

/// The knob `group`.
pub(super) fn group_knob(values: &[i64]) -> Knob {
    Knob {
        name: "group",
        about: "tile swizzle: rows or columns of tiles walked together, which share L2",
        values: values.to_vec(),
    }
}

/// The knob `raster`.
pub(super) fn raster_knob() -> Knob {
    Knob {
        name: "raster",
        about: "rasterization: 0 along N within rows of tiles, 1 along M within columns",
        values: vec![0, 1],
    }
}

/// The values of a knob that the cost model distinguishes: rasterization is always the choice of
/// [`Rasterization::of`], which the model cannot improve.
pub(super) fn distinguished(knob: Knob) -> Knob {
    match knob.name {
        "group" => Knob { values: vec![GROUP], ..knob },
        "dynamic_k" => {
            Knob { values: knob.values.iter().max().copied().into_iter().collect(), ..knob }
        }
        "dynamic_m" | "raster" => Knob { values: vec![0], ..knob },
        _ => knob,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_tiles_touch_is_counted() {
        for of in [[1, 1], [1, 9], [9, 1], [3, 5], [8, 8], [17, 4], [4, 17], [20, 30]] {
            for rasterization in
                [1, 4, 8].map(|group| [0, 1].map(|at| Rasterization::from_knobs(group, at)))
            {
                for rasterization in rasterization {
                    let (mut rows, mut columns) = (BTreeSet::new(), BTreeSet::new());
                    for tile in 0..of[0] * of[1] {
                        let [row, column] = rasterization.tile(of, tile);
                        assert!(rows.len() * columns.len() <= (of[0] * of[1]) as usize);
                        rows.insert(row);
                        columns.insert(column);
                        let counted = [rows.len() as i64, columns.len() as i64];
                        assert_eq!(
                            rasterization.touched(of, tile + 1),
                            counted,
                            "{rasterization:?} {of:?} {tile}"
                        );
                    }
                    assert_eq!(rasterization.touched(of, 1 << 40), of);
                }
            }
        }
    }
}
