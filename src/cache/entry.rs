//! The file format of one compiled kernel.
//!
//! ```text
//! "KILNENT1"                 8 bytes
//! header length              u32, little endian
//! digest                     32 bytes: blake3 of header and payload
//! header                     JSON: schema, key, what was asked, resources, lengths
//! payload                    cubin, PTX, log, one after another
//! ```
//! A reader trusts nothing: magic, digest, schema, key and request must all match.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cache::key::{Key, Request, SCHEMA};
use crate::compile::{Image, Resources};

const MAGIC: &[u8; 8] = b"KILNENT1";

/// No entry is larger: what says that it is, in a folder, a pack or a store, is not read.
pub(super) const ENTRY_BYTES_MAX: u64 = 256 << 20;

/// No header is larger: it holds one source text.
const HEADER_BYTES_MAX: usize = 64 << 20;

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

/// The outer parts of an entry; nothing in them is checked but that they are there.
struct Framed<'a> {
    digest: &'a [u8; 32],
    header_bytes: usize,
    body: &'a [u8],
}

impl Framed<'_> {
    fn of(bytes: &[u8]) -> Result<Framed<'_>, EntryError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(EntryError::Malformed)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(EntryError::Malformed)?;
        let (digest, body) = rest.split_first_chunk::<32>().ok_or(EntryError::Malformed)?;
        let header_bytes = u32::from_le_bytes(*length) as usize;
        match header_bytes <= HEADER_BYTES_MAX.min(body.len()) {
            true => Ok(Framed { digest, header_bytes, body }),
            false => Err(EntryError::Malformed),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    schema: u32,
    key: String,
    request: Request,
    kernels: Vec<String>,
    resources: Resources,
    compile_us: u64,
    cubin_bytes: usize,
    ptx_bytes: usize,
    log_bytes: usize,
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
        let payload = [&image.cubin, image.ptx.as_bytes(), image.log.as_bytes()].concat();
        let header = Header {
            schema: SCHEMA,
            key: Key::of(request).to_hex(),
            request: request.clone(),
            kernels: vec![request.entry.clone()],
            resources: image.resources,
            compile_us: compile.as_micros() as u64,
            cubin_bytes: image.cubin.len(),
            ptx_bytes: image.ptx.len(),
            log_bytes: image.log.len(),
        };
        let header = serde_json::to_vec(&header).expect("plain data is JSON");
        let body = [header.as_slice(), &payload].concat();
        let (length, digest) = ((header.len() as u32).to_le_bytes(), blake3::hash(&body));
        [MAGIC, &length[..], digest.as_bytes(), &body].concat()
    }

    /// Reads and checks a file's bytes against the key they were found under.
    ///
    /// # Errors
    /// The first thing that does not match.
    pub fn decode(bytes: &[u8], key: Key) -> Result<Entry, EntryError> {
        let framed = Framed::of(bytes)?;
        match blake3::hash(framed.body).as_bytes() == framed.digest {
            true => Entry::parse(framed, key),
            false => Err(EntryError::Digest),
        }
    }

    /// The same for bytes of which another digest, as that of a pack's row, has been checked.
    ///
    /// # Errors
    /// As [`Entry::decode`], without `Digest`.
    pub(super) fn decode_checked(bytes: &[u8], key: Key) -> Result<Entry, EntryError> {
        Entry::parse(Framed::of(bytes)?, key)
    }

    fn parse(framed: Framed<'_>, key: Key) -> Result<Entry, EntryError> {
        let (header, payload) = framed.body.split_at(framed.header_bytes);
        let header: Header = serde_json::from_slice(header).map_err(|_| EntryError::Malformed)?;
        if header.schema != SCHEMA {
            return Err(EntryError::Schema(header.schema));
        }
        if header.key != key.to_hex() {
            return Err(EntryError::Key(header.key));
        }
        if Key::of(&header.request) != key {
            return Err(EntryError::Request);
        }
        let (cubin, rest) =
            payload.split_at_checked(header.cubin_bytes).ok_or(EntryError::Malformed)?;
        let (ptx, log) = rest.split_at_checked(header.ptx_bytes).ok_or(EntryError::Malformed)?;
        if log.len() != header.log_bytes {
            return Err(EntryError::Malformed);
        }
        let text =
            |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| EntryError::Malformed);
        let image = Image {
            cubin: cubin.to_vec(),
            ptx: text(ptx)?,
            log: text(log)?,
            resources: header.resources,
        };
        let compile = Duration::from_micros(header.compile_us);
        Ok(Entry { request: header.request, image, compile })
    }
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
