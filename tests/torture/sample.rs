//! Entries that verify themselves: what an entry must hold follows from its number and its version.

use std::time::Duration;

use kiln::cache::{Entry, Key, Pack, PackItem, Request};
use kiln::compile::{Image, Resources, Toolchain};
use kiln::target::Arch;

pub const TOOLCHAIN: Toolchain = Toolchain { version: (13, 0), build: 88 };
pub const ARCH: Arch = Arch::of_device(90);

/// What is asked for under a number.
pub fn request(number: u64) -> Request {
    Request {
        stem: format!("stem_{number}"),
        entry: "kernel".to_owned(),
        source: format!("__global__ void kernel() {{ /* {number} */ }}\n").repeat(20),
        options: vec!["--gpu-architecture=sm_90a".to_owned()],
        arch: ARCH,
        toolchain: TOOLCHAIN,
    }
}

/// What a compilation gives; another version stands for a compiler that is not deterministic.
pub fn image(number: u64, version: u64) -> Image {
    let mut stream = blake3::Hasher::new();
    stream.update(&number.to_le_bytes()).update(&version.to_le_bytes());
    let mut stream = stream.finalize_xof();
    let mut length = [0; 2];
    stream.fill(&mut length);
    let mut cubin = vec![0; usize::from(u16::from_le_bytes(length)) / 2];
    stream.fill(&mut cubin);
    let ptx = format!("// number {number}, version {version}\n");
    let resources = Resources { registers: 32, ..Resources::default() };
    Image { cubin, ptx, log: version.to_string(), resources }
}

pub fn key(number: u64) -> Key {
    Key::of(&request(number))
}

/// The bytes of an entry.
pub fn entry(number: u64, version: u64) -> Vec<u8> {
    Entry::encode(&request(number), &image(number, version), Duration::from_millis(60))
}

/// Whether an image is one that was written under the number.
pub fn is_right(number: u64, found: &Image) -> bool {
    found.log.parse().is_ok_and(|version| *found == image(number, version))
}

/// A pack of the first `count` entries, of short images.
pub fn write_pack(path: &std::path::Path, count: u64) {
    let items = (0..count).map(|number| {
        let mut image = image(number, 0);
        image.cubin.truncate(256);
        let entry = Entry::encode(&request(number), &image, Duration::ZERO);
        PackItem { key: key(number), entry }
    });
    let catalog = r#"[{"what": "a pack to be damaged"}]"#;
    Pack::write(path, ARCH, &TOOLCHAIN, items.collect(), catalog).expect("a writable folder");
}
