//! Roofline: a lower bound on the time of a launch for each part of a GPU.

use super::{Counters, InstructionClass};
use kiln_machine::{Machine, Occupancy, Resources};
use std::fmt;

/// A part of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// Instruction issue slots.
    Issue,
    /// Integer arithmetic.
    Integer,
    /// Single-precision arithmetic.
    F32,
    /// Double-precision arithmetic.
    F64,
    /// Half-precision arithmetic.
    Half,
    /// Special functions.
    Special,
    /// Type conversions.
    Conversion,
    /// Tensor cores.
    Tensor,
    /// Load/store units.
    LoadStore,
    /// Shared memory banks.
    Shared,
    /// L2 cache.
    L2,
    /// DRAM.
    Dram,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Issue => "issue slots",
            Part::Integer => "integer",
            Part::F32 => "f32",
            Part::F64 => "f64",
            Part::Half => "half",
            Part::Special => "special",
            Part::Conversion => "conversion",
            Part::Tensor => "tensor cores",
            Part::LoadStore => "load/store",
            Part::Shared => "shared memory",
            Part::L2 => "L2 cache",
            Part::Dram => "device memory",
        })
    }
}

/// Time bound of one part.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Bound {
    /// The part.
    pub part: Part,
    /// Busy time in microseconds.
    pub us: f64,
    /// Busy time relative to the limiting part, from 0 to 1.
    pub share: f64,
}

/// A lower bound on the time of a launch; displayed as a table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// Name of the GPU.
    pub machine: &'static str,
    /// Occupancy of its SMs.
    pub occupancy: Occupancy,
    /// Share of the SMs that get a block, from 0 to 1.
    pub filled: f64,
    /// Bounds of all parts, the limiting one first.
    pub bounds: Vec<Bound>,
}

impl Estimate {
    /// Computes the bounds of a launch of `blocks` blocks of `threads` threads. Work is assumed to
    /// be spread evenly, and no part ever stalls: hardware takes longer.
    pub fn of(
        counters: &Counters,
        machine: &Machine,
        blocks: u64,
        threads: u32,
        resources: Resources,
    ) -> Estimate {
        use InstructionClass as Class;
        let used = f64::from(machine.sm_count).min(blocks as f64).max(1.0);
        let clocks = used * machine.clock_hz;
        // A warp occupies the slots of all its lanes, active or not.
        let warps = |classes: &[Class]| {
            let each = classes.iter().map(|&class| counters.class(class).warp_instructions);
            each.sum::<u64>() as f64
        };
        let lanes = |classes: &[Class], rate: u32| warps(classes) * 32.0 / f64::from(rate) / clocks;
        let shared =
            counters.total.shared_loads.wavefronts + counters.total.shared_stores.wavefronts;
        let shared_bytes = shared as f64 * 128.0;
        let memory = [
            Class::LoadGlobal,
            Class::LoadShared,
            Class::LoadLocal,
            Class::LoadGeneric,
            Class::StoreGlobal,
            Class::StoreShared,
            Class::StoreLocal,
            Class::StoreGeneric,
            Class::Atomic,
        ];
        // Whole-GPU rates, scaled to the SMs that have a block.
        let tensor: f64 = counters
            .products
            .iter()
            .map(|product| 2.0 * product.multiply_adds as f64 / machine.tensor.of(product.operands))
            .sum();
        let issued = counters.total.warp_instructions as f64;
        let mut seconds = vec![
            (Part::Issue, issued / f64::from(machine.issue_rate) / clocks),
            (Part::Integer, lanes(&[Class::Integer], machine.integer_lanes)),
            (Part::F32, lanes(&[Class::F32], machine.f32_lanes)),
            (Part::F64, lanes(&[Class::F64], machine.f64_lanes)),
            (Part::Half, lanes(&[Class::Half], machine.half_lanes)),
            (Part::Special, lanes(&[Class::SpecialFunction], machine.special_lanes)),
            (Part::Conversion, lanes(&[Class::Conversion], machine.conversion_lanes)),
            (Part::Tensor, tensor / (used / f64::from(machine.sm_count))),
            (Part::LoadStore, lanes(&memory, machine.memory_lanes)),
            (Part::Shared, shared_bytes / f64::from(machine.shared_bytes_rate) / clocks),
            (Part::Dram, counters.dram_bytes() as f64 / machine.dram_bytes_second),
        ];
        if let Some(rate) = machine.l2_bytes_second {
            seconds.push((Part::L2, counters.total.global.sectors as f64 * 32.0 / rate));
        }
        seconds.sort_by(|a, b| b.1.total_cmp(&a.1));
        let most = seconds.first().map_or(0.0, |&(_, time)| time).max(f64::MIN_POSITIVE);
        let bound = |(part, time): (Part, f64)| Bound { part, us: time * 1e6, share: time / most };
        Estimate {
            machine: machine.name,
            occupancy: Occupancy::of(machine, threads, resources),
            filled: used / f64::from(machine.sm_count),
            bounds: seconds.into_iter().map(bound).collect(),
        }
    }

    /// The limiting part.
    pub fn binds(&self) -> Option<Bound> {
        self.bounds.first().copied()
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Occupancy { blocks, warps, share, limit, .. } = self.occupancy;
        writeln!(
            f,
            "{}: {blocks} blocks or {warps} warps per SM ({:.0}%, by {limit:?}), \
             {:.0}% of the SMs",
            self.machine,
            100.0 * share,
            100.0 * self.filled
        )?;
        for bound in self.bounds.iter().filter(|bound| bound.us > 0.0) {
            writeln!(
                f,
                "  {:<14} {:>10.3} us {:>4.0}%",
                bound.part,
                bound.us,
                100.0 * bound.share
            )?;
        }
        Ok(())
    }
}
