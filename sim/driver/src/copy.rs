//! Copies: within the device, within the host and between them, of lines, planes and volumes.

use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::Device;

use crate::outcome::{Outcome, explain};
use crate::pointer::Host;

/// Addresses that only the device has: those of its own allocations. Memory of the process lies
/// below and above (on x86-64 and aarch64 Linux).
const DEVICE_ONLY: std::ops::Range<u64> = 1 << 44..1 << 46;

/// One side of a copy.
#[derive(Clone, Copy)]
pub enum Side {
    Device(u64),
    Host(Host),
}

impl Side {
    /// The side that an address of the one address space is on.
    pub fn of(device: &Device, address: u64) -> Side {
        let known = device.allocation(address).is_some();
        if known || DEVICE_ONLY.contains(&address) {
            Side::Device(address)
        } else {
            Side::Host(Host::of(address))
        }
    }

    fn add(self, bytes: u64) -> Side {
        match self {
            Side::Device(address) => Side::Device(address.wrapping_add(bytes)),
            Side::Host(place) => Side::Host(place.add(bytes)),
        }
    }
}

/// Where a volume lies: its first byte, and how far rows and planes are apart.
#[derive(Clone, Copy)]
pub struct Volume {
    pub start: Side,
    pub pitch: u64,
    pub plane: u64,
}

#[derive(Clone, Copy)]
pub struct Copy {
    pub from: Volume,
    pub to: Volume,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
}

impl Copy {
    /// A copy of bytes in a row.
    pub fn line(from: Side, to: Side, bytes: usize) -> Copy {
        let volume = |start| Volume { start, pitch: 0, plane: 0 };
        let (from, to) = (volume(from), volume(to));
        Copy { from, to, width: bytes as u64, height: 1, depth: 1 }
    }

    pub fn run(&self, device: &Device) -> Outcome {
        if self.width == 0 {
            return Ok(());
        }
        for z in 0..self.depth {
            for y in 0..self.height {
                let at = |of: &Volume| {
                    of.start.add(z.wrapping_mul(of.plane).wrapping_add(y.wrapping_mul(of.pitch)))
                };
                row(device, at(&self.from), at(&self.to), self.width)?;
            }
        }
        Ok(())
    }
}

/// Whether an allocation has so many bytes from an address on.
pub fn reaches(device: &Device, address: u64, bytes: u64) -> bool {
    let known = device.allocation(address);
    known.is_some_and(|(base, size)| bytes <= size - (address - base))
}

/// Refuses a range of the device that no allocation has.
fn ranged(device: &Device, verb: &str, address: u64, bytes: u64) -> Outcome {
    if reaches(device, address, bytes) {
        return Ok(());
    }
    eprintln!(
        "kiln-sim-driver: failed to {verb} {bytes} bytes at {address:#x}: no allocation has them"
    );
    Err(CUDA_ERROR_INVALID_VALUE)
}

fn row(device: &Device, from: Side, to: Side, bytes: u64) -> Outcome {
    let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
    match (from, to) {
        (Side::Device(from), Side::Device(to)) => device.copy(from, to, bytes).map_err(invalid),
        (Side::Host(from), Side::Device(to)) => {
            ranged(device, "write", to, bytes)?;
            device.write(to, &from.read(bytes)?).map_err(invalid)
        }
        (Side::Device(from), Side::Host(to)) => {
            ranged(device, "read", from, bytes)?;
            let mut data = vec![0; bytes as usize];
            device.read(from, &mut data).map_err(invalid)?;
            to.write(&data)
        }
        (Side::Host(from), Side::Host(to)) => to.write(&from.read(bytes)?),
    }
}
