//! Identity of a compiled kernel.

use std::fmt;

use blake3::Hasher;
use serde::{Deserialize, Serialize};

use crate::codegen::KernelSource;
use crate::compile::{Toolchain, options, ptx_options};
use crate::target::Arch;

/// Version of keys and of the entry format.
pub const SCHEMA: u32 = 2;

/// Key of a compiled kernel: a digest of everything that affects its bits, and nothing else.
///
/// The rendered source covers templates, graph and knobs; options, version and build number cover
/// the compilation. Device name and driver version are not included, since an entry is machine code
/// for one exact architecture.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// Computes the key of a request.
    pub fn of(request: &Request) -> Key {
        let mut hasher = Hasher::new_derive_key("kiln 2026-11 compiled kernel key");
        hasher.update(&SCHEMA.to_le_bytes());
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(request.source.as_bytes());
        for option in &request.options {
            part(option.as_bytes());
        }
        part(request.arch.to_string().as_bytes());
        part(request.toolchain.to_string().as_bytes());
        Key(*hasher.finalize().as_bytes())
    }

    /// Key of this kernel with its PTX overridden.
    pub fn overridden(self, ptx: &str) -> Key {
        let mut hasher = Hasher::new_derive_key("kiln 2026-11 overridden kernel key");
        Key(*hasher.update(&self.0).update(ptx.as_bytes()).finalize().as_bytes())
    }

    /// Key with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    /// The key's bytes.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Parses the output of [`Key::to_hex`]; `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Key> {
        blake3::Hash::from_hex(text).ok().map(|hash| Key(*hash.as_bytes()))
    }

    /// The key as 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", &self.to_hex()[..16])
    }
}

/// A compilation request; stored in the entry and compared on a hit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Stem of the kernel, informational.
    pub stem: String,
    /// Name of the kernel function.
    pub entry: String,
    /// Rendered source; entries store it in the payload.
    #[serde(skip)]
    pub source: String,
    /// Compiler options without paths.
    pub options: Vec<String>,
    /// Exact architecture.
    pub arch: Arch,
    /// Compiler.
    pub toolchain: Toolchain,
}

impl Request {
    /// Request to compile a source with a toolchain.
    pub fn new(source: &KernelSource, toolchain: &Toolchain) -> Request {
        Request {
            stem: source.stem.clone(),
            entry: source.entry.clone(),
            source: source.text.clone(),
            options: options(source.arch),
            arch: source.arch,
            toolchain: toolchain.clone(),
        }
    }

    /// The request for the PTX alone.
    pub fn ptx(source: &KernelSource, toolchain: &Toolchain) -> Request {
        Request { options: ptx_options(source.arch), ..Request::new(source, toolchain) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cache) fn sample_request() -> Request {
        Request {
            stem: "s".into(),
            entry: "e".into(),
            source: "text".into(),
            options: vec!["-a".into(), "-b".into()],
            arch: Arch::new(90),
            toolchain: Toolchain { version: (13, 0), build: 88 },
        }
    }

    #[test]
    fn every_part_counts() {
        let base = sample_request();
        let changed = [
            Request { source: "text ".into(), ..base.clone() },
            Request { options: vec!["-a-b".into()], ..base.clone() },
            Request { arch: Arch::of_device(90), ..base.clone() },
            Request { toolchain: Toolchain { version: (13, 0), build: 89 }, ..base.clone() },
        ];
        for request in changed {
            assert_ne!(Key::of(&request), Key::of(&base), "{request:?}");
        }
        let renamed = Request { stem: "another".into(), ..base.clone() };
        assert_eq!(Key::of(&renamed), Key::of(&base));
        let key = Key::of(&base);
        assert_eq!(Key::from_hex(&key.to_hex()), Some(key));
        assert_eq!(Key::from_hex("xyz"), None);
    }
}
