//! What kernels that wait for signals report: that a wait has ended by its time.
//!
//! Each wait of a plan has memory of its own, a record for each stream that it is launched into, so
//! that an error is that of the stream on which it happened. A record is zero until a wait fails;
//! the host reads it when it has waited for the stream, and makes it zero again. In a CUDA graph a
//! wait reports for the stream that was captured, whatever stream replays it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::driver::Driver;
use crate::error::{Error, Result};

/// Size of a record: a word that is not 0 where the wait has ended by its time, and a word with the
/// flag's last value.
pub(crate) const REPORT_BYTES: u64 = 8;

/// Streams of a device that wait for signals.
const STREAMS_MAX: usize = 64;

/// A wait, in the caller's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waited {
    /// Name and uid of the flag.
    pub(crate) flag: String,
    pub(crate) uid: i64,
    /// The value that is waited for.
    pub(crate) value: i32,
    /// The wait's time.
    pub(crate) timeout_ms: u32,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waited { flag, uid, value, timeout_ms } = self;
        write!(f, "wait for flag `{flag}` (uid {uid}) to be {value} ended after {timeout_ms} ms")
    }
}

/// A wait of a plan and the memory of its records.
#[derive(Debug)]
pub(crate) struct ReportSite {
    driver: Arc<dyn Driver>,
    address: u64,
    waited: Waited,
}

impl ReportSite {
    pub(super) fn new(driver: Arc<dyn Driver>, waited: Waited) -> Result<ReportSite> {
        let address = driver.alloc(STREAMS_MAX as u64 * REPORT_BYTES)?;
        let site = ReportSite { driver, address, waited };
        // Not on the default stream, which must not be used while another is being captured.
        let stream = site.driver.stream_create()?;
        let zeros = [0; STREAMS_MAX * REPORT_BYTES as usize];
        let cleared = site.driver.write(address, &zeros, stream);
        site.driver.stream_destroy(stream);
        cleared.map(|()| site)
    }

    fn record(&self, slot: usize) -> u64 {
        self.address + slot as u64 * REPORT_BYTES
    }

    /// The error of a wait that ended by its time, which is reported once.
    fn failure(&self, slot: usize, stream: u64) -> Result<()> {
        let mut words = [0; REPORT_BYTES as usize];
        self.driver.read(self.record(slot), &mut words, stream)?;
        let [ended, seen] = [0, 4].map(|at| words[at..at + 4].try_into().expect("four bytes"));
        if u32::from_le_bytes(ended) == 0 {
            return Ok(());
        }
        self.driver.write(self.record(slot), &[0; REPORT_BYTES as usize], stream)?;
        let seen = i32::from_le_bytes(seen);
        Err(Error::driver(format!("{}: it is {seen}", self.waited)))
    }
}

impl Drop for ReportSite {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}

/// The reports that streams of a device are expected to have.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Whether there are any.
    some: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The stream of each record.
    streams: Vec<Option<u64>>,
    expected: Vec<Expected>,
}

/// A wait that was launched and whose report was not read since.
#[derive(Debug, Clone)]
struct Expected {
    stream: u64,
    slot: usize,
    site: Arc<ReportSite>,
    /// Whether a CUDA graph holds it, which may be replayed at any time.
    captured: bool,
}

impl Reports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a wait's record for a stream, into which it is about to be launched.
    ///
    /// # Errors
    /// `NotSupported` when too many streams wait.
    pub(super) fn expect(
        &self,
        site: &Arc<ReportSite>,
        stream: u64,
        captured: bool,
    ) -> Result<u64> {
        let mut state = self.state();
        let known = state.streams.iter().position(|of| *of == Some(stream));
        let slot = known.or_else(|| state.streams.iter().position(Option::is_none));
        let slot = slot.unwrap_or(state.streams.len());
        if slot == STREAMS_MAX {
            return Err(Error::not_supported(format!(
                "more than {STREAMS_MAX} streams of a device wait for signals"
            )));
        }
        match state.streams.get_mut(slot) {
            Some(of) => *of = Some(stream),
            None => state.streams.push(Some(stream)),
        }
        let same = |of: &&mut Expected| of.slot == slot && Arc::ptr_eq(&of.site, site);
        match state.expected.iter_mut().find(same) {
            Some(of) => of.captured |= captured,
            None => state.expected.push(Expected { stream, slot, site: site.clone(), captured }),
        }
        self.some.store(true, Ordering::Relaxed);
        Ok(site.record(slot))
    }

    /// Reads the reports of a stream whose work has ended. Those of other streams are for whoever
    /// synchronises these, even if they have ended as well.
    ///
    /// # Errors
    /// `Driver` when a wait has ended by its time.
    pub(super) fn check(&self, stream: u64) -> Result<()> {
        if !self.some.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mine = |of: &Expected| of.stream == stream;
        let ended: Vec<Expected> = {
            let mut state = self.state();
            let ended = state.expected.iter().filter(|of| mine(of)).cloned().collect();
            state.expected.retain(|of| of.captured || !mine(of));
            self.some.store(!state.expected.is_empty(), Ordering::Relaxed);
            ended
        };
        // Every record is read, and the first failure told.
        let failures = ended.iter().map(|of| of.site.failure(of.slot, stream));
        failures.fold(Ok(()), Result::and)
    }

    /// Forgets a stream that is destroyed: its handle may become another's.
    pub(super) fn forget(&self, stream: u64) {
        let mut state = self.state();
        state.expected.retain(|of| of.stream != stream);
        state.streams.iter_mut().filter(|of| **of == Some(stream)).for_each(|of| *of = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::null::NullDriver;
    use crate::target::Target;

    #[test]
    fn streams_have_records_of_their_own() {
        let driver: Arc<dyn Driver> = Arc::new(NullDriver::new(Target::sim()));
        let waited = Waited { flag: "f".to_owned(), uid: 7, value: -1, timeout_ms: 20 };
        let site = Arc::new(ReportSite::new(driver, waited).expect("nothing fails"));
        let reports = Reports::default();
        let expect = |stream| reports.expect(&site, stream, false);
        let first = expect(10).expect("there is room");
        assert_eq!(expect(10).expect("known"), first);
        assert_eq!(expect(11).expect("there is room"), first + REPORT_BYTES);
        for stream in 12..10 + STREAMS_MAX as u64 {
            expect(stream).expect("there is room");
        }
        let error = expect(99).expect_err("there is no room").to_string();
        assert_eq!(error, "more than 64 streams of a device wait for signals");
        reports.forget(11);
        assert_eq!(expect(99).expect("a stream was destroyed"), first + REPORT_BYTES);
        reports.check(0).expect("nothing is expected");
        assert!(reports.some.load(Ordering::Relaxed));
        for stream in 10..100 {
            reports.check(stream).expect("no wait has ended");
        }
        assert!(!reports.some.load(Ordering::Relaxed));
        reports.expect(&site, 10, true).expect("known");
        reports.check(10).expect("no wait has ended");
        assert!(reports.some.load(Ordering::Relaxed));
    }
}
