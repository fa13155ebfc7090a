//! Memory that the launches of one problem share: what a kernel writes, as it was before its launch
//! and after it.

use std::collections::HashMap;
use std::path::Path;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::plan::dump::format::{DumpArgument, DumpLaunch, Passed};
use crate::plan::problem::tensors::{packed_bytes, read_u8};
use crate::tensor::TensorDesc;

/// Bytes by position among the launch's arguments. In a safetensors file those of argument 3 are
/// the `u8` tensor `3`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::plan) struct SharedMemory {
    bytes: HashMap<usize, Vec<u8>>,
}

impl SharedMemory {
    /// The arguments of a launch whose memory is captured, with their positions.
    pub(in crate::plan) fn arguments(
        launch: &DumpLaunch,
    ) -> impl Iterator<Item = (usize, &DumpArgument)> {
        let written = |(_, argument): &(usize, &DumpArgument)| argument.written;
        let arguments = launch.arguments.iter().enumerate().filter(written);
        arguments.filter(|_| launch.shares_memory())
    }

    /// Reads the memory of a launch with `read`, which fills the bytes of an argument.
    pub(in crate::plan) fn captured(
        launch: &DumpLaunch,
        read: impl Fn(usize, &mut [u8]) -> Result<()>,
    ) -> Result<SharedMemory> {
        let mut memory = SharedMemory::default();
        for (at, argument) in SharedMemory::arguments(launch) {
            let mut bytes = vec![0; argument.bytes as usize];
            if !bytes.is_empty() {
                read(at, &mut bytes)?;
            }
            memory.bytes.insert(at, bytes);
        }
        Ok(memory)
    }

    /// The bytes of the argument at this position; `None` if the kernel does not write it.
    pub(in crate::plan) fn of(&self, at: usize) -> Option<&[u8]> {
        self.bytes.get(&at).map(Vec::as_slice)
    }

    /// The bytes of scratch buffers, by the names of their arguments.
    pub(in crate::plan) fn scratch(&self, launch: &DumpLaunch) -> Vec<(String, Vec<u8>)> {
        let scratch = SharedMemory::arguments(launch)
            .filter(|(_, argument)| argument.passed == Passed::Scratch)
            .filter_map(|(at, argument)| Some((argument.tensor.clone(), self.of(at)?.to_vec())));
        scratch.collect()
    }

    /// The safetensors file.
    pub(in crate::plan) fn into_file(self) -> Result<Vec<u8>> {
        let tensor = |at: usize, bytes: usize| {
            TensorDesc::packed(1, at.to_string(), &[bytes as i64], DType::U8)
        };
        let bytes = self.bytes.into_iter();
        let packed: Vec<_> = bytes.map(|(at, bytes)| (tensor(at, bytes.len()), bytes)).collect();
        let packed: Vec<_> = packed.iter().map(|(tensor, bytes)| (tensor, bytes)).collect();
        packed_bytes(&packed, None)
    }

    /// Reads a file of the dump, if it is there.
    ///
    /// # Errors
    /// `BadParam` when it is malformed, or has not the bytes of the launch.
    pub(in crate::plan) fn open(path: &Path, launch: &DumpLaunch) -> Result<Option<SharedMemory>> {
        if !path.exists() {
            return Ok(None);
        }
        let mut found = read_u8(path)?;
        let mut memory = SharedMemory::default();
        for (at, argument) in SharedMemory::arguments(launch) {
            let bytes = found.remove(&at.to_string()).unwrap_or_default();
            if bytes.len() as u64 != argument.bytes {
                let (shown, len, wanted) = (path.display(), bytes.len(), argument.bytes);
                return Err(Error::bad_param(format!(
                    "`{shown}` has {len} bytes of argument {at}, the launch {wanted}"
                )));
            }
            memory.bytes.insert(at, bytes);
        }
        Ok(Some(memory))
    }
}
