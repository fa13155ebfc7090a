//! Repairs: a random change of a file leaves its digests wrong, and a reader stops there. These
//! make right again what a forger would, so that the fuzzer gets to what lies behind.

use kiln::cache::{Key, Request};
use serde_json::Value;

const ENTRY_HEADER_AT: usize = 8 + 4 + 32;
const PACK_HEADER_AT: usize = 8 + 4 + 4 + 32;
const ROW_BYTES: usize = 80;

/// What is made right; the first byte of a fuzzer's input chooses.
#[derive(Debug, Clone, Copy)]
pub struct Repair {
    /// The digests.
    pub digests: bool,
    /// The key in an entry's header.
    pub keys: bool,
    /// The length of the header, so that it may grow and shrink.
    pub lengths: bool,
}

impl Repair {
    /// Half of all bytes repair nothing.
    pub fn of(byte: u8) -> Repair {
        let on = byte & 1 == 1;
        Repair { digests: on, keys: on && byte & 2 == 0, lengths: on && byte & 4 == 0 }
    }

    /// Repairs an entry. Returns the key of its request; zeros where that can not be read.
    pub fn entry(self, bytes: &mut [u8]) -> Key {
        let key = self.header_of_entry(bytes).unwrap_or(Key::from_bytes([0; 32]));
        if self.digests && bytes.len() >= ENTRY_HEADER_AT {
            let digest = blake3::hash(&bytes[ENTRY_HEADER_AT..]);
            bytes[12..ENTRY_HEADER_AT].copy_from_slice(digest.as_bytes());
        }
        key
    }

    fn header_of_entry(self, bytes: &mut [u8]) -> Option<Key> {
        let header = self.header(bytes, ENTRY_HEADER_AT)?;
        let value: Value = serde_json::from_slice(header).ok()?;
        let request: Request = serde_json::from_value(value.get("request")?.clone()).ok()?;
        let key = Key::of(&request);
        if self.keys {
            overwrite(header, "\"key\":\"", key.to_hex().as_bytes());
        }
        Some(key)
    }

    /// Repairs a pack with its entries.
    pub fn pack(self, bytes: &mut [u8]) {
        let _ = self.inside_of_pack(bytes);
    }

    fn inside_of_pack(self, bytes: &mut [u8]) -> Option<()> {
        let header = self.header(bytes, PACK_HEADER_AT)?;
        let (header_bytes, value) = (header.len(), serde_json::from_slice::<Value>(header).ok()?);
        let rows_at = PACK_HEADER_AT + header_bytes;
        let rows = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) as usize;
        let head_end = rows_at.checked_add(rows.checked_mul(ROW_BYTES)?)?;
        bytes.get(..head_end)?;
        for row in (rows_at..head_end).step_by(ROW_BYTES) {
            self.row(bytes, row);
        }
        let number = |name: &str| value.get(name)?.as_u64();
        let catalog_at = number("catalog_offset")? as usize;
        let catalog_end = catalog_at.checked_add(number("catalog_bytes")? as usize)?;
        if self.digests
            && let Some(catalog) = bytes.get(catalog_at..catalog_end)
        {
            let digest = blake3::hash(catalog).to_hex();
            let header = &mut bytes[PACK_HEADER_AT..rows_at];
            overwrite(header, "\"catalog_blake3\":\"", digest.as_bytes());
        }
        if self.digests {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&bytes[..16]).update(&bytes[PACK_HEADER_AT..head_end]);
            bytes[16..PACK_HEADER_AT].copy_from_slice(hasher.finalize().as_bytes());
        }
        Some(())
    }

    /// Repairs one row of a pack and the entry that it points to.
    fn row(self, bytes: &mut [u8], row: usize) -> Option<()> {
        let number = |at: usize| {
            let bytes = bytes.get(row + at..row + at + 8)?.try_into().ok()?;
            usize::try_from(u64::from_le_bytes(bytes)).ok()
        };
        let (start, length) = (number(64)?, number(72)?);
        let entry = bytes.get_mut(start..start.checked_add(length)?)?;
        let key = self.entry(entry);
        let digest = blake3::hash(entry);
        if self.keys {
            bytes[row..row + 32].copy_from_slice(&key.to_bytes());
        }
        if self.digests {
            bytes[row + 32..row + 64].copy_from_slice(digest.as_bytes());
        }
        Some(())
    }

    /// The JSON header that begins at `at`; its length stands in bytes 8 to 12.
    fn header(self, bytes: &mut [u8], at: usize) -> Option<&mut [u8]> {
        if self.lengths {
            let mut values = serde_json::Deserializer::from_slice(bytes.get(at..)?).into_iter();
            let _: Value = values.next()?.ok()?;
            let value_bytes = values.byte_offset();
            let spaces = bytes[at + value_bytes..].iter().take_while(|byte| **byte == b' ').count();
            bytes[8..12].copy_from_slice(&((value_bytes + spaces) as u32).to_le_bytes());
        }
        let length = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        bytes.get_mut(at..at.checked_add(length)?)
    }
}

/// Writes `text` behind the first occurrence of `name`, if there is room.
fn overwrite(header: &mut [u8], name: &str, text: &[u8]) {
    let found = header.windows(name.len()).position(|window| window == name.as_bytes());
    if let Some(at) = found.map(|at| at + name.len())
        && let Some(place) = header.get_mut(at..at + text.len())
    {
        place.copy_from_slice(text);
    }
}
