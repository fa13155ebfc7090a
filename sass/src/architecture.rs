//! What an SM of an architecture does in a clock, and how long it takes.

use crate::instruction::Instruction;
use crate::opcode::Pipe;
use kiln_machine::Machine;

/// Clocks from issue to result, where an instruction does not say how long it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Latencies {
    /// A load from shared memory.
    pub shared: f64,
    /// A load that L1 has.
    pub l1: f64,
    /// A load that L2 has.
    pub l2: f64,
    /// A load from device memory.
    pub dram: f64,
    /// A store to another block of the cluster.
    pub cluster: f64,
    /// A store through L2 until who polls there has seen it.
    pub hand_off: f64,
    /// A transcendental function, a conversion.
    pub special: f64,
    /// A shuffle.
    pub shuffle: f64,
    /// Special registers, and moves to uniform registers.
    pub register: f64,
    /// An MMA of 16 x 8 x 32 bytes.
    pub tensor: f64,
    /// A barrier of a block whose warps are all there.
    pub barrier: f64,
    /// A fence for the GPU.
    pub fence: f64,
}

/// An SM: four schedulers, each with pipes of its own and a share of the memory's.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Architecture {
    /// Compute capability without its point.
    pub version: u32,
    /// Clocks for which a warp's instruction keeps each pipe of a scheduler busy, where a lane
    /// serves one thread.
    pub fma: f64,
    /// Of multiply-adds of integers.
    pub imad: f64,
    /// Of other integers and comparisons.
    pub alu: f64,
    /// Of pairs of 16 bits.
    pub half: f64,
    /// Of f64.
    pub double: f64,
    /// Of special functions.
    pub special: f64,
    /// Of an MMA of 16 x 8 x 32 bytes by `mma.sync`.
    pub tensor: f64,
    /// Of the same by the warpgroup's or the block's instructions.
    pub tensor_asynchronous: f64,
    /// Clocks from issue to result.
    pub latencies: Latencies,
    /// Clocks in which an SM receives a sector of 32 bytes from other blocks of a cluster.
    pub cluster_sector: f64,
    /// Bytes in a clock that all SMs together read from L2 where they poll the same lines.
    pub polled_bytes: f64,
}

/// Schedulers of an SM, each with a tensor core: every architecture since Volta.
pub const SCHEDULERS: f64 = 4.0;

/// CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions": results of a
/// SM in a clock, as clocks of a scheduler for 32 results.
fn clocks(results: f64) -> f64 {
    32.0 * SCHEDULERS / results
}

impl Architecture {
    /// The architecture of a compute capability, such as 90; the nearest older one if it is not
    /// known.
    ///
    /// Latencies: Jia et al., "Dissecting the NVidia Turing T4 GPU via Microbenchmarking" (2019)
    /// for 75; Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
    /// Microbenchmarking" (2024) for 80, 89 and 90, whose SM-to-SM figure is that of clusters. What
    /// they lack is taken from the neighbour, 100 and 120 from 90. What blocks exchange: LSTMs of
    /// 256 to 1,024 units on an H200 (benches/results in Kiln's repository). In clusters every lane
    /// wrote 16 bytes of another sector then, and the Hopper Tuning Guide asks for whole ones; the
    /// words that are polled had flags and were polled whole, about twice, at 900 bytes in a clock.
    pub fn of(version: u32) -> Architecture {
        let latencies = Latencies {
            shared: 29.0,
            l1: 40.7,
            l2: 263.0,
            dram: 478.8,
            cluster: 180.0,
            hand_off: 1900.0,
            special: 20.0,
            shuffle: 24.0,
            register: 25.0,
            tensor: 33.0,
            barrier: 30.0,
            fence: 500.0,
        };
        let hopper = Architecture {
            version,
            fma: clocks(128.0),
            imad: clocks(64.0),
            alu: clocks(64.0),
            half: clocks(256.0) * 2.0,
            double: clocks(64.0),
            special: clocks(16.0),
            // 62 % of the rate of wgmma: Luo et al., table of `mma`.
            tensor: 4.0 / 0.62,
            tensor_asynchronous: 4.0,
            latencies,
            cluster_sector: 4.2,
            polled_bytes: 1500.0,
        };
        match version {
            ..=79 => Architecture {
                fma: clocks(64.0),
                half: clocks(128.0) * 2.0,
                double: clocks(2.0),
                tensor: 16.0,
                tensor_asynchronous: 16.0,
                latencies: Latencies {
                    shared: 19.0,
                    l1: 32.0,
                    l2: 188.0,
                    dram: 296.0,
                    ..latencies
                },
                ..hopper
            },
            80 => Architecture {
                fma: clocks(64.0),
                double: clocks(32.0),
                tensor: 8.0,
                tensor_asynchronous: 8.0,
                latencies: Latencies { l1: 37.9, l2: 261.5, dram: 466.3, ..latencies },
                ..hopper
            },
            81..=89 => Architecture {
                half: clocks(128.0) * 2.0,
                double: clocks(2.0),
                tensor: 16.0,
                tensor_asynchronous: 16.0,
                latencies: Latencies {
                    shared: 30.1,
                    l1: 43.4,
                    l2: 273.0,
                    dram: 541.5,
                    ..latencies
                },
                ..hopper
            },
            90..=99 => hopper,
            100..=119 => Architecture { tensor_asynchronous: 2.0, ..hopper },
            _ => Architecture {
                imad: clocks(128.0),
                alu: clocks(128.0),
                half: clocks(128.0) * 2.0,
                double: clocks(2.0),
                tensor: 16.0,
                tensor_asynchronous: 16.0,
                ..hopper
            },
        }
    }

    /// The same, with tensor cores at the rate of a machine's data sheet: GPUs of one compute
    /// capability differ in it.
    #[must_use]
    pub fn on(self, machine: &Machine) -> Architecture {
        let rate = machine.tensor.half / f64::from(machine.sm_count) / machine.tensor_hz;
        // Operations of 16 x 8 x 16 elements of 16 bits.
        let tile = 2.0 * 16.0 * 8.0 * 16.0;
        if rate <= 0.0 {
            return self;
        }
        let asynchronous = tile * SCHEDULERS / rate;
        let reached = self.tensor_asynchronous / self.tensor;
        let tensor = if self.version >= 90 && self.version < 120 {
            asynchronous / reached
        } else {
            asynchronous
        };
        Architecture { tensor, tensor_asynchronous: asynchronous, ..self }
    }

    /// Clocks for which an instruction of a warp keeps its pipe busy: that of its scheduler, for
    /// memory and TMA that of the SM.
    pub fn busy(&self, instruction: &Instruction) -> f64 {
        match instruction.opcode.pipe {
            Pipe::Fma => self.fma,
            Pipe::Imad => self.imad,
            Pipe::Alu => self.alu,
            Pipe::Half => self.half,
            Pipe::Double => self.double,
            Pipe::Special => self.special,
            Pipe::Tensor => self.multiplies(instruction),
            // A wavefront of 128 bytes each clock, and an instruction in each.
            Pipe::Memory => match instruction.name() {
                "S2R" | "S2UR" | "LDC" | "LDCU" | "LDGDEPBAR" => 1.0,
                _ => (f64::from(instruction.bytes()) / 4.0).max(1.0),
            },
            Pipe::Uniform | Pipe::Branch => 1.0,
            Pipe::Copy | Pipe::Sync => 1.0,
        }
    }

    fn multiplies(&self, instruction: &Instruction) -> f64 {
        let Some(shape) = instruction.shape() else { return self.tensor };
        match (shape.asynchronous, instruction.name()) {
            (true, _) => shape.tiles * self.tensor_asynchronous,
            // 16x8x4 each 2 x 32 results of f64 in a clock.
            (false, "DMMA") => 16.0,
            (false, _) => shape.tiles * self.tensor,
        }
    }
}
