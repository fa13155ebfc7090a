//! The addresses a plan runs on.

use crate::device::Buffer;

/// What one uid stands for in an execution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Slot {
    /// Device memory; `owner` is its device, 0 where only an address was given.
    Memory { address: u64, bytes: u64, owner: usize },
    /// A host value for a by-value tensor.
    Value(f64),
}

impl Slot {
    /// The whole of a buffer.
    pub(super) fn of(buffer: &Buffer) -> Slot {
        Slot::Memory { address: buffer.address(), bytes: buffer.bytes(), owner: buffer.owner() }
    }
}

/// The buffers that a pack keeps, by what they are in it.
#[derive(Debug, Clone)]
pub(super) struct Kept<K> {
    buffers: Vec<(K, Buffer)>,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Kept { buffers: Vec::new() }
    }
}

/// Packs are equal when they say the same.
impl<K> PartialEq for Kept<K> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<K: PartialEq> Kept<K> {
    /// Keeps a buffer in the place of another, or none.
    pub(super) fn keep(&mut self, at: K, buffer: Option<&Buffer>) {
        self.buffers.retain(|(known, _)| *known != at);
        self.buffers.extend(buffer.map(|buffer| (at, buffer.clone())));
    }
}

/// Uids with device memory or host values (`MCDNN_BACKEND_VARIANT_PACK_DESCRIPTOR`, 8.2.2.31).
///
/// A pack keeps the buffers it was given; what it was given by address its caller keeps. Reusing
/// one pack for many executions costs nothing per call. Lookups are fastest when tensors are added
/// in the order of [`ExecutionPlan::tensors`](crate::plan::ExecutionPlan::tensors).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VariantPack {
    pub(super) entries: Vec<(i64, Slot)>,
    pub(super) workspace: Option<Slot>,
    kept: Kept<Option<i64>>,
}

impl VariantPack {
    /// A pack without entries.
    pub fn new() -> Self {
        VariantPack::default()
    }

    /// Adds a tensor that lies at the start of a buffer, which the pack keeps.
    pub fn with(mut self, uid: i64, buffer: &Buffer) -> Self {
        self.set(uid, Slot::of(buffer));
        self.kept.keep(Some(uid), Some(buffer));
        self
    }

    /// Adds the element of a by-value tensor.
    pub fn with_value(mut self, uid: i64, value: f64) -> Self {
        self.set(uid, Slot::Value(value));
        self
    }

    /// Adds the workspace, which the pack keeps.
    pub fn with_workspace(mut self, buffer: &Buffer) -> Self {
        self.workspace = Some(Slot::of(buffer));
        self.kept.keep(None, Some(buffer));
        self
    }

    /// Adds or replaces a tensor at an address of the plan's device with so many bytes behind it.
    ///
    /// # Safety
    /// The bytes must be memory of the plan's device, and stay so until every execution with this
    /// pack or a clone of it has run: nothing checks that.
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_address(&mut self, uid: i64, address: u64, bytes: u64) {
        self.place(uid, address, bytes);
    }

    /// Sets the workspace: so many bytes at an address of the plan's device.
    ///
    /// # Safety
    /// As [`VariantPack::set_address`].
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_workspace_address(&mut self, address: u64, bytes: u64) {
        self.workspace = Some(Slot::Memory { address, bytes, owner: 0 });
        self.kept.keep(None, None);
    }

    /// Adds or replaces a tensor at an address; for packs that no one executes, any.
    pub(super) fn place(&mut self, uid: i64, address: u64, bytes: u64) {
        self.set(uid, Slot::Memory { address, bytes, owner: 0 });
        self.kept.keep(Some(uid), None);
    }

    /// Adds or replaces a by-value tensor's element.
    pub fn set_value(&mut self, uid: i64, value: f64) {
        self.set(uid, Slot::Value(value));
    }

    fn set(&mut self, uid: i64, slot: Slot) {
        match self.entries.iter_mut().find(|(known, _)| *known == uid) {
            Some((_, old)) => *old = slot,
            None => self.entries.push((uid, slot)),
        }
    }

    /// The slot of a uid; `hint` is where it is expected.
    #[inline]
    pub(super) fn find(&self, uid: i64, hint: usize) -> Option<&Slot> {
        match self.entries.get(hint) {
            Some((known, slot)) if *known == uid => Some(slot),
            _ => self.entries.iter().find(|(known, _)| *known == uid).map(|(_, slot)| slot),
        }
    }
}
