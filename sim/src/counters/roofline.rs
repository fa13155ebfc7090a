//! How long a launch takes at the least, by each part of a machine, and which part binds.

use super::{Counters, InstructionClass};
use kiln_machine::{Machine, Occupancy, Resources};
use std::fmt;

/// A part of a machine that a launch keeps busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The slots in which instructions are issued.
    Issue,
    /// Integer arithmetic.
    Integer,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Half precision.
    Half,
    /// Special functions.
    Special,
    /// Conversions between types.
    Conversion,
    /// Matrix products.
    Tensor,
    /// The load and store units.
    LoadStore,
    /// The banks of shared memory.
    Shared,
    /// The second cache.
    L2,
    /// The device's memory.
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
            Part::L2 => "second cache",
            Part::Dram => "device memory",
        })
    }
}

/// What one part needs.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Bound {
    /// Which.
    pub part: Part,
    /// Microseconds that it is busy for.
    pub us: f64,
    /// Of the time of the part that binds, from 0 to 1.
    pub share: f64,
}

/// A lower bound of a launch's time. Its text is a table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The machine's name.
    pub machine: &'static str,
    /// How full its multiprocessors are.
    pub occupancy: Occupancy,
    /// Of the multiprocessors, how many get a block, from 0 to 1.
    pub filled: f64,
    /// Every part, that which binds first.
    pub bounds: Vec<Bound>,
}

impl Estimate {
    /// Of a launch with so many blocks of so many threads. Work is taken as spread evenly, every
    /// part as busy without a pause, and nothing as waiting: hardware takes longer.
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
        // A warp takes all its lanes' slots, whether they take part or not.
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
        // Of the whole machine, of which only the multiprocessors with a block take part.
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

    /// The part that binds.
    pub fn binds(&self) -> Option<Bound> {
        self.bounds.first().copied()
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Occupancy { blocks, warps, share, limit, .. } = self.occupancy;
        writeln!(
            f,
            "{}: {blocks} blocks or {warps} warps of a multiprocessor ({:.0}%, by {limit:?}), \
             {:.0}% of the multiprocessors",
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
