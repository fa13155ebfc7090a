//! How often each part of a kernel's machine code is executed.
//!
//! A simulator or a profile counts lines of PTX. An instruction that an assembler neither drops nor
//! doubles, such as a load or an MMA, ties a line to the blocks of machine code that hold it: their
//! executions, times its copies in each, add up to the line's count. With what flows into and out
//! of every block these are linear equations in how often each edge is taken; the solution of least
//! squares is taken, since some blocks have no such instruction and some lines were unrolled into
//! several loops.

use crate::cubin::Code;
use crate::flow::Flow;
use crate::instruction::Instruction;
use std::collections::BTreeMap;

/// Executions by all warps of a launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// How often each edge is taken.
    pub edges: Vec<f64>,
    /// How often each block is executed.
    pub blocks: Vec<f64>,
    /// Warps of the launch.
    pub warps: f64,
}

/// How sure an equation is, relative to what it says.
const CERTAIN: f64 = 1e2;
const LIKELY: f64 = 1.0;
const HALF_SURE: f64 = 0.2;
const UNSURE: f64 = 0.05;
const DOUBTFUL: f64 = 1e-2;

/// Iterations of a loop that nobody counted.
const TRIPS: f64 = 16.0;

/// An equation: a sum of unknowns with factors, its value and its weight.
struct Equation {
    factors: Vec<(usize, f64)>,
    value: f64,
    certainty: f64,
}

/// Copies of a line's instruction by block, and how sure they are to be executed as often.
#[derive(Default)]
struct Tie {
    copies: BTreeMap<usize, f64>,
    certainty: f64,
}

/// How surely an instruction of this name executes as often as its PTX line, `None` if not at all.
fn tie(instruction: &Instruction, ptx: &str) -> Option<f64> {
    let shared = ptx.contains(".shared");
    let of = |prefixes: &[&str]| prefixes.iter().any(|prefix| ptx.starts_with(prefix));
    // A predicated line may be counted only where it holds; a line of several instructions counts
    // for all.
    if ptx.starts_with('@') || ptx.matches(';').count() != 1 {
        return None;
    }
    let likely = match instruction.name() {
        "LDG" | "LD" => of(&["ld."]) && !shared,
        "STG" | "ST" => of(&["st."]) && !shared,
        "LDS" => of(&["ld."]) && shared,
        "STS" => of(&["st."]) && shared,
        "LDSM" => of(&["ldmatrix"]),
        "STSM" => of(&["stmatrix"]),
        "HMMA" | "IMMA" | "DMMA" | "QMMA" => of(&["mma."]),
        "HGMMA" | "IGMMA" | "QGMMA" => of(&["wgmma.mma_async"]),
        "BAR" => of(&["bar.", "barrier.sync", "barrier.arrive"]),
        "SHFL" => of(&["shfl"]),
        "LDGSTS" => of(&["cp.async.c"]),
        "UTMALDG" | "UTMASTG" | "UTMAREDG" => of(&["cp.async.bulk.tensor", "cp.reduce"]),
        "UBLKCP" => of(&["cp.async.bulk"]),
        "STAS" => of(&["st.async"]),
        "SYNCS" => of(&["mbarrier."]),
        "USETMAXREG" => of(&["setmaxnreg"]),
        "WARPGROUP" => of(&["wgmma.fence", "wgmma.wait_group"]),
        "UCGABAR" => of(&["barrier.cluster"]),
        "ELECT" => of(&["elect.sync"]),
        "LDGDEPBAR" => of(&["cp.async.commit_group"]),
        "DEPBAR" => of(&["cp.async.wait_group", "cp.async.wait_all"]),
        "ATOMG" | "ATOM" | "ATOMS" | "REDG" => of(&["atom", "red."]),
        "MUFU" => of(&["ex2", "lg2", "sin", "cos", "tanh", "rcp.approx", "rsqrt.approx"]),
        _ => false,
    };
    let unsure = match instruction.name() {
        "FFMA" | "FMUL" | "FADD" => of(&["fma.rn.f32", "mul.f32", "add.f32", "mul.rn", "add.rn"]),
        "FMNMX" => of(&["max.f32", "min.f32"]),
        "F2FP" => of(&["cvt.rn"]),
        _ => false,
    };
    match (likely, unsure) {
        // A branch may have become the predicate.
        (true, _) if instruction.guard().is_some() => Some(UNSURE),
        (true, _) => Some(LIKELY),
        (_, true) => Some(UNSURE),
        _ => None,
    }
}

/// For each block the median count of the lines that no other block holds: most of what arithmetic
/// comes from is neither moved out of a loop nor dropped.
fn medians(code: &Code, flow: &Flow, lines: &BTreeMap<u32, u64>) -> Vec<Equation> {
    let mut holders: BTreeMap<u32, Option<usize>> = BTreeMap::new();
    for (at, instruction) in code.instructions.iter().enumerate() {
        let Some(line) = instruction.ptx_line else { continue };
        let block = flow.block_of(at);
        let holder = holders.entry(line).or_insert(Some(block));
        if *holder != Some(block) {
            *holder = None;
        }
    }
    let mut counts: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (line, holder) in holders {
        let Some(block) = holder else { continue };
        counts.entry(block).or_default().push(lines.get(&line).copied().unwrap_or(0));
    }
    let equation = |(block, mut counts): (usize, Vec<u64>)| {
        counts.sort_unstable();
        let entered = &flow.blocks[block].entered_by;
        let factors: Vec<(usize, f64)> = entered.iter().map(|&edge| (edge, 1.0)).collect();
        let value = counts[counts.len() / 2] as f64;
        (block != 0 && !factors.is_empty()).then_some(Equation {
            factors,
            value,
            certainty: HALF_SURE,
        })
    };
    counts.into_iter().filter_map(equation).collect()
}

impl Execution {
    /// Executions that agree with how often lines of PTX were executed by a launch of so many
    /// warps. Lines that are not in `lines` were not executed.
    pub fn of(code: &Code, flow: &Flow, lines: &BTreeMap<u32, u64>, warps: u64) -> Execution {
        let warps = warps.max(1) as f64;
        let count = flow.edges.len();
        // Behind the edges, what ends in each block.
        let ends: Vec<usize> =
            (0..flow.blocks.len()).filter(|&block| flow.blocks[block].ends).collect();
        let mut equations = Vec::new();
        for (at, block) in flow.blocks.iter().enumerate() {
            let mut factors: Vec<(usize, f64)> = Vec::new();
            factors.extend(block.entered_by.iter().map(|&edge| (edge, 1.0)));
            factors.extend(block.left_by.iter().map(|&edge| (edge, -1.0)));
            factors.extend(ends.iter().position(|&end| end == at).map(|end| (count + end, -1.0)));
            // Where an indirect branch goes is not known.
            if !factors.is_empty() {
                let value = if at == 0 { -warps } else { 0.0 };
                equations.push(Equation { factors, value, certainty: CERTAIN });
            }
        }
        let mut ties: BTreeMap<(u32, &str), Tie> = BTreeMap::new();
        for (at, instruction) in code.instructions.iter().enumerate() {
            let (Some(line), Some(ptx)) = (instruction.ptx_line, code.ptx_of(instruction)) else {
                continue;
            };
            let Some(certainty) = tie(instruction, ptx) else { continue };
            let entry = ties.entry((line, instruction.name())).or_default();
            *entry.copies.entry(flow.block_of(at)).or_default() += 1.0;
            entry.certainty = certainty;
        }
        for ((line, _), Tie { copies, certainty }) in ties {
            let mut value = lines.get(&line).copied().unwrap_or(0) as f64;
            let mut factors = Vec::new();
            for (block, copies) in copies {
                let entered = &flow.blocks[block].entered_by;
                factors.extend(entered.iter().map(|&edge| (edge, copies)));
                if block == 0 {
                    value -= copies * warps;
                }
            }
            if !factors.is_empty() {
                equations.push(Equation { factors, value, certainty });
            }
        }
        equations.extend(medians(code, flow, lines));
        // Of what nothing ties, warps rather go on than end early.
        for (at, &end) in ends.iter().enumerate() {
            if !flow.blocks[end].left_by.is_empty() {
                let factors = vec![(count + at, 1.0)];
                equations.push(Equation { factors, value: 0.0, certainty: DOUBTFUL });
            }
        }
        // Functions are not entered along edges, and what is in them is left out.
        let reached = flow.reached();
        let sources = flow.edges.iter().map(|edge| edge.from).chain(ends.iter().copied());
        let held = sources.map(|block| !reached[block]).collect();
        let mut edges = solve(&equations, held, warps);
        edges.truncate(count);
        Execution::with(flow, edges, warps)
    }

    /// Executions by a warp of which nothing was counted: a loop is repeated 16 times, and
    /// branches go either way.
    pub fn assumed(flow: &Flow) -> Execution {
        let mut equations = Vec::new();
        for (at, edge) in flow.edges.iter().enumerate() {
            let left = &flow.blocks[edge.from].left_by;
            let innermost = flow.loops.iter().rev().find(|each| each.blocks.contains(&edge.from));
            let leaves = |edge: usize| {
                innermost.is_some_and(|each| !each.blocks.contains(&flow.edges[edge].to))
            };
            let out = left.iter().filter(|&&edge| leaves(edge)).count();
            let share = match (leaves(at), out == 0 || out == left.len()) {
                (_, true) => 1.0 / left.len() as f64,
                (true, _) => 1.0 / TRIPS / out as f64,
                (false, _) => (1.0 - 1.0 / TRIPS) / (left.len() - out) as f64,
            };
            let entered = &flow.blocks[edge.from].entered_by;
            let mut factors: Vec<(usize, f64)> =
                entered.iter().map(|&edge| (edge, -share)).collect();
            factors.push((at, 1.0));
            let value = if edge.from == 0 { share } else { 0.0 };
            equations.push(Equation { factors, value, certainty: CERTAIN });
        }
        let edges = solve(&equations, vec![false; flow.edges.len()], 1.0);
        Execution::with(flow, edges, 1.0)
    }

    fn with(flow: &Flow, edges: Vec<f64>, warps: f64) -> Execution {
        let mut blocks = vec![0.0; flow.blocks.len()];
        blocks[0] = warps;
        for (edge, executed) in flow.edges.iter().zip(&edges) {
            blocks[edge.to] += executed;
        }
        Execution { edges, blocks, warps }
    }

    /// How often a loop is entered, by all warps.
    pub fn entries(&self, flow: &Flow, each: &crate::flow::Loop) -> f64 {
        let entered = flow.blocks[each.header].entered_by.iter();
        let outside = entered.filter(|&&edge| !each.blocks.contains(&flow.edges[edge].from));
        let start = if each.header == 0 { self.warps } else { 0.0 };
        outside.map(|&edge| self.edges[edge]).sum::<f64>() + start
    }

    /// Takes the executions of a loop as if it were not repeated.
    pub(crate) fn once(&mut self, flow: &Flow, each: &crate::flow::Loop) {
        let executed = self.blocks[each.header];
        if executed <= 0.0 {
            return;
        }
        let share = (self.entries(flow, each) / executed).min(1.0);
        for &block in &each.blocks {
            self.blocks[block] *= share;
        }
        for (at, edge) in flow.edges.iter().enumerate() {
            let inside = each.blocks.contains(&edge.from) && each.blocks.contains(&edge.to);
            if inside {
                self.edges[at] *= if edge.to == each.header { 0.0 } else { share };
            }
        }
    }
}

/// Rounds of weighing equations by what they come to, and of holding unknowns that came out
/// negative at 0.
const ROUNDS: usize = 12;
/// Deviations below are not doubted.
const OFF: f64 = 0.01;

/// The unknowns, of which some are held at 0.
fn solve(equations: &[Equation], mut held: Vec<bool>, warps: f64) -> Vec<f64> {
    let unknowns = held.len();
    let mut found = vec![warps; unknowns];
    for round in 0..ROUNDS {
        let mut matrix = vec![vec![0.0; unknowns + 1]; unknowns];
        for equation in equations {
            let parts = equation.factors.iter().map(|&(at, by)| found[at] * by);
            let size = parts.clone().map(f64::abs).sum::<f64>().max(equation.value.abs());
            let size = size.max(warps / 16.0);
            // A line that was not tied rightly must not bend what the others agree on.
            let off = (parts.sum::<f64>() - equation.value).abs() / size;
            let doubt =
                if equation.certainty < CERTAIN && round > 0 { off.max(OFF) / OFF } else { 1.0 };
            let weight = equation.certainty / size / doubt.sqrt();
            for &(row, by) in &equation.factors {
                for &(column, other) in &equation.factors {
                    matrix[row][column] += by * other * weight * weight;
                }
                matrix[row][unknowns] += by * equation.value * weight * weight;
            }
        }
        for (at, row) in matrix.iter_mut().enumerate() {
            // What no equation ties, such as a loop without memory accesses, is as small as can be:
            // less than what is doubtful, more than the rounding of what is certain.
            let size = found[at].max(warps);
            row[at] += if held[at] { 1e9 } else { 1e-10 } / (size * size);
        }
        found = eliminate(matrix);
        for (held, found) in held.iter_mut().zip(&mut found) {
            *held |= *found < -1e-6 * warps;
            *found = found.max(0.0);
        }
    }
    found
}

/// What is left of a pivot below this part of it is rounding.
const ROUNDING: f64 = 1e-14;

/// Solves a symmetric positive definite system, whose right side is its last column. An unknown
/// that rounding alone determines is 0.
fn eliminate(mut matrix: Vec<Vec<f64>>) -> Vec<f64> {
    let count = matrix.len();
    let diagonal: Vec<f64> = (0..count).map(|at| matrix[at][at]).collect();
    for at in 0..count {
        let (above, below) = matrix.split_at_mut(at + 1);
        let pivot = &mut above[at];
        if pivot[at] < ROUNDING * diagonal[at] {
            pivot[at..].fill(0.0);
            pivot[at] = diagonal[at];
        }
        for row in below {
            let factor = row[at] / pivot[at];
            if factor != 0.0 {
                for column in at..=count {
                    row[column] -= factor * pivot[column];
                }
            }
        }
    }
    let mut found = vec![0.0; count];
    for at in (0..count).rev() {
        let known: f64 = (at + 1..count).map(|other| matrix[at][other] * found[other]).sum();
        found[at] = (matrix[at][count] - known) / matrix[at][at];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::eliminate;

    #[test]
    fn what_is_determined_by_rounding_alone_is_zero() {
        // Nothing but x + y = 2.
        let rows = [[3.0, 3.0, 6.0], [3.0, 3.0, 6.0]];
        assert_eq!(eliminate(rows.map(Vec::from).into()), [2.0, 0.0]);
        let rows = [[2.0, 1.0, 4.0], [1.0, 2.0, 5.0]];
        assert_eq!(eliminate(rows.map(Vec::from).into()), [1.0, 2.0]);
    }
}
