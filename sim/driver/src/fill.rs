//! Fills.

use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::Device;

use crate::copy::reaches;
use crate::outcome::{Outcome, explain};

/// Rows of a repeated value.
#[derive(Clone, Copy)]
pub struct Fill {
    pub address: u64,
    pub pitch: u64,
    pub value: u32,
    /// Size of the value: 1, 2 or 4 bytes.
    pub bytes: usize,
    pub width: u64,
    pub height: u64,
}

impl Fill {
    pub fn run(&self, device: &Device) -> Outcome {
        let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
        let value = &self.value.to_le_bytes()[..self.bytes];
        let row = self.width.saturating_mul(self.bytes as u64);
        if row == 0 {
            return Ok(());
        }
        for y in 0..self.height {
            let start = self.address.wrapping_add(y.wrapping_mul(self.pitch));
            if value.iter().all(|byte| *byte == value[0]) {
                device.fill(start, value[0], row).map_err(invalid)?;
                continue;
            }
            if !reaches(device, start, row) {
                eprintln!("kiln-sim-driver: failed to fill {row} bytes at {start:#x}");
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let chunk = value.repeat(4096 / value.len());
            let mut at = 0;
            while at < row {
                let count = (row - at).min(chunk.len() as u64);
                device.write(start + at, &chunk[..count as usize]).map_err(invalid)?;
                at += count;
            }
        }
        Ok(())
    }
}
