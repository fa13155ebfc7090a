//! Warps of a thread block that do the same.
//!
//! One may issue all copies, or some compute what others wait for. A branch that half of the warps
//! take always is another way for each half than one that all take every second time.

use crate::cubin::Code;
use crate::execution::Execution;
use crate::flow::Flow;
use std::collections::{BTreeMap, BTreeSet};

/// Roles that are told apart.
const ROLES_MAX: usize = 8;
/// Share of their instructions by which warps of a role may differ: rows and keys are not always as
/// many.
const ALIKE: f64 = 0.02;

/// Warps of all thread blocks that do the same.
#[derive(Debug)]
pub(crate) struct Role {
    /// The warps of a block.
    pub warps: Vec<usize>,
    /// What all of them execute.
    pub execution: Execution,
}

/// Executions of lines.
type Lines = BTreeMap<u32, u64>;

/// The roles of a block's warps, by executions of lines by each warp in so many blocks. How often
/// lines in `polled` are executed is not of the code's making.
pub(crate) fn roles(
    code: &Code,
    flow: &Flow,
    lines: &BTreeMap<u32, Vec<u64>>,
    [blocks, warps_block]: [u64; 2],
    polled: &BTreeSet<u32>,
) -> Vec<Role> {
    let of_warp = |warp: usize| -> Lines {
        let count = |of: &Vec<u64>| of.get(warp).copied().unwrap_or(0);
        lines.iter().map(|(&line, of)| (line, count(of))).collect()
    };
    // Of each group, the warps and the lines of the first.
    let mut groups: Vec<(Vec<usize>, Lines)> = Vec::new();
    for warp in 0..warps_block as usize {
        let own = of_warp(warp);
        let apart = |of: &Lines| apart(&own, of, polled);
        let distances = groups.iter().map(|(_, of)| apart(of)).enumerate();
        match distances.min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((at, apart)) if apart <= ALIKE || groups.len() == ROLES_MAX => {
                groups[at].0.push(warp);
            }
            _ => groups.push((vec![warp], own)),
        }
    }
    let role = |(warps, _): (Vec<usize>, Lines)| {
        let count = |of: &Vec<u64>| warps.iter().map(|&warp| of.get(warp).unwrap_or(&0)).sum();
        let lines: Lines = lines.iter().map(|(&line, of)| (line, count(of))).collect();
        let execution = Execution::of(code, flow, &lines, blocks * warps.len() as u64);
        Role { warps, execution }
    };
    groups.into_iter().map(role).collect()
}

/// The share of all instructions of two warps by which they differ.
fn apart(a: &Lines, b: &Lines, polled: &BTreeSet<u32>) -> f64 {
    let (mut differ, mut all) = (0, 1);
    for (line, &count) in a.iter().filter(|(line, _)| !polled.contains(line)) {
        let other = b.get(line).copied().unwrap_or(0);
        differ += count.abs_diff(other);
        all += count.max(other);
    }
    differ as f64 / all as f64
}
