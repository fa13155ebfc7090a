//! Packs: read-only files of compiled kernels, shipped with a deployment.
//!
//! ```text
//! "KILNPAK2"                 8 bytes
//! header length, row count   u32, u32, little endian
//! digest                     32 bytes: blake3 of the 16 bytes before it, the header and the rows
//! header                     JSON: schema, architecture, toolchain, the catalog's size and digest
//! rows                       80 bytes each, sorted by key: key, digest, offset, length
//! entries                    as in the disk cache, in the order of the rows, one after another
//! catalog                    JSON, for people and for verification
//! trailer                    in a signed pack: who vouches for it (signature.rs)
//! ```
//! Opening verifies everything before the entries, and that the lengths add up to the file size. A
//! lookup is a binary search in the rows; an entry is verified against its row before use. Nothing
//! is compressed, so no allocation exceeds the file size.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cache::entry::{ENTRY_BYTES_MAX, Entry};
use crate::cache::key::{Key, Request, SCHEMA};
use crate::cache::signature::{PackSigner, Signed, TRAILER_BYTES, Trust, Validity, signer};
use crate::cache::storage::Storage;
use crate::compile::Toolchain;
use crate::error::{Error, Result};
use crate::target::Arch;

const MAGIC: &[u8; 8] = b"KILNPAK2";
const LENGTHS_BYTES: usize = 16;
const PREFIX_BYTES: usize = LENGTHS_BYTES + 32;
const ROW_BYTES: usize = 80;

/// Limits on a reader's allocations, far above practical sizes.
const HEADER_BYTES_MAX: usize = 1 << 16;
const ROWS_MAX: usize = 1 << 20;
const CATALOG_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    schema: u32,
    arch: Arch,
    toolchain: Toolchain,
    catalog_bytes: u64,
    catalog_blake3: String,
}

/// An open pack; clones share the file.
#[derive(Debug, Clone)]
pub struct Pack {
    name: PathBuf,
    storage: Arc<Storage>,
    /// Everything before the entries, as covered by a signature.
    head: Arc<[u8]>,
    header: Header,
    rows_at: usize,
    catalog_at: u64,
    trailer: Option<[u8; TRAILER_BYTES]>,
}

/// A kernel to be packed.
#[derive(Debug, Clone)]
pub struct PackItem {
    /// Key.
    pub key: Key,
    /// Encoded entry.
    pub entry: Vec<u8>,
}

/// Location and digest of an entry.
struct Row {
    key: Key,
    blake3: [u8; 32],
    offset: u64,
    length: u64,
}

impl Row {
    fn read(bytes: &[u8]) -> Row {
        Row {
            key: Key::from_bytes(head(bytes)),
            blake3: head(&bytes[32..]),
            offset: u64::from_le_bytes(head(&bytes[64..])),
            length: u64::from_le_bytes(head(&bytes[72..])),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.key.to_bytes());
        out.extend(self.blake3);
        out.extend(self.offset.to_le_bytes());
        out.extend(self.length.to_le_bytes());
    }
}

impl Pack {
    /// Opens a pack file.
    ///
    /// # Errors
    /// `BadParam` when the file cannot be opened or is not a complete pack.
    pub fn open(path: &Path) -> Result<Pack> {
        let file = File::open(path).map_err(|error| {
            Error::bad_param(format!("failed to open pack `{}`: {error}", path.display()))
        })?;
        Pack::parse(Storage::File(file), path)
    }

    /// Opens a pack in memory, such as one embedded with `include_bytes!`.
    ///
    /// # Errors
    /// `BadParam` when the bytes are not a complete pack.
    pub fn embedded(bytes: impl Into<Cow<'static, [u8]>>, name: &str) -> Result<Pack> {
        Pack::parse(Storage::Memory(bytes.into()), Path::new(name))
    }

    fn parse(storage: Storage, name: &Path) -> Result<Pack> {
        let malformed = |what: &str| {
            Error::bad_param(format!("failed to open pack `{}`: {what}", name.display()))
        };
        let read = |offset: u64, length: usize| {
            storage.read(offset, length as u64).map_err(|error| malformed(&error.to_string()))
        };
        let lengths = read(0, LENGTHS_BYTES)?;
        let rest = lengths.strip_prefix(MAGIC).ok_or_else(|| malformed("it is not a pack"))?;
        let number = |at: usize| u32::from_le_bytes(head(&rest[at..])) as usize;
        let (header_bytes, rows) = (number(0), number(4));
        if header_bytes > HEADER_BYTES_MAX || rows > ROWS_MAX {
            return Err(malformed("the header is damaged"));
        }
        let rows_at = PREFIX_BYTES + header_bytes;
        let all = read(0, rows_at + rows * ROW_BYTES)?;
        if all[LENGTHS_BYTES..PREFIX_BYTES] != digest_of_head(&all) {
            return Err(malformed("the digest differs"));
        }
        let header: Header = serde_json::from_slice(&all[PREFIX_BYTES..rows_at])
            .map_err(|_| malformed("the header is damaged"))?;
        if header.schema != SCHEMA {
            return Err(malformed(&format!("schema {}, expected {SCHEMA}", header.schema)));
        }
        let catalog_at = check_rows(&all[rows_at..], all.len() as u64).map_err(malformed)?;
        let end = Some(header.catalog_bytes).filter(|bytes| *bytes <= CATALOG_BYTES_MAX);
        let end = end.ok_or_else(|| malformed("the catalog is too long"))? + catalog_at;
        let len = storage.len().map_err(|error| malformed(&error.to_string()))?;
        let trailer = match len.checked_sub(end) {
            None => return Err(malformed("it is truncated")),
            Some(0) => None,
            Some(_) if len == end + TRAILER_BYTES as u64 => Some(head(&read(end, TRAILER_BYTES)?)),
            Some(more) => return Err(malformed(&format!("{more} bytes follow the catalog"))),
        };
        let (name, head) = (name.to_owned(), all.into());
        Ok(Pack { name, storage: storage.into(), head, header, rows_at, catalog_at, trailer })
    }

    /// Path of the file, or the name given to embedded bytes.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Architecture of all kernels.
    pub fn arch(&self) -> Arch {
        self.header.arch
    }

    /// Toolchain that compiled the kernels, part of their keys.
    pub fn toolchain(&self) -> &Toolchain {
        &self.header.toolchain
    }

    /// Number of kernels.
    pub fn len(&self) -> usize {
        self.rows().len()
    }

    /// Whether the pack is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.catalog_end() + self.trailer.map_or(0, |trailer| trailer.len() as u64)
    }

    fn catalog_end(&self) -> u64 {
        self.catalog_at + self.header.catalog_bytes
    }

    fn rows(&self) -> &[[u8; ROW_BYTES]] {
        self.head[self.rows_at..].as_chunks().0
    }

    /// All keys in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.rows().iter().map(|row| Row::read(row).key)
    }

    /// Returns the entry of a key; `None` if the pack does not contain it.
    ///
    /// # Errors
    /// `BadParam` when the entry is damaged.
    pub fn get(&self, key: Key) -> Result<Option<Entry>> {
        self.find(key).map(|row| self.entry(&row)).transpose()
    }

    /// Whether the pack contains a key; the entry is not verified.
    pub fn contains(&self, key: Key) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: Key) -> Option<Row> {
        let rows = self.rows();
        let found = rows.binary_search_by_key(&key, |row| Key::from_bytes(head(row)));
        found.ok().map(|at| Row::read(&rows[at]))
    }

    fn entry(&self, row: &Row) -> Result<Entry> {
        let blob = self.blob(row)?;
        Entry::decode_checked(&blob, row.key).map_err(|error| self.damaged(row, &error.to_string()))
    }

    /// All entries in key order.
    fn entries(&self) -> impl Iterator<Item = Result<Entry>> + '_ {
        self.rows().iter().map(|row| self.entry(&Row::read(row)))
    }

    /// Bytes of an entry, verified against the row's digest.
    fn blob(&self, row: &Row) -> Result<Cow<'_, [u8]>> {
        let blob = self.storage.read(row.offset, row.length);
        let blob = blob.map_err(|error| self.damaged(row, &error.to_string()))?;
        match *blake3::hash(&blob).as_bytes() == row.blake3 {
            true => Ok(blob),
            false => Err(self.damaged(row, "the digest differs")),
        }
    }

    fn damaged(&self, row: &Row, what: &str) -> Error {
        let name = self.name.display();
        Error::bad_param(format!("pack `{name}`: entry {}: {what}", row.key))
    }

    /// Verifies all entries; returns one error per damaged entry.
    pub fn verify(&self) -> Vec<Error> {
        self.entries().filter_map(Result::err).collect()
    }

    /// Requests of all valid entries.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        self.entries().flatten().map(|entry| entry.request)
    }

    /// All items, for merging into another pack.
    ///
    /// # Errors
    /// As [`Pack::get`].
    pub fn items(&self) -> Result<Vec<PackItem>> {
        let item = |row: &[u8; ROW_BYTES]| {
            let row = Row::read(row);
            Ok(PackItem { key: row.key, entry: self.blob(&row)?.into_owned() })
        };
        self.rows().iter().map(item).collect()
    }

    /// The catalog: JSON that describes the kernels.
    ///
    /// # Errors
    /// `BadParam` when the catalog is damaged.
    pub fn catalog(&self) -> Result<String> {
        let digest = self.header.catalog_blake3.as_str();
        let bytes = self.storage.read(self.catalog_at, self.header.catalog_bytes).ok();
        let sound = bytes.filter(|bytes| blake3::hash(bytes).to_hex().as_str() == digest);
        sound.and_then(|bytes| String::from_utf8(bytes.into_owned()).ok()).ok_or_else(|| {
            let name = self.name.display();
            Error::bad_param(format!("pack `{name}`: the catalog is damaged"))
        })
    }

    /// Writes a pack; duplicate keys are written once. The output is deterministic.
    ///
    /// # Errors
    /// `Driver` when the file cannot be written; an existing file is replaced atomically.
    /// `BadParam` if the items exceed a reader's limits.
    pub fn write(
        path: &Path,
        arch: Arch,
        toolchain: &Toolchain,
        mut items: Vec<PackItem>,
        catalog: &str,
    ) -> Result<()> {
        items.sort_by_key(|item| item.key);
        items.dedup_by_key(|item| item.key);
        let entry_bytes = items.iter().map(|item| item.entry.len() as u64);
        if items.len() > ROWS_MAX
            || catalog.len() as u64 > CATALOG_BYTES_MAX
            || entry_bytes.clone().any(|bytes| bytes > ENTRY_BYTES_MAX)
        {
            let shown = path.display();
            return Err(Error::bad_param(format!(
                "failed to write pack `{shown}`: it is too large"
            )));
        }
        let header = serde_json::to_vec(&Header {
            schema: SCHEMA,
            arch,
            toolchain: toolchain.clone(),
            catalog_bytes: catalog.len() as u64,
            catalog_blake3: blake3::hash(catalog.as_bytes()).to_hex().to_string(),
        })
        .expect("plain data is JSON");
        let head_bytes = PREFIX_BYTES + header.len() + items.len() * ROW_BYTES;
        let all_bytes = head_bytes + entry_bytes.sum::<u64>() as usize + catalog.len();
        let mut out = Vec::with_capacity(all_bytes);
        out.extend(MAGIC);
        out.extend((header.len() as u32).to_le_bytes());
        out.extend((items.len() as u32).to_le_bytes());
        out.extend([0; 32]);
        out.extend(&header);
        let mut offset = head_bytes as u64;
        for PackItem { key, entry } in &items {
            let (blake3, length) = (*blake3::hash(entry).as_bytes(), entry.len() as u64);
            Row { key: *key, blake3, offset, length }.write(&mut out);
            offset += length;
        }
        let digest = digest_of_head(&out);
        out[LENGTHS_BYTES..PREFIX_BYTES].copy_from_slice(&digest);
        items.iter().for_each(|item| out.extend(&item.entry));
        out.extend(catalog.as_bytes());
        replace(path, &out)
    }

    /// Verifies the signature; `None` if the pack is unsigned.
    ///
    /// # Errors
    /// `BadParam` when the signature is invalid.
    pub fn signed(&self) -> Result<Option<Signed>> {
        let signed = self.trailer.map(|trailer| signer(&trailer, &self.head)).transpose();
        signed.map_err(|what| self.wrong(&what))
    }

    /// Rejects a pack that is not signed by a trust root, if there are any.
    ///
    /// # Errors
    /// `BadParam` when the pack is unsigned, signed by another key, too old or expired, and in any
    /// case when its signature is invalid.
    pub fn require_trust(&self, trust: &Trust) -> Result<()> {
        let signed = self.signed()?;
        match trust.is_required() {
            true => trust.accepts(signed).map_err(|what| self.wrong(&what)),
            false => Ok(()),
        }
    }

    fn wrong(&self, what: &str) -> Error {
        Error::bad_param(format!("pack `{}`: {what}", self.name.display()))
    }

    /// Signs a pack file, replacing an earlier signature.
    ///
    /// # Errors
    /// `BadParam` when the file is not a pack, `Driver` when it cannot be written.
    pub fn sign(path: &Path, key: &PackSigner, validity: Validity) -> Result<()> {
        let pack = Pack::open(path)?;
        let unsigned = pack.storage.read(0, pack.catalog_end()).map_err(|error| {
            Error::bad_param(format!("failed to read pack `{}`: {error}", path.display()))
        })?;
        replace(path, &[&unsigned, key.trailer(&pack.head, validity).as_slice()].concat())
    }
}

/// Expected digest of the prefix.
fn digest_of_head(all: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&all[..LENGTHS_BYTES]).update(&all[PREFIX_BYTES..]);
    *hasher.finalize().as_bytes()
}

/// Checks that keys ascend and entries are contiguous from `offset`; returns their end.
fn check_rows(rows: &[u8], mut offset: u64) -> std::result::Result<u64, &'static str> {
    let mut before: Option<Key> = None;
    for row in rows.chunks_exact(ROW_BYTES).map(Row::read) {
        if before.is_some_and(|before| before >= row.key) {
            return Err("the rows are not sorted");
        }
        if row.offset != offset || row.length > ENTRY_BYTES_MAX {
            return Err("the entries are not contiguous");
        }
        (before, offset) = (Some(row.key), offset + row.length);
    }
    Ok(offset)
}

/// Replaces a file atomically by a world-readable one.
fn replace(path: &Path, out: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::io(format!("failed to write pack `{}`: {error}", path.display()))
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(out).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(file.path(), readable).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().expect("rows have a fixed size")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cache::TrustRoot;
    use crate::cache::key::tests::sample_request;
    use crate::compile::{Image, Resources};

    fn item(source: &str) -> PackItem {
        let request = Request { source: source.into(), ..sample_request() };
        let image = Image {
            cubin: source.as_bytes().repeat(10),
            ptx: source.into(),
            log: String::new(),
            resources: Resources::default(),
        };
        PackItem { key: Key::of(&request), entry: Entry::encode(&request, &image, Duration::ZERO) }
    }

    fn write(path: &Path, sources: &[&str]) -> Pack {
        let items = sources.iter().map(|source| item(source)).collect();
        let request = sample_request();
        Pack::write(path, request.arch, &request.toolchain, items, "[]").expect("writable");
        Pack::open(path).expect("a pack")
    }

    #[test]
    fn what_is_packed_is_found() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.kilnpack");
        let sources: Vec<String> = (0..50).map(|n| format!("kernel {n}")).collect();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        let pack = write(&path, &sources);
        assert_eq!((pack.len(), pack.catalog().expect("whole")), (50, "[]".to_owned()));
        for source in &sources {
            let entry = pack.get(item(source).key).expect("sound").expect("packed");
            assert_eq!(entry.request.source, *source);
        }
        assert!(pack.get(item("another").key).expect("sound").is_none());
        assert!(pack.verify().is_empty());
        // The same kernels in another order, one duplicated: identical bytes.
        let before = fs::read(&path).expect("readable");
        let shuffled: Vec<&str> = sources.iter().rev().chain(&sources[..1]).copied().collect();
        write(&path, &shuffled);
        assert_eq!(fs::read(&path).expect("readable"), before);
    }

    #[test]
    fn only_trusted_signatures_pass() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.kilnpack");
        let unsigned = write(&path, &["one", "two"]);
        let key = PackSigner::generate().expect("random numbers");
        let other = PackSigner::generate().expect("random numbers");
        let trust = |roots: &[TrustRoot]| Trust { roots: roots.to_vec(), ..Trust::default() };
        let own = trust(&[key.root()]);
        let refused = |pack: &Pack| pack.require_trust(&own).expect_err("bad").to_string();
        assert!(refused(&unsigned).ends_with(": it is not signed"));
        for _ in 0..2 {
            Pack::sign(&path, &key, Validity::default()).expect("writable");
            let signed = Pack::open(&path).expect("a pack");
            assert_eq!(signed.signed().expect("right").map(|by| by.by), Some(key.root()));
            assert!(signed.require_trust(&trust(&[other.root(), key.root()])).is_ok());
            assert_eq!(signed.bytes(), unsigned.bytes() + TRAILER_BYTES as u64);
            assert!(signed.verify().is_empty());
        }
        // A flipped bit anywhere in the signed part invalidates the signature.
        let whole = fs::read(&path).expect("readable");
        for position in 0..unsigned.head.len() {
            let mut forged = whole.clone();
            forged[position] ^= 1;
            if let Ok(pack) = Pack::embedded(forged, "forged") {
                assert!(pack.require_trust(&own).is_err(), "flip at {position}");
            }
        }
        Pack::sign(&path, &other, Validity::default()).expect("writable");
        let text = refused(&Pack::open(&path).expect("a pack"));
        assert!(text.ends_with("which is not a trust root"), "{text}");
    }

    #[test]
    fn no_cut_and_no_flipped_bit_is_used() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.kilnpack");
        let sources = ["one", "two"];
        write(&path, &sources);
        let whole = fs::read(&path).expect("readable");
        let expected = |source: &str| Entry::decode(&item(source).entry, item(source).key);
        let check = |bytes: Vec<u8>| {
            let Ok(pack) = Pack::embedded(bytes, "damaged") else { return };
            for source in sources {
                // Found unmodified, not found, or an error; never anything else.
                if let Ok(Some(entry)) = pack.get(item(source).key) {
                    assert_eq!(Ok(entry), expected(source));
                }
            }
            pack.verify();
            let _ = pack.catalog();
        };
        for length in (0..whole.len()).step_by(7) {
            check(whole[..length].to_vec());
        }
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 1 << (position % 8);
            check(damaged);
        }
    }
}
