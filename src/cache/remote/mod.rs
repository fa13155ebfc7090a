//! The remote tier: a store shared by several machines, through `opendal`.
//!
//! Reads are read-through: remote entries are verified like disk entries and stored on disk. Writes
//! are write-behind: compiled entries are sent by a background task. The store is queried only
//! before a compilation, never at a launch; a slow, unreachable or corrupt store costs bounded
//! time.

#[cfg(not(feature = "remote"))]
#[path = "absent.rs"]
mod store;
#[cfg(feature = "remote")]
mod store;

use std::fmt;
use std::time::Duration;

pub use store::RemoteCache;

/// Address and options of a remote store.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    /// `opendal` URI: `redis://host:6379/0/kernels`, `s3://bucket/kernels?region=eu-central-1`,
    /// `webdav:///kernels?endpoint=http://host`, `fs:///mnt/share/kernels`.
    pub uri: String,
    /// Whether to disable writes.
    pub read_only: bool,
    /// Timeout of a read. The timeout of a write, which runs in the background, is ten times as
    /// long.
    pub timeout: Duration,
}

impl Remote {
    /// The address without potential secrets: user, password and options. If the parts cannot be
    /// distinguished, only the scheme remains.
    pub fn name(&self) -> String {
        let (scheme, rest) = self.uri.split_once("://").unwrap_or(("", &self.uri));
        let (place, options) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        match (place.rsplit_once('@'), options.contains('@')) {
            (_, true) => format!("{scheme}://..."),
            (Some((_, place)), _) => format!("{scheme}://{place}"),
            (None, _) => format!("{scheme}://{place}"),
        }
    }

    /// Removes the secrets of the address from a foreign message.
    #[cfg(any(feature = "remote", test))]
    pub(super) fn redacted(&self, text: &str) -> String {
        let rest = self.uri.split_once("://").map_or(self.uri.as_str(), |(_, rest)| rest);
        let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
        let password = user.split_once(':').map_or("", |(_, password)| password);
        let options = rest.split(['?', '&', '#']).skip(1);
        let values = options.filter_map(|option| Some(option.split_once('=')?.1));
        let mut secrets: Vec<&str> = [self.uri.as_str(), user, password].into_iter().collect();
        secrets.extend(values);
        // Longest first: one may contain another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let known = secrets.into_iter().filter(|secret| !secret.is_empty());
        known.fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }

    /// A readable and writable store with a read timeout of half a second, about the time of
    /// several compilations.
    pub fn new(uri: impl Into<String>) -> Remote {
        Remote { uri: uri.into(), read_only: false, timeout: Duration::from_millis(500) }
    }
}

impl fmt::Debug for Remote {
    /// Omits secrets, since configurations are logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("uri", &self.name())
            .field("read_only", &self.read_only)
            .field("timeout", &self.timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_no_secrets() {
        let name = |uri: &str| Remote::new(uri).name();
        assert_eq!(name("redis://me:secret@host:6379/0/kernels"), "redis://host:6379/0/kernels");
        assert_eq!(name("s3://bucket/path?secret_access_key=k"), "s3://bucket/path");
        assert_eq!(name("fs:///mnt/kernels"), "fs:///mnt/kernels");
        assert_eq!(name("redis://me:se/cr@et@host:6379"), "redis://host:6379");
        assert_eq!(name("redis://me:sec?ret@host:6379"), "redis://...");
        assert_eq!(name("redis://me:sec#ret@host:6379"), "redis://...");
        let shown = format!("{:?}", Remote::new("redis://me:secret@host:6379/0"));
        assert!(shown.contains("redis://host:6379/0") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn texts_of_others_are_redacted() {
        let remote = Remote::new("redis://me:hunter2@host/0?secret_access_key=abcd");
        let text = "failed at redis://me:hunter2@host/0?secret_access_key=abcd (me:hunter2)";
        assert_eq!(remote.redacted(text), "failed at *** (***)");
        assert_eq!(remote.redacted("key abcd, password hunter2"), "key ***, password ***");
    }
}
