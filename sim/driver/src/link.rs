//! Linking: PTX in, PTX out, as an image that this driver loads.

use std::ffi::c_uint;

use cudarc::driver::sys::cudaError_enum::*;

use crate::image;
use crate::jit::Options;
use crate::machine::{MACHINE, driver};
use crate::merge::merge;
use crate::objects::Link;
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out, Text};

/// Kinds of input (`CUjitInputType`).
const PTX: c_uint = 1;
const LIBRARY: c_uint = 4;
const KINDS: c_uint = 6;

/// What the device runtime library has for grids that wait for all their blocks.
const DEVICE_RUNTIME: &str = include_str!("runtime.ptx");

/// Adds an input, of which machine code is refused.
fn add(state: u64, kind: c_uint, data: &[u8]) -> Outcome {
    let mut all = MACHINE.ready()?;
    let link = all.links.get_mut(&state).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if kind >= KINDS || link.linked.is_some() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let runtime = b"cuda_device_runtime";
    if kind == LIBRARY && data.windows(runtime.len()).any(|window| window == runtime) {
        link.texts.push(DEVICE_RUNTIME.to_owned());
        return Ok(());
    }
    match image::sized(data) {
        Ok(text) => {
            link.texts.push(text);
            Ok(())
        }
        Err(code) => {
            link.options.tell("", "kiln-sim-driver links PTX, and nothing else")?;
            Err(if kind == PTX { CUDA_ERROR_INVALID_PTX } else { code })
        }
    }
}

driver! {
    fn cuLinkCreate_v2(count: c_uint, names: In<c_uint>, values: Out<u64>, state: Out<u64>) {
        if state.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let options = Options::read(count, names, values)?;
        let mut all = MACHINE.current()?;
        let handle = all.handle();
        all.links.insert(handle, Link { options, texts: Vec::new(), linked: None });
        state.put(handle)
    }

    fn cuLinkAddData_v2(
        state: u64,
        kind: c_uint,
        data: Host,
        bytes: usize,
        _name: In<u8>,
        _count: c_uint,
        _names: In<c_uint>,
        _values: Out<u64>,
    ) {
        add(state, kind, &data.read(bytes as u64)?)
    }

    fn cuLinkAddFile_v2(
        state: u64,
        kind: c_uint,
        path: Text,
        _count: c_uint,
        _names: In<c_uint>,
        _values: Out<u64>,
    ) {
        let data = std::fs::read(path.str()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
        add(state, kind, &data)
    }

    fn cuLinkComplete(state: u64, image: Out<Host>, bytes: Out<usize>) {
        let mut all = MACHINE.ready()?;
        let link = all.links.get_mut(&state).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let limit = link.options.max_registers;
        let text = image::with_limit(merge(&link.texts), limit);
        if let Err((code, why)) = image::load(&text, limit) {
            link.options.tell("", &why)?;
            return Err(code);
        }
        link.options.tell("", "")?;
        let linked = link.linked.insert([text.as_bytes(), b"\0"].concat().into());
        bytes.offer(linked.len());
        image.put(Host::of(linked.as_ptr().expose_provenance() as u64))
    }

    fn cuLinkDestroy(state: u64) {
        let removed = MACHINE.ready()?.links.remove(&state);
        removed.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}
