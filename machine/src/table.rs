//! Hardware properties of GPUs.

use std::fmt;

/// Operand type of an MMA, as far as throughput differs. Accumulators have at least 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operands {
    /// f16 and bf16.
    Half,
    /// tf32.
    Tf32,
    /// f64.
    F64,
    /// 8-bit floats.
    F8,
    /// 8-bit integers.
    Int8,
    /// 4-bit integers.
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

/// Dense tensor core throughput of a GPU in operations per second (a multiply-add is two), with
/// 32-bit accumulators, 64-bit ones for f64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorRates {
    /// f16 and bf16.
    pub half: f64,
    /// tf32.
    pub tf32: f64,
    /// f64; 0 if unsupported.
    pub f64: f64,
    /// 8-bit floats; 0 if unsupported.
    pub f8: f64,
    /// 8-bit integers.
    pub int8: f64,
    /// 4-bit integers; 0 if unsupported.
    pub int4: f64,
}

impl TensorRates {
    /// Throughput for the operand type; infinite if unknown, so that it does not bound.
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

/// Properties of a GPU. Rates are per SM and clock unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Name in tables.
    pub name: &'static str,
    /// Number of SMs.
    pub sm_count: u32,
    /// Boost clock in Hz.
    pub clock_hz: f64,
    /// Clock in Hz at which tensor cores have the throughput of `tensor`.
    pub tensor_hz: f64,
    /// Clock in Hz that the limit of power leaves while all tensor cores multiply values that are
    /// not all alike; boost where nobody published it.
    pub loaded_hz: f64,
    /// Warp instructions issued.
    pub issue_rate: u32,
    /// f32 lanes.
    pub f32_lanes: u32,
    /// Integer lanes.
    pub integer_lanes: u32,
    /// f64 lanes.
    pub f64_lanes: u32,
    /// Half-precision lanes, two values each.
    pub half_lanes: u32,
    /// Special function lanes.
    pub special_lanes: u32,
    /// Lanes of conversions between types of at most 32 bits.
    pub conversion_lanes: u32,
    /// Tensor core throughput.
    pub tensor: TensorRates,
    /// Load/store lanes.
    pub memory_lanes: u32,
    /// Shared memory or L1 bandwidth in bytes.
    pub shared_bytes_rate: u32,
    /// L2 in bytes.
    pub l2_bytes: u64,
    /// L2 bandwidth in bytes per second, if known.
    pub l2_bytes_second: Option<f64>,
    /// DRAM bandwidth in bytes per second.
    pub dram_bytes_second: f64,
    /// 32-bit registers per SM.
    pub registers: u32,
    /// Shared memory per SM in bytes.
    pub shared_bytes: u32,
    /// Shared memory in bytes that a block costs beyond its own: none before 8.0.
    pub shared_reserved: u32,
    /// Maximum number of threads per SM.
    pub threads_max: u32,
    /// Maximum number of blocks per SM.
    pub blocks_max: u32,
}

/// Placeholder for unspecified throughput.
const NO_TENSOR: TensorRates =
    TensorRates { half: 0.0, tf32: 0.0, f64: 0.0, f8: 0.0, int8: 0.0, int4: 0.0 };

/// Arithmetic throughput: CUDA C++ Programming Guide, table "Throughput of Native Arithmetic
/// Instructions", by compute capability (8.0, 8.9, 9.0, 10.0). SM limits: the same guide, table
/// "Technical Specifications per Compute Capability".
const COMMON: Machine = Machine {
    name: "",
    sm_count: 0,
    clock_hz: 0.0,
    tensor_hz: 0.0,
    loaded_hz: 0.0,
    // Four schedulers issuing one instruction each: every architecture white paper since Volta's.
    issue_rate: 4,
    f32_lanes: 128,
    integer_lanes: 64,
    f64_lanes: 64,
    half_lanes: 128,
    special_lanes: 16,
    conversion_lanes: 64,
    tensor: NO_TENSOR,
    // Load/store units: the A100 and H100 white papers, figure of the SM.
    memory_lanes: 32,
    // 32 banks of 4 bytes: CUDA C++ Programming Guide, "Shared Memory".
    shared_bytes_rate: 128,
    l2_bytes: 0,
    l2_bytes_second: None,
    dram_bytes_second: 0.0,
    registers: 65536,
    shared_bytes: 228 << 10,
    shared_reserved: 1 << 10,
    threads_max: 2048,
    blocks_max: 32,
};

impl Machine {
    /// A100 SXM4 80 GB. NVIDIA A100 data sheet (memory, tensor cores) and white paper (SMs, boost
    /// clock, L2 of 40 MB, 5120 bytes per clock from it). Under load: a GEMM of 8192^3 that
    /// reaches 295 TFLOPS with zeros reaches 257 with normal values
    /// (thonking.ai/p/strangely-matrix-multiplications): 1.41 GHz x 257 / 295.
    pub const A100: Machine = Machine {
        name: "A100",
        sm_count: 108,
        clock_hz: 1.41e9,
        tensor_hz: 1.41e9,
        loaded_hz: 1.23e9,
        f32_lanes: 64,
        f64_lanes: 32,
        l2_bytes: 40 << 20,
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
    /// H100 SXM5. NVIDIA H100 data sheet: 3.35 TB/s; the clock follows from 66.9 TFLOPS of FP32,
    /// 66.9e12 / (132 x 128 x 2); tensor core rates are half the sparse ones, at the white paper's
    /// boost for tensor cores: 4096 operations of an SM in a clock. Under load: H800 SXM5, docs/
    /// 20250422-new-kernel-deep-dive.md of github.com/deepseek-ai/FlashMLA. L2 of 50 MB: NVIDIA
    /// H100 white paper. L2 bandwidth is what the filter gradient of a 3 x 3 convolution of 64
    /// channels asks of an H200's: 376 MB in 33 us (benches/results).
    pub const H100: Machine = Machine {
        name: "H100",
        sm_count: 132,
        clock_hz: 1.98e9,
        tensor_hz: 1.83e9,
        loaded_hz: 1.6e9,
        l2_bytes: 50 << 20,
        l2_bytes_second: Some(11.4e12),
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
    /// H200 SXM. As H100, with 4.8 TB/s: NVIDIA H200 data sheet.
    pub const H200: Machine = Machine { name: "H200", dram_bytes_second: 4.8e12, ..Machine::H100 };
    /// L40S. NVIDIA L40S data sheet: 864 GB/s; the clock follows from 91.6 TFLOPS of FP32, 91.6e12
    /// / (142 x 128 x 2), that of tensor cores from 1024 operations of an SM. L2 bandwidth is not
    /// published.
    pub const L40S: Machine = Machine {
        name: "L40S",
        sm_count: 142,
        clock_hz: 2.52e9,
        tensor_hz: 2.49e9,
        loaded_hz: 2.52e9,
        f64_lanes: 2,
        half_lanes: 64,
        l2_bytes: 96 << 20,
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
    /// GeForce RTX 4090. NVIDIA Ada white paper: 128 SMs, 2.52 GHz, 1008 GB/s, and tensor core
    /// rates with f32 accumulation, half of those with f16 accumulation. L2 bandwidth is not
    /// published.
    pub const RTX_4090: Machine = Machine {
        name: "RTX 4090",
        sm_count: 128,
        tensor_hz: 2.52e9,
        l2_bytes: 72 << 20,
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
    /// B200. NVIDIA DGX B200 data sheet for eight GPUs: 64 TB/s; the clock follows from 600 TFLOPS
    /// of FP32, 75e12 / (148 x 128 x 2); tensor core rates are an eighth of the dense ones, which
    /// require `tcgen05`, at the clock that 8192 operations of an SM give. L2 bandwidth is not
    /// published.
    pub const B200: Machine = Machine {
        name: "B200",
        sm_count: 148,
        clock_hz: 1.98e9,
        tensor_hz: 1.856e9,
        loaded_hz: 1.98e9,
        l2_bytes: 126 << 20,
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

    /// Every GPU of the table.
    pub const ALL: [Machine; 6] = [
        Machine::A100,
        Machine::H100,
        Machine::H200,
        Machine::L40S,
        Machine::RTX_4090,
        Machine::B200,
    ];

    /// Looks up a GPU by name, ignoring case and spaces.
    pub fn named(name: &str) -> Option<Machine> {
        let plain = |text: &str| text.to_ascii_lowercase().replace([' ', '-', '_'], "");
        Machine::ALL.into_iter().find(|machine| plain(machine.name) == plain(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_cores_do_a_power_of_two_in_a_clock() {
        for machine in Machine::ALL {
            let rate = machine.tensor.half / f64::from(machine.sm_count) / machine.tensor_hz;
            let nearest = 2.0_f64.powf(rate.log2().round());
            assert!((rate / nearest - 1.0).abs() < 2e-3, "{}: {rate}", machine.name);
            assert!(machine.tensor_hz <= machine.clock_hz, "{}", machine.name);
            assert!(machine.loaded_hz <= machine.clock_hz, "{}", machine.name);
        }
    }
}
