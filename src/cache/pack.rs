//! Packs: many compiled kernels in one read-only file, shipped with a deployment.
//!
//! ```text
//! "KILNPAK1"                 8 bytes
//! header length, row count   u32, u32, little endian
//! header                     JSON: schema, architecture, toolchain, where the catalog is
//! rows                       80 bytes each, sorted by key: key, digest, offset, length
//! entries                    as in the disk cache, one after another
//! catalog                    JSON, for people and for verification
//! trailer                    in a signed pack: who vouches for it (signature.rs)
//! ```
//! Opening reads the header only. Finding a kernel is a binary search in the mapped rows; every
//! byte of an entry is checked against its row before it is used.

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cache::entry::Entry;
use crate::cache::key::{Key, Request, SCHEMA};
use crate::cache::map::map;
use crate::cache::signature::{PackSigner, TRAILER_BYTES, TrustRoot, signer};
use crate::compile::Toolchain;
use crate::error::{Error, Result};
use crate::target::Arch;

const MAGIC: &[u8; 8] = b"KILNPAK1";
const ROW_BYTES: usize = 80;
const PREFIX_BYTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    schema: u32,
    arch: Arch,
    toolchain: Toolchain,
    catalog_offset: u64,
    catalog_bytes: u64,
    catalog_blake3: String,
}

/// An open pack; clones share the mapping.
#[derive(Debug, Clone)]
pub struct Pack {
    name: PathBuf,
    bytes: Bytes,
    header: Header,
    rows_at: usize,
    rows: usize,
}

#[derive(Debug, Clone)]
enum Bytes {
    Mapped(Arc<memmap2::Mmap>),
    Embedded(&'static [u8]),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Embedded(bytes) => bytes,
        }
    }
}

/// One kernel to be packed.
#[derive(Debug, Clone)]
pub struct PackItem {
    /// Its key.
    pub key: Key,
    /// The encoded entry.
    pub entry: Vec<u8>,
}

impl Pack {
    /// Maps a pack file.
    ///
    /// # Errors
    /// `BadParam` when the file can not be opened or is not a pack.
    pub fn open(path: &Path) -> Result<Pack> {
        let shown = path.display();
        let failed = |error: std::io::Error| {
            Error::bad_param(format!("failed to open pack `{shown}`: {error}"))
        };
        let file = File::open(path).map_err(failed)?;
        let bytes = Bytes::Mapped(Arc::new(map(&file).map_err(failed)?));
        Pack::parse(bytes, path)
    }

    /// Opens a pack that is part of the program, by `include_bytes!`.
    ///
    /// # Errors
    /// `BadParam` when the bytes are not a pack.
    pub fn embedded(bytes: &'static [u8], name: &str) -> Result<Pack> {
        Pack::parse(Bytes::Embedded(bytes), Path::new(name))
    }

    fn parse(bytes: Bytes, name: &Path) -> Result<Pack> {
        let malformed = |what: &str| {
            Error::bad_param(format!("failed to open pack `{}`: {what}", name.display()))
        };
        let all = bytes.get();
        let prefix = all.get(..PREFIX_BYTES).ok_or_else(|| malformed("it is cut short"))?;
        let rest = prefix.strip_prefix(MAGIC).ok_or_else(|| malformed("it is not a pack"))?;
        let number = |at: usize| {
            u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let (header_bytes, rows) = (number(0), number(4));
        let rows_at = PREFIX_BYTES + header_bytes;
        let header = all.get(PREFIX_BYTES..rows_at).ok_or_else(|| malformed("it is cut short"))?;
        let header: Header =
            serde_json::from_slice(header).map_err(|_| malformed("its header is damaged"))?;
        if header.schema != SCHEMA {
            return Err(malformed(&format!("schema {}, expected {SCHEMA}", header.schema)));
        }
        let rows_end = rows.checked_mul(ROW_BYTES).and_then(|bytes| bytes.checked_add(rows_at));
        if rows_end.is_none_or(|end| end > all.len()) {
            return Err(malformed("it is cut short"));
        }
        Ok(Pack { name: name.to_owned(), header, rows_at, rows, bytes })
    }

    /// The file, or the name given to embedded bytes.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The one architecture its kernels are for.
    pub fn arch(&self) -> Arch {
        self.header.arch
    }

    /// What compiled its kernels: keys are computed with it.
    pub fn toolchain(&self) -> &Toolchain {
        &self.header.toolchain
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.get().len() as u64
    }

    fn row(&self, at: usize) -> &[u8] {
        let start = self.rows_at + at * ROW_BYTES;
        &self.bytes.get()[start..start + ROW_BYTES]
    }

    /// The keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.rows).map(|at| Key::from_bytes(head(self.row(at))))
    }

    /// The entry of a key; `None` when the pack does not hold it.
    ///
    /// # Errors
    /// `BadParam` when the entry is damaged, with what is wrong.
    pub fn get(&self, key: Key) -> Result<Option<Entry>> {
        self.find(key).map(|at| self.entry(at)).transpose()
    }

    /// Whether the pack holds a key; the entry is not checked.
    pub fn contains(&self, key: Key) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: Key) -> Option<usize> {
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            match Key::from_bytes(head(self.row(middle))).cmp(&key) {
                Ordering::Equal => return Some(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn entry(&self, at: usize) -> Result<Entry> {
        let key = Key::from_bytes(head(self.row(at)));
        let blob = self.blob(at)?;
        Entry::decode(blob, key).map_err(|error| self.damaged(key, &error.to_string()))
    }

    /// The bytes of an entry, checked against the row's digest.
    fn blob(&self, at: usize) -> Result<&[u8]> {
        let row = self.row(at);
        let key = Key::from_bytes(head(row));
        let number = |from: usize| u64::from_le_bytes(head(&row[from..])) as usize;
        let (offset, length) = (number(64), number(72));
        let blob = offset
            .checked_add(length)
            .and_then(|end| self.bytes.get().get(offset..end))
            .ok_or_else(|| self.damaged(key, "it lies outside of the file"))?;
        match *blake3::hash(blob).as_bytes() == head::<32>(&row[32..]) {
            true => Ok(blob),
            false => Err(self.damaged(key, "its digest differs")),
        }
    }

    fn damaged(&self, key: Key, what: &str) -> Error {
        let name = self.name.display();
        Error::bad_param(format!("pack `{name}`: entry {key}: {what}"))
    }

    /// Checks every entry; what is wrong, one error per damaged entry.
    pub fn verify(&self) -> Vec<Error> {
        let mut errors: Vec<Error> = (0..self.rows).filter_map(|at| self.entry(at).err()).collect();
        if !self.keys().is_sorted() {
            let name = self.name.display();
            errors.push(Error::bad_param(format!("pack `{name}`: its rows are not sorted")));
        }
        errors
    }

    /// What the entries were asked for; damaged ones are passed over.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        (0..self.rows).filter_map(|at| self.entry(at).ok()).map(|entry| entry.request)
    }

    /// The items, for merging into another pack.
    ///
    /// # Errors
    /// As [`Pack::get`].
    pub fn items(&self) -> Result<Vec<PackItem>> {
        let item = |at: usize| {
            let key = Key::from_bytes(head(self.row(at)));
            Ok(PackItem { key, entry: self.blob(at)?.to_vec() })
        };
        (0..self.rows).map(item).collect()
    }

    /// The catalog: JSON that says what the kernels are for.
    ///
    /// # Errors
    /// `BadParam` when it is damaged.
    pub fn catalog(&self) -> Result<&str> {
        let Header { catalog_offset, catalog_bytes, .. } = self.header;
        let range = catalog_offset
            .checked_add(catalog_bytes)
            .and_then(|end| self.bytes.get().get(catalog_offset as usize..end as usize));
        let digest = self.header.catalog_blake3.as_str();
        let sound = range.filter(|bytes| blake3::hash(bytes).to_hex().as_str() == digest);
        sound.and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or_else(|| {
            let name = self.name.display();
            Error::bad_param(format!("pack `{name}`: its catalog is damaged"))
        })
    }

    /// Writes a pack; equal keys are written once. The same items give the same bytes.
    ///
    /// # Errors
    /// `Driver` when the file can not be written; an existing one is replaced only by a whole one.
    pub fn write(
        path: &Path,
        arch: Arch,
        toolchain: &Toolchain,
        mut items: Vec<PackItem>,
        catalog: &str,
    ) -> Result<()> {
        items.sort_by_key(|item| item.key);
        items.dedup_by_key(|item| item.key);
        let entries_bytes: u64 = items.iter().map(|item| item.entry.len() as u64).sum();
        let header = |entries_at: u64| {
            let header = Header {
                schema: SCHEMA,
                arch,
                toolchain: toolchain.clone(),
                catalog_offset: entries_at + entries_bytes,
                catalog_bytes: catalog.len() as u64,
                catalog_blake3: blake3::hash(catalog.as_bytes()).to_hex().to_string(),
            };
            // Padded to a fixed size: the offsets in it depend on its own length.
            let mut text = serde_json::to_string(&header).expect("plain data is JSON");
            text.extend(std::iter::repeat_n(' ', 512usize.saturating_sub(text.len())));
            text
        };
        let rows_bytes = items.len() * ROW_BYTES;
        let entries_at = (PREFIX_BYTES + header(0).len() + rows_bytes) as u64;
        let header = header(entries_at);
        let mut out = Vec::with_capacity(entries_at as usize + entries_bytes as usize);
        out.extend(MAGIC);
        out.extend((header.len() as u32).to_le_bytes());
        out.extend((items.len() as u32).to_le_bytes());
        out.extend(header.as_bytes());
        let mut offset = entries_at;
        for item in &items {
            out.extend(item.key.to_bytes());
            out.extend(blake3::hash(&item.entry).as_bytes());
            out.extend(offset.to_le_bytes());
            out.extend((item.entry.len() as u64).to_le_bytes());
            offset += item.entry.len() as u64;
        }
        items.iter().for_each(|item| out.extend(&item.entry));
        out.extend(catalog.as_bytes());
        replace(path, &out)
    }

    /// What a signature covers: everything before the entries.
    fn signed(&self) -> &[u8] {
        &self.bytes.get()[..self.rows_at + self.rows * ROW_BYTES]
    }

    /// Who signed the pack; `None` when nobody has.
    ///
    /// # Errors
    /// `BadParam` when it is signed and the signature is wrong.
    pub fn signer(&self) -> Result<Option<TrustRoot>> {
        signer(self.bytes.get(), self.signed())
            .map_err(|what| Error::bad_param(format!("pack `{}`: {what}", self.name.display())))
    }

    /// Refuses a pack that none of the roots has signed.
    ///
    /// # Errors
    /// `BadParam` when it is unsigned, signed by another key, or its signature is wrong.
    pub fn require_trust(&self, roots: &[TrustRoot]) -> Result<()> {
        let name = self.name.display();
        match self.signer()? {
            Some(root) if roots.contains(&root) => Ok(()),
            Some(root) => Err(Error::bad_param(format!(
                "pack `{name}`: it is signed by {}, which is not a trust root",
                root.to_hex()
            ))),
            None => Err(Error::bad_param(format!("pack `{name}`: it is not signed"))),
        }
    }

    /// Signs a pack file; an earlier signature is replaced.
    ///
    /// # Errors
    /// `BadParam` when it is not a pack, `Driver` when it can not be written.
    pub fn sign(path: &Path, key: &PackSigner) -> Result<()> {
        let pack = Pack::open(path)?;
        let all = pack.bytes.get();
        let signed_before = signer(all, pack.signed()) != Ok(None);
        let end = all.len() - if signed_before { TRAILER_BYTES } else { 0 };
        replace(path, &[&all[..end], &key.trailer(pack.signed())].concat())
    }
}

/// Replaces a file by a whole new one, readable by everyone.
fn replace(path: &Path, out: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::driver(format!("failed to write pack `{}`: {error}", path.display()))
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
        assert_eq!((pack.len(), pack.catalog().expect("whole")), (50, "[]"));
        for source in &sources {
            let entry = pack.get(item(source).key).expect("sound").expect("packed");
            assert_eq!(entry.request.source, *source);
        }
        assert!(pack.get(item("another").key).expect("sound").is_none());
        assert!(pack.verify().is_empty());
        // The same kernels in another order, one twice: the same bytes.
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
        let refused = |pack: &Pack| pack.require_trust(&[key.root()]).expect_err("bad").to_string();
        assert!(refused(&unsigned).ends_with(": it is not signed"));
        for _ in 0..2 {
            Pack::sign(&path, &key).expect("writable");
            let signed = Pack::open(&path).expect("a pack");
            assert_eq!(signed.signer().expect("right"), Some(key.root()));
            assert!(signed.require_trust(&[other.root(), key.root()]).is_ok());
            assert_eq!(signed.bytes(), unsigned.bytes() + TRAILER_BYTES as u64);
            assert!(signed.verify().is_empty());
        }
        // Whatever the signature covers, a flipped bit breaks it.
        let whole = fs::read(&path).expect("readable");
        for position in 0..unsigned.signed().len() {
            let mut forged = whole.clone();
            forged[position] ^= 1;
            if let Ok(pack) = Pack::embedded(Vec::leak(forged), "forged") {
                assert!(pack.require_trust(&[key.root()]).is_err(), "flip at {position}");
            }
        }
        Pack::sign(&path, &other).expect("writable");
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
            let bytes: &'static [u8] = Vec::leak(bytes);
            let Ok(pack) = Pack::embedded(bytes, "damaged") else { return };
            for source in sources {
                // Found as it was, not found, or an error; never something else.
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
