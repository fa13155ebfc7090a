//! Registers whose initialisation must be tracked, determined when a kernel is decoded.
//!
//! A register can be read before it is written only if it is live at the kernel's start; a vector
//! load may load uninitialised bytes that are never used. These registers are tracked, along with
//! values computed from the former and copies of the latter, and so are wgmma accumulators. Kernels
//! without any have no overhead.

use crate::access::Window;
use crate::draft::{Drafts, Source, Value};
use crate::op::Kind;
use crate::traits::Moves;
use crate::unit::Unit;

/// Index of an untracked register.
const NONE: u32 = u32::MAX;

/// Role of a tracked register in an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Guard,
    Read(u16),
    Write(u16),
}

/// Uses of some registers, which are numbered, by each op.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// End of each op's range in `list`.
    ends: Vec<u32>,
    list: Vec<(u32, Role)>,
}

/// The tracked registers of a kernel, and the ops that use them.
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    uses: Uses,
    /// How each op propagates uninitialised values.
    pub moves: Vec<Moves>,
    /// Whether each tracked register may be read before it is written.
    pub unwritten: Vec<bool>,
}

/// How each op propagates uninitialised values. Ops that prepare an instruction's operands also run
/// for lanes that its guard excludes, so they count as moves.
fn moves(drafts: &Drafts) -> Vec<Moves> {
    let next = drafts.ops.iter().skip(1).map(Some).chain([None]);
    let both = drafts.ops.iter().zip(next);
    let moves = both.map(|(draft, next)| {
        let number = draft.origin.traits.instruction;
        let prepares = next.is_some_and(|next| next.origin.traits.instruction == number);
        match draft.kind {
            Kind::Lane(_) if prepares => Moves::Copy,
            Kind::Lane(_) => draft.origin.traits.moves,
            _ => Moves::No,
        }
    });
    moves.collect()
}

impl Tracked {
    /// Tracked registers that an op uses, reads first.
    #[inline(always)]
    pub fn uses(&self, pc: u32) -> &[(u32, Role)] {
        self.uses.of(pc)
    }

    /// Tracks `unwritten`, the registers live at the start, and the results of vector loads and
    /// wgmma.
    pub fn new(drafts: &Drafts, unwritten: impl Iterator<Item = Value>) -> Tracked {
        let mut index = vec![NONE; drafts.classes.len()];
        let mut out = Tracked::default();
        let mut somewhere = vec![false; drafts.classes.len()];
        for value in drafts.ops.iter().flat_map(|draft| &draft.writes) {
            somewhere[value.0 as usize] = true;
        }
        // Compilers use a register that is never written for an arbitrary value, for example for
        // unused bytes of a vector.
        for value in unwritten.filter(|value| somewhere[value.0 as usize]) {
            index[value.0 as usize] = out.unwritten.len() as u32;
            out.unwritten.push(true);
        }
        out.moves = moves(drafts);
        let starts = out.unwritten.len();
        let unwritten = &mut out.unwritten;
        let mut track = |value: Value, index: &mut [u32]| {
            let slot = &mut index[value.0 as usize];
            let new = *slot == NONE;
            if new {
                *slot = unwritten.len() as u32;
                unwritten.push(false);
            }
            new
        };
        for draft in &drafts.ops {
            if let Kind::Load(access) = draft.kind
                && access.count > 1
                && access.window != Window::Param
            {
                draft.writes.iter().for_each(|&value| _ = track(value, &mut index));
            }
            if matches!(draft.kind, Kind::Unit(unit) if unit.is_pending()) {
                draft.writes.iter().for_each(|&value| _ = track(value, &mut index));
            }
        }
        // Values computed from a possibly uninitialised register, by any arithmetic.
        let mut tainted: Vec<bool> = index.iter().map(|&at| (at as usize) < starts).collect();
        let mut grew = true;
        while grew {
            grew = false;
            for (draft, &moves) in drafts.ops.iter().zip(&out.moves) {
                if !matches!(draft.kind, Kind::Lane(_)) {
                    continue;
                }
                let taints = draft.values_read().any(|value| tainted[value.0 as usize]);
                let tracked = |value: Value| index[value.0 as usize] != NONE;
                if taints || moves != Moves::No && draft.values_read().any(tracked) {
                    for &value in &draft.writes {
                        grew |= track(value, &mut index) || taints && !tainted[value.0 as usize];
                        tainted[value.0 as usize] |= taints;
                    }
                }
            }
        }
        out.uses = Uses::new(drafts, &index);
        out
    }
}

impl Uses {
    /// Uses of the operands and accumulators of wgmma in registers; how many there are.
    pub fn of_products(drafts: &Drafts) -> (Uses, usize) {
        let mut index = vec![NONE; drafts.classes.len()];
        let mut count = 0;
        for draft in &drafts.ops {
            let Kind::Unit(Unit::WarpgroupMultiply(product)) = draft.kind else { continue };
            let factors = if product.a_registers { 4 } else { 0 };
            let values = draft.reads[..factors].iter().filter_map(|source| match source {
                Source::Value(value) => Some(*value),
                _ => None,
            });
            for value in values.chain(draft.writes.iter().copied()) {
                let slot = &mut index[value.0 as usize];
                if *slot == NONE {
                    (*slot, count) = (count, count + 1);
                }
            }
        }
        (Uses::new(drafts, &index), count as usize)
    }

    /// Uses by an op, reads first.
    #[inline(always)]
    pub fn of(&self, pc: u32) -> &[(u32, Role)] {
        let start = if pc == 0 { 0 } else { self.ends[pc as usize - 1] };
        &self.list[start as usize..self.ends[pc as usize] as usize]
    }

    fn new(drafts: &Drafts, index: &[u32]) -> Uses {
        let mut out = Uses::default();
        for draft in &drafts.ops {
            let tracked = |value: Value| Some(index[value.0 as usize]).filter(|&at| at != NONE);
            if let Some(at) = draft.guard.and_then(|(value, _)| tracked(value)) {
                out.list.push((at, Role::Guard));
            }
            for (position, source) in draft.reads[..draft.used()].iter().enumerate() {
                if let Source::Value(value) | Source::Negated(value) = *source
                    && let Some(at) = tracked(value)
                {
                    out.list.push((at, Role::Read(position as u16)));
                }
            }
            for (position, &value) in draft.writes.iter().enumerate() {
                if let Some(at) = tracked(value) {
                    out.list.push((at, Role::Write(position as u16)));
                }
            }
            out.ends.push(out.list.len() as u32);
        }
        out
    }
}
