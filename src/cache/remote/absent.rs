//! Stub of the remote tier for builds without it.

use std::convert::Infallible;
use std::time::Duration;

use super::Remote;
use crate::cache::{Counts, Entry, Key};
use crate::error::{Error, Result};

/// A remote store; cannot be opened by this build.
#[derive(Debug)]
pub struct RemoteCache(Infallible);

impl RemoteCache {
    /// Refuses to open a store: this build lacks the feature.
    ///
    /// # Errors
    /// `NotSupported`, always.
    pub fn open(remote: &Remote) -> Result<RemoteCache> {
        Err(Error::not_supported(format!(
            "remote store `{}`: this build lacks the cargo feature `remote`",
            remote.name()
        )))
    }

    /// Reads the entry of a key.
    pub fn get(&self, _key: Key) -> Option<(Entry, Vec<u8>)> {
        match self.0 {}
    }

    /// Probes the store.
    ///
    /// # Errors
    /// When the store fails or does not answer in time.
    pub fn check(&self) -> Result<Duration> {
        match self.0 {}
    }

    /// Address of the store.
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// Sends an entry.
    pub fn put(&self, _key: Key, _bytes: Vec<u8>) {
        match self.0 {}
    }

    /// Waits for pending writes.
    pub fn flush(&self, _wait: Duration) -> bool {
        match self.0 {}
    }

    /// Statistics of this process.
    pub fn counts(&self) -> Counts {
        match self.0 {}
    }
}
