//! File format of a compiled kernel.
//!
//! ```text
//! "KILNENT1"                 8 bytes
//! header length              u32, little endian
//! digest                     32 bytes: blake3 of header and payload
//! header                     JSON: schema, key, request, resources, lengths
//! payload                    source, cubin, PTX, log, concatenated
//! ```
//! Readers verify magic, digest, schema, key and request. Each part of the payload is read once,
//! directly to its destination.

use std::io::{self, Read};
use std::time::Duration;

use blake3::Hasher;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cache::key::{Key, Request, SCHEMA};
use crate::compile::{Image, Resources};

const MAGIC: &[u8; 8] = b"KILNENT1";

/// Maximum size of an entry; larger ones in a folder, pack or store are not read.
pub(super) const ENTRY_BYTES_MAX: u64 = 256 << 20;

/// Maximum size of a header, which holds a few names and numbers.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Bytes before the header.
const FRAME_BYTES: u64 = 8 + 4 + 32;

/// Why bytes are not the requested entry; each is a miss.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The file has the wrong magic or is truncated.
    #[error("not an entry, or truncated")]
    Malformed,
    /// Another version of the format.
    #[error("schema {0}, expected {SCHEMA}")]
    Schema(u32),
    /// Entry of another key.
    #[error("entry of key {0}")]
    Key(String),
    /// The key matches but the request does not: a collision or a forgery.
    #[error("request differs")]
    Request,
    /// Header or payload were modified.
    #[error("digest differs")]
    Digest,
}

#[derive(Serialize, Deserialize)]
struct Header {
    schema: u32,
    key: String,
    request: Request,
    kernels: Vec<String>,
    resources: Resources,
    compile_us: u64,
    #[serde(default)]
    source_bytes: u64,
    cubin_bytes: u64,
    ptx_bytes: u64,
    log_bytes: u64,
}

impl Header {
    /// Sizes of the parts of the payload, if they add up to its size.
    fn parts(&self, payload_bytes: u64) -> Option<[u64; 4]> {
        let parts = [self.source_bytes, self.cubin_bytes, self.ptx_bytes, self.log_bytes];
        let all = parts.into_iter().try_fold(0, u64::checked_add);
        (all == Some(payload_bytes)).then_some(parts)
    }
}

/// A compiled kernel and its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The request.
    pub request: Request,
    /// The image.
    pub image: Image,
    /// Compile time.
    pub compile: Duration,
}

impl EntryError {
    /// A short stable name, for counters.
    pub fn name(&self) -> &'static str {
        match self {
            EntryError::Malformed => "malformed",
            EntryError::Schema(_) => "schema",
            EntryError::Key(_) => "key",
            EntryError::Request => "request",
            EntryError::Digest => "digest",
        }
    }
}

impl Entry {
    /// Encodes an entry.
    pub fn encode(request: &Request, image: &Image, compile: Duration) -> Vec<u8> {
        let parts: [&[u8]; 4] =
            [request.source.as_bytes(), &image.cubin, image.ptx.as_bytes(), image.log.as_bytes()];
        let [source_bytes, cubin_bytes, ptx_bytes, log_bytes] = parts.map(|part| part.len() as u64);
        let header = Header {
            schema: SCHEMA,
            key: Key::of(request).to_hex(),
            request: request.clone(),
            kernels: vec![request.entry.clone()],
            resources: image.resources,
            compile_us: compile.as_micros() as u64,
            source_bytes,
            cubin_bytes,
            ptx_bytes,
            log_bytes,
        };
        let header = serde_json::to_vec(&header).expect("plain data is JSON");
        let length = (header.len() as u32).to_le_bytes();
        let body = [&header, &parts.concat()[..]].concat();
        [MAGIC, &length[..], blake3::hash(&body).as_bytes(), &body].concat()
    }

    /// Decodes an entry and checks it against its key.
    ///
    /// # Errors
    /// The first mismatch.
    pub fn decode(bytes: &[u8], key: Key) -> Result<Entry, EntryError> {
        Entry::read(bytes, bytes.len() as u64, key).expect("bytes can be read")
    }

    /// As [`Entry::decode`], for bytes whose digest has been verified by other means, such as a
    /// pack's row.
    ///
    /// # Errors
    /// As [`Entry::decode`], without `Digest`.
    pub(super) fn decode_checked(bytes: &[u8], key: Key) -> Result<Entry, EntryError> {
        let read = Body::read(bytes, bytes.len() as u64, |_| {}).expect("bytes can be read");
        read.and_then(|(_, body)| body.entry(key))
    }

    /// As [`Entry::decode`], reading `bytes` bytes from a reader.
    ///
    /// # Errors
    /// I/O errors of the reader.
    pub(super) fn read(
        from: impl Read,
        bytes: u64,
        key: Key,
    ) -> io::Result<Result<Entry, EntryError>> {
        let mut hasher = Hasher::new();
        let read = Body::read(from, bytes, |part| {
            hasher.update(part);
        })?;
        Ok(read.and_then(|(digest, body)| match *hasher.finalize().as_bytes() == digest {
            true => body.entry(key),
            false => Err(EntryError::Digest),
        }))
    }
}

/// A parsed entry; `None` if the header is invalid or does not match the payload.
struct Body(Option<(Header, [Vec<u8>; 4])>);

impl Body {
    /// Reads the frame's digest and the rest, which `seen` receives part by part.
    fn read(
        mut from: impl Read,
        bytes: u64,
        mut seen: impl FnMut(&[u8]),
    ) -> io::Result<Result<([u8; 32], Body), EntryError>> {
        let mut part = |bytes: u64| {
            let mut part = Vec::with_capacity(bytes as usize);
            from.by_ref().take(bytes).read_to_end(&mut part)?;
            io::Result::Ok(Some(part).filter(|part| part.len() as u64 == bytes))
        };
        let malformed = Ok(Err(EntryError::Malformed));
        let Some(frame) = part(FRAME_BYTES.min(bytes))? else { return malformed };
        let Some((length, digest)) = framed(&frame) else { return malformed };
        let header_bytes = u64::from(length);
        let Some(payload_bytes) = (bytes - FRAME_BYTES)
            .checked_sub(header_bytes)
            .filter(|_| header_bytes <= HEADER_BYTES_MAX)
        else {
            return malformed;
        };
        let Some(header) = part(header_bytes)? else { return malformed };
        seen(&header);
        let header: Option<Header> = serde_json::from_slice(&header).ok();
        let parts = header.as_ref().and_then(|header| header.parts(payload_bytes));
        let mut payload = [const { Vec::new() }; 4];
        for (place, bytes) in payload.iter_mut().zip(parts.unwrap_or([payload_bytes, 0, 0, 0])) {
            let Some(read) = part(bytes)? else { return malformed };
            seen(&read);
            *place = read;
        }
        Ok(Ok((digest, Body(header.filter(|_| parts.is_some()).map(|header| (header, payload))))))
    }

    fn entry(self, key: Key) -> Result<Entry, EntryError> {
        let Some((header, [source, cubin, ptx, log])) = self.0 else {
            return Err(EntryError::Malformed);
        };
        if header.schema != SCHEMA {
            return Err(EntryError::Schema(header.schema));
        }
        if header.key != key.to_hex() {
            return Err(EntryError::Key(header.key));
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| EntryError::Malformed);
        let request = Request { source: text(source)?, ..header.request };
        if Key::of(&request) != key {
            return Err(EntryError::Request);
        }
        let image = Image { cubin, ptx: text(ptx)?, log: text(log)?, resources: header.resources };
        Ok(Entry { request, image, compile: Duration::from_micros(header.compile_us) })
    }
}

/// Parses the frame: header length and digest.
fn framed(frame: &[u8]) -> Option<(u32, [u8; 32])> {
    let (length, digest) = frame.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*length), digest.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::key::tests::sample_request;

    const COMPILE: Duration = Duration::from_millis(50);

    fn sample() -> (Request, Image) {
        let request = sample_request();
        let image = Image {
            cubin: vec![1, 2, 3, 4],
            ptx: "ptx".into(),
            log: "log".into(),
            resources: Resources { registers: 32, ..Resources::default() },
        };
        (request, image)
    }

    #[test]
    fn round_trips() {
        let (request, image) = sample();
        let bytes = Entry::encode(&request, &image, COMPILE);
        let entry = Entry::decode(&bytes, Key::of(&request)).expect("valid");
        assert_eq!(entry, Entry { request, image, compile: COMPILE });
    }

    #[test]
    fn no_cut_and_no_flipped_byte_goes_unnoticed() {
        let (request, image) = sample();
        let (bytes, key) = (Entry::encode(&request, &image, COMPILE), Key::of(&request));
        for length in 0..bytes.len() {
            assert!(Entry::decode(&bytes[..length], key).is_err(), "cut at {length}");
        }
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            assert!(Entry::decode(&damaged, key).is_err(), "flip at {position}");
        }
    }

    #[test]
    fn another_key_is_named() {
        let (request, image) = sample();
        let other = Request { source: "other".into(), ..request.clone() };
        let error = Entry::decode(&Entry::encode(&request, &image, COMPILE), Key::of(&other));
        assert_eq!(error, Err(EntryError::Key(Key::of(&request).to_hex())));
    }
}
