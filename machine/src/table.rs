//! The table of GPUs.

use std::fmt;

/// The operands of a matrix product, as far as their rate differs. Sums are of 32 bits or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operands {
    /// f16 and bf16.
    Half,
    /// tf32.
    Tf32,
    /// f64.
    F64,
    /// Floats of 8 bits.
    F8,
    /// Integers of 8 bits.
    Int8,
    /// Integers of 4 bits.
    Int4,
}

impl fmt::Display for Operands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operands::Half => "f16, bf16",
            Operands::Tf32 => "tf32",
            Operands::F64 => "f64",
            Operands::F8 => "f8",
            Operands::Int8 => "int8",
            Operands::Int4 => "int4",
        })
    }
}

/// Dense matrix products of a whole machine, in floating or integer operations of a second (a
/// multiplication and its addition are two), with sums of 32 bits or, of f64, 64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorRates {
    /// f16 and bf16.
    pub half: f64,
    /// tf32.
    pub tf32: f64,
    /// f64; 0 where tensor cores lack it.
    pub f64: f64,
    /// Floats of 8 bits; 0 where tensor cores lack them.
    pub f8: f64,
    /// Integers of 8 bits.
    pub int8: f64,
    /// Integers of 4 bits; 0 where tensor cores lack them.
    pub int4: f64,
}

impl TensorRates {
    /// The rate for such operands; infinite where it is not known, so that no bound comes of it.
    pub fn of(&self, operands: Operands) -> f64 {
        let rate = match operands {
            Operands::Half => self.half,
            Operands::Tf32 => self.tf32,
            Operands::F64 => self.f64,
            Operands::F8 => self.f8,
            Operands::Int8 => self.int8,
            Operands::Int4 => self.int4,
        };
        if rate > 0.0 { rate } else { f64::INFINITY }
    }
}

/// What one machine has. Rates are per multiprocessor and clock unless they say otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// The name in tables.
    pub name: &'static str,
    /// Multiprocessors.
    pub sm_count: u32,
    /// Clocks of a second, boosted.
    pub clock_hz: f64,
    /// Warp instructions issued.
    pub issue_rate: u32,
    /// Lanes of single precision, and of integer arithmetic at half of it or better.
    pub f32_lanes: u32,
    /// Lanes of integer arithmetic.
    pub integer_lanes: u32,
    /// Lanes of double precision.
    pub f64_lanes: u32,
    /// Lanes of half precision, two values each.
    pub half_lanes: u32,
    /// Lanes of special functions.
    pub special_lanes: u32,
    /// Lanes of conversions between types of 32 bits and less.
    pub conversion_lanes: u32,
    /// Matrix products.
    pub tensor: TensorRates,
    /// Lanes of loads and stores.
    pub memory_lanes: u32,
    /// Bytes of shared memory, or of the first cache.
    pub shared_bytes_rate: u32,
    /// Bytes of a second between all multiprocessors and the second cache, if it is known.
    pub l2_bytes_second: Option<f64>,
    /// Bytes of a second between the machine and its memory.
    pub dram_bytes_second: f64,
    /// Registers of 32 bits of a multiprocessor.
    pub registers: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_bytes: u32,
    /// Threads of a multiprocessor.
    pub threads_max: u32,
    /// Blocks of a multiprocessor.
    pub blocks_max: u32,
}

/// The rates of a machine of which none is given.
const NO_TENSOR: TensorRates =
    TensorRates { half: 0.0, tf32: 0.0, f64: 0.0, f8: 0.0, int8: 0.0, int4: 0.0 };

/// Arithmetic throughputs: CUDA C++ Programming Guide, table "Throughput of Native Arithmetic
/// Instructions", by compute capability (8.0, 8.9, 9.0, 10.0). Limits of a multiprocessor: the
/// same guide, table "Technical Specifications per Compute Capability".
const COMMON: Machine = Machine {
    name: "",
    sm_count: 0,
    clock_hz: 0.0,
    // Four schedulers, an instruction each: every architecture white paper since Volta's.
    issue_rate: 4,
    f32_lanes: 128,
    integer_lanes: 64,
    f64_lanes: 64,
    half_lanes: 128,
    special_lanes: 16,
    conversion_lanes: 64,
    tensor: NO_TENSOR,
    // Load and store units: the A100 and H100 white papers, figure of the multiprocessor.
    memory_lanes: 32,
    // 32 banks of 4 bytes: CUDA C++ Programming Guide, "Shared Memory".
    shared_bytes_rate: 128,
    l2_bytes_second: None,
    dram_bytes_second: 0.0,
    registers: 65536,
    shared_bytes: 228 << 10,
    threads_max: 2048,
    blocks_max: 32,
};

impl Machine {
    /// A100 SXM4 80 GB. NVIDIA A100 data sheet (memory, tensor cores) and white paper
    /// (multiprocessors, boost clock, 5120 bytes a clock from the second cache).
    pub const A100: Machine = Machine {
        name: "A100",
        sm_count: 108,
        clock_hz: 1.41e9,
        f32_lanes: 64,
        f64_lanes: 32,
        l2_bytes_second: Some(5120.0 * 1.41e9),
        dram_bytes_second: 2.039e12,
        tensor: TensorRates {
            half: 312e12,
            tf32: 156e12,
            f64: 19.5e12,
            int8: 624e12,
            int4: 1248e12,
            ..NO_TENSOR
        },
        shared_bytes: 164 << 10,
        ..COMMON
    };
    /// H100 SXM5. NVIDIA H100 data sheet: 3.35 TB/s, and 66.9 TFLOPS of FP32, which give the clock:
    /// 66.9e12 / (132 x 128 x 2); of its tensor cores the dense halves of the sparse rates. The
    /// second cache's rate is not published.
    pub const H100: Machine = Machine {
        name: "H100",
        sm_count: 132,
        clock_hz: 1.98e9,
        dram_bytes_second: 3.35e12,
        tensor: TensorRates {
            half: 989.4e12,
            tf32: 494.7e12,
            f64: 66.9e12,
            f8: 1978.9e12,
            int8: 1978.9e12,
            ..NO_TENSOR
        },
        ..COMMON
    };
    /// H200 SXM. As the H100, with 4.8 TB/s: NVIDIA H200 data sheet.
    pub const H200: Machine = Machine { name: "H200", dram_bytes_second: 4.8e12, ..Machine::H100 };
    /// L40S. NVIDIA L40S data sheet: 864 GB/s and 91.6 TFLOPS of FP32, which give the clock:
    /// 91.6e12 / (142 x 128 x 2). The second cache's rate is not published.
    pub const L40S: Machine = Machine {
        name: "L40S",
        sm_count: 142,
        clock_hz: 2.52e9,
        f64_lanes: 2,
        half_lanes: 64,
        dram_bytes_second: 0.864e12,
        tensor: TensorRates {
            half: 362.05e12,
            tf32: 183e12,
            f8: 733e12,
            int8: 733e12,
            int4: 1466e12,
            ..NO_TENSOR
        },
        shared_bytes: 100 << 10,
        threads_max: 1536,
        blocks_max: 24,
        ..COMMON
    };
    /// GeForce RTX 4090. NVIDIA Ada white paper: 128 multiprocessors, 2.52 GHz, 1008 GB/s, and of
    /// its tensor cores the rates with f32 sums, half of those with f16 sums. The second cache's
    /// rate is not published.
    pub const RTX_4090: Machine = Machine {
        name: "RTX 4090",
        sm_count: 128,
        dram_bytes_second: 1.008e12,
        tensor: TensorRates {
            half: 165.2e12,
            tf32: 82.6e12,
            f8: 330.3e12,
            int8: 660.6e12,
            int4: 1321.2e12,
            ..NO_TENSOR
        },
        ..Machine::L40S
    };
    /// B200. NVIDIA DGX B200 data sheet: 64 TB/s and 600 TFLOPS of FP32 for eight, which give the
    /// clock: 75e12 / (148 x 128 x 2); of its tensor cores an eighth of the dense rates, which only
    /// `tcgen05` reaches. The second cache's rate is not published.
    pub const B200: Machine = Machine {
        name: "B200",
        sm_count: 148,
        clock_hz: 1.98e9,
        dram_bytes_second: 8.0e12,
        tensor: TensorRates {
            half: 2250e12,
            tf32: 1125e12,
            f64: 37e12,
            f8: 4500e12,
            int8: 4500e12,
            ..NO_TENSOR
        },
        ..COMMON
    };

    /// Every machine of the table.
    pub const ALL: [Machine; 6] = [
        Machine::A100,
        Machine::H100,
        Machine::H200,
        Machine::L40S,
        Machine::RTX_4090,
        Machine::B200,
    ];

    /// The machine of that name, in any case and with or without spaces.
    pub fn named(name: &str) -> Option<Machine> {
        let plain = |text: &str| text.to_ascii_lowercase().replace([' ', '-', '_'], "");
        Machine::ALL.into_iter().find(|machine| plain(machine.name) == plain(name))
    }
}
