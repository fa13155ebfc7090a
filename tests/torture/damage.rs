//! Files that are not what was written: every one must be noticed, and none may be used.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use kiln::cache::{DiskCache, Entry, Pack, PackSigner, Validity};

use crate::sample;
use crate::work::BUDGET_BYTES;
use crate::{Context, Outcome};

/// Every single bit of a whole entry, header and payload.
pub fn bits_of_an_entry(_: &Context) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut bytes, key) = (sample::entry(3, 0), sample::key(3));
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = Entry::decode(&bytes, key);
        outcome.expect(found.is_err(), || format!("bit {bit} is not noticed"));
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    outcome.figure("flips", bytes.len() as u64 * 8);
    outcome.expect(Entry::decode(&bytes, key).is_ok(), || "the whole one is refused".into());
    outcome
}

/// Whether everything that looks at a pack finds it whole.
fn is_sound(bytes: &[u8]) -> bool {
    Pack::embedded(bytes.to_vec(), "damaged").is_ok_and(|pack| {
        pack.verify().is_empty() && pack.catalog().is_ok() && pack.signed().is_ok()
    })
}

fn signed_pack(folder: &Path) -> Vec<u8> {
    let path = folder.join("a.kilnpack");
    sample::write_pack(&path, 4);
    let signer = PackSigner::generate().expect("random numbers");
    Pack::sign(&path, &signer, Validity::default()).expect("just written");
    fs::read(&path).expect("just written")
}

/// Every single bit of a whole signed pack.
pub fn bits_of_a_pack(context: &Context) -> Outcome {
    let mut outcome = Outcome::default();
    let mut bytes = signed_pack(&context.folder);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        outcome.expect(!is_sound(&bytes), || format!("bit {bit} is not noticed"));
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    outcome.figure("flips", bytes.len() as u64 * 8);
    outcome.expect(is_sound(&bytes), || "the whole one is refused".into());
    outcome
}

/// Every shorter length, and longer ones.
fn lengths(whole: &[u8], is_noticed: impl Fn(&[u8]) -> bool) -> Outcome {
    let mut outcome = Outcome::default();
    for length in 0..whole.len() {
        outcome.expect(is_noticed(&whole[..length]), || format!("length {length} is not noticed"));
    }
    let mut longer = whole.to_vec();
    for more in 1..=256 {
        longer.push(more as u8);
        outcome.expect(is_noticed(&longer), || format!("{more} bytes more are not noticed"));
    }
    outcome.figure("lengths", whole.len() as u64 + 256);
    outcome
}

pub fn lengths_of_an_entry(_: &Context) -> Outcome {
    lengths(&sample::entry(3, 0), |bytes| Entry::decode(bytes, sample::key(3)).is_err())
}

/// Of an unsigned pack: one that has lost its signature and nothing else is whole.
pub fn lengths_of_a_pack(context: &Context) -> Outcome {
    let path = context.folder.join("a.kilnpack");
    sample::write_pack(&path, 4);
    lengths(&fs::read(&path).expect("just written"), |bytes| !is_sound(bytes))
}

/// An entry of another schema with a right digest.
fn of_another_schema() -> Vec<u8> {
    let mut bytes = sample::entry(0, 0);
    let (name, at) = (b"\"schema\":2", 44);
    let found = bytes.windows(name.len()).position(|window| window == name);
    bytes[found.expect("schema 2 is written") + name.len() - 1] = b'3';
    let digest = blake3::hash(&bytes[at..]);
    bytes[12..at].copy_from_slice(digest.as_bytes());
    bytes
}

/// Files in the place of an entry: each is a miss with its reason, is removed, and is rebuilt.
pub fn wrong_files(context: &Context) -> Outcome {
    let mut outcome = Outcome::default();
    let whole = sample::entry(0, 0);
    let (key, zeros) = (sample::key(0), vec![0; whole.len()]);
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("no bytes", Vec::new(), "malformed"),
        ("zero bytes only", zeros, "malformed"),
        ("half", whole[..whole.len() / 2].to_vec(), "digest"),
        ("another schema", of_another_schema(), "schema"),
        ("another format", [b"KILNENT2", &whole[8..]].concat(), "malformed"),
        ("the entry of another key", sample::entry(1, 0), "key"),
        ("text", b"not an entry".to_vec(), "malformed"),
    ];
    let cache = DiskCache::open(&context.folder.join("cache"), BUDGET_BYTES).expect("own folder");
    cache.put(key, &whole);
    let path = cache.path_of(key);
    outcome.figure("wrong files", cases.len() as u64);
    for (name, bytes, reason) in cases {
        fs::write(&path, bytes).expect("own folder");
        let before = cache.counts();
        outcome.expect(cache.get(key).is_none(), || format!("{name}: it was used"));
        let counts = cache.counts();
        let counted = counts.misses.get(reason) > before.misses.get(reason);
        outcome.expect(counted, || format!("{name}: not counted: {counts:?}"));
        outcome.expect(!path.exists(), || format!("{name}: not removed"));
        cache.put(key, &whole);
        let found = cache.get(key);
        outcome.expect(found == Some(sample::image(0, 0)), || format!("{name}: not rebuilt"));
    }
    outcome
}

/// Dates of a time that has not come: a hit corrects them, and they protect nothing.
pub fn clock_that_goes_back(context: &Context) -> Outcome {
    let mut outcome = Outcome::default();
    let cache = DiskCache::open(&context.folder.join("cache"), BUDGET_BYTES).expect("own folder");
    let now = SystemTime::now();
    let year = Duration::from_secs(365 * 24 * 3600);
    let date = |path: &Path, then| {
        File::options().append(true).open(path).and_then(|file| file.set_modified(then))
    };
    for number in 0..100 {
        cache.put(sample::key(number), &sample::entry(number, 0));
        let then = if number < 50 { now + 10 * year } else { now - year };
        date(&cache.path_of(sample::key(number)), then).expect("own file");
    }
    for number in 0..10 {
        outcome.expect(cache.get(sample::key(number)).is_some(), || "a future entry missed".into());
        let modified = fs::metadata(cache.path_of(sample::key(number))).and_then(|m| m.modified());
        let corrected = modified.is_ok_and(|modified| modified < now + year);
        outcome.expect(corrected, || format!("the date of {number} stays"));
    }
    let temporary = cache.path_of(sample::key(0)).with_file_name(".tmp-future");
    fs::write(&temporary, b"half").and_then(|()| date(&temporary, now + year)).expect("own file");
    let bytes: u64 = cache.entries().iter().map(|entry| entry.bytes).sum();
    let collected = cache.collect(bytes * 7 / 10).expect("alone");
    outcome.expect(collected.stale == 1, || "a future temporary file stays".into());
    for (number, kept) in [(0, true), (20, false), (99, true)] {
        let is_there = cache.path_of(sample::key(number)).exists();
        outcome.expect(is_there == kept, || format!("entry {number}: there: {is_there}"));
    }
    outcome.figure("entries", 100);
    outcome.figure("removed", collected.removed as u64);
    outcome
}
