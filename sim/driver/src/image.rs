//! Images of modules: PTX is taken, by itself or from a fat binary, machine code is not.

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::{Accuracy, Module};

use crate::fat_binary;
use crate::merge::merge;
use crate::objects::Loaded;
use crate::occupancy::gpu;
use crate::outcome::Outcome;
use crate::pointer::{Host, Text};
use crate::settings::SETTINGS;

/// How each format begins.
const ELF: [u8; 4] = *b"\x7fELF";
const FATBIN: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
const FATBIN_WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();
const ARCHIVE: [u8; 4] = *b"!<ar";
const LTO_IR: [u8; 4] = 0x7f4e_43ed_u32.to_le_bytes();

/// The function of the device runtime that decides on a node of a graph, which drivers link with
/// kernels that call it.
const SET_CONDITIONAL: &str = "cudaGraphSetConditional";
const CONDITIONAL: &str = include_str!("conditional.ptx");

/// Says why an image is not one, with what to do about it.
fn refuse<T>(code: CUresult, why: &str) -> Outcome<T> {
    eprintln!("kiln-sim-driver: {code:?}: {why}");
    Err(code)
}

/// The PTX of an image.
pub fn text(image: Host) -> Outcome<String> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut start = [0; 4];
    for (at, byte) in start.iter_mut().enumerate() {
        *byte = image.add(at as u64).read(1)?[0];
        if *byte == 0 {
            break;
        }
    }
    match start {
        FATBIN_WRAPPER => {
            let container = image.add(fat_binary::POINTER_IN_WRAPPER).read(8)?;
            let container = container.try_into().map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
            text(Host::of(u64::from_le_bytes(container)))
        }
        FATBIN => {
            let header = image.read(fat_binary::HEADER_BYTES as u64)?;
            match fat_binary::container_bytes(&header) {
                Ok(bytes) => of_fat_binary(&image.read(bytes as u64)?),
                Err(why) => refuse(CUDA_ERROR_INVALID_IMAGE, &why),
            }
        }
        _ => ptx(&start, || Text::of(image).bytes()),
    }
}

/// The PTX of a fat binary for this GPU.
fn of_fat_binary(data: &[u8]) -> Outcome<String> {
    fat_binary::ptx(data, gpu().capability)
        .or_else(|why| refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, &why))
}

/// The PTX of an image whose first bytes and whole are these.
fn ptx<'a>(start: &[u8], whole: impl FnOnce() -> Outcome<&'a [u8]>) -> Outcome<String> {
    let hint = "the simulated GPU runs PTX; hand PTX to the driver (NVRTC with \
                `--gpu-architecture=compute_XY`; no nvJitLink, so that linking is the driver's)";
    if start.starts_with(&ELF) {
        return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, &format!("the image is a cubin: {hint}"));
    }
    if start.starts_with(&ARCHIVE) || start.starts_with(&LTO_IR) {
        return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, &format!("the image is not PTX: {hint}"));
    }
    let readable = start
        .iter()
        .all(|byte| *byte == 0 || byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    if !readable || start.first().is_none_or(|byte| *byte == 0) {
        return refuse(CUDA_ERROR_INVALID_IMAGE, "the image is not PTX");
    }
    match std::str::from_utf8(whole()?) {
        Ok(text) => Ok(text.to_string()),
        Err(_) => refuse(CUDA_ERROR_INVALID_IMAGE, "the image is not PTX: its text is not UTF-8"),
    }
}

/// The PTX of an image of a known size.
pub fn sized(data: &[u8]) -> Outcome<String> {
    if data.starts_with(&FATBIN) {
        return of_fat_binary(data);
    }
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let start = &data[..data.len().min(4)];
    ptx(start, || Ok(&data[..end]))
}

/// A line by which a linked image keeps a limit that it was linked with.
const MAX_REGISTERS: &str = "// kiln-sim: maxrregcount ";

/// Adds the limit to PTX.
pub fn with_limit(text: String, max_registers: Option<u32>) -> String {
    match max_registers {
        Some(limit) => format!("{MAX_REGISTERS}{limit}\n{text}"),
        None => text,
    }
}

/// Loads PTX; an error is told twice, in the log as well.
pub fn load(text: &str, max_registers: Option<u32>) -> Result<Loaded, (CUresult, String)> {
    let kept = text.strip_prefix(MAX_REGISTERS).and_then(|rest| rest.lines().next());
    let kept = kept.and_then(|limit| limit.parse().ok());
    let rejected = |error: kiln_sim::Error| {
        eprintln!("kiln-sim-driver: CUDA_ERROR_INVALID_PTX: {error}");
        (CUDA_ERROR_INVALID_PTX, error.to_string())
    };
    let accuracy = SETTINGS.as_ref().map_or(Accuracy::Nearest, |all| all.accuracy);
    // What the driver has for nodes of graphs that kernels decide on.
    let text = match text.contains(SET_CONDITIONAL) {
        true => &merge(&[text.to_owned(), CONDITIONAL.to_owned()]),
        false => text,
    };
    let module = Module::load_with(text, accuracy).map_err(rejected)?;
    Ok(Loaded { module, max_registers: max_registers.or(kept) })
}
