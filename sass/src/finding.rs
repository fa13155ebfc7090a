//! What costs without need, by patterns of machine code.

use crate::cubin::Code;
use crate::execution::Execution;
use crate::flow::{Flow, Loop};
use crate::instruction::Instruction;
use serde::Serialize;
use std::collections::BTreeSet;

/// What costs without need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Address of the instruction, or of a loop's first one.
    pub address: u32,
    /// Line of the CUDA source.
    pub line: Option<u32>,
    /// What it is.
    pub text: String,
}

/// Instructions of a loop, without those of the loops that it holds.
fn own<'a>(code: &'a Code, flow: &Flow, at: usize) -> Vec<&'a Instruction> {
    let inner: BTreeSet<usize> = flow
        .loops
        .iter()
        .filter(|other| other.parent == Some(at))
        .flat_map(|other| other.blocks.iter().copied())
        .collect();
    let blocks = flow.loops[at].blocks.iter().filter(|block| !inner.contains(block));
    let indices = blocks.flat_map(|&block| flow.blocks[block].instructions.clone());
    indices.map(|index| &code.instructions[index]).collect()
}

/// A loop of one copy that is repeated at least so often is not unrolled.
const COPIES_MIN: f64 = 4.0;

pub(crate) fn find(
    code: &Code,
    flow: &Flow,
    execution: &Execution,
    polls: &BTreeSet<usize>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, each) in flow.loops.iter().enumerate() {
        let executed = execution.blocks[each.header];
        if polls.contains(&at) || executed < execution.warps / 64.0 {
            continue;
        }
        let own = own(code, flow, at);
        let mut say = |instruction: &Instruction, text: String| {
            let (address, line) = (instruction.address, instruction.source_line);
            found.push(Finding { address, line, text });
        };
        for instruction in &own {
            match (instruction.name(), instruction.scope()) {
                ("MEMBAR", Some(scope @ ("GPU" | "SYS"))) => {
                    say(instruction, format!("a fence for the {scope} in a loop"));
                }
                ("CCTL", _) => say(instruction, "L1 is invalidated in a loop".to_string()),
                _ => {}
            }
        }
        let count = |names: &[&str]| own.iter().filter(|each| names.contains(&each.name())).count();
        let first = |names: &[&str]| own.iter().find(|each| names.contains(&each.name())).copied();
        if let Some(local) = first(&["LDL", "STL"]) {
            let times = count(&["LDL", "STL"]);
            say(local, format!("local memory {times} times in a loop"));
        }
        let mmas = ["HGMMA", "QGMMA", "IGMMA"];
        if let (Some(mma), 1) = (first(&mmas), count(&mmas)) {
            let waits = own.iter().any(|each| each.groups_left() == Some(0));
            if waits && own.iter().any(|each| each.ends_group()) {
                say(mma, "each wgmma is waited for before the next".to_string());
            }
        }
        let copies = ["LDG", "LDGSTS", "STAS", "STG", "LDS", "STS"];
        let trips = executed / execution.entries(flow, each).max(1e-9);
        let copied = count(&["LDG", "LDGSTS", "STAS"]);
        if let (1, Some(copy)) = (copied, first(&copies)) {
            let mmas = ["HMMA", "IMMA", "HGMMA", "QGMMA", "BAR"];
            if trips >= COPIES_MIN && count(&mmas) == 0 && is_innermost(flow, each) {
                let text = format!("{} instructions for one {} in a loop", own.len(), copy.name());
                say(copy, text);
            }
        }
    }
    found.sort_by_key(|finding| finding.address);
    found
}

fn is_innermost(flow: &Flow, each: &Loop) -> bool {
    !flow
        .loops
        .iter()
        .any(|other| other.header != each.header && each.blocks.contains(&other.header))
}
