//! Control flow: blocks, edges and loops.

use crate::cubin::Code;
use crate::instruction::{BYTES, Instruction, Jump};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Instructions that are executed one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Their indices.
    pub instructions: Range<usize>,
    /// Edges that enter it.
    pub entered_by: Vec<usize>,
    /// Edges that leave it.
    pub left_by: Vec<usize>,
    /// Whether some warps may end at its end.
    pub ends: bool,
}

/// A way from a block to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The block that is left.
    pub from: usize,
    /// The block that is entered.
    pub to: usize,
}

/// A loop: blocks that are executed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loop {
    /// The block through which it is entered.
    pub header: usize,
    /// All of its blocks, those of inner loops included.
    pub blocks: BTreeSet<usize>,
    /// The loop around it.
    pub parent: Option<usize>,
}

/// The control flow of a kernel. Functions are left out: they return behind the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Blocks, in order of address; the first is where the kernel starts.
    pub blocks: Vec<Block>,
    /// Edges.
    pub edges: Vec<Edge>,
    /// Loops, outer ones before those that they hold.
    pub loops: Vec<Loop>,
}

impl Flow {
    /// The control flow of a code.
    pub fn of(code: &Code) -> Flow {
        let mut flow = Flow { blocks: blocks(code), edges: Vec::new(), loops: Vec::new() };
        flow.connect(code);
        flow.loops = flow.find_loops();
        flow
    }

    /// The block of an instruction.
    pub fn block_of(&self, instruction: usize) -> usize {
        self.blocks.partition_point(|block| block.instructions.start <= instruction) - 1
    }

    fn connect(&mut self, code: &Code) {
        let starts: BTreeMap<u32, usize> = (0..)
            .zip(&self.blocks)
            .map(|(at, block)| (block.instructions.start as u32 * BYTES, at))
            .collect();
        for from in 0..self.blocks.len() {
            let last = self.blocks[from].instructions.end - 1;
            let (mut targets, mut ends) = (Vec::new(), false);
            let mut falls = true;
            match jump(code, last) {
                Some(Jump::To { target, conditional } | Jump::Call { target, conditional }) => {
                    falls = conditional;
                    targets.extend(starts.get(&target).copied());
                }
                Some(Jump::Exit { conditional }) => (falls, ends) = (conditional, true),
                Some(Jump::Indirect) => (falls, ends) = (false, true),
                None => {}
            }
            if falls && from + 1 < self.blocks.len() {
                targets.insert(0, from + 1);
            }
            targets.dedup();
            self.blocks[from].ends = ends;
            for to in targets {
                let edge = self.edges.len();
                self.edges.push(Edge { from, to });
                self.blocks[from].left_by.push(edge);
                self.blocks[to].entered_by.push(edge);
            }
        }
    }

    /// Whether each block can be reached from the start: functions that are called cannot.
    pub fn reached(&self) -> Vec<bool> {
        let mut reached = vec![false; self.blocks.len()];
        for block in self.order() {
            reached[block] = true;
        }
        reached
    }

    /// Blocks that can be reached from the start, in reverse postorder.
    fn order(&self) -> Vec<usize> {
        let (mut seen, mut order) = (vec![false; self.blocks.len()], Vec::new());
        let mut stack = vec![(0, 0)];
        seen[0] = true;
        while let Some((block, next)) = stack.pop() {
            match self.blocks[block].left_by.get(next) {
                Some(&edge) => {
                    stack.push((block, next + 1));
                    let to = self.edges[edge].to;
                    if !std::mem::replace(&mut seen[to], true) {
                        stack.push((to, 0));
                    }
                }
                None => order.push(block),
            }
        }
        order.reverse();
        order
    }

    /// The dominator of each block that can be reached, by place in `order`. (Cooper, Harvey and
    /// Kennedy, "A Simple, Fast Dominance Algorithm".)
    fn dominators(&self, order: &[usize]) -> Vec<Option<usize>> {
        let mut place = vec![usize::MAX; self.blocks.len()];
        for (at, &block) in order.iter().enumerate() {
            place[block] = at;
        }
        let mut dominators: Vec<Option<usize>> = vec![None; self.blocks.len()];
        dominators[0] = Some(0);
        let mut changed = true;
        while changed {
            changed = false;
            for &block in &order[1..] {
                let before =
                    self.blocks[block].entered_by.iter().map(|&edge| self.edges[edge].from);
                let known = before.filter(|&from| dominators[from].is_some());
                let common = known.reduce(|mut a, mut b| {
                    while a != b {
                        while place[a] > place[b] {
                            a = dominators[a].unwrap_or(0);
                        }
                        while place[b] > place[a] {
                            b = dominators[b].unwrap_or(0);
                        }
                    }
                    a
                });
                if common.is_some() && dominators[block] != common {
                    dominators[block] = common;
                    changed = true;
                }
            }
        }
        dominators
    }

    fn find_loops(&self) -> Vec<Loop> {
        let order = self.order();
        let dominators = self.dominators(&order);
        let dominates = |above: usize, mut block: usize| {
            while block != above && block != 0 {
                block = dominators[block].unwrap_or(0);
            }
            block == above
        };
        let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for edge in &self.edges {
            if dominators[edge.from].is_none() || !dominates(edge.to, edge.from) {
                continue;
            }
            let body = found.entry(edge.to).or_insert_with(|| BTreeSet::from([edge.to]));
            let mut left = vec![edge.from];
            while let Some(block) = left.pop() {
                if body.insert(block) {
                    let before = self.blocks[block].entered_by.iter();
                    left.extend(before.map(|&edge| self.edges[edge].from));
                }
            }
        }
        let mut loops: Vec<Loop> = found
            .into_iter()
            .map(|(header, blocks)| Loop { header, blocks, parent: None })
            .collect();
        loops.sort_by_key(|each| (std::cmp::Reverse(each.blocks.len()), each.header));
        for inner in 0..loops.len() {
            let header = loops[inner].header;
            let outer = loops[..inner].iter().rposition(|outer| outer.blocks.contains(&header));
            loops[inner].parent = outer;
        }
        loops
    }
}

/// Instructions in front of a call among which one sets the address that it returns to.
const RETURN_ADDRESS: usize = 24;

/// Where execution goes on, if not behind the instruction; `None` for calls of functions, which
/// return there.
fn jump(code: &Code, at: usize) -> Option<Jump> {
    let own = &code.instructions[at];
    let sets = |before: &Instruction| before.immediate() == own.address + BYTES;
    let before = &code.instructions[at.saturating_sub(RETURN_ADDRESS)..at];
    own.jump().filter(|jump| !matches!(jump, Jump::Call { .. }) || !before.iter().any(sets))
}

/// Blocks start at the first instruction, at targets of branches, and behind branches.
fn blocks(code: &Code) -> Vec<Block> {
    let count = code.instructions.len();
    let mut starts = BTreeSet::from([0]);
    for at in 0..count {
        match jump(code, at) {
            Some(Jump::To { target, .. } | Jump::Call { target, .. }) => {
                starts.extend([at + 1, (target / BYTES) as usize]);
            }
            Some(Jump::Exit { .. } | Jump::Indirect) => {
                starts.insert(at + 1);
            }
            None => {}
        }
    }
    let starts: Vec<usize> = starts.into_iter().filter(|&start| start < count).collect();
    let ends = starts.iter().skip(1).copied().chain([count]);
    let block = |(start, end)| Block {
        instructions: start..end,
        entered_by: Vec::new(),
        left_by: Vec::new(),
        ends: false,
    };
    starts.iter().copied().zip(ends).map(block).collect()
}
