//! Layers that a handle has used, and what their passes are given.

use std::sync::{Mutex, PoisonError};

use kiln::Kiln;
use kiln::attention::{AttentionDescriptor, SequenceDataDescriptor};
use kiln::layers::MultiHeadAttention;
use kiln::plan::{DeviceMemory, Memory};

use crate::attention::data::SeqData;
use crate::handle::Handle;
use crate::kept::{Lengths, UNKNOWN, use_last};
use crate::object::Ref;
use crate::status::{Outcome, bad};

/// Layers, those used last at the end.
#[derive(Default)]
pub struct Layers(Mutex<Vec<Layer>>);

/// A layer on a device.
pub struct Layer {
    /// What launches it.
    pub built: MultiHeadAttention,
    /// Lengths of sequences in device memory, for calls that are given none there.
    lengths: Lengths,
}

impl Handle {
    /// Uses a layer of this handle's.
    pub fn layer<R>(
        &self,
        descriptor: &AttentionDescriptor,
        of: impl FnOnce(&mut Layer, &Kiln) -> Outcome<R>,
    ) -> Outcome<R> {
        let kiln = &self.gpu().kiln;
        let mut all = self.layers().0.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |known: &Layer| known.built.descriptor() == descriptor;
        let new = || {
            let built = kiln.multi_head_attention(descriptor)?;
            Ok(Layer { built, lengths: Lengths::default() })
        };
        of(use_last(&mut all, is, new)?, kiln)
    }
}

impl Layer {
    /// Lengths of sequences in device memory: at the given address, or in memory of the library's
    /// own, which is filled once.
    pub fn lengths(
        &mut self,
        kiln: &Kiln,
        given: u64,
        data: &SequenceDataDescriptor,
    ) -> Outcome<Memory<'static>> {
        let lengths = &data.get().seq_lengths;
        Ok(foreign(self.lengths.address(kiln, given, lengths)?, UNKNOWN))
    }
}

/// Memory of the program's.
pub fn foreign(address: u64, bytes: u64) -> Memory<'static> {
    // SAFETY: the program keeps its memory until the work of the call is done; the library's own
    // is kept with the layer.
    unsafe { Memory::foreign(DeviceMemory { address, bytes }) }
}

/// Memory at an address, which must be there.
pub fn memory(address: u64, name: &str) -> Outcome<Memory<'static>> {
    match address {
        0 => bad(format!("{name} is NULL")),
        address => Ok(foreign(address, UNKNOWN)),
    }
}

/// Memory of a size, which may be absent.
pub fn sized(address: u64, bytes: usize) -> Option<Memory<'static>> {
    (address != 0).then(|| foreign(address, bytes as u64))
}

/// What four sequence data descriptors say.
pub fn described(all: [(Ref<SeqData>, &str); 4]) -> Outcome<[SequenceDataDescriptor; 4]> {
    let [q, k, v, o] = all.map(|(data, name)| data.get(name)?.said(name));
    Ok([q?, k?, v?, o?])
}
