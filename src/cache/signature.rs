//! Signatures of packs, which authenticate their machine code.
//!
//! A digest beside the data detects damage, not tampering. A signed pack ends in
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

/// A public key; the holder of the secret key may sign accepted packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrustRoot([u8; 32]);

impl TrustRoot {
    /// Parses 64 hexadecimal digits.
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

    /// The key as 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// Signed attributes of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Validity {
    /// Version of the pack for its purpose, increasing with each release.
    pub version: u64,
    /// Expiry time.
    pub expires: Option<SystemTime>,
}

/// A valid signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signed {
    /// Public key of the signer.
    pub by: TrustRoot,
    /// Signed attributes.
    pub validity: Validity,
}

/// Trust policy for packs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Trust {
    /// Keys whose signatures are accepted; if empty, no signature is required.
    pub roots: Vec<TrustRoot>,
    /// Minimum version of accepted packs.
    pub version_min: u64,
    /// Whether packs without expiry are rejected.
    pub expiry: bool,
}

impl Trust {
    /// Whether a signature is required.
    pub fn is_required(&self) -> bool {
        !self.roots.is_empty()
    }

    /// Checks that a signature is by a root, recent enough and not expired.
    ///
    /// # Errors
    /// A message with the reason of rejection.
    pub(super) fn accepts(&self, signed: Option<Signed>) -> std::result::Result<(), String> {
        let Some(Signed { by, validity: Validity { version, expires } }) = signed else {
            return Err("it is not signed".to_owned());
        };
        if !self.roots.contains(&by) {
            return Err(format!("it is signed by {}, which is not a trust root", by.to_hex()));
        }
        if version < self.version_min {
            let least = self.version_min;
            return Err(format!("it has version {version}, expected at least {least}"));
        }
        match expires.map(|expires| expires.elapsed()) {
            Some(Ok(past)) => Err(format!("it expired {} days ago", past.as_secs() / 86_400)),
            None if self.expiry => Err("it has no expiry, which is required".to_owned()),
            _ => Ok(()),
        }
    }
}

/// The secret key of a [`TrustRoot`].
pub struct PackSigner(SigningKey);

impl std::fmt::Debug for PackSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackSigner({})", self.root().to_hex())
    }
}

impl PackSigner {
    /// Generates a key from the operating system's random numbers.
    ///
    /// # Errors
    /// `Driver` when random numbers are unavailable.
    pub fn generate() -> Result<PackSigner> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| Error::io(format!("failed to get random numbers: {error}")))?;
        Ok(PackSigner(SigningKey::from_bytes(&secret)))
    }

    /// Reads a key file written with [`PackSigner::to_hex`].
    ///
    /// # Errors
    /// `BadParam` when the file cannot be read or is not 64 hexadecimal digits.
    pub fn read(path: &Path) -> Result<PackSigner> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Error::bad_param(format!("failed to read key `{shown}`: {error}")))?;
        let secret = blake3::Hash::from_hex(text.trim())
            .map_err(|_| Error::bad_param(format!("key `{shown}` is not 64 hexadecimal digits")))?;
        Ok(PackSigner(SigningKey::from_bytes(secret.as_bytes())))
    }

    /// The secret key as 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0.to_bytes()).to_hex().to_string()
    }

    /// The public key.
    pub fn root(&self) -> TrustRoot {
        TrustRoot(self.0.verifying_key().to_bytes())
    }

    /// Trailer of a pack whose header and rows are `signed`.
    pub(super) fn trailer(&self, signed: &[u8], validity: Validity) -> Vec<u8> {
        let Validity { version, expires } = validity;
        let since = expires.and_then(|expires| expires.duration_since(UNIX_EPOCH).ok());
        let expires = since.map_or(0, |since| since.as_secs().max(1));
        let said = [version.to_le_bytes(), expires.to_le_bytes()].concat();
        let signature = self.0.sign(&message(signed, &said)).to_bytes();
        [&MAGIC[..], &self.root().0, &said, &signature].concat()
    }
}

/// Verifies a trailer and returns the signer.
///
/// # Errors
/// A message if the signature is invalid.
pub(super) fn signer(
    trailer: &[u8; TRAILER_BYTES],
    signed: &[u8],
) -> std::result::Result<Signed, String> {
    let trailer = trailer.strip_prefix(MAGIC).ok_or("the signature is malformed")?;
    let (root, rest) = trailer.split_at(32);
    let (said, signature) = rest.split_at(16);
    let root: [u8; 32] = root.try_into().expect("split at 32");
    let signature = Signature::from_slice(signature).expect("64 bytes are left");
    let valid = VerifyingKey::from_bytes(&root)
        .is_ok_and(|key| key.verify_strict(&message(signed, said), &signature).is_ok());
    if !valid {
        return Err("the signature is invalid".to_owned());
    }
    let number = |at: usize| u64::from_le_bytes(said[at..][..8].try_into().expect("16 bytes"));
    let expires = match number(8) {
        0 => None,
        // A time beyond the range of the clock never expires.
        seconds => UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
    };
    Ok(Signed { by: TrustRoot(root), validity: Validity { version: number(0), expires } })
}

fn message(signed: &[u8], said: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("kiln 2026-11 pack signature 2");
    *hasher.update(said).update(signed).finalize().as_bytes()
}
