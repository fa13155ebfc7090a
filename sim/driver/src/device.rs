//! The device: that there is one, and what it is.

use std::ffi::{c_char, c_int, c_uint};

use cudarc::driver::sys::cudaError_enum::*;

use crate::attribute::attribute;
use crate::machine::{MACHINE, driver};
use crate::occupancy::gpu;
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out, Text};
use crate::settings::{SETTINGS, VERSION};

/// A name for the device that no other has: version 8 of RFC 9562, for what vendors choose.
const UUID: [u8; 16] = *b"kiln-sim\x80GPU-000";
/// Where the device would be on the bus.
const PCI_BUS_ID: &[u8] = b"0000:00:00.0";

/// The one device that there is.
pub fn known(device: c_int) -> Outcome {
    drop(MACHINE.initialised()?);
    if device == 0 { Ok(()) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

/// Writes a text that ends with NUL, cut to the room for it.
fn text(to: Host, room: c_int, text: &[u8]) -> Outcome {
    let room = usize::try_from(room).unwrap_or(0);
    if to.is_null() || room == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    to.write(&[&text[..text.len().min(room - 1)], b"\0"].concat())
}

driver! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Err(why) = &*SETTINGS {
            eprintln!("kiln-sim-driver: {why}");
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (mut state, own) = (MACHINE.state(), std::process::id());
        if state.initialised.is_some_and(|process| process != own) {
            return Err(CUDA_ERROR_NOT_INITIALIZED);
        }
        state.initialised = Some(own);
        Ok(())
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.put(SETTINGS.as_ref().map_or(VERSION, |all| all.version))
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        drop(MACHINE.initialised()?);
        count.put(1)
    }

    fn cuDeviceGet(handle: Out<c_int>, ordinal: c_int) {
        known(ordinal)?;
        handle.put(ordinal)
    }

    fn cuDeviceGetName(name: Host, room: c_int, of: c_int) {
        known(of)?;
        text(name, room, gpu().name.as_bytes())
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, of: c_int) {
        known(of)?;
        uuid.put(UUID)
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, of: c_int) {
        known(of)?;
        uuid.put(UUID)
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, of: c_int) {
        known(of)?;
        bytes.put(MACHINE.device.config().memory_bytes as usize)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, of: c_int) {
        known(of)?;
        major.put(gpu().capability.0 as c_int)?;
        minor.put(gpu().capability.1 as c_int)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, which: c_uint, of: c_int) {
        known(of)?;
        value.put(attribute(which)?)
    }

    fn cuDeviceGetPCIBusId(id: Host, room: c_int, of: c_int) {
        known(of)?;
        text(id, room, PCI_BUS_ID)
    }

    fn cuDeviceGetByPCIBusId(handle: Out<c_int>, id: Text) {
        known(0)?;
        let id = id.str()?;
        let own = std::str::from_utf8(PCI_BUS_ID).unwrap_or_default();
        // Without its domain, its function, or both.
        let ways = [own, &own[5..], &own[..10], &own[5..10]];
        if ways.contains(&id) { handle.put(0) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, of: c_int, peer: c_int) {
        known(of)?;
        known(peer)?;
        can.put(0)
    }

    fn cuDeviceGetP2PAttribute(value: Out<c_int>, which: c_uint, of: c_int, peer: c_int) {
        known(of)?;
        known(peer)?;
        let _ = (value, which);
        // A device is not its own peer.
        Err(CUDA_ERROR_INVALID_DEVICE)
    }

    fn cuDeviceGetExecAffinitySupport(value: Out<c_int>, _which: c_uint, of: c_int) {
        known(of)?;
        value.put(0)
    }

    fn cuFlushGPUDirectRDMAWrites(_target: c_uint, _scope: c_uint) {
        drop(MACHINE.current()?);
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    // A profiler sees nothing of this, and hinders nothing.
    fn cuProfilerStart() {
        MACHINE.current().map(drop)
    }

    fn cuProfilerStop() {
        MACHINE.current().map(drop)
    }

    fn cuProfilerInitialize(_config: In<c_char>, _output: In<c_char>, _mode: c_uint) {
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}
