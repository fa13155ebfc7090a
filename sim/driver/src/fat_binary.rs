//! Fat binaries: what `nvcc` puts into programs, PTX and machine code for several architectures.
//! Their layout is in no document; what is not recognised is refused in words.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use crate::capability::capability;

/// How a container begins: magic number, version, bytes of this header, bytes of what follows.
pub const HEADER_BYTES: usize = 16;
/// Where in a wrapper, which programs register, the pointer to its container is.
pub const POINTER_IN_WRAPPER: u64 = 8;

/// Kinds of entries.
const PTX: u16 = 1;
const MACHINE_CODE: u16 = 2;

/// Flags of an entry, of which these say how it is compressed.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// Where the header of an entry has what.
const ENTRY_BYTES: usize = 64;
const KIND: usize = 0;
const OWN_BYTES: usize = 4;
const PAYLOAD_BYTES: usize = 8;
const COMPRESSED_BYTES: usize = 16;
const ARCHITECTURE: usize = 28;
const FLAGS: usize = 40;
const PLAIN_BYTES: usize = 56;

/// A number of so many bytes at an offset.
fn number(data: &[u8], at: usize, bytes: usize) -> Result<u64, String> {
    let found = at.checked_add(bytes).and_then(|end| data.get(at..end));
    let found = found.ok_or("the fat binary ends within an entry")?;
    Ok(found.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

/// Bytes of a container in all, by its header.
pub fn container_bytes(header: &[u8]) -> Result<usize, String> {
    let all = HEADER_BYTES as u64 + number(header, 8, 8)?;
    usize::try_from(all).map_err(|_| "the fat binary has no end".to_owned())
}

struct Entry<'a> {
    kind: u16,
    /// 90 for sm_90.
    architecture: u64,
    flags: u64,
    payload: &'a [u8],
    plain_bytes: u64,
}

impl Entry<'_> {
    fn text(&self) -> Result<String, String> {
        let name = format!("the PTX for sm_{} in the fat binary", self.architecture);
        let damaged = |why: String| format!("{name} is damaged: {why}");
        let plain = match (self.flags & LZ4 != 0, self.flags & ZSTD != 0) {
            (false, false) => self.payload.to_vec(),
            (true, false) => {
                // Each byte stands for 255 at most.
                let room = self.plain_bytes.min(255 * self.payload.len() as u64) as usize;
                lz4_flex::block::decompress(self.payload, room)
                    .map_err(|error| damaged(error.to_string()))?
            }
            (false, true) => {
                let mut plain = Vec::new();
                StreamingDecoder::new(self.payload)
                    .map_err(|error| damaged(error.to_string()))?
                    .read_to_end(&mut plain)
                    .map_err(|error| damaged(error.to_string()))?;
                plain
            }
            (true, true) => {
                return Err(format!(
                    "{name} is compressed in an unknown way (flags {:#x}): compile with \
                     `--compress-mode=none`",
                    self.flags
                ));
            }
        };
        // It is padded with NUL.
        let end = plain.iter().position(|byte| *byte == 0).unwrap_or(plain.len());
        let text = std::str::from_utf8(&plain[..end]).map_err(|e| damaged(e.to_string()))?;
        Ok(text.to_owned())
    }
}

fn entries(data: &[u8]) -> Result<Vec<Entry<'_>>, String> {
    let end = container_bytes(data)?;
    let data = data.get(..end).ok_or("the fat binary is shorter than it says")?;
    let mut entries = Vec::new();
    let mut at = HEADER_BYTES;
    while at < data.len() {
        let header = &data[at..];
        let field = |offset, bytes| number(header, offset, bytes);
        let (own, stored) = (field(OWN_BYTES, 4)?, field(PAYLOAD_BYTES, 8)?);
        let compressed = field(COMPRESSED_BYTES, 4)?;
        let bytes = if compressed == 0 { stored } else { compressed.min(stored) };
        let start = usize::try_from(own).ok().filter(|own| *own >= ENTRY_BYTES);
        let start = start.ok_or("the fat binary has an entry without a header")?;
        let payload = header.get(start..).and_then(|rest| rest.get(..bytes as usize));
        entries.push(Entry {
            kind: field(KIND, 2)? as u16,
            architecture: field(ARCHITECTURE, 4)?,
            flags: field(FLAGS, 8)?,
            payload: payload.ok_or("the fat binary ends within an image")?,
            plain_bytes: field(PLAIN_BYTES, 8)?,
        });
        at = at.saturating_add(start).saturating_add(stored as usize);
    }
    Ok(entries)
}

/// Whether PTX is for a GPU: not of a later architecture, nor of the features of another one.
fn is_for(text: &str, gpu: (u32, u32)) -> bool {
    let target = text.lines().find_map(|line| line.trim().strip_prefix(".target "));
    let Some(target) = target.and_then(|rest| rest.split([',', ' ']).next()) else {
        return false;
    };
    let of = capability(target);
    match target.as_bytes().last() {
        Some(b'a') => of == gpu,
        Some(b'f') => of.0 == gpu.0 && of <= gpu,
        _ => of <= gpu,
    }
}

/// The PTX of a container that is best for a GPU of a compute capability.
pub fn ptx(data: &[u8], gpu: (u32, u32)) -> Result<String, String> {
    let mut entries = entries(data)?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.architecture));
    for entry in entries.iter().filter(|entry| entry.kind == PTX) {
        if entry.architecture <= u64::from(10 * gpu.0 + gpu.1) {
            let text = entry.text()?;
            if is_for(&text, gpu) {
                return Ok(text);
            }
        }
    }
    let list = |kind: u16| {
        let all = entries.iter().filter(|entry| entry.kind == kind);
        all.map(|entry| format!("sm_{}", entry.architecture)).collect::<Vec<_>>().join(", ")
    };
    let has = match (list(PTX), list(MACHINE_CODE)) {
        (ptx, _) if !ptx.is_empty() => format!("PTX for {ptx} only"),
        (_, code) if !code.is_empty() => format!("machine code for {code}, no PTX"),
        _ => "no PTX".to_owned(),
    };
    let (major, minor) = gpu;
    Err(format!(
        "the fat binary has {has}: the simulated GPU is sm_{major}{minor} and runs PTX; compile \
         with `-gencode arch=compute_{major}{minor},code=compute_{major}{minor}`"
    ))
}
