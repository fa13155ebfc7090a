//! Layers that a handle has used, and what their passes are given.

use kiln::Kiln;
use kiln::attention::{AttentionDescriptor, AttentionExtent, SequenceDataDescriptor};
use kiln::device::Stream;
use kiln::layers::MultiHeadAttention;
use kiln::plan::{DeviceMemory, Memory};

use crate::attention::data::SeqData;
use crate::attention::descriptor::Attention;
use crate::handle::Handle;
use crate::kept::{Lengths, UNKNOWN, use_last};
use crate::object::{Ref, next_number, number_to_come};
use crate::status::{Outcome, bad};

/// A layer on a device.
#[derive(Clone)]
pub struct Layer {
    /// A number that no other layer has but its clones.
    id: u64,
    /// What launches it.
    pub built: MultiHeadAttention,
    /// Lengths of sequences in device memory, for calls that are given none there.
    lengths: Lengths,
}

impl Handle {
    /// Uses a layer of this handle's, whose state all handles share, on the stream that the handle
    /// has now.
    pub fn layer<R>(
        &self,
        said: &mut Said,
        of: impl FnOnce(&mut Layer, &Kiln, &Stream, &[SequenceDataDescriptor; 4]) -> Outcome<R>,
    ) -> Outcome<R> {
        let kiln = &self.gpu().kiln;
        let Said { id, layer: descriptor, vectors, stream, .. } = said;
        self.follow(stream);
        let last = *id;
        let is = |known: &Layer| known.id == last || known.built.descriptor() == descriptor;
        let new = || {
            let built = kiln.multi_head_attention(descriptor)?;
            Ok(Layer { id: next_number(), built, lengths: Lengths::default() })
        };
        let share = || self.gpu().layers.with(is, new, |layer| Ok(layer.clone()));
        self.layers().with(is, share, |layer| {
            *id = layer.id;
            of(layer, kiln, stream, vectors)
        })
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

/// What the descriptors of a call say: of the layer, and of four tensors.
pub struct Said {
    versions: [u64; 7],
    /// The descriptors of the last call, and the number to come before they were looked at.
    made: Option<Made>,
    /// The layer.
    layer: AttentionDescriptor,
    /// The number of the layer that ran last.
    id: u64,
    /// Queries, keys, values and outputs.
    pub vectors: [SequenceDataDescriptor; 4],
    /// What a forward pass has seen their extent to be.
    extent: Option<AttentionExtent>,
    /// The stream of the last call.
    stream: Stream,
}

type Made = (Ref<Attention>, [Ref<SeqData>; 4], u64);

impl Said {
    /// The extent of a forward pass, which is found out once.
    pub fn extent(&mut self) -> Outcome<AttentionExtent> {
        if let Some(extent) = self.extent {
            return Ok(extent);
        }
        let [q, k, v, o] = &self.vectors;
        Ok(*self.extent.insert(self.layer.extent(q, k, v, o)?))
    }
}

impl Handle {
    /// Uses what the descriptors of a call say, which is found out once.
    pub fn with_said<R>(
        &self,
        attention: Ref<Attention>,
        vectors: [(Ref<SeqData>, &str); 4],
        of: impl FnOnce(&mut Said) -> Outcome<R>,
    ) -> Outcome<R> {
        let made = (attention, vectors.map(|(data, _)| data), number_to_come());
        let mut kept = self.said().all();
        // Nothing was set or destroyed since the same call was made.
        if let Some(last) = kept.last_mut().filter(|last| last.made == Some(made)) {
            return of(last);
        }
        let attention = attention.get("attnDesc")?;
        let [layer, softmax, post] = attention.versions();
        let [q, k, v, o] = vectors.map(|(data, name)| data.get(name));
        let [q, k, v, o] = [q?, k?, v?, o?];
        let all = [&q, &k, &v, &o].map(|data| data.version());
        let versions = [layer, softmax, post, all[0], all[1], all[2], all[3]];
        let names = vectors.map(|(_, name)| name);
        let say = || {
            let layer = attention.descriptor()?;
            let vectors =
                [q.said(names[0])?, k.said(names[1])?, v.said(names[2])?, o.said(names[3])?];
            let (made, extent, id, stream) = (None, None, 0, self.stream());
            Ok(Said { versions, made, layer, id, vectors, extent, stream })
        };
        let said = use_last(&mut kept, |known| known.versions == versions, say)?;
        said.made = Some(made);
        of(said)
    }
}
