//! What each allocation is: the driver's view of addresses.

use std::collections::BTreeMap;

use kiln_sim::Device;

/// Kind of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Device,
    /// From a pool of stream-ordered memory.
    Pool(u64),
    Managed,
    /// Page-locked memory of the host, with the flags it was allocated with.
    Host(u32),
    /// Memory of the process that was registered, from this address on.
    Registered(u64, u32),
}

#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    pub kind: Kind,
    pub context: u64,
    pub bytes: u64,
    /// A number that no other allocation has had.
    pub id: u64,
}

/// Allocations by address.
#[derive(Debug, Default)]
pub struct Allocations {
    all: BTreeMap<u64, Allocation>,
    last: u64,
}

impl Allocations {
    pub fn insert(&mut self, address: u64, kind: Kind, context: u64, bytes: u64) {
        self.last += 1;
        self.all.insert(address, Allocation { kind, context, bytes, id: self.last });
    }

    /// The allocation that contains an address, and where it starts.
    pub fn find(&self, address: u64) -> Option<(u64, Allocation)> {
        let (&base, found) = self.all.range(..=address).next_back()?;
        (address - base < found.bytes.max(1)).then_some((base, *found))
    }

    pub fn at(&self, address: u64) -> Option<Allocation> {
        self.all.get(&address).copied()
    }

    /// Where registered memory of the host is, by its address there.
    pub fn registered(&self, host: u64) -> Option<u64> {
        let starts = |of: &Allocation| matches!(of.kind, Kind::Registered(at, _) if at == host);
        self.all.iter().find(|(_, of)| starts(of)).map(|(&address, _)| address)
    }

    pub fn remove(&mut self, address: u64) {
        self.all.remove(&address);
    }

    pub fn bytes_of_pool(&self, pool: u64) -> u64 {
        self.all.values().filter(|of| of.kind == Kind::Pool(pool)).map(|of| of.bytes).sum()
    }

    /// Frees what a context has.
    pub fn free_of_context(&mut self, device: &Device, context: u64) {
        self.free(device, |of| of.context == context);
    }

    /// Frees what a pool has.
    pub fn free_of_pool(&mut self, device: &Device, pool: u64) {
        self.free(device, |of| of.kind == Kind::Pool(pool));
    }

    fn free(&mut self, device: &Device, concerned: impl Fn(&Allocation) -> bool) {
        self.all.retain(|&address, of| {
            if concerned(of) {
                // It is known to the device for as long as it is known here.
                let _freed = device.free(address);
            }
            !concerned(of)
        });
    }
}
