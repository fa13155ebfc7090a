//! Packs and entries made to harm whoever reads them: refused, with the reason, in bounded memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use kiln::cache::{DiskCache, Entry, Key, Pack, PackItem, Request, Trust};
use kiln::compile::{Image, Resources, Toolchain};
use kiln::target::Arch;
use serde_json::{Value, json};

const TOOLCHAIN: Toolchain = Toolchain { version: (13, 0), build: 88 };
const ARCH: Arch = Arch::of_device(90);

fn request(name: &str) -> Request {
    Request {
        stem: name.to_owned(),
        entry: "kernel".to_owned(),
        source: format!("// {name}\n"),
        options: Vec::new(),
        arch: ARCH,
        toolchain: TOOLCHAIN,
    }
}

fn key(name: &str) -> Key {
    Key::of(&request(name))
}

fn entry(name: &str) -> Vec<u8> {
    let image = Image {
        cubin: name.as_bytes().repeat(20),
        ptx: name.to_owned(),
        log: String::new(),
        resources: Resources::default(),
    };
    Entry::encode(&request(name), &image, Duration::ZERO)
}

#[derive(Clone)]
struct Row {
    key: [u8; 32],
    blake3: [u8; 32],
    offset: u64,
    length: u64,
}

/// A pack in its parts; what is not set is computed, so that only the forged part is wrong.
#[derive(Clone)]
struct Forged {
    header_bytes: Option<u32>,
    row_count: Option<u32>,
    header: Value,
    header_text: Option<String>,
    rows: Vec<Row>,
    rest: Vec<u8>,
}

impl Forged {
    /// A sound pack of entries with these names.
    fn of(names: &[&str]) -> Forged {
        let items = names.iter().map(|name| PackItem { key: key(name), entry: entry(name) });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sound.kilnpack");
        Pack::write(&path, ARCH, &TOOLCHAIN, items.collect(), "[]").unwrap();
        let bytes = fs::read(&path).unwrap();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (rows_at, count) = (48 + number(8), number(12));
        let row = |row: &[u8]| Row {
            key: row[..32].try_into().unwrap(),
            blake3: row[32..64].try_into().unwrap(),
            offset: u64::from_le_bytes(row[64..72].try_into().unwrap()),
            length: u64::from_le_bytes(row[72..].try_into().unwrap()),
        };
        let rows_end = rows_at + count * 80;
        Forged {
            header_bytes: None,
            row_count: None,
            header: serde_json::from_slice(&bytes[48..rows_at]).unwrap(),
            header_text: None,
            rows: bytes[rows_at..rows_end].chunks_exact(80).map(row).collect(),
            rest: bytes[rows_end..].to_vec(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let header = self.header_text.clone().unwrap_or_else(|| self.header.to_string());
        let mut out = b"KILNPAK2".to_vec();
        out.extend(self.header_bytes.unwrap_or(header.len() as u32).to_le_bytes());
        out.extend(self.row_count.unwrap_or(self.rows.len() as u32).to_le_bytes());
        out.extend([0; 32]);
        out.extend(header.as_bytes());
        for row in &self.rows {
            out.extend([row.key, row.blake3].concat());
            out.extend([row.offset.to_le_bytes(), row.length.to_le_bytes()].concat());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&out[..16]).update(&out[48..]);
        out[16..48].copy_from_slice(hasher.finalize().as_bytes());
        out.extend(&self.rest);
        out
    }

    /// Where the entries begin: header and rows have other lengths than in the sound pack.
    fn move_entries(&mut self) {
        let head = self.bytes().len() - self.rest.len();
        let shift = head as i64 - self.rows.first().map_or(head as i64, |row| row.offset as i64);
        self.rows.iter_mut().for_each(|row| row.offset = row.offset.wrapping_add_signed(shift));
    }

    fn open(&self) -> kiln::Result<Pack> {
        Pack::embedded(self.bytes(), "forged")
    }
}

#[track_caller]
fn refused(expected: &str, names: &[&str], forge: impl FnOnce(&mut Forged)) {
    let mut forged = Forged::of(names);
    assert!(forged.open().is_ok(), "it is sound before it is forged");
    forge(&mut forged);
    let error = forged.open().expect_err("forged").to_string();
    assert_eq!(error, format!("failed to open pack `forged`: {expected}"));
}

#[test]
fn lengths_that_are_not_there_are_refused() {
    let names = &["one", "two", "three"];
    refused("the header is damaged", names, |pack| pack.row_count = Some(u32::MAX));
    refused("the header is damaged", names, |pack| pack.header_bytes = Some(u32::MAX));
    refused("it is truncated", names, |pack| pack.row_count = Some(1 << 20));
    refused("it is truncated", names, |pack| pack.rest.truncate(40));
    refused("the catalog is too long", names, |pack| {
        pack.header["catalog_bytes"] = json!(1u64 << 60);
        pack.move_entries();
    });
    refused("it is truncated", names, |pack| {
        pack.header["catalog_bytes"] = json!(1000);
        pack.move_entries();
    });
    refused("7 bytes follow the catalog", names, |pack| pack.rest.extend(b"trailer"));
    refused("2 bytes follow the catalog", names, |pack| {
        pack.header["catalog_bytes"] = json!(0);
        pack.move_entries();
    });
}

#[test]
fn entries_lie_one_after_another_or_are_refused() {
    let names = &["one", "two", "three"];
    let apart = "the entries are not contiguous";
    refused(apart, names, |pack| pack.rows[1].offset = pack.rows[0].offset);
    refused(apart, names, |pack| pack.rows[1].offset += 1);
    refused(apart, names, |pack| pack.rows[0].offset = 0);
    refused(apart, names, |pack| pack.rows[0].offset = u64::MAX);
    refused(apart, names, |pack| pack.rows[0].length = 1 << 60);
    refused(apart, names, |pack| {
        // They wrap around to where they should end.
        let row = &mut pack.rows[2];
        (row.offset, row.length) = (u64::MAX - 9, row.offset.wrapping_add(row.length + 10));
    });
}

#[test]
fn keys_ascend_or_are_refused() {
    let names = &["one", "two", "three"];
    refused("the rows are not sorted", names, |pack| {
        let [first, .., last] = &mut pack.rows[..] else { panic!("three rows") };
        std::mem::swap(&mut first.key, &mut last.key);
    });
    refused("the rows are not sorted", names, |pack| pack.rows[1].key = pack.rows[0].key);
}

#[test]
fn headers_are_small_and_flat() {
    let names = &["one"];
    refused("the header is damaged", names, |pack| {
        pack.header_text = Some(pack.header.to_string() + &" ".repeat(1 << 16));
    });
    refused("the header is damaged", names, |pack| pack.header_text = Some("[".repeat(60_000)));
    refused("the header is damaged", names, |pack| pack.header_text = Some("{}".to_owned()));
    refused("schema 7, expected 2", names, |pack| pack.header["schema"] = json!(7));
    refused("the header is damaged", names, |pack| pack.header["arch"] = json!("sm_x"));
}

#[test]
fn no_kernel_is_a_pack_too() {
    let pack = Forged::of(&[]).open().unwrap();
    assert!(pack.is_empty() && pack.verify().is_empty());
    assert!(pack.get(key("one")).unwrap().is_none());
    assert_eq!(pack.catalog().unwrap(), "[]");
}

/// Where the rows agree with one another and the digests with the bytes, the entries speak.
#[test]
fn a_right_digest_vouches_for_nothing_else() {
    let mut forged = Forged::of(&["one", "two"]);
    let seal = |pack: &mut Forged| {
        let start = pack.rows[0].offset;
        for row in &mut pack.rows {
            let at = (row.offset - start) as usize;
            row.blake3 = *blake3::hash(&pack.rest[at..at + row.length as usize]).as_bytes();
        }
    };
    let error = |pack: &Forged| {
        let pack = pack.open().expect("its layout is right");
        let errors = pack.verify();
        assert!(!errors.is_empty() && pack.requests().count() == pack.len() - errors.len());
        errors[0].to_string()
    };
    let sound = forged.clone();
    forged.rows[0].length -= 1;
    forged.rows[1].offset -= 1;
    forged.rows[1].length += 1;
    seal(&mut forged);
    assert!(error(&forged).ends_with(": not an entry, or truncated"), "{}", error(&forged));
    // Entries under each other's keys.
    let mut forged = sound.clone();
    let keys = [forged.rows[0].key, forged.rows[1].key];
    let lengths = [forged.rows[1].length as usize, forged.rows[0].length as usize];
    forged.rest[..lengths[0] + lengths[1]].rotate_left(lengths[1]);
    (forged.rows[0].length, forged.rows[1].length) = (lengths[0] as u64, lengths[1] as u64);
    forged.rows[1].offset = forged.rows[0].offset + lengths[0] as u64;
    seal(&mut forged);
    let other = Key::from_bytes(keys[1]);
    assert!(error(&forged).ends_with(&format!(": entry of key {other}")), "{}", error(&forged));
}

/// An entry's own header may say anything.
#[test]
fn an_entry_that_lies_about_itself_is_refused() {
    let whole = entry("one");
    let length = u32::from_le_bytes(whole[8..12].try_into().unwrap()) as usize;
    let (header, payload) = whole[44..].split_at(length);
    let of = |header: &[u8], payload: &[u8]| {
        let body = [header, payload].concat();
        let digest = *blake3::hash(&body).as_bytes();
        let length = (header.len() as u32).to_le_bytes();
        let bytes = [&b"KILNENT1"[..], &length, &digest, &body].concat();
        Entry::decode(&bytes, key("one")).map_err(|error| error.name())
    };
    let with = |header: &[u8]| of(header, payload);
    assert!(with(header).is_ok());
    let changed = |name: &str, value: Value| {
        let mut document: Value = serde_json::from_slice(header).unwrap();
        assert!(!document[name].is_null(), "{name} is part of a header");
        document[name] = value;
        with(document.to_string().as_bytes())
    };
    for bytes in [0, 59, 61, 1 << 60, u64::MAX] {
        assert_eq!(changed("cubin_bytes", json!(bytes)), Err("malformed"), "{bytes}");
    }
    assert_eq!(changed("log_bytes", json!(-1)), Err("malformed"));
    assert_eq!(changed("schema", json!(3)), Err("schema"));
    assert_eq!(changed("key", json!(key("two").to_hex())), Err("key"));
    assert_eq!(changed("key", json!("")), Err("key"));
    let other = Request { options: vec!["-G".to_owned()], ..request("one") };
    assert_eq!(changed("request", serde_json::to_value(other).unwrap()), Err("request"));
    let source = request("one").source.len();
    assert_eq!(changed("source_bytes", json!(source - 1)), Err("malformed"));
    let another = [&vec![b'/'; source][..], &payload[source..]].concat();
    assert_eq!(of(header, &another), Err("request"));
    let no_text = [&vec![0xff; source][..], &payload[source..]].concat();
    assert_eq!(of(header, &no_text), Err("malformed"));
    assert_eq!(with(&[b'['; 100_000]), Err("malformed"), "nesting is bounded");
    assert_eq!(with(&[header, b" {}"].concat()), Err("malformed"));
}

#[test]
fn a_pack_that_changes_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kilnpack");
    let names = ["one", "two"];
    let items = names.iter().map(|name| PackItem { key: key(name), entry: entry(name) });
    Pack::write(&path, ARCH, &TOOLCHAIN, items.collect(), "[]").unwrap();
    let pack = Pack::open(&path).unwrap();
    assert!(pack.get(key("one")).unwrap().is_some());
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 8], pack.bytes() - 20).unwrap();
    let last = pack.keys().last().unwrap();
    let text = pack.get(last).unwrap_err().to_string();
    assert!(text.ends_with(&format!("entry {last}: the digest differs")), "{text}");
    // A mapping would fault from here on.
    file.set_len(100).unwrap();
    for name in names {
        let text = pack.get(key(name)).unwrap_err().to_string();
        assert!(text.ends_with(": it is truncated"), "{text}");
    }
    assert_eq!((pack.verify().len(), pack.requests().count()), (2, 0));
    assert!(pack.catalog().is_err() && pack.items().is_err());
    let text = Pack::open(&path).unwrap_err().to_string();
    assert!(text.ends_with(": it is truncated"), "{text}");
}

#[test]
fn a_giant_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::open(folder.path(), 1 << 30).unwrap();
    cache.put(key("one"), &entry("one"));
    let path = cache.path_of(key("one"));
    // A terabyte that occupies nothing.
    File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(cache.get(key("one")).is_none());
    assert!(!path.exists() && cache.counts().misses.contains_key("malformed"));
    cache.put(key("one"), &entry("one"));
    assert!(cache.get(key("one")).is_some());
    let pack = folder.path().join("a.kilnpack");
    let mut forged = Forged::of(&["one"]);
    forged.rows[0].length = 1 << 40;
    fs::write(&pack, forged.bytes()).unwrap();
    File::options().write(true).open(&pack).unwrap().set_len(1 << 41).unwrap();
    let text = Pack::open(&pack).unwrap_err().to_string();
    assert!(text.ends_with("the entries are not contiguous"), "{text}");
}

#[test]
fn a_damaged_signature_is_refused() {
    let mut forged = Forged::of(&["one"]);
    forged.rest.extend([7; 120]);
    let pack = forged.open().unwrap();
    assert_eq!(pack.signed().unwrap_err().to_string(), "pack `forged`: the signature is malformed");
    assert!(pack.require_trust(&Trust::default()).is_err(), "even where no signature is needed");
}
