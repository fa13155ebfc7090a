//! What engines share of the order in which tiles read their operands, for a model of L2.

/// Steps of all tiles up to which their reads are listed.
pub(super) const STEPS_MAX: i64 = 1 << 22;

/// The line and the place in it of a tile, where groups of so many lines are walked together, place
/// by place; the last group has what is left.
pub(super) fn grouped(group: i64, [lines, places]: [i64; 2], at: i64) -> [i64; 2] {
    let first = at / (group * places) * group;
    let (group, inside) = (group.min(lines - first), at - first * places);
    [first + inside % group, inside / group]
}
