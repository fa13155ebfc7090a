//! Register allocation by linear scan, and encoding of micro-ops.
//!
//! Virtual registers with disjoint live intervals share a row. This is sound under divergence:
//! writes are masked by lane, so only each thread's own order matters.

use crate::draft::{Draft, Drafts, Source, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Kind, MicroOp};
use crate::program::Program;
use crate::registers::{LANES, Row, Slot};
use crate::tracked::{Tracked, Uses};
use crate::types::Class;
use std::collections::HashMap;

/// Fills in the program's ops, constants and register counts.
pub(crate) fn encode(drafts: &Drafts, program: &mut Program) -> Result<()> {
    let runs = solved_runs(drafts);
    let slots = assign(drafts, &intervals(drafts, &runs), program)?;
    if let Some(first) = runs.first() {
        program.tracked = Tracked::new(drafts, first.live_in.iter());
    }
    (program.product_uses, program.product_registers) = Uses::of_products(drafts);
    let mut encoder = Encoder { slots, program, words: HashMap::new(), wides: HashMap::new() };
    for draft in &drafts.ops {
        encoder.op(draft, &drafts.labels)?;
    }
    Ok(())
}

/// A set of virtual registers.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn new(count: usize) -> Set {
        Set(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, value: Value) {
        self.0[value.0 as usize / 64] |= 1 << (value.0 % 64);
    }

    fn remove(&mut self, value: Value) {
        self.0[value.0 as usize / 64] &= !(1 << (value.0 % 64));
    }

    fn add(&mut self, other: &Set) -> bool {
        let mut grew = false;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            grew |= theirs & !*mine != 0;
            *mine |= theirs;
        }
        grew
    }

    fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &bits)| {
            let set = (0..64).filter(move |bit| bits >> bit & 1 != 0);
            set.map(move |bit| Value(index as u32 * 64 + bit))
        })
    }
}

/// A basic block: a run of ops that control enters only at the start.
struct Run {
    start: usize,
    end: usize,
    next: Vec<usize>,
    live_in: Set,
}

fn runs(drafts: &Drafts) -> Vec<Run> {
    let count = drafts.ops.len();
    let mut starts = vec![false; count + 1];
    starts[0] = true;
    for &label in &drafts.labels {
        starts[label] = true;
    }
    for (index, draft) in drafts.ops.iter().enumerate() {
        if !draft.targets.is_empty() || draft.ends() {
            starts[index + 1] = true;
        }
    }
    let bounds: Vec<usize> = (0..=count).filter(|&at| starts[at] || at == count).collect();
    let run_of: HashMap<usize, usize> =
        bounds.iter().enumerate().map(|(index, &start)| (start, index)).collect();
    let mut out = Vec::new();
    for pair in bounds.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let last = &drafts.ops[end - 1];
        let labels = last.targets.iter().map(|&label| drafts.labels[label as usize]);
        let through = (!last.ends()).then_some(end);
        let next = labels.chain(through).filter(|&at| at < count);
        let next = next.map(|at| run_of[&at]).collect();
        out.push(Run { start, end, next, live_in: Set::new(drafts.classes.len()) });
    }
    out
}

/// Updates `live` backwards across an op.
fn step(live: &mut Set, draft: &Draft) {
    if draft.guard.is_none() {
        for &value in &draft.writes {
            live.remove(value);
        }
    }
    for value in draft.values_read() {
        live.insert(value);
    }
}

/// The basic blocks with their live-in sets.
fn solved_runs(drafts: &Drafts) -> Vec<Run> {
    let mut runs = runs(drafts);
    let mut changed = true;
    while changed {
        changed = false;
        for index in (0..runs.len()).rev() {
            let mut live = Set::new(drafts.classes.len());
            for &next in &runs[index].next {
                live.add(&runs[next].live_in);
            }
            for draft in drafts.ops[runs[index].start..runs[index].end].iter().rev() {
                step(&mut live, draft);
            }
            changed |= runs[index].live_in.add(&live);
        }
    }
    runs
}

/// First and last op at which each register is live.
fn intervals(drafts: &Drafts, runs: &[Run]) -> Vec<Option<(usize, usize)>> {
    let mut out: Vec<Option<(usize, usize)>> = vec![None; drafts.classes.len()];
    let mut touch = |value: Value, at: usize| {
        let interval = &mut out[value.0 as usize];
        *interval = Some(interval.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    };
    for run in runs {
        for value in run.live_in.iter() {
            touch(value, run.start);
        }
        for &next in &run.next {
            for value in runs[next].live_in.iter() {
                touch(value, run.end - 1);
            }
        }
        for (at, draft) in drafts.ops[run.start..run.end].iter().enumerate() {
            let at = run.start + at;
            draft.values_read().for_each(|value| touch(value, at));
            draft.writes.iter().for_each(|&value| touch(value, at));
        }
    }
    out
}

fn assign(
    drafts: &Drafts,
    intervals: &[Option<(usize, usize)>],
    program: &mut Program,
) -> Result<Vec<Slot>> {
    let mut order: Vec<(usize, usize, usize)> = intervals
        .iter()
        .enumerate()
        .filter_map(|(value, interval)| interval.map(|(first, last)| (first, last, value)))
        .collect();
    order.sort_unstable();
    let mut slots = vec![Slot::TRUE; drafts.classes.len()];
    for class in [Class::Pred, Class::Word, Class::Wide] {
        // Predicate 0 is always true.
        let first_row = usize::from(class == Class::Pred);
        let mut rows = first_row;
        let mut free: Vec<usize> = Vec::new();
        let mut active: std::collections::BinaryHeap<std::cmp::Reverse<(usize, usize)>> =
            Default::default();
        for &(first, last, value) in order.iter().filter(|o| drafts.classes[o.2] == class) {
            // A row last read by this op must not be its destination: an op with two results may
            // write one before it reads for the other.
            while let Some(&std::cmp::Reverse((end, row))) = active.peek() {
                if end >= first {
                    break;
                }
                active.pop();
                free.push(row);
            }
            let row = free.pop().unwrap_or_else(|| {
                rows += 1;
                rows - 1
            });
            active.push(std::cmp::Reverse((last, row)));
            if row >= Slot::COUNT_MAX {
                return Err(Error::new(ErrorKind::Unsupported, "more than 32767 live registers"));
            }
            slots[value] = Slot::new(row, false);
        }
        match class {
            Class::Pred => program.registers.predicates = rows,
            Class::Word => program.registers.words = rows,
            Class::Wide => program.registers.wides = rows,
        }
    }
    Ok(slots)
}

struct Encoder<'a> {
    slots: Vec<Slot>,
    program: &'a mut Program,
    words: HashMap<u32, Slot>,
    wides: HashMap<u64, Slot>,
}

impl Encoder<'_> {
    fn source(&mut self, source: Source) -> Result<Slot> {
        let flagged = |slot: Slot| Slot::new(slot.index(), true);
        let constants = &mut self.program.constants;
        Ok(match source {
            Source::Value(value) => self.slots[value.0 as usize],
            Source::Negated(value) => flagged(self.slots[value.0 as usize]),
            Source::Bool(value) => Slot::new(0, !value),
            Source::Word(word) => *self.words.entry(word).or_insert_with(|| {
                constants.words.push(Row([word; LANES]));
                Slot::new((constants.words.len() - 1) % Slot::COUNT_MAX, true)
            }),
            Source::Wide(wide) => *self.wides.entry(wide).or_insert_with(|| {
                constants.wides.push(Row([wide; LANES]));
                Slot::new((constants.wides.len() - 1) % Slot::COUNT_MAX, true)
            }),
        })
    }

    fn op(&mut self, draft: &Draft, labels: &[usize]) -> Result<()> {
        let list = self.program.lists.len() as u32;
        let writes: Vec<Slot> =
            draft.writes.iter().map(|value| self.slots[value.0 as usize]).collect();
        let reads: Vec<Slot> =
            draft.reads.iter().map(|&source| self.source(source)).collect::<Result<_>>()?;
        let mut imm = draft.imm;
        let mut list = match draft.kind {
            Kind::Load(_) => {
                self.program.lists.extend(&writes);
                list
            }
            Kind::Store(_) => {
                self.program.lists.extend(&reads[1..]);
                list
            }
            Kind::Unit(_) => {
                self.program.lists.extend(writes.iter().chain(&reads));
                list
            }
            _ => {
                self.program.lists.extend(reads.iter().skip(3));
                list
            }
        };
        match draft.kind {
            Kind::Branch => imm = labels[draft.targets[0] as usize] as i64,
            Kind::BranchIndexed => {
                list = self.program.targets.len() as u32;
                imm = draft.targets.len() as i64;
                let targets = draft.targets.iter().map(|&label| labels[label as usize] as u32);
                self.program.targets.extend(targets);
            }
            _ => {}
        }
        let guard = match draft.guard {
            None => Slot::TRUE,
            Some((value, negated)) => Slot::new(self.slots[value.0 as usize].index(), negated),
        };
        let pick = |slots: &[Slot], at: usize| slots.get(at).copied().unwrap_or_default();
        let constants = &self.program.constants;
        if constants.words.len().max(constants.wides.len()) > Slot::COUNT_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "more than 32768 distinct constants"));
        }
        self.program.origins.push(draft.origin);
        self.program.ops.push(MicroOp {
            kind: draft.kind,
            guard,
            d: pick(&writes, 0),
            e: pick(&writes, 1),
            a: pick(&reads, 0),
            b: pick(&reads, 1),
            c: pick(&reads, 2),
            list,
            imm,
        });
        Ok(())
    }
}
