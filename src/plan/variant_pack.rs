//! Variant packs: the tensors' memory for an execution.

use crate::device::Buffer;

/// Device memory that was not allocated by Kiln.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceMemory {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Memory on a device that a call is given: a buffer, or memory that was not allocated by Kiln.
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    memory: DeviceMemory,
    buffer: Option<&'a Buffer>,
}

impl<'a> From<&'a Buffer> for Memory<'a> {
    /// All of a buffer.
    fn from(buffer: &'a Buffer) -> Memory<'a> {
        let memory = DeviceMemory { address: buffer.address(), bytes: buffer.bytes() };
        Memory { memory, buffer: Some(buffer) }
    }
}

impl<'a> Memory<'a> {
    /// Memory that the caller owns.
    ///
    /// # Safety
    /// As [`VariantPack::set_address`].
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn foreign(memory: DeviceMemory) -> Memory<'static> {
        Memory { memory, buffer: None }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    pub(crate) fn buffer(&self) -> Option<&'a Buffer> {
        self.buffer
    }

    pub(crate) fn slot(&self) -> Slot {
        self.buffer.map_or(Slot::foreign(self.memory), Slot::of)
    }
}

/// The value of a uid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Slot {
    /// Device memory. `owner` is its device's identity, 0 if only an address was given.
    Memory { address: u64, bytes: u64, owner: usize },
    /// The element of a by-value tensor.
    Value(f64),
}

impl Slot {
    /// Memory that the caller owns.
    pub(crate) fn foreign(memory: DeviceMemory) -> Slot {
        Slot::Memory { address: memory.address, bytes: memory.bytes, owner: 0 }
    }

    /// So many bytes from an offset on.
    pub(crate) fn piece(self, offset: u64, bytes: u64) -> Slot {
        match self {
            Slot::Memory { address, owner, .. } => {
                Slot::Memory { address: address + offset, bytes, owner }
            }
            value => value,
        }
    }

    /// All of a buffer.
    pub(crate) fn of(buffer: &Buffer) -> Slot {
        Slot::Memory { address: buffer.address(), bytes: buffer.bytes(), owner: buffer.owner() }
    }
}

/// The buffers that a pack keeps alive, by their key in the pack.
#[derive(Debug, Clone)]
pub(crate) struct Kept<K> {
    buffers: Vec<(K, Buffer)>,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Kept { buffers: Vec::new() }
    }
}

/// Ignored in comparisons: packs are equal if their addresses and values are.
impl<K> PartialEq for Kept<K> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<K: PartialEq> Kept<K> {
    /// Replaces the buffer of a key, or removes it.
    pub(crate) fn keep(&mut self, at: K, buffer: Option<&Buffer>) {
        self.buffers.retain(|(known, _)| *known != at);
        self.buffers.extend(buffer.map(|buffer| (at, buffer.clone())));
    }
}

/// Device memory or host values by uid (`MCDNN_BACKEND_VARIANT_PACK_DESCRIPTOR`, section 8.2.2.31).
///
/// A pack keeps buffers alive; memory given by address is the caller's to keep. Reusing a pack for
/// many executions costs nothing per call. Lookups are fastest if tensors are added in the order of
/// [`ExecutionPlan::tensors`](crate::plan::ExecutionPlan::tensors).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VariantPack {
    pub(crate) entries: Vec<(i64, Slot)>,
    pub(crate) workspace: Option<Slot>,
    kept: Kept<Option<i64>>,
}

impl VariantPack {
    /// An empty pack.
    pub fn new() -> Self {
        VariantPack::default()
    }

    /// Adds or replaces a tensor at the start of a buffer, which the pack keeps alive.
    pub fn with(mut self, uid: i64, buffer: &Buffer) -> Self {
        self.set(uid, Slot::of(buffer));
        self.kept.keep(Some(uid), Some(buffer));
        self
    }

    /// Adds or replaces the element of a by-value tensor.
    pub fn with_value(mut self, uid: i64, value: f64) -> Self {
        self.set(uid, Slot::Value(value));
        self
    }

    /// Adds or replaces the workspace, a buffer that the pack keeps alive.
    pub fn with_workspace(mut self, buffer: &Buffer) -> Self {
        self.workspace = Some(Slot::of(buffer));
        self.kept.keep(None, Some(buffer));
        self
    }

    /// Adds or replaces a tensor at the start of memory on the plan's device.
    ///
    /// # Safety
    /// The memory must be on the plan's device and stay allocated until every execution with this
    /// pack or a clone of it is complete. Nothing checks that.
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_address(&mut self, uid: i64, memory: DeviceMemory) {
        self.place(uid, memory);
    }

    /// Adds or replaces the workspace, memory on the plan's device.
    ///
    /// # Safety
    /// As [`VariantPack::set_address`].
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_workspace_address(&mut self, memory: DeviceMemory) {
        self.workspace = Some(Slot::foreign(memory));
        self.kept.keep(None, None);
    }

    /// As [`VariantPack::set_address`], for packs whose addresses are set before they are executed.
    pub(crate) fn place(&mut self, uid: i64, memory: DeviceMemory) {
        self.set(uid, Slot::foreign(memory));
        self.kept.keep(Some(uid), None);
    }

    /// Adds or replaces the element of a by-value tensor.
    pub fn set_value(&mut self, uid: i64, value: f64) {
        self.set(uid, Slot::Value(value));
    }

    fn set(&mut self, uid: i64, slot: Slot) {
        match self.entries.iter_mut().find(|(known, _)| *known == uid) {
            Some((_, old)) => *old = slot,
            None => self.entries.push((uid, slot)),
        }
    }

    /// The value of a uid; `hint` is its expected position.
    #[inline]
    pub(super) fn find(&self, uid: i64, hint: usize) -> Option<&Slot> {
        match self.entries.get(hint) {
            Some((known, slot)) if *known == uid => Some(slot),
            _ => self.entries.iter().find(|(known, _)| *known == uid).map(|(_, slot)| slot),
        }
    }
}
