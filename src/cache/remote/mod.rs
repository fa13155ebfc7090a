//! The remote tier: a store that several machines share, through `opendal`.
//!
//! Read-through: what it has is checked like an entry of the disk, and kept there. Write-behind:
//! what was compiled is sent by a task that no call waits for. It is asked only before a
//! compilation, never at a launch, and a store that is slow, down or wrong costs a bounded time.

#[cfg(not(feature = "remote"))]
#[path = "absent.rs"]
mod store;
#[cfg(feature = "remote")]
mod store;

use std::time::Duration;

pub use store::RemoteCache;

/// A store and how it is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Where it is, as `opendal` writes it: `redis://host:6379/0/kernels`,
    /// `s3://bucket/kernels?region=eu-central-1`, `webdav:///kernels?endpoint=http://host`,
    /// `fs:///mnt/share/kernels`.
    pub uri: String,
    /// Only read from it.
    pub read_only: bool,
    /// The longest that a read takes before it is given up. A write, which nobody waits for, may
    /// take ten times as long.
    pub timeout: Duration,
}

impl Remote {
    /// The address without what may be secret: user, password and options.
    pub fn name(&self) -> String {
        let (scheme, rest) = self.uri.split_once("://").unwrap_or(("", &self.uri));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, place)| place))
    }

    /// A store that is read and written, with a deadline of half a second: several compilations'
    /// worth of time would be no gain.
    pub fn new(uri: impl Into<String>) -> Remote {
        Remote { uri: uri.into(), read_only: false, timeout: Duration::from_millis(500) }
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
    }
}
