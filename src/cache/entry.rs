//! The file format of one compiled kernel.
//!
//! ```text
//! "KILNENT1"                 8 bytes
//! header length              u32, little endian
//! digest                     32 bytes: blake3 of header and payload
//! header                     JSON: schema, key, what was asked, resources, lengths
//! payload                    source, cubin, PTX, log, one after another
//! ```
//! A reader trusts nothing: magic, digest, schema, key and request must all match. It reads each
//! part of the payload to where it stays, once.

use std::io::{self, Read};
use std::time::Duration;

use blake3::Hasher;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cache::key::{Key, Request, SCHEMA};
use crate::compile::{Image, Resources};

const MAGIC: &[u8; 8] = b"KILNENT1";

/// No entry is larger: what says that it is, in a folder, a pack or a store, is not read.
pub(super) const ENTRY_BYTES_MAX: u64 = 256 << 20;

/// No header is larger: it holds some names and numbers.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Bytes before the header.
const FRAME_BYTES: u64 = 8 + 4 + 32;

/// Why bytes are not the entry that was looked for. Each is a miss.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The file does not begin like an entry, or ends early.
    #[error("not an entry, or cut short")]
    Malformed,
    /// Another version of the format.
    #[error("schema {0}, expected {SCHEMA}")]
    Schema(u32),
    /// The entry of another key.
    #[error("entry of key {0}")]
    Key(String),
    /// The key matches but not what was asked: a collision or a forgery.
    #[error("request differs")]
    Request,
    /// Header or payload are not what was written.
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
    /// Bytes of the parts of the payload, if they are all of it.
    fn parts(&self, payload_bytes: u64) -> Option<[u64; 4]> {
        let parts = [self.source_bytes, self.cubin_bytes, self.ptx_bytes, self.log_bytes];
        let all = parts.into_iter().try_fold(0, u64::checked_add);
        (all == Some(payload_bytes)).then_some(parts)
    }
}

/// A compiled kernel with what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What was asked.
    pub request: Request,
    /// What came of it.
    pub image: Image,
    /// How long that took.
    pub compile: Duration,
}

impl EntryError {
    /// A short stable name for counters.
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
    /// The file's bytes.
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

    /// Reads and checks a file's bytes against the key they were found under.
    ///
    /// # Errors
    /// The first thing that does not match.
    pub fn decode(bytes: &[u8], key: Key) -> Result<Entry, EntryError> {
        Entry::read(bytes, bytes.len() as u64, key).expect("bytes can be read")
    }

    /// Reads and checks a file's bytes of which another digest, as that of a pack's row, has been
    /// checked.
    ///
    /// # Errors
    /// As [`Entry::decode`], without `Digest`.
    pub(super) fn decode_checked(bytes: &[u8], key: Key) -> Result<Entry, EntryError> {
        let read = Body::read(bytes, bytes.len() as u64, |_| {}).expect("bytes can be read");
        read.and_then(|(_, body)| body.entry(key))
    }

    /// As [`Entry::decode`] of what a reader gives, so many bytes.
    ///
    /// # Errors
    /// Where reading fails.
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

/// An entry as it was read; `None` where the header is none, or not that of the payload.
struct Body(Option<(Header, [Vec<u8>; 4])>);

impl Body {
    /// The digest that stands in front, and what is behind it, which `seen` sees part by part.
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

/// What stands before the header: its length, and the digest.
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
