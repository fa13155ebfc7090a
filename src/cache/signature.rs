//! Signatures of packs: who vouches for the machine code in them.
//!
//! A digest beside the data tells damage, not malice. A signed pack ends in
//! ```text
//! "KILNSIG1", public key (32 bytes), ed25519 signature (64 bytes)
//! ```
//! over the digest of everything before the entries: header and rows, which hold the digests of the
//! entries and of the catalog. Checking it reads nothing else.

use std::fs;
use std::path::Path;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::error::{Error, Result};

pub(super) const TRAILER_BYTES: usize = 8 + 32 + 64;
const MAGIC: &[u8; 8] = b"KILNSIG1";

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
    /// `Driver` when there are none.
    pub fn generate() -> Result<PackSigner> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| Error::driver(format!("failed to get random numbers: {error}")))?;
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
    pub(super) fn trailer(&self, signed: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(&message(signed)).to_bytes();
        [&MAGIC[..], &self.root().0, &signature].concat()
    }
}

/// Who signed.
///
/// # Errors
/// A text when the signature is wrong.
pub(super) fn signer(
    trailer: &[u8; TRAILER_BYTES],
    signed: &[u8],
) -> std::result::Result<TrustRoot, String> {
    let trailer = trailer.strip_prefix(MAGIC).ok_or("its signature is damaged")?;
    let (root, signature) = trailer.split_at(32);
    let root: [u8; 32] = root.try_into().expect("split at 32");
    let signature = Signature::from_slice(signature).expect("64 bytes are left");
    let valid = VerifyingKey::from_bytes(&root)
        .is_ok_and(|key| key.verify_strict(&message(signed), &signature).is_ok());
    if valid { Ok(TrustRoot(root)) } else { Err("its signature is wrong".to_owned()) }
}

fn message(signed: &[u8]) -> [u8; 32] {
    blake3::derive_key("kiln 2026-11 pack signature", signed)
}
