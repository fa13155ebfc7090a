//! The cost model: how long a setting takes on a GPU, by plain arithmetic.
//!
//! A launch takes what its slowest part takes: memory, L2, arithmetic, or the waiting of
//! blocks for round trips to memory, one after the other. Memory is only as fast as the bytes in
//! flight allow (Little's law), arithmetic only as evenly as blocks spread over SMs.

use kiln_machine::{Machine, Occupancy, Operands, Resources};

use crate::engine::EngineConfig;
use crate::target::Target;

/// What one launch asks of a GPU, as far as its schedule tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelWork {
    /// Blocks of the launch; those of a persistent grid that have work.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread, estimated.
    pub registers: u32,
    /// Shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Bytes between the device's memory and its L2.
    pub dram_bytes: f64,
    /// Bytes between L2 and the SMs.
    pub l2_bytes: f64,
    /// Bytes that one block asks memory for before it waits.
    pub in_flight_bytes: f64,
    /// Times that a block waits for memory, one after the other.
    pub round_trips: f64,
    /// Instructions of single precision or integers, counted by lanes; slower ones as several.
    pub lane_instructions: f64,
    /// Instructions of double precision, by lanes.
    pub f64_instructions: f64,
    /// Operations of tensor cores, a multiplication and its addition being two.
    pub tensor: Option<TensorWork>,
}

impl KernelWork {
    /// The work of two whose blocks are of one launch, without tensor cores.
    pub(super) fn beside(self, other: KernelWork) -> KernelWork {
        let blocks = self.blocks + other.blocks;
        let share = self.blocks as f64 / blocks.max(1) as f64;
        let mean = |own: f64, theirs: f64| own * share + theirs * (1.0 - share);
        KernelWork {
            blocks,
            threads: self.threads.max(other.threads),
            registers: self.registers.max(other.registers),
            shared_bytes: self.shared_bytes.max(other.shared_bytes),
            dram_bytes: self.dram_bytes + other.dram_bytes,
            l2_bytes: self.l2_bytes + other.l2_bytes,
            in_flight_bytes: mean(self.in_flight_bytes, other.in_flight_bytes),
            round_trips: mean(self.round_trips, other.round_trips),
            lane_instructions: self.lane_instructions + other.lane_instructions,
            f64_instructions: self.f64_instructions + other.f64_instructions,
            tensor: None,
        }
    }
}

/// Products of matrices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorWork {
    /// The operands' kind.
    pub operands: Operands,
    /// Operations, those on padding too.
    pub operations: f64,
    /// The share of the tensor cores' full rate that this way of feeding them reaches, from 0 to 1.
    pub efficiency: f64,
    /// Clocks that a block alone on an SM takes for its share; 0 where they are as many as
    /// `efficiency` says.
    pub block_clocks: f64,
}

/// A legal setting and what it asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Engine and knobs.
    pub config: EngineConfig,
    /// Its kernels, in order.
    pub work: Vec<KernelWork>,
}

/// From a setting to its kernels, in order; none where the setting is not legal.
pub type WorkOf<'a> = Box<dyn Fn(&EngineConfig) -> Option<Vec<KernelWork>> + 'a>;

/// Instructions of a pointwise operation on one element, functions among them.
pub(super) const INSTRUCTIONS_OPERATION: f64 = 8.0;

/// Operations that a random number stands for: 24 instructions, a quarter of a call of Philox and
/// a comparison, from the PTX of dropout.
pub(super) const OPERATIONS_DRAW: f64 = 24.0 / INSTRUCTIONS_OPERATION;

/// From a launch to its first instruction, behind another one on a stream: 2 us on H100.
pub(crate) const LAUNCH_US: f64 = 2.0;

/// From a load that misses the caches to its value: 500 to 800 ns on A100 and H100 (Luo et al.
/// 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture").
const LATENCY_US: f64 = 0.6;

/// L2 of an A100 has 2.5 times the bandwidth of its memory (white paper); of others
/// it is not published.
const L2_OVER_DRAM: f64 = 2.5;

/// The cost model of one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    machine: Machine,
}

impl CostModel {
    /// The model of the machine of the table that a GPU is or is most like, with the GPU's own
    /// sizes.
    pub fn of(target: &Target) -> CostModel {
        let machine = machine_of(target);
        let share = f64::from(target.sm_count) / f64::from(machine.sm_count);
        let machine = Machine {
            sm_count: target.sm_count,
            dram_bytes_second: machine.dram_bytes_second * share,
            registers: target.registers_sm,
            shared_bytes: target.shared_sm_bytes,
            shared_reserved: if target.arch.capability < 80 { 0 } else { machine.shared_reserved },
            threads_max: target.threads_sm_max,
            ..machine
        };
        CostModel { machine }
    }

    /// Blocks that an SM holds, at least one.
    pub(super) fn resident(&self, threads: i64, registers: i64, shared_bytes: i64) -> f64 {
        let (registers, shared_bytes) = (registers as u32, shared_bytes as u32);
        let resources = Resources { registers, shared_bytes };
        f64::from(Occupancy::of(&self.machine, threads as u32, resources).blocks.max(1))
    }

    /// Clocks of an SM in which device memory moves so many bytes.
    pub(super) fn clocks_of(&self, bytes: f64) -> f64 {
        bytes / self.machine.dram_bytes_second * self.machine.clock_hz
    }

    /// The microseconds that launches one after the other take; infinite where one does not fit.
    pub fn predicted_us(&self, work: &[KernelWork]) -> f64 {
        work.iter().map(|work| kernel_us(work, &self.machine)).sum()
    }

    /// The microseconds of the work in one launch on a GPU that is always busy: the slowest of
    /// bytes and operations.
    pub(super) fn floor_us(&self, work: &[KernelWork]) -> f64 {
        LAUNCH_US + LATENCY_US + work.iter().map(|work| self.busy_us(work)).sum::<f64>()
    }

    /// The microseconds of what no setting of a graph does without, in one launch: its bytes, and
    /// its products at the full rate of tensor cores under load.
    pub(super) fn least_us(&self, work: &[KernelWork]) -> f64 {
        let least = |of: &KernelWork| {
            let tensor = of.tensor.map(|tensor| TensorWork { efficiency: 1.0, ..tensor });
            let plain = KernelWork { tensor, lane_instructions: 0.0, f64_instructions: 0.0, ..*of };
            self.busy_us(&plain)
        };
        LAUNCH_US + LATENCY_US + work.iter().map(least).sum::<f64>()
    }

    fn busy_us(&self, work: &KernelWork) -> f64 {
        let memory = work.dram_bytes / (self.machine.dram_bytes_second / 1e6);
        memory.max(arithmetic_us(work, &self.machine))
    }
}

/// The microseconds of arithmetic, spread evenly over all SMs: the slowest of FMA
/// lanes, double precision lanes and tensor cores.
fn arithmetic_us(work: &KernelWork, machine: &Machine) -> f64 {
    let lanes = |count: f64, lanes: u32| {
        let sms = f64::from(machine.sm_count);
        count / (f64::from(lanes.max(1)) * sms * machine.clock_hz / 1e6)
    };
    let tensor = work.tensor.map_or(0.0, |tensor| {
        // The data sheet's rate is that of a clock that busy tensor cores do not keep.
        let loaded = (machine.loaded_hz / machine.tensor_hz).min(1.0);
        let rate = machine.tensor.of(tensor.operands) * loaded;
        tensor.operations / (rate * tensor.efficiency / 1e6)
    });
    lanes(work.lane_instructions, machine.f32_lanes)
        .max(lanes(work.f64_instructions, machine.f64_lanes))
        .max(tensor)
}

fn kernel_us(work: &KernelWork, machine: &Machine) -> f64 {
    if work.blocks == 0 {
        return 0.0;
    }
    let resources = Resources { registers: work.registers, shared_bytes: work.shared_bytes };
    let occupancy = Occupancy::of(machine, work.threads, resources);
    if occupancy.blocks == 0 {
        return f64::INFINITY;
    }
    let (blocks, sms) = (work.blocks as f64, f64::from(machine.sm_count));
    let resident = blocks.min(f64::from(occupancy.blocks) * sms);
    let dram_us = machine.dram_bytes_second / 1e6;
    let in_flight = (resident * work.in_flight_bytes).min(work.l2_bytes);
    let busy = (in_flight / (dram_us * LATENCY_US)).min(1.0);
    let l2_us = machine.l2_bytes_second.map_or(dram_us * L2_OVER_DRAM, |rate| rate / 1e6);
    let memory = (work.dram_bytes / dram_us).max(work.l2_bytes / l2_us) / busy.max(1e-3);
    // The SM with the most blocks is done last.
    let imbalance = (blocks / sms).ceil() / (blocks / sms);
    // Blocks that do not fit at once wait for others to end.
    let waves = (blocks / (f64::from(occupancy.blocks) * sms)).ceil();
    let alone = work.tensor.map_or(0.0, |tensor| tensor.block_clocks / (machine.clock_hz / 1e6));
    let waiting = waves * (work.round_trips * LATENCY_US).max(alone);
    LAUNCH_US + LATENCY_US + memory.max(arithmetic_us(work, machine) * imbalance).max(waiting)
}

/// The machine of the table that a GPU is, or is most like.
pub fn machine_of(target: &Target) -> Machine {
    let plain = |text: &str| text.to_ascii_lowercase().replace([' ', '-'], "");
    let known = |machine: &Machine| plain(&target.name).contains(&plain(machine.name));
    let named = Machine::ALL.into_iter().find(known);
    let alike = || match target.arch.capability {
        ..86 => Machine::A100,
        86..90 => Machine::RTX_4090,
        90..100 => Machine::H100,
        100..120 => Machine::B200,
        _ => Machine::RTX_4090,
    };
    named.unwrap_or_else(alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(blocks: u64, in_flight_bytes: f64) -> KernelWork {
        KernelWork {
            blocks,
            threads: 256,
            registers: 32,
            shared_bytes: 0,
            dram_bytes: 4.8e9,
            l2_bytes: 4.8e9,
            in_flight_bytes,
            round_trips: 1.0,
            lane_instructions: 0.0,
            f64_instructions: 0.0,
            tensor: None,
        }
    }

    #[test]
    fn a_copy_takes_what_memory_takes() {
        let h200 = Target::named("h200").expect("known");
        let model = CostModel::of(&h200);
        let us = model.predicted_us(&[copy(1 << 20, 16384.0)]);
        assert!((us - 1002.6).abs() < 1e-6, "{us}");
        // Eight blocks of 2 KiB in flight on each SM ask for too little at a time.
        let starved = model.predicted_us(&[copy(1 << 20, 1024.0)]);
        assert!(starved > us, "{starved}");
    }

    #[test]
    fn what_does_not_fit_takes_for_ever() {
        let a100 = Target::named("a100").expect("known");
        let work = KernelWork { shared_bytes: 200 << 10, ..copy(1, 1.0) };
        assert_eq!(CostModel::of(&a100).predicted_us(&[work]), f64::INFINITY);
    }

    #[test]
    fn a_block_too_many_costs_a_round() {
        let h100 = Target::named("h100").expect("known");
        let tensor = TensorWork {
            operands: Operands::Half,
            operations: 1e12,
            efficiency: 1.0,
            block_clocks: 0.0,
        };
        let work = |blocks| KernelWork {
            dram_bytes: 0.0,
            l2_bytes: 0.0,
            tensor: Some(tensor),
            ..copy(blocks, 1.0)
        };
        let [even, odd] =
            [132, 133].map(|blocks| CostModel::of(&h100).predicted_us(&[work(blocks)]));
        assert!(odd > 1.9 * even, "{even} {odd}");
        // 1.6 GHz leave 865 of the 989 TFLOPS at 1.83 GHz.
        let reached = 1e12 / (even - LAUNCH_US - LATENCY_US) / 1e6;
        assert!((reached - 865.0).abs() < 1.0, "{reached}");
    }
}
