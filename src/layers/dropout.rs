//! The state of a layer's dropouts in device memory.

use crate::device::{Buffer, Device};
use crate::dropout::DropoutDescriptor;
use crate::error::{Error, Result};

/// Seeds and positions of a layer's dropouts (see [`DropoutDescriptor`]), which each forward pass
/// in training reads and moves on, on its stream.
///
/// In memory, the seeds come first, `i64`, then the positions, `i32`; they wrap around.
#[derive(Debug)]
pub struct DropoutStates {
    memory: Buffer,
    count: usize,
}

const SEED_BYTES: usize = size_of::<i64>();
const POSITION_BYTES: usize = size_of::<i32>();

impl DropoutStates {
    /// Those of these dropouts before the first pass.
    pub(super) fn new(device: &Device, dropouts: &[DropoutDescriptor]) -> Result<DropoutStates> {
        let seeds = dropouts.iter().flat_map(|dropout| dropout.seed().to_ne_bytes());
        let positions = (0..dropouts.len() as i32).flat_map(i32::to_ne_bytes);
        let bytes: Vec<u8> = seeds.chain(positions).collect();
        Ok(DropoutStates { memory: device.upload(&bytes)?, count: dropouts.len() })
    }

    /// Size of the states of so many dropouts in bytes (`cudnnDropoutGetStatesSize`).
    pub const fn bytes_of(dropouts: usize) -> usize {
        dropouts * (SEED_BYTES + POSITION_BYTES)
    }

    /// The states in memory.
    pub fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// The position of each dropout for the next forward pass in training. Waits for the default
    /// stream only.
    ///
    /// # Errors
    /// `Driver` when the copy fails.
    pub fn positions(&self) -> Result<Vec<i32>> {
        let mut bytes = vec![0; self.count * POSITION_BYTES];
        self.memory.read((self.count * SEED_BYTES) as u64, &mut bytes)?;
        let integers = bytes.as_chunks::<POSITION_BYTES>().0.iter();
        Ok(integers.map(|bytes| i32::from_ne_bytes(*bytes)).collect())
    }

    /// Sets the positions (`cudnnRestoreDropoutDescriptor`): a pass from there draws what it drew.
    ///
    /// # Errors
    /// `BadParam` for another number of positions than of dropouts; `Driver` when the copy fails.
    pub fn restore(&self, positions: &[i32]) -> Result<()> {
        if positions.len() != self.count {
            let (given, count) = (positions.len(), self.count);
            let text = format!("dropout states: {given} positions of {count} dropouts");
            return Err(Error::bad_param(text));
        }
        let bytes: Vec<u8> = positions.iter().flat_map(|at| at.to_ne_bytes()).collect();
        self.memory.write((self.count * SEED_BYTES) as u64, &bytes)
    }
}
