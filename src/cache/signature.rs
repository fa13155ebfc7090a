//! Signatures of packs: who vouches for the machine code in them.
//!
//! A digest beside the data tells damage, not malice. A signed pack ends in
//! ```text
//! "KILNSIG2", public key (32 bytes)
//! version, expiry      u64, u64, little endian: seconds since 1970 that it ends, or 0
//! ed25519 signature    64 bytes
//! ```
//! over version, expiry and the digest of everything before the entries: header and rows, which
//! hold the digests of the entries and of the catalog. The catalog has the digests of the source,
//! the PTX and the cubin of each kernel. Checking the signature reads nothing behind the rows.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::error::{Error, Result};

pub(super) const TRAILER_BYTES: usize = 8 + 32 + 16 + 64;
const MAGIC: &[u8; 8] = b"KILNSIG2";

/// A public key: whoever holds the secret half may sign packs that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrustRoot([u8; 32]);

impl TrustRoot {
    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// `BadParam` for anything else.
    pub fn from_hex(text: &str) -> Result<TrustRoot> {
        let bytes = blake3::Hash::from_hex(text.trim()).ok().map(|hash| *hash.as_bytes());
        let valid = bytes.filter(|bytes| VerifyingKey::from_bytes(bytes).is_ok());
        valid.map(TrustRoot).ok_or_else(|| {
            Error::bad_param("a public key is 64 hexadecimal digits of an ed25519 point")
        })
    }

    /// 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// What a signature says besides who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Validity {
    /// Counts the packs that a signer has made for one purpose: of two, the greater is newer.
    pub version: u64,
    /// When the pack stops to be accepted.
    pub expires: Option<SystemTime>,
}

/// A signature that is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signed {
    /// Who made it.
    pub by: TrustRoot,
    /// What it says.
    pub validity: Validity,
}

/// Whom to trust with the code that is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Trust {
    /// Who may sign packs; where there is none, no signature is needed.
    pub roots: Vec<TrustRoot>,
    /// Packs of an older version are refused.
    pub version_min: u64,
    /// Packs that never expire are refused.
    pub expiry: bool,
}

impl Trust {
    /// Whether a pack needs a signature.
    pub fn is_required(&self) -> bool {
        !self.roots.is_empty()
    }

    /// Whether a signature is one of a root, new enough and still valid.
    ///
    /// # Errors
    /// A text with what it is instead.
    pub(super) fn accepts(&self, signed: Option<Signed>) -> std::result::Result<(), String> {
        let Some(Signed { by, validity: Validity { version, expires } }) = signed else {
            return Err("it is not signed".to_owned());
        };
        if !self.roots.contains(&by) {
            return Err(format!("it is signed by {}, which is not a trust root", by.to_hex()));
        }
        if version < self.version_min {
            let least = self.version_min;
            return Err(format!("it has version {version}, at least {least} is required"));
        }
        match expires.map(|expires| expires.elapsed()) {
            Some(Ok(past)) => Err(format!("it expired {} days ago", past.as_secs() / 86_400)),
            None if self.expiry => Err("it never expires, an expiry is required".to_owned()),
            _ => Ok(()),
        }
    }
}

/// The secret half of a [`TrustRoot`].
pub struct PackSigner(SigningKey);

impl std::fmt::Debug for PackSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackSigner({})", self.root().to_hex())
    }
}

impl PackSigner {
    /// A new key from the operating system's random numbers.
    ///
    /// # Errors
    /// `Io` when there are none.
    pub fn generate() -> Result<PackSigner> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| Error::io(format!("failed to get random numbers: {error}")))?;
        Ok(PackSigner(SigningKey::from_bytes(&secret)))
    }

    /// Reads the file that [`PackSigner::to_hex`] was written to.
    ///
    /// # Errors
    /// `BadParam` when it can not be read or holds anything but 64 hexadecimal digits.
    pub fn read(path: &Path) -> Result<PackSigner> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Error::bad_param(format!("failed to read key `{shown}`: {error}")))?;
        let secret = blake3::Hash::from_hex(text.trim()).map_err(|_| {
            Error::bad_param(format!("key `{shown}` does not hold 64 hexadecimal digits"))
        })?;
        Ok(PackSigner(SigningKey::from_bytes(secret.as_bytes())))
    }

    /// 64 hexadecimal digits, to be kept secret.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0.to_bytes()).to_hex().to_string()
    }

    /// The public half.
    pub fn root(&self) -> TrustRoot {
        TrustRoot(self.0.verifying_key().to_bytes())
    }

    /// The trailer for a pack whose header and rows are `signed`.
    pub(super) fn trailer(&self, signed: &[u8], validity: Validity) -> Vec<u8> {
        let Validity { version, expires } = validity;
        let since = expires.and_then(|expires| expires.duration_since(UNIX_EPOCH).ok());
        let expires = since.map_or(0, |since| since.as_secs().max(1));
        let said = [version.to_le_bytes(), expires.to_le_bytes()].concat();
        let signature = self.0.sign(&message(signed, &said)).to_bytes();
        [&MAGIC[..], &self.root().0, &said, &signature].concat()
    }
}

/// Who signed.
///
/// # Errors
/// A text when the signature is wrong.
pub(super) fn signer(
    trailer: &[u8; TRAILER_BYTES],
    signed: &[u8],
) -> std::result::Result<Signed, String> {
    let trailer = trailer.strip_prefix(MAGIC).ok_or("its signature is damaged")?;
    let (root, rest) = trailer.split_at(32);
    let (said, signature) = rest.split_at(16);
    let root: [u8; 32] = root.try_into().expect("split at 32");
    let signature = Signature::from_slice(signature).expect("64 bytes are left");
    let valid = VerifyingKey::from_bytes(&root)
        .is_ok_and(|key| key.verify_strict(&message(signed, said), &signature).is_ok());
    if !valid {
        return Err("its signature is wrong".to_owned());
    }
    let number = |at: usize| u64::from_le_bytes(said[at..][..8].try_into().expect("16 bytes"));
    let expires = match number(8) {
        0 => None,
        // What is past all clocks never comes.
        seconds => UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
    };
    Ok(Signed { by: TrustRoot(root), validity: Validity { version: number(0), expires } })
}

fn message(signed: &[u8], said: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("kiln 2026-11 pack signature 2");
    *hasher.update(said).update(signed).finalize().as_bytes()
}
